//! The kit of the behaviour tests: a scratch home with its pool, and small programs in the text
//! format.
#![allow(dead_code, reason = "every test file uses a part of it")]

pub(crate) mod serve;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use holdfast_region::{NameSpace, OwnerKey, Places, Region, RegionName};
use holdfast_wasm::{Finished, Program, RunOptions, Stdio};
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;

/// A home and a pool of their own, removed at the end of the test.
pub(crate) struct Scratch {
    home: TempDir,
    pool: TempDir,
}

impl Scratch {
    pub(crate) fn new() -> Self {
        let private = || {
            let mut builder = tempfile::Builder::new();
            builder.permissions(PermissionsExt::from_mode(0o700));
            builder
        };
        let shm = Path::new("/dev/shm");
        let pool = if shm.is_dir() { private().tempdir_in(shm) } else { private().tempdir() };
        Scratch { home: private().tempdir().unwrap(), pool: pool.unwrap() }
    }

    pub(crate) fn home(&self) -> &Path {
        self.home.path()
    }

    pub(crate) fn pool(&self) -> &Path {
        self.pool.path()
    }

    pub(crate) fn region(&self, name: &str, limit_bytes: u64) -> Region {
        open_region(self.home(), self.pool(), name, limit_bytes)
    }
}

pub(crate) fn open_region(home: &Path, pool: &Path, name: &str, limit_bytes: u64) -> Region {
    let names = NameSpace::new(Places::at(home, pool).unwrap());
    let key = OwnerKey::from_bytes([7; 32]);
    names.open_or_create(&RegionName::parse(name).unwrap(), &key, limit_bytes).unwrap()
}

/// What every test program may use; `$attach_heap` exits with 90 + code when there is no heap.
const PRELUDE: &str = r#"
  (import "holdfast" "attach" (func $attach (param i32) (result i32)))
  (import "holdfast" "grow" (func $grow (param i64) (result i64)))
  (import "holdfast" "commit" (func $commit (param i32) (result i32)))
  (import "holdfast" "receive" (func $receive (param i32 i32 i32) (result i32)))
  (import "holdfast" "arena" (func $arena (result i64)))
  (import "holdfast" "send" (func $send (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "proc_exit" (func $exit (param i32)))
  (import "wasi_snapshot_preview1" "fd_close" (func $fd_close (param i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_write" (func $fd_write (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_read" (func $fd_read (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "fd_pread" (func $fd_pread (param i32 i32 i32 i64 i32) (result i32)))
  (import "wasi_snapshot_preview1" "random_get" (func $random_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll_oneoff (param i32 i32 i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "environ_sizes_get" (func $environ_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "args_sizes_get" (func $args_sizes_get (param i32 i32) (result i32)))
  (import "wasi_snapshot_preview1" "path_open" (func $path_open
    (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
"#;

const HELPERS: &str = r#"
  (func $attach_heap
    (local $code i32)
    (local.set $code (call $attach (i32.const 1024)))
    (if (local.get $code) (then (call $exit (i32.add (i32.const 90) (local.get $code))))))
  (func $exit_unless (param $true i32) (param $status i32)
    (if (i32.eqz (local.get $true)) (then (call $exit (local.get $status)))))
  ;; one buffer at address 64 for fd_read and fd_write; the count goes to 80
  (func $buffer (param $start i32) (param $len i32)
    (i32.store (i32.const 64) (local.get $start))
    (i32.store (i32.const 68) (local.get $len)))
"#;

/// A program with a memory of `memory` (minimum and maximum, in pages), more definitions, and a
/// body.
pub(crate) fn program_with(memory: &str, definitions: &str, body: &str) -> Program {
    let text = format!(
        "(module $test {PRELUDE} (memory (export \"memory\") {memory}) {HELPERS} {definitions}\n\
         (func $start (export \"_start\") {body}))"
    );
    Program::from_bytes("test.wat", text).unwrap()
}

pub(crate) fn program(body: &str) -> Program {
    program_with("2", "", body)
}

/// Options that capture the output.
pub(crate) fn options() -> RunOptions {
    let mut options = RunOptions::default();
    options.stdio = Stdio::capture(MIB as usize);
    options
}

pub(crate) fn run(body: &str, region: Option<Region>) -> Finished {
    holdfast_wasm::run(&program(body), &options(), region)
}

/// Runs and returns the exit status, or fails with the error's text.
pub(crate) fn status(finished: &Finished) -> i32 {
    match &finished.end {
        Ok(status) => *status,
        Err(error) => panic!("{error} ({error:?})"),
    }
}

pub(crate) fn error_text(finished: &Finished) -> String {
    match &finished.end {
        Ok(status) => panic!("the applet ended with {status}"),
        Err(error) => error.to_string(),
    }
}
