//! The functions of WASI that are `wasmtime-wasi`'s own, with what this sandbox does around them:
//! those that may wait find the runtime with their clocks, and each call of one is reported to the
//! tracer with its name.
//!
//! The latter only in a process that a tracer wants that of ([`holdfast_crossings`]); in any other
//! the functions that never wait are linked as they come. Those that this crate replaces do both
//! for themselves.
//!
//! Invariant: a function here does what the other one does. The tables below have the parameters of
//! WASI preview 1's witx file; the compiler checks them against the functions, and a test that
//! there is one for each.
#![forbid(unsafe_code)]

use wasmtime::{AsContextMut, Caller, Linker};
use wasmtime_wasi::p1::wasi_snapshot_preview1::{self as preview1, WasiSnapshotPreview1};
use wiggle::GuestMemory;

use crate::state::StoreState;
use crate::wasi::{MODULE, memory_and_state, within};

/// Links functions that wait.
macro_rules! waiting {
    ($linker:ident: $($name:ident($($argument:ident: $kind:ty),+);)*) => {$(
        $linker.func_wrap_async(
            MODULE,
            stringify!($name),
            |mut caller: Caller<'_, StoreState>, ($($argument,)+): ($($kind,)+)| {
                Box::new(async move {
                    let _crossing = caller.data().crossings.cross(stringify!($name));
                    let fuel = caller.as_context_mut().hostcall_fuel();
                    let (memory, state) = memory_and_state(&mut caller)?;
                    state.wasi.set_hostcall_fuel(fuel);
                    let mut memory = GuestMemory::Unshared(memory);
                    let runtime = state.runtime.clone();
                    let call = preview1::$name(&mut state.wasi, &mut memory, $($argument),+);
                    within(runtime, call).await
                })
            },
        )?;
    )*};
}

/// Links functions that never wait.
macro_rules! immediate {
    ($linker:ident: $($name:ident($($argument:ident: $kind:ty),*);)*) => {$(
        $linker.func_wrap(
            MODULE,
            stringify!($name),
            |mut caller: Caller<'_, StoreState>, $($argument: $kind),*| -> wasmtime::Result<i32> {
                let _crossing = caller.data().crossings.cross(stringify!($name));
                let fuel = caller.as_context_mut().hostcall_fuel();
                let (memory, state) = memory_and_state(&mut caller)?;
                state.wasi.set_hostcall_fuel(fuel);
                let mut memory = GuestMemory::Unshared(memory);
                preview1::$name(&mut state.wasi, &mut memory, $($argument),*)
            },
        )?;
    )*};
}

/// Puts them over those that are there.
pub(crate) fn add_to_linker(linker: &mut Linker<StoreState>) -> wasmtime::Result<()> {
    add_waiting(linker)?;
    if holdfast_crossings::is_wanted() { add_immediate(linker) } else { Ok(()) }
}

fn add_immediate(linker: &mut Linker<StoreState>) -> wasmtime::Result<()> {
    immediate! { linker:
        args_get(argv: i32, bytes: i32);
        args_sizes_get(count: i32, bytes: i32);
        environ_get(environ: i32, bytes: i32);
        environ_sizes_get(count: i32, bytes: i32);
        clock_res_get(id: i32, out: i32);
        clock_time_get(id: i32, precision: i64, out: i32);
        fd_allocate(fd: i32, offset: i64, len: i64);
        fd_fdstat_set_flags(fd: i32, flags: i32);
        fd_fdstat_set_rights(fd: i32, base: i64, inheriting: i64);
        fd_prestat_get(fd: i32, out: i32);
        fd_prestat_dir_name(fd: i32, path: i32, len: i32);
        fd_tell(fd: i32, out: i32);
        proc_raise(signal: i32);
        random_get(buffer: i32, len: i32);
        sched_yield();
        sock_accept(fd: i32, flags: i32, out: i32);
        sock_recv(fd: i32, data: i32, len: i32, flags: i32, bytes: i32, out: i32);
        sock_send(fd: i32, data: i32, len: i32, flags: i32, out: i32);
        sock_shutdown(fd: i32, how: i32);
    }
    Ok(())
}

