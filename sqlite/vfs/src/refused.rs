//! A database that is not opened, and why. SQLite makes of any error of `xOpen` the text "unable to
//! open database file". So the file is opened as one that answers everything with that error; then
//! SQLite runs what was registered for new connections (`sqlite3_auto_extension`), and an error of
//! that is told with its text: `sqlite3_open` fails, and `sqlite3_errmsg` says why.
//!
//! Invariants: nothing is read from such a file, and nothing written. Where SQLite runs nothing for
//! new connections, a database is refused by the code alone.

#![allow(unsafe_code, reason = "called by C, with its pointers")]

use std::ffi::{CString, c_char, c_int, c_void};

use crate::complaints;
use crate::ffi::Argument;
use crate::ffi::{self, IoMethods, RawFile};
use crate::host::Host;
use crate::host::text_for_sqlite;
use crate::vfs::is_ours;

/// A file control of our own: it fills in a pointer to a [`Refusal`].
const FCNTL_REFUSAL: c_int = 0x4846_0001;
const UTF8: c_int = 1;
/// Not from views and triggers.
const DIRECT_ONLY: c_int = 0x8_0000;
/// SQLite makes a copy of a text.
const TRANSIENT: isize = -1;

/// Why a database is not opened.
#[derive(Debug)]
struct Refusal {
    code: c_int,
    text: String,
}

/// What SQLite holds for such a file.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct RefusedFile {
    raw: RawFile,
    refusal: *mut Refusal,
}

static METHODS: IoMethods = IoMethods {
    version: 1,
    close: Some(close),
    read: Some(read),
    write: Some(write),
    truncate: Some(truncate),
    sync: Some(with_int),
    file_size: Some(file_size),
    lock: Some(lock),
    unlock: Some(unlock),
    check_reserved_lock: Some(check_reserved_lock),
    file_control: Some(control),
    sector_size: Some(sector_size),
    device_characteristics: Some(characteristics),
    shm_map: None,
    shm_lock: None,
    shm_barrier: None,
    shm_unmap: None,
    fetch: None,
    unfetch: None,
};

/// Has SQLite run [`on_connection`] for the connection that it is opening, and each later one;
/// false where it does not. Asked for with each database: a program, or the end of SQLite, may have
/// taken it back. Not asked for earlier: it takes memory of SQLite's.
pub(crate) fn look_at_connections(host: &Host) -> bool {
    // SAFETY: SQLite calls it with the arguments of an extension's entry point, whatever type it is
    // given here.
    unsafe {
        let entry = std::mem::transmute::<Entry, unsafe extern "C" fn()>(on_connection);
        (host.auto_extension)(entry) == ffi::OK
    }
}

type Entry = unsafe extern "C" fn(*mut c_void, *mut *mut c_char, *const c_void) -> c_int;

/// Fills the file that SQLite wants to have opened, so that the reason reaches the user; returns
/// what `xOpen` returns.
///
/// # Safety
/// `file` must be as large as the VFS says, and `out_flags` SQLite's or null.
pub(crate) unsafe fn refuse(
    file: *mut RawFile,
    (flags, out_flags): (c_int, *mut c_int),
    (code, text): (c_int, String),
    is_told: bool,
) -> c_int {
    if !is_told {
        return code;
    }
    let refusal = Box::into_raw(Box::new(Refusal { code, text }));
    // SAFETY: per the contract.
    unsafe {
        file.cast::<RefusedFile>()
            .write(RefusedFile { raw: RawFile { methods: &raw const METHODS }, refusal });
        if !out_flags.is_null() {
            *out_flags = flags;
        }
    }
    ffi::OK
}

/// What SQLite runs for each new connection.
unsafe extern "C" fn on_connection(
    database: *mut c_void,
    message: *mut *mut c_char,
    _routines: *const c_void,
) -> c_int {
    let Some(host) = Host::get() else { return ffi::OK };
    // SAFETY: a connection that is open, and a text for SQLite to free.
    unsafe {
        add_functions(host, database);
        let mut vfs: *mut ffi::Vfs = std::ptr::null_mut();
        let known = (host.file_control)(
            database,
            c"main".as_ptr(),
            ffi::FCNTL_VFS_POINTER,
            (&raw mut vfs).cast(),
        );
        if known != ffi::OK || !is_ours(vfs) {
            return ffi::OK;
        }
        let mut refusal: *const Refusal = std::ptr::null();
        let found = (host.file_control)(
            database,
            c"main".as_ptr(),
            FCNTL_REFUSAL,
            (&raw mut refusal).cast(),
        );
        if found != ffi::OK || refusal.is_null() {
            return ffi::OK;
        }
        if !message.is_null() {
            *message = text_for_sqlite(&format!("holdfast: {}", (*refusal).text));
        }
        (*refusal).code
    }
}

