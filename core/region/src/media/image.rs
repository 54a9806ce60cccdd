//! An image or base file: opening it with every check, building a new one, changing its header.
//!
//! Invariants:
//! - Nothing is written to a file before all its checks have passed.
//! - A header change goes to the slot that is not in force, with the next sequence; a torn write
//!   leaves the slot in force as it was.
//! - A new file appears under its name only when it is complete (written under a temporary name,
//!   renamed).
//! - A header change of an image that outlives the boot is durable before anything that follows it.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use holdfast_sys::file::{effective_user, next_data, private_options, refused_link};

use crate::error::place::PlaceError;
use crate::error::{FileRemedy, RegionError, is_unseen};
use crate::media::format::{
    DATA_OFFSET, FORMAT_VERSION, FileState, Header, HeaderFault, LIMIT_UNIT_BYTES, MAGIC,
    PACKED_OFFSET, SLOT_BYTES, SLOTS_BYTES, choose,
};
use crate::media::packed::{pack, unpack};
use crate::media::rest::is_marked;
use crate::media::storage::Storage;
use crate::name::RegionName;

/// Holes of a new file that are allocated one by one.
const HOLES_MAX: usize = 64;

/// An open file whose header passed every check.
#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) header: Header,
    slot: usize,
    /// One slot is unusable: the one in force may be the older one.
    pub(crate) slot_damaged: bool,
    /// It outlives the boot, so its headers are synced.
    pub(crate) outlives_boot: bool,
    /// Parts of its data area are not allocated (see `media::rest`).
    pub(crate) is_at_rest: bool,
}

/// Why a file is no usable image or base.
#[derive(Debug)]
pub(crate) enum FileFault {
    Missing,
    Place(PlaceError),
    Io { step: &'static str, source: io::Error },
    Truncated { needed_bytes: u64, found_bytes: u64 },
    Foreign,
    Damaged,
    Newer { version: u32, flags: u32 },
    Renamed { name_in_header: String },
}

impl FileFault {
    /// Whether another file can stand in: the file's content is bad, not its place or its version.
    pub(crate) fn is_damage(&self) -> bool {
        matches!(self, FileFault::Truncated { .. } | FileFault::Foreign | FileFault::Damaged)
    }

    /// Whether nothing was seen of the file: see [`is_unseen`].
    pub(crate) fn is_unseen(&self) -> bool {
        matches!(self, FileFault::Io { step, source } if is_unseen(step, source))
    }

    pub(crate) fn into_error(self, path: &Path, remedy: FileRemedy) -> RegionError {
        let path = path.to_owned();
        match self {
            FileFault::Missing => {
                RegionError::Io { step: "open", path, source: io::ErrorKind::NotFound.into() }
            }
            FileFault::Place(error) => error.into(),
            FileFault::Io { step, source } => RegionError::Io { step, path, source },
            FileFault::Truncated { needed_bytes, found_bytes } => {
                RegionError::Truncated { path, needed_bytes, found_bytes, remedy }
            }
            FileFault::Foreign => RegionError::Foreign { path, remedy },
            FileFault::Damaged => RegionError::HeaderDamaged { path, remedy },
            FileFault::Newer { version, flags } => {
                RegionError::NewerFormat { path, found: version, flags, known: FORMAT_VERSION }
            }
            FileFault::Renamed { name_in_header } => RegionError::Renamed { path, name_in_header },
        }
    }
}

fn io_fault(step: &'static str) -> impl FnOnce(io::Error) -> FileFault {
    move |source| FileFault::Io { step, source }
}

impl Image {
    /// Opens a file and checks kind, owner, header, length and name. Reads at most the two header
    /// slots.
    pub(crate) fn open(
        path: PathBuf,
        name: &RegionName,
        writable: bool,
    ) -> Result<Image, FileFault> {
        let file = open_file(&path, writable)?;
        Image::of_file(file, path, name)
    }

