//! `holdfast sqlite bench`: the user's own SQL in each way to commit.
//!
//! It runs in the `sqlite3` of the system, because that is the SQLite that the user has, and
//! because the SQL may have dot commands; a library of our own would answer for another version.
//! Modes take turns, each first every other time.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use serde::Serialize;
use tempfile::TempDir;

use crate::args::BenchArgs;
use holdfast_command::exit::{Failure, NOT_FOUND, OTHER, USAGE};
use holdfast_command::output::{print, print_json, print_table, with_progress};

const EXTENSION: &str = "libholdfast_sqlite.so";
/// In the working directory of each run.
const DATABASE: &str = "bench.db";
const ORIGIN: &str = "origin.db";

/// A way to commit, and what a commit then survives.
struct Mode {
    name: &'static str,
    /// Parameters of the URI.
    parameters: &'static str,
    pragmas: &'static str,
    crash: &'static str,
    reset: &'static str,
    power: &'static str,
}

const MODES: [Mode; 5] = [
    Mode {
        name: "WAL, FULL",
        parameters: "",
        pragmas: "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;",
        crash: "yes",
        reset: "yes",
        power: "yes",
    },
    Mode {
        name: "WAL, NORMAL",
        parameters: "",
        pragmas: "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        crash: "yes",
        reset: "last checkpoint",
        power: "last checkpoint",
    },
    Mode {
        name: "holdfast, power",
        parameters: "?vfs=holdfast&level=power",
        pragmas: "",
        crash: "yes",
        reset: "yes",
        power: "yes",
    },
    Mode {
        name: "holdfast, system",
        parameters: "?vfs=holdfast&level=system",
        pragmas: "",
        crash: "yes",
        reset: "yes",
        power: "last flush, or yes",
    },
    Mode {
        name: "holdfast, process",
        parameters: "?vfs=holdfast&level=process",
        pragmas: "",
        crash: "yes",
        reset: "last flush",
        power: "last flush",
    },
];

/// What `--json` prints for each mode.
#[derive(Debug, Serialize)]
struct Measured {
    mode: &'static str,
    /// Median, least and most of all runs.
    seconds: f64,
    seconds_min: f64,
    seconds_max: f64,
    /// The median of the ratios of neighbours: how often as fast as WAL with synchronous=FULL.
    times_as_fast: f64,
    survives_crash: &'static str,
    survives_reset: &'static str,
    survives_power_cut: &'static str,
}

/// What all runs share.
struct Bench {
    shell: PathBuf,
    extension: PathBuf,
    sql: PathBuf,
    setup: Option<PathBuf>,
    scratch: TempDir,
    has_origin: bool,
}

pub(crate) fn run(args: &BenchArgs) -> Result<u8, Failure> {
    let bench = Bench::new(args)?;
    let seconds = with_progress("measuring", || bench.measure(usize::from(args.runs)))?;
    let measured: Vec<Measured> =
        MODES.iter().zip(&seconds).map(|(mode, all)| measured(mode, all, &seconds[0])).collect();
    if args.json {
        print_json(&measured)?;
        return Ok(0);
    }
    let rows: Vec<Vec<String>> = measured.iter().map(row).collect();
    print_table(
        &["MODE", "SECONDS", "MIN", "MAX", "TIMES AS FAST", "CRASH", "RESET", "POWER CUT"],
        &[1, 2, 3, 4],
        &rows,
    )?;
    print(
        "CRASH, RESET, POWER CUT: whether a commit outlives them, or to what the database then goes back\n",
    )?;
    Ok(0)
}

fn measured(mode: &Mode, seconds: &[f64], baseline: &[f64]) -> Measured {
    let ratios: Vec<f64> =
        baseline.iter().zip(seconds).map(|(theirs, ours)| theirs / ours).collect();
    Measured {
        mode: mode.name,
        seconds: median(seconds),
        seconds_min: seconds.iter().copied().fold(f64::INFINITY, f64::min),
        seconds_max: seconds.iter().copied().fold(0.0, f64::max),
        times_as_fast: median(&ratios),
        survives_crash: mode.crash,
        survives_reset: mode.reset,
        survives_power_cut: mode.power,
    }
}

