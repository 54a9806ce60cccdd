//! Reads all that is left in a file that no longer opens: an image, a base file or a snapshot,
//! under any name.
//!
//! Invariants:
//! - The file is only read. What is missing reads as zeros, and the report says where.
//! - Nothing is guessed about the data: offsets stay, and whether it makes sense is for who knows
//!   what is in it.

#![forbid(unsafe_code)]

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fmt, io};

use holdfast_sys::file::{next_data, private_options};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::care::transfer::{Origin, TransferReport};
use crate::error::{FileRemedy, RegionError, Result};
use crate::media::format::{
    DATA_OFFSET, FORMAT_VERSION, GROWTH_HINT_BYTES_MAX, Header, HeaderFault, LIMIT_BYTES_MAX,
    LIMIT_UNIT_BYTES, MAGIC, PACKED_OFFSET, SLOTS_BYTES, choose, limit_for,
};
use crate::media::image::BuildError;
use crate::media::journal::{ReadFault, Sizes, apply, open_journal, whole_records};
use crate::media::packed;
use crate::media::redo;
use crate::media::sparse::buffer;
use crate::name::RegionName;
use crate::names::key::OwnerKey;
use crate::names::namespace::NameSpace;
use crate::store::stream;

/// How often a journal that looks damaged is read before it is believed to be.
const LOOKS_MAX: u32 = 5;
/// A journal that was written to within this time has a writer, perhaps.
const JUST_NOW: Duration = Duration::from_secs(2);

/// What is left of a file's two header slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum HeaderState {
    /// Both are whole.
    Whole,
    /// One is lost; the other may be the older one.
    OneLost,
    /// Both are lost: name, address and limit are unknown.
    Lost,
}

/// What was found in a file that may be damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DamageReport {
    /// The file.
    pub path: PathBuf,
    /// The region's name, if a header tells it.
    pub name: Option<RegionName>,
    /// What is left of the header.
    pub header: HeaderState,
    /// Bytes that the data area has, or had.
    pub data_bytes: u64,
    /// Bytes at the end of the file that are missing: it was cut off. They read as zeros, but for
    /// what the file beside it has of them.
    pub missing_bytes: u64,
    /// Where in the data area they start.
    pub missing_offset: u64,
    /// Whether the data matches its checksum, and that of its packed form; images have none.
    pub checksum_matches: Option<bool>,
    /// The file beside it that continues it, if there is one.
    pub continuation: Option<ContinuationReport>,
}

/// What was taken from the file beside a damaged one: the journal of a base file, the redo log of
/// an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ContinuationReport {
    /// The journal or redo log.
    pub path: PathBuf,
    /// Commits that were taken from it. Their pages replace what was missing there.
    pub commits: u64,
    /// Why what follows them cannot be read, if something does.
    pub damaged: Option<String>,
}

impl DamageReport {
    /// Whether nothing is wrong with the file, as far as can be seen from outside of its data.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.header == HeaderState::Whole
            && self.missing_bytes == 0
            && self.checksum_matches != Some(false)
            && self.continuation.as_ref().is_none_or(|found| found.damaged.is_none())
    }

    /// Whether bytes of this range of the data area are missing.
    #[must_use]
    pub fn lacks(&self, range: Range<u64>) -> bool {
        range.start < self.missing_offset + self.missing_bytes
            && range.end > self.missing_offset
            && !range.is_empty()
    }
}

/// The data of a file that may be damaged, in memory.
pub struct DamagedFile {
    header: Option<Header>,
    bytes: Vec<u8>,
    report: DamageReport,
}

impl DamagedFile {
    /// Reads a file, whatever its state, and what continues it: the journal beside a base file, the
    /// redo log beside an image, under the same name with their own endings. Takes as much memory
    /// as the file has data.
    ///
    /// # Errors
    /// `Foreign` when it never was a file of a region, `NewerFormat`, `Truncated` when there is no
    /// data area at all, `NoMemory`, `Io`.
    pub fn read(path: &Path) -> Result<DamagedFile> {
        let mut looks = 1;
        loop {
            let found = DamagedFile::read_once(path)?;
            let journal =
                found.report.continuation.as_ref().filter(|journal| journal.damaged.is_some());
            // A writer may be appending to it, cutting it off, or folding it while it is read.
            if looks == LOOKS_MAX || !journal.is_some_and(|journal| was_just_written(&journal.path))
            {
                return Ok(found);
            }
            looks += 1;
        }
    }

