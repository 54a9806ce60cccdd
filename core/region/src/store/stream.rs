//! The portable stream of a region, version 1, as `docs/format.md` draws it: a header, blocks of
//! pages that are not zero, an end. Every part has its own checksum; the end has one of the whole
//! data.
//!
//! It does no I/O but on the reader or writer that it is given, and believes no byte before its
//! checksum.

#![forbid(unsafe_code)]

use std::io::{self, Read, Write};

use xxhash_rust::xxh3::xxh3_64;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::stream::{STREAM_VERSION, StreamError};
use crate::media::format::{
    ADDRESS_UNIT_BYTES, LIMIT_BYTES_MAX, LIMIT_BYTES_MIN, LIMIT_UNIT_BYTES, WINDOW_END,
    WINDOW_START,
};
use crate::media::long_sum::LongSum;
use crate::media::sparse::PAGE_BYTES;

pub(crate) const MAGIC: [u8; 8] = *b"HOLDFSTX";
const HEADER_BYTES: usize = 256;
/// Longest block.
pub(crate) const BLOCK_BYTES_MAX: usize = 1 << 20;
const BLOCK_DATA: u32 = 1;
const BLOCK_END: u32 = 2;

/// The header as it lies in the stream. All integers are little endian.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawHeader {
    magic: [u8; 8],
    version: U32,
    header_bytes: U32,
    uuid: [u8; 16],
    address: U64,
    limit_bytes: U64,
    backed_bytes: U64,
    created_unix_s: U64,
    name_bytes: U16,
    name: [u8; 128],
    reserved: [u8; 54],
    checksum: U64,
}
const _: () = assert!(size_of::<RawHeader>() == HEADER_BYTES);
const _: () = assert!(std::mem::offset_of!(RawHeader, checksum) == HEADER_BYTES - 8);

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct RawBlock {
    kind: U32,
    len_bytes: U32,
    /// Of a block of data: where it belongs. Of the end: XXH3-64 of the whole data area.
    value: U64,
    /// XXH3-64 of the 16 bytes before, and of the payload.
    checksum: U64,
}
const BLOCK_HEADER_BYTES: usize = size_of::<RawBlock>();

/// What a stream says about its region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StreamHeader {
    /// Identity of the region that was exported.
    pub(crate) uuid: [u8; 16],
    pub(crate) address: u64,
    pub(crate) limit_bytes: u64,
    pub(crate) backed_bytes: u64,
    pub(crate) created_unix_s: u64,
    /// Its name there, for people.
    pub(crate) name: String,
}

/// The next part of a stream.
pub(crate) enum Part<'a> {
    Pages { offset: u64, bytes: &'a [u8] },
    End { data_checksum: u64 },
}

fn block_checksum(head: &[u8], payload: &[u8]) -> u64 {
    let mut sum = LongSum::new();
    sum.update(head);
    sum.update(payload);
    sum.digest()
}

/// Writes the header.
pub(crate) fn write_header(out: &mut dyn Write, header: &StreamHeader) -> io::Result<()> {
    let mut name = [0; 128];
    let name_bytes = header.name.len().min(name.len());
    name[..name_bytes].copy_from_slice(&header.name.as_bytes()[..name_bytes]);
    let raw = RawHeader {
        magic: MAGIC,
        version: STREAM_VERSION.into(),
        header_bytes: (HEADER_BYTES as u32).into(),
        uuid: header.uuid,
        address: header.address.into(),
        limit_bytes: header.limit_bytes.into(),
        backed_bytes: header.backed_bytes.into(),
        created_unix_s: header.created_unix_s.into(),
        name_bytes: (name_bytes as u16).into(),
        name,
        reserved: [0; 54],
        checksum: 0.into(),
    };
    let mut bytes: [u8; HEADER_BYTES] = zerocopy::transmute!(raw);
    let checksum = xxh3_64(&bytes[..HEADER_BYTES - 8]);
    bytes[HEADER_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
    out.write_all(&bytes)
}

/// The bytes before the payload of a block.
fn block_head(kind: u32, value: u64, payload: &[u8]) -> [u8; BLOCK_HEADER_BYTES] {
    let raw = RawBlock {
        kind: kind.into(),
        len_bytes: (payload.len() as u32).into(),
        value: value.into(),
        checksum: 0.into(),
    };
    let mut head: [u8; BLOCK_HEADER_BYTES] = zerocopy::transmute!(raw);
    let checksum = block_checksum(&head[..BLOCK_HEADER_BYTES - 8], payload);
    head[BLOCK_HEADER_BYTES - 8..].copy_from_slice(&checksum.to_le_bytes());
    head
}

/// Pages with their sum, ready to be written.
pub(crate) struct PagesBlock<'a> {
    head: [u8; BLOCK_HEADER_BYTES],
    offset: u64,
    pages: &'a [u8],
}

