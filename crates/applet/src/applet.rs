//! A serving applet: functions that can be called, by any thread, until it dies or is closed.
//!
//! Invariants:
//! - One call at a time; callers wait for each other. For calls beside each other, use several applets ([`crate::Pool`]).
//! - However an applet dies, the host goes on, the caller gets [`CallError::Died`], and the heap is at its last
//!   consistent state and still held, so that [`Applet::respawn`] needs nothing from outside.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_jail::End;
use holdfast_region::{CloseReport, Region, RegionError};

use crate::buffer::SharedBuffer;
use crate::command::{self, Command, Plan};
use crate::control::Control;
use crate::error::{AppletError, CallError, CloseError, Failure, HeapAfterFailure};
use crate::grants::Grants;
use crate::kind::Kind;
use crate::limits::Limits;
use crate::metrics::{CallMetrics, Metrics};
use crate::sandbox::{self, Ended, NotStarted, Sandbox};
use crate::session::{Over, Request, Session, Step};
use crate::stream::Stream;

/// See the module.
pub struct Applet {
    plan: Plan,
    state: Mutex<State>,
    control: Mutex<Arc<Control>>,
    /// The process that has it: a forked copy of the host has the memory of the applet's lock, and nothing else.
    owner: u32,
}

/// What there is of an applet.
#[allow(clippy::large_enum_variant, reason = "there is one for each applet")]
pub(crate) enum State {
    /// It serves.
    Serving(Box<Session>),
    /// It died of this; its heap is held for the next start.
    Dead(Arc<AppletError>, Option<Region>),
    /// While one state becomes another.
    Between,
}

/// A call with all its options.
#[derive(Debug, Clone, Copy, Default)]
pub struct Call<'a> {
    function: &'a str,
    input: &'a [u8],
    buffer: Option<&'a SharedBuffer>,
    time_limit: Option<Duration>,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// What the function answered; streamed parts in order, and then the result.
    pub bytes: Vec<u8>,
    /// What the call cost.
    pub metrics: CallMetrics,
}

/// What is left of an applet that was closed.
#[non_exhaustive]
pub struct Closed {
    /// What it cost.
    pub metrics: Metrics,
    /// The checkpoint of its heap; `None` when it had none.
    pub heap: Option<CloseReport>,
    /// Captured standard output.
    pub stdout: Vec<u8>,
    /// Captured standard error.
    pub stderr: Vec<u8>,
}

