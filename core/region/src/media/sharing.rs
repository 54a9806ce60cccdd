//! The ways in which a part of a file is mapped: as files are, as persistent memory, privately.
//!
//! Invariant: what is mapped here replaces nothing but reserved address space (the caller's
//! contract).

#![allow(unsafe_code, reason = "maps over reserved address space")]

use std::fs::File;
use std::io;

use holdfast_sys::mapping::{Prot, map_private_fixed, map_shared_fixed, map_synchronous_fixed};

/// How a shared mapping of a file is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sharing {
    /// As files are.
    Ordinary,
    /// Its pages are persistent memory (MAP_SYNC).
    Synchronous,
}

/// Maps a range of the file, shared with `prot`, or privately and writable.
///
/// # Safety
/// As for [`map_shared_fixed`].
pub(crate) unsafe fn map_file(
    base: *mut u8,
    len: usize,
    file: &File,
    offset: u64,
    prot: Prot,
    private: bool,
    sharing: Sharing,
) -> io::Result<()> {
    // SAFETY: the caller's contract.
    unsafe {
        match sharing {
            _ if private => map_private_fixed(base, len, file, offset, Prot::ReadWrite),
            Sharing::Ordinary => map_shared_fixed(base, len, file, offset, prot),
            Sharing::Synchronous => map_synchronous_fixed(base, len, file, offset, prot),
        }
    }
}
