//! Runs the steps of a report, each as `cargo xtask bench SUITE --only SECTION --json`, and keeps
//! what each found.
//!
//! A run that was stopped goes on behind its last whole step: a step that is there, of the same
//! source and machine and with as many repetitions, is not run again.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::account::{Meter, collect_orphans};
use crate::error::ReportError;
use crate::machine::Machine;
use crate::papers::Step;
use crate::results::{Done, Measured, Results};
use crate::source;

/// How long what a step left behind may take to end, to be counted with it.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a run is made.
#[derive(Debug, Clone)]
pub struct Session {
    /// The source tree.
    pub source: PathBuf,
    /// Where the report goes: what is in it is not of the source.
    pub out: PathBuf,
    /// The program that builds and runs the suites.
    pub cargo: OsString,
    /// Which steps of earlier runs count.
    pub earlier: Earlier,
}

/// Which steps of earlier runs into the same directory are not run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Earlier {
    /// None.
    Never,
    /// Those of the same source.
    #[default]
    OfThisSource,
    /// Those of any source; the report names the source of each that is of another one than most.
    OfAnySource,
    /// All, with as many repetitions as they had, also those that failed; and nothing is measured.
    Only,
}

impl Session {
    /// Runs the steps of a plan that are not in the results, and keeps what came of each; a step
    /// that fails has a result, too. `tell` gets a line for each thing that a person waits for,
    /// `kept` is called behind each step.
    ///
    /// # Errors
    /// When a result cannot be kept, and those of `kept`.
    pub fn run(
        &self,
        plan: &[(Step, u32)],
        results: &mut Results,
        tell: &mut dyn FnMut(&str),
        kept: &mut dyn FnMut(&Results) -> Result<(), ReportError>,
    ) -> Result<(), ReportError> {
        if self.earlier == Earlier::Only {
            return Ok(());
        }
        let source = source::fingerprint(&self.source, &self.out);
        if source == source::UNKNOWN && self.earlier == Earlier::OfThisSource {
            tell("the source has no commit, so no earlier step counts (without --any-source)");
        }
        let is_open = |(step, runs): &&(Step, u32)| !self.counts(results.get(step), *runs, &source);
        let open: Vec<&(Step, u32)> = plan.iter().filter(is_open).collect();
        if open.len() < plan.len() {
            tell(&format!("{} of {} steps were done before", plan.len() - open.len(), plan.len()));
        }
        let expected: Vec<_> =
            open.iter().map(|(step, runs)| expected_seconds(results.get(step), *runs)).collect();
        let meter = Meter::start();
        let unbuilt = self.build(&open, tell);
        for (number, (step, runs)) in open.iter().enumerate() {
            let head = format!("[{}/{}] {}", number + 1, open.len(), step.name());
            tell(&format!("{head} ...{}", time_left(&expected[number..])));
            let done = match unbuilt.get(step.suite.as_str()) {
                Some(reason) => done(step, *runs, &source, Err(reason.clone())),
                None => self.step(step, *runs, &source, &meter),
            };
            tell(&format!("{head}: {}", outcome_line(&done)));
            results.keep(step, done)?;
            kept(results)?;
        }
        Ok(())
    }

    /// Whether an earlier result makes running its step again superfluous.
    fn counts(&self, earlier: Option<&Done>, runs: u32, source: &str) -> bool {
        let is_of_source = |done: &Done| match self.earlier {
            Earlier::Never => false,
            Earlier::OfThisSource => done.source == source && source != source::UNKNOWN,
            Earlier::OfAnySource | Earlier::Only => true,
        };
        earlier.is_some_and(|done| {
            done.is_whole()
                && done.runs >= runs
                && done.machine.is_like(&Machine::here())
                && is_of_source(done)
        })
    }

