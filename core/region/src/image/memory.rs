//! A region's data in an address space.
//!
//! Invariants:
//! - A [`MappedData`] owns `reserved` bytes from `base`, reserved by itself or promised by the
//!   caller. The first `backed` bytes map the file, the rest is inaccessible. Only what it reserved
//!   by itself can become longer.
//! - The mapped file range was allocated before it was mapped.
//! - A private mapping (mode `atomic`) is writable from the start; the watch then only notices lost
//!   backing.
//! - A mapping that may only be read stays so: nothing here makes it writable, and the descriptor
//!   could not.
//! - A writable shared mapping starts read-only; the watch makes it writable at the first store.
//!   Which protection is in force is decided in the fault handler and in [`MappedData::grow`],
//!   nowhere else.
//! - Changed pages are tracked from the first question on, not before: a tracked mapping is made of
//!   small pages, and a session that is not asked keeps its huge ones. Until then only the watch
//!   knows whether anything was stored.
//! - On drop what finds changes goes first, then the watch, then the range is inaccessible and
//!   reserved again (or, when it is our own reservation, given back).

#![allow(unsafe_code, reason = "mapping a file is what this module is for")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use holdfast_sys::dirty::{DirtyMethod, DirtyTracker, Mapping, choose};
use holdfast_sys::fault::{ReadWatch, WriteWatch};
use holdfast_sys::mapping::{Prot, Reservation, map_none_fixed};
use holdfast_sys::window::ClaimError;
use serde::Serialize;

use crate::image::private::PrivateMapping;
use crate::media::format::DATA_OFFSET;
use crate::media::journal::PageSource;
use crate::media::sharing::{Sharing, map_file};

/// When stores to a region count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Consistency {
    /// At once, each for itself: for programs that use transactions.
    #[default]
    Direct,
    /// All together, when [`Region::publish`](crate::Region::publish) is called: for programs that
    /// know nothing of transactions. Costs a copy of each page that is stored to.
    Atomic,
}

/// What the fault handler calls; it must be async-signal-safe.
pub(crate) type Notify = Arc<dyn Fn() + Send + Sync>;

/// How a file is mapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Stores(Consistency),
    ReadOnly,
}

/// The callback for faults in a mapping.
enum Watch {
    Stores(WriteWatch),
    ReadOnly(ReadWatch),
}

/// The mapping of a region's data, and the way in which its changed pages are found.
pub(crate) struct MappedData {
    /// Released by hand, before the watch.
    tracker: Option<Box<dyn DirtyTracker>>,
    /// Released by hand, before the mapping: see the last invariant.
    watch: Option<Watch>,
    base: *mut u8,
    backed: usize,
    /// What it may grow to, in place.
    reserved: usize,
    /// Of a private mapping only. Released by hand, before the mapping.
    private: Option<PrivateMapping>,
    sharing: Sharing,
    /// Held for its drop, which frees the range.
    own_range: Option<Reservation>,
}

// SAFETY: mapping and watch belong to the process, not to a thread; the raw pointer is only passed
// to calls that take `&mut self` or read.
unsafe impl Send for MappedData {}
// SAFETY: through `&self` nothing but atomics of the watch and, in readers, read-only memory is
// reached; the tracker is reached through `&mut self` only.
unsafe impl Sync for MappedData {}

impl MappedData {
    /// Maps `backed` bytes of the data area of `file` at the start of a reservation that it takes
    /// over.
    pub(crate) fn map_own(
        range: Reservation,
        file: &File,
        backed: usize,
        (mode, sharing): (Mode, Sharing),
        notify: Option<Notify>,
    ) -> io::Result<MappedData> {
        if backed > range.len() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let (base, limit) = (range.base(), range.len());
        // SAFETY: the reservation is handed over whole, covers `backed` bytes, and is dropped after
        // the mapping.
        let mut mapped =
            unsafe { MappedData::map(base, file, backed, limit, (mode, sharing), notify)? };
        mapped.own_range = Some(range);
        Ok(mapped)
    }

