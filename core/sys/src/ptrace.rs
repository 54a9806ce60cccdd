//! Tracing other processes with ptrace(2): starting or seizing them, waiting for their stops,
//! letting them go on.
//!
//! Only `PTRACE_SEIZE` is used: a stop of the whole process (job control) is distinguished from a
//! signal, and attaching sends no signal. `PTRACE_O_EXITKILL` is never set: a traced program
//! outlives its tracer.
//!
//! A tracee belongs to the thread that seized it, and [`wait`] tells of the tracees and children of
//! the calling thread only. All requests but [`seize`] and [`interrupt`] are for a tracee that is
//! stopped.

mod start;

use std::ffi::{c_int, c_long, c_void};
use std::io;

pub use start::{Started, Task, start};

/// What a seized thread tells of itself, and that its children are seized as well.
const OPTIONS: c_int = libc::PTRACE_O_TRACESYSGOOD
    | libc::PTRACE_O_TRACECLONE
    | libc::PTRACE_O_TRACEFORK
    | libc::PTRACE_O_TRACEVFORK
    | libc::PTRACE_O_TRACEEXEC
    | libc::PTRACE_O_TRACEEXIT;
const PTRACE_GET_SYSCALL_INFO: c_int = 0x420e;
const INFO_ENTRY: u8 = 1;
const INFO_EXIT: u8 = 2;
/// `AUDIT_ARCH_X86_64`.
pub const ARCH_X86_64: u32 = 0xc000_003e;
/// `AUDIT_ARCH_I386`.
pub const ARCH_I386: u32 = 0x4000_0003;

/// Something that happened to a tracee or child of this thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PtraceEvent {
    /// It stopped at the entry or the exit of a system call: [`at_call`] tells which.
    AtCall,
    /// It made another one, whose number [`event_message`] tells: by fork, vfork, or clone.
    Made(Made),
    /// It runs another program; [`event_message`] tells which number the thread had that called
    /// exec.
    Exec,
    /// It is about to end; everything of it can still be looked at.
    Exiting,
    /// It stopped with its whole process, by this signal: [`listen`] leaves it stopped.
    GroupStop(c_int),
    /// It stopped for the tracer: at its beginning, after [`interrupt`], when a group stop ended.
    Trap,
    /// This signal is about to be delivered to it; it is when [`resume`] names it.
    Signal(c_int),
    /// It ended by itself, with this status.
    Exited(c_int),
    /// This signal ended it.
    Killed(c_int),
}

/// By which call a thread or process was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Made {
    /// fork: a process.
    Fork,
    /// vfork: a process, for which its maker waits.
    Vfork,
    /// clone: a thread or a process.
    Clone,
}

/// Waits until something happens to any tracee or child of this thread; None if a signal handler
/// ran instead.
///
/// # Errors
/// `ECHILD` when there are none.
pub fn wait() -> io::Result<Option<(u32, PtraceEvent)>> {
    let mut status: c_int = 0;
    // SAFETY: the pointer is valid for the call.
    let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
    if tid < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::Interrupted { Ok(None) } else { Err(error) };
    }
    Ok(Some((tid as u32, happened(status))))
}

fn happened(status: c_int) -> PtraceEvent {
    if libc::WIFEXITED(status) {
        return PtraceEvent::Exited(libc::WEXITSTATUS(status));
    }
    if libc::WIFSIGNALED(status) {
        return PtraceEvent::Killed(libc::WTERMSIG(status));
    }
    let signal = libc::WSTOPSIG(status);
    match status >> 16 {
        libc::PTRACE_EVENT_FORK => PtraceEvent::Made(Made::Fork),
        libc::PTRACE_EVENT_VFORK => PtraceEvent::Made(Made::Vfork),
        libc::PTRACE_EVENT_CLONE => PtraceEvent::Made(Made::Clone),
        libc::PTRACE_EVENT_EXEC => PtraceEvent::Exec,
        libc::PTRACE_EVENT_EXIT => PtraceEvent::Exiting,
        libc::PTRACE_EVENT_STOP if signal == libc::SIGTRAP => PtraceEvent::Trap,
        libc::PTRACE_EVENT_STOP => PtraceEvent::GroupStop(signal),
        _ if signal == libc::SIGTRAP | 0x80 => PtraceEvent::AtCall,
        _ => PtraceEvent::Signal(signal),
    }
}

/// Where in a system call a stopped thread is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtCall {
    /// Before it.
    Entry {
        /// [`ARCH_X86_64`] or [`ARCH_I386`].
        arch: u32,
        /// Its number, with the bit of x32 if that is set.
        number: u64,
        /// Its arguments.
        arguments: [u64; 6],
        /// Behind the instruction that made it.
        instruction: u64,
        /// The stack pointer.
        stack: u64,
    },
    /// After it.
    Exit {
        /// What it returns.
        result: i64,
    },
    /// In none, or where the kernel does not say.
    Elsewhere,
}

/// `struct ptrace_syscall_info`; of the union as much as entries use.
#[repr(C)]
#[derive(Default)]
struct Info {
    op: u8,
    _pad: [u8; 3],
    arch: u32,
    instruction: u64,
    stack: u64,
    /// Of an exit the result.
    number: u64,
    arguments: [u64; 6],
}

