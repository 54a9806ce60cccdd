//! `holdfast-page` itself: the picture file of a page that is kept is written at once, and all else
//! is left to `holdfast-page-engine`, which this process becomes.
//!
//! Invariant: a process that becomes the other program has printed and written nothing. That one
//! begins from the arguments, and tells whatever there is to tell.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt;
use std::process::{self, ExitCode};
use std::sync::Arc;

use clap::Parser;
use holdfast_command::exit::{Failure, NOT_FOUND, OTHER};
use holdfast_command::{output, program};

use super::args::{Cli, Command, OpenArgs};
use super::{DATA_BYTES_MAX, bound_memory, cache, limits, opening, told, write_png};
use crate::{Address, Files, OpenOptions, PageUse, open_kept_file};

const ENGINE: &str = "holdfast-page-engine";

/// The small program: answers the arguments of this process, or becomes the other one.
pub fn front() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = answer(&arguments) {
        return ExitCode::from(code);
    }
    let failure = become_engine(&arguments);
    output::say(&failure.message);
    ExitCode::from(failure.code)
}

/// The exit code, if the page was kept and its file is written; or could not be.
fn answer(arguments: &[OsString]) -> Option<u8> {
    let is_open = arguments.get(1).is_some_and(|word| word == "open");
    let has = |option: &str| arguments.iter().any(|word| is_option(word, option));
    if !is_open || !has("--png") {
        return None;
    }
    program::answer_in_commands();
    let Ok(Cli { command: Command::Open(args) }) = Cli::try_parse_from(arguments) else {
        return None;
    };
    bound_memory(DATA_BYTES_MAX);
    open_kept(&args)
}

fn is_option(word: &OsStr, option: &str) -> bool {
    word.as_encoded_bytes().starts_with(option.as_bytes())
}

fn open_kept(args: &OpenArgs) -> Option<u8> {
    let path = args.png.as_ref()?;
    let asks_nobody = !args.servers.network && !args.servers.reload && !args.no_cache;
    if !asks_nobody || args.repaint {
        return None;
    }
    let address = Address::parse(&args.page).ok()?;
    let view = args.viewport.view().ok()?.scrolled(args.scroll).scrolled_right(args.scroll_x);
    let limits = limits(args.timeout, &args.servers);
    let cache = cache(&args.place).ok()?;
    let usual = opening(view, &limits, Some(&cache), &args.servers, Arc::new(Files));
    let mut opened = open_kept_file(&address, &OpenOptions { want: PageUse::File, ..usual })?;
    let written = write_png(&mut opened, path).map_err(super::Failure::from);
    Some(told(written.and_then(|encoded| super::report_opened(&opened, Some(encoded), args.json))))
}

/// Only returns why it could not.
fn become_engine(arguments: &[OsString]) -> Failure {
    let missing = || {
        let message = format!(
            "holdfast-page needs the program {ENGINE}, which is neither beside it nor in PATH; install it, or build it \
             in Holdfast's source tree: cargo build --release -p holdfast-page"
        );
        Failure::new(NOT_FOUND, message)
    };
    let Some(program) = holdfast_sys::program::find(OsStr::new(ENGINE)) else { return missing() };
    let error = process::Command::new(&program).args(arguments.iter().skip(1)).exec();
    match error.kind() {
        std::io::ErrorKind::NotFound => missing(),
        _ => Failure::new(OTHER, format!("cannot start {}: {error}", program.display())),
    }
}
