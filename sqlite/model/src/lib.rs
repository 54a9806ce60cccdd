//! The locks and the commit of the VFS in every order in which threads can run, with every value
//! that a load may see by its memory order: `loom` runs the code of `locks.rs`, `commits.rs` and
//! `log_position.rs` over its own atomics.
//!
//! A package of its own, and a feature that is off: what `loom` uses would give other packages of
//! the workspace other features. `cargo test -p holdfast-sqlite-model --features loom` runs it.
//!
//! `loom` has no sequentially consistent loads and stores. [`atomic`] puts a fence, which it has,
//! in front of such a load that follows such a store of the same thread. Where either of the two is
//! weaker there is none, the load may see an older value, and the model finds a reader beside a
//! writer. (Of several such loads the first has the fence for all.)

#![cfg(all(test, feature = "loom"))]
#![allow(clippy::unwrap_used, unsafe_code, reason = "a test; the model checks each access")]

use std::panic::{RefUnwindSafe, UnwindSafe};

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use self::atomic::{AtomicU32, AtomicU64};
use self::commits::Commits;
use self::layout::PROCESSES_MAX;
use self::locks::{Locks, ProcessEntry, WriterId};
use self::log_position::{LogPosition, Suspicion};

/// The table of processes has as many entries as a model has threads.
mod layout {
    pub(super) const PROCESSES_MAX: usize = 3;
    pub(super) const PROCESSES_AT: usize = 0;
}

#[allow(dead_code, reason = "each width has all operations")]
mod atomic {
    pub(super) use std::sync::atomic::Ordering;

    use Ordering::SeqCst;
    use std::cell::Cell;

    loom::thread_local! {
        static STORED_SEQ_CST: Cell<bool> = Cell::new(false);
    }

    fn note_store(order: Ordering) {
        STORED_SEQ_CST.with(|stored| stored.set(order == SeqCst));
    }

    macro_rules! atomic {
        ($name:ident, $kind:ty) => {
            #[derive(Debug, Default)]
            pub(super) struct $name(loom::sync::atomic::$name);

            impl $name {
                pub(super) fn load(&self, order: Ordering) -> $kind {
                    if order == SeqCst && STORED_SEQ_CST.with(Cell::get) {
                        loom::sync::atomic::fence(SeqCst);
                    }
                    self.0.load(order)
                }
                pub(super) fn store(&self, value: $kind, order: Ordering) {
                    note_store(order);
                    self.0.store(value, order);
                }
                pub(super) fn fetch_add(&self, value: $kind, order: Ordering) -> $kind {
                    note_store(order);
                    self.0.fetch_add(value, order)
                }
                pub(super) fn fetch_sub(&self, value: $kind, order: Ordering) -> $kind {
                    note_store(order);
                    self.0.fetch_sub(value, order)
                }
                pub(super) fn fetch_max(&self, value: $kind, order: Ordering) -> $kind {
                    note_store(order);
                    self.0.fetch_max(value, order)
                }
                pub(super) fn compare_exchange(
                    &self,
                    current: $kind,
                    new: $kind,
                    success: Ordering,
                    failure: Ordering,
                ) -> Result<$kind, $kind> {
                    note_store(success);
                    self.0.compare_exchange(current, new, success, failure)
                }
            }
        };
    }

    atomic!(AtomicU32, u32);
    atomic!(AtomicU64, u64);
}

#[allow(dead_code, reason = "the same code over the model's atomics")]
#[path = "../../vfs/src/image/commits.rs"]
mod commits;
#[allow(dead_code, reason = "as above")]
#[path = "../../vfs/src/image/locks.rs"]
mod locks;
#[allow(dead_code, reason = "as above")]
#[path = "../../vfs/src/image/log_position.rs"]
mod log_position;

/// The words of an image.
#[derive(Debug, Default)]
struct Words {
    long: [AtomicU64; 11],
    sizes: [AtomicU64; 2],
    short: [AtomicU32; 6],
    entries: [ProcessEntry; PROCESSES_MAX],
}

