//! A look at an image from outside, through reads of its file: nothing is mapped, locked or
//! changed, so that a process that looks needs no one's leave, and waits for no one.
//!
//! What is gathered is as of one commit if it is the same before and after the pages were copied.
//! Slots that count are never written to; one that is freed says so first, and is used again under
//! a higher number. So if all of them still say the same, their pages are what they were.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::copy::Copy;
use crate::identity::Identity;
use crate::image::layout::NAME_AT;
use crate::image::{BLOCK_BYTES, Found, HeaderCopy, Plan, examine, scan};
use crate::stub;

/// The header of an image, as it was at about one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    header: HeaderCopy,
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
    /// The header of an image of this database; `None` where a process is making one, or died while
    /// he was.
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
        let header = HeaderCopy::read(file)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok(Some((Head { header }, Plan::new(capacity))))
    }

    /// What its words say.
    pub(crate) fn header(&self) -> &HeaderCopy {
        &self.header
    }

    /// The last transaction that counts.
    fn transaction(&self, file: &File) -> io::Result<u64> {
        let committed = self.header.committed();
        let prepared = self.header.prepared();
        if prepared == committed {
            // It stands, whatever comes of the log.
            return Ok(committed);
        }
        if prepared == committed.wrapping_add(1) {
            let mut name = vec![0; self.header.name_bytes()];
            file.read_exact_at(&mut name, NAME_AT as u64)?;
            return Ok(if stub::is_committed(&name) { prepared } else { committed });
        }
        let provisional = self.header.provisional();
        Ok(committed.wrapping_sub(u64::from(provisional == committed)))
    }

    /// Whether there are transactions that only the image has.
    pub(crate) fn is_behind(&self, file: &File) -> io::Result<bool> {
        let is_direct = self.header.direct() != 0;
        Ok(self.header.is_hot() && !is_direct && self.transaction(file)? > self.header.flushed())
    }

    /// Whether a copy of this image has all that counts.
    pub(crate) fn is_in(&self, copy: Option<&Copy>, file: &File) -> io::Result<bool> {
        let Some(origin) = copy.map(|copy| &copy.origin) else { return Ok(false) };
        // One on a log that is lost is of no use.
        let fits =
            origin.nonce == self.header.nonce() && origin.reached <= self.header.log_reached();
        Ok(fits && origin.transaction >= self.transaction(file)?)
    }

    /// What changed since the last flush, about, and at least a block.
    pub(crate) fn dirty_bytes(&self) -> u64 {
        let backed = self.header.backed();
        u64::from(self.header.dirty().clamp(1, backed.max(1))) * BLOCK_BYTES as u64
    }

    /// What the log lacks; `None` where that is nothing.
    pub(crate) fn gather(&self, file: &File, plan: Plan) -> io::Result<Option<Gathered>> {
        if !self.is_behind(file)? {
            return Ok(None);
        }
        let (transaction, flushed) = (self.transaction(file)?, self.header.flushed());
        let mut newest = Vec::new();
        scan(file, plan, self.header.backed(), |link, block, own| {
            if (flushed + 1..=transaction).contains(&own) {
                newest.push(Newest { block, transaction: own, link });
            }
        })?;
        // Of each block the newest version, which may be beside an older one in the middle of a
        // commit.
        newest.sort_unstable_by(|a, b| b.cmp(a));
        newest.dedup_by_key(|found| found.block);
        newest.reverse();
        Ok(Some(Gathered {
            nonce: self.header.nonce(),
            reached: self.header.log_reached(),
            transaction,
            size: self.header.size_of(transaction),
            newest,
            pages_at: plan.pages_at as u64,
        }))
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
    use std::os::unix::ffi::OsStrExt;

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

    /// In the middle of a commit either the old blocks are seen or the new ones.
    ///
    /// Guarantee: sqlite/emergency
    /// Guarantee: sqlite/saved-copies
    #[test]
    fn blocks_are_all_old_or_all_new_amid_a_commit() {
        let folder = tempfile::tempdir().unwrap();
        let pool = hot(folder.path(), 1);
        let commits = pool.image.commits();
        assert_eq!(seen(&pool), None, "nothing was committed");
        commit(&pool, &[(0, 1), (1, 1)], 2).unwrap();
        let old = Some((2, vec![(0, 1), (1, 1)]));
        assert_eq!(seen(&pool), old);
        let shadow = put(&pool, 1, &page(2));
        assert_eq!(seen(&pool), old, "it is not committed");
        commits.publish(3);
        // The old version is still there.
        assert_eq!(seen(&pool), Some((3, vec![(0, 1), (1, 2)])));
        // At level `power` it is none yet: the log may fail.
        commits.announce(3);
        assert_eq!(seen(&pool), old);
        commits.confirm();
        pool.image.drop_older(shadow).unwrap();
        assert_eq!(seen(&pool), Some((3, vec![(0, 1), (1, 2)])));
        pool.flush_and_tidy().unwrap();
        assert_eq!(seen(&pool), None, "the log has it");
    }

    /// A prepared transaction is seen when its super journal is gone and not before.
    ///
    /// Guarantee: sqlite/emergency
    /// Guarantee: sqlite/saved-copies
    #[test]
    fn prepared_transaction_needs_its_super_journal_gone() {
        let folder = tempfile::tempdir().unwrap();
        let pool = hot(folder.path(), 1);
        let commits = pool.image.commits();
        let name = folder.path().join("super");
        std::fs::write(&name, "").unwrap();
        put(&pool, 0, &page(9));
        commits.set_size(2, BLOCK_BYTES as u64);
        assert!(pool.image.set_name(name.as_os_str().as_bytes()));
        commits.prepare(2);
        assert_eq!(seen(&pool), None);
        std::fs::remove_file(name).unwrap();
        let committed = Some((2, vec![(0, 9)]));
        assert_eq!(seen(&pool), committed);
        // Nor does it matter then what comes of the log.
        commits.publish(2);
        commits.announce(2);
        assert_eq!(seen(&pool), committed);
    }

    /// What goes to the database file itself is not copied.
    ///
    /// Guarantee: sqlite/emergency
    /// Guarantee: sqlite/saved-copies
    #[test]
    fn blocks_of_the_database_file_are_not_copied() {
        let folder = tempfile::tempdir().unwrap();
        let pool = hot(folder.path(), 1);
        commit(&pool, &[(0, 1)], 1).unwrap();
        assert!(seen(&pool).is_some());
        pool.image.mode().begin_direct();
        assert_eq!(seen(&pool), None);
    }
}
