//! The configuration of a keeper: limits, times, rates. Data only; the defaults follow the machine.

use std::time::Duration;

use holdfast_region::RegionName;

use crate::freeze::Guard;
use holdfast_sys::machine::Memory;

const MIB: u64 = 1 << 20;

/// How large the pool may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolLimit {
    /// So many bytes.
    Bytes(u64),
    /// This part of the memory that the machine, and the control group of this process, give; in
    /// percent.
    PercentOfMemory(u8),
    /// As large as it gets.
    None,
}

/// A set of limits with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Profile {
    /// 20 MB of pool, as the paper has it, and little writing.
    Phone,
    /// A quarter of the memory, whatever that is, and a disk that bears more. The default.
    Desktop,
}

/// The limits, times and rates of a keeper.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Config {
    /// How large the pool may be. Images of heaps that a process has count, and stay.
    pub pool_limit: PoolLimit,
    /// How long the machine still runs when something says that it is about to go.
    pub emergency: Duration,
    /// What an open heap may lose if the machine goes without a word.
    pub loss_window: Duration,
    /// What the keeper writes to the disk over a long time, in bytes a second. Emergencies are not
    /// counted.
    pub write_bytes_per_s: u64,
    /// What it may write at once after a pause.
    pub write_burst_bytes: u64,
    /// Bytes a second of the disk; measured where it is not given.
    pub bandwidth_bytes_per_s: Option<u64>,
    /// Heaps that go before all others in an emergency, the first before the second.
    pub first: Vec<RegionName>,
    /// Whether a program may be stopped for a copy that is no emergency. Not done to programs on a
    /// terminal.
    pub stop_for_copies: bool,
    /// How to start a process that lets stopped programs go on if the keeper is killed.
    pub guard: Option<Guard>,
}

impl Config {
    /// The limits of a profile.
    #[must_use]
    pub fn of(profile: Profile) -> Config {
        let phone = Config {
            pool_limit: PoolLimit::Bytes(20_000_000),
            emergency: Duration::from_secs(4),
            loss_window: Duration::from_secs(30),
            write_bytes_per_s: MIB / 2,
            write_burst_bytes: 64 * MIB,
            bandwidth_bytes_per_s: None,
            first: Vec::new(),
            stop_for_copies: true,
            guard: None,
        };
        match profile {
            Profile::Phone => phone,
            Profile::Desktop => Config {
                pool_limit: PoolLimit::PercentOfMemory(25),
                write_bytes_per_s: 8 * MIB,
                write_burst_bytes: 1024 * MIB,
                ..phone
            },
        }
    }
}

impl Default for Config {
    fn default() -> Config {
        Config::of(Profile::Desktop)
    }
}

impl PoolLimit {
    /// The limit in bytes on this machine.
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        match self {
            PoolLimit::Bytes(bytes) => Some(bytes),
            PoolLimit::PercentOfMemory(percent) => {
                Some(Memory::of_this_process()?.bytes() / 100 * u64::from(percent.min(100)))
            }
            PoolLimit::None => None,
        }
    }

    /// What the limit follows from, for people; nothing for a number.
    #[must_use]
    pub fn reason(self) -> Option<String> {
        match self {
            PoolLimit::PercentOfMemory(percent) => {
                let of = match Memory::of_this_process()? {
                    Memory { group_bytes: Some(group), total_bytes } if group < total_bytes => {
                        "the control group's memory"
                    }
                    _ => "the machine's memory",
                };
                Some(format!("{percent}% of {of}"))
            }
            PoolLimit::Bytes(_) | PoolLimit::None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: keeper/pool-limit
    #[test]
    fn the_default_limit_follows_the_machine() {
        let memory = Memory::of_this_process().unwrap().bytes();
        let limit = Config::default().pool_limit;
        assert_eq!(limit.bytes(), Some(memory / 100 * 25));
        assert!(limit.reason().unwrap().starts_with("25% of "));
        // A page that was kept takes 20 MB and more: it must stay there while there is memory.
        assert!(memory < 1 << 30 || limit.bytes().unwrap() > 200 << 20);
        assert_eq!(Config::of(Profile::Phone).pool_limit, PoolLimit::Bytes(20_000_000));
        assert_eq!(PoolLimit::Bytes(1).reason(), None);
    }
}
