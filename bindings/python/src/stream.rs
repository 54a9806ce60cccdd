//! A result that comes in parts, as an iterator.
//!
//! A thread of its own has the call: it hands each part over and waits until it is taken. So any
//! thread of Python can go on with the stream, and none is tied to it.
//!
//! Invariants:
//! - A cancellation from here meets this stream's call and no other one: the call is marked as
//!   under way once it has the turn, and as over before the turn ends, and is cancelled only in
//!   between, under that mark's lock. A stream that is closed before its call has the turn makes
//!   none.
//! - When `close` returns, the call is over. A native applet learns at once that the caller does
//!   not want the rest; one in WebAssembly, which a cancellation ends, finds out when it sends
//!   more, and is cancelled only if it has not ended the call by itself after the limit `grace`.
//! - A function of the host that runs in the call does not wait for that.
//! - A signal whose handler raises ends every wait here. When it ends the wait in
//!   `close`, the stream is cancelled; only another `close` waits for its end.
#![forbid(unsafe_code)]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use holdfast_applet::{AppletError, Call, CallError, SharedBuffer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{PyTraverseError, PyVisit};

use crate::error::{Class, no_turn, raise};
use crate::functions::Callables;
use crate::inner::{Held, Inner, lock};
use crate::process::Maker;
use crate::signals;
use crate::turn::{NoTurn, SIGNALS_EVERY, Turn, Turns, wait_while};

/// Parts that wait to be taken.
const PARTS_AHEAD: usize = 1;

/// The parts of a result, in order: an iterator of `bytes`, and a context manager. See
/// `Applet.stream`.
#[pyclass(frozen, weakref, module = "holdfast")]
pub(crate) struct Stream {
    shared: Option<Arc<Shared>>,
    inner: Option<Arc<Inner>>,
    callables: Py<Callables>,
    maker: Maker,
}

/// What the thread that has the call and those that use the stream share.
pub(crate) struct Shared {
    stage: Mutex<Stage>,
    over: Condvar,
    /// Another part is not wanted.
    is_closing: AtomicBool,
    /// A thread that closed it does not wait for the end.
    is_left: AtomicBool,
    /// Threads that use it take turns.
    readers: Turns,
    parts: Mutex<Option<Receiver<Part>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The thread that used the stream last.
    user: Mutex<Option<ThreadId>>,
}

/// How far the call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It waits for its turn: what is under way is another call.
    Waiting,
    /// It has the turn, and may be cancelled.
    UnderWay,
    /// It must not be cancelled any more.
    Over,
}

/// What the thread hands over; first, once, whether the call was begun.
enum Part {
    Begun,
    NotMade(NoTurn),
    Bytes(Vec<u8>),
    /// With what the applet had died of before.
    Failed(CallError, Option<Arc<AppletError>>),
    Closed,
}

impl Stream {
    pub(crate) fn open(
        py: Python<'_>,
        inner: &Arc<Inner>,
        callables: Py<Callables>,
        function: String,
        input: Vec<u8>,
        buffer: Option<Arc<SharedBuffer>>,
        time_limit: Option<Duration>,
    ) -> PyResult<Stream> {
        let (sender, parts) = sync_channel(PARTS_AHEAD);
        let shared = Arc::new(Shared {
            stage: Mutex::new(Stage::Waiting),
            over: Condvar::new(),
            is_closing: AtomicBool::new(false),
            is_left: AtomicBool::new(false),
            readers: Turns::default(),
            parts: Mutex::new(Some(parts)),
            thread: Mutex::default(),
            user: Mutex::default(),
        });
        let worker = Worker { inner: inner.clone(), shared: shared.clone(), sender };
        let thread =
            thread::Builder::new().name("holdfast-stream".to_owned()).spawn(move || {
                let mut call = Call::new(&function, &input);
                if let Some(buffer) = &buffer {
                    call = call.buffer(buffer);
                }
                if let Some(limit) = time_limit {
                    call = call.time_limit(limit);
                }
                worker.run(call, time_limit);
            })?;
        *lock(&shared.thread) = Some(thread);
        // From here on: where there is no thread there is no call of its own to cancel.
        let stream = Stream {
            shared: Some(shared.clone()),
            inner: Some(inner.clone()),
            callables,
            maker: inner.maker,
        };
        match shared.next(py)? {
            Some(Part::Begun) => Ok(stream),
            Some(Part::NotMade(why)) => Err(no_turn(py, why)),
            Some(Part::Failed(error, known)) => Err(inner.failure(py, &error, known.as_ref())),
            _ => Err(raise(py, Class::Closed, "the applet is closed; start another one", ())),
        }
    }

