//! Recordings: a trace in a file, written while it is made, read later. `docs/format.md` draws the
//! format.
//!
//! Invariants:
//! - A file is good up to its last complete frame at every moment: a frame is one write, with a
//!   checksum, and a failed write is cut off.
//! - The writer never fails in the middle of a trace: it keeps the first error, counts what it
//!   could not keep, and says both at the end.
//! - The reader believes no byte: lengths are bounded before memory is taken. What is torn or
//!   damaged is passed over, with the events before and behind it kept, and counted: what is
//!   missing is given as a number, or as not known.

mod ending;
mod format;
mod medium;
mod reader;
mod source;
#[cfg(test)]
mod tests;
mod writer;

use std::io;
use std::path::PathBuf;

pub use ending::{Damage, Ending};
pub use reader::Recording;
pub use writer::{Recorder, Written};

/// What went wrong with a recording.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file cannot be made or read.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
    },
    /// The file took only a part of the events.
    #[error("cannot write all of {}: {source}; {}. Make room, or choose another place with -o", path.display(), taken(*kept, *dropped))]
    Incomplete {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
        /// Events that are in it.
        kept: u64,
        /// Events that are not.
        dropped: u64,
    },
    /// The file took all events, and then something failed.
    #[error(
        "cannot finish {}: {source}; all {kept} events were written, but they may not all be on the disk, and \
         `holdfast trace report` may say that it was not finished",
        path.display()
    )]
    Unconfirmed {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: io::Error,
        /// Events that were written.
        kept: u64,
    },
    /// The file is something else.
    #[error("{} is no recording of `holdfast trace`; these are made with `holdfast trace run -o FILE`", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file is of a later version of the format.
    #[error("{} has version {version} of the format and this program knows up to {known}; use a newer holdfast", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
        /// The newest that is known.
        known: u32,
    },
    /// Not even what the trace is about can be read.
    #[error("{} is damaged before its first event; nothing of it can be read, record it again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
}

/// What a file has that did not take all.
fn taken(kept: u64, dropped: u64) -> String {
    match dropped {
        0 => {
            format!("it has all {kept} events and can be read, but not all that crossed sandboxes")
        }
        _ => format!(
            "it has the first {kept} events and can be read, {dropped} later ones are not there"
        ),
    }
}
