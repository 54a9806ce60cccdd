//! One entry per chore: `cargo xtask CHORE`. Continuous integration runs the same chores as a
//! person.
//!
//! The modules: `workspace` knows the folders and packages, `command` starts programs. Each chore
//! is one module, which holds its arguments and its run: `checks` and `tidy` look at the source,
//! `applets` (with `c_applet`) builds guest programs, `c_library` what native programs in C link,
//! `tests` runs the tests and `outcome` counts them, `crash` runs the fault matrix at other counts,
//! `guarantees` lists the tests behind each promise, `vm` a machine that fails, `sqlite_suite`
//! SQLite's own tests, `fuzz` the targets of `tests/fuzz/`, `python` builds and tests the Python
//! package, `web` the npm package, `release` builds what is shipped, `measure` starts the programs
//! of `bench/`.
//!
//! What it must not do: install anything (`setup.sh` does), or need more than cargo and a C
//! compiler. Three exceptions: `miri` asks rustup for its toolchain, `python` asks pip for what its
//! tests need, into the target directory, and `web` asks npm, into `web/node_modules`.

#![forbid(unsafe_code)]

mod applets;
mod c_applet;
mod c_library;
mod checks;
mod command;
mod crash;
mod failure;
mod fuzz;
mod guarantees;
mod measure;
mod miri;
mod outcome;
mod python;
mod release;
mod sqlite_suite;
mod tests;
mod tidy;
mod vm;
mod web;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use failure::Result;
use workspace::Workspace;

/// One entry per chore.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    disable_help_subcommand = false,
    after_help = "A fresh machine is set up by ./test and ./demo, which then call this."
)]
struct CommandLine {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Lint, applets, test: what continuous integration runs
    Ci,
    /// Tidy, then formatting and clippy, for the host and for WebAssembly
    Lint,
    /// Checks the house rules that no compiler checks (xtask/src/tidy lists them)
    Tidy,
    /// Builds guest programs and prints their paths
    Applets(applets::Arguments),
    /// Builds and installs headers, libholdfast, libholdfast_applet, pkg-config files
    CLibrary(c_library::Arguments),
    /// Builds applets and the C library, then runs every test; ends with `N passed, N failed`
    Test,
    /// Builds the Python package and runs its tests
    Python,
    /// Builds the web package and runs its tests
    Web,
    /// Runs the fault matrix and prints one table
    Crash(crash::Arguments),
    /// Prints the tests behind each promise of docs/guarantees
    Guarantees(guarantees::Arguments),
    /// Fails a machine in QEMU (crash, panic, reset, power cut) and checks what is left
    Vm(vm::Arguments),
    /// Runs SQLite's own test suite over our VFS
    SqliteSuite(sqlite_suite::Arguments),
    /// Fuzzes parsers and tools
    Fuzz(fuzz::Arguments),
    /// Runs tests of the heap in Miri; installs it with a nightly toolchain if it is missing
    Miri,
    /// Builds the programs as they are shipped and prints their paths
    Release,
    /// Measures (bench/README.md explains the keys)
    Bench(measure::Arguments),
}

fn main() -> ExitCode {
    match run(CommandLine::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.is_reported() {
                eprintln!("error: {failure}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> Result<()> {
    let workspace = Workspace::load()?;
    match chore {
        Chore::Ci => tests::ci(&workspace),
        Chore::Lint => checks::lint(&workspace),
        Chore::Tidy => tidy::tidy(&workspace),
        Chore::Applets(arguments) => applets::applets(&workspace, &arguments),
        Chore::CLibrary(arguments) => c_library::c_library(&workspace, arguments),
        Chore::Test => tests::test(&workspace),
        Chore::Python => python::python(&workspace),
        Chore::Web => web::run(&workspace),
        Chore::Crash(arguments) => crash::crash(&workspace, &arguments),
        Chore::Guarantees(arguments) => guarantees::guarantees(&workspace, &arguments),
        Chore::Vm(arguments) => vm::vm(&workspace, &arguments),
        Chore::SqliteSuite(arguments) => sqlite_suite::sqlite_suite(&workspace, &arguments),
        Chore::Fuzz(arguments) => fuzz::fuzz(&workspace, arguments),
        Chore::Miri => miri::miri(&workspace),
        Chore::Release => release::release(&workspace),
        Chore::Bench(arguments) => measure::bench(&workspace, &arguments),
    }
}

#[cfg(test)]
mod unit {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<Chore, clap::Error> {
        let words = std::iter::once("xtask").chain(text.split_whitespace());
        CommandLine::try_parse_from(words).map(|line| line.chore)
    }

    fn complaint(text: &str) -> String {
        parsed(text).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn an_unknown_chore_or_argument_is_refused() {
        assert!(parsed("ci").is_ok() && parsed("").is_err());
        assert!(complaint("bake").contains("bake") && complaint("tidy now").contains("now"));
    }

    #[test]
    fn crash_knows_its_rows() {
        let Ok(Chore::Crash(crash)) = parsed("crash --long --only H1 --only H9 --write --count 5")
        else {
            panic!("not read")
        };
        assert!(crash.long && crash.write && crash.only == ["H1", "H9"] && crash.count == Some(5));
        let complaint = complaint("crash --only H5");
        assert!(complaint.contains("H5") && complaint.contains("H12"), "{complaint}");
        assert!(parsed("crash --count many").is_err() && parsed("crash --fast").is_err());
    }

    #[test]
    fn fuzz_knows_its_targets_and_bounds_the_minutes() {
        let Ok(Chore::Fuzz(fuzz)) = parsed("fuzz region_files --minutes 3") else {
            panic!("not read")
        };
        assert_eq!((fuzz.targets, fuzz.minutes), (vec!["region_files".to_owned()], 3));
        assert!(complaint("fuzz heaps").contains("heap_bytes"));
        assert!(parsed("fuzz --minutes 0").is_err() && parsed("fuzz --minutes").is_err());
    }

    #[test]
    fn sqlite_suite_writes_no_list_from_stock_sqlite() {
        let Ok(Chore::SqliteSuite(suite)) =
            parsed("sqlite-suite --only select1.test --only wal --write")
        else {
            panic!("not read")
        };
        assert!(!suite.stock && suite.write && suite.only == ["select1", "wal"]);
        assert!(parsed("sqlite-suite --stock --write").is_err());
        assert!(parsed("sqlite-suite --only").is_err() && parsed("sqlite-suite --all").is_err());
    }

    #[test]
    fn options_of_the_lab_and_of_the_bench_are_passed_on() {
        let Ok(Chore::Vm(vm)) = parsed("vm --only panic --run echo --help") else {
            panic!("not read")
        };
        assert_eq!(vm.options, ["--only", "panic", "--run", "echo", "--help"]);
        let Ok(Chore::Bench(bench)) = parsed("bench heap --runs 3 --json") else {
            panic!("not read")
        };
        assert_eq!(bench.options, ["--runs", "3", "--json"]);
        assert!(!bench.prepare);
        let Ok(Chore::Bench(bench)) = parsed("bench heap --prepare") else { panic!("not read") };
        assert!(bench.prepare && bench.options.is_empty());
        let Ok(Chore::Bench(bench)) = parsed("bench report pool --quick --out r") else {
            panic!("not read")
        };
        assert_eq!(bench.options, ["pool", "--quick", "--out", "r"]);
        assert!(complaint("bench dice").contains("persistency"));
    }
}
