//! WASI preview 1 for applets, with nothing granted that was not asked for.
//!
//! `wasmtime-wasi` does the work. Some of its functions are replaced at the linker, each for one
//! reason:
//! - `fd_read` lets the kernel write straight into linear memory; a clean region is mapped
//!   read-only, and the kernel's write would fail there instead of faulting.
//! - `poll_oneoff` sleeps on the thread for a single clock, where no time limit could reach it.
//! - `path_open`, `fd_close` and `fd_renumber` do not count (see [`crate::descriptors`]).
//! - `proc_exit` refuses statuses from 126 on, which ordinary programs use.
#![forbid(unsafe_code)]

use std::future::poll_fn;
use std::ops::Range;
use std::pin::pin;
use std::time::Duration;

use holdfast_types::PathAccess;
use tokio::runtime::Handle;
use wasmtime::{AsContextMut, Caller, Extern, Linker, Memory, bail};
use wasmtime_wasi::p1::wasi_snapshot_preview1::{self as preview1, WasiSnapshotPreview1};
use wasmtime_wasi::p1::{self, WasiP1Ctx};
use wasmtime_wasi::{FsPerms, I32Exit, WasiCtxBuilder};
use wiggle::GuestMemory;

use crate::error::WasmError;
use crate::grant::DirGrant;
use crate::state::{StopCause, StoreState};
use crate::stdio::{Captured, Stdio};
use crate::{crossings, descriptors};

pub(crate) const MODULE: &str = "wasi_snapshot_preview1";

/// Builds the WASI side of a run. `arguments` starts with the program's name.
pub(crate) fn context(
    arguments: &[String],
    environment: &[(String, String)],
    dirs: &[DirGrant],
    stdio: &Stdio,
) -> Result<(WasiP1Ctx, Captured), WasmError> {
    let mut builder = WasiCtxBuilder::new();
    // File operations then run on this thread; it has nothing else to do meanwhile.
    builder.allow_blocking_current_thread(true);
    builder.args(arguments).envs(environment);
    refuse_reading_within_writing(dirs)?;
    for dir in dirs {
        let permissions = match dir.access {
            PathAccess::ReadOnly => FsPerms::ReadOnly,
            PathAccess::ReadWrite => FsPerms::ReadWrite,
        };
        builder.preopened_dir(&dir.host, &dir.guest, permissions).map_err(|error| {
            WasmError::Grant { path: dir.host.clone(), reason: format!("{error:#}") }
        })?;
    }
    let captured = stdio.install(&mut builder);
    Ok((builder.build_p1(), captured))
}

/// A program walks from any directory that it has to what is in it, so a part of one that may be
/// written to can be written to, whatever else that part was granted for.
fn refuse_reading_within_writing(dirs: &[DirGrant]) -> Result<(), WasmError> {
    // What is not there is reported as that.
    let found = |dir: &DirGrant| dir.host.canonicalize().unwrap_or_else(|_| dir.host.clone());
    for inner in dirs.iter().filter(|dir| dir.access == PathAccess::ReadOnly) {
        let host = found(inner);
        let outer = dirs.iter().find(|outer| {
            let outer_host = found(outer);
            outer.access == PathAccess::ReadWrite
                && host != outer_host
                && host.starts_with(outer_host)
        });
        if let Some(outer) = outer {
            let reason = format!(
                "it is granted for reading and lies in {}, which is granted for writing, so a WebAssembly program could \
                 write to it; grant the parts of that directory that may be written to, or run the program natively",
                outer.host.display()
            );
            return Err(WasmError::Grant { path: inner.host.clone(), reason });
        }
    }
    Ok(())
}

/// Adds WASI preview 1 to a linker.
pub(crate) fn add_to_linker(linker: &mut Linker<StoreState>) -> wasmtime::Result<()> {
    p1::add_to_linker_async(linker, |state: &mut StoreState| &mut state.wasi)?;
    linker.allow_shadowing(true);
    crossings::add_to_linker(linker)?;
    linker.func_wrap(
        MODULE,
        "proc_exit",
        |caller: Caller<'_, StoreState>, status: i32| -> wasmtime::Result<()> {
            let _crossing = caller.data().crossings.cross("proc_exit");
            Err(I32Exit(status).into())
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "fd_read",
        |mut caller: Caller<'_, StoreState>,
         (fd, buffers, buffers_len, out): (i32, i32, i32, i32)| {
            Box::new(async move {
                let _crossing = caller.data().crossings.cross("fd_read");
                let fuel = caller.as_context_mut().hostcall_fuel();
                let (memory, state) = memory_and_state(&mut caller)?;
                if let Some(target) = first_buffer(memory, buffers, buffers_len) {
                    state.link.prepare_kernel_write(&target);
                    if state.link.host_fault().is_some() {
                        return Err(StopCause::HostFault.into());
                    }
                }
                state.wasi.set_hostcall_fuel(fuel);
                let mut memory = GuestMemory::Unshared(memory);
                let (runtime, wasi) = (state.runtime.clone(), &mut state.wasi);
                let call = preview1::fd_read(wasi, &mut memory, fd, buffers, buffers_len, out);
                within(runtime, call).await
            })
        },
    )?;
    linker.func_wrap_async(
        MODULE,
        "poll_oneoff",
        |mut caller: Caller<'_, StoreState>,
         (subscriptions, events, count, out): (i32, i32, i32, i32)| {
            Box::new(async move {
                let _crossing = caller.data().crossings.cross("poll_oneoff");
                let fuel = caller.as_context_mut().hostcall_fuel();
                let (memory, state) = memory_and_state(&mut caller)?;
                if count == 1
                    && let Some(clock) = RelativeClock::read(memory, subscriptions)
                {
                    within(state.runtime.clone(), clock.sleep()).await;
                    return clock.answer(memory, events, out);
                }
                state.wasi.set_hostcall_fuel(fuel);
                let mut memory = GuestMemory::Unshared(memory);
                let (runtime, wasi) = (state.runtime.clone(), &mut state.wasi);
                let call =
                    preview1::poll_oneoff(wasi, &mut memory, subscriptions, events, count, out);
                within(runtime, call).await
            })
        },
    )?;
    descriptors::add_to_linker(linker)?;
    linker.allow_shadowing(false);
    Ok(())
}

