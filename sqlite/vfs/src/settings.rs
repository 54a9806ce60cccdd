//! The settings of a database: by URI parameters when it is opened, by `PRAGMA holdfast_…` later.
//! It holds for all connections of a process to that database.

#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

use holdfast_sys::machine::Memory;
use holdfast_types::Durability;

use crate::image::BLOCK_BYTES;

/// Names of what can be set at any time.
pub(crate) const NAMES: [&str; 6] = ["threshold", "level", "flush", INTERVAL, WAL, SIDE_FILE];
/// How long a commit may be in the pool alone.
pub(crate) const INTERVAL: &str = "flush_interval";
/// Whether a database may go over to WAL mode.
pub(crate) const WAL: &str = "wal";
/// Whether a close leaves a small redo log to the next session.
pub(crate) const SIDE_FILE: &str = "side_file";

/// In `threshold`: nothing was chosen, and a flush is due when a quarter of the pool has changed.
const THRESHOLD_UNSAID: u64 = u64::MAX - 1;
/// Stands for "never before the close".
pub(crate) const INFINITY: u64 = u64::MAX;
/// The pool for one database, unless something else is chosen: a part of the machine's memory, within
/// these bounds. It is taken as it is needed.
const LIMIT_PART: u64 = 32;
const LIMIT_BYTES_MIN: u64 = 256 << 20;
const LIMIT_BYTES_MAX: u64 = 512 << 20;
/// A flush so long after the first commit that is in the pool alone, unless something else is
/// chosen.
const INTERVAL_DEFAULT: Duration = Duration::from_secs(1);
const INTERVAL_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// In `interval_ms`: no flush for the time alone.
const INTERVAL_OFF: u64 = 0;
/// In `interval_ms`: nothing was chosen, and the threshold decides.
const INTERVAL_UNSAID: u64 = u64::MAX;
const POOL_LIMIT_MIN: u64 = 1 << 20;

/// Blocks of the pool for one database, unless something else is chosen.
pub(crate) fn default_limit_slots() -> u32 {
    // A kernel that tells nothing gets the smallest pool.
    slots_of(Memory::of_this_process().map_or(0, Memory::bytes))
}

fn slots_of(memory_bytes: u64) -> u32 {
    let bytes = (memory_bytes / LIMIT_PART).clamp(LIMIT_BYTES_MIN, LIMIT_BYTES_MAX);
    (bytes / BLOCK_BYTES as u64) as u32
}

/// A database's settings, which connections of this process share.
#[derive(Debug)]
pub(crate) struct Settings {
    threshold: AtomicU64,
    level: AtomicU32,
    inline: AtomicU32,
    /// Milliseconds, or one of the two values above.
    interval_ms: AtomicU64,
    /// The database may go over to WAL.
    wal: AtomicU32,
    /// A close removes the log in any case.
    removes_side_file: AtomicU32,
    /// The user bounds the number of pages.
    has_page_limit: AtomicU32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            threshold: AtomicU64::new(THRESHOLD_UNSAID),
            level: AtomicU32::new(0),
            inline: AtomicU32::new(0),
            interval_ms: AtomicU64::new(INTERVAL_UNSAID),
            wal: AtomicU32::new(0),
            removes_side_file: AtomicU32::new(0),
            has_page_limit: AtomicU32::new(0),
        }
    }
}

impl Settings {
    /// A flush is due when more blocks than this have changed, in a pool of so many.
    #[inline]
    pub(crate) fn threshold(&self, limit_slots: u32) -> u64 {
        match self.threshold.load(Relaxed) {
            THRESHOLD_UNSAID => u64::from(limit_slots) / 4,
            chosen => chosen,
        }
    }

    pub(crate) fn level(&self) -> Durability {
        Durability::from_number(self.level.load(Relaxed)).unwrap_or(Durability::Power)
    }

    pub(crate) fn is_inline(&self) -> bool {
        self.inline.load(Relaxed) != 0
    }

    /// How long a commit may be in the pool alone; `None`: until the threshold, or the close.
    pub(crate) fn flush_interval(&self) -> Option<Duration> {
        match self.interval_ms.load(Relaxed) {
            INTERVAL_OFF => None,
            // A user who wants no flush before the close gets none.
            INTERVAL_UNSAID if self.threshold.load(Relaxed) == INFINITY => None,
            INTERVAL_UNSAID => Some(INTERVAL_DEFAULT),
            ms => Some(Duration::from_millis(ms)),
        }
    }

    /// Whether `PRAGMA journal_mode = WAL` is SQLite's to answer.
    pub(crate) fn lets_wal_pass(&self) -> bool {
        self.wal.load(Relaxed) != 0
    }

