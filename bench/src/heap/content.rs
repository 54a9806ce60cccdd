//! The content of a measured heap: names that are looked up, and objects that take space.

use std::hint::black_box;
use std::io;
use std::ops::RangeInclusive;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::ground::{Ground, Store};
use super::live::{LiveHeap, heap_error};
use crate::stats::Series;
use crate::timing::processor_ns;

const ROOTS: usize = 10_000;
const ROOT_BYTES: u64 = 64;
const LOOKUPS: usize = 100_000;
const ROOTS_LIMIT_BYTES: u64 = 256 << 20;

const OBJECTS: usize = 1_000_000;
/// Of the curves, where there are fewer objects because they are larger.
const CURVE_BYTES: u64 = 400 << 20;
const SPACE_LIMIT_BYTES: u64 = 4 << 30;
/// Of ten objects so many have sizes in this range: most are small, most bytes are in the others.
const SIZES: [(usize, u64, u64); 4] = [(4, 16, 64), (3, 65, 256), (2, 257, 1024), (1, 1025, 4096)];

/// Nanoseconds for a look-up of a random one of 10,000 roots.
pub(crate) fn root_lookup_ns(ground: &Ground, rounds: usize) -> io::Result<Series> {
    let home = ground.home(Store::Memory)?;
    let mut live = LiveHeap::create(&home, ROOTS_LIMIT_BYTES)?;
    let mut names = Vec::with_capacity(ROOTS);
    for number in 0..ROOTS {
        let name = format!("documents/{number:05}/index");
        let object = live.heap.create_root(&name, ROOT_BYTES).map_err(heap_error)?;
        // SAFETY: the root's object, of 64 bytes, aligned to 16.
        unsafe { object.cast::<u64>().write(number as u64) };
        names.push(name);
    }
    let mut random = SmallRng::seed_from_u64(ROOTS as u64);
    let order: Vec<usize> = (0..LOOKUPS).map(|_| random.random_range(0..ROOTS)).collect();
    let mut series = Series::default();
    for _ in 0..rounds {
        let started_ns = processor_ns();
        let mut sum = 0;
        for number in &order {
            let root = live.heap.root(black_box(&names[*number]));
            let root = root.ok_or_else(|| io::Error::other("a root is gone"))?;
            // SAFETY: the root's object, as above.
            sum += unsafe { root.pointer.cast::<u64>().read() };
        }
        series.push((processor_ns() - started_ns) / LOOKUPS as f64);
        if sum != order.iter().sum::<usize>() as u64 {
            return Err(io::Error::other("a name led to another root"));
        }
    }
    live.close()?;
    Ok(series)
}

/// What is taken beyond what was asked for.
#[derive(Default)]
pub(crate) struct Overhead {
    /// Percent of the requested bytes, with all objects allocated one after the other.
    pub(crate) fresh_pct: Series,
    /// The same after each of as many random ones was replaced by one of another size.
    pub(crate) churned_pct: Series,
}

/// Backed bytes against requested bytes: all that the heap takes from the pool is counted.
pub(crate) fn space_overhead(ground: &Ground, rounds: usize) -> io::Result<Overhead> {
    overhead_of(ground, rounds, OBJECTS, size)
}

/// As [`space_overhead`], of objects whose sizes all are equally likely; so many of them, or what
/// fits into a heap of the curves.
pub(crate) fn space_overhead_between(
    ground: &Ground,
    rounds: usize,
    sizes: RangeInclusive<u64>,
    objects: usize,
) -> io::Result<Overhead> {
    let mean = (sizes.start() + sizes.end()) / 2;
    let objects = objects.min((CURVE_BYTES / mean) as usize);
    overhead_of(ground, rounds, objects, |random| random.random_range(sizes.clone()))
}

fn overhead_of(
    ground: &Ground,
    rounds: usize,
    count: usize,
    mut size: impl FnMut(&mut SmallRng) -> u64,
) -> io::Result<Overhead> {
    let home = ground.home(Store::Memory)?;
    let mut overhead = Overhead::default();
    for seed in 0..rounds as u64 {
        let mut live = LiveHeap::create(&home, SPACE_LIMIT_BYTES)?;
        let mut random = SmallRng::seed_from_u64(seed);
        let mut objects = Vec::with_capacity(count);
        for _ in 0..count {
            let bytes = size(&mut random);
            objects.push((live.heap.alloc(bytes).map_err(heap_error)?, bytes));
        }
        overhead.fresh_pct.push(percent(&live, &objects));
        for _ in 0..count {
            let place = &mut objects[random.random_range(0..count)];
            live.heap.free(place.0).map_err(heap_error)?;
            let bytes = size(&mut random);
            *place = (live.heap.alloc(bytes).map_err(heap_error)?, bytes);
        }
        overhead.churned_pct.push(percent(&live, &objects));
        // Not closed in order: a checkpoint of it is not needed.
    }
    Ok(overhead)
}

fn percent<T>(live: &LiveHeap, objects: &[(T, u64)]) -> f64 {
    let requested: u64 = objects.iter().map(|(_, bytes)| bytes).sum();
    (live.backed_bytes() as f64 / requested as f64 - 1.0) * 100.0
}

fn size(random: &mut SmallRng) -> u64 {
    let mut kind = random.random_range(0..SIZES.iter().map(|(weight, _, _)| weight).sum());
    for (weight, min, max) in SIZES {
        match kind.checked_sub(weight) {
            Some(left) => kind = left,
            None => return random.random_range(min..=max),
        }
    }
    SIZES[0].1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_their_weights() {
        let mut random = SmallRng::seed_from_u64(1);
        let sizes: Vec<u64> = (0..100_000).map(|_| size(&mut random)).collect();
        for (weight, min, max) in SIZES {
            let found = sizes.iter().filter(|size| (min..=max).contains(*size)).count();
            assert!(found.abs_diff(weight * 10_000) < 1000, "{found} of {min} to {max}");
        }
    }
}
