//! Regions that travel: out as a stream, in from one, and from one name to another.
//!
//! Invariants:
//! - Reading needs no key (who may read the files may read); what is made belongs to the key that
//!   made it, and is a region of its own, with a new identity.
//! - The address stays: the data may hold pointers to it. Two regions of one address are both
//!   usable; only one of them can be mapped at it in one process, and the second is refused there
//!   (`AddressTaken`).
//! - What a stream claims costs nothing before there is room for it. Its holes are no bytes of it,
//!   but are summed.
//! - A new region appears when all of it is verified and durable, or not at all. Nothing is ever
//!   replaced.

#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::marker::PhantomData;
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_sys::lock::{FileLock, LockMode};
use serde::Serialize;

use crate::error::stream::StreamError;
use crate::error::{FileRemedy, RegionError, Result};
use crate::media::files::{base_path, journal_path, lock_path};
use crate::media::format::{FileState, Header};
use crate::media::image::BuildError;
use crate::media::sparse::{AreaSum, PAGE_BYTES, SummedWriter, is_zero};
use crate::media::turns::{Stages, in_turns, threads_for};
use crate::name::RegionName;
use crate::names::key::OwnerKey;
use crate::names::namespace::NameSpace;
use crate::names::reader::RegionReader;
use crate::store::stream::{
    BLOCK_BYTES_MAX, PagesBlock, Part, StreamHeader, StreamReader, write_end, write_header,
};

/// What was exported, imported or copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TransferReport {
    /// Bytes of the region's data.
    pub backed_bytes: u64,
    /// Of these, bytes in pages that are not all zero.
    pub bytes: u64,
}

/// What a new region is made of.
pub(crate) struct Origin {
    /// One that is free where it is not known.
    pub(crate) address: Option<u64>,
    pub(crate) limit_bytes: u64,
    pub(crate) backed_bytes: u64,
}

impl RegionReader {
    /// Writes the region as a portable stream, which [`NameSpace::import`] reads.
    ///
    /// # Errors
    /// `BackingLost` when the file was cut off meanwhile (the stream then has no end, so it is not
    /// taken for whole), `Io` when the writer fails.
    pub fn export(&self, out: &mut dyn Write) -> Result<TransferReport> {
        let summary = self.summary();
        let header = StreamHeader {
            uuid: uuid::Uuid::parse_str(&summary.uuid).unwrap_or_default().into_bytes(),
            address: summary.address,
            limit_bytes: summary.limit_bytes,
            backed_bytes: self.bytes().len() as u64,
            created_unix_s: summary.created_unix_s,
            name: summary.name.to_string(),
        };
        let failed = || RegionError::io("write the stream of", summary.name.as_str());
        write_header(out, &header).map_err(failed())?;
        // Holes of the file are not looked at: a load would put memory there.
        let pieces = self.extents().flat_map(|extent| {
            let start = extent.start as u64;
            let pieces = self.bytes()[extent].chunks(BLOCK_BYTES_MAX);
            (start..).step_by(BLOCK_BYTES_MAX).zip(pieces).map(Ok)
        });
        let (threads, mut bytes) = (threads_for(header.backed_bytes), 0);
        let summed = in_turns(threads, &Blocks(PhantomData), pieces, AreaSum::new(), |blocks| {
            blocks.iter().try_for_each(|block| {
                bytes += block.pages().len() as u64;
                block.write(out)
            })
        });
        let data_checksum = summed.map_err(failed())?.finish(header.backed_bytes);
        self.check_whole()?;
        write_end(out, data_checksum).map_err(failed())?;
        Ok(TransferReport { backed_bytes: header.backed_bytes, bytes })
    }

    /// The runs of pages that are not zero. Holes of the file are not looked at: a load would put
    /// memory there.
    fn runs(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.extents().flat_map(|extent| {
            let start = extent.start as u64;
            runs(&self.bytes()[extent]).map(move |(offset, run)| (start + offset, run))
        })
    }

    fn check_whole(&self) -> Result<()> {
        if !self.lost_backing() {
            return Ok(());
        }
        let file = self.summary().image.as_ref().or(self.summary().base.as_ref());
        let path = file.map(|file| file.path.clone()).unwrap_or_default();
        Err(RegionError::BackingLost {
            remedy: FileRemedy::RestoreFile { path: path.clone() },
            path,
        })
    }
}

/// From pieces of the data to blocks of a stream. Each byte is summed twice, with its block and with
/// all others: the second time it comes from the cache.
struct Blocks<'a>(PhantomData<&'a [u8]>);

