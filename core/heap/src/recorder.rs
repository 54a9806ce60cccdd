//! Test builds only: tells a test of every store to a heap, every write-back of its lines and every
//! drain, so that the test knows what a reset of the machine could leave in memory at that moment.

use core::cell::RefCell;
use std::boxed::Box;
use std::rc::Rc;

/// What has just happened. Addresses are those of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes were stored: they are in the cache, and may get to memory at any time.
    Stored {
        /// Address of the first.
        address: usize,
        /// How many.
        bytes: usize,
    },
    /// The lines of a range are on their way to memory.
    WrittenBack {
        /// Address of its first byte.
        address: usize,
        /// How many.
        bytes: usize,
    },
    /// What was on its way has arrived.
    Drained,
}

type Listener = Rc<RefCell<Box<dyn FnMut(Event)>>>;

std::thread_local! {
    static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
}

/// Tells `listener` of what `work` does on this thread. What the listener itself does is not told,
/// unless it has that recorded in its turn.
pub fn record<R>(listener: impl FnMut(Event) + 'static, work: impl FnOnce() -> R) -> R {
    struct PreviousListener(Option<Listener>);
    impl Drop for PreviousListener {
        fn drop(&mut self) {
            LISTENER.set(self.0.take());
        }
    }
    let _before =
        PreviousListener(LISTENER.replace(Some(Rc::new(RefCell::new(Box::new(listener))))));
    work()
}

/// A program under test has stored to its heap.
pub fn stored(start: *const u8, bytes: usize) {
    tell(Event::Stored { address: start as usize, bytes });
}

pub(crate) fn written_back(start: *const u8, bytes: usize) {
    tell(Event::WrittenBack { address: start as usize, bytes });
}

pub(crate) fn drained() {
    tell(Event::Drained);
}

fn tell(event: Event) {
    let Some(listener) = LISTENER.take() else { return };
    (listener.borrow_mut())(event);
    LISTENER.set(Some(listener));
}
