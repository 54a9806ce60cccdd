//! Every kind of key against every operation; damaged, stale and torn access tables; readers.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::child::{Player, play};
use common::faulty::{Fault, FaultyStorage};
use common::{Home, MIB, flip, key, load, map, named, other_key, read, store};
use holdfast_region::{
    Access, AccessError, Consistency, ErrorKind, Grant, KeyFingerprint, NameSpace, Opened,
    OwnerKey, RegionError, Result, Rights,
};
use holdfast_types::Remedy;

const WRITE: Rights = Rights::Write { quota_bytes: None };

#[test]
fn a_child_plays_its_role() {
    play();
}

fn fingerprint(key: &OwnerKey) -> KeyFingerprint {
    KeyFingerprint::from_bytes(key.fingerprint())
}

fn grant_to(key: &OwnerKey, rights: Rights) -> Grant {
    Grant::new(fingerprint(key), Some(named("guest")), rights)
}

fn table(home: &Home) -> PathBuf {
    home.path().join("store/words.grants")
}

/// A region with "hello" in it, and what the other key may do with it.
fn shared(rights: Option<Rights>) -> Home {
    let home = Home::with_text("words", b"hello");
    if let Some(rights) = rights {
        home.names().grant(&named("words"), &key(), grant_to(&other_key(), rights)).unwrap();
    }
    home
}

/// How an operation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Done,
    NotOwner,
    ReadOnly,
    Quota,
}

fn end<T>(result: Result<T>) -> End {
    match result.map(drop) {
        Ok(()) => End::Done,
        Err(RegionError::NotOwner { .. }) => End::NotOwner,
        Err(RegionError::Access(AccessError::ReadOnly { .. })) => End::ReadOnly,
        Err(RegionError::Access(AccessError::QuotaReached { .. })) => End::Quota,
        Err(error) => panic!("{error}"),
    }
}

/// Every operation there is, by a key of each kind, in a home of its own.
///
/// Guarantee: heap/keys
#[test]
fn each_key_may_do_exactly_what_was_granted() {
    use End::{Done, NotOwner, Quota, ReadOnly};
    let quota = Rights::Write { quota_bytes: Some(4 * MIB + 70_000) };
    // Owner, rw, rw with a quota, ro, none.
    let kinds = [
        (key(), None),
        (other_key(), Some(WRITE)),
        (other_key(), Some(quota)),
        (other_key(), Some(Rights::Read)),
        (other_key(), None),
    ];
    type Operation = fn(&NameSpace, &OwnerKey) -> End;
    let operations: [(&str, Operation, [End; 5]); 13] = [
        ("open", |n, k| end(n.open(&named("words"), k)), [Done, Done, Done, ReadOnly, NotOwner]),
        (
            "open or create",
            |n, k| end(n.open_or_create(&named("words"), k, MIB)),
            [Done, Done, Done, ReadOnly, NotOwner],
        ),
        (
            "open for reading",
            |n, k| end(n.open_read_only(&named("words"), k)),
            [Done, Done, Done, Done, NotOwner],
        ),
        (
            "read",
            |n, k| {
                end(n
                    .open_read_only(&named("words"), k)
                    .map(|region| assert_eq!(read(&region, 0, 5), b"hello")))
            },
            [Done, Done, Done, Done, NotOwner],
        ),
        (
            "store",
            |n, k| {
                end(n.open(&named("words"), k).map(|mut region| store(&mut region, 0, b"changed")))
            },
            [Done, Done, Done, ReadOnly, NotOwner],
        ),
        (
            "grow",
            |n, k| end(n.open(&named("words"), k).and_then(|mut region| region.grow(8 * MIB))),
            [Done, Done, Quota, ReadOnly, NotOwner],
        ),
        (
            "grow a reader",
            |n, k| {
                end(n
                    .open_read_only(&named("words"), k)
                    .and_then(|mut region| region.grow(8 * MIB)))
            },
            [ReadOnly, ReadOnly, ReadOnly, ReadOnly, NotOwner],
        ),
        (
            "checkpoint",
            |n, k| end(n.open(&named("words"), k).and_then(|mut region| region.checkpoint())),
            [Done, Done, Done, ReadOnly, NotOwner],
        ),
        (
            "remove",
            |n, k| end(n.remove(&named("words"), k)),
            [Done, NotOwner, NotOwner, NotOwner, NotOwner],
        ),
        (
            "remove with compartments",
            |n, k| end(n.remove_with_compartments(&named("words"), k)),
            [Done, NotOwner, NotOwner, NotOwner, NotOwner],
        ),
        (
            "remove the image",
            |n, k| end(n.remove_image(&named("words"), k)),
            [Done, NotOwner, NotOwner, NotOwner, NotOwner],
        ),
        (
            "grant",
            |n, k| {
                end(n.grant(&named("words"), k, grant_to(&OwnerKey::from_bytes([9; 32]), WRITE)))
            },
            [Done, NotOwner, NotOwner, NotOwner, NotOwner],
        ),
        (
            "revoke, list, make a compartment",
            |n, k| {
                let ends = [
                    end(n.revoke(&named("words"), k, |_| true)),
                    end(n.revoke_all(&named("words"), k)),
                    end(n.grants(&named("words"), k)),
                    end(n.open_compartment(&named("words"), &named("worker"), k, MIB)),
                ];
                assert!(ends.iter().all(|each| *each == ends[0]), "{ends:?}");
                ends[0]
            },
            [Done, NotOwner, NotOwner, NotOwner, NotOwner],
        ),
    ];
    for (what, operation, expected) in operations {
        for ((key, rights), expected) in kinds.iter().zip(expected) {
            let home = shared(*rights);
            let before = std::fs::read(home.base("words")).unwrap();
            assert_eq!(operation(&home.names(), key), expected, "{what} with {rights:?}");
            if expected != Done {
                assert!(
                    std::fs::read(home.base("words")).unwrap() == before,
                    "{what} changed the store"
                );
                assert_eq!(
                    read(&home.names().open(&named("words"), &common::key()).unwrap(), 0, 5),
                    b"hello"
                );
            }
        }
    }
}

