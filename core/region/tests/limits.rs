//! The limit of a region that this process has open: it grows and shrinks under the mapping, and
//! whatever fails or dies on the way, the region has the old limit or the new one.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use common::faulty::{Fault, FaultyStorage};
use common::noted::Notes;
use common::{Home, MIB, flip, key, load, named, other_key, read, store};
use holdfast_region::{
    AccessError, Consistency, Durability, Grant, KeyFingerprint, LimitError, NameSpace, Opened,
    Region, RegionError, RegionName, Rights, Written,
};
use holdfast_types::Remedy;

const GIB: u64 = 1 << 30;
const EIO: i32 = 5;
const BOTH: [Consistency; 2] = [Consistency::Direct, Consistency::Atomic];
/// More steps than any operation here has.
const STEPS_MAX: usize = 20;

/// Two homes that are made at the same time may choose the same addresses; so the tests that map at
/// them take turns.
fn alone_at_addresses() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn words() -> RegionName {
    named("words")
}

fn open(names: &NameSpace) -> Region {
    names.open(&words(), &key()).unwrap()
}

/// A region of 8 MiB with "hello", open and mapped at its own address.
fn mapped(home: &Home, consistency: Consistency) -> Region {
    let mut region = open(&home.names());
    region.set_consistency(consistency).unwrap();
    region.map_native().unwrap();
    region
}

