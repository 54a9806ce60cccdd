//! The use cases of the study of POSIX in the age of non-volatile memory, on four file systems:
//! what shares of calls and time its classes have, by `bench/posix/run`, which traces real programs
//! with `holdfast trace matrix`.
//!
//! A matrix has the medians of its runs and not their values, so each run is a matrix of its own,
//! and a series has a value for each. A call or a class that is not in a run's matrix (it has the
//! calls that matter most) has no value of that run.
//!
//! Invariant: a run whose window the driver (`window.sh`) did not take to its end has no values,
//! and the report names it.

use std::fs;
use std::io::{self, Error};
use std::path::Path;
use std::process::{Command, Stdio};

use holdfast_trace::matrix::document::{Matrix, Platform};
use holdfast_trace::report::Report;
use holdfast_trace::report::document::Distribution;

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
/// Figure 2: how long single calls of this name take, in the case that makes most of them.
const POLL: &str = "poll";
const POLL_CASE: &str = "diff";
/// From here on the study takes a call of [`POLL`] for sleep: 60 us, as a bar of a histogram ends.
const SLEEP_NS: u64 = 1 << 16;
/// Points of the distribution, each the end of a bar.
const BELOW: [(&str, u64); 8] = [
    ("4us", 1 << 12),
    ("66us", SLEEP_NS),
    ("1ms", 1 << 20),
    ("17ms", 1 << 24),
    ("134ms", 1 << 27),
    ("1s", 1 << 30),
    ("17s", 1 << 34),
    ("275s", 1 << 38),
];
/// In each run another one is first.
const PLATFORMS: [&str; 4] = ["ext2=loop", "ext4=loop", "xfs=loop", "tmpfs=loop"];
/// Of a matrix that has one run, which is what is wanted here.
const FEW_RUNS: &str = "Fewer than 6 repetitions";
/// What runs them, in the source tree.
const SCRIPT: &str = "bench/posix/run";

/// Runs the suite, or the case with the name `only`; `progress` gets the name of each case. A case
/// that cannot be run is named.
///
/// # Errors
/// When there is no such case, or this is not the source tree.
pub fn run(runs: usize, only: Option<&str>, progress: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let sections: Vec<_> = CASES.iter().chain([&POLL]).map(|name| (*name, *name)).collect();
    let cases = section::chosen(&sections, only)?;
    if !Path::new(SCRIPT).is_file() {
        return Err(Error::other(format!(
            "there is no {SCRIPT} here; run `cargo xtask bench posix` in the source tree"
        )));
    }
    section::run(cases, progress, |case, outcome| {
        let mut values = Values::default();
        let (mut counted, mut lost) = (0, 0);
        for round in 0..runs {
            let attempt = match case {
                POLL => {
                    let report = once(POLL_CASE)?;
                    report.try_map(|bytes| {
                        let report: Report = serde_json::from_slice(&bytes)?;
                        values.add_poll(&report);
                        Ok(())
                    })?
                }
                case => {
                    let matrix = one_run(case, round)?;
                    matrix.try_map(|bytes| {
                        let matrix: Matrix = serde_json::from_slice(&bytes)?;
                        values.add(case, &matrix, outcome);
                        Ok(())
                    })?
                }
            };
            match attempt {
                Attempt::Counts(()) => counted += 1,
                Attempt::NotDriven(reason) => {
                    lost += 1;
                    outcome.missing.push(format!("{reason} (run {})", round + 1));
                    // Each has had its repeats, and takes minutes.
                    if lost > counted {
                        break;
                    }
                }
                Attempt::Impossible(reason) => {
                    outcome.missing.push(reason);
                    break;
                }
            }
        }
        values.report(outcome);
        Ok(())
    })
}

/// What came of a run of a case.
#[derive(Debug, PartialEq)]
enum Attempt<T> {
    Counts(T),
    /// A program ran, but what was to be done in its window was not done; why.
    NotDriven(String),
    /// It cannot be made on this machine; why.
    Impossible(String),
}

