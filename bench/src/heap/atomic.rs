//! Commits in the mode `atomic`: what storing to some pages and making the stores count costs for
//! each page, in heaps of 64 MiB and of 1 GiB whose pages have all been read before.
//!
//! Each commit follows stores of one word to pages chosen at random: of the whole heap, or of a
//! working set. The time is that of the stores and of the commit together, because the kernel's
//! work at the first store to a page is the larger part of it. It is processor time: nothing here
//! waits.

use std::io;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::ground::{Ground, Store};
use super::raw::RawRegion;
use crate::race::{Side, Times, race};
use crate::timing::processor_ns;

/// Pages that are stored to before each commit.
const PAGES: usize = 256;
/// Commits that one value is the mean of.
const COMMITS: usize = 20;
/// Commits of nothing that one value is the mean of.
const EMPTY_COMMITS: usize = 1000;
/// Pages of the working set: 16 MiB.
const SET_PAGES: usize = 4096;
const SMALL_BYTES: u64 = 64 << 20;
const LARGE_BYTES: u64 = 1 << 30;

/// The sides: microseconds for a page.
pub(crate) const SMALL: &str = "64 MiB";
pub(crate) const LARGE_SET: &str = "1 GiB, working set";
pub(crate) const LARGE: &str = "1 GiB";
/// Microseconds for a commit.
pub(crate) const EMPTY: &str = "nothing";

pub(crate) fn run(ground: &Ground, rounds: usize) -> io::Result<Times> {
    let home = ground.home(Store::Memory)?;
    let mut small = RawRegion::create_atomic(&home, "small", SMALL_BYTES)?;
    let mut large_set = RawRegion::create_atomic(&home, "large-set", LARGE_BYTES)?;
    let mut large = RawRegion::create_atomic(&home, "large", LARGE_BYTES)?;
    let mut randoms = [1, 2, 3].map(SmallRng::seed_from_u64);
    let [first, second, third] = &mut randoms;
    let set = large_set.pages() / 2..large_set.pages() / 2 + SET_PAGES;
    let (all_small, all_large) = (0..small.pages(), 0..large.pages());
    // A commit of nothing comes after one of something in the same heap.
    let mut empty = RawRegion::create_atomic(&home, "empty", LARGE_BYTES / 4)?;
    let times = race(
        rounds,
        vec![
            Side::new(SMALL, || us_per_page(&mut small, first, &all_small)),
            Side::new(LARGE_SET, || us_per_page(&mut large_set, second, &set)),
            Side::new(LARGE, || us_per_page(&mut large, third, &all_large)),
            Side::new(EMPTY, || empty_us(&mut empty)),
        ],
    );
    for region in [small, large_set, large, empty] {
        region.abandon();
    }
    times
}

fn us_per_page(
    region: &mut RawRegion,
    random: &mut SmallRng,
    among: &std::ops::Range<usize>,
) -> io::Result<f64> {
    let started = processor_ns();
    for _ in 0..COMMITS {
        for _ in 0..PAGES {
            let page = among.start + random.random_range(0..among.len());
            region.store_word(page, random.random_range(0..512));
        }
        region.commit_process()?;
    }
    Ok((processor_ns() - started) / 1e3 / (COMMITS * PAGES) as f64)
}

fn empty_us(region: &mut RawRegion) -> io::Result<f64> {
    for page in 0..3 {
        region.store_word(page, 0);
        region.commit_process()?;
    }
    let started = processor_ns();
    for _ in 0..EMPTY_COMMITS {
        region.commit_process()?;
    }
    Ok((processor_ns() - started) / 1e3 / EMPTY_COMMITS as f64)
}
