//! Rescue copies: made while the writer of a region is stopped, and what the next open makes of
//! them. Losing the pool stands for the machine that goes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::child::{Player, play};
use common::faulty::{Fault, FaultyStorage};
use common::hooked::Hooked;
use common::{
    Home, MIB, flip, key, list, load, make_newer, map, named, number, open_atomic, other_key, push,
    read, store, store_number, truncate,
};
use holdfast_region::{
    Durability, ErrorKind, Medium, NameSpace, Opened, Region, RegionError, Replaced, Rescue,
    Written,
};
use rustix::process::{Pid, Signal, kill_process};

const ENOSPC: i32 = 28;

#[test]
fn a_child_plays_its_role() {
    play();
}

fn rescue_path(home: &Home, name: &str) -> PathBuf {
    home.path().join("store").join(format!("{name}.rescue"))
}

fn lose_the_pool(home: &Home) {
    std::fs::remove_dir_all(home.pool()).unwrap();
}

/// A home with a region whose last writer stored the number 2 and died, after it had committed 1.
fn crashed() -> Home {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 8 * MIB).unwrap();
    store_number(&mut region, 1);
    region.commit(Durability::Power).unwrap();
    store_number(&mut region, 2);
    drop(region);
    home
}

fn open_number(home: &Home) -> (Opened, u64) {
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    let number = number(&mut region);
    (region.opened(), number)
}

/// What a stopped writer had stored is there after the machine went.
///
/// Guarantee: keeper/flush
#[test]
fn stopped_writers_stores_survive_machine_loss() {
    let home = Home::with_text("words", b"hello");
    let mut writer = Player::start(&home, "hold words stored");
    assert_eq!(writer.hear(), "holding");
    let names = home.names();
    // A process that is not known to be stopped may be storing.
    let running = names.rescue(&named("words"), None).unwrap_err();
    assert!(
        matches!(running, RegionError::Held { holder: Some(pid), .. } if pid == writer.pid()),
        "{running}"
    );
    let stopped = Pid::from_raw(writer.pid() as i32).unwrap();
    kill_process(stopped, Signal::STOP).unwrap();
    let report = names.rescue(&named("words"), Some(writer.pid())).unwrap();
    assert_eq!(report, Rescue::Written { bytes: 4096 });
    assert_eq!(
        names.rescue_if_changed(&named("words"), Some(writer.pid()), || true).unwrap(),
        Rescue::Unchanged
    );
    writer.kill();
    lose_the_pool(&home);
    let summary = home.names().summary(&named("words")).unwrap();
    assert!(summary.rescue.is_some_and(|copy| copy.allocated_bytes < MIB));
    let reader = home.names().open_read(&named("words")).unwrap();
    assert!(
        reader.bytes().starts_with(b"stored"),
        "a reader sees an older state than a writer would"
    );
    drop(reader);
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), load(&mut region, 0, 6)), (Opened::Rescued, b"stored".to_vec()));
    assert!(region.is_dirty(), "the store lacks what was rescued");
    region.close().unwrap();
    assert!(!rescue_path(&home, "words").exists());
    lose_the_pool(&home);
    let region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, 0, 6)), (Opened::Cold, b"stored".to_vec()));
}

/// A copy that was made behind an orderly close, before the next session's first commit, does not
/// undo that commit: the commit has the number of the mark that it replaces.
///
/// Guarantee: keeper/no-undo
#[test]
fn copy_of_before_the_first_commit_is_passed_over() {
    let home = crashed();
    home.names().open(&named("words"), &key()).unwrap().close().unwrap();
    for (number, commits) in [(4, false), (5, true)] {
        let mut region = home.names().open(&named("words"), &key()).unwrap();
        store_number(&mut region, number);
        drop(region);
        home.names().rescue(&named("words"), None).unwrap();
        if commits {
            let mut region = home.names().open(&named("words"), &key()).unwrap();
            store_number(&mut region, 6);
            assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
            drop(region);
        }
        lose_the_pool(&home);
        let mut region = home.names().open(&named("words"), &key()).unwrap();
        let expected = if commits { (Opened::Cold, 6) } else { (Opened::Rescued, 4) };
        assert_eq!((region.opened(), common::number(&mut region)), expected);
        region.close().unwrap();
        let mut region = home.names().open(&named("words"), &key()).unwrap();
        store_number(&mut region, number + 10);
        region.close().unwrap();
    }
}

