//! Measures a commit of one dirty page at each level, on each kind of pool that can be had here:
//! ours after a store of one word; and of a page of 4 KiB that is replaced, by us and by peers.
//!
//! Invariants: a commit follows a store to a random page of 16 MiB, and both are in the time. The
//! store is on the disk of the build for all. In the race all sides replace the same pages in the
//! same order by the same bytes, in turns, and what they have afterwards is compared. A side keeps
//! its files from one turn to the next.

use std::io::{self, Error};
use std::time::Instant;

use holdfast_region::Durability;
use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

use super::ordered::Ordered;
use super::pages::{HOLDFAST, LMDB, PAGE_BYTES, PAGES, PMDK, Pages, SQLITE};
use crate::heap::ground::{Ground, Store};
use crate::heap::raw::RawRegion;
use crate::race::{Side, Times, race};
use crate::stats::Series;

const REGION_BYTES: u64 = (PAGES * PAGE_BYTES) as u64;
/// Commits that one value is the mean of, where nothing waits for a disk.
const COMMITS: usize = 2000;
/// Where everything does: of words, and of pages.
const SYNCED_COMMITS: usize = 20;
const SYNCED_PAGE_COMMITS: usize = 64;

/// Microseconds for a commit; the name is that of the key.
pub(super) fn of_words(ground: &Ground, rounds: usize) -> io::Result<Vec<(String, Series)>> {
    let mut found = Vec::new();
    for kind in ["tmpfs", "disk"] {
        let home = if kind == "disk" { ground.home_on_disk() } else { ground.home(Store::Disk) }?;
        let mut region = RawRegion::create(&home, "committed", REGION_BYTES)?;
        region.checkpoint()?;
        for (level, durability, count) in [
            ("process", Durability::Process, COMMITS),
            ("power", Durability::Power, SYNCED_COMMITS),
        ] {
            let series = (0..=rounds).map(|_| commit_words(&mut region, durability, count)).skip(1);
            found.push((format!("commit_{kind}_{level}_us"), series.collect::<io::Result<_>>()?));
        }
        region.close()?;
    }
    Ok(found)
}

fn commit_words(region: &mut RawRegion, durability: Durability, count: usize) -> io::Result<f64> {
    let (mut random, pages) = (SmallRng::seed_from_u64(count as u64), region.pages());
    let started = Instant::now();
    for _ in 0..count {
        region.store_word(random.random_range(0..pages), random.random_range(0..512));
        region.commit(durability)?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / count as f64)
}

/// One question: a pool and a level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) pool: &'static str,
    pub(super) level: &'static str,
    durability: Durability,
    commits: usize,
    pub(super) peers: &'static [&'static str],
}

impl Case {
    const fn new(
        pool: &'static str,
        durability: Durability,
        peers: &'static [&'static str],
    ) -> Case {
        let (level, commits) = match (durability, pool.as_bytes()) {
            (Durability::Process, _) => ("process", COMMITS),
            (Durability::System, b"dax") => ("system", COMMITS),
            (Durability::System, _) => ("system", SYNCED_PAGE_COMMITS),
            _ => ("power", SYNCED_PAGE_COMMITS),
        };
        Case { pool, level, durability, commits, peers }
    }

    /// Whether a peer has to wait for the disk, too.
    #[cfg(any(feature = "peers", feature = "sqlite"))]
    fn is_synced(self) -> bool {
        self.durability == Durability::Power
    }

    /// Where a peer's files are: on the disk if ours are, or if it has to survive a power cut.
    #[cfg(any(feature = "peers", feature = "sqlite"))]
    fn directory(self, ground: &Ground, name: &str) -> io::Result<std::path::PathBuf> {
        if self.is_synced() || self.pool == "disk" {
            ground.on_disk(name)
        } else {
            ground.in_memory(name)
        }
    }
}

/// All questions. The level `system` is another than `power` only where memory outlives a reset.
pub(super) const CASES: [Case; 6] = [
    Case::new("tmpfs", Durability::Process, &[LMDB, SQLITE]),
    Case::new("tmpfs", Durability::Power, &[LMDB, SQLITE]),
    Case::new("disk", Durability::Process, &[LMDB, SQLITE]),
    Case::new("disk", Durability::Power, &[LMDB, SQLITE]),
    Case::new("dax", Durability::System, &[PMDK]),
    Case::new("dax", Durability::Power, &[LMDB, SQLITE]),
];

