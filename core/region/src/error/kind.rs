//! The kinds of failure.

#![forbid(unsafe_code)]

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
