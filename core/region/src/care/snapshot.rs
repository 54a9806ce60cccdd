//! Snapshots: whole copies of a region's base file under tags, in the store; taking, listing,
//! reading, restoring and removing them.
//!
//! Invariants:
//! - A snapshot is made of verified data and gets its name when it is durable; it never changes
//!   afterwards.
//! - A restored region is the old one until the rename of its new base, and the restored one from
//!   then on.
//! - A restored region has the snapshot's limit where the rules for limits allow it now; data never
//!   come back at the cost of another region's addresses or of what compartments were given.
//! - Grants do not come back with a region that was removed.
//! - What is read from a snapshot was verified against its checksum first.
//! - Snapshots outlive their region, and only the key that owned it restores or removes them.

#![forbid(unsafe_code)]

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, io};

use holdfast_sys::lock::{FileLock, LockMode};
use holdfast_sys::mapping::Reservation;
use serde::Serialize;

use crate::error::snapshot::SnapshotError;
use crate::error::{ErrorKind, FileRemedy, RegionError, Result};
use crate::image::memory::ReadOnlyData;
use crate::media::files::{base_path, journal_path, names_in, snapshot_path, snapshots_path};
use crate::media::format::Header;
use crate::media::image::{FileFault, Image};
use crate::media::journal::continued_checkpoint;
use crate::media::redo;
use crate::name::RegionName;
use crate::names::key::{KeyFingerprint, OwnerKey, check_key};
use crate::names::namespace::NameSpace;
use crate::names::places::{current_image_path, redo_paths};
use crate::names::quotas::{is_workers_key, parent_only};
use crate::store::base::{open_base, verified_data};
use crate::store::rescue::refuse_newer_rescue;
use crate::store::stored::check_replaceable;

/// A snapshot, described without reading its data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SnapshotSummary {
    /// Its tag.
    pub tag: RegionName,
    /// Where it is.
    pub path: PathBuf,
    /// When it was taken, in seconds since 1970.
    pub taken_unix_s: u64,
    /// Bytes of the region's data; zero when the header cannot be read, as all numbers below.
    pub backed_bytes: u64,
    /// The region's limit when it was taken.
    pub limit_bytes: u64,
    /// How many checkpoints the region had.
    pub checkpoint_count: u64,
    /// The key that owned the region; `None` when the header cannot be read.
    pub owner: Option<KeyFingerprint>,
    /// What the file takes on the disk; blocks shared with other files count.
    pub allocated_bytes: u64,
    /// What is wrong with its header, if something is. Its data is verified when it is used.
    pub damaged: Option<String>,
}

/// What restoring did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RestoreReport {
    /// The snapshot of the state before, unless it was to be discarded or there was none.
    pub kept: Option<RegionName>,
    /// Bytes of the restored data.
    pub backed_bytes: u64,
}

/// A snapshot's data, verified.
pub struct SnapshotReader {
    data: ReadOnlyData,
    tag: RegionName,
}

impl SnapshotReader {
    /// Its tag.
    #[must_use]
    pub fn tag(&self) -> &RegionName {
        &self.tag
    }

    /// The data, mapped read-only. It is untrusted: an applet wrote it.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }
}

impl fmt::Debug for SnapshotReader {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SnapshotReader").field("tag", &self.tag).finish_non_exhaustive()
    }
}

impl NameSpace {
    /// Takes a snapshot of a region as it is now (after a checkpoint, if something changed since
    /// the last one). Tags follow the rules of names.
    ///
    /// # Errors
    /// `Exists`; as [`NameSpace::open`], `StoreFull`, `DataDamaged` when the checkpoint is bad.
    /// Nothing is left behind that the next snapshot does not remove.
    pub fn snapshot(
        &self,
        name: &RegionName,
        key: &OwnerKey,
        tag: &RegionName,
    ) -> Result<SnapshotSummary> {
        let settled = self.settle(name, key)?;
        self.snapshot_of(&settled.base, tag)
    }

