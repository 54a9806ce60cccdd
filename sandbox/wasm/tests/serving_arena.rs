//! Memory that an applet shares with its host: what it holds, where it lies, and what surrounds it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs::File;
use std::os::unix::fs::FileExt;

use common::serve::{
    CALL, CHUNK, RESULT, call, deadline, expect_hello, message, server_with, start,
};
use common::{MIB, Scratch, error_text, options, status};
use holdfast_region::Region;
use holdfast_wasm::{
    ARENA_BYTES_MAX, BufferArena, Finished, Header, Program, Received, RunOptions, SendError,
    Serving, WasmError,
};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};

const ARENA_BYTES: u64 = MIB;
/// Where the arena begins for the applet.
const BASE: u64 = 0x8000_0000 - ARENA_BYTES;
/// What lies before the arena in its file, as the rings of a channel do.
const OFFSET: u64 = 4096;

fn memory_file(len: u64, seals: SealFlags) -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = File::from(memfd_create("arena", flags).unwrap());
    file.set_len(len).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// A file, and options with an arena in it.
fn with_arena() -> (File, RunOptions) {
    let file = memory_file(OFFSET + ARENA_BYTES + 4096, SealFlags::SHRINK | SealFlags::GROW);
    file.write_all_at(b"not for the applet", OFFSET - 18).unwrap();
    file.write_all_at(b"nor is this", OFFSET + ARENA_BYTES).unwrap();
    let mut options = options();
    options.arena =
        Some(BufferArena::new(file.try_clone().unwrap().into(), OFFSET, ARENA_BYTES).unwrap());
    (file, options)
}

/// Export 0 turns the bytes of its buffer into their complements; 1 answers with `arena()`; 2 sends
/// the first 4 bytes of its buffer as a payload, and its buffer as a part; 3 touches what the
/// number at 4096 leads to; 4 attaches the heap and adds one to a number there; 5 grows by the
/// number of pages at 4096 and stores to the last byte.
fn program() -> Program {
    server_with(
        r#"(func $complement
             (local $at i32) (local $end i32)
             (local.set $at (i32.wrap_i64 (i64.load (i32.const 1048))))
             (local.set $end (i32.add (local.get $at) (i32.wrap_i64 (i64.load (i32.const 1056)))))
             (loop $next
               (i32.store8 (local.get $at) (i32.xor (i32.load8_u (local.get $at)) (i32.const 255)))
               (local.set $at (i32.add (local.get $at) (i32.const 1)))
               (br_if $next (i32.lt_u (local.get $at) (local.get $end)))))
           (func $part
             (i64.store (i32.const 1112) (i64.load (i32.const 1048)))
             (i64.store (i32.const 1120) (i64.load (i32.const 1056)))
             (call $answer (i32.const 18) (i32.wrap_i64 (i64.load (i32.const 1048))) (i32.const 4))
             (i64.store (i32.const 1112) (i64.const 0))
             (i64.store (i32.const 1120) (i64.const 0)))
           (func $touch (i32.store8 (i32.load (i32.const 4096)) (i32.const 1)))
           (func $count
             (call $exit_unless (i32.eqz (call $attach (i32.const 2048))) (i32.const 80))
             (i32.store (i32.const 0x80000000) (i32.add (i32.load (i32.const 0x80000000)) (i32.const 1)))
             (i32.store (i32.const 4096) (i32.load (i32.const 0x80000000))))
           (func $grow_memory
             (i32.store (i32.const 4096) (memory.grow (i32.load (i32.const 4096))))
             (if (i32.ne (i32.load (i32.const 4096)) (i32.const -1))
               (then (i32.store8 (i32.sub (i32.mul (memory.size) (i32.const 65536)) (i32.const 1)) (i32.const 1)))))
           (func $call (param $index i32) (param $bytes i32)
             (if (i32.eqz (local.get $index)) (then (call $complement)))
             (if (i32.eq (local.get $index) (i32.const 1)) (then (i64.store (i32.const 4096) (call $arena))))
             (if (i32.eq (local.get $index) (i32.const 2)) (then (call $part)))
             (if (i32.eq (local.get $index) (i32.const 3)) (then (call $touch)))
             (if (i32.eq (local.get $index) (i32.const 4)) (then (call $count)))
             (if (i32.eq (local.get $index) (i32.const 5)) (then (call $grow_memory)))
             (call $answer (i32.const 17) (i32.const 4096) (i32.const 8)))"#,
        "",
    )
}

