//! The survey of a heap adds up, finds leaks and calls nothing else one, and does not panic on any
//! bytes.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use std::ptr::NonNull;
use std::time::{Duration, Instant};

use common::{OPTIONS, TestMemory, open, version_1};
use holdfast_heap::survey::{ChunkKind, ObjectView, Survey};
use holdfast_heap::{Heap, OpenOptions, Pointers, bytes_of, check, typed};
use proptest::prelude::*;

const CHUNK: u64 = 64 << 10;

typed! { struct Typed8: 3 { value: u64 } }

fn view(heap: &Heap<TestMemory>, pointer: NonNull<u8>) -> ObjectView {
    ObjectView {
        offset: heap.offset_of(pointer).unwrap(),
        bytes: heap.usable_bytes(pointer).unwrap(),
    }
}

/// Guarantee: heap/survey
#[test]
fn classes_chunks_objects_and_roots_add_up() {
    let mut heap = open(TestMemory::new(48 << 20));
    let mut expected: Vec<ObjectView> = Vec::new();
    for bytes in [1, 16, 100, 100, 3000, 30_000, 50_000, 3 * CHUNK - 5, 5 << 20] {
        let object = heap.alloc(bytes).unwrap();
        expected.push(view(&heap, object));
    }
    let aligned = heap.alloc_aligned(5 << 20, 2 << 20).unwrap();
    expected.push(view(&heap, aligned));
    heap.create_root("plain", 100).unwrap();
    heap.create_root_typed::<Typed8>("typed").unwrap();
    let bytes = heap.backing().bytes();
    let survey = Survey::new(bytes).unwrap();
    let report = check(bytes, &mut |_| {});

    let objects: Vec<_> = survey.objects().collect();
    assert!(objects.is_sorted_by_key(|object| object.offset));
    assert!(expected.iter().all(|object| objects.contains(object)));
    assert_eq!(objects.len() as u64, report.objects);
    assert_eq!(objects.iter().map(|object| object.bytes).sum::<u64>(), report.object_bytes);
    for object in &objects {
        assert_eq!(survey.object_at(object.offset + object.bytes / 2), Some(*object));
    }

    let classes = survey.classes();
    assert!(classes.is_sorted_by_key(|class| class.class_bytes));
    let of = |bytes: u32| classes.iter().find(|class| class.class_bytes == bytes).unwrap();
    assert_eq!((of(112).slabs, of(112).slots, of(112).used), (1, 585, 3));
    assert_eq!((of(8192).slabs, of(8192).slots, of(8192).used), (0, 0, 0));

    let chunks: Vec<_> = survey.chunks().collect();
    assert_eq!(chunks.len() as u64, bytes.len() as u64 / CHUNK);
    let in_use =
        chunks.iter().filter(|chunk| !matches!(chunk.kind, ChunkKind::Free | ChunkKind::Absent));
    assert_eq!(in_use.count() as u64, report.chunks);
    let small: u64 = classes.iter().map(|class| class.used * u64::from(class.class_bytes)).sum();
    let of_slabs = chunks.iter().filter(|chunk| chunk.kind == ChunkKind::Slab);
    assert_eq!(of_slabs.map(|chunk| u64::from(chunk.used_bytes)).sum::<u64>(), small);
    let of_large = chunks.iter().filter(|chunk| chunk.kind == ChunkKind::Large);
    let asked = 50_000 + 3 * CHUNK - 5 + (5 << 20) + (5 << 20);
    assert_eq!(of_large.map(|chunk| u64::from(chunk.used_bytes)).sum::<u64>(), asked);

    let mut roots: Vec<_> =
        survey.roots().map(|root| (root.name, root.bytes, root.root_type)).collect();
    roots.sort_by_key(|root| root.0);
    assert_eq!(roots, [("plain", 100, None), ("typed", 8, heap.root_type("typed"))]);
}