/// A copy that is older than the last commit is passed over.
///
/// Guarantee: keeper/no-undo
#[test]
fn copy_older_than_last_commit_is_passed_over() {
    for newer_base in [false, true] {
        let home = crashed();
        home.names().rescue(&named("words"), None).unwrap();
        let mut region = home.names().open(&named("words"), &key()).unwrap();
        store_number(&mut region, 3);
        if newer_base {
            // Nearly all of it changed: no record, but a base.
            store(&mut region, 4096 * 3, &vec![7; 4096 * 36]);
            store(&mut region, 4096 * 41, &vec![7; 4096 * 258]);
            store(&mut region, 4096 * 301, &vec![7; 4096 * 698]);
        }
        region.commit(Durability::Power).unwrap();
        // Not committed, and not rescued.
        store_number(&mut region, 4);
        drop(region);
        assert!(rescue_path(&home, "words").exists());
        lose_the_pool(&home);
        assert_eq!(open_number(&home), (Opened::Cold, 3), "newer base: {newer_base}");
    }
}

/// A commit compares, finds that the store has it all, and writes nothing: no number in the store
/// tells that the copy is older.
///
/// Guarantee: keeper/no-undo
#[test]
fn copy_never_undoes_a_later_commit() {
    let home = crashed();
    home.names().rescue(&named("words"), None).unwrap();
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    store_number(&mut region, 1);
    region.commit(Durability::Power).unwrap();
    drop(region);
    lose_the_pool(&home);
    assert_eq!(open_number(&home), (Opened::Cold, 1));
}

/// Guarantee: keeper/damaged-copy
#[test]
fn a_damaged_copy_costs_no_more_than_the_copy() {
    let damages: [fn(&Path); 5] = [
        |path| flip(path, 2 * MIB + 9),
        |path| flip(path, 8192 + 20),
        |path| truncate(path, 3 * MIB),
        |path| truncate(path, 100),
        |path| std::fs::write(path, b"something else").unwrap(),
    ];
    for damage in damages {
        let home = crashed();
        home.names().rescue(&named("words"), None).unwrap();
        damage(&rescue_path(&home, "words"));
        lose_the_pool(&home);
        assert_eq!(open_number(&home), (Opened::Cold, 1));
    }
}

/// Makes the note of a copy say that a newer program wrote it.
fn make_note_newer(path: &Path) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut note = [0; 48];
    file.read_exact_at(&mut note, 8192).unwrap();
    note[8..12].copy_from_slice(&2_u32.to_le_bytes());
    let sum = xxhash_rust::xxh3::xxh3_64(&note[..40]);
    note[40..].copy_from_slice(&sum.to_le_bytes());
    file.write_all_at(&note, 8192).unwrap();
}

/// A newer program wrote the copy, and this one cannot tell whether the store has something newer.
///
/// Guarantee: heap/old-formats
/// Guarantee: keeper/no-undo
#[test]
fn copy_of_a_newer_program_is_kept_and_refused() {
    for newer in [make_newer as fn(&Path), make_note_newer] {
        let home = crashed();
        let (names, words) = (home.names(), named("words"));
        names.snapshot(&words, &key(), &named("first")).unwrap();
        names.rescue(&words, None).unwrap();
        let path = rescue_path(&home, "words");
        newer(&path);
        let copy = std::fs::read(&path).unwrap();
        let is_refused = |refused: Result<(), RegionError>| {
            let error = refused.unwrap_err();
            let RegionError::NewerFormat { path: found, found: 2, .. } = &error else {
                panic!("{error}")
            };
            assert_eq!(*found, path);
            assert!(std::fs::read(&path).unwrap() == copy, "a newer program's file was changed");
        };
        // Beside an image a session goes on, and leaves it alone.
        let mut region = names.open(&words, &key()).unwrap();
        store_number(&mut region, 3);
        region.commit(Durability::Power).unwrap();
        region.close().unwrap();
        is_refused(names.rescue(&words, None).map(drop));
        is_refused(names.evict(&words).map(drop));
        is_refused(names.remove_image(&words, &key()));
        is_refused(names.restore(&words, &key(), &named("first"), true).map(drop));
        assert!(home.image("words").exists());
        lose_the_pool(&home);
        let names = home.names();
        is_refused(names.open(&words, &key()).map(drop));
        is_refused(names.open_read(&words).map(drop));
        is_refused(names.set_medium(&words, &key(), Medium::File));
        is_refused(names.examine(&words, &key()).map(drop));
        let damaged = names.summary(&words).unwrap().damaged.unwrap();
        assert!(damaged.contains("words.rescue") && damaged.contains("version 2"), "{damaged}");
        // As a person moves it away.
        std::fs::rename(&path, home.path().join("aside")).unwrap();
        assert_eq!(open_number(&home), (Opened::Cold, 3));
    }
}

