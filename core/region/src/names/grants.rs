//! The access table's file: `NAME.grants` in the store. Its bytes, how they are read, how they are
//! replaced.
//!
//! Invariants:
//! - A table counts only whole: length, checksum and every field right. Anything else grants
//!   nothing.
//! - It is bound to its region by the region's UUID: a table that an earlier region of that name
//!   left, or that was copied here, is *stale* and grants nothing.
//! - It is replaced by a synced temporary file and a rename, so that a crash leaves the old table
//!   or the new one.
//! - The process that replaces it holds the lock on the name space from before it was read.
//!
//! This module must not decide who may change it.

#![forbid(unsafe_code)]

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use holdfast_sys::file::{effective_user, private_options};
use xxhash_rust::xxh3::xxh3_64;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::media::files::{grants_path, grants_temporary_path};
use crate::media::storage::{StepError, Storage, replace_file};
use crate::name::RegionName;
use crate::names::access::{Grant, Rights};
use crate::names::key::KeyFingerprint;

const MAGIC: [u8; 8] = *b"HOLDGRNT";
pub(crate) const TABLE_VERSION: u32 = 1;
/// More keys than any region here will be shared with; bounds what a damaged file can make us read.
pub(crate) const GRANTS_MAX: usize = 1024;
const READ: u32 = 1;
const WRITE: u32 = 2;
/// No quota.
const UNLIMITED: u64 = u64::MAX;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TableHead {
    magic: [u8; 8],
    version: U32,
    count: U32,
    uuid: [u8; 16],
    reserved: [u8; 32],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct TableRow {
    fingerprint: [u8; 32],
    quota_bytes: U64,
    rights: U32,
    label_bytes: U16,
    label: [u8; 64],
    reserved: [u8; 18],
}

const HEAD_BYTES: usize = size_of::<TableHead>();
const ROW_BYTES: usize = size_of::<TableRow>();
const SUM_BYTES: usize = 8;
const _: () = assert!(HEAD_BYTES == 64 && ROW_BYTES == 128);

/// Why a file grants nothing.
#[derive(Debug)]
pub(crate) enum TableFault {
    Damaged,
    Newer { version: u32 },
    Io(io::Error),
}

/// The grants on the region `uuid`; empty without a table, and when the table is another region's.
pub(crate) fn read_table(
    store: &Path,
    name: &RegionName,
    uuid: [u8; 16],
) -> Result<Vec<Grant>, TableFault> {
    let file = match private_options().read(true).open(grants_path(store, name)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(TableFault::Io(error)),
    };
    let found = file.metadata().map_err(TableFault::Io)?;
    if !found.is_file() || found.uid() != effective_user() {
        return Err(TableFault::Damaged);
    }
    let longest = HEAD_BYTES + GRANTS_MAX * ROW_BYTES + SUM_BYTES;
    let mut bytes = Vec::new();
    file.take(longest as u64 + 1).read_to_end(&mut bytes).map_err(TableFault::Io)?;
    decode(&bytes, uuid)
}

fn decode(bytes: &[u8], uuid: [u8; 16]) -> Result<Vec<Grant>, TableFault> {
    let (head, rest) = TableHead::read_from_prefix(bytes).map_err(|_| TableFault::Damaged)?;
    let content = bytes.len() - SUM_BYTES.min(bytes.len());
    let whole = bytes.ends_with(&xxh3_64(&bytes[..content]).to_le_bytes());
    if head.magic != MAGIC || !whole {
        return Err(TableFault::Damaged);
    }
    if head.version.get() > TABLE_VERSION {
        return Err(TableFault::Newer { version: head.version.get() });
    }
    let count = head.count.get() as usize;
    if count > GRANTS_MAX || rest.len() != count * ROW_BYTES + SUM_BYTES {
        return Err(TableFault::Damaged);
    }
    let rows = rest.chunks_exact(ROW_BYTES).take(count);
    let grants = rows
        .map(|row| decode_row(row).ok_or(TableFault::Damaged))
        .collect::<Result<Vec<_>, _>>()?;
    Ok(if head.uuid == uuid { grants } else { Vec::new() })
}

fn decode_row(bytes: &[u8]) -> Option<Grant> {
    let row = TableRow::read_from_bytes(bytes).ok()?;
    let quota_bytes = Some(row.quota_bytes.get()).filter(|quota| *quota != UNLIMITED);
    let rights = match row.rights.get() {
        READ => Rights::Read,
        WRITE => Rights::Write { quota_bytes },
        _ => return None,
    };
    let label = std::str::from_utf8(row.label.get(..usize::from(row.label_bytes.get()))?).ok()?;
    let label = if label.is_empty() { None } else { Some(RegionName::parse(label).ok()?) };
    Some(Grant { key: KeyFingerprint::from_bytes(row.fingerprint), label, rights })
}

fn encode(uuid: [u8; 16], grants: &[Grant]) -> Vec<u8> {
    let (version, count) = (TABLE_VERSION.into(), (grants.len() as u32).into());
    let head = TableHead { magic: MAGIC, version, count, uuid, reserved: [0; 32] };
    let mut bytes = head.as_bytes().to_vec();
    for grant in grants {
        let (rights, quota_bytes) = match grant.rights {
            Rights::Read => (READ, None),
            Rights::Write { quota_bytes } => (WRITE, quota_bytes),
        };
        let mut label = [0; 64];
        // A plain name has at most 64 bytes; that of a compartment is no key's.
        let text = grant.label.as_ref().map_or("", RegionName::as_str).as_bytes();
        let kept = &text[..text.len().min(label.len())];
        label[..kept.len()].copy_from_slice(kept);
        let row = TableRow {
            fingerprint: grant.key.to_bytes(),
            quota_bytes: quota_bytes.unwrap_or(UNLIMITED).into(),
            rights: rights.into(),
            label_bytes: (kept.len() as u16).into(),
            label,
            reserved: [0; 18],
        };
        bytes.extend_from_slice(row.as_bytes());
    }
    let sum = xxh3_64(&bytes);
    bytes.extend_from_slice(&sum.to_le_bytes());
    bytes
}

/// Replaces the table, durably. The caller holds the lock on the name space.
pub(crate) fn write_table(
    storage: &dyn Storage,
    store: &Path,
    name: &RegionName,
    uuid: [u8; 16],
    grants: &[Grant],
) -> Result<(), StepError> {
    let (path, temporary) = (grants_path(store, name), grants_temporary_path(store, name));
    replace_file(storage, &path, &temporary, &encode(uuid, grants))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grants() -> Vec<Grant> {
        let key = |byte| KeyFingerprint::from_bytes([byte; 32]);
        let label = |text| Some(RegionName::parse(text).unwrap());
        vec![
            Grant::new(key(1), label("alice"), Rights::Read),
            Grant::new(key(2), label(&"b".repeat(64)), Rights::Write { quota_bytes: None }),
            Grant::new(key(3), None, Rights::Write { quota_bytes: Some(8 << 20) }),
        ]
    }

    #[test]
    fn a_table_is_read_as_it_was_written() {
        for count in 0..=3 {
            let rows = &grants()[..count];
            let bytes = encode([7; 16], rows);
            assert_eq!(bytes.len(), 64 + 128 * count + 8);
            assert_eq!(decode(&bytes, [7; 16]).unwrap(), rows);
            assert!(decode(&bytes, [8; 16]).unwrap().is_empty());
        }
    }

    #[test]
    fn fields_are_where_the_format_says() {
        let bytes = encode([7; 16], &grants());
        assert_eq!(&bytes[..8], b"HOLDGRNT");
        assert_eq!((bytes[8], bytes[12], &bytes[16..32]), (1, 3, &[7; 16][..]));
        let row = &bytes[64 + 2 * 128..];
        assert_eq!((&row[..32], row[40], row[44]), (&[3; 32][..], 2, 0));
        assert_eq!(u64::from_le_bytes(row[32..40].try_into().unwrap()), 8 << 20);
        assert_eq!((&bytes[64 + 46..64 + 51], bytes[64 + 44]), (&b"alice"[..], 5));
    }

    /// Any flipped bit and any other length grants nothing.
    ///
    /// Guarantee: heap/grants
    #[test]
    fn flipped_bit_or_wrong_length_grants_nothing() {
        let bytes = encode([7; 16], &grants());
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(decode(&flipped, [7; 16]), Err(TableFault::Damaged)), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(
                matches!(decode(&bytes[..len], [7; 16]), Err(TableFault::Damaged)),
                "{len} bytes"
            );
        }
        let longer = [bytes, vec![0]].concat();
        assert!(matches!(decode(&longer, [7; 16]), Err(TableFault::Damaged)));
    }

    /// Guarantee: heap/grants
    #[test]
    fn a_newer_table_is_not_called_damaged() {
        let mut bytes = encode([7; 16], &grants());
        bytes[8] = 2;
        let content = bytes.len() - 8;
        let sum = xxh3_64(&bytes[..content]);
        bytes[content..].copy_from_slice(&sum.to_le_bytes());
        assert!(matches!(decode(&bytes, [7; 16]), Err(TableFault::Newer { version: 2 })));
    }
}
