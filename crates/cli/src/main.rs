//! The `holdfast` command: runs applets with persistent heaps, and looks after the heaps.
//!
//! Parsing ([`args`]) is apart from doing (one file a command). Results go to standard output, everything
//! else to standard error; nothing is printed for decoration when no person is watching. Every failure ends
//! in one message that says what to do, and in one of the documented exit codes ([`exit`]).

#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "a program: what its modules share is public inside of it")]

mod args;
mod doctor;
mod exit;
mod grant_args;
mod heap;
mod output;
mod run;
mod size;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command, HeapCommand};
use crate::exit::Failure;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match dispatch(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            eprintln!("holdfast: {}", failure.message);
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(cli: Cli) -> Result<u8, Failure> {
    match cli.command {
        Command::Run(options) => run::run(options),
        Command::Heap(HeapCommand::Ls(options)) => heap::ls::run(&options),
        Command::Heap(HeapCommand::Show(options)) => heap::show::run(&options),
        Command::Heap(HeapCommand::Check(options)) => heap::check::run(&options),
        Command::Heap(HeapCommand::Rm(options)) => heap::rm::run(&options),
        Command::Heap(HeapCommand::Grant(options)) => heap::grants::grant(&options),
        Command::Heap(HeapCommand::Revoke(options)) => heap::grants::revoke(&options),
        Command::Heap(HeapCommand::Grants(options)) => heap::grants::list(&options),
        Command::Heap(HeapCommand::Backing(options)) => heap::backing::run(&options),
        Command::Heap(HeapCommand::Checkpoint(options)) => heap::checkpoint::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Completions(options) => {
            clap_complete::generate(options.shell, &mut Cli::command(), "holdfast", &mut std::io::stdout());
            Ok(0)
        }
    }
}
