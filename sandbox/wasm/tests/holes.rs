//! Host code that touches linear memory on the applet's behalf, where there is no memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use common::{MIB, Scratch, error_text, options, program, run, status};
use holdfast_wasm::{DirGrant, Finished, WasmError};

/// In the hole between volatile memory and heap, and in the one behind the backed heap.
const HOLES: [&str; 2] = ["0x40000000", "0x80800000"];

fn is_host_access(finished: &Finished) {
    assert!(matches!(finished.end, Err(WasmError::HostAccess { .. })), "{:?}", finished.end);
    assert!(error_text(finished).contains("host access outside the heap and memory of the applet"));
}

/// Filling a hole stops the applet, and the host goes on.
///
/// Guarantee: sandbox/wild-pointers
#[test]
fn filling_a_hole_stops_only_the_applet() {
    for hole in HOLES {
        let scratch = Scratch::new();
        let body = format!(
            "(call $attach_heap)
             (memory.fill (i32.const {hole}) (i32.const 255) (i32.const 0x1000000))
             (loop $forever (br $forever))"
        );
        let finished = run(&body, Some(scratch.region("fill", 64 * MIB)));
        is_host_access(&finished);
        let mut bytes = vec![1; 4096];
        finished.heaps.into_first().unwrap().read_at(0, &mut bytes).unwrap();
        assert!(bytes.iter().all(|&byte| byte == 0));
    }
}

/// A fill across memory, hole and heap uses bounded memory.
#[test]
fn fill_across_hole_and_heap_is_bounded() {
    let scratch = Scratch::new();
    let body = "
      (call $attach_heap)
      (memory.fill (i32.const 0) (i32.const 170) (i32.const 0x80000000))";
    is_host_access(&run(body, Some(scratch.region("wide", 64 * MIB))));
}

/// Touching a hole is reported even if the applet ends right afterwards.
#[test]
fn hole_access_right_before_exit_is_reported() {
    let scratch = Scratch::new();
    let body =
        "(call $attach_heap) (memory.fill (i32.const 0x40000000) (i32.const 1) (i32.const 0x2000))";
    is_host_access(&run(body, Some(scratch.region("end", MIB))));
}

#[test]
fn writing_a_hole_out_stops_the_applet() {
    for hole in HOLES {
        let scratch = Scratch::new();
        let body = format!(
            "(call $attach_heap)
             (call $buffer (i32.const {hole}) (i32.const 5000))
             (drop (call $fd_write (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 80)))
             (loop $forever (br $forever))"
        );
        is_host_access(&run(&body, Some(scratch.region("write", 64 * MIB))));
    }
}

#[test]
fn random_bytes_into_a_hole_stop_the_applet() {
    for hole in HOLES {
        let scratch = Scratch::new();
        let body = format!(
            "(call $attach_heap)
             (drop (call $random_get (i32.const {hole}) (i32.const 100)))
             (loop $forever (br $forever))"
        );
        is_host_access(&run(&body, Some(scratch.region("random", 64 * MIB))));
    }
}

/// Copies between heap and memory work, and WASI accepts buffers in the heap.
#[test]
fn copies_between_heap_and_memory_work() {
    let scratch = Scratch::new();
    let body = r#"
      (call $attach_heap)
      (i64.store (i32.const 0x80000100) (i64.const 0x6f6c6c6568))
      (memory.copy (i32.const 2048) (i32.const 0x80000100) (i32.const 8))
      (call $exit_unless (i64.eq (i64.load (i32.const 2048)) (i64.const 0x6f6c6c6568)) (i32.const 1))
      (memory.copy (i32.const 0x80000200) (i32.const 2048) (i32.const 8))
      (memory.fill (i32.const 0x80000300) (i32.const 7) (i32.const 100))
      ;; the buffer list and the buffer are both in the heap
      (i32.store (i32.const 0x80000400) (i32.const 0x80000200))
      (i32.store (i32.const 0x80000404) (i32.const 5))
      (call $exit_unless (i32.eqz (call $fd_write
        (i32.const 1) (i32.const 0x80000400) (i32.const 1) (i32.const 0x80000408))) (i32.const 2))
      (call $exit (i32.load (i32.const 0x80000408)))"#;
    let finished = run(body, Some(scratch.region("copies", MIB)));
    assert_eq!(status(&finished), 5);
    assert_eq!(finished.stdout, b"hello");
}

