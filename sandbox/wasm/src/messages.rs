//! The imports with which an applet serves: `receive` waits for a message of the host, `send` hands
//! it one, `arena` says where the memory is that both share.
//!
//! The applet is not trusted: what it points to is checked against what exists before it is
//! touched, its header is copied once, and it does not go on before the host has taken what it
//! sent.
//!
//! Parts of the arena are named by their offset on the host's side and by their address on the
//! applet's; they are translated here.
#![forbid(unsafe_code)]

use std::future::poll_fn;
use std::ops::Range;

use holdfast_channel::header::HEADER_BYTES;
use holdfast_channel::protocol::MessageKind;
use holdfast_channel::{Handle, Header};
use wasmtime::{AsContext, AsContextMut, Caller, Linker, bail};
use zerocopy::{FromBytes, IntoBytes};

use crate::arena;
use crate::imports::{MODULE, attach_all, go_on};
use crate::layout::HEAP_BASE;
use crate::mailbox::{Message, NextMessage, PAYLOAD_BYTES_MAX};
use crate::state::StoreState;
use crate::wasi::memory_and_state;
use holdfast_types::RequestStatus;

/// Adds them to a linker.
pub(crate) fn add_to_linker(linker: &mut Linker<StoreState>) -> wasmtime::Result<()> {
    linker.func_wrap_async(
        MODULE,
        "receive",
        |mut caller: Caller<'_, StoreState>, (header, payload, capacity): (i32, i32, i32)| {
            Box::new(async move {
                let _crossing = caller.data().crossings.cross("receive");
                let to = Places::new("receive", &mut caller, header, payload, capacity as u32)?;
                receive(&mut caller, &to).await
            })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "send",
        |mut caller: Caller<'_, StoreState>, (header, payload): (i32, i32)| {
            Box::new(async move {
                let _crossing = caller.data().crossings.cross("send");
                send(&mut caller, header, payload).await
            })
        },
    )?;
    linker.func_wrap(
        MODULE,
        "arena",
        |mut caller: Caller<'_, StoreState>| -> wasmtime::Result<i64> {
            let _crossing = caller.data().crossings.cross("arena");
            go_on(&caller)?;
            let arena_bytes = caller.data().link.arena_bytes();
            let is_there = arena_bytes > 0 && attach_all(&mut caller) == RequestStatus::Ok;
            Ok(if is_there { (HEAP_BASE - arena_bytes) as i64 } else { 0 })
        },
    )?;
    Ok(())
}

/// Where in its memory an applet has a header and a payload; both exist.
struct Places {
    header: Range<usize>,
    payload: Range<usize>,
}

impl Places {
    fn new(
        import: &str,
        caller: &mut Caller<'_, StoreState>,
        header: i32,
        payload: i32,
        payload_bytes: u32,
    ) -> wasmtime::Result<Places> {
        go_on(caller)?;
        let parts = [("header", header, HEADER_BYTES), ("payload", payload, payload_bytes)];
        let [header, payload] = places(import, caller, parts)?;
        Ok(Places { header, payload })
    }
}

/// A range of the applet's memory, all of which exists: volatile, or backed by the region. Without
/// a byte, anywhere.
pub(crate) fn place(
    import: &str,
    what: &str,
    caller: &Caller<'_, StoreState>,
    start: i32,
    bytes: u32,
) -> wasmtime::Result<Range<usize>> {
    let [range] = places(import, caller, [(what, start, bytes)])?;
    Ok(range)
}

/// Several ranges: what each is, where it begins, its bytes.
pub(crate) fn places<const N: usize>(
    import: &str,
    caller: &Caller<'_, StoreState>,
    parts: [(&str, i32, u32); N],
) -> wasmtime::Result<[Range<usize>; N]> {
    let ranges = parts.map(|(_, start, bytes)| {
        // Languages have pointers to nothing that lead anywhere.
        let start = if bytes == 0 { 0 } else { u64::from(start as u32) };
        start..start + u64::from(bytes)
    });
    if let Some((index, place)) = caller.data().link.first_absent(&ranges) {
        let ((what, _, bytes), start) = (parts[index], ranges[index].start);
        bail!("the {what} for holdfast.{import} ({bytes} bytes at {start:#x}) lies {place}");
    }
    Ok(ranges.map(|range| range.start as usize..range.end as usize))
}

