//! The reach of an applet outside of its memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::path::Path;

use common::{options, program, run, status};
use holdfast_wasm::{DirGrant, Finished, Input, RunOptions, WasmError};

/// Guarantee: sandbox/nothing-by-default
#[test]
fn nothing_is_granted_by_default() {
    let body = "
      (call $exit_unless (i32.eqz (call $environ_sizes_get (i32.const 0) (i32.const 4))) (i32.const 1))
      (call $exit_unless (i32.eqz (i32.load (i32.const 0))) (i32.const 2))
      (call $exit_unless (i32.eqz (call $args_sizes_get (i32.const 0) (i32.const 4))) (i32.const 3))
      (call $exit_unless (i32.eq (i32.load (i32.const 0)) (i32.const 1)) (i32.const 4))
      ;; descriptor 3 would be the first granted directory; 8 is EBADF
      (i32.store8 (i32.const 128) (i32.const 46))
      (call $exit_unless (i32.eq (i32.const 8) (call $path_open (i32.const 3) (i32.const 0) (i32.const 128)
        (i32.const 1) (i32.const 0) (i64.const 2) (i64.const 2) (i32.const 0) (i32.const 96))) (i32.const 5))
      ;; standard input is at its end
      (call $buffer (i32.const 256) (i32.const 10))
      (call $exit_unless (i32.eqz (call $fd_read (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 80)))
        (i32.const 6))
      (call $exit_unless (i32.eqz (i32.load (i32.const 80))) (i32.const 7))";
    let finished = holdfast_wasm::run(&program(body), &RunOptions::default(), None);
    assert_eq!(status(&finished), 0);
}

#[test]
fn granted_variables_and_arguments_arrive() {
    let mut options = options();
    options.env = vec![("A".into(), "b".into()), ("CC".into(), String::new())];
    options.args = vec!["one".into(), "two".into()];
    let body = "
      (drop (call $environ_sizes_get (i32.const 0) (i32.const 4)))
      (drop (call $args_sizes_get (i32.const 8) (i32.const 12)))
      (call $exit_unless (i32.eq (i32.load (i32.const 4)) (i32.const 8)) (i32.const 1))
      (call $exit (i32.add (i32.mul (i32.const 10) (i32.load (i32.const 0))) (i32.load (i32.const 8))))";
    assert_eq!(status(&holdfast_wasm::run(&program(body), &options, None)), 23);
}

#[test]
fn every_exit_status_passes_through() {
    for expected in [0, 1, 125, 126, 200, 255, -1] {
        assert_eq!(status(&run(&format!("(call $exit (i32.const {expected}))"), None)), expected);
    }
}

#[test]
fn output_is_captured_by_stream() {
    let body = "
      (i64.store (i32.const 256) (i64.const 0x0a74756f)) ;; out
      (i64.store (i32.const 264) (i64.const 0x0a727265)) ;; err
      (call $buffer (i32.const 256) (i32.const 4))
      (drop (call $fd_write (i32.const 1) (i32.const 64) (i32.const 1) (i32.const 80)))
      (call $buffer (i32.const 264) (i32.const 4))
      (drop (call $fd_write (i32.const 2) (i32.const 64) (i32.const 1) (i32.const 80)))";
    let finished = run(body, None);
    assert_eq!((&finished.stdout[..], &finished.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
}

#[test]
fn input_can_be_given_as_bytes() {
    let mut options = options();
    options.stdio = options.stdio.with_stdin(Input::Bytes(b"xyz".to_vec()));
    let body = "
      (call $buffer (i32.const 256) (i32.const 10))
      (drop (call $fd_read (i32.const 0) (i32.const 64) (i32.const 1) (i32.const 80)))
      (call $exit (i32.add (i32.load8_u (i32.const 258)) (i32.load (i32.const 80))))";
    assert_eq!(status(&holdfast_wasm::run(&program(body), &options, None)), i32::from(b'z') + 3);
}

/// Opens a name in the granted directory with `oflags` and `rights`, and exits with the WASI error
/// number.
fn open_in(dir: &Path, grant: &str, oflags: u32, rights: u64, name: &str) -> Finished {
    let mut options = options();
    options.dirs.push(format!("{}{grant}", dir.display()).parse::<DirGrant>().unwrap());
    holdfast_wasm::run(&program(&opening(3, oflags, rights, name)), &options, None)
}

/// A program's body that opens a name in the directory `fd`, and exits with the WASI error number.
fn opening(fd: usize, oflags: u32, rights: u64, name: &str) -> String {
    let stores: String = name
        .bytes()
        .enumerate()
        .map(|(index, byte)| format!("(i32.store8 (i32.const {}) (i32.const {byte}))", 128 + index))
        .collect();
    format!(
        "{stores} (call $exit (call $path_open (i32.const {fd}) (i32.const 0) (i32.const 128) (i32.const {})
           (i32.const {oflags}) (i64.const {rights}) (i64.const {rights}) (i32.const 0) (i32.const 96)))",
        name.len()
    )
}

