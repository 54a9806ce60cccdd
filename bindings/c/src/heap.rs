//! The functions of `holdfast.h` over the heaps that the host granted. Every `unsafe` here leans on
//! the contract in the header: pointers are NULL where it allows that and valid otherwise.
//!
//! Invariant: one caller at a time, by a lock (in WebAssembly there is one thread, and the lock is
//! none).

#![allow(unreachable_pub, reason = "exported by symbol name")]

use core::ffi::{c_char, c_int, c_void};

use holdfast_c_core::{
    Calls, Code, HeapCallError, HeapHandle, Library, export_calls, optional_text,
};
use holdfast_guest::{
    AttachError, CommitError, Durability, HEAPS_MAX, Heap, HeapKeeper, HostRegion, Lock, OpenError,
    attach, attach_named, forget, index_of, keep, reopen,
};

use crate::last_error;

/// What there is of one heap.
struct Slot {
    calls: Option<Calls<HostRegion>>,
    /// Why it is not there.
    failed: Option<Code>,
}

struct State {
    /// The heap of the functions that name none.
    first: Slot,
    /// The others, by their index less 1, once they were asked for. In memory that is taken then:
    /// most applets have one heap.
    others: [Option<&'static mut Slot>; HEAPS_MAX - 1],
    /// How often `nv_close` was called.
    closed: u64,
}

static STATE: Lock<State> = Lock::new(State {
    first: Slot { calls: None, failed: None },
    others: [const { None }; HEAPS_MAX - 1],
    closed: 0,
});

impl State {
    /// All that were opened.
    fn slots(&mut self) -> impl Iterator<Item = &mut Slot> {
        let others = self.others.iter_mut().flatten().map(|slot| &mut **slot);
        core::iter::once(&mut self.first).chain(others)
    }

    /// The slot of an opened heap.
    fn slot(&mut self, heap: HeapHandle) -> Option<&mut Slot> {
        match heap.index()? {
            0 => Some(&mut self.first),
            index => self.others.get_mut(index - 1)?.as_deref_mut(),
        }
    }
}

impl Slot {
    fn work<R>(
        &mut self,
        work: impl FnOnce(&mut Calls<HostRegion>) -> Result<R, Failed>,
    ) -> Result<R, Failed> {
        match &mut self.calls {
            Some(calls) => work(calls),
            None => Err(Failed(self.failed.unwrap_or(Code::Failed))),
        }
    }

    fn abort_all(&mut self) {
        while self.calls.as_mut().is_some_and(|calls| calls.abort().is_ok()) {}
    }
}

/// An error is its code: texts that are put together would make every applet larger.
struct Failed(Code);

impl From<HeapCallError> for Failed {
    fn from(error: HeapCallError) -> Self {
        Failed(error.code())
    }
}

/// The C library of applets.
struct Applet;

impl Library for Applet {
    type Backing = HostRegion;
    type Error = Failed;

    fn with<R>(work: impl FnOnce(&mut Calls<HostRegion>) -> Result<R, Failed>) -> Result<R, c_int> {
        let result = STATE.with(|state| {
            attach_first(&mut state.first);
            state.first.work(work)
        });
        result.map_err(|Failed(code)| last_error::note(code.number()))
    }

    fn with_in<R>(
        heap: HeapHandle,
        work: impl FnOnce(&mut Calls<HostRegion>) -> Result<R, Failed>,
    ) -> Result<R, c_int> {
        let result = STATE.with(|state| match state.slot(heap) {
            Some(slot) => slot.work(work),
            None => Err(Failed(Code::NotGranted)),
        });
        result.map_err(|Failed(code)| last_error::note(code.number()))
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
        AttachError::NoHost => Code::NoHost,
        AttachError::MemoryShape => Code::MemoryShape,
        // A run that may write has to come first.
        AttachError::Open(OpenError::Unfinished) => Code::ReadOnly,
        AttachError::Open(_) => Code::NotAHeap,
        _ => Code::Failed,
    }
}

export_calls!(Applet);

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
    let closed = STATE.with(|state| state.slot(heap).map(Slot::abort_all));
    match closed {
        Some(()) => 0,
        None => last_error::note(Code::NotGranted.number()),
    }
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
    STATE.with(|state| {
        state.slots().for_each(Slot::abort_all);
        state.closed += 1;
    });
    0
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_session() -> u64 {
    STATE.with(|state| if state.first.calls.is_some() { state.closed + 1 } else { 0 })
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
        STATE.with(|state| state.slots().for_each(Slot::abort_all));
    }

    fn forget(&mut self) -> Result<(), AttachError> {
        STATE.with(|state| {
            state.slots().try_for_each(|slot| match let_go(slot) {
                Some(region) => take_up(slot, region),
                None => Ok(()),
            })
        })
    }
}

/// The handle of a granted heap, which is attached if it was not.
fn open_named(name: Option<&str>) -> Result<HeapHandle, Failed> {
    let index = match name {
        None => 0,
        Some(name) => index_of(name).map_err(|error| Failed(code_of(error)))?,
    };
    STATE.with(|state| {
        if index == 0 {
            attach_first(&mut state.first);
            state.first.work(|_| Ok(()))?;
        } else if let Some(place) = state.others.get_mut(index - 1) {
            attach_other(place, name.unwrap_or_default())?;
        }
        Ok(HeapHandle::of(index))
    })
}

// Each on a stack frame of its own: a heap is large, and the stack of an applet is not.

fn attach_first(slot: &mut Slot) {
    if slot.calls.is_none() && slot.failed.is_none() {
        attach_once(slot, None);
    }
}

#[inline(never)]
fn attach_other(place: &mut Option<&'static mut Slot>, name: &str) -> Result<(), Failed> {
    if place.is_none() {
        let empty = Slot { calls: None, failed: None };
        *place = Some(keep(empty).map_err(|_| Failed(Code::NoMemory))?);
    }
    let Some(slot) = place else { return Err(Failed(Code::Failed)) };
    if slot.calls.is_none() && slot.failed.is_none() {
        attach_once(slot, Some(name));
    }
    slot.work(|_| Ok(()))
}

#[inline(never)]
fn attach_once(slot: &mut Slot, name: Option<&str>) {
    match name.map_or_else(attach, attach_named) {
        Ok(heap) => slot.calls = Some(Calls::new(heap)),
        Err(error) => slot.failed = Some(code_of(error)),
    }
}

#[inline(never)]
fn let_go(slot: &mut Slot) -> Option<HostRegion> {
    let calls = slot.calls.take()?;
    // Until it is taken up again nothing opens it: it was attached.
    slot.failed = Some(Code::NotAHeap);
    Some(forget(calls.into_heap()))
}

#[inline(never)]
fn take_up(slot: &mut Slot, region: HostRegion) -> Result<(), AttachError> {
    slot.calls = Some(Calls::new(reopen(region)?));
    Ok(())
}
