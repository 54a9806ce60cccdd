//! A growing array in memory of its own: the input of a call, its result, the table of exports.
//!
//! Where it lies: natively in anonymous mappings of its own, in WebAssembly in the C library's
//! `malloc`. So the library needs no allocator of the program that it is linked into, and allocates
//! nothing of a program's on a call: a buffer keeps what it has, up to [`KEPT_BYTES`], and a call
//! whose input and result fit there costs no system call.
//!
//! Invariants: `len` elements are initialised, and as bytes all that is allocated is; elements are
//! plain data, aligned to 16 at most.
//!
//! What it must not do: give up. Without memory, its functions return an error and leave the
//! content as it was.

use core::ptr::NonNull;

use crate::platform::memory;

/// What a buffer keeps between calls.
pub(crate) const KEPT_BYTES: usize = 1 << 20;
/// The first allocation.
const BYTES_MIN: usize = 4096;

/// There is no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoMemory;

/// Moves a value to memory of the library's own, where it stays until the program ends; the value,
/// if there is no memory.
///
/// # Errors
/// The value.
pub fn keep<T>(value: T) -> Result<&'static mut T, T> {
    match memory::allocate(size_of::<T>() + align_of::<T>()) {
        Some(start) => {
            // SAFETY: the memory is new, has room for the value from its first aligned byte on, is
            // not shared and is never given back.
            unsafe {
                let place = start.add(start.align_offset(align_of::<T>())).cast::<T>();
                place.write(value);
                Ok(&mut *place.as_ptr())
            }
        }
        None => Err(value),
    }
}

/// A vector that returns an error where there is no memory, and never panics.
#[derive(Debug)]
pub(crate) struct Buffer<T: Copy> {
    start: NonNull<T>,
    len: usize,
    /// Bytes that are allocated; 0 is no allocation.
    bytes: usize,
}

// SAFETY: it owns its memory, which is the process's.
unsafe impl<T: Copy + Send> Send for Buffer<T> {}

impl<T: Copy> Buffer<T> {
    pub(crate) const fn new() -> Buffer<T> {
        const { assert!(align_of::<T>() <= 16 && size_of::<T>() > 0) };
        // What is empty is aligned to 16 as well.
        Buffer { start: NonNull::without_provenance(EMPTY), len: 0, bytes: 0 }
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: `len` elements are initialised (see the module); without any, the pointer is
        // aligned and not null.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Where its memory is, how many elements are in it and how many bytes are allocated.
    pub(crate) fn into_parts(self) -> (*mut T, usize, usize) {
        let this = core::mem::ManuallyDrop::new(self);
        (this.start.as_ptr(), this.len, this.bytes)
    }

    /// A buffer of parts that [`Buffer::into_parts`] gave.
    ///
    /// # Safety
    /// No other buffer was made of them.
    pub(crate) unsafe fn from_parts((start, len, bytes): (*mut T, usize, usize)) -> Buffer<T> {
        match NonNull::new(start) {
            Some(start) => Buffer { start, len, bytes },
            None => Buffer::new(),
        }
    }

    /// Gives back what is more than a buffer keeps, content included.
    pub(crate) fn rest(&mut self) {
        self.len = 0;
        if self.bytes > KEPT_BYTES {
            self.release();
        }
    }

    fn release(&mut self) {
        if self.bytes > 0 {
            // SAFETY: it is this allocation, and nothing refers to it any more.
            unsafe { memory::release(self.start.cast(), self.bytes) };
        }
        (self.start, self.len, self.bytes) = (NonNull::without_provenance(EMPTY), 0, 0);
    }

    /// Makes room for as many more elements.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), NoMemory> {
        let needed = self
            .len
            .checked_add(more)
            .and_then(|count| count.checked_mul(size_of::<T>()))
            .ok_or(NoMemory)?;
        if needed <= self.bytes {
            return Ok(());
        }
        // At least twice as much: appending is linear in all.
        let wanted = needed.max(self.bytes.saturating_mul(2)).max(BYTES_MIN);
        let wanted = wanted.checked_next_multiple_of(BYTES_MIN).ok_or(NoMemory)?;
        let grown = match self.bytes {
            0 => memory::allocate(wanted),
            // SAFETY: it is this allocation, of that size, and no reference into it is alive.
            bytes => unsafe { memory::resize(self.start.cast(), bytes, wanted) },
        };
        self.start = grown.ok_or(NoMemory)?.cast();
        self.bytes = wanted;
        Ok(())
    }

