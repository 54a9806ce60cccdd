//! The machine is reset while an ordered heap is used, and memory keeps what has reached it: row H3
//! of the fault matrix.
//!
//! The canaries are tests themselves: a medium that misses write-backs of one kind must be found
//! out.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]
// Only there can lines be written back.
#![cfg(all(target_arch = "x86_64", not(target_family = "wasm")))]

mod common;

use common::medium::Losing;
use common::reset::{LINKS, LINKS_MAX, Ordered, OrderedHeap, Watch, memory_of};
use common::{Dice, OPTIONS, TestMemory, at_base, share};
use holdfast_heap::{Backing, Heap, HeapError, layout, recorder};
use holdfast_testkit::Trials;

type Result<T = ()> = std::result::Result<T, HeapError>;

/// The heap of a session, and how many operations it sees.
const SESSION_BYTES: u64 = 1 << 20;
const SESSION_OPERATIONS: u32 = 60;
/// Images of one moment: many moments with a few each, or in sessions of a long run all choices of
/// up to twelve lines.
const IMAGES_MAX: u64 = 16;
const IMAGES_MAX_LONG: [u64; 3] = [IMAGES_MAX, 64, 4096];
const LONG: u64 = 100_000;

/// Stores as a program does.
fn poke(at: *mut u8, bytes: &[u8]) {
    // SAFETY: the callers pass objects of at least that many bytes.
    unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    recorder::stored(at, bytes.len());
}

/// An object that tells its own length, filled.
fn fill(object: *mut u8, bytes: u64, seed: u64) {
    let mut content = vec![seed as u8 | 1; bytes as usize];
    content[..8].copy_from_slice(&bytes.to_le_bytes());
    poke(object, &content);
}

fn link_at(heap: &OrderedHeap, index: u64) -> *mut u8 {
    heap.root(LINKS).unwrap().pointer.as_ptr().wrapping_add(8 * index as usize)
}

fn link(heap: &OrderedHeap, index: u64) -> u64 {
    // SAFETY: a word of the root.
    unsafe { link_at(heap, index).cast::<u64>().read() }
}

fn set_link(heap: &mut OrderedHeap, index: u64, to: u64) -> Result {
    let at = link_at(heap, index);
    heap.add_range(at, 8)?;
    poke(at, &to.to_le_bytes());
    Ok(())
}

/// One random operation, which is one step: a transaction, an allocation or a free. One that fails
/// leaves nothing.
fn operate(heap: &mut OrderedHeap, dice: &mut Dice, loose: &mut Vec<u64>) -> Result {
    let (index, name) = (dice.below(LINKS_MAX as u64), format!("root {}", dice.below(6)));
    let bytes =
        if dice.below(12) == 0 { 40_000 + dice.below(100_000) } else { 8 + dice.below(600) };
    let seed = dice.below(256);
    match dice.below(12) {
        0 => heap.create_root(&name, 8 + dice.below(300)).map(drop),
        1 => heap.remove_root(&name),
        2..5 => heap.transaction(|tx| update(tx, dice)),
        5 | 6 => heap.transaction(|tx| replace(tx, index, bytes, seed)),
        7 => heap.transaction(|tx| resize(tx, index, bytes, seed)),
        8 => heap.transaction(|tx| {
            replace(tx, index, bytes, seed)?;
            update(tx, dice)?;
            tx.create_root(&name, 20)?;
            Err(HeapError::OutsideHeap)
        }),
        9 => {
            let object = heap.alloc(bytes)?;
            fill(object.as_ptr(), bytes, seed);
            loose.push(heap.offset_of(object).unwrap());
            Ok(())
        }
        10 if !loose.is_empty() => {
            let object = loose.swap_remove(dice.below(loose.len() as u64) as usize);
            heap.free(at_base(heap, object))
        }
        _ => heap.transaction(|tx| {
            let old = link(tx, index);
            set_link(tx, index, 0)?;
            if old == 0 {
                return update(tx, dice);
            }
            let old = at_base(tx, old);
            tx.free(old)
        }),
    }
}

