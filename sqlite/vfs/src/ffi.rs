//! The part of SQLite's C interface that a VFS needs: types as in `sqlite3.h` (3.40 and later), and
//! codes.
//!
//! Own declarations, because this library must not link an SQLite: it serves the one of the program
//! that loads it. A test of the extension compares sizes and offsets with the header.

#![forbid(unsafe_code)]

use std::ffi::{c_char, c_int, c_void};

pub(crate) const OK: c_int = 0;
pub(crate) const ERROR: c_int = 1;
pub(crate) const BUSY: c_int = 5;
pub(crate) const NOMEM: c_int = 7;
pub(crate) const READONLY_DIRECTORY: c_int = 8 | 6 << 8;
pub(crate) const IOERR: c_int = 10;
pub(crate) const NOTFOUND: c_int = 12;
pub(crate) const FULL: c_int = 13;
pub(crate) const CANTOPEN: c_int = 14;
pub(crate) const MISUSE: c_int = 21;
pub(crate) const NOTADB: c_int = 26;
pub(crate) const NOTICE: c_int = 27;
pub(crate) const IOERR_SHORT_READ: c_int = IOERR | 2 << 8;

pub(crate) const OPEN_READONLY: c_int = 0x1;
pub(crate) const OPEN_READWRITE: c_int = 0x2;
pub(crate) const OPEN_CREATE: c_int = 0x4;
pub(crate) const OPEN_DELETEONCLOSE: c_int = 0x8;
pub(crate) const OPEN_MAIN_DB: c_int = 0x100;
pub(crate) const OPEN_MAIN_JOURNAL: c_int = 0x800;
pub(crate) const OPEN_WAL: c_int = 0x80000;

pub(crate) const LOCK_NONE: c_int = 0;
pub(crate) const LOCK_SHARED: c_int = 1;
pub(crate) const LOCK_RESERVED: c_int = 2;
pub(crate) const LOCK_PENDING: c_int = 3;
pub(crate) const LOCK_EXCLUSIVE: c_int = 4;

pub(crate) const SYNC_NORMAL: c_int = 2;
pub(crate) const ACCESS_EXISTS: c_int = 0;

pub(crate) const FCNTL_LOCKSTATE: c_int = 1;
pub(crate) const FCNTL_SIZE_HINT: c_int = 5;
pub(crate) const FCNTL_CHUNK_SIZE: c_int = 6;
pub(crate) const FCNTL_PRAGMA: c_int = 14;
pub(crate) const FCNTL_MMAP_SIZE: c_int = 18;
pub(crate) const FCNTL_HAS_MOVED: c_int = 20;
pub(crate) const FCNTL_SYNC: c_int = 21;
pub(crate) const FCNTL_COMMIT_PHASETWO: c_int = 22;
pub(crate) const FCNTL_VFS_POINTER: c_int = 27;

pub(crate) const IOCAP_SAFE_APPEND: c_int = 0x200;
pub(crate) const IOCAP_SEQUENTIAL: c_int = 0x400;
pub(crate) const IOCAP_POWERSAFE_OVERWRITE: c_int = 0x1000;

/// Bytes of a page that SQLite never uses: it holds the bytes that are locked.
pub(crate) const PENDING_BYTE: u64 = 0x4000_0000;

/// `sqlite3_file`.
#[repr(C)]
#[derive(Debug)]
pub struct RawFile {
    pub(crate) methods: *const IoMethods,
}

type Get = Option<unsafe extern "C" fn(*mut RawFile) -> c_int>;
type WithInt = Option<unsafe extern "C" fn(*mut RawFile, c_int) -> c_int>;