/// Gives a connection `holdfast_error()`.
///
/// # Safety
/// `database` must be a connection of the SQLite that `host` belongs to.
pub(crate) unsafe fn add_functions(host: &Host, database: *mut c_void) {
    // SAFETY: per the contract; what cannot be added is missing, and nothing else.
    unsafe {
        let name = c"holdfast_error".as_ptr();
        let (flags, data) = (UTF8 | DIRECT_ONLY, std::ptr::null_mut());
        (host.create_function_v2)(
            database,
            name,
            0,
            flags,
            data,
            Some(newest_error),
            None,
            None,
            None,
        );
    }
}

/// The newest error of this process; NULL where there was none.
unsafe extern "C" fn newest_error(context: *mut c_void, _count: c_int, _values: *mut *mut c_void) {
    let text = complaints::newest().and_then(|text| CString::new(text).ok());
    if let (Some(host), Some(text)) = (Host::get(), text) {
        // SAFETY: SQLite's context; the text ends with a zero, and is copied.
        unsafe { (host.result_text)(context, text.as_ptr(), -1, TRANSIENT) };
    }
}

fn refusal_of(file: *mut RawFile) -> *mut Refusal {
    // SAFETY: the file is one of ours, open.
    unsafe { (*file.cast::<RefusedFile>()).refusal }
}

fn code_of(file: *mut RawFile) -> c_int {
    // SAFETY: as long as the file is open.
    let code = unsafe { (*refusal_of(file)).code };
    // A busy handler would ask again and again.
    if code & 0xff == ffi::BUSY { ffi::CANTOPEN } else { code }
}

unsafe extern "C" fn close(file: *mut RawFile) -> c_int {
    // SAFETY: no process uses the file after this.
    unsafe {
        drop(Box::from_raw(refusal_of(file)));
        (*file).methods = std::ptr::null();
    }
    ffi::OK
}

/// An empty file, which SQLite looks into before it runs what was registered.
unsafe extern "C" fn read(
    _file: *mut RawFile,
    buffer: *mut c_void,
    bytes: c_int,
    _offset: i64,
) -> c_int {
    // SAFETY: SQLite's buffer.
    unsafe { buffer.cast::<u8>().write_bytes(0, usize::try_from(bytes).unwrap_or(0)) };
    ffi::IOERR_SHORT_READ
}

unsafe extern "C" fn write(file: *mut RawFile, _: *const c_void, _: c_int, _: i64) -> c_int {
    code_of(file)
}

unsafe extern "C" fn truncate(file: *mut RawFile, _size: i64) -> c_int {
    code_of(file)
}

unsafe extern "C" fn with_int(file: *mut RawFile, _flags: c_int) -> c_int {
    code_of(file)
}

unsafe extern "C" fn file_size(_file: *mut RawFile, size: *mut i64) -> c_int {
    // SAFETY: SQLite's variable.
    unsafe { *size = 0 };
    ffi::OK
}

unsafe extern "C" fn lock(file: *mut RawFile, level: c_int) -> c_int {
    if level > ffi::LOCK_NONE { code_of(file) } else { ffi::OK }
}

unsafe extern "C" fn unlock(_file: *mut RawFile, _level: c_int) -> c_int {
    ffi::OK
}

unsafe extern "C" fn check_reserved_lock(_file: *mut RawFile, answer: *mut c_int) -> c_int {
    // SAFETY: SQLite's variable.
    unsafe { *answer = 0 };
    ffi::OK
}

unsafe extern "C" fn control(file: *mut RawFile, operation: c_int, argument: Argument) -> c_int {
    match operation {
        FCNTL_REFUSAL => {
            // SAFETY: `on_connection` passes a pointer to fill.
            unsafe { *argument.cast::<*const Refusal>() = refusal_of(file) };
            ffi::OK
        }
        ffi::FCNTL_PRAGMA => {
            // SAFETY: SQLite passes three texts, of which the first is to be filled; it frees that.
            unsafe { *argument.cast::<*mut c_char>() = text_for_sqlite(&(*refusal_of(file)).text) };
            ffi::ERROR
        }
        _ => ffi::NOTFOUND,
    }
}

unsafe extern "C" fn sector_size(_file: *mut RawFile) -> c_int {
    0
}

unsafe extern "C" fn characteristics(_file: *mut RawFile) -> c_int {
    0
}
