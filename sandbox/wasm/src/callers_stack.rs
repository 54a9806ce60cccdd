//! Running a host function on the stack of the thread that called the applet, while the applet's
//! own stack stays as it is in the middle of its call.
//!
//! An applet runs on a stack of its own (a fiber), whose frames must be left for its thread to get
//! back to its caller: that is a suspension, and costs more than most host functions do. What lies
//! below the frames of the caller is free meanwhile, so a function can run there with one change of
//! the stack pointer each way. To the function it makes no difference: the bounds of the thread's
//! stack hold (languages that look at them go on working), as does all of its depth but
//! [`GAP_BYTES`].
//!
//! Invariants:
//! - Nothing runs there but while [`CallersStack::lend`] is under way on the same thread, and never
//!   from a frame that itself lies on the thread's stack.
//! - The frames between `lend` and the applet's first one take less than [`GAP_BYTES`].
//! - Where that is not certain, or the thread's stack has less room than the applet's has, a
//!   function runs on the applet's.

use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_sys::thread_stack;

use crate::engine::{FIBER_STACK_BYTES, WASM_STACK_BYTES};

/// Room for the frames with which the applet is entered: those of our futures and of wasmtime's. A
/// test measures that they take less than a quarter of it.
const GAP_BYTES: usize = 64 << 10;
/// With less than this left of the thread's stack, a function finds more on the applet's.
const ROOM_BYTES: usize = FIBER_STACK_BYTES - WASM_STACK_BYTES;

/// The stack that an applet's caller lends.
#[derive(Debug, Default)]
pub(crate) struct CallersStack {
    /// The highest address that a function may use; 0 for none. One thread at a time uses it, so no
    /// order with other memory is needed.
    top: AtomicUsize,
}

impl CallersStack {
    /// Lends what this thread's stack has below this frame to functions that are called within
    /// `enter`, which lets the applet go on.
    #[inline(never)]
    pub(crate) fn lend<T>(&self, enter: impl FnOnce() -> T) -> T {
        let stack = thread_stack::bounds();
        let here = Self::here();
        let top = here.saturating_sub(GAP_BYTES) & !(STACK_ALIGNMENT - 1);
        // On a stack that is none of the C library's threads, nothing is known of what lies below.
        let is_known = stack.contains(&here) && top >= stack.start.saturating_add(ROOM_BYTES);
        self.top.store(if is_known { top } else { 0 }, Ordering::Relaxed);
        let _lent = Lent(self);
        enter()
    }

    /// Runs a function there; on the stack of the caller, which is the applet's, when nothing is
    /// lent. A panic of the function ends the process.
    pub(crate) fn run<T>(&self, work: impl FnOnce() -> T) -> T {
        let top = self.top.load(Ordering::Relaxed);
        let stack = thread_stack::bounds();
        if !stack.contains(&top) || stack.contains(&Self::here()) {
            return work();
        }
        psm::psm_stack_manipulation! {
            yes {
                let base = stack.start as *mut u8;
                // SAFETY: from `base` to `top` is this thread's stack. `lend` is under way, or
                // there would be no `top`, and on this thread, or it would not lie here; so `top`
                // is below all frames of the thread's stack, by the gap. This frame lies on
                // another stack, and stays as it is.
                unsafe { psm::on_stack(base, top - stack.start, work) }
            }
            no { work() }
        }
    }

    /// An address in the frame that calls.
    #[inline(always)]
    fn here() -> usize {
        let local = 0_u8;
        std::ptr::from_ref(std::hint::black_box(&local)) as usize
    }
}

/// Of the stack pointer, on every processor.
const STACK_ALIGNMENT: usize = 16;

/// What is lent is taken back, also when the applet's thread panics.
struct Lent<'a>(&'a CallersStack);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.top.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{Heaps, HostCall, Program, RunOptions};

    /// Calls the host's function `f`.
    const CALLER: &str = r#"(module
        (import "holdfast" "host_import" (func $import (param i32 i32) (result i32)))
        (import "holdfast" "host_call" (func $call (param i32 i32 i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 16) "f")
        (func (export "_start")
          (drop (call $call (call $import (i32.const 16) (i32.const 1))
            (i32.const 0) (i32.const 0) (i32.const 64) (i32.const 0) (i32.const 32)))))"#;
    const PATTERN: u8 = 0xA5;
    /// Fewer bytes of it are what frames have left as it was.
    const RUN_BYTES: usize = 1 << 10;
    const PAINTED_BYTES: usize = 2 * GAP_BYTES;

    /// Runs the program on a thread with a stack of this size, and calls the function there.
    fn run(stack_bytes: usize, function: impl Fn() -> usize + Send + Sync + 'static) -> usize {
        let seen = Arc::new(AtomicUsize::new(0));
        let inner = seen.clone();
        let mut options = RunOptions::default();
        options.functions.push("f", move |_: &HostCall<'_>, _: &[u8]| {
            inner.store(function(), Ordering::Relaxed);
            Ok(Vec::new())
        });
        let run = move || {
            paint();
            let program = Program::from_bytes("caller", CALLER).unwrap();
            crate::run(&program, &options, Heaps::none()).end.unwrap();
        };
        std::thread::Builder::new().stack_size(stack_bytes).spawn(run).unwrap().join().unwrap();
        seen.load(Ordering::Relaxed)
    }

    /// Fills what lies below this frame.
    #[inline(never)]
    fn paint() {
        let top = CallersStack::here() - RUN_BYTES;
        for address in top - PAINTED_BYTES..top {
            // SAFETY: it is this thread's stack, below all of its frames.
            unsafe { (address as *mut u8).write_volatile(PATTERN) };
        }
    }

    /// Bytes of the pattern between the frames of a function and those that entered the applet.
    #[inline(never)]
    fn unused_bytes() -> usize {
        let (mut length, mut address) = (0, CallersStack::here());
        let end = thread_stack::bounds().end;
        while address < end {
            // SAFETY: it is this thread's stack.
            let byte = unsafe { (address as *const u8).read_volatile() };
            match byte {
                PATTERN => length += 1,
                _ if length >= RUN_BYTES => break,
                _ => length = 0,
            }
            address += 1;
        }
        length
    }

    /// The frames between `lend` and the applet take a small part of the gap, in whatever way this
    /// is compiled.
    ///
    /// Guarantee: applets/host-functions
    #[test]
    fn gap_is_wider_than_what_enters_an_applet() {
        let unused = run(8 << 20, unused_bytes);
        assert!(unused > GAP_BYTES / 4 * 3 && unused < GAP_BYTES, "{unused} bytes");
    }

    /// On a stack that is too small to lend from, functions have the applet's.
    ///
    /// Guarantee: applets/host-functions
    #[test]
    fn functions_have_room_whatever_their_caller_has() {
        fn recurse(depth: usize) -> usize {
            let frame = std::hint::black_box([1_u8; 4096]);
            let below = if depth == 0 { 0 } else { recurse(depth - 1) };
            below + usize::from(frame[depth % 4096])
        }
        let is_on_own = || usize::from(thread_stack::bounds().contains(&CallersStack::here()));
        assert_eq!(run(320 << 10, move || recurse(199) + is_on_own()), 200);
        assert_eq!(run(4 << 20, move || recurse(199) + is_on_own()), 201);
    }
}
