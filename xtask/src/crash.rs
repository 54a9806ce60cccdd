//! The rows of the fault matrix that this workspace tests, at counts of one's choice, as one table.
//!
//! The tests are those of `./test`; this runs each row alone with its count in
//! `HOLDFAST_CRASH_ROW`, reads the lines `fault ROW: WHAT: N trials in S s, seed X` that they
//! write, and, if asked to, puts them into docs/faults.md.
//!
//! Invariants: every row is bounded in time. A row whose tests fail, or say nothing, fails the
//! chore and is not written down.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::command::{cannot_start, cargo, show, with_timeout};
use crate::failure::{Failure, Result};
use crate::workspace::Workspace;

/// Twelve hours: more than any row takes at its long count.
const ROW_TIMEOUT_S: u32 = 12 * 60 * 60;
const FAULTS: &str = "docs/faults.md";
const BEGIN: &str = "<!-- cargo xtask crash --write: begin -->";
const END: &str = "<!-- cargo xtask crash --write: end -->";
const HEADING: &str = "| row | fault | trials | failures | seconds |\n|---|---|---|---|---|\n";

/// One row of the matrix.
struct Row {
    name: &'static str,
    package: &'static str,
    /// The test program, and the tests in it whose names contain one of these.
    program: &'static str,
    features: &'static [&'static str],
    tests: &'static [&'static str],
    /// Trials of a long run; `None` where all cases are tried every time.
    long: Option<u64>,
}

const CROSS: (&str, &str) = ("holdfast-tests", "faults");

const fn row(name: &'static str, tests: &'static [&'static str], long: Option<u64>) -> Row {
    Row { name, package: CROSS.0, program: CROSS.1, features: &[], tests, long }
}

const fn sqlite(name: &'static str, tests: &'static [&'static str], long: Option<u64>) -> Row {
    Row { name, package: CROSS.0, program: "sqlite", features: &[], tests, long }
}

const ROWS: &[Row] = &[
    row("H1", &["kills::"], Some(200_000)),
    Row {
        name: "H2",
        package: "holdfast-region",
        program: "faults_power",
        features: &[],
        tests: &["power_cuts_lose_no_acknowledged_commit"],
        long: Some(20_000),
    },
    Row {
        name: "H3",
        package: "holdfast-heap",
        program: "reset",
        features: &["--features", "crash-points,std"],
        tests: &["acknowledged_operations_survive"],
        long: Some(1_000_000),
    },
    // On each of two file systems.
    row("H4", &["power_cuts::"], Some(2000)),
    Row {
        name: "H6",
        package: "holdfast-lab",
        program: "lab",
        features: &[],
        tests: &["records_survive_every_machine_failure"],
        long: Some(40),
    },
    Row {
        name: "H7",
        package: "holdfast-region",
        program: "faults_steps",
        features: &[],
        tests: &["error_at_any_step_is_typed"],
        long: None,
    },
    row("H8", &["truncation::"], Some(1000)),
    row("H9", &["damage::"], Some(1_000_000)),
    row("H10", &["memory::"], None),
    row("H11", &["openers::"], Some(50_000)),
    row("H12", &["golden::"], None),
    row("H13", &["owners::"], Some(20_000)),
    row("H14", &["room::kill_during_eviction"], Some(5000)),
    Row {
        name: "X11",
        package: "holdfast-wasm",
        program: "bombs",
        features: &[],
        tests: &["bombs_leave_the_host"],
        long: None,
    },
    // Each call and each allocation is a case: a long run ends when there are no more.
    sqlite("S1", &["death_in_any_call", "death_while_switching_wal"], Some(200_000)),
    sqlite(
        "S2",
        &["error_in_any_call", "error_while_switching_wal", "full_disk_from_any_call"],
        Some(200_000),
    ),
    sqlite("S3", &["exhausted_memory_loses"], Some(200_000)),
    // Of 1,000 statements.
    sqlite("S5", &["random_statements_match"], Some(1000)),
    sqlite("S6", &["power_commits_survive_a_power_cut"], Some(500)),
    sqlite("S7", &["killed_lock_holder"], Some(12_500)),
    Row {
        name: "S8",
        package: "holdfast-sqlite",
        program: "homes",
        features: &[],
        tests: &["killed_writers_commits_outlive_other_homes", "a_container_with_its_own_dev_shm"],
        long: Some(200),
    },
    // On each of two file systems, ten faults in turn.
    sqlite("S9", &["power_commits_survive_name_changes"], Some(500)),
    // Each second one with the pool lost, too.
    Row {
        name: "S10",
        package: "holdfast-sqlite",
        program: "kill",
        features: &[],
        tests: &["kills_and_lost_pools_amid_many_rows"],
        long: Some(1000),
    },
    // There are not so many calls.
    sqlite("S18", &["system_calls::"], Some(1000)),
    // S1, S2, S3, S5, S6, S7 and S18 amid many rows.
    sqlite("S11", &["death_in_a_call_amid_many_rows"], Some(500)),
    sqlite("S12", &["errors_in_calls_amid_many_rows"], Some(500)),
    sqlite("S13", &["exhausted_memory_amid_many_rows"], Some(500)),
    sqlite("S15", &["random_statements_amid_many_rows"], Some(200)),
    sqlite("S16", &["power_cuts_amid_many_rows"], Some(200)),
    sqlite("S17", &["killed_holders_of_many_rows"], Some(200)),
    sqlite("S19", &["faults_in_system_calls_amid_many_rows"], Some(500)),
];

/// Arguments of `cargo xtask crash`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Makes as many trials as a long run does
    #[arg(long)]
    pub(crate) long: bool,
    /// Puts the results into docs/guarantees.md
    #[arg(long)]
    pub(crate) write: bool,
    /// Runs this row; may be given several times
    #[arg(long, value_name = "ROW", value_parser = PossibleValuesParser::new(ROWS.iter().map(|row| row.name)))]
    pub(crate) only: Vec<String>,
    /// Makes this many trials
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<u64>,
}

/// Runs the rows and prints what they came to.
pub(crate) fn crash(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    let only = &arguments.only;
    let mut results = Vec::new();
    let mut failed = Vec::new();
    for row in ROWS.iter().filter(|row| only.is_empty() || only.iter().any(|name| name == row.name))
    {
        match run(workspace, row, arguments) {
            Ok(lines) => results.extend(lines),
            Err(failure) => {
                println!("{}: {failure}", row.name);
                failed.push(row.name);
            }
        }
    }
    println!("\n{HEADING}{}", results.iter().map(Line::to_text).collect::<String>());
    if arguments.write {
        write(&workspace.root, &results)?;
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(format!(
            "failed: {}; the seeds to try again with are above",
            failed.join(", ")
        )))
    }
}

