//! The transport of messages: the two rings of the channel natively, two imports in WebAssembly.
//!
//! Invariant: a payload that comes is whole, however many records it was sent in.

use core::fmt;

use crate::buffer::Buffer;
use holdfast_channel::protocol::{AppletMessage, MESSAGE_BYTES_MAX};
use holdfast_channel::{ChannelError, Handle, Header};

/// Carries messages between the applet and its host.
pub(crate) trait Transport {
    /// Waits for the next message. Its payload replaces the content of `payload`.
    fn receive(&self, payload: &mut Buffer<u8>) -> Result<Header, TransportError>;

    /// Sends a message; waits while there is no room for it. From any thread.
    fn send(&self, message: AppletMessage, payload: &[u8]) -> Result<(), TransportError>;

    /// Sends a message and waits for the next one. No other thread speaks to the host in between: with
    /// the answer to a call the host stops to listen until it calls again.
    fn exchange(
        &self,
        message: AppletMessage,
        payload: &[u8],
        next: &mut Buffer<u8>,
    ) -> Result<Header, TransportError> {
        self.send(message, payload)?;
        self.receive(next)
    }

    /// Whether the host has cancelled that call, as far as its messages have arrived. From any
    /// thread.
    fn is_cancelled(&self, call: u64) -> bool;

    /// The address of a part of the memory that is shared for buffers, if it is one.
    fn buffer(&self, part: Handle) -> Option<*mut u8>;
}

/// Why no message came or went.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransportError {
    /// The channel is of no use any more.
    Channel(ChannelError),
    /// The host has sent what does not belong here.
    Protocol {
        /// What it did.
        what: &'static str,
    },
    /// An input that was not taken: too large, or there is no memory for it. The channel is in
    /// order.
    Refused {
        /// Its call.
        call: u64,
        /// Bytes of the input.
        bytes: u64,
    },
    /// A part of a result that the host does not want any more.
    Cancelled,
    /// The host's import has failed; its code.
    Host(i32),
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Channel(error) => error.fmt(f),
            Self::Protocol { what } => write!(
                f,
                "the host does not keep to the protocol: it {what}; build applet and host from the same release"
            ),
            Self::Refused { bytes, .. } => write!(
                f,
                "the applet has no room for an input of {bytes} bytes (its memory limit, and {MESSAGE_BYTES_MAX} bytes); \
                 pass it in a shared buffer"
            ),
            Self::Cancelled => {
                f.write_str("the host no longer wants the result; clean up and return")
            }
            Self::Host(code) => {
                write!(f, "the host cannot be reached (code {code}); start the applet anew")
            }
        }
    }
}

impl core::error::Error for TransportError {}

holdfast_heap::show_as_text!(TransportError);

impl From<ChannelError> for TransportError {
    fn from(error: ChannelError) -> Self {
        Self::Channel(error)
    }
}
