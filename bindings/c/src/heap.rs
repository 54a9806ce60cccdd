//! The functions of `holdfast.h` over the heaps that the host granted. Every `unsafe` here leans on
//! the contract in the header: pointers are NULL where it allows that and valid otherwise.
//!
//! Invariant: one caller at a time in each heap: by a lock (in WebAssembly there is one thread, and
//! the lock is none), or because the calling thread has the heap as its compartment.

#![allow(unreachable_pub, reason = "exported by symbol name")]

use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::{AtomicBool, Ordering};

use holdfast_c_core::{
    Calls, Code, HeapCallError, HeapHandle, Library, export_calls, optional_text,
};
use holdfast_guest::{
    AttachError, CommitError, Durability, Heap, HeapKeeper, HostRegion, index_of,
};

use crate::last_error;
use crate::slots;

/// Whether the heaps that are opened from now on are portable ones.
static PORTABLE: AtomicBool = AtomicBool::new(false);

/// What `nv_portable` was told last.
pub(crate) fn is_portable() -> bool {
    PORTABLE.load(Ordering::Relaxed)
}

/// An error is its code: texts that are put together would make every applet larger.
pub(crate) struct Failed(pub(crate) Code);

impl From<HeapCallError> for Failed {
    fn from(error: HeapCallError) -> Self {
        Failed(error.code())
    }
}

/// Notes a failure for this thread.
fn noted(Failed(code): Failed) -> c_int {
    last_error::note(code.number())
}

/// 0, or the noted code.
fn status(result: Result<(), Failed>) -> c_int {
    result.err().map_or(0, noted)
}

/// The C library of applets.
struct Applet;

impl Library for Applet {
    type Backing = HostRegion;
    type Error = Failed;

    fn with<R>(work: impl FnOnce(&mut Calls<HostRegion>) -> Result<R, Failed>) -> Result<R, c_int> {
        slots::with_current(|slot| slot.work(work)).map_err(noted)
    }

    fn with_in<R>(
        heap: HeapHandle,
        work: impl FnOnce(&mut Calls<HostRegion>) -> Result<R, Failed>,
    ) -> Result<R, c_int> {
        slots::with_handle(heap, |slot| slot.work(work)).map_err(noted)
    }

    fn make_durable(heap: &mut Heap, level: Durability) -> Result<(), Failed> {
        heap.backing().commit(level).map_err(|error| match error {
            CommitError::Unsupported => Failed(Code::Unsupported),
            _ => Failed(Code::Failed),
        })
    }
}

pub(crate) fn code_of(error: AttachError) -> Code {
    match error {
        AttachError::NotGranted => Code::NotGranted,
        AttachError::Held => Code::Held,
        AttachError::InCompartment => Code::IsOpen,
        AttachError::InTransaction => Code::InTransaction,
        AttachError::AtomicCompartment => Code::Unsupported,
        AttachError::NoHost => Code::NoHost,
        AttachError::MemoryShape => Code::MemoryShape,
        AttachError::Open(error) => Code::from(&error),
        _ => Code::Failed,
    }
}

export_calls!(Applet);

/// See `holdfast_types.h`. An applet's heap lies at its own place in every run.
#[unsafe(no_mangle)]
pub extern "C" fn nv_register_type(_described: *const c_void) -> c_int {
    0
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_portable(is_portable: c_int) {
    PORTABLE.store(is_portable != 0, Ordering::Relaxed);
}

/// See `holdfast.h`. An applet has the heap that its host granted, so it can name none.
#[unsafe(no_mangle)]
pub extern "C" fn nv_open(name: *const c_char, _limit_bytes: u64) -> c_int {
    let granted = |_: &mut Calls<HostRegion>| {
        if name.is_null() { Ok(()) } else { Err(Failed(Code::Unsupported)) }
    };
    Applet::with(granted).err().unwrap_or(0)
}

/// See `holdfast.h`. The heap that the host has granted under this name; NULL: the first one.
///
/// # Safety
/// `name` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_heap_open(name: *const c_char) -> HeapHandle {
    // SAFETY: the same contract.
    let opened = match unsafe { optional_text(name) } {
        Ok(name) => open_named(name),
        Err(error) => Err(Failed::from(error)),
    };
    opened.unwrap_or_else(|Failed(code)| {
        last_error::note(code.number());
        HeapHandle::NONE
    })
}

/// See `holdfast.h`. The host closes the heap when the applet ends; only what is open is rolled
/// back here.
#[unsafe(no_mangle)]
pub extern "C" fn nv_heap_close(heap: HeapHandle) -> c_int {
    status(slots::with_handle(heap, |slot| {
        slot.abort_all();
        Ok(())
    }))
}

/// See `holdfast.h`. The mode is the host's choice.
#[unsafe(no_mangle)]
pub extern "C" fn nv_open_atomic(_name: *const c_char, _limit_bytes: u64) -> c_int {
    Applet::with(|_: &mut Calls<HostRegion>| Err::<(), _>(Failed(Code::Unsupported)))
        .err()
        .unwrap_or(0)
}

/// See `holdfast.h`. The limit is the owner's choice, and the applet is not the owner.
#[unsafe(no_mangle)]
pub extern "C" fn nv_set_limit(_limit_bytes: u64) -> c_int {
    Applet::with(|_: &mut Calls<HostRegion>| Err::<(), _>(Failed(Code::Unsupported)))
        .err()
        .unwrap_or(0)
}

/// See `holdfast.h`. The host chose the mode, and rolls back on its own when an applet fails.
#[unsafe(no_mangle)]
pub extern "C" fn nv_rollback() -> c_int {
    Applet::with(|_: &mut Calls<HostRegion>| Err::<(), _>(Failed(Code::Unsupported)))
        .err()
        .unwrap_or(0)
}

/// See `holdfast.h`. The host closes the heap when the applet ends; only what is open is rolled
/// back here.
#[unsafe(no_mangle)]
pub extern "C" fn nv_close() -> c_int {
    slots::close();
    0
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_session() -> u64 {
    slots::session()
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_errno() -> c_int {
    last_error::last()
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_message() -> *const c_char {
    nv_strerror(nv_errno())
}

/// The heaps, while the applet serves.
pub(crate) struct ServedHeap;

impl HeapKeeper for ServedHeap {
    fn roll_back(&mut self) {
        let _: Result<(), Failed> = slots::each(|slot| {
            slot.abort_all();
            Ok(())
        });
    }

    fn forget(&mut self) -> Result<(), AttachError> {
        slots::reopen_each()
    }
}

/// The handle of a granted heap, which is attached if it was not.
fn open_named(name: Option<&str>) -> Result<HeapHandle, Failed> {
    let index = match name {
        None => 0,
        Some(name) => index_of(name).map_err(|error| Failed(code_of(error)))?,
    };
    slots::open(index, name)?;
    Ok(HeapHandle::of(index))
}

/// See `holdfast.h`.
///
/// # Safety
/// `name` must be NULL or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nv_compartment_enter(name: *const c_char) -> c_int {
    // SAFETY: the same contract.
    let name = unsafe { optional_text(name) }.map_err(Failed::from);
    status(name.and_then(slots::enter))
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_compartment_leave() -> c_int {
    status(slots::leave())
}