    pub(crate) fn append(&mut self, elements: &[T]) -> Result<(), NoMemory> {
        self.reserve(elements.len())?;
        // SAFETY: there is room for them behind the `len` that are there, and a slice from
        // elsewhere does not overlap.
        unsafe {
            self.start
                .as_ptr()
                .add(self.len)
                .copy_from_nonoverlapping(elements.as_ptr(), elements.len());
        }
        self.len += elements.len();
        Ok(())
    }
}

impl Buffer<u8> {
    /// Makes it `len` bytes long; those that are new are any.
    pub(crate) fn resize(&mut self, len: usize) -> Result<&mut [u8], NoMemory> {
        self.reserve(len.saturating_sub(self.len))?;
        self.len = len;
        // SAFETY: allocated, so initialised, and borrowed from `self`.
        Ok(unsafe { core::slice::from_raw_parts_mut(self.start.as_ptr(), len) })
    }
}

/// Takes the payload of a message.
#[cfg(not(target_family = "wasm"))]
impl holdfast_channel::Sink for Buffer<u8> {
    fn begin(&mut self, bytes: usize) -> Result<(), holdfast_channel::Refused> {
        self.clear();
        self.reserve(bytes).map_err(|_| holdfast_channel::Refused)
    }

    fn next(&mut self, bytes: usize) -> Result<&mut [u8], holdfast_channel::Refused> {
        let start = self.len;
        let all = start.checked_add(bytes).ok_or(holdfast_channel::Refused)?;
        Ok(&mut self.resize(all).map_err(|_| holdfast_channel::Refused)?[start..])
    }
}

impl core::fmt::Write for Buffer<u8> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.append(text.as_bytes()).map_err(|_| core::fmt::Error)
    }
}

impl<T: Copy> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.release();
    }
}

/// The address of what is empty.
const EMPTY: core::num::NonZeroUsize = core::num::NonZeroUsize::new(16).unwrap();

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer grows, keeps its content and returns large memory.
    #[test]
    fn buffer_grows_and_returns_large_memory() {
        let mut buffer = Buffer::<u8>::new();
        assert_eq!((buffer.as_slice(), buffer.as_slice().as_ptr().addr() % 16), (&[][..], 0));
        for index in 0..100_000u32 {
            buffer.append(&index.to_le_bytes()).unwrap();
        }
        let right = |(index, bytes): (usize, &[u8])| bytes == (index as u32).to_le_bytes();
        assert!(buffer.as_slice().chunks(4).enumerate().all(right));
        let bytes = buffer.bytes;
        buffer.rest();
        assert_eq!((buffer.len(), buffer.bytes), (0, bytes), "it is kept");
        assert_eq!(buffer.resize(KEPT_BYTES + 1).unwrap().len(), KEPT_BYTES + 1);
        buffer.rest();
        assert_eq!((buffer.len(), buffer.bytes), (0, 0));
    }

    /// Reserving more memory than can exist is an error and leaves the buffer unchanged.
    #[test]
    fn impossible_reserve_changes_nothing() {
        let mut buffer = Buffer::<u8>::new();
        buffer.append(b"content").unwrap();
        for more in [usize::MAX, usize::MAX - 7, 1 << 60] {
            assert_eq!(buffer.reserve(more), Err(NoMemory));
        }
        assert_eq!(buffer.as_slice(), b"content");
    }
}
