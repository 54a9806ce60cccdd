//! A handler that is asked about a SIGSEGV before everybody else, for as long as it takes: a fork,
//! the end of a process.
//!
//! Invariants: one at a time; async-signal-safe; what it does not resolve goes to the handler that
//! was there before.
//!
//! What it must not do: allocate, also while it is put in place, so that an allocator may use it.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::handler::pass_on;

/// Told the address of a fault; says whether the instruction may be tried again.
pub type Resolve = fn(address: usize) -> bool;

struct PreviousAction(UnsafeCell<MaybeUninit<libc::sigaction>>);

// SAFETY: written while no handler of this module is installed, by the one caller of `ask_first`
// (its contract).
unsafe impl Sync for PreviousAction {}

static BEFORE: PreviousAction = PreviousAction(UnsafeCell::new(MaybeUninit::uninit()));
static RESOLVE: AtomicPtr<()> = AtomicPtr::new(std::ptr::null_mut());

/// Puts `resolve` before the present handler of SIGSEGV, on the thread's alternate stack where it
/// has one.
///
/// # Safety
/// `resolve` is async-signal-safe, leaves errno alone, and needs no thread-local variable: where
/// these lie may be what faults. Nothing else calls this before [`ask_no_more`].
///
/// # Errors
/// What `sigaction` reports.
pub unsafe fn ask_first(resolve: Resolve) -> io::Result<()> {
    // SAFETY: sigaction is plain data for which all-zero is valid; `BEFORE` is the caller's alone
    // (contract), and is written before there is a handler that reads it.
    unsafe {
        let before = BEFORE.0.get();
        if libc::sigaction(libc::SIGSEGV, std::ptr::null(), (*before).as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        RESOLVE.store(resolve as *mut (), Ordering::Release);
        let mut action: libc::sigaction = std::mem::zeroed();
        let ours: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
        action.sa_sigaction = ours as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigemptyset(&mut action.sa_mask);
        match libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Puts back who was there before [`ask_first`].
///
/// # Safety
/// [`ask_first`] has succeeded, and this was not called since.
pub unsafe fn ask_no_more() {
    // SAFETY: written by `ask_first`. That the kernel took it back then means that it takes it now.
    unsafe { libc::sigaction(libc::SIGSEGV, (*BEFORE.0.get()).as_ptr(), std::ptr::null_mut()) };
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    let resolve = RESOLVE.load(Ordering::Acquire);
    // SAFETY: the kernel passes a valid siginfo; `RESOLVE` is a function of this type and `BEFORE`
    // is whole since before this handler was there.
    unsafe {
        let resolve: Resolve = std::mem::transmute(resolve);
        // One that was sent by kill(2) has a sender in place of an address.
        if (*info).si_code <= 0 || !resolve((*info).si_addr() as usize) {
            pass_on((*BEFORE.0.get()).as_ptr(), signal, info, context);
        }
    }
}
