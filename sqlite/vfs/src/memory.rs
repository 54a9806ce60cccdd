//! Memory of the base VFS's files, passed on: what databases in WAL mode share, and maps of the
//! file.
//!
//! Invariants: none of it is used while the newest pages are in the pool; in a forked child it is
//! not reached at all. A map is gone before the database may go to the pool: a checkpoint may make
//! the file shorter than what is mapped.

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

pub(crate) unsafe extern "C" fn lock(
    file: *mut RawFile,
    first: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
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

/// A page of a database in WAL mode; null of any other, and SQLite reads it.
pub(crate) unsafe extern "C" fn fetch(
    file: *mut RawFile,
    offset: i64,
    bytes: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite's variable.
    unsafe { *out = std::ptr::null_mut() };
    with(file, |connection| {
        if connection.in_pool || !connection.is_wal || !connection.pool.is_ours() {
            return Ok(ffi::OK);
        }
        connection.has_map = true;
        let (below, methods) = (connection.base.file, connection.base.methods());
        // SAFETY: SQLite's own arguments, for a file that is open.
        Ok(methods.fetch.map_or(ffi::OK, |fetch| unsafe { fetch(below, offset, bytes, out) }))
    })
}

pub(crate) unsafe extern "C" fn unfetch(
    file: *mut RawFile,
    offset: i64,
    page: *mut c_void,
) -> c_int {
    with(file, |connection| {
        let (below, methods) = (connection.base.file, connection.base.methods());
        // SAFETY: as above.
        Ok(methods.unfetch.map_or(ffi::OK, |unfetch| unsafe { unfetch(below, offset, page) }))
    })
}