/// Ranges of roots, some of them over each other.
fn update(heap: &mut OrderedHeap, dice: &mut Dice) -> Result {
    let roots: Vec<_> =
        heap.roots().filter(|(name, _)| *name != LINKS).map(|(_, root)| root).collect();
    for _ in 0..dice.below(4) {
        let Some(root) = roots.get(dice.below(roots.len().max(1) as u64) as usize) else { break };
        let start = dice.below(root.bytes);
        let bytes = 1 + dice.below((root.bytes - start).min(100));
        let at = root.pointer.as_ptr().wrapping_add(start as usize);
        heap.add_range(at, bytes)?;
        poke(at, &vec![dice.below(256) as u8; bytes as usize]);
    }
    Ok(())
}

fn replace(heap: &mut OrderedHeap, index: u64, bytes: u64, seed: u64) -> Result {
    let object = heap.alloc(bytes)?;
    fill(object.as_ptr(), bytes, seed);
    let old = link(heap, index);
    set_link(heap, index, heap.offset_of(object).unwrap())?;
    if old == 0 { Ok(()) } else { heap.free(at_base(heap, old)) }
}

fn resize(heap: &mut OrderedHeap, index: u64, bytes: u64, seed: u64) -> Result {
    let old = link(heap, index);
    if old == 0 {
        return Ok(());
    }
    let before = at_base(heap, old);
    // SAFETY: its first word is its length.
    let length = unsafe { before.as_ptr().cast::<u64>().read() };
    let object = heap.realloc(before, bytes)?;
    let to = heap.offset_of(object).unwrap();
    // What was there before is noted; what is new need not be.
    let kept = if object == before { length.min(bytes) } else { 0 };
    heap.add_range(object.as_ptr(), kept.max(if object == before { 8 } else { 0 }))?;
    fill(object.as_ptr(), bytes, seed);
    set_link(heap, index, to)
}

fn formatted(bytes: u64, seed: u64, images_max: u64) -> (OrderedHeap, Watch) {
    let mut heap = Heap::open(Ordered(memory_of(bytes)), OPTIONS).unwrap();
    heap.create_root(LINKS, 8 * LINKS_MAX as u64).unwrap();
    heap.create_root("root 0", 200).unwrap();
    let watch = Watch::new(&heap.backing().0, seed, images_max);
    (heap, watch)
}

/// Random operations; returns how many images were looked at.
fn session(seed: u64, images_max: u64, losing: Losing) -> std::result::Result<u64, String> {
    let (mut heap, mut watch) = formatted(SESSION_BYTES, seed, images_max);
    watch.lose(losing);
    let (mut dice, mut loose) = (Dice(seed), Vec::new());
    for number in 0..SESSION_OPERATIONS {
        watch.during(&format!("operation {number} of seed {seed:#x}"), || {
            let _ = operate(&mut heap, &mut dice, &mut loose);
            &mut heap
        })?;
    }
    Ok(watch.images())
}

/// Whatever reached memory before a reset the heap has every acknowledged operation whole.
///
/// Guarantee: heap/reset-ordered
#[test]
fn acknowledged_operations_survive_any_reset_order() {
    let mut trials = Trials::of("H3", "images of memory after a reset", 20_000);
    let kinds = if trials.count() >= LONG { &IMAGES_MAX_LONG[..] } else { &IMAGES_MAX_LONG[..1] };
    let mut kinds = kinds.iter().copied().cycle();
    while let (Some(images_max), Some(trial)) = (kinds.next(), trials.next()) {
        let images = session(trial.seed, images_max, Losing::Nothing)
            .unwrap_or_else(|wrong| panic!("{wrong}"));
        for _ in 1..images {
            trials.next();
        }
    }
}

