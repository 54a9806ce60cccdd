//! What a heap says of references into it, and how far a portable heap may grow.
//!
//! Invariant: every object of a portable heap lies where a reference reaches.

use core::ptr::NonNull;

use crate::backing::Backing;
use crate::error::{GrowError, HeapError};
use crate::heap::Heap;
use crate::portable::Portable;
use crate::reference::{HeapBase, REF_REACH_BYTES, Ref};

impl<B: Backing> Heap<B> {
    /// Whether it holds references, and no pointers.
    #[must_use]
    pub fn is_portable(&self) -> bool {
        self.pointers().is_portable()
    }

    /// From where its references count; `None` for a heap at the address 0, which there is not.
    #[must_use]
    pub fn base(&self) -> Option<HeapBase> {
        NonNull::new(self.memory.at(0)).map(HeapBase::new)
    }

    /// Allocates a `T` of zeroes; in an open transaction it belongs to that.
    ///
    /// # Errors
    /// As [`Heap::alloc`]; [`HeapError::Alignment`].
    pub fn alloc_ref<T: Portable>(&mut self) -> Result<Ref<T>, HeapError> {
        self.alloc_refs(1)
    }

    /// Allocates `length` values `T` of zeroes that follow each other; the reference leads to the
    /// first.
    ///
    /// # Errors
    /// As [`Heap::alloc_ref`].
    pub fn alloc_refs<T: Portable>(&mut self, length: u64) -> Result<Ref<T>, HeapError> {
        let wanted = (size_of::<T>() as u64).checked_mul(length);
        let bytes = wanted.ok_or_else(|| self.limit_reached(u64::MAX))?;
        let pointer = self.alloc_aligned_zeroed(bytes, align_of::<T>() as u64)?;
        self.reference(pointer.cast())
    }

    /// The reference to what a pointer into this heap leads to.
    ///
    /// # Errors
    /// [`HeapError::OutsideHeap`] for a pointer that leads elsewhere, beyond 32 GiB, or to a place
    /// that is not aligned to 8.
    pub fn reference<T>(&self, target: NonNull<T>) -> Result<Ref<T>, HeapError> {
        let offset = self.offset_of(target.cast()).ok_or(HeapError::OutsideHeap)?;
        Ref::at(offset).filter(|found| !found.is_null()).ok_or(HeapError::OutsideHeap)
    }

    /// Where a reference leads, if an allocated object with room for a `T` begins there: for
    /// references that are not to be believed. [`Ref::target`] is the short way.
    ///
    /// # Errors
    /// [`HeapError::BadReference`].
    pub fn target<T: Portable>(&self, reference: Ref<T>) -> Result<NonNull<T>, HeapError> {
        let offset = reference.offset();
        let bad = HeapError::BadReference { offset };
        let place = self.place(offset).ok_or(bad)?;
        let pointer = NonNull::new(self.memory.at(offset)).ok_or(bad)?.cast::<T>();
        let fits = place.usable_bytes() >= size_of::<T>() as u64 && pointer.is_aligned();
        fits.then_some(pointer).ok_or(bad)
    }

    /// How far the heap may grow.
    pub(crate) fn limit_bytes(&self) -> u64 {
        let limit_bytes = self.backing.limit_bytes();
        if self.is_portable() { limit_bytes.min(REF_REACH_BYTES) } else { limit_bytes }
    }

    /// Why it grows no further.
    pub(crate) fn limit_cause(&self) -> GrowError {
        let limit_bytes = self.backing.limit_bytes();
        match self.is_portable() && limit_bytes >= REF_REACH_BYTES {
            true => GrowError::OutOfReach,
            false => GrowError::LimitReached { limit_bytes },
        }
    }
}
