//! The VFS `holdfast` as the default of a program that cannot be rebuilt and loads no extensions:
//! `libholdfast_sqlite_preload.so`, for `LD_PRELOAD`.
//!
//! It stands in front of the three functions that open a database. The first call registers the
//! VFS with the `libsqlite3.so.0` that the program has loaded, and each call goes on to that one.
//!
//! Invariants:
//! - A program that never opens a database notices nothing: the library needs no symbol of SQLite
//!   and does nothing when it is loaded, so it may be inherited by any child.
//! - SQLite is initialised no earlier than the program itself would do it, so that a
//!   `sqlite3_config` before the first open still works.
//! - A program whose default VFS is not SQLite's own `unix` has chosen one: it keeps it.

#![allow(unsafe_code, reason = "calls C, and is called by it")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use vfs::{Host, NAME, register};

/// The library of SQLite, as programs are linked to it.
const SQLITE: &CStr = c"libsqlite3.so.0";
/// The default VFS of an SQLite for which no other was chosen.
const SQLITES_OWN: &CStr = c"unix";
/// What the functions answer where there is no SQLite to go on to.
const SQLITE_ERROR: c_int = 1;

static REGISTERING: Mutex<()> = Mutex::new(());
static HAS_COMPLAINED: AtomicBool = AtomicBool::new(false);

/// Opens a database, as SQLite's function of this name.
///
/// # Safety
/// As SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_open(name: *const c_char, database: *mut *mut c_void) -> c_int {
    type Open = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
    // SAFETY: the type of SQLite's header.
    match unsafe { function::<Open>(c"sqlite3_open") } {
        Some(open) => {
            make_default();
            // SAFETY: the caller's arguments, as they came.
            unsafe { open(name, database) }
        }
        None => refuse(database),
    }
}

/// Opens a database with a name in UTF-16, as SQLite's function of this name.
///
/// # Safety
/// As SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_open16(name: *const c_void, database: *mut *mut c_void) -> c_int {
    type Open = unsafe extern "C" fn(*const c_void, *mut *mut c_void) -> c_int;
    // SAFETY: the type of SQLite's header.
    match unsafe { function::<Open>(c"sqlite3_open16") } {
        Some(open) => {
            make_default();
            // SAFETY: the caller's arguments, as they came.
            unsafe { open(name, database) }
        }
        None => refuse(database),
    }
}

/// Opens a database with flags, as SQLite's function of this name. A VFS that the caller names is
/// the one that is used.
///
/// # Safety
/// As SQLite's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_open_v2(
    name: *const c_char,
    database: *mut *mut c_void,
    flags: c_int,
    vfs: *const c_char,
) -> c_int {
    type Open =
        unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, *const c_char) -> c_int;
    // SAFETY: the type of SQLite's header.
    match unsafe { function::<Open>(c"sqlite3_open_v2") } {
        Some(open) => {
            make_default();
            // SAFETY: the caller's arguments, as they came.
            unsafe { open(name, database, flags, vfs) }
        }
        None => refuse(database),
    }
}

/// A function of the SQLite behind this library: the one that is loaded, wherever a program or one
/// of its plug-ins loaded it, or else the next one in the order of the linker.
///
/// # Safety
/// `Function` must be its type.
unsafe fn function<Function: Copy>(name: &CStr) -> Option<Function> {
    const { assert!(size_of::<Function>() == size_of::<*mut c_void>()) };
    // SAFETY: loads nothing; the handle stays open, which keeps what is loaded where it is.
    let found = unsafe {
        let loaded = libc::dlopen(SQLITE.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY);
        match loaded.is_null() {
            true => libc::dlsym(libc::RTLD_NEXT, name.as_ptr()),
            false => libc::dlsym(loaded, name.as_ptr()),
        }
    };
    // SAFETY: a pointer to a function of that type, per the contract.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}

/// Has SQLite open databases in our VFS unless the program says otherwise. Again before each open:
/// an SQLite that was shut down begins with its own.
fn make_default() {
    // SAFETY: the fields of `Host` have the types of the functions with their names.
    let Some(host) = (unsafe { host() }) else {
        return complain("this SQLite lacks functions; version 3.40 or newer is needed");
    };
    // Of several threads that open their first databases one registers.
    let _turn = REGISTERING.lock().unwrap_or_else(PoisonError::into_inner);
    let find = |name: Option<&CStr>| {
        // SAFETY: a name, or null, which asks for the default VFS.
        unsafe { (host.vfs_find)(name.map_or(std::ptr::null(), CStr::as_ptr)) }
    };
    let default = find(None);
    if !default.is_null() && default == find(Some(NAME)) {
        return;
    }
    if default != find(Some(SQLITES_OWN)) {
        return complain("the program made a VFS of its own the default, and keeps it");
    }
    let code = register(host, true);
    if code != 0 {
        complain(&format!("SQLite refused the VFS (code {code})"));
    }
}

/// The functions of the SQLite behind this library.
///
/// # Safety
/// None but that of [`function`], which the names see to.
unsafe fn host() -> Option<Host> {
    // SAFETY: the types are those of SQLite's header for these names.
    unsafe {
        Some(Host {
            libversion_number: function(c"sqlite3_libversion_number")?,
            vfs_find: function(c"sqlite3_vfs_find")?,
            vfs_register: function(c"sqlite3_vfs_register")?,
            log: function(c"sqlite3_log")?,
            malloc: function(c"sqlite3_malloc")?,
            uri_parameter: function(c"sqlite3_uri_parameter")?,
            filename_journal: function(c"sqlite3_filename_journal")?,
            filename_wal: function(c"sqlite3_filename_wal")?,
            uri_key: function(c"sqlite3_uri_key")?,
            auto_extension: function(c"sqlite3_auto_extension")?,
            file_control: function(c"sqlite3_file_control")?,
            create_function_v2: function(c"sqlite3_create_function_v2")?,
            result_text: function(c"sqlite3_result_text")?,
        })
    }
}

/// Says on standard error, once, why databases are opened without the VFS.
fn complain(reason: &str) {
    if !HAS_COMPLAINED.swap(true, Ordering::Relaxed) {
        eprintln!("holdfast: databases of this program are opened without the VFS: {reason}");
    }
}

fn refuse(database: *mut *mut c_void) -> c_int {
    complain("it calls SQLite, and no libsqlite3.so.0 is loaded");
    // SAFETY: the caller's variable, which SQLite sets, too.
    if let Some(database) = unsafe { database.as_mut() } {
        *database = std::ptr::null_mut();
    }
    SQLITE_ERROR
}
