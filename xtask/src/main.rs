//! One entry per chore: `cargo xtask CHORE`. What continuous integration runs is what a person runs.
//!
//! A map of the modules: `workspace` knows where everything is, `command` starts programs, `checks` and
//! `tidy` look at the source, `applets` builds guest programs, `c_library` what native programs in C link,
//! `tests` runs the tests and `outcome` counts them, `crash` runs those of the fault matrix at other counts, `vm` those of a
//! machine that fails, `sqlite_suite` SQLite's own tests, `fuzz` builds and runs what is in `tests/fuzz/`, `python` builds and tests the Python package, `release` builds the command as it is shipped, `measure`
//! starts the programs of `bench/` with it.
//!
//! What it must not do: install anything (that is `setup.sh`; but `miri` asks rustup for its toolchain, and `python`
//! asks pip for what its tests need, into the target directory), or need more
//! than cargo and a C compiler.

#![forbid(unsafe_code)]

mod applets;
mod c_applet;
mod c_library;
mod checks;
mod command;
mod crash;
mod failure;
mod fuzz;
mod measure;
mod miri;
mod outcome;
mod python;
mod release;
mod sqlite_suite;
mod tests;
mod tidy;
mod vm;
mod workspace;

use std::process::ExitCode;

use failure::{Failure, Result};
use workspace::Workspace;

const USAGE: &str = "\
One entry per chore.

usage: cargo xtask CHORE

  ci                               lint, applets, test: what continuous integration runs
  lint                             tidy, then formatting and clippy, for the host and for WebAssembly
  tidy                             the house rules that no compiler checks (xtask/src/tidy says which)
  applets [NAME]...                builds guest programs and says where they are
  c-library [PREFIX]               builds and installs headers, libholdfast, libholdfast_applet, pkg-config files
  test                             applets, c-library, then every test; ends with `N passed, N failed`
  python                           builds the Python package and runs its tests
  crash [--long] [--only ROW]... [--count N] [--write]
                                   the fault matrix as one table; --long for its long counts, --write to
                                   put the results into docs/guarantees.md
  vm [--long] [--only FAILURE]... [--canary] [--run PROGRAM [ARGUMENT]...]
                                   a machine in QEMU that crashes, panics, is reset and loses its power, and what is
                                   there afterwards; --long for 40 of each; --run for a program of one's choice in it
  sqlite-suite [--only FILE]... [--write] [--stock]
                                   SQLite's own test suite over our VFS; --write adds what passes to the list that never
                                   shrinks; --stock for SQLite as it is
  fuzz [TARGET]... [--minutes N]   fuzzes channel, heap_bytes, heap_operations, heap_tools, keeper_wire, region_files,
                                   document, strace_log, 10 minutes each
  miri                             tests of the heap in Miri; installs it with a nightly toolchain if it is missing
  release                          builds the command as it is shipped and says where it is
  bench SUITE [--json] [--runs N]  measures; suites: slice, heap, applet, persistency, pages, pool, slow,
                                   sqlite, trace (bench/README.md)
  demo                             the main job, cold, killed, warm and the old way, as one table

A fresh machine is set up by ./test and ./demo, which then call this.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_told() {
                eprintln!("error: {failure}");
            }
            failure.exit_code()
        }
    }
}

fn dispatch(arguments: &[String]) -> Result<()> {
    let Some((chore, rest)) = arguments.split_first() else {
        return Err(Failure::usage("no chore is named", USAGE));
    };
    if matches!(chore.as_str(), "help" | "-h" | "--help") {
        print!("{USAGE}");
        return Ok(());
    }
    let workspace = Workspace::load()?;
    let takes_arguments = matches!(
        chore.as_str(),
        "applets" | "bench" | "c-library" | "crash" | "fuzz" | "sqlite-suite" | "vm"
    );
    if let (false, Some(extra)) = (takes_arguments, rest.first()) {
        return Err(Failure::usage(format!("`{chore}` takes no argument, but got `{extra}`"), USAGE));
    }
    match chore.as_str() {
        "ci" => tests::ci(&workspace),
        "lint" => checks::lint(&workspace),
        "tidy" => tidy::tidy(&workspace),
        "applets" => applets::applets(&workspace, rest),
        "c-library" => c_library::c_library(&workspace, rest, USAGE),
        "test" => tests::test(&workspace),
        "python" => python::python(&workspace),
        "crash" => crash::crash(&workspace, rest, USAGE),
        "fuzz" => fuzz::fuzz(&workspace, rest, USAGE),
        "sqlite-suite" => sqlite_suite::sqlite_suite(&workspace, rest, USAGE),
        "vm" => vm::vm(&workspace, rest),
        "miri" => miri::miri(&workspace),
        "release" => release::release(&workspace),
        "bench" => measure::bench(&workspace, rest, USAGE),
        "demo" => measure::demo(&workspace),
        other => Err(Failure::usage(format!("there is no chore `{other}`"), USAGE)),
    }
}