impl<'a> Call<'a> {
    /// Of a function, with its input.
    pub fn new(function: &'a str, input: &'a [u8]) -> Call<'a> {
        Call { function, input, buffer: None, time_limit: None }
    }

    /// Hands the function a shared buffer, without a copy.
    #[must_use]
    pub fn buffer(self, buffer: &'a SharedBuffer) -> Call<'a> {
        Call { buffer: Some(buffer), ..self }
    }

    /// Limits its wall time, instead of [`Limits::call_timeout`]. Past it the applet is killed.
    #[must_use]
    pub fn time_limit(self, limit: Duration) -> Call<'a> {
        Call { time_limit: Some(limit), ..self }
    }
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

    pub(crate) fn start(command: Command) -> Result<Applet, Box<AppletError>> {
        let Command { plan, region } = command;
        let session = begin(&plan, region).map_err(sandbox::let_go)?;
        let control = Mutex::new(session.control.clone());
        let state = Mutex::new(State::Serving(Box::new(session)));
        Ok(Applet { plan, state, control, owner: std::process::id() })
    }

    /// The file that it runs.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.plan.path
    }

    /// The names of its functions, in the order in which it registered them; none while it is dead.
    #[must_use]
    pub fn functions(&self) -> Vec<String> {
        match &*self.lock() {
            State::Serving(session) => session.functions().to_vec(),
            _ => Vec::new(),
        }
    }

    /// Calls a function and waits for its result. What it streams comes before what it returns.
    ///
    /// # Errors
    /// [`CallError`]; only after `Died` the applet is gone.
    pub fn call(&self, function: &str, input: &[u8]) -> Result<Vec<u8>, CallError> {
        self.call_with(Call::new(function, input)).map(|response| response.bytes)
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
        self.call_with(Call::new(function, input).buffer(buffer)).map(|response| response.bytes)
    }

    /// Calls a function, with options, and says what it cost.
    ///
    /// # Errors
    /// As [`Applet::call_with_buffer`].
    pub fn call_with(&self, call: Call<'_>) -> Result<Response, CallError> {
        self.check_owner()?;
        let mut state = self.lock();
        self.begin_call(&mut state, call)?;
        let mut bytes = Vec::new();
        let limit_bytes = self.plan.limits.result_bytes;
        loop {
            match self.step(&mut state)? {
                Step::Chunk(part, _) if part.len() <= limit_bytes - bytes.len() => {
                    bytes.extend_from_slice(&part)
                }
                Step::Done(last) if last.len() <= limit_bytes - bytes.len() => {
                    let bytes = if bytes.is_empty() { last } else { [bytes, last].concat() };
                    return Ok(Response { bytes, metrics: state.last_call() });
                }
                Step::Chunk(..) => {
                    // The rest is thrown away, for as long as the grace of a cancelled call lasts.
                    drop(Stream::new(self, state));
                    return Err(CallError::ResultTooLarge { limit_bytes });
                }
                Step::Done(_) => return Err(CallError::ResultTooLarge { limit_bytes }),
                Step::Refused(error) => return Err(error),
            }
        }
    }

    /// Calls a function and hands its result out part by part, as it comes. Everything else that is asked of
    /// the applet waits until the stream is used up or dropped, so the thread that has the stream must not ask meanwhile;
    /// dropping it early cancels the call.
    ///
    /// # Errors
    /// As [`Applet::call_with_buffer`].
    pub fn stream(&self, call: Call<'_>) -> Result<Stream<'_>, CallError> {
        self.check_owner()?;
        let mut state = self.lock();
        self.begin_call(&mut state, call)?;
        Ok(Stream::new(self, state))
    }

    /// Cancels the call that is under way, from another thread, and says whether there was one. A native applet is told,
    /// and killed if it goes on for longer than [`Limits::grace`]; WebAssembly is stopped at once, which ends the applet
    /// ([`Applet::respawn`] of one costs microseconds).
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
        self.check_owner()?;
        match &mut *self.lock() {
            State::Serving(session) => session.sandbox.buffer(bytes),
            state => Err(state.death()),
        }
    }

    /// What it cost so far; after its death, what it had cost.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        match &*self.lock() {
            State::Serving(session) => session.metrics(),
            State::Dead(error, _) => error.metrics.clone(),
            State::Between => Metrics::new(Kind::Native),
        }
    }

    /// What it died of, if it is dead. It may be dead without anybody having noticed yet: then the next call says so.
    #[must_use]
    pub fn cause_of_death(&self) -> Option<Arc<AppletError>> {
        match &*self.lock() {
            State::Dead(error, _) => Some(error.clone()),
            _ => None,
        }
    }

    /// What this machine could not give to the sandbox, in words with the remedy; nothing when the sandbox is whole.
    #[must_use]
    pub fn weaker(&self) -> Vec<String> {
        match &*self.lock() {
            State::Serving(session) => session.sandbox.weaker(),
            _ => Vec::new(),
        }
    }

    /// Starts it anew on the same heap: after its death, or, if it serves, after it was asked to end. Buffers of before
    /// are void.
    ///
    /// # Errors
    /// As [`Command::spawn`]; the applet is dead then, still has its heap, and this may be tried again. `Forked` changes
    /// nothing.
    pub fn respawn(&self) -> Result<(), Arc<AppletError>> {
        if !self.is_ours() {
            let failure = Failure::Forked { owner: self.owner };
            return Err(Arc::from(command::refused(failure, Kind::Native, None)));
        }
        let mut state = self.lock();
        let region = match std::mem::replace(&mut *state, State::Between) {
            State::Serving(mut session) => {
                session.dismiss();
                let (_, region) = end(*session, None);
                region
            }
            State::Dead(_, region) => region,
            State::Between => None,
        };
        match begin(&self.plan, region) {
            Ok(session) => {
                *self.control.lock().unwrap_or_else(PoisonError::into_inner) = session.control.clone();
                *state = State::Serving(Box::new(session));
                Ok(())
            }
            Err((error, region)) => {
                let error: Arc<AppletError> = Arc::from(error);
                *state = State::Dead(error.clone(), region);
                Err(error)
            }
        }
    }

    /// Ends the applet in order and closes its heap.
    ///
    /// # Errors
    /// [`CloseError`].
    pub fn close(self) -> Result<Closed, CloseError> {
        if !self.is_ours() {
            return Err(CloseError::Forked { owner: self.owner });
        }
        let (error, region) = match std::mem::replace(&mut *self.lock(), State::Between) {
            State::Serving(mut session) => {
                session.dismiss();
                let (error, region) = end(*session, None);
                (Arc::from(error), region)
            }
            State::Dead(error, region) => (error, region),
            State::Between => return Err(RegionError::AlreadyMapped.into()),
        };
        let heap = region.map(Region::close).transpose()?;
        let (metrics, stdout, stderr) = (error.metrics.clone(), error.stdout.clone(), error.stderr.clone());
        Ok(Closed { metrics, heap, stdout, stderr })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in between leaves a state of which every method says what it is.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// # Errors
    /// `Forked`.
    fn check_owner(&self) -> Result<(), CallError> {
        if self.is_ours() { Ok(()) } else { Err(CallError::Forked { owner: self.owner }) }
    }

    fn is_ours(&self) -> bool {
        self.owner == std::process::id()
    }

    fn begin_call(&self, state: &mut State, call: Call<'_>) -> Result<(), CallError> {
        let State::Serving(session) = state else { return Err(state.death()) };
        let buffer = match call.buffer {
            Some(buffer) => session.sandbox.handle_of(buffer)?,
            None => Default::default(),
        };
        let time_limit = call.time_limit.or(self.plan.limits.call_timeout);
        let request = Request { function: call.function, input: call.input, buffer, time_limit };
        match session.call(&request) {
            Ok(begun) => begun,
            Err(over) => Err(state.die(over)),
        }
    }

    pub(crate) fn step(&self, state: &mut State) -> Result<Step, CallError> {
        let State::Serving(session) = state else { return Err(state.death()) };
        match session.step() {
            Ok(step) => {
                if session.is_spent {
                    // The call has what it has, and the next one finds the applet dead.
                    state.die(Over(None));
                }
                Ok(step)
            }
            Err(over) => Err(state.die(over)),
        }
    }
}

