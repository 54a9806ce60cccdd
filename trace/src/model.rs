//! The data model: events, calls, and the parts of a call's time. Plain data, the same from every
//! backend.
//!
//! All times are nanoseconds; all instants are of `CLOCK_MONOTONIC`. Numbers of processes and
//! threads are the kernel's, as the tracer's PID name space has them; the kernel gives a number
//! anew once its bearer is gone, so a number means the thread of the last [`Event::Began`] with it.
//!
//! Order: the events of one thread come in the order in which they happened. Those of several
//! threads come roughly so: a reader that needs them in order sorts by their instants.

use serde::{Deserialize, Serialize};

/// Where the time of one call went. The parts are disjoint, and their sum is [`Split::wall_ns`].
///
/// `Split::default()` is no time at all.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// From the entry into the kernel to the return.
    pub wall_ns: u64,
    /// On a CPU.
    pub cpu_ns: u64,
    /// Asleep until something happens (the kernel's state S): a timer, a message, another thread, a
    /// signal; also stopped (T). This is what the study of 2017
    /// ([`crate::report::study::CITATION`]) wanted to exclude.
    pub sleep_ns: u64,
    /// Waiting uninterruptibly (the state D) for something that is no device: the child of vfork, a
    /// lock.
    pub wait_ns: u64,
    /// Waiting uninterruptibly for a device (D with the kernel's `in_iowait`). Never to be
    /// excluded: this is the device's cost.
    pub io_wait_ns: u64,
    /// Ready to run while others had the CPUs.
    pub queue_ns: u64,
}

impl Split {
    /// The split with these parts; the wall time is their sum.
    pub fn of(cpu_ns: u64, sleep_ns: u64, wait_ns: u64, io_wait_ns: u64, queue_ns: u64) -> Split {
        let parts = [cpu_ns, sleep_ns, wait_ns, io_wait_ns, queue_ns];
        let wall_ns = parts.into_iter().fold(0, u64::saturating_add);
        Split { wall_ns, cpu_ns, sleep_ns, wait_ns, io_wait_ns, queue_ns }
    }

    /// All time off the CPU that the call itself asked for: asleep, waiting, waiting for a device.
    pub fn blocked_ns(&self) -> u64 {
        self.sleep_ns.saturating_add(self.wait_ns).saturating_add(self.io_wait_ns)
    }
}

impl std::ops::AddAssign for Split {
    /// Sums saturate: they are for totals.
    fn add_assign(&mut self, other: Split) {
        self.wall_ns = self.wall_ns.saturating_add(other.wall_ns);
        self.cpu_ns = self.cpu_ns.saturating_add(other.cpu_ns);
        self.sleep_ns = self.sleep_ns.saturating_add(other.sleep_ns);
        self.wait_ns = self.wait_ns.saturating_add(other.wait_ns);
        self.io_wait_ns = self.io_wait_ns.saturating_add(other.io_wait_ns);
        self.queue_ns = self.queue_ns.saturating_add(other.queue_ns);
    }
}

/// Through which door a call came; it says what [`Call::number`] means. A 64-bit program may use
/// all three.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Abi {
    /// The `syscall` instruction: numbers of `asm/unistd_64.h`.
    X86_64,
    /// `int 0x80` or a 32-bit program's `sysenter`: numbers of `asm/unistd_32.h`.
    I386,
    /// `syscall` with bit 30 set: numbers of `asm/unistd_x32.h`, here without that bit.
    X32,
}

/// What the descriptor is that a call works on: the first descriptor among its arguments (see
/// [`crate::descriptor_argument`]). Calls that make a descriptor (`openat`) are not about the one
/// they make.
#[derive(
    Debug, Default, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub enum Object {
    /// The call takes no descriptor, or was given none (`AT_FDCWD`, -1).
    #[default]
    None,
    /// There is one (or was: the number was not open), and what it is could not be seen.
    Unknown,
    /// A regular file, memfds included.
    File,
    /// A directory.
    Directory,
    /// A block device.
    BlockDevice,
    /// A character device that is no terminal: `/dev/null`, `/dev/dri`.
    CharacterDevice,
    /// A terminal, pseudo-terminals included.
    Terminal,
    /// A pipe or FIFO.
    Pipe,
    /// A socket of any family.
    Socket,
    /// An eventfd.
    EventFd,
    /// A timerfd.
    TimerFd,
    /// A signalfd.
    SignalFd,
    /// An epoll instance.
    Epoll,
    /// An inotify or fanotify instance.
    Notify,
    /// A pidfd.
    PidFd,
    /// An io_uring.
    IoUring,
    /// Memory without a file: `mmap` with `MAP_ANONYMOUS`.
    Anonymous,
    /// Anything else that has a descriptor: userfaultfd, BPF, perf, KVM.
    Other,
}

