//! Mending a region in place: what is wrong with its files, what mends it, and what is lost by
//! that.
//!
//! Invariants:
//! - [`NameSpace::examine`] changes nothing. A caller that goes on with [`Examination::mend`] has
//!   seen each finding.
//! - Before the first change all files of the region are copied, durably, to a directory of their
//!   own.
//! - Killed anywhere, the region is as damaged as before or mended, and can be mended again: a new
//!   base is complete before it gets its name, and data is replaced through the redo log.
//! - An image that can be read is newer than the store, so it mends the store; the store never
//!   replaces it. One that does not count (a reset tore it, or may have), or that lacks bytes which
//!   the store has, never mends anything.
//!
//! It must not know what is in a region: what is to be replaced in the data, its caller says.

#![forbid(unsafe_code)]

mod sources;

use std::fs::{DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{fmt, io};

use holdfast_sys::file::{next_data, private_options};
use holdfast_sys::lock::{FileLock, LockMode};
use serde::Serialize;

use crate::error::{ErrorKind, RegionError, Result};
use crate::media::files::{
    base_path, copies_path, grants_temporary_path, journal_path, redo_path, rescue_path,
};
use crate::media::format::{Header, SLOT_BYTES};
use crate::media::image::{FileFault, Image};
use crate::media::journal::find_journal;
use crate::media::sparse::{buffer, write_pages};
use crate::name::RegionName;
use crate::names::key::{OwnerKey, check_key};
use crate::names::namespace::NameSpace;
use crate::names::places::current_image_path;
use crate::store::base::{open_base, verify_base};
use crate::store::stored::Stored;

/// Bytes copied at once.
const CHUNK_BYTES: u64 = 1 << 20;

/// What a commit that was cut short leaves.
const TORN: &str = "its end is torn";

/// Something that is wrong with a file of a region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct FileFinding {
    /// The file.
    pub path: PathBuf,
    /// What is wrong.
    pub what: String,
    /// What mending does about it.
    pub how: &'static str,
    /// What is lost by that, if something is.
    pub lost: Option<String>,
}

/// Where the newest data that can be read is.
#[derive(Debug)]
enum Source {
    /// In the image.
    Image,
    /// In the image, whose headers are lost; this is what they said, as far as it matters.
    ImageWithout(Header),
    /// In the store; an image, if there is one, is no use.
    Store(Stored),
    /// In the rescue copy, which the next open goes on from.
    Rescue,
}

/// What there is of an image.
enum Found {
    Image(Image),
    /// Its headers are lost; what they must have said.
    Without(File, Header),
    /// None that counts: a reset tore this one, or the region went on without it.
    Nothing(Option<Image>),
}

/// A region that was examined, locked until it is mended or dropped.
pub struct Examination {
    names: NameSpace,
    name: RegionName,
    key: OwnerKey,
    findings: Vec<FileFinding>,
    bytes: Vec<u8>,
    source: Source,
    lock: FileLock,
}

impl NameSpace {
    /// Looks at all files of a region, and reads its newest data into memory. Changes nothing.
    ///
    /// # Errors
    /// `NotFound`, `Held`, `NotOwner`; one of the errors about a bad file when neither image nor
    /// base can be read, or when a file is newer or another region's; `NoMemory`, `Io`.
    pub fn examine(&self, name: &RegionName, key: &OwnerKey) -> Result<Examination> {
        if !self.exists(name) {
            return Err(self.not_found(name));
        }
        let lock = self.lock(name, LockMode::Exclusive)?;
        let mut findings = Vec::new();
        let image = self.image(name, LockMode::Exclusive);
        let base = self.examine_base(name, &mut findings)?;
        let owners = [image.as_ref().ok().and_then(Option::as_ref), base.as_ref()];
        owners
            .into_iter()
            .flatten()
            .try_for_each(|file| check_key(name, file.header.owner_fingerprint, key))?;
        let found = match image {
            Ok(Some(image)) if self.is_void(&image)? => Ok(Found::Nothing(Some(image))),
            Ok(Some(image)) => Ok(Found::Image(image)),
            Ok(None) => Ok(Found::Nothing(None)),
            Err(RegionError::HeaderDamaged { path, remedy }) => match &base {
                Some(base) => {
                    self.lost_header(&path, base).map(|(file, header)| Found::Without(file, header))
                }
                None => Err(RegionError::HeaderDamaged { path, remedy }),
            },
            Err(error) => Err(error),
        };
        let (source, bytes) = match found {
            Ok(Found::Image(image)) => {
                findings.extend(lost_slot(&image));
                self.examine_journal(name, base.as_ref(), &mut findings)?;
                let bytes = self.image_bytes(&image.file, &image.header, image.slot_damaged)?;
                (Source::Image, bytes)
            }
            Ok(Found::Without(file, header)) => {
                findings.push(FileFinding {
                    path: current_image_path(self.places(), name),
                    what: "both of its headers are damaged".to_owned(),
                    how: "written anew from that of the last checkpoint",
                    lost: None,
                });
                self.examine_journal(name, base.as_ref(), &mut findings)?;
                let bytes = self.image_bytes(&file, &header, false)?;
                (Source::ImageWithout(header), bytes)
            }
            Ok(Found::Nothing(void)) => {
                self.examine_without(name, key, (void, base), &mut findings)?
            }
            Err(error) if error.kind() == ErrorKind::BadFile && is_damage(&error) => {
                let Some(base) = base.filter(|base| verify_base(base, None).is_ok()) else {
                    return Err(error);
                };
                // A new base would make a rescue copy stale that is newer than the store.
                let found = self.examine_without(name, key, (None, Some(base)), &mut findings)?;
                let (how, lost) = match found.0 {
                    Source::Rescue => (
                        "removed: the region goes on from its rescue copy",
                        "what was stored since that copy was made",
                    ),
                    _ => (
                        "removed: the region goes on from its last commit",
                        "what was stored since the last commit",
                    ),
                };
                findings.push(FileFinding {
                    path: current_image_path(self.places(), name),
                    what: first_clause(&error),
                    how,
                    lost: Some(lost.to_owned()),
                });
                found
            }
            Err(error) => return Err(error),
        };
        let (names, name, key) = (self.clone(), name.clone(), key.clone());
        Ok(Examination { names, name, key, findings, bytes, source, lock })
    }

