//! Commits: at which level, and whether what changed goes to the journal or into a new base.
//!
//! Invariants:
//! - `Ok` at level `power` means that everything stored before the call is durable in the store.
//! - A record is appended only when the region knows which pages the store lacks, and the journal
//!   is in order. Everything else makes a base, which needs no knowledge of what came before.
//! - From the first step of a new base until it is complete the journal counts as broken, so
//!   nothing is appended to a journal that the new base made stale.
//! - A commit relies on what earlier ones wrote only if base and journal still have their names.

#![forbid(unsafe_code)]

use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use holdfast_types::Durability;
use serde::Serialize;

use crate::error::{RegionError, Result};
use crate::media::files::{journal_path, remove_temporaries};
use crate::media::format::Header;
use crate::media::journal::{Journal, PageSource, Record, Streamed, stream};
use crate::media::pending::Pending;
use crate::media::sparse::PAGE_BYTES;
use crate::media::storage::{Storage, is_full};
use crate::names::region::{CheckpointReport, Region, Session};
use crate::store::base::write_base;
use crate::store::compare::differing;
use crate::store::debt::Debt;
use crate::store::journal_slot::JournalSlot;
use crate::store::stored::{Stored, adoptable, next_base_header};

/// A journal may always become this long before it is folded into a new base.
const JOURNAL_BYTES_MIN: u64 = 4 << 20;
/// Commits with more changed bytes make a base.
const RECORD_BYTES_MAX: u64 = 256 << 20;
/// A record of more changed bytes is not built in memory, if there is but one writer, who waits
/// anyway.
const BUILT_BYTES_MAX: u64 = 512 << 10;

/// Whether others may store as soon as a commit is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writers {
    One,
    Many,
}

/// Where a commit put what had changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Written {
    /// Nowhere: nothing had changed, or the level needs no copy.
    Nothing,
    /// A record was appended to the journal.
    Journal,
    /// A new base file was made, and the journal begins anew.
    Base,
    /// It was written back from the processor's caches to the image, which survives what the level
    /// names.
    Memory,
}

/// What a commit did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CommitReport {
    /// Where the changes went.
    pub written: Written,
    /// Pages of data written; pages of zeros need no bytes.
    pub pages: u64,
    /// Bytes written for it: the pages and what describes them. For a base without its headers.
    pub bytes: u64,
    /// Which failure it survives: the level that was asked for, or a higher one where that one is
    /// not offered.
    pub level: Durability,
}

impl CommitReport {
    const fn nothing(level: Durability) -> CommitReport {
        CommitReport { written: Written::Nothing, pages: 0, bytes: 0, level }
    }
}

impl From<Streamed> for CommitReport {
    fn from(streamed: Streamed) -> CommitReport {
        let level = Durability::Power;
        CommitReport {
            written: Written::Journal,
            pages: streamed.pages,
            bytes: streamed.bytes,
            level,
        }
    }
}

impl From<CommitReport> for CheckpointReport {
    fn from(report: CommitReport) -> CheckpointReport {
        CheckpointReport {
            bytes: report.pages * PAGE_BYTES,
            pages: report.pages,
            skipped: report.written == Written::Nothing,
        }
    }
}

/// The part of a commit that needs writers kept away, done.
#[derive(Debug)]
pub(crate) enum Prepared {
    /// Nothing is left to do.
    Done(CommitReport),
    /// This is to be appended.
    Record(Record),
}

impl Region {
    /// Makes everything stored so far count and survive the failure that the level names. No thread
    /// may store to the region meanwhile; [`crate::SharedRegion`] sees to that for many.
    ///
    /// At level `power`, the pages that changed are appended to the journal and synced. Where these
    /// are not known, image and store are compared; where most has changed, or the journal has
    /// grown too long, a new base is made. The level `system` is done as `power` unless the pool
    /// outlives the boot and stores are ordered (see [`Region::promise_order`]); the report says
    /// what was done.
    ///
    /// # Errors
    /// `StoreFull` and most `Io` errors mean that nothing is promised about the stores since the
    /// last commit; what was durable before is, the image has everything, and the next commit makes
    /// a new base. `BackingLost`, `BackingFailed` and `Displaced` refuse to let a bad image into
    /// the store and poison the region. `NewerFormat` when a newer program wrote the base or the
    /// journal, `Renamed` and `Clash` when the base is another region's: it stays, and the image
    /// has everything.
    pub fn commit(&mut self, durability: Durability) -> Result<CommitReport> {
        let published = self.publish()?;
        match durability {
            Durability::Process => self.commit_to_process(),
            level if self.commits_to_memory(level) => self.commit_to_memory(published.bytes),
            _ => self.commit_to_store(),
        }
    }

