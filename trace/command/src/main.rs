//! The program `holdfast-trace` (`holdfast trace`): where the time of programs' system calls goes.
//!
//! [`measure`] makes traces, [`collect`] sums them up and shows them, [`compare`] sets them beside
//! each other.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod collect;
mod compare;
mod crossing;
mod failure;
mod measure;
mod show_args;
mod terminal;

use std::process::ExitCode;

use holdfast_trace::StopFlag;

use holdfast_command::exit::{Failure, OTHER};
use holdfast_command::program;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    ExitCode::from(program::run(std::env::args_os(), |cli: Cli| dispatch(cli.command)))
}

fn dispatch(command: Command) -> Result<u8, Failure> {
    // A limit on the size of files is an error of the file that reaches it, told with the rest, and
    // not the end of the tracer. Programs that are started have the signal as usual.
    measure::catch_unless_ignored(&[signal_hook::consts::SIGXFSZ], &StopFlag::default(), OTHER)?;
    // Where this is ignored the kernel takes the ends of children, which are waited for here.
    // Programs that are started have it as usual then.
    if measure::is_ignored(signal_hook::consts::SIGCHLD) {
        measure::catch(&[signal_hook::consts::SIGCHLD], &StopFlag::default(), OTHER)?;
    }
    match command {
        Command::Run(options) => measure::run(options),
        Command::Attach(options) => measure::attach(options),
        Command::Report(options) => compare::report(&options),
        Command::Diff(options) => compare::diff(&options),
        Command::Matrix(options) => compare::matrix(options),
        Command::Import(options) => compare::import(&options),
    }
}