fn add_waiting(linker: &mut Linker<StoreState>) -> wasmtime::Result<()> {
    waiting! { linker:
        fd_advise(fd: i32, offset: i64, len: i64, advice: i32);
        fd_datasync(fd: i32);
        fd_fdstat_get(fd: i32, out: i32);
        fd_filestat_get(fd: i32, out: i32);
        fd_filestat_set_size(fd: i32, size: i64);
        fd_filestat_set_times(fd: i32, accessed: i64, modified: i64, flags: i32);
        fd_pread(fd: i32, buffers: i32, len: i32, offset: i64, out: i32);
        fd_pwrite(fd: i32, buffers: i32, len: i32, offset: i64, out: i32);
        fd_readdir(fd: i32, buffer: i32, len: i32, cookie: i64, out: i32);
        fd_seek(fd: i32, offset: i64, whence: i32, out: i32);
        fd_sync(fd: i32);
        fd_write(fd: i32, buffers: i32, len: i32, out: i32);
        path_create_directory(fd: i32, path: i32, len: i32);
        path_filestat_get(fd: i32, flags: i32, path: i32, len: i32, out: i32);
        path_filestat_set_times(fd: i32, flags: i32, path: i32, len: i32, accessed: i64, modified: i64, what: i32);
        path_link(fd: i32, flags: i32, path: i32, len: i32, to: i32, to_path: i32, to_len: i32);
        path_readlink(fd: i32, path: i32, len: i32, buffer: i32, room: i32, out: i32);
        path_remove_directory(fd: i32, path: i32, len: i32);
        path_rename(fd: i32, path: i32, len: i32, to: i32, to_path: i32, to_len: i32);
        path_symlink(path: i32, len: i32, fd: i32, to_path: i32, to_len: i32);
        path_unlink_file(fd: i32, path: i32, len: i32);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use wasmtime::{Engine, Store};
    use wasmtime_wasi::p1::{self, WasiP1Ctx};

    use super::*;
    use crate::heap_link::HeapLink;
    use crate::heaps::Heaps;
    use crate::host_functions::HostFunctions;
    use crate::limits::Limiter;
    use crate::mailbox::Mailbox;

    fn context() -> WasiP1Ctx {
        wasmtime_wasi::WasiCtxBuilder::new().build_p1()
    }

    /// Without one of its own a function would be linked unmarked.
    ///
    /// Guarantee: trace/crossings
    #[test]
    fn every_function_of_wasi_is_marked() {
        let engine = Engine::default();
        let mut theirs = Linker::<WasiP1Ctx>::new(&engine);
        p1::add_to_linker_async(&mut theirs, |context| context).unwrap();
        let mut store = Store::new(&engine, context());
        let all: BTreeSet<_> =
            theirs.iter(&mut store).map(|(_, name, _)| name.to_owned()).collect();
        let mut ours = Linker::<StoreState>::new(&engine);
        add_immediate(&mut ours).unwrap();
        add_waiting(&mut ours).unwrap();
        let link = HeapLink::new(Heaps::none(), None);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let state = StoreState {
            wasi: context(),
            runtime: runtime.handle().clone(),
            limiter: Limiter::new(link.clone(), 0),
            link,
            open_descriptors: 0,
            mailbox: Mailbox::new(),
            functions: HostFunctions::none(),
            callers_stack: Arc::default(),
            host_input: Vec::new(),
            host_result: Vec::new(),
            memory: None,
            fuel: None,
            crossings: holdfast_crossings::Mark::default(),
        };
        let mut store = Store::new(&engine, state);
        let mut marked: BTreeSet<_> =
            ours.iter(&mut store).map(|(_, name, _)| name.to_owned()).collect();
        let replaced =
            ["fd_close", "fd_read", "fd_renumber", "path_open", "poll_oneoff", "proc_exit"];
        marked.extend(replaced.map(str::to_owned));
        assert_eq!(marked, all);
    }
}