    /// As [`Region::commit`] at level `power`, of what counts already: in the mode `atomic` nothing
    /// is published. The first one of a session also looks whether the store has what it should
    /// have, and makes it anew if a file was lost.
    ///
    /// # Errors
    /// As there.
    pub fn checkpoint(&mut self) -> Result<CheckpointReport> {
        if matches!(*JournalSlot::lock(&self.journal), JournalSlot::Unread) {
            self.debt.set_proven(false);
        }
        self.commit_to_store().map(CheckpointReport::from)
    }

    pub(crate) fn commit_to_store(&mut self) -> Result<CommitReport> {
        match self.prepare_commit(Writers::One)? {
            Prepared::Done(report) => Ok(report),
            Prepared::Record(record) => {
                let appended =
                    JournalSlot::lock(&self.journal).append(self.names.storage(), &record);
                appended
                    .map_err(|source| self.append_error(source, record.bytes().len() as u64))?;
                Ok(record.report())
            }
        }
    }

    /// Stores are in the image, which outlives the process, unless it was cut off.
    pub(crate) fn commit_to_process(&self) -> Result<CommitReport> {
        self.check_usable()?;
        if self.lost_backing() {
            Err(self.backing_lost())
        } else {
            Ok(CommitReport::nothing(Durability::Process))
        }
    }

    /// Does all of a `power` commit that must see no stores: builds or streams the record, or makes
    /// a base.
    pub(crate) fn prepare_commit(&mut self, writers: Writers) -> Result<Prepared> {
        self.check_usable()?;
        const NOTHING: Prepared = Prepared::Done(CommitReport::nothing(Durability::Power));
        if self.is_read_only() {
            return Ok(NOTHING);
        }
        self.check_backing()?;
        self.suspect_stores();
        self.take_stores()?;
        self.write_back_stores()?;
        self.drop_lost_journal();
        if !self.lacks() && self.debt.is_proven() {
            return Ok(NOTHING);
        }
        self.look_for_changes();
        if !self.lacks() {
            return Ok(NOTHING);
        }
        if !self.debt.is_unknown()
            && let Some(prepared) = self.prepare_record(writers)?
        {
            self.debt.settle();
            return Ok(prepared);
        }
        self.make_base().map(Prepared::Done)
    }

    /// Where base or journal were removed or replaced since the last commit, no opener would find
    /// what is appended, nor what was committed before: only a new base will do.
    fn drop_lost_journal(&self) {
        let mut slot = JournalSlot::lock(&self.journal);
        if matches!(&*slot, JournalSlot::Ready(journal) if !journal.is_in_place()) {
            *slot = JournalSlot::Broken;
        }
    }

    /// Remembers ranges that the store lacks.
    pub(crate) fn note_pending(&mut self, ranges: &[Range<u64>]) {
        let backed_bytes = self.backed_bytes();
        for range in ranges {
            let range = range.start..range.end.min(backed_bytes);
            self.debt.note(range.clone());
            if self.image.outlives_boot {
                self.unwritten.note(range);
            }
        }
    }

