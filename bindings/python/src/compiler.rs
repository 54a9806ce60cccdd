//! Starts the process that compiles WebAssembly from a Python host: the interpreter, with nothing
//! but this module.
//!
//! The interpreter does not contain the compiler, so the host starts it again with a command that
//! loads this very file and calls [`compile_worker`]. It reads no configuration, no `site-packages`
//! and no environment (`-I -S`).
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::path::PathBuf;

use holdfast_applet::CompilerCommand;
use pyo3::prelude::*;

/// Loads the extension module from the path in its first argument. The parts of `importlib` that it
/// uses are frozen into the interpreter, so no file of the library is read.
const LOAD: &str = "\
import _imp, sys
from _frozen_importlib import ModuleSpec
from _frozen_importlib_external import ExtensionFileLoader
path = sys.argv[1]
module = _imp.create_dynamic(ModuleSpec('_holdfast', ExtensionFileLoader('_holdfast', path), origin=path))
_imp.exec_dynamic(module)
module.compile_worker()
";

/// Names the command, if the interpreter knows its own program. An embedded one may not; then the
/// message of an applet that cannot be compiled says so.
pub(crate) fn name_command(py: Python<'_>) -> PyResult<()> {
    let executable: Option<PathBuf> = py.import("sys")?.getattr("executable")?.extract()?;
    let library = holdfast_sys::worker::object_path(name_command as *const _);
    let program = executable.filter(|path| !path.as_os_str().is_empty());
    if let (Some(program), Some(library)) = (program, library) {
        let mut args: Vec<OsString> = ["-I", "-S", "-c", LOAD].map(OsString::from).into();
        args.push(library.into_os_string());
        holdfast_applet::set_compiler_command(CompilerCommand { program, args });
    }
    Ok(())
}

/// Does the work of the compiler's process, and ends it. Returns at once in any other process.
#[pyfunction]
pub(crate) fn compile_worker() {
    holdfast_applet::run_compiler();
}
