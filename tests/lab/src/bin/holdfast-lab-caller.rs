//! The program inside the machine of the failure lab that calls an applet; see
//! `holdfast_lab::guest::applets`.
//!
//! A program of its own, since it brings both sandboxes along, and the first process is to start at
//! once.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use holdfast_lab::guest::applets;
use holdfast_lab::guest::part::{VERIFY, WRITE, WRITE_EARLY};
use holdfast_lab::guest::port::told;

fn main() -> ExitCode {
    let result = match std::env::args().nth(1).as_deref() {
        Some(WRITE) => told(applets::write(false)),
        Some(WRITE_EARLY) => told(applets::write(true)),
        Some(VERIFY) => told(applets::verify()),
        _ => Err("this is for the machine of `cargo xtask vm`".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("holdfast-lab-caller: {what}");
            ExitCode::FAILURE
        }
    }
}
