//! The stored state of a region: the base file and, if there is one, the journal that continues it.
//!
//! Everything is checked before it is used: a value that exists has a journal whose records are all
//! right, and the base's data is verified while, or before, it is copied. Nothing in the store is
//! changed here.

#![forbid(unsafe_code)]

use std::fs::File;
use std::path::Path;

use holdfast_sys::file::anonymous;

use crate::error::{FileRemedy, RegionError, Result};
use crate::media::files::{base_path, journal_path};
use crate::media::format::{DATA_OFFSET, FileState, Header};
use crate::media::image::{BuildError, FileFault, Image};
use crate::media::journal::{
    Continuation, Extent, ReadFault, apply, find_journal, refuse_newer_journal,
};
use crate::media::storage::{KernelStorage, Storage};
use crate::name::RegionName;
use crate::store::base::{open_base, verified_data, verify_base};

/// The base file of a region and the journal that continues it.
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
                let remedy = FileRemedy::RestoreFile { path: path.clone() };
                return Err(fault.into_error(&path, remedy));
            }
        };
        let journal = find_journal(store, name, &base.header, writable)?;
        Ok(Some(Stored { base, journal }))
    }

    /// Backed bytes of the region as it is stored.
    pub(crate) fn backed_bytes(&self) -> u64 {
        self.journal
            .as_ref()
            .map_or(self.base.header.backed_bytes, |journal| journal.extent.backed_bytes)
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
            packed_bytes: 0,
            ..base.clone()
        }
    }

    /// Whether the journal adds something to the base.
    pub(crate) fn is_continued(&self) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.extent.last_sequence > 0)
    }

    /// A file to read it from: the base itself or, where it is packed or a journal continues it, a
    /// copy in memory.
    pub(crate) fn into_readable(mut self) -> Result<Image> {
        let path = self.base.path.clone();
        if !self.is_continued() {
            self.base.file =
                verified_data(&self.base, None).map_err(|error| source_error(error, &path))?;
            self.base.header.packed_bytes = 0;
            return Ok(self.base);
        }
        self.copied()
    }

    /// A copy in memory of all of it.
    pub(crate) fn copied(&self) -> Result<Image> {
        let path = self.base.path.clone();
        let header = self.image_header();
        let file = anonymous("holdfast-reader", header.file_bytes()).map_err(|source| {
            RegionError::Io { step: "make room in memory for", path: path.clone(), source }
        })?;
        self.copy_to(&KernelStorage, &file).map_err(|error| source_error(error, &path))?;
        Ok(Image::unnamed(file, path, header))
    }

    /// Checks the base's data. The journal's records were checked when it was opened.
    pub(crate) fn verify(&self) -> std::result::Result<(), BuildError> {
        verify_base(&self.base, None)
    }

    /// Writes all of it to a file that is not in use yet and that has room for
    /// [`Stored::image_header`], checking every byte. After an error the file is rubbish.
    pub(crate) fn copy_to(
        &self,
        storage: &dyn Storage,
        target: &File,
    ) -> std::result::Result<(), BuildError> {
        verify_base(&self.base, Some((storage, target)))?;
        let Some(journal) = &self.journal else { return Ok(()) };
        let write =
            &mut |bytes: &[u8], offset| storage.write_at(target, bytes, DATA_OFFSET + offset);
        apply(&journal.file, &journal.header, journal.extent, write).map_err(|fault| match fault {
            ReadFault::Write(source) => BuildError::Target { step: "write", source },
            fault => {
                let (journal, base) = (journal.path.clone(), self.base.path.clone());
                let remedy = FileRemedy::MoveJournal { journal: journal.clone(), base };
                BuildError::Source(fault.into_error(&journal, remedy))
            }
        })
    }
}

/// What to do about a damaged image: start from the store if that is whole.
pub(crate) fn remedy_for_image(store: &Path, name: &RegionName, image: &Path) -> FileRemedy {
    match Stored::open(store, name) {
        Ok(Some(stored)) if stored.verify().is_ok() => {
            FileRemedy::DropImage { name: name.to_string(), base: stored.base.path }
        }
        _ => FileRemedy::RestoreFile { path: image.to_owned() },
    }
}

/// The error of a store whose files could not be verified: nothing was built, so nothing was out of
/// room.
pub(crate) fn source_error(error: BuildError, path: &Path) -> RegionError {
    match error {
        BuildError::Source(error) => error,
        BuildError::Target { step, source } => {
            RegionError::Io { step, path: path.to_owned(), source }
        }
    }
}

/// The header of the next base of an image. No two bases of a region have the same number, even
/// when a base came into the store and the image could not take note of it.
pub(crate) fn next_base_header(store: &Path, image: &Header) -> Header {
    let in_store = open_base(store, &image.name)
        .ok()
        .filter(|base| base.header.uuid == image.uuid)
        .map_or(0, |base| base.header.checkpoint_count);
    let checkpoint_count = image.checkpoint_count.max(in_store) + 1;
    Header { checkpoint_count, ..image.clone() }
}

