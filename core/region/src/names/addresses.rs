//! Addresses for new regions: a stretch of the window that no region of this home has is remembered
//! in the pool, so that a new one needs no look at all the others.
//!
//! The stretch is what lay behind the last region when all were looked at. New regions take their
//! addresses from its start; where none is remembered, or it has become too short, all are looked
//! at again. Addresses of removed regions come back with that.
//!
//! Invariants:
//! - Who gives a region of this home a range, new, imported, or raised to a higher limit, takes it
//!   out of the stretch before the region has it, under the lock on the name space. A kill in
//!   between wastes the range until all are looked at again.
//! - A stretch that cannot be written down is forgotten, and one that is not whole is none.
//!
//! What it cannot see: a base file that a person copies into the store. Its range leaves the
//! stretch when it is opened. A region made before that may have got an address in it; then the
//! second of the two that one process maps is refused, as with a copy (`AddressTaken`).

#![forbid(unsafe_code)]

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use holdfast_sys::file::private_options;
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{RegionError, Result};
use crate::image::address::{choose_address, choose_between};
use crate::media::files::addresses_path;
use crate::media::format::{ADDRESS_UNIT_BYTES, Header, WINDOW_END};
use crate::media::image::Image;
use crate::names::namespace::NameSpace;
use crate::names::places::current_image_path;
use crate::store::base::open_base;
use crate::store::rescue::open_rescue;

/// First byte, end and checksum of the stretch, each a little-endian `u64`.
const RECORD_BYTES: usize = 24;

fn encode(stretch: &Range<u64>) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..8].copy_from_slice(&stretch.start.to_le_bytes());
    record[8..16].copy_from_slice(&stretch.end.to_le_bytes());
    let checksum = xxh3_64(&record[..16]);
    record[16..].copy_from_slice(&checksum.to_le_bytes());
    record
}

fn decode(record: &[u8; RECORD_BYTES]) -> Option<Range<u64>> {
    let word = |at: usize| record[at..].first_chunk().map(|word| u64::from_le_bytes(*word));
    let (start, end, checksum) = (word(0)?, word(8)?, word(16)?);
    (checksum == xxh3_64(&record[..16]) && start <= end).then_some(start..end)
}

/// The longer one of what a range leaves of a stretch.
fn without(stretch: &Range<u64>, range: &Range<u64>) -> Range<u64> {
    if range.start >= stretch.end || range.end <= stretch.start {
        return stretch.clone();
    }
    let before = stretch.start..range.start.max(stretch.start);
    let behind = end_in_units(range.end).min(stretch.end)..stretch.end;
    if before.end - before.start > behind.end - behind.start { before } else { behind }
}

fn end_in_units(end: u64) -> u64 {
    end.checked_next_multiple_of(ADDRESS_UNIT_BYTES).map_or(WINDOW_END, |end| end.min(WINDOW_END))
}

/// What a region with this header has of the window.
fn range_of(header: &Header) -> Range<u64> {
    header.address..header.address + header.limit_bytes
}

impl NameSpace {
    /// An address for a region of `limit_bytes` that none of this home has; it is nobody else's
    /// from now on. The caller holds the lock on the name space.
    pub(crate) fn free_address(&self, limit_bytes: u64) -> Result<u64> {
        if let Some(stretch) = self.remembered_stretch()
            && let Some(address) = choose_between(&stretch, limit_bytes)
        {
            self.remember_stretch(&(end_in_units(address + limit_bytes)..stretch.end))?;
            return Ok(address);
        }
        let taken = self.taken_ranges()?;
        let starts: Vec<u64> = taken.iter().map(|range| range.start).collect();
        let address = choose_address(self.places().home(), taken, limit_bytes)?;
        let start = end_in_units(address + limit_bytes);
        let end = starts.into_iter().filter(|next| *next >= start).min().unwrap_or(WINDOW_END);
        self.remember_stretch(&(start..end))?;
        Ok(address)
    }

    /// Notes that a region of this home is about to have a range that [`NameSpace::free_address`]
    /// did not choose. The caller holds the lock on the name space.
    pub(crate) fn note_range(&self, range: &Range<u64>) -> Result<()> {
        match self.remembered_stretch() {
            Some(stretch) if without(&stretch, range) != stretch => {
                self.remember_stretch(&without(&stretch, range))
            }
            _ => Ok(()),
        }
    }

    /// The same for a caller that holds no lock on the name space, for a region that comes out of
    /// the store.
    pub(crate) fn note_header(&self, header: &Header) -> Result<()> {
        let range = range_of(header);
        match self.remembered_stretch() {
            Some(stretch) if without(&stretch, &range) != stretch => {
                let _names = self.lock_names()?;
                self.note_range(&range)
            }
            _ => Ok(()),
        }
    }

    /// Whether new regions get their addresses without a look at the others.
    pub(crate) fn knows_free_addresses(&self) -> bool {
        self.remembered_stretch().is_some()
    }

    /// The ranges of all regions of this home.
    fn taken_ranges(&self) -> Result<Vec<Range<u64>>> {
        let mut taken = Vec::new();
        for name in self.names()? {
            let image = Image::open(current_image_path(self.places(), &name), &name, false);
            // A file that cannot be opened gives no address, and cannot be mapped either.
            let store = self.places().store();
            let files = [image, open_base(store, &name), open_rescue(store, &name)];
            taken.extend(files.into_iter().flatten().map(|file| range_of(&file.header)));
        }
        Ok(taken)
    }

    fn remembered_stretch(&self) -> Option<Range<u64>> {
        let path = addresses_path(self.places().pool());
        let file = private_options().read(true).open(path).ok()?;
        let mut record = [0; RECORD_BYTES];
        file.read_exact_at(&mut record, 0).ok()?;
        decode(&record)
    }

    fn remember_stretch(&self, stretch: &Range<u64>) -> Result<()> {
        let path = addresses_path(self.places().pool());
        let written = private_options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .and_then(|file| file.write_all_at(&encode(stretch), 0));
        if written.is_ok() {
            return Ok(());
        }
        // What it said before is not true any more.
        self.forget_stretch()
    }

    /// Has the next new region look at all others. The caller holds the lock on the name space.
    pub(crate) fn forget_stretch(&self) -> Result<()> {
        let path = addresses_path(self.places().pool());
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(RegionError::io("remove", path)(error))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = ADDRESS_UNIT_BYTES;

    #[test]
    fn record_is_whole_or_none() {
        let stretch = 3 * UNIT..70 * UNIT;
        let record = encode(&stretch);
        assert_eq!(decode(&record), Some(stretch));
        for at in 0..RECORD_BYTES {
            let mut damaged = record;
            damaged[at] ^= 4;
            assert_eq!(decode(&damaged), None, "byte {at}");
        }
        assert_eq!(decode(&[0; RECORD_BYTES]), None);
    }

    #[test]
    fn longer_part_is_left_of_a_stretch() {
        let stretch = 10 * UNIT..20 * UNIT;
        for (range, left) in [
            (0..10 * UNIT, stretch.clone()),
            (20 * UNIT..21 * UNIT, stretch.clone()),
            (9 * UNIT..10 * UNIT + 1, 11 * UNIT..20 * UNIT),
            (12 * UNIT..13 * UNIT, 13 * UNIT..20 * UNIT),
            (17 * UNIT..18 * UNIT, 10 * UNIT..17 * UNIT),
            (0..30 * UNIT, 20 * UNIT..20 * UNIT),
        ] {
            assert_eq!(without(&stretch, &range), left, "{range:?}");
        }
    }
}