    pub(crate) fn shared(&self) -> Weak<Shared> {
        self.shared.as_ref().map(Arc::downgrade).unwrap_or_default()
    }

    fn parts(&self, py: Python<'_>) -> PyResult<(&Arc<Shared>, &Arc<Inner>)> {
        self.maker.check(py)?;
        let both = self.shared.as_ref().zip(self.inner.as_ref());
        let (shared, inner) =
            both.ok_or_else(|| raise(py, Class::Closed, "the stream is gone", ()))?;
        if inner.is_in_host_function() && !shared.is_over() {
            return Err(raise(py, Class::CallError, CallError::Busy, ()));
        }
        Ok((shared, inner))
    }
}

#[pymethods]
impl Stream {
    /// A stream keeps the applet, also when it is over. There is nothing to clear: see `Applet`.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.callables)
    }

    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let (shared, inner) = self.parts(py)?;
        match shared.next(py)? {
            Some(Part::Bytes(bytes)) => Ok(Some(PyBytes::new(py, &bytes))),
            Some(Part::Failed(error, known)) => Err(inner.failure(py, &error, known.as_ref())),
            _ => Ok(None),
        }
    }

    /// Ends the stream: cancels the call if it is not over, and waits until it is. A signal whose
    /// handler raises ends that wait; the call is cancelled all the same. Closing twice does
    /// nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let (shared, inner) = self.parts(py)?;
        signals::wait(py, |goes_on| shared.close(inner, goes_on))
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (_kind, _value, _traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        /// Ends the call when it is dropped.
        struct End(Arc<Shared>, Arc<Inner>);
        impl Drop for End {
            fn drop(&mut self) {
                if !self.0.is_left.load(Ordering::SeqCst) {
                    // It waits to the end, whatever comes.
                    let _ = self.0.close(&self.1, || true);
                }
            }
        }
        if let (Some(shared), Some(inner)) = (self.shared.take(), self.inner.take()) {
            self.maker.let_go(End(shared, inner));
        }
    }
}

impl Shared {
    /// Whether the call is over.
    fn is_over(&self) -> bool {
        *lock(&self.stage) == Stage::Over
    }

    /// Whether a call by this thread would wait for this thread: it used the stream last, and the
    /// call goes on.
    pub(crate) fn is_open_here(&self) -> bool {
        !self.is_over() && *lock(&self.user) == Some(thread::current().id())
    }

    /// The next part; what a signal's handler raised meanwhile, when the stream is as before.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Part>> {
        *lock(&self.user) = Some(thread::current().id());
        signals::wait(py, |goes_on| {
            // In a handler that has interrupted it here, this thread has the turn.
            let is_nested = self.readers.is_here();
            let _turn = (!is_nested).then(|| self.readers.take(None, goes_on)).transpose()?;
            loop {
                match self.receive() {
                    ControlFlow::Break(part) => return Ok(part),
                    ControlFlow::Continue(()) if goes_on() => {}
                    ControlFlow::Continue(()) => return Err(NoTurn::GivenUp),
                }
            }
        })
    }

    /// The next part, or that there is none any more; goes on when none came for a while.
    fn receive(&self) -> ControlFlow<Option<Part>> {
        let mut parts = lock(&self.parts);
        if self.is_closing.load(Ordering::SeqCst) {
            return ControlFlow::Break(None);
        }
        let Some(receiver) = parts.as_ref() else { return ControlFlow::Break(None) };
        match receiver.recv_timeout(SIGNALS_EVERY) {
            Ok(part) => ControlFlow::Break(Some(part)),
            Err(RecvTimeoutError::Timeout) => ControlFlow::Continue(()),
            Err(RecvTimeoutError::Disconnected) => {
                // The thread has ended.
                *parts = None;
                ControlFlow::Break(None)
            }
        }
    }

    /// See [`Stream::close`]; waits while `goes_on` says so.
    pub(crate) fn close(&self, inner: &Inner, goes_on: impl Fn() -> bool) -> Result<(), NoTurn> {
        self.is_closing.store(true, Ordering::SeqCst);
        if inner.outlives_cancel {
            self.cancel(inner);
        }
        // The thread that has the call finds no one to hand a part to, and drops the rest.
        drop(lock(&self.parts).take());
        if inner.is_in_host_function() {
            // The garbage collector takes a stream away wherever Python runs. The call ends once the
            // function has returned.
            return Ok(());
        }
        let mut ended = Ok(());
        if !inner.outlives_cancel {
            ended = self.wait_for_end(Some(inner.grace), &goes_on);
            // Also for one that waits no longer: there may be no other who does.
            self.cancel(inner);
        }
        if ended != Err(NoTurn::GivenUp) {
            ended = self.wait_for_end(None, goes_on);
        }
        self.is_left.store(ended.is_err(), Ordering::SeqCst);
        ended?;
        let thread = lock(&self.thread).take();
        // Its panic would be ours; it has let go of the applet all the same.
        let _ = thread.map(JoinHandle::join);
        Ok(())
    }

    /// Cancels the call if it is under way.
    fn cancel(&self, inner: &Inner) {
        let stage = lock(&self.stage);
        if *stage == Stage::UnderWay {
            inner.cancel();
        }
    }

    /// Waits until the call is over: no longer than `patience`, and while `goes_on` says so.
    fn wait_for_end(
        &self,
        patience: Option<Duration>,
        goes_on: impl Fn() -> bool,
    ) -> Result<(), NoTurn> {
        let is_going_on = |stage: &Stage| *stage != Stage::Over;
        let stage = lock(&self.stage);
        wait_while(&self.stage, &self.over, stage, patience, is_going_on, goes_on).map(drop)
    }

    /// The call has the turn; whether it is still wanted.
    fn begin(&self) -> bool {
        let mut stage = lock(&self.stage);
        let is_wanted = !self.is_closing.load(Ordering::SeqCst);
        if is_wanted {
            *stage = Stage::UnderWay;
        }
        is_wanted
    }

    /// The call is over.
    fn end(&self) {
        *lock(&self.stage) = Stage::Over;
        self.over.notify_all();
    }
}

