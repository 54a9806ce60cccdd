//! Reads what `cargo test` writes: counts results, finds the tests that could not run here, and
//! leaves out the output of tests that passed.
//!
//! A test that needs something that this machine lacks prints `not run: REASON` and returns. The
//! test programs are started with `--show-output`, so that these lines get here.

use crate::failure::{Failure, Result};

/// What the tests came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    /// Each test that could not run, and why.
    pub(crate) not_run: Vec<String>,
}

impl Outcome {
    pub(crate) fn add(&mut self, other: Outcome) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.not_run.extend(other.not_run);
    }

    /// Prints it, and fails if a test did. The line with the counts comes last, for programs.
    pub(crate) fn report(self) -> Result<()> {
        let Outcome { passed, failed, not_run } = self;
        for line in &not_run {
            println!("not run: {line}");
        }
        if failed > 0 {
            println!("some tests failed; their output is above");
        }
        println!("{passed} passed, {failed} failed");
        if failed == 0 { Ok(()) } else { Err(Failure::reported()) }
    }
}

/// Reads the lines of one `cargo test`.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    pub(crate) outcome: Outcome,
    /// Inside the list of what passing tests wrote.
    in_successes: bool,
    /// Whose output it is.
    test: String,
}

impl Reader {
    /// Takes one line; returns whether it should be shown.
    pub(crate) fn read(&mut self, line: &str) -> bool {
        if line == "successes:" {
            self.in_successes = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.in_successes = false;
        }
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.outcome.passed += count(counts, "passed");
            self.outcome.failed += count(counts, "failed");
        }
        if !self.in_successes {
            return true;
        }
        if let Some(name) =
            line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            name.clone_into(&mut self.test);
        } else if let Some((_, reason)) = line.split_once("not run: ") {
            self.outcome.not_run.push(format!("{}: {reason}", self.test));
        }
        false
    }
}

/// The number before `; ` or the end in `ok. 12 passed; 1 failed; ...`.
fn count(counts: &str, what: &str) -> u64 {
    let pieces = counts.split(['.', ';']).map(str::trim);
    let number = |piece: &str| piece.strip_suffix(what)?.trim().parse().ok();
    pieces.filter_map(number).next().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
running 2 tests
test a_full_pool_is_an_error ... ok
test b ... ok

successes:

---- a_full_pool_is_an_error stdout ----
some noise
not run: this system forbids mounting


successes:
    a_full_pool_is_an_error
    b

test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
running 1 test
failures:
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s
";

    /// Test results are added up, and tests that could not run are named.
    #[test]
    fn test_results_are_summed_and_skips_are_named() {
        let mut reader = Reader::default();
        let shown: Vec<&str> = REPORT.lines().filter(|line| reader.read(line)).collect();
        assert_eq!(
            reader.outcome,
            Outcome {
                passed: 2,
                failed: 1,
                not_run: vec!["a_full_pool_is_an_error: this system forbids mounting".to_owned()],
            }
        );
        assert!(shown.iter().all(|line| !line.contains("noise")), "{shown:?}");
        assert!(shown.contains(&"failures:"));
    }
}
