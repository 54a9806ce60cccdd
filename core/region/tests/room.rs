//! Allocation in a full pool: images that no process has make room, are in the store before they
//! go, and come back whole.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use common::faulty::Fault;
use common::noted::Notes;
use common::small::SmallPool;
use common::{Home, MIB, key, named, number, open_atomic, read, store, store_number};
use holdfast_region::{
    Durability, KernelStorage, NameSpace, Opened, Region, RegionError, RegionState, Storage,
    Written,
};

const POOL_BYTES: u64 = 22 * MIB;
const STEPS_MAX: usize = 400;

fn full(fault: Fault) -> (Home, Arc<SmallPool>, NameSpace) {
    pool_of(POOL_BYTES, fault)
}

fn pool_of(bytes: u64, fault: Fault) -> (Home, Arc<SmallPool>, NameSpace) {
    let home = Home::new();
    // The directory is there from here on.
    home.places();
    let storage = Arc::new(SmallPool::new(home.pool(), bytes, fault));
    let names = home.names_over(storage.clone());
    (home, storage, names)
}

/// A region of 8 MiB that holds a number on pages far apart; `closes` or its writer dies.
fn make(names: &NameSpace, name: &str, value: u64, closes: bool) {
    let mut region = names.create(&named(name), &key(), 8 * MIB).unwrap();
    region.grow(8 * MIB).unwrap();
    store_number(&mut region, value);
    if closes {
        region.close().unwrap();
    } else {
        drop(region);
    }
}

fn found(names: &NameSpace, name: &str) -> (Opened, u64) {
    let mut region = names.open(&named(name), &key()).unwrap();
    (region.opened(), number(&mut region))
}

fn refusal(result: Result<Region, RegionError>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, RegionError::NoRoom { .. }), "{error}");
    error.to_string()
}

/// Guarantee: heap/room
#[test]
fn a_full_pool_makes_room_for_new_regions() {
    let (_home, storage, names) = full(Fault::Dead);
    for value in 0..10 {
        make(&names, &format!("r{value}"), value, value % 2 == 0);
        assert!(storage.used_bytes() <= POOL_BYTES);
    }
    for value in 0..10 {
        assert_eq!(found(&names, &format!("r{value}")).1, value);
    }
    // The one that was used last is there, the one before the last that fits goes first.
    assert_eq!(found(&names, "r9").0, Opened::WarmAfterCrash);
    assert_eq!(names.summary(&named("r0")).unwrap().state, RegionState::Cold);
}

/// Guarantee: heap/room
#[test]
fn growth_and_publication_make_room() {
    let (home, _storage, names) = full(Fault::Dead);
    make(&names, "one", 1, false);
    make(&names, "two", 2, true);
    let mut region = names.create(&named("words"), &key(), 20 * MIB).unwrap();
    store_number(&mut region, 3);
    region.grow(12 * MIB).unwrap();
    assert!(!home.image("one").exists());
    region.close().unwrap();
    // The log of a publication needs room as well.
    assert_eq!(found(&names, "two"), (Opened::Warm, 2));
    let mut region = open_atomic(&names);
    let bytes = vec![7; 3 * MIB as usize];
    store(&mut region, 5 * MIB as usize, &bytes);
    region.publish().unwrap();
    assert!(!home.image("two").exists());
    region.close().unwrap();
    for (name, value) in [("one", 1), ("two", 2), ("words", 3)] {
        assert_eq!(found(&names, name).1, value);
    }
}

/// A refused growth takes nothing of the pool, also where parts of it were there before the refusal,
/// and what a writer had allocated when it was killed goes back at the next opening.
///
/// Guarantee: heap/room
#[test]
fn growth_that_did_not_come_through_takes_no_room() {
    let (home, storage, names) = full(Fault::Dead);
    let mut region = names.create(&named("words"), &key(), 64 * MIB).unwrap();
    region.grow(8 * MIB).unwrap();
    store_number(&mut region, 3);
    let length = || home.image("words").metadata().unwrap().len();
    let (before, used_bytes) = (length(), storage.used_bytes());
    assert!(matches!(region.grow(64 * MIB), Err(RegionError::NoRoom { .. })));
    assert_eq!((length(), storage.used_bytes()), (before, used_bytes));
    region.grow(12 * MIB).unwrap();
    let before = length();
    drop(region);
    let image = File::options().write(true).open(home.image("words")).unwrap();
    KernelStorage.allocate(&image, before..before + 8 * MIB).unwrap();
    assert_eq!(found(&names, "words"), (Opened::WarmAfterCrash, 3));
    assert_eq!(length(), before);
}

/// Guarantee: heap/room
#[test]
fn images_in_use_stay_and_the_error_says_so() {
    let (home, _storage, names) = full(Fault::Dead);
    make(&names, "one", 1, true);
    make(&names, "two", 2, true);
    let writer = names.open(&named("one"), &key()).unwrap();
    let reader = names.open_read(&named("two")).unwrap();
    let started = Instant::now();
    let text = refusal(names.create(&named("more"), &key(), 8 * MIB).and_then(|mut region| {
        region.grow(8 * MIB)?;
        Ok(region)
    }));
    assert!(started.elapsed() < Duration::from_secs(60), "the attempts have no bound");
    assert!(
        text.contains("evicted 0 images, 2 are in use") || text.contains("3 are in use"),
        "{text}"
    );
    assert!(home.image("one").exists() && home.image("two").exists());
    drop(reader);
    let mut region = names.open_or_create(&named("more"), &key(), 8 * MIB).unwrap();
    region.grow(8 * MIB).unwrap();
    assert!(home.image("one").exists() && !home.image("two").exists());
    drop(writer);
}

