//! A database that was made in the pool, and leaves it before its file or its log had anything of
//! it: its blocks go to the file once, and not through the log, as the one state that a recovery
//! could come to has none of them.
//!
//! Invariants:
//! - Nothing of the database is in its file, but for the mark, nor in the log; so the mark says
//!   that it is empty, and a recovery makes it so, whatever is behind the mark.
//! - The first sector, which bears the mark, is written last, at once, when all behind it is
//!   durable.

#![forbid(unsafe_code)]

use crate::base::{Base, read_mark};
use crate::error::Result;
use crate::file_size;
use crate::flush::LogTurn;
use crate::growth::Growth;
use crate::image::{BLOCK_BYTES, Suspicion};
use crate::mark;
use crate::pool::Pool;

const SECTOR_BYTES: usize = mark::STAND_IN_BYTES as usize;

/// What takes the place of the mark in a file that is complete but for it.
pub(crate) struct FirstSector([u8; SECTOR_BYTES]);

impl FirstSector {
    /// The file is an ordinary one then, durably.
    pub(crate) fn write(&self, base: &dyn Base) -> Result<()> {
        base.write(0, &self.0)?;
        base.sync()
    }
}

impl Pool {
    /// Writes all blocks of such a database to its file, durably, behind the mark; what belongs in
    /// the mark's place is returned. `None`, with nothing done, for any other database. The caller
    /// keeps writers out.
    pub(crate) fn fill_new_file(&self, turn: &mut LogTurn<'_>) -> Result<Option<FirstSector>> {
        let (commits, position) = (self.image.commits(), self.image.log_position());
        let size = self.size();
        let mark = read_mark(self.base())?.0;
        let is_new = mark.is_some_and(|mark| mark.was_empty) && position.records() == 0;
        if !self.is_hot() || !is_new || size < BLOCK_BYTES as u64 {
            return Ok(None);
        }
        self.prepare_log(turn)?;
        self.check_mark()?;
        let first = self.image.find(0).map_err(|found| self.astray(found))?;
        // Of a database that was emptied the log may say more than the mark.
        let is_new = position.records() == 0 && position.suspicion() == Suspicion::None;
        if first == 0 || !is_new {
            return Ok(None);
        }
        let mut blocks = self.changed(1..=commits.newest(), true);
        blocks.sort_unstable_by_key(|(block, _)| *block);
        let base = self.base();
        if base.size()? > mark::STAND_IN_BYTES {
            // Of a process that died at this, when the database was another one.
            base.cut_to(mark::STAND_IN_BYTES)?;
        }
        base.grow_to(size);
        let mut page = [0; BLOCK_BYTES];
        self.image.read(first, 0, &mut page).map_err(|found| self.astray(found))?;
        base.write(mark::STAND_IN_BYTES, &page[SECTOR_BYTES..])?;
        let mut rest = Growth::new(1);
        for (block, version) in blocks.iter().filter(|(block, _)| rest_takes(*block, size)) {
            let page = rest.page_of(*block);
            self.image.read(version.link, 0, page).map_err(|found| self.astray(found))?;
            rest.write_some(base)?;
        }
        rest.write_all(base)?;
        file_size::set(base, size, &page)?;
        base.sync()?;
        position.count_checkpoint();
        let mut sector = [0; SECTOR_BYTES];
        sector.copy_from_slice(&page[..SECTOR_BYTES]);
        Ok(Some(FirstSector(sector)))
    }
}

