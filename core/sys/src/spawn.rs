//! A child process that makes a prepared list of system calls, the last of which replaces it by a
//! program.
//!
//! The child shares the memory of its parent until then (`CLONE_VM`), so nothing is copied, however
//! large the parent is. Therefore it may do nothing but make system calls: no allocation, no lock,
//! no thread-local storage (it has the one of the thread that started it), no libc.
//!
//! Invariants:
//! - Whatever the list points to stays valid until [`Child::wait`] has returned [`Progress::Gone`]:
//!   the child has left the memory then, as the program or as a dead process. A [`Child`] that is
//!   dropped earlier is killed first.
//! - It is reaped as well, unless [`Child::hand_over`] left that to other code.
//! - A call of the list that fails ends the child: no later call is made.
//! - The parent's signal handlers never run in the child: the caller of [`Steps::start`] has all
//!   signals blocked.

mod steps;

use std::any::Any;
use std::ffi::{c_int, c_long};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use rustix::process::Signal;

pub use steps::{MountChange, ResourceLimit, Steps};

const STACK_BYTES: usize = 64 << 10;
/// The child is at its list.
const SETTING_UP: u32 = 1;
/// The child has come to the end of [`Steps::install_filter`]. Once it has left the parent's memory
/// the kernel itself puts a zero in place of this.
const ANNOUNCED: u32 = 2;
/// The child has come to its first [`Steps::await_parent`]; to the second with one more.
const ARRIVED: u32 = 3;
/// How long a child waits before it looks again whether its parent still lives.
static LOOK: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 50_000_000 };
const NO_STEP: u32 = u32::MAX;
const FUTEX_WAIT: usize = 0;
const FUTEX_WAKE: usize = 1;

/// What a call must return for the child to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expect {
    /// No error.
    Success,
    /// No error but this one.
    SuccessOr(i32),
}

/// An entry of the list.
#[derive(Debug, Clone, Copy)]
enum Item {
    /// A system call.
    Call {
        /// Its number.
        number: c_long,
        /// Its arguments.
        arguments: [usize; 6],
        /// What it must return.
        expect: Expect,
    },
    /// Tells the parent, and waits for [`Child::let_go`].
    AwaitParent {
        /// How many of these there are up to this one.
        number: u32,
        /// A `pollfd` with the parent's pidfd.
        alive: usize,
    },
    /// Tells the parent, which learns what the last call returned.
    Announce,
    /// Fails with this error number.
    Fail(i32),
}

/// What the child and its parent tell each other.
#[derive(Debug)]
#[repr(C)]
struct Shared {
    /// [`SETTING_UP`], [`ARRIVED`] and more, [`ANNOUNCED`] or zero; a futex.
    state: AtomicU32,
    /// How many [`Item::AwaitParent`] the child may pass; a futex.
    gate: AtomicU32,
    /// Where in the list the child is.
    at: AtomicU32,
    /// Where it failed.
    failed_at: AtomicU32,
    /// The error number of that step.
    errno: AtomicI32,
    /// What the last call returned.
    result: AtomicI32,
}

/// What the child is given; read-only for it.
struct Orders {
    items: *const Item,
    count: usize,
    shared: *const Shared,
}

/// Memory for the child's stack; a page below it faults.
#[derive(Debug)]
struct Stack(NonNull<u8>);

// SAFETY: the value is the only one that knows this memory, and it belongs to no thread.
unsafe impl Send for Stack {}

impl Stack {
    fn new() -> io::Result<Stack> {
        let flags = MapFlags::PRIVATE | MapFlags::STACK;
        // SAFETY: a fresh anonymous mapping, of which the lowest page is made inaccessible.
        let base = unsafe {
            let base = rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                STACK_BYTES,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )?;
            rustix::mm::mprotect(base, rustix::param::page_size(), MprotectFlags::empty())?;
            base
        };
        NonNull::new(base.cast()).map(Stack).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    fn top(&self) -> usize {
        self.0.as_ptr() as usize + STACK_BYTES
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, which nothing uses any more. That it cannot fail is for the
        // kernel to keep.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), STACK_BYTES) };
    }
}

/// What a started child uses, to be kept until it is gone.
struct Script {
    items: Vec<Item>,
    stack: Stack,
    shared: Box<Shared>,
    _kept: Vec<Box<dyn Any + Send>>,
}

/// A started child.
pub struct Child {
    pid: u32,
    pidfd: Arc<OwnedFd>,
    /// It has left the memory.
    gone: bool,
    /// Other code reaps it.
    handed_over: bool,
    names: Vec<&'static str>,
    script: Script,
}

/// What a child has come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It has installed its filter; this is the listener's number among its descriptors.
    Announced(i32),
    /// It has left the parent's memory.
    Gone,
    /// Nothing new within the time.
    Nothing,
}

impl Script {
    fn new(items: Vec<Item>, kept: Vec<Box<dyn Any + Send>>) -> io::Result<Script> {
        let shared = Shared {
            state: AtomicU32::new(SETTING_UP),
            gate: AtomicU32::new(0),
            at: AtomicU32::new(0),
            failed_at: AtomicU32::new(NO_STEP),
            errno: AtomicI32::new(0),
            result: AtomicI32::new(0),
        };
        Ok(Script { items, stack: Stack::new()?, shared: Box::new(shared), _kept: kept })
    }

