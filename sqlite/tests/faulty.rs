//! A VFS over that of Unix whose calls are numbered and of which one, or all from one on, fail, or
//! end the process. It becomes the default one before the extension is loaded, so the extension
//! works upon it.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI64, AtomicPtr, AtomicU32, Ordering::SeqCst};

use rusqlite::ffi;

/// What happens at the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It fails, and the next ones do not.
    ErrorOnce,
    /// It and all later ones that need room fail, as on a full disk; there files are still
    /// shortened and removed.
    Full,
    /// The process is gone.
    Death,
    /// It and all later ones fail: files are not even shortened or removed any more.
    Broken,
}

impl Fault {
    pub(crate) fn named(name: &str) -> Fault {
        match name {
            "error" => Fault::ErrorOnce,
            "full" => Fault::Full,
            "death" => Fault::Death,
            "broken" => Fault::Broken,
            _ => panic!("there is no fault {name}"),
        }
    }
}

static CALLS: AtomicI64 = AtomicI64::new(0);
static AT: AtomicI64 = AtomicI64::new(i64::MAX);
static FAULT: AtomicU32 = AtomicU32::new(0);
static UNIX: AtomicPtr<ffi::sqlite3_vfs> = AtomicPtr::new(std::ptr::null_mut());

/// How many calls there were.
pub(crate) fn calls() -> i64 {
    CALLS.load(SeqCst)
}

/// Arms the fault: it strikes at that call from now on, counted from 1.
pub(crate) fn arm(fault: Fault, at: i64) {
    FAULT.store(fault as u32, SeqCst);
    CALLS.store(0, SeqCst);
    AT.store(at, SeqCst);
}

/// No fault any more.
pub(crate) fn disarm() {
    AT.store(i64::MAX, SeqCst);
}

/// Counts a call; `Some` when it must fail.
fn struck(error: c_int, needs_room: bool) -> Option<c_int> {
    let number = CALLS.fetch_add(1, SeqCst) + 1;
    let at = AT.load(SeqCst);
    if number < at {
        return None;
    }
    match FAULT.load(SeqCst) {
        fault if fault == Fault::Death as u32 => std::process::abort(),
        fault if fault == Fault::Broken as u32 => Some(error),
        fault if fault == Fault::Full as u32 => needs_room.then_some(ffi::SQLITE_FULL),
        _ => (number == at).then_some(error),
    }
}

/// One of our files: the methods, and behind it the file of Unix.
#[repr(C)]
struct File {
    methods: *const ffi::sqlite3_io_methods,
    inner: *mut ffi::sqlite3_file,
}

/// The file behind ours, and its methods.
unsafe fn inner(
    file: *mut ffi::sqlite3_file,
) -> (*mut ffi::sqlite3_file, &'static ffi::sqlite3_io_methods) {
    // SAFETY: SQLite calls methods with files that `open` has filled in; methods of Unix are
    // static.
    unsafe {
        let inner = (*file.cast::<File>()).inner;
        (inner, &*(*inner).pMethods)
    }
}

macro_rules! method {
    ($name:ident, $method:ident, $error:expr, $changes:expr $(, $argument:ident: $type:ty)*) => {
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $argument: $type)*) -> c_int {
            if let Some(error) = struck($error, $changes) {
                return error;
            }
            // SAFETY: as SQLite called us, with the file behind.
            unsafe {
                let (inner, methods) = inner(file);
                methods.$method.unwrap()(inner $(, $argument)*)
            }
        }
    };
}

/// The same for what has no error that anybody looks at.
macro_rules! passed {
    ($name:ident, $method:ident $(, $argument:ident: $type:ty)*) => {
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $argument: $type)*) -> c_int {
            // SAFETY: as SQLite called us, with the file behind.
            unsafe {
                let (inner, methods) = inner(file);
                methods.$method.unwrap()(inner $(, $argument)*)
            }
        }
    };
}

