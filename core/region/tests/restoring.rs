//! Limits of a restore: it does not bring back a limit that others rely on, an address that another
//! region has, or grants.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::Arc;

use common::faulty::{Fault, FaultyStorage};
use common::{Home, MIB, key, named, other_key, read, store};
use holdfast_region::{
    AccessError, Grant, KeyFingerprint, LimitError, NameSpace, OwnerKey, RegionError, RegionName,
    RestoreReport, Rights,
};

const GIB: u64 = 1 << 30;
/// More steps than any operation here has.
const STEPS_MAX: usize = 100;

/// Makes a region with a limit, whose text is its name, backed that far.
fn make(names: &NameSpace, name: &str, limit_bytes: u64, backed_bytes: u64) {
    let mut region = names.create(&named(name), &key(), limit_bytes).unwrap();
    region.grow(backed_bytes).unwrap();
    store(&mut region, 0, name.as_bytes());
    region.close().unwrap();
}

fn make_compartment(names: &NameSpace, worker: &str, limit_bytes: u64) -> RegionName {
    let mut region =
        names.open_compartment(&named("words"), &named(worker), &key(), limit_bytes).unwrap();
    store(&mut region, 0, worker.as_bytes());
    region.close().unwrap();
    named("words").compartment(&named(worker)).unwrap()
}

fn take(names: &NameSpace, name: &RegionName) {
    names.snapshot(name, &key(), &named("first")).unwrap();
}

fn restore(
    names: &NameSpace,
    name: &RegionName,
    key: &OwnerKey,
) -> Result<RestoreReport, RegionError> {
    names.restore(name, key, &named("first"), false)
}

/// The limit of a region, warm and cold, and its text.
fn limit_and_text(home: &Home, name: &RegionName, len: usize) -> (u64, Vec<u8>) {
    let region = home.names().open(name, &key()).unwrap();
    let found = (region.limit_bytes(), read(&region, 0, len));
    region.close().unwrap();
    std::fs::remove_file(home.image(name.as_str())).unwrap();
    assert_eq!(home.names().summary(name).unwrap().limit_bytes, found.0);
    found
}

fn no_place(result: Result<RestoreReport, RegionError>) -> String {
    let error = result.unwrap_err();
    assert!(matches!(error, RegionError::Limit(LimitError::NoPlace { .. })), "{error}");
    error.to_string()
}

/// A restored parent keeps the limit that its compartments need.
///
/// Guarantee: heap/restore
#[test]
fn restored_parent_keeps_room_for_compartments() {
    let home = Home::new();
    let names = home.names();
    make(&names, "words", 8 * MIB, 4 * MIB);
    take(&names, &named("words"));
    names.set_limit(&named("words"), &key(), 64 * MIB).unwrap();
    make_compartment(&names, "a", 32 * MIB);
    restore(&names, &named("words"), &key()).unwrap();
    assert_eq!(limit_and_text(&home, &named("words"), 5), (64 * MIB, b"words".to_vec()));
    // Without the compartment the snapshot's limit does.
    names.remove(&named("words").compartment(&named("a")).unwrap(), &key()).unwrap();
    restore(&names, &named("words"), &key()).unwrap();
    assert_eq!(limit_and_text(&home, &named("words"), 5).0, 8 * MIB);
}

/// Restored data that do not fit in either limit get one that holds them and the compartments.
///
/// Guarantee: heap/restore
#[test]
fn oversized_restored_data_gets_a_larger_limit() {
    let home = Home::new();
    let names = home.names();
    make(&names, "words", 16 * MIB, 16 * MIB);
    take(&names, &named("words"));
    names.remove(&named("words"), &key()).unwrap();
    make(&names, "words", 10 * MIB, 4 * MIB);
    make_compartment(&names, "a", 4 * MIB);
    restore(&names, &named("words"), &key()).unwrap();
    assert_eq!(limit_and_text(&home, &named("words"), 5), (20 * MIB, b"words".to_vec()));
}

/// A restored region takes no addresses of one that came behind it.
///
/// Guarantee: heap/restore
#[test]
fn restored_region_takes_no_later_ones_addresses() {
    let home = Home::new();
    let names = home.names();
    make(&names, "words", 4 * GIB, 4 * MIB);
    take(&names, &named("words"));
    names.set_limit(&named("words"), &key(), 8 * MIB).unwrap();
    make(&names, "next", 8 * MIB, 4 * MIB);
    let (first, next) =
        (names.summary(&named("words")).unwrap(), names.summary(&named("next")).unwrap());
    assert_eq!(next.address, first.address + GIB);
    restore(&names, &named("words"), &key()).unwrap();
    assert_eq!(limit_and_text(&home, &named("words"), 5), (8 * MIB, b"words".to_vec()));
    // Also one that was removed in between comes back beside it.
    names.remove(&named("words"), &key()).unwrap();
    restore(&names, &named("words"), &key()).unwrap();
    assert_eq!(limit_and_text(&home, &named("words"), 5), (4 * MIB, b"words".to_vec()));
}

