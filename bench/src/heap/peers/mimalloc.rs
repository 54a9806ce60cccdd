//! mimalloc, as a Rust program calls it: volatile, and the fastest allocator there is to compare
//! with.

use std::ptr::NonNull;

use crate::heap::alloc::{Allocator, OBJECT_BYTES};

/// The allocator of this process (the process's own malloc stays what it is).
pub(crate) struct Mimalloc;

impl Allocator for Mimalloc {
    type Object = NonNull<u8>;

    #[inline]
    fn alloc(&mut self) -> Option<NonNull<u8>> {
        // SAFETY: callable at any time.
        NonNull::new(unsafe { libmimalloc_sys::mi_malloc(OBJECT_BYTES) }.cast())
    }

    #[inline]
    fn free(&mut self, object: NonNull<u8>) -> Option<()> {
        // SAFETY: allocated above, freed once.
        unsafe { libmimalloc_sys::mi_free(object.as_ptr().cast()) };
        Some(())
    }

    #[inline]
    fn at(&self, object: NonNull<u8>) -> *mut u64 {
        object.as_ptr().cast()
    }
}
