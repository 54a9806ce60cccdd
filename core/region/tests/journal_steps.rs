//! Commits, folds and recoveries that fail or lose power at every step: what was acknowledged is
//! there, and at most the commit in flight besides.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::Arc;

use common::faulty::{Fault, FaultyStorage};
use common::noted::Notes;
use common::power::{Kept, PowerStorage};
use common::{Home, MIB, key, named, read};
use holdfast_region::{Durability, NameSpace, Opened, RegionError, Result, Written};
use proptest::prelude::*;

const PAGE: usize = 4096;
const ENOSPC: i32 = 28;
const EIO: i32 = 5;
/// More steps than any plan here has.
const STEPS_MAX: usize = 200;
/// Pages changed by each commit. The first makes the journal, the rest appends.
const SHORT: &[usize] = &[1, 3, 2];
/// The journal outgrows its bound, so that it is folded, and a new one begins.
const LONG: &[usize] = &[1, 3, 250, 250, 250, 250, 250, 250, 1, 2];
/// So many that zeros are written ahead, that commits go over them, and that the close gives the
/// rest back.
const OFTEN: &[usize] = &[1, 2, 1, 1, 1, 2, 1, 1];
/// Records that reach over the end of the zeros, and a second batch of zeros.
const STRADDLE: &[usize] = &[1, 2, 1, 1, 13, 15, 15, 15, 13, 7, 15, 1, 2];
/// Records that are written piece by piece, head last, over zeros.
const STREAMED: &[usize] = &[1, 2, 1, 1, 1, 1, 200, 1, 30, 1, 1, 60, 1, 1, 1];

/// What a session did, commit by commit.
#[derive(Debug)]
struct Run {
    /// The data after each commit that was tried, from the state before the first one on.
    states: Vec<Vec<u8>>,
    acknowledged: usize,
}

impl Run {
    fn from(state: Vec<u8>) -> Run {
        Run { states: vec![state], acknowledged: 0 }
    }

    /// Opens, commits as planned, closes; ends at the first error, as if the process died there.
    fn session(&mut self, names: &NameSpace, plan: &[usize], salt: u8) -> Result<()> {
        let mut region = names.open(&named("words"), &key())?;
        let notes = Notes::of(&mut region);
        let last = plan.len() - 1;
        for (index, &pages) in plan.iter().enumerate() {
            let bytes = vec![salt.wrapping_add(index as u8) | 1; pages * PAGE];
            let mut state = self.states.last().unwrap().clone();
            state[index * PAGE / 2..][..bytes.len()].copy_from_slice(&bytes);
            self.states.push(state);
            notes.store(&mut region, index * PAGE / 2, &bytes);
            if index == last {
                region.close()?;
                self.acknowledged = self.states.len() - 1;
                return Ok(());
            }
            region.commit(Durability::Power)?;
            self.acknowledged = self.states.len() - 1;
        }
        Ok(())
    }

    /// Which of the states a home's store has; it must be an acknowledged one or the one in flight.
    fn recovered(&self, home: &Home, context: &str) -> usize {
        let reader = home.names().open_read(&named("words")).unwrap();
        let found = self.states.iter().rposition(|state| state == reader.bytes());
        let found = found.unwrap_or_else(|| panic!("{context}: no state of any commit"));
        assert!(
            found >= self.acknowledged,
            "{context}: commit {} is lost, {found} is there",
            self.acknowledged
        );
        found
    }
}

fn home_with_base() -> (Home, Vec<u8>) {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), MIB).unwrap();
    common::store(&mut region, 0, &[9; 2 * PAGE]);
    let state = read(&region, 0, MIB as usize);
    region.close().unwrap();
    (home, state)
}

/// Cuts the power in each step of a session.
fn cut_in_every_step(plan: &[usize], after: impl Fn(&PowerStorage, &Run, usize)) {
    for step in 0.. {
        assert!(step < STEPS_MAX, "the session never comes through");
        let (home, state) = home_with_base();
        let storage = Arc::new(PowerStorage::new(&home));
        storage.arm(step);
        let mut run = Run::from(state);
        let outcome = run.session(&home.names_over(storage.clone()), plan, 1);
        if !storage.struck() {
            outcome.unwrap();
            assert_eq!(run.acknowledged, plan.len());
            break;
        }
        after(&storage, &run, step);
    }
}

