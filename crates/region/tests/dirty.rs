//! Which parts of a region were stored to: what a journal would write.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Home, MIB, key, load, map, named, read, store};

const PAGE: u64 = 4096;
/// The same, as an offset to store at.
const AT_PAGE: usize = PAGE as usize;

#[test]
fn after_the_first_question_exactly_the_pages_stored_to_are_named() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    map(&mut region);
    assert_eq!(region.take_dirty().unwrap(), [], "clean, and tracked from now on");
    store(&mut region, 3 * AT_PAGE + 5, b"one");
    store(&mut region, 5 * AT_PAGE - 1, b"two");
    assert_eq!(region.take_dirty().unwrap(), [3 * PAGE..6 * PAGE]);
    assert_eq!(region.take_dirty().unwrap(), []);
    load(&mut region, 0, 4 << 20);
    assert_eq!(region.take_dirty().unwrap(), []);
    store(&mut region, 3 * AT_PAGE, b"again");
    assert_eq!(region.take_dirty().unwrap(), [3 * PAGE..4 * PAGE]);
    assert!(region.is_dirty(), "the store lacks what was taken");
    region.checkpoint().unwrap();
    assert!(!region.is_dirty());
    store(&mut region, 0, b"after the checkpoint");
    assert!(region.is_dirty());
    assert_eq!(region.take_dirty().unwrap(), [0..PAGE]);
}

#[test]
fn what_was_stored_before_the_first_question_is_in_its_answer() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    store(&mut region, 9 * AT_PAGE, b"one");
    let everything = 0..region.backed_bytes();
    assert_eq!(region.take_dirty().unwrap(), [everything.clone()]);
    assert_eq!(region.take_dirty().unwrap(), []);
    store(&mut region, 9 * AT_PAGE, b"two");
    region.unmap().unwrap();
    assert_eq!(
        region.take_dirty().unwrap(),
        [everything],
        "what was not asked for before the end of the mapping"
    );
}

#[test]
fn a_region_grows_while_it_is_tracked() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 64 * MIB).unwrap();
    map(&mut region);
    assert_eq!(region.take_dirty().unwrap(), [0..4 * MIB], "a new region owes everything");
    let mut copy = read(&region, 0, 4 << 20);
    region.grow(8 * MIB).unwrap();
    copy.resize(8 << 20, 0);
    for (at, text) in [(5, b"old"), (4 << 20, b"new"), ((8 << 20) - 3, b"end")] {
        store(&mut region, at, text);
    }
    for range in region.take_dirty().unwrap() {
        let (start, end) = (range.start as usize, range.end as usize);
        copy[start..end].copy_from_slice(&read(&region, range.start, end - start));
    }
    assert!(copy == read(&region, 0, 8 << 20), "the named parts do not make an exact copy");
}
