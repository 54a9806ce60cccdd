//! The one place that touches a heap's bytes: checked offsets in, plain loads and stores out.
//!
//! Invariants:
//! - Every access through [`Memory`] is inside `[0, len)` of a live mapping, or it returns nothing
//!   / does nothing: a damaged or hostile heap can make us read nonsense, never leave the heap.
//! - Every change of metadata is one aligned 8-byte store, done in program order (the store is
//!   atomic, and [`publish_barrier`] orders the stores around it). A process that is killed between
//!   two instructions leaves a prefix of these stores, because a shared mapping keeps what retired.
//! - Where order is kept (see `order`), such a store has reached memory when its function returns,
//!   except that of [`Memory::store_cached`], whose caller writes back.
//! - In builds with the feature `crash-points` each such store counts and can be made the last one,
//!   and a recorder hears of all that happens to cache lines.

use core::sync::atomic::{AtomicU64, Ordering, compiler_fence};

/// Bytes of a heap, by offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    base: *mut u8,
    len: u64,
    /// A reset may lose what is in caches, and must not lose the order of stores.
    ordered: bool,
}

/// Keeps the compiler from moving any store across a point that recovery relies on. A process crash
/// needs no more: what was stored stays in the shared pages. A reset of the machine needs
/// [`Memory::write_back`] as well.
#[inline(always)]
pub(crate) fn publish_barrier() {
    compiler_fence(Ordering::SeqCst);
}

impl Memory {
    /// # Safety
    /// `base` must be aligned to 8 and `[base, base + len)` valid for reads and writes for as long
    /// as the value or a copy of it is used; nothing else may write there meanwhile.
    pub(crate) unsafe fn new(base: *mut u8, len: u64) -> Memory {
        Memory { base, len, ordered: false }
    }

    /// The same memory, with or without an order that survives a reset.
    pub(crate) fn with_order(self, ordered: bool) -> Memory {
        Memory { ordered, ..self }
    }

    /// Whether order is kept. Where the processor cannot, it cannot have been asked for.
    #[inline(always)]
    pub(crate) fn is_ordered(&self) -> bool {
        cfg!(target_arch = "x86_64") && self.ordered
    }

    /// Starts the way of a range to memory, if order is kept; [`Memory::drain`] waits for it.
    #[inline]
    pub(crate) fn write_back(&self, offset: u64, bytes: u64) {
        if self.is_ordered() {
            self.write_back_lines(offset, bytes);
        }
    }

    #[inline(never)]
    fn write_back_lines(&self, offset: u64, bytes: u64) {
        if !self.holds(offset, bytes) {
            return;
        }
        #[cfg(feature = "crash-points")]
        crate::recorder::written_back(self.at(offset), bytes as usize);
        // SAFETY: inside the heap (checked), which is mapped by the contract of `new`.
        unsafe { holdfast_persist::write_back(self.at(offset), bytes as usize) };
    }

    /// Waits until all that this thread has written back is in memory, if order is kept: what is
    /// stored later does not get there before.
    #[inline]
    pub(crate) fn drain(&self) {
        if self.is_ordered() {
            #[cfg(feature = "crash-points")]
            crate::recorder::drained();
            holdfast_persist::drain();
        }
    }

    /// Brings a range to memory, if order is kept.
    #[inline]
    pub(crate) fn persist(&self, offset: u64, bytes: u64) {
        if self.is_ordered() {
            self.write_back_lines(offset, bytes);
            self.drain();
        }
    }

