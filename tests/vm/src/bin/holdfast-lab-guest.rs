//! The program inside the machine of the failure lab; see `holdfast_lab::guest`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use holdfast_lab::guest::{KEEP, VERIFY, WRITE, WRITE_EARLY, agent, keeping, writer};

fn main() -> ExitCode {
    let word = std::env::args().nth(1);
    let result = match word.as_deref() {
        _ if std::process::id() == 1 => agent::run(),
        Some(WRITE) => writer::write(false),
        Some(WRITE_EARLY) => writer::write(true),
        Some(VERIFY) => writer::verify(),
        Some(KEEP) => keeping::keep(),
        _ => Err("this is for the machine of `cargo xtask vm`".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("holdfast-lab-guest: {what}");
            ExitCode::FAILURE
        }
    }
}
