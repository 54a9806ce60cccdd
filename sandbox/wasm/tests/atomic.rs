//! Applets whose stores count only together: when they end by themselves, or commit.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::Duration;

use common::{MIB, Scratch, options, program, run, status};
use holdfast_region::{Consistency, Region};
use holdfast_wasm::{Finished, WasmError};

/// Stores a number at two places far apart.
fn stores(number: u32) -> String {
    format!(
        "(i32.store (i32.const 0x80000040) (i32.const {number}))
         (i32.store (i32.const 0x80200040) (i32.const {number}))"
    )
}

fn atomic_region(scratch: &Scratch) -> Region {
    let mut region = scratch.region("all-or-nothing", 16 * MIB);
    region.set_consistency(Consistency::Atomic).unwrap();
    region
}

fn run_atomic(scratch: &Scratch, body: &str) -> Finished {
    let body = format!("(call $attach_heap) {body}");
    let finished = run(&body, Some(atomic_region(scratch)));
    finished.heaps.first().is_some().then_some(()).unwrap();
    finished
}

/// The number, which must be the same at both places.
fn number(region: &Region) -> u32 {
    let numbers = [0x40, 0x20_0040].map(|offset| {
        let mut word = [0; 4];
        region.read_at(offset, &mut word).unwrap();
        u32::from_le_bytes(word)
    });
    assert_eq!(numbers[0], numbers[1]);
    numbers[0]
}

/// In atomic mode, a run that ends by itself is published, whatever its exit status.
#[test]
fn voluntary_end_publishes_whatever_the_status() {
    let scratch = Scratch::new();
    let returned = run_atomic(&scratch, &stores(1));
    assert_eq!((status(&returned), number(returned.heaps.first().unwrap())), (0, 1));
    assert!(returned.metrics.heap_dirty);
    returned.heaps.into_first().unwrap().close().unwrap();
    let exited = run_atomic(&scratch, &format!("{} (call $exit (i32.const 3))", stores(2)));
    assert_eq!((status(&exited), number(exited.heaps.first().unwrap())), (3, 2));
}

/// Guarantee: heap/atomic-trap
#[test]
fn a_trap_undoes_everything_since_the_last_commit() {
    let scratch = Scratch::new();
    let first = run_atomic(&scratch, &stores(1));
    first.heaps.into_first().unwrap().close().unwrap();
    let trapped = run_atomic(&scratch, &format!("{} unreachable", stores(2)));
    assert!(matches!(trapped.end, Err(WasmError::Trap(_))));
    assert_eq!(number(trapped.heaps.first().unwrap()), 1);
    trapped.heaps.into_first().unwrap().close().unwrap();
    let body =
        format!("{} (drop (call $commit (i32.const 0))) {} unreachable", stores(3), stores(4));
    let committed = run_atomic(&scratch, &body);
    assert_eq!(number(committed.heaps.first().unwrap()), 3);
}

/// In atomic mode, a run stopped at its time limit changes nothing in the heap.
#[test]
fn run_stopped_at_time_limit_publishes_nothing() {
    let scratch = Scratch::new();
    let mut options = options();
    options.limits.timeout = Some(Duration::from_millis(100));
    let body = format!("(call $attach_heap) {} (loop $for_ever (br $for_ever))", stores(5));
    let finished = holdfast_wasm::run(&program(&body), &options, Some(atomic_region(&scratch)));
    assert!(matches!(finished.end, Err(WasmError::TimeLimit { .. })));
    assert_eq!(number(finished.heaps.first().unwrap()), 0);
}

/// After host code touched a hole on behalf of the applet, nothing is published.
///
/// Guarantee: sandbox/wild-pointers
#[test]
fn touched_hole_prevents_any_publish() {
    for last in ["(drop (call $commit (i32.const 0)))", "(drop (call $commit (i32.const 2)))"] {
        let scratch = Scratch::new();
        let body = format!(
            "{} (memory.fill (i32.const 0x40000000) (i32.const 1) (i32.const 1)) {last} (call $exit (i32.const 0))",
            stores(8)
        );
        let finished = run_atomic(&scratch, &body);
        assert!(matches!(finished.end, Err(WasmError::HostAccess { .. })), "{:?}", finished.end);
        assert_eq!(number(finished.heaps.first().unwrap()), 0, "{last}");
    }
}

/// In atomic mode, bytes written by the kernel and growth are published or discarded like stores.
///
/// Guarantee: heap/atomic-trap
#[test]
fn kernel_writes_and_growth_publish_atomically() {
    let scratch = Scratch::new();
    let body = |end: &str| {
        format!(
            "(drop (call $grow (i64.const 0x600000)))
             (drop (call $random_get (i32.const 0x80500000) (i32.const 16)))
             {} {end}",
            stores(6)
        )
    };
    let random = |region: &Region| {
        let mut bytes = [0; 16];
        region.read_at(0x50_0000, &mut bytes).unwrap();
        bytes != [0; 16]
    };
    let trapped = run_atomic(&scratch, &body("unreachable"));
    let region = trapped.heaps.into_first().unwrap();
    assert_eq!((number(&region), random(&region), region.backed_bytes()), (0, false, 8 * MIB));
    region.close().unwrap();
    let finished = run_atomic(&scratch, &body(""));
    let region = finished.heaps.into_first().unwrap();
    assert_eq!((number(&region), random(&region)), (6, true));
}

/// A commit at level power publishes the stores and writes a checkpoint.
#[test]
fn power_level_commit_publishes_and_checkpoints() {
    let scratch = Scratch::new();
    let body = format!("{} (call $exit (call $commit (i32.const 2)))", stores(7));
    let finished = run_atomic(&scratch, &body);
    assert_eq!(status(&finished), 0);
    assert!(!finished.heaps.first().unwrap().is_dirty());
    assert_eq!(number(finished.heaps.first().unwrap()), 7);
}
