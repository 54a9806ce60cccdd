//! The exported functions: `malloc` and its family, as POSIX and the GNU C library define them.
//!
//! Invariants: nothing here panics or allocates through Rust; before there is a heap, and when the
//! heap is in use further up in the same thread, memory comes from the arena; a pointer that is
//! neither's is left alone.

#![allow(unreachable_pub, reason = "exported by symbol name")]

use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};

use crate::aligned::{self, ALIGN_MIN};
use crate::preloaded::{is_in_heap, locked};
use crate::{OWN, own};

fn allocate(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    // A thread has slabs only where there is a heap.
    if align <= ALIGN_MIN
        && let Some(object) = own::allocate(bytes)
    {
        return Some(object);
    }
    if bytes > isize::MAX as usize {
        return None;
    }
    allocate_slowly(bytes, align)
}

#[cold]
#[inline(never)]
fn allocate_slowly(bytes: usize, align: usize) -> Option<NonNull<u8>> {
    match locked() {
        Some(mut locked) if align <= ALIGN_MIN => own::allocate_in(locked.heap()?, bytes),
        Some(mut locked) => aligned::allocate(locked.heap()?, bytes, align),
        None => OWN.allocate(bytes, align),
    }
}

fn set_errno(errno: c_int) {
    // SAFETY: this thread's own.
    unsafe { *libc::__errno_location() = errno };
}

/// For C: NULL and ENOMEM where there is none.
fn answer(allocated: Option<NonNull<u8>>) -> *mut c_void {
    match allocated {
        Some(pointer) => pointer.as_ptr().cast(),
        None => {
            set_errno(libc::ENOMEM);
            null_mut()
        }
    }
}

/// Bytes that may be used at a pointer; `None` when it is not ours.
fn usable_bytes(pointer: NonNull<u8>) -> Option<usize> {
    if is_in_heap(pointer) {
        if let Some(bytes) = own::usable_bytes(pointer) {
            return Some(bytes);
        }
        let mut locked = locked()?;
        return aligned::object_of(locked.heap()?, pointer).map(|(_, bytes)| bytes);
    }
    OWN.owns(pointer).then(|| OWN.usable_bytes(pointer))
}

/// See malloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn malloc(bytes: usize) -> *mut c_void {
    match own::allocate(bytes) {
        Some(object) => object.as_ptr().cast(),
        None => malloc_slowly(bytes),
    }
}

#[cold]
#[inline(never)]
fn malloc_slowly(bytes: usize) -> *mut c_void {
    answer(allocate(bytes, ALIGN_MIN))
}

/// See malloc(3).
///
/// # Safety
/// `pointer` must be NULL or allocated, and not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(pointer: *mut c_void) {
    let Some(pointer) = NonNull::new(pointer.cast::<u8>()) else { return };
    // It may be asked for any pointer.
    if !own::free(pointer) {
        free_slowly(pointer);
    }
}

#[cold]
#[inline(never)]
fn free_slowly(pointer: NonNull<u8>) {
    if is_in_heap(pointer) {
        // In use further up: a signal handler frees. The object stays allocated; that is all.
        let Some(mut locked) = locked() else { return };
        let Some(heap) = locked.heap() else { return };
        if own::free_in(heap, pointer).is_err()
            && let Some((object, _)) = aligned::object_of(heap, pointer)
        {
            let _ = heap.free(object);
        }
    } else if OWN.owns(pointer) {
        OWN.free(pointer);
    }
}

/// See malloc(3).
#[unsafe(no_mangle)]
pub extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    let allocated = count.checked_mul(bytes).and_then(|bytes| {
        let pointer = allocate(bytes, ALIGN_MIN)?;
        // SAFETY: just allocated with at least as many bytes.
        unsafe { pointer.as_ptr().write_bytes(0, bytes) };
        Some(pointer)
    });
    answer(allocated)
}

/// See malloc(3).
///
/// # Safety
/// `pointer` must be NULL or allocated; unless the result is NULL it is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realloc(pointer: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(old) = NonNull::new(pointer.cast::<u8>()) else { return malloc(bytes) };
    if bytes == 0 {
        // SAFETY: the caller's contract.
        unsafe { free(pointer) };
        return null_mut();
    }
    // Of foreign memory not even the size is known.
    let Some(old_bytes) = usable_bytes(old) else { return answer(None) };
    if bytes <= old_bytes && bytes >= old_bytes / 2 {
        return pointer;
    }
    let new = allocate(bytes, ALIGN_MIN);
    if let Some(new) = new {
        // SAFETY: two different objects with at least as many bytes each; the old one is the
        // caller's to give.
        unsafe {
            new.copy_from_nonoverlapping(old, old_bytes.min(bytes));
            free(pointer);
        }
    }
    answer(new)
}

/// See malloc(3).
///
/// # Safety
/// As `realloc`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn reallocarray(
    pointer: *mut c_void,
    count: usize,
    bytes: usize,
) -> *mut c_void {
    match count.checked_mul(bytes) {
        // SAFETY: the caller's contract.
        Some(bytes) => unsafe { realloc(pointer, bytes) },
        None => answer(None),
    }
}

/// See posix_memalign(3).
///
/// # Safety
/// `result` must be valid for a store.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_memalign(
    result: *mut *mut c_void,
    align: usize,
    bytes: usize,
) -> c_int {
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return libc::EINVAL;
    }
    let Some(pointer) = allocate(bytes, align) else { return libc::ENOMEM };
    // SAFETY: the caller's contract.
    unsafe { *result = pointer.as_ptr().cast() };
    0
}

/// See posix_memalign(3).
#[unsafe(no_mangle)]
pub extern "C" fn aligned_alloc(align: usize, bytes: usize) -> *mut c_void {
    if !align.is_power_of_two() {
        set_errno(libc::EINVAL);
        return null_mut();
    }
    answer(allocate(bytes, align))
}

/// See posix_memalign(3).
#[unsafe(no_mangle)]
pub extern "C" fn memalign(align: usize, bytes: usize) -> *mut c_void {
    aligned_alloc(align.checked_next_power_of_two().unwrap_or(0), bytes)
}

fn page_bytes() -> usize {
    // SAFETY: no preconditions; page sizes are positive.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// See posix_memalign(3).
#[unsafe(no_mangle)]
pub extern "C" fn valloc(bytes: usize) -> *mut c_void {
    answer(allocate(bytes, page_bytes()))
}

/// See posix_memalign(3).
#[unsafe(no_mangle)]
pub extern "C" fn pvalloc(bytes: usize) -> *mut c_void {
    let whole = bytes.checked_next_multiple_of(page_bytes());
    answer(whole.and_then(|bytes| allocate(bytes, page_bytes())))
}

/// See malloc_usable_size(3).
///
/// # Safety
/// `pointer` must be NULL or allocated.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(pointer: *mut c_void) -> usize {
    NonNull::new(pointer.cast()).and_then(usable_bytes).unwrap_or(0)
}
