//! A lock that costs the thread which mostly takes it two plain stores, and no atomic operation.
//!
//! The lock is a mutex until one thread has taken it often in a row. From then on it is that
//! thread's: it enters and leaves by a flag of its own. When another thread comes, the lock is
//! taken away from its owner and is a mutex again.
//!
//! Invariants:
//! - The value is used by the owner while it is inside, or by the holder of the mutex after it has
//!   made sure that there is no owner and none is inside.
//! - An owner stores that it is inside and then looks whether it still is the owner; the one that
//!   takes the lock away stores that there is none, has all threads pass a memory barrier, and then
//!   waits until the owner is not inside. So one of the two sees the other. This is Dekker's
//!   algorithm, asymmetric: the barrier, which is dear, is on the rare side. Without such a barrier
//!   ([`thread_barrier`]) there are no owners.
//! - Only the holder of the mutex makes an owner, itself, and as the last act before it lets go of
//!   the mutex: a signal handler of its own thread finds the lock held until the work is done.
//! - Each time the lock is taken away the next owner needs twice as many turns in a row, so that
//!   threads which take turns pay for a barrier ever more rarely.
//! - A panic under the lock poisons it, for good.
//! - A thread that gets the mark of one that has ended ([`thread_mark`]) is its heir: what that one
//!   stored happened before.
//!
//! What it must not do: be taken by a thread that holds it; that waits for ever, as with a mutex.

use std::cell::UnsafeCell;
use std::mem;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, compiler_fence};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use crate::thread_barrier::{ThreadBarrier, thread_barrier};
use crate::thread_mark::thread_mark;

/// No thread has this mark.
const NOBODY: u64 = 0;
/// Turns in a row that make a thread the first owner.
const TURNS_FIRST: u32 = 64;
/// More are never needed.
const TURNS_MAX: u32 = 1 << 16;
/// After so many looks the owner inside is waited for asleep.
const LOOKS: u32 = 1_000;
const PAUSE: Duration = Duration::from_micros(50);

/// The lock, and the value under it.
#[derive(Debug)]
pub struct BiasedLock<T> {
    door: Door,
    turns: Mutex<Turns>,
    value: UnsafeCell<T>,
}

/// What an owner looks at, in a cache line of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Door {
    owner: AtomicU64,
    /// Stored to by the owner only.
    is_inside: AtomicBool,
    is_poisoned: AtomicBool,
}

/// Who took the mutex lately.
#[derive(Debug)]
struct Turns {
    thread: u64,
    count: u32,
    /// How many make an owner.
    needed: u32,
}

// SAFETY: the value is used by one thread at a time (see the module), which may be any.
unsafe impl<T: Send> Sync for BiasedLock<T> {}

/// A thread panicked under the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Poisoned;

/// Why a lock was not taken at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// It is held.
    Held,
    /// A thread panicked under the lock.
    Poisoned,
}

impl<T> BiasedLock<T> {
    /// A lock without an owner.
    #[must_use]
    pub const fn new(value: T) -> BiasedLock<T> {
        BiasedLock {
            door: Door {
                owner: AtomicU64::new(NOBODY),
                is_inside: AtomicBool::new(false),
                is_poisoned: AtomicBool::new(false),
            },
            turns: Mutex::new(Turns { thread: NOBODY, count: 0, needed: TURNS_FIRST }),
            value: UnsafeCell::new(value),
        }
    }

    /// Waits for the lock, and works under it.
    ///
    /// # Errors
    /// When a thread panicked under it.
    #[inline]
    pub fn with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Result<R, Poisoned> {
        match self.door.enter() {
            true => Ok(self.work_as_owner(work)),
            false => self.with_mutex(work),
        }
    }

    /// Works under the lock if it is the calling thread's own and that is outside; `None`, and
    /// nothing done, otherwise, also when a thread panicked under it.
    #[inline]
    pub fn as_owner<R>(&self, work: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.door.enter().then(|| self.work_as_owner(work))
    }

    /// Works under the lock if no thread holds it.
    ///
    /// # Errors
    /// When it is held, or a thread panicked under it.
    pub fn try_with<R>(&self, work: impl FnOnce(&mut T) -> R) -> Result<R, NotTaken> {
        if self.door.enter() {
            return Ok(self.work_as_owner(work));
        }
        let turns = match self.turns.try_lock() {
            Ok(turns) => turns,
            Err(TryLockError::Poisoned(turns)) => turns.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(NotTaken::Held),
        };
        self.door.take_away();
        if self.door.is_inside.load(Ordering::Acquire) {
            return Err(NotTaken::Held);
        }
        self.work_as_holder(turns, work).map_err(|Poisoned| NotTaken::Poisoned)
    }