/// Every choice of a transaction's cache lines leaves it whole or undone.
///
/// Guarantee: heap/reset-ordered
#[test]
fn any_subset_of_lines_leaves_it_whole_or_undone() {
    let (mut heap, mut watch) = formatted(SESSION_BYTES, 2, 4096);
    let mut watched = |what: &str, work: &mut dyn FnMut(&mut OrderedHeap)| {
        let done = watch.during(what, || {
            work(&mut heap);
            &mut heap
        });
        done.map(drop).unwrap_or_else(|wrong| panic!("{wrong}"));
    };
    watched("a root", &mut |heap| _ = heap.create_root("data", 8 * 64).unwrap());
    watched("a transaction of twelve lines", &mut |heap| {
        let root = heap.root("data").unwrap().pointer;
        heap.transaction(|tx| {
            tx.add_range(root.as_ptr(), 8 * 64)?;
            replace(tx, 0, 3 * 64, 5)?;
            poke(root.as_ptr(), &[7; 8 * 64]);
            Ok::<_, HeapError>(())
        })
        .unwrap();
    });
    watched("one that is aborted", &mut |heap| {
        let root = heap.root("data").unwrap().pointer;
        heap.begin().unwrap();
        heap.add_range(root.as_ptr(), 8 * 64).unwrap();
        poke(root.as_ptr(), &[8; 8 * 64]);
        heap.abort().unwrap();
    });
    assert!(watch.images() > 4096, "{} images", watch.images());
}

/// Formatting a heap in order leaves it empty or whole after a reset.
///
/// Guarantee: heap/reset-ordered
#[test]
fn ordered_formatting_is_empty_or_whole_after_reset() {
    let memory = memory_of(SESSION_BYTES);
    let mut watch = Watch::new(&memory, 1, IMAGES_MAX);
    let heap = watch.during_making("formatting", || Heap::open(Ordered(memory), OPTIONS).unwrap());
    heap.unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(watch.images() > 20, "{} images", watch.images());
}

/// Objects of whole segments and a long log are in order too.
///
/// Guarantee: heap/reset-ordered
#[test]
fn spanning_objects_and_long_logs_are_ordered() {
    const SEGMENT: u64 = layout::SEGMENT_BYTES;
    let (mut heap, mut watch) = formatted(5 * SEGMENT, 3, IMAGES_MAX);
    let mut does = |what: &str, work: &dyn Fn(&mut OrderedHeap) -> Result| {
        let done = watch.during(what, || {
            work(&mut heap).unwrap_or_else(|error| panic!("{what}: {error}"));
            &mut heap
        });
        done.map(drop).unwrap_or_else(|wrong| panic!("{wrong}"));
    };
    // Filled at its end only: each store is seen by the medium.
    let fill_end =
        |object: *mut u8, bytes: u64| poke(object.wrapping_add(bytes as usize - 100), &[7; 100]);
    does("an object of segments", &|heap| {
        heap.transaction(|tx| {
            let object = tx.alloc(SEGMENT + 1000)?;
            poke(object.as_ptr(), &(SEGMENT + 1000).to_le_bytes());
            fill_end(object.as_ptr(), SEGMENT + 1000);
            let place = tx.offset_of(object).unwrap();
            set_link(tx, 0, place)
        })
    });
    does("its growth", &|heap| {
        heap.transaction(|tx| {
            let object = at_base(tx, link(tx, 0));
            assert_eq!(tx.realloc(object, 3 * SEGMENT)?, object);
            tx.add_range(object.as_ptr(), 8)?;
            poke(object.as_ptr(), &(3 * SEGMENT).to_le_bytes());
            // What was the table of the segment that came on top.
            poke(object.as_ptr().wrapping_add((2 * SEGMENT) as usize), &[9; 200]);
            poke(
                object.as_ptr().wrapping_add((2 * SEGMENT - layout::CHUNK_BYTES) as usize),
                &[8; 200],
            );
            fill_end(object.as_ptr(), 3 * SEGMENT);
            Ok(())
        })
    });
    does("its end", &|heap| {
        heap.transaction(|tx| {
            let object = at_base(tx, link(tx, 0));
            set_link(tx, 0, 0)?;
            tx.free(object)
        })
    });
    does("a run that grows in place", &|heap| {
        heap.transaction(|tx| {
            let object = tx.alloc(100_000)?;
            fill(object.as_ptr(), 100_000, 3);
            let place = tx.offset_of(object).unwrap();
            set_link(tx, 1, place)
        })
    });
    does("the growth", &|heap| {
        heap.transaction(|tx| {
            let object = at_base(tx, link(tx, 1));
            assert_eq!(tx.realloc(object, 250_000)?, object);
            tx.add_range(object.as_ptr(), 8)?;
            poke(object.as_ptr(), &250_000_u64.to_le_bytes());
            poke(object.as_ptr().wrapping_add(200_000), &[5; 50_000]);
            Ok(())
        })
    });
    does("a long log", &|heap| {
        heap.transaction(|tx| {
            let object = at_base(tx, link(tx, 1));
            tx.add_range(object.as_ptr(), 250_000)?;
            poke(object.as_ptr().wrapping_add(8), &[6; 100]);
            poke(object.as_ptr().wrapping_add(170_000), &[6; 100]);
            Ok(())
        })
    });
}