/// Guarantee: heap/survey
#[test]
fn exactly_the_objects_that_no_root_reaches_are_leaks() {
    for (base, width) in [(0x8000_0000_u64, 4), (0x1000_0000_0000, 8)] {
        let pointers = Some(Pointers { base, bytes: width });
        let options = OpenOptions { pointers, format_if_empty: true };
        let mut heap = Heap::open(TestMemory::new(32 << 20), options).unwrap();
        let store = |heap: &Heap<TestMemory>, at: NonNull<u8>, to: NonNull<u8>, plus: u64| {
            let pointer = base + heap.offset_of(to).unwrap() + plus;
            // SAFETY: the object at `at` has at least that many bytes.
            unsafe { at.as_ptr().copy_from(pointer.to_le_bytes().as_ptr(), width as usize) };
        };
        let root = heap.create_root("root", 64).unwrap();
        let (child, run) = (heap.alloc_zeroed(500).unwrap(), heap.alloc_zeroed(100_000).unwrap());
        let (huge, last) = (heap.alloc_zeroed(5 << 20).unwrap(), heap.alloc_zeroed(40).unwrap());
        store(&heap, root, child, 0);
        // Into the middle of an object, and from its last word.
        store(&heap, NonNull::new(child.as_ptr().wrapping_add(256)).unwrap(), run, 70_000);
        store(&heap, NonNull::new(run.as_ptr().wrapping_add(99_992)).unwrap(), huge, 0);
        store(&heap, NonNull::new(huge.as_ptr().wrapping_add(4 << 20)).unwrap(), last, 39);
        // A circle that nothing leads to, and a lone object.
        let (one, two, lone) = (
            heap.alloc_zeroed(64).unwrap(),
            heap.alloc_zeroed(200_000).unwrap(),
            heap.alloc_zeroed(9).unwrap(),
        );
        store(&heap, one, two, 0);
        store(&heap, two, one, 0);
        store(&heap, lone, root, 0);
        let mut expected = [view(&heap, one), view(&heap, two), view(&heap, lone)];
        expected.sort_by_key(|object| object.offset);
        let mut found = Vec::new();
        let leaks =
            Survey::new(heap.backing().bytes()).unwrap().leaks(&mut |object| found.push(object));
        assert_eq!(found, expected, "{width}-byte pointers");
        let report = check(heap.backing().bytes(), &mut |_| {});
        assert_eq!((leaks.leaked_objects, leaks.reached_objects), (3, report.objects - 3));
        assert_eq!(leaks.leaked_bytes + leaks.reached_bytes, report.object_bytes);
    }
}

/// Roots are listed in a damaged table and entries that cannot be read are counted.
#[test]
fn damaged_table_lists_roots_and_counts_the_rest() {
    use holdfast_heap::layout::{DESCRIPTOR_BYTES, SUPER_ROOTS};
    let mut heap = open(TestMemory::new(32 << 20));
    heap.create_root("large", 300 << 10).unwrap();
    heap.create_root("spanning", 9 << 20).unwrap();
    let mut memory = heap.close();
    let names = |memory: &TestMemory| {
        let survey = Survey::new(memory.bytes()).unwrap();
        let mut names: Vec<_> = survey.roots().map(|root| root.name.to_owned()).collect();
        names.sort();
        (names, survey.unreadable_roots())
    };
    let both = (vec!["large".to_owned(), "spanning".to_owned()], 0);
    assert_eq!(names(&memory), both);
    // The chunk that the table lies in is no longer described.
    let table = u64::from_le_bytes(memory.bytes()[SUPER_ROOTS as usize..][..8].try_into().unwrap());
    memory.bytes_mut()[(table / CHUNK * DESCRIPTOR_BYTES) as usize] ^= 1;
    assert_eq!(names(&memory), both);
    let name = memory.bytes().windows(5).position(|bytes| bytes == b"large").unwrap();
    memory.bytes_mut()[name] ^= 1;
    assert_eq!(names(&memory), (vec!["spanning".to_owned()], 1));
}

/// Asks everything; what comes out does not matter.
fn ask_everything(bytes: &[u8]) {
    let begin = Instant::now();
    if let Some(survey) = Survey::new(bytes) {
        let _ = (survey.classes(), survey.chunks().count());
        let _ = (survey.roots().count(), survey.unreadable_roots());
        assert!(
            survey
                .objects()
                .all(|object| object.offset + object.bytes <= bytes.len() as u64 + (4 << 20))
        );
        survey.leaks(&mut |_| {});
    }
    assert!(begin.elapsed() < Duration::from_secs(10), "too long for {} bytes", bytes.len());
}

