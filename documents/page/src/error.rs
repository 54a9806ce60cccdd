//! The errors of pages, and the damage of entries of the cache.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::entry::FORMAT_VERSION;
use crate::fetch::FetchError;
use holdfast_dom::DomError;
use holdfast_heap::HeapError;
use holdfast_native_heap::OpenHeapError;
use holdfast_region::{KeyError, PlaceError, RegionError};

/// Why a page is not shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// The page cannot be had.
    #[error("cannot read {address}: {error}")]
    Fetch {
        /// Its address, or the name of its file.
        address: String,
        /// The error of the fetch.
        error: Arc<FetchError>,
    },
    /// What is asked for is no address of a page.
    #[error("{address:?} cannot be opened: {reason}")]
    Address {
        /// As it was given.
        address: String,
        /// What it should be.
        reason: &'static str,
    },
    /// A viewport or a scale that is too large, or nothing.
    #[error("{what} must be from {min} to {max}, not {given}")]
    Range {
        /// Of which number.
        what: &'static str,
        /// What it was.
        given: String,
        /// The least.
        min: u32,
        /// The most.
        max: u32,
    },
    /// The page is no document, or more of one than is taken.
    #[error(transparent)]
    Dom(#[from] DomError),
    /// The engine took longer than it may.
    #[error(
        "the page was not laid out within {seconds} s; allow more by --timeout, if it is worth the time"
    )]
    TimeOut {
        /// How long it was waited for.
        seconds: u64,
    },
    /// The engine gave up.
    #[error("the layout engine failed on this page: {message}")]
    Engine {
        /// What it said.
        message: String,
    },
    /// There is no thread to lay the page out in.
    #[error("cannot start a thread for the layout: {0}")]
    Thread(io::Error),
    /// The picture cannot be written.
    #[error("cannot write {}: {error}", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The pixels do not become a PNG.
    #[error("cannot encode the picture: {0}")]
    Png(#[from] png::EncodingError),
}

/// Why there is no record of a page that was painted: it is shown, but not kept, and none can be
/// told what is where on it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It took longer than the engine may take for a page.
    #[error(
        "it was not recorded within {seconds} s; allow more by --timeout, if it is worth the time"
    )]
    TimeOut {
        /// How long it was waited for, from the beginning.
        seconds: u64,
    },
    /// The engine gave up.
    #[error("the layout engine failed when it was recorded: {message}")]
    Engine {
        /// What it said.
        message: String,
    },
}

impl RecordError {
    /// What went wrong, when the page was painted already.
    pub(crate) fn of(error: &PageError) -> RecordError {
        match error {
            PageError::TimeOut { seconds } => RecordError::TimeOut { seconds: *seconds },
            PageError::Engine { message } => RecordError::Engine { message: message.clone() },
            other => RecordError::Engine { message: other.to_string() },
        }
    }
}

/// For the caller that opened the page to have it recorded.
impl From<RecordError> for PageError {
    fn from(error: RecordError) -> PageError {
        match error {
            RecordError::TimeOut { seconds } => PageError::TimeOut { seconds },
            RecordError::Engine { message } => PageError::Engine { message },
        }
    }
}

/// Why the cache cannot be used. The page is shown all the same; it is laid out each time.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// There is no place for heaps.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// There is no key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The region cannot be had.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// The region holds no heap.
    #[error(transparent)]
    Open(#[from] OpenHeapError),
    /// The heap refuses a change.
    #[error(transparent)]
    Heap(#[from] HeapError),
    /// The document cannot be kept.
    #[error(transparent)]
    Dom(#[from] DomError),
    /// The page was shown, and could not be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// All that the cache holds was kept or used since a moment, and is not let go.
    #[error(
        "the cache is full of pages that were just kept or used; raise --quota to keep more of them"
    )]
    Full,
    /// The page takes more than the cache may hold.
    #[error(
        "the page takes {bytes} bytes, and the cache may hold {quota_bytes}; raise --quota to keep it"
    )]
    TooLarge {
        /// Of the page.
        bytes: u64,
        /// Of the cache.
        quota_bytes: u64,
    },
}

/// What is wrong with the bytes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EntryDamage {
    /// It does not begin as an entry does.
    #[error("it has no header of an entry")]
    NoHeader,
    /// It is of another version of the format.
    #[error("it is of version {version} of the format")]
    Version {
        /// The version found.
        version: u32,
    },
    /// The header is not what it was.
    #[error("the sum of its header is wrong")]
    HeaderSum,
    /// A part is not what it was.
    #[error("the sum of its part {chunk} is wrong")]
    Sum {
        /// The number of the part.
        chunk: u32,
    },
    /// Something leads out of the entry.
    #[error("its {what} lies outside")]
    Outside {
        /// The part of the entry.
        what: &'static str,
    },
    /// Something that would be painted without end.
    #[error("its {what} would be painted without end")]
    Endless {
        /// The part of the entry.
        what: &'static str,
    },
    /// Bytes that several records have, so that what is done for them has no bound in the size of
    /// the entry.
    #[error("bytes of its {what} are used twice")]
    Twice {
        /// Of which records.
        what: &'static str,
    },
    /// A value that there is not.
    #[error("its {what} has a value that there is not")]
    Value {
        /// Of what.
        what: &'static str,
    },
}

impl EntryDamage {
    /// Whether nothing is wrong with it, but that an older build wrote it, in the format that there
    /// was then.
    #[must_use]
    pub fn is_of_older_build(&self) -> bool {
        matches!(self, EntryDamage::Version { version } if (1..FORMAT_VERSION).contains(version))
    }
}
