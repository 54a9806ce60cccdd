//! The page map: which slot has the newest version of a block. Chains hang from buckets; all of it
//! can be rebuilt from the slots alone.
//!
//! Invariants:
//! - The process with EXCLUSIVE changes map and free list, or the one that takes over from it
//!   after its death; processes with SHARED read the map.
//! - A slot whose transaction counts is never written to. The writer puts a new version in front of
//!   the old one.
//! - A slot is freed by storing 0 in `transaction` before anything else.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::layout::{BLOCK_BYTES, CHUNK_SLOTS, Plan};
use super::{BadLink, Image};

/// What a slot holds.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Slot {
    /// The transaction that wrote it; 0: free.
    transaction: AtomicU64,
    block: AtomicU32,
    /// Next one in its bucket, or in the list of free ones, plus one.
    next: AtomicU32,
}

/// The words of an image that say which slots are in use. They change under EXCLUSIVE; they are
/// Relaxed where that lock orders them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room<'a> {
    /// Slots that have memory.
    pub(super) backed: &'a AtomicU32,
    /// Slots that were ever in use; the others are free.
    pub(super) used: &'a AtomicU32,
    /// First free slot below `used`, plus one.
    pub(super) free_head: &'a AtomicU32,
    /// How many slots may be used.
    pub(super) limit: &'a AtomicU32,
}

impl Room<'_> {
    #[inline]
    pub(super) fn backed(self) -> u32 {
        self.backed.load(Relaxed)
    }

    /// Some more slots have memory. Release: after they have.
    pub(super) fn note_backed(self, slots: u32) {
        self.backed.store(self.backed() + slots, Release);
    }
}

/// Calls `each` with link, block and transaction of the first slots in an image's file.
pub(crate) fn scan(
    file: &File,
    plan: Plan,
    slots: u32,
    mut each: impl FnMut(u32, u32, u64),
) -> io::Result<()> {
    let mut chunk = vec![0; BLOCK_BYTES];
    for first in (0..slots.min(plan.capacity)).step_by(CHUNK_SLOTS as usize) {
        let at = plan.slots_at + first as usize * size_of::<Slot>();
        file.read_exact_at(&mut chunk, at as u64)?;
        for (number, slot) in chunk.chunks_exact(size_of::<Slot>()).enumerate() {
            let transaction = u64::from_le_bytes(slot[..8].try_into().unwrap_or_default());
            let block = u32::from_le_bytes(slot[8..12].try_into().unwrap_or_default());
            each(first + number as u32 + 1, block, transaction);
        }
    }
    Ok(())
}

/// Why there is no slot.
#[derive(Debug)]
pub(crate) enum NoSlot {
    /// The limit is reached.
    Limit,
    /// The pool has no memory.
    Memory(io::Error),
    /// The image is damaged.
    BadLink,
}

impl From<BadLink> for NoSlot {
    fn from(_: BadLink) -> NoSlot {
        NoSlot::BadLink
    }
}

impl Image {
    /// The newest slot of a block; 0 when there is none.
    #[inline]
    pub(crate) fn find(&self, block: u32) -> Result<u32, BadLink> {
        self.find_from(self.bucket(block).load(Relaxed), block)
    }

    #[inline]
    fn find_from(&self, mut link: u32, block: u32) -> Result<u32, BadLink> {
        let mut steps = 0;
        while link != 0 {
            let slot = self.slot(link)?;
            if slot.block.load(Relaxed) == block {
                return Ok(link);
            }
            link = slot.next.load(Relaxed);
            steps += 1;
            if steps > self.plan().capacity {
                return Err(BadLink);
            }
        }
        Ok(0)
    }

