//! The handler itself, and how it gets on top of the process's other handlers.
//!
//! Invariants: async-signal-safe throughout (atomics and plain system calls only); a fault that is
//! not ours is passed on to the handler that was installed before.

use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::pages;
use super::table::{
    CODE, HIGH_WATER, HOLE, PAGE_WATCH, READ_WATCH, SLOTS, Slot, TABLE, WRITE_WATCH,
};

/// How much memory host accesses to one hole can cost, however large the hole is.
pub(super) const SCRATCH_BYTES: usize = 16 << 20;

// --- installation
// -----------------------------------------------------------------------------------

/// What was installed before us. Two levels, because a runtime (wasmtime) may put its handler over
/// ours and we then go on top of it again: its own "previous" is us, and must reach `original`, not
/// loop.
struct Chain {
    original: AtomicPtr<libc::sigaction>,
    latest: AtomicPtr<libc::sigaction>,
}

static SEGV_CHAIN: Chain = Chain {
    original: AtomicPtr::new(std::ptr::null_mut()),
    latest: AtomicPtr::new(std::ptr::null_mut()),
};
static BUS_CHAIN: Chain = Chain {
    original: AtomicPtr::new(std::ptr::null_mut()),
    latest: AtomicPtr::new(std::ptr::null_mut()),
};
static INSTALL: Mutex<()> = Mutex::new(());
/// How often memory was put under an access that must not be there.
static STAND_INS: AtomicU64 = AtomicU64::new(0);

/// Puts the handler on top of whatever handles SIGSEGV and SIGBUS now. Call it after the creation
/// of a wasmtime `Engine` (which installs a handler of its own, once per process) and before
/// mapping a region; calling it again costs two system calls and changes nothing.
///
/// # Errors
/// What `sigaction` reports.
pub fn install() -> io::Result<()> {
    let _one_at_a_time = INSTALL.lock().unwrap_or_else(PoisonError::into_inner);
    install_for(libc::SIGSEGV, &SEGV_CHAIN)?;
    install_for(libc::SIGBUS, &BUS_CHAIN)
}

