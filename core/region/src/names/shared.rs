//! One region for many writer threads, whose commits share syncs (group commit).
//!
//! Invariants:
//! - While a commit copies what changed no thread is between `enter` and the end of its guard. The
//!   copy is all that keeps writers away; writing and syncing happen beside their next stores. The
//!   same goes for a publication in the mode `atomic`.
//! - Every call belongs to one batch. A batch takes calls until its copy begins, so each of its
//!   calls began before the copy; its outcome, good or bad, is that of all of them.
//! - Batches are carried out one at a time, in order, each by one of its own callers.

#![forbid(unsafe_code)]

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard};

use holdfast_types::Durability;

use crate::error::{RegionError, Result};
use crate::image::memory::Consistency;
use crate::name::RegionName;
use crate::names::namespace::NameSpace;
use crate::names::region::Region;
use crate::names::region::commit::{CommitReport, Prepared, Writers, append_error};
use crate::store::journal_slot::JournalSlot;

/// What became of a batch.
type Outcome = std::result::Result<CommitReport, Arc<RegionError>>;

/// Calls that share one copy and one sync.
type Batch = Arc<OnceLock<Outcome>>;

#[derive(Debug, Default)]
struct Queue {
    /// The batch that still takes calls.
    open: Batch,
    /// A thread carries a batch out, or has the region for itself.
    busy: bool,
}

/// A region that many threads store to and commit. See the module.
pub struct SharedRegion {
    region: RwLock<Region>,
    queue: Mutex<Queue>,
    turn: Condvar,
    journal: Arc<Mutex<JournalSlot>>,
    names: NameSpace,
    name: RegionName,
}

/// The right to store to the region: no commit copies while it lives. Keep it short.
///
/// A thread must not enter twice, nor commit while it is inside: it would wait for itself.
#[derive(Debug)]
pub struct EnteredRegion<'shared>(RwLockReadGuard<'shared, Region>);

impl Deref for EnteredRegion<'_> {
    type Target = Region;

    fn deref(&self) -> &Region {
        &self.0
    }
}

/// The turn of the thread that carries out a batch; it ends with the value, however that goes.
struct Turn<'shared>(&'shared SharedRegion);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.queue().busy = false;
        self.0.turn.notify_all();
    }
}

impl SharedRegion {
    /// Shares a region, mapped or not. Its mapping is the way in: [`Region::mapping`].
    #[must_use]
    pub fn new(region: Region) -> SharedRegion {
        SharedRegion {
            queue: Mutex::default(),
            turn: Condvar::new(),
            journal: region.journal(),
            names: region.name_space().clone(),
            name: region.name().clone(),
            region: RwLock::new(region),
        }
    }

    /// Begins a stretch of stores that no commit cuts in two. Waits while a commit copies.
    #[must_use = "stores are only safe while the guard lives"]
    pub fn enter(&self) -> EnteredRegion<'_> {
        EnteredRegion(self.region.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// As [`Region::commit`], for everything that was stored, by any thread, in stretches that
    /// ended before the call. Calls that come in while another one is being carried out share one
    /// sync.
    ///
    /// In the mode `atomic` it publishes what all threads have stored, at every level that is
    /// offered, while no thread is between [`SharedRegion::enter`] and the end of its guard: so
    /// each stretch counts whole.
    ///
    /// # Errors
    /// As [`Region::commit`], inside a `SharedCommit`: the same for each call of a batch.
    pub fn commit(&self, durability: Durability) -> Result<CommitReport> {
        match durability {
            Durability::Process => self.commit_to_process(),
            level if self.enter().commits_to_memory(level) => {
                self.region.write().unwrap_or_else(PoisonError::into_inner).commit(level)
            }
            _ => self.commit_to_store().map_err(|cause| RegionError::SharedCommit { cause }),
        }
    }

    fn commit_to_process(&self) -> Result<CommitReport> {
        let inside = self.enter();
        if inside.consistency() == Consistency::Direct {
            return inside.commit_to_process();
        }
        drop(inside);
        self.region.write().unwrap_or_else(PoisonError::into_inner).commit(Durability::Process)
    }

    fn commit_to_store(&self) -> Outcome {
        let mut queue = self.queue();
        let batch = queue.open.clone();
        while queue.busy && batch.get().is_none() {
            queue = self.turn.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(outcome) = batch.get() {
            return outcome.clone();
        }
        queue.busy = true;
        drop(queue);
        let _turn = Turn(self);
        let prepared = {
            let mut region = self.region.write().unwrap_or_else(PoisonError::into_inner);
            // No call joins any more; one that comes from here on may have stored after the copy.
            self.queue().open = Batch::default();
            region.publish().and_then(|_| region.prepare_commit(Writers::Many))
        };
        let outcome = prepared.and_then(|prepared| self.finish(prepared)).map_err(Arc::new);
        batch.get_or_init(|| outcome).clone()
    }

    /// Writes and syncs, beside the writers.
    fn finish(&self, prepared: Prepared) -> Result<CommitReport> {
        let record = match prepared {
            Prepared::Done(report) => return Ok(report),
            Prepared::Record(record) => record,
        };
        match JournalSlot::lock(&self.journal).append(self.names.storage(), &record) {
            Ok(()) => Ok(record.report()),
            Err(source) => {
                let needed_bytes = record.bytes().len() as u64;
                Err(append_error(
                    self.names.storage(),
                    self.names.places().store(),
                    &self.name,
                    needed_bytes,
                    source,
                ))
            }
        }
    }

    /// Has the region for itself: no thread is inside and no commit under way. For growth, for
    /// example.
    pub fn exclusive<R>(&self, operation: impl FnOnce(&mut Region) -> R) -> R {
        let mut queue = self.queue();
        while queue.busy {
            queue = self.turn.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        queue.busy = true;
        drop(queue);
        let _turn = Turn(self);
        operation(&mut self.region.write().unwrap_or_else(PoisonError::into_inner))
    }

    /// The region, for one owner again.
    #[must_use]
    pub fn into_inner(self) -> Region {
        self.region.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SharedRegion {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SharedRegion").field("name", &self.name).finish_non_exhaustive()
    }
}
