//! Applets with several heaps: each is a heap of its own, under its name in the applet, and what
//! happens to one of them happens to no other.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use holdfast_applet::{
    Applet, CallError, Command, Failure, Grants, HeapsError, Limits, Recovery, SandboxKind, Stdio,
};
use holdfast_region::{
    Consistency, Grant, KeyFingerprint, OwnerKey, Region, RegionError, RegionName, Rights,
};
use holdfast_testkit::{Programs, proportional_bytes};

use crate::{Home, MIB, death};

/// Where the bytes of a heap begin in its image.
const DATA_OFFSET: u64 = 2 << 20;

/// `NV_NOT_GRANTED` and so on.
const NOT_GRANTED: u64 = 1;
const LIMIT_REACHED: u64 = 2;
const NOT_ALLOCATED: u64 = 6;
const BAD_RANGE: u64 = 12;
const READ_ONLY: u64 = 20;
const OTHER_HEAP: u64 = 41;

fn with_each(test: impl Fn(SandboxKind, PathBuf)) {
    let programs = Programs::find().unwrap();
    for (kind, path) in [
        (SandboxKind::Native, programs.native_applet("ledgers").unwrap()),
        (SandboxKind::Native, programs.static_applet("ledgers").unwrap()),
        (SandboxKind::Wasm, programs.applet("ledgers").unwrap()),
    ] {
        eprintln!("{kind}: {}", path.display());
        test(kind, path);
    }
}

fn name(text: &str) -> RegionName {
    RegionName::parse(text).unwrap()
}

fn key() -> OwnerKey {
    OwnerKey::from_bytes([5; 32])
}

impl Home {
    fn heap(&self, heap: &str) -> Region {
        self.names().open_or_create(&name(heap), &key(), 8 * MIB).unwrap()
    }

    fn heap_to_read(&self, heap: &str) -> Region {
        self.names().open_read_only(&name(heap), &key()).unwrap()
    }
}

fn start(path: &Path, grants: Grants) -> Applet {
    Command::new(path, grants).stdio(Stdio::capture(64 << 10)).spawn().unwrap()
}

fn ask(applet: &Applet, function: &str, input: &str) -> Result<u64, CallError> {
    let result = applet.call(function, input.as_bytes())?;
    Ok(u64::from_le_bytes(result.try_into().unwrap()))
}

/// Each heap has its own content, whichever way the applet names it; without a name it is the first
/// grant.
///
/// Guarantee: applets/several-heaps
#[test]
fn each_granted_heap_is_its_own() {
    with_each(|_, path| {
        let home = Home::new();
        let grants = || {
            let notes = home.heap("notes");
            Grants::none().heap(home.heap("dict")).heap_as(name("diary"), notes)
        };
        let applet = start(&path, grants());
        for input in ["dict", "diary", "dict diary", "dict"] {
            applet.call("add", input.as_bytes()).unwrap();
        }
        assert_eq!(ask(&applet, "look", "dict").unwrap(), 3);
        assert_eq!(ask(&applet, "look", "diary").unwrap(), 2);
        assert_eq!(ask(&applet, "look_without_name", "").unwrap(), 3);
        for unknown in ["notes", "dic", "dictx", "DICT"] {
            assert_eq!(ask(&applet, "open_error", unknown).unwrap(), NOT_GRANTED, "{unknown}");
        }
        assert_eq!(ask(&applet, "bad_handle", "").unwrap(), NOT_GRANTED);
        assert_eq!(applet.close().unwrap().heaps.len(), 2);
        // In another order, alone, and in a third applet with another heap before them.
        let other = start(&path, Grants::none().heap(home.heap("notes")).heap(home.heap("dict")));
        assert_eq!(ask(&other, "look_without_name", "").unwrap(), 2);
        assert_eq!(ask(&other, "look", "dict").unwrap(), 3);
        drop(other);
        let third = Grants::none().heap(home.heap("new")).heap(home.heap("notes"));
        let third = start(&path, third.heap(home.heap("dict")));
        third.call("add", b"new notes dict").unwrap();
        assert_eq!(ask(&third, "look", "notes").unwrap(), 3);
    });
}

