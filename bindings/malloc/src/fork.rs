//! What happens to the heap when the program forks.
//!
//! A fork gives the child a copy of the parent's memory, but a region is shared memory, and the two would write into
//! each other's heap. So the parent copies it beforehand, and the child puts the copy in the region's place:
//! private memory from then on, of which later forks copy nothing. The price is a copy of the whole heap.
//!
//! Invariants:
//! - From before the fork to after it the lock is held and the arena is entered, so neither is half-changed in the child.
//! - The handlers are installed before those of the program, so they run last before the fork and first after it:
//!   the program's own handlers may allocate.
//! - The child never touches the region itself: it neither grows nor closes it.

use std::cell::Cell;
use std::ffi::c_void;
use std::io;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use holdfast_heap::{Backing, GrowError};
use holdfast_native_heap::RegionBacking;
use holdfast_sys::mapping::{Prot, map_anon_fixed};

use crate::OWN;
use crate::lock::{Guard, lock};
use crate::preloaded::{give_up, with_guard};

/// A private heap grows in steps of this.
const GROWTH_STEP_BYTES: u64 = 4 << 20;

/// A region's memory, or in a forked child private memory in its place.
pub(crate) struct ForkBacking {
    region: RegionBacking,
    /// How much there is, once it is private.
    private_bytes: Cell<Option<u64>>,
}

impl ForkBacking {
    pub(crate) fn new(region: RegionBacking) -> ForkBacking {
        ForkBacking { region, private_bytes: Cell::new(None) }
    }
}

// SAFETY: while shared, that of the region. Afterwards the same addresses, of which as many bytes are private
// memory, and which the region's reservation still keeps from everybody else.
unsafe impl Backing for ForkBacking {
    fn base(&self) -> *mut u8 {
        self.region.base()
    }

    fn backed_bytes(&self) -> u64 {
        self.private_bytes.get().unwrap_or_else(|| self.region.backed_bytes())
    }

    fn limit_bytes(&self) -> u64 {
        self.region.limit_bytes()
    }

    fn grow(&mut self, bytes: u64) -> Result<u64, GrowError> {
        let Some(backed_bytes) = self.private_bytes.get() else { return self.region.grow(bytes) };
        let limit_bytes = self.limit_bytes();
        if bytes > limit_bytes {
            return Err(GrowError::LimitReached { limit_bytes });
        }
        let grown = bytes.next_multiple_of(GROWTH_STEP_BYTES).min(limit_bytes);
        let at = self.base().wrapping_add(backed_bytes as usize);
        let added = grown.saturating_sub(backed_bytes) as usize;
        if added > 0 {
            // SAFETY: between what is backed and the limit the range is reserved and inaccessible.
            unsafe { map_anon_fixed(at, added, Prot::ReadWrite) }.map_err(|_| GrowError::NoRoom)?;
        }
        self.private_bytes.set(Some(grown.max(backed_bytes)));
        Ok(grown.max(backed_bytes))
    }
}

/// The copy for a child, from before the fork to after it.
static COPY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
static COPY_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Called once, when there is a heap.
pub(crate) fn install_handlers() {
    // SAFETY: functions of this library, which is never unloaded.
    let refused = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    if refused != 0 {
        give_up(&io::Error::from_raw_os_error(refused));
    }
}

extern "C" fn before() {
    // A fork from a signal handler that interrupted this very allocator cannot be served.
    let Some(guard) = lock() else { return };
    let mut locked = with_guard(guard);
    if let Some(heap) = locked.heap()
        && heap.backing().private_bytes.get().is_none()
    {
        let bytes = heap.backing().backed_bytes() as usize;
        if let Some(copy) = copy_of(heap.backing().base(), bytes) {
            COPY.store(copy.as_ptr(), Ordering::Relaxed);
            COPY_BYTES.store(bytes, Ordering::Relaxed);
        }
    }
    OWN.enter();
    locked.into_guard().keep();
}

fn copy_of(base: *const u8, bytes: usize) -> Option<NonNull<c_void>> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice, filled from the heap's own bytes, which no
    // other thread allocates from meanwhile.
    unsafe {
        let copy = libc::mmap(null_mut(), bytes, prot, flags, -1, 0);
        if copy == libc::MAP_FAILED {
            return None;
        }
        std::ptr::copy_nonoverlapping(base, copy.cast(), bytes);
        NonNull::new(copy)
    }
}

extern "C" fn in_parent() {
    let Some(guard) = Guard::take_back() else { return };
    OWN.leave();
    let copy = COPY.swap(null_mut(), Ordering::Relaxed);
    if !copy.is_null() {
        // SAFETY: the copy made before the fork, which nobody else knows.
        unsafe { libc::munmap(copy, COPY_BYTES.load(Ordering::Relaxed)) };
    }
    drop(guard);
}

extern "C" fn in_child() {
    let Some(guard) = Guard::take_back() else { return };
    OWN.leave();
    let mut locked = with_guard(guard);
    if let Some(heap) = locked.heap()
        && heap.backing().private_bytes.get().is_none()
    {
        let (copy, bytes) = (COPY.swap(null_mut(), Ordering::Relaxed), COPY_BYTES.load(Ordering::Relaxed));
        let base = heap.backing().base().cast::<c_void>();
        if copy.is_null() {
            give_up(&"no memory for a copy of the heap at fork; run it with a smaller heap");
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the copy has as many bytes as the mapping of the region that it replaces, with the same content;
        // the only thread is here.
        if unsafe { libc::mremap(copy, bytes, bytes, flags, base) } == libc::MAP_FAILED {
            give_up(&io::Error::last_os_error());
        }
        heap.backing().private_bytes.set(Some(bytes as u64));
    }
    locked.into_guard().start_anew();
}
