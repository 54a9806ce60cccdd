//! Compiles a program for the kernel's virtual machine. A part of the build script, which
//! `tests/build_script.rs` has, too.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::Command;

/// What came of it.
#[derive(Debug)]
pub(crate) enum Compiled {
    /// The object is there.
    Done,
    /// There is no compiler: the build goes on without.
    NoCompiler(io::Error),
    /// There is one, and this is what it said. A build that went on would lack what it could have.
    Refused(String),
}

pub(crate) fn compile(clang: &OsStr, headers: &Path, source: &Path, object: &Path) -> Compiled {
    let mut command = Command::new(clang);
    command.args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-I"]);
    command.arg(headers).arg("-c").arg(source).arg("-o").arg(object);
    match command.output() {
        Ok(output) if output.status.success() => Compiled::Done,
        Ok(output) => Compiled::Refused(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Compiled::NoCompiler(error),
    }
}
