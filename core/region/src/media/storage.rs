//! Every step that changes a file, behind one trait, so that a test can fail or die at the k-th
//! step.
//!
//! Reading, mapping and locking do not pass through here: they change nothing; neither do stores of
//! programs to what they mapped, but that these are written back does. An implementation must not
//! retry, reorder or merge steps; the callers' crash safety is argued step by step.
//! [`replace_file`] is the order of steps that replaces an access table or a text file.

#![forbid(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::{fmt, io};

use holdfast_sys::mapping::{self, NewHugePages};

use crate::media::view::FileView;

/// The steps of which all changes to images, base files and journals are made.
pub trait Storage: fmt::Debug + Send + Sync {
    /// Creates a private file that must not exist yet, readable and writable.
    ///
    /// # Errors
    /// What the kernel reports.
    fn create(&self, path: &Path) -> io::Result<File>;
    /// Allocates a range, extending the file if needed; on failure the file is unchanged.
    ///
    /// # Errors
    /// `StorageFull` when there is no room.
    fn allocate(&self, file: &File, range: Range<u64>) -> io::Result<()>;
    /// Allocates what it can of a range of a file in memory as huge pages, and says whether to try
    /// again with another range. A hint: who relies on the range allocates it afterwards.
    fn allocate_huge_pages(&self, _file: &File, _range: Range<u64>) -> bool {
        false
    }
    /// Whether [`Storage::give_back`] does anything.
    fn can_give_back(&self) -> bool {
        false
    }
    /// Gives back what a range of a file takes; it reads as zeros then.
    ///
    /// # Errors
    /// What the kernel reports, and `Unsupported` where [`Storage::can_give_back`] says so.
    fn give_back(&self, _file: &File, _range: Range<u64>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Sets the length of a file; what is added is a hole.
    ///
    /// # Errors
    /// What the kernel reports.
    fn set_len(&self, file: &File, len_bytes: u64) -> io::Result<()>;
    /// Writes all bytes at an offset.
    ///
    /// # Errors
    /// What the kernel reports; a part may have been written.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes `to` share all blocks of `from` (copy on write), so that a copy costs neither time nor
    /// room.
    ///
    /// # Errors
    /// `Unsupported`, or what the kernel reports, where the file system cannot; `to` is then
    /// unchanged.
    fn share_blocks(&self, _from: &File, _to: &File) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
    /// Stores bytes to an image through memory that shows it.
    ///
    /// # Errors
    /// As [`FileView::store`].
    fn store(&self, view: &mut FileView, offset: u64, bytes: &[u8]) -> io::Result<()> {
        view.store(offset, bytes)
    }
    /// Writes back from the processor's caches what was stored to a file in persistent memory,
    /// through memory that shows it from `offset` on, and waits until it has arrived.
    ///
    /// # Errors
    /// What the kernel reports, where a system call is needed for it.
    fn write_back(&self, file: &File, _offset: u64, memory: &[u8]) -> io::Result<()> {
        crate::media::lines::write_back(file, memory)
    }
    /// Starts to bring a range to the disk, so that a later [`Storage::sync`] waits less. A hint:
    /// nothing is durable by it, and nothing is lost without it.
    fn begin_write_out(&self, _file: &File, _range: Range<u64>) {}
    /// Makes a file's content and length durable.
    ///
    /// # Errors
    /// What the kernel reports; what is durable is then unknown.
    fn sync(&self, file: &File) -> io::Result<()>;
    /// Makes a file's content durable, and its length where that is needed to read the content.
    ///
    /// # Errors
    /// As [`Storage::sync`].
    fn sync_data(&self, file: &File) -> io::Result<()> {
        self.sync(file)
    }
    /// Makes a directory's entries durable.
    ///
    /// # Errors
    /// What the kernel reports.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// Replaces `to` by `from`, atomically.
    ///
    /// # Errors
    /// What the kernel reports.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// What the kernel reports.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Bytes that can still be allocated where `path` is.
    ///
    /// # Errors
    /// What the kernel reports.
    fn available_bytes(&self, path: &Path) -> io::Result<u64>;
}

/// The kernel's files.
#[derive(Debug, Clone, Copy, Default)]
pub struct KernelStorage;

impl Storage for KernelStorage {
    fn create(&self, path: &Path) -> io::Result<File> {
        holdfast_sys::file::private_options().read(true).write(true).create_new(true).open(path)
    }

    fn allocate(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        holdfast_sys::file::allocate(file, range)
    }

    fn allocate_huge_pages(&self, file: &File, range: Range<u64>) -> bool {
        match mapping::allocate_huge_pages(file, range) {
            Ok(made) => made == NewHugePages::All,
            // Room may be made, and what is locked for a moment is let go.
            Err(error) => is_full(&error) || error.kind() == io::ErrorKind::WouldBlock,
        }
    }

    fn can_give_back(&self) -> bool {
        true
    }

    fn give_back(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        holdfast_sys::file::give_back(file, range)
    }

    fn set_len(&self, file: &File, len_bytes: u64) -> io::Result<()> {
        file.set_len(len_bytes)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn begin_write_out(&self, file: &File, range: Range<u64>) {
        let _ = holdfast_sys::write_out::begin(file, range);
    }

    fn share_blocks(&self, from: &File, to: &File) -> io::Result<()> {
        holdfast_sys::file::share_blocks(from, to)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_all()
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        holdfast_sys::file::sync_directory(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        Ok(holdfast_sys::file::space(path)?.available_bytes)
    }
}

/// The step that failed, as a verb, and where.
pub type StepError = (&'static str, PathBuf, io::Error);

/// Replaces a small file by one with these bytes, which is private to this user.
///
/// Atomic: the bytes are written to `temporary`, in the same directory, and renamed, so that a
/// reader, and who comes after a crash, finds the old file or the new one, whole. Durable: the
/// bytes are synced before the rename and the directory after it. The caller holds the lock under
/// which the file changes; what a writer that died left at `temporary` is removed.
///
/// # Errors
/// [`StepError`]: the old file is there, or, if the directory could not be synced, the new one,
/// which a crash may still undo.
pub(crate) fn replace_file(
    storage: &dyn Storage,
    path: &Path,
    temporary: &Path,
    bytes: &[u8],
) -> Result<(), StepError> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let at = |step: &'static str, path: &Path| {
        let path = path.to_owned();
        move |error| (step, path, error)
    };
    // A writer that died left it.
    match storage.remove(temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(at("remove", temporary)(error));
        }
        _ => {}
    }
    let written = (|| {
        let file = storage.create(temporary).map_err(at("create", temporary))?;
        storage.write_at(&file, bytes, 0).map_err(at("write", temporary))?;
        storage.sync(&file).map_err(at("make durable", temporary))?;
        storage.rename(temporary, path).map_err(at("rename", temporary))
    })();
    if written.is_err() {
        // One that stays is removed by the next change.
        let _ = storage.remove(temporary);
    }
    written?;
    storage.sync_directory(directory).map_err(at("make durable", directory))
}

/// Whether the kernel says that there is no room, for this file system or this user.
pub(crate) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}