/// Microseconds for a commit.
pub(super) fn of_pages(ground: &Ground, rounds: usize, case: Case) -> io::Result<Times> {
    let mut sides = vec![(HOLDFAST, ours(ground, case)?)];
    for name in case.peers {
        sides.extend(peer(ground, case, name)?.map(|pages| (*name, pages)));
    }
    let mut turns: Vec<_> =
        sides.iter_mut().map(|(name, pages)| (*name, &mut **pages, 0)).collect();
    let sides = turns.iter_mut().map(|(name, pages, turn)| {
        Side::new(name, move || {
            *turn += 1;
            replace_pages(*pages, *turn, case.commits)
        })
    });
    race(rounds, sides.collect())
}

fn ours(ground: &Ground, case: Case) -> io::Result<Box<dyn Pages>> {
    if case.pool == "dax" {
        return Ok(Box::new(Ordered::new(ground, case.durability)?));
    }
    let home = if case.pool == "disk" { ground.home_on_disk() } else { ground.home(Store::Disk) }?;
    let mut region = RawRegion::create(&home, "committed", REGION_BYTES)?;
    region.checkpoint()?;
    Ok(Box::new(Plain { region, durability: case.durability }))
}

/// A region without a heap.
struct Plain {
    region: RawRegion,
    durability: Durability,
}

impl Pages for Plain {
    fn replace(&mut self, page: usize, content: &[u8; PAGE_BYTES]) -> io::Result<()> {
        self.region.store_page(page, content);
        self.region.commit(self.durability)
    }

    fn first_word(&mut self, page: usize) -> io::Result<u64> {
        Ok(self.region.first_word(page))
    }
}

/// `None`: it was not built in.
#[cfg(not(any(feature = "peers", feature = "sqlite")))]
fn peer(_ground: &Ground, _case: Case, _name: &str) -> io::Result<Option<Box<dyn Pages>>> {
    Ok(None)
}

/// `None` where it was not built in, or is not installed.
#[cfg(any(feature = "peers", feature = "sqlite"))]
fn peer(ground: &Ground, case: Case, name: &str) -> io::Result<Option<Box<dyn Pages>>> {
    match name {
        #[cfg(feature = "peers")]
        LMDB => {
            use crate::heap::kv::Sync;
            use crate::heap::peers::lmdb::Lmdb;
            let sync = if case.is_synced() { Sync::Yes } else { Sync::No };
            Ok(Some(Box::new(Lmdb::with_pages(&case.directory(ground, name)?, sync)?)))
        }
        #[cfg(feature = "peers")]
        PMDK => {
            Ok(super::pmdk::PmdkPages::open(ground)?.map(|pages| Box::new(pages) as Box<dyn Pages>))
        }
        #[cfg(feature = "sqlite")]
        SQLITE => {
            let pages =
                super::sqlite::SqlitePages::new(&case.directory(ground, name)?, case.is_synced())?;
            Ok(Some(Box::new(pages)))
        }
        _ => Ok(None),
    }
}

/// Microseconds for a commit, of so many.
fn replace_pages(pages: &mut dyn Pages, turn: u64, commits: usize) -> io::Result<f64> {
    let mut random = SmallRng::seed_from_u64(turn);
    let mut content = [0; PAGE_BYTES];
    random.fill_bytes(&mut content);
    let order: Vec<usize> = (0..commits).map(|_| random.random_range(0..PAGES)).collect();
    let word = |number: usize| turn << 32 | number as u64;
    let started = Instant::now();
    for (number, page) in order.iter().enumerate() {
        content[..8].copy_from_slice(&word(number).to_le_bytes());
        pages.replace(*page, &content)?;
    }
    let taken_us = started.elapsed().as_secs_f64() * 1e6;
    for (number, page) in order.iter().enumerate() {
        let is_last = !order[number + 1..].contains(page);
        if is_last && pages.first_word(*page)? != word(number) {
            return Err(Error::other("a committed page has other bytes"));
        }
    }
    Ok(taken_us / commits as f64)
}
