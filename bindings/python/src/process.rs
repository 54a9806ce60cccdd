//! To which process an object belongs.
//!
//! A forked child has a copy of its parent's objects, and shares with it what they stand for: the
//! memory of applets, the mapping and the lock of a heap. It must neither use nor end any of that.
#![forbid(unsafe_code)]

use pyo3::prelude::*;

use crate::error::{self, Class};

/// The process that made an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Maker(u32);

impl Maker {
    /// This process.
    pub(crate) fn new() -> Maker {
        Maker(std::process::id())
    }

    /// Whether this is still that process.
    pub(crate) fn is_here(self) -> bool {
        self.0 == std::process::id()
    }

    /// Refuses in a forked child.
    pub(crate) fn check(self, py: Python<'_>) -> PyResult<()> {
        if self.is_here() {
            return Ok(());
        }
        let text = format!(
            "this object belongs to process {}, from which process {} was forked; make it after the fork, or start \
             children with the method \"spawn\"",
            self.0,
            std::process::id()
        );
        Err(error::raise(py, Class::Forked, text, ()))
    }

    /// Drops what an object held, without the interpreter, because that can take a while; forgets
    /// it in a child. For `Drop` of Python's classes.
    pub(crate) fn let_go<T: Send>(self, value: T) {
        if !self.is_here() {
            std::mem::forget(value);
            return;
        }
        let mut value = Some(value);
        // Not while the interpreter ends: then there is no caller that could want it meanwhile.
        let _ = Python::try_attach(|py| py.detach(|| drop(value.take())));
        drop(value);
    }
}