    /// A free slot, for no process yet.
    pub(crate) fn take_free(&self) -> Result<u32, NoSlot> {
        let room = self.room();
        let head = room.free_head.load(Relaxed);
        if head != 0 {
            room.free_head.store(self.slot(head)?.next.load(Relaxed), Relaxed);
            return Ok(head);
        }
        let used = room.used.load(Relaxed);
        if used >= room.limit.load(Relaxed).min(self.plan().capacity) {
            return Err(NoSlot::Limit);
        }
        if used >= room.backed() {
            self.back_more().map_err(NoSlot::Memory)?;
        }
        room.used.store(used + 1, Relaxed);
        Ok(used + 1)
    }

    /// Puts a slot, whose page is written, in front of its bucket.
    #[inline]
    pub(crate) fn insert(&self, link: u32, block: u32, transaction: u64) -> Result<(), BadLink> {
        let (slot, bucket) = (self.slot(link)?, self.bucket(block));
        slot.block.store(block, Relaxed);
        slot.next.store(bucket.load(Relaxed), Relaxed);
        slot.transaction.store(transaction, Release);
        bucket.store(link, Release);
        Ok(())
    }

    /// Gives a slot back that is in no bucket.
    #[inline]
    pub(crate) fn free(&self, link: u32) -> Result<(), BadLink> {
        let slot = self.slot(link)?;
        slot.transaction.store(0, Release);
        let head = self.room().free_head;
        slot.next.store(head.load(Relaxed), Relaxed);
        head.store(link, Relaxed);
        Ok(())
    }

    /// Takes a slot out of its bucket and gives it back.
    pub(crate) fn remove(&self, link: u32) -> Result<(), BadLink> {
        let slot = self.slot(link)?;
        let bucket = self.bucket(slot.block.load(Relaxed));
        if bucket.load(Relaxed) == link {
            bucket.store(slot.next.load(Relaxed), Relaxed);
            return self.free(link);
        }
        let (mut before, mut steps) = (bucket.load(Relaxed), 0);
        while before != 0 && steps <= self.plan().capacity {
            let earlier = self.slot(before)?;
            let next = earlier.next.load(Relaxed);
            if next == link {
                earlier.next.store(slot.next.load(Relaxed), Relaxed);
                return self.free(link);
            }
            (before, steps) = (next, steps + 1);
        }
        Err(BadLink)
    }

    /// Removes the version that a slot stands in front of, and returns its transaction; 0 when
    /// there is none.
    #[inline]
    pub(crate) fn drop_older(&self, link: u32) -> Result<u64, BadLink> {
        let slot = self.slot(link)?;
        let block = slot.block.load(Relaxed);
        let (mut before, mut steps) = (slot, 0);
        loop {
            let next = before.next.load(Relaxed);
            if next == 0 {
                return Ok(0);
            }
            let candidate = self.slot(next)?;
            if candidate.block.load(Relaxed) == block {
                let transaction = candidate.transaction.load(Relaxed);
                before.next.store(candidate.next.load(Relaxed), Relaxed);
                self.free(next)?;
                return Ok(transaction);
            }
            (before, steps) = (candidate, steps + 1);
            if steps > self.plan().capacity {
                return Err(BadLink);
            }
        }
    }