/// What a test says at its end.
#[derive(Debug, PartialEq, Eq)]
struct Line {
    row: String,
    what: String,
    trials: u64,
    seconds: String,
}

impl Line {
    /// Reads `fault H1: process death: 1000 trials in 3.2 s, seed 0x1`.
    fn read(text: &str) -> Option<Line> {
        let start =
            ["fault H", "fault S", "fault X"].iter().find_map(|beginning| text.find(beginning))?;
        let (row, rest) = text.get(start..)?.strip_prefix("fault ")?.split_once(": ")?;
        let (what, rest) = rest.split_once(": ")?;
        let (trials, rest) = rest.split_once(" trials in ")?;
        let (seconds, _) = rest.split_once(" s, seed ")?;
        let trials = trials.parse().ok()?;
        Some(Line {
            row: row.to_owned(),
            what: what.to_owned(),
            trials,
            seconds: seconds.to_owned(),
        })
    }

    fn to_text(&self) -> String {
        let Line { row, what, trials, seconds } = self;
        format!("| {row} | {what} | {trials} | 0 | {seconds} |\n")
    }

    /// Rows in the order of the matrix.
    fn place(&self) -> (String, u32, String) {
        let (letter, number) = self.row.split_at(1);
        (letter.to_owned(), number.parse().unwrap_or(u32::MAX), self.what.clone())
    }
}

