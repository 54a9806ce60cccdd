//! The VFS `holdfast` as a loadable extension of SQLite: `libholdfast_sqlite.so`.
//!
//! `SELECT load_extension('libholdfast_sqlite')` (or `.load`) registers it, for as long as the process: databases that are
//! opened as `file:NAME?vfs=holdfast` after that are ours. With `HOLDFAST_SQLITE_DEFAULT=1` in the environment it becomes the
//! default, for databases that name none.

#![allow(unsafe_code, reason = "called by C, with its pointers")]

use std::ffi::{c_char, c_int, c_void};

use vfs::{Host, register};

/// Keeps the library in memory: SQLite goes on to call it after the connection that loaded it is closed.
const OK_LOAD_PERMANENTLY: c_int = 256;
const ERROR: c_int = 1;
/// The environment variable that makes the VFS the default.
const DEFAULT: &str = "HOLDFAST_SQLITE_DEFAULT";

/// # Safety
/// `routines` must be the `sqlite3_api_routines` of the SQLite that loads the extension.
unsafe fn load(routines: *const c_void) -> c_int {
    // SAFETY: per the contract.
    let Some(host) = (unsafe { Host::from_api(routines) }) else { return ERROR };
    match register(host, std::env::var_os(DEFAULT).is_some_and(|value| value == "1")) {
        0 => OK_LOAD_PERMANENTLY,
        code => code,
    }
}

/// The entry point that SQLite looks for first.
///
/// # Safety
/// Called by SQLite when it loads the extension.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    _database: *mut c_void,
    _message: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: SQLite passes its routines.
    unsafe { load(routines) }
}

/// The entry point by the name of the file.
///
/// # Safety
/// As [`sqlite3_extension_init`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_holdfastsqlite_init(
    _database: *mut c_void,
    _message: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: SQLite passes its routines.
    unsafe { load(routines) }
}