    fn read_once(path: &Path) -> Result<DamagedFile> {
        let failed = |step| RegionError::io(step, path);
        // Before it is opened: an opener of a pipe waits for its writer, and a device may have no
        // end.
        if !path.metadata().map_err(failed("examine"))?.is_file() {
            return Err(RegionError::Foreign {
                path: path.to_owned(),
                remedy: FileRemedy::NameAnother,
            });
        }
        let file = private_options().read(true).open(path).map_err(failed("open"))?;
        let found_bytes = file.metadata().map_err(failed("examine"))?.len();
        let mut start = [0; MAGIC.len()];
        let start_bytes = file.read_at(&mut start, 0).map_err(failed("read"))?;
        let start = &start[..start_bytes];
        if start == stream::MAGIC {
            let path = path.to_owned();
            return Err(RegionError::Foreign {
                remedy: FileRemedy::Import { path: path.clone() },
                path,
            });
        }
        // A larger file can have lost both headers, and still have its data.
        let is_short = found_bytes <= DATA_OFFSET;
        if is_short && found_bytes < PACKED_OFFSET {
            return Err(too_short(path, start, found_bytes));
        }
        let mut slots = [0; SLOTS_BYTES];
        file.read_exact_at(&mut slots, 0).map_err(failed("read"))?;
        let (header, state) = match choose(&slots) {
            Ok(chosen) if chosen.other_damaged => (Some(chosen.header), HeaderState::OneLost),
            Ok(chosen) => (Some(chosen.header), HeaderState::Whole),
            Err(HeaderFault::Newer { version, flags }) => {
                let path = path.to_owned();
                return Err(RegionError::NewerFormat {
                    path,
                    found: version,
                    flags,
                    known: FORMAT_VERSION,
                });
            }
            Err(HeaderFault::Foreign | HeaderFault::Damaged) => (None, HeaderState::Lost),
        };
        let packed = header.as_ref().filter(|header| header.packed_bytes > 0);
        let mut is_unpacked = true;
        let (data_bytes, present_bytes, bytes) = if packed.is_some() || is_short {
            let known_bytes = packed.map(|header| header.backed_bytes);
            let remains = packed::salvage(&file, known_bytes).map_err(failed("read"))?;
            let remains = remains.ok_or_else(|| too_short(path, start, found_bytes))?;
            let (data_bytes, missing_from) = (remains.data_bytes, remains.missing_from);
            is_unpacked = remains.is_whole;
            let bytes = remains.into_bytes().map_err(RegionError::read_whole(path, data_bytes))?;
            (data_bytes, missing_from.unwrap_or(data_bytes), bytes)
        } else {
            let by_length =
                (found_bytes - DATA_OFFSET).next_multiple_of(LIMIT_UNIT_BYTES).min(LIMIT_BYTES_MAX);
            let data_bytes = match (&header, state) {
                (Some(header), HeaderState::Whole) => header.backed_bytes,
                // The newer header may have been the lost one: growth shows in the length.
                (Some(header), _) => by_length.clamp(header.backed_bytes, header.limit_bytes),
                (None, _) => by_length,
            };
            let present_bytes = data_bytes.min(found_bytes - DATA_OFFSET);
            let bytes = read_data(&file, data_bytes, present_bytes);
            let bytes = bytes.map_err(RegionError::read_whole(path, data_bytes))?;
            (data_bytes, present_bytes, bytes)
        };
        let expected = header.as_ref().map(|header| header.data_checksum).filter(|sum| *sum != 0);
        let report = DamageReport {
            path: path.to_owned(),
            name: header.as_ref().map(|header| header.name.clone()),
            header: state,
            data_bytes,
            missing_bytes: data_bytes - present_bytes,
            missing_offset: present_bytes,
            checksum_matches: expected.map(|expected| is_unpacked && expected == xxh3_64(&bytes)),
            continuation: None,
        };
        let mut damaged = DamagedFile { header, bytes, report };
        damaged.report.continuation = match damaged.header.clone() {
            Some(header) if header.continued => damaged.apply_journal(&header),
            Some(header) => damaged.apply_redo_log(&header),
            None => None,
        };
        Ok(damaged)
    }

    /// Applies the whole records of the journal that continues this base.
    fn apply_journal(&mut self, base: &Header) -> Option<ContinuationReport> {
        let path = self.report.path.with_extension("journal");
        let sizes = Sizes { backed_bytes: base.backed_bytes, limit_bytes: base.limit_bytes };
        let damage = |fault: ReadFault| {
            fault.into_error(&path, FileRemedy::RestoreFile { path: path.clone() })
        };
        let mut look = || {
            let opened =
                open_journal(&path, base, false, &FileRemedy::RestoreFile { path: path.clone() });
            let applied = opened.transpose()?.and_then(|(file, journal)| {
                let (extent, fault) = whole_records(&file, &journal, sizes).map_err(damage)?;
                self.grow(extent.backed_bytes)
                    .map_err(RegionError::read_whole(&self.report.path, extent.backed_bytes))?;
                apply(&file, &journal, extent, &mut |bytes, offset| self.put(bytes, offset))
                    .map_err(damage)?;
                Ok((extent.commits(), fault.map(damage)))
            });
            Some(applied)
        };
        let was_cut = |applied: &Result<_>| matches!(applied, Err(RegionError::Io { source, .. }) if source.kind() == io::ErrorKind::UnexpectedEof);
        // No process is locked out: a writer may cut the file off between its length and its bytes.
        let mut applied = look()?;
        for _ in 1..LOOKS_MAX {
            if !was_cut(&applied) {
                break;
            }
            applied = look()?;
        }
        let (commits, damaged) = applied.unwrap_or_else(|error| (0, Some(error)));
        let damaged = damaged.map(|error| error.to_string());
        Some(ContinuationReport { path, commits, damaged })
    }

