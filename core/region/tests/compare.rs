//! Changes that no tracker noticed (the session was killed, or too short to track them) are found
//! by comparing image and store, and cost what changed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use common::{DATA_OFFSET, Home, MIB, PAGE_BYTES, flip, key, named, read, store};
use holdfast_region::{CommitReport, Durability, Opened, Region, RegionError, Written};

fn open(home: &Home) -> Region {
    home.names().open(&named("words"), &key()).unwrap()
}

/// What the next session has to write after the stores of one that was killed.
fn commit_after_kill(home: &Home, stores: &[(usize, &[u8])]) -> CommitReport {
    let mut region = open(home);
    for (offset, bytes) in stores {
        store(&mut region, *offset, bytes);
    }
    drop(region);
    let mut region = open(home);
    assert_eq!(region.opened(), Opened::WarmAfterCrash);
    let report = region.commit(Durability::Power).unwrap();
    let image = read(&region, 0, region.backed_bytes() as usize);
    drop(region);
    std::fs::remove_file(home.image("words")).unwrap();
    let region = open(home);
    assert_eq!(region.opened(), Opened::Cold);
    assert!(read(&region, 0, region.backed_bytes() as usize) == image, "the store lacks something");
    region.close().unwrap();
    report
}

fn written(report: CommitReport) -> (Written, u64) {
    (report.written, report.pages)
}

/// After a kill the next commit writes the pages that differ and no others.
///
/// Guarantee: heap/commit-cost
#[test]
fn commit_after_a_kill_writes_only_changed_pages() {
    let home = Home::with_text("words", b"hello");
    assert_eq!(written(commit_after_kill(&home, &[])), (Written::Nothing, 0));
    let apart: [(usize, &[u8]); 3] =
        [(PAGE_BYTES - 1, b"ab"), (300 * PAGE_BYTES, b"c"), (1023 * PAGE_BYTES, &[7; PAGE_BYTES])];
    assert_eq!(written(commit_after_kill(&home, &apart)), (Written::Journal, 4));
    // Pages that the journal has: as they were, others than in the base, and all zero again.
    assert_eq!(written(commit_after_kill(&home, &apart)), (Written::Nothing, 0));
    assert_eq!(
        written(commit_after_kill(&home, &[(300 * PAGE_BYTES, b"d")])),
        (Written::Journal, 1)
    );
    let zeros = commit_after_kill(&home, &[(0, b"hello"), (300 * PAGE_BYTES, b"\0")]);
    assert_eq!(
        (zeros.written, zeros.pages),
        (Written::Journal, 0),
        "a page of zeros needs no bytes"
    );
    // A record of the journal has an older state of a page than a later one.
    assert_eq!(
        written(commit_after_kill(&home, &[(300 * PAGE_BYTES, b"c")])),
        (Written::Journal, 1)
    );
}

/// A short session writes what it stored when it is closed.
///
/// Guarantee: heap/commit-cost
#[test]
fn short_session_writes_its_stores_at_close() {
    let home = Home::with_text("words", b"hello");
    let mut region = open(&home);
    store(&mut region, 7 * PAGE_BYTES, b"seven");
    assert_eq!(region.close().unwrap().checkpoint.pages, 1);
    assert!(home.journal("words").exists());
    std::fs::remove_file(home.image("words")).unwrap();
    assert_eq!(read(&open(&home), 7 * PAGE_BYTES as u64, 5), b"seven");
}

/// Growth that only a killed session saw is committed too.
///
/// Guarantee: heap/commit-cost
#[test]
fn growth_of_a_killed_session_is_committed() {
    let home = Home::with_text("words", b"hello");
    let mut region = open(&home);
    store(&mut region, 0, b"grown");
    region.grow(8 * MIB).unwrap();
    drop(region);
    assert_eq!(written(commit_after_kill(&home, &[])), (Written::Journal, 1));
    let mut region = open(&home);
    assert_eq!(region.backed_bytes(), 8 * MIB);
    store(&mut region, 5 << 20, b"behind the base");
    drop(region);
    assert_eq!(written(commit_after_kill(&home, &[])), (Written::Journal, 1));
}

/// A store that is not whole and changes everywhere make a base.
///
/// Guarantee: heap/commit-cost
#[test]
fn incomplete_store_or_total_change_makes_a_base() {
    let home = Home::with_text("words", &[1; 64 * PAGE_BYTES]);
    flip(&home.base("words"), DATA_OFFSET + 9);
    let report = commit_after_kill(&home, &[(100 * PAGE_BYTES, b"x")]);
    assert_eq!(written(report), (Written::Base, 65), "damage that the image makes up for");
    let everywhere = vec![2; 3 << 20];
    let report = commit_after_kill(&home, &[(0, &everywhere)]);
    assert_eq!(report.written, Written::Base);
    std::fs::remove_file(home.base("words")).unwrap();
    assert_eq!(commit_after_kill(&home, &[(0, b"y")]).written, Written::Base);
}

/// An image with commits that the store has lost is not removed.
///
/// Guarantee: heap/checkpoint
#[test]
fn image_with_commits_lost_by_the_store_stays() {
    let home = Home::with_text("words", b"hello");
    let old_base = std::fs::read(home.base("words")).unwrap();
    let mut region = open(&home);
    store(&mut region, 0, b"later");
    region.close().unwrap();
    let losses: [&dyn Fn(); 2] =
        [&|| std::fs::remove_file(home.journal("words")).unwrap(), &|| {
            std::fs::write(home.base("words"), &old_base).unwrap();
        }];
    for lose in losses {
        lose();
        let error = home.names().remove_image(&named("words"), &key()).unwrap_err();
        assert!(matches!(error, RegionError::StoreBehind { .. }), "{error}");
        // What the message says.
        open(&home).checkpoint().unwrap();
    }
    home.names().remove_image(&named("words"), &key()).unwrap();
    assert_eq!(read(&open(&home), 0, 5), b"later");
}
