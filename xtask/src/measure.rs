//! Builds what is measured, optimised, and starts the programs of `bench/`.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::applets;
use crate::command::show;
use crate::failure::{Failure, Result};
use crate::release;
use crate::workspace::Workspace;

const SUITES: [&str; 1] = ["slice"];
/// The applet that the measurements run.
const APPLET: &str = "spellcheck";

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
    let mut program = built(workspace, "holdfast-bench")?;
    show(program.args(arguments));
    finish(program)
}

/// `cargo xtask demo`.
pub(crate) fn demo(workspace: &Workspace) -> Result<()> {
    finish(built(workspace, "holdfast-demo")?)
}

/// Builds the applet, the command as it is shipped, and what measures it.
fn built(workspace: &Workspace, program: &str) -> Result<Command> {
    let applets: Vec<PathBuf> = applets::build(workspace, &[APPLET.to_owned()])?;
    let programs = release::build(workspace, &[release::COMMAND, "holdfast-bench"])?;
    let mut command = Command::new(programs.join(program));
    command.env("HOLDFAST_PROGRAM", programs.join("holdfast"));
    if let Some(folder) = applets.first().and_then(|path| path.parent()) {
        command.env("HOLDFAST_APPLETS", folder);
    }
    command.current_dir(&workspace.root).stdin(Stdio::null());
    Ok(command)
}

fn finish(mut command: Command) -> Result<()> {
    let status = command.status().map_err(|error| crate::command::cannot_start(&command, &error))?;
    if status.success() { Ok(()) } else { Err(Failure::new(format!("the measurement ended with {status}"))) }
}
