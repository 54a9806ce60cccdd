//! Every step that changes a file fails once, or is the last of the process: for each k, a typed
//! error, the earlier data intact, and a region that opens again.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::Arc;

use common::faulty::{Fault, FaultyStorage};
use common::{DATA_OFFSET, FAR, Home, MIB, is_packed, key, named, read, store};
use holdfast_region::{ErrorKind, NameSpace, Opened, Region, RegionError, Result};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;
const FAULTS: [Fault; 3] = [Fault::Once(ENOSPC), Fault::Once(EIO), Fault::Dead];
/// More steps than any operation here has.
const STEPS_MAX: usize = 100;

/// Runs an operation with the fault in its first, second, … step, each time in a home of its own,
/// until it comes through untouched. `prepare` runs before, and `after` looks at what is left, with
/// healthy files.
fn in_every_step<P>(
    home: impl Fn() -> Home,
    prepare: impl Fn(&NameSpace) -> P,
    operation: impl Fn(P, &NameSpace) -> Result<()>,
    after: impl Fn(&Home, Fault, RegionError),
) {
    for fault in FAULTS {
        for step in 0.. {
            assert!(step < STEPS_MAX, "the operation never comes through");
            let home = home();
            let storage = Arc::new(FaultyStorage::new(fault));
            let names = home.names_over(storage.clone());
            let prepared = prepare(&names);
            storage.arm(step);
            let outcome = operation(prepared, &names);
            if !storage.struck() {
                assert!(step > 0, "the operation has no step");
                outcome.unwrap();
                break;
            }
            match outcome {
                // There was no room in the pool for a moment: it was tried again.
                Ok(()) => assert_eq!(fault, Fault::Once(ENOSPC), "step {step}"),
                Err(error) => after(&home, fault, error),
            }
        }
    }
}

fn with_hello() -> Home {
    Home::with_text("words", b"hello")
}

fn with_packed_hello() -> Home {
    Home::with_packed_text("words", b"hello")
}

/// Too much to be packed.
fn with_long_hello() -> Home {
    Home::with_text("words", &[&b"hello"[..], &[7; (4 << 20) - 5]].concat())
}

fn open(names: &NameSpace) -> Result<Region> {
    names.open(&named("words"), &key())
}

/// Stores so much that a new base is due.
fn open_and_store(names: &NameSpace) -> Region {
    let mut region = open(names).unwrap();
    let filler = vec![7; region.backed_bytes() as usize];
    store(&mut region, 0, &filler);
    store(&mut region, 0, b"later");
    region
}

/// The same where nearly all of it becomes zeros, so that the new base is a packed one.
fn open_and_store_little(names: &NameSpace) -> Region {
    let mut region = open(names).unwrap();
    let zeros = vec![0; region.backed_bytes() as usize];
    store(&mut region, 0, &zeros);
    store(&mut region, 0, b"later");
    store(&mut region, FAR, b"later");
    region
}

/// A creation that fails in any step leaves no region or a whole one.
#[test]
fn failed_creation_leaves_no_region_or_a_whole_one() {
    in_every_step(
        Home::new,
        |_| (),
        |(), names| names.create(&named("words"), &key(), 8 * MIB).map(drop),
        |home, fault, error| {
            match fault {
                Fault::Once(ENOSPC) if error.kind() == ErrorKind::NoRoom => {
                    assert!(
                        matches!(error, RegionError::NoRoom { needed_bytes, .. } if needed_bytes == 4 * MIB)
                    );
                }
                _ => assert!(matches!(error, RegionError::Io { .. }), "{error}"),
            }
            assert!(home.names().list().unwrap().is_empty());
            assert!(home.leftovers().is_empty() || fault == Fault::Dead);
            let region = home.names().create(&named("words"), &key(), 8 * MIB).unwrap();
            assert!(read(&region, 0, 4 << 20).iter().all(|&byte| byte == 0));
            assert!(home.leftovers().is_empty());
        },
    );
}

