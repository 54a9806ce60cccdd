//! The limits of an applet, and how it is stopped.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::{Duration, Instant};

use common::{MIB, Scratch, error_text, options, program, program_with, status};
use holdfast_wasm::{Finished, Program, RunOptions, WasmError};

/// Long enough for an applet to come to what it is to be stopped in, also on a busy machine.
const SHORT: Duration = Duration::from_millis(500);
/// Far more than any stop may take, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

fn with_timeout() -> RunOptions {
    let mut options = options();
    options.limits.timeout = Some(SHORT);
    options
}

fn is_time_limit(finished: &Finished, started: Instant, was_waiting: bool) {
    match &finished.end {
        Err(WasmError::TimeLimit { limit, waiting, .. }) => {
            assert_eq!((*limit, *waiting), (SHORT, was_waiting));
        }
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() >= SHORT);
    assert!(started.elapsed() < PATIENCE);
}

#[test]
fn an_endless_loop_is_stopped_in_its_function() {
    let program = program_with("2", "(func $spin (loop $forever (br $forever)))", "(call $spin)");
    let started = Instant::now();
    let finished = holdfast_wasm::run(&program, &with_timeout(), None);
    is_time_limit(&finished, started, false);
    assert!(error_text(&finished).contains("`spin`"), "{}", error_text(&finished));
    assert!(finished.metrics.cpu_time > Duration::ZERO);
}

/// An applet that stores to its heap without end is stopped, and its data is kept.
///
/// Guarantee: sandbox/time-limits
#[test]
fn endless_stores_stop_and_keep_their_data() {
    let scratch = Scratch::new();
    let body = "(call $attach_heap)
      (loop $forever (i64.store (i32.const 0x80000000) (i64.const 9)) (br $forever))";
    let started = Instant::now();
    let finished =
        holdfast_wasm::run(&program(body), &with_timeout(), Some(scratch.region("loop", MIB)));
    is_time_limit(&finished, started, false);
    let mut value = [0; 8];
    finished.heaps.into_first().unwrap().read_at(0, &mut value).unwrap();
    assert_eq!(u64::from_le_bytes(value), 9);
}

/// Exits with 10 plus the number of events that `poll_oneoff` reports for one clock: relative to
/// now (flags 0) or absolute (1), in nanoseconds.
fn sleep(nanoseconds: u64, flags: u32) -> String {
    format!(
        "(i32.store (i32.const 272) (i32.const 1)) ;; monotonic
         (i64.store (i32.const 280) (i64.const {nanoseconds}))
         (i32.store (i32.const 296) (i32.const {flags}))
         (call $exit_unless
           (i32.eqz (call $poll_oneoff (i32.const 256) (i32.const 512) (i32.const 1) (i32.const 600)))
           (i32.const 1))
         (call $exit (i32.add (i32.const 10) (i32.load (i32.const 600))))"
    )
}

#[test]
fn an_applet_that_sleeps_is_stopped() {
    // An hour, and the end of time: an absolute clock of the latter must not overflow anything.
    for (nanoseconds, flags) in [(3_600_000_000_000, 0), (u64::MAX, 0), (u64::MAX, 1)] {
        let started = Instant::now();
        let finished =
            holdfast_wasm::run(&program(&sleep(nanoseconds, flags)), &with_timeout(), None);
        is_time_limit(&finished, started, true);
    }
}

#[test]
fn a_sleep_ends_by_itself_and_reports_one_event() {
    for nanoseconds in [0, 500_000, 20_000_000] {
        let started = Instant::now();
        let finished = holdfast_wasm::run(&program(&sleep(nanoseconds, 0)), &options(), None);
        assert_eq!(status(&finished), 11);
        assert!(started.elapsed() >= Duration::from_nanos(nanoseconds));
    }
}

#[test]
fn a_limit_that_is_not_reached_changes_nothing() {
    let mut options = options();
    options.limits.timeout = Some(Duration::from_secs(3600));
    options.limits.fuel = Some(1_000_000);
    let started = Instant::now();
    let finished = holdfast_wasm::run(&program("(call $exit (i32.const 3))"), &options, None);
    assert_eq!(status(&finished), 3);
    assert!(started.elapsed() < PATIENCE);
    assert!(finished.metrics.fuel_used.is_some_and(|used| used > 0 && used < 1000));
}

#[test]
fn fuel_runs_out() {
    let mut options = options();
    options.limits.fuel = Some(10_000);
    let finished = holdfast_wasm::run(&program("(loop $forever (br $forever))"), &options, None);
    assert!(
        matches!(finished.end, Err(WasmError::OutOfFuel { limit: 10_000, .. })),
        "{:?}",
        finished.end
    );
    assert_eq!(finished.metrics.fuel_used, Some(10_000));
}

