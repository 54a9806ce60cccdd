//! Applets that are called: messages in both directions, what they may point to, and how their
//! lives end.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::serve::{
    CALL, CHUNK, ECHO, END, FAILURE, HELLO, RESULT, call, deadline, expect_hello, last_call,
    message, send_call, serve, server, server_with, start,
};
use common::{MIB, Scratch, error_text, options, program, program_with, status};
use holdfast_wasm::{
    DirGrant, Header, PAYLOAD_BYTES_MAX, Program, Received, SendError, Serving, Stdio, WasmError,
};

/// An applet serves one call after another and ends when the host tells it to.
///
/// Guarantee: applets/results
#[test]
fn applet_serves_calls_until_told_to_end() {
    let mut serving = serve(&server(ECHO), None);
    for number in 0..1000_u32 {
        assert_eq!(call(&mut serving, 0, &number.to_le_bytes()), number.to_le_bytes());
    }
    assert_eq!(serving.receive(deadline()), Received::Idle);
    serving.send(Header { kind: END, ..Header::default() }, []).unwrap();
    assert_eq!(serving.receive(deadline()), Received::Ended);
    assert!(matches!(serving.end(), Some(Ok(0))));
    assert_eq!(serving.send(Header::default(), []), Err(SendError::Ended));
    assert_eq!(serving.receive(None), Received::Ended);
    assert_eq!(status(&serving.finish()), 0);
}

/// Guarantee: applets/results
#[test]
fn a_call_streams_and_fails_as_the_applet_says() {
    let mut serving = serve(
        &server(
            r#"(if (i32.eqz (local.get $index))
                 (then
                   (loop $more
                     (call $answer (i32.const 18) (i32.const 4096) (local.get $bytes))
                     (local.set $bytes (i32.sub (local.get $bytes) (i32.const 1)))
                     (br_if $more (local.get $bytes)))
                   (call $answer (i32.const 17) (i32.const 0) (i32.const 0)))
                 (else (call $fail (i32.const -5) (i32.const 4096) (local.get $bytes))))"#,
        ),
        None,
    );
    for _ in 0..3 {
        send_call(&mut serving, 41, 0, b"abc");
        for part in [b"abc".as_slice(), b"ab", b"a"] {
            let (header, payload) = message(&mut serving);
            assert_eq!((header.kind, header.call, payload.as_slice()), (CHUNK, 41, part));
            assert_eq!(header.payload_bytes as usize, part.len());
        }
        assert_eq!(message(&mut serving).0.kind, RESULT);
        send_call(&mut serving, 42, 1, "größer".as_bytes());
        let (header, payload) = message(&mut serving);
        assert_eq!((header.kind, header.call, header.status), (FAILURE, 42, -5));
        assert_eq!(payload, "größer".as_bytes());
    }
}

/// Output beyond its limit is taken and dropped: no write fails, and the host learns of the cut.
///
/// Guarantee: applets/captured-output
#[test]
fn output_beyond_its_limit_is_dropped_and_reported() {
    // Writes its input to the stream that the call names, and answers with it.
    let program = server(&format!(
        r#"(call $buffer (i32.const 4096) (local.get $bytes))
           (call $exit_unless
             (i32.eqz (call $fd_write (local.get $index) (i32.const 64) (i32.const 1) (i32.const 80)))
             (i32.const 1))
           (call $exit_unless (i32.eq (i32.load (i32.const 80)) (local.get $bytes)) (i32.const 2))
           {ECHO}"#
    ));
    let input: Vec<u8> = (0..5000_u32).map(|at| (at % 251) as u8).collect();
    for (writes, limit_bytes, is_truncated) in [(2, 10_000, false), (4, 7_000, true), (1, 0, true)]
    {
        let mut options = options();
        options.stdio = Stdio::capture(limit_bytes);
        let mut serving = start(&program, &options, None);
        expect_hello(&mut serving);
        for _ in 0..writes {
            for stream in [1, 2] {
                assert_eq!(call(&mut serving, stream, &input), input);
            }
        }
        assert_eq!(serving.receive(deadline()), Received::Idle);
        serving.send(Header { kind: END, ..Header::default() }, []).unwrap();
        assert_eq!(serving.receive(deadline()), Received::Ended);
        let finished = serving.finish();
        assert_eq!(status(&finished), 0);
        let written = input.repeat(writes);
        assert!(finished.stdout == written[..limit_bytes], "{} bytes", finished.stdout.len());
        assert!(finished.stderr == written[..limit_bytes], "{} bytes", finished.stderr.len());
        assert_eq!(finished.is_output_truncated, is_truncated);
    }
}

