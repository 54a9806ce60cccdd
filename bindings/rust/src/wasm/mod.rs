//! The applet in the sandbox: everything is an import of the module `holdfast`, and there is one
//! thread.

mod imports;
mod lock;
pub(crate) mod memory;

use core::hint::black_box;

use crate::buffer::Buffer;
use crate::region::{AttachError, Granted};
use crate::serve::ServeError;
use crate::transport::{Transport, TransportError};
use holdfast_channel::protocol::AppletMessage;
use holdfast_channel::{Handle, Header};
use holdfast_types::RequestStatus;

pub use lock::Lock;

/// Has the host map the granted region.
pub(crate) fn attach() -> Result<Granted, AttachError> {
    let mut info = imports::RegionInfo::default();
    // SAFETY: a pair of C calls that initialises malloc (see the header of `region`); `info` is a
    // live record of the layout that the import writes.
    let code = unsafe {
        imports::free(black_box(imports::malloc(1)));
        imports::attach(&mut info)
    };
    match status_of(code) {
        RequestStatus::Ok => Ok(Granted {
            address: info.base,
            backed_bytes: info.backed,
            limit_bytes: info.limit,
            is_new: info.flags & 1 == 1,
            is_read_only: info.flags & 2 == 2,
            is_atomic: info.flags & 4 == 4,
            // WebAssembly has no instruction for that.
            is_ordered: false,
        }),
        RequestStatus::NotGranted => Err(AttachError::NotGranted),
        RequestStatus::MemoryShape => Err(AttachError::MemoryShape),
        status => Err(AttachError::Host(status.number())),
    }
}

/// What an import's number says; one of a later host is a failure.
fn status_of(number: i32) -> RequestStatus {
    RequestStatus::from_import_number(number).unwrap_or(RequestStatus::Failed)
}

/// Backs at least that many bytes; how many there are then.
pub(crate) fn grow(at_least_bytes: u64) -> Result<u64, RequestStatus> {
    // SAFETY: no pointers are passed.
    let backed = unsafe { imports::grow(at_least_bytes as i64) };
    u64::try_from(backed)
        .map_err(|_| i32::try_from(backed.wrapping_neg()).map_or(RequestStatus::Failed, status_of))
}

/// Makes everything durable at a level.
pub(crate) fn commit(level: u32) -> Result<(), RequestStatus> {
    // SAFETY: no pointers are passed.
    match status_of(unsafe { imports::commit(level as i32) }) {
        RequestStatus::Ok => Ok(()),
        status => Err(status),
    }
}

/// Undoes what is not published. The host has done so before; but what was stored since then, by a
/// handle that did not know, is to go as well.
pub(crate) fn drop_private_pages(_: &Granted) {
    // SAFETY: no pointers are passed, and the caller has the heap on the region, closed. What fails
    // here fails again when the heap is opened.
    let _ = unsafe { imports::rollback() };
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
