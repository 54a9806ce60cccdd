//! Portable heaps: references lead to the same objects wherever the heap lies, no further than they
//! reach, and only for programs that keep references.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]
#![allow(unsafe_code, reason = "heaps are followed by references")]

mod common;

use common::{OPTIONS, TestMemory, golden};
use holdfast_heap::survey::Survey;
use holdfast_heap::{
    Backing, Heap, HeapError, OpenError, OpenOptions, Pointers, REF_REACH_BYTES, Ref,
    RelocationError, check, portable, relocate, typed,
};

portable! { struct List: 1 { first: Ref<Node>, last: Ref<Node>, count: u64 } }
portable! { struct Node: 1 { next: Ref<Node>, flags: u32, value: u64 } }
portable! { struct OtherNode: 1 { next: Ref<OtherNode>, flags: i32, value: u64 } }
portable! { struct OtherList: 1 { first: Ref<OtherNode>, last: Ref<OtherNode>, count: u64 } }
typed! { struct Pointed: 1 { next: *mut u8 } }

const PORTABLE: OpenOptions =
    OpenOptions { pointers: Some(Pointers::PORTABLE), format_if_empty: true };
const NODES: u64 = 1000;

fn open(memory: TestMemory) -> Heap<TestMemory> {
    Heap::open(memory, PORTABLE).unwrap()
}

fn build(heap: &mut Heap<TestMemory>) {
    let base = heap.base().unwrap();
    let root = heap.create_root_typed::<List>("list").unwrap();
    let mut list = List { first: Ref::null(), last: Ref::null(), count: NODES };
    for value in 0..NODES {
        let node = heap.alloc_ref::<Node>().unwrap();
        // SAFETY: just allocated, and nothing else refers to it.
        unsafe {
            node.target(base).unwrap().write(Node { next: list.first, flags: 0, value });
        }
        if value == 0 {
            list.last = node;
        }
        list.first = node;
    }
    // SAFETY: the root is a `List`.
    unsafe { root.write(list) };
}

fn verify(heap: &Heap<TestMemory>) {
    let base = heap.base().unwrap();
    let root = heap.root_typed::<List>("list").unwrap().unwrap();
    // SAFETY: the root is a `List`, and every reference is looked at before it is followed.
    unsafe {
        let list = root.read();
        let (mut node, mut expected) = (list.first, NODES);
        while let Some(at) = node.target(base) {
            assert_eq!(heap.target(node), Ok(at));
            expected -= 1;
            assert_eq!(at.read().value, expected);
            assert_eq!(heap.reference(at), Ok(node));
            node = at.read().next;
        }
        assert_eq!((expected, heap.target(list.last).unwrap().read().value), (0, 0));
    }
}

/// A portable heap is the same one at another address, and nothing in it has changed for that.
///
/// Guarantee: programs/portable
#[test]
fn references_lead_to_the_same_objects_at_any_address() {
    let mut heap = open(TestMemory::new(16 << 20));
    build(&mut heap);
    assert!(heap.is_portable());
    let memory = heap.close();
    let copy = memory.copy();
    assert_ne!(copy.base(), memory.base());
    let before = copy.bytes().to_vec();
    // The first copy must not be what is followed.
    drop(memory);
    let heap = open(copy);
    verify(&heap);
    let memory = heap.close();
    assert!(memory.bytes() == before, "opening and reading wrote something");
    assert!(check(memory.bytes(), &mut |finding| panic!("{finding:?}")).is_sound());
}

/// A program that would store pointers does not open a portable heap, nor one that keeps references
/// a heap with pointers; both are told what to do, and nothing has changed. Tools open either.
///
/// Guarantee: programs/portable
#[test]
fn programs_with_pointers_and_with_references_are_kept_apart() {
    let mut heap = open(TestMemory::new(8 << 20));
    build(&mut heap);
    let memory = heap.close();
    let before = memory.bytes().to_vec();
    for pointers in [Pointers { base: 1 << 44, bytes: 8 }, Pointers { base: 1 << 31, bytes: 4 }] {
        let options = OpenOptions { pointers: Some(pointers), format_if_empty: true };
        let refused = Heap::open(memory.copy(), options).err().unwrap();
        assert_eq!(refused, OpenError::Portable);
        assert!(refused.to_string().contains("attach_portable"), "{refused}");
        let heap = Heap::open(TestMemory::new(8 << 20), options).unwrap();
        let plain = heap.close();
        let copy = plain.copy();
        let refused = Heap::open(plain, PORTABLE).err().unwrap();
        assert_eq!(refused, OpenError::NotPortable { pointer_bytes: pointers.bytes });
        assert!(refused.to_string().contains("another heap"), "{refused}");
        assert!(Heap::open(copy, options).is_ok());
    }
    let tool = OpenOptions { pointers: None, format_if_empty: false };
    let heap = Heap::open(memory.copy(), tool).unwrap();
    verify(&heap);
    assert!(memory.bytes() == before);
}

