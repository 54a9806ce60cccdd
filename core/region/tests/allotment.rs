//! Growth that asks no file: how a limit is shared out between a region and its compartments is one
//! word in the image, and nobody gets more than is left.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use common::faulty::{Fault, FaultyStorage};
use common::{Home, MIB, flip, key, named, store};
use holdfast_region::{AccessError, NameSpace, Region, RegionError, Result};
use holdfast_sys::lock::{LockMode, try_lock};

/// Where the word is, and its bits, as docs/format.md says.
const WORD_OFFSET: u64 = 8192;
const KNOWN: u64 = 1 << 63;
const UNIT_BYTES: u64 = 64 << 10;

fn compartment(names: &NameSpace, worker: &str, bytes: u64) -> Result<Region> {
    names.open_compartment(&named("words"), &named(worker), &key(), bytes)
}

fn word(home: &Home) -> u64 {
    let mut bytes = [0; 8];
    File::open(home.image("words")).unwrap().read_exact_at(&mut bytes, WORD_OFFSET).unwrap();
    u64::from_le_bytes(bytes)
}

fn set_word(home: &Home, word: u64) {
    let file = OpenOptions::new().write(true).open(home.image("words")).unwrap();
    file.write_all_at(&word.to_le_bytes(), WORD_OFFSET).unwrap();
}

/// The lock on the name space, as another process has it.
fn names_locked(home: &Home) -> File {
    let path = home.pool().join(".names.lock");
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).unwrap();
    assert!(try_lock(&file, LockMode::Exclusive).unwrap());
    file
}

fn refused(grown: Result<u64>) {
    assert!(
        matches!(&grown, Err(RegionError::Access(AccessError::NoQuotaLeft { .. }))),
        "{grown:?}"
    );
}

/// A region grows while another process has the lock on the name space, new and opened again.
///
/// Guarantee: heap/compartments
#[test]
fn growth_waits_for_no_other_process() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 64 * MIB).unwrap();
    let held = names_locked(&home);
    assert_eq!(region.grow(5 * MIB).unwrap(), 8 * MIB);
    store(&mut region, 7 * MIB as usize, b"grown");
    assert_eq!(region.grow(9 * MIB).unwrap(), 12 * MIB);
    drop(held);
    region.close().unwrap();
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    let _held = names_locked(&home);
    assert_eq!(region.grow(13 * MIB).unwrap(), 16 * MIB);
}

/// A region counts its compartments where its image does not say what they have, and the image says
/// it then.
///
/// Guarantee: heap/compartments
#[test]
fn image_without_the_word_counts_compartments() {
    let home = Home::new();
    let names = home.names();
    names.create(&named("words"), &key(), 16 * MIB).unwrap().close().unwrap();
    compartment(&names, "a", 8 * MIB).unwrap().close().unwrap();
    // As an earlier version left it, and as it is after a cold open.
    for is_cold in [false, true] {
        // The second time, the end of the first one has removed the image.
        if !is_cold {
            set_word(&home, 0);
        }
        let mut region = names.open(&named("words"), &key()).unwrap();
        refused(region.grow(9 * MIB));
        assert_eq!(region.grow(5 * MIB).unwrap(), 8 * MIB);
        let units = 8 * MIB / UNIT_BYTES;
        assert_eq!(word(&home), KNOWN | units << 31 | units);
        drop(region);
        names.remove_image(&named("words"), &key()).unwrap();
    }
}

/// A parent that is in use, and compartments that others make meanwhile, see what each other has.
///
/// Guarantee: heap/compartments
#[test]
fn parent_in_use_and_new_compartments_share_the_limit() {
    let home = Home::new();
    let (names, others) = (home.names(), home.names());
    let mut parent = names.create(&named("words"), &key(), 16 * MIB).unwrap();
    assert_eq!(parent.grow(5 * MIB).unwrap(), 8 * MIB);
    compartment(&others, "a", 4 * MIB).unwrap().close().unwrap();
    // 8 backed and 4 given out.
    refused(parent.grow(13 * MIB));
    let error = compartment(&others, "b", 5 * MIB).map(drop).unwrap_err();
    assert!(
        matches!(&error, RegionError::Access(AccessError::NoQuotaLeft { used_bytes, .. })
            if *used_bytes == 12 * MIB),
        "{error}"
    );
    assert_eq!(parent.grow(9 * MIB).unwrap(), 12 * MIB);
    assert!(compartment(&others, "b", MIB).is_err());
    // What a compartment gives back by going is found by counting.
    others.remove(&named("words").compartment(&named("a")).unwrap(), &key()).unwrap();
    assert_eq!(parent.grow(16 * MIB).unwrap(), 16 * MIB);
}

