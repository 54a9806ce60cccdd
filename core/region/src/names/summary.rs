//! The summary of a region that is not opened: for lists, and for messages.
//!
//! It takes no lock, writes nothing and follows no error: a file that cannot be read is reported as
//! damaged, with the reason. A region may change while it is described; every field was true at
//! some moment.

#![forbid(unsafe_code)]

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use holdfast_sys::lock::recorded_holder;
use serde::Serialize;

use crate::error::{FileRemedy, Result};
use crate::media::files::{base_path, journal_path, lock_path, rescue_path};
use crate::media::format::{FileState, Header};
use crate::media::image::{FileFault, Image};
use crate::media::journal::check_journal_header;
use crate::media::medium::Medium;
use crate::name::RegionName;
use crate::names::key::KeyFingerprint;
use crate::names::namespace::NameSpace;
use crate::names::places::{Places, current_image_path};
use crate::store::rescue::refuse_newer_rescue;
use crate::store::stored::remedy_for_image;

/// How often a header that is being changed is read again before it counts as damaged.
const ATTEMPTS_MAX: u32 = 3;

/// An image or base file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FileSummary {
    /// Where it is.
    pub path: PathBuf,
    /// Its length, holes included.
    pub len_bytes: u64,
    /// What it takes in memory or on the disk.
    pub allocated_bytes: u64,
    /// When it was last written, in seconds since 1970. Stores through a mapping need not count.
    pub modified_unix_s: u64,
}

/// What a region is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RegionState {
    /// A living process writes it.
    Held,
    /// Its image is there, closed in order: the next open is warm.
    Clean,
    /// Its image is there, not closed in order: its last writer died, or could not make the
    /// checkpoint that closing makes. The next open is warm.
    Crashed,
    /// It is only in the store: the next open is cold.
    Cold,
    /// It cannot be opened as it is.
    Damaged,
}

/// A region, described without opening it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RegionSummary {
    /// Its name.
    pub name: RegionName,
    /// Its identity; empty when no header can be read.
    pub uuid: String,
    /// Fingerprint of the key that owns it (of a compartment: of the key derived for it); `None`
    /// when no header can be read.
    pub owner: Option<KeyFingerprint>,
    /// Its native address; zero when no header can be read, as all numbers below.
    pub address: u64,
    /// How far it may grow.
    pub limit_bytes: u64,
    /// How much of it is allocated.
    pub backed_bytes: u64,
    /// Where its image lies, or will lie.
    pub medium: Medium,
    /// The image, in the pool or on the disk.
    pub image: Option<FileSummary>,
    /// The checkpoint in the store.
    pub base: Option<FileSummary>,
    /// What was committed since that checkpoint.
    pub journal: Option<FileSummary>,
    /// What was written to the store when the machine seemed to be about to go.
    pub rescue: Option<FileSummary>,
    /// The process that writes it now.
    pub holder: Option<u32>,
    /// What it is doing.
    pub state: RegionState,
    /// When it was created, in seconds since 1970.
    pub created_unix_s: u64,
    /// How many checkpoints were made.
    pub checkpoint_count: u64,
    /// How many times an image was built: 1 at creation, one more for each cold open.
    pub image_generation: u64,
    /// What is wrong, and what to do about it.
    pub damaged: Option<String>,
}

/// One of a region's two files, and the header in it.
struct Part {
    path: PathBuf,
    file: Option<FileSummary>,
    header: std::result::Result<Header, FileFault>,
}

impl Part {
    fn read(path: PathBuf, name: &RegionName) -> Part {
        let mut attempts = 1;
        let header = loop {
            match Image::open(path.clone(), name, false) {
                // A writer may be changing one slot after the other while we read.
                Err(fault) if fault.is_damage() && attempts < ATTEMPTS_MAX => attempts += 1,
                other => break other.map(|image| image.header),
            }
        };
        Part { file: file_summary(&path), path, header }
    }

    fn is_missing(&self) -> bool {
        matches!(self.header, Err(FileFault::Missing))
    }