    /// Starts the child.
    ///
    /// # Safety
    /// Every pointer among the items is null, or points to what is kept with them on the heap or to
    /// what lives as long as the process, and is valid for what its call does with it. No call
    /// makes the child run code other than the list, return from a signal handler, or change the
    /// parent's memory beyond that. Every signal is blocked.
    unsafe fn start(self, flags: c_int, names: Vec<&'static str>) -> io::Result<Child> {
        let orders = Orders {
            items: self.items.as_ptr(),
            count: self.items.len(),
            shared: &raw const *self.shared,
        };
        // The child's own copy, at the top of its stack: this function's frame is gone before the
        // child is.
        let top = (self.stack.top() - size_of::<Orders>()) & !15;
        let mut pidfd: c_int = -1;
        let flags = flags | libc::CLONE_VM | libc::CLONE_PIDFD | libc::CLONE_CHILD_CLEARTID;
        // SAFETY: `top` is within the stack, aligned, with room for the orders. The child runs
        // `child_main` on that stack only; what the orders point to lives in `self`, which goes
        // into the `Child`, whose drop waits for the child to be gone.
        let pid = unsafe {
            (top as *mut Orders).write(orders);
            clone_onto(flags, top, &raw mut pidfd, self.shared.state.as_ptr())
        };
        if pid < 0 {
            return Err(io::Error::from_raw_os_error(-pid as i32));
        }
        // SAFETY: the kernel put a fresh descriptor there.
        let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
        Ok(Child {
            pid: pid as u32,
            pidfd: Arc::new(pidfd),
            gone: false,
            handed_over: false,
            names,
            script: self,
        })
    }
}

impl Child {
    /// Its PID.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// A descriptor of it.
    #[must_use]
    pub fn pidfd(&self) -> &Arc<OwnedFd> {
        &self.pidfd
    }

    /// Waits until it has come to its n-th [`Steps::await_parent`], counted from 1; false when it
    /// is gone or has not by then.
    #[must_use]
    pub fn has_arrived(&mut self, number: u32, timeout: Duration) -> bool {
        self.wait_for(ARRIVED + number - 1, timeout) == Some(true)
    }

    /// Lets it pass its n-th [`Steps::await_parent`]. That this process could do so after the child
    /// has arrived there proves that the child dies with it: no thread of this process had begun to
    /// die unnoticed.
    pub fn let_go(&self, number: u32) {
        let gate = &self.script.shared.gate;
        gate.store(number, Ordering::Release);
        // SAFETY: the word is valid; waking touches nothing.
        unsafe { system_call(libc::SYS_futex, [gate.as_ptr() as usize, FUTEX_WAKE, 1, 0, 0, 0]) };
    }

    /// Waits until it has installed its filter, is gone, or the time is over.
    pub fn wait(&mut self, timeout: Duration) -> Progress {
        match self.wait_for(ANNOUNCED, timeout) {
            Some(true) => Progress::Announced(self.script.shared.result.load(Ordering::Acquire)),
            Some(false) => Progress::Gone,
            None => Progress::Nothing,
        }
    }

    /// Waits until it is gone, or the time is over.
    pub fn wait_until_gone(&mut self, timeout: Duration) -> bool {
        self.wait_for(0, timeout).is_some()
    }

    /// Whether it came to this state, or is gone without; nothing when the time is over.
    fn wait_for(&mut self, wanted: u32, timeout: Duration) -> Option<bool> {
        let end = Instant::now() + timeout;
        let shared = &self.script.shared;
        loop {
            let state = shared.state.load(Ordering::Acquire);
            self.gone = state == 0;
            if state == wanted || state == 0 {
                return Some(state == wanted);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            let time = libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            };
            let word = shared.state.as_ptr() as usize;
            // SAFETY: word and time are valid for the call. Not the private kind: the kernel's own
            // wake is not.
            unsafe {
                system_call(
                    libc::SYS_futex,
                    [word, FUTEX_WAIT, state as usize, &raw const time as usize, 0, 0],
                )
            };
        }
    }

    /// Leaves it to other code to kill and to reap it; false while it has not left the parent's
    /// memory.
    #[must_use]
    pub fn hand_over(&mut self) -> bool {
        self.handed_over = self.gone;
        self.gone
    }

    /// Which step failed, and its error number.
    #[must_use]
    pub fn failure(&self) -> Option<(&'static str, i32)> {
        let failed_at = self.script.shared.failed_at.load(Ordering::Acquire);
        if failed_at == NO_STEP {
            return None;
        }
        Some((self.name(failed_at), self.script.shared.errno.load(Ordering::Acquire)))
    }

