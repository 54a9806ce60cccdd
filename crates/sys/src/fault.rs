//! Memory faults that Holdfast expects and resolves: the first store to a clean region, an image that was
//! truncated under its mapping, and host code that touches a hole of an applet's linear memory.
//!
//! One handler for SIGSEGV and SIGBUS serves the whole process. It looks the faulting address up in a fixed
//! table of watched ranges, resolves the fault or passes it on to whoever was installed before.
//!
//! Invariants:
//! - The handler only reads atomics and calls `mprotect`, `mmap`, `memfd_create`, `ftruncate`: it allocates
//!   nothing, takes no lock and is async-signal-safe.
//! - Between a slot's claim and its release only its owner (a guard in this module) writes it. A slot is live
//!   only while its `kind` says so, and `kind` is stored last and cleared first.
//! - A fault whose instruction lies in a [`CodeRange`] is a hole's business of that code's own runtime (a
//!   wasm trap); only the first-store and lost-backing cases are resolved for it.
//! - A fault that nobody claims ends the process as it would have without us.

use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How many ranges can be watched at once in a process; a linear memory uses up to five.
const SLOTS: usize = 4096;
/// How much memory host accesses to one hole can cost, however large the hole is.
const SCRATCH_BYTES: usize = 16 << 20;

const FREE: u32 = 0;
const CLAIMED: u32 = 1;
const WRITE_WATCH: u32 = 2;
const HOLE: u32 = 3;
const CODE: u32 = 4;

/// Called from the signal handler after a fault was resolved in a way that must stop the applet.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

struct Slot {
    kind: AtomicU32,
    start: AtomicUsize,
    end: AtomicUsize,
    /// `WRITE_WATCH`: a store happened. `HOLE`: host code touched the hole.
    touched: AtomicBool,
    /// `WRITE_WATCH`: the file behind the mapping was shorter than the mapping.
    lost: AtomicBool,
    scratch_fd: AtomicI32,
    notify: AtomicPtr<Notify>,
}

impl Slot {
    const fn new() -> Self {
        Slot {
            kind: AtomicU32::new(FREE),
            start: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            touched: AtomicBool::new(false),
            lost: AtomicBool::new(false),
            scratch_fd: AtomicI32::new(-1),
            notify: AtomicPtr::new(std::ptr::null_mut()),
        }
    }

    fn holds(&self, address: usize) -> bool {
        self.start.load(Ordering::Acquire) <= address && address < self.end.load(Ordering::Acquire)
    }
}

static TABLE: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];
/// Slots at and past this index were never used: bounds the handler's look-up.
static HIGH_WATER: AtomicUsize = AtomicUsize::new(0);

