//! The heap when the program forks.
//!
//! A fork gives the child a copy of the parent's memory, but a region is shared memory, and the two
//! would write into each other's heap. No other program can open the file of a scratch heap, so
//! that heap becomes private memory of both: before the first fork the allocator maps its pages
//! again with MAP_PRIVATE. From then on the file stays as it is, and the kernel copies each page
//! that parent or child changes. The file keeps the pages of that moment, and no process reads
//! those that changed.
//!
//! A named heap must stay what its program does. So the parent copies it before each fork, and the
//! child puts the copy in the region's place: private memory from then on, of which later forks
//! copy nothing. The price is a copy of the whole heap. So it is with a scratch heap whose file
//! cannot be mapped, because the program has closed it.
//!
//! The C library writes into the child's memory (it resets the locks of every `FILE`) before any
//! handler runs there. So the region itself is kept out of the child, where its first touch, by
//! whomever, puts the copy into its place.
//!
//! Invariants:
//! - From before the fork to after it the lock is held and the arena is entered, and no thread has
//!   slabs of its own, so nothing of these is half-changed in the child.
//! - The handlers are installed before those of the program, so they run last before the fork and
//!   first after it: the program's own handlers may allocate.
//! - The child never has the region itself: it can neither change, grow nor close it. Nor does the
//!   parent, once its heap is private.
//! - A fork from a signal handler that interrupted this very allocator has a heap that nothing can
//!   copy, and one on a stack that lies in the heap cannot be copied under its own feet; the child
//!   ends with a message or a SIGSEGV at its first touch, and the parent goes on.
//!
//! What it cannot do: notice a child made by `_Fork` or `clone`, which has the region, and must
//! exec or `_exit`.

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::fs::MetadataExt;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicUsize, Ordering};

use holdfast_heap::{Backing, GrowError};
use holdfast_native_heap::RegionBacking;
use holdfast_sys::fault::{ask_first, ask_no_more};
use holdfast_sys::mapping::{Prot, map_anon_fixed, map_private_fixed, share_with_children};

use crate::lock::{Guard, lock};
use crate::preloaded::{NO_HEAP_STATUS, give_up, is_in_heap, range, with_guard};
use crate::{OWN, own};

/// A private heap grows in steps of this.
const GROWTH_STEP_BYTES: u64 = 4 << 20;

/// A region's memory, or after a fork private memory in its place.
pub(crate) struct ForkBacking {
    region: RegionBacking,
    /// What may become private of a scratch heap.
    image: Option<Image>,
    /// How much there is, once it is private.
    private_bytes: Cell<Option<u64>>,
}

/// The file of a heap, which has no name any more.
struct Image {
    file: File,
    device: u64,
    inode: u64,
    /// Where in it the heap's first byte is.
    offset: u64,
}

impl ForkBacking {
    /// `file` is that of a scratch heap's image.
    pub(crate) fn new(region: RegionBacking, file: Option<File>) -> ForkBacking {
        let image = file.and_then(|file| Image::new(file, region.base()));
        ForkBacking { region, image, private_bytes: Cell::new(None) }
    }

    /// Makes the heap private memory of this process, with what it holds; `false`, and nothing
    /// done, where that is not possible.
    fn make_private(&self) -> bool {
        let bytes = self.region.backed_bytes();
        let Some(image) = self.image.as_ref().filter(|image| image.is_open()) else { return false };
        // SAFETY: the heap's own range, with the same bytes in it; threads that are storing there
        // do so before or after, and nothing else looks at the file. After a failure for want of
        // memory the range may be empty, where the program ends with its next access.
        let mapped = unsafe {
            map_private_fixed(
                self.base(),
                bytes as usize,
                &image.file,
                image.offset,
                Prot::ReadWrite,
            )
        };
        if mapped.is_ok() {
            self.private_bytes.set(Some(bytes));
        }
        mapped.is_ok()
    }
}

impl Image {
    fn new(file: File, base: *const u8) -> Option<Image> {
        let found = file.metadata().ok()?;
        let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
        let offset = maps.lines().find_map(|line| offset_at(line, base.addr()))?;
        Some(Image { file, device: found.dev(), inode: found.ino(), offset })
    }

    /// Whether the descriptor still is of the file: programs close descriptors that they have not
    /// opened.
    fn is_open(&self) -> bool {
        let found = self.file.metadata();
        found.is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode))
    }
}

/// The offset in its file of an address, if a line of `/proc/self/maps` is about it.
fn offset_at(line: &str, address: usize) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
    let (start, end, offset) = (number(start)?, number(end)?, number(fields.nth(1)?)?);
    let address = address as u64;
    (start..end).contains(&address).then(|| offset + (address - start))
}