    /// Which step it is at.
    #[must_use]
    pub fn position(&self) -> &'static str {
        self.name(self.script.shared.at.load(Ordering::Acquire))
    }

    fn name(&self, at: u32) -> &'static str {
        self.names.get(at as usize).copied().unwrap_or("start")
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if self.handed_over {
            return;
        }
        loop {
            // It cannot refuse; what it waits for in the kernel ends with that signal.
            let _ = rustix::process::pidfd_send_signal(&*self.pidfd, Signal::KILL);
            if self.gone || self.wait_until_gone(Duration::from_secs(1)) {
                break;
            }
        }
        // When it fails, other code has reaped it.
        let _ = crate::child::reap(self.pid, true);
    }
}

impl std::fmt::Debug for Child {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Child").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// Makes a system call: the kernel's answer, errors as negative numbers.
///
/// # Safety
/// As the call demands.
#[inline(always)]
unsafe fn system_call(number: c_long, arguments: [usize; 6]) -> isize {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let result: isize;
    // SAFETY: the caller's contract; the kernel changes rax, rcx and r11 only.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            in("r8") fifth,
            in("r9") sixth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// `clone(2)`; the child calls [`child_main`] with the orders at `top`.
///
/// # Safety
/// Orders lie at `top`, which is aligned to 16 bytes and has a stack of the child's own below it;
/// both they and what they point to stay until the child is gone.
unsafe fn clone_onto(flags: c_int, top: usize, pidfd: *mut c_int, state: *mut u32) -> isize {
    let result: isize;
    // SAFETY: in the parent this is a system call like any other. In the child, which has the
    // registers of the parent and the stack at `top`, control never leaves the block: `child_main`
    // does not return.
    unsafe {
        std::arch::asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r12",
            "call r13",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone as isize => result,
            in("rdi") flags as isize,
            in("rsi") top,
            in("rdx") pidfd,
            in("r10") state,
            in("r8") 0,
            in("r12") top,
            in("r13") child_main as unsafe extern "C" fn(*const Orders) -> !,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    result
}

/// What the child does.
///
/// # Safety
/// Only for [`clone_onto`].
unsafe extern "C" fn child_main(orders: *const Orders) -> ! {
    // SAFETY: the parent keeps all of it until this process is gone; it reads what is atomic only.
    let (items, shared) = unsafe {
        let orders = &*orders;
        (std::slice::from_raw_parts(orders.items, orders.count), &*orders.shared)
    };
    let mut at = 0_u32;
    for item in items {
        shared.at.store(at, Ordering::Release);
        let errno = match item {
            Item::Call { number, arguments, expect } => {
                // SAFETY: the contract of `Script::new`.
                let result = unsafe { system_call(*number, *arguments) };
                shared.result.store(result as i32, Ordering::Release);
                refused(result, *expect)
            }
            Item::AwaitParent { number, alive } => {
                // SAFETY: as in the function's contract; the `pollfd` is kept with the items.
                unsafe {
                    tell(shared, (ARRIVED - 1).wrapping_add(*number));
                    await_parent(shared, *number, *alive)
                }
            }
            Item::Announce => {
                // SAFETY: as in the function's contract.
                unsafe { tell(shared, ANNOUNCED) };
                0
            }
            Item::Fail(errno) => *errno,
        };
        if errno != 0 {
            shared.errno.store(errno, Ordering::Release);
            shared.failed_at.store(at, Ordering::Release);
            break;
        }
        at = at.wrapping_add(1);
    }
    loop {
        // SAFETY: ends this process; `exit_group` has no pointers.
        unsafe { system_call(libc::SYS_exit_group, [127, 0, 0, 0, 0, 0]) };
    }
}

/// Changes the state, and wakes the parent.
///
/// # Safety
/// Only for [`child_main`].
unsafe fn tell(shared: &Shared, state: u32) {
    shared.state.store(state, Ordering::Release);
    // SAFETY: the word is valid; waking touches nothing.
    unsafe {
        system_call(libc::SYS_futex, [shared.state.as_ptr() as usize, FUTEX_WAKE, 1, 0, 0, 0])
    };
}

/// Waits until the parent opens the gate, or is dead: then it is "no such process".
///
/// # Safety
/// Only for [`child_main`]; `alive` is a `pollfd`.
unsafe fn await_parent(shared: &Shared, number: u32, alive: usize) -> i32 {
    loop {
        let open = shared.gate.load(Ordering::Acquire);
        if open >= number {
            return 0;
        }
        // SAFETY: word, time and `pollfd` are valid.
        let dead = unsafe {
            let word = shared.gate.as_ptr() as usize;
            let time = &raw const LOOK as usize;
            system_call(libc::SYS_futex, [word, FUTEX_WAIT, open as usize, time, 0, 0]);
            system_call(libc::SYS_poll, [alive, 1, 0, 0, 0, 0])
        };
        if dead != 0 {
            return libc::ESRCH;
        }
    }
}

/// The error number for which the child has to stop, or 0.
fn refused(result: isize, expect: Expect) -> i32 {
    let errno = if result < 0 { -(result as i32) } else { 0 };
    match expect {
        Expect::Success => errno,
        Expect::SuccessOr(tolerated) if errno == tolerated => 0,
        Expect::SuccessOr(_) => errno,
    }
}