    /// Tells the recorder of a test of a store that has happened.
    #[inline(always)]
    fn note_stored(&self, offset: u64, bytes: u64) {
        #[cfg(feature = "crash-points")]
        crate::recorder::stored(self.at(offset), bytes as usize);
        #[cfg(not(feature = "crash-points"))]
        let _ = (offset, bytes);
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    #[inline]
    pub(crate) fn holds(&self, offset: u64, bytes: u64) -> bool {
        offset <= self.len && bytes <= self.len - offset
    }

    /// The pointer to an offset; the caller checks what it does with it.
    #[inline]
    pub(crate) fn at(&self, offset: u64) -> *mut u8 {
        self.base.wrapping_add(offset as usize)
    }

    /// Offset of a pointer into the heap.
    #[inline]
    pub(crate) fn offset_of(&self, pointer: *const u8) -> Option<u64> {
        let offset = (pointer as usize).checked_sub(self.base as usize)? as u64;
        (offset < self.len).then_some(offset)
    }

    /// Loads an aligned word; 0 outside the heap, which no valid structure contains where it
    /// matters.
    #[inline]
    pub(crate) fn load(&self, offset: u64) -> u64 {
        if !self.holds(offset, 8) || !offset.is_multiple_of(8) {
            return 0;
        }
        // SAFETY: inside the heap and aligned (checked), readable by the contract of `new`.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }.load(Ordering::Relaxed)
    }

    /// As [`Memory::load`], and what was done before the bits were cleared that it finds clear has
    /// happened.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn load_acquire(&self, offset: u64) -> u64 {
        if !self.holds(offset, 8) || !offset.is_multiple_of(8) {
            return 0;
        }
        // SAFETY: as in `load`.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }.load(Ordering::Acquire)
    }