// SAFETY: while shared, that of the region. Afterwards the same addresses, of which as many bytes
// are private memory, and which the region's reservation still keeps from everybody else.
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

    fn is_ordered(&self) -> bool {
        self.region.is_ordered()
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

/// Whether the heap is private memory already.
static IS_PRIVATE: AtomicBool = AtomicBool::new(false);
/// Whether the lock is kept for the fork under way; and whether that fork cannot be served.
static KEPT: AtomicBool = AtomicBool::new(false);
static BARRED: AtomicBool = AtomicBool::new(false);
/// The forking process.
static PARENT: AtomicI32 = AtomicI32::new(0);
/// The heap, and its copy for the child, from before the fork to after it.
static BASE: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static COPY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Called once, when there is a heap.
pub(crate) fn install_handlers() {
    // SAFETY: functions of this library, which is never unloaded.
    let refused = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    if refused != 0 {
        give_up(&io::Error::from_raw_os_error(refused));
    }
}

extern "C" fn before() {
    let here = 0_u8;
    let on_heap = !IS_PRIVATE.load(Ordering::Relaxed) && is_in_heap(NonNull::from(&here));
    let Some(guard) = (!on_heap && !own::is_inside()).then(lock).flatten() else {
        if !IS_PRIVATE.load(Ordering::Relaxed) {
            let (base, end) = range();
            show(base, end - base, false);
            BARRED.store(true, Ordering::Relaxed);
        }
        return;
    };
    let mut locked = with_guard(guard);
    if let Some(heap) = locked.heap() {
        heap.take_back_slabs();
    }
    if let Some(heap) = locked.heap()
        && heap.backing().private_bytes.get().is_none()
        && heap.backing().make_private()
    {
        IS_PRIVATE.store(true, Ordering::Relaxed);
    }
    if let Some(heap) = locked.heap()
        && heap.backing().private_bytes.get().is_none()
    {
        let (base, bytes) = (heap.backing().base(), heap.backing().backed_bytes() as usize);
        COPY.store(copy_of(base, bytes).map_or(null_mut(), NonNull::as_ptr), Ordering::Relaxed);
        BASE.store(base.addr(), Ordering::Relaxed);
        BYTES.store(bytes, Ordering::Relaxed);
        // SAFETY: no preconditions.
        PARENT.store(unsafe { libc::getpid() }, Ordering::Relaxed);
        SIGNALS.prepare();
        show(base.addr(), bytes, false);
    }
    // Inside further up it is this thread that is, as with the lock, which it would not have got.
    let _ = OWN.enter();
    KEPT.store(true, Ordering::Relaxed);
    locked.into_guard().keep();
}

/// Whether a child gets the region.
fn show(base: usize, bytes: usize, shown: bool) {
    let base = std::ptr::with_exposed_provenance_mut(base);
    // SAFETY: the range is the heap's. What a child gets instead, this module decides.
    if unsafe { share_with_children(base, bytes, shown) }.is_err() && !shown {
        end(b"holdfast-malloc: the heap cannot be kept from a forked child; run the program without forks\n");
    }
}

fn copy_of(base: *const u8, bytes: usize) -> Option<NonNull<c_void>> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice, filled from the heap's own bytes,
    // which no other thread allocates from meanwhile.
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
    if BARRED.swap(false, Ordering::Relaxed) {
        let (base, end) = range();
        show(base, end - base, true);
    }
    // Not kept, the lock is that of a frame further up.
    let Some(guard) = KEPT.swap(false, Ordering::Relaxed).then(Guard::take_back).flatten() else {
        return;
    };
    OWN.leave();
    if !IS_PRIVATE.load(Ordering::Relaxed) {
        SIGNALS.restore();
        let bytes = BYTES.load(Ordering::Relaxed);
        show(BASE.load(Ordering::Relaxed), bytes, true);
        let copy = COPY.swap(null_mut(), Ordering::Relaxed);
        if !copy.is_null() {
            // SAFETY: the copy made before the fork, which nothing else knows.
            unsafe { libc::munmap(copy, bytes) };
        }
    }
    drop(guard);
}

