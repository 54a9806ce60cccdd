//! What can still be had from a file that no longer opens: an image, a base file or a snapshot, under any name.
//!
//! Invariants:
//! - The file is only read. What is missing reads as zeros, and the report says where.
//! - Nothing is guessed about the data: offsets stay, and whether it makes sense is for who knows what is in it.

#![forbid(unsafe_code)]

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use holdfast_sys::file::{next_data, private_options};
use serde::Serialize;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{RegionError, Remedy, Result};
use crate::format::{
    DATA_OFFSET, FORMAT_VERSION, GROWTH_HINT_BYTES_MAX, Header, HeaderFault, LIMIT_BYTES_MAX,
    LIMIT_UNIT_BYTES, SLOTS_BYTES, choose, limit_for,
};
use crate::key::OwnerKey;
use crate::name::RegionName;
use crate::namespace::NameSpace;
use crate::transfer::{Origin, TransferReport, runs};

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
    /// Bytes at its end that are missing: the file was cut off.
    pub missing_bytes: u64,
    /// Whether the data matches its checksum; images have none.
    pub checksum_matches: Option<bool>,
}

impl DamageReport {
    /// Whether nothing is wrong with the file, as far as can be told from outside of its data.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.header == HeaderState::Whole && self.missing_bytes == 0 && self.checksum_matches != Some(false)
    }

    /// The part of the data area that is there; the rest reads as zeros.
    #[must_use]
    pub fn present(&self) -> Range<u64> {
        0..self.data_bytes - self.missing_bytes
    }
}

/// The data of a file that may be damaged, in memory.
pub struct DamagedFile {
    header: Option<Header>,
    bytes: Vec<u8>,
    report: DamageReport,
}

impl DamagedFile {
    /// Reads a file, whatever its state. Takes as much memory as the file has data.
    ///
    /// # Errors
    /// `NewerFormat`, `Truncated` when there is no data area at all, `Io`.
    pub fn read(path: &Path) -> Result<DamagedFile> {
        let failed = |step| RegionError::io(step, path);
        let file = private_options().read(true).open(path).map_err(failed("open"))?;
        let found_bytes = file.metadata().map_err(failed("examine"))?.len();
        if found_bytes <= DATA_OFFSET {
            let (path, needed_bytes) = (path.to_owned(), DATA_OFFSET + LIMIT_UNIT_BYTES);
            let remedy = Remedy::RestoreFile { path: path.clone() };
            return Err(RegionError::Truncated { path, needed_bytes, found_bytes, remedy });
        }
        let mut slots = [0; SLOTS_BYTES];
        file.read_exact_at(&mut slots, 0).map_err(failed("read"))?;
        let (header, state) = match choose(&slots) {
            Ok(chosen) if chosen.other_damaged => (Some(chosen.header), HeaderState::OneLost),
            Ok(chosen) => (Some(chosen.header), HeaderState::Whole),
            Err(HeaderFault::Newer { version, flags }) => {
                let path = path.to_owned();
                return Err(RegionError::NewerFormat { path, found: version, flags, known: FORMAT_VERSION });
            }
            Err(HeaderFault::Foreign | HeaderFault::Damaged) => (None, HeaderState::Lost),
        };
        let by_length = (found_bytes - DATA_OFFSET).next_multiple_of(LIMIT_UNIT_BYTES).min(LIMIT_BYTES_MAX);
        let data_bytes = match (&header, state) {
            (Some(header), HeaderState::Whole) => header.backed_bytes,
            // The newer header may have been the lost one: growth shows in the length.
            (Some(header), _) => by_length.clamp(header.backed_bytes, header.limit_bytes),
            (None, _) => by_length,
        };
        let present_bytes = data_bytes.min(found_bytes - DATA_OFFSET);
        let bytes = read_data(&file, data_bytes, present_bytes).map_err(failed("read"))?;
        let expected = header.as_ref().map(|header| header.data_checksum).filter(|sum| *sum != 0);
        let report = DamageReport {
            path: path.to_owned(),
            name: header.as_ref().map(|header| header.name.clone()),
            header: state,
            data_bytes,
            missing_bytes: data_bytes - present_bytes,
            checksum_matches: expected.map(|expected| expected == xxh3_64(&bytes)),
        };
        Ok(DamagedFile { header, bytes, report })
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

fn read_data(file: &File, data_bytes: u64, present_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(data_bytes).map_err(|_| io::ErrorKind::OutOfMemory)?];
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
    /// Makes a region of what was read from a damaged file: all of its data at the same offsets, at the same
    /// address and with the same limit if a header told them, under a key of the caller's.
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
        let (names, origin) = match &damaged.header {
            Some(header) => {
                let (address, limit_bytes) = (header.address, header.limit_bytes);
                (None, Origin { address, limit_bytes, backed_bytes })
            }
            None => {
                let asked_bytes = backed_bytes.saturating_add(GROWTH_HINT_BYTES_MAX).min(LIMIT_BYTES_MAX);
                let limit_bytes = limit_for(asked_bytes)
                    .ok_or(RegionError::LimitOutOfRange { asked_bytes, max_bytes: LIMIT_BYTES_MAX })?;
                // Until the new region has its name, nobody else may choose an address.
                let names = self.lock_names()?;
                let address = self.free_address(limit_bytes)?;
                (Some(names), Origin { address, limit_bytes, backed_bytes })
            }
        };
        let made = self.make(name, key, &origin, |file| {
            for (offset, run) in runs(&damaged.bytes) {
                self.write_data(file, run, offset)?;
            }
            Ok(None)
        });
        drop(names);
        made
    }
}

impl fmt::Debug for DamagedFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("DamagedFile").field("report", &self.report).finish_non_exhaustive()
    }
}