/// The thread that has the call.
struct Worker {
    inner: Arc<Inner>,
    shared: Arc<Shared>,
    sender: SyncSender<Part>,
}

impl Worker {
    /// `patience` is how long it waits for other calls.
    fn run(self, call: Call<'_>, patience: Option<Duration>) {
        let last = match self.inner.gate.enter() {
            None => Some(Part::Closed),
            Some(applet) => self.make(&applet, call, patience),
        };
        self.shared.end();
        // Its receiver is gone when sending fails.
        if let Some(last) = last {
            let _ = self.sender.send(last);
        }
    }

    /// Makes the call, when its turn comes; what is to be handed over last.
    fn make(&self, applet: &Held, call: Call<'_>, patience: Option<Duration>) -> Option<Part> {
        let is_wanted = || !self.shared.is_closing.load(Ordering::SeqCst);
        let (turn, known) = match self.inner.turn(patience, is_wanted) {
            Ok(taken) => taken,
            Err(why) => return Some(Part::NotMade(why)),
        };
        if !self.shared.begin() {
            return Some(Part::NotMade(NoTurn::GivenUp));
        }
        let error = self.hand_over(applet, call, &turn);
        self.shared.end();
        self.inner.settle(applet, error.as_ref());
        drop(turn);
        error.map(|error| Part::Failed(error, known))
    }

    /// Hands all parts over; why there are no more, when that is not the end of the result.
    fn hand_over(&self, applet: &Held, call: Call<'_>, turn: &Turn<'_>) -> Option<CallError> {
        let mut stream = match applet.stream(call) {
            Ok(stream) => stream,
            Err(error) => return Some(error),
        };
        let mut is_wanted = self.hand(Part::Begun, turn);
        while is_wanted {
            match stream.next() {
                Some(Ok(chunk)) => is_wanted = self.hand(Part::Bytes(chunk.bytes), turn),
                Some(Err(error)) => return Some(error),
                None => break,
            }
        }
        self.inner.note(stream.metrics());
        if !is_wanted {
            // This ends the call, and the applet if it goes on for too long.
            drop(stream);
            self.inner.note_death(applet.cause_of_death());
        }
        None
    }

    /// Hands one part over; whether more are wanted.
    fn hand(&self, part: Part, turn: &Turn<'_>) -> bool {
        // It waits until parts are taken, for as long as Python likes.
        turn.lend();
        let is_wanted = self.sender.send(part).is_ok();
        turn.recall();
        is_wanted
    }
}

impl Drop for Worker {
    /// Who waits for the end does so also after a panic.
    fn drop(&mut self) {
        self.shared.end();
    }
}
