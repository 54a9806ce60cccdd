//! `holdfast sqlite status`, `checkpoint`, `release` and `recover`: what is done to database files
//! without SQLite.
//!
//! One file that fails does not keep the others from it; the exit code is that of the worst.

use std::io;
use std::path::{Path, PathBuf};

use holdfast_keeper_client::DatabaseRoom;
use holdfast_region::Places;
use holdfast_sqlite::{Recovered, SqliteError, State, Status, evict_for_room};
use serde::Serialize;

use crate::args::{FilesArgs, RecoverArgs, StatusArgs};
use holdfast_command::exit::{BAD_FILE, Failure, HELD, NOT_FOUND, OTHER};
use holdfast_command::output::{print, print_json, print_table, say, shown};
use holdfast_command::size::show_size;

/// What `status --json` prints for each database.
#[derive(Debug, Serialize)]
struct DatabaseDetails {
    file: PathBuf,
    state: &'static str,
    /// Why it cannot be opened.
    problem: Option<String>,
    /// These are of its newest commit, and not known where that is not to be seen.
    bytes: Option<u64>,
    is_open: bool,
    commits: Option<u64>,
    commits_not_in_log: Option<u64>,
    commits_not_in_file: Option<u64>,
    dirty_bytes: Option<u64>,
    image: Option<PathBuf>,
    log: Option<PathBuf>,
    saved: Option<PathBuf>,
}

/// The unit in which the pool counts.
const BLOCK_BYTES: u64 = 4096;

pub(crate) fn status(args: &StatusArgs) -> Result<u8, Failure> {
    let (shown, mut worst) = each(&args.files.files, |file| {
        holdfast_sqlite::status(file).map(|found| show(file, found))
    })?;
    if shown.iter().any(|shown| shown.problem.is_some()) {
        worst = worst.max(BAD_FILE);
    }
    if args.json {
        print_json(&shown)?;
        return Ok(worst);
    }
    let rows: Vec<Vec<String>> = shown
        .iter()
        .map(|shown| {
            let count =
                |found: Option<u64>| found.map_or("?".to_owned(), |count| count.to_string());
            let size = |found: Option<u64>| found.map_or("?".to_owned(), show_size);
            vec![
                shown.file.display().to_string(),
                size(shown.bytes),
                count(shown.commits),
                count(shown.commits_not_in_log),
                size(shown.dirty_bytes),
                shown.state.to_owned(),
            ]
        })
        .collect();
    print_table(
        &["FILE", "SIZE", "COMMITS", "ONLY IN POOL", "DIRTY", "STATE"],
        &[1, 2, 3, 4],
        &rows,
    )?;
    for problem in shown.iter().filter_map(|shown| shown.problem.as_deref()) {
        say(format_args!("{problem}"));
    }
    Ok(worst)
}

fn show(file: &Path, found: Status) -> DatabaseDetails {
    let state = match found.state {
        State::Complete => "complete",
        State::Writing => "in use by another program, which is writing: complete when it is done",
        State::Journal => "left by a crash of SQLite: its journal is to be rolled back",
        State::Wal => "WAL mode: left to SQLite",
        State::InUse => "in use: its newest commits are in the pool",
        State::Left => "left by a crash: its newest commits are in the pool",
        State::AsSaved => {
            "left by a crash, and its pool is lost: as the keeper saved it, in the store"
        }
        State::AsFlushed => {
            "left by a crash, and its pool is lost: as of its last flush, in the redo log"
        }
        State::Refused => "cannot be opened",
        _ => "not known",
    };
    let is_seen = !matches!(found.state, State::Refused | State::AsFlushed | State::AsSaved);
    let known = |number: u64| is_seen.then_some(number);
    let [commits, flushed, applied] = found.commits;
    DatabaseDetails {
        file: file.to_owned(),
        state,
        problem: found.problem,
        bytes: known(found.bytes),
        is_open: found.is_open,
        commits: known(commits),
        commits_not_in_log: known(commits.saturating_sub(flushed)),
        commits_not_in_file: known(commits.saturating_sub(applied)),
        dirty_bytes: known(found.dirty_blocks * BLOCK_BYTES),
        image: found.image,
        log: found.log,
        saved: found.saved,
    }
}