/// A root opens only as the type that it was made as, down to one field of what its references lead
/// to; and a portable heap has no typed root that lies otherwise in another program.
///
/// Guarantee: programs/portable-types
#[test]
fn roots_open_as_what_they_are() {
    let mut heap = open(TestMemory::new(8 << 20));
    build(&mut heap);
    let refused = heap.root_typed::<OtherList>("list");
    assert!(matches!(refused, Err(HeapError::LayoutMismatch { .. })), "{refused:?}");
    assert_eq!(heap.create_root_typed::<Pointed>("pointed"), Err(HeapError::NotPortable));
    assert_eq!(heap.create_root_typed::<usize>("wide").err(), Some(HeapError::NotPortable));
    heap.create_root("untyped", 8).unwrap();
    assert_eq!(heap.adopt_root::<Pointed>("untyped"), Err(HeapError::NotPortable));
    heap.adopt_root::<[u32; 2]>("untyped").unwrap();
    let mut plain = Heap::open(TestMemory::new(8 << 20), OPTIONS).unwrap();
    plain.create_root_typed::<Pointed>("pointed").unwrap();
    plain.create_root_typed::<List>("list").unwrap();
}

/// A reference that leads to no object of its type is an error where it is looked at.
///
/// Guarantee: programs/portable-types
#[test]
fn stale_and_hostile_references_are_errors() {
    let mut heap = open(TestMemory::new(8 << 20));
    let node = heap.alloc_ref::<Node>().unwrap();
    let at = heap.target(node).unwrap();
    assert!(heap.target(node.cast::<[Node; 9]>()).is_err(), "there is room for one");
    heap.free(at.cast()).unwrap();
    assert_eq!(heap.target(node), Err(HeapError::BadReference { offset: node.offset() }));
    for offset in [0, 8, 65_536, node.offset() + 8, 1 << 34, REF_REACH_BYTES - 8] {
        assert!(heap.target(Ref::<u8>::at(offset).unwrap()).is_err(), "{offset:#x}");
    }
    let outside = Box::new(0_u64);
    let refused = heap.reference(std::ptr::NonNull::from(&*outside));
    assert_eq!(refused, Err(HeapError::OutsideHeap));
}

/// Objects that references lead to are no leaks, others are; and a portable heap is never
/// relocated.
///
/// Guarantee: heap/survey
#[test]
fn references_are_followed_by_the_search_for_leaks() {
    let mut heap = open(TestMemory::new(8 << 20));
    build(&mut heap);
    let lost = heap.alloc_ref::<Node>().unwrap();
    let mut leaks = Vec::new();
    let bytes = heap.backing().bytes();
    Survey::new(bytes).unwrap().leaks(&mut |object| leaks.push(object.offset));
    assert_eq!(leaks, [lost.offset()]);
    let refused = relocate(&mut heap, &[], 1 << 44).unwrap_err();
    assert_eq!(refused, RelocationError::NotNative { pointer_bytes: 0 });
    assert!(refused.to_string().contains("needs no relocation"), "{refused}");
}

/// A portable heap that an earlier build made is the same one today, roots, types, references and
/// all.
///
/// Guarantee: heap/old-formats
#[test]
fn golden_portable_heap_opens() {
    let heap = open(golden(include_str!("golden/portable.txt")));
    let base = heap.base().unwrap();
    let root = heap.root_typed::<List>("list").unwrap().unwrap();
    // SAFETY: the root is a `List`, and every reference is looked at before it is followed.
    unsafe {
        let list = root.read();
        let mut values = Vec::new();
        let mut node = list.first;
        while let Ok(at) = heap.target(node) {
            values.push(at.read().value);
            node = at.read().next;
        }
        assert_eq!((values, list.count), (vec![30, 20, 10], 3));
        assert_eq!(list.last.target(base).unwrap().read().value, 10);
    }
    assert_eq!(heap.root("plain").map(|root| root.bytes), Some(24));
    assert!(heap.root_typed::<OtherList>("list").is_err());
}
