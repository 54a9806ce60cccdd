//! The failure lab: builds it and runs it, in the machine that `tests/vm` describes.
//!
//! Invariant: it is bounded in time, and its machines end with it.

use crate::command::{cargo, run, with_timeout};
use crate::failure::Result;
use crate::workspace::Workspace;

const PACKAGE: &str = "holdfast-lab";
/// Compiling what the lab needs from nothing.
const BUILD_TIMEOUT_S: u32 = 20 * 60;
/// Of a long run; an ordinary one takes minutes.
const LAB_TIMEOUT_S: u32 = 6 * 60 * 60;

/// `cargo xtask vm [OPTION]...`; the options are those of the lab's own command line.
pub(crate) fn vm(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    run(&mut with_timeout(cargo(&workspace.root).args(["build", "-p", PACKAGE]), BUILD_TIMEOUT_S))?;
    let built = |name: &str| workspace.target.join("debug").join(name);
    let mut lab = std::process::Command::new(built(PACKAGE));
    lab.arg("--guest").arg(built("holdfast-lab-guest"));
    lab.arg("--kernel").arg(workspace.target.join("vm").join("kernel")).args(arguments);
    run(&mut with_timeout(&lab, LAB_TIMEOUT_S))
}
