//! How full the pool is of blocks that the database file has not, when that is to be flushed, and
//! how long a transaction waits for it.
//!
//! A commit does not wait for the flusher. As long as three eighths of the pool are free of such
//! blocks it does not wait at all; from there on each transaction waits for its own blocks, after it
//! has given its locks back: at seven eighths as long as the disk takes for so many, below that for
//! a part of it, above it for a multiple. So a writer that is faster than the disk slows down to its
//! pace before the pool is full, and evenly.
//!
//! What is counted is an estimate, and errs on the side of too much: a block that is in two records
//! of the log counts twice. The pool is full only when no slot is to be had: see `direct.rs`.

#![forbid(unsafe_code)]

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use crate::image::BLOCK_BYTES;
use crate::pool::Pool;

/// A log is brought to the database file when it is longer than a quarter of the pool, within these
/// bounds.
const LOG_BYTES_MIN: u64 = 256 << 10;
const LOG_BYTES_MAX: u64 = 64 << 20;
/// A step with fewer blocks says nothing of the pace: it is the disk's answer that takes its time.
const BLOCKS_PACED_MIN: u32 = 128;
/// The pace of a step before one has ended: that of a slow disk, as the pool may be full until then.
const PACE_UNKNOWN_NS: u64 = 100_000;
/// Parts of the pool.
const WHOLE: u64 = 1024;
/// For a shorter time the processor is not given away: a sleep takes longer than that.
const SLEEP_MIN_NS: i64 = 50_000;
/// Who sleeps looks so often whether there still is a reason.
const SLEEP_MAX_NS: i64 = 5_000_000;
/// Nothing waits longer, whatever the estimates say.
const WAIT_NS_MAX: u64 = 60_000_000_000;
/// What a sleep takes too long counts for the next ones, up to this.
const CREDIT_NS: i64 = 1_000_000;

/// How long a connection is to wait for what it has committed, in nanoseconds; below 0 it has waited
/// for longer than that.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    ns: i64,
    /// For so many blocks.
    blocks: u32,
}

/// A step on the way of blocks to the database file, as this process does it.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// How many blocks are in it; 0: nothing is under way.
    blocks: AtomicU32,
    /// When it began, in nanoseconds of [`Pressure::now_ns`].
    started_ns: AtomicU64,
    /// What a block took in the last steps; 0: not known.
    pace_ns: AtomicU64,
}

impl Step {
    /// Relaxed, all of them: estimates.
    pub(crate) fn begin(&self, blocks: u32, now_ns: u64) {
        self.started_ns.store(now_ns, Relaxed);
        self.blocks.store(blocks, Relaxed);
    }

    pub(crate) fn end(&self, now_ns: u64) {
        let blocks = self.blocks.swap(0, Relaxed);
        if blocks < BLOCKS_PACED_MIN {
            return;
        }
        let found = now_ns.saturating_sub(self.started_ns.load(Relaxed)) / u64::from(blocks);
        let pace_ns = match self.pace_ns.load(Relaxed) {
            0 => found,
            before => (before + found) / 2,
        };
        self.pace_ns.store(pace_ns.max(1), Relaxed);
    }

    /// What a block takes, or at least what it has taken so far in the step that is under way.
    fn pace_ns(&self, now_ns: u64) -> u64 {
        let so_far = match self.blocks.load(Relaxed) {
            0 => 0,
            blocks => now_ns.saturating_sub(self.started_ns.load(Relaxed)) / u64::from(blocks),
        };
        match self.pace_ns.load(Relaxed) {
            0 => PACE_UNKNOWN_NS.max(so_far),
            known => known.max(so_far),
        }
    }
}

/// The steps of a database in this process.
#[derive(Debug)]
pub(crate) struct Pressure {
    since: Instant,
    /// From the pool to the log.
    flush: Step,
    /// From there to the database file.
    apply: Step,
}

impl Default for Pressure {
    fn default() -> Pressure {
        Pressure { since: Instant::now(), flush: Step::default(), apply: Step::default() }
    }
}

