//! Rescue copies: what an image holds, written whole to the store when the machine may be about to go, while its writers
//! are stopped. A copy is no checkpoint: no program was asked, so a transaction may be open in it, as after a kill.
//!
//! Invariants:
//! - A copy gets its name only when it is whole and durable, so the one before it stays until then.
//! - A copy holds everything that the store held when it was made, and says which checkpoint and which record of the
//!   journal that was. It counts only at a cold open, and only while the store has nothing newer. So what a commit
//!   acknowledged is never undone by a copy that is older.
//! - A commit that finds nothing to write, though a program stored something and took it back, removes the copy first: the
//!   store's numbers would not tell that it is older.
//! - Nothing here changes an image, a base file or a journal.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use holdfast_sys::file::private_options;
use holdfast_sys::lock::{FileLock, LockMode, LockOutcome};
use holdfast_sys::process::boot_id;
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::base::{open_base, target_error, verify_base};
use crate::error::{RegionError, Remedy, Result};
use crate::files::{journal_path, rescue_lock_path, rescue_path, rescue_temporary_path};
use crate::format::{DATA_OFFSET, FileState, Header, SLOTS_BYTES};
use crate::image::{Backing, BuildError, FileFault, Image};
use crate::medium::{current_image_path, redo_paths};
use crate::name::RegionName;
use crate::namespace::NameSpace;
use crate::redo;
use crate::settle::checksum_of;
use crate::sparse::{CopyError, DataSum, PAGE_BYTES, sum_and_copy};
use crate::stored::Stored;

const MAGIC: [u8; 8] = *b"HFRESCUE";
const VERSION: u32 = 1;
/// Where the note is: in the part of the file that base files leave empty.
const NOTE_OFFSET: u64 = SLOTS_BYTES as u64;
/// How long somebody else may take to make a copy in the same store.
const OTHERS_PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(1);

/// What tells a rescue copy from a base file, and where it comes from.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Note {
    magic: [u8; 8],
    version: U32,
    reserved: U32,
    boot: [u8; 16],
    taken_unix_s: U64,
    /// XXH3-64 of all before.
    checksum: U64,
}

const _: () = assert!(size_of::<Note>() == 48);

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
}

impl NameSpace {
    /// Writes what the image of a region holds to the store, beside the base file. Needs no key: who may read the image
    /// and write to the store may copy it. Takes the region's lock while nobody writes it; the process
    /// `stopped_writer` may have it instead.
    ///
    /// The caller sees to it that no process stores to the region meanwhile: that writer, and everybody to whom
    /// it lent the image, must be stopped (SIGSTOP) until this returns.
    ///
    /// # Errors
    /// `NotFound`; `Held` when another process than `stopped_writer` writes the region, or makes a copy; one of the errors
    /// about a bad file; `StoreFull`, `Io`. The copy that was there before stays.
    pub fn rescue(&self, name: &RegionName, stopped_writer: Option<u32>) -> Result<Rescue> {
        self.rescue_with(name, stopped_writer, false)
    }

    /// As [`NameSpace::rescue`], and writes nothing if the image holds what the last copy or the base file does. That
    /// costs reading the image once more, so it is for copies that are made from time to time.
    ///
    /// # Errors
    /// As there.
    pub fn rescue_if_changed(&self, name: &RegionName, stopped_writer: Option<u32>) -> Result<Rescue> {
        self.rescue_with(name, stopped_writer, true)
    }

