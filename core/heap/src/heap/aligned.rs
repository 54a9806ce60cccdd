//! Objects at an alignment of more than 16 bytes.
//!
//! A slot of a class whose size is a multiple of the alignment is aligned, because a chunk is; a
//! run starts at an aligned chunk; an object of whole segments starts at the alignment in its first
//! segment, which its head says. So an aligned object needs no header, and is freed and measured
//! like any other.

use core::ptr::NonNull;

use crate::backing::Backing;
use crate::classes::{CLASS_BYTES, NARROW_BYTES_MAX};
use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::{ALIGN_BYTES_MAX, CHUNK_BYTES};

/// The alignment that every object has.
const ALIGN_BYTES_MIN: u64 = 16;

impl<B: Backing> Heap<B> {
    /// As [`Heap::alloc`], at a multiple of `align_bytes`: a power of two up to
    /// [`ALIGN_BYTES_MAX`].
    ///
    /// # Errors
    /// [`HeapError::Alignment`] for any other alignment, or when the heap's first byte is aligned
    /// to less; else as [`Heap::alloc`].
    pub fn alloc_aligned(
        &mut self,
        bytes: u64,
        align_bytes: u64,
    ) -> Result<NonNull<u8>, HeapError> {
        if !align_bytes.is_power_of_two() || align_bytes > ALIGN_BYTES_MAX {
            return Err(HeapError::Alignment { align_bytes });
        }
        if align_bytes <= ALIGN_BYTES_MIN {
            return self.alloc(bytes);
        }
        if !(self.backing.base() as usize as u64).is_multiple_of(align_bytes) {
            return Err(HeapError::Alignment { align_bytes });
        }
        if bytes <= NARROW_BYTES_MAX && align_bytes <= NARROW_BYTES_MAX {
            let fitting = |slot: &u64| *slot >= bytes && slot.is_multiple_of(align_bytes);
            if let Some(slot_bytes) = CLASS_BYTES.into_iter().map(u64::from).find(fitting) {
                // No other class is tighter for that.
                return self.alloc(slot_bytes);
            }
        }
        self.alloc_large(bytes, align_bytes.max(CHUNK_BYTES))
    }

    /// As [`Heap::alloc_aligned`], with every byte zero.
    ///
    /// # Errors
    /// As [`Heap::alloc_aligned`].
    pub fn alloc_aligned_zeroed(
        &mut self,
        bytes: u64,
        align_bytes: u64,
    ) -> Result<NonNull<u8>, HeapError> {
        let pointer = self.alloc_aligned(bytes, align_bytes)?;
        self.offset_of(pointer).map(|offset| self.memory.zero(offset, bytes));
        Ok(pointer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::class_of;

    /// A class that can be aligned is found by its own size.
    #[test]
    fn alignable_class_is_found_by_its_own_size() {
        for (class, slot_bytes) in CLASS_BYTES.into_iter().enumerate() {
            if slot_bytes % 32 == 0 {
                assert_eq!(class_of(u64::from(slot_bytes)), class, "{slot_bytes}");
            }
        }
    }
}