impl Pressure {
    pub(crate) fn now_ns(&self) -> u64 {
        self.since.elapsed().as_nanos() as u64
    }

    /// A flush of so many blocks, which began at that time.
    pub(crate) fn begin_flush(&self, blocks: u32, started_ns: u64) {
        self.flush.begin(blocks, started_ns);
    }

    pub(crate) fn end_flush(&self) {
        self.flush.end(self.now_ns());
    }

    pub(crate) fn begin_apply(&self, blocks: u32) {
        self.apply.begin(blocks, self.now_ns());
    }

    pub(crate) fn end_apply(&self) {
        self.apply.end(self.now_ns());
    }

    /// What a block takes on its way to the file.
    fn pace_ns(&self) -> u64 {
        let now_ns = self.now_ns();
        self.flush.pace_ns(now_ns) + self.apply.pace_ns(now_ns)
    }
}

/// How long a block is waited for, with so many parts of the pool taken by blocks that the file has
/// not.
fn wait_ns(pace_ns: u64, taken: u64) -> u64 {
    const FREE: u64 = WHOLE / 8 * 5;
    // As much as a checkpoint takes away at once: with less the writer would stop and go.
    const QUARTER: u64 = WHOLE / 4;
    match taken {
        0..=FREE => 0,
        taken if taken <= FREE + QUARTER => pace_ns * (taken - FREE) / QUARTER,
        // Twice as long with each further part of 64: the last eighth is for a disk that has become
        // much slower, until it is known how slow.
        taken => pace_ns << ((taken.min(WHOLE) - FREE - QUARTER) / (WHOLE / 64)),
    }
}

impl Pool {
    /// Changed blocks after which a flush is due.
    fn threshold(&self) -> u64 {
        self.settings.threshold(self.image.limit())
    }

    /// Blocks that the log has, and the file may not have.
    #[inline]
    fn logged(&self) -> u64 {
        u64::from(self.image.log_position().blocks())
    }

    /// Blocks that the file has not, about.
    fn unapplied(&self) -> u64 {
        let under_way = u64::from(self.pressure.flush.blocks.load(Relaxed));
        u64::from(self.image.commits().dirty()) + under_way + self.logged()
    }

    /// Whether the log is to be brought to the database file.
    #[inline]
    pub(crate) fn is_log_long(&self) -> bool {
        let quarter = u64::from(self.image.limit()) * BLOCK_BYTES as u64 / 4;
        let bytes_max = quarter.clamp(LOG_BYTES_MIN, LOG_BYTES_MAX);
        self.image.log_position().tail() > bytes_max
            || self.logged() > bytes_max / BLOCK_BYTES as u64
    }

    /// Whether a flush is due: more has changed than the threshold says, the log is long, or half
    /// of the pool is taken.
    #[inline]
    pub(crate) fn is_flush_due(&self) -> bool {
        let dirty = u64::from(self.image.commits().dirty());
        dirty > self.threshold() || self.is_log_long() || {
            let limit = u64::from(self.image.limit());
            dirty > limit / 8 && dirty + self.logged() > limit / 2
        }
    }

    /// How long so many blocks are waited for.
    #[inline]
    fn wait_ns(&self, blocks: u32) -> i64 {
        let (taken, limit) = (self.unapplied(), u64::from(self.image.limit()));
        if taken <= limit / 8 * 5 {
            return 0;
        }
        let wait_ns = wait_ns(self.pressure.pace_ns(), taken * WHOLE / limit.max(1));
        wait_ns.saturating_mul(u64::from(blocks)).min(WAIT_NS_MAX) as i64
    }

    /// Counts the blocks that a connection has changed.
    #[inline]
    pub(crate) fn charge(&self, owed: &mut Owed, blocks: u32) {
        let wait_ns = self.wait_ns(blocks);
        if wait_ns > 0 {
            owed.ns += wait_ns;
            owed.blocks = owed.blocks.saturating_add(blocks);
        }
    }

