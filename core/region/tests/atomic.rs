//! The consistency mode `atomic`: what was published is there, whole, and nothing else, whatever
//! happened.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::Arc;

use common::child::Player;
use common::faulty::{Fault, FaultyStorage};
use common::hooked::Hooked;
use common::{
    DATA_OFFSET, Home, MIB, key, list, load, map, named, number, open_atomic, read, store,
    store_number, truncate,
};
use holdfast_region::{Consistency, Durability, Opened, Region, RegionError, Written};

const PAGE: usize = common::PAGE_BYTES;
const ENOSPC: i32 = 28;
const EIO: i32 = 5;
/// More steps than a publication here has.
const STEPS_MAX: usize = 100;

#[test]
fn a_child_plays_its_role() {
    common::child::play();
}

/// Stores count when they are published and not before.
#[test]
fn stores_count_when_published_and_not_before() {
    let home = Home::with_text("words", b"hello");
    let mut region = open_atomic(&home.names());
    store_number(&mut region, 1);
    assert_eq!(number(&mut region), 1, "the program sees its own stores");
    assert_eq!(read(&region, 8, 8), [0; 8], "the image does not have them");
    assert!(!region.is_dirty());
    let report = region.publish().unwrap();
    assert_eq!((report.bytes, report.ranges), (6 * PAGE as u64, 4));
    assert!(region.is_dirty());
    assert_eq!(read(&region, 8, 8), 1_u64.to_le_bytes());
    assert_eq!(region.publish().unwrap().bytes, 0, "nothing is left to publish");
    store_number(&mut region, 2);
    // Closing publishes nothing.
    region.close().unwrap();
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!(region.opened(), Opened::Warm);
    assert_eq!(number(&mut region), 1);
    // In the mode `direct` there is nothing to go back to, and that is said.
    store_number(&mut region, 2);
    assert!(matches!(region.rollback(), Err(RegionError::NotAtomic { .. })));
    assert_eq!(number(&mut region), 2);
    assert!(!home.pool().join("words.redo").exists());
}

#[test]
fn a_rollback_shows_the_last_publication_again() {
    let home = Home::with_text("words", b"hello");
    let mut region = open_atomic(&home.names());
    store_number(&mut region, 1);
    region.publish().unwrap();
    store_number(&mut region, 2);
    store(&mut region, 77 * PAGE, b"gone");
    assert_eq!(region.rollback().unwrap().bytes, 7 * PAGE as u64);
    assert_eq!(number(&mut region), 1);
    assert_eq!(load(&mut region, 77 * PAGE, 4), [0; 4]);
    store_number(&mut region, 3);
    region.publish().unwrap();
    region.checkpoint().unwrap();
    drop(region);
    home.names().remove_image(&named("words"), &key()).unwrap();
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), number(&mut region)), (Opened::Cold, 3));
}

/// A checkpoint has the last publication and nothing that was stored since.
#[test]
fn checkpoint_has_the_last_publication_only() {
    let home = Home::with_text("words", b"hello");
    let mut region = open_atomic(&home.names());
    store_number(&mut region, 1);
    region.publish().unwrap();
    store_number(&mut region, 2);
    region.checkpoint().unwrap();
    assert_eq!(number(&mut region), 2, "the program goes on with what it has");
    drop(region);
    home.names().remove_image(&named("words"), &key()).unwrap();
    assert_eq!(number(&mut home.names().open(&named("words"), &key()).unwrap()), 1);
}

/// Growth stays and what is stored there follows the same rule.
#[test]
fn growth_stays_and_its_stores_follow_publication() {
    let home = Home::with_text("words", b"hello");
    let mut region = open_atomic(&home.names());
    map(&mut region);
    assert_eq!(region.grow(5 * MIB).unwrap(), 8 * MIB);
    store(&mut region, 7 << 20, b"far");
    assert_eq!(read(&region, 7 << 20, 3), [0; 3]);
    region.publish().unwrap();
    store(&mut region, 6 << 20, b"not");
    drop(region);
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!(region.backed_bytes(), 8 * MIB);
    assert_eq!(
        (load(&mut region, 7 << 20, 3), load(&mut region, 6 << 20, 3)),
        (b"far".to_vec(), vec![0; 3])
    );
}

