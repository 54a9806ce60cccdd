//! Test builds only: every store to a heap's metadata is numbered, and the k-th can be made the
//! last one, as if the process had been killed right before it. The tests enumerate every k.
//! Instead of dying there, a test can look at what other threads do at that moment.

use core::cell::Cell;
use std::boxed::Box;

std::thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
    static DIE_AT: Cell<u64> = const { Cell::new(u64::MAX) };
    static MEANWHILE: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

/// The panic payload of a simulated kill.
#[derive(Debug)]
pub struct Killed;

/// Starts counting; the step with this number (from 0) unwinds with [`Killed`] instead of
/// happening.
pub fn arm(die_at: u64) {
    STEPS.set(0);
    DIE_AT.set(die_at);
}

/// Starts counting; right before the step with this number (from 0) `work` is done.
pub fn arm_meanwhile(at: u64, work: impl FnOnce() + 'static) {
    MEANWHILE.set(Some(Box::new(work)));
    arm(at);
}

/// Stops dying; returns how many steps were counted since [`arm`].
pub fn disarm() -> u64 {
    DIE_AT.set(u64::MAX);
    MEANWHILE.set(None);
    STEPS.get()
}

/// Counts a store; `false` when it must not happen any more.
pub(crate) fn step() -> bool {
    let step = STEPS.get();
    STEPS.set(step + 1);
    if step < DIE_AT.get() {
        return true;
    }
    if let Some(work) = MEANWHILE.take() {
        DIE_AT.set(u64::MAX);
        work();
        return true;
    }
    // Destructors run while the simulated kill unwinds; a killed process would not have run them.
    if !std::thread::panicking() {
        std::panic::resume_unwind(Box::new(Killed));
    }
    false
}
