//! Creating and opening regions: locks, checks, warm and cold images. The invariants are those of
//! the name space.

#![forbid(unsafe_code)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_sys::lock::{FileLock, LockMode, try_lock};

use crate::error::{RegionError, Result};
use crate::media::allotment::{Allotment, Shares};
use crate::media::files::{base_path, image_path, remove_temporaries, temporary_path};
use crate::media::format::{
    ALLOTMENT_OFFSET, DATA_OFFSET, FileState, GROWTH_STEP_BYTES, Header, LIMIT_BYTES_MAX, limit_for,
};
use crate::media::image::{Backing, BuildError, Image};
use crate::media::medium::Medium;
use crate::media::storage::is_full;
use crate::media::{redo, rest};
use crate::name::RegionName;
use crate::names::access::Access;
use crate::names::key::OwnerKey;
use crate::names::namespace::NameSpace;
use crate::names::places::redo_paths;
use crate::names::reader::RegionReader;
use crate::names::region::{Opened, Region};
use crate::names::summary::summarize;
use crate::store::base::verify_base;
use crate::store::rescue::refuse_newer_rescue;
use crate::store::stored::{Stored, source_error};

/// How often writers may die in a publication while a reader waits.
const READ_ATTEMPTS_MAX: u32 = 10;

impl NameSpace {
    /// Creates a region that may grow to `limit_bytes` (rounded up to 64 KiB, at least 1 MiB, at
    /// most 1 TiB). Its first 4 MiB, or all of it if it is smaller, are allocated.
    ///
    /// # Errors
    /// `AlreadyExists`, `Held`, `LimitOutOfRange`, `NoRoom`, `NoRoomOnDisk`, `StoreFull`,
    /// `AddressesExhausted`, `Io`; nothing is left behind.
    pub fn create(&self, name: &RegionName, key: &OwnerKey, limit_bytes: u64) -> Result<Region> {
        self.refuse_compartment(name)?;
        let lock = self.lock(name, LockMode::Exclusive)?;
        if self.exists(name) {
            return Err(RegionError::AlreadyExists { name: name.to_string() });
        }
        self.create_locked(name, key, limit_bytes, lock)
    }

    /// Opens a region for writing: warm from its image, or cold from the store. The key is the
    /// owner's, or one that the owner granted writing; then its quota bounds growth.
    ///
    /// # Errors
    /// `NotFound`, `Held`, `NotOwner` (and no grant either), `Access` (the key may only read, or
    /// the access table is damaged), one of the errors about a bad file, `NoRoom`, `Io`. No file is
    /// changed.
    pub fn open(&self, name: &RegionName, key: &OwnerKey) -> Result<Region> {
        // Asked first, so that opening a name that does not exist leaves no lock file behind.
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let lock = self.lock(name, LockMode::Exclusive)?;
        match self.open_locked(name, key)? {
            Some((image, opened, access)) => {
                Ok(self.region(image, opened, lock).with_access(access).with_key(key))
            }
            None => Err(self.not_found(name)),
        }
    }

    /// Opens a region for reading, with a key that may at least read: a [`Region`] that is mapped
    /// read-only, is never dirty and changes no byte of a file. Any number of readers may have a
    /// region at once, and no writer besides them: a reader sees the state that the last writer
    /// left, and it stays as it is.
    ///
    /// The open finishes a publication that a killed writer had begun, and allocates the pages that
    /// a closed small image gave back: a load in a hole of a file in memory takes a page, and could
    /// find none.
    ///
    /// Without an image the data is read from the base file or, where a journal continues it,
    /// copied from both to memory of this process.
    ///
    /// # Errors
    /// As [`NameSpace::open`]; `Held` when a writer has the region.
    pub fn open_read_only(&self, name: &RegionName, key: &OwnerKey) -> Result<Region> {
        // Asked before anything is touched.
        self.access(name, key)?;
        let (image, opened, lock) = self.open_for_reading(name)?;
        self.admit(&image.header, key)?;
        Ok(self.region(image, opened, lock).into_read_only())
    }

    /// Opens a region, or creates it. One that exists keeps its limit.
    ///
    /// # Errors
    /// As [`NameSpace::open`] and [`NameSpace::create`].
    pub fn open_or_create(
        &self,
        name: &RegionName,
        key: &OwnerKey,
        limit_bytes: u64,
    ) -> Result<Region> {
        let lock = self.lock(name, LockMode::Exclusive)?;
        match self.open_locked(name, key)? {
            Some((image, opened, access)) => {
                Ok(self.region(image, opened, lock).with_access(access).with_key(key))
            }
            None => self
                .refuse_compartment(name)
                .and_then(|()| self.create_locked(name, key, limit_bytes, lock)),
        }
    }

