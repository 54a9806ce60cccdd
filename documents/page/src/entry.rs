//! An entry of the cache: a page as it looks in one viewport, in one object of the heap, without
//! pointers.
//!
//! Invariants:
//! - No byte is believed: the header has a sum, and every 16 KiB behind it have one, which is
//!   compared before a byte of them is used, once for each opening. Sums tell of damage, not of who
//!   wrote; so each number is looked at as well when it is followed.
//! - [`Entry::parts`] of a table and of a text that lies outside is an error, not nothing.

use std::cell::Cell;

use xxhash_rust::xxh3::xxh3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::EntryDamage;

/// The version of the format.
pub(crate) const FORMAT_VERSION: u32 = 6;
const MAGIC: [u8; 8] = *b"HFPAGE\r\n";
/// Bytes that have a sum of their own.
pub(crate) const CHUNK_BYTES: usize = 16 << 10;

/// Parts stay where they are when the page is scrolled.
pub(crate) const SCROLL_BOUND: u32 = 1;
/// There is no display list.
pub(crate) const NO_PICTURE: u32 = 2;
/// There was one, for which there was no room any more.
pub(crate) const PICTURE_EVICTED: u32 = 4;
/// The list does not have all that was painted, and so does not name all fonts: the files of all
/// fonts count.
pub(crate) const ALL_FONTS: u32 = 8;

/// Where a part of the entry is.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Section {
    pub(crate) at: U64,
    pub(crate) bytes: U64,
}

/// The parts of an entry, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryPart {
    /// Address, title, what the page was made from; fonts and images of the list.
    PageDescription,
    Commands,
    Starts,
    Items,
    Tall,
    Strips,
    Payload,
    /// Pixels of images.
    Images,
    /// Fonts that are no files.
    Fonts,
    Links,
    Boxes,
    /// What is written where.
    Text,
    /// Pixels of a viewport, and where that is.
    Pixels,
}

/// How many parts there are.
pub(crate) const PARTS: usize = 13;

/// The beginning of an entry.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Header {
    pub(crate) magic: [u8; 8],
    pub(crate) version: U32,
    pub(crate) flags: U32,
    /// Of the whole entry.
    pub(crate) bytes: U64,
    /// Of the page's bytes.
    pub(crate) source: [u8; 16],
    /// Of the engine's build.
    pub(crate) engine: [u8; 16],
    /// Of the folders of fonts.
    pub(crate) fonts: U64,
    pub(crate) viewport: [U32; 2],
    pub(crate) scale_permille: U32,
    /// Lines of the display list.
    pub(crate) height: U32,
    /// Width and height of the page.
    pub(crate) content: [U32; 2],
    pub(crate) parts: [Section; PARTS],
    /// The sums of the chunks of what lies between the header and this.
    pub(crate) sums: Section,
    /// The sum of the sums.
    pub(crate) sums_sum: U64,
    /// Of all above.
    pub(crate) sum: U64,
    /// When it was used last, in seconds since 1970: no part of the sum, since it is stored alone.
    pub(crate) used_s: U64,
}

pub(crate) const HEADER_BYTES: usize = size_of::<Header>();
/// Where the header keeps when it was used.
pub(crate) const USED_AT: u64 = (HEADER_BYTES - size_of::<u64>()) as u64;
const _: () = assert!(HEADER_BYTES == 336);
const SUMMED_BYTES: usize = HEADER_BYTES - 2 * size_of::<u64>();

impl Header {
    pub(crate) fn new() -> Header {
        Header { magic: MAGIC, version: FORMAT_VERSION.into(), ..Header::new_zeroed() }
    }

    /// Whether there is anything to be painted, or pixels.
    pub(crate) fn has_picture(&self) -> bool {
        self.flags.get() & (NO_PICTURE | PICTURE_EVICTED) == 0 || self.pixels_bytes() > 0
    }

    /// Bytes of what is painted, and of pixels.
    pub(crate) fn picture_bytes(&self) -> u64 {
        self.bytes_of(EntryPart::Commands as usize..=EntryPart::Fonts as usize)
            .saturating_add(self.pixels_bytes())
    }

    /// Bytes of the pixels of a viewport.
    pub(crate) fn pixels_bytes(&self) -> u64 {
        self.parts[EntryPart::Pixels as usize].bytes.get()
    }

    /// Bytes of what is where.
    pub(crate) fn layout_bytes(&self) -> u64 {
        self.bytes_of(EntryPart::Links as usize..=EntryPart::Text as usize)
    }

    fn bytes_of(&self, parts: std::ops::RangeInclusive<usize>) -> u64 {
        self.parts[parts].iter().fold(0, |all, part| all.saturating_add(part.bytes.get()))
    }

    fn computed_sum(&self) -> u64 {
        xxh3_64(&self.as_bytes()[..SUMMED_BYTES])
    }

    /// Reads the beginning of an entry.
    pub(crate) fn read(bytes: &[u8]) -> Result<Header, EntryDamage> {
        let (header, _) = Header::read_from_prefix(bytes).map_err(|_| EntryDamage::NoHeader)?;
        if header.magic != MAGIC {
            return Err(EntryDamage::NoHeader);
        }
        if header.version.get() != FORMAT_VERSION {
            return Err(EntryDamage::Version { version: header.version.get() });
        }
        if header.sum.get() != header.computed_sum() {
            return Err(EntryDamage::HeaderSum);
        }
        if header.bytes.get() != bytes.len() as u64 {
            return Err(EntryDamage::Outside { what: "end" });
        }
        Ok(header)
    }
}

/// The build that draws.
pub(crate) fn engine_build() -> [u8; 16] {
    let mut build = [0; 16];
    build.copy_from_slice(env!("HOLDFAST_PAGE_BUILD").as_bytes());
    build
}

