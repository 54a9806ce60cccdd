//! Work in a thread of its own that is done in two steps: what the first one made is handed out
//! while the second goes on.
//!
//! Invariants:
//! - A panic is a typed error of the step that it is in, and so is a step that is not done when the
//!   time of both is over (the thread is left to itself then, and ends with the process at the
//!   latest). What was handed out stays good, whatever becomes of the rest.
//! - A caller that has the rest, or an error of the first step, has the room that the thread took:
//!   what comes next may need it.
//! - The rest need not be fetched: work can ask whether it is wanted still, and a caller that lets
//!   go of it waits for nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{PageError, RecordError};
use crate::limits::STACK_BYTES;

/// The name of the engine's thread, whose panics are errors and nothing to be shown.
pub const LAYOUT_THREAD: &str = "layout";

/// Longer than any caller waits: a time that clocks have no end for.
const LONGEST: Duration = Duration::from_secs(1 << 30);

/// What is called when the rest is there.
type Callback = Box<dyn FnOnce() + Send>;

struct StepState<B> {
    rest: Option<Result<B, RecordError>>,
    /// A caller may fetch it.
    is_wanted: bool,
    is_done: bool,
    then: Option<Callback>,
}

/// Where the rest is put.
struct ResultSlot<B> {
    state: Mutex<StepState<B>>,
    changed: Condvar,
}

impl<B> ResultSlot<B> {
    fn state(&self) -> MutexGuard<'_, StepState<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, rest: Result<B, RecordError>) {
        let mut state = self.state();
        state.is_done = true;
        // What is not fetched is let go here, and not by a caller that is in a hurry.
        let unwanted = if state.is_wanted { state.rest.replace(rest) } else { Some(rest) };
        let then = state.then.take();
        drop(state);
        drop(unwanted);
        self.changed.notify_all();
        if let Some(then) = then {
            then();
        }
    }
}

/// What the work hands its results to.
pub(crate) struct ResultSender<A, B> {
    first: Box<dyn Fn(A) + Send>,
    place: Arc<ResultSlot<B>>,
}

impl<A, B> ResultSender<A, B> {
    /// Hands out what the first step made.
    pub(crate) fn out(&self, first: A) {
        (self.first)(first);
    }

    /// Whether a caller may fetch the rest.
    pub(crate) fn is_wanted(&self) -> bool {
        self.place.state().is_wanted
    }
}

/// What the second step makes: there, or on its way.
pub(crate) struct DeferredResult<B> {
    place: Arc<ResultSlot<B>>,
    there: OnceLock<Result<B, RecordError>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    end: Instant,
    time: Duration,
}

impl<B> DeferredResult<B> {
    fn new(time: Duration) -> DeferredResult<B> {
        let state = StepState { rest: None, is_wanted: true, is_done: false, then: None };
        let place = ResultSlot { state: Mutex::new(state), changed: Condvar::new() };
        let now = Instant::now();
        let end = now.checked_add(time).unwrap_or(now + LONGEST);
        DeferredResult {
            place: Arc::new(place),
            there: OnceLock::new(),
            thread: Mutex::default(),
            end,
            time,
        }
    }

    /// What is there already.
    pub(crate) fn there(rest: B) -> DeferredResult<B> {
        let coming = DeferredResult::new(Duration::ZERO);
        coming.place.put(Ok(rest));
        coming
    }

    /// Waits for it, no longer than its time.
    pub(crate) fn get(&self) -> Result<&B, &RecordError> {
        self.there.get_or_init(|| self.wait()).as_ref()
    }

    fn wait(&self) -> Result<B, RecordError> {
        let mut state = self.place.state();
        loop {
            if let Some(rest) = state.rest.take() {
                drop(state);
                self.join();
                return rest;
            }
            let left = self.end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // It is not waited for a second time.
                state.is_wanted = false;
                return Err(RecordError::TimeOut { seconds: self.time.as_secs() });
            }
            let waited = self.place.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The thread has nothing left to do but to give its stack back.
    fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Its panics were caught.
            let _ = thread.join();
        }
    }

    /// Until when it is waited for.
    pub(crate) fn end(&self) -> Instant {
        self.end
    }

    /// Has `then` called when it is there: by the thread that makes it, which must not wait for it
    /// there, or at once.
    pub(crate) fn then(&self, then: impl FnOnce() + Send + 'static) {
        let mut state = self.place.state();
        if state.is_done {
            drop(state);
            then();
        } else {
            state.then = Some(Box::new(then));
        }
    }
}

impl<B> Drop for DeferredResult<B> {
    fn drop(&mut self) {
        let mut state = self.place.state();
        state.is_wanted = false;
        let then = state.then.take();
        drop(state);
        drop(then);
    }
}

