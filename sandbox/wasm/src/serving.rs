//! An applet that stays alive and is called any number of times; and, because a run is the same
//! without a call, the one place where an applet is run.
//!
//! The applet runs on the thread that calls [`Serving::receive`], and only while it does: between
//! two such calls it is suspended in an import. So nothing runs while the host looks at the heap,
//! and a `Serving` may move between threads.
//!
//! Invariants:
//! - Whatever happens, the store is dropped and the heaps unmapped before they go back to the
//!   caller, who recovers and closes them.
//! - An applet that has ended, for whatever reason, never runs again.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use holdfast_channel::Header;
use holdfast_channel::hello::Names;
use holdfast_channel::protocol::{HostMessage, MessageKind};
use holdfast_crossings::{Applet, AppletKind, Mark};
use holdfast_sys::special_bits::Surrendered;
use holdfast_types::PathAccess;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Notify;

use crate::callers_stack::CallersStack;
use crate::code::{Code, LoadReport};
use crate::control::{Interrupt, RunControl};
use crate::error::WasmError;
use crate::execution::{self, Done, Execution, ExecutionTerms};
use crate::heap_link::HeapLink;
use crate::heaps::Heaps;
use crate::limits::WasmLimits;
use crate::mailbox::{AppletEvent, Mailbox, Message, PAYLOAD_BYTES_MAX};
use crate::metrics::{Clocks, WasmMetrics};
use crate::program::Program;
use crate::run::{Finished, RunOptions};
use crate::stdio::Captured;
use crate::{arena, launch};

/// What [`Serving::receive`] comes back with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    /// The applet sent a message, and waits until [`Serving::receive`] is called again.
    Message {
        /// As the applet wrote it, but for `payload_bytes`, which is right. Nothing else was
        /// checked.
        header: Header,
        /// A copy; at most [`PAYLOAD_BYTES_MAX`].
        payload: Vec<u8>,
    },
    /// It waits for a message, and there is none for it.
    Idle,
    /// It goes on when [`Serving::receive`] is called again: see [`Serving::look_every`].
    Look,
    /// It has ended: [`Serving::finish`] says how.
    Ended,
}

/// Why a message was not sent. The applet is as before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The payload is too long.
    #[error(
        "a message of {bytes} bytes exceeds the limit of {limit_bytes} bytes; split it, or hand the data over in a \
         shared buffer"
    )]
    TooLarge {
        /// Its length.
        bytes: usize,
        /// [`PAYLOAD_BYTES_MAX`].
        limit_bytes: usize,
    },
    /// The applet has not taken what was sent before.
    #[error(
        "{queued_bytes} bytes wait for the applet already; let it run (`receive`) before more is sent"
    )]
    Full {
        /// What waits for it.
        queued_bytes: usize,
    },
    /// A call with a buffer that does not lie in the arena.
    #[error("the buffer of the call does not lie in the applet's arena; make it there")]
    NoSuchBuffer,
    /// The applet has ended.
    #[error("the applet has ended; start it anew")]
    Ended,
}

/// An applet that serves. Dropping it ends the applet, and its heaps are left as if this process
/// had died; to have them back call [`Serving::finish`].
pub struct Serving {
    /// `None` once it has ended.
    execution: Option<Execution>,
    runtime: Option<Runtime>,
    callers_stack: Arc<CallersStack>,
    mailbox: Arc<Mailbox>,
    control: Arc<RunControl>,
    link: Arc<HeapLink>,
    /// Outlives the execution, which is dropped first.
    _code: Arc<Code>,
    applet: String,
    fuel: Option<u64>,
    report: LoadReport,
    captured: Captured,
    end: Option<Result<i32, WasmError>>,
    /// When it was to be started: a run's deadline is counted from there.
    started: Instant,
    /// Calls that were sent and have no answer.
    unanswered: usize,
    /// When the current call began: its deadline is counted from there in messages.
    called: Instant,
    look_every: Option<Duration>,
    time_limit: Option<Duration>,
    /// It may write to files of the host, which then must not keep set-user-ID bits.
    writes_files: bool,
    /// Outlives the execution, which marks things of it.
    crossings: Applet,
}

/// Starts an applet that is going to be called, with these heaps. Nothing of it runs
/// before the first [`Serving::receive`]. Code is shared with all applets of the same program in
/// this process, and is found at once when the program was served before.
///
/// Of [`RunOptions::limits`], `timeout` limits nothing but the time for compiling: each call has
/// the deadline that [`Serving::receive`] is given. Fuel is given anew with each call.
///
/// # Errors
/// Why it cannot be started; the heaps are in there.
pub fn serve(
    program: &Program,
    options: &RunOptions,
    heaps: impl Into<Heaps>,
) -> Result<Serving, Box<Finished>> {
    Serving::start(program, options, heaps.into(), Code::shared)
}

