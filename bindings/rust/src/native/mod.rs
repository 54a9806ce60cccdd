//! The native applet: a process of its own that shares files with its host: the channel and, for
//! each heap that was granted, the region's image. It finds them at fixed descriptors, maps them
//! once, and leaves them open.
//!
//! - `boot`: the first look at the descriptors, and the mappings. `channel`: messages over them.
//! - `compartments`: heaps that threads have for themselves, and protection keys. `system`: system
//!   calls, threads.
//! - `wait`: spinning and sleeping. `lock`: for threads. `memory`: anonymous mappings for `buffer`.
//!
//! Invariants:
//! - The descriptors are looked at once, at the first use of the library, whichever that is.
//! - One lock around the channel: who asks the host for something has the channel until the answer
//!   is there, so answers need no numbers. While the serving thread waits for the next call, others
//!   that need the host wait for that call, too.
//!
//! What it must not do: touch `errno`, allocate from the program's allocator, or need the standard
//! library.

mod boot;
mod channel;
pub(crate) mod compartments;
mod lock;
pub(crate) mod memory;
mod system;
mod wait;

use core::ffi::c_void;

use rustix::mm::{Advice, madvise};

use crate::buffer::Buffer;
use crate::host::HostCallError;
use crate::region::{AttachError, Granted};
use crate::serve::ServeError;
use crate::transport::{Transport, TransportError};
use boot::Refused;
use channel::Channel;
use holdfast_channel::note::{KEEPS_ORDER, ProgramNote};
use holdfast_channel::protocol::AppletMessage;
use holdfast_channel::{Handle, Header};
use holdfast_types::RequestStatus;

pub use lock::Lock;

/// What this process knows of its host.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one, and no allocator to put a part of it elsewhere"
)]
enum State {
    /// It was not asked for yet.
    New,
    Open(Channel),
    /// Why there is no channel.
    Closed(Refused),
}

static STATE: Lock<State> = Lock::new(State::New);

/// Runs `work` with the channel, alone.
fn with_channel<R>(work: impl FnOnce(&mut Channel) -> R) -> Result<R, Refused> {
    STATE.with(|state| {
        if let State::New = state {
            *state =
                boot::boot().map_or_else(State::Closed, |booted| State::Open(Channel::new(booted)));
        }
        match state {
            State::Open(channel) => Ok(work(channel)),
            State::Closed(refused) => Err(*refused),
            State::New => Err(Refused::NoHost),
        }
    })
}

/// Threads of the program run beside each other.
pub(crate) const HAS_THREADS: bool = true;

/// Looks at the descriptors, unless that was done.
pub(crate) fn boot() -> Result<(), AttachError> {
    // A thread that waits for the host keeps the channel.
    if compartments::is_known() {
        return Ok(());
    }
    with_channel(|_| ()).map_err(AttachError::from)
}

impl From<Refused> for AttachError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::NoHost => AttachError::NoHost,
            Refused::Boot(error) => AttachError::Boot(error),
            Refused::Map(code) => AttachError::Host(code),
        }
    }
}

/// The region of this name, which was mapped with the channel; the first one without a name.
pub(crate) fn attach(name: Option<&str>) -> Result<Granted, AttachError> {
    with_channel(|channel| channel.heap(name))?
}

/// A number that no other thread of this process has while this one runs; not 0.
pub(crate) fn thread_mark() -> u64 {
    let mark: u64;
    // SAFETY: on x86-64 Linux the word at fs:0 is the address of the thread's own control block
    // (the ABI of thread-local storage); it is read and nothing else.
    unsafe {
        core::arch::asm!(
            "mov {}, fs:[0]",
            out(reg) mark,
            options(nostack, pure, readonly, preserves_flags)
        );
    }
    mark
}

/// Has the host back at least that many bytes of a heap; how many there are, or a code.
pub(crate) fn grow(heap: u32, at_least_bytes: u64) -> Result<u64, RequestStatus> {
    with_channel(|channel| channel.grow(heap, at_least_bytes)).unwrap_or(Err(RequestStatus::Failed))
}

