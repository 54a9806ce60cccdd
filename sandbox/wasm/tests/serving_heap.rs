//! The heap of an applet that is called: what counts after which call, and after its death.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::serve::{call, deadline, last_call, send_call, serve, server_with, start};
use common::{MIB, Scratch, error_text, options, status};
use holdfast_region::{Consistency, Region};
use holdfast_wasm::{Finished, Program, Received, Serving, WasmError};

/// Each call adds one to a number at two places of the heap; 0 answers with it, 1 traps half-way, 2
/// traps after both, 3 computes for ever after both, 4 commits, 5 has the host touch a hole and
/// answers.
fn counter() -> Program {
    server_with(
        r#"(func $fail_half_way unreachable)
           (func $call (param $index i32) (param $bytes i32)
             (local $number i32)
             (local.set $number (i32.add (i32.load (i32.const 0x80000040)) (i32.const 1)))
             (i32.store (i32.const 0x80000040) (local.get $number))
             (if (i32.eq (local.get $index) (i32.const 1)) (then (call $fail_half_way)))
             (i32.store (i32.const 0x80200040) (local.get $number))
             (if (i32.eq (local.get $index) (i32.const 2)) (then unreachable))
             (if (i32.eq (local.get $index) (i32.const 3)) (then (loop $forever (br $forever))))
             (if (i32.eq (local.get $index) (i32.const 4)) (then (drop (call $commit (i32.const 0)))))
             (if (i32.eq (local.get $index) (i32.const 5))
               (then
                 (memory.fill (i32.const 0x40000000) (i32.const 1) (i32.const 1))
                 ;; answers at once: no loop and no function in which compiled code would notice begins in between
                 (i32.store (i32.const 1088) (i32.const 4))
                 (i32.store (i32.const 1092) (i32.const 17))
                 (drop (call $send (i32.const 1088) (i32.const 0x80000040)))))
             (call $answer (i32.const 17) (i32.const 0x80000040) (i32.const 4)))"#,
        "(call $attach_heap)",
    )
}

fn open(scratch: &Scratch, mode: Consistency) -> Region {
    let mut region = scratch.region("counter", 16 * MIB);
    if region.consistency() != mode {
        region.set_consistency(mode).unwrap();
    }
    region
}

fn counts(scratch: &Scratch, mode: Consistency) -> Serving {
    serve(&counter(), Some(open(scratch, mode)))
}

fn next(serving: &mut Serving, index: u32) -> u32 {
    u32::from_le_bytes(call(serving, index, b"").try_into().unwrap())
}

/// Both numbers, as the heap has them after the applet's end.
fn numbers(finished: Finished) -> [u32; 2] {
    let region = finished.heaps.into_first().unwrap();
    let numbers = [0x40, 0x20_0040].map(|offset| {
        let mut word = [0; 4];
        region.read_at(offset, &mut word).unwrap();
        u32::from_le_bytes(word)
    });
    region.close().unwrap();
    numbers
}

/// Guarantee: applets/heap-after-death
#[test]
fn a_counter_goes_on_after_traps_and_reopening() {
    let scratch = Scratch::new();
    let mut expected = 0;
    for round in 0..6 {
        let mut serving = counts(&scratch, Consistency::Direct);
        for _ in 0..10 {
            expected += 1;
            assert_eq!(next(&mut serving, 0), expected);
        }
        serving.publish().unwrap();
        if round % 2 == 0 {
            // What was stored before the trap stays: this mode has transactions for what must be
            // whole.
            expected += 1;
            let finished = last_call(serving, 1, deadline());
            assert!(error_text(&finished).contains("`fail_half_way`"), "{}", error_text(&finished));
            assert_eq!(numbers(finished), [expected, expected - 1]);
        } else {
            assert_eq!(numbers(serving.finish()), [expected, expected]);
        }
    }
}

