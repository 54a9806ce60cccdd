//! A native applet: a process of its own in the jail, a channel to it, and its heaps, whose regions
//! it maps by itself.
//!
//! Invariants:
//! - The regions are lent from the start of the process until it is gone, and used by nothing else
//!   meanwhile.
//! - What the program's file promises of the order of its stores is passed on for these loans and
//!   no other.
#![forbid(unsafe_code)]

mod functions;
mod heap;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_channel::boot::{BootRegion, CHANNEL_FD, VERSION};
use holdfast_channel::header::Header;
use holdfast_channel::heaps::{HeapEntry, heap_fd};
use holdfast_channel::hello::{HELLO_BYTES_MAX, Names};
use holdfast_channel::layout::{Handle, Layout, PAGE_BYTES, RING_BYTES_DEFAULT};
use holdfast_channel::protocol::{AppletMessage, HostMessage, MESSAGE_BYTES_MAX, MessageKind};
use holdfast_channel::wait::{Deadline, Wait};
use holdfast_channel::{Bell, ChannelError, ChannelMemory, Endpoint, HostWait, note};
use holdfast_crossings::{Applet, AppletKind, Mark};
use holdfast_jail::{
    ElfNote, End, Jail, JailError, JailStdio, Jailed, KillReason, LimitHit, PathGrant, Weakness,
};
use holdfast_region::{Lent, Region, RegionError};
use holdfast_wasm::{GrantedHeap, Heaps, HostFunctions, Output};

use crate::buffer::SharedBuffer;
use crate::control::Control;
use crate::error::{AppletError, CallError, Failure, HeapAfterFailure, refused};
use crate::input;
use crate::kind::SandboxKind;
use crate::metrics::Metrics;
use crate::plan::{Outcome, Plan};
use crate::sandbox::{Ended, NotStarted, Sandbox, Stop, Unpublished, let_go};

/// How long the kernel may take to bring an end about that was asked for.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// How long the last output of an applet is waited for once its host is done with it. It takes no
/// time unless the reader of the host's output does not read.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(200);

/// A jailed process, its channel and its heaps.
pub(crate) struct Native {
    // Before the memory that it reads and writes.
    endpoint: Endpoint<HostWait>,
    memory: Arc<ChannelMemory>,
    jailed: Jailed,
    heaps: Heaps,
    functions: HostFunctions,
    /// The loan of each.
    loans: Vec<Loan>,
    control: Arc<Control>,
    /// The longest message that is wanted.
    message_bytes: u64,
    look_every: Option<Duration>,
    /// What has come of the message that is being received.
    begun: Vec<u8>,
    /// That message is too long, and is passed over.
    is_discarding: bool,
    /// What the applet has not taken yet: an answer, and a cancellation or an end behind it. It is
    /// sent before anything else is sent or received.
    unsent: VecDeque<(Header, Vec<u8>)>,
    start_time: Duration,
    started: Instant,
    /// Messages that the session does not see.
    messages: u64,
    heap_error: Option<RegionError>,
    crossings: Applet,
}

/// What of a loan is needed while it lasts.
#[derive(Clone, Copy)]
struct Loan {
    address: u64,
    is_private: bool,
}

impl Native {
    pub(crate) fn start(plan: &Plan, mut heaps: Heaps, serve: bool) -> Result<Native, NotStarted> {
        let started = Instant::now();
        let crossings = Applet::begin(AppletKind::Native, &plan.path.display().to_string());
        match begin(plan, &mut heaps, serve, crossings.mark()) {
            Ok((memory, endpoint, bell, jailed, loans)) => {
                let control = Arc::new(Control::new(move || bell.interrupt()));
                Ok(Native {
                    endpoint,
                    memory,
                    jailed,
                    heaps,
                    functions: plan.functions.clone(),
                    loans,
                    control,
                    message_bytes: plan.limits.result_bytes.max(HELLO_BYTES_MAX) as u64,
                    look_every: None,
                    begun: Vec::new(),
                    is_discarding: false,
                    unsent: VecDeque::new(),
                    start_time: started.elapsed(),
                    started,
                    messages: 0,
                    heap_error: None,
                    crossings,
                })
            }
            Err(failure) => {
                let mut error = refused(failure, SandboxKind::Native, Heaps::none());
                error.heap_error = end_lending(&mut heaps).err();
                error.heaps = HeapAfterFailure::open(&mut heaps);
                Err((error, heaps))
            }
        }
    }

