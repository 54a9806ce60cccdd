//! The suite `programs`: the programs of the first paper's evaluation (`applets/programs`) over
//! files, mapped files, a heap and ordinary memory, in WebAssembly, as native applets and without a
//! sandbox. `bench/README.md` says what each key means.
//!
//! Invariants: each run is a process of its own; all storages hold the same bytes afterwards, which
//! a run that is not timed checks; the time is that of the program, from before it opens its input
//! until its output is finished, and a key with `run` in it that of the process, from its start to
//! its end, checkpoint included.

mod calls;
pub(crate) mod compress;
mod disk;
#[allow(unsafe_code, reason = "asks the system for the context switches of children")]
mod job;
pub(crate) mod mail;
mod sequences;
#[cfg_attr(not(feature = "slow-memory"), allow(dead_code, reason = "the suite slow needs it"))]
pub(crate) mod slow_memory;
mod spellcheck;
mod written;

use std::io;
use std::path::PathBuf;

use crate::report::Outcome;
use crate::section;

pub use slow_memory::{SPELL_CHECK, check_texts};

/// A part of the suite.
type Section = (&'static str, fn(usize, &mut Outcome) -> io::Result<()>);

const SECTIONS: [Section; 10] = [
    ("write512", sequences::write512),
    ("fasta", sequences::fasta),
    ("revcomp", sequences::revcomp),
    ("knucleotide", sequences::knucleotide),
    ("compress", compress::run),
    ("spellcheck", spellcheck::run),
    ("mail", mail::run),
    ("disk", disk::run),
    ("device", written::run),
    ("calls", calls::run),
];

/// Runs the suite, or the section with the name `only`; `progress` gets the name of each step.
///
/// # Errors
/// When there is no such section, a program fails, or two storages disagree.
pub fn run(runs: usize, only: Option<&str>, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let chosen = section::chosen(&SECTIONS, only)?;
    section::run(chosen, progress, |section, outcome| section(runs, outcome))
}

/// The folder that an environment variable names; `None` if it is not set, or there is no such
/// folder.
pub(crate) fn folder(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_dir())
}

/// These programs take seconds and not milliseconds: so many rounds for this number of runs.
fn rounds(runs: usize) -> usize {
    runs.div_ceil(5)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_section_error_lists_the_sections() {
        let complaint = run(1, Some("fast"), &mut |_| {}).unwrap_err().to_string();
        assert!(complaint.contains("write512, fasta, revcomp"), "{complaint}");
    }

    #[test]
    fn long_programs_run_less_often() {
        assert_eq!([1, 3, 15, 16].map(rounds), [1, 1, 3, 4]);
    }
}