    /// Waits for as long as a connection owes, or would for what it has changed with the pool as it
    /// is meanwhile.
    #[inline]
    pub(crate) fn pay(&self, owed: &mut Owed) {
        if owed.ns > 0 {
            self.wait_while_full(owed);
        }
    }

    #[cold]
    fn wait_while_full(&self, owed: &mut Owed) {
        while owed.ns > 0 {
            let started = Instant::now();
            let elapsed_ns = || started.elapsed().as_nanos() as i64;
            if owed.ns < SLEEP_MIN_NS {
                while elapsed_ns() < owed.ns {
                    std::hint::spin_loop();
                }
            } else {
                std::thread::sleep(Duration::from_nanos(owed.ns.min(SLEEP_MAX_NS) as u64));
            }
            let left = owed.ns - elapsed_ns();
            owed.ns = left.min(self.wait_ns(owed.blocks)).max(-CREDIT_NS);
        }
        owed.blocks = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// More is never waited for with less, and at seven eighths a block takes what the disk takes
    /// for it.
    #[test]
    fn waits_grow_with_what_is_taken() {
        let waits: Vec<u64> = (0..=WHOLE).map(|taken| wait_ns(1000, taken)).collect();
        assert!(waits.is_sorted());
        assert_eq!((waits[640], waits[768], waits[896], waits[1024]), (0, 500, 1000, 256_000));
        // No step is a stall: each is at most twice the one before.
        assert!(waits[642..].windows(2).all(|pair| pair[1] <= 2 * pair[0].max(8)));
        assert_eq!(wait_ns(1000, 9 * WHOLE), 256_000);
    }

    #[test]
    fn pace_is_of_long_steps_and_of_the_one_under_way() {
        let step = Step::default();
        step.begin(BLOCKS_PACED_MIN - 1, 0);
        step.end(1 << 40);
        assert_eq!(step.pace_ns(0), PACE_UNKNOWN_NS);
        step.begin(1000, 5000);
        step.end(205_000);
        assert_eq!(step.pace_ns(1 << 40), 200);
        step.begin(1000, 0);
        assert_eq!((step.pace_ns(100_000), step.pace_ns(300_000)), (200, 300));
        step.end(400_000);
        assert_eq!(step.pace_ns(0), 300);
    }

    /// On a slow disk a writer that does not pause slows down to the disk's pace, evenly, and the
    /// pool stays within its limit. It does what a connection does. What a commit waits for is
    /// counted in blocks that the disk takes meanwhile, as a machine that does other things holds
    /// up both.
    #[test]
    fn writer_slows_down_evenly_on_a_slow_disk() {
        use crate::testing::{commit_counted, hot_on_slow};

        const LIMIT: u32 = 1024;
        const COMMITS: u32 = 5000;
        /// What a stall waits for is the rest of a checkpoint, of a quarter of the pool.
        const WAITED_MAX: usize = LIMIT as usize / 8;
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        // About 8 MB a second.
        let pace = (Duration::from_micros(450), Duration::from_millis(10));
        let (pool, writes) = hot_on_slow(folder.path(), (8001, LIMIT), pace);
        let taken_since = || {
            let writes: Vec<(u64, usize)> = writes.lock().unwrap().drain(..).collect();
            writes.iter().map(|(_, bytes)| bytes.div_ceil(BLOCK_BYTES)).sum::<usize>()
        };
        let (mut owed, mut longest, mut taken) = (Owed::default(), 0, 0);
        for number in 0..COMMITS {
            let block = number * 4999 % 8000 + 1;
            let blocks = commit_counted(&pool, block, 8001);
            pool.charge(&mut owed, blocks);
            pool.flush_if_due().unwrap();
            pool.pay(&mut owed);
            assert!(pool.image.used() <= LIMIT);
            let waited = taken_since();
            longest = longest.max(waited);
            taken += waited;
        }
        pool.flusher.stop();
        println!("{longest} blocks of {taken}");
        assert!(taken > 2 * LIMIT as usize, "the disk was not waited for: {taken} blocks");
        assert!(longest <= WAITED_MAX, "a commit waited for {longest} blocks of {taken}");
    }
}
