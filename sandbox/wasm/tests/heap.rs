//! The heap inside of the linear memory: attachment, growth, and that data is there in the next
//! run.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{MIB, Scratch, error_text, options, program, program_with, run, status};
use holdfast_wasm::{HEAP_BASE, MAX_HEAP_LIMIT_BYTES, TrapCause, WasmError};

const LOAD_AND_STORE: &str = "
  (call $attach_heap)
  (call $exit (i32.wrap_i64 (i64.load (i32.const 0x80000040))))";

#[test]
fn data_is_there_in_the_next_run_of_another_program() {
    let scratch = Scratch::new();
    let store = "(call $attach_heap) (i64.store (i32.const 0x80000040) (i64.const 42))";
    let first = run(store, Some(scratch.region("data", 16 * MIB)));
    assert_eq!(status(&first), 0);
    assert!(first.metrics.heap_dirty);
    first.heaps.into_first().unwrap().close().unwrap();

    let second = run(LOAD_AND_STORE, Some(scratch.region("data", 16 * MIB)));
    assert_eq!(status(&second), 42);
}

/// Guarantee: heap/reading-writes-nothing
#[test]
fn a_run_that_only_reads_leaves_the_heap_clean() {
    let scratch = Scratch::new();
    run(
        "(call $attach_heap) (i64.store (i32.const 0x80000040) (i64.const 7))",
        Some(scratch.region("c", MIB)),
    )
    .heaps
    .into_first()
    .unwrap()
    .close()
    .unwrap();
    let reading = run(LOAD_AND_STORE, Some(scratch.region("c", MIB)));
    assert_eq!(status(&reading), 7);
    assert!(!reading.metrics.heap_dirty);
    assert!(reading.heaps.into_first().unwrap().close().unwrap().checkpoint.skipped);
}

/// Attaching reports the address and size of the heap and whether it is new.
#[test]
fn attachment_reports_address_size_and_newness() {
    let scratch = Scratch::new();
    let body = "
      (call $attach_heap)
      (call $exit_unless (i64.eq (i64.load (i32.const 1024)) (i64.const 0x80000000)) (i32.const 1))
      (call $exit_unless (i64.eq (i64.load (i32.const 1032)) (i64.const 0x400000)) (i32.const 2))
      (call $exit_unless (i64.eq (i64.load (i32.const 1040)) (i64.const 0x1000000)) (i32.const 3))
      (call $exit (i32.add (i32.const 10) (i32.load (i32.const 1048))))";
    let created = run(body, Some(scratch.region("n", 16 * MIB)));
    assert_eq!(status(&created), 11, "created in this run");
    created.heaps.into_first().unwrap().close().unwrap();
    let opened = run(body, Some(scratch.region("n", 16 * MIB)));
    assert_eq!(status(&opened), 10, "opened");
}

#[test]
fn attaching_twice_is_harmless() {
    let scratch = Scratch::new();
    let body = "
      (call $attach_heap)
      (i64.store (i32.const 0x80000000) (i64.const 5))
      (call $attach_heap)
      (call $exit_unless (i64.eq (i64.load (i32.const 1024)) (i64.const 0x80000000)) (i32.const 1))
      (call $exit (i32.load (i32.const 0x80000000)))";
    assert_eq!(status(&run(body, Some(scratch.region("twice", MIB)))), 5);
}

#[test]
fn without_a_heap_every_import_says_so() {
    let body = "
      (call $exit_unless (i32.eq (call $attach (i32.const 1024)) (i32.const 1)) (i32.const 10))
      (call $exit_unless (i64.eq (call $grow (i64.const 100)) (i64.const -1)) (i32.const 11))
      (call $exit_unless (i32.eq (call $commit (i32.const 0)) (i32.const 1)) (i32.const 12))";
    assert_eq!(status(&run(body, None)), 0);
}

/// Growing and committing are refused before the heap is attached.
#[test]
fn growing_and_committing_need_an_attached_heap() {
    let scratch = Scratch::new();
    let body = "
      (call $exit_unless (i64.eq (call $grow (i64.const 100)) (i64.const -1)) (i32.const 11))
      (call $exit_unless (i32.eq (call $commit (i32.const 2)) (i32.const 1)) (i32.const 12))";
    assert_eq!(status(&run(body, Some(scratch.region("early", MIB)))), 0);
}

