//! Methods of our two kinds of files, as C functions: a database, and its journal.
//!
//! Invariants: no panic leaves this file; a file in a forked child answers MISUSE and closes
//! nothing of its parent's.

#![allow(unsafe_code, reason = "called by C, with its pointers")]

use std::ffi::{CStr, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::Base;
use crate::connection::{Connection, report};
use crate::error::SqliteError;
use crate::ffi::{self, Argument, IoMethods, RawFile};
use crate::mark;
use crate::memory;
use crate::pragma;
use crate::registry;
use crate::stub;

/// What SQLite holds for an open file.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct OurFile {
    pub(crate) raw: RawFile,
    pub(crate) connection: *mut Connection,
}

const SECTOR_BYTES: c_int = 4096;
/// What a store to memory is: whole, in order, appended before it is seen.
const CHARACTERISTICS: c_int =
    ffi::IOCAP_POWERSAFE_OVERWRITE | ffi::IOCAP_SAFE_APPEND | ffi::IOCAP_SEQUENTIAL;

/// Methods of a database that does not go over to WAL mode.
pub(crate) static MAIN: IoMethods = of_database(1);
/// The same of one that may: SQLite looks at the version before it asks for shared memory.
static MAIN_SHARED: IoMethods = of_database(2);
/// And where the file below can be mapped: in WAL mode its pages are, and else SQLite is told to
/// read them.
static MAIN_MAPPED: IoMethods = of_database(3);

const fn of_database(version: c_int) -> IoMethods {
    IoMethods {
        version,
        close: Some(main_close),
        read: Some(main_read),
        write: Some(main_write),
        truncate: Some(main_truncate),
        sync: Some(main_sync),
        file_size: Some(main_size),
        lock: Some(main_lock),
        unlock: Some(main_unlock),
        check_reserved_lock: Some(main_check_reserved),
        file_control: Some(main_control),
        sector_size: Some(main_sector_size),
        device_characteristics: Some(main_characteristics),
        shm_map: Some(memory::map),
        shm_lock: Some(memory::lock),
        shm_barrier: Some(memory::barrier),
        shm_unmap: Some(memory::unmap),
        fetch: Some(memory::fetch),
        unfetch: Some(memory::unfetch),
    }
}

/// Methods of a journal.
pub(crate) static JOURNAL: IoMethods = IoMethods {
    version: 1,
    close: Some(journal_close),
    read: Some(journal_read),
    write: Some(journal_write),
    truncate: Some(journal_truncate),
    sync: Some(journal_sync),
    file_size: Some(journal_size),
    lock: Some(no_lock),
    unlock: Some(no_lock),
    check_reserved_lock: Some(nothing_reserved),
    file_control: Some(no_control),
    sector_size: Some(sector_size),
    device_characteristics: Some(characteristics),
    shm_map: None,
    shm_lock: None,
    shm_barrier: None,
    shm_unmap: None,
    fetch: None,
    unfetch: None,
};

// SAFETY: the tables are never written, and hold functions and nulls.
unsafe impl Sync for IoMethods {}

/// Runs a method on the connection of a file.
#[inline]
pub(crate) fn with(
    file: *mut RawFile,
    work: impl FnOnce(&mut Connection) -> Result<c_int, c_int>,
) -> c_int {
    // SAFETY: the file is one of ours, open; SQLite uses a connection from one thread at a time.
    let connection = unsafe { &mut *(*file.cast::<OurFile>()).connection };
    catch_unwind(AssertUnwindSafe(|| work(connection).unwrap_or_else(|code| code)))
        .unwrap_or(ffi::IOERR)
}

/// A first page that is read or written says whether the database is in WAL mode.
#[inline]
fn note_mode(connection: &mut Connection, offset: i64, page: &[u8]) {
    if offset == 0 && page.len() >= mark::HEADER_BYTES && mark::is_wal(page) != connection.is_wal {
        connection.is_wal = !connection.is_wal;
        choose_methods(connection, connection.is_wal);
    }
}

/// Lets SQLite see shared memory where the database is in WAL mode, as a process that asks may
/// know, or may go over to it.
#[cold]
pub(crate) fn choose_methods(connection: &Connection, is_wal: bool) {
    let below = connection.base.methods();
    let is_served = below.version >= 2 && below.shm_map.is_some();
    let methods = match is_served && (is_wal || connection.pool.settings.lets_wal_pass()) {
        true if below.version >= 3 => &MAIN_MAPPED,
        true => &MAIN_SHARED,
        false => &MAIN,
    };
    if !connection.file.is_null() {
        // SAFETY: the file is open as long as its connection, and SQLite uses it from one thread at
        // a time.
        unsafe { (*connection.file).methods = methods };
    }
}

