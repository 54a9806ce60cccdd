//! The installed C library, compilers, and programs that run in a scratch home.
//!
//! Invariants: everything is bounded in time; what is written lies in a temporary directory.

// Each test file uses a part of it.
#![allow(dead_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use holdfast_region::{NameSpace, Places};
use tempfile::TempDir;

/// Longest that anything may take, in seconds.
const TIMEOUT_S: &str = "120";

/// Where `cargo xtask c-library` has put everything, unless `HOLDFAST_C_LIBRARY` says otherwise.
pub(crate) fn prefix() -> PathBuf {
    let prefix = std::env::var_os("HOLDFAST_C_LIBRARY").map(PathBuf::from).unwrap_or_else(|| {
        // A test is TARGET/PROFILE/deps/NAME-HASH.
        let this = std::env::current_exe().unwrap();
        this.ancestors().nth(3).unwrap().join("c-library")
    });
    let built = prefix.join("lib/libholdfast.so").exists();
    assert!(
        built,
        "{} is not built; run ./test, or `cargo xtask c-library` first",
        prefix.display()
    );
    prefix
}

/// How a program gets the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Linking {
    /// `libholdfast.so`.
    Shared,
    /// `libholdfast.a` alone.
    Static,
    /// `libholdfast.a`, and the C library statically, too.
    AllStatic,
}

/// Whether a program is there; a test that lacks one says so.
pub(crate) fn has(program: &str) -> bool {
    let found =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        println!("not run: there is no {program}; ./test installs it");
    }
    found
}

/// What pkg-config says about the installed library, as arguments.
pub(crate) fn pkg_config(arguments: &[&str]) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(arguments).arg("holdfast");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).split_whitespace().map(str::to_owned).collect()
}

/// A directory with a home, a pool, and the programs that were compiled for it.
pub(crate) struct Bench {
    directory: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Bench {
        let memory = Path::new("/dev/shm");
        let mut prefix = tempfile::Builder::new();
        prefix.prefix("holdfast-native-");
        let directory = if memory.is_dir() { prefix.tempdir_in(memory) } else { prefix.tempdir() };
        Bench { directory: directory.unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Compiles `tests/programs/SOURCE`, or what lies at another place from there, as C or C++, as
    /// its ending says.
    pub(crate) fn compile(&self, source: &str, linking: Linking) -> PathBuf {
        let file = source.rsplit('/').next().unwrap_or(source);
        let program = self.path(&format!("{file}.{linking:?}"));
        let source = Path::new("tests/programs").join(source);
        let (compiler, standard) = match source.extension().is_some_and(|ending| ending == "cpp") {
            true => ("g++", "-std=c++17"),
            false => ("cc", "-std=gnu11"),
        };
        let mut command = bounded(Path::new(compiler));
        command
            .args(["-O1", "-Wall", "-Wextra", "-Werror", standard])
            .arg(source)
            .arg("-o")
            .arg(&program);
        command.args(pkg_config(&["--cflags"]));
        match linking {
            Linking::Shared => {
                command.args(pkg_config(&["--libs"])).arg("-lpthread");
                command.arg(format!("-Wl,-rpath,{}", prefix().join("lib").display()));
            }
            Linking::Static => {
                let libraries = pkg_config(&["--static", "--libs"]);
                let exact = |library: String| library.replace("-lholdfast", "-l:libholdfast.a");
                command.args(libraries.into_iter().map(exact));
            }
            Linking::AllStatic => {
                command.arg("-static").args(pkg_config(&["--static", "--libs"]));
            }
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{command:?}: {}", text(&output.stderr));
        program
    }

    /// A program in this home, bounded in time, with no heap named.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = bounded(program);
        self.at_home(&mut command);
        command
    }

    /// The same without the bound, for a test that kills it.
    pub(crate) fn unbounded(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        self.at_home(&mut command);
        command
    }

    fn at_home(&self, command: &mut Command) {
        command.env("HOLDFAST_HOME", self.path("home")).env("HOLDFAST_POOL", self.path("pool"));
        command
            .env_remove("HOLDFAST_HEAP")
            .env_remove("HOLDFAST_HEAP_SIZE")
            .env_remove("HOLDFAST_KEEPER");
        command.stdin(Stdio::null());
    }

    /// Runs `program COMMAND` with the heap `heap` and returns what it printed; it must succeed.
    pub(crate) fn run(&self, program: &Path, command: &str) -> String {
        let output =
            self.command(program).arg(command).env("HOLDFAST_HEAP", "heap").output().unwrap();
        succeeded(&output)
    }

    pub(crate) fn names(&self) -> NameSpace {
        NameSpace::new(Places::at(self.path("home"), self.path("pool")).unwrap())
    }
}

fn bounded(program: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=5", TIMEOUT_S]).arg(program).stdin(Stdio::null());
    command
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What it printed; it must have succeeded and complained about nothing.
pub(crate) fn succeeded(output: &Output) -> String {
    let said = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(output.stderr.is_empty(), "{said}");
    text(&output.stdout)
}
