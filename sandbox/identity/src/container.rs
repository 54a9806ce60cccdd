//! Where a signature is in a file: at the end of a WebAssembly module as a custom section, behind
//! the end of an ELF program as a trailer.
//!
//! Invariants:
//! - The signature is the last thing in the file, so what it covers is a prefix. Its section has
//!   one form, byte for byte.
//! - A file that holds a part of a signature, or one elsewhere, or several, is refused: only a file
//!   without a trace of one is unsigned.
//! - What a file claims about itself allocates nothing: it is read through a window of fixed size,
//!   and each table entry once.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::block::{
    BLOCK_BYTES_MAX, Block, BlockFault, END_BYTES, END_MARK, HEAD_MARK, VERSION, claimed_bytes,
    has_end_mark,
};

/// Name of the custom section.
const SECTION: &[u8] = b"holdfast.signature";
/// Bytes read at once.
const WINDOW_BYTES: usize = 64 << 10;
/// Magic of a WebAssembly module or component.
const WASM_MAGIC: &[u8] = b"\0asm";
const WASM_HEAD_BYTES: u64 = 8;
/// Magic of an ELF file, and its class and byte order: 64 bits, little endian.
const ELF_MAGIC: &[u8] = b"\x7fELF";
const ELF_SUPPORTED: &[u8] = b"\x7fELF\x02\x01";
const ELF_HEAD_BYTES: u64 = 64;
const PROGRAM_HEADER_BYTES: u64 = 56;
const SECTION_HEADER_BYTES: u64 = 64;
/// A section of this type takes no room in the file.
const SHT_NOBITS: u32 = 8;
/// More tables' entries than a program has; bounds what a damaged file can make us read.
const SECTIONS_MAX: u64 = 1 << 20;

/// Why the signature of a file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SignatureFault {
    /// A part of it is missing or has a value that no signature has.
    #[error("the signature is damaged ({what}); get the file again, or have it signed again")]
    Damaged {
        /// What is wrong.
        what: &'static str,
    },
    /// Something comes after it.
    #[error(
        "the signature is not at the end of the file, so a tool added to the file after it was signed; have it \
         signed again"
    )]
    NotLast,
    /// There are several.
    #[error("the file has more than one signature; have it signed again")]
    Several,
    /// It has a newer format.
    #[error(
        "the signature has format version {found}, this program knows {known}; use a newer Holdfast"
    )]
    Newer {
        /// Version in the file.
        found: u16,
        /// Newest version known here.
        known: u16,
    },
    /// It was not made for this content by this key.
    #[error(
        "the signature, which names application `{application}` of publisher `{publisher}`, was not made for \
         this content; the file was changed after it was signed, or the signature is forged: get it again"
    )]
    Forged {
        /// The publisher that the signature names.
        publisher: String,
        /// The application that the signature names.
        application: String,
    },
}

impl From<BlockFault> for SignatureFault {
    fn from(fault: BlockFault) -> SignatureFault {
        match fault {
            BlockFault::Damaged(what) => SignatureFault::Damaged { what },
            BlockFault::Newer(found) => SignatureFault::Newer { found, known: VERSION },
        }
    }
}

fn damaged(what: &'static str) -> LocateError {
    SignatureFault::Damaged { what }.into()
}

/// Why no signature was found or excluded.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocateError {
    #[error(transparent)]
    Fault(#[from] SignatureFault),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Bytes that can be read anywhere.
pub(crate) trait Source {
    /// Reads some bytes at an offset; none at the end.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
}

impl Source for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }
}

impl Source for [u8] {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let count = buffer.len().min(self.len() - start);
        buffer[..count].copy_from_slice(&self[start..start + count]);
        Ok(count)
    }
}

/// Reads a source in pieces, of which it keeps one.
struct Window<'a, S: ?Sized> {
    source: &'a S,
    len_bytes: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a, S: Source + ?Sized> Window<'a, S> {
    fn new(source: &'a S, len_bytes: u64) -> Window<'a, S> {
        Window { source, len_bytes, start: 0, bytes: Vec::new() }
    }

    /// Up to `count` bytes at an offset, fewer at the end. `count` is at most the window's size.
    fn get(&mut self, offset: u64, count: usize) -> io::Result<&[u8]> {
        let left = self.len_bytes.saturating_sub(offset);
        let count = count.min(usize::try_from(left).unwrap_or(usize::MAX));
        let is_here =
            offset >= self.start && offset + count as u64 <= self.start + self.bytes.len() as u64;
        if !is_here {
            let wanted = (WINDOW_BYTES as u64).min(left) as usize;
            self.bytes.resize(wanted, 0);
            self.start = offset;
            let mut filled = 0;
            while filled < wanted {
                let more = self.source.read_at(&mut self.bytes[filled..], offset + filled as u64);
                match more {
                    Ok(0) => {
                        self.bytes.clear();
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    Ok(more) => filled += more,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.bytes.clear();
                        return Err(error);
                    }
                }
            }
        }
        let start = (offset - self.start) as usize;
        Ok(&self.bytes[start..start + count])
    }

    fn array<const N: usize>(&mut self, offset: u64) -> io::Result<Option<[u8; N]>> {
        Ok(self.get(offset, N)?.first_chunk().copied())
    }
}