const CREATE: u32 = 1;
const TRUNCATE: u32 = 8;
const READ: u64 = 1 << 1;
const WRITE: u64 = 1 << 6;

#[test]
fn a_read_only_directory_can_be_read_and_not_written() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), "old").unwrap();
    assert_eq!(status(&open_in(dir.path(), "::/d:ro", 0, READ, "f")), 0);
    assert_ne!(status(&open_in(dir.path(), "::/d:ro", 0, WRITE, "f")), 0);
    assert_ne!(status(&open_in(dir.path(), "::/d:ro", TRUNCATE, READ | WRITE, "f")), 0);
    assert_ne!(status(&open_in(dir.path(), "::/d:ro", CREATE, READ | WRITE, "g")), 0);
    assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"old");
    assert!(!dir.path().join("g").exists());

    assert_eq!(status(&open_in(dir.path(), "::/d", CREATE, READ | WRITE, "g")), 0);
    assert!(dir.path().join("g").exists());
}

/// A read-only grant inside a writable one is refused; a writable grant inside a read-only one
/// works.
///
/// Guarantee: sandbox/granted-directories
#[test]
fn nested_read_write_grants_follow_one_rule() {
    let dir = tempfile::tempdir().unwrap();
    let inner = dir.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    for order in [[0, 1], [1, 0]] {
        let run = |access: [&str; 2], name: &str, from: usize| {
            let grants = [
                format!("{}::/d{}", dir.path().display(), access[0]),
                format!("{}::/d/inner{}", inner.display(), access[1]),
            ];
            let mut options = options();
            options.dirs =
                order.iter().map(|at| grants[*at].parse::<DirGrant>().unwrap()).collect();
            let fd = 3 + order.iter().position(|at| *at == from).unwrap();
            holdfast_wasm::run(&program(&opening(fd, CREATE, READ | WRITE, name)), &options, None)
        };
        let refused = run(["", ":ro"], "inner/f", 0);
        let Err(WasmError::Grant { path, .. }) = &refused.end else { panic!("{:?}", refused.end) };
        assert_eq!(*path, inner);
        assert_ne!(status(&run([":ro", ""], "inner/f", 0)), 0);
        assert!(!inner.join("f").exists());
        assert_eq!(status(&run([":ro", ""], "f", 1)), 0);
        std::fs::remove_file(inner.join("f")).unwrap();
    }
}

/// Guarantee: sandbox/granted-directories
#[test]
fn a_granted_directory_cannot_be_left() {
    let outer = tempfile::tempdir().unwrap();
    let inner = outer.path().join("inner");
    std::fs::create_dir(&inner).unwrap();
    std::fs::write(outer.path().join("f"), "secret").unwrap();
    std::os::unix::fs::symlink(outer.path().join("f"), inner.join("link")).unwrap();
    for name in ["../f", "/etc/passwd", "link"] {
        assert_ne!(status(&open_in(&inner, "::/d", 0, READ, name)), 0, "{name}");
    }
}

#[test]
fn missing_directory_is_reported_before_the_run() {
    let finished = open_in(Path::new("/nowhere/at/all"), "", 0, READ, "f");
    assert!(matches!(finished.end, Err(WasmError::Grant { .. })), "{:?}", finished.end);
}
