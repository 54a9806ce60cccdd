//! Many threads, one region: commits share syncs, and each answer is true for each caller.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use common::faulty::{Fault, FaultyStorage};
use common::noted::Notes;
use common::power::{Kept, PowerStorage};
use common::{Home, MIB, key, named};
use holdfast_region::{
    Consistency, Durability, ErrorKind, RegionError, SharedRegion, Storage, Written,
};

const PAGE: usize = 4096;
const THREADS: usize = 8;
const EIO: i32 = 5;

/// A region that threads may share, mapped, with a base.
fn shared(home: &Home, storage: Arc<dyn Storage>) -> (SharedRegion, Notes) {
    let mut region = home.names_over(storage).create(&named("words"), &key(), MIB).unwrap();
    let notes = Notes::of(&mut region);
    notes.store(&mut region, 100 * PAGE, b"base");
    region.commit(Durability::Power).unwrap();
    (SharedRegion::new(region), notes)
}

/// Stores a number twice, at the two pages of a thread, as one stretch.
fn store_number(shared: &SharedRegion, notes: &Notes, thread: usize, number: u64) {
    let inside = shared.enter();
    let base = inside.mapping().unwrap().as_ptr();
    for page in [2 * thread, 2 * thread + 1] {
        notes.add(page * PAGE, 8);
        // SAFETY: the page lies in the backed part of the mapping, is this thread's alone, and is
        // aligned.
        unsafe { base.add(page * PAGE).cast::<u64>().write_volatile(number) };
        std::thread::yield_now();
    }
}

fn numbers(home: &Home) -> Vec<u64> {
    let reader = home.names().open_read(&named("words")).unwrap();
    let number_at = |page: usize| {
        u64::from_le_bytes(reader.bytes()[page * PAGE..page * PAGE + 8].try_into().unwrap())
    };
    (0..THREADS)
        .map(|thread| {
            let both = (number_at(2 * thread), number_at(2 * thread + 1));
            assert_eq!(both.0, both.1, "a commit cut a stretch of thread {thread} in two");
            both.0
        })
        .collect()
}

fn home_without_image(home: &Home) -> Home {
    PowerStorage::new(home).after_cut(Kept::Everything)
}

/// Runs a body in all threads at once.
fn in_threads(body: impl Fn(usize) + Sync) {
    let start = Barrier::new(THREADS);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, body) = (&start, &body);
            scope.spawn(move || {
                start.wait();
                body(thread);
            });
        }
    });
}

/// Commits of many threads share syncs and none is lost.
///
/// Guarantee: heap/group-commit
#[test]
fn threads_share_syncs_and_lose_no_commit() {
    const COMMITS: u64 = 50;
    let home = Home::new();
    let storage = Arc::new(FaultyStorage::with_slow_syncs(Fault::Dead, Duration::from_millis(5)));
    let (shared, notes) = shared(&home, storage.clone());
    storage.take_log();
    in_threads(|thread| {
        for number in 1..=COMMITS {
            store_number(&shared, &notes, thread, number);
            let report = shared.commit(Durability::Power).unwrap();
            // A batch that was copied after the store but before the call has taken the store
            // along.
            assert!(matches!(report.written, Written::Journal | Written::Nothing));
        }
    });
    let syncs = storage.take_log().iter().filter(|step| step.starts_with("sync")).count();
    println!("{} commits took {syncs} syncs", THREADS as u64 * COMMITS);
    assert!(syncs < 300, "{syncs} syncs");
    drop(shared);
    assert_eq!(numbers(&home_without_image(&home)), [COMMITS; THREADS]);
}

/// A power cut among many threads loses no acknowledged commit.
#[test]
fn power_cut_among_threads_loses_no_commit() {
    for step in (0..60).step_by(3) {
        let home = Home::new();
        home.places();
        let storage = Arc::new(PowerStorage::new(&home));
        let (shared, notes) = shared(&home, storage.clone());
        storage.arm(step);
        let acknowledged: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
        in_threads(|thread| {
            for number in 1.. {
                store_number(&shared, &notes, thread, number);
                match shared.commit(Durability::Power) {
                    Ok(_) => acknowledged[thread].store(number, Ordering::SeqCst),
                    Err(_) => break,
                }
            }
        });
        drop(shared);
        for kept in [Kept::Nothing, Kept::Everything, Kept::Some(step as u64 + 1)] {
            let found = numbers(&storage.after_cut(kept));
            for (thread, (found, acknowledged)) in found.iter().zip(&acknowledged).enumerate() {
                let acknowledged = acknowledged.load(Ordering::SeqCst);
                assert!(
                    *found >= acknowledged,
                    "thread {thread}: {found} of {acknowledged}, step {step}"
                );
            }
        }
    }
}