    /// Builds the suites once, so that no step waits for a compiler. Returns why a suite cannot be
    /// built.
    fn build<'a>(
        &self,
        steps: &[&'a (Step, u32)],
        tell: &mut dyn FnMut(&str),
    ) -> BTreeMap<&'a str, String> {
        let mut suites: Vec<&str> = steps.iter().map(|(step, _)| step.suite.as_str()).collect();
        // The steps of a suite may lie apart.
        let mut seen = BTreeSet::new();
        suites.retain(|suite| seen.insert(*suite));
        let mut unbuilt = BTreeMap::new();
        for suite in suites {
            tell(&format!("building the suite {suite} ..."));
            let status = self.xtask(suite).arg("--prepare").stdout(Stdio::null()).status();
            let reason = match status {
                Ok(status) if status.success() => continue,
                Ok(status) => format!("the suite {suite} cannot be built ({status})"),
                Err(error) => format!("the suite {suite} cannot be built: no cargo: {error}"),
            };
            tell(&reason);
            unbuilt.insert(suite, reason);
        }
        unbuilt
    }

    fn xtask(&self, suite: &str) -> Command {
        let mut command = Command::new(&self.cargo);
        command.args(["xtask", "bench", suite]).current_dir(&self.source).stdin(Stdio::null());
        command
    }

    fn step(&self, step: &Step, runs: u32, source: &str, meter: &Meter) -> Done {
        let mut command = self.xtask(&step.suite);
        command.args(["--json", "--runs", &runs.to_string()]);
        if let Some(section) = &step.section {
            command.args(["--only", section]);
        }
        // What the build or an earlier step left is not of this one.
        collect_orphans(Duration::ZERO);
        let at = now();
        let (before, start) = (meter.now(), Instant::now());
        let output = command.stderr(Stdio::piped()).output();
        let seconds = start.elapsed().as_secs_f64();
        collect_orphans(PATIENCE);
        let others = before.zip(meter.now()).map_or(1.0, |(before, now)| now.others_since(before));
        let found = match output {
            Err(error) => Err(format!("cannot start cargo: {error}")),
            Ok(output) => Found::of(&output),
        };
        Done { at, seconds, others, ..done(step, runs, source, found) }
    }
}