    fn snapshot_of(&self, base: &Image, tag: &RegionName) -> Result<SnapshotSummary> {
        let name = &base.header.name;
        let store = self.places().store();
        let (directory, path) = (snapshots_path(store, name), snapshot_path(store, name, tag));
        if path.symlink_metadata().is_ok() {
            return Err(
                SnapshotError::Exists { name: name.to_string(), tag: tag.to_string() }.into()
            );
        }
        if !directory.exists() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
            made.map_err(RegionError::io("create", &directory))?;
            for parent in [store.to_owned(), store.join("snapshots")] {
                self.storage()
                    .sync_directory(&parent)
                    .map_err(RegionError::io("make durable", parent))?;
            }
        }
        let header = Header { continued: false, ..base.header.clone() };
        let built =
            self.build_in_store(&directory, header, |file, _| self.fill_from(base, file))?;
        self.publish_in_store(built, &directory, path)?;
        Ok(self.snapshot_summary(name, tag.clone()))
    }

    /// The snapshots of a region, oldest first. Takes no lock; the region itself may be gone.
    ///
    /// # Errors
    /// `NotFound` when there is neither region nor snapshot, `Io`.
    pub fn snapshots(&self, name: &RegionName) -> Result<Vec<SnapshotSummary>> {
        let tags = names_in(&snapshots_path(self.places().store(), name), "base")?;
        if tags.is_empty() && !self.exists(name) {
            return Err(self.not_found(name));
        }
        let mut found: Vec<_> =
            tags.into_iter().map(|tag| self.snapshot_summary(name, tag)).collect();
        found.sort_by(|a, b| (a.taken_unix_s, &a.tag).cmp(&(b.taken_unix_s, &b.tag)));
        Ok(found)
    }

    fn snapshot_summary(&self, name: &RegionName, tag: RegionName) -> SnapshotSummary {
        let path = snapshot_path(self.places().store(), name, &tag);
        let metadata = path.symlink_metadata().ok();
        let (header, damaged) = match Image::open(path.clone(), name, false) {
            Ok(image) => (Some(image.header), None),
            Err(fault) => (None, Some(unusable(fault, &path).to_string())),
        };
        let number = |field: fn(&Header) -> u64| header.as_ref().map_or(0, field);
        SnapshotSummary {
            taken_unix_s: metadata
                .as_ref()
                .map_or(0, |found| u64::try_from(found.mtime()).unwrap_or(0)),
            allocated_bytes: metadata.as_ref().map_or(0, |found| found.blocks() * 512),
            backed_bytes: number(|header| header.backed_bytes),
            limit_bytes: number(|header| header.limit_bytes),
            checkpoint_count: number(|header| header.checkpoint_count),
            owner: header
                .as_ref()
                .map(|header| KeyFingerprint::from_bytes(header.owner_fingerprint)),
            tag,
            path,
            damaged,
        }
    }

    fn snapshot_file(&self, name: &RegionName, tag: &RegionName) -> Result<Image> {
        let path = snapshot_path(self.places().store(), name, tag);
        Image::open(path.clone(), name, false).map_err(|fault| match fault {
            FileFault::Missing => match self.snapshots(name) {
                Err(error) => error,
                Ok(found) => SnapshotError::Missing {
                    name: name.to_string(),
                    tag: tag.to_string(),
                    tags: found.iter().map(|snapshot| snapshot.tag.to_string()).collect(),
                }
                .into(),
            },
            fault => unusable(fault, &path),
        })
    }

    /// Opens a snapshot for reading, after verifying all of it. Needs no key and no lock.
    ///
    /// # Errors
    /// `Missing`, `NotFound`, one of the errors about a bad file, `Io`.
    pub fn open_snapshot(&self, name: &RegionName, tag: &RegionName) -> Result<SnapshotReader> {
        let snapshot = self.snapshot_file(name, tag)?;
        let file = verified_data(&snapshot, None)
            .map_err(|error| self.build_error(error, &snapshot.path, 0))?;
        let Image { path, header, .. } = snapshot;
        let backed = usize::try_from(header.backed_bytes)
            .map_err(|_| RegionError::AddressesExhausted { limit_bytes: header.backed_bytes })?;
        let data = Reservation::anywhere(backed, 1)
            .and_then(|range| ReadOnlyData::map(range, &file, backed))
            .map_err(RegionError::io("map", &path))?;
        Ok(SnapshotReader { data, tag: tag.clone() })
    }

    /// Puts a region back to a snapshot: data, size and limit. Unless `discard`, the state before
    /// becomes a snapshot of its own first. If the machine stops in the middle, the region is the
    /// old or the restored one. A region that was removed comes back, without its grants; one whose
    /// files are damaged needs `discard`. A file that is newer, or another region's, is never
    /// discarded.
    ///
    /// Where the snapshot's limit does not fit any more (compartments were given more, a parent has
    /// less, another region came behind it), the region keeps the limit that it has; where the data
    /// do not fit in that, it gets one that holds them and its compartments. Restored with a
    /// worker's key, a compartment keeps its limit always.
    ///
    /// # Errors
    /// `Missing`, `NotOwner`, `Held`, one of the errors about a bad file, `StoreFull`, `Io`;
    /// `Limit` (`NoPlace`) when the data fit nowhere, `Access` when only the parent's key may give
    /// a compartment that much, `NotFound` about a parent that is gone. The region is then as it
    /// was.
    pub fn restore(
        &self,
        name: &RegionName,
        key: &OwnerKey,
        tag: &RegionName,
        discard: bool,
    ) -> Result<RestoreReport> {
        let snapshot = self.snapshot_file(name, tag)?;
        check_key(name, snapshot.header.owner_fingerprint, key)?;
        let _lock = self.lock(name, LockMode::Exclusive)?;
        // The restored region could not be opened beside it.
        refuse_newer_rescue(self.places().store(), name)?;
        let (mut kept, mut settled) = (None, None);
        let existed = self.exists(name);
        if existed {
            match self.settle_locked(name, key) {
                Ok((image, base)) => settled = Some((image, base)),
                Err(RegionError::NotOwner { name }) => return Err(RegionError::NotOwner { name }),
                Err(error) if discard && may_be_discarded(&error) => {
                    self.check_owner_of_rest(name, key)?;
                }
                Err(error) => return Err(error),
            }
        }
        let store = self.places().store();
        let found = settled.as_ref().map(|(_, base)| &base.header);
        let mut header = self.header_after(&snapshot.header, found);
        // Of a damaged region, what can still be read.
        let current = found.cloned().or_else(|| self.header_of(name).ok());
        header.limit_bytes = self.restored_limit(&header, current.as_ref(), key)?;
        if let Some((_, base)) = settled.as_ref().filter(|_| !discard) {
            let tag = self.free_tag(name);
            self.snapshot_of(base, &tag)?;
            kept = Some(tag);
        }
        if !existed {
            // It has the identity that these were for.
            self.remove_grants(name)?;
        }
        let built =
            self.build_in_store(store, header, |file, _| self.fill_from(&snapshot, file))?;
        let (names, built) = self.still_fits(built, current.as_ref())?;
        let (image, base) = (current_image_path(self.places(), name), base_path(store, name));
        if settled.is_some() {
            // Base and image hold the same: without the image the region is still the old one, and
            // with the rename it is the restored one. The other way round, the old image would hide
            // the new base.
            if let Err(error) = self.remove_image_durably(name, &image) {
                let _ = self.storage().remove(&built.path);
                return Err(error);
            }
            self.publish_in_store(built, store, base)?;
        } else {
            // A damaged image keeps the region from opening until the restored base is there.
            self.publish_in_store(built, store, base)?;
            self.remove_image_durably(name, &image)?;
        }
        drop(names);
        // It is stale beside the restored base; gone it cannot be in the way either.
        self.remove_file(&journal_path(store, name))?;
        Ok(RestoreReport { kept, backed_bytes: snapshot.header.backed_bytes })
    }

    /// The limit of a region that is restored with this header.
    fn restored_limit(
        &self,
        header: &Header,
        current: Option<&Header>,
        key: &OwnerKey,
    ) -> Result<u64> {
        let current_bytes = current.map(|current| current.limit_bytes);
        if is_workers_key(header, key) {
            // Only the parent's key makes a compartment, or changes what it may have.
            let kept_bytes =
                current_bytes.filter(|limit_bytes| *limit_bytes >= header.backed_bytes);
            return kept_bytes.ok_or_else(|| parent_only(&header.name));
        }
        let _names = self.lock_names()?;
        let wanted_bytes: Vec<_> =
            [Some(header.limit_bytes), current_bytes].into_iter().flatten().collect();
        self.limit_for_data(header, current, &wanted_bytes)
    }

    /// Locks the name space for the moment in which a restored base gets its name, if the limit
    /// that was chosen for it still fits.
    fn still_fits(&self, built: Image, current: Option<&Header>) -> Result<(FileLock, Image)> {
        let limit_bytes = built.header.limit_bytes;
        let locked = self.lock_names().and_then(|names| {
            self.check_limit(&built.header, current, limit_bytes, limit_bytes).map(|()| names)
        });
        match locked {
            Ok(names) => Ok((names, built)),
            Err(error) => {
                let _ = self.storage().remove(&built.path);
                Err(error)
            }
        }
    }

    /// The header of a restored base. Checkpoints and images count on from whatever is left of the
    /// region, also of one that was removed or damaged, so that no journal and no redo log of an
    /// earlier state fits.
    fn header_after(&self, snapshot: &Header, settled: Option<&Header>) -> Header {
        let (store, name) = (self.places().store(), &snapshot.name);
        let image = Image::open(current_image_path(self.places(), name), name, false)
            .ok()
            .map(|image| image.header);
        let base = open_base(store, name).ok().map(|base| base.header);
        let headers =
            || [Some(snapshot), settled, image.as_ref(), base.as_ref()].into_iter().flatten();
        let checkpoints = headers().map(|header| header.checkpoint_count);
        let checkpoint = checkpoints.chain(continued_checkpoint(&journal_path(store, name))).max();
        let generations = headers().map(|header| header.image_generation);
        let logs = redo_paths(self.places(), name);
        let generation =
            generations.chain(logs.iter().filter_map(|path| redo::generation(path))).max();
        Header {
            checkpoint_count: checkpoint.unwrap_or(0).saturating_add(1),
            image_generation: generation.unwrap_or(0),
            continued: true,
            ..snapshot.clone()
        }
    }

    /// Removes the image, and then its redo log: without it the image could be half of a
    /// publication, and without the image a log that stays waits for no other one (see
    /// [`NameSpace::build_image`]).
    pub(crate) fn remove_image_durably(&self, name: &RegionName, image: &Path) -> Result<()> {
        // One on the other medium holds the same, or nothing that counts; without this one it
        // would.
        self.remove_stale_images(name)?;
        self.remove_file(image)?;
        self.remove_redo_logs(name)?;
        let images = image.parent().unwrap_or(self.places().pool());
        self.storage().sync_directory(images).map_err(RegionError::io("make durable", images))
    }

    /// A key that may replace a damaged region owns what of it can still be read, and nothing of it
    /// is newer, or another region's.
    fn check_owner_of_rest(&self, name: &RegionName, key: &OwnerKey) -> Result<()> {
        let store = self.places().store();
        check_replaceable(store, name)?;
        let owners =
            [self.image(name, LockMode::Exclusive).ok().flatten(), open_base(store, name).ok()];
        owners
            .into_iter()
            .flatten()
            .try_for_each(|file| check_key(name, file.header.owner_fingerprint, key))
    }

    /// A tag for what restoring replaces: with the time, so that tags sort by age.
    fn free_tag(&self, name: &RegionName) -> RegionName {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let free = (now..)
            .filter_map(|second| RegionName::parse(&format!("before-restore-{second}")).ok());
        let taken = |tag: &RegionName| {
            snapshot_path(self.places().store(), name, tag).symlink_metadata().is_ok()
        };
        free.take(1 << 20).find(|tag| !taken(tag)).unwrap_or_else(|| name.clone())
    }

    /// Removes a snapshot.
    ///
    /// # Errors
    /// `Missing`, `NotFound`, `NotOwner`, `Io`; one of the errors about a bad file when the
    /// snapshot does not tell whose it is (the message names the file; remove it by hand).
    pub fn remove_snapshot(
        &self,
        name: &RegionName,
        key: &OwnerKey,
        tag: &RegionName,
    ) -> Result<()> {
        let snapshot = self.snapshot_file(name, tag)?;
        check_key(name, snapshot.header.owner_fingerprint, key)?;
        self.storage().remove(&snapshot.path).map_err(RegionError::io("remove", &snapshot.path))?;
        let directory = snapshots_path(self.places().store(), name);
        self.storage()
            .sync_directory(&directory)
            .map_err(RegionError::io("make durable", &directory))?;
        match std::fs::remove_dir(&directory) {
            // Others are left.
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(()),
            other => other.map_err(RegionError::io("remove", &directory)),
        }
    }
}

/// Whether the files of a region are damaged, rather than newer or another region's.
fn may_be_discarded(error: &RegionError) -> bool {
    let is_sound = matches!(
        error,
        RegionError::NewerFormat { .. } | RegionError::Renamed { .. } | RegionError::Clash { .. }
    );
    error.kind() == ErrorKind::BadFile && !is_sound
}

fn unusable(fault: FileFault, path: &Path) -> RegionError {
    fault.into_error(path, FileRemedy::RestoreFile { path: path.to_owned() })
}