    /// As [`Image::open`], of a file that is open already.
    pub(crate) fn of_file(
        file: File,
        path: PathBuf,
        name: &RegionName,
    ) -> Result<Image, FileFault> {
        let mut head = [0; SLOTS_BYTES + 8];
        let found_bytes = read_up_to(&file, &mut head).map_err(io_fault("read"))?;
        let Some(slots) = head.first_chunk::<SLOTS_BYTES>() else {
            return Err(FileFault::Damaged);
        };
        // The length is taken after the header: a file that grows meanwhile can only be longer than
        // it says.
        let found = file.metadata().map_err(io_fault("examine"))?;
        if !found.is_file() {
            return Err(FileFault::Place(PlaceError::WrongKind { path, expected: "regular file" }));
        }
        let us = effective_user();
        if found.uid() != us {
            return Err(FileFault::Place(PlaceError::NotOurs { path, owner: found.uid(), us }));
        }
        if found_bytes < SLOTS_BYTES {
            let start = &slots[..found_bytes.min(MAGIC.len())];
            return Err(if MAGIC.starts_with(start) {
                FileFault::Truncated { needed_bytes: SLOTS_BYTES as u64, found_bytes: found.len() }
            } else {
                FileFault::Foreign
            });
        }
        let chosen = choose(slots).map_err(|fault| match fault {
            HeaderFault::Foreign => FileFault::Foreign,
            HeaderFault::Damaged => FileFault::Damaged,
            HeaderFault::Newer { version, flags } => FileFault::Newer { version, flags },
        })?;
        let header = chosen.header;
        if header.packed_bytes > 0 && !may_be_packed(&path) {
            return Err(FileFault::Damaged);
        }
        if header.name != *name {
            return Err(FileFault::Renamed { name_in_header: header.name.to_string() });
        }
        if found.len() < header.file_bytes() {
            return Err(FileFault::Truncated {
                needed_bytes: header.file_bytes(),
                found_bytes: found.len(),
            });
        }
        let (slot, slot_damaged) = (chosen.slot, chosen.other_damaged);
        let is_at_rest = header.packed_bytes == 0 && is_marked(&head);
        Ok(Image { file, path, header, slot, slot_damaged, outlives_boot: false, is_at_rest })
    }

    /// Builds a new file: allocates the data area (or leaves it a hole, or packs it), lets `fill`
    /// write it and complete the header, writes both slots. The file then has its temporary name
    /// `path`; on failure it is removed.
    pub(crate) fn build(
        storage: &dyn Storage,
        path: PathBuf,
        mut header: Header,
        backing: Backing,
        fill: impl FnOnce(&File, &mut Header) -> Result<(), BuildError>,
    ) -> Result<Image, BuildError> {
        let step = |step| move |source| BuildError::Target { step, source };
        let file = match storage.create(&path) {
            // A process that had our number was killed while it built this.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                storage.remove(&path).map_err(step("remove"))?;
                storage.create(&path)
            }
            created => created,
        };
        let file = file.map_err(step("create"))?;
        let built = (|| {
            // What it is made from may be packed.
            header.packed_bytes = 0;
            let end = header.file_bytes();
            storage.set_len(&file, end).map_err(step("extend"))?;
            fill(&file, &mut header)?;
            match backing {
                Backing::Allocated => {
                    // What was written needs no allocation, which would clear the pages before they
                    // are written.
                    for hole in holes(&file, DATA_OFFSET..end).map_err(step("examine"))? {
                        storage.allocate(&file, hole).map_err(step("allocate"))?;
                    }
                }
                Backing::Holes => {}
                Backing::Packed => {
                    let packed = pack(&file, header.backed_bytes).map_err(step("read back"))?;
                    if let Some(packed) = packed {
                        // The disk has none of the pages yet, unless they are many.
                        storage.set_len(&file, PACKED_OFFSET).map_err(step("cut off"))?;
                        storage.write_at(&file, &packed, PACKED_OFFSET).map_err(step("write"))?;
                        header.packed_bytes = packed.len() as u64;
                    }
                }
            }
            // Both slots say the same, so that either may be lost.
            for slot in 0..2 {
                header.sequence = slot as u64 + 1;
                let offset = (slot * SLOT_BYTES) as u64;
                storage.write_at(&file, &header.encode(), offset).map_err(step("write"))?;
            }
            Ok(())
        })();
        match built {
            Ok(()) => Ok(Image { slot: 1, ..Image::unnamed(file, path, header) }),
            Err(error) => {
                // A temporary file that stays is removed by the next one who builds under this
                // name.
                let _ = storage.remove(&path);
                Err(error)
            }
        }
    }

    /// The same file, checked again and open for writing: bases are opened for reading only.
    pub(crate) fn reopened_for_writing(&self) -> Result<Image, RegionError> {
        let remedy = FileRemedy::RestoreFile { path: self.path.clone() };
        Image::open(self.path.clone(), &self.header.name, true)
            .map_err(|fault| fault.into_error(&self.path, remedy))
    }

    /// A file without a name of its own, known to hold what the header says.
    pub(crate) fn unnamed(file: File, path: PathBuf, header: Header) -> Image {
        let (slot_damaged, outlives_boot, is_at_rest) = (false, false, false);
        Image { file, path, header, slot: 0, slot_damaged, outlives_boot, is_at_rest }
    }

    /// Gives a built file its final name.
    pub(crate) fn rename(&mut self, storage: &dyn Storage, path: PathBuf) -> io::Result<()> {
        storage.rename(&self.path, &path)?;
        self.path = path;
        Ok(())
    }

