//! The native half of the Python package `holdfast`: applets, buffers, streams, pools, heaps and
//! documents as Python classes.
//!
//! The other half is in `python/holdfast`: the exceptions and plain data types, which are Python's
//! own, `AsyncApplet`, and what nodes of documents look like.
//!
//! Invariants:
//! - A thread that waits for an applet, for another thread or for a file has let go of the
//!   interpreter; but not during a commit or a rollback of a `Heap`: no other thread of Python may
//!   store to it meanwhile.
//! - Memory that Python sees through the buffer protocol stays mapped as long as anything in Python
//!   refers to it.
//! - A forked child changes nothing of what its parent has: every object knows its process, and is
//!   refused or forgotten elsewhere ([`process`]). (A memoryview of a `Buffer` that was there
//!   before the fork is memory that both share: what the child stores there the parent sees.)
//!
//! What it must not do: decide anything that a host in Rust would need as well.
#![deny(unsafe_code)]

mod applet;
#[allow(unsafe_code, reason = "hands shared memory out by the buffer protocol")]
mod buffer;
mod closing;
mod compiler;
mod convert;
mod document;
mod editions;
mod error;
mod functions;
mod gate;
mod grants;
mod heap;
mod heap_core;
mod heap_error;
mod inner;
#[allow(unsafe_code, reason = "reads what Python hands in by the buffer protocol")]
mod input;
mod limits;
mod metrics;
mod pool;
mod process;
mod recipe;
mod run;
mod signals;
mod stream;
mod transaction;
mod turn;
#[allow(unsafe_code, reason = "hands a heap's memory out by the buffer protocol")]
mod view;

/// The native half of `holdfast`. Import that instead.
// Where Python has no such lock by itself, this turns it on: a commit of a `Heap` counts on it.
#[pyo3::pymodule(gil_used = true)]
mod _holdfast {
    #[pymodule_export]
    use crate::applet::Applet;
    #[pymodule_export]
    use crate::buffer::Buffer;
    #[pymodule_export]
    use crate::compiler::compile_worker;
    #[pymodule_export]
    use crate::document::NativeDocument;
    #[pymodule_export]
    use crate::heap::Heap;
    #[pymodule_export]
    use crate::pool::Pool;
    #[pymodule_export]
    use crate::run::run;
    #[pymodule_export]
    use crate::stream::Stream;
    #[pymodule_export]
    use crate::transaction::Transaction;

    use pyo3::types::PyAnyMethods as _;

    #[pymodule_init]
    fn init(module: &pyo3::Bound<'_, pyo3::types::PyModule>) -> pyo3::PyResult<()> {
        holdfast_types::set_how_to(&crate::error::IN_PYTHON);
        // Applets that are ending may still call functions of Python.
        let at_exit = pyo3::wrap_pyfunction!(crate::closing::join_all, module)?;
        module.py().import("atexit")?.call_method1("register", (at_exit,))?;
        crate::compiler::name_command(module.py())
    }

    /// The version of the package.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
}
