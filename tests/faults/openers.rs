//! Row H11: many openers at once, stale lock files, PIDs that came round again, holders that fork
//! and die. There is one writer, and a dead one blocks no process.

use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use holdfast_region::{Consistency, Durability, ErrorKind};
use holdfast_testkit::Trials;
use rand::RngExt;

use crate::driver::{Child, Ended, SharedWords, run, wait_until};
use crate::home::{Home, key, name};
use crate::ledger::{Ledger, Refused};

const RACES: u64 = 200;
const OPENERS: usize = 3;
const SIGKILL: i32 = 9;
/// What an opener ends with.
const ENTERED: i32 = 0;
const HELD: i32 = 3;

const GO: usize = 0;
const INSIDE: usize = 1;
const WAITING: usize = 2;
const DONE: usize = 3;
const INHERITED: usize = 4;

/// Of simultaneous openers, only one at a time writes, whatever the lock file contains.
///
/// Guarantee: heap/readers-and-writers
#[test]
fn concurrent_openers_write_one_at_a_time() {
    run("openers");
}

/// Waits for the signal, tries to open, makes an entry while no other may, ends in one of the ways.
fn opener(home: &Home, shared: &SharedWords, end: Ending) -> i32 {
    shared.word(WAITING).fetch_add(1, SeqCst);
    while shared.word(GO).load(SeqCst) == 0 {
        std::hint::spin_loop();
    }
    let mut ledger = match Ledger::open(&home.names(), Consistency::Direct) {
        Ok(ledger) => ledger,
        Err(Refused::Region(error)) if error.kind() == ErrorKind::Held => return HELD,
        Err(other) => panic!("{other:?}"),
    };
    assert_eq!(shared.word(INSIDE).fetch_add(1, SeqCst), 0, "two writers");
    let entry = ledger.enter().unwrap();
    // Long enough for a second writer to be caught.
    std::thread::sleep(Duration::from_micros(200));
    assert_eq!(ledger.done(), entry, "somebody else has written");
    shared.word(DONE).store(entry, SeqCst);
    assert_eq!(shared.word(INSIDE).fetch_sub(1, SeqCst), 1, "two writers");
    match end {
        Ending::Close => ledger.close().unwrap(),
        Ending::Leave => ledger.leave(),
        Ending::Die => std::process::abort(),
        Ending::CommitAndDie => {
            ledger.region.commit(Durability::Power).unwrap();
            std::process::abort();
        }
    }
    ENTERED
}

#[derive(Debug, Clone, Copy)]
enum Ending {
    Close,
    Leave,
    Die,
    CommitAndDie,
}

pub(crate) fn drive() {
    let mut trials = Trials::of("H11", "openers", RACES);
    let home = Home::new();
    Ledger::open(&home.names(), Consistency::Direct).unwrap().close().unwrap();
    let shared = SharedWords::new();
    let mut held = 0;
    while let Some(mut trial) = trials.next() {
        let context = format!("race {}, seed {:#x}", trial.number, trial.seed);
        leave_a_lock_file(&home, trial.number);
        if trial.number % 4 == 3 {
            forked_holder(&home, &shared, &context);
            continue;
        }
        let before = shared.word(DONE).load(SeqCst);
        for word in [GO, INSIDE, WAITING] {
            shared.word(word).store(0, SeqCst);
        }
        let openers: Vec<Child> = (0..OPENERS)
            .map(|_| {
                let endings = [Ending::Close, Ending::Leave, Ending::Die, Ending::CommitAndDie];
                let end = endings[trial.random.random_range(0..endings.len())];
                Child::fork(|| opener(&home, &shared, end))
            })
            .collect();
        assert!(wait_until(|| shared.word(WAITING).load(SeqCst) == OPENERS as u64));
        shared.word(GO).store(1, SeqCst);
        let ended: Vec<Ended> = openers.into_iter().map(Child::wait).collect();
        let refused = ended.iter().filter(|ended| **ended == Ended::With(HELD)).count();
        held += refused;
        assert!(refused < OPENERS, "{context}: nobody got the heap");
        let fine =
            |ended: &Ended| matches!(ended, Ended::With(ENTERED | HELD) | Ended::By(libc::SIGABRT));
        assert!(ended.iter().all(fine), "{context}: {ended:?}");
        let ledger = Ledger::open(&home.names(), Consistency::Direct).unwrap();
        ledger.verify(&context);
        let expected = before + (OPENERS - refused) as u64;
        assert_eq!(ledger.done(), expected, "{context}: entries are lost, or were made twice");
        shared.word(DONE).store(expected, SeqCst);
        ledger.leave();
    }
    assert!(trials.count() < 100 || held > 0, "no race was a race");
}

/// What a dead writer, a reader, or a person may have left: no record, rubbish, the record of a
/// process that is gone, or of one that has a living process's PID.
fn leave_a_lock_file(home: &Home, number: u64) {
    let record = match number % 5 {
        0 => return,
        1 => "\u{0}\u{0}rubbish".to_owned(),
        2 => "4194303 77".to_owned(),
        3 => "1 987654321".to_owned(),
        _ => format!("{} 1", std::process::id()),
    };
    std::fs::write(home.lock(), record).unwrap();
}

/// A holder forks a child and is killed. As long as the child lives, no other process writes; then
/// all goes on.
fn forked_holder(home: &Home, shared: &SharedWords, context: &str) {
    shared.word(INHERITED).store(0, SeqCst);
    let before = shared.word(DONE).load(SeqCst);
    let holder = Child::fork(|| {
        let mut ledger = Ledger::open(&home.names(), Consistency::Direct).unwrap();
        let entry = ledger.enter().unwrap();
        shared.word(DONE).store(entry, SeqCst);
        // The child has the descriptors, and with them the lock, and does nothing; it ends when it
        // is told.
        let heir = Child::fork(|| {
            shared.word(INHERITED).store(1, SeqCst);
            wait_until(|| shared.word(INHERITED).load(SeqCst) == 2);
            shared.word(INHERITED).store(3, SeqCst);
            0
        });
        std::mem::forget(heir);
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    assert!(wait_until(|| shared.word(INHERITED).load(SeqCst) == 1), "{context}");
    let refused = home.names().open(&name(), &key()).unwrap_err();
    assert!(refused.to_string().contains(&holder.pid().to_string()), "{context}: {refused}");
    holder.kill();
    assert_eq!(holder.wait(), Ended::By(SIGKILL));
    // The lock lives on in the child, whose parent is gone.
    let refused = home.names().open(&name(), &key()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Held, "{context}");
    shared.word(INHERITED).store(2, SeqCst);
    assert!(wait_until(|| shared.word(INHERITED).load(SeqCst) == 3), "{context}");
    let opened = || Ledger::open(&home.names(), Consistency::Direct).ok();
    let mut ledger = None;
    assert!(wait_until(|| {
        std::thread::sleep(Duration::from_millis(1));
        true
    }));
    for _ in 0..200 {
        ledger = opened();
        if ledger.is_some() {
            break;
        }
    }
    let ledger = ledger.unwrap_or_else(|| panic!("{context}: the dead still hold the heap"));
    ledger.verify(context);
    assert_eq!(ledger.done(), before + 1, "{context}");
    ledger.leave();
}
