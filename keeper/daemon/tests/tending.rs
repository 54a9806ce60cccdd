//! Between emergencies: checkpoints of heaps that no process has, copies of those that a process
//! has, and a pool that stays small.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs::File;
use std::time::{Duration, Instant, SystemTime};

use common::{Home, MIB, Player, config, is_stopped, key, load, named, play, soon, store};
use holdfast_keeper::PoolLimit;
use holdfast_region::{Opened, RegionState};

#[test]
fn a_child_plays_its_role() {
    play();
}

/// A heap of a program that died is checkpointed and one that is open is copied once.
///
/// Guarantee: keeper/background
/// Guarantee: keeper/one-slow-writer
#[test]
fn dead_heap_is_checkpointed_and_open_one_copied() {
    let home = Home::new();
    home.crashed("dead", MIB, 3);
    let mut program = Player::start(&home, "hold open");
    assert_eq!(program.hear(), "here");
    let mut keeper = home.keeper(config());
    let report = keeper.tend();
    assert_eq!(
        (report.checkpointed, report.copied),
        (vec!["dead".to_owned()], vec!["open".to_owned()])
    );
    let again = keeper.tend();
    assert_eq!(again.bytes, 0, "nothing had changed: {again:?}");
    assert!(program.is_here());
    program.kill();
    home.lose_the_pool();
    assert_eq!(home.number("dead"), (Opened::Cold, 3));
    assert_eq!(home.number("open"), (Opened::Rescued, 7));
}

/// A heap that is never quiet has its writer stopped for a copy after two windows.
///
/// Guarantee: keeper/background
/// Guarantee: keeper/one-slow-writer
#[test]
fn restless_writer_is_stopped_after_two_windows() {
    let home = Home::new();
    let mut program = Player::start(&home, "busy words");
    assert_eq!(program.hear(), "here");
    let mut patient = config();
    patient.loss_window = Duration::MAX;
    let mut keeper = home.keeper(patient);
    // It may be between two time slices for once.
    assert!(soon(|| keeper.tend().busy == ["words"]));
    drop(keeper);
    let mut strict = config();
    strict.loss_window = Duration::ZERO;
    let mut keeper = home.keeper(strict.clone());
    assert_eq!(keeper.tend().copied, ["words"]);
    assert!(soon(|| !is_stopped(program.pid())));
    drop(keeper);
    program.kill();
    home.lose_the_pool();
    assert_eq!(home.number("words").0, Opened::Rescued);
}

/// Guarantee: keeper/background
/// Guarantee: keeper/one-slow-writer
#[test]
fn what_the_write_rate_leaves_no_room_for_is_put_off() {
    let home = Home::new();
    home.crashed("one", MIB, 1);
    home.crashed("two", MIB, 1);
    let mut slow = config();
    slow.write_bytes_per_s = 1;
    slow.write_burst_bytes = MIB;
    let mut keeper = home.keeper(slow);
    let report = keeper.tend();
    assert_eq!(
        (report.checkpointed, report.put_off),
        (vec!["one".to_owned()], vec!["two".to_owned()])
    );
    assert_eq!(keeper.status().unwrap().counters.put_off, 1);
    assert_eq!(home.names().summary(&named("two")).unwrap().state, RegionState::Crashed);
}

fn used_s_ago(home: &Home, name: &str, seconds: u64) {
    let image =
        File::options().write(true).open(home.pool().join(format!("{name}.image"))).unwrap();
    image.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
}

/// A pool that is too full loses the images longest unused and opening brings them back.
///
/// Guarantee: keeper/eviction
#[test]
fn full_pool_evicts_longest_unused_images() {
    let home = Home::new();
    for (name, number, seconds) in [("new", 1, 10), ("old", 2, 1000), ("dead", 3, 500)] {
        if name == "dead" {
            home.crashed(name, MIB, number);
        } else {
            home.closed(name, MIB, number);
        }
        used_s_ago(&home, name, seconds);
    }
    let mut open = home.names().create(&named("open"), &key(), MIB).unwrap();
    store(&mut open, 4);
    used_s_ago(&home, "open", 5000);
    let mut small = config();
    // Room for two and their headers.
    small.pool_limit = PoolLimit::Bytes(2 * MIB + 200_000);
    let report = home.keeper(small.clone()).evict();
    assert_eq!(report.evicted, ["old", "dead"], "{report:?}");
    assert!(report.before_bytes > report.limit_bytes && report.after_bytes <= report.limit_bytes);
    assert_eq!(home.number("old"), (Opened::Cold, 2));
    assert_eq!(home.number("dead"), (Opened::Cold, 3));
    assert_eq!(home.number("new"), (Opened::Warm, 1));
    assert_eq!(load(&open), 4);
    let status = home.keeper(small).status().unwrap();
    assert!(status.heaps.iter().any(|heap| heap.name == "open" && heap.state == "held"));
}

/// A process that opens a heap at that moment waits for it, and is not told that a process holds
/// it.
///
/// Guarantee: keeper/eviction
#[test]
fn a_heap_that_is_being_evicted_opens_all_the_same() {
    let home = Home::new();
    home.closed("words", 8 * MIB, 9);
    let mut keeper = Player::start(&home, "evict");
    assert_eq!(keeper.hear(), "here");
    let (started, mut rounds, mut cold) = (Instant::now(), 0, 0);
    while rounds < 30 || cold == 0 {
        assert!(started.elapsed() < Duration::from_secs(20), "nothing was evicted");
        rounds += 1;
        let region = home.names().open(&named("words"), &key()).unwrap();
        assert_eq!(load(&region), 9);
        cold += u32::from(region.opened() == Opened::Cold);
        region.close().unwrap();
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Row D1: the keeper is killed while it evicts, at any moment.
///
/// Guarantee: keeper/killed-keeper
#[test]
fn killed_eviction_loses_nothing() {
    let home = Home::new();
    for round in 0..10 {
        home.crashed(&format!("heap{round}"), MIB, round);
    }
    for round in 0..10_u64 {
        let mut keeper = Player::start(&home, "evict");
        assert_eq!(keeper.hear(), "here");
        std::thread::sleep(Duration::from_micros(700 * round));
        keeper.kill();
        for heap in 0..10 {
            let region = home.names().open(&named(&format!("heap{heap}")), &key()).unwrap();
            assert_eq!(load(&region), heap);
            // Dropped: it has to be checkpointed again before it can go.
        }
    }
}