/// A message that does not fit the receive buffer reports its size and stays in the queue.
///
/// Guarantee: applets/message-size
#[test]
fn message_without_room_reports_its_size_and_stays() {
    let body = r#"
      (local $needed i32)
      (local.set $needed (call $receive (i32.const 1024) (i32.const 4096) (i32.const 4)))
      (call $exit_unless (i32.eq (local.get $needed) (i32.const -5)) (i32.const 1))
      (local.set $needed (call $receive (i32.const 1024) (i32.const 4096) (i32.const 0)))
      (call $exit_unless (i32.eq (local.get $needed) (i32.const -5)) (i32.const 2))
      (call $exit_unless (i64.eqz (i64.load (i32.const 1024))) (i32.const 3))
      (call $exit_unless
        (i32.eq (call $receive (i32.const 1024) (i32.const 4096) (i32.const 5)) (i32.const 5)) (i32.const 4))
      (call $exit_unless (i32.eq (i32.load (i32.const 4097)) (i32.const 0x65646362)) (i32.const 5))
      ;; an empty one fits everywhere
      (call $exit_unless (i32.eqz (call $receive (i32.const 1024) (i32.const 0) (i32.const 0))) (i32.const 6))
      (call $exit_unless (i64.eq (i64.load (i32.const 1032)) (i64.const 2)) (i32.const 7))"#;
    let mut serving = start(&program(body), &options(), None);
    send_call(&mut serving, 1, 0, b"abcde");
    send_call(&mut serving, 2, 0, b"");
    assert_eq!(serving.receive(deadline()), Received::Ended);
    assert_eq!(status(&serving.finish()), 0);
}

/// The longest message passes in both directions, and a longer one in neither.
///
/// Guarantee: applets/message-size
/// Guarantee: applets/wasm-flood
#[test]
fn longest_message_passes_and_longer_is_refused() {
    // The header in the first page, the payload behind it.
    let body = format!(
        r#"(local $bytes i32)
          (local.set $bytes (call $receive (i32.const 1024) (i32.const 65536) (i32.const {PAYLOAD_BYTES_MAX})))
          (call $exit_unless (i32.eq (local.get $bytes) (i32.const {PAYLOAD_BYTES_MAX})) (i32.const 1))
          (call $exit_unless (i32.eqz (call $send (i32.const 1024) (i32.const 65536))) (i32.const 2))
          (i32.store (i32.const 1024) (i32.const {}))
          (call $exit_unless (i32.eq (call $send (i32.const 1024) (i32.const 65536)) (i32.const 9)) (i32.const 3))
          (i32.store (i32.const 1024) (i32.const -1))
          (call $exit_unless (i32.eq (call $send (i32.const 1024) (i32.const 65536)) (i32.const 9)) (i32.const 4))"#,
        PAYLOAD_BYTES_MAX + 1,
    );
    let mut serving = start(&program_with("1026", "", &body), &options(), None);
    let mut payload = vec![7; PAYLOAD_BYTES_MAX + 1];
    let too_long = serving.send(Header::default(), payload.clone());
    assert!(matches!(too_long, Err(SendError::TooLarge { .. })), "{too_long:?}");
    payload.truncate(PAYLOAD_BYTES_MAX);
    serving.send(Header { kind: CALL, call: 3, ..Header::default() }, payload.clone()).unwrap();
    let (header, returned) = message(&mut serving);
    assert_eq!((header.call, returned == payload), (3, true));
    assert_eq!(serving.receive(deadline()), Received::Ended);
    assert_eq!(status(&serving.finish()), 0);
}

/// Guarantee: applets/message-size
/// Guarantee: applets/wasm-flood
#[test]
fn what_waits_for_an_applet_is_bounded() {
    let mut serving = serve(&server(ECHO), None);
    let big = vec![0; PAYLOAD_BYTES_MAX];
    serving.send(Header::default(), big.clone()).unwrap();
    serving.send(Header::default(), big.clone()).unwrap();
    let queued_bytes = 2 * PAYLOAD_BYTES_MAX;
    assert_eq!(serving.send(Header::default(), [1]), Err(SendError::Full { queued_bytes }));
    let mut serving = serve(&server(ECHO), None);
    let sent = (0..100_000).take_while(|_| serving.send(Header::default(), []).is_ok()).count();
    assert_eq!(sent, 4096);
}

