//! Takes the locks of an image, waits for them for a bounded time, and takes over those of a
//! process that died. The words, and their memory orders, are in `image/locks.rs`.
//!
//! Invariants:
//! - No system call unless a lock is taken. Then the owner's lease is probed, and a dead owner's
//!   locks are taken over: what it wrote and did not commit is dropped.
//! - In a child that a fork made nothing is locked or unlocked: the locks are its parent's.

#![forbid(unsafe_code)]

use std::ffi::c_int;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use holdfast_sys::lease::is_taken;
use holdfast_sys::lock::{LockMode, try_lock, unlock};
use holdfast_sys::process::ProcessId;

use crate::ffi::{LOCK_EXCLUSIVE, LOCK_PENDING, LOCK_RESERVED, LOCK_SHARED};
use crate::image::layout::PROCESSES_MAX;
use crate::image::{Introduction, LEASES_AT, ShortLock, Writer, WriterId, WriterLevel};
use crate::patience::wait_a_moment;
use crate::pool::Pool;

// What SQLite asks for, and what the image says, are the same numbers.
const _: () = assert!(WriterLevel::Reserved as c_int == LOCK_RESERVED);
const _: () = assert!(WriterLevel::Pending as c_int == LOCK_PENDING);
const _: () = assert!(WriterLevel::Exclusive as c_int == LOCK_EXCLUSIVE);

/// How often a short lock is tried before the processor is given away.
const SPINS: u32 = 200;
/// How often it is tried with a pause before a process looks whether its owner lives.
const PAUSES: u32 = 20;
const PAUSE: Duration = Duration::from_micros(100);
/// How long a takeover, an attachment or a close may hold others up.
const GATE_PATIENCE: Duration = Duration::from_secs(20);

