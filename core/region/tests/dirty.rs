//! A commit writes exactly the stored pages, as the kernel's tracker of changed pages reports them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{Home, MIB, PAGE_BYTES, key, load, map, named, store};
use holdfast_region::{CommitReport, Durability, Region, Written};

fn commit(region: &mut Region) -> (Written, u64) {
    let CommitReport { written, pages, .. } = region.commit(Durability::Power).unwrap();
    (written, pages)
}

/// What the store alone gives back is what was committed.
fn assert_stored(home: &Home, offset: usize, text: &[u8]) {
    home.names().remove_image(&named("words"), &key()).unwrap();
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    assert_eq!(load(&mut region, offset, text.len()), text);
}

/// After the first commit of a session exactly the pages stored to are written.
///
/// Guarantee: heap/commit-cost
/// Guarantee: heap/dirty-pages
#[test]
fn later_commits_write_exactly_the_stored_pages() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    store(&mut region, 0, b"first");
    assert_eq!(
        commit(&mut region),
        (Written::Journal, 1),
        "nobody tracked what came before: compared"
    );
    store(&mut region, 3 * PAGE_BYTES + 5, b"one");
    store(&mut region, 5 * PAGE_BYTES - 1, b"two");
    assert_eq!(commit(&mut region), (Written::Journal, 3));
    assert_eq!(commit(&mut region), (Written::Nothing, 0));
    load(&mut region, 0, 4 << 20);
    assert_eq!(commit(&mut region), (Written::Nothing, 0));
    store(&mut region, 3 * PAGE_BYTES, b"again");
    assert_eq!(commit(&mut region), (Written::Journal, 1));
    drop(region);
    assert_stored(&home, 3 * PAGE_BYTES, b"again");
    assert_stored(&home, 5 * PAGE_BYTES - 1, b"two");
}

/// What is stored after the last commit is written at close.
///
/// Guarantee: heap/commit-cost
/// Guarantee: heap/dirty-pages
#[test]
fn stores_after_the_last_commit_are_written_at_close() {
    let home = Home::with_text("words", b"hello");
    let mut region = home.names().open(&named("words"), &key()).unwrap();
    store(&mut region, 9 * PAGE_BYTES, b"one");
    commit(&mut region);
    store(&mut region, 9 * PAGE_BYTES, b"two");
    assert_eq!(region.close().unwrap().checkpoint.pages, 1);
    assert_stored(&home, 9 * PAGE_BYTES, b"two");
}

/// Guarantee: heap/commit-cost
/// Guarantee: heap/dirty-pages
#[test]
fn a_region_grows_while_it_is_tracked() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), 64 * MIB).unwrap();
    map(&mut region);
    commit(&mut region);
    store(&mut region, 5, b"old");
    commit(&mut region);
    region.grow(8 * MIB).unwrap();
    for (at, text) in [(5, b"OLD"), (4 << 20, b"new"), ((8 << 20) - 3, b"end")] {
        store(&mut region, at, text);
    }
    assert_eq!(commit(&mut region).1, 3);
    drop(region);
    for (at, text) in [(5, b"OLD"), (4 << 20, b"new"), ((8 << 20) - 3, b"end")] {
        assert_stored(&home, at, text);
    }
}
