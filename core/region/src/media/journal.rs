//! The journal of a region: a file in the store that continues the base file, one checksummed
//! record behind the other, one for each commit.
//!
//! Invariants:
//! - A journal gets its name only when its header and first record are durable; from then on
//!   records are only added behind the last one (over zeros that were written ahead, where there
//!   are some), and each only after the one before it was synced without an error.
//! - It names the base that it continues (identity, checkpoint, checksum of the data). Beside any
//!   other base it is stale, or it is an error; it is never applied.
//! - After a failed write or sync it is not known what the disk has. The journal is then never
//!   appended to again: the caller drops it, and the next commit makes a new base.
//!
//! It must not decide when to append and when to make a base; that is the region's business.

#![forbid(unsafe_code)]

mod ahead;
mod layout;
mod reading;
mod record;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use ahead::Ahead;
use holdfast_sys::file::{FileId, effective_user, path_names_file, private_options};
pub(crate) use layout::{JOURNAL_HEADER_BYTES, JournalHeader};
pub(crate) use reading::{Extent, ReadFault, Sizes, apply, examine, whole_records};
pub(crate) use record::{PageSource, Record, Streamed, stream};

use crate::error::place::PlaceError;
use crate::error::{FileRemedy, RegionError, Result};
use crate::media::files::{base_path, journal_path, remove_temporaries, temporary_path};
use crate::media::format::{Header, HeaderFault};
use crate::media::image::{FileFault, Image, open_fault};
use crate::media::storage::{Storage, is_full};
use crate::name::RegionName;

/// A journal that continues the base it was looked up for, examined to its end.
#[derive(Debug)]
pub(crate) struct Continuation {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) header: JournalHeader,
    pub(crate) extent: Extent,
}

/// Looks for the journal that continues a base. `None` when there is no file, or a stale one: of an
/// earlier checkpoint, or of a region that had the name before.
pub(crate) fn find_journal(
    store: &Path,
    name: &RegionName,
    base: &Header,
    writable: bool,
) -> Result<Option<Continuation>> {
    let path = journal_path(store, name);
    let Some((file, header)) =
        open_journal(&path, base, writable, &remedy_for_journal(store, name))?
    else {
        return Ok(None);
    };
    let sizes = Sizes { backed_bytes: base.backed_bytes, limit_bytes: base.limit_bytes };
    match examine(&file, &header, sizes) {
        Ok(extent) => Ok(Some(Continuation { file, path, header, extent })),
        Err(fault @ ReadFault::Misfit { .. }) => {
            Err(fault.into_error(&path, FileRemedy::Repair { name: name.to_string() }))
        }
        Err(fault) => Err(fault.into_error(&path, remedy_for_journal(store, name))),
    }
}

/// The checkpoint that a journal says it continues, whatever else is with it.
pub(crate) fn continued_checkpoint(path: &Path) -> Option<u64> {
    let mut block = [0; JOURNAL_HEADER_BYTES];
    let file = private_options().read(true).open(path).ok()?;
    file.read_exact_at(&mut block, 0).ok()?;
    JournalHeader::decode(&block).ok().map(|header| header.checkpoint_count)
}

/// Refuses a journal that a newer program wrote, whatever it continues, and one that could not be
/// looked at, which may be such a one.
pub(crate) fn refuse_newer_journal(path: &Path) -> Result<()> {
    let mut block = [0; JOURNAL_HEADER_BYTES];
    let opened = private_options().read(true).open(path);
    let read = opened.map_err(|error| open_fault(error, path.to_owned())).and_then(|file| {
        let read = file.read_exact_at(&mut block, 0);
        read.map_err(|source| FileFault::Io { step: "read", source })
    });
    let fault = match read.map(|()| JournalHeader::decode(&block)) {
        Ok(Err(HeaderFault::Newer { version, flags })) => FileFault::Newer { version, flags },
        Err(fault) if fault.is_unseen() => fault,
        _ => return Ok(()),
    };
    Err(fault.into_error(path, FileRemedy::RestoreFile { path: path.to_owned() }))
}

/// What is wrong with a journal's place, header or base; its records are not read.
pub(crate) fn check_journal_header(store: &Path, name: &RegionName, base: &Header) -> Result<()> {
    open_journal(&journal_path(store, name), base, false, &remedy_for_journal(store, name))
        .map(drop)
}

/// What to do about a bad journal.
pub(crate) fn remedy_for_journal(store: &Path, name: &RegionName) -> FileRemedy {
    FileRemedy::MoveJournal { journal: journal_path(store, name), base: base_path(store, name) }
}

