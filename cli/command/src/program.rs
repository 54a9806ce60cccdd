//! From the arguments of a program to its exit code.

use std::ffi::OsString;
use std::io::IsTerminal;

use clap::Parser;
use holdfast_sys::terminal::{notice, steers};

use crate::exit::{Failure, USAGE};
use crate::output::{print, say};

/// Lets errors say what to do as commands of ours; a program's first step.
pub fn answer_in_commands() {
    holdfast_types::set_how_to(&holdfast_remedies::COMMANDS);
}

/// Parses the arguments (the first one is the program's name), runs the command, and prints its
/// failure. Returns the exit code.
pub fn run<P: Parser>(
    arguments: impl IntoIterator<Item = OsString>,
    command: impl FnOnce(P) -> Result<u8, Failure>,
) -> u8 {
    answer_in_commands();
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let done = match P::try_parse_from(&arguments) {
        Ok(parsed) => command(parsed),
        Err(refused_or_help) => tell(&refused_or_help, &arguments),
    };
    done.unwrap_or_else(|failure| {
        say(&failure.message);
        failure.code
    })
}

/// Prints what is wrong with the arguments, or the help or version that they ask for.
pub fn tell(error: &clap::Error, arguments: &[OsString]) -> Result<u8, Failure> {
    if error.use_stderr() && arguments.iter().any(|word| word.to_string_lossy().chars().any(steers))
    {
        // The message repeats the arguments, and file names reach the command line by patterns.
        notice(error.render().to_string());
        return Ok(USAGE);
    }
    // A terminal gets the colours that clap chooses. A file is written by `print`, which reports a
    // full disk.
    if error.use_stderr() || std::io::stdout().is_terminal() {
        // If printing fails, the exit code still tells.
        let _ = error.print();
        return Ok(u8::try_from(error.exit_code()).unwrap_or(USAGE));
    }
    print(&error.render().to_string())?;
    Ok(0)
}
