//! Applets that serve, as a host starts them.

use std::io;
use std::path::PathBuf;

use holdfast_applet::{Applet, Grants, Limits};
use holdfast_testkit::applet_file;

/// The native form of an applet, without a heap.
pub(crate) fn native(name: &str) -> io::Result<Applet> {
    start(applet_file(name)?, Grants::none())
}

/// Its WebAssembly form.
pub(crate) fn wasm(name: &str) -> io::Result<Applet> {
    start(applet_file(&format!("{name}.wasm"))?, Grants::none())
}

pub(crate) fn start(path: PathBuf, grants: Grants) -> io::Result<Applet> {
    let applet = Applet::spawn(path, Limits::default(), grants).map_err(io::Error::other)?;
    // A sandbox that lacks a layer would look faster than it is.
    for weakness in applet.weaker() {
        eprintln!("holdfast-bench: {weakness}");
    }
    Ok(applet)
}
