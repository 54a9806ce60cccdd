//! Small text files of this user, such as the records of a home: read with a limit, replaced whole.
//!
//! Invariants: nothing longer than the caller's limit is read; a symbolic link or another user's
//! file is not read at all; a crash leaves the old file or the new one.

use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_sys::file::{effective_user, private_options};
use holdfast_sys::lock::{FileLock, LockOutcome};

use crate::Storage;
use crate::media::storage::replace_file;

pub use crate::media::storage::StepError;

/// Bits that let others write.
const OTHERS_WRITE: u32 = 0o022;

/// How long other processes may have a file's lock, of which each needs it for a moment.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// The lock under which a file changes; `None` when others had it all the time.
///
/// # Errors
/// The lock's file cannot be made or locked.
pub fn lock(path: &Path) -> io::Result<Option<FileLock>> {
    let started = Instant::now();
    loop {
        match FileLock::acquire_briefly(path, PATIENCE)? {
            LockOutcome::Acquired(held) => return Ok(Some(held)),
            LockOutcome::Held(_) if started.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            LockOutcome::Held(_) => return Ok(None),
        }
    }
}

/// Why a file was not read.
#[derive(Debug)]
pub enum ReadFault {
    /// It is longer than allowed, no text, or no regular file.
    NotText,
    /// Other users own it or may write to it.
    NotPrivate {
        /// Its permission bits.
        mode: u32,
    },
    /// The kernel refused it.
    Io(io::Error),
}

/// The text of a file; `None` when there is none.
///
/// # Errors
/// [`ReadFault`]: nothing of such a file is to be used.
pub fn read(path: &Path, max_bytes: u64) -> Result<Option<String>, ReadFault> {
    match path.symlink_metadata() {
        Ok(found) => check(&found)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ReadFault::Io(error)),
    }
    // Another file may have come to the path meanwhile: what counts is the one that was opened.
    let file = match private_options().read(true).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(ReadFault::Io(error)),
    };
    check(&file.metadata().map_err(ReadFault::Io)?)?;
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(ReadFault::Io)?;
    if bytes.len() as u64 > max_bytes {
        return Err(ReadFault::NotText);
    }
    String::from_utf8(bytes).map(Some).map_err(|_| ReadFault::NotText)
}

fn check(found: &Metadata) -> Result<(), ReadFault> {
    if !found.is_file() {
        return Err(ReadFault::NotText);
    }
    let mode = found.permissions().mode() & 0o7777;
    if found.uid() != effective_user() || mode & OTHERS_WRITE != 0 {
        return Err(ReadFault::NotPrivate { mode });
    }
    Ok(())
}

/// Replaces a file, durably. The caller holds the lock under which the file changes.
///
/// # Errors
/// [`StepError`]: the old file is there, or, if only its durability failed, the new one.
pub fn replace(storage: &dyn Storage, path: &Path, text: &str) -> Result<(), StepError> {
    replace_file(storage, path, &path.with_added_extension("tmp"), text.as_bytes())
}
