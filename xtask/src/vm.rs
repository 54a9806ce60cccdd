//! The failure lab: builds it and runs it, in the machine that `tests/lab` describes.
//!
//! Invariant: it is bounded in time, and its machines end with it.

use std::path::PathBuf;
use std::process::Stdio;

use clap::Args;

use crate::applets;
use crate::command::{cargo, run, with_timeout};
use crate::failure::Result;
use crate::workspace::Workspace;

const PACKAGE: &str = "holdfast-lab";
/// What notes records in the machine, in a heap on its DAX file system.
const APPLET: &str = "notes";
const QEMU: &str = "qemu-system-x86_64";
/// Compiling what the lab needs from nothing.
const BUILD_TIMEOUT_S: u32 = 20 * 60;
/// Of a long run; an ordinary one takes minutes.
const LAB_TIMEOUT_S: u32 = 6 * 60 * 60;

/// Arguments of `cargo xtask vm`.
#[derive(Args)]
// `--help` is the lab's, too.
#[command(disable_help_flag = true)]
pub(crate) struct Arguments {
    /// Options of the lab: --long (40 failures of each kind), --only FAILURE, --canary,
    /// --run PROGRAM [ARGUMENT]... (a program of your choice in the machine)
    #[arg(value_name = "OPTION", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) options: Vec<String>,
}

/// Builds the lab and runs it.
pub(crate) fn vm(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    applets::build(workspace, &[APPLET.to_owned()])?;
    run(&mut with_timeout(cargo(&workspace.root).args(["build", "-p", PACKAGE]), BUILD_TIMEOUT_S))?;
    let mut words = lab(workspace).into_iter();
    let mut command = std::process::Command::new(words.next().unwrap_or_default());
    command.args(words).args(&arguments.options);
    run(&mut with_timeout(&command, LAB_TIMEOUT_S))
}

/// The built lab, with what it needs, as words of a command.
pub(crate) fn lab(workspace: &Workspace) -> Vec<String> {
    let built = |name: &str| workspace.target.join("debug").join(name).display().to_string();
    let kernel = kernel(workspace).display().to_string();
    let applet = workspace.applets().join(APPLET).display().to_string();
    let options = [
        ("--guest", built("holdfast-lab-guest")),
        ("--caller", built("holdfast-lab-caller")),
        ("--applet", applet),
        ("--kernel", kernel),
    ];
    let options = options.into_iter().flat_map(|(option, value)| [option.to_owned(), value]);
    std::iter::once(built(PACKAGE)).chain(options).collect()
}

/// What the lab lacks on this machine.
pub(crate) fn missing(workspace: &Workspace) -> Option<String> {
    if !kernel(workspace).join("vmlinuz").is_file() {
        return Some(
            "there is no kernel for the machine; ./test gets one out of Debian's package"
                .to_owned(),
        );
    }
    let starts = std::process::Command::new(QEMU).arg("--version").stdout(Stdio::null()).status();
    starts.is_err().then(|| format!("there is no {QEMU}; ./test installs qemu-system-x86"))
}

fn kernel(workspace: &Workspace) -> PathBuf {
    workspace.target.join("vm").join("kernel")
}