    /// Whether a thread holds the lock, or did when this process was forked off.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.door.is_inside.load(Ordering::Acquire)
            || matches!(self.turns.try_lock(), Err(TryLockError::WouldBlock))
    }

    #[cold]
    #[inline(never)]
    fn with_mutex<R>(&self, work: impl FnOnce(&mut T) -> R) -> Result<R, Poisoned> {
        let turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        self.door.take_away();
        self.door.wait();
        self.work_as_holder(turns, work)
    }

    /// Works after [`Door::enter`], and leaves.
    #[inline]
    fn work_as_owner<R>(&self, work: impl FnOnce(&mut T) -> R) -> R {
        let unwinding = Unwinding(&self.door);
        // SAFETY: the owner is inside, so the value is its own.
        let done = work(unsafe { &mut *self.value.get() });
        mem::forget(unwinding);
        self.door.is_inside.store(false, Ordering::Release);
        done
    }

    /// Works where there is no owner, and none is inside.
    fn work_as_holder<R>(
        &self,
        mut turns: MutexGuard<'_, Turns>,
        work: impl FnOnce(&mut T) -> R,
    ) -> Result<R, Poisoned> {
        if self.door.is_poisoned.load(Ordering::Relaxed) {
            return Err(Poisoned);
        }
        let unwinding = Unwinding(&self.door);
        // SAFETY: no thread becomes the owner while this one holds the mutex, so the value is the
        // holder's.
        let done = work(unsafe { &mut *self.value.get() });
        mem::forget(unwinding);
        turns.count(&self.door);
        Ok(done)
    }
}

/// Dropped when a panic leaves the lock.
struct Unwinding<'lock>(&'lock Door);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        let Door { owner, is_inside, is_poisoned } = self.0;
        is_poisoned.store(true, Ordering::Relaxed);
        // Every thread that comes later takes the mutex, and looks at `is_poisoned` there.
        owner.store(NOBODY, Ordering::Relaxed);
        is_inside.store(false, Ordering::Release);
    }
}

impl Door {
    /// Enters as the owner; `false` for everybody else.
    #[inline]
    fn enter(&self) -> bool {
        let mark = thread_mark();
        // A signal handler may have interrupted its own thread inside.
        if self.owner.load(Ordering::Relaxed) != mark || self.is_inside.load(Ordering::Relaxed) {
            return false;
        }
        self.is_inside.store(true, Ordering::Relaxed);
        // The processor may let the load overtake the store; the barrier of `take_away` is for
        // that.
        compiler_fence(Ordering::SeqCst);
        if self.owner.load(Ordering::Acquire) == mark {
            return true;
        }
        self.is_inside.store(false, Ordering::Release);
        false
    }

    /// The holder of the mutex takes the lock away from its owner, who may be inside for the last
    /// time.
    fn take_away(&self) {
        if self.owner.load(Ordering::Relaxed) == NOBODY {
            return;
        }
        // There was a barrier to make an owner.
        if let Some(barrier) = thread_barrier() {
            self.take_away_by(barrier);
        }
    }

    fn take_away_by(&self, barrier: ThreadBarrier) {
        // A barrier that panics poisons the lock: nobody would know whether the owner is inside.
        let unwinding = Unwinding(self);
        self.owner.store(NOBODY, Ordering::SeqCst);
        barrier();
        mem::forget(unwinding);
    }

