//! The superblock: formatting, verifying, and the step from an older format version to this one.
//!
//! Invariants:
//! - The magic number is the last store of formatting: a kill before means formatting again.
//! - A heap of an older version is read as it is, and stays of that version until something is
//!   stored that the older version cannot express. The step is two stores, and a kill between them
//!   leaves the older version.

use crate::backing::Backing;
use crate::error::OpenError;
use crate::heap::chunks::Run;
use crate::heap::{Heap, Opened, Pointers};
use crate::layout::*;
use crate::memory::Memory;

impl<B: Backing> Heap<B> {
    pub(crate) fn head_is_zero(&self) -> bool {
        (0..DESCRIPTOR_BYTES / 8).all(|word| self.memory.load(word * 8) == 0)
    }

    /// Refuses bytes that only begin as those of an empty region: a heap may have lost its first
    /// ones, and formatting would lose the rest. Formatting stores its magic number before anything
    /// else, so behind the head of an empty region there is no lane.
    pub(crate) fn check_never_formatted(&self) -> Result<(), OpenError> {
        let lane = Head { kind: HeadKind::Log, class: 0, span: 1 };
        if self.memory.load(descriptor_of(LANE_OFFSET) + DESC_HEAD) == lane.encode() {
            return Err(OpenError::Damaged {
                offset: SUPER_MAGIC,
                what: "the superblock is zero, and behind it lies a heap",
            });
        }
        // No heap has the state 0.
        match self.memory.load(LANE_OFFSET + LANE_STATE) {
            0 => Ok(()),
            _ => Err(OpenError::NotAHeap),
        }
    }

    pub(crate) fn format(&mut self, pointers: Option<Pointers>) {
        let pointers = pointers.unwrap_or(Pointers { base: 0, bytes: 8 });
        let memory = self.memory;
        memory.store(SUPER_MAGIC, MAGIC_FORMATTING);
        let wanted = SEGMENT_BYTES.min(self.backing.limit_bytes() & !(CHUNK_BYTES - 1));
        if memory.len() < wanted
            && let Ok(grown) = self.backing.grow(wanted)
        {
            self.remap(grown);
        }
        let memory = self.memory;
        let present = memory.len().min(SEGMENT_BYTES) / CHUNK_BYTES;
        self.format_segment(0, present);
        let lane = Run { segment: 0, first: LANE_OFFSET / CHUNK_BYTES, chunks: 1 };
        memory.zero(LANE_OFFSET, EXTENT_RECORDS + RECORD_BYTES);
        memory.store(LANE_OFFSET + LANE_STATE, 1 << 1);
        self.describe_run(lane, HeadKind::Log, 0, CHUNK_BYTES);
        self.publish_run(lane);
        memory.zero(SUPER_ROOTS, 32);
        memory.store(SUPER_VERSION, u64::from(FORMAT_VERSION) | u64::from(pointers.bytes) << 32);
        memory.store(SUPER_POINTER_BASE, pointers.base);
        memory.store(SUPER_LANE, LANE_OFFSET);
        memory.store(SUPER_SUM, superblock_sum(&memory, FORMAT_VERSION));
        memory.store(SUPER_SEGMENTS, 1);
        memory.store(SUPER_MAGIC, MAGIC);
        self.opened = Opened::Formatted;
    }

    pub(crate) fn verify(&self, wanted: Option<Pointers>) -> Result<(), OpenError> {
        let memory = &self.memory;
        let version = memory.load(SUPER_VERSION) as u32;
        if version > FORMAT_VERSION {
            return Err(OpenError::NewerFormat { version });
        }
        let sum = memory.load(SUPER_SUM);
        // The step to a newer version stores the sum first: a kill in between leaves the older
        // version.
        if version == 0
            || !(version..=FORMAT_VERSION).any(|version| sum == superblock_sum(memory, version))
        {
            return Err(OpenError::Damaged {
                offset: SUPER_SUM,
                what: "the superblock's checksum does not match",
            });
        }
        if memory.load(SUPER_LANE) != LANE_OFFSET {
            return Err(OpenError::Damaged {
                offset: SUPER_LANE,
                what: "the transaction lane is not where it must be",
            });
        }
        let stored = self.pointers();
        if let Some(wanted) = wanted
            && wanted != stored
        {
            if stored.is_portable() {
                return Err(OpenError::Portable);
            }
            if wanted.is_portable() {
                return Err(OpenError::NotPortable { pointer_bytes: stored.bytes });
            }
            return Err(OpenError::PointerMismatch {
                stored: (stored.base, stored.bytes),
                wanted: (wanted.base, wanted.bytes),
            });
        }
        let segments = memory.load(SUPER_SEGMENTS);
        let claimed_bytes =
            segments.saturating_sub(1).saturating_mul(SEGMENT_BYTES).saturating_add(CHUNK_BYTES);
        if segments == 0 {
            return Err(OpenError::Damaged {
                offset: SUPER_SEGMENTS,
                what: "no segment is counted",
            });
        }
        if claimed_bytes > memory.len() {
            return Err(OpenError::Truncated { claimed_bytes, bytes: memory.len() });
        }
        Ok(())
    }

    /// The kind of pointers that the heap holds.
    pub fn pointers(&self) -> Pointers {
        Pointers {
            base: self.memory.load(SUPER_POINTER_BASE),
            bytes: (self.memory.load(SUPER_VERSION) >> 32) as u32,
        }
    }

    /// Notes another address of the first byte; for a relocation, which no program sees before it
    /// is done.
    #[cfg(feature = "std")]
    pub(crate) fn store_base(&mut self, base: u64) {
        self.memory.store(SUPER_POINTER_BASE, base);
        self.memory.store(SUPER_SUM, superblock_sum(&self.memory, self.format_version()));
    }

    /// Version of the heap's bytes: older than [`FORMAT_VERSION`] until a newer feature is used.
    pub fn format_version(&self) -> u32 {
        self.memory.load(SUPER_VERSION) as u32
    }

    /// Makes this a heap of [`FORMAT_VERSION`], before something is stored that an older version
    /// cannot express. Not undone by a rollback: what an older version means, the newer one means
    /// too.
    pub(crate) fn raise_format(&mut self) {
        if self.format_version() == FORMAT_VERSION {
            return;
        }
        self.memory.store(SUPER_SUM, superblock_sum(&self.memory, FORMAT_VERSION));
        let pointer_bytes = self.memory.load(SUPER_VERSION) & !u64::from(u32::MAX);
        self.memory.store(SUPER_VERSION, pointer_bytes | u64::from(FORMAT_VERSION));
    }
}

/// Checksum of the part of the superblock that never changes, as it is with this version.
fn superblock_sum(memory: &Memory, version: u32) -> u64 {
    let pointer_bytes = memory.load(SUPER_VERSION) & !u64::from(u32::MAX);
    let words = [
        MAGIC,
        pointer_bytes | u64::from(version),
        memory.load(SUPER_POINTER_BASE),
        memory.load(SUPER_LANE),
    ];
    let mut fixed = [0; 32];
    for (place, word) in fixed.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    xxhash_rust::xxh3::xxh3_64(&fixed)
}