/// Does `work`, and returns as soon as its first step is done; `time` is that of both.
///
/// # Errors
/// Those of the first step; [`PageError::Engine`], [`PageError::TimeOut`], [`PageError::Thread`].
pub(crate) fn run<A: Send + 'static, B: Send + 'static>(
    time: Duration,
    work: impl FnOnce(&ResultSender<A, B>) -> Result<B, PageError> + Send + 'static,
) -> Result<(A, DeferredResult<B>), PageError> {
    let (first, receiver) = sync_channel(1);
    let (failure, failed) = sync_channel(1);
    let coming = DeferredResult::new(time);
    // The waiting caller may have gone.
    let first = Box::new(move |made| drop(first.try_send(made)));
    let hand = ResultSender { first, place: Arc::clone(&coming.place) };
    let caught = move || {
        let made = catch_unwind(AssertUnwindSafe(|| work(&hand))).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text =
                text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("it panicked");
            Err(PageError::Engine { message: text.chars().take(300).collect() })
        });
        let rest = made.map_err(|error| {
            let of_rest = RecordError::of(&error);
            let _ = failure.try_send(error);
            of_rest
        });
        let ResultSender { place, first } = hand;
        // A caller that waits for the first step is told why there is none.
        drop((first, failure));
        place.put(rest);
    };
    let thread = Builder::new()
        .name(LAYOUT_THREAD.to_owned())
        .stack_size(STACK_BYTES)
        .spawn(caught)
        .map_err(PageError::Thread)?;
    *coming.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
    match receiver.recv_timeout(time) {
        Ok(made) => Ok((made, coming)),
        Err(RecvTimeoutError::Timeout) => Err(PageError::TimeOut { seconds: time.as_secs() }),
        Err(RecvTimeoutError::Disconnected) => {
            coming.join();
            let nothing = || PageError::Engine { message: "its thread made nothing".to_owned() };
            Err(failed.try_recv().unwrap_or_else(|_| nothing()))
        }
    }
}

/// For tests: both ends, held in two hands.
#[cfg(test)]
pub(crate) mod held {
    use super::*;

    /// Work that hands out to `first`, and what comes of it.
    pub(crate) fn ends<A, B>(
        first: impl Fn(A) + Send + 'static,
    ) -> (ResultSender<A, B>, DeferredResult<B>) {
        ends_within(Duration::from_secs(300), first)
    }

    pub(crate) fn ends_within<A, B>(
        time: Duration,
        first: impl Fn(A) + Send + 'static,
    ) -> (ResultSender<A, B>, DeferredResult<B>) {
        let coming = DeferredResult::new(time);
        (ResultSender { first: Box::new(first), place: Arc::clone(&coming.place) }, coming)
    }

    impl<A, B> ResultSender<A, B> {
        /// The rest is there.
        pub(crate) fn put(&self, rest: Result<B, RecordError>) {
            self.place.put(rest);
        }
    }

