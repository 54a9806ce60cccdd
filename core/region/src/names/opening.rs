//! How [`NameSpace`] opens and makes regions, once it is known which: locks, checks, warm and cold images.
//!
//! The invariants are those of the name space. Nothing here is public.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use holdfast_sys::lock::{FileLock, LockMode, LockOutcome, try_lock};

use crate::care::medium::{Medium, current_image_path, image_paths, redo_paths};
use crate::care::rescue::open_rescue;
use crate::error::{RegionError, Remedy, Result};
use crate::image::address::choose_address;
use crate::media::files::{
    base_path, image_path, lock_path, names_in, names_lock_path, remove_temporaries, rescue_path,
    temporary_path,
};
use crate::media::format::{DATA_OFFSET, FileState, GROWTH_STEP_BYTES, Header, LIMIT_BYTES_MAX, limit_for};
use crate::media::image::{Backing, BuildError, FileFault, Image};
use crate::media::redo;
use crate::name::{RegionName, near_names};
use crate::names::access::Access;
use crate::names::key::OwnerKey;
use crate::names::namespace::{NameSpace, knows_more};
use crate::names::region::{Opened, Region, no_room};
use crate::store::base::{is_full, open_base, verify_base};
use crate::store::stored::{Stored, remedy_for_image, source_error};

/// How long a holder may take to write its record, or a reader to go.
const HELD_PATIENCE: Duration = Duration::from_millis(500);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_micros(200);
/// How often writers may die in a publication while somebody wants to read.
const READ_ATTEMPTS_MAX: u32 = 10;
/// How long somebody else may take to choose an address.
const NAMES_PATIENCE: Duration = Duration::from_secs(5);

impl NameSpace {
    pub(crate) fn region(&self, image: Image, opened: Opened, lock: FileLock) -> Region {
        Region::new(image, opened, self.storage.clone(), self.places.clone(), lock)
    }

    /// The region for a writer: the owner, or a key that may write.
    pub(crate) fn open_locked(
        &self,
        name: &RegionName,
        key: &OwnerKey,
    ) -> Result<Option<(Image, Opened, Access)>> {
        let mut found = self.image(name, LockMode::Exclusive)?;
        if let Some(image) = found.take_if(|image| self.is_void(image)) {
            self.admit_writer(&image.header, key)?;
            self.drop_void(image)?;
        }
        if let Some(image) = found {
            let access = self.admit_writer(&image.header, key)?;
            self.finish_publication(&image)?;
            self.remove_stale_images(name)?;
            let (image, opened) = self.open_warm(image)?;
            return Ok(Some((image, opened, access)));
        }
        self.remove_stale_images(name)?;
        let stored = Stored::open(self.places.store(), name)?;
        if let Some(rescue) = self.rescue_that_counts(name, stored.as_ref())? {
            let access = self.admit_writer(&rescue.header, key)?;
            return Ok(Some((self.open_rescued(&rescue, stored.as_ref())?, Opened::Rescued, access)));
        }
        let Some(stored) = stored else { return Ok(None) };
        let access = self.admit_writer(&stored.base.header, key)?;
        Ok(Some((self.open_cold(&stored)?, Opened::Cold, access)))
    }

    /// The image of a region for whoever only brings it to the store; `None` where there is none. The caller holds
    /// the name's lock.
    pub(crate) fn open_unheld(&self, name: &RegionName) -> Result<Option<(Image, Opened)>> {
        let Some(image) = self.image(name, LockMode::Exclusive)? else { return Ok(None) };
        if self.is_void(&image) {
            return self.drop_void(image).map(|()| None);
        }
        self.finish_publication(&image)?;
        self.remove_stale_images(name)?;
        self.open_warm(image).map(Some)
    }

    /// Whether an image that outlived a boot is not to be believed: a reset tore it, or the region went on elsewhere while the
    /// pool was not there.
    pub(crate) fn is_void(&self, image: &Image) -> bool {
        let boot = self.places.boot();
        image.outlived(boot) && (image.is_torn(boot) || self.went_on_without(image))
    }

    /// Whether the store knows of a later image, or of a commit after the close of this one. One that a reset left open may
    /// lack a commit that the store has only in its header, so there it proves nothing.
    fn went_on_without(&self, image: &Image) -> bool {
        let header = &image.header;
        let Ok(Some(stored)) = Stored::open(self.places.store(), &header.name) else { return false };
        let base = &stored.base.header;
        let later_image = base.image_generation > header.image_generation;
        let was_closed = header.state == FileState::Clean && !image.slot_damaged;
        base.uuid == header.uuid && (later_image || was_closed && knows_more(&stored, header))
    }