/// The addresses of a heap's objects are the same in every run, alone or with others.
///
/// Guarantee: applets/several-heaps
#[test]
fn a_heap_keeps_its_place() {
    with_each(|_, path| {
        let home = Home::new();
        let places = |heaps: &[&str]| -> Vec<u64> {
            let grants =
                heaps.iter().fold(Grants::none(), |grants, heap| grants.heap(home.heap(heap)));
            let applet = start(&path, grants);
            let places = heaps.iter().map(|heap| ask(&applet, "where", heap).unwrap()).collect();
            applet.close().unwrap();
            places
        };
        // Each is made in a run of its own, as applets that know nothing of each other do.
        let alone: Vec<u64> =
            ["a", "b", "c", "d"].iter().flat_map(|heap| places(&[*heap])).collect();
        let together = places(&["d", "b", "a", "c"]);
        assert_eq!(together, [alone[3], alone[1], alone[0], alone[2]]);
        let distinct: std::collections::BTreeSet<_> = alone.iter().collect();
        assert_eq!(distinct.len(), 4);
    });
}

/// A thread with a transaction in one heap is refused one in another, and a range or an object of
/// another heap is none of this one.
///
/// Guarantee: applets/one-heap-transactions
#[test]
fn a_transaction_belongs_to_one_heap() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = start(&path, Grants::none().heap(home.heap("a")).heap(home.heap("b")));
        applet.call("add", b"a b").unwrap();
        for input in ["a b", "b a"] {
            assert_eq!(ask(&applet, "begin_in_both", input).unwrap(), OTHER_HEAP);
            assert_eq!(ask(&applet, "add_range_of_other", input).unwrap(), BAD_RANGE);
            assert_eq!(ask(&applet, "free_of_other", input).unwrap(), NOT_ALLOCATED);
        }
        applet.call("add", b"a b").unwrap();
        assert_eq!(ask(&applet, "look", "a").unwrap(), 2);
        assert_eq!(ask(&applet, "look", "b").unwrap(), 2);
    });
}

/// The death of an applet takes back what was open in one heap and nothing in the other, in the
/// mode `direct`; a failed call as well.
///
/// Guarantee: applets/several-heaps-death
#[test]
fn death_rolls_back_what_was_open() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = start(&path, Grants::none().heap(home.heap("a")).heap(home.heap("b")));
        applet.call("add", b"a b").unwrap();
        let failed = applet.call("add_and_fail", b"a b");
        assert!(matches!(failed, Err(CallError::Failed { .. })), "{failed:?}");
        assert_eq!(ask(&applet, "look", "a").unwrap(), 1);
        assert_eq!(ask(&applet, "look", "b").unwrap(), 2);
        let error = death(applet.call("add_and_crash", b"a b"));
        let recoveries: Vec<_> = error.heaps.iter().map(|heap| heap.recovery.as_ref()).collect();
        assert!(matches!(recoveries[0], Some(Ok(Recovery::RolledBack))), "{recoveries:?}");
        assert!(matches!(recoveries[1], Some(Ok(Recovery::InOrder))), "{recoveries:?}");
        applet.respawn().unwrap();
        assert_eq!(ask(&applet, "look", "a").unwrap(), 1);
        assert_eq!(ask(&applet, "look", "b").unwrap(), 3);
        applet.close().unwrap();
    });
}

/// In the mode `atomic` a failed call stores to neither heap; one heap may be atomic and the other
/// not.
///
/// Guarantee: applets/several-heaps-death
#[test]
fn failed_calls_leave_atomic_heaps_alone() {
    with_each(|_, path| {
        let home = Home::new();
        let (mut atomic, direct) = (home.heap("a"), home.heap("b"));
        atomic.set_consistency(Consistency::Atomic).unwrap();
        let applet = start(&path, Grants::none().heap(direct).heap(atomic));
        applet.call("add", b"a b").unwrap();
        applet.call("add", b"a").unwrap();
        for _ in 0..2 {
            let failed = applet.call("add_and_fail", b"b a");
            assert!(matches!(failed, Err(CallError::Failed { .. })), "{failed:?}");
            assert_eq!(ask(&applet, "look", "a").unwrap(), 2, "whole entry, in a call that failed");
            assert_eq!(ask(&applet, "look", "b").unwrap(), 1, "open entry, rolled back");
        }
        death(applet.call("add_and_crash", b"b a"));
        applet.respawn().unwrap();
        assert_eq!(ask(&applet, "look", "a").unwrap(), 2);
        assert_eq!(ask(&applet, "look", "b").unwrap(), 1);
        applet.call("commit", b"a").unwrap();
        applet.close().unwrap();
    });
}

