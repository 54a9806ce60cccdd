//! The program `holdfast-page`, which lays pages out: it is built apart, since a layout engine is most of its size.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::exit::{Failure, NOT_FOUND, OTHER};

const PROGRAM: &str = "holdfast-page";

/// Becomes that program; returns only when that cannot be done.
pub fn become_it(command: &str, arguments: &[OsString]) -> Failure {
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name(PROGRAM));
    // One that is installed beside this one has its version; else any that is found.
    let program = beside.filter(|path| path.is_file()).unwrap_or_else(|| PathBuf::from(PROGRAM));
    let error = Command::new(&program).arg(command).args(arguments).exec();
    if error.kind() == ErrorKind::NotFound {
        let message = format!(
            "`holdfast page {command}` needs the program {PROGRAM}, which is neither beside this one nor in PATH; \
             build it: cargo build --release -p {PROGRAM}"
        );
        return Failure::new(NOT_FOUND, message);
    }
    Failure::new(OTHER, format!("cannot start {}: {error}", program.display()))
}
