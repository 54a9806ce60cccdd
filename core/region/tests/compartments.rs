//! Compartments: private to one worker, counted against the parent's limit, removed with it, never
//! merged.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::child::{Player, play};
use common::noted::Notes;
use common::{Home, MIB, key, load, named, other_key, read, store};
use holdfast_region::{
    AccessError, Durability, ErrorKind, Grant, KeyFingerprint, LimitError, NameSpace, Opened,
    OwnerKey, Region, RegionError, RegionName, Result, Rights, Written,
};
use holdfast_types::Remedy;

const WORKERS: [&str; 3] = ["a", "b", "c"];

#[test]
fn a_child_plays_its_role() {
    play();
}

fn compartment(names: &NameSpace, worker: &str) -> Result<Region> {
    names.open_compartment(&named("words"), &named(worker), &key(), 2 * MIB)
}

fn name_of(worker: &str) -> RegionName {
    named("words").compartment(&named(worker)).unwrap()
}

fn key_of(worker: &str) -> OwnerKey {
    key().for_compartment(&named("words"), &named(worker))
}

/// A parent of 16 MiB, 4 of them backed, with three compartments that hold their names.
fn home() -> Home {
    let home = Home::new();
    let mut parent = home.names().create(&named("words"), &key(), 16 * MIB).unwrap();
    store(&mut parent, 0, b"parent");
    parent.close().unwrap();
    for worker in WORKERS {
        let mut region = compartment(&home.names(), worker).unwrap();
        assert_eq!((region.opened(), region.limit_bytes()), (Opened::Created, 2 * MIB));
        store(&mut region, 0, worker.as_bytes());
        region.close().unwrap();
    }
    home
}

/// A worker reaches its own compartment and nothing else.
///
/// Guarantee: heap/compartments
#[test]
fn worker_reaches_only_its_own_compartment() {
    let home = home();
    let names = home.names();
    for worker in WORKERS {
        let handed = key_of(worker);
        for other in WORKERS {
            let (write, reading) = (
                names.open(&name_of(other), &handed),
                names.open_read_only(&name_of(other), &handed),
            );
            if worker == other {
                assert_eq!(read(&write.unwrap(), 0, 1), worker.as_bytes());
            } else {
                assert!(matches!(write, Err(RegionError::NotOwner { .. })));
                assert!(matches!(reading, Err(RegionError::NotOwner { .. })));
                assert!(matches!(
                    names.remove(&name_of(other), &handed),
                    Err(RegionError::NotOwner { .. })
                ));
                let nested = names.open_compartment(&named("words"), &named(other), &handed, MIB);
                assert!(matches!(nested, Err(RegionError::NotOwner { .. })));
            }
        }
        assert!(matches!(names.open(&named("words"), &handed), Err(RegionError::NotOwner { .. })));
        assert!(matches!(
            names.open_read_only(&named("words"), &handed),
            Err(RegionError::NotOwner { .. })
        ));
    }
    // A key with a grant on the parent reaches no compartment.
    let guest = Grant::new(
        KeyFingerprint::from_bytes(other_key().fingerprint()),
        None,
        Rights::Write { quota_bytes: None },
    );
    names.grant(&named("words"), &key(), guest.clone()).unwrap();
    assert!(names.open(&named("words"), &other_key()).is_ok());
    assert!(matches!(names.open(&name_of("a"), &other_key()), Err(RegionError::NotOwner { .. })));
    let theirs = names.open_compartment(&named("words"), &named("a"), &other_key(), MIB);
    assert!(matches!(theirs, Err(RegionError::NotOwner { .. })));
    let granted = names.grant(&name_of("a"), &key(), guest);
    assert!(matches!(granted, Err(RegionError::Access(AccessError::Compartment { .. }))));
    // The owner reaches them all.
    assert_eq!(read(&names.open(&name_of("b"), &key()).unwrap(), 0, 1), b"b");
}

/// The keys of compartments are all different and always the same.
#[test]
fn compartment_keys_are_distinct_and_stable() {
    let mut prints = vec![key().fingerprint()];
    for owner in [key(), other_key()] {
        // Names that run together to the same text must not give the same key.
        for (parent, worker) in
            [("words", "a"), ("words", "b"), ("wordsa", "b"), ("words2", "a"), ("word", "sa")]
        {
            let derived = owner.for_compartment(&named(parent), &named(worker));
            assert_eq!(derived, owner.for_compartment(&named(parent), &named(worker)));
            prints.push(derived.fingerprint());
        }
    }
    let count = prints.len();
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), count);
    assert!(!format!("{:?}", key()).contains("0101010101"));
}

