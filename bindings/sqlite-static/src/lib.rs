//! The VFS `holdfast` as a static library, `libholdfast_sqlite.a`, for programs that bring their own SQLite: compiled with
//! `-DSQLITE_EXTRA_INIT=holdfast_sqlite_register` it is the default VFS from the first use of SQLite on.

#![allow(unsafe_code, reason = "calls C, and is called by it")]

use std::ffi::{c_char, c_int, c_void};

use vfs::{Host, Vfs, register};

unsafe extern "C" {
    fn sqlite3_libversion_number() -> c_int;
    fn sqlite3_vfs_find(name: *const c_char) -> *mut Vfs;
    fn sqlite3_vfs_register(vfs: *mut Vfs, make_default: c_int) -> c_int;
    fn sqlite3_log(code: c_int, format: *const c_char, ...);
    fn sqlite3_malloc(bytes: c_int) -> *mut c_void;
    fn sqlite3_uri_parameter(name: *const c_char, key: *const c_char) -> *const c_char;
    fn sqlite3_filename_journal(name: *const c_char) -> *const c_char;
    fn sqlite3_filename_wal(name: *const c_char) -> *const c_char;
}

/// Registers the VFS with the SQLite that is linked, and makes it the default. The argument, which SQLite passes to its
/// `SQLITE_EXTRA_INIT`, is ignored. Returns a code of SQLite.
///
/// # Safety
/// SQLite must be linked and, unless called by itself, initialised.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn holdfast_sqlite_register(_unused: *const c_char) -> c_int {
    let host = Host {
        libversion_number: sqlite3_libversion_number,
        vfs_find: sqlite3_vfs_find,
        vfs_register: sqlite3_vfs_register,
        log: sqlite3_log,
        malloc: sqlite3_malloc,
        uri_parameter: sqlite3_uri_parameter,
        filename_journal: sqlite3_filename_journal,
        filename_wal: sqlite3_filename_wal,
    };
    register(host, true)
}