fn install_for(signal: libc::c_int, chain: &Chain) -> io::Result<()> {
    // SAFETY: sigaction is plain data for which all-zero is valid; both calls get valid pointers.
    unsafe {
        let mut current: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(signal, std::ptr::null(), &mut current) != 0 {
            return Err(io::Error::last_os_error());
        }
        let ours: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
        if current.sa_sigaction == ours as usize {
            return Ok(());
        }
        // Leaked on purpose: the handler may read them at any time until the process ends, and
        // there are at most as many as there are runtimes in the process.
        let before = Box::into_raw(Box::new(current));
        if chain.original.load(Ordering::Acquire).is_null() {
            chain.original.store(before, Ordering::Release);
        }
        chain.latest.store(before, Ordering::Release);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ours as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        libc::sigemptyset(&mut action.sa_mask);
        if libc::sigaction(signal, &action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

// --- the handler
// ------------------------------------------------------------------------------------

thread_local! {
    /// More than zero while this thread's fault was passed on to the handler under ours.
    static PASSED_ON: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo and, for SA_SIGINFO, a ucontext; errno is this
    // thread's.
    unsafe {
        let errno = *libc::__errno_location();
        let depth = PASSED_ON.get();
        let address = (*info).si_addr() as usize;
        // A fault sent by kill(2) carries a sender, not an address.
        let from_kernel = (*info).si_code > 0;
        if depth == 0 && from_kernel && resolve(signal, address, context) {
            *libc::__errno_location() = errno;
            return;
        }
        let chain = if signal == libc::SIGBUS { &BUS_CHAIN } else { &SEGV_CHAIN };
        let next = if depth == 0 { &chain.latest } else { &chain.original };
        PASSED_ON.set(depth + 1);
        pass_on(next.load(Ordering::Acquire), signal, info, context);
        PASSED_ON.set(depth);
        *libc::__errno_location() = errno;
    }
}

/// # Safety
/// Only from the handler, with what the kernel passed to it.
pub(super) unsafe fn pass_on(
    action: *const libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: `action` is a record of what was installed before, which does not change meanwhile,
    // and describes a handler of the kind that its flags name.
    unsafe {
        if action.is_null()
            || (*action).sa_sigaction == libc::SIG_DFL
            || (*action).sa_sigaction == libc::SIG_IGN
        {
            // Back to the default: the instruction runs again and the process ends as it should.
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &default, std::ptr::null_mut());
            if (*info).si_code <= 0 {
                // Sent by a process: no instruction will run into it again by itself.
                libc::raise(signal);
            }
        } else if (*action).sa_flags & libc::SA_SIGINFO != 0 {
            let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute((*action).sa_sigaction);
            handler(signal, info, context);
        } else {
            let handler: extern "C" fn(libc::c_int) = std::mem::transmute((*action).sa_sigaction);
            handler(signal);
        }
    }
}

/// Resolves the fault if it is one of ours.
///
/// # Safety
/// Only from the handler, with what the kernel passed to it.
unsafe fn resolve(signal: libc::c_int, address: usize, context: *mut libc::c_void) -> bool {
    // SAFETY: `context` is the kernel's ucontext.
    let pc = unsafe { program_counter(context) };
    let used = HIGH_WATER.load(Ordering::Acquire).min(SLOTS);
    let in_runtime_code = || {
        TABLE[..used].iter().any(|slot| slot.kind.load(Ordering::Acquire) == CODE && slot.holds(pc))
    };
    let (mut write_watch, mut page_watch) = (None, None);
    for slot in &TABLE[..used] {
        let kind = slot.kind.load(Ordering::Acquire);
        if !slot.holds(address) || pc == address {
            continue;
        }
        match (kind, signal) {
            (WRITE_WATCH, libc::SIGSEGV) => write_watch = Some(slot),
            (PAGE_WATCH, libc::SIGSEGV) => page_watch = Some(slot),
            (WRITE_WATCH | READ_WATCH, libc::SIGBUS) => return replace_lost_page(slot, address),
            // Without a host that stops the applet the store must not seem to succeed.
            (READ_WATCH, libc::SIGSEGV) if !slot.notify.load(Ordering::Acquire).is_null() => {
                return !in_runtime_code() && put_scratch(slot, address);
            }
            (HOLE, libc::SIGSEGV) if !in_runtime_code() => return put_scratch(slot, address),
            _ => {}
        }
    }
    match (page_watch, write_watch) {
        // The watch of the whole range learns of the store, but only this page becomes writable.
        (Some(pages), watch) => {
            if let Some(watch) = watch {
                watch.touched.store(true, Ordering::Release);
            }
            pages::unlock(pages, address)
        }
        (None, Some(watch)) => unlock(watch),
        (None, None) => false,
    }
}

/// First store to a clean region: dirty from now on, and writable.
pub(super) fn unlock(slot: &Slot) -> bool {
    slot.touched.store(true, Ordering::Release);
    let (start, end) = (slot.start.load(Ordering::Acquire), slot.end.load(Ordering::Acquire));
    // SAFETY: a live WRITE_WATCH slot is a mapping whose owner allows it to become writable.
    unsafe { libc::mprotect(start as *mut _, end - start, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}

/// How many faults of this process ended with memory that stands in for what is not there. As long
/// as it is the same, no watch or guard has anything new to say but of first stores.
pub fn stand_ins() -> u64 {
    STAND_INS.load(Ordering::Acquire)
}

/// The file ends before its mapping, or its disk failed or was full: an anonymous page stands in,
/// so that the thread goes on to where the loss can be reported.
fn replace_lost_page(slot: &Slot, address: usize) -> bool {
    slot.lost.store(true, Ordering::Release);
    STAND_INS.fetch_add(1, Ordering::Release);
    // SAFETY: sysconf has no preconditions.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let page = address & !(page_bytes - 1);
    // SAFETY: the page lies in the watched mapping, which its owner lets this module change; its
    // file content is gone, so nothing is overwritten.
    let put = unsafe {
        libc::mmap(
            page as *mut _,
            page_bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        )
    };
    notify(slot);
    put != libc::MAP_FAILED
}

/// Host code touched a hole: scratch memory of bounded size goes under the access. The same few
/// megabytes appear throughout the hole, so a large `memory.fill` costs no more than they.
fn put_scratch(slot: &Slot, address: usize) -> bool {
    slot.touched.store(true, Ordering::Release);
    STAND_INS.fetch_add(1, Ordering::Release);
    let scratch = slot.scratch.load(Ordering::Acquire);
    if scratch == 0 {
        return false;
    }
    let window = address & !(SCRATCH_BYTES - 1);
    let start = window.max(slot.start.load(Ordering::Acquire));
    let end = (window + SCRATCH_BYTES).min(slot.end.load(Ordering::Acquire));
    // SAFETY: the scratch memory lives as long as the slot; of a shared mapping, an old size of 0
    // maps the same pages once more (mremap(2)). The new mapping stays inside the hole, which its
    // owner gave to this module.
    let put = unsafe {
        libc::mremap(
            (scratch + (start - window)) as *mut _,
            0,
            end - start,
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            start as *mut libc::c_void,
        )
    };
    notify(slot);
    put != libc::MAP_FAILED
}

fn notify(slot: &Slot) {
    let notify = slot.notify.load(Ordering::Acquire);
    if !notify.is_null() {
        // SAFETY: the box lives until the slot's owner is dropped, and the owner outlives every
        // access to its range (contract of the guards' constructors).
        unsafe { (*notify)() };
    }
}

/// # Safety
/// `context` must be the ucontext that the kernel passed to a SA_SIGINFO handler.
unsafe fn program_counter(context: *mut libc::c_void) -> usize {
    // SAFETY: per the contract.
    unsafe {
        let context = &*context.cast::<libc::ucontext_t>();
        #[cfg(target_arch = "x86_64")]
        return context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
        #[cfg(target_arch = "aarch64")]
        return context.uc_mcontext.pc as usize;
    }
}
