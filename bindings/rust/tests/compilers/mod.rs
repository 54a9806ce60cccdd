//! Compilers for applets in C and C++, against the installed library.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// Longest that a compiler may take, in seconds.
const TIMEOUT_S: &str = "300";

/// The target directory: a test is TARGET/PROFILE/deps/NAME-HASH.
pub(crate) fn target() -> PathBuf {
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().to_owned()
}

/// Where `cargo xtask c-library` has put everything, unless `HOLDFAST_C_LIBRARY` says otherwise.
pub(crate) fn prefix() -> PathBuf {
    let prefix = std::env::var_os("HOLDFAST_C_LIBRARY").map(PathBuf::from);
    let prefix = prefix.unwrap_or_else(|| target().join("c-library"));
    let built = prefix.join("lib/libholdfast_applet.a").exists();
    assert!(
        built,
        "{} is not built; run ./test, or `cargo xtask c-library` first",
        prefix.display()
    );
    prefix
}

/// The root of the source.
pub(crate) fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

pub(crate) fn bounded(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", TIMEOUT_S]).arg(program).stdin(Stdio::null());
    command
}

pub(crate) fn succeeded(command: &mut Command) -> Output {
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
    output
}

/// Whether a program is there; a test that lacks one says so.
pub(crate) fn has(program: &str) -> bool {
    let asked =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = asked.is_ok_and(|status| status.success());
    if !found {
        println!("not run: there is no {program}; ./test installs it");
    }
    found
}

/// A Python that has Zig, as `./test` installs it.
pub(crate) fn zig() -> Option<PathBuf> {
    let python = target().join("zig/bin/python");
    let asked = Command::new(&python).args(["-m", "ziglang", "version"]).output();
    if asked.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    println!("not run: there is no Zig in {}; ./test installs it", python.display());
    None
}

fn pkg_config() -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig"));
    let output = succeeded(command.args(["--cflags", "--libs", "holdfast-applet"]));
    String::from_utf8(output.stdout).unwrap().split_whitespace().map(str::to_owned).collect()
}

/// Where compiled programs lie.
pub(crate) struct Programs(TempDir);

impl Programs {
    pub(crate) fn new() -> Programs {
        Programs(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Compiles a source below the root as C or C++, as its ending says.
    pub(crate) fn compile(&self, file: &str, options: &[&str]) -> PathBuf {
        let program = self.path(&format!("{}{}", file.replace('/', "-"), options.join("")));
        let (compiler, standard) = match file.ends_with(".cpp") {
            true => ("g++", "-std=c++17"),
            false => ("cc", "-std=gnu11"),
        };
        let mut command = bounded(compiler);
        command.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", standard]).args(options);
        command.arg(source().join(file)).arg("-o").arg(&program).args(pkg_config());
        succeeded(&mut command);
        program
    }
}
