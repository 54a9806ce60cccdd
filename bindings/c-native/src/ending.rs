//! The end of the process, and forks: who may close the heap, and who may not use it.
//!
//! Invariants:
//! - The finaliser runs after the program's own `atexit` handlers and static destructors, which may still use the
//!   heap; it closes only what this very process has opened.
//! - A child that was forked while a heap was open, or while a call was under way, never gets to the heap.

#![allow(unsafe_code, reason = "the C library calls these at fork and at exit")]

use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use crate::failure::Failure;
use crate::session;

/// The process that has a heap open, 0 if none.
static OPENER: AtomicU32 = AtomicU32::new(0);
/// The opener, in a child that was forked from it.
static FORKED_FROM: AtomicU32 = AtomicU32::new(0);

/// From now on a fork is noticed and the end of the process closes the heap.
///
/// # Errors
/// When the C library has no room for a fork handler.
pub(crate) fn watch() -> Result<(), Failure> {
    static ONCE: Once = Once::new();
    static FAILED: AtomicI32 = AtomicI32::new(0);
    ONCE.call_once(|| {
        // SAFETY: `in_child` is a function of this library, which stays loaded.
        FAILED.store(unsafe { libc::pthread_atfork(None, None, Some(in_child)) }, Ordering::Release);
    });
    match FAILED.load(Ordering::Acquire) {
        0 => {}
        errno => return Err(Failure::NoForkHandler { errno }),
    }
    OPENER.store(std::process::id(), Ordering::Release);
    Ok(())
}

/// The heap is closed.
pub(crate) fn forget() {
    OPENER.store(0, Ordering::Release);
}

/// The process that has the heap, if this one was forked from it.
pub(crate) fn forked_from() -> Option<u32> {
    match FORKED_FROM.load(Ordering::Relaxed) {
        0 => None,
        opener => Some(opener),
    }
}

extern "C" fn in_child() {
    let opener = OPENER.load(Ordering::Acquire);
    if opener != 0 || session::is_busy() {
        // SAFETY: getppid has no preconditions.
        let parent = unsafe { libc::getppid() }.unsigned_abs();
        FORKED_FROM.store(if opener != 0 { opener } else { parent.max(1) }, Ordering::Release);
    }
}

extern "C" fn at_exit() {
    // Also where the child was made without the C library's knowledge.
    if OPENER.load(Ordering::Acquire) == std::process::id() && forked_from().is_none() {
        session::end();
    }
}

/// What the loader calls last of all.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;
