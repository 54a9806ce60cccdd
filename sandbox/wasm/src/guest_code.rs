//! The numbers that the `holdfast` imports return to an applet: part of the applet interface, never
//! renumbered.
#![forbid(unsafe_code)]

use holdfast_channel::protocol::status;
use holdfast_region::{AccessError, ErrorKind, RegionError};

/// What an import of module `holdfast` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(i32)]
pub enum GuestCode {
    /// Done.
    Ok = 0,
    /// The applet was started without a heap, or has not attached it yet.
    NotGranted = 1,
    /// The heap may not grow that far.
    LimitReached = 2,
    /// The pool or the store has no room.
    NoRoom = 3,
    /// The host does not offer this.
    Unsupported = 4,
    /// Something that only the host can explain; the run's report holds the reason.
    Io = 5,
    /// A pointer that the applet passed does not point to its memory.
    BadAddress = 6,
    /// The applet's memory cannot take the heap: its declared maximum is too small, or its volatile
    /// part reaches the heap's place already.
    MemoryShape = 7,
    /// The run may only read the heap.
    ReadOnly = 8,
    /// A message is longer than a message may be.
    TooLarge = 9,
    /// A part of a result that the host does not want any more.
    Cancelled = status::CANCELLED,
}

impl GuestCode {
    /// The value as an import returns it.
    pub fn as_i32(self) -> i32 {
        self as i32
    }

    /// The value as an import returns it that answers with a size otherwise.
    pub fn as_negative_i64(self) -> i64 {
        -i64::from(self as i32)
    }
}

impl From<&RegionError> for GuestCode {
    fn from(error: &RegionError) -> Self {
        match error {
            RegionError::LimitReached { .. }
            | RegionError::Access(
                AccessError::QuotaReached { .. } | AccessError::NoQuotaLeft { .. },
            ) => GuestCode::LimitReached,
            RegionError::Access(AccessError::ReadOnly { .. }) => GuestCode::ReadOnly,
            other if other.kind() == ErrorKind::NoRoom => GuestCode::NoRoom,
            _ => GuestCode::Io,
        }
    }
}
