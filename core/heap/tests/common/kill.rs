//! Simulated kills at the numbered stores of a heap.

use super::TestMemory;
use holdfast_heap::{Backing, crash_points};

/// The memory that a kill leaves as it is then.
#[derive(Clone, Copy)]
pub struct Left {
    #[cfg_attr(
        not(target_family = "wasm"),
        expect(dead_code, reason = "what unwinds leaves it by itself")
    )]
    base: *mut u8,
    #[cfg_attr(not(target_family = "wasm"), expect(dead_code, reason = "as above"))]
    bytes: usize,
}

impl Left {
    pub fn of(memory: &TestMemory) -> Left {
        Left { base: memory.base(), bytes: memory.limit_bytes() as usize }
    }
}

/// Does `work` on a heap in that memory, until it is killed at a step; whether it was.
#[cfg(not(target_family = "wasm"))]
pub fn killed_at(step: u64, _: Left, work: impl FnOnce()) -> bool {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    crash_points::arm(step);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    crash_points::disarm();
    match outcome {
        Ok(()) => false,
        Err(payload) if payload.is::<crash_points::Killed>() => true,
        Err(payload) => std::panic::resume_unwind(payload),
    }
}

/// Nothing unwinds here: the work comes to its end, and the memory becomes what it was at the step.
#[cfg(target_family = "wasm")]
pub fn killed_at(step: u64, left: Left, work: impl FnOnce()) -> bool {
    use std::cell::RefCell;
    use std::rc::Rc;
    let copy = Rc::new(RefCell::new(None));
    let copied = copy.clone();
    crash_points::arm_meanwhile(step, move || {
        // SAFETY: the callers keep the memory for as long as `work` takes; nothing writes to it
        // now.
        let bytes = unsafe { std::slice::from_raw_parts(left.base, left.bytes) };
        copied.replace(Some(bytes.to_vec()));
    });
    work();
    crash_points::disarm();
    let Some(copy) = copy.take() else { return false };
    // SAFETY: as above; the holder of the heap uses it no more.
    unsafe { left.base.copy_from_nonoverlapping(copy.as_ptr(), copy.len()) };
    true
}