impl<'a> Stages for Blocks<'a> {
    type Piece = (u64, &'a [u8]);
    type Desk = Vec<PagesBlock<'a>>;
    type State = AreaSum;
    type Done = Vec<PagesBlock<'a>>;

    fn desk(&self) -> io::Result<Vec<PagesBlock<'a>>> {
        Ok(Vec::new())
    }

    fn prepare(
        &self,
        blocks: &mut Vec<PagesBlock<'a>>,
        (start, piece): &(u64, &'a [u8]),
    ) -> io::Result<()> {
        blocks.extend(runs(piece).map(|(offset, run)| PagesBlock::new(start + offset, run)));
        Ok(())
    }

    fn add(
        &self,
        sum: &mut AreaSum,
        blocks: &mut Vec<PagesBlock<'a>>,
        _: (u64, &'a [u8]),
    ) -> Vec<PagesBlock<'a>> {
        for block in &*blocks {
            // Pieces are in order, and so are the blocks of each.
            let _ = sum.add(block.pages(), block.offset());
        }
        std::mem::take(blocks)
    }
}

/// The runs of pages that are not zero, cut where a block would get too long.
fn runs(data: &[u8]) -> impl Iterator<Item = (u64, &[u8])> {
    let page_bytes = PAGE_BYTES as usize;
    let mut at = 0;
    std::iter::from_fn(move || {
        at += data.get(at..)?.chunks(page_bytes).take_while(|page| is_zero(page)).count()
            * page_bytes;
        let rest = data.get(at..).filter(|rest| !rest.is_empty())?;
        let pages = rest.chunks(page_bytes).take(BLOCK_BYTES_MAX / page_bytes);
        let run_bytes = pages.take_while(|page| !is_zero(page)).map(<[u8]>::len).sum();
        let run = (at as u64, &rest[..run_bytes]);
        at += run_bytes;
        Some(run)
    })
}

impl NameSpace {
    /// Makes a region from a stream. It is in the store then; the first open is a cold one. A
    /// stream of few bytes can be that of a large region that is nearly empty: what it may claim is
    /// bounded by the room in the pool or on the disk, whichever has more, since no image of a
    /// larger one could be made.
    ///
    /// # Errors
    /// `AlreadyExists`, `Held`; `Access` for the name of a compartment; `Stream` when the stream is
    /// cut off, damaged, foreign or newer; `NoRoom` and `NoRoomOnDisk`, before anything but its
    /// header is read; `StoreFull`, `Io`. Nothing is left behind.
    pub fn import(
        &self,
        name: &RegionName,
        key: &OwnerKey,
        input: &mut dyn Read,
    ) -> Result<TransferReport> {
        // Before anything is read: a stream from a pipe cannot be read twice.
        self.check_free(name)?;
        let (mut stream, header) = StreamReader::new(input)?;
        let StreamHeader { address, limit_bytes, backed_bytes, .. } = header;
        self.check_room(backed_bytes)?;
        let origin = Origin { address: Some(address), limit_bytes, backed_bytes };
        self.make(name, key, &origin, |data| {
            let source = |error: StreamError| BuildError::Source(error.into());
            let expected = loop {
                match stream.part().map_err(source)? {
                    Part::Pages { offset, bytes } => {
                        data.write(bytes, offset).map_err(BuildError::write)?;
                    }
                    Part::End { data_checksum } => break data_checksum,
                }
            };
            Ok(Some(expected))
        })
    }

    /// Copies a region to a new name, as it is now; what its programs stored since its last
    /// checkpoint is in the copy.
    ///
    /// # Errors
    /// As [`NameSpace::open_read`] (`Held` while a program writes it) and [`NameSpace::create`].
    pub fn copy(
        &self,
        from: &RegionName,
        to: &RegionName,
        key: &OwnerKey,
    ) -> Result<TransferReport> {
        self.check_free(to)?;
        let reader = self.open_read(from)?;
        let summary = reader.summary();
        let origin = Origin {
            address: Some(summary.address),
            limit_bytes: summary.limit_bytes,
            backed_bytes: reader.bytes().len() as u64,
        };
        self.make(to, key, &origin, |data| {
            for (offset, run) in reader.runs() {
                data.write(run, offset).map_err(BuildError::write)?;
            }
            reader.check_whole().map_err(BuildError::Source)?;
            Ok(None)
        })
    }

    /// Whether an image of this size could be made, on one medium or the other.
    fn check_room(&self, needed_bytes: u64) -> Result<()> {
        let places = [self.places().pool(), self.places().home()];
        let room_bytes =
            places.map(|path| self.storage().available_bytes(path).unwrap_or(0)).into_iter().max();
        if room_bytes.is_some_and(|room_bytes| needed_bytes <= room_bytes) {
            return Ok(());
        }
        Err(self.no_room(self.medium(), needed_bytes, None))
    }

