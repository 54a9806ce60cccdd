//! Options about what is shown of traces, and about comparisons. Data only, as in `args`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use holdfast_trace::matrix::PlatformSpec;
use holdfast_trace::report::study::Case;

use crate::args::BackendArg;
use holdfast_command::size::parse_size;

pub(crate) const DIFF_HELP: &str = "\
Examples:
  holdfast trace diff before.trace after.trace
  holdfast trace diff runs-before/ runs-after/ --html change.html     # all recordings of a directory are runs of one side

What differs in which calls are made is told apart from what differs in what a call costs. Something is said to differ only where \
intervals of 95 % do not touch; that needs 6 runs on each side for numbers of calls, or 6 calls for their cost.

Exit codes: 0 done, whatever differs; 2 wrong arguments; 3 no such file; 5 a foreign file, or a recording that lacks something; 6 no room for a file; 7 \
any other failure.";

pub(crate) const MATRIX_HELP: &str = "\
Examples:
  holdfast trace matrix --on home=/home/me,memory=/dev/shm -n 10 -- tar -xf /tmp/source.tar
  sudo holdfast trace matrix --on ext4=loop,xfs=loop,tmpfs=loop -n 10 --set-up 'cp -r /usr/share/doc .' -- grep -r needle doc

The program runs in a new, empty directory each time, which the set-up may fill; its standard output goes nowhere. Repetitions take \
turns. KIND=loop makes a file system for the run, in a file without a name that is gone when holdfast is: ext2, ext4, xfs, tmpfs.

Exit codes: 0 done; 2 wrong arguments; 3 no such program or directory; 6 no room for a file; 7 any other failure; 8 only \
root can make file systems.";

pub(crate) const IMPORT_HELP: &str = "\
Examples:
  strace -f -T -ttt -o build.log make; holdfast trace import build.log
  strace -f -c -o build.sum make; holdfast trace import build.sum
  holdfast trace import build.log --beside build.trace    # what strace says, beside what was measured

A log says how long calls took, and not where the time went; sleep is told by the rule of the study \
(Dubeyko et al., 2017, arXiv:1712.07759). Times of day, of the clock and \
since the line before (-t, -tt, -ttt, -r) and the kinds of descriptors (-y, -yy) are used where they are there.

Exit codes: 0 done, also when lines could not be read, which is said; 2 wrong arguments; 3 no such file; 5 nothing in it is a log of \
strace, or a foreign recording or one that lacks something; 6 no room for a file; 7 any other failure.";

/// By what a call is put into a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SchemeArg {
    /// Its name, as the study of Dubeyko et al. (2017) did
    Paper,
    /// Its arguments and what its descriptor is
    Refined,
}

/// How sleep is distinguished from work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SleepArg {
    /// As measured
    Measured,
    /// By the rule of Dubeyko et al. (2017): long calls that wait for others are sleep in whole
    Paper,
}

/// Of what the tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ByArg {
    /// The classes of calls and their parts
    Class,
    /// All calls of one name
    Call,
    /// All calls of a thread
    Thread,
    /// All calls of a process
    Process,
    /// What crosses sandboxes: of traces that were made with --sandbox
    Crossing,
}

/// How traces are summed up.
#[derive(Debug, Clone, Args)]
pub(crate) struct SumArgs {
    /// By what calls are put into classes [default: paper; a report in JSON keeps its own]
    #[arg(long, value_name = "SCHEME")]
    pub(crate) scheme: Option<SchemeArg>,
    /// How sleep is distinguished from work [default: measured; paper for logs; a report in JSON
    /// keeps its own]
    #[arg(long, value_name = "RULE")]
    pub(crate) sleep: Option<SleepArg>,
    /// Rows of each list
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) top: u16,
}

/// What is shown of a trace, and where.
#[derive(Debug, Clone, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) sum: SumArgs,
    /// Only these tables, in full [default: a bit of each]
    #[arg(long, value_name = "WHAT")]
    pub(crate) by: Option<ByArg>,
    /// Set the classes beside those of Dubeyko et al. (2017): installation, diff, browser, office,
    /// compilation
    #[arg(long, value_name = "CASE")]
    pub(crate) study: Option<Case>,
    /// Write the report as a page for a browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the report as JSON to this file; - is standard output, in place of the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Write the report as columns, with tabs between them
    #[arg(long, value_name = "FILE")]
    pub(crate) tsv: Option<PathBuf>,
    /// Write folded stacks, for flame graphs
    #[arg(long, value_name = "FILE")]
    pub(crate) folded: Option<PathBuf>,
    /// Write every call for a viewer of traces, such as Perfetto's
    #[arg(long, value_name = "FILE")]
    pub(crate) perfetto: Option<PathBuf>,
}

/// Where comparisons go.
#[derive(Debug, Clone, Args)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) sum: SumArgs,
    /// Write the comparison as a page for a browser
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the comparison as JSON to this file; - is standard output, in place of the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// A recording, or a directory of them
    pub(crate) a: PathBuf,
    /// The same, for the other side
    pub(crate) b: PathBuf,
    #[command(flatten)]
    pub(crate) compare: CompareArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ImportArgs {
    /// The log; - is standard input
    pub(crate) log: PathBuf,
    /// A recording of the same program, to set beside in the tables
    #[arg(long, value_name = "FILE")]
    pub(crate) beside: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MatrixArgs {
    /// Where: NAME=DIRECTORY, or ext2=loop, ext4=loop, xfs=loop, tmpfs=loop, with commas between
    /// them
    #[arg(long, value_name = "PLATFORMS", required = true, value_delimiter = ',')]
    pub(crate) on: Vec<PlatformSpec>,
    /// How often on each
    #[arg(short = 'n', long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) runs: u32,
    /// How often on each before that, without counting
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub(crate) warm_ups: u32,
    /// A command for the shell that fills the new directory before each run
    #[arg(long, value_name = "COMMAND")]
    pub(crate) set_up: Option<String>,
    /// Leave files in memory: by default they are dropped before each run, where that is allowed
    #[arg(long)]
    pub(crate) keep_caches: bool,
    /// How large file systems are that are made for the run
    #[arg(long, value_name = "SIZE", default_value = "2GiB", value_parser = parse_size)]
    pub(crate) image_size: u64,
    /// How to measure
    #[arg(long, value_name = "BACKEND", default_value = "auto")]
    pub(crate) backend: BackendArg,
    /// The only CPU that the program may use
    #[arg(long, value_name = "CPU")]
    pub(crate) pin: Option<u32>,
    /// Set each platform beside Dubeyko et al. (2017): installation, diff, browser, office,
    /// compilation
    #[arg(long, value_name = "CASE")]
    pub(crate) study: Option<Case>,
    #[command(flatten)]
    pub(crate) compare: CompareArgs,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}
