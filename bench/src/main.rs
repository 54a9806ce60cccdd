//! `holdfast-bench SUITE [--json] [--runs N]`: measures, prints a table and, with `--json`, one
//! line of JSON as the last. `holdfast-bench [SUITE...] [--quick] --out DIRECTORY` runs the steps of
//! the papers' tables and figures, each as such a process, and writes a report.
//!
//! Some suites start this program again as the other side of a measurement: then its first argument
//! names a role, and what follows is the role's own.

#![forbid(unsafe_code)]

use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};

use holdfast_bench::report::{self, Outcome};
use holdfast_bench::{applet, cuba, heap, persistency, pool, posix, programs, slice, trace, web};
use holdfast_papers::command::{Request, make};
use holdfast_papers::report::Verdict;
use holdfast_papers::session::Earlier;

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Suite {
    Slice,
    Heap,
    Applet,
    Cuba,
    Pages,
    Persistency,
    Pool,
    Posix,
    Programs,
    Slow,
    Sqlite,
    Trace,
    Web,
}

const HELP: &str = "\
    A full report takes about 2 hours behind the building, a quick one some 4 min. The suites posix and trace, and \
    what is measured on loop devices (persistency, pages, sqlite), need root; peers and programs come from apt and npm, \
    and what is missing is named. Files lie in /dev/shm (tmpfs) and on the disk of the build. Each step of \
    a report is SUITE/SECTION: `cargo xtask bench SUITE --only SECTION` runs it alone, and bench/README.md lists them. \
    The exit status is 1 if a step failed or nothing was measured; the report of the others is written.";

/// Compares with named peers in the same run (bench/README.md explains the keys).
///
/// With --out it measures for a report: the tables and figures of the papers that Holdfast unites,
/// their numbers beside ours, as a page (index.html), Markdown (results.md) and JSON (results.json).
/// The suites are built from the source tree that this is run in. The report is written behind each
/// step, of all steps in its directory; a run that was stopped goes on where it was.
#[derive(Debug, Parser)]
#[command(name = "holdfast-bench", bin_name = "holdfast bench", after_help = HELP, max_term_width = 110)]
struct Arguments {
    /// One suite; for a report any number of them, or none for all (heap and applet have no part in one)
    suites: Vec<Suite>,
    /// Prints one line of JSON as the last
    #[arg(long, conflicts_with = "out")]
    json: bool,
    /// Repetitions of each measurement
    #[arg(long, value_name = "N", default_value = "15", conflicts_with = "out")]
    runs: NonZeroUsize,
    /// Runs one section of the suite
    #[arg(long, value_name = "SECTION", conflicts_with = "out")]
    only: Option<String>,
    /// Writes a report into this directory
    #[arg(long, value_name = "DIRECTORY")]
    out: Option<PathBuf>,
    /// For a report: few steps with few repetitions, some five minutes behind the building
    #[arg(long, requires = "out")]
    quick: bool,
    /// For a report: runs its steps again, also those that are in its directory
    #[arg(long, requires = "out")]
    fresh: bool,
    /// For a report: steps of an earlier source count, too; those of another source than most are
    /// marked
    #[arg(long, requires = "out", conflicts_with = "fresh")]
    any_source: bool,
    /// For a report: measures nothing, and writes it of the steps that are in its directory, or of its
    /// JSON where there are none
    #[arg(long, requires = "out", conflicts_with_all = ["fresh", "any_source"])]
    no_run: bool,
    /// For a report: Holdfast's source tree, if the current directory is not in it
    #[arg(long, value_name = "DIRECTORY", requires = "out")]
    source: Option<PathBuf>,
}

impl Arguments {
    fn parse_checked(words: impl Iterator<Item = String>) -> Result<Arguments, clap::Error> {
        let arguments = Arguments::try_parse_from(words)?;
        if arguments.out.is_some() {
            return Ok(arguments);
        }
        let complain = |kind, text| Err(Arguments::command().error(kind, text));
        let [suite] = arguments.suites[..] else {
            let text = "name one suite, or write a report with --out DIRECTORY";
            return complain(ErrorKind::WrongNumberOfValues, text);
        };
        let has_sections = !matches!(suite, Suite::Slice | Suite::Persistency);
        if arguments.only.is_some() && !has_sections {
            let text = "this suite has no sections; leave out --only";
            return complain(ErrorKind::ArgumentConflict, text);
        }
        Ok(arguments)
    }
}

fn main() -> ExitCode {
    if let Some(played) = play_role() {
        return status(
            played.map_err(|error| io::Error::other(format!("the other side: {error}"))),
        );
    }
    let arguments = Arguments::parse_checked(std::env::args()).unwrap_or_else(|error| error.exit());
    if let Some(out) = &arguments.out {
        return write_report(&arguments, out.clone());
    }
    #[cfg(feature = "sqlite")]
    if arguments.suites.contains(&Suite::Sqlite) {
        match holdfast_bench::sqlite::in_scratch_home() {
            Ok(None) => {}
            Ok(Some(code)) => return code,
            Err(error) => return status(Err(error)),
        }
    }
    status(run(&arguments).and_then(|outcome| print(&outcome, arguments.json)))
}