/// Workers use their compartments at the same time and while the parent is in use.
///
/// Guarantee: heap/compartments
#[test]
fn workers_and_parent_run_side_by_side() {
    let home = home();
    let names = home.names();
    let mut parent = Player::start(&home, "hold words mine");
    assert_eq!(parent.hear(), "holding");
    let mut regions: Vec<_> =
        WORKERS.iter().map(|worker| compartment(&names, worker).unwrap()).collect();
    for (region, worker) in regions.iter_mut().zip(WORKERS) {
        assert_eq!(
            (region.opened(), load(region, 0, 1)),
            (Opened::Warm, worker.as_bytes().to_vec())
        );
        store(region, 1, b"!");
        assert!(matches!(compartment(&names, worker), Err(RegionError::Held { .. })));
    }
    // No two of them, nor the parent, overlap in the window of native addresses.
    let mut ranges: Vec<_> =
        names.list().unwrap().iter().map(|r| (r.address, r.address + r.limit_bytes)).collect();
    ranges.sort_unstable();
    assert!(
        ranges.len() == 4 && ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0),
        "{ranges:?}"
    );
    for region in regions {
        region.close().unwrap();
    }
    for worker in WORKERS {
        std::fs::remove_file(home.image(&format!("words+{worker}"))).unwrap();
        assert_eq!(
            read(&compartment(&names, worker).unwrap(), 0, 2),
            format!("{worker}!").as_bytes()
        );
    }
}

/// Compartments and parent stay below the parent's limit together.
///
/// Guarantee: heap/compartments
#[test]
fn compartments_and_parent_share_one_limit() {
    let home = home();
    let names = home.names();
    // 16 MiB: 4 backed and 3 times 2 given out.
    let error = names
        .open_compartment(&named("words"), &named("d"), &key(), 7 * MIB)
        .map(drop)
        .unwrap_err();
    assert!(
        matches!(&error, RegionError::Access(AccessError::NoQuotaLeft { limit_bytes, used_bytes, asked_bytes, .. })
            if (*limit_bytes, *used_bytes, *asked_bytes) == (16 * MIB, 10 * MIB, 7 * MIB)),
        "{error}"
    );
    assert_eq!(
        (error.kind(), names.compartments(&named("words")).unwrap().len()),
        (ErrorKind::NoRoom, 3)
    );
    let mut parent = names.open(&named("words"), &key()).unwrap();
    assert!(matches!(
        parent.grow(11 * MIB),
        Err(RegionError::Access(AccessError::NoQuotaLeft { .. }))
    ));
    assert_eq!(parent.backed_bytes(), 4 * MIB);
    assert_eq!(parent.grow(9 * MIB).unwrap(), 10 * MIB);
    parent.close().unwrap();
    let full = names.open_compartment(&named("words"), &named("d"), &key(), MIB).map(drop);
    assert!(matches!(full, Err(RegionError::Access(AccessError::NoQuotaLeft { .. }))));
    // A compartment has its own limit, and one that is removed gives its part back.
    assert!(matches!(
        compartment(&names, "a").unwrap().grow(3 * MIB),
        Err(RegionError::LimitReached { .. })
    ));
    names.remove(&name_of("a"), &key()).unwrap();
    names.open_compartment(&named("words"), &named("d"), &key(), 2 * MIB).unwrap().close().unwrap();
}

/// The size of a parent that only its journal knows counts.
///
/// Guarantee: heap/compartments
#[test]
fn parent_size_known_to_journal_only_counts() {
    let home = Home::new();
    let names = home.names();
    names.create(&named("words"), &key(), 12 * MIB).unwrap().close().unwrap();
    let mut parent = names.open(&named("words"), &key()).unwrap();
    let notes = Notes::of(&mut parent);
    parent.grow(8 * MIB).unwrap();
    notes.store(&mut parent, 0, b"parent");
    assert_eq!(parent.commit(Durability::Power).unwrap().written, Written::Journal);
    parent.close().unwrap();
    std::fs::remove_file(home.image("words")).unwrap();
    let full = names
        .open_compartment(&named("words"), &named("a"), &key(), 5 * MIB)
        .map(drop)
        .unwrap_err();
    assert!(
        matches!(full, RegionError::Access(AccessError::NoQuotaLeft { used_bytes, .. }) if used_bytes == 8 * MIB),
        "{full}"
    );
    let made = names.open_compartment(&named("words"), &named("a"), &key(), 4 * MIB).unwrap();
    assert_eq!((made.limit_bytes(), home.image("words").exists()), (4 * MIB, false));
}

/// A changed limit keeps parent and compartments together below the parents.
///
/// Guarantee: heap/compartments
#[test]
fn changed_limit_keeps_all_below_the_parents() {
    let home = home();
    let names = home.names();
    // 16 MiB: 4 backed and 3 times 2 given out.
    let error = names.set_limit(&named("words"), &key(), 9 * MIB).unwrap_err();
    assert!(
        matches!(&error, RegionError::Limit(LimitError::BelowCompartments { used_bytes, .. })
            if *used_bytes == 10 * MIB),
        "{error}"
    );
    assert_eq!(names.set_limit(&named("words"), &key(), 12 * MIB).unwrap(), 12 * MIB);
    let error = names.set_limit(&name_of("a"), &key(), 5 * MIB).unwrap_err();
    assert!(matches!(&error, RegionError::Access(AccessError::NoQuotaLeft { .. })), "{error}");
    assert_eq!(names.set_limit(&name_of("c"), &key(), 4 * MIB).unwrap(), 4 * MIB);
    assert_eq!(compartment(&names, "c").unwrap().limit_bytes(), 4 * MIB);
}