/// A writer that dies in any step of a publication leaves all of it or nothing.
///
/// Guarantee: heap/atomic-kill
#[test]
fn killed_publication_is_whole_or_absent_at_any_step() {
    let mut outcomes = [0, 0];
    for step in 0.. {
        assert!(step < STEPS_MAX);
        let home = Home::with_text("words", b"hello");
        let storage = Arc::new(FaultyStorage::new(Fault::Dead));
        let mut region = open_atomic(&home.names_over(storage.clone()));
        store_number(&mut region, 1);
        region.publish().unwrap();
        store_number(&mut region, 2);
        storage.arm(step);
        let done = region.publish().is_ok();
        drop(region);
        // A reader comes first every other time, and must not see a half either.
        if step % 2 == 0 {
            let reader = home.names().open_read(&named("words")).unwrap();
            let word = |page: usize| &reader.bytes()[page * PAGE + 8..page * PAGE + 16];
            assert!([1, 2, 40, 300, 1000].iter().all(|page| word(*page) == word(0)));
        }
        let mut region = home.names().open(&named("words"), &key()).unwrap();
        let found = number(&mut region);
        assert!(found == 2 || !done && found == 1, "step {step}: {found}");
        outcomes[found as usize - 1] += 1;
        region.close().unwrap();
        if !storage.struck() {
            break;
        }
    }
    assert!(outcomes[0] > 1 && outcomes[1] > 1, "{outcomes:?}");
}

/// Guarantee: heap/atomic-kill
#[test]
fn a_recovery_that_dies_in_any_step_is_done_again() {
    for step in 0.. {
        assert!(step < STEPS_MAX);
        let home = Home::with_text("words", b"hello");
        let storage = Arc::new(FaultyStorage::new(Fault::Dead));
        let mut region = open_atomic(&home.names_over(storage.clone()));
        store_number(&mut region, 2);
        storage.take_log();
        // What changed, the header: then it counts, and one change of the image is written.
        storage.arm(2 + 1);
        region.publish().unwrap_err();
        drop(region);
        let storage = Arc::new(FaultyStorage::new(Fault::Dead));
        storage.arm(step);
        let again = home.names_over(storage.clone()).open(&named("words"), &key());
        let done = again.is_ok();
        drop(again);
        assert_eq!(number(&mut home.names().open(&named("words"), &key()).unwrap()), 2);
        if done {
            assert!(step > 4, "the recovery has steps");
            break;
        }
    }
}

/// An error in any step of a publication loses nothing.
///
/// Guarantee: heap/atomic-errors
#[test]
fn failed_publication_loses_nothing_at_any_step() {
    for error in [ENOSPC, EIO] {
        for step in 0.. {
            assert!(step < STEPS_MAX);
            let home = Home::with_text("words", b"hello");
            let storage = Arc::new(FaultyStorage::new(Fault::Once(error)));
            let mut region = open_atomic(&home.names_over(storage.clone()));
            store_number(&mut region, 2);
            storage.arm(step);
            match region.publish() {
                // Where there was no room for a moment it was tried again.
                Ok(_) if storage.struck() => {
                    assert_eq!((error, number(&mut region)), (ENOSPC, 2));
                    assert_eq!(region.publish().unwrap().bytes, 0);
                    continue;
                }
                Ok(_) => {
                    assert!(step > 4);
                    break;
                }
                // Nothing counts, all is there: again.
                Err(RegionError::NoRoom { .. }) => assert_eq!(error, ENOSPC),
                Err(RegionError::Io { .. }) => {}
                Err(other) => panic!("{other}"),
            }
            assert_eq!(number(&mut region), 2);
            match region.publish() {
                Ok(report) => assert_eq!(report.bytes, 6 * PAGE as u64),
                Err(RegionError::Poisoned { .. }) => {
                    // It counts, so it is too late for that; half of it would show.
                    assert!(matches!(region.rollback(), Err(RegionError::Poisoned { .. })));
                }
                Err(other) => panic!("{other}"),
            }
            drop(region);
            assert_eq!(number(&mut home.names().open(&named("words"), &key()).unwrap()), 2);
        }
    }
}