/// A store past the backed part of the heap traps, and succeeds after growing.
#[test]
fn store_past_backed_part_traps_until_growth() {
    let scratch = Scratch::new();
    let store = "(call $attach_heap) (i32.store8 (i32.const 0x80400000) (i32.const 1))";
    let trapped = run(store, Some(scratch.region("grow", 64 * MIB)));
    let text = error_text(&trapped);
    assert!(
        text.contains("`start`") && text.contains("0x80400000") && text.contains("holdfast.grow"),
        "{text}"
    );
    drop(trapped);

    let grown = run(
        "(call $attach_heap)
         (call $exit_unless (i64.eq (call $grow (i64.const 0x400001)) (i64.const 0x800000)) (i32.const 1))
         (i32.store8 (i32.const 0x80400000) (i32.const 77))
         (i32.store8 (i32.const 0x807fffff) (i32.const 78))
         (call $exit (i32.load8_u (i32.const 0x80400000)))",
        Some(scratch.region("grow", 64 * MIB)),
    );
    assert_eq!(status(&grown), 77);
    assert_eq!(grown.metrics.heap_backed_bytes, 8 * MIB);
}

/// Guarantee: sandbox/memory-limits
#[test]
fn growing_past_the_limit_is_an_answer_and_not_an_end() {
    let scratch = Scratch::new();
    let body = "
      (call $attach_heap)
      (call $exit_unless (i64.eq (call $grow (i64.const 0x800001)) (i64.const -2)) (i32.const 1))
      (call $exit_unless (i64.eq (call $grow (i64.const -1)) (i64.const -2)) (i32.const 2))
      (call $exit_unless (i64.eq (call $grow (i64.const 0x800000)) (i64.const 0x800000)) (i32.const 3))
      (i32.store8 (i32.const 0x807fffff) (i32.const 9))
      (call $exit (i32.load8_u (i32.const 0x807fffff)))";
    assert_eq!(status(&run(body, Some(scratch.region("limit", 8 * MIB)))), 9);
}

#[test]
fn volatile_memory_grows_above_the_heap() {
    let scratch = Scratch::new();
    let body = "
      (call $attach_heap)
      ;; 0x8000_0000 + 16 MiB is page 33024
      (call $exit_unless (i32.eq (memory.size) (i32.const 33024)) (i32.const 1))
      (call $exit_unless (i32.eq (memory.grow (i32.const 3)) (i32.const 33024)) (i32.const 2))
      (i32.store (i32.const 0x81000000) (i32.const 1))
      (i32.store (i32.const 0x8102fffc) (i32.const 2))
      (i32.store (i32.const 0x80000000) (i32.const 3))
      (call $exit (i32.add (i32.load (i32.const 0x81000000)) (i32.load (i32.const 0x8102fffc))))";
    let finished = run(body, Some(scratch.region("above", 16 * MIB)));
    assert_eq!(status(&finished), 3);
    assert_eq!(finished.metrics.peak_volatile_bytes, 5 * 65_536);
}

/// A module whose declared maximum memory leaves no room for the heap gets an error.
#[test]
fn declared_maximum_without_heap_room_is_reported() {
    let scratch = Scratch::new();
    let attach = "(call $exit (call $attach (i32.const 1024)))";
    let small = program_with("2 100", "", attach);
    let finished = holdfast_wasm::run(&small, &options(), Some(scratch.region("max", 16 * MIB)));
    assert_eq!(status(&finished), 7);
    assert!(finished.heap_error.is_none());
    drop(finished);
    let just_enough = program_with("2 33024", "", attach);
    let finished =
        holdfast_wasm::run(&just_enough, &options(), Some(scratch.region("max", 16 * MIB)));
    assert_eq!(status(&finished), 0);
}

/// A module whose memory reaches the address of the heap gets an error.
#[test]
fn memory_that_reaches_the_heap_is_reported() {
    let scratch = Scratch::new();
    let mut options = options();
    options.limits.memory_bytes = 3 << 30;
    let large = program_with("32769", "", "(call $exit (call $attach (i32.const 1024)))");
    let finished = holdfast_wasm::run(&large, &options, Some(scratch.region("large", MIB)));
    assert_eq!(status(&finished), 7);
}

/// An attach record outside the memory is refused before anything happens.
#[test]
fn attach_record_outside_memory_is_refused() {
    let scratch = Scratch::new();
    let body = "
      (call $exit_unless (i32.eq (call $attach (i32.const 0x1fff0)) (i32.const 6)) (i32.const 1))
      (call $exit_unless (i32.eq (call $attach (i32.const -1)) (i32.const 6)) (i32.const 2))
      (call $exit_unless (i32.eq (memory.size) (i32.const 2)) (i32.const 3))
      (call $attach_heap)
      ;; a hole now
      (call $exit_unless (i32.eq (call $attach (i32.const 0x40000)) (i32.const 6)) (i32.const 4))";
    assert_eq!(status(&run(body, Some(scratch.region("record", MIB)))), 0);
}

