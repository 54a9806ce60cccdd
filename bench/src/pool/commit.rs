//! What a commit of one dirty page costs at each level, on each kind of pool that can be had here.
//!
//! A commit follows a store of one word to a random page of 16 MiB; both are in the time. The store is on the disk of the
//! build for all.

use std::io;
use std::time::Instant;

use holdfast_region::Durability;

use crate::heap::ground::{Ground, Store};
use crate::heap::random::Random;
use crate::heap::raw::RawRegion;
use crate::stats::Series;

const REGION_BYTES: u64 = 16 << 20;
/// Commits that one value is the mean of, where nothing waits for a disk and where everything does.
const COMMITS: usize = 2000;
const SYNCED_COMMITS: usize = 20;

/// Microseconds for a commit; the name is that of the key.
pub(super) fn run(ground: &Ground, rounds: usize) -> io::Result<Vec<(String, Series)>> {
    let mut found = Vec::new();
    for kind in ["tmpfs", "disk"] {
        let home = if kind == "disk" { ground.home_on_disk() } else { ground.home(Store::Disk) }?;
        let mut region = RawRegion::create(&home, "committed", REGION_BYTES)?;
        region.checkpoint()?;
        for (level, durability, count) in
            [("process", Durability::Process, COMMITS), ("power", Durability::Power, SYNCED_COMMITS)]
        {
            let series = (0..=rounds).map(|_| once(&mut region, durability, count)).skip(1);
            found.push((format!("commit_{kind}_{level}_us"), series.collect::<io::Result<_>>()?));
        }
        region.close()?;
    }
    Ok(found)
}

fn once(region: &mut RawRegion, durability: Durability, count: usize) -> io::Result<f64> {
    let (mut random, pages) = (Random::new(count as u64), region.pages());
    let started = Instant::now();
    for _ in 0..count {
        region.store_word(random.below(pages), random.below(512));
        region.commit(durability)?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / count as f64)
}
