//! Row H2 of the fault matrix, at random: sessions of random commits, a power cut in a random step
//! that keeps random sectors, and another one in the recovery from it. `journal_steps` enumerates
//! every step of fixed sessions; this looks for what they do not contain.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::Arc;

use common::noted::Notes;
use common::power::{Kept, PowerStorage};
use common::{Home, MIB, is_packed, key, named, read};
use holdfast_region::{Durability, NameSpace, Result};
use holdfast_testkit::Trials;
use rand::RngExt;
use rand::rngs::StdRng;

const SEEDS: u64 = 150;
const PAGE: usize = 4096;
const COMMITS_MAX: usize = 8;
const CUTS_MAX: usize = 4;

/// Every state that a commit was tried with, and how many of them were acknowledged.
struct Run {
    states: Vec<Vec<u8>>,
    acknowledged: usize,
    is_small: bool,
}

impl Run {
    /// Random stores, commits and a close; ends at the first error, as if the process died there.
    fn session(&mut self, names: &NameSpace, random: &mut StdRng) -> Result<()> {
        let mut region = names.open(&named("words"), &key())?;
        let notes = Notes::of(&mut region);
        for _ in 0..random.random_range(1..COMMITS_MAX) {
            let mut state = self.states.last().unwrap().clone();
            for _ in 0..random.random_range(1..4) {
                let many = if self.is_small { MIB as usize / PAGE } else { 200 };
                let pages =
                    if random.random_ratio(1, 8) { many } else { random.random_range(1..6) };
                let start = random.random_range(0..=(MIB as usize - pages * PAGE));
                // Zeros, too: a record has no bytes for pages of them.
                let mut bytes = vec![random.random_range(0..4); pages * PAGE];
                if self.is_small {
                    // All pages change, and little is left in them, or in few of them: the base
                    // that then is due is a packed one.
                    bytes.chunks_mut(PAGE).for_each(|page| page[40..].fill(0));
                    if random.random_ratio(1, 2) {
                        bytes.chunks_mut(PAGE).skip(5).for_each(|page| page.fill(0));
                    }
                }
                notes.store(&mut region, start, &bytes);
                state[start..start + bytes.len()].copy_from_slice(&bytes);
            }
            self.states.push(state);
            region.commit(Durability::Power)?;
            self.acknowledged = self.states.len() - 1;
        }
        if random.random_ratio(1, 2) {
            region.close()?;
        }
        Ok(())
    }

    /// What is found must be an acknowledged state or the one in flight; the run goes on from
    /// there.
    fn recovered(&mut self, home: &Home, context: &str) {
        let region =
            home.names().open(&named("words"), &key()).unwrap_or_else(|e| panic!("{context}: {e}"));
        let bytes = read(&region, 0, MIB as usize);
        drop(region);
        let found = self.states.iter().rposition(|state| *state == bytes);
        let found = found.unwrap_or_else(|| panic!("{context}: no state of any commit"));
        // States may be alike; the last of them counts.
        assert!(found >= self.acknowledged, "{context}: {found} of {}", self.acknowledged);
        self.states = vec![bytes];
        self.acknowledged = 0;
    }
}

/// Random sessions with power cuts at random steps lose no acknowledged commit.
///
/// Guarantee: heap/power
#[test]
fn power_cuts_lose_no_acknowledged_commit() {
    let mut trials = Trials::of("H2", "power cuts in random sessions and recoveries", SEEDS);
    let mut packed = 0;
    while let Some(mut trial) = trials.next() {
        let random = &mut trial.random;
        let mut home = Home::new();
        let region = home.names().create(&named("words"), &key(), MIB).unwrap();
        let is_small = random.random_ratio(1, 2);
        let states = vec![read(&region, 0, MIB as usize)];
        let mut run = Run { states, acknowledged: 0, is_small };
        region.close().unwrap();
        for cut in 0..random.random_range(1..=CUTS_MAX) {
            let context = format!("trial {}, seed {:#x}, cut {cut}", trial.number, trial.seed);
            let storage = Arc::new(PowerStorage::new(&home));
            storage.arm(random.random_range(0..40));
            let outcome = run.session(&home.names_over(storage.clone()), random);
            assert!(outcome.is_ok() || storage.struck(), "{context}: {outcome:?}");
            let kept = match random.random_range(0..4) {
                0 => Kept::Nothing,
                1 => Kept::Everything,
                _ => Kept::Some(random.random_range(1..u64::MAX)),
            };
            home = storage.after_cut(kept);
            packed += u64::from(is_packed(&home.base("words")));
            run.recovered(&home, &context);
            // Opened for the look; the next session opens it cold again.
            std::fs::remove_file(home.image("words")).unwrap();
        }
    }
    assert!(packed > 0, "no packed base was met");
}
