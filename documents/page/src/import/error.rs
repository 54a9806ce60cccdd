//! Why nothing is imported.

use std::io;
use std::path::PathBuf;

/// Why nothing is imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// It cannot be read.
    #[error("cannot read {}: {error}", .path.display())]
    Read {
        /// The folder or file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// It is neither a folder nor a WARC file.
    #[error("{} is neither a folder nor a WARC file of version 1.0 or 1.1; name one of them (a single page is opened, \
             which keeps it as well)", .path.display())]
    NotWarc {
        /// The file.
        path: PathBuf,
    },
    /// Its records cannot be read one by one.
    #[error("{} is packed as a whole, so that no record can be read without all before it; unpack it (`gunzip`), or pack \
             each record by itself (as `warcio recompress` does)", .path.display())]
    PackedAsWhole {
        /// The file.
        path: PathBuf,
    },
    /// It has more records than can be remembered.
    #[error("{} has more addresses than are remembered (4 million, 512 MiB of text); import it in pieces", .path.display())]
    TooMany {
        /// The file.
        path: PathBuf,
    },
    /// It has more files than are looked at.
    #[error("{} has more than 10 million files; import the folders in it one by one", .path.display())]
    TooManyFiles {
        /// The folder.
        path: PathBuf,
    },
    /// It was to stop before it knew what there is.
    #[error("stopped before anything was imported")]
    Stopped,
    /// There is no thread to work in.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}
