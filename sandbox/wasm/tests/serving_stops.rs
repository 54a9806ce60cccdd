//! Stopping an applet that serves: deadlines, interrupts, limits of each call.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::time::{Duration, Instant};

use common::serve::{
    ECHO, PATIENCE, call, deadline, last_call, send_call, serve, server, server_with, start,
};
use common::{error_text, options};
use holdfast_wasm::{Finished, Program, Received, WasmError};

/// Long enough for an applet to come to what it is to be stopped in, also on a busy machine.
const SHORT: Duration = Duration::from_millis(500);

/// Export 0 answers, 1 computes for ever, 2 sleeps for an hour, 3 takes about 40 units of fuel for
/// each byte that it is sent.
fn program() -> Program {
    server_with(
        r#"(func $spin (loop $forever (br $forever)))
           (func $sleep
             (i32.store (i32.const 272) (i32.const 1))
             (i64.store (i32.const 280) (i64.const 3600000000000))
             (drop (call $poll_oneoff (i32.const 256) (i32.const 512) (i32.const 1) (i32.const 600))))
           (func $work (param $turns i32)
             (loop $more
               (i32.store (i32.const 700) (i32.mul (local.get $turns) (i32.load (i32.const 700))))
               (i32.store (i32.const 700) (i32.mul (local.get $turns) (i32.load (i32.const 700))))
               (i32.store (i32.const 700) (i32.mul (local.get $turns) (i32.load (i32.const 700))))
               (i32.store (i32.const 700) (i32.mul (local.get $turns) (i32.load (i32.const 700))))
               (local.set $turns (i32.sub (local.get $turns) (i32.const 1)))
               (br_if $more (i32.gt_s (local.get $turns) (i32.const 0)))))
           (func $call (param $index i32) (param $bytes i32)
             (if (i32.eq (local.get $index) (i32.const 1)) (then (call $spin)))
             (if (i32.eq (local.get $index) (i32.const 2)) (then (call $sleep)))
             (if (i32.eq (local.get $index) (i32.const 3)) (then (call $work (local.get $bytes))))
             (call $answer (i32.const 17) (i32.const 4096) (local.get $bytes)))"#,
        "",
    )
}

fn assert_time_limit(finished: &Finished, started: Instant, was_waiting: bool) {
    match &finished.end {
        Err(WasmError::TimeLimit { limit, waiting, .. }) => {
            // What was left of it when the call was received.
            assert!(*limit <= SHORT && *limit >= SHORT / 2 && *waiting == was_waiting, "{limit:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() >= SHORT && started.elapsed() < PATIENCE);
}

/// A call that computes without end is stopped at its deadline, and the error names its function.
///
/// Guarantee: applets/deadlines
#[test]
fn endless_call_stops_at_its_deadline() {
    let mut serving = serve(&program(), None);
    assert_eq!(call(&mut serving, 0, b"before"), b"before");
    let started = Instant::now();
    let finished = last_call(serving, 1, Some(started + SHORT));
    assert_time_limit(&finished, started, false);
    assert!(error_text(&finished).contains("`spin`"), "{}", error_text(&finished));
    assert!(finished.metrics.cpu_time > Duration::ZERO);
}

/// Guarantee: applets/deadlines
#[test]
fn a_call_that_waits_is_stopped_at_its_deadline() {
    let serving = serve(&program(), None);
    let started = Instant::now();
    let finished = last_call(serving, 2, Some(started + SHORT));
    assert_time_limit(&finished, started, true);
}

/// Guarantee: applets/deadlines
#[test]
fn a_deadline_counts_for_its_call_only() {
    let mut serving = serve(&program(), None);
    let limit = Duration::from_secs(2);
    send_call(&mut serving, 1, 0, b"");
    assert!(matches!(serving.receive(Some(Instant::now() + limit)), Received::Message { .. }));
    // Suspended past the deadline, which is over with its call.
    std::thread::sleep(limit + Duration::from_millis(50));
    assert_eq!(call(&mut serving, 0, b"still here"), b"still here");
}

/// A deadline that has passed before the applet runs stops it without running it.
#[test]
fn past_deadline_stops_the_applet_unrun() {
    let mut serving = serve(&program(), None);
    let past = Instant::now();
    std::thread::sleep(Duration::from_millis(2));
    send_call(&mut serving, 1, 0, b"");
    assert_eq!(serving.receive(Some(past)), Received::Ended);
    assert!(matches!(serving.finish().end, Err(WasmError::TimeLimit { .. })));
}

/// A deadline of one applet does not stop another one of the same program.
///
/// Guarantee: applets/deadlines
#[test]
fn deadline_stops_only_its_own_applet() {
    let program = program();
    std::thread::scope(|scope| {
        let others: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut serving = serve(&program, None);
                    let started = Instant::now();
                    let mut calls = 0;
                    while started.elapsed() < 3 * SHORT {
                        call(&mut serving, 3, &[0; 60_000]);
                        calls += 1;
                    }
                    calls
                })
            })
            .collect();
        for _ in 0..20 {
            let serving = serve(&program, None);
            let finished = last_call(serving, 1, Some(Instant::now() + SHORT / 10));
            assert!(matches!(finished.end, Err(WasmError::TimeLimit { .. })));
        }
        assert!(others.into_iter().all(|other| other.join().unwrap() > 0));
    });
}