extern "C" fn in_child() {
    if BARRED.load(Ordering::Relaxed) {
        end(
            b"holdfast-malloc: a signal handler that interrupted malloc has forked, which cannot be served\n",
        );
    }
    let Some(guard) = KEPT.swap(false, Ordering::Relaxed).then(Guard::take_back).flatten() else {
        return;
    };
    OWN.leave();
    own::register();
    let mut locked = with_guard(guard);
    if let Some(heap) = locked.heap()
        && heap.backing().private_bytes.get().is_none()
    {
        adopt();
        SIGNALS.restore();
        heap.backing().private_bytes.set(Some(BYTES.load(Ordering::Relaxed) as u64));
    }
    locked.into_guard().start_anew();
}

/// A fault while a fork is under way: in the child it is the first touch of the heap.
fn resolve(address: usize) -> bool {
    let base = BASE.load(Ordering::Relaxed);
    // SAFETY: no preconditions, async-signal-safe.
    let is_child = unsafe { libc::getpid() } != PARENT.load(Ordering::Relaxed);
    let is_first = is_child && !IS_PRIVATE.load(Ordering::Relaxed);
    if is_first && (base..base + BYTES.load(Ordering::Relaxed)).contains(&address) {
        adopt();
        return true;
    }
    false
}

/// Puts the copy where the heap was, unless it is there. Only in a child; async-signal-safe.
fn adopt() {
    if IS_PRIVATE.load(Ordering::Relaxed) {
        return;
    }
    let (copy, bytes) = (COPY.swap(null_mut(), Ordering::Relaxed), BYTES.load(Ordering::Relaxed));
    if copy.is_null() {
        end(b"holdfast-malloc: no memory for a copy of the heap at fork; run it with a smaller heap\n");
    }
    let base = std::ptr::with_exposed_provenance_mut::<c_void>(BASE.load(Ordering::Relaxed));
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // SAFETY: the copy has as many bytes as the heap, whose place is empty; the only thread is
    // here.
    if unsafe { libc::mremap(copy, bytes, bytes, flags, base) } == libc::MAP_FAILED {
        end(b"holdfast-malloc: the copy of the heap cannot be mapped in a forked child\n");
    }
    IS_PRIVATE.store(true, Ordering::Relaxed);
}

/// Says why, and ends the process. Neither allocates nor takes a lock.
fn end(reason: &[u8]) -> ! {
    // SAFETY: a valid buffer; both are async-signal-safe.
    unsafe {
        libc::write(libc::STDERR_FILENO, reason.as_ptr().cast(), reason.len());
        libc::_exit(NO_HEAP_STATUS)
    }
}

/// Enough for the frame of a handler on every processor.
const STACK_BYTES: usize = 64 << 10;

/// What lets the first touch be noticed: the handler, a stack for it that is not in the heap, and
/// an open mask.
struct Signals {
    stack: UnsafeCell<[MaybeUninit<u8>; STACK_BYTES]>,
    stack_before: UnsafeCell<Option<libc::stack_t>>,
    mask_before: UnsafeCell<MaybeUninit<libc::sigset_t>>,
}

// SAFETY: touched only between `before` and its counterpart, under the lock.
unsafe impl Sync for Signals {}

static SIGNALS: Signals = Signals {
    stack: UnsafeCell::new([MaybeUninit::uninit(); STACK_BYTES]),
    stack_before: UnsafeCell::new(None),
    mask_before: UnsafeCell::new(MaybeUninit::uninit()),
};

impl Signals {
    fn prepare(&self) {
        // SAFETY: under the lock; all-zero is valid for these plain structs; `resolve` is
        // async-signal-safe.
        unsafe {
            let mut before: libc::stack_t = std::mem::zeroed();
            let ours =
                libc::stack_t { ss_sp: self.stack.get().cast(), ss_flags: 0, ss_size: STACK_BYTES };
            // Refused to who is on such a stack already; then that one is good enough.
            *self.stack_before.get() =
                (libc::sigaltstack(&ours, &mut before) == 0).then_some(before);
            let mut faults: libc::sigset_t = std::mem::zeroed();
            libc::sigaddset(&mut faults, libc::SIGSEGV);
            libc::pthread_sigmask(
                libc::SIG_UNBLOCK,
                &faults,
                (*self.mask_before.get()).as_mut_ptr(),
            );
            if ask_first(resolve).is_err() {
                end(b"holdfast-malloc: no handler for the faults of a forked child can be installed\n");
            }
        }
    }

    fn restore(&self) {
        // SAFETY: under the lock, after `prepare`.
        unsafe {
            ask_no_more();
            libc::pthread_sigmask(
                libc::SIG_SETMASK,
                (*self.mask_before.get()).as_ptr(),
                null_mut(),
            );
            if let Some(before) = (*self.stack_before.get()).take() {
                libc::sigaltstack(&before, null_mut());
            }
        }
    }
}
