//! What many heaps of one home cost: making one more, and what each takes that is not in use.

use std::fs;
use std::io::{self, Error};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Instant;

use holdfast_heap::{Fixed, Heap, OpenOptions, Pointers};
use holdfast_region::NameSpace;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

use super::ground::{Ground, Home, Store, name};
use super::live::heap_error;
use crate::stats::Series;
use crate::timing::ms_since;

/// What `holdfast` gives a heap whose limit is not said.
const LIMIT_BYTES: u64 = 64 << 20;
/// So many are made at each point of the curve.
const SAMPLES: u64 = 21;
/// The part of an image that is kept: what says whose it is.
const HEADERS_BYTES: u64 = 12 << 10;
/// The root of an idle heap.
const ROOT_BYTES: u64 = 100;
/// The objects beside it have at least so much, and less than the other.
const OBJECT_BYTES_MIN: u64 = 16;
const OBJECT_BYTES_MAX: u64 = 128;

/// Milliseconds that the *n*-th heap of a home takes, from the call to a region that can be mapped.
/// Heaps before it are made in the same way, and closed.
pub(crate) fn create_ms(ground: &Ground, points: &[u64]) -> io::Result<Vec<Series>> {
    let home = ground.home(Store::Memory)?;
    let (mut made, mut curve) = (0, Vec::new());
    for point in points {
        while made + SAMPLES <= *point {
            create(&home, made)?;
            made += 1;
        }
        let mut times = Series::default();
        for _ in 0..SAMPLES {
            times.push(create(&home, made)?);
            made += 1;
        }
        curve.push(times);
    }
    Ok(curve)
}

/// Makes the heap of a number, as a program of its own would find the home: nothing is remembered
/// from one to the next.
fn create(home: &Home, number: u64) -> io::Result<f64> {
    let names = NameSpace::new(home.names.places().clone());
    let heap = name(&format!("heap-{number}"))?;
    let started = Instant::now();
    let region = names.create(&heap, &home.key, LIMIT_BYTES).map_err(Error::other)?;
    let taken_ms = ms_since(started);
    // What is measured is making them; an image that no process closed takes as much room in the
    // name space, and no time of a disk.
    drop(region);
    // The pages of ten thousand would fill the machine: what is left is a hole.
    let image = fs::OpenOptions::new().write(true).open(home.image(heap.as_str()))?;
    let bytes = image.metadata()?.len();
    image.set_len(HEADERS_BYTES)?;
    image.set_len(bytes)?;
    Ok(taken_ms)
}

/// KiB that a small heap with one root, and so many other objects of noise, takes in the pool and
/// in the store once it is closed.
pub(crate) fn idle_kib(ground: &Ground, objects: u64) -> io::Result<[f64; 2]> {
    const NAME: &str = "idle";
    let home = ground.home(Store::Disk)?;
    let before = allocated_kib(&home)?;
    let mut region =
        home.names.create(&name(NAME)?, &home.key, LIMIT_BYTES).map_err(Error::other)?;
    let base = region.map_native().map_err(Error::other)?;
    // SAFETY: the mapping is this function's, aligned to pages and backed so far; the heap goes
    // before it.
    let backing = unsafe { Fixed::new(base.as_ptr(), region.backed_bytes()) };
    let pointers = Pointers { base: region.address(), bytes: 8 };
    let options = OpenOptions { pointers: Some(pointers), format_if_empty: true };
    let mut heap = Heap::open(backing, options).map_err(heap_error)?;
    let root = heap.create_root("root", ROOT_BYTES).map_err(heap_error)?;
    // SAFETY: a new object of that size, of which nothing else knows.
    unsafe { root.write_bytes(0xA5, ROOT_BYTES as usize) };
    let mut random = SmallRng::seed_from_u64(objects);
    for _ in 0..objects {
        let bytes = random.random_range(OBJECT_BYTES_MIN..OBJECT_BYTES_MAX);
        let object = heap.alloc(bytes).map_err(heap_error)?;
        for at in 0..bytes as usize {
            // SAFETY: a new object of that size, of which nothing else knows.
            unsafe { object.add(at).write(random.random()) };
        }
    }
    let _ = heap.close();
    region.close().map_err(Error::other)?;
    let after = allocated_kib(&home)?;
    Ok([after[0] - before[0], after[1] - before[1]])
}

fn allocated_kib(home: &Home) -> io::Result<[f64; 2]> {
    let places = home.names.places();
    let of = |directory: &Path| -> io::Result<f64> {
        let mut blocks = 0;
        for entry in fs::read_dir(directory)? {
            blocks += entry?.metadata()?.blocks();
        }
        Ok(blocks as f64 / 2.0)
    };
    Ok([of(places.pool())?, of(places.store())?])
}
