//! One call by the host, as the exported function sees it.
//!
//! Invariants: the result is sent when the function has returned, so the host never sees an applet
//! as done that still works; the shared buffer is read and written through raw pointers, because
//! the host can store to it at any time.

use core::fmt::{self, Display, Write};
use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::buffer::Buffer;
use crate::failure::Failure;
use crate::keeper::HeapKeeper;
use crate::region::Heap;
use crate::transport::{Transport, TransportError};
use holdfast_channel::Handle;
use holdfast_channel::protocol::{AppletMessage, MESSAGE_BYTES_MAX};

/// Why something about a call was not done.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// The result was set before.
    Replied,
    /// The program's own memory is used up.
    NoMemory,
    /// No heap was handed to the function that serves.
    NoHeap,
    /// More than one message holds. Nothing was sent or set.
    TooLarge {
        /// What it has.
        bytes: usize,
        /// What a message holds.
        limit_bytes: usize,
    },
    /// The host does not want the result any more. Nothing was sent.
    Cancelled,
    /// The message did not get to the host.
    Transport(TransportError),
}

impl Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replied => f.write_str(
                "the call has its result already; send the parts of a result, and reply once",
            ),
            Self::NoMemory => f.write_str(
                "the applet has no memory left; raise its memory limit, or use a shared buffer",
            ),
            Self::NoHeap => f.write_str("calls have no heap here; serve with serve_heap"),
            Self::TooLarge { bytes, limit_bytes } => write!(
                f,
                "a message holds {limit_bytes} bytes, and this has {bytes}; send the result in parts, or use a shared buffer"
            ),
            Self::Cancelled => TransportError::Cancelled.fmt(f),
            Self::Transport(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ReplyError {}

holdfast_heap::show_as_text!(ReplyError);

impl From<TransportError> for ReplyError {
    fn from(error: TransportError) -> Self {
        match error {
            TransportError::Cancelled => Self::Cancelled,
            error => Self::Transport(error),
        }
    }
}

/// Whether a message holds as much.
fn check_size(bytes: &[u8]) -> Result<(), ReplyError> {
    let (bytes, limit_bytes) = (bytes.len(), MESSAGE_BYTES_MAX as usize);
    if bytes > limit_bytes { Err(ReplyError::TooLarge { bytes, limit_bytes }) } else { Ok(()) }
}

/// What a call leaves for the host.
pub(crate) struct Outcome {
    pub(crate) result: Buffer<u8>,
    pub(crate) text: Buffer<u8>,
    replied: bool,
}

impl Outcome {
    pub(crate) const fn new() -> Outcome {
        Outcome { result: Buffer::new(), text: Buffer::new(), replied: false }
    }

    /// For the next call.
    pub(crate) fn rest(&mut self) {
        self.result.rest();
        self.text.rest();
        self.replied = false;
    }
}

/// One call by the host.
pub struct Call<'a> {
    number: u64,
    input: &'a [u8],
    buffer: Option<CallBuffer<'a>>,
    outcome: &'a mut Outcome,
    keeper: &'a mut dyn HeapKeeper,
    transport: &'a dyn Transport,
    /// The host has refused a part of the result.
    is_refused: bool,
}

