//! What an image of a database looks like: see `docs/format.md`. Everything that several processes change is an atomic.
//!
//! ```text
//! 0       header, one block; from 1024 on the path of the database
//! 4096    entries of processes: 128 of 64 bytes
//! 12288   name of the super-journal of a prepared transaction, one block
//! 16384   buckets: 4 bytes for each slot
//! …       slots: 16 bytes each
//! …       pages: one block for each slot
//! ```

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU32, AtomicU64};

/// The unit of everything: a database page of another size is several blocks, or a part of one.
pub(crate) const BLOCK_BYTES: usize = 4096;
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"HFsqlite");
pub(crate) const VERSION: u32 = 1;

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
/// Of an image: 64 GiB. No chain of slots is longer.
pub(crate) const CAPACITY_MAX: u32 = 1 << 24;
/// First byte, in the image's file, of the range whose bytes processes hold as leases.
pub(crate) const LEASES_AT: u64 = 1 << 40;

/// First block of an image.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) magic: AtomicU64,
    pub(crate) version: AtomicU32,
    /// Slots that the file has room for; a power of two.
    pub(crate) capacity: AtomicU32,
    /// Device, inode, time of birth of the database.
    pub(crate) identity: [AtomicU64; 3],
    /// Of the boot in which it was last attached.
    pub(crate) boot: [AtomicU64; 2],
    /// Sum over all of the above but the boot, stored last: an image without it was never finished.
    pub(crate) sum: AtomicU64,
    /// Joins the mark in the database file, the redo log and this image.
    pub(crate) nonce: AtomicU64,
    /// 1: the newest state of the database is here.
    pub(crate) hot: AtomicU32,
    /// 1: everything is in the database file, only the mark was left to clear.
    pub(crate) closing: AtomicU32,
    /// Number of the last transaction that counts. Storing it is the commit.
    pub(crate) committed: AtomicU64,
    /// Size of the database in bytes, by the parity of the transaction.
    pub(crate) size: [AtomicU64; 2],
    /// Transactions up to here are in the redo log and durable.
    pub(crate) flushed: AtomicU64,
    /// Transactions up to here are in the database file and durable.
    pub(crate) applied: AtomicU64,
    /// The transaction as of which blocks were last counted as clean; see `flush.rs`.
    pub(crate) gathered: AtomicU64,
    /// Blocks that changed after `gathered`.
    pub(crate) dirty: AtomicU32,
    /// Slots that have memory.
    pub(crate) backed: AtomicU32,
    /// Slots that were ever in use; the others are free.
    pub(crate) used: AtomicU32,
    /// First free slot below `used`, plus one.
    pub(crate) free_head: AtomicU32,
    /// How many slots may be used.
    pub(crate) limit: AtomicU32,
    /// Who writes: see `locks.rs`.
    pub(crate) writer: AtomicU64,
    /// Who commits or gathers, for a moment: number of a process entry, plus one.
    pub(crate) commit_lock: AtomicU32,
    /// Who writes to the redo log, or from it to the database file.
    pub(crate) log_lock: AtomicU32,
    /// 1: a transaction writes to the database file itself, under a journal on the disk.
    pub(crate) direct: AtomicU32,
    /// 1: there may be a journal on the disk.
    pub(crate) disk_journal: AtomicU32,
    /// A transaction that is committed when its super-journal is gone; 0: none.
    pub(crate) prepared: AtomicU64,
    pub(crate) name_bytes: AtomicU32,
    /// Entries of processes that were ever in use.
    pub(crate) processes: AtomicU32,
    /// Where the next record of the redo log goes.
    pub(crate) log_tail: AtomicU64,
    /// Of the log's generation.
    pub(crate) log_salt: AtomicU64,
    /// Number of the next record in this generation.
    pub(crate) log_sequence: AtomicU64,
    /// Settings: blocks, levels and ways as in `settings.rs`.
    pub(crate) flushes: AtomicU64,
    pub(crate) flushed_blocks: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    /// The log's end is not known to be sound: it must be begun again before the next record.
    pub(crate) log_suspect: AtomicU32,
    pub(crate) spare: AtomicU32,
    /// The transaction as of which the database file was when the log was begun.
    pub(crate) log_base: AtomicU64,
    /// The transaction as of which database file and log are together, at least.
    pub(crate) log_reached: AtomicU64,
    /// A transaction that is committed, but for the log: if that fails it was none. 0: none.
    pub(crate) provisional: AtomicU64,
    /// Of the path; 0: not known.
    pub(crate) path_bytes: AtomicU32,
}

/// What a process that has the database open says of itself.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct ProcessEntry {
    /// How many connections of it read.
    pub(crate) readers: AtomicU32,
    pub(crate) pid: AtomicU32,
    pub(crate) start_ticks: AtomicU64,
    /// Inode of the name space in which `pid` counts.
    pub(crate) pid_space: AtomicU64,
}

/// What a slot holds.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Slot {
    /// The transaction that wrote it; 0: free.
    pub(crate) transaction: AtomicU64,
    pub(crate) block: AtomicU32,
    /// Next one in its bucket, or in the list of free ones, plus one.
    pub(crate) next: AtomicU32,
}

const _: () = assert!(size_of::<Header>() <= PATH_AT);
const _: () = assert!(size_of::<ProcessEntry>() == 64 && size_of::<Slot>() == 16);
const _: () = assert!(BUCKETS_AT == 16_384);
const _: () = assert!(CHUNK_SLOTS as usize * size_of::<Slot>() == BLOCK_BYTES);

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
        let slots =
            limit_bytes.div_ceil(BLOCK_BYTES as u64).clamp(u64::from(CHUNK_SLOTS), u64::from(CAPACITY_MAX));
        (slots as u32).next_power_of_two()
    }
}