    /// What is wrong with the file, if it is there.
    fn fault(self, remedy: impl FnOnce(&Path) -> FileRemedy) -> Option<String> {
        let fault = self.header.err().filter(|fault| !matches!(fault, FileFault::Missing))?;
        let remedy = remedy(&self.path);
        Some(fault.into_error(&self.path, remedy).to_string())
    }
}

/// Describes a region; `None` when there is neither image nor base nor rescue copy.
pub(crate) fn summarize(places: &Places, name: &RegionName) -> Option<RegionSummary> {
    let image = Part::read(current_image_path(places, name), name);
    let mut base = Part::read(base_path(places.store(), name), name);
    let rescue = file_summary(&rescue_path(places.store(), name));
    if image.is_missing() && base.is_missing() {
        rescue.as_ref()?;
        // A region that had no checkpoint when the machine went.
        base = Part { file: None, ..Part::read(rescue_path(places.store(), name), name) };
    }
    let holder = recorded_holder(&lock_path(places.pool(), name));
    let state = match (&image.header, &base.header) {
        (Ok(_), _) if holder.is_some() => RegionState::Held,
        (Ok(Header { state: FileState::Clean, .. }), _) => RegionState::Clean,
        (Ok(Header { state: FileState::Open, .. }), _) => RegionState::Crashed,
        (Err(FileFault::Missing), Ok(_)) => RegionState::Cold,
        (Err(_), _) => RegionState::Damaged,
    };
    // Beside an image it is in no process's way.
    let rescue_fault = match &rescue {
        Some(_) if image.is_missing() => refuse_newer_rescue(places.store(), name).err(),
        _ => None,
    };
    let header = image.header.as_ref().or(base.header.as_ref()).ok().cloned();
    let (image_file, base_file) = (image.file.clone(), base.file.clone());
    // Which base a journal continues can change while we look; without one there is nothing to
    // compare.
    let journal_fault = match &base.header {
        Ok(base) if holder.is_none() => check_journal_header(places.store(), name, base).err(),
        _ => None,
    };
    let damaged = image
        .fault(|path| remedy_for_image(places.store(), name, path))
        .or_else(|| base.fault(|path| FileRemedy::RestoreFile { path: path.to_owned() }))
        .or_else(|| journal_fault.or(rescue_fault).map(|fault| fault.to_string()));
    let number = |field: fn(&Header) -> u64| header.as_ref().map_or(0, field);
    Some(RegionSummary {
        name: name.clone(),
        uuid: header
            .as_ref()
            .map_or_else(String::new, |header| uuid::Uuid::from_bytes(header.uuid).to_string()),
        owner: header.as_ref().map(|header| KeyFingerprint::from_bytes(header.owner_fingerprint)),
        address: number(|header| header.address),
        limit_bytes: number(|header| header.limit_bytes),
        backed_bytes: number(|header| header.backed_bytes),
        medium: header.as_ref().map_or(Medium::default(), |header| header.medium),
        image: image_file,
        base: base_file,
        journal: file_summary(&journal_path(places.store(), name)),
        rescue,
        holder,
        state,
        created_unix_s: number(|header| header.created_unix_s),
        checkpoint_count: number(|header| header.checkpoint_count),
        image_generation: number(|header| header.image_generation),
        damaged,
    })
}

pub(crate) fn file_summary(path: &Path) -> Option<FileSummary> {
    let found = path.symlink_metadata().ok()?;
    Some(FileSummary {
        path: path.to_owned(),
        len_bytes: found.len(),
        allocated_bytes: found.blocks() * 512,
        modified_unix_s: u64::try_from(found.mtime()).unwrap_or(0),
    })
}

impl NameSpace {
    /// All regions, in the order of their names. Takes no locks.
    ///
    /// # Errors
    /// `Io` when a directory cannot be listed. A damaged file is reported in its region's summary.
    pub fn list(&self) -> Result<Vec<RegionSummary>> {
        Ok(self.names()?.iter().filter_map(|name| summarize(self.places(), name)).collect())
    }

    /// One region. Takes no locks.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn summary(&self, name: &RegionName) -> Result<RegionSummary> {
        summarize(self.places(), name).ok_or_else(|| self.not_found(name))
    }
}
