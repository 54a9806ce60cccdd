//! Several changes as one: what a closure does through a [`Transaction`] happens altogether or not
//! at all, whether it returns an error, panics, or the process is killed.

use core::ops::{Deref, DerefMut};

use crate::backing::Backing;
use crate::error::HeapError;
use crate::heap::Heap;

/// An open transaction; derefs to the heap. Dropping it without [`Transaction::commit`] rolls back.
pub struct Transaction<'heap, B: Backing> {
    heap: &'heap mut Heap<B>,
    /// The level that this value ends.
    level: u32,
}

impl<B: Backing> Heap<B> {
    /// Opens a transaction, or a level of the open one, that is rolled back unless it is committed.
    ///
    /// # Errors
    /// As [`Heap::begin`].
    pub fn begin_transaction(&mut self) -> Result<Transaction<'_, B>, HeapError> {
        self.begin()?;
        let level = self.transaction_depth();
        Ok(Transaction { heap: self, level })
    }

    /// Runs `work` in a transaction: commits when it returns `Ok`, rolls back when it returns an
    /// error or panics. Changes to existing bytes count only if they were announced by
    /// [`Heap::add_range`] before.
    ///
    /// Transactions nest and count as one: what an inner one did counts when the outermost commits.
    /// If an inner one fails, the outermost is rolled back even if `work` goes on and returns `Ok`.
    ///
    /// # Errors
    /// What `work` returns, or why the transaction could not begin or commit: an inner one that
    /// failed is [`HeapError::TransactionAborted`] at the outermost.
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
    /// Makes everything count; a level inside another transaction counts when that one does.
    ///
    /// # Errors
    /// [`HeapError::TransactionState`] when the heap's transaction was ended behind this value's
    /// back, [`HeapError::TransactionAborted`] when a level inside was aborted or left open.
    pub fn commit(self) -> Result<(), HeapError> {
        while self.heap.transaction_depth() > self.level {
            self.heap.abort()?;
        }
        if self.heap.transaction_depth() < self.level {
            return Err(HeapError::TransactionState { expected_open: true });
        }
        self.heap.commit()
        // The drop that follows finds this level ended and does nothing.
    }
}

impl<B: Backing> Drop for Transaction<'_, B> {
    fn drop(&mut self) {
        while self.heap.transaction_depth() >= self.level {
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
