//! What kinds of failure there are, and which error is of which.

#![forbid(unsafe_code)]

use crate::care::snapshot::SnapshotError;
use crate::error::RegionError;
use crate::store::stream::StreamError;

/// What failed, for callers that only branch (exit codes, retries).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The caller asked for something that makes no sense (name, size, order of calls).
    Usage,
    /// No such region.
    NotFound,
    /// The region exists already.
    AlreadyExists,
    /// Another process has it.
    Held,
    /// A file is damaged, foreign or newer.
    BadFile,
    /// The key may not do it.
    Denied,
    /// No room in the pool or the store, or the limit is reached.
    NoRoom,
    /// Anything the kernel refused.
    Io,
}

impl RegionError {
    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            RegionError::Name(_)
            | RegionError::LimitOutOfRange { .. }
            | RegionError::AlreadyMapped
            | RegionError::OnlyCopy { .. }
            | RegionError::OwnerKnown { .. }
            | RegionError::StoreBehind { .. }
            | RegionError::NotAtomic { .. }
            | RegionError::OutOfBounds { .. } => ErrorKind::Usage,
            RegionError::SharedCommit { cause } => cause.kind(),
            RegionError::NotFound { .. } | RegionError::Snapshot(SnapshotError::Missing { .. }) => {
                ErrorKind::NotFound
            }
            RegionError::AlreadyExists { .. } | RegionError::Snapshot(SnapshotError::Exists { .. }) => {
                ErrorKind::AlreadyExists
            }
            RegionError::Limit(_) => ErrorKind::Usage,
            RegionError::Stream(StreamError::Unreadable { .. }) => ErrorKind::Io,
            RegionError::Held { .. } | RegionError::NamesBusy { .. } => ErrorKind::Held,
            RegionError::NotOwner { .. } => ErrorKind::Denied,
            RegionError::Access(error) => error.kind(),
            RegionError::Stream(_)
            | RegionError::Truncated { .. }
            | RegionError::Foreign { .. }
            | RegionError::Renamed { .. }
            | RegionError::HeaderDamaged { .. }
            | RegionError::DataDamaged { .. }
            | RegionError::JournalDamaged { .. }
            | RegionError::JournalMismatch { .. }
            | RegionError::JournalMisfit { .. }
            | RegionError::NewerFormat { .. }
            | RegionError::Displaced { .. }
            | RegionError::Torn { .. }
            | RegionError::BackingLost { .. } => ErrorKind::BadFile,
            RegionError::NoRoom { .. }
            | RegionError::NoRoomOnDisk { .. }
            | RegionError::StoreFull { .. }
            | RegionError::LimitReached { .. }
            | RegionError::AddressesExhausted { .. } => ErrorKind::NoRoom,
            RegionError::Key(error) => error.kind(),
            RegionError::Place(error) => error.kind(),
            RegionError::AddressTaken { .. }
            | RegionError::AddressSpace { .. }
            | RegionError::Poisoned { .. }
            | RegionError::NoMemory { .. }
            | RegionError::BackingFailed { .. }
            | RegionError::Io { .. } => ErrorKind::Io,
        }
    }
}
