//! The programs; see the library. Here: the heap is attached, the exit status set.

#![forbid(unsafe_code)]

use std::io::{Write, stderr, stdout};
use std::process::ExitCode;

use holdfast_guest::attach_portable;
use holdfast_programs::command;
use holdfast_programs::error::ProgramError;
use holdfast_programs::options::{HELP, Kind, Options};
use holdfast_programs::storage::heap::HeapStorage;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Where standard error is closed there is no one to tell.
            let _ = writeln!(stderr(), "programs: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), ProgramError> {
    let Some(options) = Options::parse(std::env::args().skip(1))? else {
        // Nor here.
        let _ = stdout().write_all(HELP.as_bytes());
        return Ok(());
    };
    match options.kind {
        Kind::Heap => command::run(&mut HeapStorage::new(attach_portable()?), &options),
        _ => command::run_without_heap(&options),
    }
}
