//! The database file itself: through the base VFS of SQLite, or, for tools that have no SQLite,
//! through the kernel.
//!
//! It is never opened a second time in a process that runs SQLite: closing a descriptor would drop
//! the POSIX locks of all other connections of that process to the same file.

#![allow(unsafe_code, reason = "methods of SQLite's files are C functions")]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use holdfast_sys::file::{length, open_regular};
use holdfast_sys::lease::{Lease, is_taken, take};

use crate::error::{Result, SqliteError};
use crate::ffi::{self, IoMethods, RawFile};
use crate::mark::{self, Mark};

/// What is asked of a database file.
pub(crate) trait Base: Send + Sync + std::fmt::Debug {
    /// Fills `target`; what is behind the end reads as zeros. Returns whether all of it was there.
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<bool>;
    fn write(&self, offset: u64, source: &[u8]) -> Result<()>;
    fn size(&self) -> Result<u64>;
    fn truncate(&self, size: u64) -> Result<()>;
    /// The same for a file whose size says what it is: exactly, also where it grows in steps.
    fn cut_to(&self, size: u64) -> Result<()> {
        self.truncate(size)
    }
    fn sync(&self) -> Result<()>;
    /// Keeps all other programs out, our own connections in this process included; `Busy` when one
    /// is in the way.
    fn lock_exclusive(&self) -> Result<()>;
    fn unlock(&self) -> Result<()>;
    /// Whether a program, with the VFS or without, is in a write transaction at SQLite's own locks.
    fn is_being_written(&self) -> Result<bool>;
    /// The user wants the file to grow in steps of so many bytes.
    fn grow_by(&self, _bytes: c_int) {}
    /// The file is about to grow to so many bytes.
    fn grow_to(&self, _bytes: u64) {}
}

/// The mark in a database file, and whether the file is in WAL mode.
pub(crate) fn read_mark(base: &dyn Base) -> Result<(Option<Mark>, bool)> {
    Ok(mark_of(&read_header(base)?))
}

/// Size of the database that is in a file: none, where a stand-in bears the mark for it.
pub(crate) fn database_size(base: &dyn Base) -> Result<u64> {
    let size = base.size()?;
    let is_stand_in =
        size == mark::STAND_IN_BYTES && read_mark(base)?.0.is_some_and(|mark| mark.was_empty);
    Ok(if is_stand_in { 0 } else { size })
}

/// The first bytes of a database file.
pub(crate) fn read_header(base: &dyn Base) -> Result<[u8; mark::HEADER_BYTES]> {
    let mut header = [0; mark::HEADER_BYTES];
    base.read(0, &mut header)?;
    Ok(header)
}

/// The mark in such a header, and whether it says WAL mode.
pub(crate) fn mark_of(header: &[u8; mark::HEADER_BYTES]) -> (Option<Mark>, bool) {
    (mark::find(header), mark::is_wal(header))
}

/// SQLite writes a page at once, which has no more bytes than this; its unix VFS cannot write twice
/// as many.
const HOST_BYTES_MAX: usize = 64 << 10;

/// A file of the base VFS.
#[derive(Debug)]
pub(crate) struct HostFile {
    pub(crate) file: *mut RawFile,
    path: PathBuf,
    /// It grows in steps of so many bytes, if they are more than 0. Relaxed: a wish.
    step: AtomicI32,
}

// SAFETY: the unix VFS reads and writes with positions, and locks under its own mutex; everything
// else is done by one thread at a time, as the owner of the value sees to.
unsafe impl Send for HostFile {}
// SAFETY: as above.
unsafe impl Sync for HostFile {}

impl HostFile {
    pub(crate) fn new(file: *mut RawFile, path: &Path) -> HostFile {
        HostFile { file, path: path.to_owned(), step: AtomicI32::new(0) }
    }

    pub(crate) fn methods(&self) -> &IoMethods {
        // SAFETY: the file is open as long as this value is used, and then has methods.
        unsafe { &*(*self.file).methods }
    }

