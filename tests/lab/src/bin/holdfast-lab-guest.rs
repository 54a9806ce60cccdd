//! The program inside the machine of the failure lab; see `holdfast_lab::guest`.

#![forbid(unsafe_code)]

use std::process::ExitCode;

use holdfast_lab::guest::part::{DATABASES, HEAPS, VERIFY, WRITE, WRITE_EARLY};
use holdfast_lab::guest::port::told;
use holdfast_lab::guest::{KEEP, agent, database_writer, keeping, writer};
use holdfast_lab::place::Pool;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        _ if std::process::id() == 1 => agent::run(),
        [KEEP] => told(keeping::keep()),
        [WRITE, HEAPS] => told(writer::write(false)),
        [WRITE_EARLY, HEAPS] => told(writer::write(true)),
        [VERIFY, HEAPS] => told(writer::verify()),
        [word, DATABASES, pool] => of_databases(word, pool),
        _ => unknown(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            eprintln!("holdfast-lab-guest: {what}");
            ExitCode::FAILURE
        }
    }
}

fn of_databases(word: &str, pool: &str) -> Result<(), String> {
    match (word, Pool::parse(pool)) {
        (WRITE, Some(pool)) => told(database_writer::write(pool, false)),
        (WRITE_EARLY, Some(pool)) => told(database_writer::write(pool, true)),
        (VERIFY, Some(pool)) => told(database_writer::verify(pool)),
        _ => unknown(),
    }
}

fn unknown() -> Result<(), String> {
    Err("this is for the machine of `cargo xtask vm`".to_owned())
}
