//! The promises of a heap, in both modes.

use std::ptr::NonNull;

use holdfast_heap::{HeapError, Opened};
use holdfast_region::{Consistency, Region, RegionError};
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use crate::session::{Home, MIB, MODES};

/// What a root names is found again in either mode after a commit and an end in order or by death.
///
/// Guarantee: heap/atomic-kill
/// Guarantee: heap/power
#[test]
fn roots_survive_commit_and_any_end_in_both_modes() {
    for (mode, next) in MODES.into_iter().flat_map(|mode| MODES.map(|next| (mode, next))) {
        for in_order in [true, false] {
            let home = Home::new();
            let mut session = home.open(mode);
            assert_eq!(session.heap.opened(), Opened::Formatted);
            let words = session.words("words", 2);
            let child = session.object(5000, 9).unwrap();
            session.store(words, 0, child.as_ptr() as u64).unwrap();
            session.store(words, 1, 77).unwrap();
            session.commit();
            let objects = session.sound_objects();
            if in_order {
                session.close()
            } else {
                session.die()
            }

            let mut session = home.open(next);
            assert_eq!(session.heap.opened(), Opened::Clean, "{mode:?}, then {next:?}");
            assert_eq!(session.heap.root("words").unwrap().bytes, 16);
            let words = session.words("words", 2);
            assert_eq!((words.load(0), words.load(1)), (child.as_ptr() as u64, 77));
            assert!(session.holds(child, 5000, 9), "{mode:?}, then {next:?}");
            assert_eq!(session.sound_objects(), objects);
            session.heap.remove_root("words").unwrap();
            session.commit();
            session.die();
            assert_eq!(home.open(mode).heap.root("words"), None);
        }
    }
}

/// A transaction counts whole with its levels or leaves no trace.
///
/// Guarantee: heap/transactions
#[test]
fn nested_transaction_counts_whole_or_not_at_all() {
    for mode in MODES {
        let home = Home::new();
        let mut session = home.open(mode);
        let words = session.words("words", 4);
        let kept = session.object(300, 1).unwrap();
        let objects = session.sound_objects();

        session.heap.begin().unwrap();
        session.store(words, 0, 10).unwrap();
        let made = session.object(9000, 2).unwrap();
        session.heap.begin().unwrap();
        session.store(words, 1, 11).unwrap();
        session.heap.commit().unwrap();
        session.heap.commit().unwrap();
        assert_eq!((words.load(0), words.load(1), session.sound_objects()), (10, 11, objects + 1));

        // Aborted whole, and by a level inside.
        for by_inner in [false, true] {
            session.heap.begin().unwrap();
            session.store(words, 0, 20).unwrap();
            session.object(70_000, 3).unwrap();
            session.heap.free(kept).unwrap();
            session.heap.begin().unwrap();
            session.store(words, 2, 22).unwrap();
            if by_inner {
                session.heap.abort().unwrap();
                assert_eq!(session.heap.commit(), Err(HeapError::TransactionAborted));
            } else {
                session.heap.commit().unwrap();
                session.heap.abort().unwrap();
            }
            assert!(!session.heap.in_transaction());
            assert_eq!([0, 1, 2, 3].map(|index| words.load(index)), [10, 11, 0, 0], "{mode:?}");
            assert!(session.holds(kept, 300, 1) && session.holds(made, 9000, 2), "{mode:?}");
            assert_eq!(session.sound_objects(), objects + 1, "{mode:?}");
        }
        session.commit();
        session.die();
        let mut session = home.open(mode);
        let words = session.words("words", 4);
        assert_eq!([0, 1, 2, 3].map(|index| words.load(index)), [10, 11, 0, 0], "{mode:?}");
        assert!(session.holds(kept, 300, 1) && session.holds(made, 9000, 2));
        assert_eq!(session.sound_objects(), objects + 1);
    }
}

/// A transaction that is open at the death is rolled back also if it was committed half done.
///
/// Guarantee: heap/transactions
#[test]
fn open_transaction_is_rolled_back_after_death() {
    for mode in MODES {
        for half_done in [false, true] {
            let home = Home::new();
            let mut session = home.open(mode);
            session.work();
            session.make_steps(30);
            session.heap.begin().unwrap();
            session.step().unwrap();
            session.step().unwrap();
            if half_done {
                session.commit();
                session.step().unwrap();
            }
            session.die();
            let mut session = home.open(mode);
            // What was not committed needs no rollback in the mode `atomic`.
            let rolled_back = mode == Consistency::Direct || half_done;
            let expected = if rolled_back { Opened::Recovered } else { Opened::Clean };
            assert_eq!(session.heap.opened(), expected, "{mode:?}");
            session.verify(30, "after a death in a transaction");
        }
    }
}

