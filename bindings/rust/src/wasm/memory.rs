//! Memory of this library's own: the C library's, which Rust's own allocator uses too. An applet
//! has one linear memory, and only `malloc` knows which part of it is free.

use core::ptr::NonNull;

use super::imports;

/// Memory of zeroes.
pub(crate) fn allocate(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a C call.
    NonNull::new(unsafe { imports::calloc(bytes, 1) })
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
    let start = NonNull::new(unsafe { imports::realloc(start.as_ptr(), wanted) })?;
    // SAFETY: it has `wanted` bytes now, of which the first `bytes` came along.
    unsafe { start.as_ptr().add(bytes).write_bytes(0, wanted.saturating_sub(bytes)) };
    Some(start)
}

/// # Safety
/// As for [`resize`].
pub(crate) unsafe fn release(start: NonNull<u8>, _bytes: usize) {
    // SAFETY: per the contract.
    unsafe { imports::free(start.as_ptr()) };
}