    fn deadline(&self, deadline: Option<Instant>) -> Deadline {
        deadline.map_or(Deadline::NEVER, |deadline| {
            Deadline::after(
                self.endpoint.waiter().now_ns(),
                deadline.saturating_duration_since(Instant::now()),
            )
        })
    }

    /// Answers a request of the applet. The answer is kept until the applet has taken it; at `turn`
    /// the caller is heard.
    fn answer(
        &mut self,
        answer: HostMessage,
        payload: Vec<u8>,
        deadline: Deadline,
        turn: Deadline,
    ) -> Result<(), Stop> {
        self.messages += 2;
        self.unsent.push_back((Header::from(answer), payload));
        self.send_rest(deadline, turn)
    }

    /// Sends what was kept. An applet that does not take it must not keep its caller from looking.
    fn send_rest(&mut self, deadline: Deadline, turn: Deadline) -> Result<(), Stop> {
        while let Some((header, payload)) = self.unsent.front() {
            if !self.endpoint.send_by(header, payload, deadline, turn).map_err(stop)? {
                return Err(Stop::Nudged);
            }
            self.unsent.pop_front();
        }
        Ok(())
    }

    /// Ends the process if it has not ended, and waits until nothing of it is left.
    fn wait_for_end(&mut self, why: KillReason) -> End {
        if self.jailed.end().is_none() {
            self.jailed.kill(why);
        }
        self.jailed.wait_for_end(Some(KILL_PATIENCE)).unwrap_or(End::Killed(KillReason::Dropped))
    }

    /// Waits until the deadline for the output of a program that has ended, and says whether an
    /// exit may count as one. An end of another kind is no success anyway.
    fn is_output_complete(&self, deadline: Option<Instant>) -> bool {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        self.jailed.wait(left).is_some() || !matches!(self.jailed.end(), Some(End::Exited { .. }))
    }
}

/// Everything up to the first instruction of the applet.
type Begun = (Arc<ChannelMemory>, Endpoint<HostWait>, Bell, Jailed, Vec<Loan>);

fn begin(plan: &Plan, heaps: &mut Heaps, serve: bool, crossings: Mark) -> Result<Begun, Failure> {
    let host = |step| move |source| Failure::Host { step, source };
    heaps.check()?;
    plan.functions.check()?;
    let notes = notes(plan)?;
    check_version(plan, &notes)?;
    let keeps_order = keeps_order(&notes);
    let lent = heaps
        .iter_mut()
        .map(|heap| lend(&mut heap.region, keeps_order))
        .collect::<Result<Vec<_>, _>>()?;
    let entries = heaps
        .iter()
        .zip(&lent)
        .map(|(heap, lent)| heap_entry(heap, lent))
        .collect::<Result<Vec<_>, _>>()?;
    let arena_bytes = if serve {
        plan.limits.buffer_bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(u64::MAX)
    } else {
        0
    };
    let layout = Layout::new(RING_BYTES_DEFAULT, arena_bytes).map_err(|error| Failure::Host {
        step: "lay out the channel",
        source: std::io::Error::other(error),
    })?;
    let memory = ChannelMemory::create(layout, &entries, serve).map_err(|error| Failure::Host {
        step: "make the channel",
        source: std::io::Error::other(error),
    })?;
    let (endpoint, bell) = memory.host().ok_or_else(|| Failure::Host {
        step: "lay out the channel",
        source: std::io::ErrorKind::InvalidData.into(),
    })?;
    let mapped_bytes = layout.total_bytes() + lent.iter().map(|lent| lent.limit_bytes).sum::<u64>();
    let private_bytes =
        lent.iter().filter(|lent| lent.is_private).map(|lent| lent.limit_bytes).sum();
    let gone = bell.clone();
    let mut jail = Jail::new(&plan.path)
        .args(plan.args.iter().cloned())
        .env(plan.env.iter().cloned())
        .limits(plan.limits.for_jail(mapped_bytes, private_bytes)?)
        .strict(plan.is_strict)
        .stdio(stdio(plan))
        .crossings(crossings)
        .descriptor(CHANNEL_FD, memory.descriptor().map_err(host("hand the channel over"))?)
        .on_end(Arc::new(move || gone.peer_is_gone()));
    if let Some(name) = &plan.name {
        jail = jail.called(name);
    }
    if let Some(is_that) = plan.for_jail() {
        jail = jail.examined(is_that);
    }
    if let Some(source) =
        input::standard(&plan.stdio.stdin).map_err(host("connect the standard input"))?
    {
        jail = jail.stdin(source);
    }
    for grant in &plan.dirs {
        jail = jail.path(PathGrant {
            host: grant.host.clone(),
            guest: grant.guest.clone().into(),
            access: grant.access,
        });
    }
    // Before none of them anything may be mapped.
    let data_offset = lent.iter().map(|lent| lent.data_offset).max().unwrap_or_default();
    jail = jail.regions(lent.len() as u32, data_offset);
    let mut loans = Vec::new();
    for (index, Lent { file, address, is_private, .. }) in lent.into_iter().enumerate() {
        jail = jail.descriptor(heap_fd(index), file.into());
        loans.push(Loan { address, is_private });
    }
    Ok((memory, endpoint, bell, jail.spawn()?, loans))
}