    /// Whether store or rescue copy hold what the image holds now, as far as can be told without stopping its writers: a
    /// `false` may be one because they store.
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
        stopped_writer: Option<u32>,
        if_changed: bool,
    ) -> Result<Rescue> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let _only = self.lock_rescues(name)?;
        // Shared: nobody can begin to write, and whoever reads goes on.
        let _lock = match self.lock(name, LockMode::Shared) {
            Ok(lock) => Some(lock),
            Err(RegionError::Held { holder, .. }) if holder.is_some() && holder == stopped_writer => None,
            Err(error) => return Err(error),
        };
        let Some(image) = self.image_to_rescue(name)? else { return Ok(Rescue::NoImage) };
        // Before the image is read: whatever the store gets later is newer than the copy.
        let seen = self.seen_in_store(&image.header);
        self.sync_journal(name)?;
        if if_changed && let Some(same) = self.holds_the_same(&image, seen)? {
            if same == Rescue::Stored {
                self.remove_rescue(name)?;
            }
            return Ok(same);
        }
        let written = self.write_rescue(&image, seen)?;
        Ok(Rescue::Written { bytes: written.pages * PAGE_BYTES })
    }

    /// One copy at a time: they share a temporary name.
    fn lock_rescues(&self, name: &RegionName) -> Result<FileLock> {
        let path = rescue_lock_path(self.places.store());
        let started = Instant::now();
        loop {
            let outcome = FileLock::acquire(&path, LockMode::Exclusive, PAUSE);
            match outcome.map_err(RegionError::io("lock", &path))? {
                LockOutcome::Acquired(lock) => return Ok(lock),
                LockOutcome::Held(_) if started.elapsed() < OTHERS_PATIENCE => std::thread::sleep(PAUSE),
                LockOutcome::Held(holder) => {
                    return Err(RegionError::Held { name: name.to_string(), holder });
                }
            }
        }
    }

    /// The image, with the header that an opener would go by.
    fn image_to_rescue(&self, name: &RegionName) -> Result<Option<Image>> {
        let path = current_image_path(&self.places, name);
        let mut image = match Image::open(path.clone(), name, false) {
            Ok(image) => image,
            Err(FileFault::Missing) => return Ok(None),
            Err(fault) => return Err(fault.into_error(&path, Remedy::RestoreFile { path: path.clone() })),
        };
        if image.slot_damaged {
            let by_length = image.backed_bytes_by_length().map_err(RegionError::io("examine", &path))?;
            image.header.backed_bytes = by_length;
        }
        Ok(Some(image))
    }

    /// The newest checkpoint and record of the journal that the image goes on from, whatever has become of them.
    fn seen_in_store(&self, image: &Header) -> (u64, u64) {
        let known = (image.checkpoint_count, image.journal_sequence);
        match Stored::open(self.places.store(), &image.name) {
            Ok(Some(stored)) if stored.base.header.uuid == image.uuid => known.max(position(&stored)),
            _ => known,
        }
    }

    /// Makes durable what the stopped writer had appended. A copy that knows of a record which a power cut then takes away
    /// would be taken for as new as another record with the same number.
    fn sync_journal(&self, name: &RegionName) -> Result<()> {
        let path = journal_path(self.places.store(), name);
        match private_options().read(true).open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            opened => opened
                .and_then(|journal| self.storage.sync_data(&journal))
                .map_err(RegionError::io("make durable", path)),
        }
    }

    /// What holds the same as the image: the copy or the base file.
    fn holds_the_same(&self, image: &Image, seen: (u64, u64)) -> Result<Option<Rescue>> {
        if self.publication_of(image).is_some() {
            return Ok(None);
        }
        let (store, header) = (self.places.store(), &image.header);
        let is_like = |other: &Header| {
            other.uuid == header.uuid && other.backed_bytes == header.backed_bytes && of(other) == seen
        };
        let rescue = open_rescue(store, &header.name).ok().filter(|rescue| is_like(&rescue.header));
        let base = open_base(store, &header.name).ok().filter(|base| is_like(&base.header));
        if rescue.is_none() && base.is_none() {
            return Ok(None);
        }
        let found = sum_and_copy(&image.file, header.backed_bytes, None);
        let checksum = found.map_err(|error| read_error(error, image))?.checksum;
        let same = |file: Option<Image>| file.is_some_and(|file| file.header.data_checksum == checksum);
        Ok(if same(base) { Some(Rescue::Stored) } else { same(rescue).then_some(Rescue::Unchanged) })
    }

    /// A publication that a stopped writer has begun: it counts, and the image has perhaps a part of it.
    fn publication_of(&self, image: &Image) -> Option<File> {
        let counts = |path: &std::path::PathBuf| redo::counts(path, &image.header);
        let path = redo_paths(&self.places, &image.header.name).into_iter().find(counts)?;
        private_options().read(true).open(path).ok()
    }

    fn write_rescue(
        &self,
        image: &Image,
        (checkpoint_count, journal_sequence): (u64, u64),
    ) -> Result<DataSum> {
        let (store, storage) = (self.places.store(), &*self.storage);
        let header = Header {
            state: FileState::Open,
            continued: true,
            checkpoint_count,
            journal_sequence,
            ..image.header.clone()
        };
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
            if let Some(log) = self.publication_of(image) {
                let write = &mut |bytes: &[u8], offset| storage.write_at(file, bytes, DATA_OFFSET + offset);
                redo::replay(&log, &image.header, write).map_err(step("finish the publication in"))?;
                written = checksum_of(file, data_bytes)?;
            }
            header.data_checksum = written.checksum;
            storage.write_at(file, Note::new().as_bytes(), NOTE_OFFSET).map_err(step("write"))
        };
        let built = Image::build(storage, temporary.clone(), header, Backing::Holes, filled);
        let mut built = built.map_err(failed)?;
        let named = storage
            .sync(&built.file)
            .map_err(step("make durable"))
            .and_then(|()| built.rename(storage, rescue_path(store, &name)).map_err(step("rename")));
        if let Err(error) = named {
            let _ = storage.remove(&temporary);
            return Err(failed(error));
        }
        self.sync_store()?;
        Ok(written)
    }

    /// The rescue copy, if it is newer than what is stored and whole. The caller holds the name's lock, and there is no
    /// image.
    pub(crate) fn rescue_that_counts(
        &self,
        name: &RegionName,
        stored: Option<&Stored>,
    ) -> Result<Option<Image>> {
        let path = rescue_path(self.places.store(), name);
        let fail = |fault: FileFault| fault.into_error(&path, Remedy::RestoreFile { path: path.clone() });
        let whole = match (open_rescue(self.places.store(), name), stored) {
            (Err(FileFault::Missing), _) => return Ok(None),
            (Ok(rescue), Some(stored)) if !goes_on_from(&rescue.header, stored) => return Ok(None),
            // Without a base file the copy is all that there is.
            (Ok(rescue), None) => return Ok(Some(rescue)),
            (Err(fault), None) => return Err(fail(fault)),
            // Whatever is wrong with it, what was committed is in the store.
            (Err(_), Some(_)) => None,
            (Ok(rescue), Some(_)) => verify_base(&rescue, None).is_ok().then_some(rescue),
        };
        Ok(whole)
    }

    /// Builds an image from a copy. It owes the store a checkpoint, and until that is there the copy stays.
    pub(crate) fn open_rescued(&self, rescue: &Image, stored: Option<&Stored>) -> Result<Image> {
        let base = stored.map_or(&rescue.header, |stored| &stored.base.header);
        let header = Header {
            state: FileState::Open,
            image_generation: rescue.header.image_generation.max(base.image_generation).saturating_add(1),
            data_checksum: 0,
            continued: false,
            journal_sequence: 0,
            // A limit changes without a checkpoint.
            limit_bytes: base.limit_bytes,
            ..rescue.header.clone()
        };
        self.build_image(header, |file| verify_base(rescue, Some((&*self.storage, file))))
    }

    /// The base file or, where there is none yet, the rescue copy.
    pub(crate) fn base_or_rescue(&self, name: &RegionName) -> Result<Image> {
        match self.base(name)? {
            Some(base) => Ok(base),
            None => self.rescue_that_counts(name, None)?.ok_or_else(|| self.not_found(name)),
        }
    }

    /// Removes the copy, durably, if there is one.
    pub(crate) fn remove_rescue(&self, name: &RegionName) -> Result<()> {
        let path = rescue_path(self.places.store(), name);
        if path.symlink_metadata().is_err() {
            return Ok(());
        }
        self.remove_file(&path)?;
        self.sync_store()
    }
}