    /// Where it was not noticed what changed since the last session's last commit, image and store
    /// tell. Afterwards the journal was looked at, and what is pending is what differs; or the
    /// region owes a base.
    fn look_for_changes(&mut self) {
        let slots = self.journal.clone();
        let mut slot = JournalSlot::lock(&slots);
        if !matches!(*slot, JournalSlot::Unread) {
            return;
        }
        // That it stays changes nothing.
        let _ = self.remove_leftovers();
        let unnoticed = self.debt.bytes().is_none_or(|bytes| bytes >= self.backed_bytes());
        let (store, image) = (self.names.places().store(), &self.image.header);
        let Some(stored) = adoptable(store, image) else {
            *slot = JournalSlot::Broken;
            return;
        };
        let enough_bytes = self.backed_bytes().min(RECORD_BYTES_MAX) / 2;
        let found = match unnoticed {
            true => {
                differing(&stored, &self.image.file, self.backed_bytes(), enough_bytes).map(Some)
            }
            false => Some(None),
        };
        let stored_bytes = stored.backed_bytes();
        let adopted = found.and_then(|found| {
            Some((found, adopt_journal(self.names.storage(), store, image, stored)?))
        });
        let Some((found, journal)) = adopted else {
            *slot = JournalSlot::Broken;
            return;
        };
        if found.as_ref().is_some_and(Pending::is_empty) {
            // Nothing will be written, so nothing would tell that a rescue copy is older than what
            // counts now. Beside one that has to stay, a new base does.
            let names = self.names.clone();
            if names.drop_rescue(self.name()).is_err() {
                *slot = JournalSlot::Broken;
                return;
            }
        }
        // The newest name in the store may have been given by a process that died before it was
        // durable.
        if !self.debt.is_proven() && self.names.storage().sync_directory(store).is_err() {
            *slot = JournalSlot::Broken;
            return;
        }
        self.debt.set_proven(true);
        *slot = JournalSlot::Ready(journal);
        if let Some(found) = found {
            let sizes_differ = stored_bytes != self.backed_bytes();
            self.debt.set_found(found, sizes_differ);
        }
    }

    /// The pending pages as a record, appended already if they are many; `None` when a base is due
    /// instead.
    fn prepare_record(&mut self, writers: Writers) -> Result<Option<Prepared>> {
        let backed_bytes = self.backed_bytes();
        let Some(pending) = self.debt.ranges() else { return Ok(None) };
        let dirty_bytes: u64 = pending.iter().map(|range| range.end - range.start).sum();
        if dirty_bytes >= backed_bytes.min(RECORD_BYTES_MAX) {
            return Ok(None);
        }
        let slots = self.journal.clone();
        let mut slot = JournalSlot::lock(&slots);
        let JournalSlot::Ready(journal) = &mut *slot else { return Ok(None) };
        if journal.end > journal.bound_bytes {
            return Ok(None);
        }
        let source: &dyn PageSource = match self.attachment.mapped() {
            Some(mapped) => mapped,
            None => &self.image.file,
        };
        let (sequence, storage) = (journal.last_sequence + 1, self.names.storage());
        if writers == Writers::One && dirty_bytes > BUILT_BYTES_MAX {
            let (header, mut streamed) = (journal.header.clone(), Streamed { bytes: 0, pages: 0 });
            let appended = journal.append_by(storage, |file, offset| {
                let target = (storage, file, offset);
                let is_whole = || !self.lost_backing();
                streamed =
                    stream(source, &pending, backed_bytes, (&header, sequence), target, is_whole)?;
                Ok(streamed.bytes)
            });
            if appended.is_err() {
                *slot = JournalSlot::Broken;
            }
            drop(slot);
            self.check_whole()?;
            return match appended {
                Ok(()) => Ok(Some(Prepared::Done(streamed.into()))),
                Err(source) => Err(self.append_error(source, dirty_bytes)),
            };
        }
        let built =
            Record::build(source, &pending, backed_bytes, &journal.header, sequence, journal.end);
        drop(slot);
        self.check_whole()?;
        match built {
            Ok(record) => Ok(Some(Prepared::Record(record))),
            // A base is made through a small buffer.
            Err(error) if error.kind() == std::io::ErrorKind::OutOfMemory => Ok(None),
            Err(source) => {
                // As in `make_base`.
                self.check_backing()?;
                Err(RegionError::Io { step: "read", path: self.image.path.clone(), source })
            }
        }
    }

    /// Where the image was cut off, memory shows something else.
    fn check_whole(&mut self) -> Result<()> {
        if self.lost_backing() {
            self.session = Session::Poisoned;
            return Err(self.backing_lost());
        }
        Ok(())
    }