/// A survey of an old a cut and a foreign heap answers or refuses.
///
/// Guarantee: heap/check
/// Guarantee: heap/hostile-content
#[test]
fn survey_of_any_heap_answers_or_refuses() {
    let old = version_1();
    ask_everything(old.bytes());
    assert_eq!(
        Survey::new(old.bytes()).unwrap().roots().filter(|root| root.name == "text").count(),
        1
    );
    for cut in [0, 7, 64, 100, 1000, 65_535, 65_536, 70_000, 300_001, 1 << 20] {
        ask_everything(&old.bytes()[..cut]);
    }
    assert!(Survey::new(&[7; 65_536]).is_none());
    let words: Vec<u64> =
        old.bytes().chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    assert_eq!(bytes_of(&words), old.bytes());
}

/// A head that claims more than its segment has shows as damage and moves nothing.
#[test]
fn overlong_head_shows_as_damage() {
    use holdfast_heap::layout::{DESC_USED_CHUNKS, DESCRIPTOR_BYTES, Head, HeadKind};
    let mut heap = open(TestMemory::new(16 << 20));
    let mut objects = Vec::new();
    for _ in 0..10 {
        let object = heap.alloc(20 * CHUNK).unwrap();
        objects.push(view(&heap, object));
    }
    let mut memory = heap.close();
    let head = Head { kind: HeadKind::Run, class: 0, span: 2 }.encode();
    memory.bytes_mut()[(63 * DESCRIPTOR_BYTES) as usize..][..8]
        .copy_from_slice(&head.to_le_bytes());
    memory.bytes_mut()[DESC_USED_CHUNKS as usize + 7] |= 0x80;
    let survey = Survey::new(memory.bytes()).unwrap();
    assert_eq!(survey.chunks().nth(63).unwrap().kind, ChunkKind::Damaged);
    assert_eq!(survey.objects().collect::<Vec<_>>(), objects);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]
    /// Guarantee: heap/check
    /// Guarantee: heap/hostile-content
    #[test]
    fn no_bytes_make_a_survey_panic(
        flips in proptest::collection::vec((0..8_388_608usize, any::<u8>()), 1..40),
        tables in proptest::collection::vec((0..131_072usize, any::<u8>()), 0..60),
        // Words of the tables, replaced by heads that hold: kind, class, span.
        heads in proptest::collection::vec((0..128u64, 0..7u8, any::<u8>(), 0..70u32), 0..8),
        fixed in proptest::collection::vec((0..32u64, any::<u64>()), 0..3),
    ) {
        use holdfast_heap::layout::{DESCRIPTOR_BYTES, Head, HeadKind, SEGMENT_BYTES};
        let mut heap = open(TestMemory::new(16 << 20));
        for index in 0..60 {
            heap.create_root(&format!("r{index}"), 100 * index + 1).unwrap();
        }
        heap.alloc(5 << 20).unwrap();
        let mut memory = heap.close();
        let length = memory.bytes().len();
        for (at, byte) in flips.into_iter().chain(tables) {
            memory.bytes_mut()[at % length] ^= byte;
        }
        let mut store = |at: u64, word: u64| memory.bytes_mut()[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
        for (number, kind, class, span) in heads {
            let kinds = [HeadKind::Slab, HeadKind::Run, HeadKind::Log, HeadKind::Absent, HeadKind::Segment, HeadKind::Inside, HeadKind::Run];
            let at = number / 64 * SEGMENT_BYTES + number % 64 * DESCRIPTOR_BYTES;
            store(at, Head { kind: kinds[usize::from(kind)], class, span }.encode());
        }
        for (word, value) in fixed {
            store(64 + word * 8, value);
        }
        store(64, holdfast_heap::layout::MAGIC);
        ask_everything(memory.bytes());
        check(memory.bytes(), &mut |_| {});
        if let Ok(mut heap) = Heap::open(memory, OPTIONS) {
            for pointer in [heap.alloc(5000), heap.alloc_aligned(100_000, 1 << 20), heap.alloc(5 << 20)].into_iter().flatten() {
                let _ = heap.realloc(pointer, 200_000).map(|pointer| heap.free(pointer));
            }
            let _ = heap.create_root_typed::<Typed8>("new");
            let _ = heap.root_typed::<Typed8>("r7");
            let _ = heap.adopt_root::<Typed8>("r8");
            ask_everything(heap.backing().bytes());
        }
    }
}