/// Lends the region as the program's file says that it stores.
fn lend(region: &mut Region, keeps_order: bool) -> Result<Lent, Failure> {
    if keeps_order && region.needs_order() {
        region.promise_order()?;
    }
    Ok(region.lend()?)
}

/// What the program's file says of itself; read once for each start, as the bytes of an examined
/// file are copied for that. Another file may not speak for the one that was
/// examined; one that cannot be read says nothing, and its start says why.
fn notes(plan: &Plan) -> Result<Vec<ElfNote>, Failure> {
    match holdfast_jail::notes(&plan.path, plan.for_jail().as_ref()) {
        Err(replaced @ JailError::Replaced { .. }) => Err(replaced.into()),
        other => Ok(other.unwrap_or_default()),
    }
}

/// Whether the program promises to keep the order of its heap's stores. It is its own heap's
/// consistency that a lie costs.
fn keeps_order(notes: &[ElfNote]) -> bool {
    notes.iter().any(|note| note::keeps_order(&note.owner, note.kind, &note.content))
}

/// Whether the program, if its file says so, was built for this channel. What it says falsely it
/// finds out from the boot page.
fn check_version(plan: &Plan, notes: &[ElfNote]) -> Result<(), Failure> {
    let version = |note: &ElfNote| note::channel_version(&note.owner, note.kind, &note.content);
    match notes.iter().find_map(version) {
        Some(applet) if applet != VERSION => {
            Err(Failure::ChannelVersion { path: plan.path.clone(), applet, host: VERSION })
        }
        _ => Ok(()),
    }
}

/// What the applet is told of a heap.
fn heap_entry(heap: &GrantedHeap, lent: &Lent) -> Result<HeapEntry, Failure> {
    let region = BootRegion { is_compartment: heap.is_compartment(), ..boot_region(lent) };
    HeapEntry::new(heap.name.as_str(), &region).ok_or_else(|| Failure::Host {
        step: "name the heap",
        source: std::io::ErrorKind::InvalidInput.into(),
    })
}

fn end_lending(heaps: &mut Heaps) -> Result<(), RegionError> {
    let ended: Vec<_> = heaps.iter_mut().map(|heap| heap.region.end_lending()).collect();
    ended.into_iter().collect()
}

fn boot_region(lent: &Lent) -> BootRegion {
    BootRegion {
        address: lent.address,
        data_offset: lent.data_offset,
        backed_bytes: lent.backed_bytes,
        limit_bytes: lent.limit_bytes,
        is_new: lent.is_new,
        is_read_only: lent.is_read_only,
        is_atomic: lent.is_private,
        is_ordered: lent.is_ordered,
        is_synchronous: lent.is_synchronous,
        is_compartment: false,
    }
}

/// Both outputs go the same way.
fn stdio(plan: &Plan) -> JailStdio {
    match (&plan.stdio.stdout, &plan.stdio.stderr) {
        (Output::Capture { limit_bytes }, _) | (_, Output::Capture { limit_bytes }) => {
            JailStdio::Capture { limit_bytes: *limit_bytes }
        }
        (Output::Inherit, _) | (_, Output::Inherit) => JailStdio::Relay,
        _ => JailStdio::Null,
    }
}

impl Sandbox for Native {
    fn crossings(&self) -> Mark {
        self.crossings.mark()
    }

    fn control(&self) -> Arc<Control> {
        self.control.clone()
    }

