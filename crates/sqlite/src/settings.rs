//! What a user may choose for a database: by URI parameters when it is opened, by `PRAGMA holdfast_…` later. It holds for all
//! connections of a process to that database.

#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

use crate::layout::BLOCK_BYTES;

/// What a commit survives when it returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// The end of the process, by whatever means.
    Process,
    /// A panic or reset of the machine, where the pool is in memory that does; else as `Power`.
    System,
    /// The plug.
    Power,
}

const LEVELS: [(Level, &str); 3] =
    [(Level::Process, "process"), (Level::System, "system"), (Level::Power, "power")];

impl Level {
    /// From its name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Level> {
        LEVELS.iter().find(|(_, name)| name.eq_ignore_ascii_case(text)).map(|(level, _)| *level)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        LEVELS[self as usize].1
    }
}

/// Names of what can be set at any time.
pub(crate) const NAMES: [&str; 4] = ["threshold", "level", "flush", WAL];
/// Whether a database may go over to WAL mode.
pub(crate) const WAL: &str = "wal";
/// Says what `wal` is unless something else is chosen for a database.
pub(crate) const WAL_VARIABLE: &str = "HOLDFAST_SQLITE_WAL";

/// Flush when more blocks than this have changed since the last time, unless something else is chosen.
const THRESHOLD_DEFAULT: u64 = 1000;
/// Stands for "never before the close".
pub(crate) const INFINITY: u64 = u64::MAX;
/// Blocks of the pool for one database, unless something else is chosen: 64 MiB.
pub(crate) const LIMIT_SLOTS: u32 = (64 << 20) / BLOCK_BYTES as u32;
const POOL_LIMIT_MIN: u64 = 1 << 20;
/// How far a flush in the background may lag behind, in blocks, on top of four times the threshold.
const LAG_BLOCKS: u64 = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Settings {
    threshold: AtomicU64,
    level: AtomicU32,
    inline: AtomicU32,
    /// The database may go over to WAL.
    wal: AtomicU32,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            threshold: AtomicU64::new(THRESHOLD_DEFAULT),
            level: AtomicU32::new(0),
            inline: AtomicU32::new(0),
            wal: AtomicU32::new(0),
        }
    }
}

impl Settings {
    /// As the environment says, where it does.
    pub(crate) fn from_environment() -> Result<Settings, String> {
        let settings = Settings::default();
        if let Some(value) = std::env::var_os(WAL_VARIABLE) {
            let set = settings.set(WAL, &value.to_string_lossy());
            set.map_err(|wrong| format!("{WAL_VARIABLE}: {wrong}"))?;
        }
        Ok(settings)
    }

    pub(crate) fn threshold(&self) -> u64 {
        self.threshold.load(Relaxed)
    }

    pub(crate) fn level(&self) -> Level {
        LEVELS[self.level.load(Relaxed) as usize % LEVELS.len()].0
    }

    pub(crate) fn is_inline(&self) -> bool {
        self.inline.load(Relaxed) != 0
    }

    /// Whether `PRAGMA journal_mode = WAL` is SQLite's to answer.
    pub(crate) fn lets_wal_pass(&self) -> bool {
        self.wal.load(Relaxed) != 0
    }

    /// More changed blocks than this, and a commit waits.
    pub(crate) fn lag_max(&self) -> u64 {
        self.threshold().saturating_mul(4).saturating_add(LAG_BLOCKS)
    }

    /// Sets what a text says; the text that is wrong comes back with what would be right.
    pub(crate) fn set(&self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "threshold" => {
                let blocks =
                    if value.eq_ignore_ascii_case("infinity") { Some(INFINITY) } else { value.parse().ok() };
                let blocks = blocks
                    .ok_or_else(|| format!("threshold is {value}; a number of pages, or `infinity`"))?;
                self.threshold.store(blocks, Relaxed);
            }
            "level" => {
                let level = Level::parse(value);
                let level =
                    level.ok_or_else(|| format!("level is {value}; `process`, `system` or `power`"))?;
                self.level.store(level as u32, Relaxed);
            }
            "flush" => match value {
                "background" => self.inline.store(0, Relaxed),
                "inline" => self.inline.store(1, Relaxed),
                _ => return Err(format!("flush is {value}; `background` or `inline`")),
            },
            WAL => match value {
                "refuse" => self.wal.store(0, Relaxed),
                "pass" => self.wal.store(1, Relaxed),
                _ => return Err(format!("wal is {value}; `refuse` or `pass`")),
            },
            _ => return Err(format!("there is no setting {name}")),
        }
        Ok(())
    }

    pub(crate) fn text(&self, name: &str) -> Option<String> {
        Some(match name {
            "threshold" if self.threshold() == INFINITY => "infinity".to_owned(),
            "threshold" => self.threshold().to_string(),
            "level" => self.level().name().to_owned(),
            "flush" => if self.is_inline() { "inline" } else { "background" }.to_owned(),
            WAL => if self.lets_wal_pass() { "pass" } else { "refuse" }.to_owned(),
            _ => return None,
        })
    }
}

/// A limit of the pool in bytes, as slots.
pub(crate) fn limit_slots(text: &str) -> Result<u32, String> {
    let bytes = text.parse::<u64>().ok().filter(|bytes| *bytes >= POOL_LIMIT_MIN);
    let bytes =
        bytes.ok_or_else(|| format!("pool_limit is {text}; a number of bytes from {POOL_LIMIT_MIN} on"))?;
    Ok((bytes / BLOCK_BYTES as u64).min(u64::from(crate::layout::CAPACITY_MAX)) as u32)
}