/// Guarantee: heap/room
#[test]
fn an_image_that_cannot_be_written_back_stays() {
    let (home, storage, names) = full(Fault::Dead);
    make(&names, "one", 1, false);
    make(&names, "two", 2, false);
    storage.is_store_full.store(true, Ordering::SeqCst);
    let text = refusal(names.create(&named("more"), &key(), 8 * MIB).and_then(|mut region| {
        region.grow(8 * MIB)?;
        Ok(region)
    }));
    assert!(text.contains("what is not in the store stays: "), "{text}");
    assert!(
        text.contains("one: ") && text.contains("the store ") && text.contains("the pool "),
        "{text}"
    );
    assert!(home.image("one").exists() && home.image("two").exists());
    storage.is_store_full.store(false, Ordering::SeqCst);
    make(&names, "other", 3, true);
    for (name, value) in [("one", 1), ("two", 2), ("other", 3)] {
        assert_eq!(found(&names, name).1, value);
    }
}

/// Guarantee: heap/room
#[test]
fn a_quota_of_the_pool_makes_room_as_well() {
    let (_home, storage, names) = full(Fault::Dead);
    storage.is_quota.store(true, Ordering::SeqCst);
    for value in 0..6 {
        make(&names, &format!("r{value}"), value, value % 2 == 0);
    }
    for value in 0..6 {
        assert_eq!(found(&names, &format!("r{value}")).1, value);
    }
}

/// Allocators that evict at the same time all come through.
///
/// Guarantee: heap/room
#[test]
fn concurrent_evicting_allocators_all_succeed() {
    let (_home, _storage, names) = full(Fault::Dead);
    let names = &names;
    std::thread::scope(|scope| {
        for thread in 0..2_u64 {
            scope.spawn(move || {
                for round in 0..8 {
                    make(
                        names,
                        &format!("t{thread}r{round}"),
                        thread * 100 + round,
                        round % 2 == 0,
                    );
                }
            });
        }
    });
    for (thread, round) in (0..2).flat_map(|thread| (0..8).map(move |round| (thread, round))) {
        assert_eq!(found(names, &format!("t{thread}r{round}")).1, thread * 100 + round);
    }
}

/// Kills of real processes over a real tmpfs are in `tests/faults/room.rs` (row H14).
///
/// Guarantee: heap/room
#[test]
fn killed_evicting_allocator_loses_nothing() {
    for fault in [Fault::Once(5), Fault::Dead] {
        for step in 0.. {
            assert!(step < STEPS_MAX, "the allocation never comes through");
            // Two of 4 MiB fit.
            let (home, storage, names) = pool_of(10 * MIB, fault);
            for (name, value) in [("one", 1), ("two", 2)] {
                let mut region = names.create(&named(name), &key(), 4 * MIB).unwrap();
                store_number(&mut region, value);
            }
            storage.faulty.arm(step);
            let made = names.create(&named("more"), &key(), 8 * MIB).and_then(|mut region| {
                store_number(&mut region, 3);
                region.grow(8 * MIB)?;
                Ok(region)
            });
            let (came_through, struck) = (made.is_ok(), storage.faulty.struck());
            drop(made);
            let whole = home.names();
            for (name, value) in [("one", 1), ("two", 2)] {
                assert_eq!(found(&whole, name).1, value, "{fault:?} in step {step}");
            }
            if came_through {
                assert_eq!(found(&whole, "more").1, 3, "{fault:?} in step {step}");
            }
            if !struck {
                assert!(came_through);
                break;
            }
        }
    }
}

/// A record that fills the store is cut off: what comes next, a base, needs its room.
///
/// Guarantee: heap/no-false-acknowledgement
#[test]
fn a_commit_that_filled_the_store_gives_it_back() {
    // One is built in memory, the other streamed.
    for pages in [3, 1000] {
        let (home, storage, names) = pool_of(64 * MIB, Fault::Dead);
        let mut region = names.create(&named("words"), &key(), 8 * MIB).unwrap();
        region.grow(8 * MIB).unwrap();
        let notes = Notes::of(&mut region);
        for written in [Written::Base, Written::Journal] {
            notes.store(&mut region, 0, b"word");
            assert_eq!(region.commit(Durability::Power).unwrap().written, written);
        }
        let journal_bytes = || home.journal("words").metadata().unwrap().len();
        let before = journal_bytes();
        notes.store(&mut region, 4096, &vec![3; pages * 4096]);
        storage.is_store_full.store(true, Ordering::SeqCst);
        let error = region.commit(Durability::Power).unwrap_err();
        assert!(matches!(error, RegionError::StoreFull { .. }), "{error}");
        assert_eq!(journal_bytes(), before, "{pages} pages");
        storage.is_store_full.store(false, Ordering::SeqCst);
        assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Base);
        drop(region);
        std::fs::remove_file(home.image("words")).unwrap();
        let region = names.open(&named("words"), &key()).unwrap();
        assert_eq!(read(&region, 0, 4), b"word");
        assert!(read(&region, 4096, pages * 4096) == vec![3; pages * 4096]);
    }
}
