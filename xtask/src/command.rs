//! Starting programs: every command is shown before it runs, and a failure names it.
//!
//! Invariant: nothing that is started here waits for input.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::failure::{Failure, Result};

/// `cargo` of the toolchain that runs this program, in the workspace's root.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).stdin(Stdio::null());
    command
}

/// The same command under `timeout`, which ends it and its children (exit status 124) when it takes longer.
pub(crate) fn with_timeout(command: &Command, timeout_s: u32) -> Command {
    let mut bounded = Command::new("timeout");
    bounded.args(["--kill-after=10", &timeout_s.to_string()]);
    bounded.arg(command.get_program()).args(command.get_args()).stdin(Stdio::null());
    if let Some(directory) = command.get_current_dir() {
        bounded.current_dir(directory);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => bounded.env(name, value),
            None => bounded.env_remove(name),
        };
    }
    bounded
}

/// Shows the command, runs it, and fails if it does.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    show(command);
    let status = command.status().map_err(|error| cannot_start(command, &error))?;
    if status.success() {
        Ok(())
    } else {
        Err(Failure::new(format!("`{}` ended with {status}", text(command))))
    }
}

/// Runs a command that is no news to a reader and returns what it wrote.
pub(crate) fn output(command: &mut Command) -> Result<Vec<u8>> {
    let done = command.stderr(Stdio::inherit()).output().map_err(|error| cannot_start(command, &error))?;
    if done.status.success() {
        Ok(done.stdout)
    } else {
        Err(Failure::new(format!("`{}` ended with {}", text(command), done.status)))
    }
}

pub(crate) fn show(command: &Command) {
    eprintln!("$ {}", text(command));
}

pub(crate) fn cannot_start(command: &Command, error: &std::io::Error) -> Failure {
    let program = command.get_program().to_string_lossy();
    Failure::new(format!("cannot start {program}: {error}; ./test installs what is missing"))
}

/// The command as a person would type it.
pub(crate) fn text(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut text = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    for argument in command.get_args() {
        // Writing to a String cannot fail.
        let _ = write!(text, " {}", argument.to_string_lossy());
    }
    text
}
