//! Growth: blocks behind the end of the database file are written there at once, and not to the
//! redo log first, as no state of the database that a recovery could come to has them.
//!
//! Invariants:
//! - Only blocks behind the end of the file go there, and behind that of the database as of every
//!   record of the log's generation. So no record, and no commit that is durable, has another
//!   version of one of them.
//! - Before the first one is written the log has a record that says how long the database is
//!   without them: a recovery cuts off what a flush left that broke off.
//! - They are durable before the record that counts them in is written.
//! - The first block, which bears the mark, is never one of them.

#![forbid(unsafe_code)]

use std::collections::HashMap;

use crate::base::{Base, read_mark};
use crate::error::Result;
use crate::image::BLOCK_BYTES;
use crate::log::{Log, Version};
use crate::pool::Pool;

/// With fewer blocks the log is written to: what they cost twice is less than to wait for the disk
/// once more, for each of the two files.
const BLOCKS_MIN: usize = 2048;
/// Blocks that are written together: what the processor's cache holds.
const BLOCKS_AT_ONCE: usize = 256;

/// Blocks on their way to the end of the file.
#[derive(Debug)]
pub(crate) struct Growth {
    /// The first block that may go there.
    first: u32,
    numbers: Vec<u32>,
    /// Of each of these its bytes.
    pages: Vec<u8>,
    /// Of each block where it is among them.
    order: HashMap<u32, usize>,
    /// How many were written.
    written: u32,
}

impl Growth {
    pub(crate) fn new(first: u32) -> Growth {
        Growth { first, numbers: Vec::new(), pages: Vec::new(), order: HashMap::new(), written: 0 }
    }

    /// Whether a block goes there.
    pub(crate) fn takes(&self, block: u32) -> bool {
        block >= self.first
    }

    /// Room for the bytes of a block; for those of an earlier version that were not written, the
    /// same.
    pub(crate) fn page_of(&mut self, block: u32) -> &mut [u8] {
        let number = *self.order.entry(block).or_insert(self.numbers.len());
        if number == self.numbers.len() {
            self.numbers.push(block);
            self.pages.resize(self.numbers.len() * BLOCK_BYTES, 0);
        }
        &mut self.pages[number * BLOCK_BYTES..][..BLOCK_BYTES]
    }

    /// Writes what is worth a write.
    pub(crate) fn write_some(&mut self, base: &dyn Base) -> Result<()> {
        match self.numbers.len() < BLOCKS_AT_ONCE {
            true => Ok(()),
            false => self.write_all(base),
        }
    }

    /// Writes all that is here, neighbours at once.
    pub(crate) fn write_all(&mut self, base: &dyn Base) -> Result<()> {
        let mut at = 0;
        for run in self.numbers.chunk_by(|one, other| one + 1 == *other) {
            let bytes = run.len() * BLOCK_BYTES;
            base.write(u64::from(run[0]) * BLOCK_BYTES as u64, &self.pages[at..at + bytes])?;
            at += bytes;
        }
        self.written += self.numbers.len() as u32;
        self.numbers.clear();
        self.pages.clear();
        self.order.clear();
        Ok(())
    }

    /// Blocks that go there, about: one that is written twice counts twice.
    pub(crate) fn blocks(&self) -> u32 {
        self.written + self.numbers.len() as u32
    }
}