/// A full heap is an error in that heap only.
///
/// Guarantee: applets/several-heaps
#[test]
fn a_full_heap_does_not_fill_the_other() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = start(&path, Grants::none().heap(home.heap("a")).heap(home.heap("b")));
        assert_eq!(ask(&applet, "fill", "a b").unwrap(), LIMIT_REACHED);
        assert_eq!(ask(&applet, "look", "b").unwrap(), 1);
        applet.call("add", b"b").unwrap();
        applet.close().unwrap();
    });
}

/// A heap granted for reading is read by any number of applets at once, beside a heap of each; what
/// would change it is refused, and a store ends the applet.
///
/// Guarantee: applets/shared-readers
#[test]
fn readers_share_a_heap_and_cannot_change_it() {
    with_each(|_, path| {
        let home = Home::new();
        let maker = start(&path, Grants::none().heap(home.heap("dict")));
        maker.call("add", b"dict").unwrap();
        maker.close().unwrap();
        let readers: Vec<_> = (0..4)
            .map(|number| {
                let own = home.heap(&format!("notes-{number}"));
                start(&path, Grants::none().heap(home.heap_to_read("dict")).heap_as(name("n"), own))
            })
            .collect();
        for reader in &readers {
            assert_eq!(ask(reader, "look", "dict").unwrap(), 1);
            reader.call("add", b"n").unwrap();
            assert_eq!(ask(reader, "change_error", "dict").unwrap(), READ_ONLY);
        }
        let error = death(readers[0].call("store_to", b"dict"));
        let told = error.to_string();
        assert!(told.contains("\"dict\"") || told.contains("only read"), "{told}");
        readers[0].respawn().unwrap();
        for reader in readers {
            assert_eq!(ask(&reader, "look", "dict").unwrap(), 1);
            assert_eq!(ask(&reader, "look", "n").unwrap(), 1);
            reader.close().unwrap();
        }
    });
}

/// Two grants under one name, and too many, are refused before anything starts; the heaps are free
/// again.
///
/// Guarantee: applets/several-heaps
#[test]
fn impossible_grants_are_refused() {
    with_each(|_, path| {
        let home = Home::new();
        let same = Grants::none().heap(home.heap("a")).heap_as(name("a"), home.heap("b"));
        let Err(error) = Command::new(&path, same).spawn() else { panic!("it started") };
        assert!(error.to_string().contains("under the name \"a\""), "{error}");
        let many = (0..17).fold(Grants::none(), |grants, number| {
            grants.heap(home.heap(&format!("heap-{number}")))
        });
        let Err(error) = Command::new(&path, many).spawn() else { panic!("it started") };
        assert!(error.to_string().contains("17 heaps were granted"), "{error}");
        let is_told = matches!(&error.failure, Failure::Heaps(HeapsError::TooMany { count: 17 }));
        assert!(is_told || error.metrics.kind == SandboxKind::Wasm);
        drop(home.heap("a"));
        drop(home.heap("heap-16"));
    });
}

/// Sixteen heaps at once, each of which holds what it was given.
///
/// Guarantee: applets/several-heaps
#[test]
fn sixteen_heaps_at_once() {
    with_each(|_, path| {
        let home = Home::new();
        let names: Vec<_> = (0..16).map(|number| format!("heap-{number}")).collect();
        let all = || names.iter().fold(Grants::none(), |grants, heap| grants.heap(home.heap(heap)));
        let applet = start(&path, all());
        for (number, heap) in names.iter().enumerate() {
            for _ in 0..=number {
                applet.call("add", heap.as_bytes()).unwrap();
            }
        }
        applet.close().unwrap();
        let applet = start(&path, all());
        for (number, heap) in names.iter().enumerate() {
            assert_eq!(ask(&applet, "look", heap).unwrap(), number as u64 + 1);
        }
    });
}

