//! What each thread has of the heap for itself: slabs, from which small objects come without the
//! lock.
//!
//! Invariants:
//! - A thread that is interrupted in here by a signal handler, with the lock or without, counts as
//!   one that is using the heap: the handler gets neither the slabs nor the lock.
//! - Before a fork the heap has all slabs back, so none of them is half-changed in the child, where
//!   the threads that had them do not exist.
//! - A thread that ends gives its slabs back, and has none any more.
//! - Where the kernel has no barrier over the threads of a process, everything goes by the lock.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, compiler_fence};

use holdfast_heap::{Backing, Heap, HeapError, ThreadSlabs};

/// Larger objects are so few in a slab that a thread of its own would keep much for little.
const BYTES_MAX: usize = 1024;

/// Whether the kernel has the barrier, and this process is registered for it.
static HAS_BARRIER: AtomicBool = AtomicBool::new(false);
/// By its value the C library tells of the end of a thread.
static KEY: AtomicU32 = AtomicU32::new(0);

/// What there is of a thread; at first, all bytes zero.
#[repr(C)]
struct Own {
    slabs: Cell<*mut ThreadSlabs>,
    state: Cell<State>,
}

// A variable of a thread costs a library a call at each look, unless it is always loaded with its
// program, as this one is; but Rust has no way yet to say so.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
std::arch::global_asm!(
    ".pushsection .tbss.holdfast_malloc_own,\"awT\",@nobits",
    ".balign 16",
    ".globl holdfast_malloc_own",
    ".hidden holdfast_malloc_own",
    ".type holdfast_malloc_own, @object",
    ".size holdfast_malloc_own, 16",
    "holdfast_malloc_own:",
    ".zero 16",
    ".popsection",
);

#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
const _: () = assert!(size_of::<Own>() == 16 && align_of::<Own>() <= 16);

/// What there is of this thread.
#[cfg(all(target_arch = "x86_64", target_os = "linux"))]
#[inline(always)]
fn own<'a>() -> &'a Own {
    let own: *const Own;
    // SAFETY: reads where the loader has put this library's variables of threads, and where those
    // of this thread are; stores nothing.
    unsafe {
        std::arch::asm!(
            "mov {own}, qword ptr fs:[0]",
            "add {own}, qword ptr [rip + holdfast_malloc_own@GOTTPOFF]",
            own = out(reg) own,
            options(pure, readonly, nostack),
        );
        // This thread's own, as large as an `Own`, with one that was zero at first; it needs no
        // drop, and is there as long as the thread.
        &*own
    }
}

/// What there is of this thread.
#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
fn own<'a>() -> &'a Own {
    thread_local! {
        // It needs no drop, so it costs no registration, and no allocation.
        static OWN: Own =
            const { Own { slabs: Cell::new(null_mut()), state: Cell::new(State::Outside) } };
    }
    let own = OWN.with(|own| std::ptr::from_ref(own));
    // SAFETY: this thread's own, which is there as long as the thread.
    unsafe { &*own }
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum State {
    Outside = 0,
    /// In the slabs.
    Inside,
    /// The thread is ending.
    Ended,
}

/// Called once, before there is a heap, and in forked children.
pub(crate) fn register() {
    let has = membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) == 0
        && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) == 0;
    HAS_BARRIER.store(has, Ordering::Relaxed);
}

/// Called once, before there is a heap. `end` gets what [`end_thread`] takes, at the end of a
/// thread that had slabs.
pub(crate) fn watch_threads(end: unsafe extern "C" fn(*mut c_void)) {
    let mut key = 0;
    // SAFETY: a place for the key, and a function of this library, which is never unloaded.
    match unsafe { libc::pthread_key_create(&raw mut key, Some(end)) } {
        0 => KEY.store(key, Ordering::Relaxed),
        // Slabs that no ending thread gave back would be lost to the others.
        _ => HAS_BARRIER.store(false, Ordering::Relaxed),
    }
}

fn membarrier(command: libc::c_int) -> libc::c_long {
    // SAFETY: no memory of ours is handed over.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) }
}

fn barrier() {
    if membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0 {
        // It worked when the process was registered. Without it two threads could have one object.
        std::process::abort();
    }
}

