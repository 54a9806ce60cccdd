//! One execution of an applet, from its instantiation to its end, as a future that is polled
//! whenever the applet is to go on; and what its end means.
//!
//! Invariants: the future owns the store, and gives it back at every end, also when the applet is
//! stopped while it waits; it looks whether the applet is to be stopped before it lets it go on.
#![forbid(unsafe_code)]

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use wasmtime::{Error, Store, UpdateDeadline};

use crate::code::Code;
use crate::control::RunControl;
use crate::error::{TrapCause, TrapReport, WasmError};
use crate::explain::{self, Ended};
use crate::heap_link::{HeapLink, HostFault};
use crate::linear_memory;
use crate::metrics::Clocks;
use crate::state::{StopCause, StoreState};

/// An execution that has ended.
pub(crate) struct Done {
    pub(crate) store: Store<StoreState>,
    /// How the call into the applet ended; or why it was stopped while it waited.
    outcome: Result<Result<(), Error>, StopCause>,
    is_instantiated: bool,
}

pub(crate) type Execution = Pin<Box<dyn Future<Output = Done> + Send>>;

/// Begins an execution; nothing happens before it is polled.
pub(crate) fn begin(
    code: &Arc<Code>,
    mut store: Store<StoreState>,
    control: Arc<RunControl>,
) -> Execution {
    stop_if_told(&mut store, control.clone());
    let ready = code.ready.clone();
    Box::pin(async move {
        let mailbox = store.data().mailbox.clone();
        let outcome = {
            let mut work = pin!(async {
                let clocks = Clocks::start();
                let link = store.data().link.clone();
                let instance =
                    linear_memory::instantiate(link, ready.instantiate_async(&mut store)).await?;
                mailbox.note(|progress| progress.instantiated = Some(clocks.elapsed()));
                let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
                start.call_async(&mut store, ()).await
            });
            poll_fn(|context| match control.stop() {
                Some(stop) => Poll::Ready(Err(stop)),
                None => work.as_mut().poll(context).map(Ok),
            })
            .await
        };
        let is_instantiated = mailbox.progress().instantiated.is_some();
        Done { store, outcome, is_instantiated }
    })
}

/// Ends the applet in its next loop or call once it is to be stopped, or a host fault happened;
/// the code that notices that bumps the epoch.
fn stop_if_told(store: &mut Store<StoreState>, control: Arc<RunControl>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |context| {
        if context.data().link.host_fault().is_some() {
            return Err(StopCause::HostFault.into());
        }
        match control.stop() {
            Some(stop) => Err(stop.into()),
            None if control.wants_a_look() => Ok(UpdateDeadline::Yield(1)),
            // Meant for another applet of the same program.
            None => Ok(UpdateDeadline::Continue(1)),
        }
    });
}

/// What the end of an execution is judged by.
pub(crate) struct ExecutionTerms<'a> {
    pub(crate) applet: &'a str,
    pub(crate) control: &'a RunControl,
    pub(crate) time_limit: Duration,
    pub(crate) fuel: Option<u64>,
    /// A call has no answer yet: its stores do not count.
    pub(crate) is_in_call: bool,
}

impl Done {
    /// Puts together what the call, the limits and the heap say about the end.
    pub(crate) fn verdict(&self, terms: &ExecutionTerms<'_>) -> Result<i32, WasmError> {
        let state = self.store.data();
        let link = &state.link;
        let ended = match &self.outcome {
            Ok(Ok(())) => Ended::Exited(0),
            Ok(Err(error)) => explain::ended(error, &link.layout(), state.limiter.refused_memory),
            Err(stop) => Ended::Stopped(*stop, None),
        };
        // What happened in host code explains whatever came after it.
        host_fault(link, ended.function())?;
        let waiting = self.outcome.is_err();
        match ended {
            Ended::Exited(status) if terms.is_in_call => Ok(status),
            Ended::Exited(status) => {
                link.publish_at_end().map(|()| status).map_err(WasmError::Heap)
            }
            Ended::Stopped(StopCause::Interrupted, function) => {
                Err(WasmError::Interrupted { reason: terms.control.reason(), function, waiting })
            }
            Ended::Stopped(StopCause::TimeLimit | StopCause::HostFault, function) => {
                Err(WasmError::TimeLimit { limit: terms.time_limit, function, waiting })
            }
            Ended::OutOfFuel(function) => {
                Err(WasmError::OutOfFuel { limit: terms.fuel.unwrap_or_default(), function })
            }
            // Code of its own that ran already was not kept from it by a limit.
            Ended::Trapped(report) if self.is_instantiated || !report.frames.is_empty() => {
                Err(WasmError::Trap(report))
            }
            Ended::Trapped(report) => {
                Err(refused_start(terms.applet, state).unwrap_or_else(|| not_begun(report)))
            }
        }
    }
}

/// The error for what happened in host code, if anything did.
pub(crate) fn host_fault(link: &HeapLink, function: Option<String>) -> Result<(), WasmError> {
    match link.host_fault() {
        Some(HostFault::BackingLost) => Err(link.backing_lost()),
        Some(HostFault::ArenaLost) => {
            Err(WasmError::host("keep the shared buffers", "the machine has no memory for them"))
        }
        Some(HostFault::ReadOnly) => Err(WasmError::ReadOnlyHeap { function }),
        Some(HostFault::Hole(place)) => Err(WasmError::HostAccess { function, place }),
        None => Ok(()),
    }
}

/// What kept an applet from its first instruction, where no limit did: what its own file says, such
/// as data outside of its memory, is a trap, and anything else the host could not give.
fn not_begun(report: Box<TrapReport>) -> WasmError {
    match &report.cause {
        TrapCause::HostCall { detail } => WasmError::host("start the applet", detail),
        _ => WasmError::Trap(report),
    }
}

/// The refusal of a limit, in a run that ended before any code of the applet's ran.
fn refused_start(applet: &str, state: &StoreState) -> Option<WasmError> {
    let applet = applet.to_owned();
    if let Some(what) = &state.limiter.refused_table {
        return Some(WasmError::TableLimit { applet, what: what.clone() });
    }
    let hit = state.limiter.refused_memory?;
    Some(WasmError::MemoryLimit {
        applet,
        needed_bytes: hit.wanted_bytes,
        limit_bytes: hit.limit_bytes,
    })
}