/// How the code of a program is come by: of its own, or shared.
pub(crate) type Load =
    fn(&Program, &WasmLimits, Option<&Path>, &mut LoadReport) -> Result<Arc<Code>, WasmError>;

impl Serving {
    pub(crate) fn start(
        program: &Program,
        options: &RunOptions,
        heaps: Heaps,
        load: Load,
    ) -> Result<Serving, Box<Finished>> {
        let starting = Instant::now();
        let crossings = Applet::begin(AppletKind::Wasm, program.name());
        let checked = heaps.check_for_one_thread().map_err(WasmError::Heaps);
        let checked = checked.and_then(|()| Ok(options.functions.check()?));
        let link = HeapLink::new(heaps, options.arena.clone());
        let mut report = LoadReport::default();
        let started = checked.and_then(|()| launch::check_heaps_fit(&link)).and_then(|()| {
            let code = load(program, &options.limits, options.cache_dir.as_deref(), &mut report)?;
            launch::place_heaps(&link, &code)?;
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            let runtime = runtime.map_err(|error| WasmError::host("start the timer", error))?;
            let surroundings = (runtime.handle().clone(), crossings.mark());
            match launch::new_store(program, options, &code, &link, surroundings) {
                Ok(store) => Ok((store, code, runtime)),
                Err(error) => {
                    // In an asynchronous context it panics when it is dropped.
                    runtime.shutdown_background();
                    Err(error)
                }
            }
        });
        let ((store, captured), code, runtime) = match started {
            Ok(started) => started,
            Err(error) => {
                return Err(Box::new(Finished::new(
                    Err(error),
                    report,
                    &Captured::default(),
                    &link,
                )));
            }
        };
        let (mailbox, callers_stack) =
            (store.data().mailbox.clone(), store.data().callers_stack.clone());
        let control = RunControl::new(&code.engine);
        Ok(Serving {
            execution: Some(execution::begin(&code, store, control.clone())),
            runtime: Some(runtime),
            callers_stack,
            mailbox,
            control,
            link,
            _code: code,
            applet: program.name().to_owned(),
            fuel: options.limits.fuel,
            report,
            captured,
            end: None,
            started: starting,
            unanswered: 0,
            called: Instant::now(),
            look_every: None,
            time_limit: None,
            writes_files: options.dirs.iter().any(|dir| dir.access == PathAccess::ReadWrite),
            crossings,
        })
    }

    /// Puts a message at the end of what waits for the applet; it gets it when it runs, in
    /// [`Serving::receive`]. `payload_bytes` is set here. A header of the kind `Call` begins a
    /// call: its fuel, its time. Its buffer (`a`, `b`) is named by its offset in the arena; the
    /// applet gets the address.
    ///
    /// # Errors
    /// [`SendError`].
    pub fn send(&mut self, header: Header, payload: impl Into<Vec<u8>>) -> Result<(), SendError> {
        if self.execution.is_none() {
            return Err(SendError::Ended);
        }
        let payload = payload.into();
        let bytes = payload.len();
        if bytes > PAYLOAD_BYTES_MAX {
            return Err(SendError::TooLarge { bytes, limit_bytes: PAYLOAD_BYTES_MAX });
        }
        if header.kind() == Some(MessageKind::Call) {
            let arena_bytes = self.link.arena_bytes();
            if arena::part_of(&header).is_some_and(|part| !arena::holds(arena_bytes, part)) {
                return Err(SendError::NoSuchBuffer);
            }
        }
        let header = Header { payload_bytes: bytes as u32, ..header };
        self.mailbox
            .post(Message { header, payload })
            .map_err(|queued_bytes| SendError::Full { queued_bytes })?;
        if header.kind() == Some(MessageKind::Call) {
            self.called = Instant::now();
            self.unanswered += 1;
        }
        Ok(())
    }

