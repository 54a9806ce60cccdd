//! Builds the C library for native programs, the one for native applets, and the `malloc` shim,
//! optimised, and installs them with their headers and pkg-config files below a prefix:
//!
//! ```text
//! include/holdfast.h  include/holdfast.hpp  include/holdfast_document.h
//! include/holdfast_applet.h  include/holdfast_applet.hpp
//! include/holdfast_portable.h  include/holdfast_types.h
//! lib/libholdfast.so -> libholdfast.so.0  lib/libholdfast.a  lib/libholdfast-malloc.so
//! lib/libholdfast_applet.a
//! lib/pkgconfig/holdfast.pc  lib/pkgconfig/holdfast-applet.pc
//! ```
//!
//! Invariant: a pkg-config file finds its prefix by its own place, so the whole may be moved.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::applets::PROFILE;
use crate::command::{cargo, run};
use crate::failure::{Failure, Result};
use crate::workspace::Workspace;

const PACKAGES: [&str; 2] = ["holdfast-native", "holdfast-malloc"];
/// Its number is that of the soname in `bindings/c-native/build.rs`.
const SHARED: &str = "libholdfast.so.0";
const HEADERS: [&str; 7] = [
    "holdfast.h",
    "holdfast.hpp",
    "holdfast_document.h",
    "holdfast_portable.h",
    "holdfast_types.h",
    "holdfast_applet.h",
    "holdfast_applet.hpp",
];
/// What applets link. It is without the standard library, so it is built alone, in a profile that
/// does not unwind.
pub(crate) const APPLET_PACKAGE: &str = "holdfast-c";

/// Arguments of `cargo xtask c-library`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Directory to install below [default: c-library in the target directory]
    prefix: Option<PathBuf>,
}

/// Installs the library and prints where.
pub(crate) fn c_library(workspace: &Workspace, arguments: Arguments) -> Result<()> {
    let prefix = arguments.prefix.unwrap_or_else(|| workspace.c_library());
    install(workspace, &prefix)?;
    println!("{}", prefix.display());
    Ok(())
}

/// Builds everything and puts it below `prefix`, in place of what is there.
pub(crate) fn install(workspace: &Workspace, prefix: &Path) -> Result<()> {
    let mut build = cargo(&workspace.root);
    build.args(["build", "--quiet", "--release"]);
    for package in PACKAGES {
        build.args(["-p", package]);
    }
    run(&mut build)?;
    let mut build = cargo(&workspace.root);
    run(build.args(["build", "--quiet", "--profile", PROFILE, "-p", APPLET_PACKAGE]))?;
    copy_all(workspace, prefix).map_err(|error| {
        Failure::new(format!("cannot install below {}: {error}", prefix.display()))
    })
}

fn copy_all(workspace: &Workspace, prefix: &Path) -> io::Result<()> {
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    for folder in [&include, &lib.join("pkgconfig")] {
        fs::create_dir_all(folder)?;
    }
    for header in HEADERS {
        replace(&workspace.root.join("bindings/c/include").join(header), &include.join(header))?;
    }
    let built = workspace.target.join("release");
    replace(&built.join("libholdfast.so"), &lib.join(SHARED))?;
    replace(&built.join("libholdfast.a"), &lib.join("libholdfast.a"))?;
    replace(&built.join("libholdfast_malloc.so"), &lib.join("libholdfast-malloc.so"))?;
    let applets = workspace.target.join(PROFILE).join("libholdfast_applet.a");
    replace(&applets, &lib.join("libholdfast_applet.a"))?;
    let link = lib.join("libholdfast.so");
    remove(&link)?;
    symlink(SHARED, &link)?;
    let version = env!("CARGO_PKG_VERSION");
    fs::write(lib.join("pkgconfig/holdfast.pc"), pkg_config(version))?;
    fs::write(lib.join("pkgconfig/holdfast-applet.pc"), pkg_config_for_applets(version))
}

/// A program may be running from the old file, which therefore is removed and not written to.
fn replace(from: &Path, to: &Path) -> io::Result<()> {
    remove(to)?;
    fs::copy(from, to).map(drop)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// With `--static`, what Rust's standard library takes from the C library, where that is not one
/// file.
fn pkg_config(version: &str) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: holdfast\n\
         Description: Persistent memory that is there again at the next run, also after kill -9\n\
         Version: {version}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lholdfast\n\
         Libs.private: -lpthread -ldl -lm -lrt\n"
    )
}

/// An archive that needs no other library, so it is the same for static and dynamic programs.
fn pkg_config_for_applets(version: &str) -> String {
    format!(
        "prefix=${{pcfiledir}}/../..\n\
         libdir=${{prefix}}/lib\n\
         includedir=${{prefix}}/include\n\
         \n\
         Name: holdfast-applet\n\
         Description: Functions for a host, and persistent memory, for programs in its sandbox\n\
         Version: {version}\n\
         Cflags: -I${{includedir}}\n\
         Libs: -L${{libdir}} -lholdfast_applet\n"
    )
}
