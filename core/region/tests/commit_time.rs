//! The time of a small commit on the disk of this machine, beside bare appends of as many bytes.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use common::noted::Notes;
use common::{Home, MIB, key, named};
use holdfast_region::{Durability, Written};

const ROUNDS: usize = 100;
/// A record of one page.
const RECORD: [u8; 4176] = [0x5A; 4176];
/// Room for all rounds.
const SPACE_BYTES: usize = 1 << 20;

fn time(times: &mut Vec<Duration>, operation: impl FnOnce()) {
    let start = Instant::now();
    operation();
    times.push(start.elapsed());
}

fn median_us(times: &mut [Duration]) -> u128 {
    times.sort_unstable();
    times[ROUNDS / 2].as_micros()
}

/// A file for bare appends.
fn bare(home: &Home, name: &str, prepare: impl Fn(&File)) -> File {
    let file = File::create(home.path().join(name)).unwrap();
    prepare(&file);
    file.sync_all().unwrap();
    file
}

/// A commit of one page costs little more than an append with its sync.
#[test]
fn one_page_commit_costs_about_an_append_and_sync() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), MIB).unwrap();
    let notes = Notes::of(&mut region);
    notes.store(&mut region, 0, b"base");
    region.commit(Durability::Power).unwrap();
    let allocate = |file: &File| holdfast_sys::file::allocate(file, 0..SPACE_BYTES as u64).unwrap();
    let files = [
        bare(&home, "appended", |_| ()),
        bare(&home, "allocated", allocate),
        bare(&home, "zeroed", |file| file.write_all_at(&vec![0; SPACE_BYTES], 0).unwrap()),
    ];
    let mut times: [Vec<Duration>; 4] = Default::default();
    // In turn, so that what else the disk does strikes all of them.
    for round in 0..ROUNDS {
        time(&mut times[0], || {
            notes.store(&mut region, (round % 200) * 4096, &[round as u8 | 1; 4096]);
            assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
        });
        for (file, times) in files.iter().zip(&mut times[1..]) {
            time(times, || {
                file.write_all_at(&RECORD, (round * RECORD.len()) as u64).unwrap();
                file.sync_data().unwrap();
            });
        }
    }
    let [commit, appended, allocated, zeroed] = times.each_mut().map(|times| median_us(times));
    println!("median of {ROUNDS}, in microseconds: a commit of 4 KiB at level power {commit}");
    println!(
        "bare write and fdatasync: appended {appended}, into allocated {allocated}, zeroed {zeroed}"
    );
    // Wide, for a disk has moods; it finds a commit that copies the region or syncs many times.
    assert!(commit <= 10 * appended + 20_000, "{commit} us against {appended} us");
}
