//! The program's heap, from the library's constructor on.
//!
//! Invariants: `HEAP` is written once, by the constructor, before `RANGE` says that there is a
//! heap; from then on it is touched only under the lock.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::io::Write;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_heap::{Backing, Heap};

use crate::fork::{ForkBacking, install_handlers};
use crate::lock::{Guard, lock};
use crate::{opening, own};

/// What `sysexits.h` calls EX_OSERR.
pub(crate) const NO_HEAP_STATUS: i32 = 71;

struct Slot(UnsafeCell<Option<Heap<ForkBacking>>>);

// SAFETY: see the module: once before there are readers, then under the lock.
unsafe impl Sync for Slot {}

static HEAP: Slot = Slot(UnsafeCell::new(None));
/// Where the heap may have objects; empty before the constructor has run.
static RANGE: [AtomicUsize; 2] = [AtomicUsize::new(0), AtomicUsize::new(0)];

/// The heap and the lock around it.
pub(crate) struct Locked(#[allow(dead_code, reason = "held for its drop")] Guard);

impl Locked {
    /// The heap.
    pub(crate) fn heap(&mut self) -> Option<&mut Heap<ForkBacking>> {
        // SAFETY: under the lock, and borrowed from the value that holds it.
        unsafe { (*HEAP.0.get()).as_mut() }
    }
}

/// The heap, or nothing when there is none yet, or when this thread is using it further up.
pub(crate) fn locked() -> Option<Locked> {
    if !is_open() || own::is_inside() {
        return None;
    }
    lock().map(Locked)
}

/// Whether there is a heap.
pub(crate) fn is_open() -> bool {
    RANGE[1].load(Ordering::Acquire) != 0
}

/// The heap, for a guard that was taken at another time.
pub(crate) fn with_guard(guard: Guard) -> Locked {
    Locked(guard)
}

impl Locked {
    /// The lock alone.
    pub(crate) fn into_guard(self) -> Guard {
        self.0
    }
}

/// Whether a pointer lies where the heap has its objects.
pub(crate) fn is_in_heap(pointer: NonNull<u8>) -> bool {
    let end = RANGE[1].load(Ordering::Acquire);
    (RANGE[0].load(Ordering::Relaxed)..end).contains(&pointer.addr().get())
}

/// First byte and end of where the heap may have objects.
pub(crate) fn range() -> (usize, usize) {
    let end = RANGE[1].load(Ordering::Acquire);
    (RANGE[0].load(Ordering::Relaxed), end)
}

/// Says why, and ends the program: one that cannot be measured must not look as if it had been.
pub(crate) fn give_up(reason: &dyn std::fmt::Display) -> ! {
    let text = format!("holdfast-malloc: there is no heap for this program: {reason}\n");
    let _ = std::io::stderr().write_all(text.as_bytes());
    // SAFETY: no preconditions. Not `exit`: the program has not begun, and its handlers may
    // allocate.
    unsafe { libc::_exit(NO_HEAP_STATUS) }
}

/// What the C library calls at the end of a thread that has slabs.
unsafe extern "C" fn end_thread(slabs: *mut c_void) {
    // SAFETY: the C library hands over what it keeps for the thread.
    let slabs = unsafe { own::end_thread(slabs) };
    if let Some(mut locked) = locked()
        && let Some(heap) = locked.heap()
    {
        slabs.give_back(heap);
    }
}

extern "C" fn start() {
    let heap = opening::open().unwrap_or_else(|error| give_up(&error));
    let base = heap.backing().base().addr();
    let end = base + heap.backing().limit_bytes() as usize;
    // SAFETY: nothing looks at it before the range is stored.
    unsafe { *HEAP.0.get() = Some(heap) };
    install_handlers();
    own::register();
    own::watch_threads(end_thread);
    RANGE[0].store(base, Ordering::Relaxed);
    RANGE[1].store(end, Ordering::Release);
}

/// What the loader calls when the C library is ready, before the program's own constructors.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;
