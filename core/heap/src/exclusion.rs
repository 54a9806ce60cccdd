//! Which thread has a transaction open in which heap. Two heaps do not commit together, so a
//! program's library refuses a thread that has one open in one heap another one in a second heap:
//! what should be one change would be two.
//!
//! Invariants: a mark is written by the thread that it is of, and by the one that ends its
//! transaction; what another thread writes meanwhile is never the asking thread's mark, so the
//! answer is right without an order between the marks.
#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// For each of `N` heaps the mark of the thread that has a transaction open in it.
pub struct OpenTransactions<const N: usize> {
    marks: [AtomicU64; N],
    /// No mark was ever written from this one on: a program with one heap looks at one.
    used: AtomicUsize,
}

/// No thread has it.
const NONE: u64 = 0;

impl<const N: usize> OpenTransactions<N> {
    /// None is open.
    #[must_use]
    #[allow(clippy::new_without_default, reason = "it is for statics")]
    pub const fn new() -> OpenTransactions<N> {
        OpenTransactions { marks: [const { AtomicU64::new(NONE) }; N], used: AtomicUsize::new(0) }
    }

    /// Notes that the thread with this mark (not 0) begins a transaction in a heap; refused while
    /// it has one in another heap.
    #[inline]
    pub fn enter(&self, heap: usize, thread: u64) -> bool {
        // What this thread has written of either it finds again.
        let used = self.used.load(Ordering::Relaxed);
        if let (0, 1, Some(open)) = (heap, used, self.marks.first()) {
            // A program with one heap has no others to look at.
            open.store(thread, Ordering::Relaxed);
            return true;
        }
        self.enter_among(heap, thread, used)
    }

    /// As [`OpenTransactions::enter`], with a look at the others. Apart, because it is long.
    #[inline(never)]
    fn enter_among(&self, heap: usize, thread: u64, used: usize) -> bool {
        let mut others =
            self.marks.iter().take(used).enumerate().filter(|(place, _)| *place != heap);
        if others.any(|(_, open)| open.load(Ordering::Relaxed) == thread) {
            return false;
        }
        if let Some(open) = self.marks.get(heap) {
            if used <= heap {
                self.used.fetch_max(heap + 1, Ordering::Relaxed);
            }
            open.store(thread, Ordering::Relaxed);
        }
        true
    }

    /// Whether the thread with this mark has a transaction open, in whichever heap.
    pub fn has(&self, thread: u64) -> bool {
        let used = self.used.load(Ordering::Relaxed);
        self.marks.iter().take(used).any(|open| open.load(Ordering::Relaxed) == thread)
    }

    /// The transaction in a heap is over, if one was open.
    #[inline]
    pub fn leave(&self, heap: usize) {
        if let Some(open) = self.marks.get(heap) {
            open.store(NONE, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_has_a_transaction_in_one_heap_at_a_time() {
        let open = OpenTransactions::<3>::new();
        assert!(open.enter(0, 7));
        assert!(open.enter(0, 7), "the same heap again");
        assert!(!open.enter(1, 7));
        assert!(open.enter(1, 8), "another thread");
        assert!(open.has(7) && open.has(8) && !open.has(9));
        assert!(!open.enter(2, 8) && !open.enter(2, 7) && open.enter(2, 9));
        open.leave(0);
        assert!(!open.enter(1 + 1, 8));
        open.leave(1);
        assert!(open.enter(0, 8));
        // A heap without a place is not kept apart.
        assert!(open.enter(3, 10));
        open.leave(3);
    }
}
