//! Builds and tests the Python package `bindings/python`.
//!
//! It is installed the way a user does it (`pip install ./bindings/python`, which builds it with
//! maturin) into an environment below the target directory, and its tests run there, against the
//! built applets. The environment is made once; it alone needs the network.
//!
//! Invariant: what could not run is named, and what failed to build counts as a failure.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::command::{cannot_start, output, run, show, with_timeout};
use crate::failure::{Failure, Result};
use crate::outcome::Outcome;
use crate::workspace::Workspace;

/// The crate that it is made of.
pub(crate) const PACKAGE: &str = "holdfast-python";
/// The folder of the package.
const FOLDER: &str = "bindings/python";
/// Compiling the package from nothing on a slow machine.
const INSTALL_TIMEOUT_S: u32 = 40 * 60;
const TEST_TIMEOUT_S: u32 = 20 * 60;
/// The oldest Python that has the buffer protocol in its stable interface.
const VERSION_MIN: (u32, u32) = (3, 11);

/// `cargo xtask python`: the tests alone.
pub(crate) fn python(workspace: &Workspace) -> Result<()> {
    let names =
        ["echo", "guestbook", "ledgers", "notes", "plugin", "plugin-rust", "portable", "trial"];
    crate::applets::build(workspace, &names.map(str::to_owned))?;
    // It needs libraries of the system; without it its tests are named as not run.
    if let Err(reason) = crate::applets::build(workspace, &["video".to_owned()]) {
        println!("{reason}");
    }
    test(workspace)?.report()
}

/// Installs the package and runs its tests; the applets must have been built.
pub(crate) fn test(workspace: &Workspace) -> Result<Outcome> {
    if let Some(reason) = lacks() {
        return Ok(Outcome {
            not_run: vec![format!("the Python package: {reason}")],
            ..Outcome::default()
        });
    }
    let environment = workspace.target.join("python");
    install(workspace, &environment)?;
    let results = environment.join("results.xml");
    let _ = fs::remove_file(&results);
    let mut pytest = Command::new(program(&environment, "python"));
    pytest.args(["-m", "pytest", "-p", "no:cacheprovider", "--junit-xml"]).arg(&results);
    pytest.current_dir(workspace.root.join(FOLDER)).env("HOLDFAST_APPLETS", workspace.applets());
    show(&pytest);
    let mut bounded = with_timeout(&pytest, TEST_TIMEOUT_S);
    let status = bounded.status().map_err(|error| cannot_start(&bounded, &error))?;
    let report = fs::read_to_string(&results).unwrap_or_default();
    let mut outcome = read(&report);
    if !status.success() && outcome.failed == 0 {
        println!("FAILED: the tests of the Python package ended with {status}");
        outcome.failed += 1;
    }
    Ok(outcome)
}

/// Why the package cannot be built here.
fn lacks() -> Option<String> {
    let script = "import sys, venv, ensurepip; print(*sys.version_info[:2])";
    let Ok(found) = output(Command::new("python3").args(["-c", script])) else {
        return Some(
            "there is no python3 with venv; ./test installs it on Debian and Ubuntu".to_owned(),
        );
    };
    let text = String::from_utf8_lossy(&found);
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= VERSION_MIN => None,
        _ => Some(format!(
            "it needs Python {}.{}, and this is {}",
            VERSION_MIN.0,
            VERSION_MIN.1,
            text.trim()
        )),
    }
}

/// Installs the package as it is now; the first time also what its tests need, in an environment of
/// its own.
fn install(workspace: &Workspace, environment: &Path) -> Result<()> {
    let package = workspace.root.join(FOLDER);
    let is_ready = environment.join("ready");
    let pip = || {
        let mut pip = Command::new(program(environment, "python"));
        pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
        // Unoptimised code of ours, as in all other tests, and what is built is kept for the next
        // time.
        pip.env("MATURIN_PEP517_ARGS", "--profile dev").env("CARGO_TARGET_DIR", &workspace.target);
        // Without isolation pip looks for the program `maturin` there, where the environment has
        // it.
        pip.env("PATH", path_with(&environment.join("bin")));
        pip
    };
    // What it was made for; it is made anew when the package asks for something else.
    let wanted = fs::read_to_string(package.join("pyproject.toml"))
        .map_err(|error| Failure::new(format!("cannot read {FOLDER}/pyproject.toml: {error}")))?;
    if fs::read_to_string(&is_ready).is_ok_and(|made_for| made_for == wanted) {
        let mut again = pip();
        again.args(["--no-build-isolation", "--no-deps", "--force-reinstall"]).arg(&package);
        return run(&mut with_timeout(&again, INSTALL_TIMEOUT_S));
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment))?;
    let mut first = pip();
    first.arg(format!("{}[test]", package.display()));
    run(&mut with_timeout(&first, INSTALL_TIMEOUT_S))?;
    let mut tools = pip();
    tools.arg("maturin>=1.9,<2");
    run(&mut with_timeout(&tools, INSTALL_TIMEOUT_S))?;
    let cannot = |error| Failure::new(format!("cannot write {}: {error}", is_ready.display()));
    fs::write(&is_ready, wanted).map_err(cannot)
}

/// Where programs are looked for, with a folder in front.
fn path_with(folder: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    // A folder with a colon in its name cannot be in it.
    std::env::join_paths(folders).unwrap_or(path)
}

fn program(environment: &Path, name: &str) -> PathBuf {
    environment.join("bin").join(name)
}

/// Reads pytest's report in the format of JUnit: counts, and the reasons of what was skipped.
fn read(report: &str) -> Outcome {
    let Some(suite) = element(report, "testsuite") else { return Outcome::default() };
    let count =
        |name| attribute(suite, name).and_then(|count| count.parse::<u64>().ok()).unwrap_or(0);
    let failed = count("failures") + count("errors");
    let passed = count("tests").saturating_sub(failed + count("skipped"));
    let skipped =
        report.match_indices("<skipped ").filter_map(|(at, _)| element(&report[at..], "skipped"));
    let not_run =
        skipped.map(|skipped| attribute(skipped, "message").unwrap_or_default().to_owned());
    Outcome { passed, failed, not_run: not_run.collect() }
}

/// The start tag of the first element of this name.
fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let start = text.find(&format!("<{name} "))?;
    let rest = &text[start..];
    Some(&rest[..rest.find('>')?])
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let start = tag.find(&format!(" {name}=\""))? + name.len() + 3;
    tag[start..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_pytest_are_counted() {
        let report = r#"<?xml version="1.0"?><testsuites name="x"><testsuite name="pytest" errors="1" failures="2"
 skipped="1" tests="10" time="1.0"><testcase name="a"><skipped type="s" message="no numpy">why</skipped></testcase>"#;
        let outcome = read(&report.replace('\n', ""));
        assert_eq!((outcome.passed, outcome.failed), (6, 3));
        assert_eq!(outcome.not_run, ["no numpy"]);
        assert_eq!(read(""), Outcome::default());
    }
}
