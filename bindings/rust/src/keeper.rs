//! Lends the heap to the function that serves.
//!
//! The host rolls a heap of the mode `atomic` back when a call failed, and lets the applet drop its
//! copies of pages that are published. What a [`Heap`] remembers of bytes that are gone must not be
//! used again, so the one who serves has it.

use crate::region::{AttachError, Heap, HostRegion, forget, reopen};

/// The heap, as far as serving needs it. Implemented by libraries over this one; programs call
/// [`serve_heap`](crate::serve_heap).
pub trait HeapKeeper {
    /// Rolls back what a failed call has left open: every level of a transaction.
    fn roll_back(&mut self);

    /// Goes on with what the region has now: [`forget`] and [`reopen`].
    ///
    /// # Errors
    /// Those of [`reopen`].
    fn forget(&mut self) -> Result<(), AttachError>;

    /// The heap for [`Call::heap`](crate::Call::heap).
    fn heap(&mut self) -> Option<&mut Heap> {
        None
    }
}

/// For a program that has none, or none that the host would roll back.
pub(crate) struct NoHeapKeeper;

impl HeapKeeper for NoHeapKeeper {
    fn roll_back(&mut self) {}

    fn forget(&mut self) -> Result<(), AttachError> {
        // What the program has is not reached from here.
        if crate::region::is_attached() { Err(AttachError::NotKept) } else { Ok(()) }
    }
}

/// For a program that has handed it over.
pub(crate) struct Kept(pub(crate) Option<Heap>);

impl Kept {
    #[inline(never)]
    fn let_go(&mut self) -> Option<HostRegion> {
        self.0.take().map(forget)
    }

    #[inline(never)]
    fn take_up(&mut self, region: HostRegion) -> Result<(), AttachError> {
        self.0 = Some(reopen(region)?);
        Ok(())
    }
}

impl HeapKeeper for Kept {
    fn roll_back(&mut self) {
        if let Some(heap) = &mut self.0 {
            while heap.abort().is_ok() {}
        }
    }

    fn forget(&mut self) -> Result<(), AttachError> {
        match self.let_go() {
            Some(region) => self.take_up(region),
            None => Ok(()),
        }
    }

    fn heap(&mut self) -> Option<&mut Heap> {
        self.0.as_mut()
    }
}