    /// Opens a region for reading, from its image or, without one, from the store (whose checksums
    /// are verified). Needs no key: who may read the files may read. Changes no byte of the data;
    /// makes a lock file, and does what [`NameSpace::open_read_only`] does at its open: for that
    /// the image must be writable.
    ///
    /// # Errors
    /// As [`NameSpace::open`].
    pub fn open_read(&self, name: &RegionName) -> Result<RegionReader> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let (image, _, lock) = self.open_for_reading(name)?;
        let mut summary = summarize(self.places(), name).ok_or_else(|| self.not_found(name))?;
        summary.backed_bytes = image.header.backed_bytes;
        RegionReader::new(image, summary, lock)
    }
}

impl NameSpace {
    pub(crate) fn region(&self, image: Image, opened: Opened, lock: FileLock) -> Region {
        Region::new(image, opened, self.clone(), lock)
    }

    /// The region for a writer: the owner, or a key that may write.
    pub(crate) fn open_locked(
        &self,
        name: &RegionName,
        key: &OwnerKey,
    ) -> Result<Option<(Image, Opened, Access)>> {
        let found = match self.image(name, LockMode::Exclusive)? {
            Some(image) if self.is_void(&image)? => {
                self.admit_writer(&image.header, key)?;
                self.drop_void(image)?;
                None
            }
            found => found,
        };
        if let Some(mut image) = found {
            let access = self.admit_writer(&image.header, key)?;
            self.wake(&mut image)?;
            self.finish_publication(&image)?;
            self.remove_stale_images(name)?;
            let (image, opened) = self.open_warm(image)?;
            return Ok(Some((image, opened, access)));
        }
        self.remove_stale_images(name)?;
        let stored = Stored::open(self.places().store(), name)?;
        if let Some(rescue) = self.rescue_that_counts(name, stored.as_ref())? {
            let access = self.admit_writer(&rescue.header, key)?;
            return Ok(Some((
                self.open_rescued(&rescue, stored.as_ref())?,
                Opened::Rescued,
                access,
            )));
        }
        let Some(stored) = stored else { return Ok(None) };
        let access = self.admit_writer(&stored.base.header, key)?;
        Ok(Some((self.open_cold(&stored)?, Opened::Cold, access)))
    }

    /// The image of a region that is only brought to the store; `None` where there is none. The
    /// caller holds the name's lock.
    pub(crate) fn open_unheld(&self, name: &RegionName) -> Result<Option<(Image, Opened)>> {
        let Some(image) = self.image(name, LockMode::Exclusive)? else { return Ok(None) };
        if self.is_void(&image)? {
            return self.drop_void(image).map(|()| None);
        }
        self.finish_publication(&image)?;
        self.remove_stale_images(name)?;
        self.open_warm(image).map(Some)
    }

    /// Removes an image that is not to be believed, once the store was found whole.
    fn drop_void(&self, image: Image) -> Result<()> {
        let name = image.header.name.clone();
        refuse_newer_rescue(self.places().store(), &name)?;
        let Some(stored) = Stored::open(self.places().store(), &name)? else {
            // A region that never had a checkpoint may have a rescue copy.
            return match self.rescue_that_counts(&name, None)? {
                Some(rescue) => {
                    verify_base(&rescue, None)
                        .map_err(|error| source_error(error, &rescue.path))?;
                    self.remove_images(&name)
                }
                None => Err(RegionError::Torn { path: image.path.clone(), name: name.to_string() }),
            };
        };
        stored.verify().map_err(|error| source_error(error, &stored.base.path))?;
        self.remove_images(&name)
    }

    /// The region for a reader, with its lock and no publication half done.
    pub(crate) fn open_for_reading(&self, name: &RegionName) -> Result<(Image, Opened, FileLock)> {
        for _ in 0..READ_ATTEMPTS_MAX {
            self.finish_publication_of(name)?;
            let lock = self.lock(name, LockMode::Shared)?;
            let (image, opened) = self.open_shared(name)?.ok_or_else(|| self.not_found(name))?;
            // A writer may have come and died between the two steps before.
            if matches!(opened, Opened::Cold | Opened::Rescued)
                || self.publication_of(&image)?.is_none()
            {
                return Ok((image, opened, lock));
            }
        }
        Err(RegionError::Held { name: name.to_string(), holder: None })
    }