fn run(workspace: &Workspace, row: &Row, arguments: &Arguments) -> Result<Vec<Line>> {
    let mut command: Command = cargo(&workspace.root);
    command.args(["test", "-p", row.package, "--test", row.program]).args(row.features).arg("--");
    command.args(row.tests);
    command.arg("--nocapture");
    if let Some(count) = arguments.count.or(row.long.filter(|_| arguments.long)) {
        command.env(format!("HOLDFAST_CRASH_{}", row.name), count.to_string());
    }
    show(&command);
    let mut bounded = with_timeout(&command, ROW_TIMEOUT_S);
    let output = bounded.output().map_err(|error| cannot_start(&bounded, &error))?;
    let text = String::from_utf8_lossy(&output.stdout);
    for line in text.lines().filter(|line| {
        ["fault H", "fault S", "fault X", "not run: "].iter().any(|it| line.contains(it))
    }) {
        println!("{line}");
    }
    if !output.status.success() {
        return Err(Failure::new(format!(
            "{}\n{text}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )));
    }
    let lines: Vec<Line> = text.lines().filter_map(Line::read).collect();
    if lines.is_empty() {
        return Err(Failure::new("no trial was made; `not run: …` above says why"));
    }
    Ok(lines)
}

/// Puts the results in the place of earlier ones of the same tests.
fn write(root: &Path, results: &[Line]) -> Result<()> {
    let path = root.join(FAULTS);
    let broken = |what: String| Failure::new(format!("{}: {what}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|error| broken(error.to_string()))?;
    let merged = merge(&text, results).ok_or_else(|| {
        broken(format!("the lines `{BEGIN}` and `{END}` are missing; put them back"))
    })?;
    std::fs::write(&path, merged).map_err(|error| broken(error.to_string()))
}

fn merge(text: &str, results: &[Line]) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (section, after) = rest.split_once(END)?;
    let mut rows = BTreeMap::new();
    for line in
        section.lines().filter(|line| ["| H", "| S", "| X"].iter().any(|row| line.starts_with(row)))
    {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [row, what, trials, _, seconds] = cells[..] else { return None };
        let trials = trials.parse().ok()?;
        let line = Line {
            row: row.to_owned(),
            what: what.to_owned(),
            trials,
            seconds: seconds.to_owned(),
        };
        rows.insert(line.place(), line.to_text());
    }
    for line in results {
        rows.insert(line.place(), line.to_text());
    }
    let rows: String = rows.into_values().collect();
    Some(format!("{before}{BEGIN}\n{HEADING}{rows}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "test x ... fault H10: every allocation: 303 trials in 9.6 s, seed 0x486f";

    /// The result line of a crash test is parsed; a failure is no result.
    #[test]
    fn crash_test_line_is_parsed_and_failures_are_not() {
        let line = Line::read(SAID).unwrap();
        assert_eq!((line.row.as_str(), line.trials, line.seconds.as_str()), ("H10", 303, "9.6"));
        assert_eq!(
            Line::read("fault H1: process death: FAILED in trial 7 after 0.1 s; again with X"),
            None
        );
        assert_eq!(Line::read("test result: ok."), None);
        let line = Line::read("fault X11: memory bombs: 61 trials in 18.9 s, seed 0x7").unwrap();
        assert_eq!((line.row.as_str(), line.trials), ("X11", 61));
    }

    /// A filter that is part of no test's name would leave its row with fewer trials.
    #[test]
    fn every_row_filter_matches_a_test() {
        let listed = include_str!("../../docs/guarantees/tests.md");
        for row in ROWS {
            for filter in row.tests {
                let part = filter.trim_end_matches("::").rsplit("::").next().unwrap_or_default();
                assert!(listed.contains(part), "{}: no test for {filter}", row.name);
            }
        }
    }

    /// New crash-test results replace the old ones, and the others keep their order.
    #[test]
    fn new_crash_results_replace_old_ones_in_order() {
        let result = |row: &str, trials| Line {
            row: row.to_owned(),
            what: "w".to_owned(),
            trials,
            seconds: "1.0".to_owned(),
        };
        let text = format!("a\n{BEGIN}\n{END}\nb\n");
        let once = merge(&text, &[result("H10", 5), result("H2", 7)]).unwrap();
        let twice = merge(&once, &[result("H10", 6)]).unwrap();
        let rows: Vec<&str> = twice
            .lines()
            .filter(|line| ["| H", "| S", "| X"].iter().any(|row| line.starts_with(row)))
            .collect();
        assert_eq!(rows, ["| H2 | w | 7 | 0 | 1.0 |", "| H10 | w | 6 | 0 | 1.0 |"]);
        assert!(twice.starts_with("a\n") && twice.ends_with("\nb\n"));
        assert_eq!(merge("no section", &[]), None);
    }
}