/// How an applet ends that does this first.
fn ends(memory: &str, body: &str) -> String {
    let mut serving = start(&program_with(memory, "", body), &options(), None);
    send_call(&mut serving, 1, 0, b"abcd");
    while let Received::Message { .. } = serving.receive(deadline()) {}
    let finished = serving.finish();
    match &finished.end {
        Ok(status) => format!("status {status}"),
        Err(_) => error_text(&finished),
    }
}

/// A header or payload outside the memory ends the applet with the reason.
///
/// Guarantee: applets/wasm-bounds
#[test]
fn message_outside_memory_ends_the_applet() {
    const END_OF_MEMORY: u32 = 2 * 65_536;
    let receive = |header: u32, payload: u32, capacity: u32| {
        format!(
            "(call $exit (call $receive (i32.const {header}) (i32.const {payload}) (i32.const {capacity})))"
        )
    };
    let send = |header: u32, payload: u32, bytes: u32| {
        format!(
            "(i32.store (i32.const {}) (i32.const {bytes}))
             (call $exit (call $send (i32.const {header}) (i32.const {payload})))",
            if header <= END_OF_MEMORY - 48 { header } else { 64 }
        )
    };
    // The last place for each, and the first that is none.
    for (body, expected) in [
        (receive(END_OF_MEMORY - 48, 0, 4), "status 4"),
        (receive(0, END_OF_MEMORY - 4, 4), "status 4"),
        (receive(0, 64, END_OF_MEMORY - 64), "status 4"),
        (send(END_OF_MEMORY - 48, 0, 4), "status 0"),
        (send(64, END_OF_MEMORY - 4, 4), "status 0"),
        (send(64, 0, END_OF_MEMORY), "status 0"),
        (send(64, END_OF_MEMORY, 0), "status 0"),
        (send(64, u32::MAX, 0), "status 0"),
    ] {
        assert_eq!(ends("2", &body), expected, "{body}");
    }
    for (body, what) in [
        (receive(END_OF_MEMORY - 47, 0, 4), "the header for holdfast.receive"),
        (receive(u32::MAX, 0, 4), "the header for holdfast.receive"),
        (receive(u32::MAX - 47, 0, 4), "the header for holdfast.receive"),
        (receive(0, END_OF_MEMORY - 3, 4), "the payload for holdfast.receive"),
        (receive(0, u32::MAX, 1), "the payload for holdfast.receive"),
        (receive(0, 64, u32::MAX), "the payload for holdfast.receive"),
        (receive(0, 64, END_OF_MEMORY - 63), "the payload for holdfast.receive"),
        (send(END_OF_MEMORY - 47, 0, 4), "the header for holdfast.send"),
        (send(u32::MAX, 0, 4), "the header for holdfast.send"),
        (send(64, END_OF_MEMORY - 3, 4), "the payload for holdfast.send"),
        (send(64, 0, END_OF_MEMORY + 1), "the payload for holdfast.send"),
        (send(64, u32::MAX, 1), "the payload for holdfast.send"),
        (send(64, u32::MAX - 1000, PAYLOAD_BYTES_MAX as u32), "the payload for holdfast.send"),
    ] {
        let text = ends("2", &body);
        assert!(text.contains("a host function refused") && text.contains(what), "{body}: {text}");
        assert!(text.contains("past the end of the applet's memory"), "{text}");
    }
}

#[test]
fn an_applet_without_a_memory_named_so_gets_a_reason() {
    let text = r#"(module (import "holdfast" "receive" (func $receive (param i32 i32 i32) (result i32)))
      (func (export "_start") (drop (call $receive (i32.const 0) (i32.const 0) (i32.const 0)))))"#;
    let mut serving = start(&Program::from_bytes("none.wat", text).unwrap(), &options(), None);
    send_call(&mut serving, 1, 0, b"");
    assert_eq!(serving.receive(deadline()), Received::Ended);
    assert!(matches!(serving.finish().end, Err(WasmError::Trap(_))));
}

