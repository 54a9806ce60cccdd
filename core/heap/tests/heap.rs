//! The allocator's promises to programs: objects do not overlap and keep their bytes, across any
//! sequence of operations, transactions and re-openings at another address.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use std::collections::BTreeMap;

use common::{OPTIONS, TestMemory, assert_sound, at, fill, holds, open};
use holdfast_heap::{GrowError, Heap, HeapError, OpenError, OpenOptions, Opened, Pointers};
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    Alloc(u64),
    AllocAligned(u64, u32),
    Realloc(usize, u64),
    Free(usize),
    CreateRoot(u8, u64),
    RemoveRoot(u8),
    Begin,
    Commit,
    Abort,
    Reopen,
}

fn sizes() -> impl Strategy<Value = u64> {
    prop_oneof![1..200u64, 200..40_000u64, 40_000..700_000u64, Just(4 << 20)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => sizes().prop_map(Step::Alloc),
        2 => (sizes(), 0..22u32).prop_map(|(bytes, power)| Step::AllocAligned(bytes, power)),
        4 => (any::<usize>(), sizes()).prop_map(|(pick, bytes)| Step::Realloc(pick, bytes)),
        4 => any::<usize>().prop_map(Step::Free),
        2 => (any::<u8>(), 1..3000u64).prop_map(|(name, bytes)| Step::CreateRoot(name, bytes)),
        1 => any::<u8>().prop_map(Step::RemoveRoot),
        1 => Just(Step::Begin),
        1 => Just(Step::Commit),
        1 => Just(Step::Abort),
        1 => Just(Step::Reopen),
    ]
}

/// What the heap should hold, by offset: size and content.
#[derive(Clone, Default)]
struct Model {
    objects: BTreeMap<u64, (u64, u8)>,
    roots: BTreeMap<u8, (u64, u64)>,
    /// Freed in the open transaction: gone at the commit.
    freed: Vec<u64>,
}

impl Model {
    fn alive(&self) -> Vec<u64> {
        self.objects.keys().filter(|offset| !self.freed.contains(offset)).copied().collect()
    }
}

