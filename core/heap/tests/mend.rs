//! Mending: what a flipped bit destroyed is back as it was, what is not certain is left alone, and
//! no bytes make it panic.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]

mod common;

use common::{TestMemory, fill, open, version_1};
use holdfast_heap::layout::*;
use holdfast_heap::survey::{ObjectView, Survey};
use holdfast_heap::{OpenError, bytes_of, check, mend};
use proptest::prelude::*;

/// Roots, objects of all kinds, and a chunk that is free again.
fn heap() -> Vec<u64> {
    let mut heap = open(TestMemory::new(8 << 20));
    for index in 0..10 {
        heap.create_root(&format!("root {index}"), 300).unwrap();
    }
    heap.create_root("large", 3 * CHUNK_BYTES - 5).unwrap();
    for bytes in [1, 100, 3000, 30_000, 2 * CHUNK_BYTES] {
        heap.alloc(bytes).unwrap();
    }
    let gone = heap.alloc(4 * CHUNK_BYTES).unwrap();
    heap.free(gone).unwrap();
    words(heap.close().bytes())
}

fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
}

fn objects(words: &[u64]) -> Vec<ObjectView> {
    Survey::new(bytes_of(words)).unwrap().objects().collect()
}

fn roots(words: &[u64]) -> Vec<(String, u64, u64)> {
    let survey = Survey::new(bytes_of(words)).unwrap();
    let mut roots: Vec<_> =
        survey.roots().map(|root| (root.name.to_owned(), root.offset, root.bytes)).collect();
    roots.sort();
    roots
}

fn is_sound(words: &[u64]) -> bool {
    check(bytes_of(words), &mut |_| {}).is_sound()
}

/// Every bit of these bytes, flipped alone: how many the checker found, how many of these were
/// mended.
fn flip_each(good: &[u64], places: impl Iterator<Item = u64>) -> (u32, u32) {
    let (mut found, mut mended) = (0, 0);
    for at in places {
        for bit in 0..64 {
            let mut copy = good.to_vec();
            copy[(at / 8) as usize] ^= 1 << bit;
            if is_sound(&copy) {
                continue;
            }
            found += 1;
            match mend(&mut copy, false) {
                Ok(report) if report.left.is_empty() => {
                    mended += 1;
                    assert!(is_sound(&copy), "{at:#x}, bit {bit}");
                    assert!(report.mended.iter().all(|mended| mended.lost.is_none()));
                    assert_eq!(roots(&copy), roots(good), "{at:#x}, bit {bit}: {report:?}");
                    let (now, before) = (objects(&copy), objects(good));
                    assert!(
                        before.iter().all(|object| now.contains(object)),
                        "{at:#x}, bit {bit}: {report:?}"
                    );
                }
                Ok(report) => println!("{at:#x}, bit {bit}: left {:x?}", report.left),
                Err(error) => println!("{at:#x}, bit {bit}: {error}"),
            }
        }
    }
    (found, mended)
}

/// Every flipped bit of the fixed tables is turned back.
///
/// Guarantee: heap/repair
#[test]
fn every_flipped_bit_of_fixed_tables_is_mended() {
    let good = heap();
    // Segment, superblock, numbers of segments and roots; heads of the lane, of slabs and of runs.
    let heads = (1..16).map(|chunk| chunk * DESCRIPTOR_BYTES);
    let (found, mended) =
        flip_each(&good, [0, 64, 72, 80, 88, 96, 104, 144, 152].into_iter().chain(heads));
    assert!(found > 1000, "{found}");
    assert_eq!(found, mended);
}

/// Of the other flipped bits that are found most are turned back and none costs an object.
#[test]
fn most_other_flipped_bits_are_mended_without_loss() {
    let good = heap();
    let table = good[(SUPER_ROOTS / 8) as usize];
    let slots = (0..64).map(|slot| table + slot * 8).filter(|at| good[(at / 8) as usize] != 0);
    let first = good[(slots.clone().next().unwrap() / 8) as usize] & ((1 << 48) - 1);
    let entry = (0..5).map(|word| first + word * 8);
    let used = [DESC_USED_CHUNKS, SUPER_ROOTS, SUPER_ROOTS + 8];
    let bitmaps = (2..8)
        .flat_map(|chunk| (0..3).map(move |word| chunk * DESCRIPTOR_BYTES + DESC_SLOTS + word * 8));
    let (found, mended) = flip_each(&good, slots.chain(entry).chain(used).chain(bitmaps));
    println!("{mended} of {found} mended");
    assert!(found > 1000 && mended * 10 >= found * 9, "{mended} of {found}");
}