/// Headers and payloads may lie in a heap, but not in its unbacked or read-only part.
///
/// Guarantee: applets/wasm-bounds
#[test]
fn message_in_a_heap_obeys_its_bounds_and_access() {
    let scratch = Scratch::new();
    let heap = |header: u32, payload: u32| {
        format!(
            "(call $attach_heap)
             (drop (call $receive (i32.const {header}) (i32.const {payload}) (i32.const 4)))
             (call $exit_unless (i32.eqz (call $send (i32.const {header}) (i32.const {payload}))) (i32.const 1))"
        )
    };
    let run = |body: &str, region| {
        let mut serving = start(&program(body), &options(), Some(region));
        send_call(&mut serving, 5, 0, b"abcd");
        let received = serving.receive(deadline());
        serving.receive(deadline());
        (received, serving.finish())
    };
    let (received, finished) = run(&heap(0x8000_0000, 0x8000_1000), scratch.region("r", 8 * MIB));
    assert_eq!(status(&finished), 0);
    assert!(matches!(received, Received::Message { payload, .. } if payload == b"abcd"));
    let mut stored = [0; 4];
    let region = finished.heaps.into_first().unwrap();
    region.read_at(0x1000, &mut stored).unwrap();
    assert_eq!((&stored, region.is_dirty()), (b"abcd", true));
    region.close().unwrap();
    for (header, payload, what) in [
        (0x4000_0000, 0, "between the applet's memory and its heap"),
        (0x7fff_ffe0, 0, "between the applet's memory and its heap"),
        (0, 0x8000_0000 + 4 * MIB as u32 - 2, "past the backed part of the heap"),
    ] {
        let (_, finished) = run(&heap(header, payload), scratch.region("r", 8 * MIB));
        let text = error_text(&finished);
        assert!(text.contains("a host function refused") && text.contains(what), "{text}");
        finished.heaps.into_first().unwrap().close().unwrap();
    }
}

/// An applet that never asks for a message runs to its end.
///
/// Guarantee: applets/run-or-call
#[test]
fn applet_that_never_receives_runs_to_its_end() {
    for (body, expected) in [("", 0), ("(call $exit (i32.const 3))", 3)] {
        let mut serving = start(&program(body), &options(), None);
        send_call(&mut serving, 1, 0, b"ignored");
        assert_eq!(serving.receive(deadline()), Received::Ended);
        assert_eq!(status(&serving.finish()), expected);
    }
    // What it sends before is delivered before.
    let mut serving = serve(&server("(call $exit (i32.const 9))"), None);
    assert_eq!(serving.receive(deadline()), Received::Idle);
    assert_eq!(status(&last_call(serving, 0, deadline())), 9);
}

/// An applet that sends a flood of messages waits until the host takes them.
///
/// Guarantee: applets/message-size
/// Guarantee: applets/wasm-flood
#[test]
fn message_flood_waits_for_the_host() {
    let body = "(loop $more (drop (call $send (i32.const 1024) (i32.const 0))) (br $more))";
    let mut serving =
        start(&program_with("2", "(data (i32.const 1026) \"\\01\")", body), &options(), None);
    for _ in 0..1000 {
        // 64 KiB each; none of them is made before the one before was taken.
        let (_, payload) = message(&mut serving);
        assert_eq!(payload.len(), 65_536);
    }
    let finished = serving.finish();
    assert!(matches!(&finished.end, Err(WasmError::Interrupted { .. })), "{:?}", finished.end);
}

/// A serving program ends at once when it is run without a host that calls it.
///
/// Guarantee: applets/run-or-call
#[test]
fn serving_program_ends_when_only_run() {
    let finished = holdfast_wasm::run(&server(ECHO), &options(), None);
    assert_eq!(status(&finished), 0);
}

/// A trap in a call ends the applet, and the error names the function.
#[test]
fn trap_in_a_call_names_its_function() {
    let program =
        server_with("(func $culprit unreachable) (func $call (param i32 i32) (call $culprit))", "");
    let finished = last_call(serve(&program, None), 0, deadline());
    assert!(matches!(&finished.end, Err(WasmError::Trap(_))), "{:?}", finished.end);
    assert!(error_text(&finished).contains("`culprit`"), "{}", error_text(&finished));
}

