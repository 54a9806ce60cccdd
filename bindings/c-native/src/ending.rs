//! The end of the process, and forks: who may close the heap, and who may not use it.
//!
//! Invariants:
//! - The finaliser runs after the program's own `atexit` handlers and static destructors, which may still use the
//!   heap; it closes only what this very process has opened.
//! - While other threads are left, nothing is unmapped, and what needs the heap at rest is done only when they cannot
//!   store to it any more.
//! - A child that was forked while a heap was open, or while a call was under way, never gets to the heap.

#![allow(unsafe_code, reason = "the C library calls these at fork and at exit")]

use std::cell::UnsafeCell;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Once;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering};

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

/// `PF_EXITING` of the kernel: the thread runs no code of the program any more.
const TASK_EXITING: u64 = 4;

/// Whether no other thread of this process can still run. Where the kernel does not say, one may.
pub(crate) fn is_alone() -> bool {
    let Ok(tasks) = fs::read_dir("/proc/self/task") else { return false };
    let can_run = |task: &fs::DirEntry| {
        // Gone in the meantime; or the fields behind the name, which may itself have blanks and brackets.
        let Ok(stat) = fs::read_to_string(task.path().join("stat")) else { return false };
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields).split_whitespace();
        let flags = fields.skip(6).next().and_then(|flags| flags.parse::<u64>().ok());
        flags.is_none_or(|flags| flags & TASK_EXITING == 0)
    };
    tasks.flatten().filter(can_run).count() <= 1
}

/// Where stores end a thread's way; written once, before the handler is there.
static STOPPED: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

struct Before(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written by the one thread that ends the process, before the handler that reads it is installed.
unsafe impl Sync for Before {}

static BEFORE: Before = Before(UnsafeCell::new(MaybeUninit::uninit()));

/// From now on a thread that stores to the range stops there for good; whoever reads it goes on. For the end of the
/// process, at which all threads end.
///
/// # Errors
/// What the kernel reports.
pub(crate) fn stop_stores(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
    STOPPED[0].store(start.addr().get(), Ordering::Relaxed);
    STOPPED[1].store(start.addr().get() + bytes, Ordering::Release);
    // SAFETY: `stop` is a handler of this form and async-signal-safe; taking the right to store away from a mapping
    // leaves every reference to it readable. `BEFORE` is written before anybody can fault because of it.
    unsafe {
        let before = BEFORE.0.get();
        if libc::sigaction(libc::SIGSEGV, std::ptr::null(), (*before).as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = stop as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        let installed = libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) == 0;
        if !installed || libc::mprotect(start.as_ptr().cast(), bytes, libc::PROT_READ) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

extern "C" fn stop(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands a valid `info` to a handler with SA_SIGINFO.
    let address = unsafe { (*info).si_addr() } as usize;
    let end = STOPPED[1].load(Ordering::Acquire);
    while (STOPPED[0].load(Ordering::Relaxed)..end).contains(&address) {
        // SAFETY: no preconditions, async-signal-safe.
        unsafe { libc::pause() };
    }
    // SAFETY: written before this handler was installed; called as the kernel would have.
    unsafe {
        let before = (*BEFORE.0.get()).assume_init_ref();
        match before.sa_sigaction {
            // It faults again, and ends the process.
            libc::SIG_DFL | libc::SIG_IGN => drop(libc::signal(signal, libc::SIG_DFL)),
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(i32) = std::mem::transmute(handler);
                handler(signal);
            }
        }
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