impl<'a> PagesBlock<'a> {
    /// Sums whole pages, at most [`BLOCK_BYTES_MAX`] bytes.
    pub(crate) fn new(offset: u64, pages: &'a [u8]) -> PagesBlock<'a> {
        PagesBlock { head: block_head(BLOCK_DATA, offset, pages), offset, pages }
    }

    /// Where in the data area they are.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    pub(crate) fn pages(&self) -> &'a [u8] {
        self.pages
    }

    pub(crate) fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.head)?;
        out.write_all(self.pages)
    }
}

/// Ends a stream.
pub(crate) fn write_end(out: &mut dyn Write, data_checksum: u64) -> io::Result<()> {
    out.write_all(&block_head(BLOCK_END, data_checksum, &[]))?;
    out.flush()
}

/// Reads a stream, part by part, each verified.
pub(crate) struct StreamReader<'a> {
    input: &'a mut dyn Read,
    offset: u64,
    /// Where the next pages may start.
    next: u64,
    backed_bytes: u64,
    payload: Vec<u8>,
}

impl<'a> StreamReader<'a> {
    /// Reads and checks the header.
    pub(crate) fn new(
        input: &'a mut dyn Read,
    ) -> Result<(StreamReader<'a>, StreamHeader), StreamError> {
        let mut reader =
            StreamReader { input, offset: 0, next: 0, backed_bytes: 0, payload: Vec::new() };
        let mut bytes = [0; HEADER_BYTES];
        let found = reader.read_up_to(&mut bytes)?;
        if found < MAGIC.len() || bytes[..MAGIC.len()] != MAGIC {
            return Err(StreamError::Foreign);
        }
        if found < HEADER_BYTES {
            return Err(StreamError::Truncated { offset: reader.offset });
        }
        let raw: &RawHeader = zerocopy::transmute_ref!(&bytes);
        if raw.version.get() > STREAM_VERSION {
            return Err(StreamError::Newer { version: raw.version.get() });
        }
        let damaged = |what| StreamError::Damaged { offset: 0, what };
        if raw.checksum.get() != xxh3_64(&bytes[..HEADER_BYTES - 8]) {
            return Err(damaged("the header's checksum does not match"));
        }
        let name = raw.name.get(..usize::from(raw.name_bytes.get()));
        let header = StreamHeader {
            uuid: raw.uuid,
            address: raw.address.get(),
            limit_bytes: raw.limit_bytes.get(),
            backed_bytes: raw.backed_bytes.get(),
            created_unix_s: raw.created_unix_s.get(),
            name: String::from_utf8_lossy(name.unwrap_or_default()).into_owned(),
        };
        let fits = raw.version.get() == STREAM_VERSION
            && raw.header_bytes.get() as usize == HEADER_BYTES
            && (LIMIT_BYTES_MIN..=LIMIT_BYTES_MAX).contains(&header.limit_bytes)
            && header.limit_bytes.is_multiple_of(LIMIT_UNIT_BYTES)
            && (1..=header.limit_bytes).contains(&header.backed_bytes)
            && header.backed_bytes.is_multiple_of(LIMIT_UNIT_BYTES)
            && (WINDOW_START..WINDOW_END).contains(&header.address)
            && header.address.is_multiple_of(ADDRESS_UNIT_BYTES)
            && header.limit_bytes <= WINDOW_END - header.address;
        if !fits {
            return Err(damaged("the header has impossible sizes"));
        }
        reader.backed_bytes = header.backed_bytes;
        Ok((reader, header))
    }

