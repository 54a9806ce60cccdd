//! Readers that take no lock, beside a writer that commits into the zeros of its journal, cuts them
//! off and begins anew.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::noted::Notes;
use common::{Home, MIB, key, named, store};
use holdfast_region::{DamagedFile, Durability};

const PAGE_BYTES: usize = 4096;
/// Large enough for a reader to meet a record that is half written.
const PAGES: usize = 15;
const COMMITS_IN_A_SESSION: u8 = 6;
const READS: usize = 400;
const PATIENCE: Duration = Duration::from_secs(60);

/// Commits, session after session, until it is told to stop.
fn write(home: &Home, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        let mut region = home.names().open(&named("words"), &key()).unwrap();
        let notes = Notes::of(&mut region);
        for number in 1..=COMMITS_IN_A_SESSION {
            notes.store(&mut region, PAGE_BYTES, &vec![number; PAGES * PAGE_BYTES]);
            region.commit(Durability::Power).unwrap();
        }
        region.close().unwrap();
    }
}

/// A length that the writer cut off, and a record that was finished after it was looked at, were
/// taken for damage.
///
/// Guarantee: heap/readers-beside-a-writer
#[test]
fn reader_never_calls_a_growing_journal_damaged() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), MIB).unwrap();
    store(&mut region, 0, b"base");
    region.close().unwrap();
    let stop = AtomicBool::new(false);
    let mut said = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| write(&home, &stop));
        let started = Instant::now();
        for _ in 0..READS {
            // The base file is replaced now and then.
            let found = DamagedFile::read(&home.base("words")).ok();
            said.extend(
                found.and_then(|found| found.report().continuation.as_ref()?.damaged.clone()),
            );
            if started.elapsed() > PATIENCE {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(said.is_empty(), "{said:#?}");
}