/// An image, and the pages that its locks guard.
#[derive(Debug, Default)]
struct Model {
    words: Words,
    pages: UnsafeCell<u64>,
    /// Of the flusher: see `flusher.rs`.
    armed: loom::sync::atomic::AtomicBool,
}

impl UnwindSafe for Model {}
impl RefUnwindSafe for Model {}

impl Model {
    fn new() -> Arc<Model> {
        let model = Arc::new(Model::default());
        for process in 0..PROCESSES_MAX as u32 {
            model.locks().note_process(process);
        }
        model.commits().format();
        model
    }

    fn locks(&self) -> Locks<'_> {
        let Words { long, short, entries, .. } = &self.words;
        let [writer, ..] = long;
        let [commit, log, processes, ..] = short;
        Locks { writer, commit, log, processes, entries }
    }

    fn commits(&self) -> Commits<'_> {
        let Words { long, sizes: size, short, .. } = &self.words;
        let [_, committed, flushed, applied, gathered, provisional, prepared, ..] = long;
        let dirty = &short[3];
        Commits { committed, size, flushed, applied, gathered, dirty, provisional, prepared }
    }

    fn log_position(&self) -> LogPosition<'_> {
        let [.., tail, salt, sequence, base] = &self.words.long;
        let (suspicion, blocks, statistic) = (&self.words.short[4], &self.words.short[5], base);
        LogPosition {
            tail,
            salt,
            sequence,
            base,
            reached: base,
            blocks,
            suspicion,
            flushes: statistic,
            flushed_blocks: statistic,
            checkpoints: statistic,
        }
    }

    fn read_pages(&self) -> u64 {
        // SAFETY: the model fails where this meets a write.
        self.pages.with(|pages| unsafe { *pages })
    }

    fn write_pages(&self, value: u64) {
        // SAFETY: as above.
        self.pages.with_mut(|pages| unsafe { *pages = value });
    }

    /// A transaction of a process, from SHARED on, if it gets that far.
    fn write(&self, process: u32) {
        let (locks, commits) = (self.locks(), self.commits());
        let id = WriterId::new(process, 1);
        if !locks.try_enter(process) {
            return;
        }
        if locks.reserve(id).is_ok() {
            locks.pend(id);
            if locks.count_readers(|_| false) <= 1 {
                locks.exclude(id);
                let transaction = commits.newest_for_writer() + 1;
                self.write_pages(transaction);
                commits.set_size(transaction, transaction * 10);
                commits.publish(transaction);
            }
            locks.end_write();
        }
        locks.entry(process).leave();
    }

    /// What a process with SHARED finds: the newest transaction, its size, and the pages.
    fn read(&self, process: u32) -> Option<(u64, u64, u64)> {
        if !self.locks().try_enter(process) {
            return None;
        }
        let commits = self.commits();
        let found = (commits.newest(), commits.size(), self.read_pages());
        self.locks().entry(process).leave();
        Some(found)
    }
}

/// Runs threads against each other in all ways, each as a process of its own.
fn explore<const N: usize>(threads: [fn(&Model, u32); N]) {
    loom::model(move || {
        let model = Model::new();
        let run = |(number, thread): (usize, fn(&Model, u32))| {
            let model = Arc::clone(&model);
            thread::spawn(move || thread(&model, number as u32))
        };
        let running: Vec<_> = threads.into_iter().enumerate().map(run).collect();
        for thread in running {
            thread.join().unwrap();
        }
    });
}

fn reader(model: &Model, process: u32) {
    if let Some((transaction, size, pages)) = model.read(process) {
        assert!(transaction == 1 && (size, pages) == (0, 0) || size == transaction * 10);
        assert!(transaction == 1 || pages == transaction, "a commit without its pages");
    }
}

fn writer(model: &Model, process: u32) {
    model.write(process);
}