/// What came of SHARED.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    /// It is held.
    Hot,
    /// There is nothing in the pool.
    Cold,
    /// A process writes.
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
        self.image.locks().try_enter(self.number)
    }

    #[cold]
    fn wait_for_shared(&self) -> bool {
        for _ in 0..2 {
            let mut writer = None;
            let is_mine = wait_a_moment(|| {
                let found = self.image.locks().writer();
                writer = Some(found);
                !found.excludes_readers() && self.try_shared()
            });
            let is_dead = |writer: Writer| self.take_over_if_dead(writer.process());
            if is_mine || !writer.is_some_and(is_dead) {
                return is_mine;
            }
        }
        false
    }

    #[inline]
    pub(crate) fn unlock_shared(&self) {
        self.image.locks().entry(self.number).leave();
    }

    /// RESERVED, for one who has SHARED. False: busy.
    #[inline]
    pub(crate) fn lock_reserved(&self, id: WriterId) -> bool {
        for _ in 0..2 {
            match self.image.locks().reserve(id) {
                Ok(()) => return true,
                Err(writer) if self.take_over_if_dead(writer.process()) => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// RESERVED ahead of SHARED, for one who was refused it before; it waits a moment, which hurts
    /// no process here, as it has nothing yet. A process that writes without a pause leaves others
    /// no other chance: they would have to find RESERVED free between two of its transactions.
    #[cold]
    pub(crate) fn claim(&self, id: WriterId) -> bool {
        let (locks, mode) = (self.image.locks(), self.image.mode());
        let is_mine = wait_a_moment(|| locks.seems_unreserved() && locks.reserve(id).is_ok());
        // A journal on the disk counts as one in use while a process has RESERVED; it is to be
        // rolled back.
        let is_useful = is_mine && self.is_hot() && !mode.may_have_journal_now();
        if is_mine && !is_useful {
            self.unlock_writer();
        }
        is_useful
    }

    /// EXCLUSIVE, for one who has RESERVED or PENDING. False: busy, and PENDING is held.
    #[inline]
    pub(crate) fn lock_exclusive(&self, id: WriterId) -> bool {
        let locks = self.image.locks();
        locks.pend(id);
        let is_alone = || locks.count_readers(|_| false) <= 1;
        // New readers stay out, and those who want to write are refused at once and leave.
        let is_gone = |process| process != self.number && self.take_over_if_dead(process);
        if !is_alone() && !wait_a_moment(is_alone) && locks.count_readers(is_gone) > 1 {
            return false;
        }
        locks.exclude(id);
        true
    }

    /// Whether one who was refused a lock may get it now.
    pub(crate) fn is_free(&self, wanted: c_int) -> bool {
        let writer = self.image.locks().writer();
        match wanted {
            LOCK_SHARED => !writer.excludes_readers(),
            LOCK_RESERVED => writer.is_none(),
            _ => self.image.locks().count_readers(|_| false) <= 1,
        }
    }

    /// Back to SHARED.
    #[inline]
    pub(crate) fn unlock_writer(&self) {
        self.image.locks().end_write();
    }

    /// How far the one who writes has come.
    pub(crate) fn writer_level(&self) -> c_int {
        c_int::from(self.image.locks().writer().level())
    }

    /// Whether a process has RESERVED or more.
    pub(crate) fn is_reserved(&self) -> bool {
        let writer = self.image.locks().writer();
        !writer.is_none() && !self.take_over_if_dead(writer.process())
    }

    /// The right to commit, or to copy what is committed. A process that waits for it checks
    /// whether its owner lives.
    #[inline]
    pub(crate) fn lock_commit(&self) -> Held<'_> {
        self.lock_or(self.image.locks().commit_lock(), |owner| self.take_over_if_dead(owner))
    }

    /// The same for the redo log.
    #[inline]
    pub(crate) fn lock_log(&self) -> Held<'_> {
        self.lock_or(self.image.locks().log_lock(), |owner| self.take_over_if_dead(owner))
    }

    /// The same, but for as long only as something has not come about.
    pub(crate) fn lock_log_unless(&self, came_about: impl Fn() -> bool) -> Option<Held<'_>> {
        let look = |owner| self.take_over_if_dead(owner);
        self.lock_unless(self.image.locks().log_lock(), look, came_about)
    }

    #[inline]
    fn lock_or<'a>(&self, lock: ShortLock<'a>, look: impl Fn(u32) -> bool) -> Held<'a> {
        loop {
            if let Some(held) = self.lock_unless(lock, &look, || false) {
                return held;
            }
        }
    }

    #[inline]
    fn lock_unless<'a>(
        &self,
        lock: ShortLock<'a>,
        look: impl Fn(u32) -> bool,
        came_about: impl Fn() -> bool,
    ) -> Option<Held<'a>> {
        let mut tries = 0_u32;
        while let Err(owner) = lock.try_take(self.number) {
            if came_about() {
                return None;
            }
            tries += 1;
            if tries < SPINS {
                std::hint::spin_loop();
                continue;
            }
            std::thread::sleep(PAUSE);
            if tries.is_multiple_of(PAUSES)
                && let Some(owner) = owner.filter(|owner| *owner != self.number)
            {
                look(owner);
            }
        }
        Some(Held(lock))
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
        let Introduction { pid, start_ticks, pid_space } =
            self.image.locks().entry(number).introduction();
        pid != 0 && pid_space == self.pid_space && !ProcessId { pid, start_ticks }.is_alive()
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
        let locks = self.image.locks();
        let writer = locks.writer();
        let is_writer = writer.process() == number;
        // With PENDING it had written nothing yet, and others may read the map still.
        let wrote = is_writer && writer.is_exclusive();
        if wrote {
            // The gate is passed, so this must not wait for it. It ends: the owner of the commit
            // lock is not the writer, and so holds up no more than this lock.
            let look = |owner| self.is_dead(owner) && self.take_over(owner);
            let commit = locks.commit_lock();
            let _commit = (!commit.is_held_by(number)).then(|| self.lock_or(commit, look));
            if self.settle_dead_writer().is_err() {
                self.poison("its slots lead astray");
                return false;
            }
        }
        if is_writer {
            locks.end_dead_write(writer);
        }
        if locks.log_lock().is_held_by(number) {
            self.image.log_position().suspect();
            if !wrote {
                // It may have counted blocks as clean that are not durable yet.
                self.image.commits().count_all_as_dirty();
            }
            locks.log_lock().free_of_dead(number);
        }
        locks.commit_lock().free_of_dead(number);
        locks.entry(number).clear_dead();
        true
    }

    /// One at a time, of all threads of all processes, attaches, detaches, takes over. Not for one
    /// who attaches: that one is behind the gate by the image's own open file.
    ///
    /// The file is opened for this alone: a child that this process has forked has the image's own,
    /// with its locks, and would keep the gate shut if this process were killed behind it.
    pub(crate) fn enter_gate(&self) -> Option<Gate<'_>> {
        let thread = self.gate.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let file = self.image.open_again().ok()?;
        let started = Instant::now();
        while !try_lock(&file, LockMode::Exclusive).ok()? {
            if started.elapsed() > GATE_PATIENCE {
                return None;
            }
            std::thread::sleep(PAUSE);
        }
        Some(Gate { file, _thread: thread })
    }
}