fn row(measured: &Measured) -> Vec<String> {
    let number = |value: f64| format!("{value:.3}");
    vec![
        measured.mode.to_owned(),
        number(measured.seconds),
        number(measured.seconds_min),
        number(measured.seconds_max),
        format!("{:.1}", measured.times_as_fast),
        measured.survives_crash.to_owned(),
        measured.survives_reset.to_owned(),
        measured.survives_power_cut.to_owned(),
    ]
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

impl Bench {
    fn new(args: &BenchArgs) -> Result<Bench, Failure> {
        let sql = file(&args.sql)?;
        let setup = args.setup.as_deref().map(file).transpose()?;
        let found = Command::new(&args.shell).arg("--version").stdin(Stdio::null()).output();
        if !found.is_ok_and(|output| output.status.success()) {
            return Err(Failure::new(
                NOT_FOUND,
                format!(
                    "the shell of SQLite ({}) cannot be started; install it (`apt-get install sqlite3`), or name another \
                     with --shell",
                    args.shell.display()
                ),
            ));
        }
        let beside = sql.parent().map_or_else(|| PathBuf::from("."), Path::to_owned);
        let directory = args.directory.clone().unwrap_or(beside);
        let scratch =
            tempfile::Builder::new().prefix("holdfast-sqlite-bench-").tempdir_in(&directory);
        let scratch = scratch.map_err(|error| {
            let place = directory.display();
            Failure::new(
                OTHER,
                format!(
                    "cannot make a directory in {place}: {error}; choose another with --directory"
                ),
            )
        })?;
        let mut bench = Bench {
            shell: args.shell.clone(),
            extension: extension(args.extension.as_deref())?,
            sql,
            setup,
            scratch,
            has_origin: false,
        };
        if let Some(database) = &args.database {
            let database = file(database)?;
            bench.shell(&[], Some(&database), &format!(".backup {ORIGIN}\n"))?;
            bench.has_origin = true;
        }
        Ok(bench)
    }

    /// Seconds of each mode; a round before the first does not count.
    fn measure(&self, runs: usize) -> Result<Vec<Vec<f64>>, Failure> {
        let mut seconds = vec![Vec::new(); MODES.len()];
        for round in 0..=runs {
            for turn in 0..MODES.len() {
                let index = (round + turn) % MODES.len();
                let taken = self.once(&MODES[index])?;
                if round > 0 {
                    seconds[index].push(taken);
                }
            }
        }
        Ok(seconds)
    }

    fn once(&self, mode: &Mode) -> Result<f64, Failure> {
        let work = self.scratch.path().join("work");
        let broken = |error: std::io::Error| {
            Failure::new(OTHER, format!("cannot prepare {}: {error}", work.display()))
        };
        if work.exists() {
            fs::remove_dir_all(&work).map_err(broken)?;
        }
        fs::create_dir(&work).map_err(broken)?;
        if self.has_origin {
            fs::copy(self.scratch.path().join(ORIGIN), work.join(DATABASE)).map_err(broken)?;
        }
        let load = format!(".load {}\n", quoted(&self.extension)?);
        let open =
            format!("{load}.open \"file:{DATABASE}{}\"\n{}\n", mode.parameters, mode.pragmas);
        if let Some(setup) = &self.setup {
            self.shell(&["work"], None, &format!("{open}.read {}\n", quoted(setup)?))?;
        }
        let script = format!("{open}.read {}\n", quoted(&self.sql)?);
        let started = Instant::now();
        self.shell(&["work"], None, &script)?;
        Ok(started.elapsed().as_secs_f64())
    }

    /// Runs a script in the shell, in that folder of the scratch directory.
    fn shell(&self, folder: &[&str], database: Option<&Path>, script: &str) -> Result<(), Failure> {
        let directory =
            folder.iter().fold(self.scratch.path().to_owned(), |path, part| path.join(part));
        let input = self.scratch.path().join("script");
        let broken = |error: std::io::Error| {
            Failure::new(OTHER, format!("cannot run the shell of SQLite: {error}"))
        };
        fs::write(&input, script).map_err(broken)?;
        let mut command = Command::new(&self.shell);
        command.args(["-batch", "-bail", "-init", "/dev/null"]).current_dir(directory);
        command.arg(database.unwrap_or(Path::new(":memory:")));
        command
            .stdin(fs::File::open(&input).map_err(broken)?)
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let output = command.output().map_err(broken)?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(Failure::new(
            OTHER,
            format!("SQLite refused: {}; mend the SQL, or the file that it names", said.trim()),
        ))
    }
}

/// A path as the shell of SQLite reads it.
fn quoted(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().filter(|text| !text.contains(['"', '\\', '\n']));
    let text = text.ok_or_else(|| {
        Failure::new(
            USAGE,
            format!("{} cannot be named to the shell of SQLite; rename it", path.display()),
        )
    })?;
    Ok(format!("\"{text}\""))
}

/// A file that is there, by its whole path.
fn file(path: &Path) -> Result<PathBuf, Failure> {
    match path.canonicalize() {
        Ok(path) if path.is_file() => Ok(path),
        Ok(_) => Err(Failure::new(NOT_FOUND, format!("{} is no file; name one", path.display()))),
        Err(error) => Err(Failure::new(
            NOT_FOUND,
            format!("{}: {error}; name a file that is there", path.display()),
        )),
    }
}

/// The extension that was asked for, or the one that was installed with this program.
fn extension(asked: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = asked {
        return file(path);
    }
    let program = std::env::current_exe().map_err(|error| Failure::new(OTHER, error))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(EXTENSION), folder.join("../lib").join(EXTENSION)];
    places.iter().find(|path| path.is_file()).cloned().ok_or_else(|| {
        Failure::new(
            NOT_FOUND,
            format!(
                "{EXTENSION} is neither beside this program nor in ../lib; `cargo build --release -p \
                 holdfast-sqlite-extension` makes it, --extension names it"
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ratios are of neighbours and the baseline is as fast as itself.
    #[test]
    fn ratios_compare_neighbours_and_baseline_is_one() {
        let full = [4.0, 2.0, 8.0];
        assert_eq!(measured(&MODES[0], &full, &full).times_as_fast, 1.0);
        let ours = measured(&MODES[4], &[1.0, 1.0, 1.0], &full);
        assert_eq!(
            (ours.times_as_fast, ours.seconds, ours.survives_power_cut),
            (4.0, 1.0, "last flush")
        );
    }

    /// A path that the shell would read otherwise is refused.
    #[test]
    fn ambiguous_shell_path_is_refused() {
        assert_eq!(quoted(Path::new("/a b/c.sql")).unwrap(), "\"/a b/c.sql\"");
        assert!(quoted(Path::new("/a\"b")).is_err());
    }
}