/// A damaged heap refuses the applets that open it and is left as it is; the other one is as ever.
///
/// Guarantee: applets/several-heaps
#[test]
fn a_damaged_heap_is_refused_alone() {
    with_each(|_, path| {
        let home = Home::new();
        let applet = start(&path, Grants::none().heap(home.heap("a")).heap(home.heap("b")));
        applet.call("add", b"a b").unwrap();
        applet.close().unwrap();
        // The checksum of the superblock.
        let image = home.0.path().join("pool").join("a.image");
        let file = std::fs::File::options().write(true).open(image).unwrap();
        file.write_all_at(&[0xff; 8], DATA_OFFSET + 96).unwrap();
        let damaged = home.heap("a");
        let applet = start(&path, Grants::none().heap(damaged).heap(home.heap("b")));
        let error = ask(&applet, "open_error", "a").unwrap();
        assert_eq!(error, 19, "NV_BAD_FILE");
        applet.call("add", b"b").unwrap();
        assert_eq!(ask(&applet, "look", "b").unwrap(), 2);
        applet.close().unwrap();
    });
}

/// A heap that is revoked while an applet uses it is that applet's until its end, and nobody's
/// afterwards but its owner's; the other one is as ever.
///
/// Guarantee: applets/several-heaps
/// Guarantee: heap/grants
#[test]
fn a_heap_that_is_revoked_goes_alone() {
    with_each(|_, path| {
        let home = Home::new();
        let guest = OwnerKey::from_bytes([6; 32]);
        for heap in ["a", "b"] {
            drop(home.heap(heap));
            let fingerprint = KeyFingerprint::from_bytes(guest.fingerprint());
            let grant = Grant::new(fingerprint, None, Rights::Write { quota_bytes: None });
            home.names().grant(&name(heap), &key(), grant).unwrap();
        }
        let open = |heap: &str| home.names().open_or_create(&name(heap), &guest, 8 * MIB);
        let grants = Grants::none().heap(open("a").unwrap()).heap(open("b").unwrap());
        let applet = start(&path, grants);
        applet.call("add", b"a b").unwrap();
        assert_eq!(home.names().revoke(&name("b"), &key(), |_| true).unwrap(), 1);
        applet.call("add", b"b a").unwrap();
        applet.respawn().unwrap();
        assert_eq!(ask(&applet, "look", "b").unwrap(), 2);
        applet.close().unwrap();
        assert!(matches!(open("b"), Err(RegionError::NotOwner { .. })));
        let applet = start(&path, Grants::none().heap(open("a").unwrap()));
        applet.call("add", b"a").unwrap();
        assert_eq!(ask(&applet, "look", "a").unwrap(), 3);
        assert_eq!(ask(&applet, "open_error", "b").unwrap(), NOT_GRANTED);
        applet.close().unwrap();
        let applet = start(&path, Grants::none().heap(home.heap("b")));
        assert_eq!(ask(&applet, "look", "b").unwrap(), 2);
        applet.close().unwrap();
    });
}

/// A heap whose image is removed or cut off while an applet uses it costs that heap what the store
/// does not have, and the other one nothing.
///
/// Guarantee: applets/several-heaps
#[test]
fn a_heap_that_goes_in_the_middle_goes_alone() {
    with_each(|_, path| {
        for is_removed in [true, false] {
            let home = Home::new();
            let both = || Grants::none().heap(home.heap("a")).heap(home.heap("b"));
            let applet = start(&path, both());
            applet.call("add", b"a b").unwrap();
            applet.close().unwrap();
            let applet = start(&path, both());
            applet.call("add", b"a b").unwrap();
            let image = home.0.path().join("pool").join("b.image");
            if is_removed {
                std::fs::remove_file(&image).unwrap();
            } else {
                std::fs::File::options().write(true).open(&image).unwrap().set_len(0).unwrap();
            }
            // The applet may die of it, and the host must not.
            let added = applet.call("add", b"b");
            assert!(is_removed || added.is_err(), "a heap without bytes was written to");
            applet.call("add", b"a").or_else(|_| applet.respawn().map(|()| Vec::new())).ok();
            let closed = applet.close().map(drop);
            let applet = start(&path, Grants::none().heap(home.heap("a")));
            let found = ask(&applet, "look", "a").unwrap();
            assert!((2..=3).contains(&found), "{found}: {closed:?}");
            applet.call("add", b"a").unwrap();
            applet.close().unwrap();
            let Ok(region) = home.names().open_or_create(&name("b"), &key(), 8 * MIB) else {
                assert!(!is_removed, "a lost image is one that the store replaces");
                continue;
            };
            let applet = start(&path, Grants::none().heap(region));
            let found = ask(&applet, "look", "b").unwrap();
            assert!((1..=3).contains(&found), "{found}: {closed:?}");
            applet.close().unwrap();
        }
    });
}

