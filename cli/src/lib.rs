//! The `holdfast` command: runs applets with persistent heaps, and looks after the heaps.
//!
//! Parsing ([`args`]) is apart from doing (one file a command). What all programs of the command
//! line share is in `holdfast-command`. The products (`holdfast sqlite`, `page`, `trace`, `keeper`,
//! `serve`, `model`, `bench`) are programs of their own, which [`products`] finds.
//!
//! Invariant: a command leaves nothing in the process that changes the next one, so a test can run
//! thousands. This is not an interface for programs: those link `holdfast-applet` or
//! `holdfast-region`.

#![forbid(unsafe_code)]
#![deny(clippy::print_stderr, clippy::print_stdout)]
#![allow(unreachable_pub, reason = "what the modules of a program share is public inside of it")]

mod applet_args;
mod args;
mod call;
mod completions;
mod doctor;
mod end_report;
mod grant_args;
mod granted;
mod heap;
mod heap_args;
mod identity;
mod identity_args;
mod products;
mod publisher;
mod remote;
mod run;

use std::ffi::{OsStr, OsString};

use clap::CommandFactory;
use holdfast_command::exit::Failure;
use holdfast_command::{output, program};

use crate::args::{Cli, Command, HeapCommand};

pub use crate::call::failure as call_failure;
pub use crate::run::explain_start as start_failure;

/// Runs one command to its end, as `main` does. The first argument is the program's name. Returns
/// the exit code.
///
/// A product replaces this process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    if let Some((name, passed)) = product(&arguments) {
        let failure = products::exec(&name, &passed);
        output::say(&failure.message);
        return failure.code;
    }
    program::run(arguments, dispatch)
}

/// The program that is to be started, and what it is passed: a product's, or any holdfast-NAME in
/// PATH where the word is no command. Looked for before clap, whose own help would hide the
/// product's.
fn product(arguments: &[OsString]) -> Option<(OsString, Vec<OsString>)> {
    let name = arguments.get(1)?;
    let is_product = |name: &OsStr| products::PRODUCTS.iter().any(|product| name == product.name);
    if name == "help" {
        let asked = arguments.get(2).filter(|asked| is_product(asked))?;
        return Some((asked.clone(), vec!["--help".into()]));
    }
    let is_command = || Cli::command().get_subcommands().any(|command| name == command.get_name());
    let is_option = name.as_encoded_bytes().starts_with(b"-");
    let is_program = is_product(name) || !is_option && !is_command() && products::is_there(name);
    is_program.then(|| (name.clone(), arguments[2..].to_vec()))
}

fn dispatch(cli: Cli) -> Result<u8, Failure> {
    // The files of an applet, and those that it is started with, are limited by an error. All else
    // ends as any program does.
    if matches!(cli.command, Command::Run(_) | Command::Call(_)) {
        holdfast_sys::file_size_signal::ignore();
    }
    holdfast_keeper_client::use_for_room();
    match cli.command {
        Command::Run(options) => run::run(options),
        Command::Call(options) => call::run(options),
        Command::Sign(options) => identity::sign_applet(&options),
        Command::Identity(options) => identity::show(&options),
        Command::Publisher(command) => publisher::run(&command),
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
        Command::Heap(HeapCommand::Adopt(options)) => heap::adopt::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::Completions(options) => completions::run(&options),
    }
}