/// Stores something and closes, so that the next run maps the heap clean and read-only.
fn clean_heap(scratch: &Scratch) {
    let finished = run(
        "(call $attach_heap) (i64.store (i32.const 0x80000000) (i64.const 1))",
        Some(scratch.region("h", MIB)),
    );
    assert_eq!(status(&finished), 0);
    finished.heaps.into_first().unwrap().close().unwrap();
}

#[test]
fn random_bytes_into_a_clean_heap_make_it_dirty() {
    let scratch = Scratch::new();
    clean_heap(&scratch);
    let body = "
      (call $attach_heap)
      (call $exit_unless (i32.eqz (call $random_get (i32.const 0x80000100) (i32.const 64))) (i32.const 1))
      (call $exit_unless (i64.ne (i64.load (i32.const 0x80000110)) (i64.const 0)) (i32.const 2))";
    let finished = run(body, Some(scratch.region("h", MIB)));
    assert_eq!(status(&finished), 0);
    assert!(finished.metrics.heap_dirty);
}

/// Opens `file` in the first granted directory as descriptor 4 and reads it into a buffer.
fn read_file_to(buffer: &str, call: &str) -> String {
    format!(
        r#"(call $attach_heap)
           (i64.store (i32.const 128) (i64.const 0x656c6966)) ;; "file"
           (call $exit_unless (i32.eqz (call $path_open (i32.const 3) (i32.const 0) (i32.const 128) (i32.const 4)
             (i32.const 0) (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 96))) (i32.const 1))
           (call $buffer (i32.const {buffer}) (i32.const 100))
           (call $exit_unless (i32.eqz {call}) (i32.const 2))
           (call $exit_unless (i32.eq (i32.load (i32.const 80)) (i32.const 11)) (i32.const 3))
           (call $exit (i32.load8_u (i32.const {buffer})))"#
    )
}

const FD_READ: &str =
    "(call $fd_read (i32.load (i32.const 96)) (i32.const 64) (i32.const 1) (i32.const 80))";
const FD_PREAD: &str = "(call $fd_pread (i32.load (i32.const 96)) (i32.const 64) (i32.const 1) (i64.const 0) (i32.const 80))";

fn run_with_file(scratch: &Scratch, body: &str) -> Finished {
    let granted = tempfile::tempdir().unwrap();
    std::fs::write(granted.path().join("file"), "hello world").unwrap();
    let mut options = options();
    options.dirs.push(format!("{}::/in:ro", granted.path().display()).parse::<DirGrant>().unwrap());
    holdfast_wasm::run(&program(body), &options, Some(scratch.region("h", MIB)))
}

#[test]
fn a_file_can_be_read_into_a_clean_heap() {
    for call in [FD_READ, FD_PREAD] {
        let scratch = Scratch::new();
        clean_heap(&scratch);
        let finished = run_with_file(&scratch, &read_file_to("0x80000200", call));
        assert_eq!(status(&finished), i32::from(b'h'), "{call}");
        assert!(finished.metrics.heap_dirty, "{call}");
    }
}

/// A file can be read into the part that growth added to a clean heap.
///
/// Guarantee: sandbox/wild-pointers
#[test]
fn file_reads_into_grown_part_of_a_clean_heap() {
    for call in [FD_READ, FD_PREAD] {
        let scratch = Scratch::new();
        drop(scratch.region("h", 16 * MIB));
        clean_heap(&scratch);
        let body = read_file_to("0x80500000", call).replace(
            "(call $attach_heap)",
            "(call $attach_heap)
             (call $exit_unless (i64.eq (call $grow (i64.const 0x800000)) (i64.const 0x800000)) (i32.const 9))",
        );
        assert_eq!(status(&run_with_file(&scratch, &body)), i32::from(b'h'), "{call}");
    }
}