fn run(steps: Vec<Step>) {
    let mut heap = open(TestMemory::new(24 << 20));
    let mut model = Model::default();
    let mut saved: Option<Model> = None;
    for (index, step) in steps.into_iter().enumerate() {
        let seed = index as u8;
        match step {
            Step::Alloc(bytes) => match heap.alloc(bytes) {
                Ok(pointer) => {
                    let offset = heap.offset_of(pointer).unwrap();
                    assert!(offset.is_multiple_of(16));
                    fill(pointer, bytes, seed);
                    assert!(model.objects.insert(offset, (bytes, seed)).is_none());
                }
                Err(HeapError::OutOfMemory { .. }) => {}
                Err(other) => panic!("{other}"),
            },
            Step::AllocAligned(bytes, power) => match heap.alloc_aligned(bytes, 1 << power) {
                Ok(pointer) => {
                    assert!((pointer.as_ptr() as usize).is_multiple_of(1 << power));
                    let offset = heap.offset_of(pointer).unwrap();
                    assert!(heap.usable_bytes(pointer).unwrap() >= bytes);
                    fill(pointer, bytes, seed);
                    assert!(model.objects.insert(offset, (bytes, seed)).is_none());
                }
                Err(HeapError::OutOfMemory { .. }) => {}
                Err(other) => panic!("{other}"),
            },
            Step::Realloc(pick, bytes) => {
                let alive = model.alive();
                let Some(offset) = alive.get(pick % alive.len().max(1)) else { continue };
                let (old_bytes, old_seed) = model.objects[offset];
                match heap.realloc_zeroed(at(&heap, *offset), old_bytes, bytes) {
                    Ok(pointer) => {
                        let to = heap.offset_of(pointer).unwrap();
                        assert!(heap.usable_bytes(pointer).unwrap() >= bytes);
                        assert!(holds(&heap, to, old_bytes.min(bytes), old_seed), "lost content");
                        let new = bytes.saturating_sub(old_bytes);
                        assert!(
                            holds(&heap, to + old_bytes.min(bytes), new, 0),
                            "the new part is not zero"
                        );
                        if to != *offset {
                            if heap.in_transaction() {
                                model.freed.push(*offset);
                            } else {
                                model.objects.remove(offset);
                            }
                        }
                        // What is filled anew past the old size is no content that a rollback owes.
                        let kept = if to == *offset { old_seed } else { seed };
                        fill(pointer, bytes, kept);
                        model.objects.insert(to, (bytes, kept));
                    }
                    Err(HeapError::OutOfMemory { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
            Step::Free(pick) => {
                let alive = model.alive();
                if let Some(offset) = alive.get(pick % alive.len().max(1)) {
                    heap.free(at(&heap, *offset)).unwrap();
                    if heap.in_transaction() {
                        model.freed.push(*offset);
                    } else {
                        model.objects.remove(offset);
                        assert_eq!(heap.free(at(&heap, *offset)), Err(HeapError::NotAllocated));
                    }
                }
            }
            Step::CreateRoot(name, bytes) => match heap.create_root(&format!("root {name}"), bytes)
            {
                Ok(pointer) => {
                    let offset = heap.offset_of(pointer).unwrap();
                    assert!(holds(&heap, offset, bytes, 0), "a new root is not zero");
                    assert!(model.roots.insert(name, (offset, bytes)).is_none());
                }
                Err(HeapError::NameTaken) => assert!(model.roots.contains_key(&name)),
                Err(other) => panic!("{other}"),
            },
            Step::RemoveRoot(name) => {
                let removed = heap.remove_root(&format!("root {name}"));
                assert_eq!(removed.is_ok(), model.roots.remove(&name).is_some());
            }
            Step::Begin if !heap.in_transaction() => {
                heap.begin().unwrap();
                saved = Some(model.clone());
            }
            Step::Commit if heap.in_transaction() => {
                heap.commit().unwrap();
                saved = None;
                for offset in std::mem::take(&mut model.freed) {
                    model.objects.remove(&offset);
                }
            }
            Step::Abort if heap.in_transaction() => {
                heap.abort().unwrap();
                model = saved.take().unwrap();
            }
            Step::Begin | Step::Commit | Step::Abort => {}
            Step::Reopen => {
                // The old process is gone without a word: an open transaction is rolled back.
                let image = heap.backing().copy();
                heap = open(image);
                if let Some(before) = saved.take() {
                    model = before;
                }
            }
        }
        for (offset, (bytes, seed)) in &model.objects {
            assert!(holds(&heap, *offset, *bytes, *seed), "object at {offset:#x} changed");
        }
    }
    if heap.in_transaction() {
        heap.abort().unwrap();
        model = saved.unwrap();
    }
    let report = assert_sound(heap.backing().bytes(), "at the end");
    assert_eq!(report.roots as usize, model.roots.len());
    let table = u64::from(
        heap.root("no such root").is_none() && report.objects > model.objects.len() as u64,
    );
    assert!(
        report.objects <= model.objects.len() as u64 + 2 * model.roots.len() as u64 + table,
        "something leaked"
    );
    for (name, (offset, bytes)) in &model.roots {
        let root = heap.root(&format!("root {name}")).unwrap();
        assert_eq!((heap.offset_of(root.pointer), root.bytes), (Some(*offset), *bytes));
    }
    let mut offsets: Vec<_> = model.objects.iter().map(|(o, (b, _))| (*o, *b)).collect();
    offsets.extend(model.roots.values());
    offsets.sort_unstable();
    assert!(offsets.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "objects overlap");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]
    /// Guarantee: heap/objects
    /// Guarantee: heap/same-in-a-sandbox
    #[test]
    fn any_sequence_of_operations_matches_the_model(steps in proptest::collection::vec(step(), 1..120)) {
        run(steps);
    }

    /// Guarantee: heap/check
    /// Guarantee: heap/hostile-content
    #[test]
    fn no_bytes_make_opening_or_checking_panic(
        flips in proptest::collection::vec((0..4_194_304usize, any::<u8>()), 1..40),
        near in proptest::collection::vec((0..1024usize, any::<u8>()), 0..20),
        lane in proptest::collection::vec((65_536..66_000usize, any::<u8>()), 0..20),
    ) {
        let mut heap = open(TestMemory::new(8 << 20));
        for index in 0..60 {
            heap.create_root(&format!("r{index}"), 100 * index + 1).unwrap();
        }
        heap.begin().unwrap();
        heap.create_root("open", 70_000).unwrap();
        let mut memory = heap.backing().copy();
        for (at, byte) in flips.into_iter().chain(near).chain(lane) {
            memory.bytes_mut()[at] ^= byte;
        }
        holdfast_heap::check(memory.bytes(), &mut |_| {});
        if let Ok(mut heap) = Heap::open(memory, OPTIONS) {
            let _ = heap.roots().count();
            let _ = heap.root("r7");
            for bytes in [1, 100, 10_000, 100_000] {
                let _ = heap.alloc(bytes);
            }
            let _ = heap.create_root("new", 10);
            holdfast_heap::check(heap.backing().bytes(), &mut |_| {});
        }
    }
}

/// Guarantee: heap/reading-writes-nothing
#[test]
fn a_warm_open_of_a_heap_in_order_writes_nothing() {
    let mut heap = open(TestMemory::new(16 << 20));
    assert_eq!(heap.opened(), Opened::Formatted);
    heap.create_root("data", 1000).unwrap();
    let image = heap.close();
    let before = image.bytes().to_vec();
    let heap = open(image);
    assert_eq!(heap.opened(), Opened::Clean);
    assert!(heap.root("data").is_some());
    assert!(heap.backing().bytes() == before);
}

/// An open transaction of a dead session is rolled back at the next open.
#[test]
fn open_transaction_is_rolled_back_at_next_open() {
    let mut heap = open(TestMemory::new(16 << 20));
    heap.create_root("data", 8).unwrap();
    heap.begin().unwrap();
    heap.create_root("half done", 8).unwrap();
    assert_eq!(holdfast_heap::check(heap.backing().bytes(), &mut |_| {}).findings, 1);
    let heap = open(heap.backing().copy());
    assert_eq!(heap.opened(), Opened::Recovered);
    assert!(heap.root("data").is_some() && heap.root("half done").is_none());
    assert_sound(heap.backing().bytes(), "after recovery");
}

/// A log whose extents are linked in a circle is left behind.
#[test]
fn circular_log_is_left_behind() {
    const LANE_EXTENT: usize = 65_536 + 8;
    const EXTENT_OLDER: usize = 32;
    let mut heap = open(TestMemory::new(16 << 20));
    let root = heap.create_root("data", 200_000).unwrap();
    heap.begin().unwrap();
    heap.add_range(root.as_ptr(), 200_000).unwrap();
    let mut image = heap.backing().copy();
    let link: [u8; 8] = image.bytes()[LANE_EXTENT..LANE_EXTENT + 8].try_into().unwrap();
    let extent = u64::from_le_bytes(link) as usize;
    assert_ne!(extent, 0, "the log did not outgrow its chunk");
    image.bytes_mut()[extent + EXTENT_OLDER..extent + EXTENT_OLDER + 8].copy_from_slice(&link);
    // What the lane's own chunk holds is cut off and stays; the heap opens, and is not written
    // outside of it.
    let heap = open(image);
    assert!(heap.root("data").is_some());
}

/// A transaction whose work fails or panics is rolled back.
#[test]
fn failed_or_panicking_transaction_is_rolled_back() {
    let mut heap = open(TestMemory::new(16 << 20));
    let failed: Result<(), HeapError> = heap.transaction(|tx| {
        tx.create_root("a", 10)?;
        Err(HeapError::NotAllocated)
    });
    assert_eq!(failed, Err(HeapError::NotAllocated));
    // Where a panic ends the program, as in an applet, it is a kill.
    #[cfg(panic = "unwind")]
    {
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            heap.transaction(|tx| -> Result<(), HeapError> {
                tx.create_root("b", 10)?;
                panic!("the applet's own fault")
            })
        }));
        assert!(panicked.is_err());
    }
    assert_eq!(heap.roots().count(), 0);
    heap.create_root("c", 10).unwrap();
    assert_eq!(heap.roots().map(|(name, _)| name.to_owned()).collect::<Vec<_>>(), ["c"]);
}

