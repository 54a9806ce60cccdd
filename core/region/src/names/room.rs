//! Room in a pool that is full: images of heaps that no process has are brought to the store and
//! leave the pool, the one longest unused first, until what is to be allocated fits. (The paper on
//! qNVRAM swaps the memory of dead processes out when its allocator finds no room; so do we, and
//! for heaps that were closed as well.)
//!
//! Invariants:
//! - An image that a process has is never evicted, nor is one that cannot be written back: see
//!   `eviction.rs`.
//! - No lock on the name space is held meanwhile, and no lock of a region is waited for; so a
//!   process that holds locks of regions, and makes room, waits only for its turn, which every
//!   process gives back in bounded time.
//! - A keeper is asked before the turn is waited for: it may have to wait for the turn itself.
//! - The attempts are bounded by number and time, and an error tells what was tried.

#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use holdfast_sys::lock::{FileLock, LockMode, LockOutcome, is_held_briefly};

use crate::error::room::{ROOM_PATIENCE, RoomReport};
use crate::error::{RegionError, Result};
use crate::media::files::{lock_path, room_lock_path};
use crate::media::medium::Medium;
use crate::names::namespace::NameSpace;
use crate::names::places::Places;
use crate::names::summary::{RegionState, RegionSummary};

/// Attempts of one allocation, with evictions in between.
const ATTEMPTS_MAX: u32 = 8;
/// Pause between two looks at the turn, or at an image that a process has for a moment.
const PAUSE: Duration = Duration::from_millis(20);
/// How long all images that could go may be held for a moment.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);
/// What a new image takes besides its data: headers, a lock, what the file system needs.
pub(super) const MARGIN_BYTES: u64 = 256 << 10;

/// Makes room in a pool for so many bytes, as far as it can; `None` if it cannot be asked.
pub type RoomMaker = fn(&Places, u64) -> Option<RoomReport>;

pub(super) static KEEPER: OnceLock<RoomMaker> = OnceLock::new();
static DATABASES: OnceLock<RoomMaker> = OnceLock::new();

/// Says, once for this process, how its keeper is asked to make room. Not to be said by a keeper.
pub fn ask_keeper_for_room(keeper: RoomMaker) {
    let _ = KEEPER.set(keeper);
}

/// Says, once for this process, how images of databases are evicted: this crate knows nothing of
/// them.
pub fn evict_databases_for_room(databases: RoomMaker) {
    let _ = DATABASES.set(databases);
}

impl NameSpace {
    /// Makes an allocation in the pool, and makes room for it if it finds none. `attempt` must
    /// leave nothing behind when it fails, and hold no lock on the name space when it returns.
    ///
    /// # Errors
    /// Those of `attempt`; its last `NoRoom` tells what was tried.
    pub(crate) fn with_room<T>(&self, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
        let mut needed_bytes = match attempt() {
            Err(error) => match wanted(&error) {
                Some(bytes) => bytes,
                None => return Err(error),
            },
            done => return done,
        };
        let mut report = RoomReport::default();
        if let Some(made) =
            KEEPER.get().and_then(|ask| ask(self.places(), needed_bytes + MARGIN_BYTES))
        {
            report.add(made);
        }
        let turn = self.room_turn()?;
        report.missed_turn = turn.is_none();
        loop {
            report.attempts += 1;
            let error = match attempt() {
                Err(error) => error,
                done => return done,
            };
            match wanted(&error) {
                Some(bytes) => needed_bytes = bytes,
                None => return Err(error),
            }
            let is_last = report.missed_turn || report.attempts >= ATTEMPTS_MAX;
            let made = if is_last {
                RoomReport::default()
            } else {
                self.make_room(needed_bytes, cause(&error))?
            };
            // Other processes free some, too.
            let has_room = !is_last && self.has_room(needed_bytes + MARGIN_BYTES);
            let is_done = made.freed_bytes == 0 && !has_room;
            if !is_last {
                report.add(made);
            }
            if is_done {
                return Err(told(error, report));
            }
        }
    }

