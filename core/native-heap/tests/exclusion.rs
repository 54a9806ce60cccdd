//! Two heaps of one process: a thread has a transaction in one of them at a time.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::sync::Barrier;

use holdfast_heap::{Heap, HeapError};
use holdfast_native_heap::{RegionBacking, open_heap};
use holdfast_region::{NameSpace, OwnerKey, Places, RegionName};
use tempfile::TempDir;

fn heap(home: &TempDir, name: &str) -> Heap<RegionBacking> {
    let places = Places::at(home.path().join("home"), home.path().join("pool")).unwrap();
    let key = OwnerKey::from_bytes([3; 32]);
    let name = RegionName::parse(name).unwrap();
    let region = NameSpace::new(places).open_or_create(&name, &key, 8 << 20).unwrap();
    open_heap(region).unwrap().0
}

/// Refused until the other transaction is over: by a commit, an abort, or with its heap.
///
/// Guarantee: programs/several-heaps
#[test]
fn a_thread_has_one_transaction_in_one_heap() {
    let home = TempDir::new().unwrap();
    let (mut first, mut second) = (heap(&home, "first"), heap(&home, "second"));
    first.begin().unwrap();
    assert_eq!(second.begin(), Err(HeapError::OtherHeap));
    first.begin().unwrap();
    first.commit().unwrap();
    assert_eq!(second.begin(), Err(HeapError::OtherHeap), "a level of it is still open");
    first.commit().unwrap();
    second.begin().unwrap();
    assert_eq!(first.begin(), Err(HeapError::OtherHeap));
    second.abort().unwrap();
    first.begin().unwrap();
    drop(first.close());
    second.begin().unwrap();
    second.commit().unwrap();
    // A root, which is a transaction of its own inside, needs none of the caller's.
    second.create_root("root", 8).unwrap();
}

/// Threads with a heap each do not hinder each other.
///
/// Guarantee: programs/several-heaps
#[test]
fn threads_have_transactions_in_their_own_heaps() {
    let home = TempDir::new().unwrap();
    let both_open = Barrier::new(2);
    std::thread::scope(|scope| {
        for name in ["first", "second"] {
            let (mut heap, both_open) = (heap(&home, name), &both_open);
            scope.spawn(move || {
                heap.begin().unwrap();
                both_open.wait();
                heap.create_root("root", 8).unwrap();
                heap.commit().unwrap();
            });
        }
    });
    assert!(heap(&home, "second").root("root").is_some());
}