fn started(options: &RunOptions, region: Option<Region>) -> Serving {
    let mut serving = start(&program(), options, region);
    expect_hello(&mut serving);
    serving
}

fn call_with(serving: &mut Serving, index: u32, a: u64, b: u64) -> Result<Received, SendError> {
    serving.send(Header { kind: CALL, call: 7, index, a, b, ..Header::default() }, [])?;
    Ok(serving.receive(deadline()))
}

fn number(answer: Vec<u8>) -> u64 {
    u64::from_le_bytes(answer.try_into().unwrap())
}

fn ended(mut serving: Serving, index: u32, input: u32) -> Finished {
    common::serve::send_call(&mut serving, 1, index, &input.to_le_bytes());
    assert_eq!(serving.receive(deadline()), Received::Ended);
    serving.finish()
}

/// Guarantee: applets/buffers
#[test]
fn a_buffer_is_one_memory_for_host_and_applet() {
    let (file, options) = with_arena();
    let mut serving = started(&options, None);
    for at in [0, 4096, ARENA_BYTES - 4] {
        for expected in [*b"\xbe\xbd\xbc\xbb", *b"ABCD"] {
            if expected[0] == 0xbe {
                file.write_all_at(b"ABCD", OFFSET + at).unwrap();
            }
            let answer = call_with(&mut serving, 0, at, 4).unwrap();
            assert!(matches!(answer, Received::Message { header, .. } if header.kind == RESULT));
            let mut bytes = [0; 4];
            file.read_exact_at(&mut bytes, OFFSET + at).unwrap();
            assert_eq!(bytes, expected);
        }
    }
    // What lies around the arena in its file is as it was.
    call_with(&mut serving, 0, 0, ARENA_BYTES).unwrap();
    let (mut before, mut behind) = ([0; 18], [0; 11]);
    file.read_exact_at(&mut before, OFFSET - 18).unwrap();
    file.read_exact_at(&mut behind, OFFSET + ARENA_BYTES).unwrap();
    assert_eq!((&before, &behind), (b"not for the applet", b"nor is this"));
}