/// A whole head that was overwritten is written anew from what is certain.
#[test]
fn overwritten_head_is_rebuilt_from_certain_facts() {
    let good = heap();
    let mut copy = good.clone();
    for word in [0, 2, 3, 4, 5, 6, 7] {
        copy[word] ^= 0x1010_1010_1010_1010;
    }
    copy[(LANE_OFFSET / CHUNK_BYTES * DESCRIPTOR_BYTES / 8) as usize] = 77;
    let report = mend(&mut copy, false).unwrap();
    assert_eq!(report.left, []);
    assert_eq!((roots(&copy), objects(&copy)), (roots(&good), objects(&good)));
}

/// What nothing is known about is left unless its loss is accepted.
#[test]
fn hopeless_finding_stays_unless_loss_is_accepted() {
    let good = heap();
    let lost = roots(&good).into_iter().find(|root| root.0 == "root 3").unwrap();
    let mut damaged = good.clone();
    // The slab of ten roots, by more than one bit.
    damaged[(descriptor_of(lost.1) / 8) as usize] ^= 0b1011 << 40;
    let mut copy = damaged.clone();
    let report = mend(&mut copy, false).unwrap();
    assert!(!report.left.is_empty() && report.mended.iter().all(|mended| mended.lost.is_none()));
    let mut copy = damaged.clone();
    let report = mend(&mut copy, true).unwrap();
    assert_eq!(report.left, []);
    let losses: Vec<String> =
        report.mended.iter().filter_map(|mended| mended.lost.clone()).collect();
    assert!(losses.iter().any(|lost| lost.contains("64 KiB")), "{losses:?}");
    assert!(losses.iter().any(|lost| lost == "the root \"root 3\""), "{losses:?}");
    let left = roots(&copy);
    assert!(left.iter().any(|root| root.0 == "large") && left.len() < roots(&good).len());
    // Bytes of objects are as they were.
    assert!(copy[(lost.1 / 8) as usize..][..37] == good[(lost.1 / 8) as usize..][..37]);
}

/// A heap of three segments in which one slab and two large objects hold nothing that a root is;
/// the slab's descriptor.
fn heap_with_children() -> (Vec<u64>, u64) {
    let mut heap = open(TestMemory::new(16 << 20));
    heap.create_root("list", 64).unwrap();
    let before = heap.alloc(CHUNK_BYTES).unwrap();
    let children: Vec<_> = (0..20).map(|_| heap.alloc(2000).unwrap()).collect();
    children.iter().for_each(|child| fill(*child, 2000, 7));
    let child = heap.offset_of(children[0]).unwrap();
    heap.alloc(3 * CHUNK_BYTES).unwrap();
    heap.free(before).unwrap();
    heap.alloc(5 << 20).unwrap();
    (words(heap.close().bytes()), descriptor_of(child))
}

/// A slab whose description was overwritten is not freed however content that would make the
/// checker.
///
/// Guarantee: heap/repair
#[test]
fn overwritten_slab_description_is_never_freed() {
    let (good, descriptor) = heap_with_children();
    let at = (descriptor / 8) as usize;
    let chunk = (descriptor / DESCRIPTOR_BYTES * CHUNK_BYTES / 8) as usize;
    let chunk_words = (CHUNK_BYTES / 8) as usize;
    // Its head, zeroed or not; all of its description; and that of a slab whose objects are all
    // zeroes.
    let damages: [(usize, u64, bool); 4] =
        [(1, 0xA5A5_A5A5_A5A5_A5A5, false), (1, 0, false), (128, 0, false), (1, 0, true)];
    for (count, word, empty) in damages {
        let mut damaged = good.clone();
        damaged[at..at + count].fill(word);
        if empty {
            damaged[chunk..chunk + chunk_words].fill(0);
        }
        let mut copy = damaged.clone();
        let report = mend(&mut copy, false).unwrap();
        assert!(!report.left.is_empty(), "{count} words {word:#x}: {report:?}");
        let report = mend(&mut damaged, true).unwrap();
        assert_eq!(report.left, []);
        let lost: Vec<_> = report.mended.iter().filter_map(|mended| mended.lost.as_ref()).collect();
        assert!(lost.len() == 1 && lost[0].contains("64 KiB"), "{lost:?}");
        let kept = ObjectView { offset: chunk as u64 * 8, bytes: CHUNK_BYTES };
        assert!(objects(&damaged).contains(&kept), "the chunk is free");
        assert!(empty || damaged[chunk..chunk + chunk_words] == good[chunk..chunk + chunk_words]);
    }
}