method!(read, xRead, ffi::SQLITE_IOERR_READ, false, target: *mut c_void, bytes: c_int, offset: i64);
method!(write, xWrite, ffi::SQLITE_IOERR_WRITE, true, source: *const c_void, bytes: c_int, offset: i64);
method!(truncate, xTruncate, ffi::SQLITE_IOERR_TRUNCATE, false, size: i64);
method!(sync, xSync, ffi::SQLITE_IOERR_FSYNC, true, flags: c_int);
method!(size, xFileSize, ffi::SQLITE_IOERR_FSTAT, false, size: *mut i64);
method!(lock, xLock, ffi::SQLITE_IOERR_LOCK, false, level: c_int);
passed!(unlock, xUnlock, level: c_int);
method!(reserved, xCheckReservedLock, ffi::SQLITE_IOERR_CHECKRESERVEDLOCK, false, found: *mut c_int);
passed!(control, xFileControl, operation: c_int, argument: *mut c_void);
method!(
    shm_map,
    xShmMap,
    ffi::SQLITE_IOERR_SHMMAP,
    true,
    region: c_int,
    bytes: c_int,
    extend: c_int,
    out: *mut *mut c_void
);
passed!(shm_lock, xShmLock, first: c_int, count: c_int, flags: c_int);
passed!(shm_unmap, xShmUnmap, delete: c_int);
passed!(sector, xSectorSize);
passed!(device, xDeviceCharacteristics);

unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: as SQLite called us, with the file behind.
    unsafe {
        let (inner, methods) = inner(file);
        methods.xShmBarrier.unwrap()(inner);
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: as SQLite called us; the allocation is that of `open`.
    unsafe {
        let (inner, methods) = inner(file);
        let done = methods.xClose.unwrap()(inner);
        ffi::sqlite3_free(inner.cast());
        (*file).pMethods = std::ptr::null();
        done
    }
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(reserved),
    xFileControl: Some(control),
    xSectorSize: Some(sector),
    xDeviceCharacteristics: Some(device),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

unsafe extern "C" fn open(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite gives room for our `File`; the room for that of Unix is as large as Unix wants
    // it.
    unsafe {
        (*file).pMethods = std::ptr::null();
        if let Some(error) = struck(ffi::SQLITE_CANTOPEN, false) {
            return error;
        }
        let unix = UNIX.load(SeqCst);
        let room: *mut ffi::sqlite3_file = ffi::sqlite3_malloc((*unix).szOsFile).cast();
        if room.is_null() {
            return ffi::SQLITE_NOMEM;
        }
        std::ptr::write_bytes(room.cast::<u8>(), 0, (*unix).szOsFile as usize);
        let done = (*unix).xOpen.unwrap()(unix, name, room, flags, flags_out);
        if (*room).pMethods.is_null() {
            ffi::sqlite3_free(room.cast());
            return done;
        }
        (*file.cast::<File>()).inner = room;
        if done != ffi::SQLITE_OK {
            close(file);
            return done;
        }
        (*file).pMethods = &raw const METHODS;
        done
    }
}

unsafe extern "C" fn delete(
    _vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    sync: c_int,
) -> c_int {
    if let Some(error) = struck(ffi::SQLITE_IOERR_DELETE, false) {
        return error;
    }
    let unix = UNIX.load(SeqCst);
    // SAFETY: as SQLite called us.
    unsafe { (*unix).xDelete.unwrap()(unix, name, sync) }
}

/// Makes this the default VFS.
pub(crate) fn register() {
    // SAFETY: the table is a copy of Unix's with functions of the same types, and lives for ever.
    unsafe {
        assert_eq!(ffi::sqlite3_initialize(), ffi::SQLITE_OK);
        let unix = ffi::sqlite3_vfs_find(c"unix".as_ptr());
        UNIX.store(unix, SeqCst);
        let ours = Box::leak(Box::new(std::ptr::read(unix)));
        ours.szOsFile = size_of::<File>() as c_int;
        ours.zName = c"faulty".as_ptr();
        ours.pNext = std::ptr::null_mut();
        ours.xOpen = Some(open);
        ours.xDelete = Some(delete);
        assert_eq!(ffi::sqlite3_vfs_register(ours, 1), ffi::SQLITE_OK);
    }
}