    /// Runs the applet on this thread until it sends a message, waits for one while there is none
    /// for it, or ends. Past the deadline it is stopped, and has ended. Ends at once when the
    /// applet has ended.
    ///
    /// May be called in an asynchronous context, whose thread it blocks.
    pub fn receive(&mut self, deadline: Option<Instant>) -> Received {
        if self.execution.is_none() {
            return Received::Ended;
        }
        let look = self.look_every.and_then(|time| Instant::now().checked_add(time));
        if let Err(error) = self.control.arm(deadline, look) {
            return self.fail(WasmError::host("start the thread for deadlines", error));
        }
        let event = self.go_on();
        if deadline.is_some() || look.is_some() {
            // Cannot fail: without a deadline there is nothing to be started.
            let _ = self.control.arm(None, None);
        }
        match event {
            Ok(Event::Suspended(AppletEvent::Sent(Message { header, payload }))) => {
                if matches!(header.kind(), Some(MessageKind::Result | MessageKind::Failure)) {
                    self.unanswered = self.unanswered.saturating_sub(1);
                }
                Received::Message { header, payload }
            }
            Ok(Event::Suspended(AppletEvent::Waiting)) => Received::Look,
            Ok(Event::Suspended(AppletEvent::Idle)) => Received::Idle,
            Ok(Event::Done(done)) => {
                self.conclude(&done, deadline);
                Received::Ended
            }
            Err(error) => self.fail(error),
        }
    }

    /// Has [`Serving::receive`] come back with [`Received::Look`] after so much time without a
    /// message, for a caller that has something else to look at on this thread.
    pub fn look_every(&mut self, time: Option<Duration>) {
        self.look_every = time;
    }

    /// Stops the applet from another thread.
    pub fn interrupt(&self) -> Interrupt {
        Interrupt::of(self.control.clone())
    }

    /// How the applet ended, once it has.
    pub fn end(&self) -> Option<&Result<i32, WasmError>> {
        self.end.as_ref()
    }

    /// For marking what the host does with it, if a tracer wants that.
    pub fn crossings(&self) -> Mark {
        self.crossings.mark()
    }

    /// What the applet has cost so far.
    pub fn metrics(&self) -> WasmMetrics {
        let mut metrics = self.report.metrics;
        let progress = self.mailbox.progress();
        let (wall_time, cpu_time) =
            progress.instantiated.unwrap_or((metrics.wall_time, metrics.cpu_time));
        metrics.instantiate_time += wall_time;
        metrics.wall_time = metrics.wall_time.saturating_sub(wall_time);
        metrics.cpu_time = metrics.cpu_time.saturating_sub(cpu_time);
        metrics.peak_volatile_bytes = progress.peak_volatile_bytes;
        metrics.fuel_used =
            self.fuel.zip(progress.fuel_left).map(|(fuel, left)| fuel.saturating_sub(left));
        (metrics.heap_backed_bytes, metrics.heap_dirty) = self.link.backed_and_dirty();
        metrics
    }

    /// Makes what the applet has stored to its heap so far count, if its mode is `atomic`; in the
    /// mode `direct` it does already. To be called after a call that counts.
    ///
    /// # Errors
    /// [`WasmError::Heap`] when it was not published; the applet goes on, and it can be tried
    /// again. [`WasmError::HostAccess`] and others when the applet is to be stopped for what it
    /// did: nothing is published.
    pub fn publish(&mut self) -> Result<(), WasmError> {
        if self.execution.is_none() {
            return Err(WasmError::host("publish what the applet stored", "it has ended"));
        }
        execution::host_fault(&self.link, None)?;
        self.link.publish_at_end().map_err(WasmError::Heap)
    }

    /// Undoes what the applet has stored to its heap since it was published last, if the mode is
    /// `atomic`: after a call that does not count. The applet must be told to forget what it knows
    /// of the heap.
    ///
    /// # Errors
    /// [`WasmError::Heap`]: end the applet, its heap may be rolled back in part.
    pub fn roll_back(&mut self) -> Result<(), WasmError> {
        self.link.roll_back().map_err(WasmError::Heap)
    }

    /// Ends the applet, if it has not ended, and gives the heaps back. An applet that is ended
    /// here is [`WasmError::Interrupted`]; to let it come to its own end, send it `End` and receive
    /// until it has ended.
    pub fn finish(mut self) -> Finished {
        if self.execution.is_some() {
            self.control.interrupt("its host let it go".to_owned());
            while self.receive(None) != Received::Ended {}
        }
        let metrics = self.metrics();
        let end =
            self.end.take().unwrap_or_else(|| Err(WasmError::host("run the applet", "it is gone")));
        let report = LoadReport { metrics, cache_note: self.report.cache_note.take() };
        Finished::new(end, report, &self.captured, &self.link)
    }

