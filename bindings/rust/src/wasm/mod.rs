//! The applet in the sandbox: everything is an import of the module `holdfast`, and there is one
//! thread.

pub(crate) mod compartments;
mod imports;
mod lock;
pub(crate) mod memory;

use core::hint::black_box;

use crate::buffer::Buffer;
use crate::host::HostCallError;
use crate::region::{AttachError, Granted};
use crate::serve::ServeError;
use crate::transport::{Transport, TransportError};
use holdfast_channel::heaps::HEAPS_MAX;
use holdfast_channel::protocol::AppletMessage;
use holdfast_channel::{Handle, Header};
use holdfast_types::RequestStatus;

pub use lock::Lock;

/// Has the host map the granted regions, and says where the one of this name is; the first one
/// without a name.
pub(crate) fn attach(name: Option<&str>) -> Result<Granted, AttachError> {
    let name = name.unwrap_or_default();
    let mut info = imports::RegionInfo::default();
    // SAFETY: a pair of C calls that initialises malloc (see the header of `region`); the name is
    // live with its length; `info` is a live record of the layout that the import writes.
    let answer = unsafe {
        imports::free(black_box(imports::malloc(1)));
        imports::heap_open(name.as_ptr(), name.len() as u32, &mut info)
    };
    match u32::try_from(answer) {
        Ok(index) if (index as usize) < HEAPS_MAX => Ok(Granted {
            index,
            address: info.base,
            backed_bytes: info.backed,
            limit_bytes: info.limit,
            is_new: info.flags & 1 == 1,
            is_read_only: info.flags & 2 == 2,
            is_atomic: info.flags & 4 == 4,
            // WebAssembly has no instruction for that.
            is_ordered: false,
            is_compartment: info.flags & 8 == 8,
        }),
        Ok(_) => Err(AttachError::Host(RequestStatus::Failed.number())),
        Err(_) => Err(match status_of(answer.wrapping_neg()) {
            RequestStatus::NotGranted => AttachError::NotGranted,
            RequestStatus::MemoryShape => AttachError::MemoryShape,
            status => AttachError::Host(status.number()),
        }),
    }
}

/// There is one thread.
pub(crate) const HAS_THREADS: bool = false;

/// There is nothing to look at.
pub(crate) fn boot() -> Result<(), AttachError> {
    Ok(())
}

/// There is one thread.
pub(crate) fn thread_mark() -> u64 {
    1
}

/// What an import's number says; one of a later host is a failure.
fn status_of(number: i32) -> RequestStatus {
    RequestStatus::from_import_number(number).unwrap_or(RequestStatus::Failed)
}

/// Backs at least that many bytes; how many there are then.
pub(crate) fn grow(heap: u32, at_least_bytes: u64) -> Result<u64, RequestStatus> {
    // SAFETY: no pointers are passed.
    let backed = unsafe { imports::heap_grow(heap as i32, at_least_bytes as i64) };
    u64::try_from(backed)
        .map_err(|_| i32::try_from(backed.wrapping_neg()).map_or(RequestStatus::Failed, status_of))
}

/// Makes everything durable at a level.
pub(crate) fn commit(heap: u32, level: u32) -> Result<(), RequestStatus> {
    // SAFETY: no pointers are passed.
    match status_of(unsafe { imports::heap_commit(heap as i32, level as i32) }) {
        RequestStatus::Ok => Ok(()),
        status => Err(status),
    }
}

/// Undoes what is not published. The host has done so before; but what was stored since then, by a
/// handle that did not know, is to go as well.
pub(crate) fn drop_private_pages(granted: &Granted) {
    // SAFETY: no pointers are passed, and the caller has the heap on the region, closed. What fails
    // here fails again when the heap is opened.
    let _ = unsafe { imports::heap_rollback(granted.index as i32) };
}

