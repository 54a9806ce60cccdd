//! Memory that is not in the region: for the time before there is one, and for this library itself.
//!
//! One reserved range, cut into blocks whose sizes are powers of two; a freed block goes to the
//! list of its size. Nothing here is fast, and nothing has to be: a program makes a few dozen such
//! allocations, and some for each slab that its threads claim.
//!
//! Invariants: before each pointer that was handed out lie 16 bytes that say where its block starts
//! and how large it is; a block is in a list only while it is free; no other allocator is called.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::UnsafeCell;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Address space; memory is used from the start on.
const RANGE_BYTES: usize = 1 << 30;
const TAG_BYTES: usize = size_of::<Tag>();
const BLOCK_BITS_MIN: u32 = 5;

/// What lies before a pointer.
#[derive(Clone, Copy)]
#[repr(C)]
struct Tag {
    block: usize,
    bits: usize,
}

/// A small allocator over anonymous memory: free lists by powers of two.
pub(crate) struct Arena {
    /// The thread that is inside, or 0.
    owner: AtomicUsize,
    /// Start of the range, 0 before the first use.
    start: AtomicUsize,
    free: UnsafeCell<Free>,
}

struct Free {
    /// The first byte that was never used.
    next: usize,
    /// By the logarithm of the size; a free block's first word is the address of the next one.
    lists: [usize; usize::BITS as usize],
}

// SAFETY: `free` is only touched between `enter` and `leave`, by one thread at a time.
unsafe impl Sync for Arena {}

impl Arena {
    pub(crate) const fn new() -> Arena {
        Arena {
            owner: AtomicUsize::new(0),
            start: AtomicUsize::new(0),
            free: UnsafeCell::new(Free { next: 0, lists: [0; usize::BITS as usize] }),
        }
    }

    /// Waits until no other thread is inside. Also called before a fork, so that no child inherits
    /// a half-done list. `false` when this thread is inside further up, where a signal handler has
    /// interrupted it.
    #[must_use]
    pub(crate) fn enter(&self) -> bool {
        // SAFETY: no preconditions; never 0 (it is the address of the thread's control block).
        let us = unsafe { libc::pthread_self() } as usize;
        loop {
            match self.owner.compare_exchange_weak(0, us, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(owner) if owner == us => return false,
                // SAFETY: no preconditions.
                Err(_) => unsafe { libc::sched_yield() },
            };
        }
    }

    /// Lets others in again.
    pub(crate) fn leave(&self) {
        self.owner.store(0, Ordering::Release);
    }

    /// Whether the pointer was handed out here.
    pub(crate) fn owns(&self, pointer: NonNull<u8>) -> bool {
        let start = self.start.load(Ordering::Relaxed);
        start != 0 && pointer.addr().get().wrapping_sub(start) < RANGE_BYTES
    }

    /// `bytes` of whatever was there before, aligned.
    pub(crate) fn allocate(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let slack = TAG_BYTES + align.saturating_sub(TAG_BYTES);
        let block_bytes =
            bytes.checked_add(slack)?.checked_next_power_of_two()?.max(1 << BLOCK_BITS_MIN);
        let bits = block_bytes.trailing_zeros();
        if !self.enter() {
            return None;
        }
        // SAFETY: inside, so alone.
        let block = unsafe { self.block(bits) };
        self.leave();
        let block = block?;
        let address = (block + TAG_BYTES).next_multiple_of(align.max(TAG_BYTES));
        let tag = Tag { block, bits: bits as usize };
        // SAFETY: the tag's place lies in the block: at or behind its start, and before `address`,
        // behind which there is room for `bytes` because the block was chosen with slack for both.
        unsafe { std::ptr::with_exposed_provenance_mut::<Tag>(address - TAG_BYTES).write(tag) };
        NonNull::new(std::ptr::with_exposed_provenance_mut(address))
    }

    /// # Safety
    /// Only between `enter` and `leave`.
    unsafe fn block(&self, bits: u32) -> Option<usize> {
        // SAFETY: per the contract.
        let free = unsafe { &mut *self.free.get() };
        let list = &mut free.lists[bits as usize];
        if *list != 0 {
            let block = *list;
            // SAFETY: the first word of a free block, which nothing else uses.
            *list = unsafe { std::ptr::with_exposed_provenance::<usize>(block).read() };
            return Some(block);
        }
        let mut start = self.start.load(Ordering::Relaxed);
        if start == 0 {
            start = reserve()?;
            free.next = start;
            self.start.store(start, Ordering::Relaxed);
        }
        let block = free.next;
        let end = block.checked_add(1 << bits).filter(|end| *end <= start + RANGE_BYTES)?;
        free.next = end;
        Some(block)
    }

    fn tag(pointer: NonNull<u8>) -> Tag {
        // SAFETY: the caller got the pointer from `allocate`, which wrote the tag before it.
        unsafe { pointer.cast::<Tag>().sub(1).read() }
    }

    /// Bytes from the pointer to the end of its block.
    pub(crate) fn usable_bytes(&self, pointer: NonNull<u8>) -> usize {
        let tag = Arena::tag(pointer);
        tag.block + (1 << tag.bits) - pointer.addr().get()
    }

    /// Gives back what [`Arena::allocate`] returned.
    pub(crate) fn free(&self, pointer: NonNull<u8>) {
        let tag = Arena::tag(pointer);
        if !self.enter() {
            // The block stays allocated; that is all.
            return;
        }
        // SAFETY: inside, so alone; the block is the caller's and becomes free.
        unsafe {
            let list = &mut (*self.free.get()).lists[tag.bits];
            std::ptr::with_exposed_provenance_mut::<usize>(tag.block).write(*list);
            *list = tag.block;
        }
        self.leave();
    }
}

fn reserve() -> Option<usize> {
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let range = unsafe { libc::mmap(null_mut(), RANGE_BYTES, prot, flags, -1, 0) };
    (range != libc::MAP_FAILED).then(|| range.expose_provenance())
}

// SAFETY: blocks are disjoint, as large and aligned as asked for, and stay until they are freed.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.allocate(layout.size(), layout.align()).map_or(null_mut(), NonNull::as_ptr)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, _: Layout) {
        if let Some(pointer) = NonNull::new(pointer) {
            self.free(pointer);
        }
    }
}
