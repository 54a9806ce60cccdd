//! A memory barrier that all threads of the process pass (membarrier(2)).

use std::sync::OnceLock;

/// Has every other thread of the process pass a full memory barrier before it returns.
pub type ThreadBarrier = fn();

/// The kernel's barrier over the threads of this process; `None` where it has none (before Linux
/// 4.14, or behind a filter). The first call registers the process.
#[must_use]
pub fn thread_barrier() -> Option<ThreadBarrier> {
    static BARRIER: OnceLock<Option<ThreadBarrier>> = OnceLock::new();
    *BARRIER.get_or_init(|| {
        let is_registered = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
        (is_registered && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)).then_some(pass)
    })
}

fn pass() {
    // It cannot fail: the process is registered, and so are its forked children. Without it two
    // threads could change one word, which must not be.
    let is_passed = membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    assert!(is_passed, "membarrier worked before");
}

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: no memory of ours is handed over.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}
