//! An applet that Python calls.
//!
//! Invariants:
//! - A thread that calls, waits, starts or ends an applet has let go of the interpreter; any number
//!   of threads may.
//! - What would wait for the very thread that waits is refused: a call while that thread has a
//!   stream open, or is in a call that a signal interrupted; and closing, while it waits to call.
#![forbid(unsafe_code)]

use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use holdfast_applet::{Call, CallError, Command};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::buffer::Buffer;
use crate::convert::{Seconds, Size};
use crate::error::{Class, applet_error, close_error, no_turn, raise};
use crate::functions::{self, Callables};
use crate::gate::Pass;
use crate::inner::{Held, Inner, lock};
use crate::input::Input;
use crate::metrics;
use crate::recipe::{Options, Recipe};
use crate::signals::{self, Raised};
use crate::stream::Stream;
use crate::turn::{NoTurn, SIGNALS_EVERY};

/// An untrusted program that serves calls: native (ELF, in a process of its own that is jailed) or
/// WebAssembly.
///
/// It may use what it is given here and nothing else. `heap` is a text `[NAME=]HEAP[:ro]` (a heap,
/// under another name in the applet, for reading only), a `HeapGrant`, or a list of these, of which
/// the first is the heap of an applet that names none. A heap belongs to the applet that made it:
/// to its publisher's application if its file is signed, else to the name `app`, else to the program
/// with these very bytes; a `HeapGrant` may name a key instead. `functions` are what
/// the applet may call of this program, by name: each takes bytes and returns bytes or None; what
/// it raises is a failure with its words for the applet. `dirs` are paths, texts `HOST[::GUEST][:ro]`
/// or `DirGrant`s; `env` is all of its environment. `limits` is a `Limits`, and each of its fields
/// can be given by name as well (`call_timeout=2.0`). With `strict`, a native applet is refused
/// where this machine lacks a layer of the sandbox. `output` is what becomes of its standard output
/// and error: `"discard"`, `"inherit"`, `"capture"`. `home` and `pool` are the directories of
/// heaps, by default those of the environment.
///
/// Any thread may call it; calls come one after the other, and the interpreter is free meanwhile.
/// A signal whose handler raises (Ctrl-C) ends the wait for an applet that does not serve yet.
/// An applet that crashes, hangs or breaks its rules takes nothing with it: the call raises, the
/// heap is at its last consistent state, and `respawn` restarts it.
#[pyclass(frozen, weakref, module = "holdfast")]
pub(crate) struct Applet {
    inner: Option<Arc<Inner>>,
    callables: Py<Callables>,
}

impl Applet {
    pub(crate) fn of(inner: Inner, callables: Py<Callables>) -> Applet {
        Applet { inner: Some(Arc::new(inner)), callables }
    }

    fn inner(&self, py: Python<'_>) -> PyResult<&Arc<Inner>> {
        match &self.inner {
            Some(inner) => inner.maker.check(py).map(|()| inner),
            // It is taken out in `drop` only.
            None => Err(raise(py, Class::Closed, "the applet is gone", ())),
        }
    }

    /// The applet, for a method that may have to wait for a call.
    fn enter<'a>(&'a self, py: Python<'_>) -> PyResult<(&'a Arc<Inner>, Pass<'a, Held>)> {
        let inner = self.inner(py)?;
        if lock(&inner.stream).upgrade().is_some_and(|stream| stream.is_open_here()) {
            let text = "this thread has a stream of the applet open; use it up or close() it first";
            return Err(raise(py, Class::CallError, text, ()));
        }
        let pass = inner.gate.enter().ok_or_else(|| closed(py))?;
        if pass.is_in_host_function() {
            return Err(raise(py, Class::CallError, CallError::Busy, ()));
        }
        if inner.is_calling_here() {
            return Err(interrupted(py));
        }
        Ok((inner, pass))
    }
}

