//! What a program reserves is ready to be filled: in huge pages, so that few stores fault.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(unsafe_code, reason = "fills the objects that it allocates")]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use holdfast_heap::Heap;
use holdfast_native_heap::{RegionBacking, open_heap};
use holdfast_region::{NameSpace, OwnerKey, Places, RegionName};
use holdfast_sys::mapping::gather_huge_pages;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;
const MEMORY: &str = "/dev/shm";

/// The heap of the name `heap`, with its pool in memory.
fn open(home: &TempDir, pool: &TempDir) -> Heap<RegionBacking> {
    let places = Places::at(home.path().join("home"), pool.path().join("pool")).unwrap();
    let key = OwnerKey::from_bytes([3; 32]);
    let name = RegionName::parse("heap").unwrap();
    let region = NameSpace::new(places).open_or_create(&name, &key, 64 * MIB).unwrap();
    open_heap(region).unwrap().0
}

/// Page faults of this thread so far that needed no disk.
fn faults() -> u64 {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(7).unwrap().parse().unwrap()
}

/// Stores to each page of an object, and says how many faults that took.
fn fill(object: *mut u8, bytes: u64, byte: u8) -> u64 {
    let before = faults();
    for at in (0..bytes).step_by(PAGE_BYTES as usize) {
        // SAFETY: inside the object.
        unsafe { object.add(at as usize).write(byte) };
    }
    faults() - before
}

fn is_filled(object: *const u8, bytes: u64, byte: u8) -> bool {
    let mut pages = (0..bytes).step_by(PAGE_BYTES as usize);
    // SAFETY: inside the object.
    pages.all(|at| unsafe { object.add(at as usize).read() } == byte)
}

/// The stores that fill what was reserved fault once for each huge page, not for each small one,
/// and what was stored before is as it was, also in the next session.
///
/// Guarantee: heap/reserve
#[test]
fn reserved_room_is_filled_with_few_faults() {
    let probe = tempfile::tempfile_in(Path::new(MEMORY)).unwrap();
    probe.write_all_at(&[0; 4 << 20], 0).unwrap();
    if let Err(error) = gather_huge_pages(&probe, 0, 4 * MIB as usize) {
        println!("not run: the kernel gathers no huge pages on request: {error}");
        return;
    }
    let (home, pool) = (TempDir::new().unwrap(), TempDir::new_in(MEMORY).unwrap());
    let mut heap = open(&home, &pool);
    let early = heap.create_root("early", 2 * MIB).unwrap();
    fill(early.as_ptr(), 2 * MIB, 7);
    heap.reserve(40 * MIB).unwrap();
    assert!(is_filled(early.as_ptr(), 2 * MIB, 7));
    let late = heap.create_root("late", 24 * MIB).unwrap();
    let pages = 24 * MIB / PAGE_BYTES;
    // The object is zeroed when it is made, which has seen the faults: so another one is counted.
    assert!(is_filled(late.as_ptr(), 24 * MIB, 0));
    let counted = heap.alloc(8 * MIB).unwrap();
    let taken = fill(counted.as_ptr(), 8 * MIB, 9);
    assert!(taken < pages / 3 / 16, "{taken} faults for {} pages", pages / 3);
    fill(late.as_ptr(), 24 * MIB, 8);
    drop(heap.close());
    let heap = open(&home, &pool);
    for (name, byte, bytes) in [("early", 7, 2 * MIB), ("late", 8, 24 * MIB)] {
        let root = heap.root(name).unwrap();
        assert!(is_filled(root.pointer.as_ptr(), bytes, byte), "{name}");
    }
}