    fn send(
        &mut self,
        header: &Header,
        payload: &[u8],
        deadline: Option<Instant>,
    ) -> Result<(), Stop> {
        let deadline = self.deadline(deadline);
        let turn = self.look_every.map_or(Deadline::NEVER, |time| self.endpoint.deadline_in(time));
        if header.kind() != Some(MessageKind::Call) {
            self.unsent.push_back((*header, payload.to_vec()));
            return self.send_rest(deadline, turn);
        }
        self.send_rest(deadline, turn)?;
        // An applet that does not take its input must not keep its caller from looking.
        if self.endpoint.send_by(header, payload, deadline, turn).map_err(stop)? {
            Ok(())
        } else {
            Err(Stop::Nudged)
        }
    }

    fn receive(
        &mut self,
        payload: &mut Vec<u8>,
        deadline: Option<Instant>,
    ) -> Result<Header, Stop> {
        let look = self.look_every.and_then(|time| Instant::now().checked_add(time));
        let until = self.deadline(deadline);
        let turn = self.deadline(look);
        self.send_rest(until, turn)?;
        let mut limit_bytes = self.message_bytes;
        loop {
            if self.is_discarding {
                let passed = self.endpoint.discard_by(until, turn).map_err(stop)?;
                let header = passed.ok_or(Stop::Nudged)?;
                self.is_discarding = false;
                return Err(Stop::TooLarge(header));
            }
            // What has come of a message stays here until the rest follows.
            let header = match self.endpoint.receive_by(&mut self.begun, limit_bytes, until, turn) {
                // The limit is that of results; a host function has one of its own.
                Err(ChannelError::TooLarge { bytes, .. }) => {
                    let header = self.endpoint.peek(until).map_err(stop)?;
                    if header.kind() == Some(MessageKind::Invoke) && bytes <= MESSAGE_BYTES_MAX {
                        limit_bytes = bytes;
                    } else {
                        self.is_discarding = true;
                    }
                    continue;
                }
                received => received.map_err(stop)?.ok_or(Stop::Nudged)?,
            };
            limit_bytes = self.message_bytes;
            *payload = std::mem::take(&mut self.begun);
            let message =
                AppletMessage::parse(&header).map_err(|what| Stop::Broken(format!("it {what}")))?;
            if message == AppletMessage::Seal {
                self.messages += 1;
                self.seal().map_err(|_| Stop::Ended)?;
            } else if !self.serve_heap(&message, until, turn)?
                && !self.serve_functions(&message, payload, until, turn)?
            {
                return Ok(header);
            }
            // One that asks and asks must stop in time all the same, and its host be heard.
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Stop::Deadline);
            }
            if look.is_some_and(|look| Instant::now() >= look) {
                return Err(Stop::Nudged);
            }
        }
    }

    fn look_every(&mut self, time: Option<Duration>) {
        // A nudge that came when the call before was over already.
        self.endpoint.take_interrupt();
        self.look_every = time;
    }

    fn seal(&mut self) -> Result<(), Failure> {
        Ok(self.jailed.seal()?)
    }

    fn publish(&mut self) -> Result<(), Unpublished> {
        self.publish_changes()
    }

    fn roll_back(&mut self) -> Result<(), Failure> {
        // What is copied is published at once, or gone.
        Ok(())
    }

    fn is_atomic(&self) -> bool {
        self.loans.iter().any(|loan| loan.is_private)
    }

    fn outlives_cancel(&self) -> bool {
        true
    }

    fn has_ended(&self) -> bool {
        self.endpoint.waiter().peer_is_gone()
    }

    fn cpu_time(&self) -> Duration {
        self.jailed.cpu_time()
    }

    fn heap_backed_bytes(&self) -> u64 {
        self.heaps.backed_bytes()
    }

    fn metrics(&self) -> Metrics {
        let usage = self.jailed.usage();
        let mut metrics = Metrics::new(SandboxKind::Native);
        metrics.start_time = self.start_time;
        metrics.wall_time = self.started.elapsed();
        metrics.cpu_time = usage.cpu_time;
        metrics.peak_memory_bytes = usage.peak_memory_bytes;
        metrics.heap_backed_bytes = self.heap_backed_bytes();
        metrics.heap_dirty = self.heaps.is_dirty();
        metrics.messages = self.messages;
        metrics.network_refusals = self.jailed.network_refusals();
        metrics
    }

    fn weaker(&self) -> Vec<String> {
        self.jailed.weaker().iter().map(ToString::to_string).collect()
    }

    fn buffer(&mut self, bytes: usize) -> Result<SharedBuffer, CallError> {
        SharedBuffer::new(&self.memory, bytes)
    }

    fn handle_of(&self, buffer: &SharedBuffer) -> Result<Handle, CallError> {
        buffer.handle_in(&self.memory)
    }

    fn finish(mut self: Box<Self>, failure: Option<&Failure>) -> Ended {
        let why = match failure {
            None => KillReason::Finished,
            Some(Failure::CallTimeLimit { limit } | Failure::StartTimeLimit { limit }) => {
                KillReason::Deadline { limit: *limit }
            }
            Some(Failure::IgnoredCancel { .. } | Failure::StartGivenUp) => KillReason::Cancelled,
            Some(other) => KillReason::Other { what: other.to_string() },
        };
        let end = self.wait_for_end(why);
        // What it said last is on its way.
        let end = self.jailed.wait(Some(OUTPUT_PATIENCE)).unwrap_or(end);
        let mut metrics = self.metrics();
        if let Err(error) = end_lending(&mut self.heaps) {
            self.heap_error = Some(error);
        }
        metrics.heap_dirty = self.heaps.is_dirty();
        Ended {
            failure: Failure::Ended { end },
            heap_error: self.heap_error.take(),
            stdout: self.jailed.stdout(),
            stderr: self.jailed.stderr(),
            is_output_truncated: self.jailed.output_truncated(),
            heaps: std::mem::take(&mut self.heaps),
            metrics,
        }
    }
}

