//! A number of the calling thread that costs one instruction.

/// A number that no other thread has which runs at the same time; never 0. A thread that begins
/// after this one has ended may get it.
#[inline(always)]
#[must_use]
pub fn thread_mark() -> u64 {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    {
        let mark: u64;
        // SAFETY: the ABI has the thread's control block begin with its own address, which the
        // segment register leads to. It stays the same for as long as the thread runs.
        unsafe {
            std::arch::asm!(
                "mov {}, fs:0",
                out(reg) mark,
                options(pure, readonly, nostack, preserves_flags)
            );
        }
        mark
    }
    #[cfg(all(target_arch = "aarch64", target_os = "linux"))]
    {
        let mark: u64;
        // SAFETY: reads the register with the address of the thread's control block.
        unsafe {
            std::arch::asm!(
                "mrs {}, tpidr_el0",
                out(reg) mark,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        mark
    }
    #[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_os = "linux")))]
    {
        std::thread_local! { static MARK: u8 = const { 0 } }
        MARK.with(|mark| std::ptr::from_ref(mark).addr() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::sync::{Barrier, Mutex};

    /// Threads that run at the same time have different marks, and each keeps its own.
    #[test]
    fn threads_that_run_together_differ() {
        const THREADS: usize = 8;
        let (marks, all_run) = (Mutex::new(BTreeSet::new()), Barrier::new(THREADS));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let mark = thread_mark();
                    assert_ne!(mark, 0);
                    assert!(marks.lock().unwrap().insert(mark));
                    all_run.wait();
                    assert_eq!(thread_mark(), mark);
                });
            }
        });
        assert_eq!(marks.lock().unwrap().len(), THREADS);
    }
}