/// Growth that fails in any step keeps all data and poisons where the header is unknown.
#[test]
fn failed_growth_keeps_data_and_may_poison() {
    in_every_step(
        with_hello,
        open_and_store,
        |mut region, _| {
            let error = match region.grow(8 * MIB) {
                Ok(grown) => {
                    assert_eq!(grown, 8 * MIB);
                    return Ok(());
                }
                Err(error) => error,
            };
            assert_eq!(region.backed_bytes(), 4 * MIB);
            let poisoned = matches!(region.grow(8 * MIB), Err(RegionError::Poisoned { .. }));
            match &error {
                // Nothing was changed: once there is room, it works.
                RegionError::NoRoom { .. } => assert_eq!(region.backed_bytes(), 8 * MIB),
                RegionError::Io { step: "allocate", .. } => assert!(!poisoned),
                _ => {
                    assert!(poisoned, "{error}");
                    assert!(matches!(region.checkpoint(), Err(RegionError::Poisoned { .. })));
                    assert!(matches!(region.close(), Err(RegionError::Poisoned { .. })));
                }
            }
            Err(error)
        },
        |home, _, _| {
            let mut region = open(&home.names()).unwrap();
            assert_eq!(
                (region.opened(), read(&region, 0, 5)),
                (Opened::WarmAfterCrash, b"later".to_vec())
            );
            region.grow(8 * MIB).unwrap();
            assert!(read(&region, 4 * MIB, 4 << 20).iter().all(|&byte| byte == 0));
            region.close().unwrap();
        },
    );
}

/// A checkpoint that fails in any step leaves a whole base and can be repeated.
///
/// Guarantee: heap/checkpoint
#[test]
fn failed_checkpoint_keeps_a_whole_base() {
    fail_checkpoints(with_hello, open_and_store);
}

/// The same of bases that are packed.
///
/// Guarantee: heap/checkpoint
#[test]
fn failed_packed_checkpoint_keeps_a_whole_base() {
    fail_checkpoints(with_long_hello, open_and_store_little);
    fail_checkpoints(with_packed_hello, open_and_store);
}

