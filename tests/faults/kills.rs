//! Row H1: SIGKILL at random moments of creating, opening, recovering, transactions, publications
//! and commits.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use holdfast_region::{Consistency, Durability, ErrorKind, Opened};
use holdfast_testkit::Trials;
use rand::RngExt;

use crate::driver::{Child, Ended, SharedWords, run, wait_until};
use crate::home::{Home, key, name};
use crate::ledger::Ledger;

const KILLS: u64 = 1000;
const SIGKILL: i32 = 9;
/// A writer that no process kills ends after this many entries.
const ENTRIES_MAX: u64 = 20_000;
const COMMIT_EVERY: u64 = 8;
/// The latest moment of a kill, counted from the fork for one in four, for the others from the
/// first entry.
const EARLY_US_MAX: u64 = 600;
const DELAY_US_MAX: u64 = 1500;
/// The heap is made anew once in so many kills, and the pool is lost once in so many.
const ANEW_ONE_IN: u32 = 40;
const POOL_LOST_ONE_IN: u32 = 8;

const READY: usize = 0;
const ENTERED: usize = 1;
const COMMITTED: usize = 2;

/// A writer killed at any moment leaves every acknowledged entry and at most one more.
///
/// Guarantee: heap/kill-any-instruction
#[test]
fn killed_writer_keeps_every_acknowledged_entry() {
    run("kills");
}

fn write(home: &Home, consistency: Consistency, said: &SharedWords) -> i32 {
    let mut ledger = Ledger::open(&home.names(), consistency).unwrap();
    said.word(READY).store(1, SeqCst);
    for _ in 0..ENTRIES_MAX {
        let entry = ledger.enter().unwrap_or_else(|error| {
            ledger.verify("after an entry that failed");
            panic!("{consistency:?}, entry {}: {error:?}", ledger.done() + 1);
        });
        said.word(ENTERED).store(entry, SeqCst);
        if entry.is_multiple_of(COMMIT_EVERY) {
            ledger.region.commit(Durability::Power).unwrap();
            said.word(COMMITTED).store(entry, SeqCst);
        }
    }
    0
}

pub(crate) fn drive() {
    let mut trials = Trials::of("H1", "process death", KILLS);
    let home = Home::new();
    let said = SharedWords::new();
    let (mut in_work, mut cold) = (0_u64, 0_u64);
    while let Some(mut trial) = trials.next() {
        let random = &mut trial.random;
        let consistency =
            if random.random_ratio(1, 3) { Consistency::Atomic } else { Consistency::Direct };
        said.word(READY).store(0, SeqCst);
        let before = said.word(ENTERED).load(SeqCst);
        let writer = Child::fork(|| write(&home, consistency, &said));
        let early = random.random_ratio(1, 4);
        if !early {
            assert!(
                wait_until(|| said.word(READY).load(SeqCst) == 1),
                "the writer never opens its heap"
            );
        }
        let delay_us_max = if early { EARLY_US_MAX } else { DELAY_US_MAX };
        std::thread::sleep(Duration::from_micros(random.random_range(0..=delay_us_max)));
        writer.kill();
        assert_eq!(writer.wait(), Ended::By(SIGKILL), "seed {:#x}", trial.seed);
        let context = format!("kill {}, seed {:#x}", trial.number, trial.seed);

        let (entered, committed) =
            (said.word(ENTERED).load(SeqCst), said.word(COMMITTED).load(SeqCst));
        in_work += u64::from(entered > before);
        let pool_lost = home.base().exists() && random.random_ratio(1, POOL_LOST_ONE_IN);
        if pool_lost {
            cold += 1;
            std::fs::remove_file(home.image()).unwrap();
        }
        if !home.image().exists() && !home.base().exists() {
            assert_eq!(entered, 0, "{context}: the heap is gone");
            continue;
        }
        let region =
            home.names().open(&name(), &key()).unwrap_or_else(|error| panic!("{context}: {error}"));
        assert_eq!(region.opened() == Opened::Cold, pool_lost, "{context}");
        let ledger = Ledger::on(region, Consistency::Direct).unwrap();
        ledger.verify(&context);
        let found = ledger.done();
        let least = if pool_lost { committed } else { entered };
        assert!(
            (least..=entered + 1).contains(&found),
            "{context}: {found} of {least} to {entered} + 1"
        );
        said.word(ENTERED).store(found, SeqCst);
        said.word(COMMITTED).store(committed.min(found), SeqCst);
        if random.random_ratio(1, 4) {
            ledger.close().unwrap();
            said.word(COMMITTED).store(found, SeqCst);
        } else {
            ledger.leave();
        }
        if random.random_ratio(1, ANEW_ONE_IN) {
            home.names().remove(&name(), &key()).unwrap();
            let gone = home.names().open(&name(), &key()).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::NotFound);
            said.word(ENTERED).store(0, SeqCst);
            said.word(COMMITTED).store(0, SeqCst);
        }
    }
    let count = trials.count();
    assert!(
        count < 100 || in_work * 3 > count && cold * 20 > count,
        "{in_work} in work, {cold} cold"
    );
}