fn journal_error(
    connection: &Connection,
    step: &'static str,
) -> impl FnOnce(std::io::Error) -> c_int {
    move |error| match error.kind() {
        std::io::ErrorKind::OutOfMemory => ffi::NOMEM,
        _ => {
            let path = stub::journal_path(&connection.database);
            report(&SqliteError::Io { step, path, source: error })
        }
    }
}

unsafe extern "C" fn main_close(file: *mut RawFile) -> c_int {
    // SAFETY: the file is one of ours; no process uses it after this.
    unsafe {
        let ours = &mut *file.cast::<OurFile>();
        let mut connection = Box::from_raw(ours.connection);
        ours.raw.methods = std::ptr::null();
        registry::forget_connection(ours.connection);
        let closed = catch_unwind(AssertUnwindSafe(move || {
            let _ = connection.unlock(ffi::LOCK_NONE);
            connection.base.close();
            registry::leave(connection.pool);
        }));
        if closed.is_ok() { ffi::OK } else { ffi::IOERR }
    }
}

/// A buffer of SQLite's.
///
/// # Safety
/// It must be as long as is said, and initialised or only written to.
unsafe fn target<'a>(buffer: *mut c_void, bytes: c_int) -> &'a mut [u8] {
    // SAFETY: per the contract.
    unsafe { std::slice::from_raw_parts_mut(buffer.cast(), usize::try_from(bytes).unwrap_or(0)) }
}

/// As [`target`], for reading.
///
/// # Safety
/// As there.
unsafe fn source<'a>(buffer: *const c_void, bytes: c_int) -> &'a [u8] {
    // SAFETY: per the contract.
    unsafe { std::slice::from_raw_parts(buffer.cast(), usize::try_from(bytes).unwrap_or(0)) }
}

unsafe extern "C" fn main_read(
    file: *mut RawFile,
    buffer: *mut c_void,
    bytes: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite's buffer.
    let target = unsafe { target(buffer, bytes) };
    with(file, |connection| {
        let is_whole = connection.read(offset as u64, target)?;
        note_mode(connection, offset, target);
        let is_answered = connection.gives_cache_up(offset as u64, target) || is_whole;
        Ok(if is_answered { ffi::OK } else { ffi::IOERR_SHORT_READ })
    })
}

unsafe extern "C" fn main_write(
    file: *mut RawFile,
    buffer: *const c_void,
    bytes: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite's buffer.
    let source = unsafe { source(buffer, bytes) };
    with(file, |connection| {
        connection.write(offset as u64, source)?;
        note_mode(connection, offset, source);
        Ok(ffi::OK)
    })
}

unsafe extern "C" fn main_truncate(file: *mut RawFile, size: i64) -> c_int {
    with(file, |connection| connection.truncate(size as u64).map(|()| ffi::OK))
}

unsafe extern "C" fn main_sync(file: *mut RawFile, _flags: c_int) -> c_int {
    with(file, |connection| connection.sync().map(|()| ffi::OK))
}

unsafe extern "C" fn main_size(file: *mut RawFile, size: *mut i64) -> c_int {
    with(file, |connection| {
        let found = connection.size()?;
        // SAFETY: SQLite's variable.
        unsafe { *size = found as i64 };
        Ok(ffi::OK)
    })
}

unsafe extern "C" fn main_lock(file: *mut RawFile, level: c_int) -> c_int {
    with(file, |connection| connection.lock(level).map(|()| ffi::OK))
}

unsafe extern "C" fn main_unlock(file: *mut RawFile, level: c_int) -> c_int {
    with(file, |connection| connection.unlock(level).map(|()| ffi::OK))
}

unsafe extern "C" fn main_check_reserved(file: *mut RawFile, answer: *mut c_int) -> c_int {
    with(file, |connection| {
        let found = connection.is_reserved()?;
        // SAFETY: SQLite's variable.
        unsafe { *answer = c_int::from(found) };
        Ok(ffi::OK)
    })
}

