//! Memory that an applet shares with its host: a range of a file in memory, mapped below the place of the heap, in which
//! the host makes buffers. Nothing is copied on the way.
//!
//! Invariants: the file cannot shrink, and has all of the range; the applet sees this range of it and no other.
//! What the applet may write to at any time is never looked at twice by whoever trusts what it saw.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use holdfast_channel::{Handle, Header};
use holdfast_sys::file;

use crate::error::WasmError;
use crate::layout::{HEAP_BASE, WASM_PAGE_BYTES};

/// The largest arena: half of what lies below the heap.
pub const ARENA_BYTES_MAX: u64 = HEAP_BASE / 2;

/// A range of a file in memory to be shared with one applet: see [`RunOptions::arena`](crate::RunOptions).
#[derive(Debug, Clone)]
pub struct Arena {
    pub(crate) file: Arc<File>,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

impl Arena {
    /// Takes a range of a file that is sealed against shrinking (`F_SEAL_SHRINK`): `bytes` from `offset`. Both are multiples
    /// of 64 KiB and of a page, respectively.
    ///
    /// # Errors
    /// [`WasmError::Arena`], for a file or a range that cannot be shared.
    pub fn new(descriptor: OwnedFd, offset: u64, bytes: u64) -> Result<Arena, WasmError> {
        let refused = |reason: &str| Err(WasmError::Arena { reason: reason.to_owned() });
        let file = File::from(descriptor);
        if bytes == 0 || !bytes.is_multiple_of(WASM_PAGE_BYTES) || bytes > ARENA_BYTES_MAX {
            return refused("its size is no multiple of 64 KiB, or more than 1 GiB");
        }
        if !offset.is_multiple_of(PAGE_BYTES) {
            return refused("it does not begin with a page of its file");
        }
        let facts = file.metadata().and_then(|facts| Ok((facts.len(), file::cannot_shrink(&file)?)));
        match facts {
            Err(error) => refused(&format!("its file cannot be looked at: {error}")),
            Ok((_, false)) => refused("its file can shrink; seal it (F_SEAL_SHRINK)"),
            Ok((len, true)) if offset.checked_add(bytes).is_none_or(|end| end > len) => {
                refused("its file is too short")
            }
            Ok(_) => Ok(Arena { file: Arc::new(file), offset, bytes }),
        }
    }

    /// Size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The alignment of a mapping, on all platforms that this crate supports.
const PAGE_BYTES: u64 = 4096;

/// Whether `part` lies in an arena of `bytes`.
pub(crate) fn holds(bytes: u64, part: Handle) -> bool {
    part.offset.checked_add(part.bytes).is_some_and(|end| end <= bytes)
}

/// The part of the arena that a header of a call or a chunk names, if it names one.
pub(crate) fn part_of(header: &Header) -> Option<Handle> {
    (header.b > 0).then_some(Handle { offset: header.a, bytes: header.b })
}