fn fail_checkpoints(home: fn() -> Home, prepare: fn(&NameSpace) -> Region) {
    in_every_step(
        home,
        prepare,
        |mut region, _| {
            let Err(error) = region.checkpoint() else { return Ok(()) };
            assert!(region.is_dirty(), "a failed checkpoint made the region clean");
            store(&mut region, 0, b"again");
            match region.checkpoint() {
                Ok(report) => assert!(!report.skipped),
                // Where the header is unknown, or where the storage is dead and fails again.
                Err(RegionError::Poisoned { .. } | RegionError::Io { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            Err(error)
        },
        |home, fault, error| {
            assert!(
                matches!(error, RegionError::StoreFull { .. } | RegionError::Io { .. }),
                "{error}"
            );
            let region = open(&home.names()).unwrap();
            assert_eq!(
                (region.opened(), read(&region, 0, 5)),
                (Opened::WarmAfterCrash, b"again".to_vec())
            );
            drop(region);
            std::fs::remove_file(home.image("words")).unwrap();
            let region = open(&home.names()).unwrap();
            let found = read(&region, 0, 5);
            assert_eq!(region.opened(), Opened::Cold);
            match fault {
                // The repetition came through, unless the first one had already and only the
                // image's header could not be written.
                Fault::Once(_) => assert!(found == b"again" || found == b"later", "{found:?}"),
                _ => assert!(found == b"hello" || found == b"later", "{found:?}"),
            }
        },
    );
}

/// A checkpoint is durable before it gets its name and before the image says so.
#[test]
fn checkpoint_is_durable_before_it_is_named() {
    let home = with_hello();
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let names = home.names_over(storage.clone());
    let mut region = open_and_store(&names);
    assert_eq!(
        storage.take_log(),
        ["allocate", "write_at"],
        "a warm open allocates what was given back, and changes one header slot"
    );
    region.checkpoint().unwrap();
    // 4 MiB, 256 KiB at a time.
    let data_and_both_headers = [&["create", "set_len"][..], &["write_at"; 16 + 2]].concat();
    let publish = ["sync", "rename", "sync_directory"];
    let header_of_the_image = ["write_at"];
    let expected = [&data_and_both_headers[..], &publish, &header_of_the_image].concat();
    assert_eq!(storage.take_log(), expected);
    region.close().unwrap();
    assert_eq!(
        storage.take_log(),
        ["write_at"],
        "a clean close changes one header slot and nothing else"
    );
}

/// A full store is named and the checkpoint succeeds once there is room.
///
/// Guarantee: heap/room
#[test]
fn full_store_is_named_and_room_mends_it() {
    let home = with_hello();
    let storage = Arc::new(FaultyStorage::new(Fault::Once(ENOSPC)));
    let mut region = open_and_store(&home.names_over(storage.clone()));
    // Steps of a checkpoint: create, set the length, write the first page.
    storage.arm(2);
    let error = region.checkpoint().unwrap_err();
    assert!(
        matches!(&error, RegionError::StoreFull { store, .. } if store.ends_with("store")),
        "{error}"
    );
    assert!(home.leftovers().is_empty());
    region.close().unwrap();
    std::fs::remove_file(home.image("words")).unwrap();
    assert_eq!(read(&open(&home.names()).unwrap(), 0, 5), b"later");
}

/// A packed checkpoint, too, is durable before it gets its name; its pages never reach the disk.
///
/// Guarantee: heap/checkpoint
#[test]
fn packed_checkpoint_is_durable_before_it_is_named() {
    let home = with_long_hello();
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let names = home.names_over(storage.clone());
    let mut region = open_and_store_little(&names);
    let _ = storage.take_log();
    region.checkpoint().unwrap();
    let expected = [
        // Two pages where they belong, cut off again; the packed part, both headers.
        &["create", "set_len", "write_at", "write_at", "set_len"][..],
        &["write_at"; 1 + 2],
        &["sync", "rename", "sync_directory"],
        // The header of the image.
        &["write_at"],
    ];
    assert_eq!(storage.take_log(), expected.concat());
    assert!(is_packed(&home.base("words")));
}

/// A close that fails in any step loses nothing and the next open knows.
#[test]
fn failed_close_loses_nothing_and_is_known_later() {
    fail_closes(with_hello, open_and_store);
}

/// The same where the close packs the new base.
///
/// Guarantee: heap/checkpoint
#[test]
fn failed_packing_close_loses_nothing() {
    fail_closes(with_long_hello, open_and_store_little);
}

fn fail_closes(home: fn() -> Home, prepare: fn(&NameSpace) -> Region) {
    in_every_step(
        home,
        prepare,
        |region, _| region.close().map(drop),
        |home, _, _| {
            let region = open(&home.names()).unwrap();
            assert_eq!(
                (region.opened(), read(&region, 0, 5)),
                (Opened::WarmAfterCrash, b"later".to_vec())
            );
            assert!(region.is_dirty());
            region.close().unwrap();
            std::fs::remove_file(home.image("words")).unwrap();
            assert_eq!(read(&open(&home.names()).unwrap(), 0, 5), b"later");
        },
    );
}

/// A warm open that fails in its only step changes nothing that matters.
#[test]
fn failed_warm_open_changes_nothing() {
    in_every_step(
        with_hello,
        |_| (),
        |(), names| open(names).map(drop),
        |home, _, error| {
            assert!(matches!(error, RegionError::Io { .. }), "{error}");
            let region = open(&home.names()).unwrap();
            assert_eq!(read(&region, 0, 5), b"hello");
        },
    );
}

/// A cold open that fails in any step leaves the base as it was.
#[test]
fn failed_cold_open_leaves_the_base() {
    fail_cold_opens(with_hello);
}

/// Guarantee: heap/checkpoint
#[test]
fn failed_cold_open_leaves_a_packed_base() {
    fail_cold_opens(with_packed_hello);
}

fn fail_cold_opens(home: fn() -> Home) {
    in_every_step(
        home,
        |names| std::fs::remove_file(names.places().pool().join("words.image")).unwrap(),
        |(), names| open(names).map(drop),
        |home, _, error| {
            assert!(
                matches!(error, RegionError::NoRoom { .. } | RegionError::Io { .. }),
                "{error}"
            );
            assert!(!home.image("words").exists(), "half an image has the name");
            let region = open(&home.names()).unwrap();
            assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::Cold, b"hello".to_vec()));
            assert!(home.leftovers().is_empty());
        },
    );
}

/// A removal that fails in any step leaves the region whole or gone.
#[test]
fn failed_removal_leaves_the_region_whole_or_gone() {
    in_every_step(
        with_hello,
        |_| (),
        |(), names| names.remove(&named("words"), &key()),
        |home, _, _| match open(&home.names()) {
            Ok(region) => {
                assert_eq!(read(&region, 0, 5), b"hello");
                region.close().unwrap();
                home.names().remove(&named("words"), &key()).unwrap();
            }
            Err(error) => assert!(matches!(error, RegionError::NotFound { .. }), "{error}"),
        },
    );
}

/// A pool with room for the small step only grows by the small step.
#[test]
fn nearly_full_pool_grows_by_the_small_step() {
    let home = Home::new();
    let storage = Arc::new(FaultyStorage::new(Fault::Once(ENOSPC)));
    let mut region =
        home.names_over(storage.clone()).create(&named("words"), &key(), 64 * MIB).unwrap();
    region.set_growth_hint(16 * MIB);
    storage.arm(0);
    assert_eq!(region.grow(4 * MIB + 1).unwrap(), 8 * MIB);
    assert_eq!(home.image("words").metadata().unwrap().len(), DATA_OFFSET + 8 * MIB);
}