    /// Waits until the last owner is not inside.
    fn wait(&self) {
        let mut looks = 0_u32;
        while self.is_inside.load(Ordering::Acquire) {
            looks = looks.saturating_add(1);
            // It may have been interrupted there, by this thread even, whose priority may be
            // higher; or it waits for a disk.
            if looks > LOOKS {
                thread::sleep(PAUSE);
            } else if looks.is_multiple_of(100) {
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }
}

impl Turns {
    /// Counts the turn of the calling thread, which ends: with enough of them in a row it becomes
    /// the owner.
    fn count(&mut self, door: &Door) {
        let mark = thread_mark();
        if self.thread != mark {
            (self.thread, self.count) = (mark, 0);
        }
        self.count = self.count.saturating_add(1);
        if self.count >= self.needed && thread_barrier().is_some() {
            self.count = 0;
            self.needed = self.needed.saturating_mul(2).min(TURNS_MAX);
            door.owner.store(mark, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::mpsc::channel;

    fn add(lock: &BiasedLock<u64>) {
        lock.with(|value| *value += 1).unwrap();
    }

    fn has_owner(lock: &BiasedLock<u64>) -> bool {
        lock.door.owner.load(Ordering::Relaxed) != NOBODY
    }

    /// Takes the lock until the calling thread owns it.
    fn own(lock: &BiasedLock<u64>) -> u32 {
        let mut turns = 0;
        while lock.door.owner.load(Ordering::Relaxed) != thread_mark() {
            add(lock);
            turns += 1;
        }
        turns
    }

    /// The owner and those that take the lock away are never inside together: with plain additions
    /// no turn of either is lost.
    ///
    /// Guarantee: programs/threads
    #[test]
    fn owner_and_others_take_turns() {
        const VISITS: u64 = 2_000;
        let (lock, is_over) = (BiasedLock::new(0_u64), AtomicBool::new(false));
        let (added, taken_away) = thread::scope(|scope| {
            let owner = scope.spawn(|| {
                let mut added = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    add(&lock);
                    added += 1;
                    // Owners would soon be rare.
                    if let Some(mut turns) =
                        lock.turns.try_lock().ok().filter(|_| added.is_multiple_of(8))
                    {
                        turns.needed = 1;
                    }
                }
                added
            });
            let mut taken_away = 0;
            for _ in 0..VISITS {
                taken_away += u64::from(has_owner(&lock));
                add(&lock);
                thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
            (owner.join().unwrap(), taken_away)
        });
        assert!(taken_away > 100, "there was an owner {taken_away} times only");
        assert_eq!(lock.with(|value| *value), Ok(added + VISITS));
    }

    /// While the owner is inside the lock is held, for a thread that asks once and for one that
    /// waits.
    #[test]
    fn owner_inside_holds_the_lock() {
        let lock = BiasedLock::new(0);
        own(&lock);
        let (told, hears) = channel();
        thread::scope(|scope| {
            let inside = |value: &mut u64| {
                let before = *value;
                assert!(lock.is_held());
                // Its own signal handler would find the same.
                assert_eq!(lock.try_with(|value| *value += 1), Err(NotTaken::Held));
                let once = scope.spawn(|| lock.try_with(|value| *value += 1)).join().unwrap();
                assert_eq!(once, Err(NotTaken::Held));
                scope.spawn(|| {
                    add(&lock);
                    told.send(()).unwrap();
                });
                assert!(hears.recv_timeout(Duration::from_millis(50)).is_err());
                assert_eq!(*value, before);
            };
            lock.with(inside).unwrap();
            hears.recv().unwrap();
        });
        assert!(!lock.is_held());
        assert!(!has_owner(&lock));
        assert_eq!(lock.try_with(|value| *value), Ok(u64::from(TURNS_FIRST) + 1));
    }

    /// A panic poisons the lock, whether the thread was the owner or not.
    #[test]
    fn panic_poisons_the_lock() {
        for is_owner in [false, true] {
            let lock = BiasedLock::new(0);
            if is_owner {
                own(&lock);
            }
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                lock.with(|_| std::panic::resume_unwind(Box::new(())))
            }));
            assert!(panicked.is_err());
            assert_eq!(lock.with(|value| *value), Err(Poisoned));
            assert_eq!(lock.try_with(|value| *value), Err(NotTaken::Poisoned));
            let other = thread::scope(|scope| scope.spawn(|| lock.with(|value| *value)).join());
            assert_eq!(other.unwrap(), Err(Poisoned));
        }
    }

    /// Where the barrier fails, the owner may be inside unseen: the lock is poisoned for all.
    #[test]
    fn failed_barrier_poisons_the_lock() {
        let lock = BiasedLock::new(0);
        own(&lock);
        let refused = || lock.door.take_away_by(|| std::panic::resume_unwind(Box::new(())));
        assert!(catch_unwind(AssertUnwindSafe(refused)).is_err());
        assert_eq!(lock.with(|value| *value), Err(Poisoned));
        assert_eq!(lock.try_with(|value| *value), Err(NotTaken::Poisoned));
        assert_eq!(lock.as_owner(|value| *value), None);
    }

    /// What is for the owner alone is done by it alone, and not twice at a time.
    #[test]
    fn only_the_owner_works_as_owner() {
        let lock = BiasedLock::new(0);
        assert_eq!(lock.as_owner(|value| *value), None);
        own(&lock);
        let nested = lock.as_owner(|_| lock.as_owner(|value| *value += 1));
        assert_eq!(nested, Some(None));
        let other = || lock.as_owner(|value| *value);
        assert_eq!(thread::scope(|scope| scope.spawn(other).join().unwrap()), None);
        assert_eq!(lock.as_owner(|value| *value), Some(u64::from(TURNS_FIRST)));
    }

    /// Threads that take turns need ever longer ones to own the lock.
    #[test]
    fn each_owner_needs_more_turns() {
        let lock = BiasedLock::new(0);
        for needed in [TURNS_FIRST, 2 * TURNS_FIRST, 4 * TURNS_FIRST] {
            assert_eq!(own(&lock), needed);
            thread::scope(|scope| scope.spawn(|| add(&lock)).join().unwrap());
            assert!(!has_owner(&lock));
        }
    }
}