impl<T> Attempt<T> {
    fn try_map<U>(self, read: impl FnOnce(T) -> io::Result<U>) -> io::Result<Attempt<U>> {
        Ok(match self {
            Attempt::Counts(value) => Attempt::Counts(read(value)?),
            Attempt::NotDriven(reason) => Attempt::NotDriven(reason),
            Attempt::Impossible(reason) => Attempt::Impossible(reason),
        })
    }
}

/// A run of a case on each platform: a matrix. The first one has a run before it that is not
/// counted.
fn one_run(case: &str, round: usize) -> io::Result<Attempt<Vec<u8>>> {
    let warm_ups = if round == 0 { "1" } else { "0" };
    of_script(case, &["-n", "1", "-w", warm_ups, "--on", &platforms(round)])
}

/// A run of a case that is reported call by call.
fn once(case: &str) -> io::Result<Attempt<Vec<u8>>> {
    of_script(case, &["--once"])
}

/// The JSON that the script writes about a case.
fn of_script(case: &str, options: &[&str]) -> io::Result<Attempt<Vec<u8>>> {
    let out = tempfile::tempdir()?;
    let mut command = Command::new("bash");
    command.arg(SCRIPT).args(options);
    let output = command.arg("-o").arg(out.path()).arg(case).stdin(Stdio::null()).output()?;
    Ok(left_by_script(case, out.path(), &output.stderr))
}

/// What the script left in its folder. It keeps no JSON of runs that do not count. A file in which
/// the driver wrote how each run ended says that the case had runs with a window.
fn left_by_script(case: &str, out: &Path, complaints: &[u8]) -> Attempt<Vec<u8>> {
    match fs::read(out.join(format!("{case}.json"))) {
        Ok(bytes) => Attempt::Counts(bytes),
        Err(_) => {
            let reason = reason(case, out, complaints);
            match out.join(format!("{case}.driven.txt")).is_file() {
                true => Attempt::NotDriven(reason),
                false => Attempt::Impossible(reason),
            }
        }
    }
}

/// All platforms, as the option takes them.
fn platforms(round: usize) -> String {
    let mut platforms = PLATFORMS;
    platforms.rotate_left(round % PLATFORMS.len());
    platforms.join(",")
}

