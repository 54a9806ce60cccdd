//! The origins whose pages may run applets here: a file of the home.
//!
//! Invariants: a crash leaves the old file or the new one; a file that another user owns or may write
//! to is not read; nothing is added without an answer of the user.

use std::io;
use std::path::PathBuf;

use holdfast_region::text_file::{self, ReadFault};
use holdfast_region::{KernelStorage, Places};

use crate::origin::Origin;

const FILE: &str = "web-origins";
const LOCK: &str = "web-origins.lock";
const TITLE: &str = "holdfast web origins 1";
const FILE_BYTES_MAX: u64 = 1 << 20;
const ORIGINS_MAX: usize = 1000;

/// Why the record cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// It is not what this program writes.
    #[error("{} is damaged in line {line}; correct it, or remove it to allow no origin", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The first line that is wrong.
        line: usize,
    },
    /// Other users may have written it.
    #[error("{} belongs to another user or can be written by others, so it allows nothing; remove it", path.display())]
    NotPrivate {
        /// The file.
        path: PathBuf,
    },
    /// It is full.
    #[error("{ORIGINS_MAX} origins are allowed already; forget one first (--forget ORIGIN)")]
    Full,
    /// Another process has it.
    #[error("another process changes {}; try again", path.display())]
    Busy {
        /// The file.
        path: PathBuf,
    },
    /// The kernel refused a step.
    #[error("cannot {step} {}: {source}", path.display())]
    Io {
        /// The step, as a verb.
        step: &'static str,
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// The record of a home.
#[derive(Debug, Clone)]
pub struct OriginRecord {
    home: PathBuf,
}

impl OriginRecord {
    /// Of a home. Nothing is read or made yet.
    #[must_use]
    pub fn of(places: &Places) -> OriginRecord {
        OriginRecord { home: places.home().to_owned() }
    }

    fn path(&self) -> PathBuf {
        self.home.join(FILE)
    }

    /// The origins, in the order in which they were allowed.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn list(&self) -> Result<Vec<Origin>, RecordError> {
        let path = self.path();
        let damaged = |line| RecordError::Damaged { path: path.clone(), line };
        let text = match text_file::read(&path, FILE_BYTES_MAX) {
            Ok(Some(text)) => text,
            Ok(None) => return Ok(Vec::new()),
            Err(ReadFault::NotText) => return Err(damaged(1)),
            Err(ReadFault::NotPrivate { .. }) => return Err(RecordError::NotPrivate { path }),
            Err(ReadFault::Io(source)) => {
                return Err(RecordError::Io { step: "read", path, source });
            }
        };
        let mut lines = text.lines();
        if lines.next() != Some(TITLE) {
            return Err(damaged(1));
        }
        lines.enumerate().map(|(at, line)| line.parse().map_err(|_| damaged(at + 2))).collect()
    }

    /// Allows an origin. Returns whether it is new.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn allow(&self, origin: &Origin) -> Result<bool, RecordError> {
        self.change(|origins| {
            if origins.contains(origin) {
                return Ok(false);
            }
            if origins.len() >= ORIGINS_MAX {
                return Err(RecordError::Full);
            }
            origins.push(origin.clone());
            Ok(true)
        })
    }

    /// Allows an origin no longer. Its heaps stay. Returns whether it was allowed.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn forget(&self, origin: &Origin) -> Result<bool, RecordError> {
        self.change(|origins| {
            let before = origins.len();
            origins.retain(|known| known != origin);
            Ok(origins.len() < before)
        })
    }

    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Origin>) -> Result<bool, RecordError>,
    ) -> Result<bool, RecordError> {
        let lock = self.home.join(LOCK);
        let _lock = match text_file::lock(&lock) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Err(RecordError::Busy { path: self.path() }),
            Err(source) => return Err(RecordError::Io { step: "lock", path: lock, source }),
        };
        let mut origins = self.list()?;
        let is_changed = change(&mut origins)?;
        if is_changed {
            self.replace(&origins)?;
        }
        Ok(is_changed)
    }

    fn replace(&self, origins: &[Origin]) -> Result<(), RecordError> {
        let mut text = format!("{TITLE}\n");
        origins.iter().for_each(|origin| text.push_str(&format!("{origin}\n")));
        text_file::replace(&KernelStorage, &self.path(), &text)
            .map_err(|(step, path, source)| RecordError::Io { step, path, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// What the user allowed is remembered until it is forgotten, in a private file.
    ///
    /// Guarantee: serve/consent
    #[test]
    fn allowed_origins_are_remembered_and_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let record = OriginRecord { home: folder.path().to_owned() };
        let (one, other) = ("https://a.example", "http://localhost:1");
        assert!(record.list().unwrap().is_empty());
        assert!(record.allow(&one.parse().unwrap()).unwrap());
        assert!(!record.allow(&one.parse().unwrap()).unwrap());
        assert!(record.allow(&other.parse().unwrap()).unwrap());
        let path = folder.path().join(FILE);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let texts = |record: &OriginRecord| -> Vec<String> {
            record.list().unwrap().iter().map(Origin::to_string).collect()
        };
        assert_eq!(texts(&record), [one, other]);
        assert!(record.forget(&one.parse().unwrap()).unwrap());
        assert!(!record.forget(&one.parse().unwrap()).unwrap());
        assert_eq!(texts(&record), [other]);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        assert!(matches!(record.list(), Err(RecordError::NotPrivate { .. })));
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, format!("{TITLE}\nhttps://a.example/\n")).unwrap();
        assert!(matches!(record.list(), Err(RecordError::Damaged { line: 2, .. })));
        // Longer than any record, of which the first part would do.
        std::fs::write(&path, format!("{TITLE}\n").repeat(1 << 16)).unwrap();
        assert!(matches!(record.list(), Err(RecordError::Damaged { line: 1, .. })));
    }
}