/// A heap that no linear memory can hold is refused before the run.
#[test]
fn oversized_heap_is_refused_before_the_run() {
    let scratch = Scratch::new();
    let region = scratch.region("huge", MAX_HEAP_LIMIT_BYTES + 65_536);
    let finished = run("", Some(region));
    assert!(
        matches!(finished.end, Err(WasmError::HeapTooLarge { .. })),
        "{}",
        error_text(&finished)
    );
    assert!(finished.heaps.first().is_some());

    let largest = run(
        "(call $attach_heap) (call $exit_unless (i32.eq (memory.grow (i32.const 1)) (i32.const 61440)) (i32.const 1))",
        Some(scratch.region("largest", MAX_HEAP_LIMIT_BYTES)),
    );
    assert_eq!(status(&largest), 0);
}

#[test]
fn data_segments_stay_volatile_next_to_a_heap() {
    let scratch = Scratch::new();
    let definitions = r#"(data (i32.const 4096) "active") (data $later "passive")"#;
    let body = "
      (call $attach_heap)
      (memory.init $later (i32.const 0x80000100) (i32.const 0) (i32.const 7))
      (call $exit_unless (i32.eq (i32.load8_u (i32.const 4096)) (i32.const 97)) (i32.const 1))
      (call $exit (i32.load8_u (i32.const 0x80000106)))";
    for _ in 0..2 {
        let finished = holdfast_wasm::run(
            &program_with("2", definitions, body),
            &options(),
            Some(scratch.region("segments", MIB)),
        );
        assert_eq!(status(&finished), i32::from(b'e'));
        finished.heaps.into_first().unwrap().close().unwrap();
    }
}

#[test]
fn commits_are_answered_by_level() {
    let scratch = Scratch::new();
    let body = "
      (call $attach_heap)
      (i64.store (i32.const 0x80000000) (i64.const 5))
      (call $exit_unless (i32.eqz (call $commit (i32.const 0))) (i32.const 1))
      (call $exit_unless (i32.eqz (call $commit (i32.const 1))) (i32.const 2))
      (call $exit_unless (i32.eqz (call $commit (i32.const 2))) (i32.const 3))
      (call $exit_unless (i32.eq (call $commit (i32.const 3)) (i32.const 4)) (i32.const 4))
      (call $exit_unless (i32.eq (call $commit (i32.const -1)) (i32.const 4)) (i32.const 5))";
    let finished = run(body, Some(scratch.region("commit", MIB)));
    assert_eq!(status(&finished), 0);
    assert!(!finished.metrics.heap_dirty, "the checkpoint made it clean");
    // A store after the checkpoint counts again.
    drop(finished);
    let body = format!("{body} (i64.store (i32.const 0x80000000) (i64.const 6))");
    assert!(run(&body, Some(scratch.region("commit", MIB))).metrics.heap_dirty);
}

#[test]
fn the_address_below_the_heap_is_no_memory() {
    let scratch = Scratch::new();
    let finished = run(
        "(call $attach_heap) (i32.store8 (i32.const 0x7fffffff) (i32.const 1))",
        Some(scratch.region("below", MIB)),
    );
    match &finished.end {
        Err(WasmError::Trap(report)) => {
            let place = "between the applet's memory and its heap";
            assert_eq!(
                report.cause,
                TrapCause::OutOfBounds { address: Some(HEAP_BASE - 1), place: Some(place) }
            );
        }
        other => panic!("{other:?}"),
    }
}

/// Many applets run at once in one process, each with its own heap.
///
/// Guarantee: sandbox/many-applets
#[test]
fn many_applets_run_with_their_own_heaps() {
    let scratch = Scratch::new();
    let count_up = program(
        "(call $attach_heap)
         (i64.store (i32.const 0x80000000) (i64.add (i64.load (i32.const 0x80000000)) (i64.const 1)))
         (call $exit (i32.wrap_i64 (i64.load (i32.const 0x80000000))))",
    );
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let (scratch, count_up) = (&scratch, &count_up);
            scope.spawn(move || {
                for round in 1..=10 {
                    let region = scratch.region(&format!("heap-{thread}"), 8 * MIB);
                    let finished = holdfast_wasm::run(count_up, &options(), Some(region));
                    assert_eq!(status(&finished), round);
                    finished.heaps.into_first().unwrap().close().unwrap();
                }
            });
        }
    });
}