    /// Lets the applet run to its end without ever calling it.
    pub(crate) fn run_to_end(mut self, timeout: Option<Duration>) -> Finished {
        self.time_limit = timeout;
        let deadline = timeout.and_then(|timeout| self.started.checked_add(timeout));
        let call = self.crossings.mark().call(ENTRY);
        let mut functions = None;
        loop {
            match self.receive(deadline) {
                Received::Message { header, payload } => {
                    if let Ok(names) = Names::parse(&header, &payload) {
                        functions = Some(names.iter().map(str::to_owned).collect());
                    }
                }
                Received::Look => {}
                Received::Idle => {
                    // It waits, so there is room.
                    let _ = self.send(HostMessage::End.into(), Vec::new());
                }
                Received::Ended => {
                    drop(call);
                    return Finished { functions, ..self.finish() };
                }
            }
        }
    }

    /// Lets the applet go on until there is something for the host: until it is suspended for more
    /// than a clock or a stream.
    fn go_on(&mut self) -> Result<Event, WasmError> {
        let clocks = Clocks::start();
        // Nearly always this is all there is to it.
        let event = match self.poll(Waker::noop()) {
            Some(event) => event,
            None => self.go_on_waiting()?,
        };
        self.report.metrics.add(clocks.elapsed());
        Ok(event)
    }

    /// The same for an applet that waits for a clock or a stream. What it waits for is driven by
    /// the runtime, but the applet itself runs outside of that: functions of the host that it calls
    /// may have a runtime of their own.
    fn go_on_waiting(&mut self) -> Result<Event, WasmError> {
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        loop {
            self.control.set_waker(&waker);
            if let Some(event) = self.poll(&waker) {
                return Ok(event);
            }
            let Some(runtime) = &self.runtime else {
                return Err(WasmError::host("wait for the applet", "its runtime is gone"));
            };
            let _rights = Surrendered::begin(self.writes_files);
            let _turn = self.crossings.mark().turn();
            let wait = || {
                runtime.block_on(async {
                    bell.0.notified().await;
                    // A turn for timers and streams, however often the applet is woken.
                    tokio::task::yield_now().await;
                });
            };
            if Handle::try_current().is_err() {
                wait();
            } else {
                // A runtime cannot wait inside of another one on the same thread.
                std::thread::scope(|scope| scope.spawn(wait).join())
                    .map_err(|_| WasmError::host("wait for the applet", "a thread panicked"))?;
            }
        }
    }

    /// Polls the execution once; `None` if it waits for a clock or a stream.
    fn poll(&mut self, waker: &Waker) -> Option<Event> {
        let Some(execution) = &mut self.execution else {
            return Some(Event::Suspended(AppletEvent::Idle));
        };
        let _rights = Surrendered::begin(self.writes_files);
        let _turn = self.crossings.mark().turn();
        let enter = || execution.as_mut().poll(&mut Context::from_waker(waker));
        match self.callers_stack.lend(enter) {
            Poll::Ready(done) => Some(Event::Done(Box::new(done))),
            Poll::Pending => match self.mailbox.look() {
                AppletEvent::Waiting if !self.control.wants_a_look() => None,
                seen => Some(Event::Suspended(seen)),
            },
        }
    }

    fn fail(&mut self, error: WasmError) -> Received {
        self.execution = None;
        self.end = Some(Err(error));
        Received::Ended
    }

    fn conclude(&mut self, done: &Done, deadline: Option<Instant>) {
        // To whole milliseconds: the deadline was reckoned a moment before or after the call.
        let limit = deadline.map(|deadline| {
            let exact = deadline.saturating_duration_since(self.called);
            Duration::from_millis((exact + Duration::from_micros(500)).as_millis() as u64)
        });
        let terms = ExecutionTerms {
            applet: &self.applet,
            control: &self.control,
            time_limit: self.time_limit.or(limit).unwrap_or_default(),
            fuel: self.fuel,
            is_in_call: self.unanswered > 0,
        };
        self.end = Some(done.verdict(&terms));
        self.mailbox.note(|progress| {
            progress.fuel_left = done.store.get_fuel().ok();
            progress.peak_volatile_bytes = done.store.data().limiter.peak_volatile_bytes;
        });
        // Its store is in `done`, which the caller drops.
        self.execution = None;
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.execution = None;
        if let Some(runtime) = self.runtime.take() {
            // Tasks on other threads (a read from standard input) must not delay the end.
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Serving")
            .field("applet", &self.applet)
            .field("end", &self.end)
            .finish()
    }
}

/// What a run without calls is marked as: the program's own entry.
const ENTRY: &str = "_start";

/// Rings when an applet that waits is to be polled again; a ring before the wait is not lost.
#[derive(Default)]
struct Bell(Notify);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

enum Event {
    Suspended(AppletEvent),
    Done(Box<Done>),
}