    /// Removes an image that is not to be believed, once the store was found whole.
    fn drop_void(&self, image: Image) -> Result<()> {
        let name = image.header.name.clone();
        let Some(stored) = Stored::open(self.places.store(), &name)? else {
            // A region that never had a checkpoint may have a rescue copy.
            return match self.rescue_that_counts(&name, None)? {
                Some(rescue) => {
                    verify_base(&rescue, None).map_err(|error| source_error(error, &rescue.path))?;
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
            let counts = |path: &PathBuf| redo::is_pending(path) && redo::counts(path, &image.header);
            if matches!(opened, Opened::Cold | Opened::Rescued)
                || !redo_paths(&self.places, name).iter().any(counts)
            {
                return Ok((image, opened, lock));
            }
        }
        Err(RegionError::Held { name: name.to_string(), holder: None })
    }

    /// The region for a reader, who changes no file: its image or, without one, what the store has.
    fn open_shared(&self, name: &RegionName) -> Result<Option<(Image, Opened)>> {
        if let Some(image) = self.image(name, LockMode::Shared)?.filter(|image| !self.is_void(image)) {
            let opened = self.how_opened(&image);
            return Ok(Some((image, opened)));
        }
        let stored = Stored::open(self.places.store(), name)?;
        if let Some(rescue) = self.rescue_that_counts(name, stored.as_ref())? {
            verify_base(&rescue, None).map_err(|error| source_error(error, &rescue.path))?;
            return Ok(Some((rescue, Opened::Rescued)));
        }
        match stored {
            Some(stored) => Ok(Some((stored.into_readable()?, Opened::Cold))),
            None => Ok(None),
        }
    }

    /// Finishes what a writer in `atomic` mode had begun to publish when it died.
    fn finish_publication(&self, image: &Image) -> Result<()> {
        redo_paths(&self.places, &image.header.name).into_iter().try_for_each(|path| {
            let finished = redo::recover(&*self.storage, image, &path);
            finished.map(drop).map_err(RegionError::io("finish the publication in", path))
        })
    }

    /// The same before somebody reads, who would otherwise see a part of it.
    fn finish_publication_of(&self, name: &RegionName) -> Result<()> {
        if !redo_paths(&self.places, name).iter().any(|path| redo::is_pending(path)) {
            return Ok(());
        }
        let _lock = self.lock(name, LockMode::Exclusive)?;
        match self.image(name, LockMode::Exclusive)? {
            Some(image) if !self.is_void(&image) => self.finish_publication(&image),
            _ => Ok(()),
        }
    }

    fn open_warm(&self, mut image: Image) -> Result<(Image, Opened)> {
        // If a slot is damaged, the one in force may be the older one: its state proves nothing, and growth
        // since then shows only in the file's length.
        let opened = self.how_opened(&image);
        let was_closed = image.header.state == FileState::Clean;
        let backed_bytes = if image.slot_damaged {
            let backed_bytes =
                image.backed_bytes_by_length().map_err(RegionError::io("examine", &image.path))?;
            // Costs nothing where it is allocated, as it should be.
            let allocated = self.storage.allocate(&image.file, DATA_OFFSET..DATA_OFFSET + backed_bytes);
            allocated.map_err(RegionError::io("allocate", &image.path))?;
            backed_bytes
        } else {
            image.header.backed_bytes
        };
        let outlives_boot = image.outlives_boot;
        let written = image.change_header(&*self.storage, |header| {
            header.state = FileState::Open;
            header.backed_bytes = backed_bytes;
            header.boot = self.places.boot();
            // What was closed is durable, and what was ordered so far is until somebody stores to it.
            header.ordered = outlives_boot && (was_closed || header.ordered);
        });
        written.map_err(RegionError::io("write the header of", &image.path))?;
        Ok((image, opened))
    }

    fn how_opened(&self, image: &Image) -> Opened {
        match image.header.state == FileState::Open || image.slot_damaged {
            false => Opened::Warm,
            true if image.outlived(self.places.boot()) => Opened::WarmAfterReset,
            true => Opened::WarmAfterCrash,
        }
    }

    fn open_cold(&self, stored: &Stored) -> Result<Image> {
        self.build_image(stored.image_header(), |file| stored.copy_to(&*self.storage, file))
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
        let image = self.with_room(|| self.create_image(name, key, limit_bytes))?;
        let path = image.path.clone();
        let mut region = self.region(image, Opened::Created, lock);
        if region.medium() == Medium::File {
            // Without a checkpoint nothing would be left of the region, and of where it lies, after a power cut.
            let base = base_path(self.places.store(), name);
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
        // Until the new image has its name, nobody else may choose an address.
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
            created_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            data_checksum: 0,
            owner_fingerprint: key.fingerprint(),
            name: name.clone(),
            continued: false,
            journal_sequence: 0,
            medium: self.medium,
            boot: [0; 16],
            ordered: false,
        };
        self.build_image_once(header, |_| Ok(()))
    }

    /// Makes an image with its data area allocated and filled by `fill`, locked, under its final name. In a full pool it
    /// makes room. The caller does not have the lock on the name space.
    pub(crate) fn build_image(
        &self,
        header: Header,
        fill: impl Fn(&File) -> std::result::Result<(), BuildError>,
    ) -> Result<Image> {
        self.with_room(|| self.build_image_once(header.clone(), &fill))
    }

    fn build_image_once(
        &self,
        header: Header,
        fill: impl FnOnce(&File) -> std::result::Result<(), BuildError>,
    ) -> Result<Image> {
        self.places.prepare_images(header.medium)?;
        let outlives_boot = self.places.images_outlive_boot(header.medium);
        // Nobody has stored to it: it is what it is made from.
        let header = Header { boot: self.places.boot(), ordered: outlives_boot, ..header };
        let images = self.places.images(header.medium);
        remove_temporaries(&*self.storage, images, &header.name)?;
        let temporary = temporary_path(images, &header.name);
        let (path, needed_bytes) = (image_path(images, &header.name), header.backed_bytes);
        let built =
            Image::build(&*self.storage, temporary.clone(), header, Backing::Allocated, |file, _| fill(file));
        let mut image = built.map_err(|error| self.build_error(error, &temporary, needed_bytes))?;
        image.outlives_boot = outlives_boot;
        if outlives_boot && let Err(source) = self.storage.sync(&image.file) {
            let _ = self.storage.remove(&temporary);
            return Err(RegionError::Io { step: "make durable", path: temporary, source });
        }
        // Before the image has its name.
        self.remove_redo_logs(&image.header.name).inspect_err(|_| drop(self.storage.remove(&temporary)))?;
        // Nobody else can have the file open yet; the lock only has to be there once it has its name.
        let named =
            try_lock(&image.file, LockMode::Exclusive).and_then(|_| image.rename(&*self.storage, path));
        if let Err(source) = named {
            let _ = self.storage.remove(&temporary);
            return Err(RegionError::Io { step: "name the new image", path: temporary, source });
        }
        self.sync_pool()?;
        Ok(image)
    }

    pub(crate) fn build_error(&self, error: BuildError, path: &Path, needed_bytes: u64) -> RegionError {
        let on_disk = path.starts_with(self.places.images(Medium::File));
        let medium = if on_disk { Medium::File } else { Medium::Memory };
        match error {
            BuildError::Source(error) => error,
            BuildError::Target { source, .. } if is_full(&source) => {
                no_room(&*self.storage, &self.places, medium, needed_bytes, Some(source.kind()))
            }
            BuildError::Target { step, source } => RegionError::Io { step, path: path.to_owned(), source },
        }
    }

    /// The region's image, checked and locked; `None` when there is none.
    ///
    /// The image has a lock of its own besides the one of the name, so that a lock file that a person removed
    /// by hand does not make two writers.
    pub(crate) fn image(&self, name: &RegionName, mode: LockMode) -> Result<Option<Image>> {
        let path = current_image_path(&self.places, name);
        match Image::open(path.clone(), name, mode == LockMode::Exclusive) {
            Ok(mut image) => {
                image.outlives_boot = self.places.images_outlive_boot(image.header.medium);
                // A child between fork and exec keeps the lock of a holder that is gone for a moment.
                let started = Instant::now();
                while !try_lock(&image.file, mode).map_err(RegionError::io("lock", &path))? {
                    if started.elapsed() >= HELD_PATIENCE {
                        return Err(RegionError::Held { name: name.to_string(), holder: None });
                    }
                    std::thread::sleep(PAUSE);
                }
                Ok(Some(image))
            }
            Err(FileFault::Missing) => Ok(None),
            Err(fault) => {
                let remedy = if fault.is_damage() {
                    remedy_for_image(self.places.store(), name, &path)
                } else {
                    Remedy::RestoreFile { path: path.clone() }
                };
                Err(fault.into_error(&path, remedy))
            }
        }
    }

    /// The region's base file; `None` when there is none.
    pub(crate) fn base(&self, name: &RegionName) -> Result<Option<Image>> {
        match open_base(self.places.store(), name) {
            Ok(base) => Ok(Some(base)),
            Err(FileFault::Missing) => Ok(None),
            Err(fault) => Err(self.base_error(name, fault)),
        }
    }

    pub(crate) fn base_error(&self, name: &RegionName, fault: FileFault) -> RegionError {
        let path = base_path(self.places.store(), name);
        let remedy = Remedy::RestoreFile { path: path.clone() };
        fault.into_error(&path, remedy)
    }

    pub(crate) fn exists(&self, name: &RegionName) -> bool {
        let base = base_path(self.places.store(), name);
        let rescue = rescue_path(self.places.store(), name);
        image_paths(&self.places, name)
            .iter()
            .chain([&base, &rescue])
            .any(|path| path.symlink_metadata().is_ok())
    }

    pub(crate) fn lock(&self, name: &RegionName, mode: LockMode) -> Result<FileLock> {
        self.lock_within(HELD_PATIENCE, name, mode)
    }

    pub(crate) fn lock_within(
        &self,
        patience: Duration,
        name: &RegionName,
        mode: LockMode,
    ) -> Result<FileLock> {
        let path = lock_path(self.places.pool(), name);
        let outcome = match (self.is_brief, mode) {
            (true, LockMode::Exclusive) => FileLock::acquire_briefly(&path, patience),
            _ => FileLock::acquire(&path, mode, patience),
        };
        match outcome.map_err(RegionError::io("lock", &path))? {
            LockOutcome::Acquired(lock) => {
                // Places can be old: whose the pool is is asked each time, before anything in it is touched.
                self.places.check_pool()?;
                Ok(lock)
            }
            LockOutcome::Held(holder) => Err(RegionError::Held { name: name.to_string(), holder }),
        }
    }

    pub(crate) fn lock_names(&self) -> Result<FileLock> {
        let path = names_lock_path(self.places.pool());
        let started = Instant::now();
        loop {
            let patience = NAMES_PATIENCE.saturating_sub(started.elapsed());
            let outcome = FileLock::acquire(&path, LockMode::Exclusive, patience);
            match outcome.map_err(RegionError::io("lock", &path))? {
                LockOutcome::Acquired(lock) => {
                    self.places.check_pool()?;
                    return Ok(lock);
                }
                LockOutcome::Held(_) if started.elapsed() < NAMES_PATIENCE => {
                    std::thread::sleep(PAUSE);
                }
                LockOutcome::Held(_) => return Err(RegionError::NamesBusy { path }),
            }
        }
    }

    pub(crate) fn free_address(&self, limit_bytes: u64) -> Result<u64> {
        let mut taken = Vec::new();
        for name in self.names()? {
            let image = Image::open(current_image_path(&self.places, &name), &name, false);
            // A file that cannot be opened gives no address, and cannot be mapped either.
            let store = self.places.store();
            for header in [image, open_base(store, &name), open_rescue(store, &name)]
                .into_iter()
                .flatten()
                .map(|file| file.header)
            {
                taken.push(header.address..header.address + header.limit_bytes);
            }
        }
        choose_address(self.places.home(), taken, limit_bytes)
    }

    /// All names that have an image, a base or a rescue copy, in order.
    pub(crate) fn names(&self) -> Result<Vec<RegionName>> {
        let mut names = names_in(self.places.pool(), "image")?;
        names.extend(names_in(self.places.images(Medium::File), "image")?);
        names.extend(names_in(self.places.store(), "base")?);
        // A region that had no checkpoint yet.
        names.extend(names_in(self.places.store(), "rescue")?);
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    pub(crate) fn not_found(&self, name: &RegionName) -> RegionError {
        // Near names are a courtesy: without a list there are none.
        let near = near_names(name, &self.names().unwrap_or_default());
        RegionError::NotFound { name: name.to_string(), near }
    }

    /// Removes a file that may be missing.
    pub(crate) fn remove_file(&self, path: &Path) -> Result<()> {
        match self.storage.remove(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.map_err(RegionError::io("remove", path)),
        }
    }

    /// Makes names in the pool durable, where they outlive the boot.
    pub(crate) fn sync_pool(&self) -> Result<()> {
        let pool = self.places.pool();
        if !self.places.pool_kind().outlives_boot() {
            return Ok(());
        }
        self.storage.sync_directory(pool).map_err(RegionError::io("make durable", pool))
    }

    pub(crate) fn sync_store(&self) -> Result<()> {
        let store = self.places.store();
        self.storage.sync_directory(store).map_err(RegionError::io("make durable", store))
    }
}

/// Whether a key owns a region: it made it, or it owns the region of which this one is a compartment.
pub(crate) fn is_owner(name: &RegionName, owner: [u8; 32], key: &OwnerKey) -> bool {
    let owns_parent = |(parent, worker)| key.for_compartment(&parent, &worker).fingerprint() == owner;
    owner == key.fingerprint() || name.parent_and_worker().is_some_and(owns_parent)
}

pub(crate) fn check_key(name: &RegionName, owner: [u8; 32], key: &OwnerKey) -> Result<()> {
    if is_owner(name, owner, key) { Ok(()) } else { Err(RegionError::NotOwner { name: name.to_string() }) }
}