    /// From now on only a new base will do, whatever is in the store.
    pub(crate) fn owe_base(&mut self) {
        self.debt.set_unknown();
        *JournalSlot::lock(&self.journal) = JournalSlot::Broken;
    }

    /// Removes what a session that died left half-made in the store. That means to list all that is
    /// there, so it is done once, and only after such a session.
    pub(crate) fn remove_leftovers(&mut self) -> Result<()> {
        if self.has_leftovers {
            let store = self.names.places().store();
            remove_temporaries(self.names.storage(), store, self.name())?;
            self.has_leftovers = false;
        }
        Ok(())
    }

    /// Copies the image to a new base file, whose checkpoint makes the journal stale.
    fn make_base(&mut self) -> Result<CommitReport> {
        let store = self.names.places().store().to_owned();
        self.names.check_store_of(self.name(), self.uuid())?;
        self.owe_base();
        self.take_stores()?;
        self.remove_leftovers()?;
        let header = next_base_header(&store, &self.image.header);
        let (written, base) =
            match write_base(self.names.storage(), &self.image.file, header, &store) {
                Ok(written) => written,
                Err(error) => {
                    // The image may have been cut off while it was read; that error says more.
                    self.check_backing()?;
                    self.owe()?;
                    return Err(error);
                }
            };
        let stale = journal_path(&store, self.name());
        if stale.symlink_metadata().is_ok() {
            // One that stays is recognised as stale, and replaced by the next one.
            let _ = self.names.storage().remove(&stale);
        }
        self.session = Session::Poisoned;
        self.image
            .change_header(self.names.storage(), |image| {
                image.checkpoint_count = base.header.checkpoint_count;
                image.journal_sequence = 0;
            })
            .map_err(RegionError::io("write the header of", &self.image.path))?;
        self.session = Session::Writer;
        let data_bytes = written.pages * PAGE_BYTES;
        let journal = Journal::after_base(&store, base, bound_for(data_bytes));
        *JournalSlot::lock(&self.journal) = JournalSlot::Ready(journal);
        self.debt = Debt::none(true);
        let level = Durability::Power;
        Ok(CommitReport { written: Written::Base, pages: written.pages, bytes: data_bytes, level })
    }

    /// The error of an append that failed. The store lacks something from now on.
    fn append_error(&mut self, source: std::io::Error, needed_bytes: u64) -> RegionError {
        // The slot is broken, which makes the region dirty. Without this its stores would be
        // noticed one by one, to no end; that it may fail changes nothing.
        let _ = self.owe();
        append_error(
            self.names.storage(),
            self.names.places().store(),
            self.name(),
            needed_bytes,
            source,
        )
    }
}

impl Record {
    pub(crate) fn report(&self) -> CommitReport {
        let (bytes, level) = (self.bytes().len() as u64, Durability::Power);
        CommitReport { written: Written::Journal, pages: self.pages, bytes, level }
    }
}

/// Says what a failed append means.
pub(crate) fn append_error(
    storage: &dyn Storage,
    store: &Path,
    name: &crate::name::RegionName,
    needed_bytes: u64,
    source: std::io::Error,
) -> RegionError {
    if is_full(&source) {
        return RegionError::StoreFull {
            needed_bytes,
            available_bytes: storage.available_bytes(store).unwrap_or(0),
            store: store.to_owned(),
        };
    }
    RegionError::Io { step: "append to", path: journal_path(store, name), source }
}

fn bound_for(base_bytes: u64) -> u64 {
    JOURNAL_BYTES_MIN.max(base_bytes)
}

/// The journal that continues the image's last checkpoint.
fn adopt_journal(
    storage: &dyn Storage,
    store: &Path,
    image: &Header,
    stored: Stored,
) -> Option<Journal> {
    let Stored { base, journal } = stored;
    let bound_bytes = bound_for(base.file.metadata().ok()?.blocks() * 512);
    let durable_sequence = image.journal_sequence;
    match journal {
        Some(found) => {
            Journal::adopt(storage, store, base, found, durable_sequence, bound_bytes).ok()?
        }
        None => (durable_sequence == 0).then(|| Journal::after_base(store, base, bound_bytes)),
    }
}
