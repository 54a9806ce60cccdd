//! The mark in a database file whose newest pages are elsewhere, so that a program without this VFS
//! refuses it rather than be misled.
//!
//! Byte 19 of the first page, the version that a reader must know, is 3: "file is not a database".
//! The bytes 72 to 92, which SQLite reserves and ignores, say what was there and carry the nonce of
//! log and image. The change counter is one that no commit comes near, so that who had pages in a
//! cache reads the first one again, now and when the mark is gone. An empty database gets a first
//! page that has nothing but the mark.
//!
//! The mark says as of which transaction the file is, too (each checkpoint writes it): a file that
//! was put back from a backup is older than what the log beside it, or an image, goes on from, and
//! neither is applied to it. And it carries a tag of the boot and the pool that has the newest
//! pages: see `owner/`.
//!
//! Invariant: a marked page never leaves this library: who reads through the VFS sees the page
//! without the mark.

#![forbid(unsafe_code)]

use std::ops::RangeInclusive;

use crate::owner::Tag;

const TITLE: &[u8; 16] = b"SQLite format 3\0";
/// Of a mark that names boot and pool.
const MAGIC: &[u8; 3] = b"HF3";
/// Of an earlier version, which did not.
const MAGIC_WITHOUT_POOL: &[u8; 7] = b"HOLDFS2";
/// Of one before that, which had the change counter where the transaction is now.
const MAGIC_WITHOUT_TRANSACTION: &[u8; 7] = b"HOLDFST";
const READ_VERSION: usize = 19;
const COUNTER: usize = 24;
const RESERVED: usize = 72;
/// Of a read version that no SQLite knows.
const REFUSED: u8 = 3;
/// How far the change counter is put away.
const FAR: u32 = 1 << 31;
/// Bytes of the header of a database.
pub(crate) const HEADER_BYTES: usize = 100;
/// Size of what stands for an empty database.
pub(crate) const STAND_IN_BYTES: u64 = 512;

/// What a mark says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) nonce: u64,
    /// As of which transaction the file is, its lower half; `None` where an earlier version marked
    /// it.
    pub(crate) transaction: Option<u32>,
    /// Which pool has the newest pages; `None` where an earlier version marked it.
    pub(crate) tag: Option<Tag>,
    /// The database had no byte when it was marked.
    pub(crate) was_empty: bool,
}

impl Mark {
    /// Whether the file is as of one of these transactions, as far as the lower half tells.
    pub(crate) fn is_of(self, transactions: RangeInclusive<u64>) -> bool {
        let (first, last) = transactions.into_inner();
        self.transaction.is_none_or(|own| {
            u64::from(own.wrapping_sub(first as u32)) <= last.saturating_sub(first)
        })
    }
}

/// What [`put`] writes: a nonce, as of which transaction the file will be, and which pool goes on
/// from it (`None`: as an earlier version, which did not say so).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp {
    pub(crate) nonce: u64,
    pub(crate) transaction: u64,
    pub(crate) tag: Option<Tag>,
}

/// The mark in the first bytes of a file.
pub(crate) fn find(page: &[u8]) -> Option<Mark> {
    if page.len() < HEADER_BYTES || &page[..16] != TITLE || page[READ_VERSION] != REFUSED {
        return None;
    }
    let transaction = page[RESERVED + 8..RESERVED + 12].try_into().ok()?;
    let nonce = page[RESERVED + 12..RESERVED + 20].try_into().ok()?;
    let magic = &page[RESERVED..RESERVED + 7];
    let half = |at: usize| u16::from_le_bytes([page[RESERVED + at], page[RESERVED + at + 1]]);
    let transaction = Some(u32::from_le_bytes(transaction));
    let (transaction, tag) = match () {
        () if &magic[..3] == MAGIC => (transaction, Some(Tag { boot: half(4), pool: half(6) })),
        () if magic == MAGIC_WITHOUT_POOL => (transaction, None),
        () if magic == MAGIC_WITHOUT_TRANSACTION => (None, None),
        () => return None,
    };
    Some(Mark {
        nonce: u64::from_le_bytes(nonce),
        transaction,
        tag,
        was_empty: page[16..18] == [0, 0],
    })
}