/// Messages pass while the module is instantiated, also from another thread.
#[test]
fn messages_pass_during_instantiation() {
    let text = r#"(module (memory (export "memory") 1)
      (import "holdfast" "receive" (func $receive (param i32 i32 i32) (result i32)))
      (import "holdfast" "send" (func $send (param i32 i32) (result i32)))
      (func $begin
        (drop (call $send (i32.const 0) (i32.const 0)))
        (drop (call $receive (i32.const 0) (i32.const 64) (i32.const 64)))
        (drop (call $send (i32.const 0) (i32.const 64))))
      (start $begin)
      (func (export "_start")))"#
        // The text format wants imports first.
        .replacen("(memory (export \"memory\") 1)", "", 1)
        .replacen(
            "(func $begin",
            "(memory (export \"memory\") 1) (func $begin",
            1,
        );
    let mut serving = start(&Program::from_bytes("begin.wat", text).unwrap(), &options(), None);
    message(&mut serving);
    assert_eq!(serving.receive(deadline()), Received::Idle);
    let payload = std::thread::spawn(move || {
        send_call(&mut serving, 1, 0, b"hello");
        let (_, payload) = message(&mut serving);
        assert_eq!(serving.receive(deadline()), Received::Ended);
        payload
    });
    assert_eq!(payload.join().unwrap(), b"hello");
}

/// Many applets of one program serve on many threads and move between them.
///
/// Guarantee: applets/threads
/// Guarantee: applets/wasm-sharing
#[test]
fn applets_serve_on_many_threads_and_move() {
    let program = server(ECHO);
    let mut servings: Vec<Serving> = (0..8).map(|_| serve(&program, None)).collect();
    for _ in 0..20 {
        servings = std::thread::scope(|scope| {
            let threads: Vec<_> = servings
                .into_iter()
                .enumerate()
                .map(|(number, mut serving)| {
                    scope.spawn(move || {
                        for turn in 0..50_u32 {
                            let input = [number as u32, turn].map(u32::to_le_bytes).concat();
                            assert_eq!(call(&mut serving, 0, &input), input);
                        }
                        serving
                    })
                })
                .collect();
            // Another order, so that each goes to another thread the next time.
            threads.into_iter().rev().map(|thread| thread.join().unwrap()).collect()
        });
    }
}

/// A program that was served before is not compiled again.
///
/// Guarantee: applets/wasm-sharing
#[test]
fn served_program_is_not_compiled_again() {
    let program = server("(call $answer (i32.const 17) (i32.const 4096) (i32.const 1))");
    let first = serve(&program, None);
    assert!(first.metrics().compiled);
    let second = serve(&program, None);
    assert!(!second.metrics().compiled);
    // The same bytes, given anew; and with fuel, which is another compilation.
    let again = server("(call $answer (i32.const 17) (i32.const 4096) (i32.const 1))");
    assert!(!serve(&again, None).metrics().compiled);
    let mut with_fuel = options();
    with_fuel.limits.fuel = Some(1_000_000);
    assert!(start(&program, &with_fuel, None).metrics().compiled);
    drop((first, second));
    assert!(!serve(&program, None).metrics().compiled);
}

/// Guarantee: applets/wasm-sharing
#[test]
fn a_file_that_was_changed_is_served_as_it_is_now() {
    let scratch = Scratch::new();
    let path = scratch.home().join("applet.wasm");
    let binary = |status: u32| {
        wat::parse_str(format!(
            r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
               (memory (export "memory") 1) (func (export "_start") (call $exit (i32.const {status}))))"#
        ))
        .unwrap()
    };
    for expected in [1, 2, 3] {
        std::fs::write(&path, binary(expected)).unwrap();
        for rest_ms in [0, 150, 0] {
            // A file that was just written is read; one at rest is known by its stamp.
            std::thread::sleep(std::time::Duration::from_millis(rest_ms));
            let mut serving = start(&Program::open(&path).unwrap(), &options(), None);
            assert_eq!(serving.receive(deadline()), Received::Ended);
            assert_eq!(status(&serving.finish()), expected as i32);
        }
    }
}

