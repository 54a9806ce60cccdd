//! One serving applet: its functions by name, and calls in the order of the protocol.
//!
//! Invariants:
//! - One call at a time. Whatever an applet sends that does not belong to it is a breach of the
//!   protocol, and ends it.
//! - A session that returned [`SessionEnded`] is used for nothing but its end.
//! - Dropping a call before it ends (a panic) abandons it: its answers never count as another
//!   one's.
//! - In the mode `atomic` a call's stores count before its result is given out; those of a call
//!   that failed never do.
#![forbid(unsafe_code)]

mod pending;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_channel::header::{FORGET, Header};
use holdfast_channel::hello::Names;
use holdfast_channel::layout::Handle;
use holdfast_channel::protocol::{AppletMessage, HostMessage, MESSAGE_BYTES_MAX};

use crate::control::Control;
use crate::error::{CallError, Failure};
use crate::limits::Limits;
use crate::metrics::{CallMetrics, Metrics};
use crate::sandbox::{Sandbox, Stop, Unpublished};
use pending::Pending;

/// What is being talked to.
type BoxedSandbox = Box<dyn Sandbox>;

/// The applet must be ended, because of this.
pub(crate) struct SessionEnded(pub(crate) Option<Failure>);

/// What an applet says in a call.
pub(crate) enum Step {
    /// A part of a streamed result: bytes, and a part of the shared buffers.
    Chunk(Vec<u8>, Handle),
    /// The end of the result.
    Done(Vec<u8>),
    /// The call has none.
    Refused(CallError),
    /// Nothing yet: time for a look, when there is a caller that wants one.
    Look,
}

/// What is to be called.
pub(crate) struct Request<'a> {
    pub(crate) function: &'a str,
    pub(crate) input: &'a [u8],
    pub(crate) buffer: Handle,
    pub(crate) time_limit: Option<Duration>,
    /// Each part of the result has the limit by itself, and otherwise all of them together.
    pub(crate) is_streamed: bool,
    /// A caller wants to look in so often.
    pub(crate) look_every: Option<Duration>,
    /// A caller is going to look at what it cost.
    pub(crate) is_counted: bool,
}

/// A running applet's functions, limits and protocol state.
pub(crate) struct Session {
    pub(crate) sandbox: BoxedSandbox,
    pub(crate) control: Arc<Control>,
    functions: Vec<String>,
    grace: Duration,
    result_bytes: usize,
    /// The chain of calls (`call_chain`) that has the result of the call under way as a stream.
    pub(crate) streamer: Option<u64>,
    pending: Option<Pending>,
    calls: u64,
    /// The next call begins with the last commit.
    forget: bool,
    /// It was stopped, although its last call has ended: there must be no other.
    pub(crate) is_spent: bool,
    /// A caller gave a call up in the middle, and may have left more behind than that.
    pub(crate) was_abandoned: bool,
    wall_time: Duration,
    messages: u64,
    message_bytes: u64,
    /// The applet's processor time when a call ended, until one that is not counted begins.
    cpu_time: Option<Duration>,
    pub(crate) last_call: CallMetrics,
}

impl Session {
    /// Waits for the applet to serve, for as long as `is_wanted` says that this is wanted.
    pub(crate) fn begin(
        mut sandbox: BoxedSandbox,
        limits: &Limits,
        is_wanted: Option<&(dyn Fn() -> bool + Send + Sync)>,
    ) -> Result<Session, (BoxedSandbox, SessionEnded)> {
        let start = limits.start_timeout;
        let _starting = sandbox.crossings().call(START);
        let control = sandbox.control();
        let mut payload = Vec::new();
        let deadline = Instant::now().checked_add(start);
        sandbox.look_every(is_wanted.map(|_| START_LOOK));
        let greeted = loop {
            match sandbox.receive(&mut payload, deadline) {
                Err(Stop::Nudged) if is_wanted.is_none_or(|is_wanted| is_wanted()) => {}
                other => break other,
            }
        };
        sandbox.look_every(None);
        let functions = match greeted {
            Ok(header) => match Names::parse(&header, &payload) {
                Ok(names) => Ok(names.iter().map(str::to_owned).collect()),
                Err(what) => Err(Some(Failure::Protocol { what: format!("it {what}") })),
            },
            Err(Stop::Deadline) => Err(Some(Failure::StartTimeLimit { limit: start })),
            Err(Stop::Nudged) => Err(Some(Failure::StartGivenUp)),
            Err(stop) => Err(stop.failure()),
        };
        let functions = match functions.and_then(|functions| {
            sandbox.seal().map_err(Some)?;
            Ok(functions)
        }) {
            Ok(functions) => functions,
            Err(failure) => return Err((sandbox, SessionEnded(failure))),
        };
        Ok(Session {
            sandbox,
            control,
            functions,
            grace: limits.grace,
            result_bytes: limits.result_bytes,
            streamer: None,
            pending: None,
            calls: 0,
            forget: false,
            is_spent: false,
            was_abandoned: false,
            wall_time: Duration::ZERO,
            messages: 1,
            message_bytes: payload.len() as u64,
            cpu_time: None,
            last_call: CallMetrics::default(),
        })
    }

