//! Rescue copies: what an image holds, written whole to the store when the machine may be about to
//! go, while its writers are stopped. A copy is no checkpoint: no program was asked, so a
//! transaction may be open in it, as after a kill.
//!
//! Invariants:
//! - A copy gets its name only when it is whole and durable, so the one before it stays until then.
//! - A copy holds everything that the store held when it was made, and says which checkpoint and
//!   which record of the journal that was. It counts only at a cold open, and only while the store
//!   has nothing newer. So what a commit acknowledged is never undone by a copy that is older.
//! - A commit that finds nothing to write, though a program stored something and took it back,
//!   removes the copy first: the store's numbers would not tell that it is older.
//! - Who removes a copy removes the temporary file first, so that one which is being made, perhaps
//!   without the region's lock, gets no name.
//! - A copy that a newer program wrote is neither passed over nor replaced, and goes only with the
//!   whole region.
//! - Nothing here changes an image, a base file or a journal.

#![forbid(unsafe_code)]

mod naming;

use std::fs::File;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use holdfast_sys::file::private_options;
use holdfast_sys::lock::{FileLock, LockMode, LockOutcome};
use serde::Serialize;
use zerocopy::IntoBytes;

pub use crate::care::rescue::naming::Replaced;
use crate::care::settle::checksum_of;
use crate::error::{FileRemedy, RegionError, Result};
use crate::media::files::{journal_path, rescue_lock_path, rescue_temporary_path};
use crate::media::format::{DATA_OFFSET, FileState, Header};
use crate::media::image::{Backing, BuildError, FileFault, Image};
use crate::media::redo;
use crate::media::sparse::{CopyError, DataSum, sum_and_copy};
use crate::name::RegionName;
use crate::names::namespace::NameSpace;
use crate::names::places::current_image_path;
use crate::store::base::{open_base, target_error};
use crate::store::rescue::{NOTE_OFFSET, Note, open_rescue, position_of_copy, refuse_newer_rescue};
use crate::store::stored::{Position, Stored, position};

/// How long another process may take to make a copy in the same store.
const OTHERS_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);
/// How often a store that cannot be read is looked at again before it counts as damaged.
const LOOKS_MAX: u32 = 5;

/// The writer of a region that is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writer {
    /// No process, or this one, which is stopped.
    Stopped(Option<u32>),
    /// Anybody.
    Running,
}

/// A copy on its way.
#[derive(Debug)]
enum Begun {
    /// There is nothing to wait for.
    Done(Rescue),
    /// It is written, under a temporary name; not durable yet. Until it is, no process may begin to
    /// write the region.
    Built { built: Box<Image>, written: DataSum, _lock: Option<FileLock> },
}

/// What making a rescue copy did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Rescue {
    /// A copy was written.
    Written {
        /// Bytes of data in it; pages of zeros are holes.
        bytes: u64,
    },
    /// The copy that is there holds the same.
    Unchanged,
    /// The store holds the same.
    Stored,
    /// There is no image, so the store has everything.
    NoImage,
    /// A program stored, or could have stored, to the region meanwhile, or removed or committed
    /// what was copied, so no copy was made.
    Busy,
}

impl NameSpace {
    /// Writes what the image of a region holds to the store, beside the base file. Needs no key:
    /// who may read the image and write to the store may copy it. Takes the region's lock while no
    /// process writes it; the process `stopped_writer` may have it instead.
    ///
    /// The caller sees to it that no process stores to the region meanwhile: that writer, and
    /// everybody to whom it lent the image, must be stopped (SIGSTOP) until this returns.
    ///
    /// # Errors
    /// `NotFound`; `Held` when another process than `stopped_writer` writes the region, or makes a
    /// copy; one of the errors about a bad file, of a copy that a newer program wrote as well;
    /// `StoreFull`, `Io`. The copy that was there before stays.
    pub fn rescue(&self, name: &RegionName, stopped_writer: Option<u32>) -> Result<Rescue> {
        self.rescue_with(name, Writer::Stopped(stopped_writer), false, || true)
    }

