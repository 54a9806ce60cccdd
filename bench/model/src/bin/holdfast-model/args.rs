//! The arguments of the program.

use std::path::PathBuf;

use clap::Parser;

const HELP: &str = "\
Examples:
  holdfast model target/applets/md5                      # about a minute; --runs 3 for a first look
  holdfast model target/applets/md5 --wasm target/applets/md5.wasm --plot pays.svg --plot-sizes md5.png
  holdfast model target/applets/md5 --eviction target/applets/eviction --logical-disk target/applets/logicaldisk

`cargo xtask applets md5 eviction logicaldisk` in Holdfast's source tree builds these applets.

A call into an applet costs something, and what is computed there is computed faster than in Python. This measures both, says from \
which length on a computation pays, predicts MD5 over sizes of messages, and measures how far the prediction is off. Python 3 \
(python3 in PATH) computes the same in plain Python.

Exit codes: 0 done; 2 wrong arguments; 125 no python3, or a measurement failed; others as of `call`.";

/// Measure what a call costs here, and from which length on a computation is better done in an
/// applet
#[derive(Debug, Parser)]
#[command(name = "holdfast-model", bin_name = "holdfast model", version, after_help = HELP, max_term_width = 110)]
pub(crate) struct Cli {
    /// The applet md5, native
    #[arg(value_name = "MD5")]
    pub(crate) applet: PathBuf,

    /// The same applet as WebAssembly, to compare its calls and its speed
    #[arg(long, value_name = "MD5.WASM")]
    pub(crate) wasm: Option<PathBuf>,

    /// The applet eviction, native or WebAssembly: a decision that may be too short for a call
    #[arg(long, value_name = "EVICTION")]
    pub(crate) eviction: Option<PathBuf>,

    /// The applet logicaldisk, native or WebAssembly: table look-ups, which pay only when many go
    /// into one call
    #[arg(long, value_name = "LOGICALDISK")]
    pub(crate) logical_disk: Option<PathBuf>,

    /// How often each thing is measured
    #[arg(long, value_name = "NUMBER", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub(crate) runs: u32,

    /// Draw from where on a call pays, over speed-ups
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    pub(crate) plot: Option<PathBuf>,

    /// Draw MD5 over sizes of messages, predicted and measured
    #[arg(long, value_name = "FILE.svg|FILE.png")]
    pub(crate) plot_sizes: Option<PathBuf>,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}
