//! Functions of the host find the surroundings of their caller, not those of the applet that calls
//! them: its runtime, its rights.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_sys::special_bits;
use holdfast_types::PathAccess;
use holdfast_wasm::{DirGrant, Heaps, HostCall, Program, RunOptions};
use tokio::runtime::{Builder, Handle};

/// Sleeps 3 ms, which is long enough for a timer, and calls the host's function `f`, three times.
const PROGRAM: &str = r#"(module
    (import "wasi_snapshot_preview1" "poll_oneoff"
      (func $poll (param i32 i32 i32 i32) (result i32)))
    (import "holdfast" "host_import" (func $import (param i32 i32) (result i32)))
    (import "holdfast" "host_call" (func $call (param i32 i32 i32 i32 i32 i32) (result i32)))
    (memory (export "memory") 1)
    (data (i32.const 16) "f")
    (func (export "_start") (local $left i32)
      (local.set $left (i32.const 3))
      (i32.store (i32.const 144) (i32.const 1))
      (i64.store (i32.const 152) (i64.const 3000000))
      (loop $again
        (drop (call $poll (i32.const 128) (i32.const 256) (i32.const 1) (i32.const 512)))
        (drop (call $call (call $import (i32.const 16) (i32.const 1))
          (i32.const 0) (i32.const 0) (i32.const 64) (i32.const 0) (i32.const 32)))
        (local.set $left (i32.sub (local.get $left) (i32.const 1)))
        (br_if $again (local.get $left)))))"#;

/// Runs the program; how often its function said yes.
fn count(mut options: RunOptions, says: impl Fn() -> bool + Send + Sync + 'static) -> usize {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    options.functions.push("f", move |_: &HostCall<'_>, _: &[u8]| {
        counted.fetch_add(usize::from(says()), Ordering::Relaxed);
        Ok(Vec::new())
    });
    let program = Program::from_bytes("caller", PROGRAM).unwrap();
    holdfast_wasm::run(&program, &options, Heaps::none()).end.unwrap();
    count.load(Ordering::Relaxed)
}

/// Also when the applet has just waited in its own runtime, and when the caller has one.
///
/// Guarantee: applets/host-functions
#[test]
fn functions_may_have_a_runtime_of_their_own() {
    let waits = || {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let is_outside = Handle::try_current().is_err();
        runtime.block_on(async { tokio::time::sleep(Duration::from_millis(1)).await });
        is_outside
    };
    assert_eq!(count(RunOptions::default(), waits), 3);
    let callers = Builder::new_current_thread().enable_time().build().unwrap();
    let id = callers.handle().id();
    let _inside = callers.enter();
    let is_callers = move || Handle::current().id() == id;
    assert_eq!(count(RunOptions::default(), is_callers), 3);
    let within = async { count(RunOptions::default(), is_callers) };
    assert_eq!(callers.block_on(within), 3);
}

/// An applet that may write files has its host's right to leave special bits on them taken away;
/// the host's own functions have it.
///
/// Guarantee: sandbox/special-files
#[test]
fn functions_have_the_rights_of_their_host() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = RunOptions::default();
    options.dirs.push(DirGrant {
        host: dir.path().to_owned(),
        guest: "/data".to_owned(),
        access: PathAccess::ReadWrite,
    });
    let before = special_bits::are_kept();
    assert_eq!(count(options, move || special_bits::are_kept() == before), 3);
    assert_eq!(special_bits::are_kept(), before);
}
