//! Bounds the number of files that an applet has open: `path_open` answers `EMFILE` past a bound of
//! its own, and earlier where the process has few descriptors left, because they are the host's,
//! too.
//!
//! Invariant: an applet never has more than [`DESCRIPTORS_MAX`] descriptors besides those that it
//! was started with. Each opening counts up, each close counts down; closes of what it was started
//! with make it seem to have fewer, never more than it has by that many.
#![forbid(unsafe_code)]

use holdfast_sys::process::may_open_more;
use wasmtime::{AsContextMut, Caller, Linker};
use wasmtime_wasi::p1::wasi_snapshot_preview1::{self as preview1, WasiSnapshotPreview1};
use wiggle::GuestMemory;

use crate::state::StoreState;
use crate::wasi::{MODULE, memory_and_state, within};

/// Files and directories that an applet may have open at once, as most systems have it by default.
const DESCRIPTORS_MAX: u32 = 1024;
/// `EMFILE` of WASI preview 1.
const TOO_MANY: i32 = 33;
const SUCCESS: i32 = 0;

/// Replaces the functions that open and close descriptors by ones that count, over what is there
/// already.
pub(crate) fn add_to_linker(linker: &mut Linker<StoreState>) -> wasmtime::Result<()> {
    linker.func_wrap_async(
        MODULE,
        "path_open",
        |mut caller: Caller<'_, StoreState>,
         (dir, look_up, path, path_len, flags, rights, inherited, fd_flags, out): (
            i32,
            i32,
            i32,
            i32,
            i32,
            i64,
            i64,
            i32,
            i32,
        )| {
            Box::new(async move {
                let _crossing = caller.data().crossings.cross("path_open");
                let fuel = caller.as_context_mut().hostcall_fuel();
                let (memory, state) = memory_and_state(&mut caller)?;
                if state.open_descriptors >= DESCRIPTORS_MAX || !may_open_more() {
                    return Ok(TOO_MANY);
                }
                state.wasi.set_hostcall_fuel(fuel);
                let mut memory = GuestMemory::Unshared(memory);
                let runtime = state.runtime.clone();
                let call = preview1::path_open(
                    &mut state.wasi,
                    &mut memory,
                    dir,
                    look_up,
                    path,
                    path_len,
                    flags,
                    rights,
                    inherited,
                    fd_flags,
                    out,
                );
                let answer = within(runtime, call).await?;
                state.open_descriptors += u32::from(answer == SUCCESS);
                Ok(answer)
            })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "fd_close",
        |mut caller: Caller<'_, StoreState>, (fd,): (i32,)| {
            Box::new(async move {
                let _crossing = caller.data().crossings.cross("fd_close");
                let (memory, state) = memory_and_state(&mut caller)?;
                let mut memory = GuestMemory::Unshared(memory);
                let runtime = state.runtime.clone();
                let call = preview1::fd_close(&mut state.wasi, &mut memory, fd);
                let answer = within(runtime, call).await?;
                state.closed_if(answer == SUCCESS);
                Ok(answer)
            })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "fd_renumber",
        |mut caller: Caller<'_, StoreState>, (from, to): (i32, i32)| {
            Box::new(async move {
                let _crossing = caller.data().crossings.cross("fd_renumber");
                let (memory, state) = memory_and_state(&mut caller)?;
                let mut memory = GuestMemory::Unshared(memory);
                let runtime = state.runtime.clone();
                let call = preview1::fd_renumber(&mut state.wasi, &mut memory, from, to);
                let answer = within(runtime, call).await?;
                // What was `to` before is closed.
                state.closed_if(answer == SUCCESS && from != to);
                Ok(answer)
            })
        },
    )?;
    Ok(())
}
