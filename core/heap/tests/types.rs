//! Roots with types: opened as what they are, migrated in one step; and heaps of format version 1
//! stay usable.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use std::ptr::NonNull;

use common::{TestMemory, assert_sound, open, version_1};
use holdfast_heap::{Heap, HeapError, Opened, RootType, Typed, typed};

typed! {
    #[derive(Debug, PartialEq, Eq)]
    struct First: 1 { hits: u64, size: u32 }
}
typed! {
    #[derive(Debug, PartialEq, Eq)]
    struct Second: 2 { hits: u64, sizes: [u32; 4], list: Option<NonNull<u64>> }
}
typed! {
    #[derive(Debug, PartialEq, Eq)]
    struct Third: 3 { hits: u128 }
}
typed! {
    #[repr(align(4096))]
    struct Page: 1 { bytes: [u8; 4096] }
}

/// Guarantee: programs/named-objects
#[test]
fn an_object_gets_a_name_in_one_step_and_only_one() {
    let mut heap = open(TestMemory::new(4 << 20));
    let object = heap.alloc_zeroed(100).unwrap();
    let (usable, roots) =
        (heap.usable_bytes(object).unwrap(), |heap: &Heap<TestMemory>| heap.roots().count());
    assert_eq!(heap.name_object("object", object, usable + 1, None), Err(HeapError::OutsideHeap));
    assert_eq!(heap.name_object("", object, 100, None), Err(HeapError::BadName));
    let inside = NonNull::new(object.as_ptr().wrapping_add(16)).unwrap();
    assert_eq!(heap.name_object("object", inside, 10, None), Err(HeapError::NotAllocated));
    heap.begin().unwrap();
    heap.name_object("object", object, 100, None).unwrap();
    heap.abort().unwrap();
    assert_eq!((heap.root("object"), heap.usable_bytes(object)), (None, Ok(usable)));
    let number = RootType { layout: 7, version: 0 };
    heap.name_object("object", object, 100, Some(number)).unwrap();
    assert_eq!(heap.name_object("object", object, 100, None), Err(HeapError::NameTaken));
    assert_eq!(heap.name_object("other", object, 100, None), Err(HeapError::NameTaken));
    heap.create_root_of("made", 10, number).unwrap();
    let heap = open(heap.close());
    let found = heap.root("object").unwrap();
    assert_eq!((found.pointer, found.bytes, heap.root_type("object")), (object, 100, Some(number)));
    assert_eq!((roots(&heap), heap.root_type("made")), (2, Some(number)));
    assert_sound(heap.backing().bytes(), "named");
}

/// Guarantee: heap/typed-roots
/// Guarantee: heap/no-undefined-behaviour
#[test]
fn a_typed_root_is_opened_only_as_its_own_type() {
    let mut heap = open(TestMemory::new(4 << 20));
    let root = heap.create_root_typed::<First>("root").unwrap();
    // SAFETY: just made, of this type.
    unsafe {
        assert_eq!(root.read(), First { hits: 0, size: 0 });
        root.write(First { hits: 5, size: 6 });
    }
    let page = heap.create_root_typed::<Page>("page").unwrap();
    assert!(page.is_aligned());
    heap.create_root("plain", 100).unwrap();
    heap.create_root("small", 4).unwrap();
    let mut heap = open(heap.close());
    let found = heap.root_typed::<First>("root").unwrap().unwrap();
    // SAFETY: of this type, as was checked.
    assert_eq!(unsafe { found.read() }, First { hits: 5, size: 6 });
    assert_eq!(heap.root_typed::<First>("none"), Ok(None));
    let (stored, wanted) = (Some(RootType::of::<First>()), RootType::of::<Second>());
    let error = heap.root_typed::<Second>("root").unwrap_err();
    assert_eq!(error, HeapError::LayoutMismatch { stored, wanted });
    let text = error.to_string();
    for layout in [First::LAYOUT, Second::LAYOUT] {
        assert!(text.contains(&format!("{layout:#018x}")), "{text}");
    }
    let untyped = HeapError::LayoutMismatch { stored: None, wanted };
    assert_eq!(heap.root_typed::<Second>("plain"), Err(untyped));
    assert_eq!(heap.adopt_root::<Second>("small"), Err(untyped));
    heap.adopt_root::<Second>("plain").unwrap();
    heap.root_typed::<Second>("plain").unwrap().unwrap();
    assert_eq!(heap.root("plain").unwrap().bytes, 100);
    assert_eq!(heap.root_type("plain"), Some(wanted));
    assert_eq!((heap.root_type("small"), heap.root_type("none")), (None, None));
    assert!(heap.adopt_root::<First>("plain").is_err());
    assert_eq!(assert_sound(heap.backing().bytes(), "typed").roots, 4);
    heap.remove_root("root").unwrap();
    assert_eq!(heap.root_typed::<Second>("root"), Ok(None));
    let mut names: Vec<_> = heap.roots().map(|(name, _)| name).collect();
    names.sort_unstable();
    assert_eq!(names, ["page", "plain", "small"]);
}

