//! System calls that no library offers without the standard library, and what a thread is called.
//!
//! Invariant: no `errno`; a code is returned as the kernel has it, negated.

use core::arch::asm;

const SYS_WRITE: usize = 1;
const SYS_RT_SIGACTION: usize = 13;
const SYS_GETPID: usize = 39;
const SYS_TGKILL: usize = 234;
const ESRCH: isize = 3;
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

    /// Whether this thread has ended, and the control block of another one lies in its place.
    pub(crate) fn is_succeeded_by(self, other: Thread) -> bool {
        self.mark == other.mark && self.number != other.number
    }

    /// Whether this thread has ended, as far as the system can tell.
    pub(crate) fn has_ended(self) -> bool {
        // SAFETY: signal 0 is none; it is looked whether it could be sent.
        let answer = unsafe {
            let process = syscall(SYS_GETPID, [0; 4]) as usize;
            syscall(SYS_TGKILL, [process, self.number as usize, 0, 0])
        };
        answer == -ESRCH
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
    let answer = unsafe { syscall(SYS_RT_SIGACTION, [signal as usize, 0, place, SIGSET_BYTES]) };
    (answer == 0).then_some(action)
}

/// Says what a signal does from now on.
///
/// # Safety
/// The action must be one that a signal handler may have.
pub(super) unsafe fn set_signal_action(signal: i32, action: &SignalAction) {
    let place = core::ptr::from_ref(action).expose_provenance();
    // SAFETY: the kernel reads one record of this form; the caller vouches for what it says. Where
    // it is refused the action stays as it was.
    unsafe { syscall(SYS_RT_SIGACTION, [signal as usize, place, 0, SIGSET_BYTES]) };
}

/// Sends the calling thread a signal. Async-signal-safe.
pub(super) fn send_to_this_thread(signal: i32) {
    let thread = Thread::current().number as usize;
    // SAFETY: the caller wants what the signal does.
    unsafe {
        let process = syscall(SYS_GETPID, [0; 4]) as usize;
        syscall(SYS_TGKILL, [process, thread, signal as usize, 0]);
    }
}

/// Writes to standard error, as far as that takes it. Async-signal-safe.
pub(super) fn say(text: &[u8]) {
    // SAFETY: the kernel reads so many live bytes.
    unsafe { syscall(SYS_WRITE, [2, text.as_ptr().expose_provenance(), text.len(), 0]) };
}

/// # Safety
/// The call must be harmless with these arguments.
unsafe fn syscall(number: usize, arguments: [usize; 4]) -> isize {
    let [first, second, third, fourth] = arguments;
    let answer;
    // SAFETY: the kernel's convention on x86-64; the caller vouches for what it does.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
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
