//! A heap at another address: every pointer follows, and what has no type keeps the heap where it
//! is.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(unsafe_code, reason = "heaps are followed by pointers")]
// Only native heaps are moved: an applet's lies at the same address in every run.
#![cfg(not(target_family = "wasm"))]

use core::ptr::NonNull;

use holdfast_heap::{
    Described, Heap, HeapError, Link, OpenOptions, Pointers, RelocationError, Run, check, relocate,
    typed,
};
use holdfast_testkit::TestMemory;

typed! {
    struct List: 1 {
        count: u64,
        first: Link<Node>,
        ends: [Link<Node>; 2],
        index: Run<Entry>,
        name: Run<u8>,
    }
}
typed! { struct Node: 1 { next: Link<Node>, of: Link<List>, value: u64 } }
typed! { struct Entry: 1 { key: u64, node: Link<Node> } }
typed! { struct Loose: 1 { anything: *mut u8 } }

const NODES: u64 = 1000;

fn open(memory: TestMemory) -> Heap<TestMemory> {
    let base = memory.bytes().as_ptr() as u64;
    let options = OpenOptions {
        pointers: Some(Pointers { base, bytes: size_of::<usize>() as u32 }),
        format_if_empty: true,
    };
    Heap::open(memory, options).unwrap()
}

/// For a heap that was made elsewhere.
fn open_anywhere(memory: TestMemory) -> Heap<TestMemory> {
    Heap::open(memory, OpenOptions { pointers: None, format_if_empty: false }).unwrap()
}

fn alloc<T>(heap: &mut Heap<TestMemory>, value: T) -> NonNull<T> {
    let place = heap.alloc(size_of::<T>() as u64).unwrap().cast::<T>();
    // SAFETY: allocated just now with this size; no alignment is above 16.
    unsafe { place.write(value) };
    place
}

/// A list of nodes that point back to it, an index over them, a name, and a second root that shares
/// them.
fn build(heap: &mut Heap<TestMemory>) {
    let root = heap.create_root_typed::<List>("list").unwrap();
    let other = heap.create_root_typed::<Entry>("last").unwrap();
    let mut first = Link::null();
    let index = heap.alloc(NODES * size_of::<Entry>() as u64).unwrap().cast::<Entry>();
    let mut last = Link::null();
    for value in 0..NODES {
        let node = alloc(heap, Node { next: first, of: Link::to(root), value });
        first = Link::to(node);
        if value == 0 {
            last = first;
        }
        // SAFETY: the index has this many entries.
        unsafe { index.add(value as usize).write(Entry { key: value, node: first }) };
    }
    let name = heap.alloc(5).unwrap();
    // SAFETY: the objects were allocated above, with these sizes.
    unsafe {
        name.as_ptr().copy_from_nonoverlapping(b"hello".as_ptr(), 5);
        let (index, name) = (Run::new(index, NODES), Run::new(name, 5));
        root.write(List { count: NODES, first, ends: [first, last], index, name });
        other.write(Entry { key: 7, node: last });
    }
}

/// Follows every pointer; all must lead into the heap at its new place.
fn verify(heap: &Heap<TestMemory>) {
    let inside =
        |address: usize| heap.offset_of(NonNull::new(address as *mut u8).unwrap()).is_some();
    let root = heap.root_typed::<List>("list").unwrap().unwrap();
    // SAFETY: each pointer is checked to lie in the heap before it is followed.
    unsafe {
        let list = root.read();
        let mut node = list.first;
        for value in (0..NODES).rev() {
            let at = node.target().unwrap();
            assert!(inside(at.as_ptr() as usize));
            let found = at.read();
            assert_eq!((found.value, found.of), (value, Link::to(root)));
            let entries = list.index.first().unwrap();
            assert!(inside(entries.as_ptr() as usize));
            assert_eq!(entries.add(value as usize).read().node, node);
            node = found.next;
        }
        assert_eq!(node, Link::null());
        assert_eq!(list.ends[0], list.first);
        let last = heap.root_typed::<Entry>("last").unwrap().unwrap().read();
        assert_eq!((last.key, last.node), (7, list.ends[1]));
        let name = list.name.first().unwrap();
        assert!(inside(name.as_ptr() as usize));
        assert_eq!(std::slice::from_raw_parts(name.as_ptr(), 5), b"hello");
    }
}

fn types() -> [Described; 2] {
    [Described::of::<List>(), Described::of::<Entry>()]
}

fn built() -> TestMemory {
    let mut heap = open(TestMemory::new(16 << 20));
    build(&mut heap);
    heap.close()
}

/// Every pointer of a typed heap follows it to another address.
///
/// Guarantee: heap/relocation
#[test]
fn every_typed_pointer_follows_the_heap() {
    let original = built();
    let copy = original.copy();
    let to = copy.bytes().as_ptr() as u64;
    let mut heap = open_anywhere(copy);
    let relocated = relocate(&mut heap, &types(), to).unwrap();
    assert_eq!(relocated.pointers, 1 + 2 + 1 + 1 + 1 + NODES * 3 - 1);
    // The first copy must not be what is followed.
    drop(original);
    verify(&heap);
    let memory = heap.close();
    assert!(check(memory.bytes(), &mut |finding| panic!("{finding:?}")).is_sound());
    verify(&open(memory));
}

