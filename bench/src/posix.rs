//! The use cases of the study of POSIX in the age of non-volatile memory, on four file systems:
//! what shares of calls and time its classes have, by `bench/posix/run`, which traces real programs
//! with `holdfast trace matrix`.
//!
//! Each value is a median that the trace made of its runs, so a series has one value.

use std::io::{self, Error};
use std::path::Path;
use std::process::{Command, Stdio};

use holdfast_trace::matrix::document::{Matrix, Platform};

use crate::report::Outcome;
use crate::section;
use crate::stats::Series;

/// A use case of `bench/posix/cases.sh`.
const CASES: [&str; 9] = [
    "installation",
    "diff",
    "chromium",
    "firefox",
    "dillo",
    "office",
    "autoreconf",
    "configure",
    "make",
];
/// What runs them, in the source tree.
const SCRIPT: &str = "bench/posix/run";

/// Runs the suite, or the case with the name `only`; `progress` gets the name of each case. A case
/// that cannot be run is named.
///
/// # Errors
/// When there is no such case, or this is not the source tree.
pub fn run(runs: usize, only: Option<&str>, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let cases = section::chosen(&CASES.map(|case| (case, case)), only)?;
    if !Path::new(SCRIPT).is_file() {
        return Err(Error::other(format!(
            "there is no {SCRIPT} here; run `cargo xtask bench posix` in the source tree"
        )));
    }
    section::run(cases, progress, |case, outcome| {
        let out = tempfile::tempdir()?;
        let mut command = Command::new("bash");
        command.arg(SCRIPT).args(["-n", &runs.to_string(), "-o"]).arg(out.path()).arg(case);
        let output = command.stdin(Stdio::null()).output()?;
        match std::fs::read(out.path().join(format!("{case}.json"))) {
            Ok(bytes) => add(case, &serde_json::from_slice(&bytes)?, outcome),
            Err(_) => outcome.missing.push(reason(case, out.path(), &output.stderr)),
        }
        Ok(())
    })
}

/// Why a case left nothing.
fn reason(case: &str, out: &Path, complaints: &[u8]) -> String {
    let told = std::fs::read_to_string(out.join("left-out.txt")).unwrap_or_default();
    let complaints = String::from_utf8_lossy(complaints);
    let last = |text: &str| text.lines().rfind(|line| !line.is_empty()).map(str::to_owned);
    let why = last(told.trim_start_matches("not run: "))
        .or_else(|| last(&complaints))
        .unwrap_or_else(|| "it said nothing".to_owned());
    match why.starts_with(case) {
        true => why,
        false => format!("{case}: {why}"),
    }
}

fn add(case: &str, matrix: &Matrix, outcome: &mut Outcome) {
    for platform in &matrix.platforms {
        let mut add = |what: &str, value: f64, unit: &'static str| {
            let key = format!("{case}_{}_{what}", platform.kind);
            outcome.add(key, Some(Series::from_iter([value])), unit, None);
        };
        add("s", platform.side.lasted_ns.value / 1e9, "s");
        add("calls", platform.side.total.calls.value, "");
        add("threads", platform.threads.value, "");
        add("machine_user_pct", platform.machine_user_percent.value, "%");
        add("machine_kernel_pct", platform.machine_kernel_percent.value, "%");
        add("machine_idle_pct", platform.machine_idle_percent.value, "%");
        for call in &platform.calls {
            add(&format!("call_{}_calls_pct", call.name), call.calls_percent, "%");
            add(&format!("call_{}_time_pct", call.name), call.time_percent, "%");
            add(&format!("call_{}_awake_pct", call.name), call.awake_percent, "%");
        }
        for (what, value) in shares(platform) {
            add(&what, value, "%");
        }
    }
    outcome.notes.extend(matrix.notes.iter().map(|note| format!("{case}: {note}")));
}

/// Shares of the classes and of their parts, in percent: of calls, of time, and of time without
/// sleep.
fn shares(platform: &Platform) -> Vec<(String, f64)> {
    let classes = platform
        .classes
        .iter()
        .map(|row| (row.class.id(), [row.calls_percent, row.time_percent, row.awake_percent]));
    let parts = platform
        .subclasses
        .iter()
        .map(|row| (row.subclass.id(), [row.calls_percent, row.time_percent, row.awake_percent]));
    classes
        .chain(parts)
        .flat_map(|(name, shares)| {
            ["calls", "time", "awake"]
                .into_iter()
                .zip(shares)
                .map(move |(of, share)| (format!("{}_{of}_pct", name.replace('-', "_")), share))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The suite and the script know the same cases.
    #[test]
    fn every_case_is_one_of_the_script() {
        let script = include_str!("../posix/cases.sh");
        let known: Vec<&str> = script
            .lines()
            .filter_map(|line| line.strip_prefix("case_")?.strip_suffix("() {"))
            .collect();
        let mut ours = CASES.to_vec();
        let mut theirs = known.clone();
        ours.sort_unstable();
        theirs.sort_unstable();
        assert_eq!(ours, theirs);
        for case in CASES {
            assert!(script.contains(&format!("prepare_{case}() {{")), "{case}");
        }
    }

    #[test]
    fn case_that_left_nothing_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let error = reason("diff", folder.path(), b"line\nno root\n");
        assert_eq!(error, "diff: no root");
        std::fs::write(folder.path().join("left-out.txt"), "not run: diff: there is no meld\n")
            .unwrap();
        assert_eq!(reason("diff", folder.path(), b"else"), "diff: there is no meld");
    }

    #[test]
    fn unknown_case_is_refused() {
        let complaint = run(1, Some("dice"), &mut |_| {}).unwrap_err().to_string();
        assert!(complaint.contains("installation, diff, chromium"), "{complaint}");
    }
}
