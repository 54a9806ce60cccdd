//! The page map: which slot has the newest version of a block. Chains hang from buckets; everything here can be rebuilt from
//! the slots alone.
//!
//! Invariants:
//! - Map and list of free slots are changed by whoever has the lock EXCLUSIVE (or takes over from one who died with it);
//!   they are read by those, and by whoever has SHARED.
//! - A slot whose transaction counts is never written to. The writer puts a new version in front of the old one.
//! - A slot is freed by storing 0 in `transaction` before anything else.

#![forbid(unsafe_code)]

use std::io;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::image::{Astray, Image};

/// Why there is no slot.
#[derive(Debug)]
pub(crate) enum NoSlot {
    /// The limit is reached.
    Limit,
    /// The pool has no memory.
    Memory(io::Error),
    /// The image is damaged.
    Astray,
}

impl From<Astray> for NoSlot {
    fn from(_: Astray) -> NoSlot {
        NoSlot::Astray
    }
}

impl Image {
    /// The newest slot of a block; 0 when there is none.
    #[inline]
    pub(crate) fn find(&self, block: u32) -> Result<u32, Astray> {
        self.find_from(self.bucket(block).load(Relaxed), block)
    }

    #[inline]
    fn find_from(&self, mut link: u32, block: u32) -> Result<u32, Astray> {
        let mut steps = 0;
        while link != 0 {
            let slot = self.slot(link)?;
            if slot.block.load(Relaxed) == block {
                return Ok(link);
            }
            link = slot.next.load(Relaxed);
            steps += 1;
            if steps > self.plan().capacity {
                return Err(Astray);
            }
        }
        Ok(0)
    }

    /// A free slot, for nobody yet.
    pub(crate) fn take_free(&self) -> Result<u32, NoSlot> {
        let header = self.header();
        let head = header.free_head.load(Relaxed);
        if head != 0 {
            header.free_head.store(self.slot(head)?.next.load(Relaxed), Relaxed);
            return Ok(head);
        }
        let used = header.used.load(Relaxed);
        if used >= header.limit.load(Relaxed).min(self.plan().capacity) {
            return Err(NoSlot::Limit);
        }
        if used >= header.backed.load(Relaxed) {
            self.back_more().map_err(NoSlot::Memory)?;
        }
        header.used.store(used + 1, Relaxed);
        Ok(used + 1)
    }

    /// Puts a slot, whose page is written, in front of its bucket.
    #[inline]
    pub(crate) fn insert(&self, link: u32, block: u32, transaction: u64) -> Result<(), Astray> {
        let (slot, bucket) = (self.slot(link)?, self.bucket(block));
        slot.block.store(block, Relaxed);
        slot.next.store(bucket.load(Relaxed), Relaxed);
        slot.transaction.store(transaction, Release);
        bucket.store(link, Release);
        Ok(())
    }

    /// Gives a slot back that is in no bucket.
    #[inline]
    pub(crate) fn free(&self, link: u32) -> Result<(), Astray> {
        let slot = self.slot(link)?;
        slot.transaction.store(0, Release);
        let head = &self.header().free_head;
        slot.next.store(head.load(Relaxed), Relaxed);
        head.store(link, Relaxed);
        Ok(())
    }

    /// Takes a slot out of its bucket and gives it back.
    pub(crate) fn remove(&self, link: u32) -> Result<(), Astray> {
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
        Err(Astray)
    }

    /// Removes the version that a slot stands in front of, and returns its transaction; 0 when there is none.
    #[inline]
    pub(crate) fn drop_older(&self, link: u32) -> Result<u64, Astray> {
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
                return Err(Astray);
            }
        }
    }

    /// All slots in use: link, block, transaction.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = (u32, u32, u64)> + '_ {
        (1..=self.header().used.load(Acquire)).filter_map(|link| {
            let slot = self.slot(link).ok()?;
            let transaction = slot.transaction.load(Acquire);
            (transaction != 0).then(|| (link, slot.block.load(Relaxed), transaction))
        })
    }

    /// Removes all slots that `wanted` names.
    pub(crate) fn remove_if(&self, wanted: impl Fn(u32, u64) -> bool) -> Result<u32, Astray> {
        let mut removed = 0;
        for link in 1..=self.header().used.load(Relaxed) {
            let slot = self.slot(link)?;
            let transaction = slot.transaction.load(Relaxed);
            if transaction != 0 && wanted(slot.block.load(Relaxed), transaction) {
                self.remove(link)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Makes map, free list and count anew from the slots: what does not count is free, and of each block the newest version
    /// stays. Returns how many slots were dropped.
    pub(crate) fn rebuild(&self) -> Result<u32, Astray> {
        let header = self.header();
        let (committed, gathered) = (header.committed.load(Acquire), header.flushed.load(Acquire));
        let backed = header.backed.load(Acquire).min(self.plan().capacity);
        self.clear_buckets();
        header.free_head.store(0, Relaxed);
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
                dirty -= u32::from(twin.transaction.load(Relaxed) > gathered);
                self.remove(other)?;
            }
            self.insert(link, block, transaction)?;
            dirty += u32::from(transaction > gathered);
            used = link;
        }
        header.free_head.store(0, Relaxed);
        for link in (1..=used).rev() {
            if self.slot(link)?.transaction.load(Relaxed) == 0 {
                self.free(link)?;
            }
        }
        header.used.store(used, Release);
        header.gathered.store(gathered, Release);
        header.dirty.store(dirty, Release);
        Ok(dropped)
    }
}
