//! A pool that is too full: images of heaps that no process has are checkpointed, read back, and
//! removed, the ones longest unused first. Opening such a heap brings it back from the store.
//! Databases that no process has open are brought to their files; those that a process has open
//! stay: flushing one frees no memory.
//!
//! Invariants: what a process has stays; what was not read back from the store stays.

use std::time::Instant;

use holdfast_region::{Medium, RegionError, RegionState, RegionSummary};
use holdfast_sqlite::{Database, SqliteError};
use holdfast_sys::file::space;

use holdfast_keeper_client::EvictReport;

use crate::keeper::Keeper;
use crate::keeper::background::image_bytes;

impl Keeper {
    /// Brings the pool below its limit, as far as heaps and databases that no process has allow it.
    pub fn evict(&mut self) -> EvictReport {
        match self.config.pool_limit.bytes() {
            Some(limit_bytes) => self.evict_to(limit_bytes),
            None => EvictReport::default(),
        }
    }

    /// As [`Keeper::evict`], below another limit: the kernel asks for memory, say.
    pub fn evict_to(&mut self, limit_bytes: u64) -> EvictReport {
        self.evict_until(limit_bytes, |report| report.after_bytes <= limit_bytes)
    }

    /// For an allocation that found no room: evicts until so many bytes are free in the pool's file
    /// system, and what will be in the pool is below its limit.
    pub fn make_room(&mut self, bytes: u64) -> EvictReport {
        let pool = self.places().pool().to_owned();
        let limit_bytes = self.config.pool_limit.bytes().unwrap_or(u64::MAX);
        self.evict_until(limit_bytes, |report| {
            report.after_bytes.saturating_add(bytes) <= limit_bytes
                && space(&pool).is_ok_and(|space| space.available_bytes >= bytes)
        })
    }

    fn evict_until(
        &mut self,
        limit_bytes: u64,
        is_enough: impl Fn(&EvictReport) -> bool,
    ) -> EvictReport {
        let started = Instant::now();
        let mut report = EvictReport { limit_bytes, ..EvictReport::default() };
        if let Err(error) = self.places().check_pool() {
            report.failed.push(error.to_string());
            return report;
        }
        let heaps = match self.names.list() {
            Ok(heaps) => heaps,
            Err(error) => {
                report.failed.push(error.to_string());
                return report;
            }
        };
        let databases = self.databases.list().unwrap_or_else(|error| {
            report.failed.push(error.to_string());
            Vec::new()
        });
        report.before_bytes = pool_bytes(&heaps, &databases);
        report.after_bytes = report.before_bytes;
        let heaps = heaps.iter().filter(|heap| is_evictable(heap)).map(Evictable::Heap);
        let databases = databases.iter().filter(|found| !found.is_open && found.damaged.is_none());
        let mut unheld: Vec<Evictable<'_>> =
            heaps.chain(databases.map(Evictable::Database)).collect();
        unheld.sort_by_key(|found| found.last_used_s());
        for found in unheld {
            if is_enough(&report) {
                break;
            }
            let evicted = match found {
                Evictable::Heap(heap) => self.evict_heap(heap),
                Evictable::Database(database) => self.evict_database(database),
            };
            match evicted {
                Ok(Some(freed_bytes)) => {
                    report.after_bytes = report.after_bytes.saturating_sub(freed_bytes);
                    report.evicted.push(found.name());
                }
                // A process uses it: it is not the one to go.
                Ok(None) => {}
                Err(why) => report.failed.push(format!("{}: {why}", found.name())),
            }
        }
        report.milliseconds = crate::keeper::flush::milliseconds(started.elapsed());
        self.counters.evicted(&report);
        report
    }
}

/// What may be evicted.
#[derive(Clone, Copy)]
enum Evictable<'a> {
    Heap(&'a RegionSummary),
    Database(&'a Database),
}

impl Evictable<'_> {
    fn name(self) -> String {
        match self {
            Evictable::Heap(heap) => heap.name.to_string(),
            Evictable::Database(database) => database.name(),
        }
    }

    /// When a heap was opened or closed last (both write the image's header); or a database opened,
    /// or its image grew.
    fn last_used_s(self) -> u64 {
        match self {
            Evictable::Heap(heap) => heap.image.as_ref().map_or(0, |image| image.modified_unix_s),
            Evictable::Database(database) => database.used_unix_s,
        }
    }
}

impl Keeper {
    /// Bytes freed; `None` if a process uses it. So for databases.
    fn evict_heap(&self, heap: &RegionSummary) -> Result<Option<u64>, String> {
        match self.names.evict(&heap.name) {
            Ok(evicted) => Ok(Some(evicted.freed_bytes)),
            Err(RegionError::Held { .. } | RegionError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn evict_database(&self, database: &Database) -> Result<Option<u64>, String> {
        match self.databases.evict(database) {
            Ok(freed_bytes) => Ok(Some(freed_bytes)),
            Err(SqliteError::Busy { .. }) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// What all images in the pool take.
pub(crate) fn pool_bytes(heaps: &[RegionSummary], databases: &[Database]) -> u64 {
    let heaps = heaps.iter().filter(|heap| heap.medium == Medium::Memory).map(image_bytes);
    heaps.chain(databases.iter().map(|database| database.image_bytes)).sum()
}

fn is_evictable(heap: &RegionSummary) -> bool {
    let unheld = matches!(heap.state, RegionState::Clean | RegionState::Crashed);
    unheld && heap.medium == Medium::Memory && heap.image.is_some() && heap.damaged.is_none()
}
