//! Starting programs: every command is shown before it runs, and a failure names it.
//!
//! Invariant: nothing that is started here waits for input.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::failure::{Failure, Result};

/// `cargo` of the toolchain that runs this program, in the workspace's root.
pub(crate) fn cargo(root: &Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root).stdin(Stdio::null());
    command
}

/// Where this package lies: asked when it runs, as a target directory may be another clone's, too.
pub(crate) fn own_folder() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from)
}

/// The same command under a time limit, at which it and its children are ended (exit status 124);
/// so they are when this program is interrupted.
pub(crate) fn with_timeout(command: &Command, timeout_s: u32) -> Command {
    let mut bounded = Command::new(own_folder().join("bounded.sh"));
    bounded
        .arg(timeout_s.to_string())
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null());
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
    let done =
        command.stderr(Stdio::inherit()).output().map_err(|error| cannot_start(command, &error))?;
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
    let mut text =
        program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned();
    for argument in command.get_args() {
        // Writing to a String cannot fail.
        let _ = write!(text, " {}", argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    /// A bounded command returns its own exit status, or 124 when it takes too long.
    #[test]
    fn bounded_command_returns_its_status_or_124() {
        assert_eq!(with_timeout(&shell("exit 7"), 60).status().unwrap().code(), Some(7));
        assert_eq!(with_timeout(&shell("sleep 60"), 1).status().unwrap().code(), Some(124));
    }

    /// An interrupt reaches the children of a bounded command.
    #[test]
    fn interrupt_reaches_children_of_bounded_command() {
        // Each child holds the pipe's end; the end of all of them is the end of the output.
        let bounded = with_timeout(&shell("echo begun; sleep 60 & sleep 60"), 60);
        // The user that started the tests may ignore interrupts, as a shell does for what it puts
        // in the background.
        let mut heard = Command::new("env");
        heard.arg("--default-signal=INT").arg(bounded.get_program()).args(bounded.get_args());
        let mut child = heard.stdout(Stdio::piped()).spawn().unwrap();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        let started = Instant::now();
        let interrupted = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
        assert!(interrupted.unwrap().success());
        std::io::Read::read_to_string(&mut output, &mut line).unwrap();
        assert_eq!(line, "begun\n");
        assert!(!child.wait().unwrap().success());
        assert!(started.elapsed() < Duration::from_secs(30));
    }
}
