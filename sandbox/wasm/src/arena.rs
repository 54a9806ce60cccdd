//! Memory that an applet shares with its host: a range of a file in memory, mapped below the place
//! of the heap, in which the host makes buffers. Nothing is copied on the way.
//!
//! Invariants: the file cannot shrink, and has all of the range; the applet sees this range of it
//! and no other. The host's own accesses to it through the linear memory are copies, made once.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use holdfast_channel::layout::PAGE_BYTES;
use holdfast_channel::{Handle, Header};
use holdfast_sys::fault::WriteWatch;
use holdfast_sys::file;
use holdfast_sys::mapping::{self, Prot};

use crate::error::WasmError;
use crate::heap_link::StopApplet;
use crate::layout::{HEAP_BASE, WASM_PAGE_BYTES};

/// The largest arena: half of what lies below the heap.
pub const ARENA_BYTES_MAX: u64 = HEAP_BASE / 2;

/// A range of a file in memory to be shared with one applet: see
/// [`RunOptions::arena`](crate::RunOptions).
#[derive(Debug, Clone)]
pub struct BufferArena {
    file: Arc<File>,
    offset: u64,
    bytes: u64,
}

impl BufferArena {
    /// Takes a range of a file that is sealed against shrinking (`F_SEAL_SHRINK`): `bytes` from
    /// `offset`. Both are multiples of 64 KiB and of a page, respectively.
    ///
    /// # Errors
    /// [`WasmError::Arena`], for a file or a range that cannot be shared.
    pub fn new(descriptor: OwnedFd, offset: u64, bytes: u64) -> Result<BufferArena, WasmError> {
        let refused = |reason: &str| Err(WasmError::Arena { reason: reason.to_owned() });
        let file = File::from(descriptor);
        if bytes == 0 || !bytes.is_multiple_of(WASM_PAGE_BYTES) || bytes > ARENA_BYTES_MAX {
            return refused("its size is no multiple of 64 KiB, or more than 1 GiB");
        }
        if !offset.is_multiple_of(PAGE_BYTES) {
            return refused("it does not begin with a page of its file");
        }
        let facts =
            file.metadata().and_then(|facts| Ok((facts.len(), file::cannot_shrink(&file)?)));
        match facts {
            Err(error) => refused(&format!("its file cannot be looked at: {error}")),
            Ok((_, false)) => refused("its file can shrink; seal it (F_SEAL_SHRINK)"),
            Ok((len, true)) if offset.checked_add(bytes).is_none_or(|end| end > len) => {
                refused("its file is too short")
            }
            Ok(_) => Ok(BufferArena { file: Arc::new(file), offset, bytes }),
        }
    }

    /// Size.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// An arena that is mapped right below [`HEAP_BASE`]. The mapping goes with the linear memory's
/// address space.
pub(crate) struct MappedArena {
    watch: WriteWatch,
    bytes: u64,
}

impl MappedArena {
    /// Maps it.
    ///
    /// # Safety
    /// `base` must start a reservation that covers [`HEAP_BASE`], in which the arena's place is
    /// inaccessible and not in use; it must outlive the value. `stop` must be async-signal-safe.
    pub(crate) unsafe fn map(
        base: *mut u8,
        arena: &BufferArena,
        stop: StopApplet,
    ) -> io::Result<MappedArena> {
        let (address, len) = (place(base, arena.bytes), arena.bytes as usize);
        // SAFETY: the place is the caller's and not in use, and the watch ends before the
        // reservation. It lets the mapping become writable at once: it is there for pages that the
        // machine has no memory for.
        let watched = unsafe {
            mapping::map_shared_fixed(address, len, &*arena.file, arena.offset, Prot::Read)
                .and_then(|()| WriteWatch::new(address, len, Some(stop)))
                .and_then(|watch| watch.make_writable().map(|()| watch))
        };
        match watched {
            Ok(watch) => Ok(MappedArena { watch, bytes: arena.bytes }),
            Err(error) => {
                // SAFETY: as above. The memory ends below, so nothing may be accessible there.
                unsafe { mapping::map_none_fixed(address, len)? };
                Err(error)
            }
        }
    }

    /// Takes it out of the memory again.
    ///
    /// # Safety
    /// `base` as it was mapped, and nothing may use the arena.
    pub(crate) unsafe fn unmap(self, base: *mut u8) -> io::Result<()> {
        let (address, len) = (place(base, self.bytes), self.bytes as usize);
        drop(self.watch);
        // SAFETY: the caller's contract.
        unsafe { mapping::map_none_fixed(address, len) }
    }

    /// Whether the machine had no memory for one of its pages: what is there now belongs to no one.
    pub(crate) fn is_lost(&self) -> bool {
        self.watch.lost_backing()
    }
}

fn place(base: *mut u8, arena_bytes: u64) -> *mut u8 {
    base.wrapping_add((HEAP_BASE - arena_bytes) as usize)
}

/// Whether `part` lies in an arena of `bytes`.
pub(crate) fn holds(bytes: u64, part: Handle) -> bool {
    part.offset.checked_add(part.bytes).is_some_and(|end| end <= bytes)
}

/// The part of the arena that a header of a call or a chunk names, if it names one.
pub(crate) fn part_of(header: &Header) -> Option<Handle> {
    (header.b > 0).then_some(Handle { offset: header.a, bytes: header.b })
}