/// Whether a process has an image open; the open file that is asked does not count. A lease alone
/// does not tell: a child may have inherited it from a process that has left since. A process that
/// comes or goes holds the gate, as the caller must.
pub(crate) fn is_anybody_there(file: &File, pid_space: u64) -> io::Result<bool> {
    Ok(!who_is_there(file, pid_space)?.is_empty())
}

/// The processes that have an image open; `None` for one of another name space. See
/// [`is_anybody_there`].
pub(crate) fn who_is_there(file: &File, pid_space: u64) -> io::Result<Vec<Option<u32>>> {
    let mut found = Vec::new();
    if !is_taken(file, LEASES_AT, PROCESSES_MAX as u64)? {
        return Ok(found);
    }
    for number in 0..PROCESSES_MAX as u64 {
        if !is_taken(file, LEASES_AT + number, 1)? {
            continue;
        }
        let Some(process) = Introduction::read(file, number as u32)? else { continue };
        let Introduction { pid, start_ticks, .. } = process;
        if pid != 0 && process.pid_space != pid_space {
            found.push(None);
        } else if pid != 0 && (ProcessId { pid, start_ticks }).is_alive() {
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
pub(crate) struct Held<'a>(ShortLock<'a>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.free();
    }
}

/// See [`Pool::enter_gate`].
#[derive(Debug)]
pub(crate) struct Gate<'a> {
    file: File,
    _thread: std::sync::MutexGuard<'a, ()>,
}

