//! Zeros, asked for with care: without memory it is an error, where `vec!` would end the process.
//!
//! The allocator takes large ones fresh from the kernel, so they cost memory only where something
//! is stored to them.

#![allow(unsafe_code, reason = "the standard library has no zeroed allocation that may fail")]

use std::alloc::{Layout, alloc_zeroed};
use std::io;

/// So many zeros.
///
/// # Errors
/// `OutOfMemory`.
pub fn zeroed(bytes: usize) -> io::Result<Vec<u8>> {
    let refused = || io::Error::from(io::ErrorKind::OutOfMemory);
    let layout = Layout::array::<u8>(bytes).map_err(|_| refused())?;
    if layout.size() == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the layout has a size above zero.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return Err(refused());
    }
    // SAFETY: the global allocator gave it, with the layout of a vector of this capacity, and every
    // byte is initialised.
    Ok(unsafe { Vec::from_raw_parts(start, bytes, bytes) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What there is no memory for is an error and everything else is zeros.
    #[test]
    fn missing_memory_is_an_error_and_the_rest_zeros() {
        for bytes in [0, 1, 4096, 3 << 20] {
            assert_eq!(zeroed(bytes).unwrap(), vec![0; bytes]);
        }
        for bytes in [1 << 60, usize::MAX] {
            assert_eq!(zeroed(bytes).unwrap_err().kind(), io::ErrorKind::OutOfMemory);
        }
    }
}