    /// The next part; after the end there is none, and nothing else may follow.
    pub(crate) fn part(&mut self) -> Result<Part<'_>, StreamError> {
        let start = self.offset;
        let damaged = |what| StreamError::Damaged { offset: start, what };
        let mut head = [0; BLOCK_HEADER_BYTES];
        self.read_whole(&mut head)?;
        let raw: &RawBlock = zerocopy::transmute_ref!(&head);
        let (kind, len_bytes) = (raw.kind.get(), raw.len_bytes.get() as usize);
        // Bounded before it is believed: a flipped length must not allocate what it likes.
        if len_bytes > BLOCK_BYTES_MAX {
            return Err(damaged("a block is longer than any"));
        }
        let mut payload = std::mem::take(&mut self.payload);
        let more = payload.try_reserve(len_bytes.saturating_sub(payload.len()));
        more.map_err(|_| StreamError::Unreadable { source: io::ErrorKind::OutOfMemory.into() })?;
        payload.resize(len_bytes, 0);
        self.read_whole(&mut payload)?;
        self.payload = payload;
        if raw.checksum.get() != block_checksum(&head[..BLOCK_HEADER_BYTES - 8], &self.payload) {
            return Err(damaged("a block's checksum does not match"));
        }
        let value = raw.value.get();
        match kind {
            BLOCK_DATA => {
                let end = value.checked_add(len_bytes as u64);
                let fits = value >= self.next
                    && value.is_multiple_of(PAGE_BYTES)
                    && len_bytes > 0
                    && (len_bytes as u64).is_multiple_of(PAGE_BYTES)
                    && end.is_some_and(|end| end <= self.backed_bytes);
                if !fits {
                    return Err(damaged("a block is out of place"));
                }
                self.next = end.unwrap_or(u64::MAX);
                Ok(Part::Pages { offset: value, bytes: &self.payload })
            }
            BLOCK_END if len_bytes == 0 => {
                if self.read_up_to(&mut [0])? > 0 {
                    return Err(StreamError::Damaged {
                        offset: self.offset,
                        what: "bytes follow its end",
                    });
                }
                Ok(Part::End { data_checksum: value })
            }
            _ => Err(damaged("a block is of no known kind")),
        }
    }

    fn read_whole(&mut self, buffer: &mut [u8]) -> Result<(), StreamError> {
        if self.read_up_to(buffer)? < buffer.len() {
            return Err(StreamError::Truncated { offset: self.offset });
        }
        Ok(())
    }

    fn read_up_to(&mut self, buffer: &mut [u8]) -> Result<usize, StreamError> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.input.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(StreamError::Unreadable { source }),
            }
        }
        self.offset += filled as u64;
        Ok(filled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_stream_never_change() {
        let header = StreamHeader {
            uuid: [3; 16],
            address: WINDOW_START,
            limit_bytes: 64 << 20,
            backed_bytes: 4 << 20,
            created_unix_s: 1_800_000_000,
            name: "words".to_owned(),
        };
        let mut stream = Vec::new();
        write_header(&mut stream, &header).unwrap();
        PagesBlock::new(8192, &[7; 4096]).write(&mut stream).unwrap();
        write_end(&mut stream, 5).unwrap();
        assert_eq!(stream.len(), 256 + 24 + 4096 + 24);
        assert_eq!(&stream[..16], b"HOLDFSTX\x01\0\0\0\0\x01\0\0");
        assert_eq!(xxh3_64(&stream), 10_618_932_619_632_738_995);
        let mut input = &stream[..];
        let (mut reader, read) = StreamReader::new(&mut input).unwrap();
        assert_eq!(read, header);
        assert!(
            matches!(reader.part(), Ok(Part::Pages { offset: 8192, bytes }) if bytes == [7; 4096])
        );
        assert!(matches!(reader.part(), Ok(Part::End { data_checksum: 5 })));
    }
}