#[pymethods]
impl Applet {
    #[new]
    #[pyo3(signature = (path, *, args=Vec::new(), env=None, dirs=Vec::new(), heap=None, app=None, functions=None,
                        limits=None, strict=false,
                        output="discard".to_owned(), home=None, pool=None, **named))]
    #[allow(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        args: Vec<String>,
        env: Option<Bound<'_, PyDict>>,
        dirs: Vec<Bound<'_, PyAny>>,
        heap: Option<Bound<'_, PyAny>>,
        app: Option<String>,
        functions: Option<Bound<'_, PyAny>>,
        limits: Option<Bound<'_, PyAny>>,
        strict: bool,
        output: String,
        home: Option<PathBuf>,
        pool: Option<PathBuf>,
        named: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Applet> {
        let options = Options {
            args,
            env,
            dirs,
            heap,
            app,
            functions,
            limits,
            named,
            strict,
            output,
            home,
            pool,
        };
        let recipe = Recipe::read(py, path, options)?;
        let callables = recipe.given.callables(py)?;
        let applet = recipe.start(py, Command::spawn)?;
        let inner = Inner::new(recipe.path, recipe.limits.grace, Held::Own(applet));
        Ok(Applet::of(inner, callables))
    }

    /// There is nothing to clear: a cycle that leads through here leads on through the functions.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.callables)
    }

    /// Calls a function with bytes and returns its result.
    ///
    /// `data` is anything with the buffer protocol (bytes, bytearray, memoryview, numpy arrays,
    /// ...), taken as it is, without a copy; but not arrays of objects or addresses (`TypeError`),
    /// also as fields of structures. `buffer` is a `Buffer` of this applet for large data
    /// in both directions. `timeout` (seconds) replaces the limit `call_timeout`: an applet that
    /// takes longer is killed. Before that the call waits for those of other threads: also at most
    /// `timeout` seconds (`AppletBusy`), or without a `timeout` until they have ended.
    ///
    /// A signal whose handler raises (Ctrl-C) cancels the call, as `cancel` does, or ends the wait
    /// for those of other threads, within 0.1 seconds.
    ///
    /// Raises `CallError` (the function failed, does not exist, was cancelled, or was not called
    /// because of another thread's call; the applet serves on), or `AppletError` (the applet is
    /// gone: it crashed, took too long, did something forbidden).
    #[pyo3(signature = (function, data=None, *, buffer=None, timeout=None))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        function: &str,
        data: Option<Bound<'py, PyAny>>,
        buffer: Option<&Bound<'py, Buffer>>,
        timeout: Option<Seconds>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (inner, pass) = self.enter(py)?;
        let input = Input::of(data.as_ref())?;
        let buffer = buffer.map(|buffer| buffer.get().memory(py)).transpose()?;
        let mut call = Call::new(function, input.bytes());
        if let Some(buffer) = &buffer {
            call = call.buffer(buffer);
        }
        if let Some(timeout) = timeout {
            call = call.time_limit(timeout.0);
        }
        let raised = Mutex::new(None);
        let made = py.detach(|| -> Result<_, NoTurn> {
            let goes_on = || signals::handle(&raised);
            let (turn, known) = inner.turn(timeout.map(|timeout| timeout.0), goes_on)?;
            let call = call.look(SIGNALS_EVERY, &goes_on);
            let result = pass.call_with(call);
            if lock(&raised).is_some() {
                inner.note_death(pass.cause_of_death());
            }
            inner.settle(&pass, result.as_ref().err());
            drop(turn);
            drop(pass);
            Ok((result, known))
        });
        if let Some(error) = lock(&raised).take() {
            return Err(error);
        }
        let (result, known) = made.map_err(|why| no_turn(py, why))?;
        match result {
            Ok(response) => {
                inner.note(Some(response.metrics));
                Ok(PyBytes::new(py, &response.bytes))
            }
            Err(error) => Err(inner.failure(py, &error, known.as_ref())),
        }
    }

    /// Calls a function and iterates over the parts of its result as they come. The data is copied.
    /// Other threads that call the applet wait until the stream is used up or closed; closing it
    /// early (`close()`, leaving a `with` block, dropping it) cancels the call, and the applet
    /// serves on if it heeds that within the limit `grace`. It waits for calls of other threads, as
    /// `call` does.
    #[pyo3(signature = (function, data=None, *, buffer=None, timeout=None))]
    fn stream(
        &self,
        py: Python<'_>,
        function: String,
        data: Option<Bound<'_, PyAny>>,
        buffer: Option<&Bound<'_, Buffer>>,
        timeout: Option<Seconds>,
    ) -> PyResult<Stream> {
        let (inner, pass) = self.enter(py)?;
        drop(pass);
        let input = Input::of(data.as_ref())?.bytes().to_vec();
        let buffer = buffer.map(|buffer| buffer.get().memory(py)).transpose()?;
        let timeout = timeout.map(|timeout| timeout.0);
        let callables = self.callables.clone_ref(py);
        let stream = Stream::open(py, inner, callables, function, input, buffer, timeout)?;
        *lock(&inner.stream) = stream.shared();
        Ok(stream)
    }

    /// Memory that is shared with the applet, of so many bytes, zeroed: see `Buffer`. It is void
    /// after a `respawn`. Waits for a call that is under way, and of a stream for a part.
    ///
    /// Raises `NoBuffer` beyond the limit `buffers`.
    fn buffer(&self, py: Python<'_>, size: Size) -> PyResult<Buffer> {
        let (inner, pass) = self.enter(py)?;
        let bytes = usize::try_from(size.0).unwrap_or(usize::MAX);
        let made = signals::wait(py, |goes_on| {
            let turn = inner.brief_turn(goes_on)?;
            let made = pass.buffer(bytes);
            drop(turn);
            drop(pass);
            Ok(made)
        })?;
        made.map(Buffer::new).map_err(|error| {
            // This kills nothing, so it was dead before.
            let known = match &error {
                CallError::Died(cause) => Some(cause.clone()),
                _ => None,
            };
            inner.failure(py, &error, known.as_ref())
        })
    }

    /// The names of its functions, in the order in which it registered them.
    #[getter]
    fn functions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &*lock(&self.inner(py)?.functions))
    }

    /// The file that it runs.
    #[getter]
    fn path<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("pathlib")?.getattr("Path")?.call1((self.inner(py)?.path.as_os_str(),))
    }

    /// What this machine could not give to the sandbox, in words with the remedy; nothing when the
    /// sandbox is whole.
    #[getter]
    fn weaker<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, &self.inner(py)?.weaker)
    }

    /// Whether it serves, as far as is known: one that died while no caller called it is found out
    /// by the next call.
    #[getter]
    fn alive(&self, py: Python<'_>) -> PyResult<bool> {
        let inner = self.inner(py)?;
        Ok(!inner.gate.is_closed() && lock(&inner.death).is_none())
    }

    /// What the last call that had a result cost (`CallMetrics`); `None` before the first one.
    #[getter]
    fn last_call<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let last = *lock(&self.inner(py)?.last_call);
        last.map(|last| metrics::of_call(py, &last)).transpose()
    }

    /// What it cost so far (`Metrics`). Waits for a call that is under way, and of a stream for a
    /// part.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (inner, pass) = self.enter(py)?;
        let found = signals::wait(py, |goes_on| {
            let turn = inner.brief_turn(goes_on)?;
            let found = pass.metrics();
            drop(turn);
            drop(pass);
            Ok(found)
        })?;
        metrics::of_applet(py, &found)
    }

    /// Cancels the call that is under way in another thread, which then raises `Cancelled`; says
    /// whether there was one. A native applet is asked to stop, and killed after the
    /// limit `grace`; a WebAssembly applet is stopped.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        let inner = self.inner(py)?;
        Ok(py.detach(|| inner.cancel()))
    }

    /// Starts it anew on the same heap: after its death, or, if it serves, after it was asked to
    /// end. Buffers of before are void. Waits for a call that is under way. A signal whose handler
    /// raises ends that wait, and the wait for the new one to serve, which is gone then.
    fn respawn(&self, py: Python<'_>) -> PyResult<()> {
        let (inner, pass) = self.enter(py)?;
        let raised = Raised::default();
        let result = signals::wait(py, |goes_on| {
            // In its turn, so that the next call finds what belongs to the new one.
            let (turn, _) = inner.turn(None, goes_on)?;
            let listening = raised.listen();
            let result = pass.respawn();
            drop(listening);
            match &result {
                Ok(()) => {
                    *lock(&inner.functions) = pass.functions();
                    *lock(&inner.death) = None;
                }
                Err(error) => inner.note_death(Some(error.clone())),
            }
            drop(turn);
            drop(pass);
            Ok(result)
        })?;
        result.map_err(|error| raised.take().unwrap_or_else(|| applet_error(py, &error)))
    }

    /// Ends the applet in order and closes its heap; one out of a pool goes back to it. Waits for a
    /// call that is under way: `cancel()` it first not to. An open stream is closed. Closing twice
    /// does nothing.
    ///
    /// A signal whose handler raises ends the wait. During a call the applet is as before then;
    /// later it goes on to end by itself, and closing it again waits for that.
    ///
    /// Returns a `Closed` with what it cost and wrote; `None` for one that was closed before or is
    /// a pool's. One that is asked to end may still call functions. A function that closes an
    /// applet that ends already gets `None` at once: that end may wait for it.
    fn close<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let inner = self.inner(py)?;
        if inner.is_in_host_function() {
            return Err(raise(py, Class::CallError, CallError::Busy, ()));
        }
        // Its calls that wait for their turn are inside, too.
        if inner.gate.is_inside_here() {
            return Err(interrupted(py));
        }
        let stream = lock(&inner.stream).upgrade();
        let closed = signals::wait(py, |goes_on| {
            if let Some(stream) = stream {
                stream.close(inner, goes_on)?;
            }
            match inner.gate.close(goes_on)? {
                Some(held) => inner.end(held),
                None if functions::is_in_one() => return Ok(None),
                None => {}
            }
            inner.closing.wait(goes_on)
        })?;
        // Without one another thread has closed it.
        let closed = closed.unwrap_or(Ok(Ok(None))).unwrap_or_else(|panic| resume_unwind(panic));
        let Some(closed) = closed.map_err(|error| close_error(py, &error))? else {
            return Ok(None);
        };
        let fields = PyDict::new(py);
        fields.set_item("metrics", metrics::of_applet(py, &closed.metrics)?)?;
        fields.set_item("stdout", PyBytes::new(py, &closed.stdout))?;
        fields.set_item("stderr", PyBytes::new(py, &closed.stderr))?;
        fields.set_item("output_truncated", closed.is_output_truncated)?;
        py.import("holdfast._types")?.getattr("Closed")?.call((), Some(&fields)).map(Some)
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.inner(py)?.gate.is_closed())
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let is_closed = slf.get().inner(slf.py())?.gate.is_closed();
        if is_closed { Err(closed(slf.py())) } else { Ok(slf) }
    }

    #[pyo3(signature = (_kind, _value, _traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py).map(drop)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let inner = self.inner(py)?;
        let state = match () {
            () if inner.gate.is_closed() => "closed",
            () if lock(&inner.death).is_some() => "gone",
            () => "serving",
        };
        Ok(format!("<holdfast.Applet {:?} ({state})>", inner.path))
    }
}

fn closed(py: Python<'_>) -> PyErr {
    raise(py, Class::Closed, "the applet is closed; start another one", ())
}

/// What a signal's handler gets that would wait for the call in which the signal came.
fn interrupted(py: Python<'_>) -> PyErr {
    let text = "a signal interrupted this thread's call of the applet; wait until that has ended";
    raise(py, Class::CallError, text, ())
}

impl Drop for Applet {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.take() {
            inner.maker.let_go(inner);
        }
    }
}