extern "C" fn at_exit() {
    // A thread that waits for the host keeps the channel; then this is as a kill.
    STATE.try_with(|state| {
        if let State::Open(channel) = state {
            channel.end();
        }
    });
}

/// What `exit` and a return from main call last of all; a crash and `_exit` do not.
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// What this library promises a host that reads the program's file: the heap writes its lines back
/// in order, and is mapped as it must be for that, where the boot record asks for it. Linkers keep
/// a section of this name, and its kind, as a note.
#[used]
#[unsafe(link_section = ".note.holdfast")]
static PROMISES: ProgramNote = ProgramNote::new(KEEPS_ORDER);

/// Makes everything in a heap durable at a level, or a code.
pub(crate) fn commit(heap: u32, level: u32) -> Result<(), RequestStatus> {
    with_channel(|channel| channel.commit(heap, level)).unwrap_or(Err(RequestStatus::Failed))
}

/// The pages that are this process's own copies are gone; what the file has is seen again.
pub(crate) fn drop_private_pages(granted: &Granted) {
    let start = granted.address as usize as *mut c_void;
    // SAFETY: the range is the region's private mapping, made by `boot`, and the caller has the
    // heap on it, closed: nothing refers to what is not in the file.
    let _ = unsafe { madvise(start, granted.limit_bytes as usize, Advice::LinuxDontNeed) };
}

/// The number of the host function of this name.
pub(crate) fn host_import(name: &str) -> Result<u32, HostCallError> {
    host(|channel| channel.host_import(name))
}

/// Runs a host function: whether it ran, its code, and in `payload` what it returned.
pub(crate) fn host_call(
    function: u32,
    input: &[u8],
    payload: &mut Buffer<u8>,
) -> Result<(RequestStatus, i32), HostCallError> {
    host(|channel| channel.host_call(function, input, payload))
}

fn host<R>(
    work: impl FnOnce(&mut Channel) -> Result<R, HostCallError>,
) -> Result<R, HostCallError> {
    with_channel(work).unwrap_or_else(|refused| match refused {
        Refused::NoHost => Err(HostCallError::NoHost),
        _ => Err(HostCallError::Host(RequestStatus::Failed.number())),
    })
}

pub(crate) fn seal() -> Result<(), ServeError> {
    Ok(transport()?.send(AppletMessage::Seal, &[])?)
}

/// The way to the host, if there is one.
pub(crate) fn transport() -> Result<Rings, ServeError> {
    with_channel(|_| Rings).map_err(|refused| match refused {
        Refused::NoHost => ServeError::NoHost,
        Refused::Boot(error) => ServeError::Boot(error),
        Refused::Map(code) => TransportError::Host(code).into(),
    })
}

/// Messages over the rings of the channel.
pub(crate) struct Rings;

/// The channel was there when the value was made, and stays.
const GONE: TransportError = TransportError::Host(RequestStatus::Failed.number());

impl Transport for Rings {
    fn receive(&self, payload: &mut Buffer<u8>) -> Result<Header, TransportError> {
        with_channel(|channel| channel.receive(payload)).unwrap_or(Err(GONE))
    }

    fn send(&self, message: AppletMessage, payload: &[u8]) -> Result<(), TransportError> {
        with_channel(|channel| channel.send(message, payload)).unwrap_or(Err(GONE))
    }

    fn exchange(
        &self,
        message: AppletMessage,
        payload: &[u8],
        next: &mut Buffer<u8>,
    ) -> Result<Header, TransportError> {
        let both = |channel: &mut Channel| {
            channel.send(message, payload)?;
            channel.receive(next)
        };
        with_channel(both).unwrap_or(Err(GONE))
    }

    fn is_cancelled(&self, call: u64) -> bool {
        with_channel(|channel| channel.is_cancelled(call)).unwrap_or(true)
    }

    fn buffer(&self, part: Handle) -> Option<*mut u8> {
        with_channel(|channel| channel.buffer(part)).ok().flatten()
    }
}
