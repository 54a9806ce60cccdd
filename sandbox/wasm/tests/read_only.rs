//! Applets whose heap may only be read: loads work, stores of any kind end the applet and reach no
//! file.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{MIB, Scratch, error_text, options, program, run, status};
use holdfast_region::{NameSpace, OwnerKey, Places, Region, RegionName};
use holdfast_types::Remedy;
use holdfast_wasm::{Finished, TrapCause, WasmError};

fn names(scratch: &Scratch) -> NameSpace {
    NameSpace::new(Places::at(scratch.home(), scratch.pool()).unwrap())
}

/// The heap that `write` has filled, for reading.
fn read_only(scratch: &Scratch) -> Region {
    let name = RegionName::parse("words").unwrap();
    names(scratch).open_read_only(&name, &OwnerKey::from_bytes([7; 32])).unwrap()
}

fn filled() -> Scratch {
    let scratch = Scratch::new();
    let body = "(call $attach_heap) (i32.store (i32.const 0x80000100) (i32.const 42))";
    let finished = run(body, Some(scratch.region("words", 64 * MIB)));
    assert_eq!(status(&finished), 0);
    finished.heaps.into_first().unwrap().close().unwrap();
    scratch
}

fn image(scratch: &Scratch) -> Vec<u8> {
    std::fs::read(scratch.pool().join("words.image")).unwrap()
}

fn run_reading(scratch: &Scratch, body: &str) -> Finished {
    let before = image(scratch);
    let finished = run(body, Some(read_only(scratch)));
    let region = finished.heaps.first().unwrap();
    assert!(!region.is_dirty() && !finished.metrics.heap_dirty);
    assert!(image(scratch) == before, "a store reached the image");
    finished
}

/// An applet reads what another one stored and learns that the heap is read-only.
#[test]
fn read_only_applet_reads_and_knows_it() {
    let scratch = filled();
    // The flags at 1024 + 24: bit 1. No room to grow: the limit is what is backed.
    let body = "
      (call $attach_heap)
      (call $exit_unless (i64.eq (i64.load (i32.const 1048)) (i64.const 2)) (i32.const 1))
      (call $exit_unless (i64.eq (i64.load (i32.const 1032)) (i64.load (i32.const 1040))) (i32.const 2))
      (call $exit_unless (i64.eq (call $grow (i64.const 0x500000)) (i64.const -8)) (i32.const 3))
      (call $exit_unless (i64.eq (call $grow (i64.const 1)) (i64.const 0x400000)) (i32.const 4))
      (call $exit_unless (i32.eqz (call $commit (i32.const 2))) (i32.const 5))
      (call $exit (i32.load (i32.const 0x80000100)))";
    let finished = run_reading(&scratch, body);
    assert_eq!(status(&finished), 42);
    assert!(finished.heaps.into_first().unwrap().close().unwrap().checkpoint.skipped);
}

/// A store to a read-only heap traps with the cause and the remedy.
///
/// Guarantee: heap/read-only
#[test]
fn read_only_store_traps_with_cause_and_remedy() {
    let scratch = filled();
    for store in [
        "(i32.store (i32.const 0x80000100) (i32.const 1))",
        "(i64.store8 (i32.const 0x803fffff) (i64.const 1))",
        "(v128.store (i32.const 0x80200000) (v128.const i64x2 1 1))",
    ] {
        let finished = run_reading(&scratch, &format!("(call $attach_heap) {store}"));
        let Err(WasmError::Trap(report)) = &finished.end else {
            panic!("{store}: {:?}", finished.end)
        };
        assert!(
            matches!(report.cause, TrapCause::ReadOnlyHeap { address } if address >= 0x8000_0000),
            "{report}"
        );
        let text = error_text(&finished);
        assert!(
            text.contains("may only read")
                && text.contains(&Remedy::GrantWriting { heap: None }.to_string()),
            "{text}"
        );
    }
    // Past the backed part it is what it always was.
    let finished = run_reading(
        &scratch,
        "(call $attach_heap) (i32.store (i32.const 0x80400000) (i32.const 1))",
    );
    assert!(error_text(&finished).contains("holdfast.grow"));
}

/// A store to a read-only heap by host code stops the applet and does not harm the host.
///
/// Guarantee: heap/read-only
#[test]
fn host_stores_to_a_read_only_heap_stop_the_applet() {
    let scratch = filled();
    for (what, store) in [
        ("fill", "(memory.fill (i32.const 0x80000000) (i32.const 255) (i32.const 0x400000))"),
        ("copy", "(memory.copy (i32.const 0x80000000) (i32.const 0) (i32.const 65536))"),
        ("random", "(drop (call $random_get (i32.const 0x80000100) (i32.const 100000)))"),
        ("args", "(drop (call $args_sizes_get (i32.const 0x80000100) (i32.const 0x80000200)))"),
        ("attach", "(drop (call $attach (i32.const 0x80000100)))"),
        (
            "read",
            "(call $buffer (i32.const 0x80000100) (i32.const 5000))
                  (drop (call $fd_read (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 80)))",
        ),
    ] {
        for end in ["", "(loop $forever (br $forever))"] {
            if what == "read" && !end.is_empty() {
                continue;
            }
            let before = image(&scratch);
            let mut options = options();
            options.stdio.stdin = holdfast_wasm::Input::Bytes(vec![b'x'; 5000]);
            let body = format!("(call $attach_heap) {store} {end}");
            let finished = holdfast_wasm::run(&program(&body), &options, Some(read_only(&scratch)));
            assert!(
                matches!(finished.end, Err(WasmError::ReadOnlyHeap { .. })),
                "{what}: {:?}",
                finished.end
            );
            assert!(error_text(&finished).contains("may only read"));
            assert!(image(&scratch) == before, "{what} reached the image");
        }
    }
}

/// Guarantee: heap/readers-and-writers
#[test]
fn many_applets_read_one_heap_at_once_in_one_process() {
    let scratch = filled();
    let body = "(call $attach_heap) (call $exit (i32.load (i32.const 0x80000100)))";
    std::thread::scope(|scope| {
        let runs: Vec<_> =
            (0..6).map(|_| scope.spawn(|| status(&run(body, Some(read_only(&scratch)))))).collect();
        for run in runs {
            assert_eq!(run.join().unwrap(), 42);
        }
    });
}
