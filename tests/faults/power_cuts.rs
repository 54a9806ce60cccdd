//! Row H4: the power of a real file system goes. `FS_IOC_SHUTDOWN` stops ext4 and xfs on a loop
//! device at once, with nothing written back that was not synced; the pool is gone, too. What is
//! found after the next mount is what a disk would have had.
//!
//! A commit counts as acknowledged if it returned before the cut began. While these file systems
//! are being shut down, an `fdatasync` that is under way may return 0 without having done its work
//! (a plain loop of `pwrite` and `fdatasync` shows it); with the plug there is nothing left to be
//! told.
//!
//! Needs root, loop devices and both programs that make file systems; without, the test says what
//! it lacks.

#![allow(unsafe_code, reason = "one system call")]

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use holdfast_region::{Consistency, Durability, Opened};
use holdfast_testkit::{Trial, Trials};
use rand::RngExt;

use crate::driver::run_with;
use crate::home::Home;
use crate::ledger::Ledger;
use holdfast_testkit::file_system::{FileSystem, KINDS, lacking};

/// On each of the two file systems.
const CUTS: u64 = 50;
const ENTRIES_MAX: u64 = 1_000_000;
/// A file system is made anew after so many cuts.
const CUTS_OF_ONE: u64 = 25;
/// After a power cut on ext4 and XFS, every acknowledged commit is there.
///
/// Guarantee: heap/power
#[test]
fn acknowledged_commits_survive_power_cuts() {
    if let Some(lacking) = lacking() {
        println!("not run: {lacking}");
        return;
    }
    // Mounts of a name space of its own end with it, also when the driver is killed.
    let mut command = Command::new("unshare");
    command.args(["-m", "--"]).arg(std::env::current_exe().unwrap());
    run_with(command, "power cuts");
}

pub(crate) fn drive() {
    for kind in &KINDS {
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let mut trials = Trials::of("H4", kind.name(), CUTS);
        let mut disk: Option<(FileSystem, u64)> = None;
        while let Some(mut trial) = trials.next() {
            let (mut system, committed) = match disk.take() {
                Some(disk) if trial.number % CUTS_OF_ONE != 0 => disk,
                _ => (FileSystem::new(kind, directory.path()).unwrap(), 0),
            };
            system.mount().unwrap();
            let committed = cut(&system, directory.path(), committed, &mut trial);
            system.unmount();
            disk = Some((system, committed));
        }
    }
}

/// Checks what the last cut left, works until the power goes, and returns what was acknowledged by
/// then.
fn cut(system: &FileSystem, directory: &Path, committed: u64, trial: &mut Trial) -> u64 {
    let context = format!("{}, cut {}, seed {:#x}", system.kind().name(), trial.number, trial.seed);
    let pool = directory.join("pool");
    let _ = std::fs::remove_dir_all(&pool);
    let home = Home::at(&system.place().join("home"), &pool);
    let mut ledger = Ledger::open(&home.names(), Consistency::Direct)
        .unwrap_or_else(|e| panic!("{context}: {e:?}"));
    ledger.verify(&context);
    let opened = ledger.region.with(|region| region.opened());
    assert!(
        opened == Opened::Cold || committed == 0 && opened == Opened::Created,
        "{context}: {opened:?}"
    );
    assert!(ledger.done() >= committed, "{context}: {} of {committed} acknowledged", ledger.done());
    let acknowledged = AtomicU64::new(ledger.done());
    let (going, dark) = (AtomicBool::new(false), AtomicBool::new(false));
    let delay = Duration::from_micros(trial.random.random_range(0..60_000));
    let forced: Option<(u64, u64)> = trial.random.random_ratio(1, 2).then(|| {
        (trial.random.random_range(0..64) * 4096, trial.random.random_range(1..64) * 4096)
    });
    let in_one_commit = trial.random.random_range(1..20);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(delay);
            if let Some((start, bytes)) = forced {
                write_back(&home, start, bytes);
            }
            going.store(true, SeqCst);
            system.cut_power().unwrap();
            dark.store(true, SeqCst);
        });
        let mut after = 0;
        for _ in 0..ENTRIES_MAX {
            let entry = ledger.enter().unwrap();
            if !entry.is_multiple_of(in_one_commit) {
                continue;
            }
            let was_dark = dark.load(SeqCst);
            match ledger.region.commit(Durability::Power) {
                Ok(_) => {
                    assert!(!was_dark, "{context}: a commit was acknowledged without power");
                    if !going.load(SeqCst) {
                        acknowledged.store(entry, SeqCst);
                    }
                }
                Err(_) if after < 3 => after += 1,
                Err(_) => break,
            }
        }
    });
    let acknowledged = acknowledged.load(SeqCst);
    ledger.leave();
    acknowledged
}

/// A part of what was written reaches the disk unasked: a disk may keep any subset of
/// pages.
fn write_back(home: &Home, start: u64, bytes: u64) {
    let store = home.base();
    let Some(entries) = store.parent().and_then(|folder| std::fs::read_dir(folder).ok()) else {
        return;
    };
    for path in entries.flatten().map(|entry| entry.path()) {
        let Ok(file) = OpenOptions::new().read(true).write(true).open(&path) else { continue };
        let flags = libc::SYNC_FILE_RANGE_WRITE | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        // SAFETY: an open descriptor and plain numbers.
        unsafe { libc::sync_file_range(file.as_raw_fd(), start as i64, bytes as i64, flags) };
    }
}
