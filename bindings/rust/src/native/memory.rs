//! Memory of this library's own: anonymous mappings, so that it works in a program with any
//! allocator, or none.

use core::ptr::{NonNull, null_mut};

use rustix::mm::{MapFlags, MremapFlags, ProtFlags, mmap_anonymous, mremap, munmap};

/// Memory of zeroes.
pub(crate) fn allocate(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new mapping, where nothing is.
    let start = unsafe {
        mmap_anonymous(null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    start.ok().and_then(|start| NonNull::new(start.cast()))
}

/// Makes memory larger, by zeroes, and perhaps gives it another place. As it was, if that fails.
///
/// # Safety
/// It must come from here with `bytes`, and nothing may refer to it.
pub(crate) unsafe fn resize(
    start: NonNull<u8>,
    bytes: usize,
    wanted: usize,
) -> Option<NonNull<u8>> {
    // SAFETY: per the contract.
    let start = unsafe { mremap(start.as_ptr().cast(), bytes, wanted, MremapFlags::MAYMOVE) };
    start.ok().and_then(|start| NonNull::new(start.cast()))
}

/// # Safety
/// As for [`resize`].
pub(crate) unsafe fn release(start: NonNull<u8>, bytes: usize) {
    // SAFETY: per the contract. What cannot be unmapped stays, which does no harm.
    let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
}