    /// Maps `backed` bytes of the data area of `file` at `base`.
    ///
    /// # Safety
    /// `base` is page-aligned and starts reserved address space of the caller's, of `limit` bytes;
    /// it stays reserved, and nothing else is mapped there, until the value is dropped.
    pub(crate) unsafe fn map(
        base: *mut u8,
        file: &File,
        backed: usize,
        limit: usize,
        (mode, sharing): (Mode, Sharing),
        notify: Option<Notify>,
    ) -> io::Result<MappedData> {
        let is_private = mode == Mode::Stores(Consistency::Atomic);
        // SAFETY: the range is reserved and ours (contract), so nothing refers into it.
        unsafe { map_file(base, backed, file, DATA_OFFSET, Prot::Read, is_private, sharing)? };
        // SAFETY: mapped just now; the value owns both, and releases the private part first.
        let private = is_private
            .then(|| unsafe { PrivateMapping::new(base, file, backed, limit, sharing) })
            .transpose();
        // SAFETY: the range was just mapped and, where stores are allowed, may become writable; the
        // watch is dropped before it is unmapped. What is notified of is async-signal-safe
        // (contract of the type).
        let watch = || unsafe {
            match mode {
                Mode::Stores(_) => WriteWatch::new(base, backed, notify).map(Watch::Stores),
                Mode::ReadOnly => ReadWatch::new(base, backed, notify).map(Watch::ReadOnly),
            }
        };
        let parts = private.and_then(|private| Ok((private, watch()?)));
        match parts {
            Ok((private, watch)) => {
                let (tracker, watch, own_range) = (None, Some(watch), None);
                let reserved = limit;
                Ok(MappedData {
                    tracker,
                    watch,
                    base,
                    backed,
                    reserved,
                    private,
                    sharing,
                    own_range,
                })
            }
            Err(error) => {
                // SAFETY: the mapping made above, which no caller has seen.
                unsafe { map_none_fixed(base, backed)? };
                Err(error)
            }
        }
    }

    /// First byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }

    /// Maps more of the file, up to `backed` bytes in all, which must be allocated.
    pub(crate) fn grow(&mut self, file: &File, backed: usize) -> io::Result<()> {
        let added = backed.checked_sub(self.backed).filter(|_| backed <= self.reserved);
        let (Some(added), Some(Watch::Stores(watch))) = (added, &self.watch) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        if added == 0 {
            return Ok(());
        }
        let prot = if watch.is_dirty() { Prot::ReadWrite } else { Prot::Read };
        // SAFETY: what is backed lies in the reserved range, so the sum stays inside it.
        let at = unsafe { self.base.add(self.backed) };
        let offset = DATA_OFFSET + self.backed as u64;
        // SAFETY: the range lies in the reserved part past the mapping; nothing refers into it yet.
        let mapped = unsafe {
            map_file(at, added, file, offset, prot, self.private.is_some(), self.sharing)
        };
        if mapped.is_err() {
            // The kernel may have dropped the reservation there; nothing else may get the range.
            // SAFETY: as above.
            unsafe { map_none_fixed(at, added)? };
            return mapped;
        }
        self.backed = backed;
        watch.extend(backed);
        if let Some(private) = &mut self.private {
            // SAFETY: mapped just now, and no caller has seen it yet.
            unsafe { private.grow(file, backed)? };
        }
        match &mut self.tracker {
            // SAFETY: mapped just now like the rest, within the limit, and no caller has seen it
            // yet.
            Some(tracker) => unsafe { tracker.extend(backed) },
            None => Ok(()),
        }
    }

    /// What it may grow to, and whether that is its own reservation.
    pub(crate) fn reserved(&self) -> (usize, bool) {
        (self.reserved, self.own_range.is_some())
    }

    /// Reserves what lies behind, too, up to `limit` bytes in all. After an error the range is at
    /// least as long as it was.
    pub(crate) fn reserve(&mut self, limit: usize) -> Result<(), ClaimError> {
        if limit > self.reserved {
            let Some(range) = &mut self.own_range else {
                return Err(ClaimError::Refused(io::ErrorKind::Unsupported.into()));
            };
            range.extend(limit)?;
            self.reserved = limit;
        }
        Ok(())
    }

    /// Makes what knows the pages of the mapping fit for all that is reserved. A tracker begins
    /// anew, so what it knew must have been taken; no thread stores to the mapping meanwhile. After
    /// an error it is not tracked.
    pub(crate) fn fit_reserved(&mut self, file: &File) -> io::Result<()> {
        if let Some(private) = &mut self.private {
            private.reserve(file, self.reserved)?;
        }
        if self.tracker.take().is_some() {
            // A tracker leaves the mapping writable.
            self.rearm()?;
            self.track()?;
        }
        Ok(())
    }

    /// Gives up what of its own reservation lies past `limit` bytes.
    pub(crate) fn give_up(&mut self, limit: usize) {
        if let Some(range) = &mut self.own_range {
            range.shorten(limit.max(self.backed));
            self.reserved = range.len();
        }
    }