/// What came of a step that took no time.
fn done(step: &Step, runs: u32, source: &str, found: Result<Found, String>) -> Done {
    let (found, failed) = match found {
        Ok(found) => (found, None),
        Err(reason) => (Found::default(), Some(reason)),
    };
    Done {
        step: step.name(),
        suite: step.suite.clone(),
        runs,
        source: source.to_owned(),
        at: now(),
        seconds: 0.0,
        others: 0.0,
        machine: Machine::here(),
        measured: found.measured,
        notes: found.notes,
        missing: found.missing,
        failed,
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// How long a step should take, in seconds, by what it took with as many or other repetitions.
fn expected_seconds(earlier: Option<&Done>, runs: u32) -> Option<f64> {
    let earlier = earlier.filter(|done| done.failed.is_none() && done.runs > 0)?;
    Some(earlier.seconds * f64::from(runs) / f64::from(earlier.runs))
}

/// How long the steps should take together, as the end of a line; nothing if no step's time is
/// known.
fn time_left(expected: &[Option<f64>]) -> String {
    let known: Vec<f64> = expected.iter().copied().flatten().collect();
    if known.is_empty() {
        return String::new();
    }
    let seconds = known.iter().sum::<f64>().ceil() as u64;
    let about = if known.len() == expected.len() { "about" } else { "at least" };
    match (seconds / 3600, seconds / 60 % 60) {
        (0, 0) => format!(" ({about} {seconds} s left)"),
        (0, minutes) => format!(" ({about} {minutes} min left)"),
        (hours, minutes) => format!(" ({about} {hours} h {minutes} min left)"),
    }
}

/// What a suite printed.
#[derive(Debug, Default, PartialEq)]
struct Found {
    measured: BTreeMap<String, Measured>,
    notes: Vec<String>,
    missing: Vec<String>,
}

impl Found {
    fn of(output: &Output) -> Result<Found, String> {
        if !output.status.success() {
            let complaint = complaint(&String::from_utf8_lossy(&output.stderr));
            return Err(format!("it ended with {}: {complaint}", output.status));
        }
        Found::parse(&String::from_utf8_lossy(&output.stdout))
    }

    /// The last line is JSON; notes (of several lines) and missing peers are lines before it.
    fn parse(text: &str) -> Result<Found, String> {
        let lines: Vec<&str> = text.lines().collect();
        let (last, before) = lines.split_last().ok_or("it printed nothing")?;
        let measured = serde_json::from_str(last)
            .map_err(|error| format!("its last line is not the JSON of measurements: {error}"))?;
        let (mut notes, mut missing) = (Vec::<String>::new(), Vec::new());
        let mut in_note = false;
        for line in before {
            if let Some(note) = line.strip_prefix("note: ") {
                notes.push(note.to_owned());
                in_note = true;
            } else if let Some(peer) = line.strip_prefix("missing: ") {
                missing.push(peer.to_owned());
                in_note = false;
            } else if let (true, Some(note)) = (in_note, notes.last_mut()) {
                note.push('\n');
                note.push_str(line);
            }
        }
        Ok(Found { measured, notes, missing })
    }
}

/// The last line that a failed suite wrote, not that of `cargo xtask`, which only says behind it that
/// the suite failed.
fn complaint(stderr: &str) -> String {
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty()).rev();
    let last = lines.next().unwrap_or("no message");
    let own = last.starts_with("error: the measurement ended with");
    lines.next().filter(|_| own).unwrap_or(last).to_owned()
}

fn outcome_line(done: &Done) -> String {
    match &done.failed {
        Some(reason) => format!("FAILED, {reason}"),
        None => format!(
            "{} numbers, {:.0} s, others had {:.0} % of the machine",
            done.measured.len(),
            done.seconds,
            done.others * 100.0
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::{done, papers};

    #[test]
    fn output_of_a_suite_is_read_whole() {
        let text = "      median\nx  1.0\nnote: Figure 4\n   MB\nWAL  1\nmissing: PMDK: apt-get\n\
            {\"x\":{\"median\":1.0,\"min\":0.5,\"max\":null,\"n\":3,\"unit\":\"x\",\"goal\":\">= 1\"}}\n";
        let found = Found::parse(text).unwrap();
        assert_eq!(found.notes, ["Figure 4\n   MB\nWAL  1"]);
        assert_eq!(found.missing, ["PMDK: apt-get"]);
        assert_eq!((found.measured["x"].min, found.measured["x"].max), (Some(0.5), None));
        assert!(Found::parse("").unwrap_err().contains("nothing"));
        assert!(Found::parse("a table\n").unwrap_err().contains("last line"));
    }

    #[test]
    fn failed_suite_is_told_by_its_own_complaint() {
        let text = "  building\nholdfast-bench: /dev/loop0: no space left\n\n\
            error: the measurement ended with exit status: 1\n";
        assert_eq!(complaint(text), "holdfast-bench: /dev/loop0: no space left");
        assert_eq!(complaint("error: could not compile\n"), "error: could not compile");
        assert_eq!(complaint(""), "no message");
    }

    fn session(earlier: Earlier) -> Session {
        Session { source: "/".into(), out: "/".into(), cargo: "cargo".into(), earlier }
    }

    /// A stopped run goes on: whole steps of the same source and machine with as many repetitions
    /// count, and nothing else does.
    #[test]
    fn earlier_steps_count_only_if_they_would_be_the_same() {
        let whole = done(&papers().step[0]);
        let counts = |earlier, done: &Done| session(earlier).counts(Some(done), 5, "a");
        assert!(counts(Earlier::OfThisSource, &whole));
        assert!(counts(Earlier::OfThisSource, &Done { runs: 6, ..whole.clone() }));
        assert!(!counts(Earlier::Never, &whole));
        assert!(!session(Earlier::OfAnySource).counts(None, 5, "a"));
        let elsewhere = Machine { kernel: "1.0".to_owned(), ..Machine::here() };
        let peer = "bpftrace: `apt-get install bpftrace` brings it".to_owned();
        for unlike in [
            Done { runs: 4, ..whole.clone() },
            Done { failed: Some("no disk".to_owned()), ..whole.clone() },
            Done { missing: vec![peer], ..whole.clone() },
            Done { measured: BTreeMap::new(), ..whole.clone() },
            Done { machine: elsewhere, ..whole.clone() },
        ] {
            assert!(!counts(Earlier::OfThisSource, &unlike), "{unlike:?}");
            assert!(!counts(Earlier::OfAnySource, &unlike), "{unlike:?}");
        }
        // A machine that started again is still of its kind.
        let restarted = Machine { id: Some("another".to_owned()), ..Machine::here() };
        let restarted = Done { machine: restarted, ..whole.clone() };
        assert!(counts(Earlier::OfThisSource, &restarted));
        let other = Done { source: "b".to_owned(), ..whole.clone() };
        assert!(!counts(Earlier::OfThisSource, &other) && counts(Earlier::OfAnySource, &other));
        let unknown = Done { source: source::UNKNOWN.to_owned(), ..whole };
        for (earlier, expected) in [(Earlier::OfThisSource, false), (Earlier::OfAnySource, true)] {
            assert_eq!(session(earlier).counts(Some(&unknown), 5, source::UNKNOWN), expected);
        }
    }

    #[test]
    fn time_left_is_that_of_earlier_steps() {
        let earlier = done(&papers().step[0]);
        assert_eq!(expected_seconds(Some(&earlier), 10), Some(4.0));
        let failed = Done { failed: Some("no disk".to_owned()), ..earlier };
        assert_eq!((expected_seconds(Some(&failed), 10), expected_seconds(None, 10)), (None, None));
        assert_eq!(time_left(&[None, None]), "");
        assert_eq!(time_left(&[Some(4.2), None]), " (at least 5 s left)");
        assert_eq!(time_left(&[Some(4.0), Some(176.0)]), " (about 3 min left)");
        assert_eq!(time_left(&[Some(6600.0)]), " (about 1 h 50 min left)");
    }
}