/// The image loses a page while a publication is put there, as on a disk that is full.
///
/// Guarantee: heap/atomic-errors
#[test]
fn page_lost_in_a_publication_is_still_in_the_log() {
    let home = Home::with_text("words", b"hello");
    let image = home.image("words");
    let last = 1000 * PAGE as u64;
    let storage = Hooked::storing(move |view, offset, bytes| {
        if offset < last {
            return view.store(offset, bytes);
        }
        // Where the file ends, the page goes under the mapping; what is stored stays in memory.
        let bytes = bytes.to_vec();
        truncate(&image, DATA_OFFSET + last);
        let stored = view.store(offset, &bytes);
        truncate(&image, DATA_OFFSET + 4 * MIB);
        stored
    });
    let mut region = open_atomic(&home.names_over(Arc::new(storage)));
    store_number(&mut region, 2);
    let error = region.publish().unwrap_err();
    let RegionError::Io { path, .. } = &error else { panic!("{error}") };
    assert_eq!(*path, home.image("words"));
    assert!(matches!(region.rollback(), Err(RegionError::Poisoned { .. })));
    drop(region);
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), number(&mut region)), (Opened::WarmAfterCrash, 2));
}

/// Numbers that look random and are the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }
}

/// Whatever is stored published and rolled back image and mapping are as a model says.
///
/// Guarantee: heap/atomic-errors
#[test]
fn random_stores_and_publications_match_the_model() {
    for seed in 0..4 {
        let mut numbers = Numbers(seed);
        let home = Home::new();
        let mut region = home.names().create(&named("words"), &key(), 16 * MIB).unwrap();
        region.set_consistency(Consistency::Atomic).unwrap();
        map(&mut region);
        let (mut published, mut stored) = (vec![0; 4 << 20], vec![0; 4 << 20]);
        for step in 0..150_u64 {
            // Sometimes all over, sometimes in a few pages, sometimes nothing.
            let window = [stored.len(), 20 * PAGE][numbers.below(2)];
            for _ in 0..numbers.below(30) {
                let at = numbers.below(window - 300);
                let bytes = vec![step as u8 + 1; 1 + numbers.below(300)];
                store(&mut region, at, &bytes);
                stored[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            match numbers.below(8) {
                0 => {
                    region.rollback().unwrap();
                    stored.copy_from_slice(&published);
                }
                1 if step > 40 && stored.len() < 12 << 20 => {
                    let grown = region.grow(stored.len() as u64 + 1).unwrap() as usize;
                    stored.resize(grown, 0);
                    published.resize(grown, 0);
                }
                2 => {}
                // Faults that have nothing to do with the region.
                3 => drop(std::hint::black_box(vec![step as u8; 3 << 20])),
                _ => {
                    region.publish().unwrap();
                    published.copy_from_slice(&stored);
                }
            }
            let seen = if step % 8 == 0 { stored.len() } else { 20 * PAGE };
            assert!(
                load(&mut region, 0, seen) == stored[..seen],
                "seed {seed}, step {step}: mapping"
            );
            assert!(read(&region, 0, seen) == published[..seen], "seed {seed}, step {step}: image");
        }
        region.checkpoint().unwrap();
        drop(region);
        home.names().remove_image(&named("words"), &key()).unwrap();
        let region = home.names().open(&named("words"), &key()).unwrap();
        assert!(read(&region, 0, published.len()) == published, "seed {seed}: store");
    }
}

/// Copies that stay are bounded and what is dropped was published.
///
/// Guarantee: heap/atomic-memory
#[test]
fn kept_copies_are_bounded_and_published() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 96 * MIB).unwrap();
    region.set_consistency(Consistency::Atomic).unwrap();
    map(&mut region);
    region.grow(96 * MIB).unwrap();
    for round in 1..6_u64 {
        for page in (0..(96 << 20) / PAGE).filter(|page| page % 5 != round as usize) {
            store(&mut region, page * PAGE + 16, &round.to_le_bytes());
        }
        assert!(copied_bytes(&mut region) > 70 << 20, "round {round}");
        region.publish().unwrap();
        assert!(copied_bytes(&mut region) <= 64 << 20, "round {round}: all copies stay");
        for page in (0..(96 << 20) / PAGE).step_by(97) {
            let last = if page % 5 == round as usize { round - 1 } else { round };
            assert_eq!(load(&mut region, page * PAGE + 16, 8), last.to_le_bytes());
            assert_eq!(read(&region, (page * PAGE) as u64 + 16, 8), last.to_le_bytes());
        }
    }
}

