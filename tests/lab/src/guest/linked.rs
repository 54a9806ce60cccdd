//! The SQLite that is linked, with the VFS registered, and what both tell the error log.
//!
//! Invariant: everything is set up before the first connection is opened.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

use holdfast_sqlite::{Host, Vfs, register};
use rusqlite::ffi;
use rusqlite::trace::config_log;

/// The reports since it was last asked for.
static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn tell(_: c_int, text: &str) {
    // To the console, too, where a person looks when something is wrong.
    println!("sqlite: {text}");
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).push(text.to_owned());
}

/// The reports since the last time.
#[must_use]
pub fn told() -> Vec<String> {
    std::mem::take(&mut TOLD.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Registers the VFS `holdfast` with the SQLite that is linked. Once, before anything else is done
/// with SQLite.
///
/// # Errors
/// The code that SQLite answers.
pub fn set_up() -> Result<(), String> {
    let refused = |code: c_int| format!("SQLite answers {code} while it is set up");
    // SAFETY: the first use of SQLite in this process, which has one thread; the function calls no
    // SQLite.
    unsafe { config_log(Some(tell)) }.map_err(|error| error.to_string())?;
    // SAFETY: these are SQLite's functions of these names; only the names of opaque types differ.
    let host = unsafe {
        Host {
            libversion_number: ffi::sqlite3_libversion_number,
            vfs_find: std::mem::transmute::<
                unsafe extern "C" fn(*const c_char) -> *mut ffi::sqlite3_vfs,
                unsafe extern "C" fn(*const c_char) -> *mut Vfs,
            >(ffi::sqlite3_vfs_find),
            vfs_register: std::mem::transmute::<
                unsafe extern "C" fn(*mut ffi::sqlite3_vfs, c_int) -> c_int,
                unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
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
    };
    // SAFETY: SQLite may be initialised at any time.
    let code = unsafe { ffi::sqlite3_initialize() };
    if code != ffi::SQLITE_OK {
        return Err(refused(code));
    }
    match register(host, false) {
        ffi::SQLITE_OK => Ok(()),
        code => Err(refused(code)),
    }
}
