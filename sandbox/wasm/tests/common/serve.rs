//! Applets that serve, in the text format, and a host that calls them.

use std::time::{Duration, Instant};

use holdfast_region::Region;
use holdfast_wasm::{Finished, Header, Program, Received, RunOptions, Serving};

use super::{options, program_with};

pub(crate) const CALL: u16 = 1;
pub(crate) const END: u16 = 4;
pub(crate) const HELLO: u16 = 16;
pub(crate) const RESULT: u16 = 17;
pub(crate) const CHUNK: u16 = 18;
pub(crate) const FAILURE: u16 = 19;

/// Far more than anything here takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The loop by hand: the header of what comes in is at 1024, its payload at 4096, the header of
/// what goes out at 1088. `$call` gets the number of the export and the bytes of the payload.
const LOOP: &str = r#"
  (func $answer (param $kind i32) (param $start i32) (param $bytes i32)
    (i32.store (i32.const 1088) (local.get $bytes))
    (i32.store (i32.const 1092) (local.get $kind))
    (i64.store (i32.const 1096) (i64.load (i32.const 1032)))
    (call $exit_unless (i32.eqz (call $send (i32.const 1088) (local.get $start))) (i32.const 70)))
  (func $fail (param $code i32) (param $start i32) (param $bytes i32)
    (i32.store (i32.const 1104) (local.get $code))
    (call $answer (i32.const 19) (local.get $start) (local.get $bytes))
    (i32.store (i32.const 1104) (i32.const 0)))
  (func $serve
    (local $bytes i32)
    (call $answer (i32.const 16) (i32.const 0) (i32.const 0))
    (loop $next
      (local.set $bytes (call $receive (i32.const 1024) (i32.const 4096) (i32.const 61440)))
      (if (i32.eq (i32.load16_u (i32.const 1028)) (i32.const 4)) (then return))
      (call $call (i32.load (i32.const 1044)) (local.get $bytes))
      (br $next)))
"#;

/// A program that serves: definitions with `(func $call (param $index i32) (param $bytes i32)
/// ...)`, and what it does before it serves.
pub(crate) fn server_with(definitions: &str, before: &str) -> Program {
    program_with("2", &format!("{LOOP} {definitions}"), &format!("{before} (call $serve)"))
}

pub(crate) fn server(call: &str) -> Program {
    server_with(&format!("(func $call (param $index i32) (param $bytes i32) {call})"), "")
}

/// Answers with what it was sent.
pub(crate) const ECHO: &str = "(call $answer (i32.const 17) (i32.const 4096) (local.get $bytes))";

pub(crate) fn start(program: &Program, options: &RunOptions, region: Option<Region>) -> Serving {
    holdfast_wasm::serve(program, options, region)
        .unwrap_or_else(|finished| panic!("{:?}", finished.end))
}

/// Starts a program and waits for its hello.
pub(crate) fn serve(program: &Program, region: Option<Region>) -> Serving {
    let mut serving = start(program, &options(), region);
    expect_hello(&mut serving);
    serving
}

pub(crate) fn expect_hello(serving: &mut Serving) {
    let (header, _) = message(serving);
    assert_eq!(header.kind, HELLO);
}

pub(crate) fn deadline() -> Option<Instant> {
    Some(Instant::now() + PATIENCE)
}

/// The next message; anything else fails the test.
pub(crate) fn message(serving: &mut Serving) -> (Header, Vec<u8>) {
    match serving.receive(deadline()) {
        Received::Message { header, payload } => (header, payload),
        other => panic!("{other:?}, {:?}", serving.end()),
    }
}

pub(crate) fn send_call(serving: &mut Serving, call: u64, index: u32, input: &[u8]) {
    serving.send(Header { kind: CALL, call, index, ..Header::default() }, input).unwrap();
}

/// Calls an export and returns its result.
pub(crate) fn call(serving: &mut Serving, index: u32, input: &[u8]) -> Vec<u8> {
    send_call(serving, 7, index, input);
    let (header, payload) = message(serving);
    assert_eq!((header.kind, header.call), (RESULT, 7));
    payload
}

/// Calls an export that does not answer; how the applet ended.
pub(crate) fn last_call(mut serving: Serving, index: u32, deadline: Option<Instant>) -> Finished {
    send_call(&mut serving, 8, index, &[]);
    assert_eq!(serving.receive(deadline), Received::Ended);
    serving.finish()
}