/// Such a copy cannot be removed, so the store has to tell that it is older.
///
/// Guarantee: keeper/no-undo
#[test]
fn commit_beside_a_newer_programs_copy_makes_a_base() {
    let home = crashed();
    home.names().rescue(&named("words"), None).unwrap();
    make_newer(&rescue_path(&home, "words"));
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    store_number(&mut region, 1);
    assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Base);
    assert!(rescue_path(&home, "words").exists());
}

/// A base file under the name of a copy does not count.
#[test]
fn base_file_named_as_a_copy_does_not_count() {
    let home = crashed();
    std::fs::copy(home.base("words"), rescue_path(&home, "words")).unwrap();
    lose_the_pool(&home);
    assert_eq!(open_number(&home), (Opened::Cold, 1));
}

/// A region that never had a checkpoint comes back from its copy.
///
/// Guarantee: keeper/first-copy
#[test]
fn uncheckpointed_region_returns_from_its_copy() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 8 * MIB).unwrap();
    store_number(&mut region, 5);
    drop(region);
    home.names().rescue(&named("words"), None).unwrap();
    lose_the_pool(&home);
    let names = home.names();
    let summaries = names.list().unwrap();
    assert_eq!(
        (summaries.len(), summaries[0].base.is_none(), summaries[0].limit_bytes),
        (1, true, 8 * MIB)
    );
    let taken = names.create(&named("words"), &key(), MIB).unwrap_err();
    assert!(matches!(taken, RegionError::AlreadyExists { .. }), "{taken}");
    let foreign = names.open(&named("words"), &other_key()).unwrap_err();
    assert_eq!(foreign.kind(), ErrorKind::Denied);
    // Its address is not given to another one.
    let other = names.create(&named("other"), &key(), MIB).unwrap();
    let mut region = names.open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), number(&mut region)), (Opened::Rescued, 5));
    assert_ne!(region.address(), other.address());
    region.close().unwrap();
    assert!(home.base("words").exists());
}

/// A publication that a stopped writer had half done is whole in the copy.
///
/// Guarantee: keeper/atomic-copy
#[test]
fn half_done_publication_is_whole_in_the_copy() {
    for step in 0.. {
        assert!(step < 40, "the publication never comes to its end");
        let home = Home::with_text("words", b"hello");
        let storage = Arc::new(FaultyStorage::new(Fault::Dead));
        let mut region = open_atomic(&home.names_over(storage.clone()));
        store_number(&mut region, 1);
        push(&mut region, 1);
        region.publish().unwrap();
        store_number(&mut region, 2);
        push(&mut region, 2);
        storage.arm(step);
        let published = region.publish().is_ok();
        // It has the region still: stopped, as far as can be seen.
        let stopped = Some(std::process::id());
        home.names().rescue(&named("words"), stopped).unwrap();
        drop(region);
        lose_the_pool(&home);
        let mut region = home.names().open(&named("words"), &key()).unwrap();
        let found = number(&mut region);
        assert_eq!(list(&mut region).len() as u64, found, "step {step}");
        assert!(found == 2 || found == 1 && !published, "step {step}: {found}");
        if !storage.struck() {
            break;
        }
    }
}

