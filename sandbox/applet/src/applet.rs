//! A serving applet: functions that can be called, by any thread, until it dies or is closed.
//!
//! Invariants:
//! - One call at a time; callers wait for each other. For calls beside each other, use several
//!   applets ([`crate::Pool`]).
//! - However an applet dies, the host goes on, the caller gets [`CallError::Died`], and each heap
//!   is at its last consistent state and still held, so that [`Applet::respawn`] needs nothing from
//!   outside.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use holdfast_region::CloseReport;
use holdfast_sys::own_pid;
use holdfast_wasm::{Heaps, call_chain};

use crate::buffer::SharedBuffer;
use crate::call::{Call, Response};
use crate::command::Command;
use crate::control::Control;
use crate::error::{AppletError, CallError, CloseError, Failure, refused};
use crate::grants::Grants;
use crate::kind::SandboxKind;
use crate::limits::Limits;
use crate::metrics::{CallMetrics, Metrics};
use crate::plan::Plan;
use crate::sandbox;
use crate::session::{SessionEnded, Step};
use crate::state::State;
use crate::stream::Stream;

/// A running applet that serves calls.
pub struct Applet {
    plan: Plan,
    state: Mutex<State>,
    /// A stream has come to its end.
    stream_over: Condvar,
    control: Mutex<Arc<Control>>,
    /// The chain of calls (`call_chain`) whose own code is asked in the middle of a call or a
    /// start, or [`NO_CHAIN`]. A thread asks for its own chain alone, so no order with other memory
    /// is needed.
    asking: AtomicU64,
    kind: SandboxKind,
    /// The process that has it: a forked copy of the host has the memory of the applet's lock, and
    /// nothing else.
    owner: u32,
}

/// What is left of an applet that was closed.
#[non_exhaustive]
pub struct Closed {
    /// What it cost.
    pub metrics: Metrics,
    /// The checkpoints of its heaps, in the order of the grants.
    pub heaps: Vec<CloseReport>,
    /// Captured standard output.
    pub stdout: Vec<u8>,
    /// Captured standard error.
    pub stderr: Vec<u8>,
    /// Whether the applet wrote more to one of them than was captured
    /// ([`Output::Capture`](crate::Output::Capture)).
    pub is_output_truncated: bool,
}

impl Applet {
    /// Starts an applet to be called: short for [`Command::spawn`].
    ///
    /// # Errors
    /// As there.
    pub fn spawn(
        path: impl Into<PathBuf>,
        limits: Limits,
        grants: Grants,
    ) -> Result<Applet, Box<AppletError>> {
        Command::new(path, grants).limits(limits).spawn()
    }

    pub(crate) fn start(plan: Plan, heaps: Heaps) -> Result<Applet, Box<AppletError>> {
        let (state, control) = State::begin(&plan, heaps).map_err(sandbox::let_go)?;
        let kind = match &state {
            State::Serving(session) => session.metrics().kind,
            State::Dead(error, _) => error.metrics.kind,
        };
        Ok(Applet {
            plan,
            kind,
            state: Mutex::new(state),
            stream_over: Condvar::new(),
            control: Mutex::new(control),
            asking: AtomicU64::new(NO_CHAIN),
            owner: own_pid::get(),
        })
    }

    /// Whether this thread is in a host function that the applet called: until that has returned,
    /// calls of the applet on this thread are [`CallError::Busy`].
    #[must_use]
    pub fn is_in_host_function(&self) -> bool {
        self.plan.functions.is_running_here()
    }

