//! The exported functions. Every `unsafe` here leans on the contract in `holdfast.h`: pointers are NULL where
//! the header allows it and valid otherwise, and the program has one thread.

#![allow(unreachable_pub, reason = "exported by symbol name")]

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr::{NonNull, null, null_mut};

use holdfast_guest::{AttachError, CommitError, Durability, GrowError, Heap, HeapError, attach, commit};

const NOT_GRANTED: c_int = 1;
const LIMIT_REACHED: c_int = 2;
const NO_ROOM: c_int = 3;
const UNSUPPORTED: c_int = 4;
const FAILED: c_int = 5;
const NOT_ALLOCATED: c_int = 6;
const MEMORY_SHAPE: c_int = 7;
const NOT_A_HEAP: c_int = 8;
const NAME_TAKEN: c_int = 9;
const NO_SUCH_ROOT: c_int = 10;
const BAD_NAME: c_int = 11;
const BAD_RANGE: c_int = 12;
const NO_TRANSACTION: c_int = 13;
const IN_TRANSACTION: c_int = 14;

struct State {
    heap: Option<Heap>,
    attach_failed: c_int,
    last_error: c_int,
    depth: u32,
    aborted: bool,
}

struct OneThread(UnsafeCell<State>);

// SAFETY: an applet has one thread; the header says so.
unsafe impl Sync for OneThread {}

static STATE: OneThread = OneThread(UnsafeCell::new(State {
    heap: None,
    attach_failed: 0,
    last_error: 0,
    depth: 0,
    aborted: false,
}));

fn code_of(error: HeapError) -> c_int {
    match error {
        HeapError::OutOfMemory { cause: GrowError::LimitReached { .. }, .. } => LIMIT_REACHED,
        HeapError::OutOfMemory { cause: GrowError::NoRoom, .. } => NO_ROOM,
        HeapError::NotAllocated => NOT_ALLOCATED,
        HeapError::OutsideHeap => BAD_RANGE,
        HeapError::NameTaken => NAME_TAKEN,
        HeapError::NoSuchRoot => NO_SUCH_ROOT,
        HeapError::BadName => BAD_NAME,
        HeapError::TransactionState { expected_open: true } => NO_TRANSACTION,
        HeapError::TransactionState { expected_open: false } => IN_TRANSACTION,
        _ => FAILED,
    }
}

/// Runs `work` with the attached heap; remembers its error.
fn with_heap<R>(work: impl FnOnce(&mut Heap, &mut u32, &mut bool) -> Result<R, c_int>) -> Result<R, c_int> {
    // SAFETY: one thread, and no exported function calls another, so this is the only reference.
    let state = unsafe { &mut *STATE.0.get() };
    if state.heap.is_none() && state.attach_failed == 0 {
        match attach() {
            Ok(heap) => state.heap = Some(heap),
            Err(error) => {
                state.attach_failed = match error {
                    AttachError::NotGranted => NOT_GRANTED,
                    AttachError::MemoryShape => MEMORY_SHAPE,
                    AttachError::Open(_) => NOT_A_HEAP,
                    _ => FAILED,
                }
            }
        }
    }
    let result = match &mut state.heap {
        Some(heap) => work(heap, &mut state.depth, &mut state.aborted),
        None => Err(state.attach_failed),
    };
    if let Err(code) = result {
        state.last_error = code;
    }
    result
}

fn status(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}

/// # Safety
/// `name` must be a C string.
unsafe fn text<'a>(name: *const c_char) -> Result<&'a str, c_int> {
    // SAFETY: per the contract.
    unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| BAD_NAME)
}

/// See `holdfast.h`.
///
/// # Safety
/// `name` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvmalloc(name: *const c_char, size: usize) -> *mut c_void {
    let made = with_heap(|heap, _, _| {
        if name.is_null() {
            return heap.alloc_zeroed(size as u64).map_err(code_of);
        }
        // SAFETY: not NULL, so a C string by the contract.
        heap.create_root(unsafe { text(name) }?, size as u64).map_err(code_of)
    });
    made.map_or(null_mut(), |pointer| pointer.as_ptr().cast())
}