    /// All slots in use: link, block, transaction.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
        (1..=self.room().used.load(Acquire)).filter_map(|link| {
            let slot = self.slot(link).ok()?;
            let transaction = slot.transaction.load(Acquire);
            (transaction != 0).then(|| (link, slot.block.load(Relaxed), transaction))
        })
    }

    /// Removes all slots that `wanted` names.
    pub(crate) fn remove_if(&self, wanted: impl Fn(u32, u64) -> bool) -> Result<u32, BadLink> {
        let mut removed = 0;
        for link in 1..=self.room().used.load(Relaxed) {
            let slot = self.slot(link)?;
            let transaction = slot.transaction.load(Relaxed);
            if transaction != 0 && wanted(slot.block.load(Relaxed), transaction) {
                self.remove(link)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Removes slots that `wanted` names, so many at most, from the one behind `from` on and round;
    /// returns how many there were, and where to go on.
    pub(crate) fn remove_some(
        &self,
        (from, max): (u32, u32),
        wanted: impl Fn(u32, u64) -> bool,
    ) -> Result<(u32, u32), BadLink> {
        let used = self.room().used.load(Relaxed);
        let (mut removed, mut last) = (0, from);
        for step in 0..used {
            if removed == max {
                break;
            }
            last = (from % used + step) % used + 1;
            let slot = self.slot(last)?;
            let transaction = slot.transaction.load(Relaxed);
            if transaction != 0 && wanted(slot.block.load(Relaxed), transaction) {
                self.remove(last)?;
                removed += 1;
            }
        }
        Ok((removed, last))
    }

    /// Makes map, free list and count anew from the slots: what does not count is free, and of each
    /// block the newest version stays. Returns how many slots were dropped.
    pub(crate) fn rebuild(&self) -> Result<u32, BadLink> {
        let (room, commits) = (self.room(), self.commits());
        let (committed, flushed) = (commits.newest(), commits.flushed());
        let backed = room.backed.load(Acquire).min(self.plan().capacity);
        self.clear_buckets();
        room.free_head.store(0, Relaxed);
        let (mut dirty, mut dropped, mut used) = (0, 0, 0);
        for link in 1..=backed {
            let slot = self.slot(link)?;
            let transaction = slot.transaction.load(Relaxed);
            if transaction == 0 {
                continue;
            }
            let block = slot.block.load(Relaxed);
            if transaction > committed {
                slot.transaction.store(0, Release);
                dropped += 1;
                continue;
            }
            let other = self.find(block)?;
            if other != 0 {
                let twin = self.slot(other)?;
                dropped += 1;
                if twin.transaction.load(Relaxed) >= transaction {
                    slot.transaction.store(0, Release);
                    continue;
                }
                dirty -= u32::from(twin.transaction.load(Relaxed) > flushed);
                self.remove(other)?;
            }
            self.insert(link, block, transaction)?;
            dirty += u32::from(transaction > flushed);
            used = link;
        }
        room.free_head.store(0, Relaxed);
        for link in (1..=used).rev() {
            if self.slot(link)?.transaction.load(Relaxed) == 0 {
                self.free(link)?;
            }
        }
        room.used.store(used, Release);
        commits.recount(flushed, dirty);
        Ok(dropped)
    }

    /// The block of a slot, and the transaction that wrote it. Relaxed: for the writer.
    #[inline]
    pub(crate) fn version(&self, link: u32) -> Result<(u32, u64), BadLink> {
        let slot = self.slot(link)?;
        Ok((slot.block.load(Relaxed), slot.transaction.load(Relaxed)))
    }

    /// Frees all slots; the map is to be rebuilt or forgotten. Release: before what follows.
    pub(crate) fn free_all(&self) -> Result<(), BadLink> {
        for link in 1..=self.room().backed.load(Acquire) {
            self.slot(link)?.transaction.store(0, Release);
        }
        Ok(())
    }

    /// The map without slots, when all of them are free. Relaxed: the store of `hot` follows.
    pub(crate) fn forget_slots(&self) {
        let room = self.room();
        room.used.store(0, Relaxed);
        room.free_head.store(0, Relaxed);
        self.clear_buckets();
    }

    /// How many slots may be used, at most as many as the image has room for. Relaxed: a wish.
    pub(crate) fn set_limit(&self, slots: u32) {
        self.room().limit.store(slots.min(self.plan().capacity), Relaxed);
    }

    pub(crate) fn limit(&self) -> u32 {
        self.room().limit.load(Relaxed)
    }

    /// Bytes of the pages that have memory.
    pub(crate) fn backed_bytes(&self) -> u64 {
        u64::from(self.room().backed()) * BLOCK_BYTES as u64
    }

    /// Slots that were ever in use.
    pub(crate) fn used(&self) -> u32 {
        self.room().used.load(Relaxed)
    }
}
