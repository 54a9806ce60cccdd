//! The access to a path that a program was granted.

/// How a granted directory, or file, may be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathAccess {
    /// Opened and read.
    ReadOnly,
    /// Also created, written, renamed and removed.
    ReadWrite,
}
