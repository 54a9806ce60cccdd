//! `holdfast-bench SUITE [--json] [--runs N]`: measures, prints a table and, with `--json`, one line of JSON
//! as the last.

#![forbid(unsafe_code)]

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use holdfast_bench::{applet, heap, persistency, pool, report, slice, trace};

const RUNS_DEFAULT: usize = 15;
const USAGE: &str = "usage: holdfast-bench slice|heap|applet|pages|persistency|pool|slow|sqlite|trace [--json] [--runs N] [--only SECTION]";

#[derive(Debug, Clone, Copy, PartialEq)]
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
}

struct Arguments {
    suite: Suite,
    json: bool,
    runs: usize,
    /// A section of the suite `heap`, `applet`, `pages`, `pool`, `sqlite` or `trace`.
    only: Option<String>,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(applet::PEER) {
        return play(words.next().as_deref());
    }
    if std::env::args().nth(1).as_deref() == Some(trace::TIMED) {
        let words: Vec<String> = std::env::args().skip(2).collect();
        return told(trace::timed(&words));
    }
    #[cfg(feature = "pages")]
    if std::env::args().nth(1).as_deref() == Some(holdfast_bench::pages::READER) {
        let words: Vec<String> = std::env::args().skip(2).collect();
        return told(holdfast_bench::pages::play(&words));
    }
    #[cfg(feature = "sqlite")]
    if std::env::args().nth(1).as_deref() == Some(holdfast_bench::sqlite::PEER) {
        let words: Vec<String> = std::env::args().skip(2).collect();
        return told(holdfast_bench::sqlite::play(&words));
    }
    let arguments = match parse(std::env::args().skip(1)) {
        Ok(arguments) => arguments,
        Err(complaint) => {
            eprintln!("holdfast-bench: {complaint}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    #[cfg(feature = "sqlite")]
    if arguments.suite == Suite::Sqlite {
        match holdfast_bench::sqlite::in_scratch_home() {
            Ok(None) => {}
            Ok(Some(code)) => return code,
            Err(error) => return told(Err(error)),
        }
    }
    // Whoever reads a log needs no progress.
    let watched = std::io::stderr().is_terminal();
    let mut progress = |what: &str| {
        if watched {
            eprintln!("{what} ...");
        }
    };
    let outcome = match arguments.suite {
        Suite::Slice => slice::run(arguments.runs, &mut progress).map(|found| (found, Vec::new())),
        Suite::Heap => heap::run(arguments.runs, arguments.only.as_deref(), &mut progress)
            .map(|found| (found.measurements, found.missing)),
        Suite::Applet => applet::run(arguments.runs, arguments.only.as_deref(), &mut progress)
            .map(|found| (found.measurements, found.missing)),
        #[cfg(feature = "pages")]
        Suite::Pages => holdfast_bench::pages::run(arguments.runs, arguments.only.as_deref(), &mut progress)
            .map(|found| (found.measurements, found.missing)),
        #[cfg(not(feature = "pages"))]
        Suite::Pages => Err(std::io::Error::other(
            "this program was built without documents; run `cargo xtask bench pages`",
        )),
        #[cfg(feature = "slow-memory")]
        Suite::Slow => holdfast_bench::slow::run(arguments.runs, &mut progress)
            .map(|found| (found.measurements, found.missing)),
        #[cfg(not(feature = "slow-memory"))]
        Suite::Slow => Err(std::io::Error::other(
            "this program was built without the model of slow memory; run `cargo xtask bench slow`",
        )),
        #[cfg(feature = "sqlite")]
        Suite::Sqlite => {
            holdfast_bench::sqlite::run(arguments.runs, arguments.only.as_deref(), &mut progress)
                .map(|found| (found.measurements, found.missing))
        }
        #[cfg(not(feature = "sqlite"))]
        Suite::Sqlite => Err(std::io::Error::other(
            "this program was built without SQLite; run `cargo xtask bench sqlite`",
        )),
        Suite::Pool => pool::run(arguments.runs, arguments.only.as_deref(), &mut progress)
            .map(|found| (found.measurements, found.missing)),
        Suite::Trace => trace::run(arguments.runs, arguments.only.as_deref(), &mut progress)
            .map(|found| (found.measurements, found.missing)),
        Suite::Persistency => {
            persistency::run(arguments.runs, &mut progress).map(|found| (found.measurements, found.missing))
        }
    };
    let (measurements, missing) = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            eprintln!("holdfast-bench: {error}");
            return ExitCode::FAILURE;
        }
    };
    let mut text = report::table(&measurements);
    for peer in missing {
        text += &format!("missing: {peer}\n");
    }
    if arguments.json {
        text += &format!("{}\n", report::json(&measurements));
    }
    match std::io::stdout().write_all(text.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The other side of a measurement, which this program has started.
fn play(role: Option<&str>) -> ExitCode {
    told(applet::play(role.unwrap_or_default()))
}

fn told(played: std::io::Result<()>) -> ExitCode {
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdfast-bench: the other side: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Arguments, String> {
    let suite = match arguments.next().as_deref() {
        Some("slice") => Suite::Slice,
        Some("heap") => Suite::Heap,
        Some("applet") => Suite::Applet,
        Some("pages") => Suite::Pages,
        Some("persistency") => Suite::Persistency,
        Some("pool") => Suite::Pool,
        Some("slow") => Suite::Slow,
        Some("sqlite") => Suite::Sqlite,
        Some("trace") => Suite::Trace,
        Some(other) => return Err(format!("there is no suite {other}")),
        None => return Err("no suite is named".to_owned()),
    };
    let mut parsed = Arguments { suite, json: false, runs: RUNS_DEFAULT, only: None };
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => parsed.json = true,
            "--runs" => {
                let number = arguments.next().and_then(|text| text.parse().ok()).filter(|runs| *runs > 0);
                parsed.runs = number.ok_or("--runs needs a number of at least 1")?;
            }
            "--only" if !matches!(suite, Suite::Slice | Suite::Persistency | Suite::Slow) => {
                parsed.only = Some(arguments.next().ok_or("--only needs the name of a section")?);
            }
            other => return Err(format!("there is no option {other}")),
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Arguments, String> {
        parse(text.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn suites_are_known_by_their_names() {
        assert_eq!(parsed("heap").unwrap().suite, Suite::Heap);
        assert_eq!(parsed("slice --json").unwrap().suite, Suite::Slice);
        assert_eq!(parsed("persistency").unwrap().suite, Suite::Persistency);
        assert_eq!(parsed("sqlite --only paper").unwrap().suite, Suite::Sqlite);
        assert_eq!(parsed("pool --only flush").unwrap().suite, Suite::Pool);
        assert_eq!(parsed("trace --only dd").unwrap().suite, Suite::Trace);
        assert_eq!(parsed("pages --only query").unwrap().suite, Suite::Pages);
        assert_eq!(parsed("applet --only channel").unwrap().suite, Suite::Applet);
        assert_eq!(parsed("heap --only kv").unwrap().only.as_deref(), Some("kv"));
        assert!(parsed("slice --only kv").is_err() && parsed("heap --only").is_err());
    }

    #[test]
    fn the_number_of_runs_must_be_one() {
        assert_eq!(parsed("slice --runs 3 --json").unwrap().runs, 3);
        assert!(parsed("slice --runs").is_err() && parsed("slice --runs 0").is_err());
        assert!(parsed("dice").is_err() && parsed("").is_err());
    }
}