/// What kind of program a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Wasm,
    Elf,
    /// No file that can carry a signature.
    Other,
}

fn format_of<S: Source + ?Sized>(window: &mut Window<'_, S>) -> io::Result<Format> {
    let head = window.get(0, ELF_HEAD_BYTES as usize)?;
    Ok(if head.len() >= WASM_HEAD_BYTES as usize && head.starts_with(WASM_MAGIC) {
        Format::Wasm
    } else if head.len() == ELF_HEAD_BYTES as usize && head.starts_with(ELF_SUPPORTED) {
        Format::Elf
    } else {
        Format::Other
    })
}

/// A block, and where the file's own bytes end.
#[derive(Debug)]
pub(crate) struct Located {
    pub(crate) block: Block,
    pub(crate) content_bytes: u64,
    /// What follows them, as it was read for the block.
    pub(crate) tail: Vec<u8>,
}

/// Finds the signature of a file of this length; `None` when there is not a trace of one. It is
/// not verified.
pub(crate) fn locate<S: Source + ?Sized>(
    source: &S,
    len_bytes: u64,
) -> Result<Option<Located>, LocateError> {
    let mut window = Window::new(source, len_bytes);
    let format = format_of(&mut window)?;
    let tail_start = len_bytes.saturating_sub(BLOCK_BYTES_MAX as u64);
    let tail = window.get(tail_start, BLOCK_BYTES_MAX)?.to_vec();
    match format {
        Format::Wasm => in_module(&mut window, &tail),
        Format::Elf => in_program(&mut window, &tail),
        Format::Other if has_end_mark(&tail) => {
            Err(damaged("it is at the end of a file that is no WebAssembly module or ELF program"))
        }
        Format::Other => Ok(None),
    }
}

/// The block at the end of a tail that has the end mark.
fn block_at_end(tail: &[u8]) -> Result<&[u8], LocateError> {
    let end = &tail[tail.len().saturating_sub(END_BYTES)..];
    let claimed = claimed_bytes(end).filter(|claimed| *claimed <= tail.len());
    let len = claimed.ok_or_else(|| damaged("the length at its end is wrong"))?;
    Ok(&tail[tail.len() - len..])
}

fn in_module<S: Source + ?Sized>(
    window: &mut Window<'_, S>,
    tail: &[u8],
) -> Result<Option<Located>, LocateError> {
    let len_bytes = window.len_bytes;
    let found = signature_sections(window)?;
    if found.count > 1 {
        return Err(SignatureFault::Several.into());
    }
    let section = match found.last {
        Some(section) if section.end < len_bytes => return Err(SignatureFault::NotLast.into()),
        Some(section) if has_end_mark(tail) => section,
        Some(_) => return Err(damaged("its last mark is missing")),
        None if found.is_cut_off => return Err(damaged("its section is cut off")),
        None if has_end_mark(tail) => return Err(damaged("its section is not whole")),
        None => return Ok(None),
    };
    let block = Block::decode(block_at_end(tail)?).map_err(SignatureFault::from)?;
    let canonical = section_of(&block);
    let section_bytes = section.end - section.start;
    if section_bytes != canonical.len() as u64
        || window.get(section.start, canonical.len())? != canonical.as_slice()
    {
        return Err(damaged("its section has another form"));
    }
    Ok(Some(Located { block, content_bytes: section.start, tail: canonical }))
}

/// The custom section that holds a block.
pub(crate) fn section_of(block: &Block) -> Vec<u8> {
    let block = block.encode();
    let mut size = 1 + SECTION.len() + block.len();
    let mut section = vec![0];
    while size >= 0x80 {
        section.push(size as u8 | 0x80);
        size >>= 7;
    }
    section.extend([size as u8, SECTION.len() as u8]);
    section.extend(SECTION);
    section.extend(block);
    section
}

