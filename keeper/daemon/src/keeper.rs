//! The keeper of a home: what it knows, and the lock that makes it the only one. The modules inside
//! are what it does, and nothing else sees its fields: `run` serves requests and triggers, `flush`
//! and `databases` save everything in an emergency, `background` between emergencies, `eviction`
//! makes room in the pool, `lent` brings what borrowers stored, `status` tells.

mod background;
mod databases;
mod eviction;
mod flush;
mod lent;
mod run;
mod status;

pub use status::status_of_files;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use holdfast_region::{NameSpace, Places, RegionName, RegionSummary};
use holdfast_sqlite::Databases;
use holdfast_sys::lock::{FileLock, LockMode, LockOutcome};

use crate::allowance::Allowance;
use crate::bandwidth::Bandwidth;
use crate::config::Config;
use crate::error::{DaemonError, Result};
use crate::freeze::{keep_note_ready, somebody_is_stopped, thaw_left_over};
use crate::served::Serving;
use holdfast_keeper_client::Counters;

/// How long another keeper may take to go.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long a killed keeper, of whom the guard knows already, may take to give its lock back.
const DEATH_MAX: Duration = Duration::from_secs(2);
/// How often the guard looks in that time.
const DEATH_PAUSE: Duration = Duration::from_millis(1);

/// What is known of an open heap.
#[derive(Debug, Clone, Copy)]
struct KnownHeap {
    /// When it was last known to be safe, or was first seen.
    safe: Instant,
}

/// See the crate.
#[derive(Debug)]
pub struct Keeper {
    names: NameSpace,
    databases: Databases,
    config: Config,
    bandwidth: Bandwidth,
    counters: Counters,
    allowance: Allowance,
    /// Since when each open heap is known not to be in the store as it is.
    seen: BTreeMap<RegionName, KnownHeap>,
    /// The same of databases, by their images.
    seen_databases: BTreeMap<PathBuf, KnownHeap>,
    started: Instant,
    /// Set while it serves other users.
    serving: Option<Serving>,
    _lock: FileLock,
}

impl Keeper {
    /// Becomes the keeper of a home. Processes that a killed keeper had stopped go on.
    ///
    /// # Errors
    /// `Running` when the home has one; `Io`.
    pub fn new(places: Places, config: Config) -> Result<Keeper> {
        let path = lock_path(places.home());
        let outcome = FileLock::acquire(&path, LockMode::Exclusive, PATIENCE);
        let lock = match outcome.map_err(DaemonError::io("lock", &path))? {
            LockOutcome::Acquired(lock) => lock,
            LockOutcome::Held(holder) => {
                return Err(DaemonError::Running { home: places.home().to_owned(), holder });
            }
        };
        thaw_left_over(places.pool())
            .map_err(DaemonError::io("let go on who was stopped by the note in", places.pool()))?;
        // A pool that is full already may have room at the next round.
        let _ = keep_note_ready(places.pool());
        let bandwidth = Bandwidth::of(places.home(), places.store(), config.bandwidth_bytes_per_s);
        let allowance = Allowance::new(config.write_bytes_per_s, config.write_burst_bytes);
        Ok(Keeper {
            databases: Databases::of(&places),
            names: NameSpace::new(places).for_moments(),
            bandwidth,
            counters: Counters::default(),
            allowance,
            seen: BTreeMap::new(),
            seen_databases: BTreeMap::new(),
            started: Instant::now(),
            serving: None,
            config,
            _lock: lock,
        })
    }

    /// Where its heaps are.
    #[must_use]
    pub fn places(&self) -> &Places {
        self.names.places()
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }
}

/// What a guard does when its keeper is gone: lets the processes go on that it left stopped.
/// Returns how many these were; none when a later keeper has the home, which did so itself when it
/// began.
///
/// # Errors
/// When the lock of the home cannot be taken, or the note in the pool not be read or removed.
pub fn thaw_after_killed_keeper(places: &Places) -> io::Result<usize> {
    let started = Instant::now();
    // A keeper that ended its flush has removed the note, and need not wait for its guard.
    while somebody_is_stopped(places.pool()) {
        let outcome = FileLock::acquire_briefly(&lock_path(places.home()), Duration::ZERO)?;
        if let LockOutcome::Acquired(_lock) = outcome {
            return thaw_left_over(places.pool());
        }
        if started.elapsed() > DEATH_MAX {
            break;
        }
        std::thread::sleep(DEATH_PAUSE);
    }
    Ok(0)
}

pub(crate) fn lock_path(home: &Path) -> PathBuf {
    home.join("keeper.lock")
}

/// Seconds since a heap was saved last, as far as its files tell; since it was made, if it never
/// was.
pub(crate) fn unsaved_s(heap: &RegionSummary) -> u64 {
    let saved = [&heap.base, &heap.journal, &heap.rescue]
        .into_iter()
        .flatten()
        .map(|file| file.modified_unix_s);
    let saved = saved.max().unwrap_or(heap.created_unix_s);
    seconds_since(saved)
}

/// A clock that was set back makes it new; that decides the order only.
pub(crate) fn seconds_since(unix_s: u64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    now.saturating_sub(unix_s)
}
