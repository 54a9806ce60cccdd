//! The `holdfast` command: runs applets with persistent heaps, and looks after the heaps.
//!
//! Parsing ([`args`]) is apart from doing (one file a command). Results go to standard output, everything
//! else to standard error; nothing is printed for decoration when no person is watching. Every failure ends
//! in one message that says what to do, and in one of the documented exit codes ([`exit`]).
//!
//! Invariant: a command that ended has left nothing in the process that changes the next one, so that a test can run
//! thousands of them. What is here is no interface for programs: those link `holdfast-applet` or `holdfast-region`.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]
#![allow(unreachable_pub, reason = "what the modules of a program share is public inside of it")]

mod applet_args;
mod args;
mod call;
mod completions;
mod doctor;
mod end_report;
mod exit;
mod grant_args;
mod granted;
mod heap;
mod heap_args;
mod keeper;
mod keeper_args;
mod model;
mod model_args;
mod output;
mod page;
mod page_args;
mod page_program;
mod run;
mod size;
mod sqlite;
mod sqlite_args;
mod time;
mod trace;
mod trace_args;
mod trace_show_args;

use std::ffi::OsString;
use std::io::IsTerminal;

use clap::Parser;

use holdfast_sys::terminal::{notice, steers};

use crate::args::{Cli, Command, HeapCommand};
use crate::exit::Failure;

/// Runs one command to its end, as `main` does. The first argument is the program's name. Returns the exit code.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let done = match Cli::try_parse_from(&arguments) {
        Ok(cli) => dispatch(cli),
        Err(refused_or_help) => tell(&refused_or_help, &arguments),
    };
    done.unwrap_or_else(|failure| {
        output::say(&failure.message);
        failure.code
    })
}

/// What is wrong with the arguments, or the help or version that they ask for.
fn tell(error: &clap::Error, arguments: &[OsString]) -> Result<u8, Failure> {
    if error.use_stderr() && arguments.iter().any(|word| word.to_string_lossy().chars().any(steers)) {
        // What was typed is repeated there, and file names are typed by patterns.
        notice(error.render().to_string());
        return Ok(exit::USAGE);
    }
    // A person gets it in the colours that clap chooses. For a file it is printed here, where a full disk is noticed.
    if error.use_stderr() || std::io::stdout().is_terminal() {
        // What cannot be printed changes nothing: the exit code tells.
        let _ = error.print();
        return Ok(u8::try_from(error.exit_code()).unwrap_or(exit::USAGE));
    }
    output::print(&error.render().to_string())?;
    Ok(0)
}

fn dispatch(cli: Cli) -> Result<u8, Failure> {
    // The files of an applet, and those that it is started with, are limited by an error. All else ends as
    // any program does.
    if matches!(cli.command, Command::Run(_) | Command::Call(_)) {
        holdfast_sys::file_size_signal::ignore();
    }
    // A keeper would ask itself.
    if !matches!(cli.command, Command::Keeper(_)) {
        holdfast_keeper::use_for_room();
    }
    match cli.command {
        Command::Run(options) => run::run(options),
        Command::Call(options) => call::run(options),
        Command::Model(options) => model::run(&options),
        Command::Heap(HeapCommand::Ls(options)) => heap::ls::run(&options),
        Command::Heap(HeapCommand::Show(options)) => heap::show::run(&options),
        Command::Heap(HeapCommand::Check(options)) => heap::check::run(&options),
        Command::Heap(HeapCommand::Rm(options)) => heap::rm::run(&options),
        Command::Heap(HeapCommand::Grant(options)) => heap::grants::grant(&options),
        Command::Heap(HeapCommand::Revoke(options)) => heap::grants::revoke(&options),
        Command::Heap(HeapCommand::Grants(options)) => heap::grants::list(&options),
        Command::Heap(HeapCommand::Keys(options)) => heap::keys::run(&options),
        Command::Heap(HeapCommand::Backing(options)) => heap::backing::run(&options),
        Command::Heap(HeapCommand::Checkpoint(options)) => heap::checkpoint::run(&options),
        Command::Heap(HeapCommand::Snapshot(options)) => heap::snapshot::take(&options),
        Command::Heap(HeapCommand::Snapshots(options)) => heap::snapshot::list(&options),
        Command::Heap(HeapCommand::Restore(options)) => heap::snapshot::restore(&options),
        Command::Heap(HeapCommand::Diff(options)) => heap::diff::run(&options),
        Command::Heap(HeapCommand::Cp(options)) => heap::transfer::cp(&options),
        Command::Heap(HeapCommand::Export(options)) => heap::transfer::export(&options),
        Command::Heap(HeapCommand::Import(options)) => heap::transfer::import(&options),
        Command::Heap(HeapCommand::Limit(options)) => heap::transfer::limit(&options),
        Command::Heap(HeapCommand::Stats(options)) => heap::stats::run(&options),
        Command::Heap(HeapCommand::Leaks(options)) => heap::leaks::run(&options),
        Command::Heap(HeapCommand::Repair(options)) => heap::repair::run(&options),
        Command::Heap(HeapCommand::Map(options)) => heap::map::run(&options),
        Command::Heap(HeapCommand::Tidy(options)) => heap::tidy::run(&options),
        Command::Heap(HeapCommand::Salvage(options)) => heap::salvage::run(&options),
        Command::Heap(HeapCommand::Adopt) => heap::adopt::run(),
        Command::Keeper(command) => keeper::run(&command),
        Command::Sqlite(command) => sqlite::run(&command),
        Command::Page(command) => page::run(&command),
        Command::Trace(command) => trace::run(command),
        Command::Doctor(options) => doctor::run(&options),
        Command::Completions(options) => completions::run(&options),
    }
}
