//! Why a stream cannot be imported.

#![forbid(unsafe_code)]

use std::io;

use holdfast_types::Remedy;

/// The version of streams that this program writes, and the newest that it reads.
pub(crate) const STREAM_VERSION: u32 = 1;

/// Why a stream cannot be imported. Nothing was made of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// It does not start like a stream.
    #[error("this is no exported heap; {}", Remedy::Export)]
    Foreign,
    /// A newer Holdfast wrote it.
    #[error(
        "the stream has version {version}, this program knows version {STREAM_VERSION}; use a newer Holdfast"
    )]
    Newer {
        /// Version in the header.
        version: u32,
    },
    /// It ends too early.
    #[error(
        "the stream is cut off after {offset} bytes; export the heap again and transfer all of it"
    )]
    Truncated {
        /// Bytes that were there.
        offset: u64,
    },
    /// A checksum does not match, or a field is impossible.
    #[error("the stream is damaged at byte {offset}: {what}; export the heap again")]
    Damaged {
        /// Where in the stream.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The reader failed.
    #[error("cannot read the stream: {source}; check where it comes from and try again")]
    Unreadable {
        /// What the reader reported.
        source: io::Error,
    },
}
