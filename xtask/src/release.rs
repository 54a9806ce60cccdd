//! Builds programs of the host as they are shipped: optimised, and linked statically where that
//! works, so that a program is one file for every Linux and starts a third of a millisecond sooner
//! (no dynamic linker).

use std::path::PathBuf;
use std::process::Command;

use crate::command::{cargo, output, run};
use crate::failure::{Failure, Result};
use crate::workspace::Workspace;

/// The package of the `holdfast` command.
pub(crate) const COMMAND: &str = "holdfast-cli";
/// The packages of the products' programs. The one that lays pages out is built apart: `cargo build
/// --release -p holdfast-page`.
pub(crate) const KEEPER: &str = "holdfast-keeper-command";
pub(crate) const TRACE: &str = "holdfast-trace-command";
const SQLITE: &str = "holdfast-sqlite-command";
pub(crate) const SERVE: &str = "holdfast-serve";
/// With these targets the C library can be linked statically into a program whose address is still
/// random.
const STATIC_TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];
const STATIC_FLAGS: &str = "-Ctarget-feature=+crt-static";

/// `cargo xtask release`.
pub(crate) fn release(workspace: &Workspace) -> Result<()> {
    let programs = build(workspace, &[COMMAND, KEEPER, SERVE, SQLITE, TRACE])?;
    let names =
        ["holdfast", "holdfast-keeper", "holdfast-serve", "holdfast-sqlite", "holdfast-trace"];
    for program in names {
        println!("{}", programs.join(program).display());
    }
    Ok(())
}

/// Builds packages, in one go so that dependencies are built once; returns the folder with their
/// programs.
pub(crate) fn build(workspace: &Workspace, packages: &[&str]) -> Result<PathBuf> {
    let host = host()?;
    let mut command = cargo(&workspace.root);
    // With a target, even that of the host, the flags are for the programs and not for what helps
    // to build them.
    command.args(["build", "--release", "--target", &host]);
    for package in packages {
        command.args(["-p", package]);
    }
    if STATIC_TARGETS.contains(&host.as_str()) {
        command.env(
            format!("CARGO_TARGET_{}_RUSTFLAGS", host.to_uppercase().replace('-', "_")),
            STATIC_FLAGS,
        );
    }
    run(&mut command)?;
    Ok(workspace.target.join(&host).join("release"))
}

/// The target that the compiler runs on.
pub(crate) fn host() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let text = output(Command::new(rustc).arg("-vV"))?;
    let text = String::from_utf8_lossy(&text);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).ok_or_else(|| Failure::new("rustc -vV names no host; update Rust"))
}
