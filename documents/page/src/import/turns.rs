//! Admits jobs side by side, or one alone: under a limit on memory not all jobs have room at once,
//! and a page fails only if it has none when nothing else of the import takes any.
//!
//! Invariant: one that works alone began when no page was being made, and whatever was made had
//! been written or let go.

use std::ops::Deref;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock};

/// A gate that admits jobs side by side, or one job alone after it failed for lack of memory.
#[derive(Default)]
pub(crate) struct MemoryGate {
    /// Shared by those who make pages beside others; one that works alone has it for itself.
    making: RwLock<()>,
    /// How much was made, and has not ended.
    outstanding: Mutex<u64>,
    ended: Condvar,
}

/// What was made: it takes room until it ends.
pub(crate) struct Outstanding<'a, T> {
    made: T,
    room: OutstandingCount<'a>,
}

struct OutstandingCount<'a>(&'a MemoryGate);

impl MemoryGate {
    /// Makes something while others make something.
    pub(crate) fn beside_others<T>(&self, make: impl FnOnce() -> T) -> Outstanding<'_, T> {
        let _shared = self.making.read().unwrap_or_else(PoisonError::into_inner);
        self.begin(make)
    }

    /// Makes something when no other thread does, and nothing is left of what was made. A thread
    /// that calls it holds nothing that was.
    pub(crate) fn alone<T>(&self, make: impl FnOnce() -> T) -> Outstanding<'_, T> {
        let _alone = self.making.write().unwrap_or_else(PoisonError::into_inner);
        let mut outstanding = self.outstanding();
        while *outstanding > 0 {
            outstanding = self.ended.wait(outstanding).unwrap_or_else(PoisonError::into_inner);
        }
        drop(outstanding);
        self.begin(make)
    }

    fn begin<T>(&self, make: impl FnOnce() -> T) -> Outstanding<'_, T> {
        *self.outstanding() += 1;
        let room = OutstandingCount(self);
        Outstanding { made: make(), room }
    }

    fn outstanding(&self) -> MutexGuard<'_, u64> {
        self.outstanding.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Outstanding<'_, T> {
    /// Does the last that is done with it.
    pub(crate) fn end<R>(self, last: impl FnOnce(T) -> R) -> R {
        let Outstanding { made, room } = self;
        let result = last(made);
        drop(room);
        result
    }
}

impl<T> Deref for Outstanding<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.made
    }
}

impl Drop for OutstandingCount<'_> {
    fn drop(&mut self) {
        *self.0.outstanding() -= 1;
        self.0.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// A worker that needs the memory alone waits until all pages under way are made and finished.
    ///
    /// Guarantee: pages/import-kills
    /// Guarantee: pages/memory
    #[test]
    fn lone_worker_waits_for_all_others() {
        let turns = MemoryGate::default();
        let busy = AtomicU64::new(0);
        thread::scope(|scope| {
            let (sender, made) = channel();
            for _ in 0..8 {
                let (turns, busy, sender) = (&turns, &busy, sender.clone());
                scope.spawn(move || {
                    for _ in 0..200 {
                        let one = turns.beside_others(|| busy.fetch_add(1, Ordering::SeqCst));
                        // Its receiver ends it.
                        let _ = sender.send(one);
                        let seen = turns.alone(|| {
                            let before = busy.load(Ordering::SeqCst);
                            thread::yield_now();
                            (before, busy.load(Ordering::SeqCst))
                        });
                        assert_eq!(*seen, (0, 0));
                    }
                });
            }
            drop(sender);
            for one in made {
                thread::yield_now();
                one.end(|_| busy.fetch_sub(1, Ordering::SeqCst));
            }
        });
        assert_eq!(*turns.outstanding(), 0);
    }
}
