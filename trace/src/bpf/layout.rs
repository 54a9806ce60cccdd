//! The structures that the programs in the kernel and this side share: `bpf/trace.h` is the other
//! half.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub(super) const FACTS: usize = 1024;

/// Of character devices; greater numbers are those of no terminal.
pub(super) const MAJORS: usize = 256;

/// What is to be known of a call: the number of its descriptor argument, counted from 1, and these
/// flags.
pub(super) const FACT_MAPPING: u8 = 8;
pub(super) const FACT_MORE_ARGUMENTS: u8 = 16;

/// `struct settings`.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct KernelSettings {
    pub(super) facts_64: [u8; FACTS],
    pub(super) facts_32: [u8; FACTS],
    /// A bit for each major number of character devices.
    pub(super) terminals: [u64; MAJORS / 64],
    pub(super) tracer: u32,
    pub(super) only_copies: u32,
}

/// `struct counters`.
#[derive(Debug, Default, Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct Counters {
    pub(super) lost_calls: u64,
    pub(super) lost_others: u64,
    pub(super) missed_threads: u64,
    pub(super) live: i64,
    pub(super) marked: u32,
    pub(super) level: u32,
}

/// `struct wanted`.
#[derive(Debug, Clone, Copy, IntoBytes, Immutable)]
#[repr(C)]
pub(super) struct WantedKey {
    pub(super) what: u32,
    pub(super) number: u32,
}

pub(super) const WANTED_PROCESS: u32 = 0;
/// From when on: the value in the map of those that are wanted.
pub(super) const WANTED_NOW: u8 = 0;
pub(super) const WANTED_FROM_EXEC: u8 = 1;

pub(super) const KIND_CALL: u8 = 1;
pub(super) const KIND_BEGAN: u8 = 2;
pub(super) const KIND_EXEC: u8 = 3;
pub(super) const KIND_ENDED: u8 = 4;
pub(super) const KIND_TIME: u8 = 5;
pub(super) const KIND_SIGNAL: u8 = 6;
pub(super) const KIND_IO_URING: u8 = 7;

pub(super) const CALL_HAS_PARTS: u8 = 1;
pub(super) const CALL_HAS_ALL_ARGUMENTS: u8 = 2;
pub(super) const CALL_RESTARTED: u8 = 4;
pub(super) const CALL_UNFINISHED: u8 = 8;

pub(super) const END_BY_EXEC: u8 = 1;

/// `struct call`.
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[cfg_attr(test, derive(IntoBytes))]
#[repr(C)]
pub(super) struct CallHead {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) abi: u8,
    pub(super) object: u8,
    pub(super) number: u32,
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) start_ns: u64,
    pub(super) wall_ns: u64,
    pub(super) result: i64,
    pub(super) arguments: [u64; 3],
}

/// Of a call that left the CPU: asleep, waiting, waiting for a device, queued.
pub(super) type Parts = [u64; 4];

/// `struct thread`.
#[derive(Debug, Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[cfg_attr(test, derive(IntoBytes))]
#[repr(C)]
pub(super) struct ThreadRecord {
    pub(super) kind: u8,
    pub(super) how: u8,
    pub(super) signal: u8,
    pub(super) opcode: u8,
    pub(super) other: u32,
    pub(super) process: u32,
    pub(super) thread: u32,
    pub(super) at_ns: u64,
    /// Of [`KIND_IO_URING`]: how many operations.
    pub(super) cpu_ns: u64,
    pub(super) queue_ns: u64,
    pub(super) command: [u8; 16],
}

const _: () = assert!(size_of::<KernelSettings>() == 2088);
const _: () = assert!(size_of::<Counters>() == 40);
const _: () = assert!(size_of::<CallHead>() == 64);
const _: () = assert!(size_of::<ThreadRecord>() == 56);
