//! The cost of a warm open inside a process: from the name of a heap to a pointer to its data.

use std::hint::black_box;
use std::io;
use std::time::Instant;

use holdfast_heap::{Fixed, Heap, OpenOptions};
use holdfast_region::{NameSpace, OwnerKey, Region, RegionName};

use crate::stats::Series;
use crate::timing::ms_since;

/// Opens the heap `count` times. Each time has in it: name and lock, the checks of header and key,
/// the mapping, the heap's own open, and the look-up of a root. Closing is outside.
pub(crate) fn measure(
    names: &NameSpace,
    heap: &str,
    key: &str,
    count: usize,
) -> io::Result<Series> {
    let name = RegionName::parse(heap).map_err(io::Error::other)?;
    let key = OwnerKey::load_or_create(names.places(), key).map_err(io::Error::other)?;
    let root = any_root(open(names, &name, &key)?)?;
    let mut series = Series::default();
    for _ in 0..count {
        let started = Instant::now();
        let (region, heap) = open(names, &name, &key)?;
        let found = black_box(heap.root(black_box(&root)));
        series.push(ms_since(started));
        if found.is_none() {
            return Err(io::Error::other(format!("the root {root} is gone")));
        }
        close(region, heap)?;
    }
    Ok(series)
}

fn any_root((region, heap): (Region, Heap<Fixed>)) -> io::Result<String> {
    let root = heap.roots().next().map(|(name, _)| name.to_owned());
    close(region, heap)?;
    root.ok_or_else(|| io::Error::other("the heap has no root; was it built?"))
}

fn open(names: &NameSpace, name: &RegionName, key: &OwnerKey) -> io::Result<(Region, Heap<Fixed>)> {
    let mut region = names.open(name, key).map_err(io::Error::other)?;
    let base = region.map_native().map_err(io::Error::other)?;
    // SAFETY: the mapping is page-aligned, as large as said, readable, and writable from the first
    // store on; the region is held, so no other process writes; `close` drops the heap before the
    // mapping.
    let backing = unsafe { Fixed::new(base.as_ptr(), region.backed_bytes()) };
    let heap = Heap::open(backing, OpenOptions::default())
        .map_err(|error| io::Error::other(error.to_string()))?;
    Ok((region, heap))
}

fn close(region: Region, heap: Heap<Fixed>) -> io::Result<()> {
    heap.close();
    let closed = region.close().map_err(io::Error::other)?;
    if closed.checkpoint.skipped {
        return Ok(());
    }
    Err(io::Error::other("a warm open wrote to the heap"))
}