/// The sections of a module that have the signature's name.
#[derive(Debug, Default)]
struct SignatureSections {
    count: usize,
    last: Option<Range<u64>>,
    /// The file ends in the middle of one.
    is_cut_off: bool,
}

fn signature_sections<S: Source + ?Sized>(
    window: &mut Window<'_, S>,
) -> io::Result<SignatureSections> {
    let mut found = SignatureSections::default();
    let cut_off = each_section(window, |section, name| {
        if name == SECTION {
            found.count += 1;
            found.last = Some(section);
        }
    })?;
    found.is_cut_off = cut_off.is_some_and(|name| !name.is_empty() && SECTION.starts_with(&name));
    Ok(found)
}

/// Calls with each whole section, and the name of a custom one. Returns what there is of the name
/// of a custom section that the file cuts off.
fn each_section<S: Source + ?Sized>(
    window: &mut Window<'_, S>,
    mut call: impl FnMut(Range<u64>, &[u8]),
) -> io::Result<Option<Vec<u8>>> {
    let len_bytes = window.len_bytes;
    let mut start = WASM_HEAD_BYTES;
    while start < len_bytes {
        // Id, size of up to 5 bytes, and of a custom section the name's length and name.
        let head = window.get(start, 11 + SECTION.len())?;
        let id = head[0];
        let Some((size, size_bytes)) = leb_u32(&head[1..]) else { break };
        let body = &head[1 + size_bytes..];
        let end = start + 1 + size_bytes as u64 + u64::from(size);
        let in_section = &body[..body.len().min(size as usize)];
        let name = match leb_u32(in_section) {
            Some((len, len_bytes)) if id == 0 => {
                let name = &in_section[len_bytes..];
                // Of a longer name the whole is not needed: it is another one.
                let is_long = len as usize > SECTION.len();
                if is_long { &[][..] } else { &name[..name.len().min(len as usize)] }
            }
            _ => &[],
        };
        if end > len_bytes {
            return Ok((id == 0).then(|| name.to_vec()));
        }
        call(start..end, name);
        start = end;
    }
    Ok(None)
}

/// An unsigned number of up to 32 bits, and how many bytes it has.
fn leb_u32(bytes: &[u8]) -> Option<(u32, usize)> {
    let mut value = 0u64;
    for (index, byte) in bytes.iter().take(5).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            return Some((u32::try_from(value).ok()?, index + 1));
        }
    }
    None
}

fn in_program<S: Source + ?Sized>(
    window: &mut Window<'_, S>,
    tail: &[u8],
) -> Result<Option<Located>, LocateError> {
    let len_bytes = window.len_bytes;
    let program_end = program_end(window)?;
    let behind = window.get(program_end, HEAD_MARK.len())?;
    // A cut may have left less than the mark.
    let starts_there = !behind.is_empty() && HEAD_MARK.starts_with(behind);
    if !has_end_mark(tail) {
        // Also behind what a tool added to the program before it was signed, or after.
        return match starts_there || find_mark(window, program_end..len_bytes)?.is_some() {
            true => Err(damaged("it is not whole, or not at the end of the file")),
            false => Ok(None),
        };
    }
    let bytes = block_at_end(tail)?;
    let content_bytes = len_bytes - bytes.len() as u64;
    let before = content_bytes.saturating_sub(END_BYTES as u64);
    let before = window.get(before, (content_bytes - before) as usize)?;
    if has_end_mark(before)
        || (starts_there && content_bytes != program_end)
        || find_mark(window, program_end..content_bytes)?.is_some()
    {
        return Err(SignatureFault::Several.into());
    }
    let block = Block::decode(bytes).map_err(SignatureFault::from)?;
    Ok(Some(Located { block, content_bytes, tail: bytes.to_vec() }))
}

/// The first mark of a signature, of its start or its end, that lies within a part of the file.
fn find_mark<S: Source + ?Sized>(
    window: &mut Window<'_, S>,
    part: Range<u64>,
) -> io::Result<Option<u64>> {
    let mark_bytes = HEAD_MARK.len();
    let mut start = part.start;
    while start + mark_bytes as u64 <= part.end {
        let count = (part.end - start).min(WINDOW_BYTES as u64) as usize;
        let bytes = window.get(start, count)?;
        let is_mark = |bytes: &[u8]| bytes == HEAD_MARK || bytes == END_MARK;
        if let Some(at) = bytes.windows(mark_bytes).position(is_mark) {
            return Ok(Some(start + at as u64));
        }
        // One may lie across two pieces.
        start += (count - (mark_bytes - 1)) as u64;
    }
    Ok(None)
}