/// In atomic mode, the heap holds exactly what the host published.
///
/// Guarantee: applets/heap-after-death
#[test]
fn atomic_mode_keeps_exactly_what_was_published() {
    let scratch = Scratch::new();
    let mut expected = 0;
    for index in [1, 2, 3, 1, 2, 3] {
        let mut serving = counts(&scratch, Consistency::Atomic);
        for _ in 0..3 {
            expected += 1;
            assert_eq!(next(&mut serving, 0), expected);
            serving.publish().unwrap();
        }
        // Not published, so it goes with the failure.
        assert_eq!(next(&mut serving, 0), expected + 1);
        let short = std::time::Instant::now() + std::time::Duration::from_millis(100);
        let finished = last_call(serving, index, Some(short));
        assert!(finished.end.is_err());
        assert_eq!(numbers(finished), [expected, expected]);
    }
    // The applet's own commit counts as ever.
    let mut serving = counts(&scratch, Consistency::Atomic);
    assert_eq!(next(&mut serving, 4), expected + 1);
    assert_eq!(numbers(last_call(serving, 2, deadline())), [expected + 1, expected + 1]);
}

/// A released applet keeps only what was published; one that ends by itself keeps everything.
///
/// Guarantee: applets/heap-after-death
#[test]
fn released_applet_keeps_only_published_stores() {
    let scratch = Scratch::new();
    let mut serving = counts(&scratch, Consistency::Atomic);
    assert_eq!(next(&mut serving, 0), 1);
    serving.publish().unwrap();
    assert_eq!(next(&mut serving, 0), 2);
    let finished = serving.finish();
    assert!(
        matches!(&finished.end, Err(WasmError::Interrupted { reason, .. }) if reason.contains("let it go"))
    );
    assert_eq!(numbers(finished), [1, 1]);
    let mut serving = counts(&scratch, Consistency::Atomic);
    assert_eq!(next(&mut serving, 0), 2);
    let end = holdfast_wasm::Header { kind: common::serve::END, ..Default::default() };
    serving.send(end, []).unwrap();
    assert_eq!(serving.receive(deadline()), Received::Ended);
    assert!(serving.publish().is_err());
    let finished = serving.finish();
    assert_eq!(status(&finished), 0);
    assert_eq!(numbers(finished), [2, 2]);
}

/// An applet that made the host touch a hole publishes nothing and cannot answer its call.
///
/// Guarantee: applets/wasm-bounds
#[test]
fn hole_access_in_a_call_publishes_nothing() {
    let scratch = Scratch::new();
    let mut serving = counts(&scratch, Consistency::Atomic);
    assert_eq!(next(&mut serving, 0), 1);
    serving.publish().unwrap();
    send_call(&mut serving, 1, 5, b"");
    assert_eq!(serving.receive(deadline()), Received::Ended);
    let finished = serving.finish();
    assert!(matches!(finished.end, Err(WasmError::HostAccess { .. })), "{:?}", finished.end);
    assert_eq!(numbers(finished), [1, 1]);
}

/// Dropping a serving applet leaves its heap as if the process had died.
#[test]
fn dropped_serving_acts_like_a_dead_process() {
    for (mode, expected) in [(Consistency::Direct, 2), (Consistency::Atomic, 1)] {
        let scratch = Scratch::new();
        let mut serving = counts(&scratch, mode);
        assert_eq!(next(&mut serving, 0), 1);
        serving.publish().unwrap();
        assert_eq!(next(&mut serving, 0), 2);
        drop(serving);
        let region = open(&scratch, mode);
        let mut word = [0; 4];
        region.read_at(0x40, &mut word).unwrap();
        assert_eq!(u32::from_le_bytes(word), expected, "{mode:?}");
        region.close().unwrap();
    }
}

/// Several applets of one program count in their own heaps at the same time.
///
/// Guarantee: applets/threads
/// Guarantee: applets/wasm-sharing
#[test]
fn applets_serve_from_their_own_heaps_at_once() {
    let program = counter();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let program = &program;
            scope.spawn(move || {
                let scratch = Scratch::new();
                for round in 0..5_u32 {
                    let region = open(&scratch, Consistency::Atomic);
                    let mut serving = start(program, &options(), Some(region));
                    common::serve::expect_hello(&mut serving);
                    for turn in 1..=10 {
                        assert_eq!(next(&mut serving, 0), 10 * round + turn, "thread {thread}");
                        serving.publish().unwrap();
                    }
                    let finished = last_call(serving, round % 2 + 1, deadline());
                    assert_eq!(numbers(finished), [10 * (round + 1); 2]);
                }
            });
        }
    });
}