    /// Whether a store to the file happened since the mapping was made or rearmed; stores to a
    /// private mapping are none.
    pub(crate) fn is_dirty(&self) -> bool {
        let found = self.tracker.as_ref().and_then(|tracker| tracker.peek());
        self.shared_watch().is_some_and(|watch| found.unwrap_or_else(|| watch.is_dirty()))
    }

    /// Whether a tracker knows what was stored.
    pub(crate) fn is_tracked(&self) -> bool {
        self.tracker.is_some()
    }

    /// Whether the tracker needs no [`MappedData::rearm`]: the mapping stays writable, and is dirty
    /// when it says so.
    pub(crate) fn tracks_by_itself(&self) -> bool {
        self.tracker.as_ref().is_some_and(|tracker| tracker.kind() == DirtyMethod::Userfault)
    }

    /// Bytes as the image has them, which no thread stores to while they are used (contract of
    /// `Region::commit`).
    fn image_bytes(&self, range: Range<u64>) -> &[u8] {
        if let Some(private) = &self.private {
            return private.image_bytes(range);
        }
        let (start, end) = (range.start as usize, (range.end as usize).min(self.backed));
        // SAFETY: the range lies in the mapping, which is readable while `self` lives.
        unsafe {
            std::slice::from_raw_parts(self.base.add(start.min(end)), end.saturating_sub(start))
        }
    }

    /// The same, to write them back.
    pub(crate) fn shared_bytes(&self, range: Range<u64>) -> &[u8] {
        self.image_bytes(range)
    }

    /// Copies bytes into a private mapping, as a store of the program would. They count when they
    /// are published.
    pub(crate) fn copy_in(&mut self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let fits =
            offset.checked_add(bytes.len() as u64).is_some_and(|end| end <= self.backed as u64);
        if !fits || self.private.is_none() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // SAFETY: the range lies in the mapping, which is writable because it is private; `bytes`
        // is elsewhere, since nothing here hands out references into a mapping that is stored to.
        unsafe {
            self.base.add(offset as usize).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len())
        };
        Ok(())
    }

    /// What a publication works on, in the mode `atomic`.
    pub(crate) fn private(&mut self) -> Option<&mut PrivateMapping> {
        self.private.as_mut()
    }

    /// Whether the file was found shorter than the mapping.
    pub(crate) fn lost_backing(&self) -> bool {
        let of_view = self.private.as_ref().is_some_and(PrivateMapping::lost_backing);
        match &self.watch {
            Some(Watch::Stores(watch)) => watch.lost_backing() || of_view,
            Some(Watch::ReadOnly(watch)) => watch.lost_backing(),
            None => of_view,
        }
    }

    /// Whether host code stored to a mapping that may only be read.
    pub(crate) fn refused_store(&self) -> bool {
        matches!(&self.watch, Some(Watch::ReadOnly(watch)) if watch.refused_store())
    }

    /// Read-only and clean again.
    pub(crate) fn rearm(&mut self) -> io::Result<()> {
        self.shared_watch().map_or(Ok(()), WriteWatch::rearm)
    }

    /// What was stored to since the last call, as ranges of bytes from the base; `None` when it was
    /// not tracked. Then tracking begins now, if the caller wants that.
    pub(crate) fn take_dirty(&mut self, begin: bool) -> io::Result<Option<Vec<Range<u64>>>> {
        if let Some(tracker) = &mut self.tracker {
            return tracker.take().map(Some);
        }
        if begin {
            self.track()?;
        }
        Ok(None)
    }

    /// Begins to track, with everything taken.
    fn track(&mut self) -> io::Result<()> {
        let mapping = Mapping { base: self.base, len: self.backed, limit: self.reserved };
        // SAFETY: the range maps the file shared as long as `self` lives, and the tracker goes
        // before it. Stores made meanwhile count as made before. Protection changes through `grow`,
        // `rearm` and `make_writable` only, which know of the tracker or only forbid, and in the
        // fault handler, which knows both.
        self.tracker = Some(unsafe { choose(mapping, None)? });
        Ok(())
    }

    /// Writable and dirty, without a fault.
    pub(crate) fn make_writable(&mut self) -> io::Result<()> {
        if let Some(tracker) = &mut self.tracker {
            tracker.make_writable(0..self.backed as u64)?;
        }
        self.shared_watch().map_or(Ok(()), WriteWatch::make_writable)
    }

    /// A range writable and dirty, without a fault. Where single pages are tracked the others stay
    /// clean, and elsewhere all of the mapping may become dirty.
    pub(crate) fn make_range_writable(&mut self, bytes: Range<u64>) -> io::Result<()> {
        match &mut self.tracker {
            Some(tracker) if tracker.kind() == DirtyMethod::Protect => {
                tracker.make_writable(bytes)?;
                if let Some(watch) = self.shared_watch() {
                    watch.mark_dirty();
                }
                Ok(())
            }
            _ => self.make_writable(),
        }
    }

    /// A private mapping is always writable and never makes the file dirty; one that may only be
    /// read never is either.
    fn shared_watch(&self) -> Option<&WriteWatch> {
        match &self.watch {
            Some(Watch::Stores(watch)) if self.private.is_none() => Some(watch),
            _ => None,
        }
    }
}

