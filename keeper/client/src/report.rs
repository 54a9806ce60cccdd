//! The reports of a keeper about itself and its work. Data only, as it travels.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why everything is saved now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Cause {
    /// A person, or a program, wants it.
    Asked,
    /// The keeper is told to end (SIGTERM): shutdown, or a person.
    Terminated,
    /// The power fails (SIGPWR).
    PowerSignal,
    /// The power button is held.
    PowerButton,
    /// The battery is nearly empty, or a UPS runs on its battery.
    LowBattery,
}

/// What was known of the time, before anything was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// How long the machine runs, as far as is known.
    pub milliseconds: u64,
    /// What the disk takes, in bytes a second.
    pub bytes_per_s: u64,
    /// What a heap takes besides its bytes, in microseconds.
    #[serde(default)]
    pub per_heap_us: u64,
    /// What can be written in that time.
    pub bytes: u64,
}

impl Budget {
    /// How long copies take, by what is known of the disk.
    #[must_use]
    pub fn time_for(&self, heaps: u32, bytes: u64) -> Duration {
        let for_bytes = u128::from(bytes) * 1_000_000 / u128::from(self.bytes_per_s.max(1));
        let for_bytes = Duration::from_micros(u64::try_from(for_bytes).unwrap_or(u64::MAX));
        Duration::from_micros(self.per_heap_us).saturating_mul(heaps).saturating_add(for_bytes)
    }
}

/// What a keeper saves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum SavedKind {
    /// A heap.
    #[default]
    Heap,
    /// An SQLite database of the VFS `holdfast`.
    Database,
}

/// A heap or a database that is safe now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Saved {
    /// Which of the two.
    #[serde(default)]
    pub kind: SavedKind,
    /// Its name; the path of a database.
    pub name: String,
    /// Bytes of data that were written for it.
    pub bytes: u64,
    /// When it was safe, in milliseconds since the flush began.
    pub done_ms: u64,
}

/// Why a heap or a database was not saved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "text")]
#[non_exhaustive]
pub enum UnsavedReason {
    /// It would have taken longer than there was time.
    NoTime,
    /// The store is full.
    NoRoom,
    /// Its writers did not stand still.
    Running,
    /// Something else, in words.
    Failed(String),
}

/// A heap or a database that is not safe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unsaved {
    /// Which of the two.
    #[serde(default)]
    pub kind: SavedKind,
    /// Its name; the path of a database, or of its image where that is not known.
    pub name: String,
    /// What it would have taken, at most.
    pub bytes: u64,
    /// The reason.
    pub why: UnsavedReason,
}

/// What a flush did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FlushReport {
    /// Why it was done.
    pub cause: Cause,
    /// What was planned with.
    pub budget: Budget,
    /// What is safe now and was not before, in the order in which it was written.
    pub saved: Vec<Saved>,
    /// What is not, in the order in which it would have been. What is lent and saved as of an
    /// earlier publication is in both.
    pub left: Vec<Unsaved>,
    /// Processes that stood still for it.
    pub stopped: Vec<u32>,
    /// How long it took.
    pub milliseconds: u64,
}

impl FlushReport {
    /// Bytes of data that were written.
    #[must_use]
    pub fn saved_bytes(&self) -> u64 {
        self.saved.iter().fold(0, |sum, saved| sum.saturating_add(saved.bytes))
    }

    /// How many of a kind were saved.
    #[must_use]
    pub fn saved_of(&self, kind: SavedKind) -> usize {
        self.saved.iter().filter(|saved| saved.kind == kind).count()
    }
}

/// What a round did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TendReport {
    /// Heaps that no process has, checkpointed.
    pub checkpointed: Vec<String>,
    /// Open heaps, and databases (by their paths), that were copied.
    pub copied: Vec<String>,
    /// Open heaps and databases that are busy, and are tried again.
    pub busy: Vec<String>,
    /// Heaps and databases for which the write rate leaves no room now.
    pub put_off: Vec<String>,
    /// What went wrong, in words.
    pub failed: Vec<String>,
    /// Bytes of data written.
    pub bytes: u64,
}

