//! A heap's place among the heaps of this process, by which a thread that has a transaction open in
//! one heap is kept from beginning one in another ([`OpenTransactions`]).
//!
//! Invariant: a place belongs to one open heap at a time. Heaps beyond [`PLACES`] have none, and
//! are not kept apart.
#![forbid(unsafe_code)]

use std::ptr::from_ref;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_heap::OpenTransactions;

/// Open heaps that are kept apart.
const PLACES: usize = 64;

static TAKEN: [AtomicBool; PLACES] = [const { AtomicBool::new(false) }; PLACES];
static TRANSACTIONS: OpenTransactions<PLACES> = OpenTransactions::new();

thread_local! {
    /// Its address is the thread's mark.
    static MARK: u8 = const { 0 };
}

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
    #[must_use]
    pub fn enter(&self) -> bool {
        // A thread that ends has no more use of it.
        let mark = MARK.try_with(|mark| from_ref(mark).addr() as u64);
        TRANSACTIONS.enter(self.0, mark.unwrap_or(u64::MAX))
    }

    /// The transaction in the heap is over, if one was open.
    pub fn leave(&self) {
        TRANSACTIONS.leave(self.0);
    }
}

/// Whether the calling thread has a transaction open, in whichever heap of this process.
#[must_use]
pub fn is_thread_in_transaction() -> bool {
    MARK.try_with(|mark| TRANSACTIONS.has(from_ref(mark).addr() as u64)).unwrap_or(false)
}

impl Drop for TransactionPlace {
    fn drop(&mut self) {
        self.leave();
        if let Some(taken) = TAKEN.get(self.0) {
            taken.store(false, Ordering::Release);
        }
    }
}