/// Memory stops growing at its limit, and the abort that follows names the limit.
///
/// Guarantee: sandbox/memory-limits
#[test]
fn memory_limit_is_named_in_the_abort() {
    let mut options = options();
    options.limits.memory_bytes = 10 * 65_536;
    let body = "
      (loop $more (br_if $more (i32.ne (memory.grow (i32.const 1)) (i32.const -1))))
      (call $exit_unless (i32.eq (memory.size) (i32.const 10)) (i32.const 1))
      unreachable";
    let finished = holdfast_wasm::run(&program(body), &options, None);
    let text = error_text(&finished);
    assert!(text.contains("memory limit of 655360 bytes was reached"), "{text}");
    assert_eq!(finished.metrics.peak_volatile_bytes, 10 * 65_536);
}

#[test]
fn the_heap_does_not_count_as_memory() {
    let scratch = Scratch::new();
    let mut options = options();
    options.limits.memory_bytes = 3 * 65_536;
    let body = "
      (call $attach_heap)
      (call $exit_unless (i32.ne (memory.grow (i32.const 1)) (i32.const -1)) (i32.const 1))
      (call $exit_unless (i32.eq (memory.grow (i32.const 1)) (i32.const -1)) (i32.const 2))";
    let finished =
        holdfast_wasm::run(&program(body), &options, Some(scratch.region("count", 64 * MIB)));
    assert_eq!(status(&finished), 0);
}

/// A program that starts with too much memory is refused.
#[test]
fn excess_initial_memory_is_refused() {
    let mut options = options();
    options.limits.memory_bytes = 65_536;
    let finished = holdfast_wasm::run(&program(""), &options, None);
    assert!(
        matches!(
            finished.end,
            Err(WasmError::MemoryLimit { needed_bytes: 131_072, limit_bytes: 65_536, .. })
        ),
        "{:?}",
        finished.end
    );
}

#[test]
fn tables_are_limited_too() {
    let grow =
        "(call $exit (i32.eq (table.grow (ref.null func) (i32.const 0x7fffffff)) (i32.const -1)))";
    let finished =
        holdfast_wasm::run(&program_with("2", "(table 1 funcref)", grow), &options(), None);
    assert_eq!(status(&finished), 1);
    let finished =
        holdfast_wasm::run(&program_with("2", "(table 100000000 funcref)", ""), &options(), None);
    assert!(matches!(finished.end, Err(WasmError::TableLimit { .. })), "{:?}", finished.end);
}

/// A module with more tables than an applet may have is refused by that name.
///
/// Guarantee: sandbox/limits-are-named
#[test]
fn too_many_tables_are_named() {
    for (count, is_refused) in [(16, false), (17, true)] {
        let tables = "(table 1 funcref)".repeat(count);
        let finished = holdfast_wasm::run(&program_with("2", &tables, ""), &options(), None);
        match &finished.end {
            Ok(0) => assert!(!is_refused, "{count}"),
            Err(WasmError::TableLimit { what, .. }) => {
                assert!(is_refused && what.contains("tables (16)"), "{count}: {what}");
            }
            other => panic!("{count}: {other:?}"),
        }
    }
}

/// A limit refused long ago is not reported as the cause of a later trap.
///
/// Guarantee: sandbox/limits-are-named
#[test]
fn old_limit_refusal_is_not_blamed_for_a_trap() {
    let mut options = options();
    options.limits.memory_bytes = 1 << 20;
    for (memory, grow) in [
        ("0", "(memory.grow (i32.const 60000))"),
        ("1", "(table.grow (ref.null func) (i32.const 2000000))"),
    ] {
        let text = format!(
            "(module (memory (export \"memory\") {memory}) (table 1 funcref)
               (func $work unreachable)
               (func (export \"_start\") (drop {grow}) (call $work)))"
        );
        let finished =
            holdfast_wasm::run(&Program::from_bytes("t.wat", text).unwrap(), &options, None);
        assert!(matches!(finished.end, Err(WasmError::Trap(_))), "{grow}: {:?}", finished.end);
        assert!(error_text(&finished).contains("`work`"), "{}", error_text(&finished));
    }
    // Nor for one in code that runs while the applet is instantiated.
    let text = r#"(module (memory (export "memory") 0) (start $begin) (func (export "_start"))
      (func $begin (drop (memory.grow (i32.const 60000))) unreachable))"#;
    let finished = holdfast_wasm::run(&Program::from_bytes("t.wat", text).unwrap(), &options, None);
    assert!(error_text(&finished).contains("`begin`"), "{}", error_text(&finished));
}