    /// Compartments are never made from anything else.
    fn check_free(&self, name: &RegionName) -> Result<()> {
        self.refuse_compartment(name)?;
        if self.exists(name) {
            Err(RegionError::AlreadyExists { name: name.to_string() })
        } else {
            Ok(())
        }
    }

    /// Makes a base file under a new name. `fill` writes its data, and says which checksum it must
    /// have if it knows.
    pub(crate) fn make(
        &self,
        name: &RegionName,
        key: &OwnerKey,
        origin: &Origin,
        fill: impl FnOnce(&mut SummedWriter<'_>) -> std::result::Result<Option<u64>, BuildError>,
    ) -> Result<TransferReport> {
        let lock = self.lock(name, LockMode::Exclusive)?;
        let made = self.make_locked(name, key, origin, fill);
        if made.is_err() && !self.exists(name) {
            // The lock file is new, too.
            lock.remove_file()
                .map_err(RegionError::io("remove", lock_path(self.places().pool(), name)))?;
        }
        made
    }

    /// No new region is to get the addresses of one that is about to have its name: while the
    /// caller has the lock on the name space, no other process chooses one.
    fn note_origin(&self, address: u64, limit_bytes: u64) -> Result<FileLock> {
        let names = self.lock_names()?;
        self.note_range(&(address..address.saturating_add(limit_bytes)))?;
        Ok(names)
    }

    fn make_locked(
        &self,
        name: &RegionName,
        key: &OwnerKey,
        origin: &Origin,
        fill: impl FnOnce(&mut SummedWriter<'_>) -> std::result::Result<Option<u64>, BuildError>,
    ) -> Result<TransferReport> {
        self.check_free(name)?;
        // A chosen address is free for as long as no other process may choose one.
        let (address, choice) = match origin.address {
            Some(address) => (address, None),
            None => {
                let names = self.lock_names()?;
                (self.free_address(origin.limit_bytes)?, Some(names))
            }
        };
        let header = Header {
            sequence: 0,
            uuid: uuid::Uuid::new_v4().into_bytes(),
            address,
            limit_bytes: origin.limit_bytes,
            backed_bytes: origin.backed_bytes,
            state: FileState::Clean,
            checkpoint_count: 1,
            image_generation: 0,
            created_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            data_checksum: 0,
            owner_fingerprint: key.fingerprint(),
            name: name.clone(),
            continued: true,
            journal_sequence: 0,
            medium: self.medium(),
            boot: [0; 16],
            ordered: false,
            packed_bytes: 0,
        };
        // What a region that had the name may have left could not be applied to this one, but could
        // be in its way.
        self.remove_file(&journal_path(self.places().store(), name))?;
        self.remove_redo_logs(name)?;
        let store = self.places().store();
        let mut pages = 0;
        let built = self.build_in_store(store, header, |file, header| {
            let mut data = SummedWriter::new(self.storage(), file);
            let expected = fill(&mut data)?;
            let found = data.finish(origin.backed_bytes);
            if expected.is_some_and(|expected| expected != found.checksum) {
                let what = "its data does not match the checksum at its end";
                return Err(BuildError::Source(StreamError::Damaged { offset: 0, what }.into()));
            }
            header.data_checksum = found.checksum;
            pages = found.pages;
            Ok(())
        })?;
        // A process that looked at all regions while this one was built did not see it.
        let noted = choice.map_or_else(|| self.note_origin(address, origin.limit_bytes), Ok);
        let _names = noted.inspect_err(|_| drop(self.remove_file(&built.path)))?;
        self.publish_in_store(built, store, base_path(store, name))?;
        Ok(TransferReport { backed_bytes: origin.backed_bytes, bytes: pages * PAGE_BYTES })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs are the pages that are not zero cut into blocks.
    #[test]
    fn runs_are_nonzero_pages_cut_into_blocks() {
        let mut data = vec![0; 4 << 20];
        data[5000] = 1;
        data[(1 << 20)..(3 << 20)].fill(2);
        *data.last_mut().unwrap() = 3;
        let found: Vec<_> = runs(&data).map(|(offset, run)| (offset, run.len())).collect();
        let (block, end) = (1 << 20, (4 << 20) - 4096);
        assert_eq!(found, [(4096, 4096), (1 << 20, block), (2 << 20, block), (end as u64, 4096)]);
        assert_eq!(runs(&[0; 8192]).count(), 0);
    }
}
