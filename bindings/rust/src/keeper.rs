//! Lends the heaps to the function that serves.
//!
//! The host rolls a heap of the mode `atomic` back when a call failed, and lets the applet drop its
//! copies of pages that are published. What a [`Heap`] remembers of bytes that are gone must not be
//! used again, so the one who serves has it.

use crate::region::{AttachError, Heap, HostRegion, forget, reopen};

/// The heaps, as far as serving needs them. Implemented by libraries over this one; programs call
/// [`serve_heap`](crate::serve_heap).
pub trait HeapKeeper {
    /// Rolls back what a failed call has left open: every level of a transaction, in each heap.
    fn roll_back(&mut self);

    /// Goes on with what the regions have now: [`forget`] and [`reopen`].
    ///
    /// # Errors
    /// Those of [`reopen`].
    fn forget(&mut self) -> Result<(), AttachError>;

    /// The heaps for [`Call::heap`](crate::Call::heap) and [`Call::heaps`](crate::Call::heaps).
    fn heaps(&mut self) -> &mut [Option<Heap>] {
        &mut []
    }
}

/// For a program that has none, or none that the host would roll back.
pub(crate) struct NoHeapKeeper;

impl HeapKeeper for NoHeapKeeper {
    fn roll_back(&mut self) {}

    fn forget(&mut self) -> Result<(), AttachError> {
        // What the program has is not reached from here.
        if crate::region::has_revocable() { Err(AttachError::NotKept) } else { Ok(()) }
    }
}

/// For a program that has handed them over.
pub(crate) struct Kept<const N: usize>(pub(crate) [Option<Heap>; N]);

#[inline(never)]
fn let_go(heap: &mut Option<Heap>) -> Option<HostRegion> {
    heap.take().map(forget)
}

#[inline(never)]
fn take_up(heap: &mut Option<Heap>, region: HostRegion) -> Result<(), AttachError> {
    *heap = Some(reopen(region)?);
    Ok(())
}

impl<const N: usize> HeapKeeper for Kept<N> {
    fn roll_back(&mut self) {
        for heap in self.0.iter_mut().flatten() {
            while heap.abort().is_ok() {}
        }
    }

    fn forget(&mut self) -> Result<(), AttachError> {
        for heap in &mut self.0 {
            if let Some(region) = let_go(heap) {
                take_up(heap, region)?;
            }
        }
        Ok(())
    }

    fn heaps(&mut self) -> &mut [Option<Heap>] {
        &mut self.0
    }
}
