//! The built `holdfast` command from outside, with real applets and real dictionaries: what a
//! person types, what they get to see, and what is left on the disk.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    reason = "a failed step fails the test, and the panic names its line"
)]

mod access;
mod ends;
mod faults;
mod guestbook;
mod identities;
mod keeper;
mod main_job;
mod model;
mod page;
mod programs;
mod remedies;
mod repairs;
mod rights;
mod roots;
mod rubbish;
mod scarce;
mod several_heaps;
mod sqlite;
mod streams;
mod terminals;
mod tools;
mod trace;
mod trace_pages;
mod trace_reports;
mod trace_sandbox;
mod trace_watch;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use holdfast_testkit::{Programs, Scratch};

fn scratch() -> Scratch {
    Scratch::new(Programs::find().unwrap()).unwrap()
}

/// A program that does one thing that it should not.
fn victim(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("victims").join(name).with_extension("wat")
}

/// How a command ended, with what it said.
#[derive(Debug)]
struct Finished {
    status: i32,
    out: String,
    err: String,
}

/// Runs a command to its end. It must end by itself, and without a word of Rust's.
fn tell(command: &mut Command) -> Finished {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let told =
        Finished { status: status.code().unwrap_or(-1), out: text(stdout), err: text(stderr) };
    assert!(status.code().is_some(), "{command:?} ended with {status}: {}", told.err);
    assert!(!told.err.contains("panicked at"), "{}", told.err);
    told
}

/// As `tell`, for commands that must succeed; returns what they wrote.
fn succeed(command: &mut Command) -> String {
    let told = tell(command);
    assert_eq!(told.status, 0, "{command:?}: {}{}", told.out, told.err);
    told.out
}