/// What a key without a grant is told has nothing of the content and names the remedy.
///
/// Guarantee: heap/keys
#[test]
fn refusal_names_the_remedy_and_no_content() {
    let home = shared(None);
    for error in [
        home.names().open(&named("words"), &other_key()).map(drop).unwrap_err(),
        home.names().open_read_only(&named("words"), &other_key()).map(drop).unwrap_err(),
        home.names().access(&named("words"), &other_key()).map(drop).unwrap_err(),
    ] {
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Denied);
        assert!(
            text.contains(&Remedy::Grant { heap: Some("words") }.to_string())
                && !text.contains("hello"),
            "{text}"
        );
    }
    // A refusal at the cold side builds no image either.
    std::fs::remove_file(home.image("words")).unwrap();
    assert!(home.names().open(&named("words"), &other_key()).is_err());
    assert!(home.names().open_read_only(&named("words"), &other_key()).is_err());
    assert!(!home.image("words").exists());
}

/// Guarantee: heap/grants
#[test]
fn a_quota_bounds_growth_by_its_key_and_nobody_else() {
    let quota_bytes = 6 * MIB + 70_000;
    let home = Home::new();
    home.names().create(&named("words"), &key(), 32 * MIB).unwrap().close().unwrap();
    let rights = Rights::Write { quota_bytes: Some(quota_bytes) };
    home.names().grant(&named("words"), &key(), grant_to(&other_key(), rights)).unwrap();
    let mut region = home.names().open(&named("words"), &other_key()).unwrap();
    assert_eq!(region.growth_limit_bytes(), quota_bytes);
    // A step of growth is cut to the quota, in whole units.
    assert_eq!(region.grow(5 * MIB).unwrap(), 6 * MIB + 65_536);
    let error = region.grow(7 * MIB).unwrap_err();
    assert!(
        matches!(&error, RegionError::Access(AccessError::QuotaReached { asked_bytes, .. }) if *asked_bytes == 7 * MIB)
    );
    assert_eq!((error.kind(), region.backed_bytes()), (ErrorKind::NoRoom, 6 * MIB + 65_536));
    region.close().unwrap();
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!(region.grow(20 * MIB).unwrap(), 20 * MIB);
    region.close().unwrap();
    // What others made it grow to stays usable.
    let region = home.names().open(&named("words"), &other_key()).unwrap();
    assert_eq!((region.backed_bytes(), region.growth_limit_bytes()), (20 * MIB, 20 * MIB));
}

