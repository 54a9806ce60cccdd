//! The floor of large data: two processes that hand two buffers to and fro by words on which they
//! spin, and copy into and out of them as the standard library does.

use std::io;
use std::ptr::copy_nonoverlapping;
use std::sync::atomic::{AtomicU64, Ordering};

use holdfast_sys::shared_memory::SharedMemory;

use super::channel::PIECE_BYTES;
use super::other_side::{OtherSide, descriptor};
use super::processors::Placement;
use crate::race::bursts;

pub(crate) const ROLE: &str = "memcpy";
/// Each word on a line of its own; the buffers follow.
const WRITTEN: usize = 0;
const READ: usize = 256;
const BUFFERS: usize = 4096;
/// The page of the words, and two buffers.
const BYTES: usize = BUFFERS + 2 * PIECE_BYTES;

struct Copies {
    memory: SharedMemory,
}

impl Copies {
    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: inside of the page, aligned, mapped as long as the value, and only touched
        // atomically.
        unsafe { AtomicU64::from_ptr(self.memory.base().add(at).cast().as_ptr()) }
    }

    fn buffer(&self, piece: u64) -> *mut u8 {
        // SAFETY: inside of the mapping.
        unsafe { self.memory.base().add(BUFFERS + (piece % 2) as usize * PIECE_BYTES).as_ptr() }
    }

    fn wait(&self, at: usize, until: u64) {
        while self.word(at).load(Ordering::Acquire) < until {
            std::hint::spin_loop();
        }
    }
}

/// The side that writes.
pub(crate) struct Writer {
    copies: Copies,
    written: u64,
    source: Vec<u8>,
    other: OtherSide,
}

impl Writer {
    pub(crate) fn start() -> io::Result<Writer> {
        let memory = SharedMemory::create("holdfast-bench", BYTES as u64)?;
        memory.back(0..BYTES as u64)?;
        let other = OtherSide::start(ROLE, memory.descriptor()?)?;
        Ok(Writer { copies: Copies { memory }, written: 0, source: vec![7; PIECE_BYTES], other })
    }

    /// Gigabytes a second, of a burst of pieces in the middle.
    pub(crate) fn gigabytes_per_s(&mut self, place: Placement, pieces: u32) -> io::Result<f64> {
        let _kept = place.hold(self.other.pid())?;
        let us = bursts(pieces, || {
            // SAFETY: the other side reads the buffer after the next that it was told of, and this
            // one it has read: it has read all but one.
            unsafe {
                copy_nonoverlapping(
                    self.source.as_ptr(),
                    self.copies.buffer(self.written),
                    PIECE_BYTES,
                );
            }
            self.copies.wait(READ, self.written);
            self.written += 1;
            self.copies.word(WRITTEN).store(self.written, Ordering::Release);
            Ok(())
        })?;
        Ok(PIECE_BYTES as f64 / 1e3 / us)
    }
}

pub(crate) fn serve() -> io::Result<()> {
    let copies = Copies { memory: SharedMemory::open(descriptor()?)? };
    let mut piece = vec![0; PIECE_BYTES];
    for read in 0.. {
        copies.wait(WRITTEN, read + 1);
        // SAFETY: the other process writes to the other buffer until `READ` says that this one was
        // read.
        unsafe { copy_nonoverlapping(copies.buffer(read), piece.as_mut_ptr(), PIECE_BYTES) };
        std::hint::black_box(&piece);
        copies.word(READ).store(read + 1, Ordering::Release);
    }
    Ok(())
}