    /// Writes a changed header to the slot that is not in force. On failure it is unknown which one
    /// is.
    pub(crate) fn change_header(
        &mut self,
        storage: &dyn Storage,
        change: impl FnOnce(&mut Header),
    ) -> io::Result<()> {
        let mut header = self.header.clone();
        change(&mut header);
        header.sequence += 1;
        if self.outlives_boot {
            let was_durable = self.header.ordered || self.header.state == FileState::Clean;
            let closes = header.state == FileState::Clean && self.header.state == FileState::Open;
            if closes || header.ordered && !was_durable {
                // After a reset the header is believed, so what it claims must be so.
                storage.sync_data(&self.file)?;
            }
            // What is closed needs no order, and programs that do not know of it can read it.
            header.ordered &= header.state == FileState::Open;
        }
        let slot = 1 - self.slot;
        storage.write_at(&self.file, &header.encode(), (slot * SLOT_BYTES) as u64)?;
        if self.outlives_boot {
            storage.sync_data(&self.file)?;
        }
        self.header = header;
        self.slot = slot;
        self.slot_damaged = false;
        Ok(())
    }

    /// Whether a reset may have left anything of it: its last writer, in an earlier boot, neither
    /// closed it nor ordered its stores.
    pub(crate) fn is_torn(&self, boot: [u8; 16]) -> bool {
        self.outlived(boot) && self.header.state == FileState::Open && !self.header.ordered
    }

    /// Whether it is of an earlier boot.
    pub(crate) fn outlived(&self, boot: [u8; 16]) -> bool {
        self.outlives_boot && self.header.boot != boot
    }

    /// A file that has the data from [`DATA_OFFSET`] on: this one or, where it is packed, one in
    /// memory. The bytes are not verified.
    ///
    /// # Errors
    /// What the kernel reports; of a packed file, as [`unpack`].
    pub(crate) fn data_file(&self) -> io::Result<File> {
        match self.header.packed_bytes {
            0 => self.file.try_clone(),
            packed_bytes => unpack(&self.file, packed_bytes, self.header.backed_bytes),
        }
    }

    /// What the file's length says about the backed bytes, for a file whose newest header may be
    /// lost: growth allocates first and says so in the header afterwards, so the length is never
    /// behind.
    pub(crate) fn backed_bytes_by_length(&self) -> io::Result<u64> {
        let data_bytes = self.file.metadata()?.len().saturating_sub(DATA_OFFSET);
        let whole_units = data_bytes / LIMIT_UNIT_BYTES * LIMIT_UNIT_BYTES;
        Ok(whole_units.min(self.header.limit_bytes).max(self.header.backed_bytes))
    }
}

/// How the data area of a new file is made.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Backing {
    /// Allocated, so that no store to it can fail.
    Allocated,
    /// A hole, of which only what is written takes room.
    Holes,
    /// The same or, where that takes less room, no data area: what is not zero is packed.
    Packed,
}

/// Why a file could not be built.
#[derive(Debug)]
pub(crate) enum BuildError {
    /// The new file could not be made.
    Target { step: &'static str, source: io::Error },
    /// What it is made from could not be read.
    Source(RegionError),
}

impl BuildError {
    /// A write to the new file failed.
    pub(crate) fn write(source: io::Error) -> BuildError {
        BuildError::Target { step: "write", source }
    }
}

/// Only base files and snapshots: whatever is mapped, or changed in place, has a data area.
fn may_be_packed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "base")
}

/// Opens a file of a region; nothing in it is looked at.
pub(crate) fn open_file(path: &Path, writable: bool) -> Result<File, FileFault> {
    let opened = private_options().read(true).write(writable).open(path);
    opened.map_err(|error| open_fault(error, path.to_owned()))
}

pub(crate) fn open_fault(error: io::Error, path: PathBuf) -> FileFault {
    match error.kind() {
        io::ErrorKind::NotFound => FileFault::Missing,
        _ if refused_link(&error) => FileFault::Place(PlaceError::SymbolicLink { path }),
        io::ErrorKind::IsADirectory => {
            FileFault::Place(PlaceError::WrongKind { path, expected: "regular file" })
        }
        _ => FileFault::Io { step: "open", source: error },
    }
}

/// The parts of a range that have no room yet; the whole range when these are many, as that is one
/// step.
fn holes(file: &File, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let (mut holes, mut position) = (Vec::new(), range.start);
    while position < range.end {
        let data = next_data(file, position)?.unwrap_or(range.end..range.end);
        if data.start > position {
            holes.push(position..data.start.min(range.end));
        }
        if holes.len() > HOLES_MAX {
            return Ok(std::iter::once(range).collect());
        }
        position = data.end;
    }
    Ok(holes)
}

fn read_up_to(file: &File, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match file.read_at(&mut buffer[filled..], filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
