//! What the store has of a region: the base file and, if there is one, the journal that continues it.
//!
//! Everything is checked before it is used: a value that exists has a journal whose records are all right, and
//! the base's data is verified while, or before, it is copied. Nothing in the store is changed here.

#![forbid(unsafe_code)]

use std::fs::File;
use std::path::Path;

use holdfast_sys::file::anonymous;

use crate::error::{RegionError, Remedy, Result};
use crate::media::files::base_path;
use crate::media::format::{DATA_OFFSET, FileState, Header};
use crate::media::image::{BuildError, FileFault, Image};
use crate::media::journal::{Continuation, ReadFault, apply, find_journal};
use crate::media::storage::{KernelStorage, Storage};
use crate::name::RegionName;
use crate::store::base::{open_base, verify_base};

/// See the module.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) base: Image,
    pub(crate) journal: Option<Continuation>,
}

impl Stored {
    /// `None` when there is no base file.
    pub(crate) fn open(store: &Path, name: &RegionName) -> Result<Option<Stored>> {
        Stored::open_with(store, name, false)
    }

    /// As [`Stored::open`]; the journal may be written to.
    pub(crate) fn open_writable(store: &Path, name: &RegionName) -> Result<Option<Stored>> {
        Stored::open_with(store, name, true)
    }

    fn open_with(store: &Path, name: &RegionName, writable: bool) -> Result<Option<Stored>> {
        let base = match open_base(store, name) {
            Ok(base) => base,
            Err(FileFault::Missing) => return Ok(None),
            Err(fault) => {
                let path = base_path(store, name);
                let remedy = Remedy::RestoreFile { path: path.clone() };
                return Err(fault.into_error(&path, remedy));
            }
        };
        let journal = find_journal(store, name, &base.header, writable)?;
        Ok(Some(Stored { base, journal }))
    }

    /// Backed bytes of the region as it is stored.
    pub(crate) fn backed_bytes(&self) -> u64 {
        self.journal.as_ref().map_or(self.base.header.backed_bytes, |journal| journal.extent.backed_bytes)
    }

    /// The header of an image that holds what is stored.
    pub(crate) fn image_header(&self) -> Header {
        let base = &self.base.header;
        Header {
            state: FileState::Open,
            backed_bytes: self.backed_bytes(),
            image_generation: base.image_generation.saturating_add(1),
            data_checksum: 0,
            continued: false,
            // Read, but perhaps not yet durable: see `Journal::adopt`.
            journal_sequence: 0,
            ..base.clone()
        }
    }

    /// Whether the journal adds something to the base.
    pub(crate) fn is_continued(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.extent.last_sequence > 0)
    }

    /// A file to read it from: the base itself or, where a journal continues it, a copy in memory.
    pub(crate) fn into_readable(self) -> Result<Image> {
        let path = self.base.path.clone();
        if !self.is_continued() {
            self.verify().map_err(|error| source_error(error, &path))?;
            return Ok(self.base);
        }
        self.copied()
    }

    /// A copy in memory of all of it.
    pub(crate) fn copied(&self) -> Result<Image> {
        let path = self.base.path.clone();
        let header = self.image_header();
        let file = anonymous("holdfast-reader", header.file_bytes()).map_err(|source| RegionError::Io {
            step: "make room in memory for",
            path: path.clone(),
            source,
        })?;
        self.copy_to(&KernelStorage, &file).map_err(|error| source_error(error, &path))?;
        Ok(Image::unnamed(file, path, header))
    }

    /// Checks the base's data. The journal's records were checked when it was opened.
    pub(crate) fn verify(&self) -> std::result::Result<(), BuildError> {
        verify_base(&self.base, None)
    }

    /// Writes all of it to a file that nobody uses yet and that has room for [`Stored::image_header`], checking
    /// every byte. After an error the file is rubbish.
    pub(crate) fn copy_to(
        &self,
        storage: &dyn Storage,
        target: &File,
    ) -> std::result::Result<(), BuildError> {
        verify_base(&self.base, Some((storage, target)))?;
        let Some(journal) = &self.journal else { return Ok(()) };
        let write = &mut |bytes: &[u8], offset| storage.write_at(target, bytes, DATA_OFFSET + offset);
        apply(&journal.file, &journal.header, journal.extent, write).map_err(|fault| match fault {
            ReadFault::Write(source) => BuildError::Target { step: "write", source },
            fault => {
                let (journal, base) = (journal.path.clone(), self.base.path.clone());
                let remedy = Remedy::MoveJournal { journal: journal.clone(), base };
                BuildError::Source(fault.into_error(&journal, remedy))
            }
        })
    }
}

/// What to do about a damaged image: start from the store if that is whole.
pub(crate) fn remedy_for_image(store: &Path, name: &RegionName, image: &Path) -> Remedy {
    match Stored::open(store, name) {
        Ok(Some(stored)) if stored.verify().is_ok() => {
            Remedy::DropImage { name: name.to_string(), base: stored.base.path }
        }
        _ => Remedy::RestoreFile { path: image.to_owned() },
    }
}

/// The error of a store whose files could not be verified: nothing was built, so nothing was out of room.
pub(crate) fn source_error(error: BuildError, path: &Path) -> RegionError {
    match error {
        BuildError::Source(error) => error,
        BuildError::Target { step, source } => RegionError::Io { step, path: path.to_owned(), source },
    }
}