/// The number of the host function of this name.
pub(crate) fn host_import(name: &str) -> Result<u32, HostCallError> {
    // SAFETY: the name is live with its length.
    let answer = unsafe { imports::host_import(name.as_ptr(), name.len() as u32) };
    u32::try_from(answer).map_err(|_| match status_of(answer.wrapping_neg()) {
        RequestStatus::NotGranted => HostCallError::NotGranted,
        status => HostCallError::Host(status.number()),
    })
}

/// Runs a host function: whether it ran, its code, and in `payload` what it returned.
pub(crate) fn host_call(
    function: u32,
    input: &[u8],
    payload: &mut Buffer<u8>,
) -> Result<(RequestStatus, i32), HostCallError> {
    let no_memory = |_| HostCallError::NoMemory;
    let mut returned = imports::Returned::default();
    let into = payload.resize(FIRST_BYTES).map_err(no_memory)?;
    // SAFETY: all are live and have the passed sizes.
    let answer = unsafe {
        imports::host_call(
            function as i32,
            input.as_ptr(),
            input.len() as u32,
            into.as_mut_ptr(),
            FIRST_BYTES as u32,
            &mut returned,
        )
    };
    let bytes = returned.bytes as usize;
    let into = payload.resize(bytes).map_err(no_memory)?;
    if bytes > FIRST_BYTES {
        // SAFETY: the buffer has that many bytes.
        let taken = unsafe { imports::host_result(into.as_mut_ptr(), bytes as u32) };
        if status_of(taken) != RequestStatus::Ok {
            return Err(HostCallError::Host(status_of(taken).number()));
        }
    }
    Ok((status_of(answer), returned.code))
}

/// A sandbox has no loader.
pub(crate) fn seal() -> Result<(), ServeError> {
    Ok(())
}

pub(crate) fn transport() -> Result<Imports, ServeError> {
    Ok(Imports)
}

/// Messages through `receive` and `send`.
pub(crate) struct Imports;

impl Transport for Imports {
    fn receive(&self, payload: &mut Buffer<u8>) -> Result<Header, TransportError> {
        let mut header = Header::default();
        let mut room = FIRST_BYTES;
        loop {
            let into = payload
                .resize(room)
                .map_err(|_| TransportError::Host(RequestStatus::NoRoom.number()))?;
            // SAFETY: both are live and have the passed sizes.
            let answer = unsafe { imports::receive(&mut header, into.as_mut_ptr(), room as u32) };
            match usize::try_from(answer) {
                Ok(bytes) if bytes <= room => {
                    let _ = payload.resize(bytes);
                    return Ok(header);
                }
                Ok(_) => {
                    return Err(TransportError::Protocol {
                        what: "wrote more than there is room for",
                    });
                }
                // More than there is room for is kept until there is: its size, negated. Codes are
                // smaller than that.
                Err(_) if answer.unsigned_abs() as usize > room => {
                    room = answer.unsigned_abs() as usize
                }
                Err(_) => {
                    let status = status_of(answer.wrapping_neg());
                    return Err(TransportError::Host(status.number()));
                }
            }
        }
    }

    fn send(&self, message: AppletMessage, payload: &[u8]) -> Result<(), TransportError> {
        let bytes = u32::try_from(payload.len())
            .map_err(|_| TransportError::Host(RequestStatus::NoRoom.number()))?;
        let header = Header { payload_bytes: bytes, ..Header::from(message) };
        // SAFETY: both are live, and the header says how large the payload is.
        match status_of(unsafe { imports::send(&header, payload.as_ptr()) }) {
            RequestStatus::Ok => Ok(()),
            RequestStatus::Cancelled => Err(TransportError::Cancelled),
            status => Err(TransportError::Host(status.number())),
        }
    }

    /// A module learns it when it sends; else the host stops one whose call it cancels.
    fn is_cancelled(&self, _: u64) -> bool {
        false
    }

    fn buffer(&self, part: Handle) -> Option<*mut u8> {
        let end = part.offset.checked_add(part.bytes)?;
        (end <= 1 << 32).then_some(part.offset as usize as *mut u8)
    }
}

/// Room for a payload before its size is known.
const FIRST_BYTES: usize = 64 << 10;
