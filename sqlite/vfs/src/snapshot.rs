//! A look at an image from outside, through reads of its file: nothing is mapped, locked or changed, so that whoever looks needs
//! no one's leave, and waits for no one.
//!
//! What is gathered is as of one commit if it is the same before and after the pages were copied. Slots that count are
//! never written to; one that is freed says so first, and is used again under a higher number. So if all of them still say the same, their
//! pages are what they were.

#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::mem::offset_of;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::attach::{Found, Identity, examine};
use crate::copy::Copy;
use crate::layout::{BLOCK_BYTES, CHUNK_SLOTS, Header, NAME_AT, NAME_BYTES_MAX, PATH_AT, PATH_BYTES_MAX};
use crate::layout::{Plan, Slot};
use crate::stub;

/// The header of an image, as it was at about one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    bytes: Vec<u8>,
}

/// A block that only the image has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Newest {
    pub(crate) block: u32,
    transaction: u64,
    link: u32,
}

/// What the image has as of a commit, and the log has not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gathered {
    pub(crate) nonce: u64,
    /// As of which transaction database file and log are together, at least.
    pub(crate) reached: u64,
    pub(crate) transaction: u64,
    pub(crate) size: u64,
    pub(crate) newest: Vec<Newest>,
    pages_at: u64,
}

impl Head {
    /// The header of an image of this database; `None` where somebody is making one, or died while he was.
    ///
    /// # Errors
    /// `InvalidData`, and what is wrong, where it is none; what the kernel reports.
    pub(crate) fn read(file: &File, identity: Identity) -> io::Result<Option<(Head, Plan)>> {
        let capacity = match examine(file, identity)? {
            Found::Sound(capacity) => capacity,
            Found::Fresh | Found::Unfinished => return Ok(None),
            Found::Newer => {
                let what = "a newer version of holdfast wrote it";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            Found::Broken(what) => return Err(io::Error::new(io::ErrorKind::InvalidData, what)),
        };
        let mut bytes = vec![0; BLOCK_BYTES];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(Some((Head { bytes }, Plan::new(capacity))))
    }

    /// Whether it was last used in this boot.
    pub(crate) fn is_of_boot(&self, boot: [u8; 16]) -> bool {
        let at = offset_of!(Header, boot);
        self.bytes[at..at + 16] == boot || self.bytes[at..at + 16] == [0; 16]
    }

    fn long(&self, at: usize) -> u64 {
        u64::from_le_bytes(self.bytes[at..at + 8].try_into().unwrap_or_default())
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().unwrap_or_default())
    }

    /// The newest state of the database is in the image.
    pub(crate) fn is_hot(&self) -> bool {
        self.word(offset_of!(Header, hot)) != 0
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.long(offset_of!(Header, nonce))
    }

    /// Transactions up to here are in the log and durable.
    pub(crate) fn flushed(&self) -> u64 {
        self.long(offset_of!(Header, flushed))
    }

    /// Where the database was when it was opened last.
    pub(crate) fn database(&self) -> Option<PathBuf> {
        let bytes = self.word(offset_of!(Header, path_bytes)) as usize;
        let path = Path::new(OsStr::from_bytes(&self.bytes[PATH_AT..PATH_AT + bytes.min(PATH_BYTES_MAX)]));
        path.is_absolute().then(|| path.to_owned())
    }

    /// The last transaction that counts.
    fn transaction(&self, file: &File) -> io::Result<u64> {
        let committed = self.long(offset_of!(Header, committed));
        let prepared = self.long(offset_of!(Header, prepared));
        if prepared == committed {
            // It stands, whatever comes of the log.
            return Ok(committed);
        }
        if prepared == committed.wrapping_add(1) {
            let mut name = vec![0; (self.word(offset_of!(Header, name_bytes)) as usize).min(NAME_BYTES_MAX)];
            file.read_exact_at(&mut name, NAME_AT as u64)?;
            return Ok(if stub::is_committed(&name) { prepared } else { committed });
        }
        let provisional = self.long(offset_of!(Header, provisional));
        Ok(committed.wrapping_sub(u64::from(provisional == committed)))
    }

    /// Whether there are transactions that only the image has.
    pub(crate) fn is_behind(&self, file: &File) -> io::Result<bool> {
        let is_direct = self.word(offset_of!(Header, direct)) != 0;
        Ok(self.is_hot() && !is_direct && self.transaction(file)? > self.flushed())
    }

    /// Whether a copy of this image has all that counts.
    pub(crate) fn is_in(&self, copy: Option<&Copy>, file: &File) -> io::Result<bool> {
        let Some(origin) = copy.map(|copy| &copy.origin) else { return Ok(false) };
        // One on a log that is lost is of no use.
        let fits =
            origin.nonce == self.nonce() && origin.reached <= self.long(offset_of!(Header, log_reached));
        Ok(fits && origin.transaction >= self.transaction(file)?)
    }

