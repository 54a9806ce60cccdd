//! SQLite's five locks as words in the image, and two short ones of our own; and what happens to those of the dead.
//!
//! SHARED counts in the reader's process entry; RESERVED, PENDING and EXCLUSIVE are one word, which names its owner. A reader
//! announces itself first and looks at the word second; a writer stores PENDING first and counts readers second: of two who
//! meet at least one sees the other (all four are sequentially consistent).
//!
//! Invariants:
//! - No system call unless somebody is in the way. Then the owner's lease is probed, and a dead owner's locks are taken over:
//!   what it wrote and did not commit is dropped.
//! - In a child that a fork made nothing is locked or unlocked: the locks are its parent's.

#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::time::{Duration, Instant};

use holdfast_sys::lease::is_taken;
use holdfast_sys::lock::{LockMode, try_lock};
use holdfast_sys::process::ProcessId;

use crate::ffi::{LOCK_EXCLUSIVE, LOCK_PENDING, LOCK_RESERVED, LOCK_SHARED};
use crate::layout::{LEASES_AT, PROCESSES_AT, PROCESSES_MAX, ProcessEntry};
use crate::patience::wait_a_moment;
use crate::pool::Pool;

/// How often a short lock is tried before the processor is given away.
const SPINS: u32 = 200;
/// How often it is tried with a pause before somebody looks whether its owner lives.
const PAUSES: u32 = 20;
const PAUSE: Duration = Duration::from_micros(100);
/// How long a takeover, an attachment or a close may hold others up.
const GATE_PATIENCE: Duration = Duration::from_secs(20);

/// A connection, as the writer's word names it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Owner(pub(crate) u64);

impl Owner {
    pub(crate) fn new(process: u32, connection: u32) -> Owner {
        Owner(u64::from(process + 1) << 8 | u64::from(connection) << 32)
    }

    fn word(self, level: c_int) -> u64 {
        self.0 | level as u64
    }
}

fn level(word: u64) -> c_int {
    (word & 0xff) as c_int
}

/// Number of the process that a word names.
fn process(word: u64) -> u32 {
    ((word >> 8 & 0xff_ffff) as u32).wrapping_sub(1)
}

/// What came of SHARED.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    /// It is held.
    Hot,
    /// There is nothing in the pool.
    Cold,
    /// Somebody writes.
    Busy,
}

impl Pool {
    /// SHARED, if the newest pages are in the pool.
    #[inline]
    pub(crate) fn enter(&self) -> Entered {
        if self.is_hot() { self.enter_hot() } else { Entered::Cold }
    }

    /// The same, for one who has seen that they are; they may have left since.
    #[inline]
    fn enter_hot(&self) -> Entered {
        if !self.lock_shared() {
            return Entered::Busy;
        }
        if self.is_hot() {
            return Entered::Hot;
        }
        self.unlock_shared();
        Entered::Cold
    }

    /// SHARED. False: busy.
    #[inline]
    pub(crate) fn lock_shared(&self) -> bool {
        self.try_shared() || self.wait_for_shared()
    }

    #[inline]
    fn try_shared(&self) -> bool {
        let mine = &self.image.process(self.number as usize).readers;
        mine.fetch_add(1, SeqCst);
        let is_open = level(self.image.header().writer.load(SeqCst)) < LOCK_PENDING;
        if !is_open {
            mine.fetch_sub(1, SeqCst);
        }
        is_open
    }

    #[cold]
    fn wait_for_shared(&self) -> bool {
        for _ in 0..2 {
            let mut word = 0;
            let is_mine = wait_a_moment(|| {
                word = self.image.header().writer.load(SeqCst);
                level(word) < LOCK_PENDING && self.try_shared()
            });
            if is_mine || !self.take_over_if_dead(process(word)) {
                return is_mine;
            }
        }
        false
    }

    #[inline]
    pub(crate) fn unlock_shared(&self) {
        self.image.process(self.number as usize).readers.fetch_sub(1, Release);
    }