/// Why a case left nothing.
fn reason(case: &str, out: &Path, complaints: &[u8]) -> String {
    let told = fs::read_to_string(out.join("left-out.txt")).unwrap_or_default();
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

/// The values of each key with their unit, in the order in which the keys came.
#[derive(Default)]
struct Values(Vec<(String, Series, &'static str)>);

impl Values {
    /// Adds those of one run.
    fn add(&mut self, case: &str, matrix: &Matrix, outcome: &mut Outcome) {
        for platform in &matrix.platforms {
            for (what, value, unit) in of_platform(platform) {
                self.push(format!("{case}_{}_{what}", platform.kind), value, unit);
            }
        }
        let of = |kind| matrix.platforms.iter().find(|platform| platform.kind == kind);
        if let (Some(memory), Some(disk)) = (of("tmpfs"), of("ext4")) {
            for (call, us) in us_per_call(memory) {
                if let Some((_, disk_us)) = us_per_call(disk).find(|(name, _)| *name == call) {
                    let key = format!("{case}_call_{call}_tmpfs_vs_ext4");
                    self.push(key, us / disk_us, "x");
                }
            }
        }
        for note in matrix.notes.iter().filter(|note| !note.starts_with(FEW_RUNS)) {
            outcome.note(format!("{case}: {note}"));
        }
    }

    /// Adds those of one run of Figure 2; none where the program made no such call.
    fn add_poll(&mut self, report: &Report) {
        if let Some(call) = report.call(POLL)
            && let Some(distribution) = &call.distribution
        {
            for (key, value, unit) in distribution_of_poll(distribution) {
                self.push(key, value, unit);
            }
        }
    }

    fn push(&mut self, key: String, value: f64, unit: &'static str) {
        match self.0.iter_mut().find(|(known, ..)| *known == key) {
            Some((_, series, _)) => series.push(value),
            None => self.0.push((key, Series::from_iter([value]), unit)),
        }
    }

    fn report(self, outcome: &mut Outcome) {
        for (key, series, unit) in self.0 {
            outcome.add(key, Some(series), unit, None);
        }
    }
}

/// What a run came to on one platform: names, values and units.
fn of_platform(platform: &Platform) -> Vec<(String, f64, &'static str)> {
    let mut values = vec![
        ("s".to_owned(), platform.side.lasted_ns.value / 1e9, "s"),
        ("calls".to_owned(), platform.side.total.calls.value, ""),
        ("threads".to_owned(), platform.threads.value, ""),
        ("machine_user_pct".to_owned(), platform.machine_user_percent.value, "%"),
        ("machine_kernel_pct".to_owned(), platform.machine_kernel_percent.value, "%"),
        ("machine_idle_pct".to_owned(), platform.machine_idle_percent.value, "%"),
    ];
    for call in &platform.calls {
        let shares = [
            ("calls", call.calls_percent),
            ("time", call.time_percent),
            ("awake", call.awake_percent),
        ];
        values
            .extend(shares.map(|(of, share)| (format!("call_{}_{of}_pct", call.name), share, "%")));
    }
    values.extend(us_per_call(platform).map(|(call, us)| (format!("call_{call}_us"), us, "us")));
    values.extend(shares(platform).into_iter().map(|(what, share)| (what, share, "%")));
    values
}

/// How long single calls took: names, values and units.
fn distribution_of_poll(of: &Distribution) -> Vec<(String, f64, &'static str)> {
    let us = |ns: u64| ns as f64 / 1e3;
    let shortest = of.bars.first().map_or(0, |bar| bar.below_ns / 2);
    let mut values = vec![
        ("poll_calls".to_owned(), of.bars.iter().map(|bar| bar.calls).sum::<u64>() as f64, ""),
        ("poll_us_least".to_owned(), us(shortest), "us"),
        ("poll_us_median".to_owned(), us(of.p50_ns), "us"),
        ("poll_us_p99".to_owned(), us(of.p99_ns), "us"),
        ("poll_us_most".to_owned(), us(of.max_ns), "us"),
    ];
    let (mut wall, mut sleep) = (0, 0);
    for bar in of.bars.iter().filter(|bar| bar.below_ns > SLEEP_NS) {
        wall += bar.time.wall_ns;
        sleep += bar.time.sleep_ns;
    }
    if wall > 0 {
        let asleep = 100.0 * sleep as f64 / wall as f64;
        values.push(("poll_asleep_above_66us_pct".to_owned(), asleep, "%"));
    }
    let all: u64 = of.bars.iter().map(|bar| bar.calls).sum();
    for (name, end) in BELOW {
        let below: u64 =
            of.bars.iter().filter(|bar| bar.below_ns <= end).map(|bar| bar.calls).sum();
        let share = 100.0 * below as f64 / all.max(1) as f64;
        values.push((format!("poll_below_pct/{name}"), share, "%"));
    }
    values
}

/// What a call of each name takes on average, without sleep: microseconds.
fn us_per_call(platform: &Platform) -> impl Iterator<Item = (&str, f64)> {
    let total = &platform.side.total;
    platform.calls.iter().filter_map(move |call| {
        let calls = call.calls_percent * total.calls.value;
        let us = call.awake_percent * total.awake_ns.value / calls / 1e3;
        (us > 0.0 && us.is_finite()).then_some((call.name.as_str(), us))
    })
}

/// Shares of the classes and of their parts, in percent: of calls, of time, and of time without
/// sleep. A part that is all of its class has its name, and is left out.
fn shares(platform: &Platform) -> Vec<(String, f64)> {
    let classes = platform
        .classes
        .iter()
        .map(|row| (row.class.id(), [row.calls_percent, row.time_percent, row.awake_percent]));
    let parts = platform
        .subclasses
        .iter()
        .filter(|row| platform.classes.iter().all(|class| class.class.id() != row.subclass.id()))
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
    use std::os::unix::fs::PermissionsExt;

    /// A folder with an `xdotool` that does what this shell text says, with `$PLACE` as the directory
    /// of the program, and with a `sleep` that is short.
    fn desk(xdotool: &str) -> tempfile::TempDir {
        let desk = tempfile::tempdir().unwrap();
        for folder in ["bin", "place/a", "place/b"] {
            fs::create_dir_all(desk.path().join(folder)).unwrap();
        }
        for (name, text) in [("xdotool", xdotool), ("sleep", "command -p sleep 0.01")] {
            let path = desk.path().join("bin").join(name);
            fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        desk
    }

    /// What the driver of Meld's case says of a run of this program, and whether the program ended
    /// with success.
    fn drive(desk: &Path, program: &str) -> (String, bool) {
        let place = desk.join("place");
        let mut child = Command::new("timeout")
            .args(["30", "sh", "-c", program])
            .current_dir(&place)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let driver = Path::new(env!("CARGO_MANIFEST_DIR")).join("posix/window.sh");
        let driven = Command::new("timeout")
            .args(["25", "bash"])
            .arg(driver)
            .arg("diff")
            .arg(&place)
            .arg(desk.join("report"))
            .env("PATH", format!("{}:{path}", desk.join("bin").display()))
            .env("PLACE", &place)
            .stdin(Stdio::null())
            .status();
        let status = child.wait().unwrap();
        assert!(driven.is_ok());
        (fs::read_to_string(desk.join("report")).unwrap(), status.success())
    }

    /// Ends when its window is closed.
    const PROGRAM: &str = "until [ -e closed ]; do sleep 0.02; done";
    /// Finds the window, stores at Ctrl-S, and closes the program at Ctrl-Q.
    const HANDS: &str = r#"case "$*" in
        search*) echo 7 ;;
        *getwindowname) echo Meld ;;
        key*ctrl+s) echo stored >"$PLACE/b/1" ;;
        key*ctrl+q) : >"$PLACE/closed" ;;
    esac"#;

    #[test]
    fn run_that_was_driven_to_its_end_is_done() {
        let desk = desk(HANDS);
        assert_eq!(drive(desk.path(), PROGRAM), ("done\n".to_owned(), true));
    }

    /// xdotool fails when a window goes away while it looks at it: that is not taken for an answer.
    #[test]
    fn failing_look_for_a_window_is_repeated() {
        let fails = r#"case "$*" in search*)
            if ! [ -e "$PLACE/third" ]; then
                if [ -e "$PLACE/second" ]; then : >"$PLACE/third"; fi
                : >"$PLACE/second"
                exit 1
            fi ;;
        esac"#;
        let desk = desk(&format!("{fails}\n{HANDS}"));
        assert_eq!(drive(desk.path(), PROGRAM), ("done\n".to_owned(), true));
    }

    /// A program that does not close is ended, and its run is none.
    #[test]
    fn program_that_does_not_close_is_not_done() {
        let desk = desk(&HANDS.replace("ctrl+q", "ctrl+x"));
        let expected = "the program does not end by ctrl+q\n".to_owned();
        assert_eq!(drive(desk.path(), PROGRAM), (expected, false));
    }

    #[test]
    fn keys_of_no_effect_are_not_done() {
        let desk = desk(&HANDS.replace("ctrl+s", "ctrl+x"));
        assert_eq!(drive(desk.path(), PROGRAM), ("nothing was stored\n".to_owned(), false));
    }

    /// The program may end before anything was done.
    #[test]
    fn program_that_ends_too_early_is_not_done() {
        let desk = desk(r#": >"$PLACE/closed""#);
        let expected = "the program ended before it had a window \"Meld\"\n".to_owned();
        assert_eq!(drive(desk.path(), PROGRAM), (expected, true));
    }

    /// Runs that were not driven to their end are others than a case that this machine cannot run.
    #[test]
    fn undriven_runs_are_told_from_impossible_ones() {
        let out = tempfile::tempdir().unwrap();
        let left = || left_by_script("diff", out.path(), b"no root");
        assert_eq!(left(), Attempt::Impossible("diff: no root".to_owned()));
        fs::write(out.path().join("diff.driven.txt"), "nothing was stored\n").unwrap();
        assert_eq!(left(), Attempt::NotDriven("diff: no root".to_owned()));
        fs::write(out.path().join("diff.json"), "{}").unwrap();
        assert_eq!(left(), Attempt::Counts(b"{}".to_vec()));
    }

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
        fs::write(folder.path().join("left-out.txt"), "not run: diff: there is no meld\n").unwrap();
        assert_eq!(reason("diff", folder.path(), b"else"), "diff: there is no meld");
    }

    /// The points of the figure are shares of all calls, and sleep is that of the calls above 66 us.
    #[test]
    fn distribution_of_polls_becomes_shares() {
        let time = |wall: u64, sleep: u64| {
            serde_json::json!({
                "wall_ns": wall, "cpu_ns": 0, "sleep_ns": sleep, "wait_ns": 0, "io_wait_ns": 0,
                "queue_ns": 0, "untold_ns": 0,
            })
        };
        let distribution: Distribution = serde_json::from_value(serde_json::json!({
            "p50_ns": 3000, "p90_ns": 90_000, "p99_ns": 90_000, "max_ns": 100_000,
            "median_interval_ns": null,
            "bars": [
                { "below_ns": 1 << 12, "calls": 3, "time": time(9000, 0) },
                { "below_ns": 1 << 17, "calls": 1, "time": time(100_000, 80_000) },
            ],
        }))
        .unwrap();
        let values = distribution_of_poll(&distribution);
        let value = |key: &str| values.iter().find(|(known, ..)| known == key).map(|it| it.1);
        assert_eq!(value("poll_us_least"), Some(2.048));
        assert_eq!(value("poll_us_most"), Some(100.0));
        assert_eq!(value("poll_asleep_above_66us_pct"), Some(80.0));
        assert_eq!(value("poll_below_pct/66us"), Some(75.0));
        assert_eq!(value("poll_below_pct/1ms"), Some(100.0));
    }

    /// The values of all runs are kept, though a run may lack some.
    #[test]
    fn runs_become_one_series_for_each_key() {
        let mut values = Values::default();
        for (key, value) in [("make_ext4_s", 3.0), ("make_ext4_calls", 7.0), ("make_ext4_s", 5.0)] {
            values.push(key.to_owned(), value, "s");
        }
        let mut outcome = Outcome::default();
        values.report(&mut outcome);
        let found: Vec<_> = outcome
            .measurements
            .iter()
            .map(|found| (found.key.as_ref(), found.series.values()))
            .collect();
        assert_eq!(found, [("make_ext4_s", &[3.0, 5.0][..]), ("make_ext4_calls", &[7.0])]);
    }

    #[test]
    fn another_platform_is_first_in_each_run() {
        let first = |round| platforms(round).split(',').next().map(str::to_owned);
        let firsts: Vec<_> = (0..PLATFORMS.len()).filter_map(first).collect();
        assert_eq!(firsts, PLATFORMS);
        assert_eq!(platforms(5).split(',').count(), PLATFORMS.len());
    }

    #[test]
    fn unknown_case_is_refused() {
        let complaint = run(1, Some("dice"), &mut |_| {}).unwrap_err().to_string();
        assert!(complaint.contains("installation, diff, chromium"), "{complaint}");
    }
}