pub(crate) fn checkpoint(args: &FilesArgs) -> Result<u8, Failure> {
    let told = each(&args.files, |file| {
        holdfast_sqlite::checkpoint(file)?;
        Ok(format!("{}: all commits are in the file\n", shown(file)))
    });
    let (lines, worst) = told?;
    print(&lines.concat())?;
    Ok(worst)
}

pub(crate) fn release(args: &FilesArgs) -> Result<u8, Failure> {
    let told = each(&args.files, |file| {
        holdfast_sqlite::release(file)?;
        Ok(format!("{}: complete, until a program writes to it again\n", shown(file)))
    });
    let (lines, worst) = told?;
    print(&lines.concat())?;
    Ok(worst)
}

pub(crate) fn recover(args: &RecoverArgs) -> Result<u8, Failure> {
    let told = each(&args.files.files, |file| {
        let recovered = match &args.lost_pool {
            Some(pool) => holdfast_sqlite::recover_without_pool(file, pool),
            None => holdfast_sqlite::recover(file, args.discard),
        };
        let what = match recovered? {
            Recovered::Nothing => "nothing to recover: it was complete",
            Recovered::Everything => "recovered, with every commit",
            Recovered::LastFlush => {
                "recovered as of its last flush: what was in the pool is lost, and with it the commits since then"
            }
            Recovered::Saved => {
                "recovered as the keeper saved it: what was in the pool is lost, and with it the commits since then"
            }
            Recovered::JournalLeft => {
                "not done yet: a transaction that outgrew the pool has left its journal; open and read the database once with the \
                 VFS `holdfast`, which rolls it back"
            }
            Recovered::Discarded => "taken as it is: what was elsewhere is dropped",
        };
        Ok(format!("{}: {what}\n", shown(file)))
    });
    let (lines, worst) = told?;
    print(&lines.concat())?;
    Ok(worst)
}

/// For `holdfast_keeper_client::use_for_room`.
pub(crate) fn make_room(bytes: u64) -> Result<u8, Failure> {
    let report = evict_for_room(&Places::from_env()?, bytes).unwrap_or_default();
    print_json(&DatabaseRoom::from(report))?;
    Ok(0)
}

/// Does something to each file; what came of it, and the worst exit code of those that failed,
/// which are told at once.
fn each<R>(
    files: &[PathBuf],
    mut work: impl FnMut(&Path) -> Result<R, SqliteError>,
) -> Result<(Vec<R>, u8), Failure> {
    let (mut done, mut worst) = (Vec::new(), 0);
    for file in files {
        if let Some(failure) = unusable(file) {
            if files.len() == 1 {
                return Err(failure);
            }
            say(format_args!("{}", failure.message));
            worst = worst.max(failure.code);
            continue;
        }
        // The path that a program opens it by: its redo log lies beside it, wherever a link to it
        // is.
        let path = file.canonicalize().unwrap_or_else(|_| file.clone());
        match work(&path).map_err(failure) {
            Ok(found) => done.push(found),
            Err(failure) if files.len() > 1 => {
                say(format_args!("{}", failure.message));
                worst = worst.max(failure.code);
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok((done, worst))
}

/// Why a path names no file that could be a database.
fn unusable(file: &Path) -> Option<Failure> {
    let name = file.display();
    match file.metadata() {
        Ok(found) if found.is_file() => None,
        Ok(found) if found.is_dir() => {
            Some(Failure::new(BAD_FILE, format!("{name} is a directory; name a database in it")))
        }
        Ok(_) => {
            Some(Failure::new(BAD_FILE, format!("{name} is no regular file; name a database")))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Some(Failure::new(NOT_FOUND, format!("there is no file {name}; name a database")))
        }
        Err(error) => Some(Failure::new(OTHER, format!("cannot look at {name}: {error}"))),
    }
}

fn failure(error: SqliteError) -> Failure {
    let code = match &error {
        SqliteError::Busy { .. } | SqliteError::Elsewhere { .. } => HELD,
        SqliteError::Damaged { .. }
        | SqliteError::LogMissing { .. }
        | SqliteError::LinkedLog { .. }
        | SqliteError::LogForeign { .. }
        | SqliteError::Orphaned { .. }
        | SqliteError::NotADatabase { .. }
        | SqliteError::WalMode { .. }
        | SqliteError::Newer { .. }
        | SqliteError::Replaced { .. } => BAD_FILE,
        _ => OTHER,
    };
    Failure::new(code, error)
}