    /// What is wrong with the files of a region whose newest data can be read: nothing is lost, but
    /// a copy of something is, so that the next damage may cost more. [`Examination::mend`] mends
    /// it. Changes nothing, and needs no key.
    ///
    /// # Errors
    /// As [`NameSpace::open_read`].
    pub fn lost_redundancy(&self, name: &RegionName) -> Result<Vec<FileFinding>> {
        let _lock = self.lock(name, LockMode::Shared)?;
        let mut findings = Vec::new();
        let image = self.image(name, LockMode::Shared)?;
        findings.extend(image.as_ref().and_then(lost_slot));
        let base = self.examine_base(name, &mut findings)?;
        if image.is_some() {
            self.examine_journal(name, base.as_ref(), &mut findings)?;
            // What a killed writer leaves was never acknowledged.
            findings.retain(|finding| finding.what != TORN);
        }
        Ok(findings)
    }

    /// The base if its header can be read; findings about it.
    fn examine_base(
        &self,
        name: &RegionName,
        findings: &mut Vec<FileFinding>,
    ) -> Result<Option<Image>> {
        let how = "replaced by a new checkpoint";
        let (what, base) = match open_base(self.places().store(), name) {
            Ok(base) => match verify_base(&base, None) {
                Err(error) => {
                    let error = self.build_error(error, &base.path, 0);
                    if !is_damage(&error) {
                        return Err(error);
                    }
                    (first_clause(&error), Some(base))
                }
                Ok(()) if base.slot_damaged => {
                    ("one of its two headers is damaged".to_owned(), Some(base))
                }
                Ok(()) => return Ok(Some(base)),
            },
            Err(FileFault::Missing) => return Ok(None),
            Err(fault) => {
                let is_damage = fault.is_damage();
                let error = self.base_error(name, fault);
                if !is_damage {
                    return Err(error);
                }
                (first_clause(&error), None)
            }
        };
        findings.push(FileFinding {
            path: base_path(self.places().store(), name),
            what,
            how,
            lost: None,
        });
        Ok(base)
    }

    /// Findings about the journal of a region whose image can be read.
    fn examine_journal(
        &self,
        name: &RegionName,
        base: Option<&Image>,
        findings: &mut Vec<FileFinding>,
    ) -> Result<()> {
        let Some(base) = base else { return Ok(()) };
        let path = journal_path(self.places().store(), name);
        let what = match find_journal(self.places().store(), name, &base.header, false) {
            Ok(Some(found)) if found.extent.torn => TORN.to_owned(),
            Ok(_) => return Ok(()),
            Err(error) if is_damage(&error) => first_clause(&error),
            Err(error) => return Err(error),
        };
        let how = "replaced by a new checkpoint: the image has all that counts";
        findings.push(FileFinding { path, what, how, lost: None });
        Ok(())
    }