/// A power cut in any step of commit fold and close loses no acknowledged commit.
///
/// Guarantee: heap/power
/// Guarantee: heap/journal-written-ahead
#[test]
fn power_cut_at_any_journal_step_loses_no_commit() {
    for plan in [LONG, OFTEN, STRADDLE, STREAMED] {
        cut_in_every_step(plan, |storage, run, step| {
            let seed = step as u64 * 7 + 3;
            for kept in [Kept::Nothing, Kept::Everything, Kept::Some(seed), Kept::Some(seed << 20)]
            {
                let home = storage.after_cut(kept);
                let found = run.recovered(&home, &format!("step {step}, kept {kept:?}"));
                let region = home.names().open(&named("words"), &key()).unwrap();
                assert_eq!(region.opened(), Opened::Cold);
                assert!(read(&region, 0, MIB as usize) == run.states[found]);
            }
        });
    }
}

/// A recovery that loses power in any step can be done again and its commits count.
///
/// Guarantee: heap/power
/// Guarantee: heap/journal-written-ahead
#[test]
fn interrupted_recovery_can_be_repeated() {
    for plan in [SHORT, OFTEN] {
        cut_and_cut_again(plan);
    }
}

/// Cuts the power in each step of a session, and again in each step of the session that recovers.
fn cut_and_cut_again(plan: &[usize]) {
    cut_in_every_step(plan, |storage, run, step| {
        let kept = if step % 2 == 0 { Kept::Nothing } else { Kept::Some(step as u64 + 77) };
        for second_step in 0.. {
            assert!(second_step < STEPS_MAX, "the recovery never comes through");
            let home = storage.after_cut(kept);
            let found = run.recovered(&home, &format!("step {step}, kept {kept:?}"));
            let again = Arc::new(PowerStorage::new(&home));
            again.arm(second_step);
            let mut second = Run::from(run.states[found].clone());
            let outcome = second.session(&home.names_over(again.clone()), SHORT, 100);
            if !again.struck() {
                outcome.unwrap();
                break;
            }
            for kept in [Kept::Nothing, Kept::Some(second_step as u64 + 5)] {
                let context = format!("step {step}, then {second_step}, kept {kept:?}");
                second.recovered(&again.after_cut(kept), &context);
            }
        }
    });
}

/// A process that dies in any step of a cold open leaves the store as it was.
#[test]
fn killed_cold_open_leaves_the_store() {
    let (home, state) = home_with_base();
    let mut run = Run::from(state);
    run.session(&home.names(), SHORT, 1).unwrap();
    let files =
        || [home.base("words"), home.journal("words")].map(|path| std::fs::read(path).unwrap());
    let before = files();
    for fault in [Fault::Dead, Fault::Once(EIO), Fault::Always(ENOSPC)] {
        for step in 0.. {
            assert!(step < STEPS_MAX);
            let _ = std::fs::remove_file(home.image("words"));
            let storage = Arc::new(FaultyStorage::new(fault));
            storage.arm(step);
            let outcome = home.names_over(storage.clone()).open(&named("words"), &key());
            assert!(files() == before, "a cold open changed the store");
            if !storage.struck() {
                assert!(step > 5 && read(&outcome.unwrap(), 0, MIB as usize) == run.states[3]);
                break;
            }
            assert!(outcome.is_err() && !home.image("words").exists());
            assert_eq!(run.recovered(&home, "after a failed cold open"), 3);
        }
    }
}

