//! The functions of `holdfast.h` over the heap that the host granted. Every `unsafe` here leans on
//! the contract in the header: pointers are NULL where it allows that and valid otherwise.
//!
//! Invariant: one caller at a time, by a lock (in WebAssembly there is one thread, and the lock is
//! none).

#![allow(unreachable_pub, reason = "exported by symbol name")]

use core::ffi::{c_char, c_int, c_void};

use holdfast_c_core::{Calls, Code, HeapCallError, Library, export_calls};
use holdfast_guest::{
    AttachError, CommitError, Durability, Heap, HeapKeeper, HostRegion, Lock, OpenError, attach,
    commit, forget, reopen,
};

use crate::last_error;

struct State {
    calls: Option<Calls<HostRegion>>,
    attach_failed: Option<Code>,
    /// How often `nv_close` was called.
    closed: u64,
}

static STATE: Lock<State> = Lock::new(State { calls: None, attach_failed: None, closed: 0 });

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
            if state.calls.is_none() && state.attach_failed.is_none() {
                attach_once(state);
            }
            match &mut state.calls {
                Some(calls) => work(calls),
                None => Err(Failed(state.attach_failed.unwrap_or(Code::Failed))),
            }
        });
        result.map_err(|Failed(code)| last_error::note(code.number()))
    }

    fn make_durable(_: &mut Heap, level: Durability) -> Result<(), Failed> {
        commit(level).map_err(|error| match error {
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
        while state.calls.as_mut().is_some_and(|calls| calls.abort().is_ok()) {}
        state.closed += 1;
    });
    0
}

/// See `holdfast.h`.
#[unsafe(no_mangle)]
pub extern "C" fn nv_session() -> u64 {
    STATE.with(|state| if state.calls.is_some() { state.closed + 1 } else { 0 })
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

/// The heap, while the applet serves.
pub(crate) struct ServedHeap;

impl HeapKeeper for ServedHeap {
    fn roll_back(&mut self) {
        STATE
            .with(|state| while state.calls.as_mut().is_some_and(|calls| calls.abort().is_ok()) {});
    }

    fn forget(&mut self) -> Result<(), AttachError> {
        STATE.with(|state| match let_go(state) {
            Some(region) => take_up(state, region),
            None => Ok(()),
        })
    }
}

// Each on a stack frame of its own: a heap is large, and the stack of an applet is not.

#[inline(never)]
fn attach_once(state: &mut State) {
    match attach() {
        Ok(heap) => state.calls = Some(Calls::new(heap)),
        Err(error) => state.attach_failed = Some(code_of(error)),
    }
}

#[inline(never)]
fn let_go(state: &mut State) -> Option<HostRegion> {
    let calls = state.calls.take()?;
    // Until it is taken up again nothing opens it: it was attached.
    state.attach_failed = Some(Code::NotAHeap);
    Some(forget(calls.into_heap()))
}

#[inline(never)]
fn take_up(state: &mut State, region: HostRegion) -> Result<(), AttachError> {
    state.calls = Some(Calls::new(reopen(region)?));
    Ok(())
}