/// Guarantee: heap/limits
#[test]
fn the_heap_grows_to_its_limit_and_says_so() {
    let mut heap = open(TestMemory::new(16 << 20));
    let mut objects = 0;
    let error = loop {
        match heap.alloc(100_000) {
            Ok(_) => objects += 1,
            Err(error) => break error,
        }
    };
    let limit_bytes = 16 << 20;
    assert_eq!(
        error,
        HeapError::OutOfMemory {
            wanted_bytes: 131_072,
            cause: GrowError::LimitReached { limit_bytes }
        }
    );
    assert!(objects >= 120, "only {objects} objects of two chunks in 252 chunks");
    assert!(error.to_string().contains("raise its limit"));
    heap.alloc(10).unwrap();
    assert_sound(heap.backing().bytes(), "full");
}

/// A full pool fails the allocation and changes nothing.
#[test]
fn full_pool_fails_allocation_and_changes_nothing() {
    let mut memory = TestMemory::new(64 << 20);
    memory.refuse_to_grow();
    let mut heap = open(memory);
    heap.create_root("data", 1000).unwrap();
    let failed = heap.create_root("too much", 20 << 20);
    assert!(matches!(failed, Err(HeapError::OutOfMemory { cause: GrowError::NoRoom, .. })));
    assert_sound(heap.backing().bytes(), "after the refusal");
    assert!(heap.root("too much").is_none());
    heap.create_root("fits", 1000).unwrap();
}

