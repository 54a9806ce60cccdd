//! Builds the guest programs: Rust ones with cargo, C ones as [`c_applet`] says.
//!
//! Each folder of `applets/` is one applet, named after its folder: with a `Cargo.toml` it is a
//! Rust package with one program, otherwise all its `.c` and `.cpp` files make one. The results are
//! in `applets` of the target directory, where the tests and the demo look for them: `NAME.wasm`,
//! and `NAME`, the native program for the jail.
//!
//! An applet in C++ is a native one only: the packages of WASI have no library of C++ with
//! exceptions. A folder with a file `pkg-config`, which lists libraries of the system, one a line,
//! is a native applet only; it is left out, and that is said, where these are not installed.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::c_applet::{self, CApplet};
use crate::command::{cargo, run};
use crate::failure::{Failure, Result};
use crate::workspace::Workspace;

pub(crate) const TARGET: &str = "wasm32-wasip1";
pub(crate) const PROFILE: &str = "applet";

enum Source {
    /// A package and the name of its program.
    Rust {
        package: String,
        program: String,
    },
    C(CApplet),
}

struct Applet {
    name: String,
    source: Source,
}

/// Arguments of `cargo xtask applets`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Folders of applets/; all of them if none is given
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

/// Builds applets and prints their paths.
pub(crate) fn applets(workspace: &Workspace, arguments: &Arguments) -> Result<()> {
    for path in build(workspace, &arguments.names)? {
        println!("{}", path.display());
    }
    Ok(())
}

/// Builds the named applets, or all of them; returns where they are.
pub(crate) fn build(workspace: &Workspace, names: &[String]) -> Result<Vec<PathBuf>> {
    let all = find(workspace)?;
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|applet| applet.name != **name))
    {
        let known: Vec<&str> = all.iter().map(|applet| applet.name.as_str()).collect();
        return Err(Failure::new(format!(
            "there is no applet `{unknown}`; there are: {}",
            known.join(", ")
        )));
    }
    let wanted: Vec<&Applet> =
        all.iter().filter(|applet| names.is_empty() || names.contains(&applet.name)).collect();
    build_with_cargo(workspace, &wanted)?;
    let folder = workspace.applets();
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::new(format!("cannot create {}: {error}", folder.display())))?;
    let mut built = Vec::new();
    for applet in wanted {
        match &applet.source {
            Source::Rust { program, .. } => {
                let (wasm, native) =
                    (folder.join(format!("{}.wasm", applet.name)), folder.join(&applet.name));
                copy(&for_wasm(workspace).join(format!("{program}.wasm")), &wasm)?;
                copy(&for_jail(workspace).join(program), &native)?;
                built.extend([wasm, native]);
            }
            Source::C(source) => match source.missing_libraries()? {
                None => built.extend(source.build(workspace, &folder)?),
                Some(reason) if names.is_empty() => {
                    eprintln!("applets/{} is left out: {reason}", applet.name)
                }
                Some(reason) => {
                    return Err(Failure::new(format!("applets/{}: {reason}", applet.name)));
                }
            },
        }
    }
    Ok(built)
}

/// All applets, in the order of their names.
fn find(workspace: &Workspace) -> Result<Vec<Applet>> {
    let folder = workspace.root.join("applets");
    let cannot_list = |error| Failure::new(format!("cannot list {}: {error}", folder.display()));
    let mut applets = Vec::new();
    for entry in fs::read_dir(&folder).map_err(cannot_list)? {
        let path = entry.map_err(cannot_list)?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|_| path.is_dir())
        else {
            continue;
        };
        let in_workspace =
            workspace.packages.iter().find(|package| package.folder == format!("applets/{name}"));
        let source = match in_workspace {
            Some(package) => match &package.programs[..] {
                [program] => {
                    Source::Rust { package: package.name.clone(), program: program.clone() }
                }
                programs => {
                    let count = programs.len();
                    return Err(Failure::new(format!(
                        "applets/{name} has {count} programs; an applet has one, in src/main.rs"
                    )));
                }
            },
            None => Source::C(CApplet::find(name, &path).map_err(cannot_list)?),
        };
        if matches!(&source, Source::C(source) if source.is_empty()) {
            return Err(Failure::new(format!(
                "applets/{name} is no applet: add it to the workspace's members, or put a .c or .cpp file into it"
            )));
        }
        applets.push(Applet { name: name.to_owned(), source });
    }
    applets.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(applets)
}

/// The same packages for both kinds of sandbox. The library for C is without the standard library:
/// built natively, it must not share features with programs that have it, so it is built alone.
fn build_with_cargo(workspace: &Workspace, applets: &[&Applet]) -> Result<()> {
    let mut packages: Vec<&str> = Vec::new();
    for applet in applets {
        packages.push(match &applet.source {
            Source::Rust { package, .. } => package,
            Source::C(_) => c_applet::LIBRARY_PACKAGE,
        });
    }
    packages.sort_unstable();
    packages.dedup();
    let build = |target: &[&str], packages: &[&str]| {
        let mut command = cargo(&workspace.root);
        command.args(["build", "--quiet", "--profile", PROFILE]).args(target);
        command.args(packages.iter().flat_map(|package| ["-p", package]));
        if packages.is_empty() { Ok(()) } else { run(&mut command) }
    };
    build(&["--target", TARGET], &packages)?;
    let (library, programs): (Vec<&str>, Vec<&str>) =
        packages.iter().partition(|package| **package == c_applet::LIBRARY_PACKAGE);
    build(&[], &library)?;
    build(&[], &programs)
}

/// Where cargo puts what it builds for WebAssembly.
pub(crate) fn for_wasm(workspace: &Workspace) -> PathBuf {
    workspace.target.join(TARGET).join(PROFILE)
}

/// Where cargo puts native applets.
pub(crate) fn for_jail(workspace: &Workspace) -> PathBuf {
    workspace.target.join(PROFILE)
}

/// A program may be running from the old file, which therefore is removed and not written to.
fn copy(from: &Path, to: &Path) -> Result<()> {
    c_applet::remove(to)?;
    fs::copy(from, to).map(drop).map_err(|error| {
        Failure::new(format!("cannot copy {} to {}: {error}", from.display(), to.display()))
    })
}