    /// As [`NameSpace::rescue`], and writes nothing if the image holds what the last copy or the
    /// base file does. That costs reading the image once more, so it is for copies that are made
    /// from time to time.
    ///
    /// `stood_still` is asked when the image was copied: if the writer goes on by then, for
    /// whatever reason, the copy is dropped ([`Rescue::Busy`]).
    ///
    /// # Errors
    /// As there.
    pub fn rescue_if_changed(
        &self,
        name: &RegionName,
        stopped_writer: Option<u32>,
        stood_still: impl FnOnce() -> bool,
    ) -> Result<Rescue> {
        self.rescue_with(name, Writer::Stopped(stopped_writer), true, stood_still)
    }

    /// As [`NameSpace::rescue_if_changed`], of a region whose writer goes on: the image is read
    /// again after it was copied, and if anything is different then, the copy is dropped
    /// ([`Rescue::Busy`]). If nothing is, the copy holds what the image held at the moment between
    /// the two, as far as no program puts back each page that it changes, which the counters of a
    /// heap prevent.
    ///
    /// # Errors
    /// As there; never `Held` by who writes it.
    pub fn rescue_if_quiet(&self, name: &RegionName) -> Result<Rescue> {
        self.rescue_with(name, Writer::Running, true, || true)
    }

    /// Whether store or rescue copy hold what the image holds now, as far as is known without
    /// stopping its writers: a `false` may be one because they store.
    ///
    /// # Errors
    /// As [`NameSpace::rescue`].
    pub fn is_rescued(&self, name: &RegionName) -> Result<bool> {
        let Some(image) = self.image_to_rescue(name)? else { return Ok(true) };
        let seen = self.seen_in_store(&image.header);
        Ok(self.holds_the_same(&image, seen)?.is_some())
    }

