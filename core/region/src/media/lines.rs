//! Writing back lines of the processor's caches that belong to an image in persistent memory.
//!
//! Invariant: nothing here changes a byte. That the memory shows a file whose pages are persistent
//! is the caller's to know; for any other it only costs time.

#![allow(unsafe_code, reason = "the instructions take addresses")]

use std::fs::File;
use std::io;

/// Writes back every line of `memory`, and waits for it. Where the processor has no instruction for
/// it, the kernel does it for all of the file.
pub(crate) fn write_back(file: &File, memory: &[u8]) -> io::Result<()> {
    if holdfast_persist::instruction().is_none() {
        return file.sync_data();
    }
    // SAFETY: a slice can be read.
    unsafe { holdfast_persist::persist(memory.as_ptr(), memory.len()) };
    Ok(())
}
