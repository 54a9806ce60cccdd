//! Builds the guest programs: Rust ones with cargo, C ones with clang against the C library of the heap.
//!
//! Each folder of `applets/` is one applet, named after its folder: with a `Cargo.toml` it is a Rust package
//! with one program, otherwise all its `.c` files make one. The results are `applets/NAME.wasm` in the target
//! directory, where the tests and the demo look for them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{cargo, run};
use crate::failure::{Failure, Result};
use crate::workspace::Workspace;

pub(crate) const TARGET: &str = "wasm32-wasip1";
pub(crate) const PROFILE: &str = "applet";
/// The C interface of the heap, as a static library.
const C_LIBRARY_PACKAGE: &str = "holdfast-c";

enum Source {
    /// A package and the name of its program.
    Rust { package: String, program: String },
    /// The `.c` files.
    C { files: Vec<PathBuf> },
}

struct Applet {
    name: String,
    source: Source,
}

/// `cargo xtask applets [NAME]...`.
pub(crate) fn applets(workspace: &Workspace, names: &[String]) -> Result<()> {
    for path in build(workspace, names)? {
        println!("{}", path.display());
    }
    Ok(())
}

/// Builds the named applets, or all of them; returns where they are.
pub(crate) fn build(workspace: &Workspace, names: &[String]) -> Result<Vec<PathBuf>> {
    let all = find(workspace)?;
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|applet| applet.name != **name)) {
        let known: Vec<&str> = all.iter().map(|applet| applet.name.as_str()).collect();
        return Err(Failure::new(format!("there is no applet `{unknown}`; there are: {}", known.join(", "))));
    }
    let wanted: Vec<&Applet> =
        all.iter().filter(|applet| names.is_empty() || names.contains(&applet.name)).collect();
    build_with_cargo(workspace, &wanted)?;
    let folder = workspace.applets();
    fs::create_dir_all(&folder)
        .map_err(|error| Failure::new(format!("cannot create {}: {error}", folder.display())))?;
    let mut built = Vec::new();
    for applet in wanted {
        let path = folder.join(format!("{}.wasm", applet.name));
        match &applet.source {
            Source::Rust { program, .. } => {
                copy(&cargo_output(workspace).join(format!("{program}.wasm")), &path)?;
            }
            Source::C { files } => run(&mut clang(workspace, files, &path)?)?,
        }
        built.push(path);
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
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|_| path.is_dir()) else {
            continue;
        };
        let in_workspace =
            workspace.packages.iter().find(|package| package.folder == format!("applets/{name}"));
        let source = match in_workspace {
            Some(package) => match &package.programs[..] {
                [program] => Source::Rust { package: package.name.clone(), program: program.clone() },
                programs => {
                    let count = programs.len();
                    return Err(Failure::new(format!(
                        "applets/{name} has {count} programs; an applet has one, in src/main.rs"
                    )));
                }
            },
            None => Source::C { files: c_files(&path).map_err(cannot_list)? },
        };
        if matches!(&source, Source::C { files } if files.is_empty()) {
            return Err(Failure::new(format!(
                "applets/{name} is no applet: add it to the workspace's members, or put a .c file into it"
            )));
        }
        applets.push(Applet { name: name.to_owned(), source });
    }
    applets.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(applets)
}

fn c_files(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "c") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn build_with_cargo(workspace: &Workspace, applets: &[&Applet]) -> Result<()> {
    let mut command = cargo(&workspace.root);
    command.args(["build", "--quiet", "--target", TARGET, "--profile", PROFILE]);
    for applet in applets {
        if let Source::Rust { package, .. } = &applet.source {
            command.args(["-p", package]);
        }
    }
    if applets.iter().any(|applet| matches!(applet.source, Source::C { .. })) {
        command.args(["-p", C_LIBRARY_PACKAGE]);
    }
    run(&mut command)
}

/// Where cargo puts what it builds for guests.
fn cargo_output(workspace: &Workspace) -> PathBuf {
    workspace.target.join(TARGET).join(PROFILE)
}

fn clang(workspace: &Workspace, files: &[PathBuf], output: &Path) -> Result<Command> {
    let present = Command::new("clang").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !present.is_ok_and(|status| status.success()) {
        return Err(Failure::new(
            "applets in C need clang, lld, wasi-libc and libclang-rt-dev-wasm32; ./test installs them",
        ));
    }
    let mut command = Command::new("clang");
    command.args(["--target=wasm32-wasi", "-O2", "-std=c11", "-Wall", "-Wextra", "-Werror"]);
    command.arg("-I").arg(workspace.root.join("bindings/c/include"));
    command.args(files).arg("-L").arg(cargo_output(workspace)).args(["-lholdfast_applet", "-o"]).arg(output);
    Ok(command)
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .map(drop)
        .map_err(|error| Failure::new(format!("cannot copy {} to {}: {error}", from.display(), to.display())))
}
