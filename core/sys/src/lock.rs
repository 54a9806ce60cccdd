//! A lock per file name, held by one writer or many readers, that dies with its holder.
//!
//! It is `flock(2)` on a file of its own: the kernel drops it with the last descriptor, so a killed
//! holder never blocks a process. The writer leaves a record of itself in the file, for people and
//! for messages; the record decides nothing, and where it cannot be written (no room, not even for
//! that) the lock is as good.
//!
//! Invariants:
//! - A lock that was acquired is on the file that the path names *now*. A file that was unlinked
//!   while we waited is not it; we start again, a bounded number of times.
//! - The descriptor is close-on-exec, so a child that runs another program does not inherit the
//!   lock.
//! - A record names a process by PID and start time; one that fits no living process is void.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;

use crate::file::{path_names_file, private_options};
use crate::process::ProcessId;

/// How often a lock file may be replaced under us before we give up.
const REPLACED_MAX: u32 = 100;
/// Pause between two attempts while there is patience left.
const PAUSE: Duration = Duration::from_micros(500);
/// How long a process that holds a lock for a moment may take.
const BRIEF_PATIENCE: Duration = Duration::from_secs(20);
/// At the end of the record of such a holder.
const BRIEF_MARK: &str = "brief";
/// Bytes of a record; all records are equally long, so that one overwrites another whole.
const RECORD_BYTES: usize = 32;

/// The other holders that a lock allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockMode {
    /// One holder.
    Exclusive,
    /// Many holders, none of them exclusive.
    Shared,
}

/// What came of an attempt.
#[derive(Debug)]
pub enum LockOutcome {
    /// It is ours.
    Acquired(FileLock),
    /// Another one has it; its PID when the record names a living process.
    Held(Option<u32>),
}

/// A lock that is held until it is dropped.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    path: PathBuf,
    mode: LockMode,
    is_left: bool,
    /// The process that took it.
    process: u32,
}

impl FileLock {
    /// Acquires the lock, creating its file if needed.
    ///
    /// A held lock is reported at once if its record names a living process. Otherwise the holder
    /// may be about to write its record, or about to go, so the attempt is repeated for `patience`,
    /// which begins anew when a holder for a moment takes its record back.
    ///
    /// # Errors
    /// What the kernel reports on opening or locking.
    pub fn acquire(path: &Path, mode: LockMode, patience: Duration) -> io::Result<LockOutcome> {
        FileLock::acquire_with(path, mode, patience, false)
    }

    /// As [`FileLock::acquire`] in exclusive mode, for a holder who will be gone in a moment:
    /// others wait for it (20 s at most), where another holder would be reported at once.
    ///
    /// # Errors
    /// As there.
    pub fn acquire_briefly(path: &Path, patience: Duration) -> io::Result<LockOutcome> {
        FileLock::acquire_with(path, LockMode::Exclusive, patience, true)
    }