/// A reader never makes a region dirty and changes no file.
///
/// Guarantee: heap/read-only
/// Guarantee: heap/readers-and-writers
#[test]
fn reader_never_dirties_a_region() {
    let home = shared(Some(Rights::Read));
    let files = || {
        let files = [home.image("words"), home.base("words"), table(&home)];
        files.map(|file| {
            (std::fs::read(&file).unwrap(), file.metadata().unwrap().modified().unwrap())
        })
    };
    // Once after an orderly end, once after a crash: what the store lacks is not the reader's
    // business.
    for crashed in [false, true] {
        if crashed {
            let mut region = home.names().open(&named("words"), &key()).unwrap();
            store(&mut region, 0, b"HELLO");
            drop(region);
        }
        let before = files();
        let mut region = home.names().open_read_only(&named("words"), &other_key()).unwrap();
        assert!(region.is_read_only() && !region.is_dirty());
        assert_eq!(region.opened(), if crashed { Opened::WarmAfterCrash } else { Opened::Warm });
        let base = map(&mut region);
        assert_eq!(load(&mut region, 0, 5), if crashed { b"HELLO" } else { b"hello" });
        assert!(matches!(
            region.make_writable(),
            Err(RegionError::Access(AccessError::ReadOnly { .. }))
        ));
        assert!(region.checkpoint().unwrap().skipped && region.publish().unwrap().bytes == 0);
        assert!(!region.is_dirty() && region.mapping().is_some_and(|at| at.as_ptr() == base));
        region.unmap().unwrap();
        assert!(region.set_consistency(Consistency::Atomic).is_err());
        assert!(region.close().unwrap().checkpoint.skipped);
        assert!(files() == before, "a reader changed a file");
    }
    let region = home.names().open(&named("words"), &key()).unwrap();
    assert!(region.opened() == Opened::WarmAfterCrash && region.is_dirty());
}

/// A store to a region that may only be read is a segmentation fault and changes nothing.
///
/// Guarantee: heap/read-only
#[test]
fn store_to_read_only_region_is_a_segfault() {
    let home = shared(Some(Rights::Read));
    let mut child = Player::start(&home, "store-to-read-only words");
    assert_eq!(child.hear(), "read hello");
    assert_eq!(child.hear(), "");
    const SIGSEGV: i32 = 11;
    assert_eq!(child.signal(), Some(SIGSEGV));
    let region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), read(&region, 0, 5)), (Opened::Warm, b"hello".to_vec()));
}

/// Many readers share a region and keep writers out while a writer keeps them out.
///
/// Guarantee: heap/readers-and-writers
#[test]
fn readers_share_and_exclude_writers() {
    let home = shared(Some(Rights::Read));
    let words = named("words");
    for cold in [false, true] {
        if cold {
            std::fs::remove_file(home.image("words")).unwrap();
        }
        let mut readers: Vec<_> =
            (0..20).map(|_| home.names().open_read_only(&words, &other_key()).unwrap()).collect();
        for reader in &mut readers {
            assert_eq!(load(reader, 0, 5), b"hello");
            assert_eq!(reader.opened(), if cold { Opened::Cold } else { Opened::Warm });
        }
        let error = home.names().open(&words, &key()).unwrap_err();
        assert!(matches!(error, RegionError::Held { holder: None, .. }), "{error}");
        drop(readers);
    }
    let mut writer = Player::start(&home, "hold words mine");
    assert_eq!(writer.hear(), "holding");
    let error = home.names().open_read_only(&words, &other_key()).unwrap_err();
    assert!(
        matches!(error, RegionError::Held { holder, .. } if holder == Some(writer.pid())),
        "{error}"
    );
    writer.kill();
    assert_eq!(read(&home.names().open_read_only(&words, &other_key()).unwrap(), 0, 5), b"mineo");
}

/// Grants change while a program has the region and count from the next opening on.
///
/// Guarantee: heap/grants
#[test]
fn changed_grants_count_from_the_next_opening() {
    let home = shared(Some(WRITE));
    let (names, words) = (home.names(), named("words"));
    let mut held = names.open(&words, &other_key()).unwrap();
    assert_eq!(
        names.revoke(&words, &key(), |grant| grant.key == fingerprint(&other_key())).unwrap(),
        1
    );
    store(&mut held, 0, b"still");
    held.close().unwrap();
    assert!(matches!(names.open(&words, &other_key()), Err(RegionError::NotOwner { .. })));
    assert_eq!(names.revoke(&words, &key(), |_| true).unwrap(), 0);
    names.grant(&words, &key(), grant_to(&other_key(), WRITE)).unwrap();
    // A second grant to the same key replaces the first.
    names.grant(&words, &key(), grant_to(&other_key(), Rights::Read)).unwrap();
    assert_eq!(names.grants(&words, &key()).unwrap(), [grant_to(&other_key(), Rights::Read)]);
    assert_eq!(names.access(&words, &other_key()).unwrap(), Access::Granted(Rights::Read));
    assert_eq!(names.access(&words, &key()).unwrap(), Access::Owner);
    assert!(matches!(
        names.grant(&words, &key(), grant_to(&key(), WRITE)),
        Err(RegionError::Access(AccessError::OwnKey { .. }))
    ));
}