/// A heap smaller than a segment works to its last chunk.
#[test]
fn tiny_heap_works_to_its_last_chunk() {
    let mut heap = open(TestMemory::new(512 << 10));
    let mut objects = 0;
    while heap.alloc(32_768).is_ok() {
        objects += 1;
    }
    assert_eq!(objects, 12);
    assert_sound(heap.backing().bytes(), "small heap");
}

#[test]
fn freed_memory_is_used_again() {
    let mut heap = open(TestMemory::new(4 << 20));
    for round in 0..50 {
        let objects: Vec<_> = (0..20_000).map(|_| heap.alloc(100).unwrap()).collect();
        for (index, object) in objects.iter().enumerate() {
            if index % 3 != 0 {
                heap.free(*object).unwrap();
            }
        }
        for object in objects.iter().step_by(3) {
            heap.free(*object).unwrap();
        }
        let report = assert_sound(heap.backing().bytes(), &format!("round {round}"));
        assert_eq!(report.objects, 0);
    }
    heap.alloc(1 << 20).unwrap();
}

#[test]
fn whole_segments_are_used_again() {
    let mut heap = open(TestMemory::new(32 << 20));
    for _ in 0..20 {
        let huge = heap.alloc(18 << 20).unwrap();
        fill(huge, 18 << 20, 0xEE);
        heap.free(huge).unwrap();
    }
    let small: Vec<_> = (0..100).map(|_| heap.alloc(200_000).unwrap()).collect();
    assert_sound(heap.backing().bytes(), "reused as small runs");
    drop(small);
}

/// Foreign newer and mismatched bytes are refused untouched.
#[test]
fn foreign_and_newer_bytes_are_refused_untouched() {
    let mut heap = open(TestMemory::new(8 << 20));
    heap.create_root("data", 10).unwrap();
    let good = heap.close();

    let refused = |change: &dyn Fn(&mut [u8]), options: OpenOptions| {
        let mut memory = good.copy();
        change(memory.bytes_mut());
        let before = memory.bytes().to_vec();
        let base = holdfast_heap::Backing::base(&memory);
        // SAFETY: `memory` outlives the heap and is not used meanwhile.
        let fixed = unsafe { holdfast_heap::Fixed::new(base, 4 << 20) };
        let error = Heap::open(fixed, options).err().unwrap();
        assert!(memory.bytes() == before, "refusing wrote something");
        error
    };
    assert_eq!(refused(&|bytes| bytes[..1024].fill(b'x'), OPTIONS), OpenError::NotAHeap);
    assert_eq!(refused(&|bytes| bytes[72] = 9, OPTIONS), OpenError::NewerFormat { version: 9 });
    assert!(matches!(refused(&|bytes| bytes[80] ^= 1, OPTIONS), OpenError::Damaged { .. }));
    assert!(matches!(refused(&|bytes| bytes[104] = 200, OPTIONS), OpenError::Truncated { .. }));
    let native =
        OpenOptions { pointers: Some(Pointers { base: 1 << 44, bytes: 8 }), format_if_empty: true };
    assert!(matches!(refused(&|_| (), native), OpenError::PointerMismatch { .. }));
}