    /// Sets bits of a word that other threads change, too; nothing happens outside the heap.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn set_bits(&self, offset: u64, bits: u64) {
        if !self.holds(offset, 8) || !offset.is_multiple_of(8) {
            return;
        }
        #[cfg(feature = "crash-points")]
        if !crate::crash_points::step() {
            return;
        }
        // SAFETY: as in `store`.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }.fetch_or(bits, Ordering::AcqRel);
        self.note_stored(offset, 8);
        self.persist(offset, 8);
    }

    /// Clears bits of a word that other threads change, too; returns the word as it was, 0 outside
    /// the heap.
    #[cfg(feature = "std")]
    #[inline]
    pub(crate) fn clear_bits(&self, offset: u64, bits: u64) -> u64 {
        if !self.holds(offset, 8) || !offset.is_multiple_of(8) {
            return 0;
        }
        #[cfg(feature = "crash-points")]
        if !crate::crash_points::step() {
            return 0;
        }
        // SAFETY: as in `store`.
        let before = unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }
            .fetch_and(!bits, Ordering::AcqRel);
        self.note_stored(offset, 8);
        self.persist(offset, 8);
        before
    }

    /// Stores an aligned word, in program order, and brings it to memory where that order must
    /// survive a reset; nothing happens outside the heap.
    #[inline]
    pub(crate) fn store(&self, offset: u64, word: u64) {
        self.store_cached(offset, word);
        self.persist(offset, 8);
    }

    /// As [`Memory::store`], but the caller writes back what must be in memory before it goes on.
    #[inline]
    pub(crate) fn store_cached(&self, offset: u64, word: u64) {
        if !self.holds(offset, 8) || !offset.is_multiple_of(8) {
            return;
        }
        #[cfg(feature = "crash-points")]
        if !crate::crash_points::step() {
            return;
        }
        publish_barrier();
        // SAFETY: inside the heap and aligned (checked), writable by the contract of `new`.
        unsafe { AtomicU64::from_ptr(self.at(offset).cast()) }.store(word, Ordering::Relaxed);
        publish_barrier();
        self.note_stored(offset, 8);
    }

    /// Loads an aligned word of a place that the caller derived from verified metadata.
    ///
    /// # Safety
    /// `pointer` must be an aligned word inside the heap.
    #[inline(always)]
    pub(crate) unsafe fn load_word(pointer: *mut u64) -> u64 {
        // SAFETY: per the contract.
        unsafe { pointer.read() }
    }

    /// Stores an aligned word in program order, without the check, and writes nothing back.
    ///
    /// # Safety
    /// `pointer` must be an aligned word inside the heap.
    #[inline(always)]
    pub(crate) unsafe fn store_word(pointer: *mut u64, word: u64) {
        #[cfg(feature = "crash-points")]
        if !crate::crash_points::step() {
            return;
        }
        // What a program does with an object before it frees it, and after it allocated it, stays
        // there.
        publish_barrier();
        // SAFETY: per the contract.
        unsafe { pointer.write_volatile(word) };
        publish_barrier();
        #[cfg(feature = "crash-points")]
        crate::recorder::stored(pointer.cast(), 8);
    }

    /// The bytes of a range, when it lies in the heap.
    ///
    /// # Safety
    /// Nothing may write to the range while the slice lives.
    #[inline]
    pub(crate) unsafe fn bytes(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        // SAFETY: inside the heap (checked), readable by the contract of `new`, unwritten by this
        // contract.
        self.holds(offset, bytes)
            .then(|| unsafe { core::slice::from_raw_parts(self.at(offset), bytes as usize) })
    }

    /// Copies inside the heap, and writes nothing back; `false` when a range is not inside or the
    /// two overlap.
    #[inline]
    pub(crate) fn copy(&self, from: u64, to: u64, bytes: u64) -> bool {
        // SAFETY: both ranges are inside the heap (checked).
        self.holds(from, bytes)
            && self.holds(to, bytes)
            && unsafe { self.copy_inside(from, to, bytes) }
    }

    /// As [`Memory::copy`], of ranges that the caller has checked; `false` when they overlap.
    ///
    /// # Safety
    /// Both ranges must be inside the heap.
    #[inline(always)]
    pub(crate) unsafe fn copy_inside(&self, from: u64, to: u64, bytes: u64) -> bool {
        if from.abs_diff(to) < bytes {
            return false;
        }
        #[cfg(feature = "crash-points")]
        if !crate::crash_points::step() {
            return true;
        }
        publish_barrier();
        // SAFETY: both ranges are inside the heap by the contract, and do not overlap (checked).
        unsafe { copy_bytes(self.at(from), self.at(to), bytes as usize) };
        publish_barrier();
        self.note_stored(to, bytes);
        true
    }

    /// Writes bytes; `false` outside the heap. Where order is kept they are on their way to memory.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> bool {
        if !self.holds(offset, bytes.len() as u64) {
            return false;
        }
        #[cfg(feature = "crash-points")]
        if !crate::crash_points::step() {
            return true;
        }
        publish_barrier();
        // SAFETY: inside the heap (checked); the slice is not part of it (callers pass names of
        // their own).
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset), bytes.len()) };
        publish_barrier();
        self.note_stored(offset, bytes.len() as u64);
        self.write_back(offset, bytes.len() as u64);
        true
    }

    /// Zeroes a range; `false` outside the heap. Where order is kept the zeroes are on their way to
    /// memory.
    #[inline]
    pub(crate) fn zero(&self, offset: u64, bytes: u64) -> bool {
        let zeroed = self.zero_cached(offset, bytes);
        if zeroed {
            self.write_back(offset, bytes);
        }
        zeroed
    }

    /// As [`Memory::zero`], but the caller writes back, if order is kept.
    #[inline]
    pub(crate) fn zero_cached(&self, offset: u64, bytes: u64) -> bool {
        if !self.holds(offset, bytes) {
            return false;
        }
        #[cfg(feature = "crash-points")]
        if !crate::crash_points::step() {
            return true;
        }
        // SAFETY: inside the heap (checked).
        unsafe { core::ptr::write_bytes(self.at(offset), 0, bytes as usize) };
        publish_barrier();
        self.note_stored(offset, bytes);
        true
    }
}

/// Copies bytes; a few without a call, by two loads and two stores that may cover some bytes both.
///
/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
#[inline(always)]
unsafe fn copy_bytes(from: *const u8, to: *mut u8, bytes: usize) {
    /// # Safety
    /// As for [`copy_bytes`], and there are at least as many bytes as a `T` has.
    #[inline(always)]
    unsafe fn copy_ends<T: Copy>(from: *const u8, to: *mut u8, bytes: usize) {
        let last = bytes - size_of::<T>();
        // SAFETY: both ends lie in the range by the contract.
        unsafe {
            let ends = (from.cast::<T>().read_unaligned(), from.add(last).cast::<T>());
            let ends = (ends.0, ends.1.read_unaligned());
            to.cast::<T>().write_unaligned(ends.0);
            to.add(last).cast::<T>().write_unaligned(ends.1);
        }
    }
    // SAFETY: the same contract.
    unsafe {
        match bytes {
            8..=16 => copy_ends::<u64>(from, to, bytes),
            17..=32 => copy_ends::<u128>(from, to, bytes),
            _ => core::ptr::copy_nonoverlapping(from, to, bytes),
        }
    }
}
