//! A result that comes in parts, as an iterator.
//!
//! A thread of its own has the call: it hands each part over and waits until it is taken. So any
//! thread of Python can go on with the stream, and none is tied to it.
//!
//! Invariants:
//! - A cancellation from here meets this stream's call and no later one: the call is marked as over
//!   before its turn ends, and cancelled only under that mark's lock.
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

use crate::error::{Class, raise};
use crate::inner::{Held, Inner, SIGNALS_EVERY, lock};
use crate::process::Maker;

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
    /// The call is over, so it must not be cancelled any more.
    is_over: Mutex<bool>,
    over: Condvar,
    /// Another part is not wanted.
    is_closing: AtomicBool,
    parts: Mutex<Option<Receiver<Part>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// The thread that used the stream last.
    user: Mutex<Option<ThreadId>>,
}

/// What the thread hands over; first, once, whether the call was begun.
enum Part {
    Begun,
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
            is_over: Mutex::new(false),
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
                worker.run(call);
            })?;
        *lock(&shared.thread) = Some(thread);
        // From here on: where there is no thread there is no call of its own to cancel.
        let stream =
            Stream { shared: Some(shared.clone()), inner: Some(inner.clone()), maker: inner.maker };
        match shared.next(py)? {
            Some(Part::Begun) => Ok(stream),
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
        !*lock(&self.is_over) && *lock(&self.user) == Some(thread::current().id())
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

    /// Cancels the call, unless it is over by then.
    fn cancel(&self, inner: &Inner, patience: Duration) {
        let waited =
            self.over.wait_timeout_while(lock(&self.is_over), patience, |is_over| !*is_over);
        let (is_over, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if !*is_over {
            inner.cancel();
        }
    }

    /// The call is over.
    fn end(&self) {
        *lock(&self.is_over) = true;
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
    fn run(self, call: Call<'_>) {
        // Its receiver is gone when sending fails.
        let last = match self.inner.gate.enter() {
            None => Some(Part::Closed),
            Some(applet) => {
                let (turn, known) = self.inner.turn();
                let error = self.hand_over(&applet, call);
                self.shared.end();
                self.inner.settle(&applet, error.as_ref());
                drop(turn);
                error.map(|error| Part::Failed(error, known))
            }
        };
        self.shared.end();
        if let Some(last) = last {
            let _ = self.sender.send(last);
        }
    }

    /// Hands all parts over; why there are no more, when that is not the end of the result.
    fn hand_over(&self, applet: &Held, call: Call<'_>) -> Option<CallError> {
        let mut stream = match applet.stream(call) {
            Ok(stream) => stream,
            Err(error) => return Some(error),
        };
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
