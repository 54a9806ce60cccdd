//! The VFS `holdfast` as a loadable extension of SQLite: `libholdfast_sqlite.so`.
//!
//! `SELECT load_extension('libholdfast_sqlite')` (or `.load`) registers it, for as long as the
//! process: databases that are opened as `file:NAME?vfs=holdfast` after that are ours. With
//! `HOLDFAST_SQLITE_DEFAULT=1` in the environment it becomes the default, for databases that name
//! none.

#![allow(unsafe_code, reason = "called by C, with its pointers")]

use std::ffi::{c_char, c_int, c_void};

use vfs::load;

/// The entry point that SQLite looks for first.
///
/// # Safety
/// Called by SQLite when it loads the extension.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    database: *mut c_void,
    message: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { load(database, message, routines) }
}

/// The entry point by the name of the file.
///
/// # Safety
/// As [`sqlite3_extension_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_holdfastsqlite_init(
    database: *mut c_void,
    message: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: SQLite's own arguments.
    unsafe { load(database, message, routines) }
}