/// A heap that was moved there and back has its first bytes.
#[test]
fn heap_moved_back_has_its_first_bytes() {
    let original = built();
    let from = original.bytes().as_ptr() as u64;
    let mut heap = open_anywhere(original.copy());
    relocate(&mut heap, &types(), from + (1 << 40)).unwrap();
    relocate(&mut heap, &types(), from).unwrap();
    assert!(heap.close().bytes() == original.bytes());
}

/// What keeps a heap from being moved, and that it is then as it was.
fn refusal(spoil: impl FnOnce(&mut Heap<TestMemory>), types: &[Described]) -> RelocationError {
    let mut heap = open(TestMemory::new(16 << 20));
    build(&mut heap);
    spoil(&mut heap);
    let memory = heap.close();
    let before = memory.copy();
    let mut heap = open_anywhere(memory);
    let error = relocate(&mut heap, types, 1 << 44).unwrap_err();
    assert!(heap.close().bytes() == before.bytes(), "{error}");
    error
}

/// Guarantee: heap/relocation
#[test]
fn what_has_no_type_is_named_and_nothing_is_changed() {
    let error = refusal(|heap| _ = heap.create_root("plain", 8).unwrap(), &types());
    assert_eq!(error, RelocationError::UntypedRoot { name: "plain".to_owned() });
    let error = refusal(|_| {}, &types()[..1]);
    assert!(
        matches!(&error, RelocationError::UnknownType { name, .. } if name == "last"),
        "{error}"
    );
    let with_loose = [types()[0], types()[1], Described::of::<Loose>()];
    let error = refusal(|heap| _ = heap.create_root_typed::<Loose>("loose").unwrap(), &with_loose);
    assert!(matches!(error, RelocationError::UnknownPointer { .. }), "{error}");
    let error = refusal(|heap| _ = (heap.alloc(100).unwrap(), heap.alloc(100).unwrap()), &types());
    assert!(matches!(error, RelocationError::Unreached { bytes: 112, objects: 2, .. }), "{error}");
}

/// A pointer that leads to no value of its type keeps the heap where it is.
///
/// Guarantee: heap/relocation
#[test]
fn dangling_typed_pointer_prevents_relocation() {
    let spoilers: [fn(&mut Heap<TestMemory>, &mut List); 5] = [
        |_, list| list.first = Link::to(NonNull::without_provenance(8.try_into().unwrap())),
        |_, list| {
            list.first =
                Link::to(NonNull::new((list as *mut List).wrapping_add(1 << 20)).unwrap().cast())
        },
        |_, list| list.name = Run::new(list.name.first().unwrap(), 1 << 20),
        |_, list| list.index = Run::new(list.index.first().unwrap(), u64::MAX),
        |heap, list| {
            let freed = heap.alloc(100).unwrap();
            heap.free(freed).unwrap();
            list.ends[0] = Link::to(freed.cast());
        },
    ];
    for spoil in spoilers {
        let error = refusal(
            |heap| {
                let mut root = heap.root_typed::<List>("list").unwrap().unwrap();
                // SAFETY: the root is a `List`, and nothing else refers to it.
                spoil(heap, unsafe { root.as_mut() });
            },
            &types(),
        );
        assert!(matches!(error, RelocationError::BadPointer { .. }), "{error}");
    }
}

typed! { struct Number: 1 { value: u64 } }
typed! { struct Pointing: 1 { to: Link<Number> } }
typed! { struct ToNumber: 1 { item: Link<Number> } }
typed! { struct ToPointing: 1 { item: Link<Pointing> } }
typed! { struct Plain: 1 { item: *mut u8 } }

// Alike but for what is two links away.
typed! { struct Far: 1 { to: Link<Pointing> } }
typed! { struct Near: 1 { to: Link<Number> } }
typed! { struct ToFar: 1 { item: Link<Far> } }
typed! { struct ToNear: 1 { item: Link<Near> } }
typed! { struct LinkFar: 1 { far: Link<ToFar> } }
typed! { struct LinkNear: 1 { near: Link<ToNear> } }

/// A root that leads to a link that leads to a number.
fn pointing<T: holdfast_heap::Typed>(heap: &mut Heap<TestMemory>, name: &str) -> NonNull<Pointing> {
    let root = heap.create_root_typed::<T>(name).unwrap();
    let number = alloc(heap, Number { value: 42 });
    let middle = alloc(heap, Pointing { to: Link::to(number) });
    // SAFETY: every type that the tests pass is one pointer.
    unsafe { root.cast::<Link<Pointing>>().write(Link::to(middle)) };
    middle
}