/// See `holdfast.h`.
///
/// # Safety
/// `name` must be a C string, `size` NULL or a pointer to a `size_t`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvread(name: *const c_char, size: *mut usize) -> *mut c_void {
    let found = with_heap(|heap, _, _| {
        // SAFETY: a C string by the contract.
        heap.root(unsafe { text(name) }?).ok_or(NO_SUCH_ROOT)
    });
    let Ok(root) = found else { return null_mut() };
    if !size.is_null() {
        // SAFETY: not NULL, so valid by the contract.
        unsafe { *size = root.bytes as usize };
    }
    root.pointer.as_ptr().cast()
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nvfree(object: *mut c_void) -> c_int {
    status(with_heap(|heap, _, _| {
        let object = NonNull::new(object.cast()).ok_or(NOT_ALLOCATED)?;
        heap.free(object).map_err(code_of)
    }))
}

/// See `holdfast.h`.
///
/// # Safety
/// `name` must be a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvremove(name: *const c_char) -> c_int {
    // SAFETY: a C string by the contract.
    status(with_heap(|heap, _, _| heap.remove_root(unsafe { text(name) }?).map_err(code_of)))
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_tx_begin() -> c_int {
    status(with_heap(|heap, depth, aborted| {
        if *depth == 0 {
            heap.begin().map_err(code_of)?;
            *aborted = false;
        }
        *depth += 1;
        Ok(())
    }))
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_tx_add(start: *const c_void, size: usize) -> c_int {
    status(with_heap(|heap, _, _| heap.add_range(start.cast(), size as u64).map_err(code_of)))
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_tx_commit() -> c_int {
    status(with_heap(|heap, depth, aborted| {
        *depth = depth.checked_sub(1).ok_or(NO_TRANSACTION)?;
        if *aborted {
            // An inner abort has rolled it all back; only the levels are left to close.
            return Err(NO_TRANSACTION);
        }
        if *depth == 0 { heap.commit().map_err(code_of) } else { Ok(()) }
    }))
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_tx_abort() -> c_int {
    status(with_heap(|heap, depth, aborted| {
        *depth = depth.checked_sub(1).ok_or(NO_TRANSACTION)?;
        if *aborted {
            return Ok(());
        }
        *aborted = *depth > 0;
        heap.abort().map_err(code_of)
    }))
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_commit(level: c_int) -> c_int {
    status(with_heap(|heap, _, _| {
        if heap.in_transaction() {
            return Err(IN_TRANSACTION);
        }
        let level = match level {
            0 => Durability::Process,
            1 => Durability::System,
            2 => Durability::Power,
            _ => return Err(UNSUPPORTED),
        };
        commit(level).map_err(|error| match error {
            CommitError::Unsupported => UNSUPPORTED,
            _ => FAILED,
        })
    }))
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_errno() -> c_int {
    // SAFETY: one thread, and no other reference is alive outside `with_heap`.
    unsafe { (*STATE.0.get()).last_error }
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_strerror(error: c_int) -> *const c_char {
    let text = match error {
        0 => c"no error",
        NOT_GRANTED => c"no heap was granted; start the applet with --heap NAME",
        LIMIT_REACHED => {
            c"the heap's limit is reached; free something, or make a heap with a larger --heap-size"
        }
        NO_ROOM => {
            c"the pool is full; remove heaps that are not needed, or set HOLDFAST_POOL to a larger tmpfs"
        }
        UNSUPPORTED => c"the host does not offer this durability level; ask for NV_POWER",
        FAILED => c"the host failed; run `holdfast doctor`",
        NOT_ALLOCATED => c"the pointer is not the start of an allocated object (freed twice?)",
        MEMORY_SHAPE => c"no room for the heap at 2 GiB; link without a maximum memory size",
        NOT_A_HEAP => c"the region's bytes are not a heap for this program; run `holdfast heap check`",
        NAME_TAKEN => c"a root of that name exists; nvread it, or nvremove it first",
        NO_SUCH_ROOT => c"no root has that name; nvmalloc it first",
        BAD_NAME => c"a root's name has 1 to 255 bytes of UTF-8",
        BAD_RANGE => c"the range is not inside the heap",
        NO_TRANSACTION => c"no transaction is open; call nv_tx_begin first",
        IN_TRANSACTION => c"a transaction is open; commit or abort it first",
        _ => return null(),
    };
    text.as_ptr()
}