    /// The region for a reader, which changes no byte of a file: its image or, without one, what
    /// the store has.
    fn open_shared(&self, name: &RegionName) -> Result<Option<(Image, Opened)>> {
        let found = match self.image(name, LockMode::Shared)? {
            Some(image) if self.is_void(&image)? => None,
            found => found,
        };
        if let Some(image) = found {
            if image.is_at_rest {
                // A load in a hole wants memory as a store does, and a descriptor for reading
                // cannot allocate it.
                self.wake_for_reading(&image.reopened_for_writing()?)?;
            }
            let opened = self.how_opened(&image);
            return Ok(Some((image, opened)));
        }
        let stored = Stored::open(self.places().store(), name)?;
        if let Some(rescue) = self.rescue_that_counts(name, stored.as_ref())? {
            verify_base(&rescue, None).map_err(|error| source_error(error, &rescue.path))?;
            return Ok(Some((rescue, Opened::Rescued)));
        }
        match stored {
            Some(stored) => Ok(Some((stored.into_readable()?, Opened::Cold))),
            None => Ok(None),
        }
    }

    /// The redo log of a publication that counts, and of which the image perhaps has a part.
    pub(crate) fn publication_of(&self, image: &Image) -> Result<Option<PathBuf>> {
        for path in redo_paths(self.places(), &image.header.name) {
            let counts = redo::counts(&path, &image.header);
            if counts.map_err(|source| redo::log_error("read", &path, source))? {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    /// Finishes what a writer in `atomic` mode had begun to publish when it died.
    fn finish_publication(&self, image: &Image) -> Result<()> {
        redo_paths(self.places(), &image.header.name).into_iter().try_for_each(|path| {
            let finished = redo::recover(self.storage(), image, &path).map(drop);
            finished.map_err(|source| redo::log_error("finish the publication in", &path, source))
        })
    }

    /// The same before a reader comes, which would otherwise see a part of it.
    fn finish_publication_of(&self, name: &RegionName) -> Result<()> {
        let mut is_pending = false;
        for path in redo_paths(self.places(), name) {
            is_pending |= redo::is_pending(&path).map_err(RegionError::io("read", &path))?;
        }
        if !is_pending {
            return Ok(());
        }
        let _lock = self.lock(name, LockMode::Exclusive)?;
        match self.image(name, LockMode::Exclusive)? {
            Some(image) if !self.is_void(&image)? => self.finish_publication(&image),
            _ => Ok(()),
        }
    }

    /// Allocates what an image gave back when it was closed, before it is mapped.
    fn wake(&self, image: &mut Image) -> Result<()> {
        if !image.is_at_rest {
            return Ok(());
        }
        let (path, medium) = (image.path.clone(), image.header.medium);
        let needed_bytes = image.header.backed_bytes;
        self.with_room(|| {
            let woken = rest::wake(image, self.storage());
            woken.map_err(|source| self.rest_error(source, &path, medium, needed_bytes))
        })
    }

    /// The same for a reader.
    fn wake_for_reading(&self, image: &Image) -> Result<()> {
        let Header { medium, backed_bytes, .. } = image.header;
        self.with_room(|| {
            let allocated = rest::allocate_again(image, self.storage());
            allocated.map_err(|source| self.rest_error(source, &image.path, medium, backed_bytes))
        })
    }

    fn rest_error(
        &self,
        source: std::io::Error,
        path: &Path,
        medium: Medium,
        needed_bytes: u64,
    ) -> RegionError {
        match is_full(&source) {
            true => self.no_room(medium, needed_bytes, Some(source.kind())),
            false => RegionError::io("allocate", path)(source),
        }
    }

    fn open_warm(&self, mut image: Image) -> Result<(Image, Opened)> {
        // If a slot is damaged, the one in force may be the older one: its state proves nothing,
        // and growth since then shows only in the file's length.
        let opened = self.how_opened(&image);
        let was_closed = image.header.state == FileState::Clean;
        let backed_bytes = if image.slot_damaged {
            let backed_bytes =
                image.backed_bytes_by_length().map_err(RegionError::io("examine", &image.path))?;
            // Costs little where it is allocated, as it should be.
            self.with_room(|| {
                let range = DATA_OFFSET..DATA_OFFSET + backed_bytes;
                self.storage().allocate(&image.file, range).map_err(|source| {
                    self.rest_error(source, &image.path, image.header.medium, backed_bytes)
                })
            })?;
            backed_bytes
        } else {
            self.cut_off_growth(&image).map_err(RegionError::io("shorten", &image.path))?;
            image.header.backed_bytes
        };
        if opened != Opened::Warm
            && Allotment::is_in(&image.file).unwrap_or(false)
            && let Ok(allotment) = Allotment::map(&image.file)
        {
            // A writer that was killed may have taken what it did not come to allocate. Where that
            // stays taken, compartments are refused until the region grows, no more.
            allotment.take_no_more_than(backed_bytes);
        }
        let outlives_boot = image.outlives_boot;
        let written = image.change_header(self.storage(), |header| {
            header.state = FileState::Open;
            header.backed_bytes = backed_bytes;
            header.boot = self.places().boot();
            // What was closed is durable, and what was ordered so far is until it is stored to.
            header.ordered = outlives_boot && (was_closed || header.ordered);
        });
        written.map_err(RegionError::io("write the header of", &image.path))?;
        Ok((image, opened))
    }

    /// Gives back what a writer allocated that was killed before the header spoke of it.
    fn cut_off_growth(&self, image: &Image) -> std::io::Result<()> {
        let end = image.header.file_bytes();
        if image.file.metadata()?.len() > end {
            self.storage().set_len(&image.file, end)?;
        }
        Ok(())
    }

    fn how_opened(&self, image: &Image) -> Opened {
        match image.header.state == FileState::Open || image.slot_damaged {
            false => Opened::Warm,
            true if image.outlived(self.places().boot()) => Opened::WarmAfterReset,
            true => Opened::WarmAfterCrash,
        }
    }

    fn open_cold(&self, stored: &Stored) -> Result<Image> {
        self.note_header(&stored.base.header)?;
        self.build_image(stored.image_header(), |file| stored.copy_to(self.storage(), file))
    }

    pub(crate) fn create_locked(
        &self,
        name: &RegionName,
        key: &OwnerKey,
        asked_bytes: u64,
        lock: FileLock,
    ) -> Result<Region> {
        let limit_bytes = limit_for(asked_bytes)
            .ok_or(RegionError::LimitOutOfRange { asked_bytes, max_bytes: LIMIT_BYTES_MAX })?;
        // Listing what builders left takes the longer the more regions there are. One that was
        // killed left its record in the lock; one that a reset ended left nothing in memory, so it
        // is looked for until a first region was made since.
        if lock.is_left() || !self.knows_free_addresses() {
            for directory in [self.places().images(self.medium()), self.places().store()] {
                remove_temporaries(self.storage(), directory, name)?;
            }
        }
        let image = self.with_room(|| self.create_image(name, key, limit_bytes))?;
        let path = image.path.clone();
        let mut region = self.region(image, Opened::Created, lock).without_leftovers();
        if region.medium() == Medium::File {
            // Without a checkpoint nothing would be left of the region, and of where it lies, after
            // a power cut.
            let base = base_path(self.places().store(), name);
            region.checkpoint().inspect_err(|_| {
                // The base may have its name already.
                for path in [&base, &path] {
                    let _ = self.remove_file(path);
                }
            })?;
        }
        Ok(region)
    }

    fn create_image(&self, name: &RegionName, key: &OwnerKey, limit_bytes: u64) -> Result<Image> {
        // Until the new image has its name, no other process may choose an address.
        let _names = self.lock_names()?;
        if let Some((parent, _)) = name.parent_and_worker() {
            self.check_quota(&parent, name, limit_bytes)?;
        }
        let header = Header {
            sequence: 0,
            uuid: uuid::Uuid::new_v4().into_bytes(),
            address: self.free_address(limit_bytes)?,
            limit_bytes,
            backed_bytes: limit_bytes.min(GROWTH_STEP_BYTES),
            state: FileState::Open,
            checkpoint_count: 0,
            image_generation: 1,
            created_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            data_checksum: 0,
            owner_fingerprint: key.fingerprint(),
            name: name.clone(),
            continued: false,
            journal_sequence: 0,
            medium: self.medium(),
            boot: [0; 16],
            ordered: false,
            packed_bytes: 0,
        };
        // It has no compartments: none outlives its region.
        let shares = Shares { taken_bytes: header.backed_bytes, given_out_bytes: 0 };
        self.build_image_once(header, |file| {
            let written =
                self.storage().write_at(file, &shares.encode().to_le_bytes(), ALLOTMENT_OFFSET);
            written.map_err(BuildError::write)
        })
    }

    /// Makes an image with its data area allocated and filled by `fill`, locked, under its final
    /// name. In a full pool it makes room. The caller does not have the lock on the name space.
    pub(crate) fn build_image(
        &self,
        header: Header,
        fill: impl Fn(&File) -> std::result::Result<(), BuildError>,
    ) -> Result<Image> {
        let images = self.places().images(header.medium);
        remove_temporaries(self.storage(), images, &header.name)?;
        self.with_room(|| self.build_image_once(header.clone(), &fill))
    }

    fn build_image_once(
        &self,
        header: Header,
        fill: impl FnOnce(&File) -> std::result::Result<(), BuildError>,
    ) -> Result<Image> {
        self.places().prepare_images(header.medium)?;
        let outlives_boot = self.places().images_outlive_boot(header.medium);
        // It was not stored to: it is what it is made from.
        let header = Header { boot: self.places().boot(), ordered: outlives_boot, ..header };
        let images = self.places().images(header.medium);
        let temporary = temporary_path(images, &header.name);
        let (path, needed_bytes) = (image_path(images, &header.name), header.backed_bytes);
        // Smaller ones give back what they did not use.
        let in_huge_pages = header.medium == Medium::Memory
            && self.places().pool_is_volatile_memory()
            && !outlives_boot
            && needed_bytes > rest::REST_BYTES_MAX;
        let fill = |file: &File, _: &mut Header| {
            if in_huge_pages {
                let range = DATA_OFFSET..DATA_OFFSET + needed_bytes;
                let _ = self.storage().allocate_huge_pages(file, range);
            }
            fill(file)
        };
        let built =
            Image::build(self.storage(), temporary.clone(), header, Backing::Allocated, fill);
        let mut image = built.map_err(|error| self.build_error(error, &temporary, needed_bytes))?;
        image.outlives_boot = outlives_boot;
        if outlives_boot && let Err(source) = self.storage().sync(&image.file) {
            let _ = self.storage().remove(&temporary);
            return Err(RegionError::Io { step: "make durable", path: temporary, source });
        }
        // Before the image has its name.
        self.remove_redo_logs(&image.header.name)
            .inspect_err(|_| drop(self.storage().remove(&temporary)))?;
        // No other process can have the file open yet; the lock only has to be there once it has
        // its name.
        let named = try_lock(&image.file, LockMode::Exclusive)
            .and_then(|_| image.rename(self.storage(), path));
        if let Err(source) = named {
            let _ = self.storage().remove(&temporary);
            return Err(RegionError::Io { step: "name the new image", path: temporary, source });
        }
        self.sync_pool()?;
        Ok(image)
    }

    pub(crate) fn build_error(
        &self,
        error: BuildError,
        path: &Path,
        needed_bytes: u64,
    ) -> RegionError {
        let on_disk = path.starts_with(self.places().images(Medium::File));
        let medium = if on_disk { Medium::File } else { Medium::Memory };
        match error {
            BuildError::Source(error) => error,
            BuildError::Target { source, .. } if is_full(&source) => {
                self.no_room(medium, needed_bytes, Some(source.kind()))
            }
            BuildError::Target { step, source } => {
                RegionError::Io { step, path: path.to_owned(), source }
            }
        }
    }

    /// Builds an image from a copy. It owes the store a checkpoint, and until that is there the
    /// copy stays.
    pub(crate) fn open_rescued(&self, rescue: &Image, stored: Option<&Stored>) -> Result<Image> {
        self.note_header(&rescue.header)?;
        let base = stored.map_or(&rescue.header, |stored| &stored.base.header);
        let header = Header {
            state: FileState::Open,
            image_generation: rescue
                .header
                .image_generation
                .max(base.image_generation)
                .saturating_add(1),
            data_checksum: 0,
            continued: false,
            journal_sequence: 0,
            // A limit changes without a checkpoint.
            limit_bytes: base.limit_bytes,
            ..rescue.header.clone()
        };
        self.build_image(header, |file| verify_base(rescue, Some((self.storage(), file))))
    }
}