/// Opens a journal and checks everything but its records; `None` without one, or when it does not
/// continue the base.
pub(crate) fn open_journal(
    path: &Path,
    base: &Header,
    writable: bool,
    remedy: &FileRemedy,
) -> Result<Option<(File, JournalHeader)>> {
    let fail = |fault: FileFault| fault.into_error(path, remedy.clone());
    let file = match private_options().read(true).write(writable).open(path) {
        Ok(file) => file,
        Err(error) => {
            return match open_fault(error, path.to_owned()) {
                FileFault::Missing => Ok(None),
                fault => Err(fail(fault)),
            };
        }
    };
    let found = file.metadata().map_err(RegionError::io("examine", path))?;
    if !found.is_file() {
        return Err(
            PlaceError::WrongKind { path: path.to_owned(), expected: "regular file" }.into()
        );
    }
    let us = effective_user();
    if found.uid() != us {
        return Err(PlaceError::NotOurs { path: path.to_owned(), owner: found.uid(), us }.into());
    }
    let mut block = [0; JOURNAL_HEADER_BYTES];
    if found.len() < JOURNAL_HEADER_BYTES as u64 {
        let needed_bytes = JOURNAL_HEADER_BYTES as u64;
        return Err(fail(FileFault::Truncated { needed_bytes, found_bytes: found.len() }));
    }
    file.read_exact_at(&mut block, 0).map_err(RegionError::io("read", path))?;
    let header = JournalHeader::decode(&block).map_err(|fault| match fault {
        HeaderFault::Foreign => fail(FileFault::Foreign),
        HeaderFault::Damaged => RegionError::JournalDamaged {
            path: path.to_owned(),
            record: 0,
            offset: 0,
            remedy: remedy.clone(),
        },
        HeaderFault::Newer { version, flags } => fail(FileFault::Newer { version, flags }),
    })?;
    if header.uuid != base.uuid || header.checkpoint_count < base.checkpoint_count {
        return Ok(None);
    }
    if header.checkpoint_count > base.checkpoint_count || header.base_checksum != base.data_checksum
    {
        return Err(RegionError::JournalMismatch { path: path.to_owned(), remedy: remedy.clone() });
    }
    Ok(Some((file, header)))
}

impl ReadFault {
    pub(crate) fn into_error(self, path: &Path, remedy: FileRemedy) -> RegionError {
        let path = path.to_owned();
        match self {
            ReadFault::Damaged { sequence, offset } => {
                RegionError::JournalDamaged { path, record: sequence, offset, remedy }
            }
            ReadFault::Misfit { sequence, backed_bytes, limit_bytes } => {
                RegionError::JournalMisfit {
                    path,
                    record: sequence,
                    backed_bytes,
                    limit_bytes,
                    remedy,
                }
            }
            ReadFault::Read(source) => RegionError::Io { step: "read", path, source },
            ReadFault::Write(source) => RegionError::Io { step: "apply", path, source },
        }
    }
}

/// A journal as its writer knows it.
#[derive(Debug)]
pub(crate) struct Journal {
    pub(crate) header: JournalHeader,
    pub(crate) last_sequence: u64,
    pub(crate) end: u64,
    /// Longer than this, it is folded into a new base.
    pub(crate) bound_bytes: u64,
    /// `None` until the first record is appended.
    file: Option<File>,
    /// The base that it continues; `None` when it could not be told apart.
    base: Option<FileId>,
    /// The same, held open: when it is removed, its inode is no other file's meanwhile.
    _base_file: File,
    ahead: Ahead,
    store: PathBuf,
    name: RegionName,
}

impl Journal {
    /// The journal that will continue a base; no file yet.
    pub(crate) fn after_base(store: &Path, base: Image, bound_bytes: u64) -> Journal {
        let random = uuid::Uuid::new_v4().as_u64_pair();
        Journal {
            header: JournalHeader {
                uuid: base.header.uuid,
                checkpoint_count: base.header.checkpoint_count,
                base_checksum: base.header.data_checksum,
                // Version and variant bits are fixed in each half, at different places.
                salt: random.0 ^ random.1.rotate_left(32),
            },
            last_sequence: 0,
            end: JOURNAL_HEADER_BYTES as u64,
            bound_bytes,
            file: None,
            base: FileId::of(&base.file).ok(),
            _base_file: base.file,
            ahead: Ahead::of(JOURNAL_HEADER_BYTES as u64),
            store: store.to_owned(),
            name: base.header.name,
        }
    }

    /// Whether an opener would find it, and the base that it continues. Looks at names only, and
    /// what cannot be looked at is taken to be there.
    pub(crate) fn is_in_place(&self) -> bool {
        let is_named = |file: &File| {
            path_names_file(&journal_path(&self.store, &self.name), file).unwrap_or(true)
        };
        let has_base = match FileId::at(&base_path(&self.store, &self.name)) {
            Ok(found) => found.is_some() && (found == self.base || self.base.is_none()),
            Err(_) => true,
        };
        has_base && self.file.as_ref().is_none_or(is_named)
    }