/// A file can be read into a heap right after a commit and a store.
#[test]
fn file_reads_into_heap_after_commit_and_store() {
    for call in [FD_READ, FD_PREAD] {
        let scratch = Scratch::new();
        drop(scratch.region("h", 16 * MIB));
        let body = read_file_to("0x80200000", call).replace(
            "(call $attach_heap)",
            "(call $attach_heap)
             (i32.store (i32.const 0x80000000) (i32.const 7))
             (call $exit_unless (i32.eqz (call $commit (i32.const 2))) (i32.const 9))
             (i32.store (i32.const 0x80000000) (i32.const 8))",
        );
        assert_eq!(status(&run_with_file(&scratch, &body)), i32::from(b'h'), "{call}");
    }
}

/// A file read into volatile memory leaves the heap clean.
#[test]
fn file_read_into_memory_keeps_the_heap_clean() {
    let scratch = Scratch::new();
    clean_heap(&scratch);
    let finished = run_with_file(&scratch, &read_file_to("0x800", FD_READ));
    assert_eq!(status(&finished), i32::from(b'h'));
    assert!(!finished.metrics.heap_dirty);
}

#[test]
fn a_file_read_into_a_hole_stops_the_applet() {
    for call in [FD_READ, FD_PREAD] {
        for hole in ["0x40000000", "0x80100000"] {
            let scratch = Scratch::new();
            drop(scratch.region("h", 8 * MIB));
            let body = format!(
                "{} (loop $forever (br $forever))",
                read_file_to(hole, call).replace("0x80100000", "0x80400000")
            );
            is_host_access(&run_with_file(&scratch, &body));
        }
    }
}

/// Writing a hole to a file gives an error number and does not harm the host.
#[test]
fn writing_a_hole_to_a_file_is_an_error_number() {
    let scratch = Scratch::new();
    let granted = tempfile::tempdir().unwrap();
    std::fs::write(granted.path().join("file"), "hello world").unwrap();
    let mut options = options();
    options.dirs.push(format!("{}::/out", granted.path().display()).parse::<DirGrant>().unwrap());
    let body = r#"
      (call $attach_heap)
      (i64.store (i32.const 128) (i64.const 0x656c6966)) ;; "file"
      (call $exit_unless (i32.eqz (call $path_open (i32.const 3) (i32.const 0) (i32.const 128) (i32.const 4)
        (i32.const 0) (i64.const 64) (i64.const 64) (i32.const 0) (i32.const 96))) (i32.const 1))
      (call $buffer (i32.const 0x40000000) (i32.const 100))
      (call $exit_unless (call $fd_write (i32.load (i32.const 96)) (i32.const 64) (i32.const 1) (i32.const 80))
        (i32.const 2))"#;
    let finished = holdfast_wasm::run(&program(body), &options, Some(scratch.region("h", MIB)));
    assert_eq!(status(&finished), 0);
    assert_eq!(std::fs::read(granted.path().join("file")).unwrap(), b"hello world");
}

/// An image truncated during a run stops the applet and does not harm the host.
///
/// Guarantee: heap/no-sigbus
#[test]
fn image_truncated_during_a_run_stops_the_applet() {
    let scratch = Scratch::new();
    let mut options = options();
    options.limits.timeout = Some(std::time::Duration::from_secs(20));
    let region = scratch.region("cut", 8 * MIB);
    let image = scratch.pool().join("cut.image");
    let cutter = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(100));
        std::fs::OpenOptions::new().write(true).open(image).unwrap().set_len(2 * MIB).unwrap();
    });
    let body = "
      (call $attach_heap)
      (loop $forever
        (i32.store (i32.const 0x80300000) (i32.add (i32.load (i32.const 0x80300000)) (i32.const 1)))
        (br $forever))";
    let finished = holdfast_wasm::run(&program(body), &options, Some(region));
    cutter.join().unwrap();
    assert!(matches!(finished.end, Err(WasmError::Heap(_))), "{:?}", finished.end);
    assert!(error_text(&finished).contains("cut off"), "{}", error_text(&finished));
}