/// Types that differ in what their links lead to are told apart and every pointer follows.
///
/// Guarantee: heap/relocation
#[test]
fn types_that_differ_by_link_target_are_distinct() {
    let mut heap = open(TestMemory::new(8 << 20));
    let middle = pointing::<ToPointing>(&mut heap, "two links");
    // The same place, as something without a pointer.
    let near = heap.create_root_typed::<ToNumber>("as a number").unwrap();
    // SAFETY: just made, of this type.
    unsafe { near.write(ToNumber { item: Link::to(middle.cast()) }) };
    let array = heap.create_root_typed::<Run<Number>>("run").unwrap();
    // SAFETY: as above.
    unsafe { array.write(Run::empty()) };
    assert!(matches!(
        heap.root_typed::<ToNumber>("two links"),
        Err(HeapError::LayoutMismatch { .. })
    ));
    assert!(matches!(
        heap.root_typed::<Run<Link<Number>>>("run"),
        Err(HeapError::LayoutMismatch { .. })
    ));
    let mut heap = open_anywhere(heap.close().copy());
    let to = heap.backing().bytes().as_ptr() as u64;
    let types = [
        Described::of::<ToNumber>(),
        Described::of::<ToPointing>(),
        Described::of::<Run<Link<Number>>>(),
        Described::of::<Run<Number>>(),
    ];
    assert_eq!(relocate(&mut heap, &types, to).unwrap().pointers, 3);
    let root = heap.root_typed::<ToPointing>("two links").unwrap().unwrap();
    // SAFETY: each pointer is checked to lie in the heap before it is followed.
    unsafe {
        let middle = root.read().item.target().unwrap();
        assert!(heap.offset_of(middle.cast()).is_some());
        let number = middle.read().to.target().unwrap();
        assert!(heap.offset_of(number.cast()).is_some(), "a pointer was left behind");
        assert_eq!(number.read().value, 42);
    }
}

/// A value that is looked at as two types of one layout is looked at twice.
#[test]
fn value_of_two_equal_layouts_is_visited_twice() {
    for names in [["a", "b"], ["b", "a"]] {
        let mut heap = open(TestMemory::new(8 << 20));
        let far = heap.create_root_typed::<LinkFar>(names[0]).unwrap();
        let near = heap.create_root_typed::<LinkNear>(names[1]).unwrap();
        let number = alloc(&mut heap, Number { value: 42 });
        let pointing = alloc(&mut heap, Pointing { to: Link::to(number) });
        let value = alloc(&mut heap, Far { to: Link::to(pointing) });
        let value = alloc(&mut heap, ToFar { item: Link::to(value) });
        // SAFETY: just made, of these types; the second way sees a pointer as a
        // number.
        unsafe {
            far.write(LinkFar { far: Link::to(value) });
            near.write(LinkNear { near: Link::to(value.cast()) });
        }
        let types = [Described::of::<LinkFar>(), Described::of::<LinkNear>()];
        assert_eq!(relocate(&mut heap, &types, 1 << 44).unwrap().pointers, 5);
    }
}

/// A type that could be two keeps the heap where it is.
///
/// Guarantee: heap/relocation
#[test]
fn ambiguous_type_prevents_relocation() {
    // What a program with plain pointers stored may be used with links, and does not say which.
    let moved = |types: &[Described]| {
        let mut heap = open(TestMemory::new(8 << 20));
        pointing::<Plain>(&mut heap, "root");
        assert!(heap.root_typed::<ToPointing>("root").unwrap().is_some());
        let memory = heap.close();
        let before = memory.copy();
        let mut heap = open_anywhere(memory);
        let moved = relocate(&mut heap, types, 1 << 44);
        assert!(moved.is_ok() || heap.close().bytes() == before.bytes());
        moved
    };
    let (number, pointing) = (Described::of::<ToNumber>(), Described::of::<ToPointing>());
    assert_eq!(moved(&[pointing, pointing]).unwrap().pointers, 2);
    for types in [[number, pointing], [pointing, number], [Described::of::<Plain>(), pointing]] {
        let error = moved(&types).unwrap_err();
        assert!(
            matches!(&error, RelocationError::AmbiguousType { name, .. } if name == "root"),
            "{error}"
        );
    }
    // A layout reaches one link far; the maps are compared as far as they go.
    let (far, near) = (Described::of::<ToFar>(), Described::of::<ToNear>());
    assert_eq!(far.root_type, near.root_type);
    let mut heap = open(TestMemory::new(8 << 20));
    heap.create_root_typed::<ToFar>("far").unwrap();
    let mut heap = open_anywhere(heap.close());
    for types in [[far, near], [near, far]] {
        let error = relocate(&mut heap, &types, 1 << 44).unwrap_err();
        assert!(matches!(error, RelocationError::AmbiguousType { .. }), "{error}");
    }
    assert_eq!(relocate(&mut heap, &[far, far], 1 << 44).unwrap().pointers, 0);
}