/// A region does not come back where another one grew over its addresses.
///
/// Guarantee: heap/restore
#[test]
fn region_stays_out_where_another_grew() {
    let home = Home::new();
    let names = home.names();
    make(&names, "before", 8 * MIB, 4 * MIB);
    make(&names, "words", 8 * MIB, 4 * MIB);
    take(&names, &named("words"));
    names.remove(&named("words"), &key()).unwrap();
    names.set_limit(&named("before"), &key(), 4 * GIB).unwrap();
    let text = no_place(restore(&names, &named("words"), &key()));
    assert!(text.contains("\"before\"") && text.contains("nothing was changed"), "{text}");
    assert!(names.summary(&named("words")).is_err() && home.leftovers().is_empty());
    names.set_limit(&named("before"), &key(), GIB).unwrap();
    restore(&names, &named("words"), &key()).unwrap();
    assert_eq!(limit_and_text(&home, &named("words"), 5), (8 * MIB, b"words".to_vec()));
}

/// A restored compartment stays within what its parent has left.
///
/// Guarantee: heap/restore
#[test]
fn restored_compartment_stays_within_its_parent() {
    let home = Home::new();
    let names = home.names();
    make(&names, "words", 16 * MIB, 4 * MIB);
    let worker = make_compartment(&names, "a", 12 * MIB);
    take(&names, &worker);
    names.set_limit(&worker, &key(), 4 * MIB).unwrap();
    make_compartment(&names, "b", 8 * MIB);
    names.restore(&worker, &key(), &named("first"), true).unwrap();
    assert_eq!(limit_and_text(&home, &worker, 1), (4 * MIB, b"a".to_vec()));
    // One that was removed finds its part given to others, or its parent gone.
    names.remove(&worker, &key()).unwrap();
    make_compartment(&names, "c", 4 * MIB);
    let text = no_place(restore(&names, &worker, &key()));
    assert!(text.contains("raise its limit"), "{text}");
    names.remove_with_compartments(&named("words"), &key()).unwrap();
    assert!(matches!(restore(&names, &worker, &key()), Err(RegionError::NotFound { .. })));
    assert!(names.list().unwrap().is_empty());
}

/// A worker restores its data and not what it may have.
///
/// Guarantee: heap/compartments
#[test]
fn worker_restores_data_but_not_its_quota() {
    let home = Home::new();
    let names = home.names();
    make(&names, "words", 64 * MIB, 4 * MIB);
    let worker = make_compartment(&names, "a", 12 * MIB);
    take(&names, &worker);
    let theirs = key().for_compartment(&named("words"), &named("a"));
    for limit_bytes in [4 * MIB, 20 * MIB] {
        names.set_limit(&worker, &key(), limit_bytes).unwrap();
        restore(&names, &worker, &theirs).unwrap();
        assert_eq!(limit_and_text(&home, &worker, 1), (limit_bytes, b"a".to_vec()));
    }
    names.remove(&worker, &theirs).unwrap();
    let made = restore(&names, &worker, &theirs);
    assert!(matches!(made, Err(RegionError::Access(AccessError::ParentOnly { .. }))), "{made:?}");
    restore(&names, &worker, &key()).unwrap();
    assert_eq!(limit_and_text(&home, &worker, 1), (12 * MIB, b"a".to_vec()));
}

fn grant(names: &NameSpace) {
    let guest = KeyFingerprint::from_bytes(other_key().fingerprint());
    names.grant(&named("words"), &key(), Grant::new(guest, None, Rights::Read)).unwrap();
}

fn may_use(names: &NameSpace) -> bool {
    names.access(&named("words"), &other_key()).is_ok()
}

/// Grants do not come back with a region that was removed wherever its removal died.
///
/// Guarantee: heap/grants
#[test]
fn grants_never_return_with_a_removed_region() {
    for step in 0.. {
        assert!(step < STEPS_MAX, "the removal never comes through");
        let home = Home::with_text("words", b"hello");
        let names = home.names();
        take(&names, &named("words"));
        grant(&names);
        let storage = Arc::new(FaultyStorage::new(Fault::Dead));
        storage.arm(step);
        let removed = home.names_over(storage.clone()).remove(&named("words"), &key());
        assert_eq!(removed.is_err(), storage.struck());
        if names.summary(&named("words")).is_ok() {
            // Cut off: what is there is the newest state, and it can be removed again.
            let region = names.open(&named("words"), &key()).unwrap();
            assert_eq!(read(&region, 0, 5), b"hello", "step {step}");
            region.close().unwrap();
            names.remove(&named("words"), &key()).unwrap();
        }
        assert!(!home.path().join("store/words.grants").exists(), "step {step}");
        restore(&names, &named("words"), &key()).unwrap();
        assert!(!may_use(&names), "step {step}");
        if !storage.struck() {
            break;
        }
    }
}

/// A table that is left of a removed region is dropped when it comes back.
///
/// Guarantee: heap/grants
#[test]
fn leftover_grant_table_is_dropped_on_return() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    take(&names, &named("words"));
    grant(&names);
    // A region that is there keeps its grants.
    restore(&names, &named("words"), &key()).unwrap();
    assert!(may_use(&names));
    // As a power cut leaves a removal of which not all was durable.
    std::fs::remove_file(home.base("words")).unwrap();
    assert!(names.summary(&named("words")).is_err());
    restore(&names, &named("words"), &key()).unwrap();
    assert!(!may_use(&names));
}
