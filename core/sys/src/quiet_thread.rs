//! A thread of a library in a program that is not ours: no signal that is sent to the program is
//! ever handled on it. The faults of its own code are: a runtime of WebAssembly makes traps of them,
//! and a heap memory (`fault`); the kernel would end the process for one that is blocked.

#![allow(unsafe_code, reason = "signal masks are in no safe library")]

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};

/// What the kernel raises for an instruction of the thread itself.
const FAULTS: [libc::c_int; 6] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGSYS];

/// Starts a thread on which all signals but faults are blocked. The caller's own mask is as before.
///
/// # Errors
/// What the kernel reports: no memory, too many threads.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    without_signals(|| Builder::new().name(name.to_owned()).spawn(work))
}

/// The same for a thread that ends with a scope, which may borrow what is outside of it.
///
/// # Errors
/// As [`spawn`].
pub fn spawn_scoped<'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() + Send + 'scope,
) -> io::Result<ScopedJoinHandle<'scope, ()>> {
    without_signals(|| Builder::new().name(name.to_owned()).spawn_scoped(scope, work))
}

/// A thread that is started meanwhile begins with all signals but faults blocked.
fn without_signals<T>(start: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` fills the set, `sigdelset` takes signals that exist out of it, and
    // `pthread_sigmask` reads it and fills the other.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        for fault in FAULTS {
            libc::sigdelset(all.as_mut_ptr(), fault);
        }
        let refused = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
    }
    let started = start();
    // SAFETY: the mask that was in force above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut()) };
    started
}

#[cfg(test)]
mod tests {
    fn blocked() -> u64 {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    }

    /// Signals are blocked on the thread, but for its own faults, and as before on the one that
    /// started it.
    #[test]
    fn signals_are_blocked_on_the_new_thread_only() {
        let before = blocked();
        let (sender, receiver) = std::sync::mpsc::channel();
        super::spawn("quiet", move || sender.send(blocked()).unwrap()).unwrap().join().unwrap();
        assert_eq!(blocked(), before);
        let bit = |signal: i32| 1 << (signal - 1);
        let quiet = receiver.recv().unwrap();
        assert_ne!(quiet & bit(libc::SIGTERM), 0);
        for fault in super::FAULTS {
            assert_eq!(quiet & bit(fault), 0, "signal {fault}");
        }
        let mut in_scope = 0;
        std::thread::scope(|scope| {
            super::spawn_scoped(scope, "quiet", || in_scope = blocked()).unwrap().join().unwrap();
        });
        assert_eq!(blocked(), before);
        assert_eq!(in_scope, quiet);
    }
}
