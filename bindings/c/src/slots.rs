//! What there is of each granted heap, and who may use it now.
//!
//! Invariants:
//! - A slot is used under the lock, or by the one thread whose compartment it is. The two exclude
//!   each other: the lock has the slot ([`Place::Here`]), or a thread has it ([`Place::Taken`]),
//!   and it changes hands under the lock.
//! - What lies in a compartment that was not granted first is touched by the thread that has
//!   entered it and by no other: the processor may forbid it.
//! - A slot that was made stays, so a pointer to it is good for as long as the process lives.

use core::cell::UnsafeCell;
use core::ptr::NonNull;

use holdfast_c_core::{Calls, Code, HeapHandle};
use holdfast_guest::{
    AttachError, CompartmentHold, HEAPS_MAX, HostRegion, Lock, attach_with, forget, keep, reopen,
};

use crate::heap::{Failed, code_of, is_portable};
use crate::thread;

/// What there is of one heap.
pub(crate) struct Slot {
    calls: Option<Calls<HostRegion>>,
    /// Why it is not there.
    failed: Option<Code>,
    /// A thread had it as its compartment, and it is not the heap that was granted first.
    is_compartment: bool,
}

const EMPTY: Slot = Slot { calls: None, failed: None, is_compartment: false };

/// Where a slot is.
enum Place {
    /// The program has not opened the heap yet.
    Unused,
    /// Used by the thread that holds the lock.
    Here(&'static mut Slot),
    /// With the thread that has entered the compartment, or that had when it ended.
    Taken(NonNull<Slot>),
}

struct State {
    /// By the index of the heap.
    places: [Place; HEAPS_MAX],
    /// How often `nv_close` was called.
    closed: u64,
    /// How often a thread has entered a compartment.
    entered: u64,
}

// SAFETY: a slot belongs to the process, and `Taken` is used by the thread that it was given to, or
// after that has ended.
unsafe impl Send for State {}

static STATE: Lock<State> =
    Lock::new(State { places: [const { Place::Unused }; HEAPS_MAX], closed: 0, entered: 0 });

/// The slot of the heap that was granted first: most applets have no other, and need no memory for
/// one.
struct FirstSlot(UnsafeCell<Slot>);

// SAFETY: a reference to it is made once, by the place with index 0.
unsafe impl Sync for FirstSlot {}

static FIRST: FirstSlot = FirstSlot(UnsafeCell::new(EMPTY));
const FIRST_INDEX: usize = 0;

impl State {
    /// The slot of a heap, if the lock has it.
    fn here(&mut self, index: usize) -> Result<&mut Slot, Failed> {
        match self.places.get_mut(index) {
            Some(Place::Here(slot)) => Ok(slot),
            Some(Place::Taken(_)) => Err(Failed(Code::Held)),
            _ => Err(Failed(Code::NotGranted)),
        }
    }

    /// Makes a slot for a heap, unless there is one.
    fn make(&mut self, index: usize) -> Result<(), Failed> {
        let place = self.places.get_mut(index).ok_or(Failed(Code::NotGranted))?;
        if let Place::Unused = place {
            let slot = match index {
                // SAFETY: this place is unused once, so this is the only reference.
                FIRST_INDEX => unsafe { &mut *FIRST.0.get() },
                _ => keep(EMPTY).map_err(|_| Failed(Code::NoMemory))?,
            };
            *place = Place::Here(slot);
        }
        Ok(())
    }