    /// What changed since the last flush, about, and at least a block.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        let backed = self.word(offset_of!(Header, backed));
        u64::from(self.word(offset_of!(Header, dirty)).clamp(1, backed.max(1))) * BLOCK_BYTES as u64
    }

    /// What the log lacks; `None` where that is nothing.
    pub(crate) fn gather(&self, file: &File, plan: Plan) -> io::Result<Option<Gathered>> {
        if !self.is_behind(file)? {
            return Ok(None);
        }
        let (transaction, flushed) = (self.transaction(file)?, self.flushed());
        let backed = self.word(offset_of!(Header, backed)).min(plan.capacity);
        let mut newest = Vec::new();
        let mut slots = vec![0; CHUNK_SLOTS as usize * size_of::<Slot>()];
        for chunk in (0..backed).step_by(CHUNK_SLOTS as usize) {
            file.read_exact_at(&mut slots, (plan.slots_at + chunk as usize * size_of::<Slot>()) as u64)?;
            for (number, slot) in slots.chunks_exact(size_of::<Slot>()).enumerate() {
                let own = u64::from_le_bytes(slot[..8].try_into().unwrap_or_default());
                if (flushed + 1..=transaction).contains(&own) {
                    let block = u32::from_le_bytes(slot[8..12].try_into().unwrap_or_default());
                    newest.push(Newest { block, transaction: own, link: chunk + number as u32 + 1 });
                }
            }
        }
        // Of each block the newest version, which may be beside an older one in the middle of a commit.
        newest.sort_unstable_by(|a, b| b.cmp(a));
        newest.dedup_by_key(|found| found.block);
        newest.reverse();
        let (nonce, reached) = (self.nonce(), self.long(offset_of!(Header, log_reached)));
        let size = self.long(offset_of!(Header, size) + (transaction & 1) as usize * 8);
        Ok(Some(Gathered { nonce, reached, transaction, size, newest, pages_at: plan.pages_at as u64 }))
    }
}

impl Gathered {
    /// Bytes of its pages.
    pub(crate) fn bytes(&self) -> u64 {
        self.newest.len() as u64 * BLOCK_BYTES as u64
    }

    /// Reads the page of one of the blocks.
    pub(crate) fn read(&self, file: &File, number: usize, page: &mut [u8]) -> io::Result<()> {
        let link = u64::from(self.newest[number].link);
        file.read_exact_at(page, self.pages_at + (link - 1) * BLOCK_BYTES as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    use crate::pool::Pool;
    use crate::testing::{commit, hot, page, put};

    /// The transaction, and of each block its number and its first byte.
    fn seen(pool: &Pool) -> Option<(u64, Vec<(u32, u8)>)> {
        let (file, identity) = (pool.image.file(), Identity::of(&pool.database).unwrap());
        let (head, plan) = Head::read(file, identity).unwrap().unwrap();
        let gathered = head.gather(file, plan).unwrap()?;
        let mut page = [0; BLOCK_BYTES];
        let mut first = |(number, newest): (usize, &Newest)| {
            gathered.read(file, number, &mut page).unwrap();
            (newest.block, page[0])
        };
        let blocks = gathered.newest.iter().enumerate().map(&mut first).collect();
        Some((gathered.transaction, blocks))
    }

    #[test]
    fn in_the_middle_of_a_commit_either_the_old_blocks_are_seen_or_the_new_ones() {
        let folder = tempfile::tempdir().unwrap();
        let pool = hot(folder.path(), 1);
        let header = pool.image.header();
        assert_eq!(seen(&pool), None, "nothing was committed");
        commit(&pool, &[(0, 1), (1, 1)], 2).unwrap();
        let old = Some((2, vec![(0, 1), (1, 1)]));
        assert_eq!(seen(&pool), old);
        let shadow = put(&pool, 1, &page(2));
        assert_eq!(seen(&pool), old, "it is not committed");
        header.committed.store(3, SeqCst);
        // The old version is still there.
        assert_eq!(seen(&pool), Some((3, vec![(0, 1), (1, 2)])));
        // At level `power` it is none yet: the log may fail.
        header.provisional.store(3, SeqCst);
        assert_eq!(seen(&pool), old);
        header.provisional.store(0, SeqCst);
        pool.image.drop_older(shadow).unwrap();
        assert_eq!(seen(&pool), Some((3, vec![(0, 1), (1, 2)])));
        pool.flush_and_tidy().unwrap();
        assert_eq!(seen(&pool), None, "the log has it");
    }

    #[test]
    fn a_prepared_transaction_is_seen_when_its_super_journal_is_gone_and_not_before() {
        let folder = tempfile::tempdir().unwrap();
        let pool = hot(folder.path(), 1);
        let header = pool.image.header();
        let name = folder.path().join("super");
        std::fs::write(&name, "").unwrap();
        put(&pool, 0, &page(9));
        header.size[0].store(BLOCK_BYTES as u64, SeqCst);
        assert!(pool.image.set_name(name.as_os_str().as_bytes()));
        header.prepared.store(2, SeqCst);
        assert_eq!(seen(&pool), None);
        std::fs::remove_file(name).unwrap();
        let committed = Some((2, vec![(0, 9)]));
        assert_eq!(seen(&pool), committed);
        // Nor does it matter then what comes of the log.
        header.committed.store(2, SeqCst);
        header.provisional.store(2, SeqCst);
        assert_eq!(seen(&pool), committed);
    }

    #[test]
    fn what_goes_to_the_database_file_itself_is_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        let pool = hot(folder.path(), 1);
        commit(&pool, &[(0, 1)], 1).unwrap();
        assert!(seen(&pool).is_some());
        pool.image.header().direct.store(1, SeqCst);
        assert_eq!(seen(&pool), None);
    }
}