/// Guarantee: heap/grants
#[test]
fn grants_outlive_the_image_and_die_with_the_region() {
    let home = shared(Some(WRITE));
    let words = named("words");
    std::fs::remove_file(home.image("words")).unwrap();
    home.names().open(&words, &other_key()).unwrap().close().unwrap();
    let kept = std::fs::read(table(&home)).unwrap();
    home.names().remove(&words, &key()).unwrap();
    assert!(!table(&home).exists());
    // Not even the old table, put back, gives rights to a new region of that name.
    home.names().create(&words, &key(), 8 * MIB).unwrap().close().unwrap();
    std::fs::write(table(&home), kept).unwrap();
    assert!(matches!(home.names().open(&words, &other_key()), Err(RegionError::NotOwner { .. })));
    assert_eq!(home.names().grants(&words, &key()).unwrap(), []);
    home.names().grant(&words, &key(), grant_to(&other_key(), Rights::Read)).unwrap();
    assert!(home.names().open_read_only(&words, &other_key()).is_ok());
}

/// A damaged table denies everyone but the owner, who can replace it.
///
/// Guarantee: heap/grants
#[test]
fn damaged_grants_admit_only_the_owner() {
    let home = shared(Some(WRITE));
    let (names, words) = (home.names(), named("words"));
    let good = std::fs::read(table(&home)).unwrap();
    for offset in 0..good.len() {
        flip(&table(&home), offset as u64);
        for error in [
            names.open(&words, &other_key()).map(drop).unwrap_err(),
            names.open_read_only(&words, &other_key()).map(drop).unwrap_err(),
            names.grants(&words, &key()).map(drop).unwrap_err(),
            names.grant(&words, &key(), grant_to(&other_key(), WRITE)).unwrap_err(),
        ] {
            assert!(
                matches!(error, RegionError::Access(AccessError::TableDamaged { .. })),
                "byte {offset}: {error}"
            );
            let remedy = Remedy::RevokeAll { heap: "words" };
            assert!(error.to_string().contains(&remedy.to_string()), "{error}");
        }
        std::fs::write(table(&home), &good).unwrap();
    }
    assert!(names.open(&words, &other_key()).is_ok());
    std::fs::write(table(&home), &good[..100]).unwrap();
    assert_eq!(read(&names.open(&words, &key()).unwrap(), 0, 5), b"hello");
    names.revoke_all(&words, &key()).unwrap();
    assert_eq!(names.grants(&words, &key()).unwrap(), []);
    assert!(matches!(names.open(&words, &other_key()), Err(RegionError::NotOwner { .. })));
}

/// A table is the old or the new one in whichever step its writer fails or dies.
///
/// Guarantee: heap/grants
#[test]
fn grant_table_is_old_or_new_at_every_step() {
    let before = vec![grant_to(&other_key(), WRITE)];
    let third = grant_to(&OwnerKey::from_bytes([3; 32]), Rights::Read);
    let after = [before.clone(), vec![third.clone()]].concat();
    for fault in [Fault::Once(28), Fault::Once(5), Fault::Dead] {
        for step in 0.. {
            assert!(step < 50, "the operation never comes through");
            let home = shared(Some(WRITE));
            let storage = Arc::new(FaultyStorage::new(fault));
            let names = home.names_over(storage.clone());
            storage.arm(step);
            let granted = names.grant(&named("words"), &key(), third.clone());
            let found = home.names().grants(&named("words"), &key()).unwrap();
            if !storage.struck() {
                granted.unwrap();
                assert_eq!(found, after);
                assert!(step >= 5, "the operation has too few steps: {step}");
                break;
            }
            // Removing what is not there may fail without harm.
            assert!(granted.is_err() || step == 0, "an error in step {step} was swallowed");
            assert!(found == before || found == after, "step {step}: {found:?}");
            // The next change goes through, whatever was left.
            home.names().grant(&named("words"), &key(), third.clone()).unwrap();
            assert_eq!(home.names().grants(&named("words"), &key()).unwrap(), after);
            assert!(!home.path().join("store/.words.grants-tmp").exists());
        }
    }
}

/// Guarantee: heap/grants
#[test]
fn a_table_is_durable_before_it_gets_its_name() {
    let home = shared(None);
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let names = home.names_over(storage.clone());
    storage.take_log();
    names.grant(&named("words"), &key(), grant_to(&other_key(), WRITE)).unwrap();
    let steps: Vec<_> = storage.take_log().into_iter().filter(|step| *step != "remove").collect();
    assert_eq!(steps, ["create", "write_at", "sync", "rename", "sync_directory"]);
}
