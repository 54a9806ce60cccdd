//! The arguments of the program. Data only: nothing is looked up or opened here.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use holdfast_command::exit::CODES;

const HELP: &str = "\
Examples:
  holdfast sqlite status notes.db
  holdfast sqlite checkpoint notes.db       # bring the newest commits into the file
  holdfast sqlite release notes.db          # before copying a database that is in use, or reading it without the VFS
  holdfast sqlite recover notes.db          # after a crash, for a program that knows nothing of Holdfast
  holdfast sqlite bench work.sql --database notes.db

Programs use the VFS `holdfast` by loading libholdfast_sqlite.so into SQLite and opening `file:notes.db?vfs=holdfast`.";

const BENCH_HELP: &str = "\
Examples:
  holdfast sqlite bench work.sql --database notes.db
  holdfast sqlite bench work.sql --setup schema.sql --runs 9 --json

Runs the file in the `sqlite3` of the system, in turns over fresh databases: with a write-ahead log and synchronous=FULL and \
NORMAL, and over the VFS `holdfast` at its levels. The time is that of the whole run, the close of the database included. \
Nothing but fresh databases in a temporary directory is written to, unless the SQL itself attaches others.";

const RELEASE_HELP: &str = "\
Example:
  holdfast sqlite release notes.db && cp notes.db backup.db

Programs that have the database open go on, and keep it; with the next write of one of them its newest commits are elsewhere \
again, and the file says so. Waits for readers for a moment, and fails when somebody is in a transaction.";

const RECOVER_HELP: &str = "\
Examples:
  holdfast sqlite recover notes.db
  holdfast sqlite recover --discard notes.db

Nobody may have the database open. From the pool comes its newest commit; without the pool, from the redo log beside it, \
that of its last flush, or what a keeper saved later. --discard drops what is in the pool: it is for a damaged pool image, and for a copy without its log, \
which is then taken as it is. Commits that are sound, or that may be in the pool of another home or container, it does not drop, \
unless --lost-pool names that pool as the refusal does.";

/// Look after databases of the SQLite VFS `holdfast`, and measure what it gains
#[derive(Debug, Parser)]
#[command(name = "holdfast-sqlite", bin_name = "holdfast sqlite", version, after_help = format!("{HELP}\n\n{CODES}"), max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say where the newest commits of databases are
    #[command(after_help = "Example:\n  holdfast sqlite status notes.db --json")]
    Status(StatusArgs),
    /// Bring all commits into the database files, also of databases that are open
    #[command(after_help = "Example:\n  holdfast sqlite checkpoint notes.db")]
    Checkpoint(FilesArgs),
    /// Bring all commits into the database files, and let any program read or copy them until one
    /// writes again
    #[command(after_help = RELEASE_HELP)]
    Release(FilesArgs),
    /// Make databases complete that a crash left behind
    #[command(after_help = RECOVER_HELP)]
    Recover(RecoverArgs),
    /// Run SQL over WAL and over Holdfast, and say what is gained at which durability
    #[command(after_help = BENCH_HELP)]
    Bench(BenchArgs),
    /// Evict databases that no process has, until so many bytes are free in the pool: for programs
    /// that found no room
    #[command(hide = true)]
    MakeRoom(MakeRoomArgs),
    /// Print findings for `holdfast doctor`
    #[command(hide = true)]
    Doctor(DoctorArgs),
}

#[derive(Debug, Args)]
pub(crate) struct MakeRoomArgs {
    /// Bytes that shall be free
    pub(crate) bytes: u64,
    /// Print JSON, which is the only form
    #[arg(long, required = true)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Print JSON, which is the only form
    #[arg(long, required = true)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FilesArgs {
    /// The databases
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    pub(crate) files: FilesArgs,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RecoverArgs {
    #[command(flatten)]
    pub(crate) files: FilesArgs,
    /// Drop what is in the pool: take the last flush from the redo log, or the files as they are
    /// without one that fits
    #[arg(long)]
    pub(crate) discard: bool,
    /// With --discard: also what may still be in this pool, as the refusal names it (a path, or
    /// `unknown`)
    #[arg(long, value_name = "POOL", requires = "discard")]
    pub(crate) lost_pool: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BenchArgs {
    /// The SQL that is measured; dot commands of the shell are allowed
    pub(crate) sql: PathBuf,
    /// Begin each run with a copy of this database
    #[arg(long, value_name = "FILE")]
    pub(crate) database: Option<PathBuf>,
    /// SQL that makes the tables, before the time counts
    #[arg(long, value_name = "FILE")]
    pub(crate) setup: Option<PathBuf>,
    /// How often each mode is measured
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) runs: u16,
    /// Where the databases are made: on the disk that is in question [default: where the SQL file
    /// is]
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) directory: Option<PathBuf>,
    /// The shell of SQLite
    #[arg(long, value_name = "PROGRAM", default_value = "sqlite3")]
    pub(crate) shell: PathBuf,
    /// The extension [default: libholdfast_sqlite.so beside this program, or in ../lib]
    #[arg(long, value_name = "FILE", env = "HOLDFAST_SQLITE_EXTENSION")]
    pub(crate) extension: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
