//! The suite `pool`: what it costs to bring a pool of images to the store and back.
//! `bench/README.md` says what each key means.
//!
//! Invariant: peers work in the same run as our side, in turns, and move the same bytes over the
//! same file systems.

mod commit;
mod dax;
mod evict;
mod flush;
mod keeper;
mod ordered;
pub(crate) mod pages;
#[cfg(feature = "peers")]
mod pmdk;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::io;

use crate::heap::ground::Ground;
use crate::heap::opening::{self, COLD, CP};
use crate::race::Times;
use crate::report::{Goal, Outcome};
use crate::section;

use flush::{RESCUE, SEQUENTIAL};

/// A part of the suite, which measures keys that begin with its name.
type Section = (&'static str, fn(&Ground, usize, &mut Outcome) -> io::Result<()>);

const SECTIONS: [Section; 6] = [
    ("flush", flushes),
    ("restore", restores),
    ("evict", evictions),
    ("commit", commits),
    ("dax", persistent_memory),
    ("keeper", keeper),
];

/// Runs the suite, or the section with the name `only`; `progress` gets the name of each step.
///
/// # Errors
/// When there is no such section, no room, or a side did not do what it should.
pub fn run(runs: usize, only: Option<&str>, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let chosen = section::chosen(&SECTIONS, only)?;
    let ground = Ground::new()?;
    section::run(chosen, progress, |section, outcome| section(&ground, runs, outcome))
}

fn flushes(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    // What the profile `phone` has in its pool, in images as applets have them; and one large
    // image.
    let small = flush::run(ground, runs, 5, 4 << 20)?;
    outcome.add(
        "flush_vs_seq_write",
        small.ratio(SEQUENTIAL, RESCUE),
        "x",
        Some(Goal::AtLeast(0.85)),
    );
    outcome.add("flush_20mb_s", small.of(RESCUE).map(|ms| ms.map(|ms| ms / 1e3)), "s", None);
    let errors = flush::budget_error(ground, runs, 5, 4 << 20)?;
    outcome.add("flush_budget_error_pct", Some(errors), "%", Some(Goal::AtMost(20.0)));
    let large = flush::run(ground, runs.div_ceil(3), 1, 128 << 20)?;
    outcome.add("flush_128mib_vs_seq_write", large.ratio(SEQUENTIAL, RESCUE), "x", None);
    outcome.add("flush_128mib_ms", large.of(RESCUE).cloned(), "ms", None);
    Ok(())
}

fn restores(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let times = opening::cold(ground, runs)?;
    outcome.add("restore_vs_cp", times.ratio(CP, COLD), "x", Some(Goal::AtLeast(0.8)));
    outcome.add("restore_256mib_ms", times.of(COLD).cloned(), "ms", None);
    Ok(())
}

fn evictions(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let evict::Evictions { clean, dirty, reopen, both } = evict::run(ground, runs)?;
    outcome.add("evict_reopen_ms_per_mib", Some(both), "ms", None);
    outcome.add("evict_ms_per_mib", Some(clean), "ms", None);
    outcome.add("evict_dirty_ms_per_mib", Some(dirty), "ms", None);
    outcome.add("evict_only_reopen_ms_per_mib", Some(reopen), "ms", None);
    Ok(())
}

fn commits(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    for (key, series) in commit::of_words(ground, runs)? {
        outcome.add(key, Some(series), "us", None);
    }
    for case in commit::CASES {
        let times = commit::of_pages(ground, runs, case)?;
        let key = format!("commit_4k_{}_{}", case.pool, case.level);
        outcome.add(format!("{key}_us"), times.of(pages::HOLDFAST).cloned(), "us", None);
        for peer in case.peers {
            against(peer, &key, &times, outcome);
        }
    }
    Ok(())
}

fn persistent_memory(ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    let mut measured = vec![("dax_tx", dax::transactions(ground, runs)?)];
    for (key, bytes) in dax::SIZES {
        measured.push((key, dax::persists(ground, runs, bytes)?));
    }
    for (key, times) in measured {
        outcome.add(format!("{key}_ns"), times.of(pages::HOLDFAST).cloned(), "ns", None);
        against(pages::PMDK, key, &times, outcome);
    }
    Ok(())
}

/// A peer's time for one of ours; or that it is missing.
fn against(peer: &str, key: &str, times: &Times, outcome: &mut Outcome) {
    match times.ratio(peer, pages::HOLDFAST) {
        Some(ratio) => {
            outcome.add(format!("{key}_vs_{peer}"), Some(ratio), "x", Some(Goal::AtLeast(1.0)));
        }
        None => outcome.missing.push(format!(
            "{peer}: `cargo xtask bench pool` builds LMDB and SQLite in; PMDK comes with `apt-get install libpmemobj1`"
        )),
    }
}

fn keeper(_ground: &Ground, runs: usize, outcome: &mut Outcome) -> io::Result<()> {
    match keeper::run(runs.div_ceil(3))? {
        Ok(keeper::Idle { processor_pct, resident_mib }) => {
            outcome.add("keeper_idle_cpu_pct", Some(processor_pct), "%", Some(Goal::AtMost(0.1)));
            outcome.add("keeper_rss_mib", Some(resident_mib), "MiB", Some(Goal::AtMost(20.0)));
        }
        Err(reason) => outcome.missing.push(format!("the keeper: {reason}")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error for a missing section lists the sections that exist.
    #[test]
    fn missing_section_error_lists_the_sections() {
        let complaint = run(1, Some("flash"), &mut |_| {}).unwrap_err().to_string();
        assert!(complaint.contains("flush, restore, evict, commit, dax, keeper"), "{complaint}");
    }

    #[test]
    fn a_section_measures_keys_that_begin_with_its_name() {
        if Ground::new().is_err() {
            return println!("not run: no tmpfs");
        }
        for section in ["evict", "commit", "dax"] {
            let found = run(1, Some(section), &mut |_| {}).unwrap().measurements;
            assert!(!found.is_empty() && found.iter().all(|found| found.key.starts_with(section)));
        }
    }
}
