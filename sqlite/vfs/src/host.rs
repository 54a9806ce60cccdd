//! The functions of the SQLite that this library serves, filled in at run time.
//!
//! An extension is handed them (`sqlite3_api_routines`), a statically linked library names them
//! itself. Nothing here is used before [`Host`] is complete.

#![allow(unsafe_code, reason = "calls functions of a C library")]

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use crate::complaints;
use crate::ffi::Vfs;

/// Functions of SQLite, by their names there without `sqlite3_`.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "the names are SQLite's")]
pub struct Host {
    pub libversion_number: unsafe extern "C" fn() -> c_int,
    pub vfs_find: unsafe extern "C" fn(*const c_char) -> *mut Vfs,
    pub vfs_register: unsafe extern "C" fn(*mut Vfs, c_int) -> c_int,
    pub log: unsafe extern "C" fn(c_int, *const c_char, ...),
    pub malloc: unsafe extern "C" fn(c_int) -> *mut c_void,
    pub uri_parameter: unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char,
    pub filename_journal: unsafe extern "C" fn(*const c_char) -> *const c_char,
    pub filename_wal: unsafe extern "C" fn(*const c_char) -> *const c_char,
    pub uri_key: unsafe extern "C" fn(*const c_char, c_int) -> *const c_char,
    pub auto_extension: unsafe extern "C" fn(unsafe extern "C" fn()) -> c_int,
    pub file_control: unsafe extern "C" fn(*mut c_void, *const c_char, c_int, *mut c_void) -> c_int,
    pub create_function_v2: CreateFunction,
    pub result_text: unsafe extern "C" fn(*mut c_void, *const c_char, c_int, isize),
}

/// A function of SQL: context, number of values, values.
pub type SqlFunction = unsafe extern "C" fn(*mut c_void, c_int, *mut *mut c_void);

/// `sqlite3_create_function_v2`.
pub type CreateFunction = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    c_int,
    c_int,
    *mut c_void,
    Option<SqlFunction>,
    Option<SqlFunction>,
    Option<unsafe extern "C" fn(*mut c_void)>,
    Option<unsafe extern "C" fn(*mut c_void)>,
) -> c_int;

/// Places of the functions in `sqlite3_api_routines`, which only ever grows at its end.
mod place {
    pub(super) const LIBVERSION_NUMBER: usize = 67;
    pub(super) const MALLOC: usize = 68;
    pub(super) const RESULT_TEXT: usize = 85;
    pub(super) const FILE_CONTROL: usize = 127;
    pub(super) const VFS_FIND: usize = 141;
    pub(super) const VFS_REGISTER: usize = 142;
    pub(super) const CREATE_FUNCTION_V2: usize = 162;
    pub(super) const LOG: usize = 167;
    pub(super) const URI_PARAMETER: usize = 189;
    pub(super) const AUTO_EXTENSION: usize = 192;
    pub(super) const URI_KEY: usize = 245;
    pub(super) const FILENAME_JOURNAL: usize = 247;
    pub(super) const FILENAME_WAL: usize = 248;
}

/// The oldest SQLite that is served, as `sqlite3_libversion_number` tells it.
pub const VERSION_MIN: c_int = 3_040_000;

/// A function of a table.
///
/// # Safety
/// The table must have a function of this type in this place.
unsafe fn function<F: Copy>(table: *const c_void, place: usize) -> F {
    // SAFETY: per the contract; a pointer to a function is as large as any other.
    unsafe { *table.cast::<*const c_void>().add(place).cast::<F>() }
}

static HOST: OnceLock<Host> = OnceLock::new();

impl Host {
    /// The functions that an extension was handed; `None` when SQLite is older than
    /// [`VERSION_MIN`].
    ///
    /// # Safety
    /// `routines` must be the `sqlite3_api_routines` that SQLite handed to the extension's entry
    /// point.
    #[must_use]
    pub unsafe fn from_api(routines: *const c_void) -> Option<Host> {
        // SAFETY: every version of SQLite that loads extensions has the first of these; the others
        // are read only when the version says that they are there. Types are those of
        // `sqlite3ext.h`.
        unsafe {
            let libversion_number: unsafe extern "C" fn() -> c_int =
                function(routines, place::LIBVERSION_NUMBER);
            if libversion_number() < VERSION_MIN {
                return None;
            }
            Some(Host {
                libversion_number,
                vfs_find: function(routines, place::VFS_FIND),
                vfs_register: function(routines, place::VFS_REGISTER),
                log: function(routines, place::LOG),
                malloc: function(routines, place::MALLOC),
                uri_parameter: function(routines, place::URI_PARAMETER),
                filename_journal: function(routines, place::FILENAME_JOURNAL),
                filename_wal: function(routines, place::FILENAME_WAL),
                uri_key: function(routines, place::URI_KEY),
                auto_extension: function(routines, place::AUTO_EXTENSION),
                file_control: function(routines, place::FILE_CONTROL),
                create_function_v2: function(routines, place::CREATE_FUNCTION_V2),
                result_text: function(routines, place::RESULT_TEXT),
            })
        }
    }

    /// The one in use.
    pub(crate) fn get() -> Option<&'static Host> {
        HOST.get()
    }

    /// Takes a table into use; the first one of the process stays.
    pub(crate) fn keep(self) -> &'static Host {
        HOST.get_or_init(|| self)
    }
}

/// Tells the user what happened: see `complaints.rs`; and the program's error log
/// (`SQLITE_CONFIG_LOG`).
pub(crate) fn log(code: c_int, text: &str) {
    complaints::note(code, text);
    let Some(host) = Host::get() else { return };
    let Ok(text) = CString::new(format!("holdfast: {text}")) else { return };
    // SAFETY: both texts end with a zero, and the format takes one text.
    unsafe { (host.log)(code, c"%s".as_ptr(), text.as_ptr()) };
}

/// For a text that SQLite will free.
pub(crate) fn text_for_sqlite(text: &str) -> *mut c_char {
    let Some(host) = Host::get() else { return std::ptr::null_mut() };
    // SAFETY: the memory is as long as is asked for, and filled with the text and a zero.
    unsafe {
        let memory: *mut c_char = (host.malloc)(text.len() as c_int + 1).cast();
        if !memory.is_null() {
            memory.copy_from_nonoverlapping(text.as_ptr().cast(), text.len());
            *memory.add(text.len()) = 0;
        }
        memory
    }
}
