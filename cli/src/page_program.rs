//! The program `holdfast-page`, which lays pages out: it is built apart, since a layout engine is most of its size.

use std::ffi::OsString;
use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::exit::{Failure, NOT_FOUND, OTHER};

const PROGRAM: &str = "holdfast-page";

/// The program as a command.
fn program(command: &str) -> Command {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    // One that is installed beside this one has its version; else any that is found.
    let mut program =
        Command::new(beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM)));
    program.arg(command);
    program
}

fn failed(command: &str, error: &io::Error) -> Failure {
    if error.kind() == ErrorKind::NotFound {
        let message = format!(
            "`holdfast page {command}` needs the program {PROGRAM}, which is neither beside this one nor in PATH; \
             build it: cargo build --release -p {PROGRAM}"
        );
        return Failure::new(NOT_FOUND, message);
    }
    Failure::new(OTHER, format!("cannot start {PROGRAM}: {error}"))
}

/// Becomes that program; returns only when that cannot be done.
pub fn become_it(command: &str, arguments: &[OsString]) -> Failure {
    failed(command, &program(command).args(arguments).exec())
}

/// The name of the document that the cache of pages has of an address.
pub fn document_of(address: &str, cache: &str, key: &str) -> Result<String, Failure> {
    let mut asked = program("document");
    asked.args([address, "--cache", cache, "--key", key]).stdin(Stdio::null());
    let output = asked.output().map_err(|error| failed("query ADDRESS", &error))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let said = text(&output.stderr);
    let code = output.status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(OTHER);
    Err(Failure::new(code, said.strip_prefix("holdfast-page: ").unwrap_or(&said)))
}
