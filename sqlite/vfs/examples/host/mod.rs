//! The SQLite that `rusqlite` compiles in, as the library wants it described: once for all examples
//! and tests.

use std::ffi::{c_char, c_void};

use holdfast_sqlite::Host;
use rusqlite::ffi;

/// Its functions.
pub(crate) fn host() -> Host {
    // SAFETY: the functions are those that the types say; only the names of opaque types differ.
    unsafe {
        Host {
            libversion_number: ffi::sqlite3_libversion_number,
            vfs_find: std::mem::transmute::<
                unsafe extern "C" fn(*const i8) -> *mut ffi::sqlite3_vfs,
                unsafe extern "C" fn(*const i8) -> *mut holdfast_sqlite::Vfs,
            >(ffi::sqlite3_vfs_find),
            vfs_register: std::mem::transmute::<
                unsafe extern "C" fn(*mut ffi::sqlite3_vfs, i32) -> i32,
                unsafe extern "C" fn(*mut holdfast_sqlite::Vfs, i32) -> i32,
            >(ffi::sqlite3_vfs_register),
            log: ffi::sqlite3_log,
            malloc: ffi::sqlite3_malloc,
            uri_parameter: ffi::sqlite3_uri_parameter,
            filename_journal: ffi::sqlite3_filename_journal,
            filename_wal: ffi::sqlite3_filename_wal,
            uri_key: ffi::sqlite3_uri_key,
            auto_extension: std::mem::transmute::<
                *const (),
                unsafe extern "C" fn(unsafe extern "C" fn()) -> i32,
            >(ffi::sqlite3_auto_extension as *const ()),
            file_control: std::mem::transmute::<
                unsafe extern "C" fn(*mut ffi::sqlite3, *const c_char, i32, *mut c_void) -> i32,
                unsafe extern "C" fn(*mut c_void, *const c_char, i32, *mut c_void) -> i32,
            >(ffi::sqlite3_file_control),
            create_function_v2: std::mem::transmute::<*const (), holdfast_sqlite::CreateFunction>(
                ffi::sqlite3_create_function_v2 as *const (),
            ),
            result_text: std::mem::transmute::<
                *const (),
                unsafe extern "C" fn(*mut c_void, *const c_char, i32, isize),
            >(ffi::sqlite3_result_text as *const ()),
        }
    }
}