    /// The file that it runs.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.plan.path
    }

    /// The names of its functions, in the order in which it registered them; none while it is dead.
    #[must_use]
    pub fn functions(&self) -> Vec<String> {
        match self.lock().as_deref() {
            Ok(State::Serving(session)) => session.functions().to_vec(),
            _ => Vec::new(),
        }
    }

    /// Calls a function and waits for its result. What it streams comes before what it returns.
    ///
    /// # Errors
    /// [`CallError`]; only after `Died` the applet is gone. What the call cost is not counted for
    /// itself, which is what makes this faster than [`Applet::call_with`].
    pub fn call(&self, function: &str, input: &[u8]) -> Result<Vec<u8>, CallError> {
        self.call_through(Call::new(function, input), false).map(|(bytes, _)| bytes)
    }

    /// Calls a function that works in a shared buffer, without copying it.
    ///
    /// # Errors
    /// As [`Applet::call`]; `ForeignBuffer`.
    pub fn call_with_buffer(
        &self,
        function: &str,
        input: &[u8],
        buffer: &SharedBuffer,
    ) -> Result<Vec<u8>, CallError> {
        self.call_through(Call::new(function, input).buffer(buffer), false).map(|(bytes, _)| bytes)
    }

    /// Calls a function, with options, and says what it cost.
    ///
    /// # Errors
    /// As [`Applet::call_with_buffer`].
    pub fn call_with(&self, call: Call<'_>) -> Result<Response, CallError> {
        self.call_through(call, true).map(|(bytes, metrics)| Response { bytes, metrics })
    }

    fn call_through(
        &self,
        call: Call<'_>,
        is_counted: bool,
    ) -> Result<(Vec<u8>, CallMetrics), CallError> {
        // Until the call is over: the caller's own code, which looks, may panic.
        let mut state = EndsCall(self.turn()?);
        let mut is_given_up = false;
        // Asked until the answer is no: each cancellation is a nudge, and so a look.
        let mut look = || {
            if !is_given_up && !self.ask(&call) {
                is_given_up = true;
                self.cancel();
            }
        };
        self.begin_call(&mut state.0, call, false, is_counted, &mut look)?;
        let mut bytes = Vec::new();
        loop {
            match state.0.step()? {
                Step::Chunk(part, _) => bytes.extend_from_slice(&part),
                Step::Done(last) => {
                    let bytes = if bytes.is_empty() { last } else { [bytes, last].concat() };
                    let metrics = match &*state.0 {
                        State::Serving(session) => session.last_call,
                        State::Dead(..) => CallMetrics::default(),
                    };
                    return Ok((bytes, metrics));
                }
                Step::Refused(error) => return Err(error),
                Step::Look => look(),
            }
        }
    }

    /// Calls a function and hands its result out part by part, as it comes. Other calls wait until
    /// the stream is used up or dropped; those of the thread that has it are refused (`Busy`).
    /// Dropping it early cancels the call: an applet that goes on for longer than [`Limits::grace`]
    /// is ended.
    ///
    /// # Errors
    /// As [`Applet::call_with_buffer`].
    pub fn stream(&self, call: Call<'_>) -> Result<Stream<'_>, CallError> {
        let mut state = self.turn()?;
        self.begin_call(&mut state, call, true, true, &mut || {})?;
        if let State::Serving(session) = &mut *state {
            session.streamer = Some(call_chain());
        }
        Ok(Stream::new(self))
    }

    /// Cancels the call that is under way, from another thread, and says whether there was one. A
    /// native applet is told, and killed if it goes on for longer than [`Limits::grace`];
    /// WebAssembly is stopped at once, which ends the applet ([`Applet::respawn`] of one costs
    /// microseconds).
    pub fn cancel(&self) -> bool {
        if !self.is_ours() {
            return false;
        }
        let control = self.control.lock().unwrap_or_else(PoisonError::into_inner).clone();
        control.cancel()
    }

    /// A buffer in memory that host and applet share, zeroed; freed when it is dropped.
    ///
    /// # Errors
    /// `NoBuffer` beyond [`Limits::buffer_bytes`], or when memory is full; `Died`.
    pub fn buffer(&self, bytes: usize) -> Result<SharedBuffer, CallError> {
        match &mut *self.lock()? {
            State::Serving(session) => session.sandbox.buffer(bytes),
            State::Dead(error, _) => Err(CallError::Died(error.clone())),
        }
    }

    /// What it cost so far; after its death, what it had cost; in a forked copy of the host,
    /// nothing.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        match self.lock().as_deref() {
            Ok(State::Serving(session)) => session.metrics(),
            Ok(State::Dead(error, _)) => error.metrics.clone(),
            Err(_) => Metrics::new(self.kind),
        }
    }

    /// What it died of, if it is dead, also while no caller called it.
    #[must_use]
    pub fn cause_of_death(&self) -> Option<Arc<AppletError>> {
        let mut state = self.lock().ok()?;
        if let State::Serving(session) = &*state
            && session.has_ended()
        {
            state.die(SessionEnded(None));
        }
        match &*state {
            State::Dead(error, _) => Some(error.clone()),
            State::Serving(_) => None,
        }
    }

    /// Whether a caller gave a call up in the middle of it since it was started.
    pub(crate) fn was_abandoned(&self) -> bool {
        matches!(self.lock().as_deref(), Ok(State::Serving(session)) if session.was_abandoned)
    }

    /// What this machine could not give to the sandbox, in words with the remedy; nothing when the
    /// sandbox is whole.
    #[must_use]
    pub fn weaker(&self) -> Vec<String> {
        match self.lock().as_deref() {
            Ok(State::Serving(session)) => session.sandbox.weaker(),
            _ => Vec::new(),
        }
    }

    /// Starts it anew on the same heap: after its death, or, if it serves, after it was asked to
    /// end. Buffers of before are void.
    ///
    /// # Errors
    /// As [`Command::spawn`]; the applet is dead then, still has its heap, and this may be tried
    /// again. `Forked` and `Busy` change nothing.
    pub fn respawn(&self) -> Result<(), Arc<AppletError>> {
        let mut state = self.turn().map_err(|error| {
            let failure = match error {
                CallError::Forked { owner } => Failure::Forked { owner },
                _ => Failure::Busy,
            };
            Arc::from(refused(failure, SandboxKind::Native, Heaps::none()))
        })?;
        let (_, heaps) = state.take().dismiss();
        // Asked whether the start is wanted, this thread has the state.
        let asking = Asking::begin(&self.asking);
        let begun = State::begin(&self.plan, heaps);
        drop(asking);
        match begun {
            Ok((begun, control)) => {
                *self.control.lock().unwrap_or_else(PoisonError::into_inner) = control;
                *state = begun;
                Ok(())
            }
            Err((error, heaps)) => {
                let error: Arc<AppletError> = Arc::from(error);
                *state = State::Dead(error.clone(), heaps);
                Err(error)
            }
        }
    }

    /// Ends the applet in order and closes its heaps: all of them, also where one fails.
    ///
    /// # Errors
    /// [`CloseError`].
    pub fn close(self) -> Result<Closed, CloseError> {
        let taken = self.lock().map_err(|_| CloseError::Forked { owner: self.owner })?.take();
        let (error, heaps) = taken.dismiss();
        let closed: Vec<_> = heaps.into_iter().map(|heap| heap.region.close()).collect();
        let heaps = closed.into_iter().collect::<Result<_, _>>()?;
        Ok(Closed {
            metrics: error.metrics.clone(),
            heaps,
            stdout: error.stdout.clone(),
            stderr: error.stderr.clone(),
            is_output_truncated: error.is_output_truncated,
        })
    }

    /// Asks the caller whether its call goes on. What its answer asks of the applet is refused: the
    /// call has that.
    fn ask(&self, call: &Call<'_>) -> bool {
        let _asking = Asking::begin(&self.asking);
        call.goes_on()
    }

    /// # Errors
    /// `Forked`: in a copy of the host that was forked off in the middle of a call the lock would
    /// never be free. `Busy`: this thread is in a host function that the applet called, or is asked
    /// whether its call or start goes on, and would wait for itself.
    pub(crate) fn lock(&self) -> Result<MutexGuard<'_, State>, CallError> {
        if !self.is_ours() {
            return Err(CallError::Forked { owner: self.owner });
        }
        let is_asked = self.asking.load(Ordering::Relaxed) == call_chain();
        if is_asked || self.is_in_host_function() {
            return Err(CallError::Busy);
        }
        // A panic leaves a state of which every method says what it is.
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The state, when no stream goes on.
    ///
    /// # Errors
    /// `Forked`; `Busy`, when the stream is this thread's.
    fn turn(&self) -> Result<MutexGuard<'_, State>, CallError> {
        let mut state = self.lock()?;
        while let Some(streamer) = state.streamer() {
            if streamer == call_chain() {
                return Err(CallError::Busy);
            }
            state = self.stream_over.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(state)
    }

    /// Says that the stream is over.
    pub(crate) fn end_stream(&self, state: &mut State) {
        if let State::Serving(session) = state {
            session.streamer = None;
        }
        self.stream_over.notify_all();
    }

    fn is_ours(&self) -> bool {
        self.owner == own_pid::get()
    }

    fn begin_call(
        &self,
        state: &mut State,
        call: Call<'_>,
        is_streamed: bool,
        is_counted: bool,
        look: &mut dyn FnMut(),
    ) -> Result<(), CallError> {
        let session = match state {
            State::Serving(session) => session,
            State::Dead(error, _) => return Err(CallError::Died(error.clone())),
        };
        let buffer = match call.shared_buffer() {
            Some(buffer) => session.sandbox.handle_of(buffer)?,
            None => Default::default(),
        };
        let request = call.request(buffer, self.plan.limits.call_timeout, is_streamed, is_counted);
        session.call(&request, look).unwrap_or_else(|over| Err(state.die(over)))
    }
}

/// The number of no chain of calls.
const NO_CHAIN: u64 = 0;

/// While a thread that has the state runs code of the host's, which may panic.
struct Asking<'a>(&'a AtomicU64);

impl Asking<'_> {
    fn begin(asking: &AtomicU64) -> Asking<'_> {
        asking.store(call_chain(), Ordering::Relaxed);
        Asking(asking)
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        self.0.store(NO_CHAIN, Ordering::Relaxed);
    }
}

/// Has the state for a call, and lets no other call have it before that is over.
struct EndsCall<'a>(MutexGuard<'a, State>);

impl Drop for EndsCall<'_> {
    fn drop(&mut self) {
        self.0.abandon_call();
    }
}

impl Drop for Applet {
    fn drop(&mut self) {
        if !self.is_ours() {
            // The applet, its heap and the lock on that are the other process's: nothing is
            // touched, not even what would be freed here.
            std::mem::forget(self.state.get_mut().unwrap_or_else(PoisonError::into_inner).take());
            return;
        }
        let taken = self.state.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let (_, heaps) = taken.end(SessionEnded(None));
        for heap in heaps {
            // A caller that wants to know calls `close`; a heap that is not closed in order loses
            // nothing.
            let _ = heap.region.close();
        }
    }
}
