//! What a keeper says about itself and its heaps.

use holdfast_region::{NameSpace, RegionState};
use holdfast_sqlite::{Database, Databases};
use serde::{Deserialize, Serialize};

use crate::background::TendReport;
use crate::error::Result;
use crate::eviction::{EvictReport, pool_bytes};
use crate::flush::{FlushReport, Kind};
use crate::keeper::{Keeper, seconds_since, unsaved_s};
use crate::plan::bytes_in;
use crate::served::{ServedStatus, Serving};

/// Everything that a keeper did since it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Counters {
    /// Emergencies, and flushes that were asked for.
    pub flushes: u64,
    /// Heaps saved in them.
    pub flushed_heaps: u64,
    /// Databases saved in them.
    #[serde(default)]
    pub flushed_databases: u64,
    /// Bytes of data written in them.
    pub flushed_bytes: u64,
    /// Heaps that were not saved in them.
    pub left_heaps: u64,
    /// Databases that were not saved in them.
    #[serde(default)]
    pub left_databases: u64,
    /// How long the last one took.
    pub last_flush_ms: u64,
    /// Heaps checkpointed in the background.
    pub checkpointed_heaps: u64,
    /// Copies of open heaps made in the background.
    pub copied_heaps: u64,
    /// Copies of databases made in the background.
    #[serde(default)]
    pub copied_databases: u64,
    /// Bytes of data written in the background.
    pub background_bytes: u64,
    /// Times that a heap or a database had to wait for the write rate.
    pub put_off: u64,
    /// Images of heaps taken out of the pool.
    pub evicted_heaps: u64,
    /// Images of databases taken out of the pool.
    #[serde(default)]
    pub evicted_databases: u64,
    /// Bytes that this freed.
    pub evicted_bytes: u64,
    /// Things that went wrong with single heaps and databases.
    pub failures: u64,
    /// Requests answered.
    pub requests: u64,
    /// Requests refused, broken off or not understood.
    pub refused_requests: u64,
}

/// A heap, as a keeper sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HeapStatus {
    /// Its name.
    pub name: String,
    /// `held`, `clean`, `crashed`, `cold` or `damaged`.
    pub state: String,
    /// What its image takes, in bytes.
    pub image_bytes: u64,
    /// Seconds since it was saved last.
    pub unsaved_s: u64,
    /// Who writes it now.
    pub holder: Option<u32>,
    /// Whether there is a rescue copy.
    pub rescued: bool,
}

/// A database, as a keeper sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct DatabaseStatus {
    /// Its path; that of its image, where it is not known.
    pub path: String,
    /// `open`, `left` by a crash, or `damaged`.
    pub state: String,
    /// What its image takes, in bytes.
    pub image_bytes: u64,
    /// What neither its redo log nor a copy has, in bytes, about.
    pub unsaved_bytes: u64,
    /// Seconds since its log or a copy were written last.
    pub unsaved_s: u64,
    /// Who has it open, as far as that can be told.
    pub holders: Vec<u32>,
    /// Whether there is a copy of it in the store.
    pub saved: bool,
}

impl DatabaseStatus {
    fn of(database: &Database) -> DatabaseStatus {
        let state = match database {
            Database { damaged: Some(_), .. } => "damaged",
            Database { is_open: true, .. } => "open",
            _ => "left",
        };
        DatabaseStatus {
            path: database.name(),
            state: state.to_owned(),
            image_bytes: database.image_bytes,
            unsaved_bytes: database.unsaved_bytes,
            unsaved_s: seconds_since(database.saved_unix_s),
            holders: database.holders.clone(),
            saved: database.has_copy,
        }
    }
}

/// What there is to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Status {
    /// The keeper; `None` when this was read from files.
    pub keeper: Option<u32>,
    /// How long it runs, in seconds.
    pub up_s: u64,
    /// What images take in the pool.
    pub pool_bytes: u64,
    /// What they may.
    pub pool_limit_bytes: Option<u64>,
    /// What that limit follows from, in words; nothing where it was given as a number.
    #[serde(default)]
    pub pool_limit_reason: Option<String>,
    /// Bytes a second of the store's disk.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// What an emergency can save.
    pub emergency_bytes: Option<u64>,
    /// Whether logind waits for the keeper at a shutdown: `held`, or why not; nothing before that is known.
    pub shutdown_lock: Option<String>,
    /// All heaps.
    pub heaps: Vec<HeapStatus>,
    /// All databases that have an image in the pool.
    #[serde(default)]
    pub databases: Vec<DatabaseStatus>,
    /// What was done.
    pub counters: Counters,
    /// What other users have, if it serves any.
    #[serde(default)]
    pub served: Option<ServedStatus>,
}

