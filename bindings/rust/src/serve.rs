//! Serving: the loop between the host's calls and the exported functions.
//!
//! Invariants:
//! - One call at a time, and each has one answer: a result, or a failure.
//! - A function that unwinds ends the process: it is not known in which state it left what it
//!   worked on.
//! - What a failed call left open in the heap is rolled back before the host hears of the failure.
//!
//! What it must not do: know how messages travel.

use core::fmt;
use core::ptr::NonNull;

use holdfast_channel::header::FORGET;
use holdfast_channel::protocol::{AppletMessage, HostMessage, PROTOCOL_VERSION};
use holdfast_channel::{BootError, Handle, Header};
use holdfast_types::RequestStatus;

use crate::buffer::Buffer;
use crate::call::{Call, CallBuffer, Outcome};
use crate::exports::{EXPORTS, Exports};
use crate::failure::Failure;
use crate::keeper::{HeapKeeper, Kept, NoHeapKeeper};
use crate::platform::{self, Lock};
use crate::region::{AttachError, Heap, NO_HOST};
use crate::transport::{Transport, TransportError};

/// Code of a failure that is the library's: the applet did not get as far as the function.
pub const CODE_NOT_RUN: i32 = i32::MAX;

/// The longest text of a failure; what is longer is cut off.
const TEXT_BYTES_MAX: usize = 64 << 10;