/// Puts the mark into a first page (of zeros, for an empty database).
pub(crate) fn put(page: &mut [u8], stamp: Stamp) {
    if page[..16] != TITLE[..] {
        page[..HEADER_BYTES].fill(0);
        page[..16].copy_from_slice(TITLE);
    }
    let counter: [u8; 4] = page[COUNTER..COUNTER + 4].try_into().unwrap_or_default();
    match stamp.tag {
        Some(Tag { boot, pool }) => {
            page[RESERVED..RESERVED + 3].copy_from_slice(MAGIC);
            page[RESERVED + 3] = page[READ_VERSION];
            page[RESERVED + 4..RESERVED + 6].copy_from_slice(&boot.to_le_bytes());
            page[RESERVED + 6..RESERVED + 8].copy_from_slice(&pool.to_le_bytes());
        }
        None => {
            page[RESERVED..RESERVED + 7].copy_from_slice(MAGIC_WITHOUT_POOL);
            page[RESERVED + 7] = page[READ_VERSION];
        }
    }
    page[RESERVED + 8..RESERVED + 12].copy_from_slice(&(stamp.transaction as u32).to_le_bytes());
    page[RESERVED + 12..RESERVED + 20].copy_from_slice(&stamp.nonce.to_le_bytes());
    page[READ_VERSION] = REFUSED;
    page[COUNTER..COUNTER + 4].copy_from_slice(&put_away(counter));
}

/// The change counter far from what it was; twice, and it is that again.
fn put_away(counter: [u8; 4]) -> [u8; 4] {
    (u32::from_be_bytes(counter) ^ FAR).to_be_bytes()
}

/// Takes the mark out of a first page.
pub(crate) fn take(page: &mut [u8]) {
    let Some(found) = find(page) else { return };
    page[READ_VERSION] = page[RESERVED + if found.tag.is_some() { 3 } else { 7 }];
    let counter: [u8; 4] = page[COUNTER..COUNTER + 4].try_into().unwrap_or_default();
    page[COUNTER..COUNTER + 4].copy_from_slice(&put_away(counter));
    page[RESERVED..RESERVED + 20].fill(0);
}

/// Whether it is the first page of a database.
pub(crate) fn is_database(page: &[u8]) -> bool {
    page.starts_with(TITLE)
}

/// Whether the header says that the database is in WAL mode.
pub(crate) fn is_wal(page: &[u8]) -> bool {
    page.len() >= 20 && (page[18] == 2 || page[19] == 2) && &page[..16] == TITLE
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mark is found and taken out again without a trace.
    ///
    /// Guarantee: sqlite/ordinary-file
    /// Guarantee: sqlite/without-the-vfs
    #[test]
    fn mark_is_found_and_removed_without_trace() {
        let mut page: Vec<u8> = (0..=255).cycle().take(4096).collect();
        page[..16].copy_from_slice(TITLE);
        page[18..20].copy_from_slice(&[1, 1]);
        page[72..92].fill(0);
        let clean = page.clone();
        assert_eq!(find(&page), None);
        for tag in [None, Some(Tag { boot: 3, pool: 4 })] {
            put(&mut page, Stamp { nonce: 7, transaction: (1 << 32) + 5, tag });
            assert_eq!(
                find(&page),
                Some(Mark { nonce: 7, transaction: Some(5), tag, was_empty: false })
            );
            assert_ne!(page[24..28], clean[24..28]);
            take(&mut page);
            assert_eq!(page, clean);
        }
        take(&mut page);
        assert_eq!(page, clean);
        assert!(!is_wal(&page));
    }

    #[test]
    fn an_empty_database_gets_a_page_that_says_so() {
        let mut page = vec![0; STAND_IN_BYTES as usize];
        let tag = Some(Tag { boot: 0, pool: 1 });
        put(&mut page, Stamp { nonce: 9, transaction: 0, tag });
        assert_eq!(
            find(&page),
            Some(Mark { nonce: 9, transaction: Some(0), tag, was_empty: true })
        );
        assert_eq!(find(&page[..99]), None);
    }

    /// A mark says as of when the file is also when numbers grow beyond their lower half.
    ///
    /// Guarantee: sqlite/backups
    /// Guarantee: sqlite/older-copies
    #[test]
    fn mark_dates_the_file_beyond_32_bit_numbers() {
        let mark = |transaction| Mark { nonce: 1, transaction, tag: None, was_empty: false };
        for high in [0, 1_u64 << 32, (1 << 32) - 6, u64::MAX - 9] {
            let own = mark(Some(high.wrapping_add(6) as u32));
            let is_of = |first: u64, last: u64| own.is_of(high + first..=high + last);
            assert!(is_of(6, 6) && is_of(5, 7) && is_of(0, 6) && is_of(6, 9), "{high}");
            assert!(!is_of(0, 5) && !is_of(7, 9) && !is_of(7, 7), "{high}");
        }
        // However many commits there were since the last checkpoint.
        assert!(mark(Some(6)).is_of(6..=1 << 31) && mark(Some(6)).is_of(6..=1 << 40));
        assert!(mark(None).is_of(9..=9), "an earlier version does not say");
        let mut page = vec![0; STAND_IN_BYTES as usize];
        put(&mut page, Stamp { nonce: 9, transaction: 77, tag: None });
        page[RESERVED..RESERVED + 7].copy_from_slice(MAGIC_WITHOUT_TRANSACTION);
        assert_eq!(
            find(&page),
            Some(Mark { nonce: 9, transaction: None, tag: None, was_empty: true })
        );
    }
}
