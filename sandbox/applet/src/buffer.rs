//! Memory that host and applet share, so that large data need not be copied.
//!
//! Invariant: the applet may write to a buffer at any time, also while no caller calls it; so bytes
//! are copied in and out here, and no reference to them is made. What the host decides on, it
//! copies first.
#![forbid(unsafe_code)]

use std::sync::Arc;

use holdfast_channel::layout::Handle;
use holdfast_channel::{BufferError, ChannelMemory};

use crate::error::CallError;

/// A buffer of one applet, zeroed when it is made, freed when it is dropped. It outlives the
/// applet, but a started-anew applet does not know it.
#[derive(Debug)]
pub struct SharedBuffer {
    buffer: holdfast_channel::ArenaBuffer,
    memory: Arc<ChannelMemory>,
}

/// A part of an applet's shared memory, as the applet named it: somewhere in there, nothing more is
/// known of it. Ask [`SharedBuffer::locate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part(Handle);

impl Part {
    pub(crate) fn of(handle: Handle) -> Option<Part> {
        (handle.bytes > 0).then_some(Part(handle))
    }
}

impl SharedBuffer {
    pub(crate) fn new(
        memory: &Arc<ChannelMemory>,
        bytes: usize,
    ) -> Result<SharedBuffer, CallError> {
        let asked_bytes = bytes as u64;
        let buffer = memory
            .buffer(asked_bytes)
            .map_err(|error| CallError::NoBuffer { asked_bytes, reason: error.to_string() })?;
        Ok(SharedBuffer { buffer, memory: memory.clone() })
    }

    /// How to name it to the applet that has this memory.
    pub(crate) fn handle_in(&self, memory: &Arc<ChannelMemory>) -> Result<Handle, CallError> {
        if Arc::ptr_eq(&self.memory, memory) {
            Ok(self.buffer.handle())
        } else {
            Err(CallError::ForeignBuffer)
        }
    }

    /// Its bytes; at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a buffer is never empty")]
    pub fn len(&self) -> usize {
        self.buffer.len() as usize
    }

    /// Copies bytes into the buffer.
    ///
    /// # Errors
    /// `OutOfRange`; nothing was copied then.
    pub fn write(&self, at: usize, bytes: &[u8]) -> Result<(), BufferError> {
        self.buffer.copy_in(at as u64, bytes)
    }

    /// Copies bytes out of the buffer. What the applet stores meanwhile may be among them or not.
    ///
    /// # Errors
    /// `OutOfRange`; nothing was copied then.
    pub fn read(&self, at: usize, bytes: &mut [u8]) -> Result<(), BufferError> {
        self.buffer.copy_out(at as u64, bytes)
    }

    /// A copy of all of it.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len()];
        // It is all of the buffer, so it is in range.
        let _ = self.read(0, &mut bytes);
        bytes
    }

    /// Where in this buffer a part lies that the applet has named; `None` if it is not a part of
    /// this buffer.
    #[must_use]
    pub fn locate(&self, part: Part) -> Option<std::ops::Range<usize>> {
        self.buffer.locate(part.0).map(|range| range.start as usize..range.end as usize)
    }

    /// The first byte, mapped for loads and stores as long as the buffer lives. The applet may
    /// store there at any time: use atomic or volatile accesses, or what is indifferent to that (a
    /// system call, another language's view).
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.buffer.as_ptr()
    }
}