/// Where the last thing ends that an ELF file's tables name and that is in the file.
fn program_end<S: Source + ?Sized>(window: &mut Window<'_, S>) -> io::Result<u64> {
    let len_bytes = window.len_bytes;
    let Some(head) = window.array::<{ ELF_HEAD_BYTES as usize }>(0)? else { return Ok(len_bytes) };
    let u64_at = |bytes: &[u8], at: usize| {
        bytes[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let u16_at = |at: usize| u64::from(u16::from_le_bytes([head[at], head[at + 1]]));
    let (programs_start, sections_start) = (u64_at(&head, 32), u64_at(&head, 40));
    let (programs, mut sections) = (u16_at(56), u16_at(60));
    let mut end = ELF_HEAD_BYTES;
    let mut reach = |start: u64, bytes: u64| match start.checked_add(bytes) {
        Some(reached) if reached <= len_bytes => end = end.max(reached),
        _ => {}
    };
    reach(programs_start, programs * PROGRAM_HEADER_BYTES);
    for index in 0..programs {
        let at = programs_start.saturating_add(index * PROGRAM_HEADER_BYTES);
        let Some(entry) = window.array::<{ PROGRAM_HEADER_BYTES as usize }>(at)? else { break };
        reach(u64_at(&entry, 8), u64_at(&entry, 32));
    }
    if sections == 0 && sections_start != 0 {
        // Then the first entry's size is their number.
        let first = window.array::<{ SECTION_HEADER_BYTES as usize }>(sections_start)?;
        sections = first.map_or(0, |entry| u64_at(&entry, 32)).min(SECTIONS_MAX);
    }
    reach(sections_start, sections * SECTION_HEADER_BYTES);
    for index in 0..sections {
        let at = sections_start.saturating_add(index * SECTION_HEADER_BYTES);
        let Some(entry) = window.array::<{ SECTION_HEADER_BYTES as usize }>(at)? else { break };
        let kind = u32::from_le_bytes([entry[4], entry[5], entry[6], entry[7]]);
        // The first entry's fields count others.
        if kind != SHT_NOBITS && index > 0 {
            reach(u64_at(&entry, 24), u64_at(&entry, 32));
        }
    }
    Ok(end)
}

/// The parts of a file that are its own, without any signature, whole or not; for a new signature
/// to follow them. None for a file that cannot carry one.
pub(crate) fn own_parts<S: Source + ?Sized>(
    source: &S,
    len_bytes: u64,
) -> io::Result<(Format, Vec<Range<u64>>)> {
    let mut window = Window::new(source, len_bytes);
    let format = format_of(&mut window)?;
    let mut parts = Vec::new();
    match format {
        Format::Wasm => {
            let mut start = 0;
            let mut end = WASM_HEAD_BYTES;
            let cut_off = each_section(&mut window, |section, name| {
                end = section.end;
                if name == SECTION {
                    parts.push(start..section.start);
                    start = section.end;
                }
            })?;
            if cut_off.is_some() || end != len_bytes {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the module is cut off"));
            }
            parts.push(start..len_bytes);
        }
        Format::Elf => {
            let mut end = len_bytes;
            loop {
                let start = end.saturating_sub(BLOCK_BYTES_MAX as u64);
                let tail = window.get(start, (end - start) as usize)?;
                let block = has_end_mark(tail).then(|| block_at_end(tail));
                let Some(Ok(block)) = block else { break };
                if !block.starts_with(&HEAD_MARK) {
                    break;
                }
                end -= block.len() as u64;
            }
            // What is left of a damaged one, and what a tool added behind it.
            let program_end = program_end(&mut window)?;
            if let Some(at) = find_mark(&mut window, program_end.min(end)..end)? {
                if window.get(at, HEAD_MARK.len())? != HEAD_MARK {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "a signature without a beginning is in it",
                    ));
                }
                end = at;
            }
            let behind = window.get(program_end, HEAD_MARK.len())?;
            if !behind.is_empty() && HEAD_MARK.starts_with(behind) {
                end = end.min(program_end);
            }
            parts.push(0..end);
        }
        Format::Other => {}
    }
    parts.retain(|part| !part.is_empty());
    Ok((format, parts))
}

/// Whether a file that cannot carry a signature is an ELF program of another machine.
pub(crate) fn is_other_elf(head: &[u8]) -> bool {
    head.starts_with(ELF_MAGIC)
}