impl Note {
    fn new() -> Note {
        let mut note = Note {
            magic: MAGIC,
            version: VERSION.into(),
            reserved: U32::ZERO,
            // For people; that it cannot be read is no reason to have no copy.
            boot: boot_id().ok().and_then(|text| parse_boot(&text)).unwrap_or_default(),
            taken_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs())
                .into(),
            checksum: U64::ZERO,
        };
        note.checksum = note.sum().into();
        note
    }

    fn sum(&self) -> u64 {
        xxh3_64(&self.as_bytes()[..size_of::<Note>() - size_of::<U64>()])
    }
}

fn parse_boot(text: &[u8]) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(text).ok()?;
    uuid::Uuid::parse_str(text.trim()).ok().map(uuid::Uuid::into_bytes)
}

/// Opens a rescue copy; header and note are checked, the data not yet.
pub(crate) fn open_rescue(store: &Path, name: &RegionName) -> std::result::Result<Image, FileFault> {
    let image = Image::open(rescue_path(store, name), name, false)?;
    let mut note = Note::new_zeroed();
    let read = image.file.read_exact_at(note.as_mut_bytes(), NOTE_OFFSET);
    read.map_err(|source| FileFault::Io { step: "read", source })?;
    if note.magic != MAGIC || note.checksum.get() != note.sum() {
        return Err(FileFault::Damaged);
    }
    match note.version.get() {
        VERSION => Ok(image),
        version => Err(FileFault::Newer { version, flags: 0 }),
    }
}

