//! The compartment that a thread has entered: a region below the heap of the functions without a
//! handle, which is this thread's alone until it leaves or ends.
//!
//! Invariants:
//! - A thread's stay is its own value: no lock is taken to work in it, and no other thread gets to
//!   it. A thread that ends leaves, by the end of its own storage.
//! - The region's lock keeps other processes out, and the list of names other threads, which it
//!   tells apart from these.
//! - A stay in which a call panicked, and one of a forked child's parent, is left as a kill would
//!   leave it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

use holdfast_native_heap::is_thread_in_transaction;
use holdfast_region::{RegionError, RegionName};
use holdfast_types::size::parse;

use crate::ending;
use crate::failure::{Failure, note};
use crate::quick;
use crate::session::{self, Session, variable};

/// The quota of a new compartment.
const QUOTA_VARIABLE: &str = "HOLDFAST_COMPARTMENT_QUOTA";
/// As `holdfast run` has it.
const QUOTA_BYTES_DEFAULT: u64 = 8 << 20;
/// Compartments that are tried for a thread that names none.
const NUMBERS_MAX: u32 = 4096;

/// The names of the compartments that threads of this process have, `HEAP+WORKER`.
static TAKEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

thread_local! {
    /// The number of the calling thread's session, 0 outside of compartments. Without a
    /// destructor, so that it can be asked for to the very end of a thread.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static STAY: RefCell<Option<Stay>> = const { RefCell::new(None) };
}

/// A name on the list of those that are taken.
struct TakenName(String);

impl TakenName {
    fn take(name: &RegionName) -> Result<TakenName, Failure> {
        let is_new = taken(|names| names.insert(name.to_string()));
        match is_new {
            true => Ok(TakenName(name.to_string())),
            false => Err(Failure::HeldByThread { name: name.to_string() }),
        }
    }
}

impl Drop for TakenName {
    fn drop(&mut self) {
        taken(|names| names.remove(&self.0));
    }
}

fn taken<R>(work: impl FnOnce(&mut BTreeSet<String>) -> R) -> R {
    // Nothing panics under it.
    work(&mut TAKEN.lock().unwrap_or_else(PoisonError::into_inner))
}

struct Stay {
    /// Taken out to be closed.
    session: Option<Box<Session>>,
    /// After the session: whoever gets the name finds the region closed.
    name: Option<TakenName>,
}

impl Stay {
    fn close(mut self) -> Result<(), Failure> {
        let closed = self.session.take().map_or(Ok(()), |session| session.close());
        ending::forget();
        closed
    }

    /// Leaves everything as a kill would.
    fn abandon(mut self) {
        std::mem::forget(self.session.take());
        std::mem::forget(self.name.take());
    }
}

impl Drop for Stay {
    /// The thread ends.
    fn drop(&mut self) {
        NUMBER.set(0);
        if ending::forked_from().is_some() {
            std::mem::forget(self.session.take());
            std::mem::forget(self.name.take());
        } else if let Some(session) = self.session.take() {
            // No one is left to hear of a failure; the region is as after a kill then.
            let _ = catch_unwind(AssertUnwindSafe(|| session.close()));
            ending::forget();
        }
    }
}

/// Whether the calling thread is in a compartment.
#[inline]
pub(crate) fn is_entered() -> bool {
    NUMBER.get() != 0
}

/// The number of the calling thread's session, if it is in a compartment.
pub(crate) fn number() -> Option<u64> {
    Some(NUMBER.get()).filter(|number| *number != 0)
}

/// Refuses what is not possible in a compartment.
pub(crate) fn check_outside() -> Result<(), Failure> {
    if is_entered() { Err(Failure::InCompartment) } else { Ok(()) }
}

/// Runs `work` with the session of the compartment that the calling thread has entered; whatever
/// happens is noted for this thread and has a code. The thread must be in one.
pub(crate) fn with_entered<R>(
    work: impl FnOnce(&mut Session) -> Result<R, Failure>,
) -> Result<R, c_int> {
    if let Some(opener) = ending::forked_from() {
        return Err(note(&Failure::Forked { opener }));
    }
    let in_stay = || {
        STAY.with_borrow_mut(|stay| {
            let session = stay.as_mut().and_then(|stay| stay.session.as_deref_mut());
            work(session.ok_or(Failure::Ending)?)
        })
    };
    // Unwind safe: what a panic leaves is abandoned.
    let result = catch_unwind(AssertUnwindSafe(in_stay)).unwrap_or_else(|_| {
        if let Some(stay) = leave_stay() {
            stay.abandon();
        }
        Err(Failure::Panicked)
    });
    result.map_err(|failure| note(&failure))
}

fn leave_stay() -> Option<Stay> {
    NUMBER.set(0);
    STAY.try_with(|stay| stay.try_borrow_mut().ok().and_then(|mut stay| stay.take())).ok()?
}

/// `nv_compartment_enter`.
pub(crate) fn enter(name: Option<&str>) -> Result<(), c_int> {
    let parent = session::compartments_parent(|| {
        if is_entered() {
            return Err(Failure::IsInCompartment);
        }
        if is_thread_in_transaction() { Err(Failure::InTransaction) } else { Ok(()) }
    })?;
    // Unwind safe: nothing is shared that a panic could leave half done.
    let opened = catch_unwind(AssertUnwindSafe(|| open(&parent, name)));
    let stay = opened.unwrap_or(Err(Failure::Panicked)).map_err(|failure| note(&failure))?;
    // What this thread has of the heap outside is for its threads meanwhile.
    quick::give_back_now();
    NUMBER.set(session::next_number());
    STAY.set(Some(stay));
    Ok(())
}

fn open(parent: &RegionName, name: Option<&str>) -> Result<Stay, Failure> {
    let quota_bytes = match variable(QUOTA_VARIABLE) {
        Some(size) => parse(&size.to_string_lossy()).map_err(Failure::Quota)?,
        None => QUOTA_BYTES_DEFAULT,
    };
    if let Some(name) = name {
        let worker = match RegionName::parse_any(name)?.parent_and_worker() {
            Some((of, worker)) if of == *parent => worker,
            Some(_) => return Err(Failure::NotItsCompartment { parent: parent.to_string() }),
            None => RegionName::parse(name)?,
        };
        return open_worker(parent, &worker, quota_bytes);
    }
    for number in 1..=NUMBERS_MAX {
        let worker = RegionName::parse(&format!("thread-{number}"))?;
        match open_worker(parent, &worker, quota_bytes) {
            Err(failure) if failure.is_held() => {}
            opened => return opened,
        }
    }
    Err(Failure::HeldByThread { name: parent.to_string() })
}

fn open_worker(
    parent: &RegionName,
    worker: &RegionName,
    quota_bytes: u64,
) -> Result<Stay, Failure> {
    let name = TakenName::take(&parent.compartment(worker).map_err(RegionError::from)?)?;
    let session = Session::open_compartment(parent, worker, quota_bytes)?;
    Ok(Stay { session: Some(session), name: Some(name) })
}

/// `nv_compartment_leave`.
pub(crate) fn leave() -> Result<(), c_int> {
    if let Some(opener) = ending::forked_from() {
        return Err(note(&Failure::Forked { opener }));
    }
    let Some(stay) = leave_stay() else { return Err(note(&Failure::OutsideCompartments)) };
    let closed = catch_unwind(AssertUnwindSafe(|| stay.close()));
    closed.unwrap_or(Err(Failure::Panicked)).map_err(|failure| note(&failure))
}
