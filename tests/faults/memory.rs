//! Row H10: no memory. Every allocation of a session fails once, in a process of its own; and the
//! kernel gives no more address space, at every amount of it. What was committed before is there,
//! whatever became of the session.
//!
//! Rust ends a process whose small allocations fail (`abort`, after a message): no library can
//! promise more. What grows with the data asks first, and gives an error; the tests tell the two
//! apart by size.

#![allow(
    unsafe_code,
    reason = "an allocator is unsafe by its nature, and limits are a system call"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering::SeqCst};

use holdfast_region::{Consistency, Durability};
use holdfast_testkit::Trials;

use crate::driver::{Child, Ended, SharedWords, run};
use crate::home::{Home, key, name};
use crate::ledger::{Ledger, Refused};

/// The system's allocator, which refuses when it is asked to.
struct Failing;

static ARMED: AtomicBool = AtomicBool::new(false);
static LEFT: AtomicU64 = AtomicU64::new(0);
/// Where the size of the allocation that failed is told; the process may not live to tell.
static FAILED_BYTES: AtomicPtr<AtomicU64> = AtomicPtr::new(std::ptr::null_mut());

#[global_allocator]
static ALLOCATOR: Failing = Failing;

/// Larger ones are asked for with care, and their failure is an error.
const SMALL_BYTES: u64 = 32 << 10;
/// More allocations than a session makes.
const STEPS_MAX: u64 = 20_000;
const SESSION_DONE: i32 = 0;
const REFUSED: i32 = 5;
const ENTRIES: u64 = 3;
const COMMITTED: usize = 0;
const SIZE: usize = 1;

fn refuses(layout: Layout) -> bool {
    if !ARMED.load(SeqCst) {
        return false;
    }
    let refuses = LEFT.fetch_sub(1, SeqCst) == 0;
    if refuses {
        ARMED.store(false, SeqCst);
        // SAFETY: null, or a word that lives as long as this process is armed.
        if let Some(word) = unsafe { FAILED_BYTES.load(SeqCst).as_ref() } {
            word.store(layout.size() as u64, SeqCst);
        }
    }
    refuses
}

// SAFETY: all is handed on to the system's allocator; a null pointer says that there was no memory.
unsafe impl GlobalAlloc for Failing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        if refuses(layout) { std::ptr::null_mut() } else { unsafe { System.alloc(layout) } }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise; all pointers come from there.
        unsafe { System.dealloc(pointer, layout) };
    }
}

/// No failed allocation loses a commit, and a large one is an error.
///
/// Guarantee: heap/no-false-acknowledgement
#[test]
fn failed_allocation_loses_no_commit() {
    run("out of memory");
}

/// No limit on the address space loses a commit or ends the process with a signal.
///
/// Guarantee: heap/no-false-acknowledgement
#[test]
fn address_space_limit_loses_no_commit() {
    run("address space");
}

/// Opens, makes entries, commits, closes; a refusal of a type ends it.
fn session(home: &Home, said: &SharedWords) -> Result<(), Refused> {
    let mut ledger = Ledger::open(&home.try_names()?, Consistency::Direct)?;
    for _ in 0..ENTRIES {
        ledger.enter()?;
        ledger.region.commit(Durability::Power)?;
        said.word(COMMITTED).store(ledger.done(), SeqCst);
    }
    ledger.close()
}

fn prepared() -> (Home, SharedWords) {
    let (home, said) = (Home::new(), SharedWords::new());
    let first = Child::fork(|| session(&home, &said).map_or(REFUSED, |()| SESSION_DONE));
    assert_eq!(first.wait(), Ended::With(SESSION_DONE));
    (home, said)
}