fn migrate(heap: &mut Heap<TestMemory>, name: &str) -> Result<NonNull<Second>, HeapError> {
    heap.root_or_migrate(name, |tx, old: First| {
        let list = tx.alloc_zeroed(8)?.cast::<u64>();
        Ok(Second { hits: old.hits, sizes: [old.size; 4], list: Some(list) })
    })
}

/// A migration happens once and a failed one leaves the old root.
///
/// Guarantee: heap/typed-roots
#[test]
fn migration_runs_once_and_failure_keeps_the_root() {
    let mut heap = open(TestMemory::new(4 << 20));
    let root = heap.create_root_typed::<First>("root").unwrap();
    // SAFETY: just made, of this type.
    unsafe { root.write(First { hits: 5, size: 6 }) };
    let failed: Result<NonNull<Second>, HeapError> =
        heap.root_or_migrate("root", |tx, _: First| {
            tx.create_root("by the way", 100)?;
            Err(HeapError::BadName)
        });
    assert_eq!(failed, Err(HeapError::BadName));
    assert!(heap.root("by the way").is_none());
    assert_eq!(heap.root_typed::<First>("root"), Ok(Some(root)));
    let root = migrate(&mut heap, "root").unwrap();
    // SAFETY: of this type, as was checked.
    let value = unsafe { root.read() };
    assert_eq!((value.hits, value.sizes), (5, [6; 4]));
    assert_eq!(migrate(&mut heap, "root"), Ok(root));
    let stored = Some(RootType::of::<Second>());
    assert_eq!(
        heap.root_typed::<First>("root"),
        Err(HeapError::LayoutMismatch { stored, wanted: RootType::of::<First>() })
    );
    let neither: Result<NonNull<Third>, HeapError> =
        heap.root_or_migrate("root", |_, old: First| Ok(Third { hits: old.hits.into() }));
    let wanted = RootType::of::<Third>();
    assert_eq!(neither, Err(HeapError::LayoutMismatch { stored, wanted }));
    assert_eq!(migrate(&mut heap, "none"), Err(HeapError::NoSuchRoot));
    // The table, an entry, the object and what it links to: the old entry and object are gone.
    assert_eq!(assert_sound(heap.backing().bytes(), "migrated").objects, 4);
}

/// A heap of version 1 is opened recovered used and raised only when it must be.
///
/// Guarantee: heap/old-formats
/// Guarantee: sqlite/old-versions
#[test]
fn version_1_heap_is_raised_only_when_needed() {
    let image = version_1();
    assert_eq!(
        holdfast_heap::check(image.bytes(), &mut |_| {}).findings,
        1,
        "only the open transaction"
    );
    let mut heap = open(image);
    assert_eq!((heap.opened(), heap.format_version()), (Opened::Recovered, 1));
    let root = |heap: &Heap<TestMemory>, name: &str| {
        let root = heap.root(name).unwrap();
        let at = heap.offset_of(root.pointer).unwrap() as usize;
        heap.backing().bytes()[at..at + root.bytes as usize].to_vec()
    };
    let expect_all = |heap: &Heap<TestMemory>| {
        assert_eq!(root(heap, "counter"), 42_u64.to_le_bytes());
        assert_eq!(root(heap, "text"), b"twenty bytes of text");
        assert_eq!((root(heap, "big").len(), root(heap, "big")[99_999]), (100_000, 9));
        assert!(heap.root("gone").is_none() && heap.root("half done").is_none());
    };
    expect_all(&heap);
    assert_eq!(assert_sound(heap.backing().bytes(), "recovered").objects, 8);
    heap.create_root("untyped", 8).unwrap();
    let object = heap.alloc_aligned(100_000, 65_536).unwrap();
    heap.realloc(object, 1000).unwrap();
    assert_eq!(heap.format_version(), 1);
    let mut heap = open(heap.close());
    assert_eq!(heap.opened(), Opened::Clean);
    heap.adopt_root::<u64>("counter").unwrap();
    heap.create_root_typed::<First>("typed").unwrap();
    assert_eq!(heap.format_version(), 4);
    let heap = open(heap.close());
    expect_all(&heap);
    assert!(heap.root_typed::<u64>("counter").unwrap().is_some());
    assert_sound(heap.backing().bytes(), "raised");
}

/// Opening one moves it a few times, on an applet's stack of 64 KiB.
#[test]
fn a_heap_is_small_enough_for_the_stack_of_an_applet() {
    let bytes = size_of::<Heap<TestMemory>>();
    assert!(bytes <= 31 << 9, "{bytes} bytes");
}
