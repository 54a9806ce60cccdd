//! Remedies for a file that cannot be used: the end of the messages that name one.
//!
//! Invariant: no remedy destroys the only copy of anything; what is bad and has no other copy is
//! moved away.

#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::{fmt, io};

use holdfast_types::Remedy;

/// What a person can do about a file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileRemedy {
    /// The image is bad, but a whole base file is in the store.
    DropImage {
        /// Name of the region.
        name: String,
        /// The good base file.
        base: PathBuf,
    },
    /// The journal is bad; the base alone is an older state.
    MoveJournal {
        /// The journal to bring back from a copy, or to move away.
        journal: PathBuf,
        /// The base file that it continues.
        base: PathBuf,
    },
    /// The file is a stream, which is not read in place.
    Import {
        /// The stream.
        path: PathBuf,
    },
    /// The caller named a file that never was a region's.
    NameAnother,
    /// Everything is there, and a repair puts it together.
    Repair {
        /// Name of the region.
        name: String,
    },
    /// Nothing in reach replaces the file.
    RestoreFile {
        /// The file to bring back from a copy, or to move away.
        path: PathBuf,
    },
}

impl fmt::Display for FileRemedy {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileRemedy::DropImage { name, base } => write!(
                formatter,
                "{}; or {}; that checkpoint is {}",
                Remedy::Repair { heap: name },
                Remedy::RemoveImage { heap: Some(name) },
                base.display()
            ),
            FileRemedy::MoveJournal { journal, base } => write!(
                formatter,
                "put a copy back at {0}, or move {0} away and go on from the older checkpoint {1}, without what \
                 was committed since",
                journal.display(),
                base.display()
            ),
            FileRemedy::Import { path } => write!(
                formatter,
                "it is an exported heap: {}",
                Remedy::Import { file: &path.display() }
            ),
            FileRemedy::NameAnother => formatter.write_str(
                "name an image (NAME.image), a checkpoint (NAME.base) or a snapshot of a heap",
            ),
            FileRemedy::Repair { name } => write!(
                formatter,
                "nothing that was committed is lost: {}",
                Remedy::Repair { heap: name }
            ),
            FileRemedy::RestoreFile { path } => write!(
                formatter,
                "no whole checkpoint replaces it: put a copy back at {0}, or move {0} away and start anew",
                path.display()
            ),
        }
    }
}

/// What a person can do about what the kernel said, where that is clear.
pub(crate) fn io_remedy(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::ReadOnlyFilesystem => {
            "; its file system is mounted read-only: make it writable, or choose another place with HOLDFAST_HOME (for \
             images: HOLDFAST_POOL)"
        }
        io::ErrorKind::PermissionDenied => "; check its permissions, and those of its directory",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; free some room on its file system"
        }
        _ => "",
    }
}

/// A size for a message: exact for programs, in a unit for people.
pub(crate) fn in_units(bytes: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    let fits = units.into_iter().zip(1..).take_while(|(_, power)| bytes >= 1 << (10 * power));
    match fits.last() {
        Some((unit, power)) => {
            format!("{bytes} bytes ({:.1} {unit})", bytes as f64 / f64::from(2).powi(10 * power))
        }
        None => format!("{bytes} bytes"),
    }
}

pub(crate) fn near_text(near: &[String]) -> String {
    if near.is_empty() { String::new() } else { format!(" (near names: {})", near.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::in_units;

    /// A size is written exactly and in the largest unit that fits.
    #[test]
    fn size_is_exact_and_in_the_largest_unit() {
        assert_eq!(in_units(1023), "1023 bytes");
        assert_eq!(in_units(1536), "1536 bytes (1.5 KiB)");
        assert_eq!(in_units(64 << 20), "67108864 bytes (64.0 MiB)");
        assert_eq!(in_units(3 << 41), "6597069766656 bytes (6.0 TiB)");
    }
}