/// Guarantee: applets/deadlines
#[test]
fn deadlines_in_any_order_are_all_kept() {
    let program = program();
    std::thread::scope(|scope| {
        for number in [5, 1, 4, 2, 3, 1, 5, 2] {
            let program = &program;
            scope.spawn(move || {
                for _ in 0..3 {
                    let serving = serve(program, None);
                    let (started, limit) = (Instant::now(), Duration::from_millis(40 * number));
                    let finished = last_call(serving, 1, Some(started + limit));
                    assert!(matches!(finished.end, Err(WasmError::TimeLimit { .. })));
                    let took = started.elapsed();
                    assert!(took >= limit && took < limit + PATIENCE, "{took:?}");
                }
            });
        }
    });
}

/// Another thread can interrupt an applet while it computes and while it waits.
///
/// Guarantee: applets/deadlines
#[test]
fn interrupt_stops_an_applet_anywhere() {
    for (index, was_waiting) in [(1, false), (2, true)] {
        let serving = serve(&program(), None);
        let interrupt = serving.interrupt();
        let started = Instant::now();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(SHORT);
            interrupt.stop("nobody wants to know any more");
            interrupt.stop("a later reason");
        });
        let finished = last_call(serving, index, None);
        thread.join().unwrap();
        assert!(started.elapsed() >= SHORT && started.elapsed() < PATIENCE);
        match &finished.end {
            Err(WasmError::Interrupted { reason, waiting, function }) => {
                assert_eq!(
                    (reason.as_str(), *waiting),
                    ("nobody wants to know any more", was_waiting)
                );
                assert_eq!(function.as_deref(), (!was_waiting).then_some("spin"));
            }
            other => panic!("{other:?}"),
        }
    }
    // One that is suspended ends when it would go on.
    let mut serving = serve(&program(), None);
    serving.interrupt().stop("not needed");
    send_call(&mut serving, 1, 0, b"");
    assert_eq!(serving.receive(deadline()), Received::Ended);
    assert!(error_text(&serving.finish()).contains("not needed"));
    // And one that has ended is not changed.
    let finished = holdfast_wasm::run(&program(), &options(), None);
    assert!(finished.end.is_ok());
}

/// Guarantee: applets/wasm-fuel
#[test]
fn each_call_has_the_fuel_of_a_call() {
    let mut options = options();
    options.limits.fuel = Some(20_000);
    let mut serving = start(&program(), &options, None);
    common::serve::expect_hello(&mut serving);
    let mut used = Vec::new();
    for _ in 0..100 {
        call(&mut serving, 3, &[0; 200]);
        used.push(serving.metrics().fuel_used.unwrap());
    }
    assert!(used.iter().all(|used| used.abs_diff(used_by(&mut serving, 200)) < 20), "{used:?}");
    assert!(used_by(&mut serving, 400) > 3 * used_by(&mut serving, 100));
    let small = used_by(&mut serving, 1);
    assert!(small < 500, "{small}");
    let finished = last_call(serving, 1, deadline());
    assert!(
        matches!(finished.end, Err(WasmError::OutOfFuel { limit: 20_000, .. })),
        "{:?}",
        finished.end
    );
    assert!(error_text(&finished).contains("`spin`"), "{}", error_text(&finished));
    assert_eq!(finished.metrics.fuel_used, Some(20_000));
}