/// Puts an entry together.
pub(crate) fn assemble(mut header: Header, parts: [&[u8]; PARTS]) -> Vec<u8> {
    let mut bytes = vec![0; HEADER_BYTES];
    for (place, part) in header.parts.iter_mut().zip(parts) {
        *place = Section { at: (bytes.len() as u64).into(), bytes: (part.len() as u64).into() };
        bytes.extend_from_slice(part);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
    }
    let sums: Vec<U64> =
        bytes[HEADER_BYTES..].chunks(CHUNK_BYTES).map(|chunk| U64::new(xxh3_64(chunk))).collect();
    header.sums =
        Section { at: (bytes.len() as u64).into(), bytes: (size_of_val(&*sums) as u64).into() };
    header.sums_sum = xxh3_64(sums.as_bytes()).into();
    bytes.extend_from_slice(sums.as_bytes());
    header.bytes = (bytes.len() as u64).into();
    header.sum = header.computed_sum().into();
    bytes[..HEADER_BYTES].copy_from_slice(header.as_bytes());
    bytes
}

/// An entry where it lies.
pub(crate) struct Entry<'heap> {
    pub(crate) header: Header,
    bytes: &'heap [u8],
    sums: &'heap [U64],
    /// For each chunk, whether its sum was compared.
    compared: Vec<Cell<bool>>,
}

impl<'heap> Entry<'heap> {
    /// Opens an entry in its bytes. Costs the same whatever its size, but for a bit for each 16
    /// KiB.
    pub(crate) fn open(bytes: &'heap [u8]) -> Result<Entry<'heap>, EntryDamage> {
        let header = Header::read(bytes)?;
        let outside = EntryDamage::Outside { what: "table of sums" };
        let table = slice(bytes, header.sums).ok_or(outside)?;
        let body = (header.sums.at.get() as usize).checked_sub(HEADER_BYTES).ok_or(outside)?;
        let sums = <[U64]>::ref_from_bytes(table).map_err(|_| outside)?;
        if sums.len() != body.div_ceil(CHUNK_BYTES) {
            return Err(outside);
        }
        if xxh3_64(table) != header.sums_sum.get() {
            return Err(EntryDamage::HeaderSum);
        }
        Ok(Entry { header, bytes, sums, compared: vec![Cell::new(false); sums.len()] })
    }

    /// A whole part.
    pub(crate) fn part(&self, part: EntryPart) -> Result<&'heap [u8], EntryDamage> {
        let section = self.header.parts[part as usize];
        self.checked(section.at.get(), section.bytes.get(), name(part))
    }

    /// A piece of a part.
    pub(crate) fn piece(
        &self,
        part: EntryPart,
        at: u64,
        bytes: u64,
    ) -> Result<&'heap [u8], EntryDamage> {
        let section = self.header.parts[part as usize];
        let outside = EntryDamage::Outside { what: name(part) };
        let end = at.checked_add(bytes).filter(|end| *end <= section.bytes.get()).ok_or(outside)?;
        let start = section.at.get().checked_add(end - bytes).ok_or(outside)?;
        self.checked(start, bytes, name(part))
    }

    /// A part that is a table.
    pub(crate) fn table<T: FromBytes + Immutable + KnownLayout + Unaligned>(
        &self,
        part: EntryPart,
    ) -> Result<&'heap [T], EntryDamage> {
        <[T]>::ref_from_bytes(self.part(part)?)
            .map_err(|_| EntryDamage::Outside { what: name(part) })
    }

    /// Compares every sum.
    pub(crate) fn check(&self) -> Result<(), EntryDamage> {
        let end = self.header.sums.at.get();
        self.checked(HEADER_BYTES as u64, end - HEADER_BYTES as u64, "body").map(|_| ())
    }

    /// Bytes whose sums are right.
    fn checked(&self, at: u64, bytes: u64, what: &'static str) -> Result<&'heap [u8], EntryDamage> {
        let outside = EntryDamage::Outside { what };
        let body_end = self.header.sums.at.get();
        let end = at.checked_add(bytes).filter(|end| *end <= body_end).ok_or(outside)?;
        if at < HEADER_BYTES as u64 {
            return Err(outside);
        }
        let (start, end) = (at as usize, end as usize);
        let found = self.bytes.get(start..end).ok_or(outside)?;
        if found.is_empty() {
            return Ok(found);
        }
        let body = &self.bytes[HEADER_BYTES..body_end as usize];
        for chunk in (start - HEADER_BYTES) / CHUNK_BYTES..=(end - 1 - HEADER_BYTES) / CHUNK_BYTES {
            if self.compared[chunk].get() {
                continue;
            }
            let rest = &body[chunk * CHUNK_BYTES..];
            if xxh3_64(&rest[..rest.len().min(CHUNK_BYTES)]) != self.sums[chunk].get() {
                return Err(EntryDamage::Sum { chunk: chunk as u32 });
            }
            self.compared[chunk].set(true);
        }
        Ok(found)
    }
}

fn slice(bytes: &[u8], section: Section) -> Option<&[u8]> {
    let start = usize::try_from(section.at.get()).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(section.bytes.get()).ok()?)?)
}

fn name(part: EntryPart) -> &'static str {
    match part {
        EntryPart::PageDescription => "description",
        EntryPart::Commands => "table of commands",
        EntryPart::Starts | EntryPart::Items | EntryPart::Tall | EntryPart::Strips => {
            "table of bands"
        }
        EntryPart::Payload => "command",
        EntryPart::Images => "image",
        EntryPart::Fonts => "font",
        EntryPart::Links => "links",
        EntryPart::Boxes => "boxes",
        EntryPart::Text => "text",
        EntryPart::Pixels => "pixels",
    }
}
