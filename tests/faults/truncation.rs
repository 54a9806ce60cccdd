//! Row H8: an image that another process truncates while it is in use, and disks without room. Both
//! are errors of a type, never a signal, and nothing that was committed is lost.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use holdfast_region::{Consistency, Durability, ErrorKind, Opened, RegionError};
use holdfast_testkit::Trials;
use rand::RngExt;

use crate::driver::{Child, Ended, SharedWords, run, run_with, wait_until};
use crate::home::{DATA_OFFSET, Home, MIB, key, name};
use crate::ledger::{Ledger, Refused};

const TRIALS: u64 = 20;
const ENTRIES_MAX: u64 = 200_000;
/// The writer's end when it has found out.
const NOTICED: i32 = 7;

const READY: usize = 0;
const COMMITTED: usize = 1;
const CUT: usize = 2;

/// An image truncated by another process is a typed error, and the last commit is there.
///
/// Guarantee: heap/no-false-acknowledgement
/// Guarantee: heap/no-sigbus
#[test]
fn truncated_image_is_an_error_and_keeps_commits() {
    run("truncation");
}

/// A disk that fills up is a typed error; no commit is lost or falsely acknowledged.
///
/// Guarantee: heap/no-false-acknowledgement
/// Guarantee: heap/no-sigbus
#[test]
fn full_disk_is_an_error_and_loses_no_commit() {
    let allowed =
        Command::new("unshare").args(["-Urm", "mount", "-t", "tmpfs", "none", "/mnt"]).output();
    if !allowed.as_ref().is_ok_and(|output| output.status.success()) {
        println!(
            "not run: this system forbids mounting a tmpfs in a user name space ({allowed:?})"
        );
        return;
    }
    let mut command = Command::new("unshare");
    command.args(["-Urm", "--"]).arg(std::env::current_exe().unwrap());
    run_with(command, "full disks");
}

/// Makes entries and commits, as an unsuspecting program does, until the region says that its
/// backing is lost.
fn write(home: &Home, shared: &SharedWords) -> i32 {
    let mut ledger = Ledger::open(&home.names(), Consistency::Direct).unwrap();
    ledger.verify("before the cut");
    shared.word(READY).store(1, SeqCst);
    for _ in 0..ENTRIES_MAX {
        // What an applet computes from scratch memory is its own affair; it must only not end the
        // process.
        let entered = ledger.enter();
        if ledger.region.with(|region| region.lost_backing()) {
            break;
        }
        let Ok(entry) = entered else { continue };
        if entry.is_multiple_of(16) && shared.word(CUT).load(SeqCst) == 0 {
            match ledger.region.commit(Durability::Power) {
                // Counts only if the commit was before the cut; the parent cuts between two looks
                // at this word.
                Ok(_) => shared.word(COMMITTED).store(entry, SeqCst),
                Err(RegionError::BackingLost { .. }) => break,
                Err(other) => panic!("{other}"),
            }
        }
        if shared.word(CUT).load(SeqCst) == 1 {
            break;
        }
    }
    let error = ledger.region.commit(Durability::Power).unwrap_err();
    assert!(
        matches!(error, RegionError::BackingLost { .. } | RegionError::Poisoned { .. }),
        "{error}"
    );
    assert!(ledger.close().is_err());
    NOTICED
}

pub(crate) fn drive() {
    let mut trials = Trials::of("H8", "an image truncated while it is mapped", TRIALS);
    let home = Home::new();
    Ledger::open(&home.names(), Consistency::Direct).unwrap().close().unwrap();
    let shared = SharedWords::new();
    while let Some(mut trial) = trials.next() {
        let context = format!("trial {}, seed {:#x}", trial.number, trial.seed);
        shared.word(READY).store(0, SeqCst);
        shared.word(CUT).store(0, SeqCst);
        let writer = Child::fork(|| write(&home, &shared));
        assert!(wait_until(|| shared.word(READY).load(SeqCst) == 1), "{context}");
        std::thread::sleep(Duration::from_micros(trial.random.random_range(0..3000)));
        // A kernel truncates in whole pages; headers, tables and objects are all hit.
        let longest = DATA_OFFSET + 4 * MIB - 1;
        let bytes = match trial.random.random_range(0..3) {
            0 => trial.random.random_range(0..DATA_OFFSET),
            1 => trial.random.random_range(DATA_OFFSET..DATA_OFFSET + MIB),
            _ => trial.random.random_range(DATA_OFFSET..longest),
        };
        OpenOptions::new().write(true).open(home.image()).unwrap().set_len(bytes).unwrap();
        shared.word(CUT).store(1, SeqCst);
        assert_eq!(writer.wait(), Ended::With(NOTICED), "{context}: cut to {bytes} bytes");
        let refused = home.names().open(&name(), &key()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::BadFile, "{context}: {refused}");
        home.names().remove_image(&name(), &key()).unwrap();
        let region = home.names().open(&name(), &key()).unwrap();
        assert_eq!(region.opened(), Opened::Cold);
        let ledger = Ledger::on(region, Consistency::Direct).unwrap();
        ledger.verify(&context);
        let committed = shared.word(COMMITTED).load(SeqCst);
        assert!(ledger.done() >= committed, "{context}: {} of {committed}", ledger.done());
        ledger.close().unwrap();
    }
}

