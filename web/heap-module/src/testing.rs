//! A portable heap in plain memory, for tests.

use holdfast_heap::{Backing, GrowError, Heap, OpenOptions, Pointers};

use crate::map::MapKinds;

/// From text to bytes.
pub(crate) const KINDS: MapKinds = MapKinds { key: 2, value: 1, value_layout: 0 };

/// Zeroes, aligned to 16.
pub(crate) struct Memory(Box<[u128]>);

// SAFETY: the box is aligned to 16 bytes, never moves its content and never shrinks, and nothing
// else refers to it.
unsafe impl Backing for Memory {
    fn base(&self) -> *mut u8 {
        self.0.as_ptr().cast_mut().cast()
    }

    fn backed_bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    fn limit_bytes(&self) -> u64 {
        self.backed_bytes()
    }

    fn grow(&mut self, _bytes: u64) -> Result<u64, GrowError> {
        Err(GrowError::LimitReached { limit_bytes: self.limit_bytes() })
    }
}

/// A new heap of so many bytes.
pub(crate) fn heap(bytes: usize) -> Heap<Memory> {
    let memory = Memory(vec![0; bytes / size_of::<u128>()].into());
    let options = OpenOptions { pointers: Some(Pointers::PORTABLE), format_if_empty: true };
    Heap::open(memory, options).unwrap()
}