/// An error in any step of a commit acknowledges nothing and loses nothing.
///
/// Guarantee: heap/no-false-acknowledgement
#[test]
fn failed_commit_acknowledges_and_loses_nothing() {
    let faults = [
        (Fault::Once(EIO), LONG),
        (Fault::Always(EIO), LONG),
        (Fault::Once(ENOSPC), SHORT),
        (Fault::Always(ENOSPC), SHORT),
        (Fault::Once(EIO), OFTEN),
        (Fault::Once(ENOSPC), OFTEN),
        (Fault::Always(ENOSPC), OFTEN),
    ];
    for (fault, plan) in faults {
        for step in 0.. {
            assert!(step < STEPS_MAX, "the session never comes through");
            let (home, state) = home_with_base();
            let storage = Arc::new(FaultyStorage::new(fault));
            let names = home.names_over(storage.clone());
            let mut region = names.open(&named("words"), &key()).unwrap();
            let notes = Notes::of(&mut region);
            let mut run = Run::from(state);
            storage.arm(step);
            let (mut failed, mut told) = (false, false);
            for (index, &pages) in plan.iter().enumerate() {
                let bytes = vec![index as u8 + 1; pages * PAGE];
                let mut state = run.states.last().unwrap().clone();
                state[index * PAGE / 2..][..bytes.len()].copy_from_slice(&bytes);
                notes.store(&mut region, index * PAGE / 2, &bytes);
                run.states.push(state);
                match region.commit(Durability::Power) {
                    Ok(report) => {
                        assert!(
                            !failed || report.written == Written::Base,
                            "went on after an error"
                        );
                        failed = false;
                        run.acknowledged = run.states.len() - 1;
                    }
                    Err(RegionError::Poisoned { .. }) => assert!(failed),
                    Err(error) => {
                        let known =
                            matches!(error, RegionError::Io { .. } | RegionError::StoreFull { .. });
                        assert!(known, "{error}");
                        assert!(region.is_dirty(), "a failed commit made the region clean");
                        failed = true;
                    }
                }
                assert!(
                    read(&region, 0, MIB as usize) == *run.states.last().unwrap(),
                    "the image lost stores"
                );
                // What is durable is so at every moment, also between a failure and the next
                // commit.
                if failed && !told {
                    told = true;
                    run.recovered(&home_without_image(&home), &format!("{fault:?} in step {step}"));
                }
            }
            let struck = storage.struck();
            assert!(struck || !failed);
            drop(region);
            let region = home.names().open(&named("words"), &key()).unwrap();
            assert!(read(&region, 0, MIB as usize) == *run.states.last().unwrap());
            drop(region);
            run.recovered(&home_without_image(&home), &format!("{fault:?} in step {step}"));
            if !struck {
                break;
            }
        }
    }
}

/// A copy of the home, as it is after its pool is lost.
fn home_without_image(home: &Home) -> Home {
    PowerStorage::new(home).after_cut(Kept::Everything)
}

/// After a failed sync the journal is never synced again and believed.
///
/// Guarantee: heap/no-false-acknowledgement
#[test]
fn journal_is_not_trusted_after_a_failed_sync() {
    let (home, _) = home_with_base();
    let storage = Arc::new(FaultyStorage::new(Fault::Once(EIO)));
    let mut region = home.names_over(storage.clone()).open(&named("words"), &key()).unwrap();
    let notes = Notes::of(&mut region);
    for index in 0..2 {
        notes.store(&mut region, index * PAGE, b"fine");
        region.commit(Durability::Power).unwrap();
    }
    notes.store(&mut region, 0, b"lost?");
    storage.take_log();
    storage.arm(1);
    let error = region.commit(Durability::Power).unwrap_err();
    assert!(error.to_string().contains("words.journal"), "{error}");
    assert_eq!(storage.take_log(), ["write_at", "sync_data"]);
    // Nothing is stored in between: the region must know by itself that it owes a commit.
    let report = region.commit(Durability::Power).unwrap();
    assert_eq!(report.written, Written::Base);
    let log = storage.take_log();
    assert!(log.starts_with(&["create", "set_len"]) && !log.contains(&"sync_data"), "{log:?}");
    drop(region);
    let reader = home_without_image(&home).names().open_read(&named("words")).unwrap();
    assert!(reader.bytes().starts_with(b"lost?"));
}

/// A commit is one write and one sync and a journal is durable before it gets its name.
#[test]
fn commit_is_one_write_and_one_sync() {
    let (home, _) = home_with_base();
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let mut region = home.names_over(storage.clone()).open(&named("words"), &key()).unwrap();
    let notes = Notes::of(&mut region);
    storage.take_log();
    notes.store(&mut region, 0, b"one");
    region.commit(Durability::Power).unwrap();
    let first = ["create", "write_at", "write_at", "sync", "rename", "sync_directory"];
    assert_eq!(storage.take_log(), first);
    notes.store(&mut region, 0, b"two");
    region.commit(Durability::Power).unwrap();
    assert_eq!(storage.take_log(), ["write_at", "sync_data"]);
    region.close().unwrap();
    assert_eq!(
        storage.take_log(),
        ["write_at"; 2],
        "a clean close marks the journal's end and changes one header slot"
    );
}