/// A parent and its compartments never have more than the limit together, whoever is faster.
///
/// Guarantee: heap/compartments
#[test]
fn racing_growth_and_compartments_stay_below_the_limit() {
    const LIMIT: u64 = 64 * MIB;
    for round in 0..4 {
        let home = Home::in_memory();
        let names = home.names();
        let mut parent = names.create(&named("words"), &key(), LIMIT).unwrap();
        let given = std::thread::scope(|scope| {
            let giver = scope.spawn(|| {
                let others = home.names();
                (0..)
                    .take_while(|number| {
                        compartment(&others, &format!("w{number}"), 2 * MIB).is_ok()
                    })
                    .count() as u64
            });
            loop {
                match parent.grow(parent.backed_bytes() + 1) {
                    Ok(_) => std::thread::sleep(Duration::from_micros(300 * round)),
                    Err(RegionError::Access(_) | RegionError::LimitReached { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            giver.join().unwrap()
        });
        let together = parent.backed_bytes() + given * 2 * MIB;
        assert!(together <= LIMIT, "{} and {given} compartments", parent.backed_bytes());
        assert!(together > LIMIT - 4 * MIB, "only {together} bytes were shared out");
    }
}

/// What a process had taken that was killed before it allocated it, a compartment gets, also while
/// the next process has the region.
///
/// Guarantee: heap/compartments
#[test]
fn killed_growth_keeps_nothing_from_compartments() {
    for is_held in [false, true] {
        let home = Home::new();
        let names = home.names();
        drop(names.create(&named("words"), &key(), 16 * MIB).unwrap());
        set_word(&home, KNOWN | (16 * MIB / UNIT_BYTES));
        let held = is_held.then(|| names.open(&named("words"), &key()).unwrap());
        compartment(&home.names(), "a", 12 * MIB).unwrap().close().unwrap();
        let mut parent = held.unwrap_or_else(|| names.open(&named("words"), &key()).unwrap());
        refused(parent.grow(5 * MIB));
        assert_eq!(parent.backed_bytes(), 4 * MIB);
    }
}

/// How much a parent in use has is not known where its image lost both headers: the store may know
/// an earlier size.
///
/// Guarantee: heap/compartments
#[test]
fn damaged_parent_in_use_gives_nothing_out() {
    let home = Home::new();
    let names = home.names();
    names.create(&named("words"), &key(), 16 * MIB).unwrap().close().unwrap();
    let mut parent = names.open(&named("words"), &key()).unwrap();
    assert_eq!(parent.grow(16 * MIB).unwrap(), 16 * MIB);
    for slot in [0, 4096] {
        flip(&home.image("words"), slot + 100);
    }
    let error = compartment(&home.names(), "a", MIB).map(drop).unwrap_err();
    assert!(matches!(error, RegionError::HeaderDamaged { .. }), "{error}");
}

/// A growth that finds no room gives back what it had taken.
///
/// Guarantee: heap/compartments
#[test]
fn failed_growth_gives_its_share_back() {
    let home = Home::new();
    let storage = Arc::new(FaultyStorage::new(Fault::Once(28)));
    let names = home.names_over(storage.clone());
    let mut parent = names.create(&named("words"), &key(), 16 * MIB).unwrap();
    storage.arm(0);
    // Room is made, and it is tried again.
    assert_eq!(parent.grow(5 * MIB).unwrap(), 8 * MIB);
    let units = 8 * MIB / UNIT_BYTES;
    assert_eq!(word(&home), KNOWN | units);
    let dead = Arc::new(FaultyStorage::new(Fault::Dead));
    drop(parent);
    let mut parent = home.names_over(dead.clone()).open(&named("words"), &key()).unwrap();
    dead.arm(0);
    assert!(parent.grow(16 * MIB).is_err());
    assert_eq!(word(&home), KNOWN | units);
}