/// What runs has the SHA-256 that is expected, whenever the file changes, whether its code is
/// compiled, in the cache, or known to this process.
///
/// Guarantee: applets/identities
#[test]
fn file_that_changed_after_it_was_opened_does_not_run() {
    let scratch = Scratch::new();
    let binary = |status: u32| {
        wat::parse_str(format!(
            r#"(module (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
               (memory (export "memory") 1) (func (export "_start") (call $exit (i32.const {status}))))"#
        ))
        .unwrap()
    };
    let sum = |status| Program::from_bytes("x", binary(status)).unwrap().sha256().unwrap();
    let rest = || std::thread::sleep(std::time::Duration::from_millis(150));
    let is_refused = |finished: holdfast_wasm::Finished| {
        let error = finished.end.unwrap_err();
        assert!(matches!(error, WasmError::Replaced { .. }), "{error}");
    };
    let mut cached = options();
    cached.cache_dir = Some(scratch.home().join("cache"));
    for (number, options) in [options(), cached].into_iter().enumerate() {
        let path = scratch.home().join(format!("applet{number}.wasm"));
        for expected in [2, 1] {
            // Both are in the cache from here on.
            std::fs::write(&path, binary(expected)).unwrap();
            rest();
            let program = Program::open(&path).unwrap().expecting(sum(expected));
            assert_eq!(holdfast_wasm::run(&program, &options, None).end.unwrap(), expected as i32);
        }
        for is_served in [false, true] {
            std::fs::write(&path, binary(1)).unwrap();
            rest();
            let program = Program::open(&path).unwrap().expecting(sum(1));
            std::fs::write(&path, binary(2)).unwrap();
            match is_served {
                true => is_refused(*holdfast_wasm::serve(&program, &options, None).unwrap_err()),
                false => is_refused(holdfast_wasm::run(&program, &options, None)),
            }
        }
        // The file is at rest, and its code known.
        rest();
        let serving = start(&Program::open(&path).unwrap(), &options, None);
        let program = Program::open(&path).unwrap().expecting(sum(1));
        is_refused(*holdfast_wasm::serve(&program, &options, None).unwrap_err());
        drop(serving);
    }
}

/// An applet that cannot be started gives the region back to the caller.
#[test]
fn unstartable_applet_returns_the_region() {
    let scratch = Scratch::new();
    let program =
        Program::from_bytes("x.wat", "(module (import \"holdfast\" \"sing\" (func)))").unwrap();
    let finished =
        holdfast_wasm::serve(&program, &options(), Some(scratch.region("kept", MIB))).unwrap_err();
    assert!(error_text(&finished).contains("receive(header: i32"), "{}", error_text(&finished));
    finished.heaps.into_first().unwrap().close().unwrap();
}

#[test]
fn an_applet_is_called_from_an_asynchronous_context() {
    let sleep = "(i32.store (i32.const 272) (i32.const 1))
      (i64.store (i32.const 280) (i64.const 20000000))
      (drop (call $poll_oneoff (i32.const 256) (i32.const 512) (i32.const 1) (i32.const 600)))";
    let program = server(&format!("{sleep} {ECHO}"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut serving = start(&program, &options(), None);
        expect_hello(&mut serving);
        assert_eq!(call(&mut serving, 0, b"slept"), b"slept");
        assert_eq!(holdfast_wasm::run(&program, &options(), None).end.unwrap(), 0);
        // Dropped in the middle of a call, and in this context.
        send_call(&mut serving, 1, 0, b"");
        assert_eq!(message(&mut serving).0.kind, RESULT);
        drop(serving);
    });
}

/// A start that is refused in an asynchronous context is an error there, too.
///
/// Guarantee: sandbox/own-status
#[test]
fn refused_start_in_an_async_context_is_an_error() {
    let mut options = options();
    options.dirs.push("/nowhere/at/all".parse::<DirGrant>().unwrap());
    let program = server(ECHO);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let served = holdfast_wasm::serve(&program, &options, None).unwrap_err();
        let run = holdfast_wasm::run(&program, &options, None);
        for end in [&served.end, &run.end] {
            assert!(matches!(end, Err(WasmError::Grant { .. })), "{end:?}");
        }
    });
}

#[test]
fn what_a_host_sends_reaches_the_applet_as_it_is() {
    let body = "(drop (call $receive (i32.const 1024) (i32.const 4096) (i32.const 8)))
                (drop (call $send (i32.const 1024) (i32.const 4096)))";
    let mut serving = start(&program(body), &options(), None);
    let sent = Header {
        payload_bytes: 99,
        kind: HELLO,
        flags: 1,
        call: u64::MAX,
        status: -2,
        index: 3,
        a: 4,
        b: 5,
        c: 6,
    };
    serving.send(sent, *b"12345678").unwrap();
    let (header, payload) = message(&mut serving);
    assert_eq!(
        (header, payload.as_slice()),
        (Header { payload_bytes: 8, ..sent }, b"12345678".as_slice())
    );
}