    /// Whether a close may leave the log to the next session.
    pub(crate) fn keeps_side_file(&self) -> bool {
        self.removes_side_file.load(Relaxed) == 0
    }

    /// `PRAGMA max_page_count` counts pages by the size of the file.
    pub(crate) fn note_page_limit(&self) {
        self.has_page_limit.store(1, Relaxed);
    }

    pub(crate) fn has_page_limit(&self) -> bool {
        self.has_page_limit.load(Relaxed) != 0
    }

    /// Sets what a text says; the text that is wrong comes back with what would be right.
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "threshold" => {
                let blocks = if value.eq_ignore_ascii_case("infinity") {
                    Some(INFINITY)
                } else {
                    value.parse().ok()
                };
                let blocks = blocks.ok_or_else(|| {
                    format!("threshold is {value}; a number of pages, or `infinity`")
                })?;
                // One below infinity is as good as that.
                let blocks = if blocks == THRESHOLD_UNSAID { INFINITY } else { blocks };
                self.threshold.store(blocks, Relaxed);
            }
            "level" => {
                let level = Durability::parse(value);
                let level = level
                    .ok_or_else(|| format!("level is {value}; `process`, `system` or `power`"))?;
                self.level.store(level as u32, Relaxed);
            }
            "flush" => match value {
                "background" => self.inline.store(0, Relaxed),
                "inline" => self.inline.store(1, Relaxed),
                _ => return Err(format!("flush is {value}; `background` or `inline`")),
            },
            INTERVAL => self.interval_ms.store(interval_ms(value)?, Relaxed),
            WAL => match value {
                "refuse" => self.wal.store(0, Relaxed),
                "pass" => self.wal.store(1, Relaxed),
                _ => return Err(format!("wal is {value}; `refuse` or `pass`")),
            },
            SIDE_FILE => match value {
                "keep" => self.removes_side_file.store(0, Relaxed),
                "remove" => self.removes_side_file.store(1, Relaxed),
                _ => return Err(format!("side_file is {value}; `keep` or `remove`")),
            },
            _ => return Err(format!("there is no setting {name}")),
        }
        Ok(())
    }

    /// What is set, in a pool of so many blocks.
    pub(crate) fn text(&self, name: &str, limit_slots: u32) -> Option<String> {
        Some(match name {
            "threshold" => match self.threshold(limit_slots) {
                INFINITY => "infinity".to_owned(),
                blocks => blocks.to_string(),
            },
            "level" => self.level().name().to_owned(),
            "flush" => if self.is_inline() { "inline" } else { "background" }.to_owned(),
            INTERVAL => match self.flush_interval() {
                Some(interval) => format!("{}ms", interval.as_millis()),
                None => "off".to_owned(),
            },
            WAL => if self.lets_wal_pass() { "pass" } else { "refuse" }.to_owned(),
            SIDE_FILE => if self.keeps_side_file() { "keep" } else { "remove" }.to_owned(),
            _ => return None,
        })
    }
}

/// A flush interval: milliseconds, or a number with a unit, or `off`.
fn interval_ms(text: &str) -> Result<u64, String> {
    if text.eq_ignore_ascii_case("off") {
        return Ok(INTERVAL_OFF);
    }
    let interval = match text.parse() {
        Ok(ms) => Some(Duration::from_millis(ms)),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    let is_allowed =
        |interval: &Duration| (Duration::from_millis(1)..=INTERVAL_MAX).contains(interval);
    let interval = interval.filter(is_allowed).ok_or_else(|| {
        format!(
            "flush_interval is {text}; `off`, or a time from 1ms to 24h: milliseconds, or with a unit, as 500ms or 2s \
             (threshold=0 flushes each commit)"
        )
    })?;
    Ok(interval.as_millis() as u64)
}

/// A limit of the pool in bytes, as slots.
pub(crate) fn limit_slots(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<u64>().ok().filter(|bytes| *bytes >= POOL_LIMIT_MIN);
    let bytes = bytes.ok_or_else(|| {
        format!("pool_limit is {text}; a number of bytes from {POOL_LIMIT_MIN} on")
    })?;
    Ok((bytes / BLOCK_BYTES as u64).min(u64::from(crate::image::layout::CAPACITY_MAX)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_limit_follows_the_machine_within_bounds() {
        let mib = |memory_mib: u64| slots_of(memory_mib << 20) / ((1 << 20) / BLOCK_BYTES as u32);
        assert_eq!([512, 8192, 12_288, 16_384, 1 << 20].map(mib), [256, 256, 384, 512, 512]);
    }
}
