//! Several changes as one: what a closure does through a [`Transaction`] happens altogether or not at all,
//! whether it returns an error, panics, or the process is killed.

use core::ops::{Deref, DerefMut};

use crate::backing::Backing;
use crate::error::HeapError;
use crate::heap::Heap;

/// An open transaction; derefs to the heap. Dropping it without [`Transaction::commit`] rolls back.
pub struct Transaction<'heap, B: Backing> {
    heap: &'heap mut Heap<B>,
}

impl<B: Backing> Heap<B> {
    /// Opens a transaction that is rolled back unless it is committed.
    ///
    /// # Errors
    /// [`HeapError::TransactionState`] when one is open: transactions do not nest.
    pub fn begin_transaction(&mut self) -> Result<Transaction<'_, B>, HeapError> {
        self.begin()?;
        Ok(Transaction { heap: self })
    }

    /// Runs `work` in a transaction: commits when it returns `Ok`, rolls back when it returns an error or
    /// panics. Changes to existing bytes count only if they were announced by [`Heap::add_range`] before.
    ///
    /// # Errors
    /// What `work` returns, or why the transaction could not begin or commit.
    pub fn transaction<R, E: From<HeapError>>(
        &mut self,
        work: impl FnOnce(&mut Transaction<'_, B>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut transaction = self.begin_transaction()?;
        let result = work(&mut transaction)?;
        transaction.commit()?;
        Ok(result)
    }
}

impl<B: Backing> Transaction<'_, B> {
    /// Makes everything count.
    ///
    /// # Errors
    /// [`HeapError::TransactionState`] when the heap's transaction was ended behind this value's back.
    pub fn commit(self) -> Result<(), HeapError> {
        self.heap.commit()
        // The drop that follows finds no open transaction and does nothing.
    }
}

impl<B: Backing> Drop for Transaction<'_, B> {
    fn drop(&mut self) {
        if self.heap.in_transaction() {
            let _ = self.heap.abort();
        }
    }
}

impl<B: Backing> Deref for Transaction<'_, B> {
    type Target = Heap<B>;

    fn deref(&self) -> &Heap<B> {
        self.heap
    }
}

impl<B: Backing> DerefMut for Transaction<'_, B> {
    fn deref_mut(&mut self) -> &mut Heap<B> {
        self.heap
    }
}
