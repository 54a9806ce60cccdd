//! The program `holdfast-sqlite` (`holdfast sqlite`): databases of the VFS `holdfast`, from
//! outside.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]

mod args;
mod bench;
mod doctor;
mod files;

use std::process::ExitCode;

use holdfast_command::exit::Failure;
use holdfast_command::program;

use crate::args::{Cli, Command};

fn main() -> ExitCode {
    ExitCode::from(program::run(std::env::args_os(), dispatch))
}

fn dispatch(cli: Cli) -> Result<u8, Failure> {
    match &cli.command {
        Command::Status(options) => files::status(options),
        Command::Checkpoint(options) => files::checkpoint(options),
        Command::Release(options) => files::release(options),
        Command::Recover(options) => files::recover(options),
        Command::Bench(options) => bench::run(options),
        Command::MakeRoom(options) => files::make_room(options.bytes),
        Command::Doctor(_) => doctor::run(),
    }
}
