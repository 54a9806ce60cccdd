//! A thread of a library in a program that is not ours: no signal of the program is ever handled on
//! it.

#![allow(unsafe_code, reason = "signal masks are in no safe library")]

use std::io;
use std::mem::MaybeUninit;
use std::thread::{Builder, JoinHandle};

/// Starts a thread on which all signals are blocked. The caller's own mask is as before.
///
/// # Errors
/// What the kernel reports: no memory, too many threads.
pub fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `sigfillset` fills the set, and `pthread_sigmask` reads it and fills the other.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        let refused = libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        if refused != 0 {
            return Err(io::Error::from_raw_os_error(refused));
        }
    }
    let started = Builder::new().name(name.to_owned()).spawn(work);
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

    /// Signals are blocked on the thread and as before on the one that started it.
    #[test]
    fn signals_are_blocked_on_the_new_thread_only() {
        let before = blocked();
        let (sender, receiver) = std::sync::mpsc::channel();
        super::spawn("quiet", move || sender.send(blocked()).unwrap()).unwrap().join().unwrap();
        assert_eq!(blocked(), before);
        // SIGTERM is 15.
        assert_ne!(receiver.recv().unwrap() & 1 << 14, 0);
    }
}
