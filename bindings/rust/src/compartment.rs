//! Compartments: granted heaps that one thread at a time has for itself.
//!
//! A host grants an applet compartments of a heap, each a region with a quota of its own. A thread
//! enters one, and what it allocates there is in no other; where the processor has protection keys,
//! no other thread of the program can touch it meanwhile. An applet in WebAssembly has one thread,
//! and one compartment.
//!
//! Invariants:
//! - A compartment is held by one thread at a time, and a thread holds one at a time. One that has
//!   ended holds none.
//! - Nothing moves from one compartment to another: each is a heap with its own objects.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

use holdfast_channel::heaps::HEAPS_MAX;

use crate::platform::compartments::{
    Thread, close_to_this_thread, find, is_closed_by_key, open_to_this_thread,
};
use crate::platform::{self, Lock};
use crate::region::{self, AttachError, Granted, Heap};

/// The thread that holds each of the granted heaps.
static HOLDERS: Lock<[Option<Thread>; HEAPS_MAX]> = Lock::new([None; HEAPS_MAX]);

/// Frees what is held by threads that have ended and whose mark the calling thread has now: the
/// system gives the stack of an ended thread to the next one. Until then the transactions that they
/// left open look like the calling thread's. Whether there were any.
pub(crate) fn free_predecessors() -> bool {
    let this = Thread::current();
    HOLDERS.with(|holders| evict_predecessors(holders, this))
}

fn evict_predecessors(holders: &mut [Option<Thread>; HEAPS_MAX], this: Thread) -> bool {
    let mut were_any = false;
    for (index, holder) in holders.iter_mut().enumerate() {
        if holder.is_some_and(|holder| holder.is_succeeded_by(this)) {
            *holder = None;
            region::abandon(index);
            were_any = true;
        }
    }
    were_any
}

/// The calling thread's hold on a compartment; given up when it is dropped. For libraries that keep
/// the heap themselves: a program wants [`Compartment`].
pub struct CompartmentHold {
    granted: Granted,
    /// It is the thread's that took it.
    of_this_thread: PhantomData<*mut ()>,
}

impl fmt::Debug for CompartmentHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompartmentHold").field("index", &self.index()).finish_non_exhaustive()
    }
}

impl CompartmentHold {
    /// Takes the compartment that the host calls so, or whose worker it calls so; without a name
    /// the first one that no thread holds.
    ///
    /// # Errors
    /// [`AttachError::NotGranted`], when there is none of that name; [`AttachError::Held`] by
    /// another thread; [`AttachError::InCompartment`], when this one holds one already;
    /// [`AttachError::InTransaction`]; [`AttachError::AtomicCompartment`]; those of
    /// [`crate::attach`].
    pub fn take(name: Option<&str>) -> Result<CompartmentHold, AttachError> {
        platform::boot()?;
        let this = Thread::current();
        let granted = HOLDERS.with(|holders| {
            evict_predecessors(holders, this);
            if region::is_in_transaction() {
                return Err(AttachError::InTransaction);
            }
            if holders.contains(&Some(this)) {
                return Err(AttachError::InCompartment);
            }
            let is_free = |holder: Option<Thread>| holder.is_none_or(Thread::has_ended);
            let found =
                find(name, &mut |index| is_free(holders.get(index as usize).copied().flatten()))?;
            // The host publishes the stores of all threads together, at a time of its own.
            if found.is_atomic && !found.is_read_only && platform::HAS_THREADS {
                return Err(AttachError::AtomicCompartment);
            }
            let holder = holders.get_mut(found.index as usize).ok_or(AttachError::NotGranted)?;
            if holder.replace(this).is_some() {
                // What its holder had open when it ended is rolled back by the next to open it.
                region::abandon(found.index as usize);
            }
            Ok(found)
        })?;
        open_to_this_thread(granted.index);
        Ok(CompartmentHold { granted, of_this_thread: PhantomData })
    }

    /// Which of the granted heaps it is.
    #[must_use]
    pub fn index(&self) -> usize {
        self.granted.index as usize
    }

    /// Opens the heap in it.
    ///
    /// # Errors
    /// [`AttachError::AlreadyAttached`], while the program has a heap on it;
    /// [`AttachError::Open`].
    pub fn open(&self) -> Result<Heap, AttachError> {
        self.open_with(false)
    }

    /// As [`CompartmentHold::open`], of a heap that is portable or is not, for libraries that know
    /// by a value which it is.
    ///
    /// # Errors
    /// As there.
    pub fn open_with(&self, portable: bool) -> Result<Heap, AttachError> {
        region::open_granted(self.granted, portable)
    }

    /// Gives it up, where the value was forgotten.
    pub fn release(index: usize) {
        close_to_this_thread();
        let this = Thread::current();
        HOLDERS.with(|holders| {
            if let Some(holder) = holders.get_mut(index)
                && *holder == Some(this)
            {
                *holder = None;
            }
        });
    }
}

impl Drop for CompartmentHold {
    fn drop(&mut self) {
        CompartmentHold::release(self.index());
    }
}

/// A compartment that the calling thread has entered: a [`Heap`] of its own, until it is dropped.
/// An open transaction is rolled back then.
///
/// ```no_run
/// use holdfast_guest::Compartment;
///
/// let mut own = Compartment::enter("thread-1")?;
/// let counter = match own.root("counter") {
///     Some(root) => root.pointer,
///     None => own.create_root("counter", 8)?,
/// };
/// # let _ = counter;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It stays with its thread:
///
/// ```compile_fail
/// let own = holdfast_guest::Compartment::enter("thread-1").unwrap();
/// std::thread::spawn(move || drop(own));
/// ```
pub struct Compartment {
    // Before the hold on it.
    heap: Heap,
    hold: CompartmentHold,
}

impl fmt::Debug for Compartment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compartment").field("hold", &self.hold).finish_non_exhaustive()
    }
}

impl Compartment {
    /// Enters the compartment that the host calls so, or whose worker it calls so: `render` is
    /// `jobs+render`, too.
    ///
    /// # Errors
    /// Those of [`CompartmentHold::take`]; [`AttachError::AlreadyAttached`], when the program has
    /// it as the heap that was granted first.
    pub fn enter(name: &str) -> Result<Compartment, AttachError> {
        Compartment::over(CompartmentHold::take(Some(name))?)
    }

    /// Enters the first compartment that no thread has entered.
    ///
    /// # Errors
    /// As for [`Compartment::enter`]; [`AttachError::Held`], when all are.
    pub fn enter_any() -> Result<Compartment, AttachError> {
        Compartment::over(CompartmentHold::take(None)?)
    }

    #[inline(never)]
    fn over(hold: CompartmentHold) -> Result<Compartment, AttachError> {
        Ok(Compartment { heap: hold.open()?, hold })
    }

    /// Leaves it, as dropping it does.
    pub fn leave(self) {}

    /// Whether protection keys close it to the other threads of this program.
    #[must_use]
    pub fn is_closed_by_key(&self) -> bool {
        is_closed_by_key(self.hold.index())
    }
}

impl Deref for Compartment {
    type Target = Heap;

    fn deref(&self) -> &Heap {
        &self.heap
    }
}

impl DerefMut for Compartment {
    fn deref_mut(&mut self) -> &mut Heap {
        &mut self.heap
    }
}

impl Drop for Compartment {
    fn drop(&mut self) {
        while self.heap.abort().is_ok() {}
    }
}