    /// RESERVED, for one who has SHARED. False: busy.
    #[inline]
    pub(crate) fn lock_reserved(&self, owner: Owner) -> bool {
        let writer = &self.image.header().writer;
        for _ in 0..2 {
            match writer.compare_exchange(0, owner.word(LOCK_RESERVED), SeqCst, Relaxed) {
                Ok(_) => return true,
                Err(word) if self.take_over_if_dead(process(word)) => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// RESERVED ahead of SHARED, for one who was refused it before; it waits a moment, which hurts nobody here, as it has nothing yet.
    /// Who writes without a pause leaves others no other chance: they would have to find RESERVED free between two of its transactions.
    #[cold]
    pub(crate) fn claim(&self, owner: Owner) -> bool {
        let header = self.image.header();
        let is_mine = wait_a_moment(|| {
            let (free, mine) = (0, owner.word(LOCK_RESERVED));
            header.writer.load(Relaxed) == 0
                && header.writer.compare_exchange(free, mine, SeqCst, Relaxed).is_ok()
        });
        // A journal on the disk counts as one in use while somebody has RESERVED; it is to be rolled back.
        let is_useful = is_mine && self.is_hot() && header.disk_journal.load(SeqCst) == 0;
        if is_mine && !is_useful {
            self.unlock_writer();
        }
        is_useful
    }

    /// EXCLUSIVE, for one who has RESERVED or PENDING. False: busy, and PENDING is held.
    #[inline]
    pub(crate) fn lock_exclusive(&self, owner: Owner) -> bool {
        let header = self.image.header();
        header.writer.store(owner.word(LOCK_PENDING), SeqCst);
        let is_alone = || self.count_readers(|_| false) <= 1;
        // New readers stay out, and those who want to write are refused at once and leave.
        if !is_alone() && !wait_a_moment(is_alone) && self.count_readers(|n| self.take_over_if_dead(n)) > 1 {
            return false;
        }
        header.writer.store(owner.word(LOCK_EXCLUSIVE), Release);
        true
    }

    /// All who have SHARED, but those of processes that are gone.
    #[inline]
    fn count_readers(&self, is_gone: impl Fn(u32) -> bool) -> u32 {
        let count = (self.image.header().processes.load(SeqCst) as usize).min(PROCESSES_MAX);
        let mut readers = 0_u32;
        for number in 0..count {
            let found = self.image.process(number).readers.load(SeqCst);
            if found == 0 || number as u32 != self.number && is_gone(number as u32) {
                continue;
            }
            readers = readers.saturating_add(found);
        }
        readers
    }

    /// Whether one who was refused a lock may get it now.
    pub(crate) fn is_free(&self, wanted: c_int) -> bool {
        let word = self.image.header().writer.load(SeqCst);
        match wanted {
            LOCK_SHARED => level(word) < LOCK_PENDING,
            LOCK_RESERVED => word == 0,
            _ => self.count_readers(|_| false) <= 1,
        }
    }

    /// Back to SHARED.
    #[inline]
    pub(crate) fn unlock_writer(&self) {
        self.image.header().writer.store(0, SeqCst);
    }

    /// How far the one who writes has come.
    pub(crate) fn writer_level(&self) -> c_int {
        level(self.image.header().writer.load(SeqCst))
    }

    /// Whether somebody has RESERVED or more.
    pub(crate) fn is_reserved(&self) -> bool {
        let word = self.image.header().writer.load(SeqCst);
        word != 0 && !self.take_over_if_dead(process(word))
    }

    /// A short lock; who waits for it looks whether its owner lives.
    #[inline]
    pub(crate) fn lock_briefly<'a>(&'a self, lock: &'a AtomicU32) -> Brief<'a> {
        self.lock_or(lock, |owner| self.take_over_if_dead(owner))
    }

    /// The same for one who has passed the gate, and must not wait for it.
    fn lock_in_gate<'a>(&'a self, lock: &'a AtomicU32) -> Brief<'a> {
        // It ends: whoever this is about is not the writer, and so holds up no more than this lock.
        self.lock_or(lock, |owner| self.is_dead(owner) && self.take_over(owner))
    }

    #[inline]
    fn lock_or<'a>(&'a self, lock: &'a AtomicU32, look: impl Fn(u32) -> bool) -> Brief<'a> {
        let mine = self.number + 1;
        let mut tries = 0_u32;
        while let Err(owner) = lock.compare_exchange(0, mine, Acquire, Relaxed) {
            tries += 1;
            if tries < SPINS {
                std::hint::spin_loop();
                continue;
            }
            std::thread::sleep(PAUSE);
            if tries.is_multiple_of(PAUSES) && owner != mine && owner != 0 {
                look(owner - 1);
            }
        }
        Brief(lock)
    }

    /// Whether another process has the database open.
    pub(crate) fn has_others(&self) -> io::Result<bool> {
        is_anybody_there(self.image.file(), self.pid_space)
    }

    /// Whether a process that has an entry is gone.
    fn is_dead(&self, number: u32) -> bool {
        if number == self.number || number as usize >= PROCESSES_MAX {
            return false;
        }
        match is_taken(self.image.file(), LEASES_AT + u64::from(number), 1) {
            Ok(false) => return true,
            Ok(true) => {}
            Err(_) => return false,
        }
        // A child of it may have inherited the open file, and with it the lease.
        let entry = self.image.process(number as usize);
        let known = ProcessId { pid: entry.pid.load(Acquire), start_ticks: entry.start_ticks.load(Acquire) };
        known.pid != 0 && entry.pid_space.load(Acquire) == self.pid_space && !known.is_alive()
    }

    /// Takes over from a process if it is dead; true when something may have changed.
    #[cold]
    pub(crate) fn take_over_if_dead(&self, number: u32) -> bool {
        if !self.is_dead(number) {
            return false;
        }
        let Some(_gate) = self.enter_gate() else { return false };
        if !self.is_dead(number) {
            return true;
        }
        self.take_over(number)
    }

    /// Frees what a dead process held. The caller has passed the gate.
    pub(crate) fn take_over(&self, number: u32) -> bool {
        let header = self.image.header();
        let dead = number + 1;
        let word = header.writer.load(SeqCst);
        // With PENDING it had written nothing yet, and others may read the map still.
        let wrote = process(word) == number && level(word) == LOCK_EXCLUSIVE;
        if wrote {
            let _commit =
                (header.commit_lock.load(Acquire) != dead).then(|| self.lock_in_gate(&header.commit_lock));
            if self.settle_dead_writer().is_err() {
                self.poison("its slots lead astray");
                return false;
            }
        }
        if process(word) == number {
            let _ = header.writer.compare_exchange(word, 0, SeqCst, Relaxed);
        }
        if header.log_lock.load(Acquire) == dead {
            self.suspect_log();
            if !wrote {
                // It may have counted blocks as clean that are not durable yet.
                header.dirty.store(u32::MAX / 2, Release);
            }
            let _ = header.log_lock.compare_exchange(dead, 0, AcqRel, Relaxed);
        }
        let _ = header.commit_lock.compare_exchange(dead, 0, AcqRel, Relaxed);
        let entry = self.image.process(number as usize);
        entry.pid.store(0, Release);
        entry.readers.store(0, SeqCst);
        true
    }

    /// One at a time, of all threads of all processes, attaches, detaches, takes over.
    pub(crate) fn enter_gate(&self) -> Option<Gate<'_>> {
        let thread = self.gate.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let started = Instant::now();
        while !try_lock(self.image.file(), LockMode::Exclusive).ok()? {
            if started.elapsed() > GATE_PATIENCE {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
        Some(Gate { pool: self, _thread: thread })
    }
}

/// Whether a process has an image open; the open file that is asked does not count. A lease alone does not tell: a child may
/// have inherited it from a process that has left since. Who comes and goes holds the gate, as the caller must.
pub(crate) fn is_anybody_there(file: &File, pid_space: u64) -> io::Result<bool> {
    Ok(!who_is_there(file, pid_space)?.is_empty())
}

/// The processes that have an image open; `None` for one of another name space. See [`is_anybody_there`].
pub(crate) fn who_is_there(file: &File, pid_space: u64) -> io::Result<Vec<Option<u32>>> {
    let mut found = Vec::new();
    if !is_taken(file, LEASES_AT, PROCESSES_MAX as u64)? {
        return Ok(found);
    }
    for number in 0..PROCESSES_MAX as u64 {
        if !is_taken(file, LEASES_AT + number, 1)? {
            continue;
        }
        let mut entry = [0; size_of::<ProcessEntry>()];
        let at = PROCESSES_AT as u64 + number * entry.len() as u64;
        if file.read_at(&mut entry, at)? < entry.len() {
            continue;
        }
        let word = |at: usize| u64::from_ne_bytes(entry[at..at + 8].try_into().unwrap_or_default());
        let pid = (word(0) >> 32) as u32;
        let known = ProcessId { pid, start_ticks: word(8) };
        if pid != 0 && word(16) != pid_space {
            found.push(None);
        } else if pid != 0 && known.is_alive() {
            found.push(Some(pid));
        }
    }
    Ok(found)
}

/// The inode of the name space of process numbers.
pub(crate) fn pid_space() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino())
}

/// A short lock that is held until it is dropped.
#[derive(Debug)]
pub(crate) struct Brief<'a>(&'a AtomicU32);

impl Drop for Brief<'_> {
    fn drop(&mut self) {
        self.0.store(0, Release);
    }
}