/// Whatever is allocated freed and taken back the heap is as a model says.
///
/// Guarantee: heap/objects
#[test]
fn random_allocations_and_rollbacks_match_the_model() {
    for mode in MODES {
        let mut random = SmallRng::seed_from_u64(3);
        let home = Home::new();
        let mut session = home.open(mode);
        let fixed = session.sound_objects();
        let mut model: Vec<(NonNull<u8>, u64, u8)> = Vec::new();
        for round in 0..200_u64 {
            let before = model.clone();
            session.begin();
            for _ in 0..random.random_range(0..12) {
                if model.len() > 60 || (!model.is_empty() && random.random_range(0..3) == 0) {
                    let (object, ..) = model.swap_remove(random.random_range(0..model.len()));
                    session.heap.free(object).unwrap();
                } else {
                    let most = [200, 3000, 90_000][random.random_range(0..3)];
                    let bytes = 1 + random.random_range(0..most);
                    let object = session.object(bytes, round as u8).unwrap();
                    model.push((object, bytes, round as u8));
                }
            }
            if random.random_range(0..3) == 0 {
                session = session.undo();
                model = before;
            } else {
                session.finish();
            }
            match random.random_range(0..20) {
                0 => {
                    session.die();
                    session = home.open(mode);
                }
                1 => {
                    session.close();
                    session = home.open(mode);
                }
                _ => {}
            }
            assert!(
                model.iter().all(|(object, bytes, with)| session.holds(*object, *bytes, *with))
            );
            assert_eq!(
                session.sound_objects(),
                fixed + model.len() as u64,
                "{mode:?}, round {round}"
            );
        }
        for (object, ..) in model {
            session.heap.free(object).unwrap();
        }
        assert_eq!(session.sound_objects(), fixed);
    }
}

/// A heap grows in the middle of its work and keeps its rules in the new part.
///
/// Guarantee: heap/objects
#[test]
fn heap_grows_amid_work_and_keeps_its_rules() {
    for (mode, next) in MODES.into_iter().flat_map(|mode| MODES.map(|next| (mode, next))) {
        let home = Home::new();
        let mut session = home.open(mode);
        session.work();
        session.make_steps(10);
        let before = session.region.with(|region| region.backed_bytes());
        session.begin();
        session.step().unwrap();
        session.object(20 * MIB, 7).unwrap();
        let grown = session.region.with(|region| region.backed_bytes());
        assert!(before < 20 * MIB && grown > 20 * MIB);
        let mut session = session.undo();
        session.verify(10, "growth taken back");
        assert_eq!(
            session.region.with(|region| region.backed_bytes()),
            grown,
            "what is there stays"
        );

        session.begin();
        let large = session.object(20 * MIB, 8).unwrap();
        session.finish();
        session.begin();
        session.object(30 * MIB, 9).unwrap();
        session.die();
        let mut session = home.open(next);
        assert!(session.holds(large, 20 * MIB, 8), "{mode:?}, then {next:?}");
        session.heap.free(large).unwrap();
        session.verify(10, "the other growth was in work");
    }
}

/// A rollback goes back to the last commit or says that transactions do that.
///
/// Guarantee: heap/atomic-errors
#[test]
fn rollback_returns_to_last_commit_or_is_refused() {
    let home = Home::new();
    // A heap that was never committed is a new one again.
    let mut session = home.open(Consistency::Atomic);
    session.words("gone", 10);
    let mut session = session.undo();
    assert_eq!((session.heap.opened(), session.heap.root("gone")), (Opened::Formatted, None));
    session.work();
    session.make_steps(40);
    for round in 0..3 {
        for _ in 0..round * 20 {
            session.step().unwrap();
        }
        session.words("gone", 10_000);
        session.heap.begin().unwrap();
        session.step().unwrap();
        session = session.undo();
        assert!(session.heap.root("gone").is_none() && !session.heap.in_transaction());
        session.verify(40 + round, "rolled back");
        session.make_steps(1);
    }
    session.die();

    let mut session = home.open(Consistency::Direct);
    session.verify(43, "what was rolled back never counted");
    session.step().unwrap();
    let refused = session.region.with(Region::rollback).unwrap_err();
    assert!(matches!(refused, RegionError::NotAtomic { .. }), "{refused}");
    let text = refused.to_string();
    assert!(
        ["heap", "direct", "transactions", "nv_tx_abort", "atomic"]
            .iter()
            .all(|word| text.contains(word))
    );
    session.verify(44, "nothing was taken back");
    session.make_steps(1);
    session.die();
    home.open(Consistency::Atomic).verify(45, "and nothing lost");
}
