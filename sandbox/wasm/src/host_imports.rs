//! The imports with which an applet calls what its host grants: `host_import` finds a function by
//! its name, `host_call` runs it, `host_result` hands out a result that had no room.
//!
//! The applet is not trusted: what it points to is checked before it is touched, and its input is
//! copied before the function sees it. While a function runs, nothing of the applet does. A
//! function runs on the thread and stack of the host that called the applet
//! ([`crate::callers_stack`]), outside of what surrounds the applet's code: its runtime for timers,
//! its lesser rights.
#![forbid(unsafe_code)]

use std::ops::Range;

use holdfast_sys::special_bits::Regained;
use wasmtime::{Caller, Linker, bail};

use crate::host_functions::{HOST_FUNCTION_NAME_BYTES_MAX, Returned};
use crate::imports::{MODULE, go_on};
use crate::mailbox::PAYLOAD_BYTES_MAX;
use crate::messages::{place, places};
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
            let parts = [
                ("input", input, input_bytes as u32),
                ("output", output, capacity as u32),
                ("record", record, RECORD_BYTES),
            ];
            let [input, output, record] = places("host_call", &caller, parts)?;
            host_call(&mut caller, function as u32, Places { input, output, record })
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

/// Where in its memory an applet has what `host_call` reads and writes; all exist.
struct Places {
    input: Range<usize>,
    output: Range<usize>,
    record: Range<usize>,
}

fn host_call(
    caller: &mut Caller<'_, StoreState>,
    function: u32,
    places: Places,
) -> wasmtime::Result<i32> {
    let exported = exported_memory(caller)?;
    let (memory, state) = exported.data_and_store_mut(&mut *caller);
    let Some(bytes) = memory.get(places.input) else { bail!("the memory has shrunk") };
    let mut input = std::mem::take(&mut state.host_input);
    input.clear();
    if input.try_reserve(bytes.len()).is_err() {
        return Ok(RequestStatus::NoRoom.import_number());
    }
    input.extend_from_slice(bytes);
    // The host's own access may have found that the image is gone.
    go_on(caller)?;
    let state = caller.data_mut();
    let Returned { status, code, payload } = state.callers_stack.run(|| {
        let _rights = Regained::begin();
        state.functions.invoke(function, &input)
    });
    if input.capacity() <= KEPT_BYTES {
        state.host_input = input;
    }
    // Whatever the function did, the applet must not outlive a fault on its behalf.
    go_on(caller)?;
    let (memory, state) = exported.data_and_store_mut(&mut *caller);
    let Some(target) = memory.get_mut(places.record) else { bail!("the memory has shrunk") };
    target[..4].copy_from_slice(&code.to_le_bytes());
    target[4..].copy_from_slice(&(payload.len() as u32).to_le_bytes());
    let Some(target) = memory.get_mut(places.output) else { bail!("the memory has shrunk") };
    match target.get_mut(..payload.len()) {
        Some(target) => {
            target.copy_from_slice(&payload);
            state.host_result = Vec::new();
        }
        None => state.host_result = payload,
    }
    Ok(status.import_number())
}

/// What is kept of memory for inputs from call to call.
const KEPT_BYTES: usize = 64 << 10;