/// An error reaches every caller of the batch and the next commit mends it.
///
/// Guarantee: heap/group-commit
#[test]
fn batch_error_reaches_all_and_next_commit_mends() {
    let home = Home::new();
    let storage =
        Arc::new(FaultyStorage::with_slow_syncs(Fault::Always(EIO), Duration::from_millis(1)));
    let (shared, notes) = shared(&home, storage.clone());
    storage.arm(0);
    in_threads(|thread| {
        store_number(&shared, &notes, thread, 1);
        let error = shared.commit(Durability::Power).unwrap_err();
        assert!(matches!(error, RegionError::SharedCommit { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::Io);
    });
    let reader = home_without_image(&home).names().open_read(&named("words")).unwrap();
    assert!(
        reader.bytes()[100 * PAGE..].starts_with(b"base"),
        "what nobody acknowledged replaced what was durable"
    );
    drop(reader);
    storage.arm(usize::MAX >> 1);
    assert_eq!(shared.commit(Durability::Power).unwrap().written, Written::Base);
    drop(shared);
    assert_eq!(numbers(&home_without_image(&home)), [1; THREADS]);
}

/// One failed sync is told to those it concerns and no acknowledged store is lost.
#[test]
fn failed_sync_is_told_to_those_it_concerns() {
    for step in 0..12 {
        let home = Home::new();
        let storage =
            Arc::new(FaultyStorage::with_slow_syncs(Fault::Once(EIO), Duration::from_millis(1)));
        let (shared, notes) = shared(&home, storage.clone());
        storage.arm(step);
        let errors = AtomicU64::new(0);
        let acknowledged: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
        in_threads(|thread| {
            for number in 1..=4 {
                store_number(&shared, &notes, thread, number);
                match shared.commit(Durability::Power) {
                    Ok(_) => acknowledged[thread].store(number, Ordering::SeqCst),
                    Err(_) => drop(errors.fetch_add(1, Ordering::SeqCst)),
                }
            }
        });
        assert!(
            !storage.struck() || errors.load(Ordering::SeqCst) > 0,
            "step {step}: nobody was told"
        );
        drop(shared);
        let found = numbers(&home_without_image(&home));
        for (found, acknowledged) in found.iter().zip(&acknowledged) {
            assert!(*found >= acknowledged.load(Ordering::SeqCst), "step {step}");
        }
    }
}

/// In the mode atomic commits of many threads publish whole stretches and none is lost.
///
/// Guarantee: heap/group-commit
#[test]
fn atomic_threads_publish_whole_stretches() {
    for durability in [Durability::Process, Durability::Power] {
        let home = Home::new();
        let mut region = home.names().create(&named("words"), &key(), MIB).unwrap();
        region.set_consistency(Consistency::Atomic).unwrap();
        common::map(&mut region);
        let (shared, notes) = (SharedRegion::new(region), Notes::default());
        in_threads(|thread| {
            for number in 1..30 {
                store_number(&shared, &notes, thread, number);
                shared.commit(durability).unwrap();
            }
            store_number(&shared, &notes, thread, 77);
        });
        // As a kill would: what was committed last counts, whichever thread published it.
        drop(shared);
        for number in numbers(&home) {
            assert!(number == 29 || number == 77, "{durability:?}: {number}");
        }
        if durability == Durability::Power {
            for number in numbers(&home_without_image(&home)) {
                assert!(number == 29 || number == 77, "without the image: {number}");
            }
        }
    }
}

/// The region can be had alone to grow it and to close it.
#[test]
fn region_can_be_held_alone_to_grow_or_close() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 12 * MIB).unwrap();
    let notes = Notes::of(&mut region);
    common::map(&mut region);
    let shared = SharedRegion::new(region);
    in_threads(|thread| {
        if thread == 0 {
            assert_eq!(shared.exclusive(|region| region.grow(8 * MIB)).unwrap(), 8 * MIB);
        }
        store_number(&shared, &notes, thread, 7);
        shared.commit(Durability::Power).unwrap();
        assert_eq!(shared.commit(Durability::Process).unwrap().written, Written::Nothing);
        assert_eq!(shared.commit(Durability::System).unwrap().level, Durability::Power);
    });
    shared.into_inner().close().unwrap();
    assert_eq!(numbers(&home_without_image(&home)), [7; THREADS]);
}