impl Pool {
    /// Whether enough of what is to be flushed, which is in order, is behind the end of the file.
    pub(crate) fn begin_growth(
        &self,
        log: &mut Log,
        found: &[(u32, Version)],
    ) -> Result<Option<Growth>> {
        let position = self.image.log_position();
        let Some(logged) = log.longest(position.salt(), position.records()) else {
            // Not all of its records are known here.
            return Ok(None);
        };
        let there = self.base().size()?;
        let end = there.max(logged).div_ceil(BLOCK_BYTES as u64).max(1);
        let Ok(first) = u32::try_from(end) else { return Ok(None) };
        if found.len() - found.partition_point(|(block, _)| *block < first) < BLOCKS_MIN {
            return Ok(None);
        }
        self.check_mark()?;
        if position.records() == 0 {
            let was_empty = read_mark(self.base())?.0.is_some_and(|mark| mark.was_empty);
            let size = if was_empty { 0 } else { there };
            self.finish_record(log, (self.image.commits().applied(), size), false)?;
            log.begin((position.salt(), position.records()), false);
        }
        Ok(Some(Growth::new(first)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::base::OwnFile;
    use crate::testing::{
        Dying, Steps, attached_over, commit, first_page, lose, make_database, recovered,
    };

    const LARGE: usize = BLOCKS_MIN + 300;

    fn fresh() -> tempfile::TempDir {
        tempfile::tempdir_in("/dev/shm").unwrap()
    }

    /// A database of four blocks, hot, over a file that takes steps.
    fn hot_over(folder: &std::path::Path) -> (Pool, Arc<Steps>) {
        let database = make_database(folder, 4);
        let steps = Steps::endless();
        let base = Dying(OwnFile::open(&database).unwrap(), Arc::clone(&steps));
        let pool = attached_over(folder, Box::new(base));
        assert!(pool.heat(pool.base()).unwrap());
        (pool, steps)
    }

    /// Commits the same to all blocks but the first.
    fn fill(pool: &Pool, fill: u8, size_blocks: usize) {
        let blocks: Vec<_> = (1..size_blocks as u32).map(|block| (block, fill)).collect();
        commit(pool, &blocks, size_blocks).unwrap();
    }

    fn file_of(blocks: &[(u8, usize)]) -> Vec<u8> {
        let filled = blocks.iter().map(|(fill, count)| vec![*fill; count * BLOCK_BYTES]);
        [vec![first_page()], filled.collect()].concat().concat()
    }

    /// The machine goes at each step that the file takes, with all or nothing of what was not
    /// synced; with a record in the log before, and without.
    ///
    /// Guarantee: sqlite/lost-pool
    #[test]
    fn growth_that_breaks_off_is_cut_off() {
        let mut outcomes = [0; 2];
        for (survives, has_record) in [(true, true), (true, false), (false, true), (false, false)] {
            for left in 0.. {
                let folder = fresh();
                let (pool, steps) = hot_over(folder.path());
                let mut before = file_of(&[(1, 3)]);
                if has_record {
                    fill(&pool, 2, 4);
                    pool.flush_and_tidy().unwrap();
                    before = file_of(&[(2, 3)]);
                }
                fill(&pool, 3, LARGE);
                steps.set(left, usize::MAX);
                let is_done = pool.flush_and_tidy().is_ok();
                let durable = steps.durable.lock().unwrap().clone();
                let database = pool.database.clone();
                lose(pool);
                if !survives {
                    std::fs::write(&database, durable).unwrap();
                }
                let (_, found) = recovered(folder.path());
                let is_after = found == file_of(&[(3, LARGE - 1)]);
                assert!(is_after || !is_done && found == before, "{survives} {has_record} {left}");
                outcomes[usize::from(is_after)] += 1;
                if is_done {
                    break;
                }
            }
        }
        assert!(outcomes.iter().all(|count| *count > 10), "{outcomes:?}");
    }

    /// Blocks that the log has, and the file has not, go to the log again: what is in the file would
    /// be overwritten by what the log has of them.
    ///
    /// Guarantee: sqlite/lost-pool
    #[test]
    fn blocks_that_the_log_has_do_not_go_past_it() {
        let folder = fresh();
        let (pool, _) = hot_over(folder.path());
        fill(&pool, 2, 100);
        pool.flush_and_tidy().unwrap();
        assert_eq!(pool.base().size().unwrap(), 4 * BLOCK_BYTES as u64);
        fill(&pool, 3, LARGE);
        let mut turn = pool.log_turn();
        pool.prepare_log(&mut turn).unwrap();
        pool.flush_in_turn(&mut turn, None).unwrap();
        drop(turn);
        assert_eq!(pool.base().size().unwrap(), (LARGE * BLOCK_BYTES) as u64);
        lose(pool);
        assert!(recovered(folder.path()).1 == file_of(&[(3, LARGE - 1)]));
    }

    /// What the file grows by is written to it once, and not to the log; then the file is as of the
    /// flush.
    #[test]
    fn growth_is_written_once() {
        let folder = fresh();
        let (pool, steps) = hot_over(folder.path());
        fill(&pool, 2, LARGE);
        steps.set(usize::MAX, 0);
        pool.flush_and_tidy().unwrap();
        let log = std::fs::metadata(pool.log_path()).unwrap().len();
        assert!(log < 1 << 20, "{log} bytes of log");
        assert!(pool.image.commits().is_applied());
        // An empty database has no first block in its file.
        assert!(usize::MAX - steps.left.load(SeqCst) < 40, "many writes");
    }
}