/// `sqlite3_io_methods`.
#[repr(C)]
#[derive(Debug)]
pub struct IoMethods {
    pub(crate) version: c_int,
    pub(crate) close: Get,
    pub(crate) read: Option<unsafe extern "C" fn(*mut RawFile, *mut c_void, c_int, i64) -> c_int>,
    pub(crate) write:
        Option<unsafe extern "C" fn(*mut RawFile, *const c_void, c_int, i64) -> c_int>,
    pub(crate) truncate: Option<unsafe extern "C" fn(*mut RawFile, i64) -> c_int>,
    pub(crate) sync: WithInt,
    pub(crate) file_size: Option<unsafe extern "C" fn(*mut RawFile, *mut i64) -> c_int>,
    pub(crate) lock: WithInt,
    pub(crate) unlock: WithInt,
    pub(crate) check_reserved_lock: Option<unsafe extern "C" fn(*mut RawFile, *mut c_int) -> c_int>,
    pub(crate) file_control:
        Option<unsafe extern "C" fn(*mut RawFile, c_int, *mut c_void) -> c_int>,
    pub(crate) sector_size: Get,
    pub(crate) device_characteristics: Get,
    /// From version 2 on: shared memory, for WAL mode.
    pub(crate) shm_map:
        Option<unsafe extern "C" fn(*mut RawFile, c_int, c_int, c_int, *mut *mut c_void) -> c_int>,
    pub(crate) shm_lock: Option<unsafe extern "C" fn(*mut RawFile, c_int, c_int, c_int) -> c_int>,
    pub(crate) shm_barrier: Option<unsafe extern "C" fn(*mut RawFile)>,
    pub(crate) shm_unmap: WithInt,
    /// From version 3 on: pages of a mapped file.
    pub(crate) fetch:
        Option<unsafe extern "C" fn(*mut RawFile, i64, c_int, *mut *mut c_void) -> c_int>,
    pub(crate) unfetch: Option<unsafe extern "C" fn(*mut RawFile, i64, *mut c_void) -> c_int>,
}

/// `sqlite3_vfs`.
#[repr(C)]
#[derive(Debug)]
pub struct Vfs {
    pub(crate) version: c_int,
    pub(crate) file_bytes: c_int,
    pub(crate) path_bytes_max: c_int,
    pub(crate) next: *mut Vfs,
    pub(crate) name: *const c_char,
    pub(crate) app_data: *mut c_void,
    pub(crate) open: Option<
        unsafe extern "C" fn(*mut Vfs, *const c_char, *mut RawFile, c_int, *mut c_int) -> c_int,
    >,
    pub(crate) delete: Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int) -> c_int>,
    pub(crate) access:
        Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_int) -> c_int>,
    pub(crate) full_pathname:
        Option<unsafe extern "C" fn(*mut Vfs, *const c_char, c_int, *mut c_char) -> c_int>,
    /// `xDlOpen` to `xSetSystemCall` and beyond: copied from the base VFS, see `vfs.rs`.
    pub(crate) dl_open: Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *mut c_void>,
    pub(crate) dl_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char)>,
    pub(crate) dl_sym: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void, *const c_char) -> Symbol>,
    pub(crate) dl_close: Option<unsafe extern "C" fn(*mut Vfs, *mut c_void)>,
    pub(crate) randomness: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    pub(crate) sleep: Option<unsafe extern "C" fn(*mut Vfs, c_int) -> c_int>,
    pub(crate) current_time: Option<unsafe extern "C" fn(*mut Vfs, *mut f64) -> c_int>,
    pub(crate) get_last_error: Option<unsafe extern "C" fn(*mut Vfs, c_int, *mut c_char) -> c_int>,
    pub(crate) current_time_int64: Option<unsafe extern "C" fn(*mut Vfs, *mut i64) -> c_int>,
    /// From version 3 on: for tests, system calls that can be replaced.
    pub(crate) set_system_call:
        Option<unsafe extern "C" fn(*mut Vfs, *const c_char, *const c_void) -> c_int>,
    pub(crate) get_system_call:
        Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *const c_void>,
    pub(crate) next_system_call:
        Option<unsafe extern "C" fn(*mut Vfs, *const c_char) -> *const c_char>,
}

/// What `xDlSym` returns.
pub(crate) type Symbol = Option<unsafe extern "C" fn()>;

const _: () = assert!(size_of::<Vfs>() == 168 && size_of::<IoMethods>() == 152);

/// What a file control is handed.
pub(crate) type Argument = *mut c_void;
