//! A commit of 4 KiB: one of 4096 pages is replaced and committed, by us on each kind of pool and by peers that promise as
//! much as our level does on that pool.
//!
//! Invariants: all sides replace the same pages in the same order by the same bytes, in turns, and what they have afterwards
//! is compared. A side keeps its files from one turn to the next.

use std::io::{self, Error};
use std::time::Instant;

use holdfast_region::Durability;

use super::ordered::Ordered;
use crate::heap::ground::{Ground, Store};
use crate::heap::random::Random;
use crate::heap::raw::RawRegion;
use crate::race::{Side, Times, race};

/// Bytes of a page.
pub(crate) const PAGE_BYTES: usize = 4096;
/// How many there are: 16 MiB.
pub(crate) const PAGES: usize = 4096;
/// Our side.
pub(super) const HOLDFAST: &str = "holdfast";
/// Peers, by the end of a key.
pub(super) const LMDB: &str = "lmdb";
pub(super) const SQLITE: &str = "sqlite";
pub(super) const PMDK: &str = "pmdk";
/// Commits of a turn that do not wait for a disk, and of one that do.
const COMMITS: usize = 2000;
const SYNCED_COMMITS: usize = 64;

/// Something that has [`PAGES`] pages.
pub(crate) trait Pages {
    /// Replaces one and commits.
    fn replace(&mut self, page: usize, content: &[u8; PAGE_BYTES]) -> io::Result<()>;
    /// The first word of one.
    fn first_word(&mut self, page: usize) -> io::Result<u64>;
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
    const fn new(pool: &'static str, durability: Durability, peers: &'static [&'static str]) -> Case {
        let (level, commits) = match (durability, pool.as_bytes()) {
            (Durability::Process, _) => ("process", COMMITS),
            (Durability::System, b"dax") => ("system", COMMITS),
            (Durability::System, _) => ("system", SYNCED_COMMITS),
            _ => ("power", SYNCED_COMMITS),
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
        if self.is_synced() || self.pool == "disk" { ground.on_disk(name) } else { ground.in_memory(name) }
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
pub(super) fn run(ground: &Ground, rounds: usize, case: Case) -> io::Result<Times> {
    let mut sides = vec![(HOLDFAST, ours(ground, case)?)];
    for name in case.peers {
        sides.extend(peer(ground, case, name)?.map(|pages| (*name, pages)));
    }
    let mut turns: Vec<_> = sides.iter_mut().map(|(name, pages)| (*name, &mut **pages, 0)).collect();
    let sides = turns.iter_mut().map(|(name, pages, turn)| {
        Side::new(name, move || {
            *turn += 1;
            once(*pages, *turn, case.commits)
        })
    });
    race(rounds, sides.collect())
}

fn ours(ground: &Ground, case: Case) -> io::Result<Box<dyn Pages>> {
    if case.pool == "dax" {
        return Ok(Box::new(Ordered::new(ground, case.durability)?));
    }
    let home = if case.pool == "disk" { ground.home_on_disk() } else { ground.home(Store::Disk) }?;
    let mut region = RawRegion::create(&home, "committed", (PAGES * PAGE_BYTES) as u64)?;
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
        PMDK => Ok(super::pmdk::PmdkPages::open(ground)?.map(|pages| Box::new(pages) as Box<dyn Pages>)),
        #[cfg(feature = "sqlite")]
        SQLITE => {
            let pages = super::sqlite::SqlitePages::new(&case.directory(ground, name)?, case.is_synced())?;
            Ok(Some(Box::new(pages)))
        }
        _ => Ok(None),
    }
}

/// Microseconds for a commit, of so many.
fn once(pages: &mut dyn Pages, turn: u64, commits: usize) -> io::Result<f64> {
    let mut random = Random::new(turn);
    let mut content = [0; PAGE_BYTES];
    random.fill(&mut content);
    let order: Vec<usize> = (0..commits).map(|_| random.below(PAGES)).collect();
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
