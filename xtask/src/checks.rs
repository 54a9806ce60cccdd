//! Formatting and clippy, over the same features and profile as the tests, so that little is built
//! twice.

use crate::applets;
use crate::c_library;
use crate::command::{cargo, run};
use crate::failure::{Failure, Result};
use crate::python;
use crate::tidy::tidy;
use crate::workspace::{PAGE_PACKAGE, Workspace};

const STRICT: [&str; 3] = ["--", "-D", "warnings"];
/// The fuzz targets: a workspace of their own, which the other one does not know of.
const FUZZING: [&str; 2] = ["--manifest-path", "tests/fuzz/Cargo.toml"];

/// Runs every check, also after one has failed, so that one round shows all there is to mend.
pub(crate) fn lint(workspace: &Workspace) -> Result<()> {
    type Check = (&'static str, fn(&Workspace) -> Result<()>);
    let checks: [Check; 3] = [("tidy", tidy), ("formatting", format), ("clippy", clippy)];
    let mut failed = Vec::new();
    for (name, check) in checks {
        if let Err(failure) = check(workspace) {
            eprintln!("{name}: {failure}");
            failed.push(name);
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Failure::new(format!("not clean: {}; the messages are above", failed.join(", "))))
    }
}

fn format(workspace: &Workspace) -> Result<()> {
    run(cargo(&workspace.root).args(["fmt", "--all", "--check"]))
        .map_err(|_| Failure::new("some files are not formatted; `cargo fmt --all` does it"))?;
    run(cargo(&workspace.root).args(["fmt", "--all", "--check"]).args(FUZZING)).map_err(|_| {
        let does = format!("`cargo fmt --all {}` does it", FUZZING.join(" "));
        Failure::new(format!("some files of `tests/fuzz/` are not formatted; {does}"))
    })
}

fn clippy(workspace: &Workspace) -> Result<()> {
    let lint = |arguments: &[&str], packages: &[String]| {
        run(cargo(&workspace.root).arg("clippy").args(arguments).args(packages).args(STRICT))
    };
    lint(&["--all-targets"], &workspace.select_host())?;
    lint(&["-p", "holdfast-heap", "--features", "crash-points,std", "--all-targets"], &[])?;
    lint(&["-p", "holdfast-persist", "--features", "slow-memory", "--all-targets"], &[])?;
    lint(&["-p", "holdfast-sqlite-model", "--features", "loom", "--all-targets"], &[])?;
    let in_sandbox =
        ["--target", "wasm32-wasip1", "-p", "holdfast-heap", "--features", "std", "--all-targets"];
    lint(&in_sandbox, &[])?;
    lint(&["--target", "wasm32-wasip1"], &workspace.select_guests())?;
    // Without unwinding, which the library for applets cannot do.
    lint(&["--profile", applets::PROFILE, "-p", c_library::APPLET_PACKAGE], &[])?;
    lint(&["-p", PAGE_PACKAGE, "--all-targets"], &[])?;
    lint(&["-p", python::PACKAGE], &[])?;
    let mut fuzzing = cargo(&workspace.root);
    fuzzing.arg("clippy").args(FUZZING).arg("--target-dir").arg(workspace.target.join("fuzzing"));
    run(fuzzing.args(STRICT).env("RUSTFLAGS", "--cfg fuzzing"))
}
