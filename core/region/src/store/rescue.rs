//! A rescue copy in the store: a base file with a note behind its header slots.

#![forbid(unsafe_code)]

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_sys::process::boot_id;
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::{FileRemedy, RegionError};
use crate::media::files::rescue_path;
use crate::media::format::SLOTS_BYTES;
use crate::media::image::{FileFault, Image};
use crate::name::RegionName;
use crate::store::stored::{Position, Stored, position};

const MAGIC: [u8; 8] = *b"HFRESCUE";
const VERSION: u32 = 1;
/// Where the note is: in the part of the file that base files leave empty.
pub(crate) const NOTE_OFFSET: u64 = SLOTS_BYTES as u64;
/// What tells a rescue copy from a base file, and where it comes from.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct Note {
    magic: [u8; 8],
    version: U32,
    /// 1 if the journal's end was marked when the copy was made: the header's sequence is the mark's.
    marked: U32,
    boot: [u8; 16],
    taken_unix_s: U64,
    /// XXH3-64 of all before.
    checksum: U64,
}

const _: () = assert!(size_of::<Note>() == 48);

impl Note {
    pub(crate) fn new(is_marked: bool) -> Note {
        let mut note = Note {
            magic: MAGIC,
            version: VERSION.into(),
            marked: u32::from(is_marked).into(),
            // For people; that it cannot be read is no reason to have no copy.
            boot: boot_id().ok().and_then(|text| parse_boot(&text)).unwrap_or_default(),
            taken_unix_s: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .map_or(0, |since| since.as_secs())
                .into(),
            checksum: U64::ZERO,
        };
        note.checksum = note.sum().into();
        note
    }

    fn sum(&self) -> u64 {
        xxh3_64(&self.as_bytes()[..size_of::<Note>() - size_of::<U64>()])
    }
}

fn parse_boot(text: &[u8]) -> Option<[u8; 16]> {
    let text = std::str::from_utf8(text).ok()?;
    uuid::Uuid::parse_str(text.trim()).ok().map(uuid::Uuid::into_bytes)
}

/// Opens a rescue copy; header and note are checked, the data not yet.
pub(crate) fn open_rescue(store: &Path, name: &RegionName) -> Result<Image, FileFault> {
    let image = Image::open(rescue_path(store, name), name, false)?;
    let note = read_note(&image).map_err(|source| FileFault::Io { step: "read", source })?;
    if note.magic != MAGIC || note.checksum.get() != note.sum() {
        return Err(FileFault::Damaged);
    }
    match note.version.get() {
        VERSION => Ok(image),
        version => Err(FileFault::Newer { version, flags: 0 }),
    }
}

/// Refuses a copy that a newer program wrote, as what is in it may be newer than the store, and one
/// that could not be looked at, which may be such a one.
pub(crate) fn refuse_newer_rescue(store: &Path, name: &RegionName) -> Result<(), RegionError> {
    match open_rescue(store, name) {
        Err(fault) if fault.is_unseen() || matches!(fault, FileFault::Newer { .. }) => {
            let path = rescue_path(store, name);
            let remedy = FileRemedy::RestoreFile { path: path.clone() };
            Err(fault.into_error(&path, remedy))
        }
        _ => Ok(()),
    }
}

fn read_note(copy: &Image) -> io::Result<Note> {
    let mut note = Note::new_zeroed();
    copy.file.read_exact_at(note.as_mut_bytes(), NOTE_OFFSET)?;
    Ok(note)
}

/// Whether a copy holds everything that is stored, and can take its place.
pub(crate) fn goes_on_from(copy: &Image, stored: &Stored) -> bool {
    let (rescue, base) = (&copy.header, &stored.base.header);
    rescue.uuid == base.uuid
        && rescue.owner_fingerprint == base.owner_fingerprint
        && rescue.backed_bytes <= base.limit_bytes
        && position(stored) <= position_of_copy(copy)
}

/// How far the store was when a copy was made, which was opened as one.
pub(crate) fn position_of_copy(copy: &Image) -> Position {
    let position = Position::of_header(&copy.header);
    match read_note(copy) {
        Ok(note) if note.marked.get() == 1 => {
            Position { commits: position.commits.saturating_sub(1), is_marked: true, ..position }
        }
        _ => position,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_a_note_never_change() {
        let mut note = Note { boot: [7; 16], taken_unix_s: 9.into(), ..Note::new(false) };
        note.checksum = note.sum().into();
        let bytes = note.as_bytes();
        assert_eq!(&bytes[..16], b"HFRESCUE\x01\0\0\0\0\0\0\0");
        assert_eq!((&bytes[16..32], &bytes[32..40]), (&[7; 16][..], &9_u64.to_le_bytes()[..]));
        assert_eq!(bytes[40..], xxh3_64(&bytes[..40]).to_le_bytes());
    }

    #[test]
    fn a_boot_is_read_as_the_kernel_writes_it() {
        let boot = parse_boot(b"00112233-4455-6677-8899-aabbccddeeff\n").unwrap();
        assert_eq!((boot[0], boot[15]), (0, 0xff));
        assert_eq!(parse_boot(b"no boot"), None);
    }
}