    /// Copies all files of a region that count to a new directory in the store, durably.
    fn keep_copies(&self, name: &RegionName, source: &Source) -> Result<PathBuf> {
        let (store, image) = (self.places().store(), current_image_path(self.places(), name));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let free = (now..now + (1 << 20)).map(|second| copies_path(store, name, second));
        let directory = free.into_iter().find(|path| path.symlink_metadata().is_err());
        let directory = directory.unwrap_or_else(|| copies_path(store, name, now));
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(RegionError::io("create", &directory))?;
        let files = [
            redo_path(image.parent().unwrap_or(store), name),
            image,
            base_path(store, name),
            journal_path(store, name),
        ];
        let rescue = matches!(source, Source::Rescue).then(|| rescue_path(store, name));
        for from in files.iter().chain(&rescue) {
            let Some(file_name) = from.file_name().filter(|_| from.symlink_metadata().is_ok())
            else {
                continue;
            };
            let to = directory.join(file_name);
            self.copy_file(from, &to).map_err(RegionError::io("copy", from))?;
        }
        for made in directory.ancestors().take_while(|path| path.starts_with(store)) {
            self.storage().sync_directory(made).map_err(RegionError::io("make durable", made))?;
        }
        Ok(directory)
    }

    fn copy_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        let (from, to) = (private_options().read(true).open(from)?, self.storage().create(to)?);
        if self.storage().share_blocks(&from, &to).is_err() {
            let len = from.metadata()?.len();
            self.storage().set_len(&to, len)?;
            let mut position = 0;
            while let Some(data) = next_data(&from, position)?.filter(|data| data.start < len) {
                position = data.start;
                while position < data.end.min(len) {
                    let mut bytes = buffer((data.end.min(len) - position).min(CHUNK_BYTES))?;
                    from.read_exact_at(&mut bytes, position)?;
                    // An image is allocated throughout; what of it is zero stays a hole in the
                    // copy.
                    write_pages(&bytes, position, Some((self.storage(), &to)))?;
                    position += bytes.len() as u64;
                }
            }
        }
        self.storage().sync(&to)
    }
}

fn lost_slot(image: &Image) -> Option<FileFinding> {
    image.slot_damaged.then(|| FileFinding {
        path: image.path.clone(),
        what: "one of its two headers is damaged".to_owned(),
        how: "written anew from the other",
        lost: None,
    })
}

impl Examination {
    /// What is wrong with the files, in no particular order.
    #[must_use]
    pub fn findings(&self) -> &[FileFinding] {
        &self.findings
    }

    /// The newest data, as the next open would find it. It is untrusted.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Copies the files as they are, then mends them and replaces pieces of the data (offset and
    /// bytes, in order, apart from each other). Says where the copies are.
    ///
    /// # Errors
    /// `StoreFull`, `NoRoom`, `Io`: the region is as it was or mended, and can be mended again.
    pub fn mend(self, pieces: &[(u64, &[u8])]) -> Result<PathBuf> {
        let Examination { names, name, key, findings, source, lock, .. } = self;
        let copies = names.keep_copies(&name, &source)?;
        let path = current_image_path(names.places(), &name);
        match source {
            Source::Image => {}
            // One that is there is bad, or does not count.
            Source::Rescue => names.remove_image_durably(&name, &path)?,
            Source::ImageWithout(header) => {
                let file = private_options().read(true).write(true).open(&path);
                let file = file.map_err(RegionError::io("open", &path))?;
                for slot in 0..2 {
                    let header = Header { sequence: slot + 1, ..header.clone() };
                    let written =
                        names.storage().write_at(&file, &header.encode(), slot * SLOT_BYTES as u64);
                    written.map_err(RegionError::io("write the header of", &path))?;
                }
            }
            Source::Store(stored) => {
                // While the bad image is there, nothing opens: first the store, which it would
                // hide.
                names.fold_in_store(&stored)?;
                names.remove_image_durably(&name, &path)?;
            }
        }
        let (image, opened, _) =
            names.open_locked(&name, &key)?.ok_or_else(|| names.not_found(&name))?;
        let mut region = names.region(image, opened, lock);
        if !findings.is_empty() {
            region.owe_base();
        }
        region.rewrite(pieces)?;
        region.close()?;
        // A process that replaced the access table died; what stays of it is in no process's way.
        let half = grants_temporary_path(names.places().store(), &name);
        if half.symlink_metadata().is_ok()
            && let Ok(_names) = names.lock_names()
        {
            let _ = names.remove_file(&half);
        }
        Ok(copies)
    }
}

/// Whether the content of a file is bad, rather than its place, version or name.
fn is_damage(error: &RegionError) -> bool {
    matches!(
        error,
        RegionError::Truncated { .. }
            | RegionError::Foreign { .. }
            | RegionError::HeaderDamaged { .. }
            | RegionError::DataDamaged { .. }
            | RegionError::JournalDamaged { .. }
            | RegionError::JournalMismatch { .. }
            | RegionError::JournalMisfit { .. }
    )
}

/// What an error says before its remedy.
fn first_clause(error: &RegionError) -> String {
    let text = error.to_string();
    text.split_once("; ").map_or(text.clone(), |(what, _)| what.to_owned())
}

impl fmt::Debug for Examination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Examination")
            .field("name", &self.name)
            .field("findings", &self.findings)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}
