//! Builds what is measured, optimised, and starts the programs of `bench/`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::applets;
use crate::c_library;
use crate::command::{cargo, run, show};
use crate::failure::{Failure, Result};
use crate::release;
use crate::sqlite_suite;
use crate::workspace::Workspace;

const SUITES: [&str; 9] = [
    "slice",
    PEERS_SUITE,
    APPLET_SUITE,
    PAGES_SUITE,
    BYTES_SUITE,
    POOL_SUITE,
    SLOW_SUITE,
    SQLITE_SUITE,
    TRACE_SUITE,
];
/// The suite that needs the engines that it compares with.
const PEERS_SUITE: &str = "heap";
/// The suite that needs applets and the C library.
const APPLET_SUITE: &str = "applet";
/// The suite that needs real pages, other parsers of HTML, and the program that opens pages.
const PAGES_SUITE: &str = "pages";
/// Package and program that opens pages.
const PAGE_PROGRAM: &str = "holdfast-page";
/// The suite that needs SQLite.
const BYTES_SUITE: &str = "persistency";
/// The suite that needs SQLite, our VFS as an extension, and SQLite's own programs.
const SQLITE_SUITE: &str = "sqlite";
const EXTENSION_PACKAGE: &str = "holdfast-sqlite-extension";
const EXTENSION: &str = "libholdfast_sqlite.so";
/// The suite that starts a keeper, and compares with engines and SQLite.
const POOL_SUITE: &str = "pool";
/// The suite that needs the model of slow memory, which the others must not have.
const SLOW_SUITE: &str = "slow";
/// The suite that traces programs with the command.
const TRACE_SUITE: &str = "trace";
/// Package and program.
const BENCH: &str = "holdfast-bench";
/// Package and program of the main job, which needs nothing that the suites compare with.
const DEMO: &str = "holdfast-demo";
/// The applet that the measurements run.
const APPLET: &str = "spellcheck";
/// Those of the suite `applet`.
const APPLETS: [&str; 3] = ["echo", "md5", "table"];

/// `cargo xtask bench SUITE [--json] [--runs N]`.
pub(crate) fn bench(workspace: &Workspace, arguments: &[String], usage: &str) -> Result<()> {
    match arguments.first() {
        Some(suite) if SUITES.contains(&suite.as_str()) => {}
        Some(suite) => {
            let known = SUITES.join(", ");
            return Err(Failure::usage(format!("there is no suite `{suite}`; there are: {known}"), usage));
        }
        None => return Err(Failure::usage("no suite is named", usage)),
    }
    let mut program = match arguments.first() {
        Some(suite) if suite == PEERS_SUITE => with_c(workspace, "peers", "build-essential libpmemobj1")?,
        Some(suite) if suite == POOL_SUITE => {
            let programs = release::build(workspace, &[release::COMMAND, release::KEEPER])?;
            let mut command = with_c(workspace, "peers,sqlite", "build-essential libpmemobj1")?;
            command.env("HOLDFAST_PROGRAM", programs.join("holdfast"));
            command
        }
        Some(suite) if suite == APPLET_SUITE => with_applets(workspace)?,
        Some(suite) if suite == BYTES_SUITE => with_c(workspace, "sqlite", "build-essential")?,
        Some(suite) if suite == SQLITE_SUITE => with_vfs(workspace)?,
        Some(suite) if suite == PAGES_SUITE => with_pages(workspace)?,
        Some(suite) if suite == SLOW_SUITE => bench_with(workspace, &["--features", "slow-memory"])?,
        Some(suite) if suite == TRACE_SUITE => {
            let programs = release::build(workspace, &[release::COMMAND, release::TRACE])?;
            let mut command = bench_with(workspace, &[])?;
            command.env("HOLDFAST_PROGRAM", programs.join("holdfast"));
            command
        }
        _ => built(workspace, BENCH)?,
    };
    show(program.args(arguments));
    finish(program)
}

/// `cargo xtask demo`.
pub(crate) fn demo(workspace: &Workspace) -> Result<()> {
    finish(built(workspace, DEMO)?)
}