/// A heap whose first bytes were lost counted as an empty region: a check called it sound, and the
/// next program formatted what was left.
///
/// Guarantee: heap/damaged-headers
#[test]
fn heap_that_lost_its_head_is_not_formatted() {
    let mut heap = open(TestMemory::new(4 << 20));
    heap.create_root("kept", 100).unwrap();
    let good = heap.close();
    for lost in [1024, 4096, 65_536] {
        let mut memory = good.copy();
        memory.bytes_mut()[..lost].fill(0);
        let before = memory.bytes().to_vec();
        let base = holdfast_heap::Backing::base(&memory);
        for format_if_empty in [false, true] {
            // SAFETY: `memory` outlives the heap and is not used meanwhile.
            let fixed = unsafe { holdfast_heap::Fixed::new(base, 4 << 20) };
            let options = OpenOptions { format_if_empty, ..OPTIONS };
            let error = Heap::open(fixed, options).err().unwrap();
            // Without the descriptor of the lane it may be anything.
            let is_told = match lost {
                1024 => matches!(error, OpenError::Damaged { .. }),
                _ => error == OpenError::NotAHeap,
            };
            assert!(is_told, "{lost}: {error}");
            assert!(memory.bytes() == before, "refusing wrote something");
        }
    }
}

/// With a flipped bit in the words that say where the roots are, a program did not find its root.
/// When it then created the root again, a new table replaced the old one, and all other roots were
/// lost.
///
/// Guarantee: heap/damaged-headers
#[test]
fn damaged_root_table_is_never_replaced() {
    /// Offset, slots, slots ever used, roots (`docs/format.md`).
    const ROOT_WORDS: [usize; 4] = [128, 136, 144, 152];
    const ROOTS: u64 = 10;
    let name = |index: u64| format!("root {index}");
    let mut heap = open(TestMemory::new(4 << 20));
    for index in 0..ROOTS {
        heap.create_root(&name(index), 300).unwrap();
    }
    let good = heap.close();
    let mut refused = 0;
    for (word, bit) in ROOT_WORDS.into_iter().flat_map(|word| (0..64).map(move |bit| (word, bit))) {
        let (at, flipped) = (word + bit / 8, 1 << (bit % 8));
        let mut memory = good.copy();
        memory.bytes_mut()[at] ^= flipped;
        let mut heap = open(memory);
        let made = heap.create_root("new", 8).map(drop);
        if made.is_err() {
            assert!(matches!(made, Err(HeapError::Damaged { offset: 128, .. })), "{made:?}");
            let mut memory = heap.close();
            memory.bytes_mut()[at] ^= flipped;
            assert!(memory.bytes() == good.bytes(), "{word}, bit {bit}: refusing wrote something");
            heap = open(memory);
            refused += 1;
        }
        for index in 0..ROOTS {
            assert!(heap.root(&name(index)).is_some(), "{word}, bit {bit}: {index} is lost");
        }
    }
    assert!(refused > 3 * 50, "{refused}");
}

/// Every flipped bit of tables that hold the roots is found by the check.
///
/// Guarantee: heap/check
#[test]
fn check_finds_every_flipped_bit_of_root_tables() {
    let mut heap = open(TestMemory::new(4 << 20));
    for index in 0..10 {
        heap.create_root(&format!("root {index}"), 300).unwrap();
    }
    let good = heap.close();
    let mut missed = Vec::new();
    // Superblock's fixed part, segment word, lane and slab heads: every bit counts.
    let fixed = (64..104).chain(0..16).chain(1024..1032).chain(2048..2056).chain(3072..3080);
    for byte in fixed {
        for bit in 0..8 {
            let mut memory = good.copy();
            memory.bytes_mut()[byte] ^= 1 << bit;
            if holdfast_heap::check(memory.bytes(), &mut |_| {}).is_sound() {
                missed.push((byte, bit));
            }
        }
    }
    assert!(missed.is_empty(), "{missed:?}");
}