    /// The slot of the heap of functions that name none.
    fn first(&mut self) -> Result<&mut Slot, Failed> {
        self.make(FIRST_INDEX)?;
        let slot = self.here(FIRST_INDEX)?;
        if slot.is_new() {
            attach_once(slot, None);
        }
        Ok(slot)
    }
}

/// The index of the compartment that this thread has entered, and its slot.
fn entered() -> Option<(usize, NonNull<Slot>)> {
    let own = thread::own();
    let slot = NonNull::new(own.slot.cast())?;
    Some((own.compartment as usize - 1, slot))
}

/// Runs `work` with the slot of the compartment that this thread has entered.
fn with_entered<R>(slot: NonNull<Slot>, work: impl FnOnce(&mut Slot) -> R) -> R {
    // SAFETY: it was taken from the lock for this thread, which gives it back by leaving; `work`
    // comes from the functions of this module, which do not meet themselves.
    work(unsafe { &mut *slot.as_ptr() })
}

/// Runs `work` with the heap of the functions without a handle.
pub(crate) fn with_current<R>(
    work: impl FnOnce(&mut Slot) -> Result<R, Failed>,
) -> Result<R, Failed> {
    match entered() {
        Some((_, slot)) => with_entered(slot, work),
        None => STATE.with(|state| work(state.first()?)),
    }
}

/// Runs `work` with the heap of a handle.
pub(crate) fn with_handle<R>(
    heap: HeapHandle,
    work: impl FnOnce(&mut Slot) -> Result<R, Failed>,
) -> Result<R, Failed> {
    let index = heap.index().ok_or(Failed(Code::NotGranted))?;
    match entered() {
        Some((own, slot)) if own == index => with_entered(slot, work),
        _ => STATE.with(|state| match state.here(index)? {
            slot if slot.is_compartment => Err(Failed(Code::NotGranted)),
            slot => work(slot),
        }),
    }
}

/// Runs `work` with each heap that the calling thread may use now, for the end of a call: not with
/// those of threads that run on.
pub(crate) fn each<E>(work: impl FnMut(&mut Slot) -> Result<(), E>) -> Result<(), E> {
    // In a compartment that was left nothing is open.
    each_that(|slot| !slot.is_compartment, work)
}

/// [`Slot::reopen`] of each heap, after the host has rolled back those in the mode `atomic`. In
/// WebAssembly such a heap may be a compartment that was left, which no key closes; natively none
/// is.
pub(crate) fn reopen_each() -> Result<(), AttachError> {
    each_that(|slot| !slot.is_compartment || cfg!(target_family = "wasm"), Slot::reopen)
}

/// Runs `work` with the heap that the calling thread has entered, and with those that the lock has
/// and that are meant.
fn each_that<E>(
    is_meant: fn(&Slot) -> bool,
    mut work: impl FnMut(&mut Slot) -> Result<(), E>,
) -> Result<(), E> {
    if let Some((_, slot)) = entered() {
        with_entered(slot, &mut work)?;
    }
    STATE.with(|state| {
        let slots = state.places.iter_mut().filter_map(|place| match place {
            Place::Here(slot) => Some(&mut **slot),
            _ => None,
        });
        slots.filter(|slot| is_meant(slot)).try_for_each(work)
    })
}

/// Attaches the heap with this index, unless it is; it is the one of this name.
pub(crate) fn open(index: usize, name: Option<&str>) -> Result<(), Failed> {
    if entered().is_some_and(|(own, _)| own == index) {
        return Ok(());
    }
    STATE.with(|state| {
        if index == FIRST_INDEX {
            return state.first()?.work(|_| Ok(()));
        }
        state.make(index)?;
        let slot = state.here(index)?;
        // A thread that asks by a handle has not entered the compartment.
        if slot.is_compartment {
            return Err(Failed(Code::NotGranted));
        }
        if slot.is_new() {
            attach_once(slot, name);
        }
        slot.work(|_| Ok(()))
    })
}

/// Rolls back what is open, and begins another session.
pub(crate) fn close() {
    let _: Result<(), Failed> = each(|slot| {
        slot.abort_all();
        Ok(())
    });
    STATE.with(|state| state.closed += 1);
}

/// `nv_session`. The stays in compartments have numbers of their own.
pub(crate) fn session() -> u64 {
    const STAYS: u64 = 1 << 63;
    let own = thread::own();
    if own.session != 0 {
        return STAYS + own.session;
    }
    STATE.with(|state| match state.here(FIRST_INDEX) {
        Ok(slot) if slot.calls.is_some() => state.closed + 1,
        _ => 0,
    })
}

/// Gives the calling thread a compartment.
pub(crate) fn enter(name: Option<&str>) -> Result<(), Failed> {
    if entered().is_some() {
        return Err(Failed(Code::IsOpen));
    }
    let hold = CompartmentHold::take(name).map_err(|error| Failed(code_of(error)))?;
    let index = hold.index();
    let (slot, session) = STATE.with(|state| {
        state.make(index)?;
        let slot = match state.places.get_mut(index) {
            Some(place @ Place::Here(_)) => {
                let Place::Here(slot) = core::mem::replace(place, Place::Unused) else {
                    return Err(Failed(Code::Failed));
                };
                let slot = NonNull::from(slot);
                *place = Place::Taken(slot);
                slot
            }
            // The thread that had it has ended: else this one would not hold it.
            Some(Place::Taken(slot)) => *slot,
            _ => return Err(Failed(Code::NotGranted)),
        };
        state.entered += 1;
        Ok((slot, state.entered))
    })?;
    let ready = with_entered(slot, |slot| {
        // Left by a thread that has ended.
        slot.abort_all();
        slot.is_compartment = index != FIRST_INDEX;
        if slot.calls.is_none() {
            open_once(slot, &hold);
        }
        slot.work(|_| Ok(()))
    });
    if let Err(failed) = ready {
        give_back(index, slot);
        return Err(failed);
    }
    // It is given up by its index.
    core::mem::forget(hold);
    thread::change(|own| {
        own.compartment = index as u32 + 1;
        own.slot = slot.as_ptr().cast();
        own.session = session;
    });
    Ok(())
}

/// Takes the compartment from the calling thread.
pub(crate) fn leave() -> Result<(), Failed> {
    let (index, slot) = entered().ok_or(Failed(Code::NotGranted))?;
    with_entered(slot, Slot::abort_all);
    thread::change(thread::OwnState::leave);
    give_back(index, slot);
    CompartmentHold::release(index);
    Ok(())
}

fn give_back(index: usize, mut slot: NonNull<Slot>) {
    STATE.with(|state| {
        if let Some(place) = state.places.get_mut(index) {
            // SAFETY: it was a reference for good, of which this thread had the only copy.
            *place = Place::Here(unsafe { slot.as_mut() });
        }
    });
}

impl Slot {
    pub(crate) fn work<R>(
        &mut self,
        work: impl FnOnce(&mut Calls<HostRegion>) -> Result<R, Failed>,
    ) -> Result<R, Failed> {
        match &mut self.calls {
            Some(calls) => work(calls),
            None => Err(Failed(self.failed.unwrap_or(Code::Failed))),
        }
    }

    pub(crate) fn abort_all(&mut self) {
        while self.calls.as_mut().is_some_and(|calls| calls.abort().is_ok()) {}
    }

    /// Goes on with what the region has now.
    pub(crate) fn reopen(&mut self) -> Result<(), AttachError> {
        match let_go(self) {
            Some(region) => take_up(self, region),
            None => Ok(()),
        }
    }

    fn is_new(&self) -> bool {
        self.calls.is_none() && self.failed.is_none()
    }
}

// Each on a stack frame of its own: a heap is large, and the stack of an applet is not.

#[inline(never)]
fn attach_once(slot: &mut Slot, name: Option<&str>) {
    match attach_with(name, is_portable()) {
        Ok(heap) => slot.calls = Some(Calls::new(heap)),
        Err(error) => slot.failed = Some(code_of(error)),
    }
}

#[inline(never)]
fn open_once(slot: &mut Slot, hold: &CompartmentHold) {
    match hold.open_with(is_portable()) {
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