/// What the store has, if the image goes on from it; `None` when anything about base or journal is
/// not as the image says. A new base then mends it, as the image has everything.
pub(crate) fn adoptable(store: &Path, image: &Header) -> Option<Stored> {
    let stored = Stored::open_writable(store, &image.name).ok()??;
    let base = &stored.base.header;
    // All that a cold open takes from the base: the limit (see `crate::limit`), the address, the
    // medium.
    let same = Header {
        sequence: base.sequence,
        state: base.state,
        backed_bytes: base.backed_bytes,
        image_generation: base.image_generation,
        data_checksum: base.data_checksum,
        continued: true,
        journal_sequence: base.journal_sequence,
        boot: base.boot,
        ordered: base.ordered,
        packed_bytes: base.packed_bytes,
        ..image.clone()
    };
    (same == *base).then_some(stored)
}

/// Refuses to replace a base file that a newer program wrote, or the journal beside one, and a base
/// file that was renamed: it may be all that there is of another region. So may one that could not
/// be looked at. Whatever else is wrong with them, a new base mends it. A journal alone continues
/// nothing. Returns the identity of the region that the base is of, if it can be read.
pub(crate) fn check_replaceable(store: &Path, name: &RegionName) -> Result<Option<[u8; 16]>> {
    let base = match open_base(store, name) {
        Err(FileFault::Missing) => return Ok(None),
        Err(fault)
            if fault.is_unseen()
                || matches!(fault, FileFault::Newer { .. } | FileFault::Renamed { .. }) =>
        {
            let path = base_path(store, name);
            let remedy = FileRemedy::RestoreFile { path: path.clone() };
            return Err(fault.into_error(&path, remedy));
        }
        found => found.ok(),
    };
    refuse_newer_journal(&journal_path(store, name))?;
    Ok(base.map(|base| base.header.uuid))
}

/// Whether what is stored is older than the last commit that an image knows of. A damaged header
/// may be an older one, and proves nothing.
pub(crate) fn is_behind(stored: &Stored, image: &Image) -> bool {
    let (base, header) = (&stored.base.header, &image.header);
    let known = (header.checkpoint_count, header.journal_sequence);
    base.uuid == header.uuid && !image.slot_damaged && last_commit(stored) < known
}

/// Whether what is stored has a commit that the header of an image does not know of.
pub(crate) fn knows_more(stored: &Stored, image: &Header) -> bool {
    last_commit(stored) > (image.checkpoint_count, image.journal_sequence)
}

/// The number of the base, and of the last commit after it.
fn last_commit(stored: &Stored) -> (u64, u64) {
    let commits = stored.journal.as_ref().map_or(0, |journal| journal.extent.commits());
    (stored.base.header.checkpoint_count, commits)
}

/// How far a store is. A record takes the place, and the number, of the mark of the session before,
/// so a marked end lies between the last commit and the next one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) checkpoint_count: u64,
    /// Behind that checkpoint.
    pub(crate) commits: u64,
    /// The last writer closed in order.
    pub(crate) is_marked: bool,
}

impl Position {
    /// What a header knows of.
    pub(crate) fn of_header(header: &Header) -> Position {
        let (checkpoint_count, commits) = (header.checkpoint_count, header.journal_sequence);
        Position { checkpoint_count, commits, is_marked: false }
    }
}

/// The newest checkpoint and record of what is stored.
pub(crate) fn position(stored: &Stored) -> Position {
    let extent = stored.journal.as_ref().map(|journal| &journal.extent);
    Position {
        checkpoint_count: stored.base.header.checkpoint_count,
        commits: extent.map_or(0, Extent::commits),
        is_marked: extent.is_some_and(|extent| extent.marked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::rescue::refuse_newer_rescue;

    /// A file that cannot be opened may be a newer program's or another region's: it is not
    /// replaced.
    ///
    /// Guarantee: heap/old-formats
    #[test]
    fn file_that_cannot_be_opened_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let name = RegionName::parse("words").unwrap();
        let checks = |store: &Path| {
            [
                check_replaceable(store, &name).map(drop),
                refuse_newer_journal(&journal_path(store, &name)),
                refuse_newer_rescue(store, &name),
            ]
        };
        checks(directory.path()).into_iter().for_each(Result::unwrap);
        // Nothing below a file can be opened, for root neither.
        let store = directory.path().join("store");
        std::fs::write(&store, "").unwrap();
        for refused in checks(&store) {
            let error = refused.unwrap_err();
            assert!(matches!(error, RegionError::Io { step: "open", .. }), "{error}");
        }
    }
}