fn limit_error(result: Result<u64, RegionError>) -> LimitError {
    match result {
        Err(RegionError::Limit(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// A mapped region grows past its old limit in place and keeps every store.
///
/// Guarantee: heap/limits
#[test]
fn mapped_region_grows_past_its_old_limit_in_place() {
    let _turn = alone_at_addresses();
    for consistency in BOTH {
        let home = Home::with_text("words", b"hello");
        let mut region = mapped(&home, consistency);
        let base = region.mapping().unwrap();
        // From the first commit on, changes are tracked page by page.
        store(&mut region, 4096, b"first");
        region.commit(Durability::Power).unwrap();
        store(&mut region, 8192, b"before");
        assert!(matches!(region.grow(9 * MIB), Err(RegionError::LimitReached { .. })));
        assert_eq!(region.set_limit(40 * MIB).unwrap(), 40 * MIB);
        store(&mut region, 12_288, b"after");
        assert!(region.grow(30 * MIB).unwrap() >= 30 * MIB);
        store(&mut region, 29 << 20, b"beyond");
        assert_eq!((region.mapping(), region.limit_bytes()), (Some(base), 40 * MIB));
        let report = region.commit(Durability::Power).unwrap();
        assert_eq!((report.written, report.pages), (Written::Journal, 3), "{consistency:?}");
        store(&mut region, 16_384, b"later");
        assert_eq!(region.commit(Durability::Power).unwrap().pages, 1);
        // Never closed, and without its image: the store alone knows the limit and the bytes.
        drop(region);
        std::fs::remove_file(home.image("words")).unwrap();
        let region = open(&home.names());
        assert_eq!((region.opened(), region.limit_bytes()), (Opened::Cold, 40 * MIB));
        for (at, text) in [
            (0, "hello"),
            (4096, "first"),
            (8192, "before"),
            (12_288, "after"),
            (16_384, "later"),
            (29 << 20, "beyond"),
        ] {
            assert_eq!(read(&region, at, text.len()), text.as_bytes(), "{consistency:?}");
        }
    }
}

/// A limit changes also before the region is mapped or was ever committed.
#[test]
fn limit_changes_before_mapping_or_first_commit() {
    let _turn = alone_at_addresses();
    let home = Home::new();
    let mut region = home.names().create(&words(), &key(), 8 * MIB).unwrap();
    assert_eq!(region.set_limit(20 * MIB - 5).unwrap(), 20 * MIB);
    region.map_native().unwrap();
    assert_eq!(region.grow(20 * MIB).unwrap(), 20 * MIB);
    store(&mut region, 19 << 20, b"hello");
    region.close().unwrap();
    let region = open(&home.names());
    assert_eq!((region.limit_bytes(), read(&region, 19 << 20, 5)), (20 * MIB, b"hello".to_vec()));
    drop(region);
    std::fs::remove_file(home.image("words")).unwrap();
    assert_eq!(open(&home.names()).limit_bytes(), 20 * MIB);
}

/// A limit that no base can take makes the next commit write one.
#[test]
fn limit_beyond_every_base_makes_a_new_one() {
    let home = Home::with_text("words", b"hello");
    let mut region = open(&home.names());
    store(&mut region, 0, b"later");
    region.commit(Durability::Power).unwrap();
    std::fs::remove_file(home.base("words")).unwrap();
    region.set_limit(7 * MIB).unwrap();
    assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Base);
    drop(region);
    std::fs::remove_file(home.image("words")).unwrap();
    let region = open(&home.names());
    assert_eq!((region.limit_bytes(), read(&region, 0, 5)), (7 * MIB, b"later".to_vec()));
}

/// A limit shrinks to the size and no further and the addresses behind are free again.
///
/// Guarantee: heap/limits
#[test]
fn limit_shrinks_to_the_size_and_frees_addresses() {
    let _turn = alone_at_addresses();
    let home = Home::with_text("words", b"hello");
    let mut region = mapped(&home, Consistency::Direct);
    region.set_limit(2 * GIB).unwrap();
    region.grow(5 * MIB).unwrap();
    let below = limit_error(region.set_limit(7 * MIB));
    assert!(
        matches!(below, LimitError::BelowSize { backed_bytes, .. } if backed_bytes == 8 * MIB),
        "{below}"
    );
    assert!(matches!(region.set_limit(u64::MAX), Err(RegionError::LimitOutOfRange { .. })));
    assert_eq!(region.limit_bytes(), 2 * GIB);
    assert_eq!(region.set_limit(8 * MIB).unwrap(), 8 * MIB);
    assert!(matches!(region.grow(9 * MIB), Err(RegionError::LimitReached { .. })));
    let mut next = home.names().create(&named("next"), &key(), MIB).unwrap();
    assert_eq!(next.address(), region.address() + GIB);
    next.map_native().unwrap();
    let blocked = limit_error(region.set_limit(GIB + 1));
    assert!(
        matches!(&blocked, LimitError::Blocked { possible_bytes: GIB, behind, .. } if behind.contains("next")),
        "{blocked}"
    );
    assert_eq!((region.limit_bytes(), region.set_limit(GIB).unwrap()), (8 * MIB, GIB));
    assert_eq!(load(&mut region, 0, 5), b"hello");
}

/// A limit does not grow over a heap of another home that the process has open.
///
/// Guarantee: heap/limits
#[test]
fn limit_never_grows_over_another_homes_open_heap() {
    let _turn = alone_at_addresses();
    let (home, other) = (Home::with_text("words", b"hello"), Home::new());
    let names = home.names();
    names.create(&named("next"), &key(), MIB).unwrap().close().unwrap();
    let mut stream = Vec::new();
    names.open_read(&named("next")).unwrap().export(&mut stream).unwrap();
    names.remove(&named("next"), &key()).unwrap();
    other.names().import(&named("next"), &key(), &mut &stream[..]).unwrap();
    let mut next = other.names().open(&named("next"), &key()).unwrap();
    next.map_native().unwrap();
    let mut region = mapped(&home, Consistency::Direct);
    let taken = limit_error(region.set_limit(2 * GIB));
    assert!(
        matches!(&taken, LimitError::TakenHere { by, .. } if by.range.start == next.address()),
        "{taken}"
    );
    assert_eq!((region.limit_bytes(), region.set_limit(GIB).unwrap()), (8 * MIB, GIB));
    drop(next);
    assert_eq!(region.set_limit(2 * GIB).unwrap(), 2 * GIB);
}

/// Guarantee: heap/limits
#[test]
fn a_region_in_the_range_of_a_sandbox_keeps_to_it() {
    let home = Home::with_text("words", b"hello");
    let mut region = open(&home.names());
    store(&mut region, 0, b"later");
    let placed = limit_error(region.set_limit(9 * MIB));
    assert!(
        matches!(placed, LimitError::Placed { range_bytes, .. } if range_bytes == 8 * MIB),
        "{placed}"
    );
    assert!(placed.to_string().contains("end the applet, then"));
    assert_eq!(region.set_limit(4 * MIB).unwrap(), 4 * MIB);
    assert_eq!(region.set_limit(8 * MIB).unwrap(), 8 * MIB);
    assert_eq!(region.grow(8 * MIB).unwrap(), 8 * MIB);
    assert_eq!(load(&mut region, 0, 5), b"later");
}

/// Only the owner changes a limit; a reader does not.
///
/// Guarantee: heap/grants
#[test]
fn only_the_owner_changes_a_limit() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    let mut reader = names.open_read_only(&words(), &key()).unwrap();
    assert!(matches!(
        reader.set_limit(GIB),
        Err(RegionError::Access(AccessError::ReadOnly { .. }))
    ));
    drop(reader);
    let guest = KeyFingerprint::from_bytes(other_key().fingerprint());
    names
        .grant(&words(), &key(), Grant::new(guest, None, Rights::Write { quota_bytes: None }))
        .unwrap();
    let mut granted = names.open(&words(), &other_key()).unwrap();
    assert!(matches!(granted.set_limit(GIB), Err(RegionError::NotOwner { .. })));
    assert_eq!(granted.limit_bytes(), 8 * MIB);
}

/// An open region and its compartments stay together below its limit.
///
/// Guarantee: heap/compartments
#[test]
fn open_region_and_compartments_stay_below_its_limit() {
    let home = Home::with_text("words", b"hello");
    let names = home.names();
    let compartment = || names.open_compartment(&words(), &named("a"), &key(), 2 * MIB).unwrap();
    compartment().close().unwrap();
    let mut worker = names.open(&words().compartment(&named("a")).unwrap(), &key()).unwrap();
    let mut region = open(&names);
    // 8 MiB: 4 backed, 2 given out.
    let below = limit_error(region.set_limit(5 * MIB));
    assert!(
        matches!(below, LimitError::BelowCompartments { used_bytes, .. } if used_bytes == 6 * MIB),
        "{below}"
    );
    assert_eq!(region.set_limit(6 * MIB).unwrap(), 6 * MIB);
    let full = worker.set_limit(3 * MIB);
    assert!(matches!(full, Err(RegionError::Access(AccessError::NoQuotaLeft { .. }))), "{full:?}");
    region.set_limit(7 * MIB).unwrap();
    assert_eq!(worker.set_limit(3 * MIB).unwrap(), 3 * MIB);
    assert!(matches!(
        region.grow(5 * MIB),
        Err(RegionError::Access(AccessError::NoQuotaLeft { .. }))
    ));
    worker.close().unwrap();
    assert_eq!(compartment().limit_bytes(), 3 * MIB);
}

/// Lets a change of the limit fail, or die, in each of its steps: the image then says the old limit
/// or the new one, and the store can follow it that far.
fn in_every_step(change: impl Fn(&NameSpace, &dyn Fn(), u64) -> Result<u64, RegionError>) {
    for fault in [Fault::Once(EIO), Fault::Dead] {
        for (from, to) in [(8 * MIB, 24 * MIB), (24 * MIB, 8 * MIB)] {
            for step in 0.. {
                assert!(step < STEPS_MAX, "the change never comes through");
                let home = Home::with_text("words", b"hello");
                home.names().set_limit(&words(), &key(), from).unwrap();
                let storage = Arc::new(FaultyStorage::new(fault));
                let changed = change(&home.names_over(storage.clone()), &|| storage.arm(step), to);
                assert_eq!(changed.is_err(), storage.struck(), "{changed:?}");
                let limit_bytes = follow(&home);
                if !storage.struck() {
                    assert_eq!(
                        (limit_bytes, step > 4),
                        (to, true),
                        "three headers are written, two are synced"
                    );
                    break;
                }
                assert!([from, to].contains(&limit_bytes), "{limit_bytes}");
            }
        }
    }
}

/// Grows the region as far as it may, commits, loses the image; says how far that was.
fn follow(home: &Home) -> u64 {
    let mut region = open(&home.names());
    let limit_bytes = region.limit_bytes();
    assert_eq!(region.grow(limit_bytes).unwrap(), limit_bytes);
    // Not mapped, so that growth is all that a record says.
    region.commit(Durability::Power).unwrap();
    drop(region);
    std::fs::remove_file(home.image("words")).unwrap();
    let mut region = open(&home.names());
    let found = (region.opened(), region.limit_bytes(), region.backed_bytes());
    assert_eq!(found, (Opened::Cold, limit_bytes, limit_bytes));
    store(&mut region, limit_bytes as usize - 4096, b"end");
    region.close().unwrap();
    let region = open(&home.names());
    assert_eq!(
        (read(&region, 0, 5), read(&region, limit_bytes - 4096, 3)),
        (b"hello".into(), b"end".into())
    );
    limit_bytes
}

/// A change of the limit that fails or dies in any step leaves the old one or the new one.
///
/// Guarantee: heap/limits
#[test]
fn failed_limit_change_leaves_old_or_new() {
    let _turn = alone_at_addresses();
    in_every_step(|names, arm, to| {
        let image = names.places().pool().join("words.image");
        let mut region = open(names);
        region.map_native().unwrap();
        store(&mut region, 4096, b"first");
        region.commit(Durability::Power).unwrap();
        let before = region.limit_bytes();
        arm();
        let changed = region.set_limit(to);
        let Err(error) = &changed else { return changed };
        assert_eq!(region.limit_bytes(), before);
        // Where it is not known which header of the image counts, nothing goes on.
        let RegionError::Io { path, .. } = error else { panic!("{error}") };
        assert_eq!(
            matches!(region.grow(0), Err(RegionError::Poisoned { .. })),
            *path == image,
            "{error}"
        );
        assert_eq!(load(&mut region, 4096, 5), b"first");
        if region.grow(before).and_then(|_| region.commit(Durability::Power)).is_ok() {
            drop(region);
            std::fs::remove_file(&image).unwrap();
            assert_eq!(open(names).limit_bytes(), before);
        }
        changed
    });
}

/// A change of the limit at rest that fails or dies in any step leaves one that the store can
/// follow.
///
/// Guarantee: heap/limits
#[test]
fn failed_limit_change_at_rest_leaves_a_valid_one() {
    in_every_step(|names, arm, to| {
        arm();
        names.set_limit(&words(), &key(), to)
    });
}

/// A region whose limit went from 4 to 16 MiB and whose last commit made it larger than the old
/// one, without its image; and the base's headers from before the change.
fn grown_past_its_old_limit(at_rest: bool) -> (Home, Vec<u8>) {
    let home = Home::new();
    let names = home.names();
    let mut region = names.create(&words(), &key(), 4 * MIB).unwrap();
    store(&mut region, 0, b"hello");
    region.close().unwrap();
    let headers = std::fs::read(home.base("words")).unwrap()[..8192].to_vec();
    if at_rest {
        names.set_limit(&words(), &key(), 16 * MIB).unwrap();
    }
    let mut region = open(&names);
    if !at_rest {
        region.set_limit(16 * MIB).unwrap();
    }
    region.grow(8 * MIB).unwrap();
    let notes = Notes::of(&mut region);
    notes.store(&mut region, 0, b"later");
    assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
    drop(region);
    std::fs::remove_file(home.image("words")).unwrap();
    (home, headers)
}

/// A flipped bit in either header of the base after a change of the limit costs no commit.
///
/// Guarantee: heap/limits
#[test]
fn flipped_header_after_limit_change_costs_nothing() {
    for at_rest in [true, false] {
        for slot in [0, 4096] {
            let (home, _) = grown_past_its_old_limit(at_rest);
            flip(&home.base("words"), slot + 100);
            let region = open(&home.names());
            assert_eq!(
                (region.limit_bytes(), region.backed_bytes()),
                (16 * MIB, 8 * MIB),
                "slot at {slot}"
            );
            assert_eq!(read(&region, 0, 5), b"later");
        }
    }
}

/// A journal that goes on beyond an older limit of the base is reported and repaired without loss.
///
/// Guarantee: heap/damaged-journal
/// Guarantee: heap/limits
#[test]
fn journal_beyond_an_older_limit_is_repaired() {
    let (home, headers) = grown_past_its_old_limit(true);
    let base = std::fs::OpenOptions::new().write(true).open(home.base("words")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&base, &headers, 0).unwrap();
    let names = home.names();
    let files =
        || [home.base("words"), home.journal("words")].map(|path| std::fs::read(path).unwrap());
    let before = files();
    let (writing, reading) =
        (names.open(&words(), &key()).map(drop), names.open_read(&words()).map(drop));
    let settling = names.snapshot(&words(), &key(), &named("first")).map(drop);
    for refused in [writing, reading, settling] {
        let error = refused.unwrap_err();
        assert!(
            matches!(error, RegionError::JournalMisfit { record: 1, backed_bytes, limit_bytes, .. }
                if (backed_bytes, limit_bytes) == (8 * MIB, 4 * MIB)),
            "{error}"
        );
        let remedy = Remedy::Repair { heap: "words" };
        assert!(error.to_string().contains(&remedy.to_string()), "{error}");
    }
    let examination = names.examine(&words(), &key()).unwrap();
    assert!(files() == before);
    assert_eq!(examination.findings().len(), 1);
    assert_eq!(examination.findings()[0].lost, None);
    assert!(examination.bytes().starts_with(b"later"));
    examination.mend(&[]).unwrap();
    std::fs::remove_file(home.image("words")).unwrap();
    let region = open(&names);
    assert_eq!((region.limit_bytes(), region.backed_bytes()), (8 * MIB, 8 * MIB));
    assert_eq!(read(&region, 0, 5), b"later");
}
