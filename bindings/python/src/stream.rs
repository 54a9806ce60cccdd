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
#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use holdfast_applet::{AppletError, Call, CallError, SharedBuffer};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::{Class, no_turn, raise};
use crate::inner::{Held, Inner, lock};
use crate::process::Maker;
use crate::turn::{NoTurn, SIGNALS_EVERY, Turn};

/// Parts that wait to be taken.
const PARTS_AHEAD: usize = 1;

/// The parts of a result, in order: an iterator of `bytes`, and a context manager. See
/// `Applet.stream`.
#[pyclass(frozen, weakref, module = "holdfast")]
pub(crate) struct Stream {
    shared: Option<Arc<Shared>>,
    inner: Option<Arc<Inner>>,
    maker: Maker,
}

/// What the thread that has the call and those that use the stream share.
pub(crate) struct Shared {
    stage: Mutex<Stage>,
    over: Condvar,
    /// Another part is not wanted.
    is_closing: AtomicBool,
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
        let stream =
            Stream { shared: Some(shared.clone()), inner: Some(inner.clone()), maker: inner.maker };
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
        both.ok_or_else(|| raise(py, Class::Closed, "the stream is gone", ()))
    }
}

#[pymethods]
impl Stream {
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

    /// Ends the stream: cancels the call if it is not over, and waits until it is. Closing twice
    /// does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let (shared, inner) = self.parts(py)?;
        py.detach(|| shared.close(inner));
        Ok(())
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
                self.0.close(&self.1);
            }
        }
        if let (Some(shared), Some(inner)) = (self.shared.take(), self.inner.take()) {
            self.maker.let_go(End(shared, inner));
        }
    }
}

impl Shared {
    /// Whether a call by this thread would wait for this thread: it used the stream last, and the
    /// call goes on.
    pub(crate) fn is_open_here(&self) -> bool {
        *lock(&self.stage) != Stage::Over && *lock(&self.user) == Some(thread::current().id())
    }

    /// The next part; what a signal's handler raised meanwhile, when the stream is as before.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Part>> {
        *lock(&self.user) = Some(thread::current().id());
        loop {
            let waited = py.detach(|| {
                let mut parts = lock(&self.parts);
                if self.is_closing.load(Ordering::SeqCst) {
                    return Ok(None);
                }
                let Some(receiver) = parts.as_ref() else { return Ok(None) };
                match receiver.recv_timeout(SIGNALS_EVERY) {
                    Ok(part) => Ok(Some(part)),
                    Err(RecvTimeoutError::Timeout) => Err(()),
                    Err(RecvTimeoutError::Disconnected) => {
                        // The thread has ended.
                        *parts = None;
                        Ok(None)
                    }
                }
            });
            match waited {
                Ok(part) => return Ok(part),
                Err(()) => py.check_signals()?,
            }
        }
    }

    /// See [`Stream::close`].
    pub(crate) fn close(&self, inner: &Inner) {
        self.is_closing.store(true, Ordering::SeqCst);
        if inner.outlives_cancel {
            self.cancel(inner, Duration::ZERO);
        }
        // The thread that has the call finds no one to hand a part to, and drops the rest.
        drop(lock(&self.parts).take());
        if !inner.outlives_cancel {
            self.cancel(inner, inner.grace);
        }
        let thread = lock(&self.thread).take();
        // Its panic would be ours; it has let go of the applet all the same.
        let _ = thread.map(JoinHandle::join);
    }

    /// Cancels the call if it is under way then.
    fn cancel(&self, inner: &Inner, patience: Duration) {
        let is_going_on = |stage: &mut Stage| *stage != Stage::Over;
        let waited = self.over.wait_timeout_while(lock(&self.stage), patience, is_going_on);
        let (stage, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *stage == Stage::UnderWay {
            inner.cancel();
        }
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
        // It waits until parts are taken, for as long as Python likes.
        turn.lend();
        let mut is_wanted = self.sender.send(Part::Begun).is_ok();
        while is_wanted {
            match stream.next() {
                Some(Ok(chunk)) => is_wanted = self.sender.send(Part::Bytes(chunk.bytes)).is_ok(),
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
}
