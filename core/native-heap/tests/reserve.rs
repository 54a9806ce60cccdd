//! What a heap grows by, what a program reserves and what is opened cold is ready to be used: in
//! huge pages, so that few accesses fault.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(unsafe_code, reason = "fills the objects that it allocates")]

use std::fs;
use std::path::Path;

use holdfast_heap::Heap;
use holdfast_native_heap::{HeapRegion, RegionBacking, open_heap};
use holdfast_region::{NameSpace, OwnerKey, Places, RegionName};
use holdfast_sys::mapping::allocate_huge_pages;
use tempfile::TempDir;

const MIB: u64 = 1 << 20;
const PAGE_BYTES: u64 = 4096;
const MEMORY: &str = "/dev/shm";

/// The heap of the name `heap`, with its pool in memory.
fn open(home: &TempDir, pool: &TempDir) -> (Heap<RegionBacking>, HeapRegion) {
    let places = Places::at(home.path().join("home"), pool.path().join("pool")).unwrap();
    let key = OwnerKey::from_bytes([3; 32]);
    let name = RegionName::parse("heap").unwrap();
    let region = NameSpace::new(places).open_or_create(&name, &key, 64 * MIB).unwrap();
    open_heap(region).unwrap()
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

/// Whether the kernel gathers huge pages on request; where it does not, that is said.
fn has_huge_pages() -> bool {
    let probe = tempfile::tempfile_in(Path::new(MEMORY)).unwrap();
    let made = allocate_huge_pages(&probe, 0..4 * MIB);
    if let Err(error) = &made {
        println!("not run: the kernel gathers no huge pages on request: {error}");
    }
    made.is_ok()
}

/// Asks for faults until they are few. A session does without huge pages that take long; a virtual
/// machine's host makes some with each try.
fn few(bound: u64, faults: impl Fn() -> u64) {
    let taken: Vec<u64> = (0..50).map(|_| faults()).take_while(|taken| *taken >= bound).collect();
    assert!(taken.len() < 50, "{taken:?} faults");
}

/// A heap that grows by itself is filled with few faults. Opened without its image it is there as it
/// was, and read with few faults.
///
/// Guarantee: heap/reserve
#[test]
fn grown_and_cold_heaps_are_used_with_few_faults() {
    if !has_huge_pages() {
        return;
    }
    let (bytes, pages) = (14 * MIB, 14 * MIB / PAGE_BYTES);
    few(pages / 16, || {
        let (home, pool) = (TempDir::new().unwrap(), TempDir::new_in(MEMORY).unwrap());
        let (mut heap, _region) = open(&home, &pool);
        let before = faults();
        // It zeroes them.
        heap.create_root("object", bytes).unwrap();
        faults() - before
    });
    let (home, pool) = (TempDir::new().unwrap(), TempDir::new_in(MEMORY).unwrap());
    let (mut heap, region) = open(&home, &pool);
    let object = heap.create_root("object", bytes).unwrap();
    fill(object.as_ptr(), bytes, 5);
    drop(heap.close());
    region.close().unwrap();
    // Around each fault the kernel maps sixteen small pages.
    few(pages / 32, || {
        fs::remove_dir_all(pool.path().join("pool")).unwrap();
        let (heap, _region) = open(&home, &pool);
        let root = heap.root("object").unwrap();
        let before = faults();
        assert!(is_filled(root.pointer.as_ptr(), bytes, 5));
        faults() - before
    });
}

/// The stores that fill what was reserved fault once for each huge page, not for each small one,
/// and what was stored before is as it was, also in the next session.
///
/// Guarantee: heap/reserve
#[test]
fn reserved_room_is_filled_with_few_faults() {
    if !has_huge_pages() {
        return;
    }
    few(8 * MIB / PAGE_BYTES / 16, || {
        let (home, pool) = (TempDir::new().unwrap(), TempDir::new_in(MEMORY).unwrap());
        let (mut heap, region) = open(&home, &pool);
        let early = heap.create_root("early", 2 * MIB).unwrap();
        fill(early.as_ptr(), 2 * MIB, 7);
        heap.reserve(40 * MIB).unwrap();
        assert!(is_filled(early.as_ptr(), 2 * MIB, 7));
        let late = heap.create_root("late", 24 * MIB).unwrap();
        // The object is zeroed when it is made, which has seen the faults: so another one is counted.
        assert!(is_filled(late.as_ptr(), 24 * MIB, 0));
        let counted = heap.alloc(8 * MIB).unwrap();
        let taken = fill(counted.as_ptr(), 8 * MIB, 9);
        fill(late.as_ptr(), 24 * MIB, 8);
        drop(heap.close());
        drop(region);
        let (heap, _region) = open(&home, &pool);
        for (name, byte, bytes) in [("early", 7, 2 * MIB), ("late", 8, 24 * MIB)] {
            let root = heap.root(name).unwrap();
            assert!(is_filled(root.pointer.as_ptr(), bytes, byte), "{name}");
        }
        taken
    });
}
