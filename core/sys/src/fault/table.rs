//! The table of watched ranges: fixed, so that a signal handler can read it at any moment.
//!
//! Invariants: a slot is live only while its `kind` says so; `kind` is stored last and cleared
//! first; between claim and release only the slot's owner and the handler write to it.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};

use super::Notify;
use super::handler::SCRATCH_BYTES;
use crate::page_set::PageSet;

/// How many ranges can be watched at once in a process; a linear memory uses up to six.
pub(super) const SLOTS: usize = 4096;

pub(super) const FREE: u32 = 0;
pub(super) const CLAIMED: u32 = 1;
pub(super) const WRITE_WATCH: u32 = 2;
pub(super) const HOLE: u32 = 3;
pub(super) const CODE: u32 = 4;
pub(super) const PAGE_WATCH: u32 = 5;
pub(super) const READ_WATCH: u32 = 6;

pub(super) struct Slot {
    pub(super) kind: AtomicU32,
    pub(super) start: AtomicUsize,
    pub(super) end: AtomicUsize,
    /// `WRITE_WATCH`: a store happened. `HOLE`: host code touched the hole. `READ_WATCH`: host code
    /// stored to it.
    pub(super) touched: AtomicBool,
    /// `WRITE_WATCH`, `READ_WATCH`: the file behind the mapping was shorter than the mapping.
    pub(super) lost: AtomicBool,
    /// `HOLE`, `READ_WATCH`: where the memory starts that stands in under host accesses; 0 is none.
    pub(super) scratch: AtomicUsize,
    pub(super) notify: AtomicPtr<Notify>,
    /// `PAGE_WATCH`: what was stored to.
    pub(super) pages: AtomicPtr<PageSet>,
    /// `PAGE_WATCH`: first stores since the set was emptied.
    pub(super) runs: AtomicU32,
    /// `PAGE_WATCH`: which of the counters handlers use now (its lowest bit).
    pub(super) phase: AtomicUsize,
    /// `PAGE_WATCH`: handlers at work on this slot.
    pub(super) in_flight: [AtomicU32; 2],
}

impl Slot {
    const fn new() -> Self {
        Slot {
            kind: AtomicU32::new(FREE),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            touched: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            scratch: AtomicUsize::new(0),
            notify: AtomicPtr::new(std::ptr::null_mut()),
            pages: AtomicPtr::new(std::ptr::null_mut()),
            runs: AtomicU32::new(0),
            phase: AtomicUsize::new(0),
            in_flight: [const { AtomicU32::new(0) }; 2],
        }
    }

    pub(super) fn holds(&self, address: usize) -> bool {
        self.start.load(Ordering::Acquire) <= address && address < self.end.load(Ordering::Acquire)
    }
}

pub(super) static TABLE: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
/// Slots at and past this index were never used: bounds the handler's look-up.
pub(super) static HIGH_WATER: AtomicUsize = AtomicUsize::new(0);

/// Memory that stands in under host accesses. It is made before anything can fault, because then it
/// may be too late: no descriptor and no file is behind it, so neither a full table of descriptors
/// nor a limit of file sizes matters.
pub(super) struct Scratch(usize);

impl Scratch {
    pub(super) fn new() -> io::Result<Scratch> {
        // Shared, so that the handler can map the same pages again elsewhere.
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), SCRATCH_BYTES, prot, flags, -1, 0)
        };
        if start == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Scratch(start as usize))
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, which only the handler looks at, for ranges that are
        // watched no more; what it mapped elsewhere keeps its pages. A failure would leave address
        // space in use, no more.
        unsafe { libc::munmap(std::ptr::with_exposed_provenance_mut(self.0), SCRATCH_BYTES) };
    }
}

/// A claimed slot; released on drop.
pub(super) struct Claim(pub(super) &'static Slot);

impl Claim {
    pub(super) fn new(kind: u32, range: Range<usize>, notify: Option<Notify>) -> io::Result<Claim> {
        Claim::over_scratch(kind, range, notify, None)
    }

    /// The same, with memory that the handler may put under host accesses.
    pub(super) fn over_scratch(
        kind: u32,
        range: Range<usize>,
        notify: Option<Notify>,
        scratch: Option<Scratch>,
    ) -> io::Result<Claim> {
        let notify = notify.map_or(std::ptr::null_mut(), |f| Box::into_raw(Box::new(f)));
        let address = scratch.as_ref().map_or(0, |scratch| scratch.0);
        let claim = Claim::with(kind, range, notify, std::ptr::null_mut(), address);
        if claim.is_ok() {
            // The slot's from now on.
            std::mem::forget(scratch);
        } else if !notify.is_null() {
            // SAFETY: made above, and no slot has it.
            drop(unsafe { Box::from_raw(notify) });
        }
        claim
    }

    /// A `PAGE_WATCH` over the range. The caller keeps the set until the claim is dropped.
    pub(super) fn on_pages(range: Range<usize>, pages: &Arc<PageSet>) -> io::Result<Claim> {
        Claim::with(PAGE_WATCH, range, std::ptr::null_mut(), Arc::as_ptr(pages).cast_mut(), 0)
    }

    fn with(
        kind: u32,
        range: Range<usize>,
        notify: *mut Notify,
        pages: *mut PageSet,
        scratch: usize,
    ) -> io::Result<Claim> {
        for (index, slot) in TABLE.iter().enumerate() {
            if slot
                .kind
                .compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
                .is_err()
            {
                continue;
            }
            slot.start.store(range.start, Ordering::Release);
            slot.end.store(range.end, Ordering::Release);
            slot.touched.store(false, Ordering::Release);
            slot.lost.store(false, Ordering::Release);
            slot.notify.store(notify, Ordering::Release);
            slot.pages.store(pages, Ordering::Release);
            slot.scratch.store(scratch, Ordering::Release);
            slot.runs.store(0, Ordering::Release);
            HIGH_WATER.fetch_max(index + 1, Ordering::AcqRel);
            slot.kind.store(kind, Ordering::Release);
            return Ok(Claim(slot));
        }
        Err(io::Error::other(format!(
            "{SLOTS} memory ranges are watched already; close some regions or applets first"
        )))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.kind.store(CLAIMED, Ordering::Release);
        let notify = self.0.notify.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !notify.is_null() {
            // SAFETY: the pointer came from Box::into_raw in `Claim::new`, was swapped out here
            // once, and the handler reads it only for faults in this range, whose owner is being
            // dropped.
            drop(unsafe { Box::from_raw(notify) });
        }
        let scratch = self.0.scratch.swap(0, Ordering::AcqRel);
        if scratch != 0 {
            drop(Scratch(scratch));
        }
        self.0.pages.store(std::ptr::null_mut(), Ordering::Release);
        self.0.start.store(0, Ordering::Release);
        self.0.end.store(0, Ordering::Release);
        self.0.kind.store(FREE, Ordering::Release);
    }
}