/// Polls a call inside of the runtime that has the applet's clocks and streams. Nothing else of an
/// applet is in there: a host function that it calls finds the runtime of its own caller.
pub(crate) async fn within<F: Future>(runtime: Handle, call: F) -> F::Output {
    let mut call = pin!(call);
    poll_fn(|context| {
        let _inside = runtime.enter();
        call.as_mut().poll(context)
    })
    .await
}

pub(crate) fn memory_and_state<'a>(
    caller: &'a mut Caller<'_, StoreState>,
) -> wasmtime::Result<(&'a mut [u8], &'a mut StoreState)> {
    Ok(exported_memory(caller)?.data_and_store_mut(caller))
}

/// The applet's memory, to be looked up once.
pub(crate) fn exported_memory(caller: &mut Caller<'_, StoreState>) -> wasmtime::Result<Memory> {
    if let Some(memory) = caller.data().memory {
        return Ok(memory);
    }
    match caller.get_export("memory") {
        Some(Extern::Memory(memory)) => {
            caller.data_mut().memory = Some(memory);
            Ok(memory)
        }
        _ => bail!("the applet exports no memory named `memory`"),
    }
}

fn u32_at(memory: &[u8], offset: u64) -> Option<u32> {
    let bytes = memory.get(usize::try_from(offset).ok()?..)?.get(..4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

/// Where the first buffer that is not empty lies: `fd_read` fills that one only. `None` for
/// anything malformed, which `fd_read` itself then refuses.
fn first_buffer(memory: &[u8], buffers: i32, buffers_len: i32) -> Option<Range<u64>> {
    let buffers = u64::from(buffers as u32);
    for index in 0..u64::from(buffers_len as u32) {
        let start = u64::from(u32_at(memory, buffers + index * 8)?);
        let len = u64::from(u32_at(memory, buffers + index * 8 + 4)?);
        if len > 0 {
            return (start + len <= memory.len() as u64).then_some(start..start + len);
        }
    }
    None
}

/// The one subscription that `wasmtime-wasi` would sleep on the thread for: a clock, relative to
/// now. The layouts of `subscription` (48 bytes) and `event` (32 bytes) are those of WASI preview
/// 1.
struct RelativeClock {
    user_data: [u8; 8],
    duration: Duration,
}

impl RelativeClock {
    const TAG_CLOCK: u8 = 0;
    const FLAG_ABSOLUTE: u8 = 1;
    /// Shorter sleeps stay on the thread: the asynchronous timer has a resolution of a millisecond.
    const PRECISE_BELOW: Duration = Duration::from_millis(2);

    fn read(memory: &[u8], subscription: i32) -> Option<Self> {
        let bytes = memory.get(subscription as u32 as usize..)?.get(..48)?;
        if bytes[8] != Self::TAG_CLOCK || bytes[40] & Self::FLAG_ABSOLUTE != 0 {
            return None;
        }
        let nanoseconds = u64::from_le_bytes(bytes[24..32].try_into().ok()?);
        Some(RelativeClock {
            user_data: bytes[..8].try_into().ok()?,
            duration: Duration::from_nanos(nanoseconds),
        })
    }

    async fn sleep(&self) {
        if self.duration < Self::PRECISE_BELOW {
            std::thread::sleep(self.duration);
        } else {
            tokio::time::sleep(self.duration).await;
        }
    }

    /// Writes the event and its count; the result is a WASI error number.
    fn answer(&self, memory: &mut [u8], event: i32, count: i32) -> wasmtime::Result<i32> {
        const SUCCESS: i32 = 0;
        let mut record = [0; 32];
        record[..8].copy_from_slice(&self.user_data);
        let targets = [(event, &record[..]), (count, &1_u32.to_le_bytes()[..])];
        for (offset, bytes) in targets {
            let offset = offset as u32 as usize;
            match memory.get_mut(offset..offset + bytes.len()) {
                Some(target) => target.copy_from_slice(bytes),
                None => bail!("Pointer out of bounds: {offset}"),
            }
        }
        Ok(SUCCESS)
    }
}
