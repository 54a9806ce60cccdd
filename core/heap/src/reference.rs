//! References: where an object lies in its own heap, in 4 bytes that mean the same to every program
//! and at every address. A *portable* heap holds these where others hold pointers.
//!
//! Invariants:
//! - A reference counts units of 8 bytes from the heap's first byte, and 0 leads nowhere: there the
//!   superblock lies. So a heap of 32 GiB is reached, and any place in it that is aligned to 8.
//! - Nothing here looks at memory: what a reference leads to is believed by the code that follows
//!   it.
//!
//! Why units of 8 bytes: processors add a scaled index while they load, so following a reference is
//! one instruction, as following a pointer is. Units of 16 reach twice as far and cost one more.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::NonNull;

/// Bytes of the unit that references count.
pub const REF_UNIT_BYTES: u64 = 8;
/// What references reach: no object of a portable heap lies beyond.
pub const REF_REACH_BYTES: u64 = REF_UNIT_BYTES << u32::BITS;

/// A reference to one `T`, or to the first of several, in the heap that it lies in; or none.
///
/// As bytes it is a little-endian `u32`, in C an `NV_REF(T)`, in C++ a `holdfast::ref<T>`, in
/// Python a `holdfast.Ref`.
#[repr(transparent)]
pub struct Ref<T> {
    units: u32,
    to: PhantomData<fn() -> T>,
}

impl<T> Ref<T> {
    /// The reference that leads nowhere.
    #[must_use]
    pub const fn null() -> Ref<T> {
        Ref { units: 0, to: PhantomData }
    }

    /// The reference to what lies at this offset from the heap's first byte; `None` for an offset
    /// that is no multiple of 8, or beyond [`REF_REACH_BYTES`]. The offset 0 is none.
    #[must_use]
    pub const fn at(offset: u64) -> Option<Ref<T>> {
        if offset.is_multiple_of(REF_UNIT_BYTES) && offset < REF_REACH_BYTES {
            Some(Ref { units: (offset / REF_UNIT_BYTES) as u32, to: PhantomData })
        } else {
            None
        }
    }

    /// Where it leads, as an offset from the heap's first byte; 0 where it leads nowhere.
    #[must_use]
    pub const fn offset(self) -> u64 {
        self.units as u64 * REF_UNIT_BYTES
    }

    /// Whether it leads nowhere.
    #[must_use]
    pub const fn is_null(self) -> bool {
        self.units == 0
    }

    /// Where it leads in the heap that begins at `base`. It is as good as the bytes that it was
    /// read from: [`Heap::target`](crate::Heap::target) looks whether it leads to an object.
    #[inline(always)]
    #[must_use]
    pub fn target(self, base: HeapBase) -> Option<NonNull<T>> {
        if self.units == 0 {
            return None;
        }
        // In WebAssembly a damaged reference may lead further than there are addresses.
        let pointer = base.0.as_ptr().wrapping_add(usize::try_from(self.offset()).ok()?);
        // A second look, at what was added up, would cost as much as the addition.
        #[cfg(target_pointer_width = "64")]
        // SAFETY: a heap is a mapping of this program, in the lower half of the addresses, so that
        // less than 32 GiB more do not lead around to 0.
        return Some(unsafe { NonNull::new_unchecked(pointer.cast()) });
        #[cfg(not(target_pointer_width = "64"))]
        NonNull::new(pointer.cast())
    }

    /// The same reference, to another type.
    #[must_use]
    pub const fn cast<U>(self) -> Ref<U> {
        Ref { units: self.units, to: PhantomData }
    }
}

impl<T> Clone for Ref<T> {
    fn clone(&self) -> Ref<T> {
        *self
    }
}

impl<T> Copy for Ref<T> {}

impl<T> Default for Ref<T> {
    fn default() -> Ref<T> {
        Ref::null()
    }
}

impl<T> PartialEq for Ref<T> {
    fn eq(&self, other: &Ref<T>) -> bool {
        self.units == other.units
    }
}

impl<T> Eq for Ref<T> {}

impl<T> fmt::Debug for Ref<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ref({:#x})", self.offset())
    }
}

/// The first byte of an open heap, from which references count. It stays where it is for as long as
/// the heap is open, and is another one in another run or program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapBase(NonNull<u8>);

impl HeapBase {
    pub(crate) const fn new(first: NonNull<u8>) -> HeapBase {
        HeapBase(first)
    }

    /// The first byte.
    #[must_use]
    pub const fn as_ptr(self) -> *mut u8 {
        self.0.as_ptr()
    }

    /// The reference to what a pointer into the heap leads to; `None` for one that leads before
    /// the heap, beyond [`REF_REACH_BYTES`], or to a place that is not aligned to 8.
    #[inline]
    #[must_use]
    pub fn reference<T>(self, target: NonNull<T>) -> Option<Ref<T>> {
        let offset = target.addr().get().checked_sub(self.0.addr().get())?;
        Ref::at(offset as u64).filter(|reference| !reference.is_null())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reference leads back to where it was made, wherever the heap lies, up to 32 GiB and no
    /// further.
    #[test]
    fn reference_leads_back_up_to_its_reach() {
        for offset in [8, 16, 65_536, 1 << 32, REF_REACH_BYTES - 8] {
            let reference: Ref<u64> = Ref::at(offset).unwrap();
            assert_eq!((reference.offset(), reference.is_null()), (offset, false));
        }
        for offset in [1, 4, 12, REF_REACH_BYTES, u64::MAX - 7] {
            assert_eq!(Ref::<u8>::at(offset), None, "{offset}");
        }
        assert_eq!(REF_REACH_BYTES, 32 << 30);
        let mut words = [0_u64; 4];
        let base = HeapBase::new(NonNull::from(&mut words).cast());
        // SAFETY: inside of the array.
        let third = unsafe { NonNull::new_unchecked(base.as_ptr().cast::<u64>().add(2)) };
        let reference = base.reference(third).unwrap();
        assert_eq!((reference.offset(), reference.target(base)), (16, Some(third)));
        let first = NonNull::from(&mut words).cast::<u64>();
        assert_eq!(base.reference(first), None, "the first byte is no object");
        assert_eq!(Ref::<u64>::null().target(base), None);
        assert_eq!(size_of::<Option<Ref<u64>>>(), 8, "an option would be another layout");
    }
}