    /// Applies the publication that a writer in the mode `atomic` had begun.
    fn apply_redo_log(&mut self, image: &Header) -> Option<ContinuationReport> {
        let path = self.report.path.with_extension("redo");
        let file = private_options().read(true).open(&path).ok()?;
        let (commits, damaged) =
            match redo::replay(&file, image, &mut |bytes, offset| self.put(bytes, offset)) {
                Ok(false) => return None,
                Ok(true) => (1, None),
                Err(error) => (0, Some(redo::log_error("read", &path, error).to_string())),
            };
        Some(ContinuationReport { path, commits, damaged })
    }

    fn grow(&mut self, backed_bytes: u64) -> io::Result<()> {
        if backed_bytes > self.bytes.len() as u64 {
            let mut bytes = buffer(backed_bytes)?;
            bytes[..self.bytes.len()].copy_from_slice(&self.bytes);
            (self.bytes, self.report.data_bytes) = (bytes, backed_bytes);
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let target = self.bytes.get_mut(start..).and_then(|rest| rest.get_mut(..bytes.len()));
        target.ok_or(io::ErrorKind::UnexpectedEof)?.copy_from_slice(bytes);
        Ok(())
    }

    /// What was found.
    #[must_use]
    pub fn report(&self) -> &DamageReport {
        &self.report
    }

    /// The data, zeros where it is missing. It is untrusted.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The error of a file that has no data area, and nothing packed.
fn too_short(path: &Path, start: &[u8], found_bytes: u64) -> RegionError {
    let path = path.to_owned();
    if !MAGIC.starts_with(start) {
        return RegionError::Foreign { path, remedy: FileRemedy::NameAnother };
    }
    let (needed_bytes, remedy) =
        (DATA_OFFSET + LIMIT_UNIT_BYTES, FileRemedy::RestoreFile { path: path.clone() });
    RegionError::Truncated { path, needed_bytes, found_bytes, remedy }
}

/// Whether a process may be writing a file: it changed moments ago, or is gone.
fn was_just_written(path: &Path) -> bool {
    let modified = path.metadata().and_then(|found| found.modified());
    modified.is_ok_and(|modified| modified.elapsed().is_ok_and(|age| age < JUST_NOW))
        || !path.exists()
}

fn read_data(file: &File, data_bytes: u64, present_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = buffer(data_bytes)?;
    let end = DATA_OFFSET + present_bytes;
    let mut position = DATA_OFFSET;
    while position < end {
        let Some(data) = next_data(file, position)? else { break };
        let (start, stop) = (data.start.clamp(position, end), data.end.min(end));
        if start < stop {
            let part = (start - DATA_OFFSET) as usize..(stop - DATA_OFFSET) as usize;
            file.read_exact_at(&mut bytes[part], start)?;
        }
        position = stop.max(position + 1);
    }
    Ok(bytes)
}

impl NameSpace {
    /// Makes a region of what was read from a damaged file: all of its data at the same offsets, at
    /// the same address and with the same limit if a header told them, under a key of the caller's.
    ///
    /// # Errors
    /// As [`NameSpace::import`]. Nothing is left behind.
    pub fn salvage(
        &self,
        damaged: &DamagedFile,
        name: &RegionName,
        key: &OwnerKey,
    ) -> Result<TransferReport> {
        let backed_bytes = damaged.report.data_bytes;
        let (address, limit_bytes) = match &damaged.header {
            Some(header) => (Some(header.address), header.limit_bytes),
            None => {
                let asked_bytes =
                    backed_bytes.saturating_add(GROWTH_HINT_BYTES_MAX).min(LIMIT_BYTES_MAX);
                let limit_bytes = limit_for(asked_bytes).ok_or(RegionError::LimitOutOfRange {
                    asked_bytes,
                    max_bytes: LIMIT_BYTES_MAX,
                })?;
                (None, limit_bytes)
            }
        };
        self.make(name, key, &Origin { address, limit_bytes, backed_bytes }, |data| {
            data.write(&damaged.bytes, 0).map_err(BuildError::write)?;
            Ok(None)
        })
    }
}

impl fmt::Debug for DamagedFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DamagedFile").field("report", &self.report).finish_non_exhaustive()
    }
}