/// A copy that fails at any step leaves the one before it.
///
/// Guarantee: keeper/damaged-copy
#[test]
fn failed_copy_leaves_the_previous_one() {
    for fault in [Fault::Dead, Fault::Once(ENOSPC), Fault::Always(ENOSPC)] {
        for step in 0.. {
            assert!(step < 40, "the copy never comes to its end");
            let home = crashed();
            home.names().rescue(&named("words"), None).unwrap();
            let mut region = home.names().open(&named("words"), &key()).unwrap();
            store_number(&mut region, 3);
            drop(region);
            let storage = Arc::new(FaultyStorage::new(fault));
            storage.arm(step);
            let made = home.names_over(storage.clone()).rescue(&named("words"), None);
            if let Err(error) = &made {
                assert!(
                    matches!(error, RegionError::StoreFull { .. } | RegionError::Io { .. }),
                    "{fault:?} in step {step}: {error}"
                );
            }
            lose_the_pool(&home);
            let (opened, found) = open_number(&home);
            assert_eq!(opened, Opened::Rescued, "{fault:?} in step {step}");
            assert!(found == 3 || found == 2 && made.is_err(), "{fault:?} in step {step}: {found}");
            if !storage.struck() {
                break;
            }
            // What was left of it is in no one's way.
            home.names().rescue(&named("words"), None).unwrap();
            home.names().remove(&named("words"), &key()).unwrap();
            let left = std::fs::read_dir(home.path().join("store")).unwrap();
            let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
            assert_eq!(left, [".rescue.lock"], "{fault:?} in step {step}");
        }
    }
}

/// One of three is damaged and one is not there, and the disk fails at any step.
///
/// Guarantee: keeper/damaged-copy
#[test]
fn several_copies_fail_independently() {
    let three = |home: &Home| {
        for name in ["first", "words", "last"] {
            let mut region = match name {
                "words" => home.names().open(&named(name), &key()).unwrap(),
                _ => home.names().create(&named(name), &key(), 8 * MIB).unwrap(),
            };
            store_number(&mut region, 7);
            drop(region);
        }
        truncate(&home.image("words"), 4096);
    };
    let names = ["first", "words", "none", "last"].map(named);
    for step in 0.. {
        assert!(step < 100, "the copies never come to their end");
        let home = crashed();
        three(&home);
        let storage = Arc::new(FaultyStorage::new(Fault::Always(ENOSPC)));
        storage.arm(step);
        let all = names.iter().map(|name| (name, None));
        let rescued =
            home.names_over(storage.clone()).rescue_each(all, |_| true, &mut Replaced::default());
        assert!(matches!(rescued[1], Err(RegionError::Truncated { .. })), "{:?}", rescued[1]);
        assert!(matches!(rescued[2], Err(RegionError::NotFound { .. })), "{:?}", rescued[2]);
        let written = |at: usize| matches!(rescued[at], Ok(Rescue::Written { .. }));
        lose_the_pool(&home);
        for (at, name) in [(0, "first"), (3, "last")] {
            let found = home.names().open(&named(name), &key());
            let is_there = found.is_ok_and(|mut region| number(&mut region) == 7);
            assert!(is_there || !written(at), "{name} at step {step}");
        }
        if !storage.struck() {
            assert!(written(0) && written(3) && step > 4, "after {step} steps: {rescued:?}");
            break;
        }
    }
}

/// The room of a copy that is replaced is freed late, but before another copy goes without.
///
/// Guarantee: keeper/damaged-copy
#[test]
fn full_store_regains_room_of_replaced_copies() {
    let home = crashed();
    let storage = Arc::new(FaultyStorage::new(Fault::Once(ENOSPC)));
    let names = home.names_over(storage.clone());
    let word = named("words");
    let mut replaced = Replaced::default();
    let copy =
        |replaced: &mut Replaced| names.rescue_each([(&word, None)], |_| true, replaced).remove(0);
    assert!(matches!(copy(&mut replaced), Ok(Rescue::Written { .. })));
    assert!(replaced.is_empty(), "there was none before");
    let write = storage.take_log().iter().position(|step| *step == "write_at").unwrap();
    storage.arm(write);
    assert!(matches!(copy(&mut replaced), Err(RegionError::StoreFull { .. })), "nothing to free");
    assert!(matches!(copy(&mut replaced), Ok(Rescue::Written { .. })));
    assert!(!replaced.is_empty(), "the one before is not freed yet");
    storage.arm(write);
    assert!(matches!(copy(&mut replaced), Ok(Rescue::Written { .. })));
    assert!(storage.struck());
}

