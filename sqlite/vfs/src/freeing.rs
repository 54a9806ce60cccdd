//! Freeing what a closed database leaves: its log and its image, whose names are removed. The
//! kernel takes a millisecond for some 4 MiB of either, so a thread does it, and the close does not
//! wait.
//!
//! Invariants:
//! - No other process can open what is freed, nor waits for the leases that its descriptors still
//!   have.
//! - The file system has four times as many bytes free, so that no program runs out of room because
//!   these are not free yet. Otherwise they are freed before the close returns.
//! - A child that is forked meanwhile inherits no memory and no blocks: the files are empty first.
//! - A process has one such thread at most, and ends without waiting for it. The library that it
//!   runs in is never unloaded.

#![forbid(unsafe_code)]

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

use holdfast_sys::file::space;
use holdfast_sys::{own_pid, quiet_thread};

use crate::file_names::folder_of;
use crate::image::Image;
use crate::log::Log;

/// Of less a thread costs as much as it saves.
const LARGE_BYTES: u64 = 2 << 20;
/// So many times the bytes are free in a file system that can do without them.
const ROOM: u64 = 4;

/// The process that has such a thread, or 0. A forked child finds the number of its parent there,
/// and has none.
static FREEING: AtomicU32 = AtomicU32::new(0);

/// What a process left that closed a database as the last one. It is freed when this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Removed {
    pub(crate) image: Option<Image>,
    pub(crate) log: Option<Log>,
}

/// The right to have such a thread.
struct Turn(u32);

impl Turn {
    fn take() -> Option<Turn> {
        let pid = own_pid::get();
        let other = FREEING.load(Relaxed);
        let is_taken =
            other == pid || FREEING.compare_exchange(other, pid, Relaxed, Relaxed).is_err();
        // Not `then_some`: a turn that is made and not given would give back another's when dropped.
        (!is_taken).then(|| Turn(pid))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let _ = FREEING.compare_exchange(self.0, 0, Relaxed, Relaxed);
    }
}

impl Removed {
    /// Frees it by a thread where that saves time, and here otherwise.
    pub(crate) fn free_later(self) {
        let image = self.image.as_ref().map(|image| (image.path(), image.backed_bytes()));
        let log = self.log.as_ref().map(|log| (log.path(), log.bytes()));
        let parts = [image, log];
        let bytes: u64 = parts.iter().flatten().map(|(_, bytes)| bytes).sum();
        if bytes < LARGE_BYTES || !parts.into_iter().flatten().all(has_room) {
            return;
        }
        let Some(turn) = Turn::take() else { return };
        // The files are closed before the turn ends. If no thread can be started, both happen
        // here, with the closure.
        let work = (self, turn);
        let _ = quiet_thread::spawn("holdfast-free", move || {
            work.0.empty();
            drop(work);
        });
    }

    /// Frees the bytes for everybody who has inherited a descriptor or a mapping.
    fn empty(&self) {
        // What fails is freed with the last descriptor.
        let files = [self.image.as_ref().map(Image::file), self.log.as_ref().map(Log::file)];
        for file in files.into_iter().flatten() {
            // A file that still has a name, because it was moved or linked, keeps its bytes.
            if file.metadata().is_ok_and(|found| found.nlink() == 0) {
                let _ = file.set_len(0);
            }
        }
    }
}

/// Whether the file system can do without what is not free yet.
fn has_room((path, bytes): (&Path, u64)) -> bool {
    space(folder_of(path)).is_ok_and(|space| space.available_bytes >= bytes.saturating_mul(ROOM))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by it")]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::image::BLOCK_BYTES;
    use crate::testing::{commit, hot};

    const BLOCKS: usize = LARGE_BYTES as usize / BLOCK_BYTES + 300;

    /// What a database leaves that had so many blocks changed.
    fn removed(blocks: usize) -> (tempfile::TempDir, Removed) {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = hot(folder.path(), blocks + 1);
        let changes: Vec<_> = (1..=blocks as u32).map(|block| (block, 2)).collect();
        commit(&pool, &changes, blocks + 1).unwrap();
        pool.flush_and_tidy().unwrap();
        pool.settings.set("side_file", "remove").unwrap();
        let removed = pool.detach().unwrap();
        assert!(removed.image.is_some() && removed.log.is_some());
        (folder, removed)
    }

    /// Files that a child inherits have nothing in them afterwards. What is small, and what a
    /// second thread would be needed for, is freed when the call returns.
    #[test]
    fn large_images_are_freed_for_everybody() {
        let (_folder, large) = removed(BLOCKS);
        let inherited = large.image.as_ref().unwrap().file().try_clone().unwrap();
        let (_other_folder, other) = removed(BLOCKS);
        let turn = Turn::take().unwrap();
        assert!(Turn::take().is_none());
        assert_eq!(FREEING.load(Relaxed), own_pid::get(), "who gets no turn gives one back");
        other.free_later();
        assert_eq!(FREEING.load(Relaxed), own_pid::get(), "the turn is another one's");
        drop(turn);
        // A parent's thread is not this process's.
        FREEING.store(own_pid::get() + 1, Relaxed);
        large.free_later();
        let started = Instant::now();
        while inherited.metadata().unwrap().len() > 0 || FREEING.load(Relaxed) != 0 {
            assert!(started.elapsed() < Duration::from_secs(60), "it is not freed");
            std::thread::sleep(Duration::from_millis(1));
        }
        let (_small_folder, small) = removed(2);
        small.free_later();
        assert_eq!(FREEING.load(Relaxed), 0);
    }

    /// A log that has another name keeps its bytes.
    #[test]
    fn linked_log_is_left_alone() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = hot(folder.path(), BLOCKS + 1);
        let changes: Vec<_> = (1..=BLOCKS as u32).map(|block| (block, 2)).collect();
        commit(&pool, &changes, BLOCKS + 1).unwrap();
        pool.flush_and_tidy().unwrap();
        let kept = folder.path().join("kept");
        std::fs::hard_link(pool.log_path(), &kept).unwrap();
        let bytes = std::fs::metadata(&kept).unwrap().len();
        pool.detach().unwrap().empty();
        assert_eq!(std::fs::metadata(&kept).unwrap().len(), bytes);
        assert!(bytes > 0);
    }
}