/// One system call of one thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// The process (the kernel's thread group).
    pub process: u32,
    /// The thread.
    pub thread: u32,
    /// What [`Call::number`] means.
    pub abi: Abi,
    /// The call's number; -1 as `u32::MAX` and others that name no call are kept as they were.
    pub number: u32,
    /// The registers that carry arguments; of those that the call does not use, some backends leave
    /// the last ones zero. In 32-bit calls the upper halves are zero.
    pub arguments: [u64; 6],
    /// What it returned: a negative value from -4095 on is an error number. None if it did not
    /// return: the thread ended in it (`exit`, or killed), or the trace ended before it did. The
    /// kernel's own codes for a call that begins again (`ERESTARTSYS` 512 and its like) are kept:
    /// the program never sees them. [`Call::TRAPPED`] if it was not made.
    pub result: Option<i64>,
    /// The entry into the kernel.
    pub start_ns: u64,
    /// Where its time went, up to its return, the end of the thread or the end of the trace.
    pub time: Split,
    /// What its descriptor argument is.
    pub object: Object,
    /// This call goes on with one that a signal or a stop interrupted: the one before of this
    /// thread, which ended with a code for beginning again. Programs made one call of both.
    pub restarted: bool,
}

impl Call {
    /// The [`Call::result`] of a call that was not made: a seccomp filter had the kernel send SIGSYS
    /// in its place (`SECCOMP_RET_TRAP`), and a handler of the program decides what it returns. No
    /// error number, and no count of bytes.
    pub const TRAPPED: i64 = i64::MIN;

    /// The error number, if the call failed.
    pub fn error(&self) -> Option<i32> {
        match self.result {
            Some(code @ -4095..=-1) if !self.returns_from_handler() => i32::try_from(-code).ok(),
            _ => None,
        }
    }

    /// Whether it is `rt_sigreturn` or `sigreturn`, which never fail. What they return is what the
    /// signal found in the register of results: anything, or the EINTR of the call before.
    fn returns_from_handler(&self) -> bool {
        matches!(
            (self.abi, self.number),
            (Abi::X86_64, 15) | (Abi::X32, 513) | (Abi::I386, 119 | 173)
        )
    }

    /// Whether it failed. The kernel's own codes for a call that begins again are no failure.
    pub(crate) fn has_failed(&self) -> bool {
        self.error().is_some_and(|code| !begins_again(code))
    }

    /// The call's name, or `syscall_N` where it has none.
    pub fn name(&self) -> std::borrow::Cow<'static, str> {
        crate::call_name(self.abi, self.number)
    }
}

/// Whether an error number is one of the kernel's own (ERESTARTSYS, ERESTARTNOINTR, ERESTARTNOHAND,
/// ERESTART_RESTARTBLOCK): the call goes on, and has not failed.
pub(crate) fn begins_again(code: i32) -> bool {
    matches!(code, 512 | 513 | 514 | 516)
}

/// How a process or thread ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum End {
    /// It exited with this status, 0 to 255.
    Exited(u8),
    /// This signal ended it.
    Killed(u8),
}