    /// The names of the applet's functions, in the order in which it registered them.
    pub(crate) fn functions(&self) -> &[String] {
        &self.functions
    }

    /// Begins a call. Until the applet has taken its input, `look` is called with each nudge and
    /// whenever it is time for a look.
    pub(crate) fn call(
        &mut self,
        request: &Request,
        look: &mut dyn FnMut(),
    ) -> Result<Result<(), CallError>, SessionEnded> {
        if self.pending.is_some() {
            // What it still says would be taken for an answer to this one.
            return Err(SessionEnded(Some(Failure::Host {
                step: "call the applet",
                source: std::io::Error::other("this program gave a call up in the middle of it"),
            })));
        }
        let Some(index) = self.functions.iter().position(|name| name == request.function) else {
            let (name, known) = (request.function.to_owned(), self.functions.clone());
            return Ok(Err(CallError::UnknownFunction { name, known }));
        };
        let (bytes, limit_bytes) = (request.input.len(), MESSAGE_BYTES_MAX as usize);
        if bytes > limit_bytes {
            return Ok(Err(CallError::InputTooLarge { bytes, limit_bytes }));
        }
        self.calls += 1;
        let started = Instant::now();
        let time_ns = request
            .time_limit
            .map_or(0, |limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX).max(1));
        let message = HostMessage::Call {
            call: self.calls,
            index: index as u32,
            buffer: request.buffer,
            time_ns,
        };
        let mut header = Header::from(message);
        if std::mem::take(&mut self.forget) {
            header.flags |= FORGET;
        }
        // Reading it is a system call.
        let known = self.cpu_time.take();
        let pending = Pending {
            call: self.calls,
            started,
            time_limit: request.time_limit,
            patience: None,
            is_streamed: request.is_streamed,
            look_every: request.look_every,
            looked: started,
            has_heard: false,
            room_bytes: self.result_bytes,
            unwanted: None,
            cpu_time: request.is_counted.then(|| known.unwrap_or_else(|| self.sandbox.cpu_time())),
            metrics: CallMetrics::default(),
            _crossings: self.sandbox.crossings().call(request.function),
        };
        let deadline = pending.deadline();
        self.pending = Some(pending);
        self.sandbox.look_every(request.look_every);
        self.control.begin(self.calls);
        self.count(request.input.len());
        // A call that is cancelled meanwhile is told so with the first step, if the applet takes
        // its input by then.
        let mut patience = None;
        loop {
            match self.sandbox.send(
                &header,
                request.input,
                deadline.into_iter().chain(patience).min(),
            ) {
                Ok(()) => return Ok(Ok(())),
                Err(Stop::Nudged) => {
                    look();
                    if self.control.is_cancelled(self.calls) {
                        patience = patience.or_else(|| Some(after(self.grace)));
                    }
                }
                Err(stop) => {
                    let is_over = patience.is_some_and(|patience| Instant::now() >= patience);
                    return Err(match stop {
                        Stop::HalfDone if patience.is_some() => self.ignored_cancel(),
                        Stop::Deadline if is_over => self.ignored_cancel(),
                        stop => self.over(stop),
                    });
                }
            }
        }
    }

    /// The next thing that the applet says; after a result or a refusal the call is over.
    pub(crate) fn step(&mut self) -> Result<Step, SessionEnded> {
        let mut payload = Vec::new();
        loop {
            self.pass_on_cancel()?;
            let Some(pending) = &mut self.pending else {
                return Err(SessionEnded(Some(Failure::Protocol {
                    what: "there is no call".to_owned(),
                })));
            };
            let (call, deadline) = (pending.call, pending.deadline());
            let is_looked_after = pending.look_every.is_some();
            // An applet that never stops talking has to stop in time all the same, and its host to
            // be heard.
            if pending.is_time_for_a_look() {
                return Ok(Step::Look);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(self.over(Stop::Deadline));
            }
            payload.clear();
            let (header, came) = match self.sandbox.receive(&mut payload, deadline) {
                Ok(header) => (header, true),
                Err(Stop::TooLarge(header)) => (header, false),
                Err(Stop::Nudged) if is_looked_after => return Ok(Step::Look),
                Err(Stop::Nudged) => continue,
                Err(stop) => return Err(self.over(stop)),
            };
            self.count(payload.len());
            let message = AppletMessage::parse(&header).map_err(broken)?;
            match message {
                AppletMessage::Chunk { call: of, part } if of == call => {
                    if self
                        .pending
                        .as_mut()
                        .is_some_and(|pending| pending.wants(came, payload.len()))
                    {
                        return Ok(Step::Chunk(payload, part));
                    }
                }
                AppletMessage::Result { call: of } if of == call => {
                    let wants = self
                        .pending
                        .as_mut()
                        .is_some_and(|pending| pending.wants(came, payload.len()));
                    let is_whole = wants || !self.is_refused();
                    return if is_whole { self.done(payload) } else { self.failed(0, &[]) };
                }
                AppletMessage::Failure { call: of, code } if of == call => {
                    return self.failed(code, &payload);
                }
                AppletMessage::Chunk { .. }
                | AppletMessage::Result { .. }
                | AppletMessage::Failure { .. } => {
                    return Err(broken("answered a call that is not under way"));
                }
                _ => return Err(broken("sent what does not belong into a call")),
            }
        }
    }

    /// Whether there was no room for the result of the call under way.
    fn is_refused(&self) -> bool {
        self.pending.as_ref().is_some_and(Pending::is_refused)
    }

    /// No caller wants the rest of the result: the next step passes over it, and the applet is
    /// told.
    pub(crate) fn drop_result(&mut self) {
        if let Some(pending) = &mut self.pending {
            pending.drop_result();
        }
    }

    /// The call under way is given up by a caller that cannot go on: it is ended as one whose
    /// result no caller wants, so that the applet is as good as before, or over.
    pub(crate) fn abandon(&mut self) -> Result<(), SessionEnded> {
        if self.pending.is_none() {
            return Ok(());
        }
        self.was_abandoned = true;
        self.drop_result();
        // The grace of a cancelled call bounds this.
        while let Step::Chunk(..) | Step::Look = self.step()? {}
        Ok(())
    }

    /// Whether the applet is gone, although no caller has called it since.
    pub(crate) fn has_ended(&self) -> bool {
        self.pending.is_none() && self.sandbox.has_ended()
    }

    fn pass_on_cancel(&mut self) -> Result<(), SessionEnded> {
        let Some(pending) = &mut self.pending else { return Ok(()) };
        if pending.patience.is_some()
            || (pending.is_wanted() && !self.control.is_cancelled(pending.call))
        {
            return Ok(());
        }
        pending.patience = Some(after(self.grace));
        let deadline = pending.deadline();
        let header = Header::from(HostMessage::Cancel { call: pending.call });
        self.count(0);
        match self.sandbox.send(&header, &[], deadline) {
            // The next receive goes on with what has not gone.
            Ok(()) | Err(Stop::Nudged) => Ok(()),
            Err(stop) => Err(self.over(stop)),
        }
    }

    fn done(&mut self, result: Vec<u8>) -> Result<Step, SessionEnded> {
        let published = self.sandbox.publish();
        // What it costs to make the stores count belongs to the call. A cancellation that came too
        // late to stop it changes nothing: its stores count, so it has a result.
        self.finish_call();
        match published {
            Ok(()) => Ok(Step::Done(result)),
            Err(Unpublished::RolledBack(error)) => {
                self.forget = true;
                Ok(Step::Refused(CallError::NotPublished(Arc::new(error))))
            }
            Err(Unpublished::Ended(failure)) => Err(SessionEnded(Some(failure))),
        }
    }

    /// The call has no result: the applet says so, or there was no room for what it sent.
    fn failed(&mut self, code: i32, text: &[u8]) -> Result<Step, SessionEnded> {
        let is_refused = self.is_refused();
        let was_cancelled = self.finish_call();
        self.forget = self.sandbox.is_atomic();
        self.sandbox.roll_back().map_err(|failure| SessionEnded(Some(failure)))?;
        if is_refused {
            return Ok(Step::Refused(CallError::ResultTooLarge { limit_bytes: self.result_bytes }));
        }
        if was_cancelled {
            return Ok(Step::Refused(CallError::Cancelled));
        }
        let message = String::from_utf8_lossy(text);
        let message = message
            .chars()
            .map(|c| if c.is_control() && c != '\n' { '\u{fffd}' } else { c })
            .collect();
        Ok(Step::Refused(CallError::Failed { code, message }))
    }

    /// Whether the call had been cancelled.
    fn finish_call(&mut self) -> bool {
        self.is_spent |= self.control.end() && !self.sandbox.outlives_cancel();
        let Some(pending) = self.pending.take() else { return false };
        let mut metrics = pending.metrics;
        metrics.wall_time = pending.started.elapsed();
        self.wall_time += metrics.wall_time;
        if let Some(before) = pending.cpu_time {
            let cpu_time = self.sandbox.cpu_time();
            metrics.cpu_time = Some(cpu_time.saturating_sub(before));
            self.cpu_time = Some(cpu_time);
            metrics.heap_backed_bytes = self.sandbox.heap_backed_bytes();
            self.last_call = metrics;
        }
        pending.patience.is_some()
    }

    fn over(&mut self, stop: Stop) -> SessionEnded {
        match (stop, &self.pending) {
            (Stop::HalfDone | Stop::Deadline, Some(Pending { patience: Some(_), .. })) => {
                self.ignored_cancel()
            }
            (Stop::Deadline, Some(Pending { time_limit: Some(limit), .. })) => {
                SessionEnded(Some(Failure::CallTimeLimit { limit: *limit }))
            }
            (stop, _) => SessionEnded(stop.failure()),
        }
    }

    fn ignored_cancel(&self) -> SessionEnded {
        SessionEnded(Some(Failure::IgnoredCancel { grace: self.grace }))
    }

    fn count(&mut self, bytes: usize) {
        self.messages += 1;
        self.message_bytes += bytes as u64;
        if let Some(pending) = &mut self.pending {
            pending.has_heard = true;
            pending.metrics.messages += 1;
            pending.metrics.message_bytes += bytes as u64;
        }
    }

    /// The account so far.
    pub(crate) fn metrics(&self) -> Metrics {
        let mut metrics = self.sandbox.metrics();
        metrics.wall_time = self.wall_time;
        metrics.calls = self.calls;
        metrics.messages += self.messages;
        metrics.message_bytes = self.message_bytes;
        metrics
    }

    /// Asks the applet to return from serving, and waits for that as long as the grace says.
    pub(crate) fn dismiss(&mut self) {
        let patience = Some(after(self.grace));
        match self.sandbox.send(&Header::from(HostMessage::End), &[], patience) {
            // The first receive goes on with what has not gone.
            Ok(()) | Err(Stop::Nudged) => {}
            Err(_) => return,
        }
        let mut payload = Vec::new();
        // Whatever it still says no caller wants to hear.
        while let Ok(_) | Err(Stop::Nudged) = self.sandbox.receive(&mut payload, patience) {
            payload.clear();
            if patience.is_some_and(|patience| Instant::now() >= patience) {
                return;
            }
        }
    }
}

/// What everything up to an applet's greeting is marked as for a tracer.
const START: &str = "(start)";
/// How often it is asked whether an applet that does not serve yet is still wanted.
const START_LOOK: Duration = Duration::from_millis(200);

/// So long from now; a time that no clock has is a year.
fn after(time: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    let now = Instant::now();
    now.checked_add(time).or_else(|| now.checked_add(YEAR)).unwrap_or(now)
}

fn broken(what: &'static str) -> SessionEnded {
    SessionEnded(Some(Failure::Protocol { what: format!("it {what}") }))
}