/// Whether a block is one behind the first, in a database of so many bytes.
fn rest_takes(block: u32, size: u64) -> bool {
    block > 0 && u64::from(block) * (BLOCK_BYTES as u64) < size
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::base::OwnFile;
    use crate::error::SqliteError;
    use crate::testing::{
        Dying, Steps, attached, attached_over, first_page, lose, page, put, recovered,
    };

    const BLOCKS: usize = 700;

    /// A database that was made, and has so many blocks of one byte behind its first in the pool.
    fn made(folder: &Path, steps: &Arc<Steps>) -> Pool {
        let database = folder.join("db");
        std::fs::write(&database, []).unwrap();
        let base = Box::new(Dying(OwnFile::open(&database).unwrap(), Arc::clone(steps)));
        let pool = attached_over(folder, base);
        assert!(pool.heat(pool.base()).unwrap());
        fill(&pool, 5, BLOCKS);
        pool
    }

    fn fill(pool: &Pool, fill: u8, blocks: usize) {
        fill_but(u32::MAX, pool, fill, blocks);
    }

    /// SQLite does not write a page that is free as soon as it is there.
    fn fill_but(hole: u32, pool: &Pool, fill: u8, blocks: usize) {
        let first = put(pool, 0, &first_page());
        let rest = (1..blocks as u32).filter(|block| *block != hole);
        let rest = rest.map(|block| put(pool, block, &page(fill)));
        let links: Vec<u32> = [first].into_iter().chain(rest).collect();
        pool.commit(&links, (blocks * BLOCK_BYTES) as u64).unwrap();
    }

    fn file_of(fill: u8, blocks: usize) -> Vec<u8> {
        [first_page(), vec![fill; (blocks - 1) * BLOCK_BYTES]].concat()
    }

    /// The machine goes at each step of the hand-over, with what was written since the last sync or
    /// without it: the database is empty, as of its last flush, or it is whole and no file but that
    /// one is needed.
    ///
    /// Guarantee: sqlite/lost-pool
    /// Guarantee: sqlite/ordinary-file
    #[test]
    fn new_file_is_empty_or_whole_at_each_step() {
        let mut outcomes = [0; 2];
        for survives in [true, false] {
            for left in 0.. {
                let folder = tempfile::tempdir_in("/dev/shm").unwrap();
                let steps = Steps::endless();
                let pool = made(folder.path(), &steps);
                steps.set(left, usize::MAX);
                let is_done = pool.hand_over(false).is_ok();
                let durable = steps.durable.lock().unwrap().clone();
                let database = pool.database.clone();
                lose(pool);
                if !survives {
                    std::fs::write(&database, durable).unwrap();
                }
                let is_marked = mark::find(&std::fs::read(&database).unwrap()).is_some();
                let found = match is_marked {
                    true => recovered(folder.path()).1,
                    false => std::fs::read(&database).unwrap(),
                };
                let is_whole = found == file_of(5, BLOCKS);
                assert!(is_whole || !is_done && found.is_empty(), "{survives} {left}");
                assert!(is_whole != is_marked, "{survives} {left}");
                outcomes[usize::from(is_whole)] += 1;
                if is_done {
                    assert!(left > 3, "it was done before it did anything");
                    break;
                }
            }
        }
        assert!(outcomes.iter().all(|count| *count > 1), "{outcomes:?}");
    }

    /// A process dies at each step; the next one finds every commit, and nothing of what the first
    /// one left where the database has become another one.
    ///
    /// Guarantee: sqlite/killed-writer
    #[test]
    fn successor_fills_the_file_that_a_dead_process_began() {
        for left in 0.. {
            let folder = tempfile::tempdir_in("/dev/shm").unwrap();
            let steps = Steps::endless();
            let pool = made(folder.path(), &steps);
            steps.set(left, usize::MAX);
            let is_done = pool.hand_over(false).is_ok();
            drop(pool);
            let pool = attached(folder.path());
            let mut expected = file_of(5, BLOCKS);
            if pool.is_hot() {
                fill(&pool, 6, 1);
                fill_but(4, &pool, 6, 9);
                expected = file_of(6, 9);
                expected[4 * BLOCK_BYTES..][..BLOCK_BYTES].fill(0);
            }
            pool.detach().unwrap();
            let database = folder.path().join("db");
            assert!(std::fs::read(&database).unwrap() == expected, "{left} steps");
            let names = std::fs::read_dir(folder.path()).unwrap();
            let others = names.flatten().filter(|entry| entry.file_name() != "db-holdfast");
            assert_eq!(others.count(), 3, "home, pool, db");
            if is_done {
                break;
            }
        }
    }

    /// Blocks go to the file once, and not to the log; what is behind the mark is durable before the
    /// mark goes.
    ///
    /// Guarantee: sqlite/lost-pool
    #[test]
    fn new_file_is_written_once_and_durable_behind_its_mark() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let steps = Steps::endless();
        let pool = made(folder.path(), &steps);
        let records = pool.image.log_position().records();
        let mut turn = pool.log_turn();
        assert!(pool.fill_new_file(&mut turn).unwrap().is_some());
        assert_eq!((records, pool.image.log_position().records()), (0, 0));
        let durable = steps.durable.lock().unwrap();
        assert!(durable[SECTOR_BYTES..] == file_of(5, BLOCKS)[SECTOR_BYTES..]);
        assert!(mark::find(&durable).is_some());
    }

    /// A database of which the log has something goes there through the log, and one whose file is
    /// not ours any more is refused.
    ///
    /// Guarantee: sqlite/lost-pool
    /// Guarantee: sqlite/backups
    #[test]
    fn only_a_new_file_of_ours_is_filled() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let steps = Steps::endless();
        let pool = made(folder.path(), &steps);
        let mut turn = pool.log_turn();
        pool.prepare_log(&mut turn).unwrap();
        pool.flush_in_turn(&mut turn, None).unwrap();
        assert!(pool.fill_new_file(&mut turn).unwrap().is_none());
        drop(turn);
        assert_eq!(pool.base().size().unwrap(), mark::STAND_IN_BYTES);
        lose(pool);
        assert!(recovered(folder.path()).1 == file_of(5, BLOCKS));

        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let pool = made(folder.path(), &steps);
        let stand_in = std::fs::read(&pool.database).unwrap();
        let other = tempfile::tempdir_in("/dev/shm").unwrap();
        let foreign = std::fs::read(&made(other.path(), &steps).database).unwrap();
        std::fs::write(&pool.database, &foreign).unwrap();
        let refused = pool.hand_over(false);
        assert!(matches!(refused, Err(SqliteError::Replaced { .. })), "{refused:?}");
        assert_eq!(std::fs::read(&pool.database).unwrap(), foreign);
        std::fs::write(&pool.database, stand_in).unwrap();
        pool.hand_over(false).unwrap();
        assert!(std::fs::read(&pool.database).unwrap() == file_of(5, BLOCKS));
    }
}
