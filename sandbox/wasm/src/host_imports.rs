//! The imports with which an applet calls what its host grants: `host_import` finds a function by
//! its name, `host_call` runs it, `host_result` hands out a result that had no room.
//!
//! The applet is not trusted: what it points to is checked before it is touched, and its input is
//! copied before the function sees it. While a function runs, nothing of the applet does.
#![forbid(unsafe_code)]

use wasmtime::{Caller, Linker, bail};

use crate::host_functions::{HOST_FUNCTION_NAME_BYTES_MAX, Returned};
use crate::imports::{MODULE, go_on};
use crate::mailbox::PAYLOAD_BYTES_MAX;
use crate::messages::place;
use crate::state::StoreState;
use crate::wasi::{exported_memory, memory_and_state};
use holdfast_types::RequestStatus;

/// What `host_call` writes: the function's code, and the bytes of the payload, each a little-endian
/// u32.
const RECORD_BYTES: u32 = 8;

/// Adds them to a linker.
pub(crate) fn add_to_linker(linker: &mut Linker<StoreState>) -> wasmtime::Result<()> {
    linker.func_wrap(
        MODULE,
        "host_import",
        |mut caller: Caller<'_, StoreState>, name: i32, bytes: i32| -> wasmtime::Result<i32> {
            let _crossing = caller.data().crossings.cross("host_import");
            go_on(&caller)?;
            if bytes as u32 as usize > HOST_FUNCTION_NAME_BYTES_MAX {
                return Ok(-RequestStatus::NotGranted.import_number());
            }
            let name = place("host_import", "name", &caller, name, bytes as u32)?;
            let (memory, state) = memory_and_state(&mut caller)?;
            let found = memory.get(name).and_then(|name| state.functions.find(name));
            Ok(found.map_or(-RequestStatus::NotGranted.import_number(), |index| index as i32))
        },
    )?;
    linker.func_wrap(
        MODULE,
        "host_call",
        |mut caller: Caller<'_, StoreState>,
         function: i32,
         input: i32,
         input_bytes: i32,
         output: i32,
         capacity: i32,
         record: i32|
         -> wasmtime::Result<i32> {
            let _crossing = caller.data().crossings.cross("host_call");
            go_on(&caller)?;
            if input_bytes as u32 as usize > PAYLOAD_BYTES_MAX {
                return Ok(RequestStatus::TooLarge.import_number());
            }
            let input = place("host_call", "input", &caller, input, input_bytes as u32)?;
            let output = place("host_call", "output", &caller, output, capacity as u32)?;
            let record = place("host_call", "record", &caller, record, RECORD_BYTES)?;
            let exported = exported_memory(&mut caller)?;
            let (memory, state) = exported.data_and_store_mut(&mut caller);
            let Some(bytes) = memory.get(input) else { bail!("the memory has shrunk") };
            let copy = &mut state.host_input;
            copy.clear();
            if copy.try_reserve(bytes.len()).is_err() {
                return Ok(RequestStatus::NoRoom.import_number());
            }
            copy.extend_from_slice(bytes);
            // The host's own access may have found that the image is gone.
            go_on(&caller)?;
            let state = caller.data_mut();
            let Returned { status, code, payload } =
                state.functions.invoke(function as u32, &state.host_input);
            if state.host_input.capacity() > KEPT_BYTES {
                state.host_input = Vec::new();
            }
            // Whatever the function did, the applet must not outlive a fault on its behalf.
            go_on(&caller)?;
            let (memory, state) = exported.data_and_store_mut(&mut caller);
            let Some(target) = memory.get_mut(record) else { bail!("the memory has shrunk") };
            target[..4].copy_from_slice(&code.to_le_bytes());
            target[4..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
            let Some(target) = memory.get_mut(output) else { bail!("the memory has shrunk") };
            match target.get_mut(..payload.len()) {
                Some(target) => {
                    target.copy_from_slice(&payload);
                    state.host_result = Vec::new();
                }
                None => state.host_result = payload,
            }
            Ok(status.import_number())
        },
    )?;
    linker.func_wrap(
        MODULE,
        "host_result",
        |mut caller: Caller<'_, StoreState>, output: i32, bytes: i32| -> wasmtime::Result<i32> {
            let _crossing = caller.data().crossings.cross("host_result");
            go_on(&caller)?;
            let output = place("host_result", "output", &caller, output, bytes as u32)?;
            let (memory, state) = memory_and_state(&mut caller)?;
            let result = std::mem::take(&mut state.host_result);
            let Some(target) = memory.get_mut(output) else { bail!("the memory has shrunk") };
            if target.len() != result.len() {
                return Ok(RequestStatus::BadRange.import_number());
            }
            target.copy_from_slice(&result);
            Ok(RequestStatus::Ok.import_number())
        },
    )?;
    Ok(())
}

/// What is kept of memory for inputs from call to call.
const KEPT_BYTES: usize = 64 << 10;