/// Where in a call a stopped tracee is. The kernel answers once it is off its CPU: what is read of
/// its times afterwards stands still.
///
/// # Errors
/// `ESRCH` when it was killed or is not stopped; `EIO` before Linux 5.3.
pub fn at_call(tid: u32) -> io::Result<AtCall> {
    let mut info = Info::default();
    // SAFETY: the kernel writes at most the size that is given there.
    unsafe { request(PTRACE_GET_SYSCALL_INFO, tid, size_of::<Info>(), (&raw mut info).cast())? };
    Ok(match info.op {
        INFO_ENTRY => AtCall::Entry {
            arch: info.arch,
            number: info.number,
            arguments: info.arguments,
            instruction: info.instruction,
            stack: info.stack,
        },
        INFO_EXIT => AtCall::Exit { result: info.number as i64 },
        _ => AtCall::Elsewhere,
    })
}

/// Begins to trace a thread, which runs on.
///
/// # Errors
/// `EPERM` when that is not allowed, or it is traced already; `ESRCH` when there is no such thread.
pub fn seize(tid: u32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe { request(libc::PTRACE_SEIZE as c_int, tid, 0, OPTIONS as *mut c_void).map(drop) }
}

/// Has a tracee stop: [`PtraceEvent::Trap`], unless it stops for something else first.
///
/// # Errors
/// `ESRCH` when it is gone.
pub fn interrupt(tid: u32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe { request(libc::PTRACE_INTERRUPT as c_int, tid, 0, std::ptr::null_mut()).map(drop) }
}

/// Lets a stopped tracee run up to the entry or the exit of its next call; `signal` is delivered
/// unless it is 0.
///
/// # Errors
/// `ESRCH` when it was killed meanwhile.
pub fn resume(tid: u32, signal: c_int) -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe {
        request(libc::PTRACE_SYSCALL as c_int, tid, 0, signal as usize as *mut c_void).map(drop)
    }
}

/// Leaves a tracee in its group stop, and tells of its end.
///
/// # Errors
/// `ESRCH` when it was killed meanwhile.
pub fn listen(tid: u32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe { request(libc::PTRACE_LISTEN as c_int, tid, 0, std::ptr::null_mut()).map(drop) }
}

/// Ends the tracing of a stopped tracee, which goes on; `signal` is delivered unless it is 0.
///
/// # Errors
/// `ESRCH` when it was killed meanwhile.
pub fn detach(tid: u32, signal: c_int) -> io::Result<()> {
    // SAFETY: no memory is involved.
    unsafe {
        request(libc::PTRACE_DETACH as c_int, tid, 0, signal as usize as *mut c_void).map(drop)
    }
}

/// What goes with [`PtraceEvent::Made`] and [`PtraceEvent::Exec`]: the number of a thread.
///
/// # Errors
/// `ESRCH` when it was killed meanwhile.
pub fn event_message(tid: u32) -> io::Result<u32> {
    let mut message: libc::c_ulong = 0;
    // SAFETY: the kernel writes one word there.
    unsafe { request(libc::PTRACE_GETEVENTMSG as c_int, tid, 0, (&raw mut message).cast())? };
    Ok(message as u32)
}

/// The `si_code` of the signal that a tracee has stopped for, as sigaction(2) has it.
///
/// # Errors
/// `ESRCH` when it was killed meanwhile.
pub fn signal_code(tid: u32) -> io::Result<c_int> {
    // SAFETY: all zeros are a valid `siginfo_t`, and the kernel writes one there.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        request(libc::PTRACE_GETSIGINFO as c_int, tid, 0, (&raw mut info).cast())?;
        Ok(info.si_code)
    }
}

/// # Safety
/// As the request demands.
unsafe fn request(
    request: c_int,
    tid: u32,
    address: usize,
    data: *mut c_void,
) -> io::Result<c_long> {
    // SAFETY: the caller's contract.
    let result =
        unsafe { libc::syscall(libc::SYS_ptrace, request as c_long, tid as c_long, address, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Interrupts a [`wait`] of one thread from another one.
#[derive(Debug, Clone, Copy)]
pub struct WakeUp {
    thread: rustix::thread::Pid,
}

/// Ignored by default, so one that comes late does no harm.
const WAKING: c_int = libc::SIGURG;

impl WakeUp {
    /// Of the calling thread.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn here() -> io::Result<WakeUp> {
        extern "C" fn nothing(_: c_int) {}
        // SAFETY: all zeros are a valid `sigaction`; the handler does nothing. Without SA_RESTART,
        // which is the point.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(c_int) as usize;
            if libc::sigaction(WAKING, &raw const action, std::ptr::null_mut()) < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(WakeUp { thread: rustix::thread::gettid() })
    }

    /// Has a wait of that thread return. One that is about to begin may miss it: wake again.
    pub fn wake(&self) {
        let thread = self.thread.as_raw_nonzero().get();
        // SAFETY: no memory is involved; a thread that is gone is an error without effect.
        unsafe {
            libc::syscall(
                libc::SYS_tgkill,
                std::process::id() as c_long,
                c_long::from(thread),
                WAKING,
            )
        };
    }
}