/// The writer was let go on while its region was copied.
///
/// Guarantee: keeper/one-slow-writer
/// Guarantee: keeper/stopped-programs
#[test]
fn moving_writer_drops_the_copy_and_keeps_the_old() {
    let home = crashed();
    let names = home.names();
    names.rescue(&named("words"), None).unwrap();
    let copy = || std::fs::read(rescue_path(&home, "words")).unwrap();
    let before = copy();
    let mut region = names.open(&named("words"), &key()).unwrap();
    store_number(&mut region, 3);
    drop(region);
    assert_eq!(names.rescue_if_changed(&named("words"), None, || false).unwrap(), Rescue::Busy);
    let each = names.rescue_each([(&named("words"), None)], |_| false, &mut Replaced::default());
    assert!(matches!(each[..], [Ok(Rescue::Busy)]), "{each:?}");
    assert!(copy() == before, "the copy was replaced");
    let left = std::fs::read_dir(home.path().join("store")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("tmp")), "{left:?}");
    let written = names.rescue_if_changed(&named("words"), None, || true).unwrap();
    assert!(matches!(written, Rescue::Written { .. }));
}

/// A cold open that dies at any step finds the copy again.
///
/// Guarantee: keeper/damaged-copy
#[test]
fn killed_cold_open_finds_the_copy_again() {
    for step in 0.. {
        assert!(step < 60, "the session never comes to its end");
        let home = crashed();
        home.names().rescue(&named("words"), None).unwrap();
        lose_the_pool(&home);
        let storage = Arc::new(FaultyStorage::new(Fault::Dead));
        let names = home.names_over(storage.clone());
        storage.arm(step);
        let session = names.open(&named("words"), &key()).and_then(|mut region| {
            store_number(&mut region, 3);
            region.commit(Durability::Power)?;
            region.close()
        });
        lose_the_pool(&home);
        let (_, found) = open_number(&home);
        assert!(found == 3 || found == 2 && session.is_err(), "step {step}: {found}");
        if !storage.struck() {
            break;
        }
    }
}

#[test]
fn a_copy_of_what_the_store_holds_is_not_made() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    assert!(names.is_rescued(&named("words")).unwrap());
    assert_eq!(names.rescue_if_changed(&named("words"), None, || true).unwrap(), Rescue::Stored);
    assert!(!rescue_path(&home, "words").exists());
    lose_the_pool(&home);
    assert_eq!(home.names().rescue(&named("words"), None).unwrap(), Rescue::NoImage);
    let missing = home.names().rescue(&named("other"), None).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);
}

/// Going back to the last commit and removing take the copy with them.
#[test]
fn rollback_and_removal_take_the_copy_along() {
    let home = crashed();
    home.names().rescue(&named("words"), None).unwrap();
    home.names().remove_image(&named("words"), &key()).unwrap();
    assert_eq!(open_number(&home), (Opened::Cold, 1));
    let home = crashed();
    home.names().rescue(&named("words"), None).unwrap();
    home.names().remove(&named("words"), &key()).unwrap();
    assert!(home.names().list().unwrap().is_empty());
    assert!(!rescue_path(&home, "words").exists());
}