/// See [`Pool::enter_gate`].
#[derive(Debug)]
pub(crate) struct Gate<'a> {
    pool: &'a Pool,
    _thread: std::sync::MutexGuard<'a, ()>,
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        let _ = holdfast_sys::lock::unlock(self.pool.image.file());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::{Identity, attach_at};
    use crate::base::OwnFile;
    use crate::patience::MOMENT;
    use holdfast_region::Places;
    use std::path::Path;
    use std::sync::mpsc::channel;

    /// Of an empty database.
    fn scratch_pool(folder: &Path) -> Pool {
        let database = folder.join("db");
        File::create(&database).unwrap();
        let places = Places::at(folder.join("home"), folder.join("pool")).unwrap();
        let identity = Identity::of(&database).unwrap();
        let base = Box::new(OwnFile::open(&database).unwrap());
        attach_at(&places, (&database, identity), base, None).unwrap()
    }

    /// Whoever took over waited for the commit's lock behind the gate, and for the gate to take over from that lock's owner.
    #[test]
    fn who_died_waiting_for_readers_is_taken_over_without_touching_the_map_that_they_read() {
        let folder = tempfile::tempdir().unwrap();
        let pool = scratch_pool(folder.path());
        let header = pool.image.header();
        // A rebuild would count it anew, and clear the buckets under the reader.
        header.dirty.store(3, SeqCst);
        assert!(pool.lock_shared());
        for (level, left) in [(LOCK_RESERVED, 3), (LOCK_PENDING, 3), (LOCK_EXCLUSIVE, 0)] {
            header.writer.store(Owner::new(5, 1).word(level), SeqCst);
            assert!(pool.take_over_if_dead(5));
            assert_eq!((header.writer.load(SeqCst), header.dirty.load(SeqCst)), (0, left), "{level}");
        }
    }

    #[test]
    fn who_comes_into_the_pool_just_after_the_database_left_it_is_not_in_it() {
        let folder = tempfile::tempdir().unwrap();
        let pool = scratch_pool(folder.path());
        assert_eq!(pool.enter_hot(), Entered::Cold);
        assert_eq!(pool.image.process(pool.number as usize).readers.load(SeqCst), 0);
        pool.heat(pool.base()).unwrap();
        assert_eq!((pool.enter(), pool.enter_hot()), (Entered::Hot, Entered::Hot));
        assert_eq!(pool.image.process(pool.number as usize).readers.load(SeqCst), 2);
    }

    #[test]
    fn two_dead_processes_of_which_one_holds_the_lock_that_the_other_waited_for_hold_nobody_up() {
        const FIRST: u32 = 5;
        const SECOND: u32 = 6;
        let folder = tempfile::tempdir().unwrap();
        let pool = scratch_pool(folder.path());
        let header = pool.image.header();
        header.writer.store(Owner::new(FIRST, 1).word(LOCK_EXCLUSIVE), SeqCst);
        header.commit_lock.store(SECOND + 1, SeqCst);
        let (told, hears) = channel();
        std::thread::spawn(move || {
            let taken = pool.take_over_if_dead(FIRST);
            let header = pool.image.header();
            let left = (header.writer.load(SeqCst), header.commit_lock.load(SeqCst));
            told.send((taken, left)).unwrap();
        });
        assert_eq!(hears.recv_timeout(GATE_PATIENCE), Ok((true, (0, 0))));
    }

    /// The shortest of several times that it took, as a machine that does other things may hold anybody up.
    fn shortest(mut attempt: impl FnMut()) -> Duration {
        let timed = |_| {
            let started = Instant::now();
            attempt();
            started.elapsed()
        };
        (0..20).map(timed).min().unwrap_or_default()
    }

    #[test]
    fn readers_and_commits_wait_a_moment_and_who_wants_to_write_beside_a_writer_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pool = scratch_pool(folder.path());
        pool.heat(pool.base()).unwrap();
        let writer = &pool.image.header().writer;
        // A process that lives: the entry is this one's own.
        let (one, other) = (Owner::new(pool.number, 1), Owner::new(pool.number, 2));
        writer.store(one.word(LOCK_EXCLUSIVE), SeqCst);
        assert!(shortest(|| assert!(!pool.lock_shared())) >= MOMENT);
        assert!(shortest(|| assert!(!pool.claim(other))) >= MOMENT);
        assert!(shortest(|| assert!(!pool.lock_reserved(other))) < MOMENT);
        writer.store(one.word(LOCK_RESERVED), SeqCst);
        assert!(pool.lock_shared() && pool.lock_shared());
        assert!(shortest(|| assert!(!pool.lock_exclusive(one))) >= MOMENT);
        assert_eq!(pool.writer_level(), LOCK_PENDING);
        pool.unlock_shared();
        assert!(pool.lock_exclusive(one));
    }

    #[test]
    fn nobody_claims_a_database_that_is_not_in_the_pool_or_has_a_journal_to_roll_back() {
        let folder = tempfile::tempdir().unwrap();
        let pool = scratch_pool(folder.path());
        let (header, owner) = (pool.image.header(), Owner::new(pool.number, 1));
        assert!(!pool.claim(owner) && pool.is_free(LOCK_RESERVED), "it is cold");
        pool.heat(pool.base()).unwrap();
        header.disk_journal.store(1, SeqCst);
        // Whoever sees RESERVED takes the journal for one in use, and reads what it is to undo.
        assert!(!pool.claim(owner) && pool.is_free(LOCK_RESERVED));
        header.disk_journal.store(0, SeqCst);
        assert!(pool.claim(owner) && !pool.is_free(LOCK_RESERVED));
    }
}