/// A part of the arena is returned by its offset; any other offset ends the applet.
///
/// Guarantee: applets/buffers
#[test]
fn foreign_arena_offset_ends_the_applet() {
    let (file, options) = with_arena();
    let mut serving = started(&options, None);
    file.write_all_at(b"ABCD", OFFSET + 8192).unwrap();
    match call_with(&mut serving, 2, 8192, 100).unwrap() {
        Received::Message { header, payload } => {
            assert_eq!((header.kind, header.a, header.b), (CHUNK, 8192, 100));
            assert_eq!(payload, b"ABCD");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(message(&mut serving).0.kind, RESULT);
    // All that an applet can name but what it shares: parts are (a, b) at 24 and 32 of its header.
    for (a, b) in [
        (BASE - 1, 2),
        (0, 1),
        (BASE + ARENA_BYTES, 1),
        (BASE + ARENA_BYTES - 1, 2),
        (BASE, ARENA_BYTES + 1),
        (u64::MAX, 1),
        (BASE, u64::MAX),
        (u64::MAX, u64::MAX),
    ] {
        let body = format!(
            "(i32.store16 (i32.const 1092) (i32.const 18))
             (i64.store (i32.const 1112) (i64.const {}))
             (i64.store (i32.const 1120) (i64.const {}))
             (drop (call $send (i32.const 1088) (i32.const 0)))",
            a as i64, b as i64
        );
        let mut serving = start(&common::program(&body), &options, None);
        assert_eq!(serving.receive(deadline()), Received::Ended, "{a:#x} {b:#x}");
        let text = error_text(&serving.finish());
        assert!(text.contains("not shared with the host"), "{text}");
    }
}

/// A buffer outside the arena is not sent.
///
/// Guarantee: applets/buffers
#[test]
fn buffer_outside_the_arena_is_not_sent() {
    let (_file, options) = with_arena();
    let mut serving = started(&options, None);
    for (a, b) in
        [(ARENA_BYTES, 1), (ARENA_BYTES - 1, 2), (0, ARENA_BYTES + 1), (u64::MAX, 1), (1, u64::MAX)]
    {
        assert_eq!(call_with(&mut serving, 0, a, b), Err(SendError::NoSuchBuffer), "{a} {b}");
    }
    let mut without = started(&common::options(), None);
    assert_eq!(call_with(&mut without, 0, 0, 1), Err(SendError::NoSuchBuffer));
    assert_eq!(number(call(&mut without, 1, b"")), 0);
}

/// Guarantee: applets/wasm-memory
#[test]
fn heap_and_arena_are_there_together_in_either_order() {
    let scratch = Scratch::new();
    for (round, first) in [1, 4, 0].into_iter().enumerate() {
        let (file, options) = with_arena();
        let mut serving = started(&options, Some(scratch.region("both", 16 * MIB)));
        match first {
            0 => drop(call_with(&mut serving, 0, 0, 4).unwrap()),
            4 => assert_eq!(number(call(&mut serving, 4, &[0; 8])), 2),
            _ => assert_eq!(number(call(&mut serving, 1, b"")), BASE),
        }
        assert_eq!(number(call(&mut serving, 1, b"")), BASE);
        let expected = if first == 4 { 3 } else { round as u64 + 1 + u64::from(round == 2) };
        assert_eq!(number(call(&mut serving, 4, &[0; 8])), expected);
        file.write_all_at(&[0xff; 4], OFFSET).unwrap();
        call_with(&mut serving, 0, 0, 4).unwrap();
        let mut bytes = [1; 4];
        file.read_exact_at(&mut bytes, OFFSET).unwrap();
        assert_eq!(bytes, [0; 4]);
        serving.finish().heaps.into_first().unwrap().close().unwrap();
    }
}

/// Guarantee: applets/wasm-memory
#[test]
fn around_the_arena_there_is_nothing() {
    for (address, region_limit, is_there) in [
        (BASE as u32, 0, true),
        ((BASE + ARENA_BYTES - 1) as u32, 0, true),
        ((BASE - 1) as u32, 0, false),
        (0x8000_0000, 0, false),
        (0x8000_0000, 16 * MIB, true),
        (0x4000_0000, 16 * MIB, false),
    ] {
        let scratch = Scratch::new();
        let (_file, options) = with_arena();
        let region = (region_limit > 0).then(|| scratch.region("near", region_limit));
        let mut serving = started(&options, region);
        assert_eq!(number(call(&mut serving, 1, b"")), BASE);
        if is_there {
            call(&mut serving, 3, &address.to_le_bytes());
        } else {
            let finished = ended(serving, 3, address);
            assert!(
                matches!(finished.end, Err(WasmError::Trap(_))),
                "{address:#x}: {:?}",
                finished.end
            );
            assert!(error_text(&finished).contains("`touch`"), "{}", error_text(&finished));
        }
    }
}

/// Host code that touches the hole below the arena stops the applet and leaves the arena intact.
#[test]
fn hole_below_the_arena_stops_only_the_applet() {
    let (file, options) = with_arena();
    file.write_all_at(b"intact", OFFSET).unwrap();
    let body = format!(
        "(drop (call $arena))
         (memory.fill (i32.const {}) (i32.const 7) (i32.const 4096))
         ;; before the applet is stopped
         (i32.store (i32.const {BASE}) (i32.const 0x67666564))
         (loop $forever (br $forever))",
        BASE - 4096
    );
    let mut serving = start(&common::program(&body), &options, None);
    assert_eq!(serving.receive(deadline()), Received::Ended);
    let finished = serving.finish();
    assert!(matches!(finished.end, Err(WasmError::HostAccess { .. })), "{:?}", finished.end);
    let mut bytes = [0; 6];
    file.read_exact_at(&mut bytes, OFFSET).unwrap();
    assert_eq!(&bytes, b"defgct");
}

#[test]
fn messages_and_bulk_copies_pass_through_the_arena() {
    let (file, options) = with_arena();
    let (header, payload) = (BASE, BASE + ARENA_BYTES - 8);
    let body = format!(
        "(drop (call $arena))
         (call $exit_unless
           (i32.eq (call $receive (i32.const {header}) (i32.const {payload}) (i32.const 8)) (i32.const 8)) (i32.const 1))
         (memory.copy (i32.const 4096) (i32.const {payload}) (i32.const 8))
         (memory.copy (i32.const {}) (i32.const 4096) (i32.const 8))
         (call $exit_unless (i32.eqz (call $send (i32.const {header}) (i32.const {payload}))) (i32.const 2))
         (drop (call $receive (i32.const {header}) (i32.const {}) (i32.const 8)))",
        BASE + 4096,
        BASE - 4,
    );
    let mut serving = start(&common::program(&body), &options, None);
    common::serve::send_call(&mut serving, 9, 0, b"12345678");
    let (header, payload) = message(&mut serving);
    assert_eq!((header.call, payload.as_slice()), (9, b"12345678".as_slice()));
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, OFFSET + 4096).unwrap();
    assert_eq!(&bytes, b"12345678");
    // The last one lies half below the arena.
    assert_eq!(serving.receive(deadline()), Received::Ended);
    let text = error_text(&serving.finish());
    assert!(
        text.contains("the payload for holdfast.receive") && text.contains("between"),
        "{text}"
    );
}

/// Memory that grows skips the arena and never extends into it.
///
/// Guarantee: applets/wasm-memory
#[test]
fn growing_memory_never_enters_the_arena() {
    // Attached first: what is grown later lies above.
    let (file, options) = with_arena();
    let mut serving = started(&options, None);
    assert_eq!(number(call(&mut serving, 1, b"")), BASE);
    assert_eq!(number(call(&mut serving, 5, &16_u64.to_le_bytes())), 0x8000_0000 / 65_536);
    let metrics = serving.metrics();
    assert_eq!(metrics.peak_volatile_bytes, 18 * 65_536);
    // Grown up to the arena: it fits; grown into its place: there is none.
    for (pages, expected) in [(BASE / 65_536 - 2, BASE), (BASE / 65_536 - 1, 0)] {
        let mut options = options.clone();
        options.limits.memory_bytes = 4 << 30;
        let mut serving = started(&options, None);
        assert_eq!(number(call(&mut serving, 5, &pages.to_le_bytes())), 2);
        assert_eq!(number(call(&mut serving, 1, b"")), expected);
        if expected == 0 {
            assert_eq!(call_with(&mut serving, 0, 0, 4), Ok(Received::Ended));
            let text = error_text(&serving.finish());
            assert!(text.contains("has no room left"), "{text}");
        }
    }
    let mut bytes = vec![0; ARENA_BYTES as usize];
    file.read_exact_at(&mut bytes, OFFSET).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn a_memory_that_may_not_grow_so_far_has_no_arena() {
    let (_file, options) = with_arena();
    let program = common::program_with("2 100", "", "(call $exit (i64.eqz (call $arena)))");
    assert_eq!(status(&holdfast_wasm::run(&program, &options, None)), 1);
}

/// Only a page-aligned range of a file sealed against shrinking is shared.
///
/// Guarantee: applets/buffers
#[test]
fn only_unshrinkable_file_ranges_are_shared() {
    let len = 4 * MIB;
    let arena = |file: &File, offset, bytes| {
        BufferArena::new(file.try_clone().unwrap().into(), offset, bytes)
    };
    let sealed = memory_file(len, SealFlags::SHRINK);
    assert_eq!(arena(&sealed, len - 65_536, 65_536).unwrap().bytes(), 65_536);
    let loose = memory_file(len, SealFlags::GROW);
    let disk = tempfile::tempfile().unwrap();
    disk.set_len(len).unwrap();
    for (file, offset, bytes, what) in [
        (&loose, 0, MIB, "seal it"),
        (&disk, 0, MIB, "cannot be looked at"),
        (&sealed, len - 65_536 + 4096, 65_536, "too short"),
        (&sealed, u64::MAX - 4095, 65_536, "too short"),
        (&sealed, 100, 65_536, "begin with a page"),
        (&sealed, 0, 0, "no multiple"),
        (&sealed, 0, 4096, "no multiple"),
        (&sealed, 0, ARENA_BYTES_MAX + 65_536, "more than 1 GiB"),
    ] {
        let text = arena(file, offset, bytes).unwrap_err().to_string();
        assert!(text.contains(what), "{what}: {text}");
    }
}