/// Runs in name spaces of its own, where it may mount.
pub(crate) fn drive_full() {
    let mut trials = Trials::of("H8", "a pool and a store without room", TRIALS);
    let directory = tempfile::tempdir().unwrap();
    while let Some(mut trial) = trials.next() {
        let context = format!("trial {}, seed {:#x}", trial.number, trial.seed);
        let (home_at, pool_at) = (directory.path().join("home"), directory.path().join("pool"));
        for (place, kib) in [(&home_at, 12 << 10), (&pool_at, 20 << 10)] {
            std::fs::create_dir_all(place).unwrap();
            mount(place, kib);
        }
        let home = Home::at(&home_at, &pool_at);
        let mut ledger = Ledger::open(&home.names(), Consistency::Direct).unwrap();
        let mut committed = 0;
        // Leaves a different rest each time, in the store or in the pool.
        let filler =
            if trial.number % 2 == 0 { home_at.join("filler") } else { pool_at.join("filler") };
        let fill_at = trial.random.random_range(1..300);
        let mut told = false;
        for _ in 0..600 {
            match ledger.enter() {
                Ok(entry) if entry == fill_at => fill(&filler, trial.random.random_range(0..2000)),
                Ok(_) => {}
                // The pool is full: the heap says so, and is as it was.
                Err(Refused::Heap(_)) => told = true,
                Err(other) => panic!("{context}: {other:?}"),
            }
            if ledger.done().is_multiple_of(20) || told {
                match ledger.region.commit(Durability::Power) {
                    Ok(_) => committed = ledger.done(),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::NoRoom, "{context}: {error}");
                        assert!(ledger.region.with(|region| region.is_dirty()), "{context}");
                        told = true;
                    }
                }
            }
            if told {
                break;
            }
        }
        ledger.verify(&context);
        let entered = ledger.done();
        ledger.leave();
        // The machine loses its memory while the disk is still full.
        let lost = trial.random.random_ratio(1, 2);
        if lost && home.base().exists() {
            std::fs::remove_file(home.image()).unwrap();
        }
        let _ = std::fs::remove_file(&filler);
        let mut ledger = Ledger::open(&home.names(), Consistency::Direct).unwrap();
        ledger.verify(&context);
        let least = if lost { committed } else { entered };
        assert!(
            (least..=entered).contains(&ledger.done()),
            "{context}: {} of {least}",
            ledger.done()
        );
        // With room again all goes on.
        ledger.enter().unwrap();
        ledger.region.commit(Durability::Power).unwrap();
        let done = ledger.done();
        ledger.leave();
        std::fs::remove_file(home.image()).unwrap();
        let ledger = Ledger::open(&home.names(), Consistency::Direct).unwrap();
        assert_eq!(ledger.done(), done, "{context}");
        ledger.leave();
        for place in [&home_at, &pool_at] {
            assert!(Command::new("umount").arg(place).status().unwrap().success());
        }
    }
}

fn mount(place: &Path, kib: u64) {
    let mut command = Command::new("mount");
    command.args(["-t", "tmpfs", "-o", &format!("size={kib}k,mode=0700"), "none"]).arg(place);
    assert!(command.status().unwrap().success());
}

/// Takes all room but about `rest_kib`.
fn fill(path: &Path, rest_kib: u64) {
    let folder = path.parent().unwrap();
    let free = holdfast_sys::file::space(folder).unwrap().available_bytes;
    let bytes = free.saturating_sub(rest_kib << 10);
    if bytes > 0 {
        let file = std::fs::File::create(path).unwrap();
        holdfast_sys::file::allocate(&file, 0..bytes).unwrap();
    }
}