/// A worker may remove its compartment and not change what it may have.
///
/// Guarantee: heap/compartments
#[test]
fn worker_removes_its_compartment_but_no_quota() {
    let home = home();
    let names = home.names();
    let refused = |result: Result<u64>| {
        let error = result.unwrap_err();
        assert!(matches!(error, RegionError::Access(AccessError::ParentOnly { .. })), "{error}");
        assert!(
            error.kind() == ErrorKind::Denied && error.to_string().contains("the key of that heap")
        );
    };
    for asked_bytes in [MIB, 3 * MIB] {
        refused(names.set_limit(&name_of("a"), &key_of("a"), asked_bytes));
        refused(names.open(&name_of("a"), &key_of("a")).unwrap().set_limit(asked_bytes));
        // What the owner opens for a worker is the worker's, new or not.
        refused(compartment(&names, "a").unwrap().set_limit(asked_bytes));
        refused(compartment(&names, "d").unwrap().set_limit(asked_bytes));
        let stranger = names.set_limit(&name_of("a"), &key_of("b"), asked_bytes);
        assert!(matches!(stranger, Err(RegionError::NotOwner { .. })), "{stranger:?}");
    }
    assert_eq!(names.summary(&name_of("a")).unwrap().limit_bytes, 2 * MIB);
    assert_eq!(names.set_limit(&name_of("a"), &key(), 3 * MIB).unwrap(), 3 * MIB);
    assert_eq!(names.open(&name_of("a"), &key()).unwrap().set_limit(2 * MIB).unwrap(), 2 * MIB);
    names.remove(&name_of("a"), &key_of("a")).unwrap();
    let anew = names.open_compartment(&named("words"), &named("a"), &key_of("a"), MIB).map(drop);
    assert!(matches!(anew, Err(RegionError::NotOwner { .. })), "{anew:?}");
}

/// Guarantee: heap/compartments
#[test]
fn no_copy_and_no_stream_becomes_a_compartment() {
    let home = home();
    let names = home.names();
    let mut stream = Vec::new();
    names.open_read(&name_of("a")).unwrap().export(&mut stream).unwrap();
    for key in [key(), key_of("d")] {
        let imported = names.import(&name_of("d"), &key, &mut &stream[..]).map(drop);
        let copied = names.copy(&name_of("a"), &name_of("d"), &key).map(drop);
        for made in [imported, copied] {
            assert!(matches!(made, Err(RegionError::Access(AccessError::Compartment { .. }))));
        }
    }
    assert_eq!(names.compartments(&named("words")).unwrap().len(), 3);
}

/// A region is removed with its compartments or not at all.
///
/// Guarantee: heap/compartments
#[test]
fn region_is_removed_with_its_compartments_or_not() {
    let home = home();
    let names = home.names();
    names.create(&named("words-2"), &key(), MIB).unwrap().close().unwrap();
    let error = names.remove(&named("words"), &key()).unwrap_err();
    assert!(
        matches!(&error, RegionError::Access(AccessError::HasCompartments { count: 3, .. })),
        "{error}"
    );
    let remedy = Remedy::RemoveWithCompartments { heap: "words" };
    assert!(error.to_string().contains(&remedy.to_string()), "{error}");
    let held = compartment(&names, "c").unwrap();
    assert!(matches!(
        names.remove_with_compartments(&named("words"), &key()),
        Err(RegionError::Held { .. })
    ));
    assert_eq!(names.list().unwrap().len(), 5);
    held.close().unwrap();
    names.remove_with_compartments(&named("words"), &key()).unwrap();
    let left: Vec<_> = names.list().unwrap().into_iter().map(|summary| summary.name).collect();
    assert_eq!(left, [named("words-2")]);
    assert!(matches!(compartment(&names, "a"), Err(RegionError::NotFound { .. })));
}

/// A compartment is made only as one and listed behind its parent.
///
/// Guarantee: heap/compartments
#[test]
fn compartment_is_made_and_listed_as_one() {
    let home = home();
    let names = home.names();
    for key in [key(), key_of("d")] {
        for made in
            [names.create(&name_of("d"), &key, MIB), names.open_or_create(&name_of("d"), &key, MIB)]
        {
            assert!(matches!(made, Err(RegionError::Access(AccessError::Compartment { .. }))));
        }
    }
    names.create(&named("words-2"), &key(), MIB).unwrap().close().unwrap();
    let listed: Vec<_> =
        names.list().unwrap().into_iter().map(|summary| summary.name.to_string()).collect();
    assert_eq!(listed, ["words", "words+a", "words+b", "words+c", "words-2"]);
    let below: Vec<_> =
        names.compartments(&named("words")).unwrap().into_iter().map(|s| s.name).collect();
    assert_eq!(below, WORKERS.map(name_of));
    // Headers name them, so a renamed file is noticed as for any region.
    std::fs::rename(home.image("words+a"), home.image("words+d")).unwrap();
    assert!(matches!(names.open(&name_of("d"), &key()), Err(RegionError::Renamed { .. })));
}