/// Something that happened in the traced program, or to the trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A system call, at its end.
    Call(Call),
    /// A thread is traced from here on: it was made, or was there when the trace began. `thread ==
    /// process` for the first thread of a process.
    Began {
        /// The time, in nanoseconds.
        at_ns: u64,
        /// Its process.
        process: u32,
        /// The thread.
        thread: u32,
        /// For a first thread the process that made this one, for others their own process; 0 if
        /// not known.
        parent: u32,
        /// Its name as the kernel has it, 15 bytes at most; empty if not known.
        command: String,
    },
    /// A process runs another program now. Its threads are gone but one, which has the process's
    /// number now.
    Exec {
        /// The time, in nanoseconds.
        at_ns: u64,
        /// The process.
        process: u32,
        /// Which of its threads did it; that number is gone, unless it is the process's own.
        former_thread: u32,
        /// The program's name as the kernel has it, 15 bytes at most; empty if not known.
        command: String,
    },
    /// A thread ended. Nothing comes after this with its number until another [`Event::Began`].
    Ended {
        /// The time, in nanoseconds.
        at_ns: u64,
        /// Its process.
        process: u32,
        /// The thread.
        thread: u32,
        /// How; None if it could not be seen (the thread was gone by an exec of another one).
        end: Option<End>,
    },
    /// What a thread used in all, calls and its own code together, while it was traced: once per
    /// thread, before [`Event::Ended`] or at the end of the trace. What its calls had on the CPU is
    /// a part of it; the rest is the program's own code (and page faults).
    ThreadTime {
        /// The time, in nanoseconds.
        at_ns: u64,
        /// Its process.
        process: u32,
        /// The thread.
        thread: u32,
        /// On a CPU.
        cpu_ns: u64,
        /// Ready to run while others had the CPUs.
        queue_ns: u64,
    },
    /// A signal was delivered to a thread.
    Signal {
        /// The time, in nanoseconds.
        at_ns: u64,
        /// Its process.
        process: u32,
        /// The thread.
        thread: u32,
        /// The number of the signal.
        signal: u8,
    },
    /// Events that the backend could not keep.
    Lost {
        /// How many, since the last event of this kind.
        events: u64,
    },
    /// Operations that went through an io_uring and so are no calls.
    IoUring {
        /// When they were counted.
        at_ns: u64,
        /// The process that queued them.
        process: u32,
        /// The thread.
        thread: u32,
        /// The operation, as `IORING_OP_*`.
        opcode: u8,
        /// How many since the last event with this process, thread and opcode.
        count: u64,
    },
}

impl Event {
    /// When it happened; a call counts by its beginning.
    pub fn at_ns(&self) -> Option<u64> {
        match self {
            Event::Call(call) => Some(call.start_ns),
            Event::Began { at_ns, .. }
            | Event::Exec { at_ns, .. }
            | Event::Ended { at_ns, .. }
            | Event::ThreadTime { at_ns, .. }
            | Event::Signal { at_ns, .. }
            | Event::IoUring { at_ns, .. } => Some(*at_ns),
            Event::Lost { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(result: Option<i64>) -> Call {
        Call {
            process: 1,
            thread: 1,
            abi: Abi::X86_64,
            number: 0,
            arguments: [0; 6],
            result,
            start_ns: 0,
            time: Split::default(),
            object: Object::None,
            restarted: false,
        }
    }

    #[test]
    fn the_parts_of_a_time_add_up_to_its_wall_time() {
        let mut sum = Split::of(1, 2, 3, 4, 5);
        assert_eq!((sum.wall_ns, sum.blocked_ns()), (15, 9));
        sum += Split::of(u64::MAX, 0, 0, 0, 1);
        assert_eq!((sum.cpu_ns, sum.queue_ns, sum.wall_ns), (u64::MAX, 6, u64::MAX));
    }

    #[test]
    fn only_the_last_4095_values_are_errors() {
        assert_eq!(call(Some(-2)).error(), Some(2));
        assert_eq!(call(Some(-4095)).error(), Some(4095));
        for no_error in [None, Some(0), Some(5), Some(-4096), Some(i64::MIN)] {
            assert_eq!(call(no_error).error(), None);
        }
        let failed = [-4, -512, -513, -514, -515, -516].map(|code| call(Some(code)).has_failed());
        assert_eq!(failed, [true, false, false, false, true, false]);
        assert!(call(Some(Call::TRAPPED)).error().is_none());
    }

    /// The return from a handler gives back what the signal found: no error of its own.
    ///
    /// Guarantee: trace/every-call
    #[test]
    fn return_from_a_handler_is_no_error() {
        for (abi, number) in
            [(Abi::X86_64, 15), (Abi::X32, 513), (Abi::I386, 119), (Abi::I386, 173)]
        {
            let call = Call { abi, number, ..call(Some(-4)) };
            assert!(call.error().is_none() && !call.has_failed(), "{}", call.name());
            assert!(call.name().ends_with("sigreturn"), "{}", call.name());
        }
        assert_eq!(Call { number: 513, ..call(Some(-38)) }.error(), Some(38));
    }
}
