//! Between emergencies: what lies in memory only is brought to the store, so that a machine that
//! goes without a word takes little with it.
//!
//! A heap that no process has is checkpointed; one that a process has is copied at a moment when no
//! process stores to it, and if there is none for two loss windows, its writers are stopped for the
//! copy (unless a person watches them at a terminal). Databases: see `databases.rs`.
//!
//! Invariants:
//! - Over a long time no more is written than the configured rate; a copy that would is put off,
//!   and that is counted.
//! - A heap that did not change costs reading it, and writes nothing.

use std::time::{Duration, Instant};

use holdfast_region::{RegionError, RegionState, RegionSummary, Rescue};

use crate::freeze::{Frozen, Held, keep_note_ready};
use holdfast_keeper_client::TendReport;

use crate::keeper::{Keeper, KnownHeap};
use crate::procfs::{FileId, stat};
use crate::served::LoanOutcome;

/// Loss windows after which a heap that is never quiet has its writers stopped.
pub(crate) const WINDOWS_UNTIL_STOPPED: u32 = 2;

/// However long the loss window is, heaps that no process has and a pool that is too full are
/// looked at this often.
const ROUND_MAX: Duration = Duration::from_secs(24 * 60 * 60);

impl Keeper {
    /// One round over all heaps and databases.
    pub fn tend(&mut self) -> TendReport {
        let mut report = TendReport::default();
        // What is there may be another home's by now.
        if let Err(error) = self.places().check_pool() {
            report.failed.push(error.to_string());
            self.counters.tended(&report);
            return report;
        }
        // The pool may have been full, or emptied, since the last round.
        let _ = keep_note_ready(self.places().pool());
        match self.names.list() {
            Ok(heaps) => {
                self.seen.retain(|name, _| {
                    heaps.iter().any(|heap| heap.name == *name && heap.state == RegionState::Held)
                });
                for heap in &heaps {
                    match heap.state {
                        RegionState::Crashed => self.tend_unheld(heap, &mut report),
                        RegionState::Held => self.tend_held(heap, &mut report),
                        _ => {}
                    }
                }
            }
            Err(error) => report.failed.push(error.to_string()),
        }
        self.tend_databases(&mut report);
        self.counters.tended(&report);
        report
    }

    fn tend_unheld(&mut self, heap: &RegionSummary, report: &mut TendReport) {
        let name = heap.name.to_string();
        if !self.allowance.allows(image_bytes(heap), Instant::now()) {
            report.put_off.push(name);
            return;
        }
        match self.names.checkpoint_unheld(&heap.name) {
            Ok(checkpoint) => {
                self.allowance.spend(checkpoint.bytes);
                report.bytes += checkpoint.bytes;
                report.checkpointed.push(name);
            }
            // A process opened it, or removed it.
            Err(RegionError::Held { .. } | RegionError::NotFound { .. }) => {}
            Err(error) => report.failed.push(format!("{name}: {error}")),
        }
    }

    fn tend_held(&mut self, heap: &RegionSummary, report: &mut TendReport) {
        let (name, now) = (heap.name.to_string(), Instant::now());
        let seen = *self.seen.entry(heap.name.clone()).or_insert(KnownHeap { safe: now });
        let unsafe_for = now.saturating_duration_since(seen.safe);
        // What a borrower stored since shows only when it is brought.
        if !self.is_lent(&heap.name) && self.names.is_rescued(&heap.name).unwrap_or(false) {
            self.seen.insert(heap.name.clone(), KnownHeap { safe: now });
            return;
        }
        if !self.allowance.allows(image_bytes(heap), now) {
            report.put_off.push(name);
            return;
        }
        let is_lent = self.is_lent(&heap.name);
        let mut is_behind = false;
        if is_lent {
            let may_stop =
                unsafe_for >= self.config.loss_window.saturating_mul(WINDOWS_UNTIL_STOPPED);
            match self.bring_lent(&heap.name, may_stop) {
                LoanOutcome::Whole => {}
                // What was published before is whole, and copied all the same.
                LoanOutcome::Busy | LoanOutcome::Late => {
                    report.busy.push(name.clone());
                    is_behind = true;
                }
                LoanOutcome::Failed(why) => {
                    report.failed.push(format!("{name}: {why}"));
                    is_behind = true;
                }
            }
        }
        let mut copied = self.names.rescue_if_quiet(&heap.name);
        if !is_lent
            && matches!(copied, Ok(Rescue::Busy))
            && unsafe_for >= self.config.loss_window.saturating_mul(WINDOWS_UNTIL_STOPPED)
        {
            copied = self.copy_stopped(heap);
        }
        match copied {
            Ok(Rescue::Busy) => {
                if !is_behind {
                    report.busy.push(name);
                }
                return;
            }
            Ok(Rescue::Written { bytes }) => {
                self.allowance.spend(bytes);
                report.bytes += bytes;
                report.copied.push(name);
            }
            Ok(_) => {}
            Err(RegionError::NotFound { .. } | RegionError::Held { .. }) => return,
            Err(error) => {
                report.failed.push(format!("{name}: {error}"));
                return;
            }
        }
        if !is_behind {
            self.seen.insert(heap.name.clone(), KnownHeap { safe: now });
        }
    }

    /// Copies a heap that is never quiet, if its writers may be stopped.
    fn copy_stopped(&self, heap: &RegionSummary) -> holdfast_region::Result<Rescue> {
        let (Some(holder), Some(image)) = (heap.holder, &heap.image) else {
            return Ok(Rescue::Busy);
        };
        let held = [Held {
            name: heap.name.to_string(),
            holders: vec![holder],
            image: FileId::of(&image.path),
        }];
        // A shell would take the terminal back from a program that is stopped.
        let is_watched = |pid| stat(pid).is_none_or(|stat| stat.on_terminal);
        if !self.config.stop_for_copies || Frozen::any_writer(&held, is_watched) {
            return Ok(Rescue::Busy);
        }
        let Ok(frozen) =
            Frozen::stop(self.names.places().pool(), &held, self.config.guard.as_ref())
        else {
            return Ok(Rescue::Busy);
        };
        if !frozen.is_quiet(heap.name.as_str()) {
            return Ok(Rescue::Busy);
        }
        self.names
            .rescue_if_changed(&heap.name, Some(holder), || frozen.is_quiet(heap.name.as_str()))
    }

    /// How long until the next round.
    pub(crate) fn round(&self) -> Duration {
        (self.config.loss_window / 2).min(ROUND_MAX)
    }
}

/// What saving a heap writes, at most.
pub(crate) fn image_bytes(heap: &RegionSummary) -> u64 {
    heap.image.as_ref().map_or(0, |image| image.allocated_bytes)
}