/// What the host may see of the applet while it is suspended.
fn note_progress(caller: &Caller<'_, StoreState>) {
    let fuel_left = caller.as_context().get_fuel().ok();
    let state = caller.data();
    state.mailbox.note(|progress| {
        progress.fuel_left = fuel_left;
        progress.peak_volatile_bytes = state.limiter.peak_volatile_bytes;
    });
}

/// Returns the bytes of the payload; minus the bytes that it needs if there is no room for them.
async fn receive(caller: &mut Caller<'_, StoreState>, to: &Places) -> wasmtime::Result<i32> {
    note_progress(caller);
    let mailbox = caller.data().mailbox.clone();
    let mut message = match poll_fn(|_| mailbox.poll_next(to.payload.len())).await {
        NextMessage::Message(message) => message,
        // No payload is longer than `PAYLOAD_BYTES_MAX`.
        NextMessage::Larger(needed) => return Ok(-(needed as i32)),
    };
    if message.header.kind() == Some(MessageKind::Call) && arena::part_of(&message.header).is_some()
    {
        if attach_all(caller) != RequestStatus::Ok {
            bail!("a call with a shared buffer, for which the applet's memory has no room left");
        }
        // The host made sure that it lies in the arena.
        message.header.a += HEAP_BASE - caller.data().link.arena_bytes();
    }
    if message.header.kind() == Some(MessageKind::Call)
        && let Some(fuel) = caller.data().fuel
    {
        caller.as_context_mut().set_fuel(fuel)?;
    }
    let (memory, _) = memory_and_state(caller)?;
    let bytes = message.payload.len();
    let Some(target) = memory.get_mut(to.payload.clone()) else { bail!("the memory has shrunk") };
    target[..bytes].copy_from_slice(&message.payload);
    let Some(target) = memory.get_mut(to.header.clone()) else { bail!("the memory has shrunk") };
    target.copy_from_slice(message.header.as_bytes());
    Ok(bytes as i32)
}

async fn send(
    caller: &mut Caller<'_, StoreState>,
    header: i32,
    payload: i32,
) -> wasmtime::Result<i32> {
    let header = Places::new("send", caller, header, 0, 0)?.header;
    let (memory, _) = memory_and_state(caller)?;
    let Some(mut header) = memory.get(header).and_then(|bytes| Header::read_from_bytes(bytes).ok())
    else {
        bail!("the memory has shrunk")
    };
    let mailbox = caller.data().mailbox.clone();
    let is_chunk = header.kind() == Some(MessageKind::Chunk);
    if is_chunk && mailbox.is_cancelled(header.call) {
        return Ok(RequestStatus::Cancelled.import_number());
    }
    if is_chunk && let Some(part) = arena::part_of(&header) {
        let arena_bytes = caller.data().link.arena_bytes();
        let offset = part.offset.checked_sub(HEAP_BASE - arena_bytes);
        match offset.filter(|offset| arena::holds(arena_bytes, Handle { offset: *offset, ..part }))
        {
            Some(offset) => header.a = offset,
            None => {
                bail!("a chunk for holdfast.send names memory that is not shared with the host")
            }
        }
    }
    if header.payload_bytes as usize > PAYLOAD_BYTES_MAX {
        return Ok(RequestStatus::TooLarge.import_number());
    }
    let payload = place("send", "payload", caller, payload, header.payload_bytes)?;
    let mut copy = Vec::new();
    if copy.try_reserve_exact(payload.len()).is_err() {
        return Ok(RequestStatus::NoRoom.import_number());
    }
    let (memory, _) = memory_and_state(caller)?;
    let Some(bytes) = memory.get(payload) else { bail!("the memory has shrunk") };
    copy.extend_from_slice(bytes);
    // The host's own access may have found that the image is gone.
    go_on(caller)?;
    note_progress(caller);
    mailbox.show(Message { header, payload: copy });
    poll_fn(|_| mailbox.poll_taken()).await;
    Ok(RequestStatus::Ok.import_number())
}