/// Builds the applet, the command as it is shipped, and what measures it.
fn built(workspace: &Workspace, program: &str) -> Result<Command> {
    let applets: Vec<PathBuf> = applets::build(workspace, &[APPLET.to_owned()])?;
    let programs = release::build(workspace, &[release::COMMAND, program])?;
    let mut command = Command::new(programs.join(program));
    command.env("HOLDFAST_PROGRAM", programs.join("holdfast"));
    if let Some(folder) = applets.first().and_then(|path| path.parent()) {
        command.env("HOLDFAST_APPLETS", folder);
    }
    command.current_dir(&workspace.root).stdin(Stdio::null());
    Ok(command)
}

/// Builds what measures, with the engines of a feature in it, of which some are in C. Linked dynamically, because PMDK is
/// loaded from the system.
fn with_c(workspace: &Workspace, feature: &str, packages: &str) -> Result<Command> {
    if Command::new("cc").arg("--version").output().is_err() {
        return Err(Failure::new(format!(
            "there is no C compiler, and engines that this suite compares with are in C; `apt-get install {packages}` \
             brings all that it needs"
        )));
    }
    bench_with(workspace, &["--features", feature])
}

/// Builds what measures channels and applets, with the applets, and the library of the native program beside them.
fn with_applets(workspace: &Workspace) -> Result<Command> {
    applets::build(workspace, &APPLETS.map(str::to_owned))?;
    c_library::install(workspace, &workspace.c_library())?;
    let mut command = bench_with(workspace, &[])?;
    command.env("HOLDFAST_APPLETS", workspace.applets()).env("HOLDFAST_C_LIBRARY", workspace.c_library());
    Ok(command)
}

/// Gets the pages that are not there yet, and builds what measures them. What cannot be had the suite names.
fn with_pages(workspace: &Workspace) -> Result<Command> {
    let mut get = Command::new("bash");
    get.args(["-euo", "pipefail", "-c", ". xtask/setup.sh; fetch_pages_to_measure"]);
    run(get.env("CARGO_TARGET_DIR", &workspace.target).current_dir(&workspace.root).stdin(Stdio::null()))?;
    let mut build = cargo(&workspace.root);
    run(build.args(["build", "--release", "-p", PAGE_PROGRAM]))?;
    let mut command = bench_with(workspace, &["--features", "pages"])?;
    command.env("HOLDFAST_PAGES", workspace.target.join("pages/site"));
    command.env("HOLDFAST_PAGE_PROGRAM", workspace.target.join("release").join(PAGE_PROGRAM));
    Ok(command)
}

/// Builds what measures SQLite, the extension that it loads, and, where their source is there, SQLite's own programs.
fn with_vfs(workspace: &Workspace) -> Result<Command> {
    let mut build = cargo(&workspace.root);
    run(build.args(["build", "--release", "-p", EXTENSION_PACKAGE]))?;
    let mut command = with_c(workspace, "sqlite", "build-essential")?;
    command.env("HOLDFAST_SQLITE_EXTENSION", workspace.target.join("release").join(EXTENSION));
    if sqlite_suite::missing(workspace).is_none() {
        let (program, vfs) = sqlite_suite::speedtest(workspace)?;
        command.env("HOLDFAST_SPEEDTEST1", program).env("HOLDFAST_SPEEDTEST1_VFS", vfs);
    }
    Ok(command)
}

fn bench_with(workspace: &Workspace, options: &[&str]) -> Result<Command> {
    let mut build = cargo(&workspace.root);
    run(build.args(["build", "--release", "-p", BENCH]).args(options))?;
    let mut command = Command::new(workspace.target.join("release").join(BENCH));
    command.current_dir(&workspace.root).stdin(Stdio::null());
    Ok(command)
}

fn finish(mut command: Command) -> Result<()> {
    let status = command.status().map_err(|error| crate::command::cannot_start(&command, &error))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("the measurement ended with {status}"))) }
}
