//! Regions that no process holds are brought to the store and out of the pool, by the process that
//! looks after the pool.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::Arc;

use common::faulty::{Fault, FaultyStorage};
use common::{Home, MIB, flip, key, named, number, open_atomic, read, store, store_number};
use holdfast_region::{Durability, Opened, RegionError, RegionState};

const EIO: i32 = 5;
/// More steps than an eviction has.
const STEPS_MAX: usize = 100;

fn with_dead_writer(number: u64) -> Home {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 8 * MIB).unwrap();
    store_number(&mut region, 1);
    region.commit(Durability::Power).unwrap();
    store_number(&mut region, number);
    drop(region);
    home
}

fn cold_number(home: &Home) -> u64 {
    let _ = std::fs::remove_file(home.image("words"));
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!(region.opened(), Opened::Cold);
    number(&mut region)
}

/// What a dead writer stored is checkpointed without its key and the next open is in order.
///
/// Guarantee: heap/room
/// Guarantee: keeper/eviction
#[test]
fn dead_writers_stores_need_no_key_to_checkpoint() {
    let home = with_dead_writer(2);
    let names = home.names();
    let report = names.checkpoint_unheld(&named("words")).unwrap();
    assert!(!report.skipped && report.pages > 0);
    assert_eq!(names.summary(&named("words")).unwrap().state, RegionState::Clean);
    assert!(names.checkpoint_unheld(&named("words")).unwrap().skipped);
    assert_eq!(names.open(&named("words"), &key()).unwrap().opened(), Opened::Warm);
    assert_eq!(cold_number(&home), 2);
}

/// A publication that broke off is finished before it is checkpointed.
#[test]
fn broken_off_publication_is_finished_first() {
    let home = with_dead_writer(2);
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let mut region = open_atomic(&home.names_over(storage.clone()));
    store_number(&mut region, 3);
    // The log is allocated for, written, and counts; the first store to the image is not made any
    // more.
    storage.arm(2);
    assert!(region.publish().is_err());
    drop(region);
    home.names().checkpoint_unheld(&named("words")).unwrap();
    let found = cold_number(&home);
    assert!(found == 3 || found == 2, "{found}");
}

/// An evicted region leaves the pool and comes back as it was.
///
/// Guarantee: heap/room
/// Guarantee: keeper/eviction
#[test]
fn evicted_region_comes_back_as_it_was() {
    let home = with_dead_writer(7);
    let names = home.names();
    let report = names.evict(&named("words")).unwrap();
    assert!(report.freed_bytes >= 4 * MIB && !report.checkpoint.skipped);
    assert!(!home.image("words").exists());
    assert_eq!(names.summary(&named("words")).unwrap().state, RegionState::Cold);
    assert_eq!(names.evict(&named("words")).unwrap().freed_bytes, 0);
    assert_eq!(cold_number(&home), 7);
}

/// A region that is held is neither checkpointed nor evicted.
///
/// Guarantee: heap/room
/// Guarantee: keeper/eviction
#[test]
fn held_region_is_neither_checkpointed_nor_evicted() {
    let home = with_dead_writer(2);
    let names = home.names();
    let held = names.open(&named("words"), &key()).unwrap();
    assert!(matches!(names.evict(&named("words")), Err(RegionError::Held { .. })));
    assert!(matches!(names.checkpoint_unheld(&named("words")), Err(RegionError::Held { .. })));
    drop(held);
    let reader = names.open_read(&named("words")).unwrap();
    assert!(matches!(names.evict(&named("words")), Err(RegionError::Held { .. })));
    drop(reader);
    assert!(home.image("words").exists());
    assert!(matches!(names.evict(&named("none")), Err(RegionError::NotFound { .. })));
}

/// An image stays while the store is not whole and a lost base is made anew first.
///
/// Guarantee: heap/room
/// Guarantee: keeper/eviction
#[test]
fn image_stays_until_the_store_is_whole() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    flip(&home.base("words"), common::DATA_OFFSET);
    assert!(matches!(names.evict(&named("words")), Err(RegionError::DataDamaged { .. })));
    assert!(home.image("words").exists());
    std::fs::remove_file(home.base("words")).unwrap();
    assert!(!names.evict(&named("words")).unwrap().checkpoint.skipped);
    let region = names.open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::Cold, b"hello".to_vec()));
}

/// Guarantee: heap/room
/// Guarantee: keeper/eviction
#[test]
fn an_eviction_that_fails_in_any_step_loses_nothing() {
    for fault in [Fault::Once(EIO), Fault::Dead] {
        for step in 0.. {
            assert!(step < STEPS_MAX, "the eviction never comes through");
            let home = with_dead_writer(5);
            let storage = Arc::new(FaultyStorage::new(fault));
            storage.arm(step);
            let outcome = home.names_over(storage.clone()).evict(&named("words"));
            if !storage.struck() {
                outcome.unwrap();
                break;
            }
            let mut region = home.names().open(&named("words"), &key()).unwrap();
            assert_eq!(number(&mut region), 5, "{fault:?} in step {step}");
            store(&mut region, 0, b"goes on");
            region.close().unwrap();
        }
    }
}
