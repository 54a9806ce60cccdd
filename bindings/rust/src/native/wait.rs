//! Waiting for the host: the processor's time stamp for the length of a spin, the kernel's futex
//! for a sleep.
//!
//! An applet waits without deadlines, because its host ends it when it takes too long, and when the
//! host itself ends; so the clock need not be exact, and must not cost a system call.

use core::sync::atomic::AtomicU32;

use holdfast_channel::{Deadline, Wait};
use rustix::thread::futex;

/// Spins for a while, then sleeps on a futex.
#[derive(Debug)]
pub(super) struct FutexWait;

/// Of the time stamp, for a nanosecond; processors have 1 to 5.
const TICKS_PER_NS: u64 = 2;

impl Wait for FutexWait {
    fn now_ns(&self) -> u64 {
        // SAFETY: every x86-64 processor has the instruction, and nothing here forbids it to a
        // process.
        unsafe { core::arch::x86_64::_rdtsc() / TICKS_PER_NS }
    }

    fn sleep(&self, word: &AtomicU32, expected: u32, _: Deadline) {
        // Why it returned does not matter. Not private: the host has the word, too.
        let _ = futex::wait(word, futex::Flags::empty(), expected, None);
    }

    fn wake(&self, word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::empty(), 1);
    }
}
