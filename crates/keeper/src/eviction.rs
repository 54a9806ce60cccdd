//! A pool that is too full: images of heaps that nobody has are checkpointed, read back, and removed, the ones longest
//! unused first. Opening such a heap brings it back from the store.
//!
//! Invariants: a heap that somebody has stays; what was not read back from the store stays.

use std::time::Instant;

use holdfast_region::{Medium, RegionError, RegionState, RegionSummary};
use serde::{Deserialize, Serialize};

use crate::background::image_bytes;
use crate::keeper::Keeper;

/// What making room did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct EvictReport {
    /// What the pool had, in bytes.
    pub before_bytes: u64,
    /// What it has now.
    pub after_bytes: u64,
    /// What it should have, at most.
    pub limit_bytes: u64,
    /// Heaps whose images went, in order.
    pub evicted: Vec<String>,
    /// What went wrong, in words.
    pub failed: Vec<String>,
    /// How long it took.
    pub milliseconds: u64,
}

impl Keeper {
    /// Brings the pool below its limit, as far as heaps that nobody has allow it.
    pub fn evict(&mut self) -> EvictReport {
        match self.config.pool_limit.bytes() {
            Some(limit_bytes) => self.evict_to(limit_bytes),
            None => EvictReport::default(),
        }
    }

    /// As [`Keeper::evict`], below another limit: the kernel asks for memory, say.
    pub fn evict_to(&mut self, limit_bytes: u64) -> EvictReport {
        let started = Instant::now();
        let mut report = EvictReport { limit_bytes, ..EvictReport::default() };
        let heaps = match self.names.list() {
            Ok(heaps) => heaps,
            Err(error) => {
                report.failed.push(error.to_string());
                return report;
            }
        };
        report.before_bytes = pool_bytes(&heaps);
        report.after_bytes = report.before_bytes;
        let mut unheld: Vec<&RegionSummary> = heaps.iter().filter(|heap| is_evictable(heap)).collect();
        unheld.sort_by_key(|heap| last_used_s(heap));
        for heap in unheld {
            if report.after_bytes <= limit_bytes {
                break;
            }
            match self.names.evict(&heap.name) {
                Ok(evicted) => {
                    report.after_bytes = report.after_bytes.saturating_sub(evicted.freed_bytes);
                    report.evicted.push(heap.name.to_string());
                }
                // Somebody uses it: it is not the one to go.
                Err(RegionError::Held { .. } | RegionError::NotFound { .. }) => {}
                Err(error) => report.failed.push(format!("{}: {error}", heap.name)),
            }
        }
        report.milliseconds = crate::flush::milliseconds(started.elapsed());
        self.counters.evicted(&report);
        report
    }
}

/// What all images in the pool take.
pub(crate) fn pool_bytes(heaps: &[RegionSummary]) -> u64 {
    heaps.iter().filter(|heap| heap.medium == Medium::Memory).map(image_bytes).sum()
}

fn is_evictable(heap: &RegionSummary) -> bool {
    let unheld = matches!(heap.state, RegionState::Clean | RegionState::Crashed);
    unheld && heap.medium == Medium::Memory && heap.image.is_some() && heap.damaged.is_none()
}

/// When a heap was opened or closed last: both write the image's header.
fn last_used_s(heap: &RegionSummary) -> u64 {
    heap.image.as_ref().map_or(0, |image| image.modified_unix_s)
}
