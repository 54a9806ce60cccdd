//! The emergency: everything that the store lacks, of heaps and of databases, is written there,
//! most valuable first, within the time that is left.
//!
//! Invariants:
//! - A process that stores to a heap stands still from before the first heap is written until the
//!   last one is, so nothing that was stored before the flush is missing from it.
//! - A heap or a database that cannot be saved (no time, no room, damaged, its writer does not
//!   stand still) is reported, and costs no other one anything.
//! - What was saved before stays until something newer is whole.
//! - What is lent to other users is brought to its region first, and saved as every other heap.
//!   What could not be brought is reported, and the region is saved as it was published last.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use holdfast_region::{RegionError, RegionName, RegionState, RegionSummary, Replaced, Rescue};
use holdfast_sqlite::Database;

use holdfast_keeper_client::{
    Budget, Cause, FlushReport, Saved, SavedKind, Unsaved, UnsavedReason,
};

use crate::freeze::{Frozen, Held};
use crate::keeper::databases;
use crate::keeper::{Keeper, unsaved_s};
use crate::plan::{Candidate, Subject, bytes_in, order};
use crate::procfs::FileId;

/// Of the time that is left, this part in percent is planned with: syncs take some, too.
const PLANNED_PERCENT: u32 = 90;

/// Heaps of so many bytes together are waited for together. Fewer, and the disk is waited for more
/// often; more, and the most valuable one is safe later.
const BATCH_BYTES: u64 = 16 << 20;

impl Keeper {
    /// Saves everything now. Nothing is an error: what could not be saved is in the report, and the
    /// next flush tries it again.
    pub fn flush(&mut self, cause: Cause) -> FlushReport {
        let started = Instant::now();
        let (behind, stopped) = self.bring_all_lent(started);
        let brought = Instant::now();
        let time = self.config.emergency;
        let bytes_per_s = self.bandwidth.bytes_per_s();
        let bytes = bytes_in(bytes_per_s, time) / 100 * u64::from(PLANNED_PERCENT);
        let per_heap_us = u64::try_from(self.bandwidth.per_heap().as_micros()).unwrap_or(u64::MAX);
        let budget = Budget { milliseconds: milliseconds(time), bytes_per_s, per_heap_us, bytes };
        let mut report = FlushReport {
            cause,
            budget,
            saved: Vec::new(),
            left: Vec::new(),
            stopped: Vec::new(),
            milliseconds: 0,
        };
        let mut unknown = |kind, error: String| {
            report.left.push(Unsaved {
                kind,
                name: "*".to_owned(),
                bytes: 0,
                why: UnsavedReason::Failed(error),
            });
        };
        let heaps = self.names.list().unwrap_or_else(|error| {
            unknown(SavedKind::Heap, error.to_string());
            Vec::new()
        });
        let databases = self.databases.list().unwrap_or_else(|error| {
            unknown(SavedKind::Database, error.to_string());
            Vec::new()
        });
        self.flush_all((&heaps, databases), &behind, started, &mut report);
        report.stopped.extend(stopped);
        report.stopped.sort_unstable();
        report.stopped.dedup();
        report.milliseconds = milliseconds(started.elapsed());
        let heaps = u32::try_from(report.saved.len()).unwrap_or(u32::MAX);
        // The disk had nothing to do while it was brought.
        self.bandwidth.learn(heaps, report.saved_bytes(), brought.elapsed());
        self.counters.flushed(&report);
        report
    }

    fn flush_all(
        &mut self,
        (heaps, databases): (&[RegionSummary], Vec<Database>),
        behind: &BTreeMap<RegionName, UnsavedReason>,
        started: Instant,
        report: &mut FlushReport,
    ) {
        // What this keeper lends it does not store to meanwhile.
        let us = std::process::id();
        let lent = |held: &Held| held.holders.contains(&us);
        let mut held: Vec<Held> =
            heaps.iter().filter_map(held).filter(|held| !lent(held)).collect();
        held.extend(databases.iter().filter(|database| database.is_open).map(databases::held));
        let mut candidates: Vec<Candidate> = heaps.iter().filter_map(candidate).collect();
        candidates.extend(databases.into_iter().filter_map(databases::candidate));
        order(&mut candidates, &self.config.first);
        // Without it no heap that a process has can be saved, but all others.
        let stop = || Frozen::stop(self.names.places().pool(), &held, self.config.guard.as_ref());
        let stopped = (!held.is_empty()).then(stop);
        let frozen = stopped.as_ref().and_then(|stopped| stopped.as_ref().ok());
        let unstopped = stopped.as_ref().and_then(|stopped| stopped.as_ref().err());
        report.stopped.extend(frozen.map(Frozen::pids).unwrap_or_default());
        let is_quiet = |found: &Candidate| match &found.subject {
            Subject::Heap(name) => {
                found.holder.is_none_or(|holder| holder == us)
                    || frozen.is_some_and(|frozen| frozen.is_quiet(name.as_str()))
            }
            // Its copy tells by itself whether a process went on.
            Subject::Database(_) => true,
        };
        let mut batch: Vec<Candidate> = Vec::new();
        // Freed when everything is safe.
        let mut replaced = Replaced::default();
        for heap in candidates {
            let left = |why| left(&heap, why);
            let remaining = self.config.emergency.saturating_sub(started.elapsed());
            let planned = remaining / 100 * PLANNED_PERCENT;
            let heaps = u32::try_from(batch.len() + 1).unwrap_or(u32::MAX);
            if report.budget.time_for(heaps, bytes_of(&batch).saturating_add(heap.bytes)) > planned
            {
                // A smaller one further down may fit.
                report.left.push(left(UnsavedReason::NoTime));
                continue;
            }
            if let Subject::Heap(name) = &heap.subject
                && let Some(why) = behind.get(name)
            {
                // What was published before is whole, and saved all the same.
                report.left.push(left(why.clone()));
            }
            if !is_quiet(&heap) {
                let why = unstopped.map_or(UnsavedReason::Running, |error| {
                    UnsavedReason::Failed(format!("its programs could not be stopped: {error}"))
                });
                report.left.push(left(why));
                continue;
            }
            batch.push(heap);
            if bytes_of(&batch) >= BATCH_BYTES {
                self.save(&mut batch, &is_quiet, started, report, &mut replaced);
            }
        }
        self.save(&mut batch, &is_quiet, started, report, &mut replaced);
    }

