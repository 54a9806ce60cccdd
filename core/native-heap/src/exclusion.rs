//! A heap's place among the heaps of this process, by which a thread that has a transaction open in
//! one heap is kept from beginning one in another ([`OpenTransactions`]).
//!
//! Invariant: a place belongs to one open heap at a time. Heaps beyond [`PLACES`] have none, and
//! are not kept apart.
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_heap::OpenTransactions;
use holdfast_sys::thread_mark::thread_mark;

/// Open heaps that are kept apart.
const PLACES: usize = 64;

static TAKEN: [AtomicBool; PLACES] = [const { AtomicBool::new(false) }; PLACES];
static TRANSACTIONS: OpenTransactions<PLACES> = OpenTransactions::new();

/// The place of one open heap; given back when it is dropped.
#[derive(Debug)]
pub struct TransactionPlace(usize);

impl TransactionPlace {
    /// A free place, or none where all are taken.
    #[must_use]
    pub fn take() -> TransactionPlace {
        let free = |taken: &AtomicBool| {
            taken.compare_exchange(false, true, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        TransactionPlace(TAKEN.iter().position(free).unwrap_or(PLACES))
    }

    /// This thread begins a transaction in the heap; `false` while it has one in another heap.
    #[inline]
    #[must_use]
    pub fn enter(&self) -> bool {
        TRANSACTIONS.enter(self.0, thread_mark())
    }

    /// The transaction in the heap is over, if one was open.
    #[inline]
    pub fn leave(&self) {
        TRANSACTIONS.leave(self.0);
    }
}

/// Whether the calling thread has a transaction open, in whichever heap of this process.
#[must_use]
pub fn is_thread_in_transaction() -> bool {
    TRANSACTIONS.has(thread_mark())
}

impl Drop for TransactionPlace {
    fn drop(&mut self) {
        self.leave();
        if let Some(taken) = TAKEN.get(self.0) {
            taken.store(false, Ordering::Release);
        }
    }
}
