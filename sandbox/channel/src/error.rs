//! Errors: one family for messages, one for the boot record.

#![forbid(unsafe_code)]

use core::fmt;

/// Why a message was not sent or received.
///
/// After `PeerBroke` every later call fails in the same way, and after any error in the middle of a
/// message with `HalfDone`. After any other error the endpoint is as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChannelError {
    /// The peer violated the protocol; nothing it sent later is looked at.
    PeerBroke {
        /// What it did.
        what: &'static str,
    },
    /// The peer's process has ended, and there is no message of it left.
    PeerGone,
    /// The deadline has passed.
    TimedOut,
    /// A side asked the waiting side to return.
    Interrupted,
    /// The message is longer than the caller's limit. It stays where it is.
    TooLarge {
        /// Bytes of its payload.
        bytes: u64,
        /// What the caller set.
        limit_bytes: u64,
    },
    /// The caller's memory has no room for the message. It stays where it is.
    NoRoom {
        /// Bytes of its payload.
        needed_bytes: u64,
    },
    /// A call failed when a part of a message was through; the rest is not coming.
    HalfDone,
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PeerBroke { what } => {
                write!(
                    f,
                    "the peer violated the protocol of the channel: it {what}; end it and start it anew"
                )
            }
            Self::PeerGone => f.write_str("the peer's process has ended; start it anew"),
            Self::TimedOut => f.write_str(
                "the peer did not answer in time; allow it more time, or end it and start it anew",
            ),
            Self::Interrupted => {
                f.write_str("the wait was interrupted on request; wait again or end the peer")
            }
            Self::TooLarge { bytes, limit_bytes } => write!(
                f,
                "a message of {bytes} bytes exceeds the limit of {limit_bytes} bytes; raise the limit, or hand the \
                 data over in a shared buffer"
            ),
            Self::NoRoom { needed_bytes } => {
                write!(f, "the message needs {needed_bytes} bytes of room; receive it with as many")
            }
            Self::HalfDone => f.write_str(
                "an earlier call ended in the middle of a message; end the peer and start it anew",
            ),
        }
    }
}

impl core::error::Error for ChannelError {}

/// Why the first page is no boot record for this program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum BootError {
    /// Shorter than a record, or without its mark: this program was not started as an applet.
    NotAChannel,
    /// A host of another time.
    Version {
        /// The version of the record.
        found: u32,
    },
    /// Sizes and offsets contradict each other or the file.
    Layout {
        /// The contradiction.
        what: &'static str,
    },
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAChannel => {
                f.write_str("there is no channel to a host; have a host run this program")
            }
            Self::Version { found } => write!(
                f,
                "the host's channel has version {found}, this program knows {}; build both from the same release",
                crate::boot::VERSION
            ),
            Self::Layout { what } => {
                write!(
                    f,
                    "the channel's record contradicts itself ({what}); build host and applet from the same release"
                )
            }
        }
    }
}

impl core::error::Error for BootError {}