/// While a copy becomes durable nobody is stopped, and no lock is held where a process has the
/// region: that process removes it, goes back to the last commit, or commits just that again.
///
/// Guarantee: keeper/no-undo
#[test]
fn copy_of_what_goes_meanwhile_gets_no_name() {
    type Act = fn(&NameSpace, Region);
    let acts: [(Act, Option<(Opened, u64)>); 3] = [
        (
            |names, region| {
                drop(region);
                names.remove(&named("words"), &key()).unwrap();
            },
            None,
        ),
        (
            |names, region| {
                drop(region);
                names.remove_image(&named("words"), &key()).unwrap();
            },
            Some((Opened::Cold, 1)),
        ),
        (
            |_, mut region| {
                store_number(&mut region, 1);
                let committed = region.commit(Durability::Power).unwrap();
                assert_eq!(committed.written, Written::Nothing);
            },
            Some((Opened::Cold, 1)),
        ),
    ];
    for (act, left) in acts {
        let home = crashed();
        let names = home.names();
        let region = names.open(&named("words"), &key()).unwrap();
        let storage = Arc::new(Hooked::at_sync(move || act(&names, region)));
        let copied = home.names_over(storage).rescue_if_quiet(&named("words")).unwrap();
        assert_eq!(copied, Rescue::Busy);
        assert!(!rescue_path(&home, "words").exists());
        lose_the_pool(&home);
        match left {
            Some(left) => assert_eq!(open_number(&home), left),
            None => assert!(home.names().list().unwrap().is_empty()),
        }
    }
}

/// A copy is made of a region while another process removes it, or its image.
///
/// Guarantee: keeper/no-undo
#[test]
fn copy_made_amid_a_removal_goes_with_it() {
    for (extension, whole) in [("base", true), ("image", true), ("image", false)] {
        let home = crashed();
        let keeper = home.names();
        let storage = Arc::new(Hooked::at_removal(extension, move || {
            let copied = keeper.rescue_if_quiet(&named("words")).unwrap();
            assert!(matches!(copied, Rescue::Written { .. }), "{copied:?}");
        }));
        let names = home.names_over(storage);
        if whole {
            names.remove(&named("words"), &key()).unwrap();
            assert!(home.names().list().unwrap().is_empty(), "it is back: {extension}");
        } else {
            names.remove_image(&named("words"), &key()).unwrap();
            assert_eq!(open_number(&home), (Opened::Cold, 1));
        }
        assert!(!rescue_path(&home, "words").exists());
    }
}

#[test]
fn a_snapshot_and_a_move_begin_with_what_was_rescued() {
    let home = crashed();
    home.names().rescue(&named("words"), None).unwrap();
    lose_the_pool(&home);
    home.names().snapshot(&named("words"), &key(), &named("monday")).unwrap();
    assert_eq!(open_number(&home).1, 2);
    let home = crashed();
    home.names().rescue(&named("words"), None).unwrap();
    lose_the_pool(&home);
    home.names().set_medium(&named("words"), &key(), Medium::File).unwrap();
    assert_eq!(open_number(&home).1, 2);
}

#[test]
fn a_limit_that_was_set_after_the_copy_was_made_stays() {
    let home = crashed();
    home.names().rescue(&named("words"), None).unwrap();
    home.names().set_limit(&named("words"), &key(), 16 * MIB).unwrap();
    lose_the_pool(&home);
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.limit_bytes(), number(&mut region)), (16 * MIB, 2));
}

/// A region whose writer goes on is copied when it is quiet.
///
/// Guarantee: keeper/atomic-copy
#[test]
fn live_region_is_copied_when_it_is_quiet() {
    let home = crashed();
    let names = home.names();
    let mut region = names.open(&named("words"), &key()).unwrap();
    store_number(&mut region, 3);
    assert_eq!(
        names.rescue_if_quiet(&named("words")).unwrap(),
        Rescue::Written { bytes: 6 * 4096 }
    );
    assert!(names.is_rescued(&named("words")).unwrap());
    // Stores without a pause, over more than can be read at once.
    let done = AtomicBool::new(false);
    let base = map(&mut region) as usize;
    let outcome = std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1_u64.. {
                for page in 0..1000 {
                    // SAFETY: the range lies in the backed part of the mapping, which outlives the
                    // scope.
                    unsafe {
                        std::ptr::write_volatile((base + page * 4096 + 512) as *mut u64, value)
                    };
                }
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        // On one processor the thread may not have run between the two readings.
        let busy = (0..50).any(|_| {
            std::thread::yield_now();
            names.rescue_if_quiet(&named("words")).unwrap() == Rescue::Busy
        });
        done.store(true, Ordering::Relaxed);
        busy
    });
    assert!(outcome, "no store was noticed");
    let temporary = home.path().join("store/.words.rescue-tmp");
    assert!(!temporary.exists());
}