fn used_by(serving: &mut holdfast_wasm::Serving, bytes: usize) -> u64 {
    call(serving, 3, &vec![0; bytes]);
    serving.metrics().fuel_used.unwrap()
}

/// Guarantee: applets/wasm-fuel
#[test]
fn an_applet_cannot_get_fuel_without_a_call() {
    let mut options = options();
    options.limits.fuel = Some(50_000);
    // Asks for the same message again and again: one that does not fit, and begins no call.
    let body = "(loop $more (drop (call $receive (i32.const 1024) (i32.const 4096) (i32.const 0))) (br $more))";
    let mut serving = start(&common::program(body), &options, None);
    send_call(&mut serving, 1, 0, b"too long");
    assert_eq!(serving.receive(deadline()), Received::Ended);
    assert!(matches!(serving.finish().end, Err(WasmError::OutOfFuel { .. })));
    // Nor by what is no call.
    let body = "(loop $more (drop (call $receive (i32.const 1024) (i32.const 4096) (i32.const 0))) (br $more))";
    let mut serving = start(&common::program(body), &options, None);
    let mut queued = 0;
    for _ in 0..20_000 {
        while serving.send(holdfast_wasm::Header { kind: 2, ..Default::default() }, []).is_ok() {
            queued += 1;
        }
        if serving.receive(deadline()) == Received::Ended {
            break;
        }
    }
    assert!(queued < 50_000, "{queued}");
    assert!(matches!(serving.finish().end, Err(WasmError::OutOfFuel { .. })));
    // Nor by sending.
    let body = "(loop $more (drop (call $send (i32.const 1024) (i32.const 4096))) (br $more))";
    let mut serving = start(&common::program(body), &options, None);
    let sent = (0..50_000).take_while(|_| serving.receive(deadline()) != Received::Ended).count();
    assert!(sent < 25_000, "{sent}");
    assert!(matches!(serving.finish().end, Err(WasmError::OutOfFuel { .. })));
}

/// Memory is limited over all calls, and its peak can be read meanwhile.
#[test]
fn memory_limit_covers_all_calls() {
    let mut options = options();
    options.limits.memory_bytes = 10 * 65_536;
    let program = server(
        "(i32.store (i32.const 4096) (memory.grow (i32.const 3)))
         (call $answer (i32.const 17) (i32.const 4096) (i32.const 4))",
    );
    let mut serving = start(&program, &options, None);
    common::serve::expect_hello(&mut serving);
    for (expected, peak_pages) in [(2, 5), (5, 8), (-1, 8), (-1, 8)] {
        assert_eq!(call(&mut serving, 0, b""), i32::to_le_bytes(expected));
        assert_eq!(serving.metrics().peak_volatile_bytes, peak_pages * 65_536);
    }
}

#[test]
fn time_between_calls_is_not_counted() {
    let (started, mut between) = (Instant::now(), Duration::ZERO);
    let mut serving = serve(&server(ECHO), None);
    for _ in 0..5 {
        call(&mut serving, 0, b"");
        let pause = Instant::now();
        std::thread::sleep(Duration::from_millis(100));
        between += pause.elapsed();
    }
    // An answer is here before the applet waits, which on a busy machine may be later.
    let at_most = started.elapsed() - between / 2;
    let metrics = serving.metrics();
    assert!(metrics.wall_time < at_most, "{:?} of {at_most:?}", metrics.wall_time);
    assert!(metrics.cpu_time <= metrics.wall_time && metrics.wall_time > Duration::ZERO);
}