/// The newest checkpoint and record of what is stored.
fn position(stored: &Stored) -> (u64, u64) {
    let sequence = stored.journal.as_ref().map_or(0, |journal| journal.extent.last_sequence);
    (stored.base.header.checkpoint_count, sequence)
}

/// The same as a header says it.
fn of(header: &Header) -> (u64, u64) {
    (header.checkpoint_count, header.journal_sequence)
}

/// Whether a copy holds everything that is stored, and can take its place.
fn goes_on_from(rescue: &Header, stored: &Stored) -> bool {
    let base = &stored.base.header;
    rescue.uuid == base.uuid
        && rescue.owner_fingerprint == base.owner_fingerprint
        && rescue.backed_bytes <= base.limit_bytes
        && position(stored) <= of(rescue)
}

fn read_error(error: CopyError, image: &Image) -> RegionError {
    let path = image.path.clone();
    match error {
        CopyError::Read(source) if source.kind() == ErrorKind::UnexpectedEof => RegionError::Truncated {
            needed_bytes: image.header.file_bytes(),
            found_bytes: image.file.metadata().map_or(0, |found| found.len()),
            remedy: Remedy::RestoreFile { path: path.clone() },
            path,
        },
        CopyError::Read(source) | CopyError::Write(source) => RegionError::Io { step: "read", path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_note_never_change() {
        let mut note = Note { boot: [7; 16], taken_unix_s: 9.into(), ..Note::new() };
        note.checksum = note.sum().into();
        let bytes = note.as_bytes();
        assert_eq!(&bytes[..16], b"HFRESCUE\x01\0\0\0\0\0\0\0");
        assert_eq!((&bytes[16..32], &bytes[32..40]), (&[7; 16][..], &9_u64.to_le_bytes()[..]));
        assert_eq!(bytes[40..], xxh3_64(&bytes[..40]).to_le_bytes());
    }

    #[test]
    fn a_boot_is_read_as_the_kernel_writes_it() {
        let boot = parse_boot(b"00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        assert_eq!((boot[0], boot[15]), (0, 0xff));
        assert_eq!(parse_boot(b"no boot"), None);
    }
}