/// A claimed slot; released on drop.
struct Claim(&'static Slot);

impl Claim {
    fn new(kind: u32, range: Range<usize>, notify: Option<Notify>) -> io::Result<Claim> {
        for (index, slot) in TABLE.iter().enumerate() {
            if slot.kind.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            slot.start.store(range.start, Ordering::Release);
            slot.end.store(range.end, Ordering::Release);
            slot.touched.store(false, Ordering::Release);
            slot.lost.store(false, Ordering::Release);
            let notify = notify.map_or(std::ptr::null_mut(), |f| Box::into_raw(Box::new(f)));
            slot.notify.store(notify, Ordering::Release);
            HIGH_WATER.fetch_max(index + 1, Ordering::AcqRel);
            slot.kind.store(kind, Ordering::Release);
            return Ok(Claim(slot));
        }
        Err(io::Error::other(format!(
            "{SLOTS} memory ranges are watched already; close some regions or applets first"
        )))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.0.kind.store(CLAIMED, Ordering::Release);
        let notify = self.0.notify.swap(std::ptr::null_mut(), Ordering::AcqRel);
        if !notify.is_null() {
            // SAFETY: the pointer came from Box::into_raw in `Claim::new`, was swapped out here once, and
            // the handler reads it only for faults in this range, whose owner is being dropped.
            drop(unsafe { Box::from_raw(notify) });
        }
        let fd = self.0.scratch_fd.swap(-1, Ordering::AcqRel);
        if fd >= 0 {
            // SAFETY: the descriptor was made by the handler for this slot alone and is swapped out once.
            unsafe { libc::close(fd) };
        }
        self.0.start.store(0, Ordering::Release);
        self.0.end.store(0, Ordering::Release);
        self.0.kind.store(FREE, Ordering::Release);
    }
}

/// Watches a region's mapping: notices the first store to it, and survives the loss of its backing.
pub struct WriteWatch(Claim);

impl WriteWatch {
    /// Watches `backed_bytes` from `address`, both multiples of the page size.
    ///
    /// # Safety
    /// The range must be a shared file mapping of the caller's, readable and not writable now, that stays
    /// mapped until the watch is dropped, and that the caller allows to become writable.
    ///
    /// # Errors
    /// When no handler can be installed or too many ranges are watched.
    pub unsafe fn new(address: *mut u8, backed_bytes: usize, notify: Option<Notify>) -> io::Result<Self> {
        install()?;
        let start = address as usize;
        Claim::new(WRITE_WATCH, start..start + backed_bytes, notify).map(WriteWatch)
    }

    /// Whether a store happened since the watch was made or rearmed.
    pub fn is_dirty(&self) -> bool {
        self.0.0.touched.load(Ordering::Acquire)
    }

    /// Whether the file was found shorter than its mapping; scratch memory stands in for what is gone, and
    /// nothing stored there lasts.
    pub fn lost_backing(&self) -> bool {
        self.0.0.lost.load(Ordering::Acquire)
    }

    /// Makes the range writable and dirty without waiting for a fault, for stores that the kernel does on
    /// the applet's behalf (they would fail with EFAULT instead of faulting).
    ///
    /// # Errors
    /// What `mprotect` reports.
    pub fn make_writable(&self) -> io::Result<()> {
        if unlock(self.0.0) { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Tells the watch that the mapping now has `backed_bytes` bytes; the caller mapped the new part with
    /// the protection that fits [`WriteWatch::is_dirty`].
    pub fn extend(&self, backed_bytes: usize) {
        let start = self.0.0.start.load(Ordering::Acquire);
        self.0.0.end.store(start + backed_bytes, Ordering::Release);
    }

    /// Makes the range read-only and clean again. No thread may be storing to it meanwhile.
    ///
    /// # Errors
    /// What `mprotect` reports.
    pub fn rearm(&self) -> io::Result<()> {
        let (start, end) = (self.0.0.start.load(Ordering::Acquire), self.0.0.end.load(Ordering::Acquire));
        // SAFETY: the range is the owner's live mapping (contract of `new`); taking write permission away
        // keeps every reference to it readable.
        if unsafe { libc::mprotect(start as *mut _, end - start, libc::PROT_READ) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.0.0.touched.store(false, Ordering::Release);
        Ok(())
    }
}

/// Guards a hole (reserved, inaccessible address space) of a linear memory against *host* accesses: the host
/// gets bounded scratch memory there, and the owner is told, so that it can stop the applet.
pub struct HoleGuard(Claim);

impl HoleGuard {
    /// Guards nothing yet; see [`HoleGuard::set_range`].
    ///
    /// # Safety
    /// `notify` runs in a signal handler: it must be async-signal-safe (no allocation, no locks).
    ///
    /// # Errors
    /// When no handler can be installed or too many ranges are watched.
    pub unsafe fn new(notify: Notify) -> io::Result<Self> {
        install()?;
        Claim::new(HOLE, 0..0, Some(notify)).map(HoleGuard)
    }

    /// Moves the guard to a hole; empty ranges guard nothing.
    ///
    /// # Safety
    /// The range must be inaccessible reserved address space of the caller's, page-aligned, in which the
    /// handler may put scratch mappings until the range is changed or the guard dropped. No thread may be
    /// faulting in it meanwhile.
    pub unsafe fn set_range(&self, hole: Range<*mut u8>) {
        self.0.0.end.store(0, Ordering::Release);
        self.0.0.start.store(hole.start as usize, Ordering::Release);
        self.0.0.end.store(hole.end as usize, Ordering::Release);
    }

    /// Whether host code touched the hole.
    pub fn touched(&self) -> bool {
        self.0.0.touched.load(Ordering::Acquire)
    }
}

/// Marks code whose faults in holes belong to its own runtime (compiled wasm: they are traps).
pub struct CodeRange(#[allow(dead_code, reason = "held for its drop")] Claim);

impl CodeRange {
    /// Registers the addresses of the code.
    ///
    /// # Errors
    /// When too many ranges are watched.
    pub fn new(code: Range<usize>) -> io::Result<Self> {
        Claim::new(CODE, code, None).map(CodeRange)
    }
}

// --- installation -----------------------------------------------------------------------------------

/// What was installed before us. Two levels, because a runtime (wasmtime) may put its handler over ours and
/// we then go on top of it again: its own "previous" is us, and must reach `original`, not loop.
struct Chain {
    original: AtomicPtr<libc::sigaction>,
    latest: AtomicPtr<libc::sigaction>,
}

static SEGV_CHAIN: Chain =
    Chain { original: AtomicPtr::new(std::ptr::null_mut()), latest: AtomicPtr::new(std::ptr::null_mut()) };
static BUS_CHAIN: Chain =
    Chain { original: AtomicPtr::new(std::ptr::null_mut()), latest: AtomicPtr::new(std::ptr::null_mut()) };
static INSTALL: Mutex<()> = Mutex::new(());

/// Puts the handler on top of whatever handles SIGSEGV and SIGBUS now. Call it after the creation of a
/// wasmtime `Engine` (which installs a handler of its own, once per process) and before mapping a region;
/// calling it again costs two system calls and changes nothing.
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
        // Leaked on purpose: the handler may read them at any time until the process ends, and there are
        // at most as many as there are runtimes in the process.
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

// --- the handler ------------------------------------------------------------------------------------

thread_local! {
    /// More than zero while this thread's fault was passed on to the handler under ours.
    static PASSED_ON: Cell<u32> = const { Cell::new(0) };
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo and, for SA_SIGINFO, a ucontext; errno is this thread's.
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
unsafe fn pass_on(
    action: *const libc::sigaction,
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: `action` is one of the leaked, never changed records of `install_for` and describes a handler
    // of the kind that its flags name.
    unsafe {
        if action.is_null()
            || (*action).sa_sigaction == libc::SIG_DFL
            || (*action).sa_sigaction == libc::SIG_IGN
        {
            // Back to the default: the instruction runs again and the process ends as it should.
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &default, std::ptr::null_mut());
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
    let in_runtime_code =
        || TABLE[..used].iter().any(|slot| slot.kind.load(Ordering::Acquire) == CODE && slot.holds(pc));
    for slot in &TABLE[..used] {
        let kind = slot.kind.load(Ordering::Acquire);
        if !slot.holds(address) || pc == address {
            continue;
        }
        match (kind, signal) {
            (WRITE_WATCH, libc::SIGSEGV) => return unlock(slot),
            (WRITE_WATCH, libc::SIGBUS) => return replace_lost_page(slot, address),
            (HOLE, libc::SIGSEGV) if !in_runtime_code() => return put_scratch(slot, address),
            _ => {}
        }
    }
    false
}

/// First store to a clean region: dirty from now on, and writable.
fn unlock(slot: &Slot) -> bool {
    slot.touched.store(true, Ordering::Release);
    let (start, end) = (slot.start.load(Ordering::Acquire), slot.end.load(Ordering::Acquire));
    // SAFETY: a live WRITE_WATCH slot is a mapping whose owner allows it to become writable.
    unsafe { libc::mprotect(start as *mut _, end - start, libc::PROT_READ | libc::PROT_WRITE) == 0 }
}

/// The file ends before its mapping: an anonymous page stands in, so that the thread goes on to where the
/// loss can be reported.
fn replace_lost_page(slot: &Slot, address: usize) -> bool {
    slot.lost.store(true, Ordering::Release);
    // SAFETY: sysconf has no preconditions.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let page = address & !(page_bytes - 1);
    // SAFETY: the page lies in the watched mapping, which its owner lets this module change; its file
    // content is gone, so nothing is overwritten.
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

/// Host code touched a hole: scratch memory of bounded size goes under the access. The same few megabytes
/// appear throughout the hole, so a large `memory.fill` costs no more than they.
fn put_scratch(slot: &Slot, address: usize) -> bool {
    slot.touched.store(true, Ordering::Release);
    let mut fd = slot.scratch_fd.load(Ordering::Acquire);
    // SAFETY: plain system calls on a descriptor that this slot owns; the mapping stays inside the hole,
    // which its owner gave to this module.
    let put = unsafe {
        if fd < 0 {
            fd = libc::memfd_create(c"holdfast-scratch".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 || libc::ftruncate(fd, SCRATCH_BYTES as libc::off_t) != 0 {
                return false;
            }
            slot.scratch_fd.store(fd, Ordering::Release);
        }
        let window = address & !(SCRATCH_BYTES - 1);
        let start = window.max(slot.start.load(Ordering::Acquire));
        let end = (window + SCRATCH_BYTES).min(slot.end.load(Ordering::Acquire));
        libc::mmap(
            start as *mut _,
            end - start,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | libc::MAP_FIXED,
            fd,
            (start - window) as libc::off_t,
        )
    };
    notify(slot);
    put != libc::MAP_FAILED
}

fn notify(slot: &Slot) {
    let notify = slot.notify.load(Ordering::Acquire);
    if !notify.is_null() {
        // SAFETY: the box lives until the slot's owner is dropped, and the owner outlives every access to
        // its range (contract of the guards' constructors).
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::sync::atomic::AtomicU64;

    const PAGE: usize = 4096;

    fn memfd(bytes: usize) -> File {
        // SAFETY: a fresh descriptor that the File then owns.
        let file = unsafe { File::from_raw_fd(libc::memfd_create(c"t".as_ptr(), libc::MFD_CLOEXEC)) };
        file.set_len(bytes as u64).unwrap();
        file
    }

    fn map(file: Option<&File>, bytes: usize, prot: libc::c_int) -> *mut u8 {
        let (flags, fd) = match file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
        };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at.cast()
    }

    #[test]
    fn the_first_store_makes_a_clean_region_dirty_and_a_load_does_not() {
        let file = memfd(4 * PAGE);
        let at = map(Some(&file), 4 * PAGE, libc::PROT_READ);
        // SAFETY: `at` is a read-only shared mapping of four pages that lives to the end of the test.
        unsafe {
            let watch = WriteWatch::new(at, 4 * PAGE, None).unwrap();
            assert_eq!(at.read_volatile(), 0);
            assert!(!watch.is_dirty());
            at.add(2 * PAGE).write_volatile(7);
            assert!(watch.is_dirty());
            watch.rearm().unwrap();
            assert!(!watch.is_dirty());
            at.write_volatile(8);
            assert!(watch.is_dirty());
            assert_eq!((at.read_volatile(), at.add(2 * PAGE).read_volatile()), (8, 7));
        }
    }

    #[test]
    fn a_file_truncated_under_its_mapping_is_reported_and_kills_nobody() {
        let file = memfd(2 * PAGE);
        let at = map(Some(&file), 2 * PAGE, libc::PROT_READ);
        // SAFETY: as above.
        unsafe {
            let watch = WriteWatch::new(at, 2 * PAGE, None).unwrap();
            at.add(PAGE).write_volatile(1);
            file.set_len(PAGE as u64).unwrap();
            assert_eq!(at.add(PAGE).read_volatile(), 0);
            assert!(watch.lost_backing());
        }
    }

    #[test]
    fn a_host_access_to_a_hole_costs_bounded_memory_and_is_reported() {
        let bytes = 256 << 20;
        let at = map(None, bytes, libc::PROT_NONE);
        let calls = Arc::new(AtomicU64::new(0));
        let counter = calls.clone();
        // SAFETY: the notification only adds to an atomic; the hole is this test's own reservation.
        unsafe {
            let guard = HoleGuard::new(Arc::new(move || {
                counter.fetch_add(1, Ordering::Relaxed);
            }))
            .unwrap();
            guard.set_range(at..at.add(bytes));
            assert!(!guard.touched());
            std::ptr::write_bytes(at, 0xAB, bytes);
            assert!(guard.touched());
        }
        let windows = (bytes / SCRATCH_BYTES) as u64;
        assert!((windows..=windows + 1).contains(&calls.load(Ordering::Relaxed)));
    }

    #[test]
    fn slots_are_given_back() {
        for _ in 0..2 * SLOTS {
            drop(CodeRange::new(1..2).unwrap());
        }
    }
}