/// Runs a session in a child that `limit` makes poor; then all that was committed is there, warm or
/// cold.
fn poor_session(home: &Home, said: &SharedWords, cold: bool, limit: impl FnOnce()) -> Ended {
    if cold {
        let _ = std::fs::remove_file(home.image());
    }
    let child = Child::fork(|| {
        limit();
        let done = session(home, said);
        ARMED.store(false, SeqCst);
        match done {
            Ok(()) => SESSION_DONE,
            Err(_) => REFUSED,
        }
    });
    let ended = child.wait();
    // In a process of its own: what opening reserves for good would make the next victims rich.
    let looked = Child::fork(|| {
        let committed = said.word(COMMITTED).load(SeqCst);
        let region = home.names().open(&name(), &key()).unwrap();
        let ledger = Ledger::on(region, Consistency::Direct).unwrap();
        ledger.verify("after a session without memory");
        let found = ledger.done();
        assert!((committed..=committed + 1).contains(&found), "{found} of {committed}");
        said.word(COMMITTED).store(found, SeqCst);
        ledger.close().unwrap();
        0
    });
    assert_eq!(looked.wait(), Ended::With(0), "after a session that ended {ended:?}");
    ended
}

/// Standard error of the victims says thousands of times that memory is out.
fn silence() {
    // SAFETY: plain system calls on descriptors of this process.
    unsafe {
        let nowhere = libc::open(c"/dev/null".as_ptr(), libc::O_WRONLY);
        libc::dup2(nowhere, libc::STDERR_FILENO);
    }
}

pub(crate) fn drive_allocations() {
    let mut trials = Trials::of_all("H10", "every allocation of a session");
    let (home, said) = prepared();
    let (mut errors, mut aborts) = (0, 0);
    for cold in [false, true] {
        for step in 0.. {
            assert!(step < STEPS_MAX, "the session never comes through");
            trials.next();
            let ended = poor_session(&home, &said, cold, || {
                silence();
                FAILED_BYTES.store(std::ptr::from_ref(said.word(SIZE)).cast_mut(), SeqCst);
                LEFT.store(step, SeqCst);
                ARMED.store(true, SeqCst);
            });
            let failed_bytes = said.word(SIZE).swap(0, SeqCst);
            match ended {
                Ended::With(SESSION_DONE) if failed_bytes == 0 => break,
                // It went another way.
                Ended::With(SESSION_DONE) => errors += 1,
                Ended::With(REFUSED) => errors += 1,
                // Rust's own end.
                Ended::By(libc::SIGABRT) => {
                    aborts += 1;
                    assert!(
                        failed_bytes <= SMALL_BYTES,
                        "no room for {failed_bytes} bytes ends the process"
                    );
                }
                other => panic!("allocation {step}: {other:?}"),
            }
        }
    }
    assert!(errors > 0 && aborts > 0, "{errors} errors, {aborts} ends");
}

pub(crate) fn drive_address_space() {
    let mut trials = Trials::of("H10", "address space", 150);
    let (home, said) = prepared();
    let (mut refused, mut done) = (0, 0);
    // From less than what it has to more than it needs.
    let page = 4096;
    let has = resident_map_bytes();
    let mut more: u64 = 0;
    while let Some(trial) = trials.next() {
        let cold = trial.number % 2 == 1;
        let ended = poor_session(&home, &said, cold, || {
            silence();
            let bytes = has + more;
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
            // SAFETY: a valid pointer to a limit.
            assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) }, 0);
        });
        match ended {
            Ended::With(SESSION_DONE) => done += 1,
            Ended::With(REFUSED) | Ended::By(libc::SIGABRT) => refused += 1,
            other => panic!("{more} bytes of address space: {other:?}"),
        }
        // Fine steps at first, then coarse ones, up to twice the region's limit.
        more += if trial.number < 60 { page } else { (64 << 20) / 80 };
    }
    assert!(trials.count() < 100 || refused > 0 && done > 0, "{refused} refused, {done} done");
}

/// Address space of this process now.
fn resident_map_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').next().unwrap().parse::<u64>().unwrap() * 4096
}