    /// Takes over the journal of an earlier session, which continues a base and whose records up to
    /// `durable_sequence` are known to be on the disk; `None` when it lacks one of these.
    ///
    /// What follows them was read, but may be only in the kernel's cache, after a sync that failed.
    /// Only the last record can be such a one; it is written and synced again before anything is
    /// appended.
    pub(crate) fn adopt(
        storage: &dyn Storage,
        store: &Path,
        base: Image,
        found: Continuation,
        durable_sequence: u64,
        bound_bytes: u64,
    ) -> io::Result<Option<Journal>> {
        let Continuation { file, header, extent, .. } = found;
        // The next record takes the place of the mark.
        let last_sequence = extent.commits();
        let end = if extent.marked { extent.last_start } else { extent.end };
        if last_sequence < durable_sequence {
            return Ok(None);
        }
        if extent.torn {
            storage.set_len(&file, extent.end)?;
        }
        let ahead = Ahead::of(file.metadata()?.len());
        if last_sequence > durable_sequence && !extent.marked {
            let mut last = Vec::new();
            let bytes = (extent.end - extent.last_start) as usize;
            last.try_reserve(bytes).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
            last.resize(bytes, 0);
            file.read_exact_at(&mut last, extent.last_start)?;
            storage.write_at(&file, &last, extent.last_start)?;
            storage.sync_data(&file)?;
            // Its maker may have died before the journal's name was durable.
            storage.sync_directory(store)?;
        }
        Ok(Some(Journal {
            header,
            last_sequence,
            end,
            bound_bytes,
            file: Some(file),
            base: FileId::of(&base.file).ok(),
            _base_file: base.file,
            ahead,
            store: store.to_owned(),
            name: base.header.name,
        }))
    }

    /// Appends a record and makes it durable. After an error this journal must not be used again.
    pub(crate) fn append(&mut self, storage: &dyn Storage, record: &Record) -> io::Result<()> {
        debug_assert_eq!(record.sequence, self.last_sequence + 1);
        self.append_by(storage, |file, offset| {
            storage.write_at(file, record.bytes(), offset)?;
            Ok(record.bytes().len() as u64)
        })
    }

    /// Appends the record that `write` puts at an offset of the file and whose bytes it returns;
    /// makes it durable. After an error this journal must not be used again.
    pub(crate) fn append_by(
        &mut self,
        storage: &dyn Storage,
        write: impl FnOnce(&File, u64) -> io::Result<u64>,
    ) -> io::Result<()> {
        let bytes = if let Some(file) = &self.file {
            let written = write(file, self.end).and_then(|bytes| {
                self.ahead.write(storage, (file, &self.store), self.end + bytes, bytes)?;
                storage.sync_data(file)?;
                Ok(bytes)
            });
            if written.as_ref().is_err_and(is_full) {
                // What has filled the disk is no record; the next base needs its room. That it may
                // fail changes nothing.
                let _ = storage.set_len(file, self.end);
            }
            written?
        } else {
            let (file, bytes) = self.create(storage, write)?;
            self.file = Some(file);
            bytes
        };
        self.end += bytes;
        self.last_sequence += 1;
        Ok(())
    }

    /// Writes an empty record behind the last one, which is durable: when the last one is found
    /// damaged, the mark tells that it is not the torn end of a commit that was not acknowledged.
    /// What was written ahead is given back. Neither is synced, and either may be lost.
    pub(crate) fn mark_end(&self, storage: &dyn Storage, backed_bytes: u64) -> io::Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        let mark =
            Record::build(file, &[], backed_bytes, &self.header, self.last_sequence + 1, self.end)?;
        storage.write_at(file, mark.bytes(), self.end)?;
        self.ahead.give_back(storage, file, self.end + mark.bytes().len() as u64)
    }

    fn create(
        &self,
        storage: &dyn Storage,
        write: impl FnOnce(&File, u64) -> io::Result<u64>,
    ) -> io::Result<(File, u64)> {
        remove_temporaries(storage, &self.store, &self.name).map_err(|error| match error {
            RegionError::Io { source, .. } => source,
            other => io::Error::other(other),
        })?;
        let temporary = temporary_path(&self.store, &self.name);
        let file = storage.create(&temporary)?;
        let named = (|| {
            storage.write_at(&file, &self.header.encode(), 0)?;
            let bytes = write(&file, self.end)?;
            storage.sync(&file)?;
            storage.rename(&temporary, &journal_path(&self.store, &self.name))?;
            io::Result::Ok(bytes)
        })();
        let bytes = named.inspect_err(|_| {
            // A temporary file that stays is removed by the next one who builds under this name.
            let _ = storage.remove(&temporary);
        })?;
        storage.sync_directory(&self.store)?;
        Ok((file, bytes))
    }
}