/// A run of which all but the first chunk counts as free is kept whole.
///
/// Guarantee: heap/repair
#[test]
fn run_with_clear_bits_is_kept_whole() {
    let (good, _) = heap_with_children();
    let large = objects(&good).into_iter().find(|object| object.bytes == 3 * CHUNK_BYTES).unwrap();
    let first = large.offset / CHUNK_BYTES;
    let mut copy = good.clone();
    copy[(DESC_USED_CHUNKS / 8) as usize] &= !(0b110 << first);
    let report = mend(&mut copy, false).unwrap();
    assert_eq!(report.left, []);
    assert!(copy == good, "{report:?}");
}

/// An old part of the log that counts as in use does not take a slab with it that lies there now.
#[test]
fn stale_log_extent_does_not_take_a_slab() {
    let (good, descriptor) = heap_with_children();
    // Beside it something else is wrong, or not: so more than one flipped bit.
    for (kind, roots) in [(HeadKind::Log, 0), (HeadKind::Run, 0), (HeadKind::Log, 6)] {
        let mut copy = good.clone();
        copy[(SUPER_ROOTS / 8 + 3) as usize] ^= roots;
        let old = descriptor - DESCRIPTOR_BYTES;
        copy[(old / 8) as usize] = Head { kind, class: 0, span: 2 }.encode();
        copy[(DESC_USED_CHUNKS / 8) as usize] |= 1 << (old / DESCRIPTOR_BYTES);
        let report = mend(&mut copy, false).unwrap();
        assert_eq!(report.left, []);
        assert_eq!(objects(&copy), objects(&good), "{report:?}");
    }
}

/// Segments with objects are not cut off by what is taken for a flipped bit.
///
/// Guarantee: heap/repair
#[test]
fn segments_with_objects_are_never_cut_off() {
    let (good, _) = heap_with_children();
    let at = (SUPER_SEGMENTS / 8) as usize;
    assert_eq!(good[at], 3);
    // With one bit turned back the checker would be content, and the large object gone.
    let mut copy = good.clone();
    copy[at] = 1 | 1 << 40;
    if let Ok(report) = mend(&mut copy, false) {
        assert!(!report.left.is_empty() || objects(&copy) == objects(&good), "{report:?}");
    }
}

/// A chunk that was never used and counts as in use is free again.
#[test]
fn never_used_chunk_marked_used_is_freed() {
    let good = heap();
    for bits in [1_u64 << 60, 0b11 << 60] {
        let mut copy = good.clone();
        copy[(DESC_USED_CHUNKS / 8) as usize] |= bits;
        let report = mend(&mut copy, false).unwrap();
        assert_eq!(report.left, []);
        assert_eq!(copy, good);
    }
}

/// A sound heap stays as it is an open transaction is rolled back and other bytes are refused.
#[test]
fn sound_heap_is_left_alone_and_others_refused() {
    let mut copy = heap();
    let report = mend(&mut copy, true).unwrap();
    assert!(report.mended.is_empty() && report.left.is_empty() && copy == heap());
    let mut old = words(version_1().bytes());
    let report = mend(&mut old, false).unwrap();
    assert!(report.mended.is_empty() && report.left.is_empty() && is_sound(&old));
    assert_eq!(mend(&mut vec![0; 1 << 16], true), Err(OpenError::Empty));
    assert_eq!(mend(&mut vec![7; 1 << 16], true), Err(OpenError::NotAHeap));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]
    /// No bytes make mending panic and what it calls sound is.
    #[test]
    fn mending_never_panics_and_tells_the_truth(
        flips in proptest::collection::vec((0..8192usize, any::<u64>()), 1..12),
        accept_loss in any::<bool>(),
    ) {
        let mut copy = heap();
        for (at, word) in flips {
            copy[at] ^= word;
        }
        if let Ok(report) = mend(&mut copy, accept_loss)
            && report.left.is_empty()
        {
            prop_assert!(is_sound(&copy));
        }
    }
}