    fn acquire_with(
        path: &Path,
        mode: LockMode,
        patience: Duration,
        is_brief: bool,
    ) -> io::Result<LockOutcome> {
        let started = Instant::now();
        let mut nameless_since = None;
        let mut replaced = 0;
        loop {
            let file =
                private_options().read(true).write(true).create(true).truncate(false).open(path)?;
            if try_lock(&file, mode)? {
                if path_names_file(path, &file)? {
                    let is_left = mode == LockMode::Exclusive && has_record(&file);
                    let process = std::process::id();
                    let lock = FileLock { file, path: path.to_owned(), mode, is_left, process };
                    if mode == LockMode::Exclusive && lock.write_record(is_brief).is_err() {
                        // What an earlier holder left must not name it.
                        let _ = lock.file.set_len(0);
                    }
                    return Ok(LockOutcome::Acquired(lock));
                }
                replaced += 1;
                if replaced >= REPLACED_MAX {
                    return Err(io::Error::other("the lock file is replaced again and again"));
                }
                continue;
            }
            let holder = read_record(&file).filter(|holder| holder.0.is_alive());
            let waits = match holder {
                // Two that hold locks for a moment do not wait for each other.
                Some((_, true)) if !is_brief => {
                    nameless_since = None;
                    started.elapsed() < BRIEF_PATIENCE
                }
                Some(_) => false,
                None => {
                    let nameless_since = *nameless_since.get_or_insert_with(Instant::now);
                    nameless_since.elapsed() < patience
                        && started.elapsed() < patience + BRIEF_PATIENCE
                }
            };
            if !waits {
                return Ok(LockOutcome::Held(holder.map(|holder| holder.0.pid)));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Whether an earlier holder died with the lock, so that what it was doing is half done. One
    /// that could not write its record leaves no trace.
    #[must_use]
    pub fn is_left(&self) -> bool {
        self.is_left
    }

    /// Removes the lock's file. The lock stays held until it is dropped; a process that waits for
    /// it notices.
    ///
    /// # Errors
    /// What `unlink` reports; a missing file is no error.
    pub fn remove_file(&self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn write_record(&self, is_brief: bool) -> io::Result<()> {
        let me = ProcessId::current()?;
        let mut record = format!("{} {}", me.pid, me.start_ticks).into_bytes();
        if is_brief && record.len() + BRIEF_MARK.len() + 2 <= RECORD_BYTES {
            record.extend_from_slice(format!(" {BRIEF_MARK}").as_bytes());
        }
        record.resize(RECORD_BYTES - 1, b' ');
        record.push(b'\n');
        self.file.write_all_at(&record, 0)
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // In a copy of the holder that a fork made, the lock is still the holder's, and so is its
        // record.
        if self.mode == LockMode::Exclusive && self.process == std::process::id() {
            // A record that outlives the lock would name us to a process that meets a reader next.
            // If this fails the message of a second opener is less exact, no more.
            let _ = self.file.set_len(0);
        }
    }
}

/// The living process whose record is in a lock file. It reads only; a record is no proof of
/// holding.
#[must_use]
pub fn recorded_holder(path: &Path) -> Option<u32> {
    let file = private_options().read(true).open(path).ok()?;
    read_record(&file).filter(|holder| holder.0.is_alive()).map(|holder| holder.0.pid)
}

/// Whether the record in a lock file is that of a living process that has the lock for a moment
/// only.
#[must_use]
pub fn is_held_briefly(path: &Path) -> bool {
    let file = private_options().read(true).open(path);
    file.is_ok_and(|file| {
        read_record(&file).is_some_and(|(holder, is_brief)| is_brief && holder.is_alive())
    })
}

/// Tries to lock an open file, without waiting. The lock lives as long as the open file
/// description.
///
/// # Errors
/// What `flock` reports; a held lock is `Ok(false)`.
pub fn try_lock(file: &File, mode: LockMode) -> io::Result<bool> {
    let operation = match mode {
        LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        LockMode::Shared => FlockOperation::NonBlockingLockShared,
    };
    loop {
        match rustix::fs::flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Gives back what [`try_lock`] took, while the file stays open.
///
/// # Errors
/// What `flock` reports.
pub fn unlock(file: &File) -> io::Result<()> {
    Ok(rustix::fs::flock(file, FlockOperation::Unlock)?)
}

/// Whether a lock file has a record, of whomever. A holder that goes in order takes its own back.
fn has_record(file: &File) -> bool {
    !matches!(file.read_at(&mut [0], 0), Ok(0))
}

/// The process in the record, and whether it holds the lock for a moment only.
fn read_record(file: &File) -> Option<(ProcessId, bool)> {
    let mut record = [0; RECORD_BYTES];
    let found = file.read_at(&mut record, 0).ok()?;
    let text = std::str::from_utf8(record.get(..found)?).ok()?;
    let (pid, rest) = text.trim().split_once(' ')?;
    let (start_ticks, is_brief) = match rest.trim().rsplit_once(' ') {
        Some((start_ticks, BRIEF_MARK)) => (start_ticks.trim(), true),
        _ => (rest.trim(), false),
    };
    Some((ProcessId { pid: pid.parse().ok()?, start_ticks: start_ticks.parse().ok()? }, is_brief))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);
    /// For a lock that is to be had. A child that another test forks holds a copy of every
    /// descriptor until it runs its program, so what was dropped may still be locked for a moment.
    const PATIENT: Duration = Duration::from_secs(20);

    fn acquired(outcome: LockOutcome) -> FileLock {
        match outcome {
            LockOutcome::Acquired(lock) => lock,
            LockOutcome::Held(holder) => panic!("held by {holder:?}"),
        }
    }

    /// A second holder learns who has the lock, and gets it after the drop.
    #[test]
    fn second_holder_learns_the_first_and_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let first = acquired(FileLock::acquire(&path, LockMode::Exclusive, PATIENT).unwrap());
        assert_eq!(recorded_holder(&path), Some(std::process::id()));
        for mode in [LockMode::Exclusive, LockMode::Shared] {
            match FileLock::acquire(&path, mode, SOON).unwrap() {
                LockOutcome::Held(holder) => assert_eq!(holder, Some(std::process::id())),
                LockOutcome::Acquired(_) => panic!("two holders"),
            }
        }
        drop(first);
        assert_eq!(recorded_holder(&path), None);
        acquired(FileLock::acquire(&path, LockMode::Exclusive, PATIENT).unwrap());
    }

    /// A forked copy of a holder that drops its copy of the lock takes back no record.
    ///
    /// Guarantee: keeper/emergency
    #[test]
    fn forked_copy_of_a_holder_leaves_its_record() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let lock = acquired(FileLock::acquire(&path, LockMode::Exclusive, PATIENT).unwrap());
        let (file, path) = (lock.file.try_clone().unwrap(), lock.path.clone());
        let process = lock.process.wrapping_add(1);
        drop(FileLock { file, path: path.clone(), mode: lock.mode, is_left: false, process });
        assert_eq!(recorded_holder(&path), Some(std::process::id()));
        drop(lock);
        assert_eq!(recorded_holder(&path), None);
    }

    /// A lock whose holder died is told from one that was given back.
    #[test]
    fn lock_of_a_dead_holder_is_told_from_one_given_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let acquire = || acquired(FileLock::acquire(&path, LockMode::Exclusive, PATIENT).unwrap());
        assert!(!acquire().is_left(), "it was never held");
        assert!(!acquire().is_left(), "it was given back");
        // As a process leaves it that was killed.
        std::fs::write(&path, "1 1").unwrap();
        assert!(acquire().is_left());
        assert!(!acquire().is_left());
    }

    #[test]
    fn readers_share_the_lock_and_keep_a_writer_out() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let _first = acquired(FileLock::acquire(&path, LockMode::Shared, PATIENT).unwrap());
        let _second = acquired(FileLock::acquire(&path, LockMode::Shared, PATIENT).unwrap());
        let outcome = FileLock::acquire(&path, LockMode::Exclusive, SOON).unwrap();
        assert!(matches!(outcome, LockOutcome::Held(None)));
    }

    #[test]
    fn a_holder_for_a_moment_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let brief = acquired(FileLock::acquire_briefly(&path, PATIENT).unwrap());
        assert_eq!(recorded_holder(&path), Some(std::process::id()));
        assert!(matches!(
            FileLock::acquire_briefly(&path, SOON).unwrap(),
            LockOutcome::Held(Some(_))
        ));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                acquired(FileLock::acquire(&path, LockMode::Exclusive, PATIENT).unwrap())
            });
            std::thread::sleep(5 * SOON);
            assert!(!waiter.is_finished(), "nobody would wait for it");
            drop(brief);
            waiter.join().unwrap();
        });
    }

    /// A holder for a moment that has taken its record back is waited for with new patience.
    ///
    /// Guarantee: sqlite/saved-copies
    #[test]
    fn brief_holder_renews_the_waiters_patience() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        let patience = Duration::from_secs(2);
        let brief = acquired(FileLock::acquire_briefly(&path, PATIENT).unwrap());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                acquired(FileLock::acquire(&path, LockMode::Exclusive, patience).unwrap())
            });
            std::thread::sleep(patience + SOON);
            // As in a drop that is interrupted between its two steps.
            brief.file.set_len(0).unwrap();
            std::thread::sleep(SOON);
            drop(brief);
            waiter.join().unwrap();
        });
    }

    #[test]
    fn a_record_of_a_reused_pid_names_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        // Our own PID with a start time that is not ours: what a dead process with our PID left
        // behind.
        std::fs::write(&path, format!("{} 1\n", std::process::id())).unwrap();
        assert_eq!(recorded_holder(&path), None);
        let _reader = acquired(FileLock::acquire(&path, LockMode::Shared, PATIENT).unwrap());
        let outcome = FileLock::acquire(&path, LockMode::Exclusive, SOON).unwrap();
        assert!(matches!(outcome, LockOutcome::Held(None)));
    }

    /// A lock whose record cannot be written is held all the same.
    ///
    /// Guarantee: heap/room
    #[test]
    fn lock_holds_without_a_writable_record() {
        // Every write to it says that there is no room.
        let path = Path::new("/dev/full");
        let lock = acquired(FileLock::acquire(path, LockMode::Exclusive, PATIENT).unwrap());
        assert_eq!(lock.write_record(false).unwrap_err().kind(), io::ErrorKind::StorageFull);
        let outcome = FileLock::acquire(path, LockMode::Shared, SOON).unwrap();
        assert!(matches!(outcome, LockOutcome::Held(None)));
    }

    /// Garbage in a lock file is no holder and no obstacle.
    #[test]
    fn garbage_in_a_lock_file_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        for garbage in [&b"\xff\xfe"[..], b"1", b"-4 7", b"x y", &[b'9'; 4000]] {
            std::fs::write(&path, garbage).unwrap();
            assert_eq!(recorded_holder(&path), None);
            acquired(FileLock::acquire(&path, LockMode::Exclusive, PATIENT).unwrap());
        }
    }

    /// A lock file that is unlinked while a process waits does not make two holders.
    #[test]
    fn unlinked_lock_file_never_makes_two_holders() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lock");
        // A reader holds without a record, so that the waiter is patient.
        let reader = acquired(FileLock::acquire(&path, LockMode::Shared, PATIENT).unwrap());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                acquired(FileLock::acquire(&path, LockMode::Exclusive, PATIENT).unwrap())
            });
            std::thread::sleep(Duration::from_millis(5));
            reader.remove_file().unwrap();
            drop(reader);
            let lock = waiter.join().unwrap();
            assert!(path_names_file(&path, &lock.file).unwrap());
            let outcome = FileLock::acquire(&path, LockMode::Shared, SOON).unwrap();
            assert!(matches!(outcome, LockOutcome::Held(Some(_))));
        });
    }
}