/// Memory of a region's mapping that no file is behind.
fn copied_bytes(region: &mut Region) -> u64 {
    let start = map(region) as u64;
    let (mut inside, mut copied_bytes) = (false, 0);
    for line in std::fs::read_to_string("/proc/self/smaps").unwrap().lines() {
        let head = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
        if let Some(Ok(at)) = head.map(|(from, _)| u64::from_str_radix(from, 16)) {
            inside = (start..start + region.limit_bytes()).contains(&at);
        } else if let Some(kilobytes) = line.strip_prefix("Anonymous:").filter(|_| inside) {
            copied_bytes +=
                kilobytes.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10;
        }
    }
    copied_bytes
}

/// A publication that was refused can be rolled back also when copies stay.
///
/// Guarantee: heap/atomic-errors
#[test]
fn refused_publication_can_be_rolled_back() {
    let home = Home::with_text("words", b"hello");
    let storage = Arc::new(FaultyStorage::new(Fault::Always(ENOSPC)));
    let mut region = open_atomic(&home.names_over(storage.clone()));
    for value in 1..6 {
        store_number(&mut region, value);
        region.publish().unwrap();
    }
    store_number(&mut region, 77);
    storage.arm(0);
    assert!(matches!(region.publish(), Err(RegionError::NoRoom { .. })));
    storage.arm(1 << 40);
    store(&mut region, 50 * PAGE, b"more");
    assert_eq!(region.rollback().unwrap().bytes, 7 * PAGE as u64);
    assert_eq!((number(&mut region), load(&mut region, 50 * PAGE, 4)), (5, vec![0; 4]));
    assert_eq!(region.publish().unwrap().bytes, 0);
    store_number(&mut region, 6);
    assert_eq!(region.publish().unwrap().bytes, 6 * PAGE as u64);
    assert_eq!(read(&region, 8, 8), 6_u64.to_le_bytes());
}

/// Pages that are locked into memory are published committed and rolled back like others.
///
/// Guarantee: heap/atomic-memory
#[test]
fn locked_pages_are_published_like_others() {
    let home = Home::with_text("words", b"hello");
    let mut region = open_atomic(&home.names());
    let base = map(&mut region);
    // SAFETY: the pages are those of the region's mapping, whose bytes locking leaves as they are.
    unsafe { rustix::mm::mlock(base.cast(), 2 * PAGE).unwrap() };
    for value in 1..6 {
        store_number(&mut region, value);
        assert_ne!(region.commit(Durability::Power).unwrap().written, Written::Nothing, "{value}");
        assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Nothing, "{value}");
        store_number(&mut region, 77);
        region.rollback().unwrap();
        assert_eq!(number(&mut region), value);
    }
    region.close().unwrap();
    std::fs::remove_file(home.image("words")).unwrap();
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!((region.opened(), number(&mut region)), (Opened::Cold, 5));
}

/// A program without transactions that is killed at random is as of its last publication.
///
/// Guarantee: heap/atomic-kill
#[test]
fn killed_program_is_at_its_last_publication() {
    let home = Home::with_text("words", b"hello");
    for round in 0..60_u64 {
        let mut child = Player::start(&home, "publish words");
        let mut published = 0;
        // Different moments: after some publications, and somewhere in what follows.
        for _ in 0..round % 7 + 1 {
            let line = child.hear();
            published = line.strip_prefix("published ").unwrap().parse().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_micros(round * 37 % 1500));
        child.kill();
        let mut region = home.names().open(&named("words"), &key()).unwrap();
        let found = number(&mut region);
        assert!(found >= published, "round {round}: {found} of {published}");
        assert_eq!(list(&mut region), (0..found).rev().collect::<Vec<_>>(), "round {round}");
    }
}