impl<'a> Call<'a> {
    pub(crate) fn new(
        number: u64,
        input: &'a [u8],
        buffer: Option<CallBuffer<'a>>,
        outcome: &'a mut Outcome,
        keeper: &'a mut dyn HeapKeeper,
        transport: &'a dyn Transport,
    ) -> Call<'a> {
        Call { number, input, buffer, outcome, keeper, transport, is_refused: false }
    }

    /// What the host has sent along.
    #[must_use]
    pub fn input(&self) -> &'a [u8] {
        self.input
    }

    /// Sets the result, which is sent when the function has returned `Ok`. Without one, it is
    /// empty.
    ///
    /// # Errors
    /// [`ReplyError::Replied`] the second time, [`ReplyError::TooLarge`], [`ReplyError::NoMemory`].
    pub fn reply(&mut self, bytes: &[u8]) -> Result<(), ReplyError> {
        if self.outcome.replied {
            return Err(ReplyError::Replied);
        }
        check_size(bytes)?;
        self.outcome.result.clear();
        self.outcome.result.append(bytes).map_err(|_| ReplyError::NoMemory)?;
        self.outcome.replied = true;
        Ok(())
    }

    /// Sends a chunk of a result that comes in parts, now. Waits while the host has more to read
    /// than fits into the channel.
    ///
    /// # Errors
    /// [`ReplyError::Cancelled`] when the host does not want it any more, [`ReplyError::TooLarge`],
    /// [`ReplyError::Transport`].
    pub fn send(&mut self, bytes: &[u8]) -> Result<(), ReplyError> {
        check_size(bytes)?;
        if self.is_cancelled() {
            return Err(ReplyError::Cancelled);
        }
        let message = AppletMessage::Chunk { call: self.number, part: Handle::default() };
        let sent = self.transport.send(message, bytes);
        self.is_refused |= sent == Err(TransportError::Cancelled);
        Ok(sent?)
    }

    /// The buffer that the host shares for this call, if there is one.
    #[must_use]
    pub fn buffer(&self) -> Option<CallBuffer<'a>> {
        self.buffer
    }

    /// Whether the host no longer wants the result: what takes long asks now and then, and returns.
    /// In WebAssembly it knows that from a [`Call::send`] that was refused; what sends nothing is
    /// ended by the host.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.is_refused || self.transport.is_cancelled(self.number)
    }

    /// A failure with a code above 0 and a text, for `return Err(call.fail(2, "no such word"))`. As
    /// [`Failure::new`], but its text is kept with the call, where there is room already.
    #[must_use]
    pub fn fail(&mut self, code: i32, text: impl Display) -> Failure {
        self.outcome.text.clear();
        // What fits is better than nothing.
        let _ = write!(self.outcome.text, "{text}");
        Failure::from_code(code)
    }

    /// The heap that was handed to [`serve_heap`](crate::serve_heap), or the first one of
    /// [`serve_heaps`](crate::serve_heaps).
    ///
    /// # Errors
    /// [`ReplyError::NoHeap`] when none was.
    pub fn heap(&mut self) -> Result<&mut Heap, ReplyError> {
        self.heaps().next().ok_or(ReplyError::NoHeap)
    }

    /// The heaps that were handed to [`serve_heaps`](crate::serve_heaps), in that order.
    pub fn heaps(&mut self) -> impl Iterator<Item = &mut Heap> {
        self.keeper.heaps().iter_mut().flatten()
    }
}

/// Memory that the host and the applet see at once. The host can store to it at any time, so it is
/// no slice: copy out what must not change while it is looked at.
#[derive(Clone, Copy, Debug)]
pub struct CallBuffer<'a> {
    start: NonNull<u8>,
    len: usize,
    call: PhantomData<&'a ()>,
}

impl<'a> CallBuffer<'a> {
    /// # Safety
    /// `len` bytes from `start` must be mapped for reading and writing for `'a`, and belong to no
    /// Rust object.
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize) -> CallBuffer<'a> {
        CallBuffer { start, len, call: PhantomData }
    }

    /// Its size in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its first byte, for code that works in place. It is aligned to 4096 and mapped while the
    /// call lasts.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Copies bytes out, from `offset` on; how many there were.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> usize {
        let count = self.len.saturating_sub(offset).min(into.len());
        // SAFETY: `count` bytes from `offset` are in the buffer, which no Rust reference covers.
        unsafe {
            self.start
                .as_ptr()
                .wrapping_add(offset)
                .copy_to_nonoverlapping(into.as_mut_ptr(), count)
        };
        count
    }

    /// Copies bytes in, from `offset` on; how many there was room for.
    pub fn write(&self, offset: usize, from: &[u8]) -> usize {
        let count = self.len.saturating_sub(offset).min(from.len());
        // SAFETY: as in `read`.
        unsafe {
            self.start.as_ptr().wrapping_add(offset).copy_from_nonoverlapping(from.as_ptr(), count)
        };
        count
    }
}