impl MappedData {
    /// Ends the mapping; the range is as the last invariant says.
    pub(crate) fn unmap(mut self) -> io::Result<()> {
        self.release()
    }

    fn release(&mut self) -> io::Result<()> {
        (self.tracker, self.private) = (None, None);
        // The watch guards the mapping; it is there exactly as long as the mapping is.
        if self.watch.take().is_none() || self.own_range.take().is_some() {
            return Ok(());
        }
        // SAFETY: the range is the caller's reservation, given to us until now; the contract of
        // `map` has no reference into it outlive us.
        unsafe { map_none_fixed(self.base, self.backed) }
    }
}

impl PageSource for MappedData {
    fn append(&self, range: Range<u64>, bytes: &mut Vec<u8>) -> io::Result<()> {
        let len = range.end - range.start;
        let found = self.image_bytes(range);
        bytes.extend_from_slice(found);
        if found.len() as u64 == len { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl Drop for MappedData {
    fn drop(&mut self) {
        // A failure leaves the file mapped in a range that its owner gives back whole sooner or
        // later.
        let _ = self.release();
    }
}

/// The data area of a file that no process writes: for readers, who hold a lock that keeps writers
/// out.
pub(crate) struct ReadOnlyData(MappedData);

impl ReadOnlyData {
    /// Maps `backed` bytes of the data area of `file`, which must be open for reading only: then
    /// not even a stray store can reach it.
    pub(crate) fn map(range: Reservation, file: &File, backed: usize) -> io::Result<ReadOnlyData> {
        MappedData::map_own(range, file, backed, (Mode::ReadOnly, Sharing::Ordinary), None)
            .map(ReadOnlyData)
    }

    /// The mapped bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `backed` bytes are mapped readable from `base` while `self` lives. The reader's
        // lock keeps every writer of ours away; a page that a stranger cuts off is replaced by a
        // readable one.
        unsafe { std::slice::from_raw_parts(self.0.base, self.0.backed) }
    }

    /// Whether the file was found shorter than the mapping.
    pub(crate) fn lost_backing(&self) -> bool {
        self.0.lost_backing()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use holdfast_sys::dirty::track;

    use super::*;

    /// A range for the kernel is writable under page protection and other pages stay clean.
    ///
    /// Guarantee: sandbox/wild-pointers
    #[test]
    fn kernel_range_is_writable_and_others_stay_clean() {
        let page = 4096;
        let file = tempfile::tempfile().unwrap();
        file.set_len(DATA_OFFSET + 16 * page).unwrap();
        let mode = (Mode::Stores(Consistency::Direct), Sharing::Ordinary);
        let backed = 16 * page as usize;
        let range = Reservation::anywhere(backed, 4096).unwrap();
        let mut mapped = MappedData::map_own(range, &file, backed, mode, None).unwrap();
        let mapping = Mapping { base: mapped.base(), len: backed, limit: backed };
        // SAFETY: the mapping made above, which lives as long as its tracker; the store and the
        // buffer lie within it, and nothing else refers to them.
        let buffer = unsafe {
            mapped.tracker = Some(track(mapping, DirtyMethod::Protect).unwrap());
            mapped.base().write_volatile(1);
            std::slice::from_raw_parts_mut(mapped.base().add(2 * page as usize), 16)
        };
        assert!(mapped.is_dirty());
        let zero = File::open("/dev/zero").unwrap();
        assert!((&zero).read(buffer).is_err(), "dirty is not yet writable");
        mapped.make_range_writable(2 * page..2 * page + 16).unwrap();
        assert_eq!((&zero).read(buffer).unwrap(), 16);
        assert_eq!(mapped.take_dirty(false).unwrap(), Some(vec![0..page, 2 * page..3 * page]));
    }
}