/// Measures for a report and writes it.
fn write_report(arguments: &Arguments, out: PathBuf) -> ExitCode {
    let names = arguments.suites.iter().filter_map(Suite::to_possible_value);
    let request = Request {
        suites: names.map(|suite| suite.get_name().to_owned()).collect(),
        quick: arguments.quick,
        earlier: match arguments {
            Arguments { fresh: true, .. } => Earlier::Never,
            Arguments { no_run: true, .. } => Earlier::Only,
            Arguments { any_source: true, .. } => Earlier::OfAnySource,
            _ => Earlier::OfThisSource,
        },
        source: arguments.source.clone(),
        out,
    };
    let report = match make(&request, &mut |line| eprintln!("{line}")) {
        Ok(report) => report,
        Err(error) => return status(Err(io::Error::other(error))),
    };
    let (met, goals) = report.goals();
    let loosely = report.goals_met_loosely();
    println!(
        "{} of the papers' tables and figures hold, {} hold in part, {} do not, {} were not measured; {met} of \
         {goals} goals are met, {loosely} of them by numbers that are not firm\n{}",
        report.count(Verdict::Holds),
        report.count(Verdict::Partly),
        report.count(Verdict::Fails),
        report.count(Verdict::Open),
        request.out.join("index.html").display()
    );
    ExitCode::SUCCESS
}

/// Plays the role that the arguments name, if they name one.
fn play_role() -> Option<io::Result<()>> {
    let mut words = std::env::args().skip(1);
    let role = words.next()?;
    let words: Vec<String> = words.collect();
    match role.as_str() {
        applet::PEER => Some(applet::play(words.first().map_or("", String::as_str))),
        programs::SPELL_CHECK => Some(programs::check_texts(&words)),
        trace::TIMED => Some(trace::timed(&words)),
        trace::NULL_CALLS => Some(trace::make_null_calls(&words)),
        #[cfg(feature = "pages")]
        holdfast_bench::pages::READER => Some(holdfast_bench::pages::play(&words)),
        #[cfg(feature = "sqlite")]
        holdfast_bench::sqlite::PEER => Some(holdfast_bench::sqlite::play(&words)),
        _ => None,
    }
}

fn run(arguments: &Arguments) -> io::Result<Outcome> {
    let (runs, only) = (arguments.runs.get(), arguments.only.as_deref());
    // A log needs no progress.
    let is_watched = io::stderr().is_terminal();
    let progress: &mut dyn FnMut(&str) = &mut |section| {
        if is_watched {
            eprintln!("{section} ...");
        }
    };
    match arguments.suites[0] {
        Suite::Slice => slice::run(runs, progress),
        Suite::Heap => heap::run(runs, only, progress),
        Suite::Applet => applet::run(runs, only, progress),
        Suite::Cuba => cuba::run(runs, only, progress),
        Suite::Persistency => persistency::run(runs, progress),
        Suite::Pool => pool::run(runs, only, progress),
        Suite::Posix => posix::run(runs, only, progress),
        Suite::Programs => programs::run(runs, only, progress),
        Suite::Trace => trace::run(runs, only, progress),
        Suite::Web => web::run(runs, only, progress),
        #[cfg(feature = "pages")]
        Suite::Pages => holdfast_bench::pages::run(runs, only, progress),
        #[cfg(feature = "slow-memory")]
        Suite::Slow => holdfast_bench::slow::run(runs, only, progress),
        #[cfg(feature = "sqlite")]
        Suite::Sqlite => holdfast_bench::sqlite::run(runs, only, progress),
        #[cfg(not(all(feature = "pages", feature = "slow-memory", feature = "sqlite")))]
        suite => {
            let suite = suite.to_possible_value();
            let name = suite.as_ref().map_or("", |suite| suite.get_name());
            Err(io::Error::other(format!(
                "this program was built without the suite {name}; run `cargo xtask bench {name}`"
            )))
        }
    }
}

fn print(outcome: &Outcome, json: bool) -> io::Result<()> {
    let mut text = report::table(&outcome.measurements);
    for note in &outcome.notes {
        text += &format!("note: {note}\n");
    }
    for peer in &outcome.missing {
        text += &format!("missing: {peer}\n");
    }
    if json {
        text += &format!("{}\n", report::json(&outcome.measurements));
    }
    io::stdout().write_all(text.as_bytes())
}

fn status(result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdfast-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Arguments, clap::Error> {
        let words = std::iter::once("holdfast-bench").chain(text.split_whitespace());
        Arguments::parse_checked(words.map(str::to_owned))
    }

    #[test]
    fn suites_are_known_by_their_names() {
        for suite in Suite::value_variants() {
            let name = suite.to_possible_value().unwrap();
            assert_eq!(parsed(&format!("{} --json", name.get_name())).unwrap().suites, [*suite]);
        }
        assert_eq!(parsed("persistency").unwrap().suites, [Suite::Persistency]);
        assert_eq!(parsed("heap --only kv").unwrap().only.as_deref(), Some("kv"));
        assert!(parsed("slice --only kv").is_err() && parsed("heap --only").is_err());
        assert!(parsed("dice").is_err() && parsed("").is_err());
    }

    /// A report is of any suites; what is of one suite alone does not go with it, nor without it
    /// what is of a report.
    #[test]
    fn report_and_suite_have_options_of_their_own() {
        let report = parsed("pool sqlite --quick --out report").unwrap();
        assert_eq!(report.suites, [Suite::Pool, Suite::Sqlite]);
        assert!(parsed("--out report").unwrap().suites.is_empty());
        for text in ["--out r --json", "pool --out r --only flush", "--out r --runs 3"] {
            assert!(parsed(text).is_err(), "{text}");
        }
        for text in [
            "pool --quick",
            "pool --fresh",
            "pool --any-source",
            "pool --no-run",
            "pool --source .",
            "pool sqlite",
        ] {
            assert!(parsed(text).is_err(), "{text}");
        }
        let error = parsed("pool sqlite").unwrap_err().to_string();
        assert!(error.contains("--out DIRECTORY"), "{error}");
    }

    #[test]
    fn the_number_of_runs_is_positive() {
        assert_eq!(parsed("slice --runs 3 --json").unwrap().runs.get(), 3);
        assert!(parsed("slice --runs").is_err() && parsed("slice --runs 0").is_err());
    }
}