impl Drop for Applet {
    fn drop(&mut self) {
        if !self.is_ours() {
            // The applet, its heap and the lock on that are the other process's: nothing is touched, not even what would
            // be freed here.
            if let Ok(state) = self.state.get_mut() {
                std::mem::forget(std::mem::replace(state, State::Between));
            }
            return;
        }
        if let State::Serving(session) = std::mem::replace(&mut *self.lock(), State::Between) {
            let (_, region) = end(*session, None);
            // Whoever wants to know calls `close`; a heap that is not closed in order loses nothing.
            let _ = region.map(Region::close);
        }
    }
}

impl State {
    pub(crate) fn last_call(&self) -> CallMetrics {
        match self {
            State::Serving(session) => session.last_call,
            _ => CallMetrics::default(),
        }
    }

    fn death(&self) -> CallError {
        match self {
            State::Dead(error, _) => CallError::Died(error.clone()),
            _ => CallError::Cancelled,
        }
    }

    fn die(&mut self, over: Over) -> CallError {
        if let State::Serving(session) = std::mem::replace(self, State::Between) {
            let (error, region) = end(*session, over.0);
            *self = State::Dead(Arc::from(error), region);
        }
        self.death()
    }
}

fn begin(plan: &Plan, region: Option<Region>) -> Result<Session, NotStarted> {
    let sandbox = sandbox::start(plan, region)?;
    Session::begin(sandbox, &plan.limits).map_err(|(sandbox, Over(failure))| {
        let metrics = sandbox.metrics();
        let (mut error, region) = conclude(sandbox, failure, metrics);
        if let Failure::Ended { end: End::Exited { status } } = error.failure {
            error.failure = Failure::NotServing { status };
        }
        (error, region)
    })
}

/// Ends the process or the instance, and brings the heap to its last consistent state.
fn end(session: Session, failure: Option<Failure>) -> NotStarted {
    session.control.end();
    let metrics = session.metrics();
    conclude(session.sandbox, failure, metrics)
}

/// `counted` has what the session counted.
fn conclude(sandbox: Box<dyn Sandbox>, failure: Option<Failure>, counted: Metrics) -> NotStarted {
    let Ended { failure: found, mut region, heap_error, stdout, stderr, mut metrics } =
        sandbox.finish(failure.as_ref());
    metrics.take_calls(&counted);
    let heap = region.as_mut().map(|region| HeapAfterFailure::open(region, heap_error));
    (Box::new(AppletError { failure: failure.unwrap_or(found), metrics, heap, stdout, stderr }), region)
}