/// Why serving ended before its time.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ServeError {
    /// No host has started this program.
    NoHost,
    /// This program has served already, or does.
    Again,
    /// The host's channel is not for this program.
    Boot(BootError),
    /// The channel cannot be used.
    Transport(TransportError),
    /// The heap could not be opened again after the host had changed it.
    Heap(AttachError),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHost => f.write_str(NO_HOST),
            Self::Again => {
                f.write_str("this program has told its host what it exports already; serve once")
            }
            Self::Boot(error) => error.fmt(f),
            Self::Transport(error) => error.fmt(f),
            Self::Heap(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ServeError {}

holdfast_heap::show_as_text!(ServeError);

impl From<TransportError> for ServeError {
    fn from(error: TransportError) -> Self {
        Self::Transport(error)
    }
}

/// Tells the host what is exported, and serves its calls on this thread until it says that there
/// are no more. Once per program.
///
/// # Errors
/// When no host has started the program, or the two do not understand each other.
pub fn serve() -> Result<(), ServeError> {
    serve_keeping(&mut NoHeapKeeper)
}

/// As [`serve`], with a heap for the functions, which get it by [`Call::heap`]; returns it
/// afterwards. In the mode `atomic` this is the way to serve with a heap, because the host takes it
/// back to the last call that succeeded when one fails.
///
/// # Errors
/// Those of [`serve`]; the heap is closed then.
pub fn serve_heap(heap: Heap) -> Result<Heap, ServeError> {
    let [heap] = serve_heaps([heap])?;
    Ok(heap)
}

/// As [`serve_heap`], with several heaps, which functions get by [`Call::heaps`] in this order.
///
/// # Errors
/// Those of [`serve`]; the heaps are closed then.
pub fn serve_heaps<const N: usize>(heaps: [Heap; N]) -> Result<[Heap; N], ServeError> {
    let mut kept = Kept(heaps.map(Some));
    serve_keeping(&mut kept)?;
    // Each is there but in the middle of a step that failed.
    if kept.0.iter().any(Option::is_none) {
        return Err(ServeError::Heap(AttachError::NotKept));
    }
    Ok(kept.0.map(|heap| heap.unwrap_or_else(|| unreachable!("looked at above"))))
}

/// As [`serve`], with a caller that has the heap.
///
/// # Errors
/// Those of [`serve`].
pub fn serve_keeping(keeper: &mut dyn HeapKeeper) -> Result<(), ServeError> {
    serve_over(&platform::transport()?, &EXPORTS, keeper)
}

/// For programs that do not serve: ends the time of the dynamic loader, in which a native applet
/// may still read files and map code. Serving does that by itself; in WebAssembly there is nothing
/// to do.
///
/// # Errors
/// [`ServeError::NoHost`], [`ServeError::Transport`].
pub fn seal() -> Result<(), ServeError> {
    platform::seal()
}

fn serve_over(
    transport: &impl Transport,
    exports: &Lock<Exports>,
    keeper: &mut dyn HeapKeeper,
) -> Result<(), ServeError> {
    let mut input = Buffer::new();
    let mut outcome = Outcome::new();
    let count = exports.with(|exports| {
        let (count, names) = exports.tell().ok_or(ServeError::Again)?;
        let no_room = |_| TransportError::Host(RequestStatus::NoRoom.number());
        outcome.result.resize(names.len()).map_err(no_room)?.copy_from_slice(names);
        Ok::<_, ServeError>(count)
    })?;
    let hello = AppletMessage::Hello { version: PROTOCOL_VERSION, count: count as u64 };
    let mut next = transport.exchange(hello, outcome.result.as_slice(), &mut input);
    loop {
        let header = match next {
            Ok(header) => header,
            Err(TransportError::Refused { call, bytes }) => {
                let why = Failure::new(CODE_NOT_RUN, TransportError::Refused { call, bytes });
                let failure = AppletMessage::Failure { call, code: CODE_NOT_RUN };
                input.rest();
                next = transport.exchange(failure, cut(why.text_bytes()), &mut input);
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        next = match HostMessage::parse(&header)
            .map_err(|what| TransportError::Protocol { what })?
        {
            HostMessage::Call { call: number, index, buffer, .. } => {
                if header.flags & FORGET != 0 {
                    keeper.forget().map_err(ServeError::Heap)?;
                }
                let function = exports.with(|exports| exports.function(index));
                let unknown =
                    TransportError::Protocol { what: "calls a function that is not there" };
                let function = function.ok_or(unknown)?;
                outcome.rest();
                let buffer = shared_buffer(transport, buffer)?;
                let bytes = input.as_slice();
                let mut call = Call::new(number, bytes, buffer, &mut outcome, keeper, transport);
                let unwinding = AbortOnUnwind;
                let result = function.run(&mut call);
                core::mem::forget(unwinding);
                input.rest();
                answer(transport, number, result, &outcome, keeper, &mut input)
            }
            // It came too late for its call.
            HostMessage::Cancel { .. } => {
                input.rest();
                transport.receive(&mut input)
            }
            HostMessage::End => return Ok(()),
            HostMessage::Reply { .. } | HostMessage::Return { .. } => {
                return Err(TransportError::Protocol { what: "answers what was not asked" }.into());
            }
        };
    }
}

fn shared_buffer<'a>(
    transport: &dyn Transport,
    part: Handle,
) -> Result<Option<CallBuffer<'a>>, TransportError> {
    if part.bytes == 0 {
        return Ok(None);
    }
    let outside =
        TransportError::Protocol { what: "names a buffer that is not in the shared memory" };
    let start = transport.buffer(part).and_then(NonNull::new).ok_or(outside)?;
    // SAFETY: the transport vouches for the part, which stays mapped while the program runs.
    Ok(Some(unsafe { CallBuffer::new(start, part.bytes as usize) }))
}

/// Sends what came of a call, and waits for the next message.
fn answer(
    transport: &dyn Transport,
    call: u64,
    result: Result<(), Failure>,
    outcome: &Outcome,
    keeper: &mut dyn HeapKeeper,
    next: &mut Buffer<u8>,
) -> Result<Header, TransportError> {
    let failure = match result {
        Ok(()) => {
            let done = AppletMessage::Result { call };
            return transport.exchange(done, outcome.result.as_slice(), next);
        }
        Err(failure) => failure,
    };
    keeper.roll_back();
    let text = match failure.text_bytes() {
        [] => outcome.text.as_slice(),
        text => text,
    };
    transport.exchange(AppletMessage::Failure { call, code: failure.code() }, cut(text), next)
}

/// What is told of a failure.
fn cut(text: &[u8]) -> &[u8] {
    &text[..text.len().min(TEXT_BYTES_MAX)]
}

/// Ends the process when it is dropped, which only unwinding does: a panic inside of a panic is the
/// way to abort that needs no standard library, and it says so on the way.
struct AbortOnUnwind;

impl Drop for AbortOnUnwind {
    fn drop(&mut self) {
        panic!("an exported function has panicked, so the applet ends");
    }
}
