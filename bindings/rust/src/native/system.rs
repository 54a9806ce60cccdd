//! Signals and standard error, for a signal handler too, and what a thread is called.
//!
//! Invariant: no `errno`. What `rustix` does not offer without the standard library is asked of the
//! kernel by number.

use holdfast_pkeys::system_call;
use rustix::fd::BorrowedFd;

const SYS_RT_SIGACTION: usize = 13;
const SYS_GETPID: usize = 39;
const SYS_TGKILL: usize = 234;
const ESRCH: i32 = 3;
const SIGSET_BYTES: usize = 8;

/// A thread of this process. One that ended may have given both numbers to another one: its control
/// block's place, soon; the system's number, after tens of thousands of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Thread {
    mark: u64,
    number: i32,
}

impl Thread {
    /// The calling one.
    pub(crate) fn current() -> Thread {
        let number = rustix::thread::gettid().as_raw_nonzero().get();
        Thread { mark: super::thread_mark(), number }
    }

    /// # Safety
    /// What the signal does must be harmless.
    unsafe fn send(self, signal: i32) -> Result<(), i32> {
        // SAFETY: per the contract.
        unsafe {
            let process = system_call(SYS_GETPID, [0; 4])?;
            system_call(SYS_TGKILL, [process, self.number as usize, signal as usize, 0]).map(drop)
        }
    }

    /// Whether this thread has ended, and the control block of another one lies in its place.
    pub(crate) fn is_succeeded_by(self, other: Thread) -> bool {
        self.mark == other.mark && self.number != other.number
    }

    /// Whether this thread has ended, as far as the system can tell.
    pub(crate) fn has_ended(self) -> bool {
        // SAFETY: signal 0 is none; it is looked whether it could be sent.
        unsafe { self.send(0) == Err(ESRCH) }
    }
}

/// `struct sigaction` of the kernel.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct SignalAction {
    pub(super) handler: usize,
    pub(super) flags: u64,
    pub(super) restorer: usize,
    pub(super) mask: u64,
}

/// What a signal does now.
pub(super) fn signal_action(signal: i32) -> Option<SignalAction> {
    let mut action = SignalAction { handler: 0, flags: 0, restorer: 0, mask: 0 };
    let place = (&raw mut action).expose_provenance();
    // SAFETY: the kernel writes one record of this form.
    let told = unsafe { system_call(SYS_RT_SIGACTION, [signal as usize, 0, place, SIGSET_BYTES]) };
    told.ok().map(|_| action)
}

/// Says what a signal does from now on.
///
/// # Safety
/// The action must be one that a signal handler may have.
pub(super) unsafe fn set_signal_action(signal: i32, action: &SignalAction) {
    let place = core::ptr::from_ref(action).expose_provenance();
    // SAFETY: the kernel reads one record of this form; the caller vouches for what it says. Where
    // it is refused the action stays as it was.
    let _ = unsafe { system_call(SYS_RT_SIGACTION, [signal as usize, place, 0, SIGSET_BYTES]) };
}

/// Sends the calling thread a signal. Async-signal-safe.
pub(super) fn send_to_this_thread(signal: i32) {
    // SAFETY: the caller wants what the signal does.
    let _ = unsafe { Thread::current().send(signal) };
}

/// Writes to standard error, as far as that takes it. Async-signal-safe.
pub(super) fn say(text: &[u8]) {
    // SAFETY: if nothing is open there, the kernel says so.
    let standard_error = unsafe { BorrowedFd::borrow_raw(2) };
    let _ = rustix::io::write(standard_error, text);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_there_until_it_ends() {
        let (tell, hear) = std::sync::mpsc::channel();
        let (end, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(Thread::current()).unwrap();
            let _ = wait.recv();
        });
        let other = hear.recv().unwrap();
        assert!(other != Thread::current() && !other.has_ended());
        end.send(()).unwrap();
        thread.join().unwrap();
        // The kernel may take a moment after the join.
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !other.has_ended() && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(other.has_ended());
    }
}