/// What making room did.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvictReport {
    /// What the pool had, in bytes.
    pub before_bytes: u64,
    /// What it has now.
    pub after_bytes: u64,
    /// What it should have, at most.
    pub limit_bytes: u64,
    /// Heaps, and databases by their paths, whose images went, in order.
    pub evicted: Vec<String>,
    /// What went wrong, in words.
    pub failed: Vec<String>,
    /// How long it took.
    pub milliseconds: u64,
}

/// Everything that a keeper did since it was started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
pub struct HeapStatus {
    /// Its name.
    pub name: String,
    /// `held`, `clean`, `crashed`, `cold` or `damaged`.
    pub state: String,
    /// What its image takes, in bytes.
    pub image_bytes: u64,
    /// Seconds since it was saved last.
    pub unsaved_s: u64,
    /// The process that writes it now.
    pub holder: Option<u32>,
    /// Whether there is a rescue copy.
    pub rescued: bool,
}

/// A database, as a keeper sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The processes that have it open, as far as known.
    pub holders: Vec<u32>,
    /// Whether there is a copy of it in the store.
    pub saved: bool,
}

/// What there is to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// A database is named by a path, and no heap is.
fn is_path(name: &str) -> bool {
    name.starts_with('/')
}

impl Counters {
    /// Counts a flush.
    pub fn flushed(&mut self, report: &FlushReport) {
        self.flushes += 1;
        self.flushed_heaps += report.saved_of(SavedKind::Heap) as u64;
        self.flushed_databases += report.saved_of(SavedKind::Database) as u64;
        self.flushed_bytes += report.saved_bytes();
        let left = |kind| report.left.iter().filter(|left| left.kind == kind).count() as u64;
        self.left_heaps += left(SavedKind::Heap);
        self.left_databases += left(SavedKind::Database);
        self.last_flush_ms = report.milliseconds;
    }

    /// Counts a round in the background.
    pub fn tended(&mut self, report: &TendReport) {
        self.checkpointed_heaps += report.checkpointed.len() as u64;
        let databases = report.copied.iter().filter(|name| is_path(name)).count();
        self.copied_databases += databases as u64;
        self.copied_heaps += (report.copied.len() - databases) as u64;
        self.background_bytes += report.bytes;
        self.put_off += report.put_off.len() as u64;
        self.failures += report.failed.len() as u64;
    }

    /// Counts an eviction.
    pub fn evicted(&mut self, report: &EvictReport) {
        let databases = report.evicted.iter().filter(|name| is_path(name)).count();
        self.evicted_databases += databases as u64;
        self.evicted_heaps += (report.evicted.len() - databases) as u64;
        self.evicted_bytes += report.before_bytes.saturating_sub(report.after_bytes);
        self.failures += report.failed.len() as u64;
    }
}

/// A user, as the keeper sees it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserStatus {
    /// The user's number.
    pub user: u32,
    /// Regions.
    pub regions: u64,
    /// The limits of all of them, which count against the quota.
    pub bytes: u64,
    /// What is allocated of them.
    pub backed_bytes: u64,
    /// Regions that a program has now.
    pub lent: u64,
    /// Open connections.
    pub connections: u64,
    /// Requests answered.
    pub requests: u64,
    /// Requests refused because a quota, or what all may have, is used up.
    pub quota_refusals: u64,
    /// All requests and connections refused.
    pub refusals: u64,
}

/// What a keeper that serves says of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServedStatus {
    /// Where users connect.
    pub socket: String,
    /// The limits of all regions.
    pub bytes: u64,
    /// What they may be.
    pub total_bytes: u64,
    /// Users that have or had something.
    pub users: Vec<UserStatus>,
}
