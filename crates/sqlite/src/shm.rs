//! Shared memory of databases in WAL mode: the base VFS's, passed on.
//!
//! Invariant: it is only reached when the database has left the pool; in a forked child it is not reached at all.

#![allow(unsafe_code, reason = "called by C, with its pointers")]

use std::ffi::{c_int, c_void};

use crate::ffi::{self, IoMethods, RawFile};
use crate::methods::with;

/// Passes a call on to the file below.
fn pass(file: *mut RawFile, call: impl FnOnce(&IoMethods, *mut RawFile) -> c_int) -> c_int {
    with(file, |connection| {
        if connection.in_pool || !connection.pool.is_ours() {
            return Err(ffi::IOERR);
        }
        Ok(call(connection.base.methods(), connection.base.file))
    })
}

pub(crate) unsafe extern "C" fn map(
    file: *mut RawFile,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    pass(file, |methods, below| {
        // SAFETY: SQLite's own arguments, for a file that is open.
        methods.shm_map.map_or(ffi::IOERR, |map| unsafe { map(below, region, bytes, extend, out) })
    })
}

pub(crate) unsafe extern "C" fn lock(file: *mut RawFile, first: c_int, count: c_int, flags: c_int) -> c_int {
    pass(file, |methods, below| {
        // SAFETY: as above.
        methods.shm_lock.map_or(ffi::IOERR, |lock| unsafe { lock(below, first, count, flags) })
    })
}

pub(crate) unsafe extern "C" fn barrier(file: *mut RawFile) {
    pass(file, |methods, below| {
        if let Some(barrier) = methods.shm_barrier {
            // SAFETY: as above.
            unsafe { barrier(below) };
        }
        ffi::OK
    });
}

pub(crate) unsafe extern "C" fn unmap(file: *mut RawFile, delete: c_int) -> c_int {
    pass(file, |methods, below| {
        // SAFETY: as above.
        methods.shm_unmap.map_or(ffi::OK, |unmap| unsafe { unmap(below, delete) })
    })
}
