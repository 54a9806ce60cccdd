//! The program `holdfast`; all of it is in the library, so that tests and fuzzing run commands in
//! their own process.

#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(holdfast_cli::run(std::env::args_os()))
}
