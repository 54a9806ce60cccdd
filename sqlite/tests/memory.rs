//! Row S3: SQLite's memory runs out at the k-th allocation, for every k.

use std::ffi::{c_int, c_void};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use holdfast_testkit::Trials;
use rusqlite::ffi;

use crate::engine;
use crate::script;
use crate::sides::{Ground, say};

/// Allocations that are tried in one process.
const STRIDE: i64 = 40;
/// A short run tries so many of them.
const CASES: u64 = 12;
/// The sequence has no more steps here: each makes some hundreds of allocations.
const STEPS: i64 = 4;

static LEFT: AtomicI64 = AtomicI64::new(i64::MAX);
type Allocate = unsafe extern "C" fn(c_int) -> *mut c_void;
type Reallocate = unsafe extern "C" fn(*mut c_void, c_int) -> *mut c_void;
static BEFORE: OnceLock<(Allocate, Reallocate)> = OnceLock::new();

fn fails() -> bool {
    LEFT.fetch_sub(1, SeqCst) == 1
}

#[allow(unsafe_code, reason = "a function of SQLite's allocator")]
unsafe extern "C" fn allocate(bytes: c_int) -> *mut c_void {
    if fails() {
        return std::ptr::null_mut();
    }
    // SAFETY: as SQLite called us.
    unsafe { BEFORE.get().unwrap().0(bytes) }
}

#[allow(unsafe_code, reason = "a function of SQLite's allocator")]
unsafe extern "C" fn reallocate(place: *mut c_void, bytes: c_int) -> *mut c_void {
    if fails() {
        return std::ptr::null_mut();
    }
    // SAFETY: as SQLite called us.
    unsafe { BEFORE.get().unwrap().1(place, bytes) }
}

/// Puts the counting allocator in front of SQLite's own.
#[allow(unsafe_code, reason = "configures SQLite before it is used")]
pub(crate) fn count_allocations() {
    // SAFETY: nothing of SQLite runs yet; the tables are filled in, and copied by SQLite.
    unsafe {
        let mut methods: ffi::sqlite3_mem_methods = std::mem::zeroed();
        assert_eq!(
            ffi::sqlite3_config(ffi::SQLITE_CONFIG_GETMALLOC, &raw mut methods),
            ffi::SQLITE_OK
        );
        assert!(BEFORE.set((methods.xMalloc.unwrap(), methods.xRealloc.unwrap())).is_ok());
        methods.xMalloc = Some(allocate);
        methods.xRealloc = Some(reallocate);
        assert_eq!(
            ffi::sqlite3_config(ffi::SQLITE_CONFIG_MALLOC, &raw mut methods),
            ffi::SQLITE_OK
        );
    }
}

/// Has the allocation with that number, counted from now on, fail.
pub(crate) fn fail_at(number: i64) {
    LEFT.store(number, SeqCst);
}

/// How many there were since [`fail_at`] with that number.
pub(crate) fn allocations(number: i64) -> i64 {
    number - LEFT.load(SeqCst)
}

/// The role: for a stretch of allocations, a fresh database each, in which that one fails.
pub(crate) fn starve(folder: &Path, first: i64) {
    count_allocations();
    engine::load();
    let mut tried = 0;
    for at in first..first + STRIDE {
        let path = folder.join(format!("{at}.db"));
        fail_at(at);
        let mut done = -1;
        {
            let opened = engine::open(&path, "vfs=holdfast&threshold=4&flush=inline");
            if let Ok(connection) = opened
                && script::begin(&connection).is_ok()
            {
                done = 0;
                while done < STEPS && script::step(&connection, done + 1).is_ok() {
                    done += 1;
                }
            }
        }
        let ran_out = LEFT.load(SeqCst) < 1;
        fail_at(i64::MAX);
        let connection = engine::open(&path, "vfs=holdfast").unwrap();
        let state = script::state(&connection).unwrap().unwrap_or(-1);
        assert!(
            (done..=done + 1).contains(&state),
            "allocation {at}: {done} acknowledged, {state} found"
        );
        connection.close().unwrap();
        if !ran_out {
            break;
        }
        tried += 1;
    }
    say(&format!("tried {tried}"));
}

/// Memory that runs out at any allocation loses nothing that was acknowledged.
///
/// Guarantee: sqlite/memory-errors
#[test]
fn exhausted_memory_loses_no_acknowledged_data() {
    let mut trials = Trials::of("S3", "memory runs out, in strides of 40 allocations", CASES);
    let mut first = 1;
    while trials.next().is_some() {
        let ground = Ground::new();
        let said = ground
            .run(&["starve", ground.folder.path().to_str().unwrap(), &first.to_string()])
            .well();
        if said != format!("tried {STRIDE}") {
            break;
        }
        first += STRIDE;
    }
}