    fn check(&self, step: &'static str, code: c_int) -> Result<()> {
        match code {
            ffi::OK => Ok(()),
            ffi::BUSY => Err(SqliteError::Busy { path: self.path.clone() }),
            code => Err(SqliteError::Base { step, path: self.path.clone(), code }),
        }
    }

    /// One of SQLite's locks.
    pub(crate) fn lock(&self, level: c_int) -> Result<()> {
        let lock = self.methods().lock.ok_or_else(|| self.missing())?;
        // SAFETY: the file is open.
        self.check("lock", unsafe { lock(self.file, level) })
    }

    /// Back to a weaker one.
    pub(crate) fn unlock_to(&self, level: c_int) -> Result<()> {
        let unlock = self.methods().unlock.ok_or_else(|| self.missing())?;
        // SAFETY: the file is open.
        self.check("unlock", unsafe { unlock(self.file, level) })
    }

    /// Whether a process has RESERVED or more.
    pub(crate) fn is_reserved(&self) -> Result<bool> {
        let mut found = 0;
        let probe = self.methods().check_reserved_lock.ok_or_else(|| self.missing())?;
        // SAFETY: the file is open.
        self.check("probe", unsafe { probe(self.file, &raw mut found) })?;
        Ok(found != 0)
    }

    /// Passes a file control on.
    pub(crate) fn control(&self, operation: c_int, argument: *mut c_void) -> c_int {
        match self.methods().file_control {
            // SAFETY: the file is open, and the argument is the caller's for this operation.
            Some(control) => unsafe { control(self.file, operation, argument) },
            None => ffi::NOTFOUND,
        }
    }

    /// Gives up a map of the file, of which no page is in use.
    pub(crate) fn unmap(&self) {
        if let Some(unfetch) = self.methods().unfetch {
            // SAFETY: the file is open; null asks for this.
            unsafe { unfetch(self.file, 0, std::ptr::null_mut()) };
        }
    }

    /// Has the file never mapped, whatever is the default.
    pub(crate) fn forbid_maps(&self) {
        let mut bytes = 0_i64;
        self.control(ffi::FCNTL_MMAP_SIZE, (&raw mut bytes).cast());
    }

    /// Closes the file, which is not to be used any more.
    pub(crate) fn close(&self) {
        if let Some(close) = self.methods().close {
            // SAFETY: the file is open.
            unsafe { close(self.file) };
        }
    }

    fn set_step(&self, mut bytes: c_int) {
        self.control(ffi::FCNTL_CHUNK_SIZE, (&raw mut bytes).cast());
    }

    fn missing(&self) -> SqliteError {
        SqliteError::Base { step: "use", path: self.path.clone(), code: ffi::IOERR }
    }
}

impl Base for HostFile {
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<bool> {
        let read = self.methods().read.ok_or_else(|| self.missing())?;
        // SAFETY: the file is open, and the buffer is as long as is said.
        let code = unsafe {
            read(self.file, target.as_mut_ptr().cast(), target.len() as c_int, offset as i64)
        };
        if code == ffi::IOERR_SHORT_READ {
            return Ok(false);
        }
        self.check("read", code).map(|()| true)
    }

    fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        let write = self.methods().write.ok_or_else(|| self.missing())?;
        for (number, piece) in source.chunks(HOST_BYTES_MAX).enumerate() {
            let bytes: *const c_void = piece.as_ptr().cast();
            let at = offset + (number * HOST_BYTES_MAX) as u64;
            // SAFETY: as for `read`.
            let code = unsafe { write(self.file, bytes, piece.len() as c_int, at as i64) };
            self.check("write to", code)?;
        }
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        let mut size = 0;
        let get = self.methods().file_size.ok_or_else(|| self.missing())?;
        // SAFETY: the file is open.
        self.check("measure", unsafe { get(self.file, &raw mut size) })?;
        Ok(size as u64)
    }

    fn truncate(&self, size: u64) -> Result<()> {
        let truncate = self.methods().truncate.ok_or_else(|| self.missing())?;
        // SAFETY: the file is open.
        self.check("shorten", unsafe { truncate(self.file, size as i64) })
    }

    fn cut_to(&self, size: u64) -> Result<()> {
        // SQLite's unix VFS makes whole steps of a size.
        let step = self.step.load(Relaxed);
        if step > 0 {
            self.set_step(0);
        }
        let cut = self.truncate(size);
        if step > 0 {
            self.set_step(step);
        }
        cut
    }

    fn sync(&self) -> Result<()> {
        let sync = self.methods().sync.ok_or_else(|| self.missing())?;
        // SAFETY: the file is open.
        self.check("sync", unsafe { sync(self.file, ffi::SYNC_NORMAL) })
    }

    fn lock_exclusive(&self) -> Result<()> {
        for level in [ffi::LOCK_SHARED, ffi::LOCK_RESERVED, ffi::LOCK_EXCLUSIVE] {
            if let Err(error) = self.lock(level) {
                self.unlock()?;
                return Err(error);
            }
        }
        Ok(())
    }

    fn unlock(&self) -> Result<()> {
        self.unlock_to(ffi::LOCK_NONE)
    }

    fn is_being_written(&self) -> Result<bool> {
        self.is_reserved()
    }

    fn grow_by(&self, bytes: c_int) {
        self.step.store(bytes, Relaxed);
        self.set_step(bytes);
    }

    fn grow_to(&self, bytes: u64) {
        // Only a hint: what it cannot do, the writes will say.
        let mut bytes = bytes as i64;
        self.control(ffi::FCNTL_SIZE_HINT, (&raw mut bytes).cast());
    }
}

/// A file opened by this library, in a process without SQLite.
#[derive(Debug)]
pub(crate) struct OwnFile {
    file: File,
    path: PathBuf,
}

impl OwnFile {
    pub(crate) fn open(path: &Path) -> Result<OwnFile> {
        let file = open_regular(File::options().read(true).write(true), path);
        Ok(OwnFile { file: file.map_err(SqliteError::io("open", path))?, path: path.to_owned() })
    }

    /// Opens a file that is only to be looked at, and may be one that may only be read.
    pub(crate) fn look(path: &Path) -> Result<OwnFile> {
        let file = open_regular(File::options().read(true), path);
        Ok(OwnFile { file: file.map_err(SqliteError::io("open", path))?, path: path.to_owned() })
    }
}

/// Bytes that SQLite's unix VFS locks: pending, reserved, and shared ones.
const LOCK_BYTES: u64 = 512;

impl Base for OwnFile {
    fn read(&self, offset: u64, target: &mut [u8]) -> Result<bool> {
        let mut done = 0;
        while done < target.len() {
            let read = self.file.read_at(&mut target[done..], offset + done as u64);
            match read.map_err(SqliteError::io("read", &self.path))? {
                0 => {
                    target[done..].fill(0);
                    return Ok(false);
                }
                read => done += read,
            }
        }
        Ok(true)
    }

    fn write(&self, offset: u64, source: &[u8]) -> Result<()> {
        self.file.write_all_at(source, offset).map_err(SqliteError::io("write to", &self.path))
    }

    fn size(&self) -> Result<u64> {
        length(&self.file).map_err(SqliteError::io("measure", &self.path))
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.file.set_len(size).map_err(SqliteError::io("shorten", &self.path))
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(SqliteError::io("sync", &self.path))
    }

    fn lock_exclusive(&self) -> Result<()> {
        let taken = take(&self.file, Lease::Exclusive, ffi::PENDING_BYTE, LOCK_BYTES);
        match taken.map_err(SqliteError::io("lock", &self.path))? {
            true => Ok(()),
            false => Err(SqliteError::Busy { path: self.path.clone() }),
        }
    }

    fn unlock(&self) -> Result<()> {
        let given = take(&self.file, Lease::None, ffi::PENDING_BYTE, LOCK_BYTES);
        given.map(drop).map_err(SqliteError::io("unlock", &self.path))
    }

    fn is_being_written(&self) -> Result<bool> {
        let taken = is_taken(&self.file, ffi::PENDING_BYTE + 1, 1);
        taken.map_err(SqliteError::io("probe", &self.path))
    }
}