fn stop(error: ChannelError) -> Stop {
    match error {
        ChannelError::PeerGone => Stop::Ended,
        ChannelError::TimedOut => Stop::Deadline,
        ChannelError::Interrupted => Stop::Nudged,
        ChannelError::PeerBroke { what } => Stop::Broken(format!("it {what}")),
        ChannelError::HalfDone => Stop::HalfDone,
        other => Stop::Broken(other.to_string()),
    }
}

fn is_hello(header: &Header) -> bool {
    matches!(AppletMessage::parse(header), Ok(AppletMessage::Hello { .. }))
}

/// What a run without calls is marked as: the program's own entry.
const ENTRY: &str = "main";

/// Runs a native applet to its end.
pub(crate) fn run(plan: &Plan, heaps: Heaps) -> Result<Outcome, Box<AppletError>> {
    let mut native = Native::start(plan, heaps, false).map_err(let_go)?;
    let call = native.crossings.mark().call_from_begin(ENTRY);
    let deadline = plan.limits.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let out_of_time = || {
        let limit = plan.limits.timeout.unwrap_or_default();
        Failure::Ended { end: End::Limit(LimitHit::WallTime { limit }) }
    };
    let (mut payload, mut functions) = (Vec::new(), None);
    let failure = loop {
        match native.receive(&mut payload, deadline) {
            // One that serves: there are no calls for it, so it is asked to end, as one in
            // WebAssembly is.
            Ok(header) if functions.is_none() && is_hello(&header) => {
                let names = Names::parse(&header, &payload);
                functions = Some(
                    names
                        .map(|names| names.iter().map(str::to_owned).collect())
                        .unwrap_or_default(),
                );
                // It has gone, or does not read: the next look says so.
                let _ = native.seal();
                let _ = native.send(&Header::from(HostMessage::End), &[], deadline);
            }
            Ok(_) => {
                break Some(Failure::Protocol {
                    what: "it answers calls that nobody made".to_owned(),
                });
            }
            Err(Stop::Nudged) => {}
            Err(Stop::Deadline) => break Some(out_of_time()),
            Err(stop) => break stop.failure(),
        }
    };
    // A program that has ended by itself leaves output that its reader may take its time for. What
    // is never read must not look like a result that was received.
    let failure = failure.or_else(|| (!native.is_output_complete(deadline)).then(out_of_time));
    drop(call);
    let notes = Weakness::summary(native.jailed.weaker()).into_iter().collect();
    let Ended { failure: found, heaps, heap_error, stdout, stderr, is_output_truncated, metrics } =
        Box::new(native).finish(failure.as_ref());
    match (failure, found) {
        (None, Failure::Ended { end: End::Exited { status } }) => {
            let exit_status = status;
            Ok(Outcome {
                exit_status,
                functions,
                metrics,
                heaps,
                heap_error,
                notes,
                stdout,
                stderr,
                is_output_truncated,
            })
        }
        (failure, found) => Err(Box::new(AppletError {
            failure: failure.unwrap_or(found),
            metrics,
            heaps: HeapAfterFailure::closed(heaps),
            heap_error,
            stdout,
            stderr,
            is_output_truncated,
        })),
    }
}