/// What a thread allocates or frees on its own is in memory when its call returns.
///
/// Guarantee: heap/reset-ordered
#[test]
fn thread_allocations_are_in_memory_on_return() {
    let (heap, mut watch) = formatted(SESSION_BYTES, 5, IMAGES_MAX);
    let shared = share(heap);
    let mut handle = shared.handle();
    let mut objects = Vec::new();
    for _ in 0..3 {
        let done = watch.during_shared("an allocation", &mut handle, |handle| {
            objects.push(handle.alloc(100).unwrap())
        });
        done.unwrap_or_else(|wrong| panic!("{wrong}"));
    }
    for object in objects {
        let done =
            watch.during_shared("a free", &mut handle, |handle| handle.free(object).unwrap());
        done.unwrap_or_else(|wrong| panic!("{wrong}"));
    }
}

/// What was stored outside of a transaction is in memory once it was persisted.
///
/// Guarantee: heap/persist
/// Guarantee: heap/reset-ordered
#[test]
fn persisted_store_is_in_memory_outside_transactions() {
    let (mut heap, mut watch) = formatted(SESSION_BYTES, 7, IMAGES_MAX);
    let mut place = 0;
    let heap = watch.during("an object by itself", || {
        let object = heap.alloc(600).unwrap();
        fill(object.as_ptr(), 600, 9);
        heap.persist(object.as_ptr(), 600).unwrap();
        place = heap.offset_of(object).unwrap();
        &mut heap
    });
    let heap = heap.unwrap_or_else(|wrong| panic!("{wrong}"));
    let linked = watch.during("its link", || {
        heap.transaction(|tx| set_link(tx, 0, place)).unwrap();
        &mut *heap
    });
    linked.map(drop).unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// A medium that misses write backs of any kind is found out.
///
/// Guarantee: heap/reset-ordered
#[test]
fn missed_write_back_of_any_kind_is_detected() {
    let lane = (layout::LANE_OFFSET, layout::LANE_OFFSET + 8);
    let kinds = [
        ("the commit", Losing::WriteBacks(lane.0, lane.1)),
        (
            "records of the log",
            Losing::WriteBacks(
                lane.0 + layout::EXTENT_RECORDS,
                layout::LANE_OFFSET + layout::CHUNK_BYTES,
            ),
        ),
        ("tables", Losing::WriteBacks(0, layout::CHUNK_BYTES)),
        ("ranges and objects", Losing::WriteBacks(2 * layout::CHUNK_BYTES, layout::SEGMENT_BYTES)),
        ("drains", Losing::Drains),
    ];
    for (what, losing) in kinds {
        let found = (0..5).any(|seed| session(seed, IMAGES_MAX, losing).is_err());
        assert!(found, "without write-backs of {what} nothing is wrong");
    }
}

/// An ordered heap is opened as any other and any other as an ordered one.
#[test]
fn ordered_and_unordered_opens_are_interchangeable() {
    let (mut heap, _) = formatted(SESSION_BYTES, 9, 1);
    assert!(heap.is_ordered());
    fill(heap.create_root("data", 100).unwrap().as_ptr(), 100, 1);
    let Ordered(memory) = heap.close();
    let mut heap = Heap::open(memory, OPTIONS).unwrap();
    assert!(!heap.is_ordered());
    let objects: Vec<_> = (0..20).map(|_| heap.alloc(100).unwrap()).collect();
    let memory: TestMemory = heap.close();
    let mut heap = Heap::open(Ordered(memory), OPTIONS).unwrap();
    assert_eq!(heap.root("data").unwrap().bytes, 100);
    for object in objects {
        heap.free(object).unwrap();
        assert_eq!(heap.free(object), Err(HeapError::NotAllocated));
    }
    assert_eq!(heap.persist(heap.backing().base().wrapping_sub(1), 1), Err(HeapError::OutsideHeap));
}
