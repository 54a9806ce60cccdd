//! The VFS `holdfast` as a static library, `libholdfast_sqlite.a`, for programs that bring their
//! own SQLite: compiled with `-DSQLITE_EXTRA_INIT=holdfast_sqlite_register` it is the default VFS
//! from the first use of SQLite on.

#![allow(unsafe_code, reason = "calls C, and is called by it")]

use std::ffi::{c_char, c_int, c_void};

use vfs::{Host, SqlFunction, Vfs, register};

unsafe extern "C" {
    fn sqlite3_libversion_number() -> c_int;
    fn sqlite3_vfs_find(name: *const c_char) -> *mut Vfs;
    fn sqlite3_vfs_register(vfs: *mut Vfs, make_default: c_int) -> c_int;
    fn sqlite3_log(code: c_int, format: *const c_char, ...);
    fn sqlite3_malloc(bytes: c_int) -> *mut c_void;
    fn sqlite3_uri_parameter(name: *const c_char, key: *const c_char) -> *const c_char;
    fn sqlite3_filename_journal(name: *const c_char) -> *const c_char;
    fn sqlite3_filename_wal(name: *const c_char) -> *const c_char;
    fn sqlite3_uri_key(name: *const c_char, number: c_int) -> *const c_char;
    fn sqlite3_auto_extension(entry: unsafe extern "C" fn()) -> c_int;
    fn sqlite3_file_control(
        database: *mut c_void,
        schema: *const c_char,
        operation: c_int,
        argument: *mut c_void,
    ) -> c_int;
    fn sqlite3_create_function_v2(
        database: *mut c_void,
        name: *const c_char,
        arguments: c_int,
        flags: c_int,
        data: *mut c_void,
        function: Option<SqlFunction>,
        step: Option<SqlFunction>,
        last: Option<unsafe extern "C" fn(*mut c_void)>,
        destroy: Option<unsafe extern "C" fn(*mut c_void)>,
    ) -> c_int;
    fn sqlite3_result_text(
        context: *mut c_void,
        text: *const c_char,
        bytes: c_int,
        destructor: isize,
    );
}

/// Registers the VFS with the SQLite that is linked, and makes it the default. The argument, which
/// SQLite passes to its `SQLITE_EXTRA_INIT`, is ignored. Returns a code of SQLite.
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
        uri_key: sqlite3_uri_key,
        auto_extension: sqlite3_auto_extension,
        file_control: sqlite3_file_control,
        create_function_v2: sqlite3_create_function_v2,
        result_text: sqlite3_result_text,
    };
    register(host, true)
}