/// Records that only the kernel's cache may have are synced before anything follows them.
#[test]
fn kernel_cached_records_are_synced_first() {
    // A sync failed, the process died, and the pool was lost without the machine going down: the
    // record can be read, but the disk need not have it.
    let (home, _) = home_with_base();
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    let notes = Notes::of(&mut region);
    notes.store(&mut region, 0, b"one");
    region.commit(Durability::Power).unwrap();
    drop(region);
    std::fs::remove_file(home.image("words")).unwrap();
    let storage = Arc::new(FaultyStorage::new(Fault::Dead));
    let mut region = home.names_over(storage.clone()).open(&named("words"), &key()).unwrap();
    let notes = Notes::of(&mut region);
    storage.take_log();
    notes.store(&mut region, 0, b"two");
    region.commit(Durability::Power).unwrap();
    // Once for the journal's name, and once for whatever is the newest name in the store.
    let again = ["write_at", "sync_data", "sync_directory", "sync_directory"];
    assert_eq!(storage.take_log(), [&again[..], &["write_at", "sync_data"]].concat());
}

/// What a cold open found is durable when a commit says so.
///
/// Guarantee: heap/cold-open
#[test]
fn cold_open_finds_are_durable_after_a_commit() {
    // The writer died in a step of its commit, the pool was emptied, and only then the machine goes
    // down.
    for (earlier, stores) in [(0, false), (0, true), (2, false), (2, true)] {
        for step in 0.. {
            assert!(step < STEPS_MAX, "the commit never comes through");
            let (home, _) = home_with_base();
            let storage = Arc::new(PowerStorage::new(&home));
            let names = home.names_over(storage.clone());
            let mut region = names.open(&named("words"), &key()).unwrap();
            let notes = Notes::of(&mut region);
            for _ in 0..earlier {
                notes.store(&mut region, 0, b"before");
                region.commit(Durability::Power).unwrap();
            }
            notes.store(&mut region, 0, b"newest");
            storage.arm(step);
            let finished = region.commit(Durability::Power).is_ok();
            drop(region);
            storage.arm(usize::MAX >> 1);
            std::fs::remove_file(home.image("words")).unwrap();
            let mut region = names.open(&named("words"), &key()).unwrap();
            let found = read(&region, 0, 6);
            if stores {
                Notes::of(&mut region).store(&mut region, PAGE, b"more");
            }
            region.commit(Durability::Power).unwrap();
            let home = storage.after_cut(Kept::Nothing);
            let region = home.names().open(&named("words"), &key()).unwrap();
            assert_eq!(read(&region, 0, 6), found, "step {step} after {earlier} commits");
            assert_eq!(read(&region, PAGE as u64, 4), if stores { b"more" } else { &[9; 4] });
            if finished {
                assert_eq!(found, b"newest");
                break;
            }
        }
    }
}

/// What can happen to a region.
#[derive(Debug, Clone)]
enum Event {
    Store { page: usize, pages: usize, value: u8 },
    Commit,
    Close,
    Crash,
    PowerCut,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0..200_usize, 1..56_usize, 0..4_u8)
            .prop_map(|(page, pages, value)| Event::Store { page, pages, value }),
        4 => Just(Event::Commit),
        1 => Just(Event::Close),
        1 => Just(Event::Crash),
        1 => Just(Event::PowerCut),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 30, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any sequence of stores commits and losses matches the model.
    #[test]
    fn random_stores_and_losses_match_the_model(
        events in proptest::collection::vec(event(), 1..60)
    ) {
        let (home, mut image) = home_with_base();
        let mut durable = image.clone();
        let names = home.names();
        let reopen = || {
            let mut region = names.open(&named("words"), &key()).unwrap();
            let notes = Notes::of(&mut region);
            (region, notes)
        };
        let (mut region, mut notes) = reopen();
        for event in events {
            match event {
                Event::Store { page, pages, value } => {
                    image[page * PAGE..(page + pages) * PAGE].fill(value);
                    notes.store(&mut region, page * PAGE, &vec![value; pages * PAGE]);
                    continue;
                }
                Event::Commit => {
                    region.commit(Durability::Power).unwrap();
                    durable.clone_from(&image);
                    continue;
                }
                Event::Close => {
                    region.close().unwrap();
                    durable.clone_from(&image);
                }
                Event::Crash => drop(region),
                Event::PowerCut => {
                    drop(region);
                    std::fs::remove_file(home.image("words")).unwrap();
                    image.clone_from(&durable);
                }
            }
            (region, notes) = reopen();
            prop_assert!(read(&region, 0, MIB as usize) == image);
        }
        drop(region);
        let reader = home_without_image(&home).names().open_read(&named("words")).unwrap();
        prop_assert!(reader.bytes() == durable);
    }
}