    impl<B> DeferredResult<B> {
        /// Waits for it and takes it.
        pub(crate) fn take(mut self) -> Result<B, RecordError> {
            let _ = self.get();
            self.there.take().unwrap_or(Err(RecordError::TimeOut { seconds: 0 }))
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// A panic of the engine becomes a typed error with the panic message.
    ///
    /// Guarantee: pages/memory
    #[test]
    fn engine_panic_is_a_typed_error() {
        let made = run(LONG, |_: &ResultSender<(), ()>| -> Result<(), PageError> {
            panic!("node {} is gone", 7)
        });
        let Err(PageError::Engine { message }) = made.map(|_| ()) else { panic!("no such error") };
        assert_eq!(message, "node 7 is gone");
        let made =
            run(LONG, |_: &ResultSender<(), ()>| -> Result<(), PageError> { panic!("plain") })
                .map(|_| ());
        assert!(
            matches!(&made, Err(PageError::Engine { message }) if message == "plain"),
            "{made:?}"
        );
    }

    /// Guarantee: pages/memory
    #[test]
    fn an_engine_that_does_not_end_is_left_to_itself() {
        let (sender, receiver) = channel::<()>();
        let never = move |_: &ResultSender<(), ()>| {
            let _ = receiver.recv();
            Ok(())
        };
        let made = run(Duration::from_millis(20), never).map(|_| ());
        assert!(matches!(made, Err(PageError::TimeOut { .. })));
        drop(sender);
    }

    /// Work whose second step waits until it may go on.
    fn holding<B: Send + 'static>(
        go_on: Receiver<()>,
        rest: impl FnOnce(&ResultSender<&'static str, B>) -> Result<B, PageError> + Send + 'static,
    ) -> impl FnOnce(&ResultSender<&'static str, B>) -> Result<B, PageError> + Send + 'static {
        move |hand| {
            hand.out("pixels");
            let _ = go_on.recv();
            rest(hand)
        }
    }

    /// The painted pixels are delivered before the page is recorded.
    ///
    /// Guarantee: pages/window-waits
    #[test]
    fn first_result_precedes_the_second() {
        let (sender, go_on) = channel();
        let (shown, coming) = run(LONG, holding(go_on, |_| Ok("record"))).unwrap();
        assert_eq!(shown, "pixels");
        let (told, is_told) = channel();
        coming.then(move || told.send(()).unwrap());
        assert!(is_told.try_recv().is_err(), "it is recorded already, before it may be");
        sender.send(()).unwrap();
        assert_eq!(is_told.recv_timeout(LONG), Ok(()));
        assert_eq!(coming.get(), Ok(&"record"));
        assert_eq!(coming.get(), Ok(&"record"), "it stays");
        let (told, is_told) = channel();
        coming.then(move || told.send(()).unwrap());
        assert_eq!(is_told.try_recv(), Ok(()), "what is there already is told at once");
    }

    /// A panic while the page is recorded does not take the delivered pixels away.
    ///
    /// Guarantee: pages/window-waits
    #[test]
    fn panic_in_the_record_keeps_the_pixels() {
        let (sender, go_on) = channel();
        let (shown, coming) =
            run(LONG, holding::<()>(go_on, |_| panic!("node {} is gone", 7))).unwrap();
        sender.send(()).unwrap();
        assert_eq!(shown, "pixels");
        assert_eq!(
            coming.get(),
            Err(&RecordError::Engine { message: "node 7 is gone".to_owned() })
        );
    }

    /// A record that is not ready before the timeout is waited for only once.
    ///
    /// Guarantee: pages/window-waits
    #[test]
    fn late_record_is_waited_for_once() {
        let (hand, coming) = held::ends_within::<(), ()>(Duration::from_millis(20), |()| ());
        assert_eq!(coming.get(), Err(&RecordError::TimeOut { seconds: 0 }));
        assert!(!hand.is_wanted(), "whoever makes it need not go on");
        let (told, is_told) = channel();
        coming.then(move || told.send(()).unwrap());
        hand.put(Ok(()));
        assert_eq!(is_told.try_recv(), Ok(()), "it ends, though nobody waits");
        assert_eq!(
            coming.get(),
            Err(&RecordError::TimeOut { seconds: 0 }),
            "it does not change any more"
        );
    }

    /// The stack of a finished engine thread is free when its result arrives.
    ///
    /// Guarantee: pages/import-kills
    /// Guarantee: pages/memory
    #[test]
    fn stack_is_free_when_the_result_arrives() {
        use std::sync::atomic::{AtomicBool, Ordering};
        struct Last(Arc<AtomicBool>);
        impl Drop for Last {
            fn drop(&mut self) {
                // So that a caller that does not wait for it is sure to be sooner.
                std::thread::sleep(Duration::from_millis(50));
                self.0.store(true, Ordering::SeqCst);
            }
        }
        thread_local!(static LAST: std::cell::OnceCell<Last> = const { std::cell::OnceCell::new() });
        for fails in [false, true] {
            let is_gone = Arc::new(AtomicBool::new(false));
            let last = Last(Arc::clone(&is_gone));
            let work = move |hand: &ResultSender<(), ()>| {
                LAST.with(|slot| slot.set(last).is_ok());
                if fails {
                    return Err(PageError::Engine { message: String::new() });
                }
                hand.out(());
                Ok(())
            };
            let made = run(LONG, work).map(|(_, coming)| coming.get().is_ok());
            assert!(made.is_err() == fails && is_gone.load(Ordering::SeqCst), "{made:?}");
        }
    }

    /// A record that no caller waits for is neither begun nor delivered.
    ///
    /// Guarantee: pages/window-waits
    #[test]
    fn unwanted_record_is_not_made() {
        let (sender, go_on) = channel();
        let (said, says) = channel();
        let rest = move |hand: &ResultSender<_, _>| {
            said.send(hand.is_wanted()).unwrap();
            Ok(())
        };
        let (_, coming) = run(LONG, holding(go_on, rest)).unwrap();
        let (told, is_told) = channel::<()>();
        coming.then(move || told.send(()).unwrap());
        drop(coming);
        sender.send(()).unwrap();
        assert_eq!(says.recv_timeout(LONG), Ok(false));
        assert!(is_told.recv_timeout(LONG).is_err(), "who let go of it is told");
    }
}