#[test]
fn root_names_have_bounds() {
    let mut heap = open(TestMemory::new(4 << 20));
    assert_eq!(heap.create_root("", 1), Err(HeapError::BadName));
    assert_eq!(heap.create_root(&"x".repeat(256), 1), Err(HeapError::BadName));
    heap.create_root(&"x".repeat(255), 1).unwrap();
    heap.create_root("naïve ☂", 1).unwrap();
    assert_eq!(heap.create_root("naïve ☂", 1), Err(HeapError::NameTaken));
    assert_eq!(heap.remove_root("none"), Err(HeapError::NoSuchRoot));
}

#[test]
fn thousands_of_roots_are_found_and_removed() {
    let mut heap = open(TestMemory::new(64 << 20));
    for index in 0..10_000 {
        let root = heap.create_root(&format!("root number {index}"), 8).unwrap();
        // SAFETY: eight bytes, aligned to 16.
        unsafe { root.as_ptr().cast::<u64>().write(index) };
    }
    for index in (0..10_000).step_by(2) {
        heap.remove_root(&format!("root number {index}")).unwrap();
    }
    let heap = open(heap.backing().copy());
    for index in 0..10_000u64 {
        let root = heap.root(&format!("root number {index}"));
        // SAFETY: as above.
        let value = root.map(|root| unsafe { root.pointer.as_ptr().cast::<u64>().read() });
        assert_eq!(value, (index % 2 == 1).then_some(index));
    }
    assert_eq!(assert_sound(heap.backing().bytes(), "many roots").roots, 5000);
}

/// However often a root is replaced, no search walks along the slots that it had.
#[test]
fn replaced_root_leaves_no_used_slots_behind() {
    /// Of the count of used slots (`docs/format.md`).
    const USED_SLOTS: usize = 128 + 16;
    let mut heap = open(TestMemory::new(64 << 20));
    for index in 0..5 {
        heap.create_root(&format!("root number {index}"), 8).unwrap();
    }
    let used = |heap: &Heap<TestMemory>| heap.backing().bytes()[USED_SLOTS];
    heap.remove_root("root number 3").unwrap();
    let before = used(&heap);
    for round in 0..1_000 {
        heap.create_root("root number 3", 8).unwrap();
        heap.remove_root("root number 3").unwrap();
        assert_eq!(used(&heap), before, "round {round}");
    }
    assert_eq!(assert_sound(heap.backing().bytes(), "replaced roots").roots, 4);
}

/// A root that is not zeroed is otherwise one like others.
#[test]
fn root_of_whatever_bytes_is_made_and_found() {
    let mut heap = open(TestMemory::new(64 << 20));
    let old = heap.create_root("root", 100_000).unwrap();
    // SAFETY: within the object.
    unsafe { old.as_ptr().write_bytes(7, 100_000) };
    heap.remove_root("root").unwrap();
    assert_eq!(heap.create_root_uninit("", 8), Err(HeapError::BadName));
    let new = heap.create_root_uninit("root", 100_000).unwrap();
    assert_eq!(heap.create_root_uninit("root", 8), Err(HeapError::NameTaken));
    // SAFETY: within the object.
    assert_eq!(unsafe { new.as_ptr().add(99_999).read() }, 7);
    assert_eq!(heap.root("root").map(|root| (root.pointer, root.bytes)), Some((new, 100_000)));
}

/// A run over a chunk that was a slab is not mistaken for the slab.
#[test]
fn run_over_a_former_slab_is_not_taken_for_one() {
    // Two objects of one slab, rolled back newest first: the first left the slab remembered as
    // having room, the second gave its chunk back, and a run took it. The next small object landed
    // inside the run.
    let steps = vec![
        Step::Begin,
        Step::Alloc(16_367),
        Step::Alloc(37),
        Step::CreateRoot(66, 1690),
        Step::Reopen,
        Step::Alloc(683_331),
        Step::CreateRoot(14, 1426),
    ];
    run(steps);
}