impl Drop for Gate<'_> {
    fn drop(&mut self) {
        // Also for a child that was forked meanwhile.
        let _ = unlock(&self.file);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attach::attach_at;
    use crate::base::OwnFile;
    use crate::identity::Identity;
    use crate::image::Locks;
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

    /// A process that took over waited for the commit's lock behind the gate, and for the gate to
    /// take over from that lock's owner.
    ///
    /// Guarantee: sqlite/killed-holder
    #[test]
    fn dead_waiters_claim_is_taken_over_beside_readers() {
        let folder = tempfile::tempdir().unwrap();
        let pool = scratch_pool(folder.path());
        let (locks, commits, dead) =
            (pool.image.locks(), pool.image.commits(), WriterId::new(5, 1));
        // A rebuild would count it anew, and clear the buckets under the reader.
        commits.add_dirty(3);
        assert!(pool.lock_shared());
        type Advance = fn(Locks<'_>, WriterId);
        let levels: [(Advance, u32); 3] =
            [(|_, _| (), 3), (|locks, id| locks.pend(id), 3), (|locks, id| locks.exclude(id), 0)];
        for (number, (advance, left)) in levels.into_iter().enumerate() {
            locks.reserve(dead).unwrap();
            advance(locks, dead);
            assert!(pool.take_over_if_dead(5));
            let found = (locks.writer().is_none(), commits.dirty());
            assert_eq!(found, (true, left), "level {number}");
        }
    }

    /// A process that comes into the pool just after the database left it is not in it.
    ///
    /// Guarantee: sqlite/copies
    /// Guarantee: sqlite/release
    #[test]
    fn late_arrival_is_not_in_a_pool_already_left() {
        let folder = tempfile::tempdir().unwrap();
        let pool = scratch_pool(folder.path());
        assert_eq!(pool.enter_hot(), Entered::Cold);
        assert_eq!(pool.image.locks().entry(pool.number).readers(), 0);
        pool.heat(pool.base()).unwrap();
        assert_eq!((pool.enter(), pool.enter_hot()), (Entered::Hot, Entered::Hot));
        assert_eq!(pool.image.locks().entry(pool.number).readers(), 2);
    }

    /// What a child inherits of an image is not the gate. It was: where a process was killed behind
    /// it, others were refused for as long as a child of it was there.
    ///
    /// Guarantee: sqlite/killed-holder
    #[test]
    fn inherited_image_is_not_the_gate() {
        let folder = tempfile::tempdir().unwrap();
        let pool = scratch_pool(folder.path());
        // As a child has it: the same open file.
        let inherited = pool.image.file().try_clone().unwrap();
        let gate = pool.enter_gate().unwrap();
        assert!(!try_lock(&inherited, LockMode::Exclusive).unwrap(), "the child has the gate");
        drop(gate);
        assert!(try_lock(&inherited, LockMode::Exclusive).unwrap());
        unlock(&inherited).unwrap();
        assert!(pool.enter_gate().is_some());
    }

    /// Two dead processes, of which one holds the lock that the other waited for, delay no one.
    ///
    /// Guarantee: sqlite/killed-holder
    #[test]
    fn two_dead_lock_holders_delay_nobody() {
        const FIRST: u32 = 5;
        const SECOND: u32 = 6;
        let folder = tempfile::tempdir().unwrap();
        let pool = scratch_pool(folder.path());
        pool.image.locks().exclude(WriterId::new(FIRST, 1));
        pool.image.locks().commit_lock().try_take(SECOND).unwrap();
        let (told, hears) = channel();
        std::thread::spawn(move || {
            let taken = pool.take_over_if_dead(FIRST);
            let locks = pool.image.locks();
            let left = (locks.writer().is_none(), locks.commit_lock().try_take(0).is_ok());
            told.send((taken, left)).unwrap();
        });
        assert_eq!(hears.recv_timeout(GATE_PATIENCE), Ok((true, (true, true))));
    }

    /// The shortest of several times that it took, as a machine that does other things may hold
    /// anybody up.
    fn shortest(mut attempt: impl FnMut()) -> Duration {
        let timed = |_| {
            let started = Instant::now();
            attempt();
            started.elapsed()
        };
        (0..20).map(timed).min().unwrap_or_default()
    }

    /// Readers and commits wait a moment; a second writer is refused at once.
    ///
    /// Guarantee: sqlite/fair-writers
    #[test]
    fn second_writer_is_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pool = scratch_pool(folder.path());
        pool.heat(pool.base()).unwrap();
        let locks = pool.image.locks();
        // A process that lives: the entry is this one's own.
        let (one, other) = (WriterId::new(pool.number, 1), WriterId::new(pool.number, 2));
        locks.exclude(one);
        assert!(shortest(|| assert!(!pool.lock_shared())) >= MOMENT);
        assert!(shortest(|| assert!(!pool.claim(other))) >= MOMENT);
        assert!(shortest(|| assert!(!pool.lock_reserved(other))) < MOMENT);
        locks.end_write();
        locks.reserve(one).unwrap();
        assert!(pool.lock_shared() && pool.lock_shared());
        assert!(shortest(|| assert!(!pool.lock_exclusive(one))) >= MOMENT);
        assert_eq!(pool.writer_level(), LOCK_PENDING);
        pool.unlock_shared();
        assert!(pool.lock_exclusive(one));
    }

    /// A database that is not in the pool, or has a journal to roll back, is not claimed.
    ///
    /// Guarantee: sqlite/busy-handler
    #[test]
    fn absent_or_journaled_database_is_never_claimed() {
        let folder = tempfile::tempdir().unwrap();
        let pool = scratch_pool(folder.path());
        let (mode, owner) = (pool.image.mode(), WriterId::new(pool.number, 1));
        assert!(!pool.claim(owner) && pool.is_free(LOCK_RESERVED), "it is cold");
        pool.heat(pool.base()).unwrap();
        mode.note_journal(true);
        // A process that sees RESERVED takes the journal for one in use, and reads what it is to
        // undo.
        assert!(!pool.claim(owner) && pool.is_free(LOCK_RESERVED));
        mode.note_journal(false);
        assert!(pool.claim(owner) && !pool.is_free(LOCK_RESERVED));
    }
}