/// Whether a signal handler has interrupted this thread in its slabs.
pub(crate) fn is_inside() -> bool {
    own().state.get() == State::Inside
}

/// Runs `work` with this thread's slabs, if it has some that it is not using further up.
#[inline(always)]
fn inside<R>(work: impl FnOnce(&mut ThreadSlabs) -> R) -> Option<R> {
    own().inside(work)
}

impl Own {
    /// See [`inside`].
    #[inline(always)]
    fn inside<R>(&self, work: impl FnOnce(&mut ThreadSlabs) -> R) -> Option<R> {
        let slabs = self.slabs.get();
        if slabs.is_null() || self.state.get() != State::Outside {
            return None;
        }
        self.state.set(State::Inside);
        compiler_fence(Ordering::SeqCst);
        // SAFETY: of the box of this thread; a signal handler that comes now is kept away by the
        // state.
        let done = work(unsafe { &mut *slabs });
        compiler_fence(Ordering::SeqCst);
        self.state.set(State::Outside);
        Some(done)
    }
}

/// An object of a slab of this thread.
#[inline]
pub(crate) fn allocate(bytes: usize) -> Option<NonNull<u8>> {
    if bytes > BYTES_MAX { None } else { inside(|slabs| slabs.alloc(bytes as u64)).flatten() }
}

/// Frees an object in a slab of this thread; `false` when it is not, or is none.
#[inline]
pub(crate) fn free(object: NonNull<u8>) -> bool {
    inside(|slabs| slabs.free(object)).unwrap_or(false)
}

/// Bytes of an object in a slab of this thread.
#[inline]
pub(crate) fn usable_bytes(object: NonNull<u8>) -> Option<usize> {
    inside(|slabs| slabs.usable_bytes(object)).flatten().map(|bytes| bytes as usize)
}

/// An object, under the lock; what this thread claims for it makes its next ones quick.
pub(crate) fn allocate_in<B: Backing>(heap: &mut Heap<B>, bytes: usize) -> Option<NonNull<u8>> {
    let bytes = bytes as u64;
    match bytes <= BYTES_MAX as u64 && has_slabs(heap) {
        true => inside(|slabs| slabs.alloc_in(heap, bytes))?,
        false => heap.alloc(bytes),
    }
    .ok()
}

/// Frees an object, under the lock.
pub(crate) fn free_in<B: Backing>(
    heap: &mut Heap<B>,
    object: NonNull<u8>,
) -> Result<(), HeapError> {
    let is_small = heap.usable_bytes(object)? <= BYTES_MAX as u64;
    match is_small && has_slabs(heap) {
        true => inside(|slabs| slabs.free_in(heap, object)).unwrap_or(Ok(())),
        false => heap.free(object),
    }
}

/// Whether this thread has slabs, which it gets if it has none. The caller has the lock.
fn has_slabs<B: Backing>(heap: &mut Heap<B>) -> bool {
    own().has_slabs(heap)
}

impl Own {
    fn has_slabs<B: Backing>(&self, heap: &mut Heap<B>) -> bool {
        if self.state.get() != State::Outside || !HAS_BARRIER.load(Ordering::Relaxed) {
            return false;
        }
        if !self.slabs.get().is_null() {
            return true;
        }
        // SAFETY: the one heap of this process, which is never closed.
        let slabs = Box::into_raw(Box::new(unsafe { heap.thread_slabs(Some(barrier)) }));
        // SAFETY: a key of ours. What the C library allocates for it comes from the arena, because
        // this thread has the lock.
        if unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed), slabs.cast()) } != 0 {
            // SAFETY: the box from above.
            drop(unsafe { Box::from_raw(slabs) });
            return false;
        }
        self.slabs.set(slabs);
        true
    }
}

/// The slabs of the calling thread, which is ending and has none any more.
///
/// # Safety
/// `slabs` is what the C library keeps for the thread.
pub(crate) unsafe fn end_thread(slabs: *mut c_void) -> Box<ThreadSlabs> {
    own().state.set(State::Ended);
    own().slabs.set(null_mut());
    // SAFETY: the box that `has_slabs` has handed over.
    unsafe { Box::from_raw(slabs.cast()) }
}
