//! The pages of a private file mapping that are to be published: those that were stored to, of
//! which the kernel made copies of this process's own.
//!
//! At first the copies are found by looking at every mapped page, and dropped when they are
//! published. A session that goes on publishing gets a better way, where the kernel has one
//! ([`armed`]): copies stay, and only those that are stored to again are found.
//!
//! Invariants:
//! - What was stored to since it was last settled or dropped is in every answer of
//!   [`PrivatePages::take`].
//! - A copy that stays has the bytes of the file (the caller publishes before it settles), or was
//!   stored to since.
//! - Copies take at most a quarter of the mapping, or [`KEPT_BYTES_MIN`], beyond what is not
//!   published yet.
//!
//! What it must not do: write to the mapping, or decide what the pages are for.

mod armed;
mod copies;

use std::fmt;
use std::io;
use std::ops::Range;

use armed::Armed;
use copies::Copies;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};

use crate::page_set::PageSet;

/// Copies may always take this much.
const KEPT_BYTES_MIN: u64 = 64 << 20;
/// Or this part of the mapping.
const KEPT_PART: u64 = 4;
/// A session that has published so often will go on.
const PUBLICATIONS_BEFORE_ARMING: u32 = 2;

/// The pages of one private mapping.
pub struct PrivatePages {
    base: *mut u8,
    len: usize,
    copies: Copies,
    armed: Option<Armed>,
    /// Whether the better way may still be tried.
    may_arm: bool,
    publications: u32,
    /// Taken, and neither settled nor dropped.
    taken: Vec<Range<u64>>,
    /// Copies that stay.
    kept: Option<PageSet>,
    kept_bytes: u64,
}

// SAFETY: the pointer is the address of a mapping, which belongs to the process and to no thread.
unsafe impl Send for PrivatePages {}
// SAFETY: through `&self` nothing is reached.
unsafe impl Sync for PrivatePages {}

impl PrivatePages {
    /// Of `len` bytes from `base`.
    ///
    /// # Safety
    /// The range must be a private mapping of a file, fresh, of the caller's, aligned to pages; it
    /// lives longer than the value.
    ///
    /// # Errors
    /// When `/proc/self/pagemap` cannot be opened.
    pub unsafe fn new(base: *mut u8, len: usize) -> io::Result<PrivatePages> {
        Ok(PrivatePages {
            base,
            len,
            copies: Copies::new()?,
            armed: None,
            may_arm: true,
            publications: 0,
            taken: Vec::new(),
            kept: None,
            kept_bytes: 0,
        })
    }

    /// The mapping now has `len` bytes.
    ///
    /// # Safety
    /// As for [`PrivatePages::new`]; no thread has stored to the new part.
    ///
    /// # Errors
    /// What the kernel reports.
    pub unsafe fn extend(&mut self, len: usize) -> io::Result<()> {
        if let Some(armed) = &mut self.armed {
            armed.extend(len)?;
            // They may have been stored to since, so they are only noted anew.
            let (kept, longer) = (self.kept.take(), PageSet::new(len));
            for range in kept.map_or_else(Vec::new, |kept| kept.drain(self.len)) {
                longer.insert(range.start as usize..range.end as usize);
            }
            self.kept = Some(longer);
        }
        self.len = len;
        Ok(())
    }

    /// What was stored to and neither settled nor dropped, as offsets from the base, in order and
    /// merged. No thread may store meanwhile.
    ///
    /// # Errors
    /// What the kernel reports; nothing is forgotten.
    pub fn take(&mut self) -> io::Result<&[Range<u64>]> {
        let Some(armed) = &mut self.armed else {
            self.taken = self.copies.find(self.base, self.len)?;
            return Ok(&self.taken);
        };
        let found = armed.take()?;
        if self.taken.is_empty() {
            self.taken = found;
        } else {
            let mut all = std::mem::take(&mut self.taken);
            all.extend(found);
            all.sort_unstable_by_key(|range| range.start);
            for range in all {
                match self.taken.last_mut() {
                    Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                    _ => self.taken.push(range),
                }
            }
        }
        Ok(&self.taken)
    }

    /// The file has the bytes of all that was taken, and no thread has stored since.
    ///
    /// # Errors
    /// What the kernel reports; then some copies that were to be dropped are still there: they have
    /// the bytes of the file, and are dropped another time.
    pub fn settle(&mut self) -> io::Result<()> {
        self.publications = self.publications.saturating_add(1);
        if self.armed.is_none() && self.may_arm && self.publications >= PUBLICATIONS_BEFORE_ARMING {
            // One attempt: what the kernel refuses now it will refuse again.
            self.may_arm = false;
            self.armed = Armed::new(self.base as usize, self.len).ok();
            self.kept = self.armed.is_some().then(|| PageSet::new(self.len));
        }
        if self.armed.is_none() {
            return self.drop_taken();
        }
        let taken = std::mem::take(&mut self.taken);
        if let Some(kept) = &self.kept {
            for range in taken {
                self.kept_bytes += kept.insert_new(range.start as usize..range.end as usize);
            }
        }
        if self.kept_bytes > KEPT_BYTES_MIN.max(self.len as u64 / KEPT_PART) {
            self.drop_kept()?;
        }
        if let Some(armed) = &mut self.armed {
            armed.settle();
        }
        Ok(())
    }

    /// Drops the copies of all that was stored to and not settled: the mapping shows the file
    /// there.
    ///
    /// # Safety
    /// Nothing may hold a reference into the mapping whose content must not change.
    ///
    /// # Errors
    /// What the kernel reports; then some copies are still there, and are found again.
    pub unsafe fn discard(&mut self) -> io::Result<()> {
        self.take()?;
        self.drop_taken()?;
        if let Some(armed) = &mut self.armed {
            armed.settle();
        }
        Ok(())
    }

    fn drop_taken(&mut self) -> io::Result<()> {
        for range in &self.taken {
            self.drop_copies(range)?;
        }
        // Copies that stay are counted too often from here on, which only drops them earlier.
        self.taken.clear();
        Ok(())
    }

    /// Drops the copies that stay; no thread may have stored to them since they were settled.
    fn drop_kept(&mut self) -> io::Result<()> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let (mut dropped, mut left_bytes) = (Ok(()), 0);
        for range in kept.drain(self.len) {
            if let Err(error) = self.drop_copies(&range) {
                left_bytes += kept.insert_new(range.start as usize..range.end as usize);
                dropped = Err(error);
            }
        }
        self.kept_bytes = left_bytes;
        dropped
    }

    fn drop_copies(&self, range: &Range<u64>) -> io::Result<()> {
        let end = range.end.min(self.len as u64);
        if range.start >= end {
            return Ok(());
        }
        let len = (end - range.start) as usize;
        // SAFETY: the range lies in the private mapping of the contract of `new`. What is dropped
        // is as the file has it, or, in `discard`, what its caller allows to change.
        unsafe {
            let address = self.base.add(range.start as usize).cast();
            match madvise(address, len, Advice::LinuxDontNeed) {
                // Locked into memory (mlock(2)): from Linux 5.18 on such pages are dropped by
                // another name.
                Err(Errno::INVAL) => madvise(address, len, Advice::LinuxDontneedLocked)?,
                other => other?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for PrivatePages {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (armed, kept_bytes) = (self.armed.is_some(), self.kept_bytes);
        formatter
            .debug_struct("PrivatePages")
            .field("armed", &armed)
            .field("kept_bytes", &kept_bytes)
            .finish_non_exhaustive()
    }
}