/// Kills at random while two heaps are in use: each ledger has what was said to count, and at most
/// the entry that was on its way.
///
/// Guarantee: applets/several-heaps-death
#[test]
fn kills_leave_two_ledgers_whole() {
    with_each(|_, path| {
        let home = Home::new();
        let (mut known, mut random) = ([0_u64; 2], 0x9E37_79B9_u64);
        let both = || Grants::none().heap(home.heap("a")).heap(home.heap("b"));
        // A loaded machine may take longer to compile and start an applet than some of them live.
        for round in 0..40 {
            if round >= 6 && known[0] > 0 && known[1] > 0 {
                break;
            }
            random = random.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(11);
            // As long as nothing came of it, they live longer and longer.
            let longer = if known.contains(&0) { round + 1 } else { 1 };
            let limits = || {
                let mut limits = Limits::default();
                let life = Duration::from_micros(150_000 + (random >> 44) % 150_000);
                limits.timeout = Some(life * longer);
                limits
            };
            // What was compiled is kept for the next one.
            let grants = both().cache_dir(home.0.path().join("cache"));
            let command = Command::new(&path, grants.arg("a").arg("b")).limits(limits());
            let Err(error) = command.stdio(Stdio::capture(8 << 20)).run() else {
                panic!("it ended by itself")
            };
            for line in String::from_utf8_lossy(&error.stdout).lines() {
                let Some((heap, count)) = line.split_once(' ') else { continue };
                let Ok(count) = count.parse() else { continue };
                known[usize::from(heap == "b")] = count;
            }
            let applet = start(&path, both());
            for (at, heap) in ["a", "b"].into_iter().enumerate() {
                let found = ask(&applet, "look", heap).unwrap();
                assert!((known[at]..=known[at] + 1).contains(&found), "{heap}: {found}, {known:?}");
                known[at] = found;
            }
            applet.close().unwrap();
        }
        assert!(known[0] > 0 && known[1] > 0, "{known:?}");
    });
}

/// Eight applets that have read all of a dictionary of 1 GiB have it once together: the seven
/// others cost less than a tenth of it.
///
/// Guarantee: applets/shared-readers
#[test]
fn eight_readers_have_one_dictionary() {
    let shm = rustix::fs::statvfs("/dev/shm").unwrap();
    // The image, and its copy in the store.
    let mib = if shm.f_bavail * shm.f_frsize > 3 << 30 { 1000 } else { 100 };
    if mib < 1000 {
        println!("measured with {mib} MiB: /dev/shm has less than 3 GiB free");
    }
    let programs = Programs::find().unwrap();
    for path in [programs.native_applet("ledgers").unwrap(), programs.applet("ledgers").unwrap()] {
        let home = Home::new();
        let made = home.names().create(&name("dict"), &key(), (mib + 64) << 20).unwrap();
        let maker = start(&path, Grants::none().heap(made));
        maker.call("make_bulk", format!("dict {mib}").as_bytes()).unwrap();
        maker.close().unwrap();
        let before = proportional_bytes();
        let mut readers = Vec::new();
        let mut one = 0;
        for number in 0..8 {
            let reader = start(&path, Grants::none().heap(home.heap_to_read("dict")));
            assert_eq!(ask(&reader, "read_all", "dict").unwrap(), mib << 8);
            readers.push(reader);
            if number == 0 {
                one = proportional_bytes() - before;
            }
        }
        let eight = proportional_bytes() - before;
        println!("{}: one has {} MiB, eight have {} MiB", path.display(), one >> 20, eight >> 20);
        assert!(one > mib << 19, "what was read is not counted: {one}");
        assert!(eight * 10 < one * 11, "one has {one} bytes, eight have {eight}");
    }
}