/// With a weaker order than SeqCst in `try_enter`, `writer` or `pend` both get in; with a
/// Relaxed `leave` or `end_write` the next one reads or writes what the other has in view.
#[test]
fn a_reader_and_a_writer_exclude_each_other() {
    explore([reader, writer]);
}

/// The number is the commit: with a Relaxed `publish`, or `newest`, a size of before is seen.
#[test]
fn a_number_is_seen_with_its_size() {
    fn publishes(model: &Model, _: u32) {
        model.commits().set_size(2, 20);
        model.commits().publish(2);
    }
    fn looks(model: &Model, _: u32) {
        let commits = model.commits();
        let transaction = commits.newest();
        assert_eq!(commits.size_of(transaction), (transaction - 1) * 20);
    }
    explore([publishes, looks]);
}

/// A flush copies pages under the commit lock, beside a commit: with a Relaxed `try_take` or `free`
/// it copies a torn transaction.
#[test]
fn a_flush_copies_one_commit() {
    fn with_commit_lock(model: &Model, process: u32, work: impl FnOnce()) -> bool {
        let lock = model.locks().commit_lock();
        let is_taken = lock.try_take(process).is_ok();
        if is_taken {
            work();
            lock.free();
        }
        is_taken
    }
    fn commits(model: &Model, process: u32) {
        with_commit_lock(model, process, || {
            model.write_pages(2);
            model.commits().publish(2);
        });
    }
    fn flushes(model: &Model, process: u32) {
        with_commit_lock(model, process, || {
            let found = (model.commits().newest_for_writer(), model.read_pages());
            assert!(found == (1, 0) || found == (2, 2), "{found:?}");
        });
    }
    explore([commits, flushes]);
}

/// Of two processes that take over from a dead one, the one that gets its log lock next knows that
/// the log's end is suspect: with a Relaxed `free_of_dead` it appends to it.
#[test]
fn the_next_owner_suspects_the_log_of_a_dead_one() {
    const DEAD: u32 = 2;
    fn takes_over(model: &Model, process: u32) {
        let (locks, position) = (model.locks(), model.log_position());
        if process == 0 {
            position.suspect();
            locks.log_lock().free_of_dead(DEAD);
        } else if locks.log_lock().try_take(process).is_ok() {
            assert_eq!(position.suspicion(), Suspicion::Failed);
            locks.log_lock().free();
        }
    }
    loom::model(|| {
        let model = Model::new();
        model.locks().log_lock().try_take(DEAD).unwrap();
        let other = Arc::clone(&model);
        let thread = thread::spawn(move || takes_over(&other, 0));
        takes_over(&model, 1);
        thread.join().unwrap();
    });
}

/// A commit that the flusher misses finds that nothing is armed, and arms it: both take the commit
/// lock. See `flusher.rs`.
#[test]
fn a_commit_is_flushed_or_arms_the_flusher() {
    use std::sync::atomic::Ordering::{Relaxed, Release};

    fn lock(model: &Model, process: u32) {
        while model.locks().commit_lock().try_take(process).is_err() {
            thread::yield_now();
        }
    }
    fn commits(model: &Model, process: u32) {
        lock(model, process);
        model.commits().publish(2);
        model.locks().commit_lock().free();
        if !model.commits().seems_flushed() && !model.armed.load(Relaxed) {
            model.armed.store(true, Release);
        }
    }
    fn flushes(model: &Model, process: u32) {
        model.armed.store(false, Release);
        lock(model, process);
        model.locks().commit_lock().free();
        model.commits().note_flushed(model.commits().newest());
    }
    loom::model(|| {
        let model = Model::new();
        model.armed.store(true, Release);
        let other = Arc::clone(&model);
        let thread = thread::spawn(move || flushes(&other, 0));
        commits(&model, 1);
        thread.join().unwrap();
        assert!(model.commits().is_flushed() || model.armed.load(Relaxed), "nothing flushes it");
    });
}
