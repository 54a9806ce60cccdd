//! The layout of an image: see `docs/format.md`. `header.rs` has the header's words.
//!
//! ```text
//! 0       header, one block; from 1024 on the path of the database
//! 4096    entries of processes: 128 of 64 bytes
//! 12288   name of the super-journal of a prepared transaction, or of the database beside which the
//!         journal of a transaction is that outgrew the pool, one block
//! 16384   buckets: 4 bytes for each slot
//! …       slots: 16 bytes each
//! …       pages: one block for each slot
//! ```

#![forbid(unsafe_code)]

use super::locks::ProcessEntry;
use super::slots::Slot;

/// The unit of everything: a database page of another size is several blocks, or a part of one.
pub(crate) const BLOCK_BYTES: usize = 4096;

/// In the header's block: where the database was when it was opened last.
pub(crate) const PATH_AT: usize = 1024;
pub(crate) const PATH_BYTES_MAX: usize = BLOCK_BYTES - PATH_AT;
pub(crate) const PROCESSES_MAX: usize = 128;
pub(crate) const PROCESSES_AT: usize = BLOCK_BYTES;
pub(crate) const NAME_AT: usize = PROCESSES_AT + PROCESSES_MAX * size_of::<ProcessEntry>();
pub(crate) const NAME_BYTES_MAX: usize = BLOCK_BYTES;
pub(crate) const BUCKETS_AT: usize = NAME_AT + NAME_BYTES_MAX;
/// Slots are backed so many at a time: one block of slots, one MiB of pages.
pub(crate) const CHUNK_SLOTS: u32 = 256;
/// The first ones; from there on twice as many, up to a chunk. What a session does not need it
/// would have the kernel clear and take back.
pub(crate) const FIRST_SLOTS: u32 = 16;
/// Of an image: 64 GiB. No chain of slots is longer.
pub(crate) const CAPACITY_MAX: u32 = 1 << 24;
/// First byte, in the image's file, of the range whose bytes processes hold as leases.
pub(crate) const LEASES_AT: u64 = 1 << 40;

const _: () = assert!(size_of::<ProcessEntry>() == 64 && size_of::<Slot>() == 16);
const _: () = assert!(BUCKETS_AT == 16_384);
const _: () = assert!(CHUNK_SLOTS as usize * size_of::<Slot>() == BLOCK_BYTES);
const _: () = assert!(CHUNK_SLOTS.is_power_of_two() && FIRST_SLOTS.is_power_of_two());

/// Where parts of an image with so many slots begin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) capacity: u32,
    pub(crate) slots_at: usize,
    pub(crate) pages_at: usize,
    pub(crate) bytes: usize,
}

impl Plan {
    pub(crate) fn new(capacity: u32) -> Plan {
        let slots = capacity as usize;
        let slots_at = BUCKETS_AT + (slots * 4).next_multiple_of(BLOCK_BYTES);
        let pages_at = slots_at + slots * size_of::<Slot>();
        Plan { capacity, slots_at, pages_at, bytes: pages_at + slots * BLOCK_BYTES }
    }

    /// For a limit in bytes.
    pub(crate) fn capacity_for(limit_bytes: u64) -> u32 {
        let slots = limit_bytes
            .div_ceil(BLOCK_BYTES as u64)
            .clamp(u64::from(CHUNK_SLOTS), u64::from(CAPACITY_MAX));
        (slots as u32).next_power_of_two()
    }
}