impl Keeper {
    /// What there is to say now.
    ///
    /// # Errors
    /// When the heaps cannot be listed.
    pub fn status(&self) -> Result<Status> {
        let bytes_per_s = self.bandwidth.bytes_per_s();
        Ok(Status {
            keeper: Some(std::process::id()),
            up_s: self.started.elapsed().as_secs(),
            pool_limit_bytes: self.config.pool_limit.bytes(),
            pool_limit_reason: self.config.pool_limit.reason(),
            bandwidth_bytes_per_s: Some(bytes_per_s),
            emergency_bytes: Some(bytes_in(bytes_per_s, self.config.emergency)),
            shutdown_lock: self.shutdown_lock.clone(),
            counters: self.counters.clone(),
            served: self.serving.as_ref().map(Serving::status).transpose()?,
            ..Status::of(&self.names)?
        })
    }
}

impl Status {
    /// What files tell without a keeper.
    ///
    /// # Errors
    /// When the heaps cannot be listed.
    pub fn of(names: &NameSpace) -> Result<Status> {
        let heaps = names.list()?;
        let databases = Databases::of(names.places()).list()?;
        let state = |state| match state {
            RegionState::Held => "held",
            RegionState::Clean => "clean",
            RegionState::Crashed => "crashed",
            RegionState::Cold => "cold",
            _ => "damaged",
        };
        Ok(Status {
            keeper: None,
            up_s: 0,
            pool_bytes: pool_bytes(&heaps, &databases),
            pool_limit_bytes: None,
            pool_limit_reason: None,
            bandwidth_bytes_per_s: None,
            emergency_bytes: None,
            shutdown_lock: None,
            heaps: heaps
                .iter()
                .map(|heap| HeapStatus {
                    name: heap.name.to_string(),
                    state: state(heap.state).to_owned(),
                    image_bytes: crate::background::image_bytes(heap),
                    unsaved_s: unsaved_s(heap),
                    holder: heap.holder,
                    rescued: heap.rescue.is_some(),
                })
                .collect(),
            databases: databases.iter().map(DatabaseStatus::of).collect(),
            counters: Counters::default(),
            served: None,
        })
    }
}

/// A database is named by a path, and no heap is.
fn is_path(name: &str) -> bool {
    name.starts_with('/')
}

impl Counters {
    pub(crate) fn flushed(&mut self, report: &FlushReport) {
        self.flushes += 1;
        self.flushed_heaps += report.saved_of(Kind::Heap) as u64;
        self.flushed_databases += report.saved_of(Kind::Database) as u64;
        self.flushed_bytes += report.saved_bytes();
        let left = |kind| report.left.iter().filter(|left| left.kind == kind).count() as u64;
        self.left_heaps += left(Kind::Heap);
        self.left_databases += left(Kind::Database);
        self.last_flush_ms = report.milliseconds;
    }

    pub(crate) fn tended(&mut self, report: &TendReport) {
        self.checkpointed_heaps += report.checkpointed.len() as u64;
        let databases = report.copied.iter().filter(|name| is_path(name)).count();
        self.copied_databases += databases as u64;
        self.copied_heaps += (report.copied.len() - databases) as u64;
        self.background_bytes += report.bytes;
        self.put_off += report.put_off.len() as u64;
        self.failures += report.failed.len() as u64;
    }

    pub(crate) fn evicted(&mut self, report: &EvictReport) {
        let databases = report.evicted.iter().filter(|name| is_path(name)).count();
        self.evicted_databases += databases as u64;
        self.evicted_heaps += (report.evicted.len() - databases) as u64;
        self.evicted_bytes += report.before_bytes.saturating_sub(report.after_bytes);
        self.failures += report.failed.len() as u64;
    }
}
