//! What a small commit costs on the disk of this machine, beside bare appends of as many bytes.

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

fn median_us(mut operation: impl FnMut(usize)) -> u128 {
    let mut times: Vec<Duration> = (0..ROUNDS)
        .map(|round| {
            let start = Instant::now();
            operation(round);
            start.elapsed()
        })
        .collect();
    times.sort_unstable();
    times[ROUNDS / 2].as_micros()
}

fn bare_us(home: &Home, prepare: impl Fn(&File)) -> u128 {
    let file = File::create(home.path().join("bare")).unwrap();
    prepare(&file);
    file.sync_all().unwrap();
    median_us(|round| {
        file.write_all_at(&RECORD, (round * RECORD.len()) as u64).unwrap();
        file.sync_data().unwrap();
    })
}

#[test]
fn a_commit_of_one_page_costs_little_more_than_an_append_with_its_sync() {
    let home = Home::new();
    let mut region = home.names().create(&named("words"), &key(), MIB).unwrap();
    let notes = Notes::of(&mut region);
    notes.store(&mut region, 0, b"base");
    region.commit(Durability::Power).unwrap();
    let commit = median_us(|round| {
        notes.store(&mut region, (round % 200) * 4096, &[round as u8 | 1; 4096]);
        assert_eq!(region.commit(Durability::Power).unwrap().written, Written::Journal);
    });
    let appended = bare_us(&home, |_| ());
    let allocated = bare_us(&home, |file| holdfast_sys::file::allocate(file, 0..SPACE_BYTES as u64).unwrap());
    let zeroed = bare_us(&home, |file| file.write_all_at(&vec![0; SPACE_BYTES], 0).unwrap());
    println!("median of {ROUNDS}, in microseconds: a commit of 4 KiB at level power {commit}");
    println!("bare write and fdatasync: appended {appended}, into allocated {allocated}, zeroed {zeroed}");
    // Far from both noise and a second sync for each commit on a slow disk would be a narrow path; this finds a
    // commit that copies the region.
    assert!(commit <= 10 * appended + 10_000, "{commit} us against {appended} us");
}