    /// Saves what becomes safe together.
    fn save(
        &self,
        batch: &mut Vec<Candidate>,
        is_quiet: &dyn Fn(&Candidate) -> bool,
        started: Instant,
        report: &mut FlushReport,
        replaced: &mut Replaced,
    ) {
        let is_heap = |found: &Candidate| matches!(found.subject, Subject::Heap(_));
        let (mut heaps, databases) = std::mem::take(batch).into_iter().partition(is_heap);
        self.save_heaps(&mut heaps, is_quiet, started, report, replaced);
        self.save_databases(databases, started, report, replaced);
    }

    fn save_heaps(
        &self,
        batch: &mut Vec<Candidate>,
        is_quiet: &dyn Fn(&Candidate) -> bool,
        started: Instant,
        report: &mut FlushReport,
        replaced: &mut Replaced,
    ) {
        let name_of = |heap: &Candidate| match &heap.subject {
            Subject::Heap(name) => Some(name.clone()),
            Subject::Database(_) => None,
        };
        let names: Vec<(RegionName, Option<u32>)> =
            batch.iter().filter_map(|heap| Some((name_of(heap)?, heap.holder))).collect();
        let stood_still = |name: &RegionName| {
            batch.iter().any(|heap| name_of(heap).as_ref() == Some(name) && is_quiet(heap))
        };
        let regions = names.iter().map(|(name, holder)| (name, *holder));
        let rescued = self.names.rescue_each(regions, stood_still, replaced);
        let done_ms = milliseconds(started.elapsed());
        for (heap, rescued) in batch.drain(..).zip(rescued) {
            let name = heap.subject.name();
            let why = match rescued {
                Ok(Rescue::Written { bytes }) => {
                    report.saved.push(Saved { kind: SavedKind::Heap, name, bytes, done_ms });
                    continue;
                }
                // It went on while it was copied, or another process opened it.
                Ok(Rescue::Busy) | Err(RegionError::Held { .. }) => UnsavedReason::Running,
                // It was removed meanwhile, or the store has it.
                Ok(_) | Err(RegionError::NotFound { .. }) => continue,
                Err(RegionError::StoreFull { .. }) => UnsavedReason::NoRoom,
                Err(error) => UnsavedReason::Failed(error.to_string()),
            };
            if report.left.iter().all(|left| left.name != name) {
                report.left.push(left(&heap, why));
            }
        }
    }
}

pub(crate) fn left(found: &Candidate, why: UnsavedReason) -> Unsaved {
    let kind = match found.subject {
        Subject::Heap(_) => SavedKind::Heap,
        Subject::Database(_) => SavedKind::Database,
    };
    Unsaved { kind, name: found.subject.name(), bytes: found.bytes, why }
}

fn bytes_of(heaps: &[Candidate]) -> u64 {
    heaps.iter().map(|heap| heap.bytes).sum()
}

/// The user of a heap, and its place.
fn held(heap: &RegionSummary) -> Option<Held> {
    let (holder, image) = (heap.holder?, heap.image.as_ref()?);
    Some(Held {
        name: heap.name.to_string(),
        holders: vec![holder],
        image: FileId::of(&image.path),
    })
}

/// What a flush would have to do for a heap.
fn candidate(heap: &RegionSummary) -> Option<Candidate> {
    let lacks = matches!(heap.state, RegionState::Held | RegionState::Crashed);
    let image = heap.image.as_ref().filter(|_| lacks)?;
    Some(Candidate {
        subject: Subject::Heap(heap.name.clone()),
        bytes: image.allocated_bytes,
        unsaved_s: unsaved_s(heap),
        holder: heap.holder,
    })
}

pub(crate) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many small heaps take longer than one with as many bytes.
    #[test]
    fn many_small_heaps_outlast_one_large_one() {
        let budget =
            Budget { milliseconds: 4000, bytes_per_s: 10 << 20, per_heap_us: 20_000, bytes: 0 };
        assert_eq!(budget.time_for(1, 10 << 20), Duration::from_millis(1020));
        assert_eq!(budget.time_for(100, 10 << 20), Duration::from_secs(3));
        assert_eq!(budget.time_for(0, 0), Duration::ZERO);
        let hopeless = Budget { bytes_per_s: 0, ..budget };
        assert!(hopeless.time_for(u32::MAX, u64::MAX) > Duration::from_secs(1 << 40));
    }
}