    fn rescue_with(
        &self,
        name: &RegionName,
        writer: Writer,
        if_changed: bool,
        stood_still: impl FnOnce() -> bool,
    ) -> Result<Rescue> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let _only = self.lock_rescues(name)?;
        let durable =
            self.sync_rescue(self.begin_rescue(name, writer, if_changed, stood_still)?)?;
        let mut replaced = Replaced::default();
        let rescue = self.name_rescue(durable, &mut replaced)?;
        if matches!(rescue, Rescue::Written { .. }) {
            self.sync_store()?;
        }
        Ok(rescue)
    }

    /// Everything but what waits for the disk.
    fn begin_rescue(
        &self,
        name: &RegionName,
        writer: Writer,
        if_changed: bool,
        stood_still: impl FnOnce() -> bool,
    ) -> Result<Begun> {
        // Shared: no process can begin to write, and readers go on.
        let lock = match self.lock(name, LockMode::Shared) {
            Ok(lock) => Some(lock),
            Err(RegionError::Held { holder, .. })
                if writer == Writer::Running
                    || holder.is_some() && writer == Writer::Stopped(holder) =>
            {
                None
            }
            Err(error) => return Err(error),
        };
        let Some(image) = self.image_to_rescue(name)? else {
            return Ok(Begun::Done(Rescue::NoImage));
        };
        refuse_newer_rescue(self.places().store(), name)?;
        // Before the image is read: whatever the store gets later is newer than the copy.
        let seen = self.seen_in_store(&image.header);
        self.sync_journal(name)?;
        if if_changed && let Some(same) = self.holds_the_same(&image, seen)? {
            if same == Rescue::Stored {
                self.drop_rescue(name)?;
            }
            return Ok(Begun::Done(same));
        }
        let written = self.write_rescue(&image, seen, writer == Writer::Running)?;
        Ok(match written {
            Some((built, _)) if !stood_still() => {
                self.remove_file(&built.path)?;
                Begun::Done(Rescue::Busy)
            }
            Some((built, written)) => Begun::Built { built: Box::new(built), written, _lock: lock },
            None => Begun::Done(Rescue::Busy),
        })
    }

    /// Whether the image still is what was copied.
    fn is_as_copied(&self, image: &Image, copied: &DataSum) -> Result<bool> {
        // At the moment between the two readings.
        if self.publication_of(image)?.is_some() {
            return Ok(false);
        }
        let again = sum_and_copy(&image.file, image.header.backed_bytes, None);
        let again = again.map_err(|error| read_error(error, image))?;
        let now = self.image_to_rescue(&image.header.name)?;
        Ok(again.checksum == copied.checksum && now.is_some_and(|now| now.header == image.header))
    }

    /// One copy at a time: they share a temporary name.
    fn lock_rescues(&self, name: &RegionName) -> Result<FileLock> {
        self.lock_rescues_within(OTHERS_PATIENCE, name)
    }

    pub(crate) fn lock_rescues_within(
        &self,
        patience: Duration,
        name: &RegionName,
    ) -> Result<FileLock> {
        let path = rescue_lock_path(self.places().store());
        let started = Instant::now();
        loop {
            let outcome = FileLock::acquire(&path, LockMode::Exclusive, PAUSE);
            match outcome.map_err(RegionError::io("lock", &path))? {
                LockOutcome::Acquired(lock) => return Ok(lock),
                LockOutcome::Held(_) if started.elapsed() < patience => std::thread::sleep(PAUSE),
                LockOutcome::Held(holder) => {
                    return Err(RegionError::Held { name: name.to_string(), holder });
                }
            }
        }
    }

    /// The image, with the header that an opener would go by.
    fn image_to_rescue(&self, name: &RegionName) -> Result<Option<Image>> {
        let path = current_image_path(self.places(), name);
        let mut image = match Image::open(path.clone(), name, false) {
            Ok(image) => image,
            Err(FileFault::Missing) => return Ok(None),
            Err(fault) => {
                return Err(fault.into_error(&path, FileRemedy::RestoreFile { path: path.clone() }));
            }
        };
        image.outlives_boot = self.places().images_outlive_boot(image.header.medium);
        // What a reset tore must not come back as a copy.
        if self.is_void(&image)? {
            return Ok(None);
        }
        if image.slot_damaged {
            let by_length =
                image.backed_bytes_by_length().map_err(RegionError::io("examine", &path))?;
            image.header.backed_bytes = by_length;
        }
        Ok(Some(image))
    }

    /// The newest checkpoint and record of the journal that the image goes on from, whatever has
    /// become of them.
    fn seen_in_store(&self, image: &Header) -> Position {
        let known = Position::of_header(image);
        for _ in 0..LOOKS_MAX {
            match Stored::open(self.places().store(), &image.name) {
                Ok(Some(stored)) if stored.base.header.uuid == image.uuid => {
                    return known.max(position(&stored));
                }
                Ok(_) => return known,
                // Its writer may be cutting the journal off, or folding it, while it is read.
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
        known
    }

    /// Makes durable what the stopped writer had appended. A copy that knows of a record which a
    /// power cut then takes away would be taken for as new as another record with the same number.
    fn sync_journal(&self, name: &RegionName) -> Result<()> {
        let path = journal_path(self.places().store(), name);
        match private_options().read(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            opened => opened
                .and_then(|journal| self.storage().sync_data(&journal))
                .map_err(RegionError::io("make durable", path)),
        }
    }

    /// What holds the same as the image: the copy or the base file.
    fn holds_the_same(&self, image: &Image, seen: Position) -> Result<Option<Rescue>> {
        if self.publication_of(image)?.is_some() {
            return Ok(None);
        }
        let (store, header) = (self.places().store(), &image.header);
        let is_like = |other: &Header, position: Position| {
            other.uuid == header.uuid
                && other.backed_bytes == header.backed_bytes
                && position == seen
        };
        let is_copy = |copy: &Image| is_like(&copy.header, position_of_copy(copy));
        let is_base = |base: &Image| is_like(&base.header, Position::of_header(&base.header));
        let rescue = open_rescue(store, &header.name).ok().filter(is_copy);
        let base = open_base(store, &header.name).ok().filter(is_base);
        if rescue.is_none() && base.is_none() {
            return Ok(None);
        }
        let found = sum_and_copy(&image.file, header.backed_bytes, None);
        let checksum = found.map_err(|error| read_error(error, image))?.checksum;
        let same =
            |file: Option<Image>| file.is_some_and(|file| file.header.data_checksum == checksum);
        Ok(if same(base) {
            Some(Rescue::Stored)
        } else {
            same(rescue).then_some(Rescue::Unchanged)
        })
    }

    /// Writes a copy under a temporary name. `None` when the image was found changed, if a process
    /// may be writing.
    fn write_rescue(
        &self,
        image: &Image,
        seen: Position,
        may_change: bool,
    ) -> Result<Option<(Image, DataSum)>> {
        let (store, storage) = (self.places().store(), self.storage());
        let header = Header {
            state: FileState::Open,
            continued: true,
            checkpoint_count: seen.checkpoint_count,
            journal_sequence: seen.commits + u64::from(seen.is_marked),
            ..image.header.clone()
        }
        .for_store();
        let (name, data_bytes) = (header.name.clone(), header.backed_bytes);
        let temporary = rescue_temporary_path(store, &name);
        self.remove_file(&temporary)?;
        let failed = |error| target_error(storage, error, &temporary, store, data_bytes);
        let step = |step| move |source| BuildError::Target { step, source };
        let mut written = DataSum { checksum: 0, pages: 0 };
        let filled = |file: &File, header: &mut Header| {
            let copied = sum_and_copy(&image.file, data_bytes, Some((storage, file)));
            written = copied.map_err(|error| match error {
                CopyError::Write(source) => BuildError::Target { step: "write", source },
                error => BuildError::Source(read_error(error, image)),
            })?;
            // A stopped writer has begun it.
            if let Some(path) = self.publication_of(image).map_err(BuildError::Source)? {
                let log = private_options().read(true).open(&path);
                let log =
                    log.map_err(RegionError::io("open", &path)).map_err(BuildError::Source)?;
                let write =
                    &mut |bytes: &[u8], offset| storage.write_at(file, bytes, DATA_OFFSET + offset);
                redo::replay(&log, &image.header, write)
                    .map_err(step("finish the publication in"))?;
                written = checksum_of(file, data_bytes)?;
            }
            header.data_checksum = written.checksum;
            storage
                .write_at(file, Note::new(seen.is_marked).as_bytes(), NOTE_OFFSET)
                .map_err(step("write"))
        };
        let built = Image::build(storage, temporary.clone(), header, Backing::Holes, filled);
        let built = built.map_err(failed)?;
        // The headers and what is left of the data: the disk works on them while the next copy is
        // made.
        storage.begin_write_out(&built.file, 0..DATA_OFFSET + data_bytes);
        // Before anything is synced: what is dropped costs the disk nothing.
        if may_change
            && !self
                .is_as_copied(image, &written)
                .inspect_err(|_| drop(storage.remove(&temporary)))?
        {
            self.remove_file(&temporary)?;
            return Ok(None);
        }
        Ok(Some((built, written)))
    }
}

fn read_error(error: CopyError, image: &Image) -> RegionError {
    let path = image.path.clone();
    match error {
        CopyError::Read(source) if source.kind() == ErrorKind::UnexpectedEof => {
            RegionError::Truncated {
                needed_bytes: image.header.file_bytes(),
                found_bytes: image.file.metadata().map_or(0, |found| found.len()),
                remedy: FileRemedy::RestoreFile { path: path.clone() },
                path,
            }
        }
        CopyError::Read(source) | CopyError::Write(source) => {
            RegionError::Io { step: "read", path, source }
        }
    }
}
