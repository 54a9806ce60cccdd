//! `holdfast-bench SUITE [--json] [--runs N]`: measures, prints a table and, with `--json`, one
//! line of JSON as the last.
//!
//! Some suites start this program again as the other side of a measurement: then its first argument
//! names a role, and what follows is the role's own.

#![forbid(unsafe_code)]

use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, ValueEnum};

use holdfast_bench::report::{self, Outcome};
use holdfast_bench::{applet, heap, persistency, pool, slice, trace, web};

#[derive(Debug, Clone, Copy, PartialEq, ValueEnum)]
enum Suite {
    Slice,
    Heap,
    Applet,
    Pages,
    Persistency,
    Pool,
    Slow,
    Sqlite,
    Trace,
    Web,
}

/// Compares with named peers in the same run (bench/README.md explains the keys).
#[derive(Debug, Parser)]
#[command(name = "holdfast-bench")]
struct Arguments {
    suite: Suite,
    /// Prints one line of JSON as the last
    #[arg(long)]
    json: bool,
    /// Repetitions of each measurement
    #[arg(long, value_name = "N", default_value = "15")]
    runs: NonZeroUsize,
    /// Runs one section of the suite
    #[arg(long, value_name = "SECTION")]
    only: Option<String>,
}

impl Arguments {
    fn parse_checked(words: impl Iterator<Item = String>) -> Result<Arguments, clap::Error> {
        let arguments = Arguments::try_parse_from(words)?;
        let has_sections =
            !matches!(arguments.suite, Suite::Slice | Suite::Persistency | Suite::Slow);
        if arguments.only.is_some() && !has_sections {
            let text = "this suite has no sections; leave out --only";
            return Err(Arguments::command().error(ErrorKind::ArgumentConflict, text));
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
    #[cfg(feature = "sqlite")]
    if arguments.suite == Suite::Sqlite {
        match holdfast_bench::sqlite::in_scratch_home() {
            Ok(None) => {}
            Ok(Some(code)) => return code,
            Err(error) => return status(Err(error)),
        }
    }
    status(run(&arguments).and_then(|outcome| print(&outcome, arguments.json)))
}

/// Plays the role that the arguments name, if they name one.
fn play_role() -> Option<io::Result<()>> {
    let mut words = std::env::args().skip(1);
    let role = words.next()?;
    let words: Vec<String> = words.collect();
    match role.as_str() {
        applet::PEER => Some(applet::play(words.first().map_or("", String::as_str))),
        trace::TIMED => Some(trace::timed(&words)),
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
    match arguments.suite {
        Suite::Slice => slice::run(runs, progress),
        Suite::Heap => heap::run(runs, only, progress),
        Suite::Applet => applet::run(runs, only, progress),
        Suite::Persistency => persistency::run(runs, progress),
        Suite::Pool => pool::run(runs, only, progress),
        Suite::Trace => trace::run(runs, only, progress),
        Suite::Web => web::run(runs, only, progress),
        #[cfg(feature = "pages")]
        Suite::Pages => holdfast_bench::pages::run(runs, only, progress),
        #[cfg(feature = "slow-memory")]
        Suite::Slow => holdfast_bench::slow::run(runs, progress),
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
            assert_eq!(parsed(&format!("{} --json", name.get_name())).unwrap().suite, *suite);
        }
        assert_eq!(parsed("persistency").unwrap().suite, Suite::Persistency);
        assert_eq!(parsed("heap --only kv").unwrap().only.as_deref(), Some("kv"));
        assert!(parsed("slice --only kv").is_err() && parsed("heap --only").is_err());
        assert!(parsed("dice").is_err() && parsed("").is_err());
    }

    #[test]
    fn the_number_of_runs_is_positive() {
        assert_eq!(parsed("slice --runs 3 --json").unwrap().runs.get(), 3);
        assert!(parsed("slice --runs").is_err() && parsed("slice --runs 0").is_err());
    }
}