unsafe extern "C" fn main_control(
    file: *mut RawFile,
    operation: c_int,
    argument: Argument,
) -> c_int {
    with(file, |connection| match operation {
        ffi::FCNTL_COMMIT_PHASETWO => connection.commit().map(|()| ffi::OK),
        ffi::FCNTL_SYNC => {
            // The journal goes next, also where nothing is to be synced.
            connection.settle_durably()?;
            if !argument.is_null() {
                // SAFETY: SQLite passes the name of the super-journal, or null.
                let name = unsafe { CStr::from_ptr(argument.cast()) };
                connection.prepare(name.to_bytes())?;
            }
            Ok(ffi::OK)
        }
        ffi::FCNTL_PRAGMA => {
            // SAFETY: SQLite passes three texts.
            let code = unsafe { pragma::answer(connection, argument.cast()) };
            // It may have been about WAL, for this connection or another one of the process.
            choose_methods(connection, connection.is_wal);
            Ok(code)
        }
        ffi::FCNTL_LOCKSTATE if connection.in_pool => {
            // SAFETY: an integer, as SQLite documents.
            unsafe { *argument.cast::<c_int>() = connection.level() };
            Ok(ffi::OK)
        }
        ffi::FCNTL_HAS_MOVED if connection.is_hot() && !connection.asks_for_move() => {
            // SAFETY: an integer, as SQLite documents.
            unsafe { *argument.cast::<c_int>() = 0 };
            Ok(ffi::OK)
        }
        // What changes the file is the checkpoint's to do.
        ffi::FCNTL_SIZE_HINT if connection.is_hot() => Ok(ffi::OK),
        ffi::FCNTL_CHUNK_SIZE => {
            // SAFETY: an integer, as SQLite documents.
            let bytes = unsafe { *argument.cast::<c_int>() };
            connection.pool.base().grow_by(bytes);
            connection.base.grow_by(bytes);
            Ok(connection.base.control(operation, argument))
        }
        _ => Ok(connection.base.control(operation, argument)),
    })
}

/// Of the file, while no pages are in the pool.
unsafe extern "C" fn main_sector_size(file: *mut RawFile) -> c_int {
    with(file, |connection| {
        let (below, methods) = (connection.base.file, connection.base.methods());
        Ok(match methods.sector_size {
            // SAFETY: the file is open.
            Some(size) if !connection.in_pool && !connection.is_going => unsafe { size(below) },
            _ => SECTOR_BYTES,
        })
    })
}

/// As [`main_sector_size`].
unsafe extern "C" fn main_characteristics(file: *mut RawFile) -> c_int {
    with(file, |connection| {
        if connection.in_pool || connection.is_going {
            return Ok(CHARACTERISTICS);
        }
        let found = connection.base.methods().device_characteristics;
        // SAFETY: the file is open.
        Ok(found.map_or(0, |found| unsafe { found(connection.base.file) }))
    })
}

unsafe extern "C" fn sector_size(_file: *mut RawFile) -> c_int {
    SECTOR_BYTES
}

unsafe extern "C" fn characteristics(_file: *mut RawFile) -> c_int {
    CHARACTERISTICS
}

unsafe extern "C" fn journal_close(file: *mut RawFile) -> c_int {
    // SAFETY: the file is one of ours.
    unsafe { (*file).methods = std::ptr::null() };
    ffi::OK
}

unsafe extern "C" fn journal_read(
    file: *mut RawFile,
    buffer: *mut c_void,
    bytes: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite's buffer.
    let target = unsafe { target(buffer, bytes) };
    with(file, |connection| {
        let read = connection.journal.read(offset as u64, target);
        match read.map_err(journal_error(connection, "read"))? {
            true => Ok(ffi::OK),
            false => Ok(ffi::IOERR_SHORT_READ),
        }
    })
}

unsafe extern "C" fn journal_write(
    file: *mut RawFile,
    buffer: *const c_void,
    bytes: c_int,
    offset: i64,
) -> c_int {
    // SAFETY: SQLite's buffer.
    let source = unsafe { source(buffer, bytes) };
    with(file, |connection| {
        connection.names_super |= stub::ends_reference(source);
        let written = connection.journal.write(offset as u64, source);
        written.map_err(journal_error(connection, "write to")).map(|()| ffi::OK)
    })
}

unsafe extern "C" fn journal_truncate(file: *mut RawFile, size: i64) -> c_int {
    with(file, |connection| {
        let done = connection.journal.truncate(size as u64);
        done.map_err(journal_error(connection, "shorten")).map(|()| ffi::OK)
    })
}

unsafe extern "C" fn journal_sync(file: *mut RawFile, _flags: c_int) -> c_int {
    with(file, |connection| {
        let done = connection.journal.sync();
        done.map_err(journal_error(connection, "sync")).map(|()| ffi::OK)
    })
}

unsafe extern "C" fn journal_size(file: *mut RawFile, size: *mut i64) -> c_int {
    with(file, |connection| {
        let found = connection.journal.size().map_err(journal_error(connection, "measure"))?;
        // SAFETY: SQLite's variable.
        unsafe { *size = found as i64 };
        Ok(ffi::OK)
    })
}

unsafe extern "C" fn no_lock(_file: *mut RawFile, _level: c_int) -> c_int {
    ffi::OK
}

unsafe extern "C" fn nothing_reserved(_file: *mut RawFile, answer: *mut c_int) -> c_int {
    // SAFETY: SQLite's variable.
    unsafe { *answer = 0 };
    ffi::OK
}

unsafe extern "C" fn no_control(
    _file: *mut RawFile,
    _operation: c_int,
    _argument: Argument,
) -> c_int {
    ffi::NOTFOUND
}