    /// Evicts until so many bytes are free, as far as that is possible; the caller has the turn.
    pub(super) fn make_room(
        &self,
        needed_bytes: u64,
        cause: Option<ErrorKind>,
    ) -> Result<RoomReport> {
        let started = Instant::now();
        let names = self.clone().for_moments();
        let mut report = RoomReport::default();
        // Under a quota the file system may have room that this user does not get.
        let is_quota = cause == Some(ErrorKind::QuotaExceeded);
        let goal_bytes = needed_bytes + MARGIN_BYTES;
        let is_enough = |report: &RoomReport| match is_quota {
            true => report.freed_bytes >= goal_bytes,
            false => self.has_room(goal_bytes),
        };
        loop {
            let mut heaps: Vec<RegionSummary> = names.list()?;
            heaps.retain(|heap| heap.medium == Medium::Memory && heap.image.is_some());
            let is_held = |heap: &RegionSummary| heap.state == RegionState::Held;
            let is_busy = |heap: &RegionSummary| {
                is_held_briefly(&lock_path(self.places().pool(), &heap.name))
            };
            let mut busy = heaps.iter().filter(|heap| is_held(heap) && is_busy(heap)).count();
            report.held = heaps.iter().filter(|heap| is_held(heap)).count();
            report.failed.clear();
            heaps.retain(|heap| !is_held(heap) && heap.state != RegionState::Damaged);
            heaps.sort_by_key(|heap| heap.image.as_ref().map_or(0, |image| image.modified_unix_s));
            for heap in &heaps {
                if is_enough(&report) {
                    return Ok(report);
                }
                match names.evict_now(&heap.name) {
                    Ok(freed_bytes) if freed_bytes > 0 => {
                        report.freed_bytes += freed_bytes;
                        report.evicted.push(heap.name.to_string());
                    }
                    Ok(_) | Err(RegionError::NotFound { .. }) => {}
                    Err(RegionError::Held { .. }) => {
                        report.held += 1;
                        busy += usize::from(is_busy(heap));
                    }
                    Err(error) => report.failed.push(format!("{}: {error}", heap.name)),
                }
            }
            if is_enough(&report) {
                return Ok(report);
            }
            if let Some(made) = DATABASES.get().and_then(|evict| evict(self.places(), goal_bytes)) {
                report.evicted.extend(made.evicted);
                report.freed_bytes += made.freed_bytes;
                report.held += made.held;
                report.failed.extend(made.failed);
            }
            if report.freed_bytes > 0 || busy == 0 || started.elapsed() >= BUSY_PATIENCE {
                return Ok(report);
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn has_room(&self, bytes: u64) -> bool {
        self.storage()
            .available_bytes(self.places().pool())
            .is_ok_and(|available| available >= bytes)
    }

    /// Of the processes that make room in a pool, one goes on at a time: what it freed is then
    /// there for it.
    pub(super) fn room_turn(&self) -> Result<Option<FileLock>> {
        let path = room_lock_path(self.places().pool());
        let started = Instant::now();
        loop {
            let outcome = FileLock::acquire(&path, LockMode::Exclusive, PAUSE);
            match outcome.map_err(RegionError::io("lock", &path))? {
                LockOutcome::Acquired(lock) => return Ok(Some(lock)),
                LockOutcome::Held(_) if started.elapsed() < ROOM_PATIENCE => {
                    std::thread::sleep(PAUSE)
                }
                LockOutcome::Held(_) => return Ok(None),
            }
        }
    }
}

/// What an allocation that found no room in the pool needs; `None` for other errors, and for a
/// limit of this process (`RLIMIT_FSIZE`), which no eviction changes.
fn wanted(error: &RegionError) -> Option<u64> {
    match error {
        RegionError::NoRoom { needed_bytes, room, .. }
            if room.cause != Some(ErrorKind::FileTooLarge) =>
        {
            Some(*needed_bytes)
        }
        _ => None,
    }
}

fn cause(error: &RegionError) -> Option<ErrorKind> {
    match error {
        RegionError::NoRoom { room, .. } => room.cause,
        _ => None,
    }
}

fn told(error: RegionError, report: RoomReport) -> RegionError {
    match error {
        RegionError::NoRoom { needed_bytes, available_bytes, pool, home, disk_bytes, .. } => {
            let room = Box::new(report);
            RegionError::NoRoom { needed_bytes, available_bytes, pool, home, disk_bytes, room }
        }
        other => other,
    }
}
