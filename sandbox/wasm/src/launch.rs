//! Builds the store of an applet before it runs, with its grants and limits.
#![forbid(unsafe_code)]

use std::sync::Arc;

use holdfast_crossings::Mark;
use wasmtime::Store;

use crate::code::Code;
use crate::error::WasmError;
use crate::heap_link::HeapLink;
use crate::layout::MAX_HEAP_LIMIT_BYTES;
use crate::limits::Limiter;
use crate::mailbox::Mailbox;
use crate::program::Program;
use crate::run::RunOptions;
use crate::state::StoreState;
use crate::stdio::Captured;
use crate::wasi;

/// Refuses a heap that no linear memory has room for.
pub(crate) fn check_heap_fits(link: &HeapLink) -> Result<(), WasmError> {
    match link.name_and_limit() {
        Some((name, limit_bytes)) if limit_bytes > MAX_HEAP_LIMIT_BYTES => {
            Err(WasmError::HeapTooLarge { name, limit_bytes })
        }
        _ => Ok(()),
    }
}

/// A store for one applet, and the pipes behind its captured streams.
pub(crate) fn new_store(
    program: &Program,
    options: &RunOptions,
    code: &Code,
    link: &Arc<HeapLink>,
    crossings: Mark,
) -> Result<(Store<StoreState>, Captured), WasmError> {
    let mut arguments = vec![program.name().to_owned()];
    arguments.extend(options.args.iter().cloned());
    let (wasi, captured) = wasi::context(&arguments, &options.env, &options.dirs, &options.stdio)?;
    let fuel = options.limits.fuel;
    let state = StoreState {
        wasi,
        limiter: Limiter::new(link.clone(), options.limits.memory_bytes),
        link: link.clone(),
        open_descriptors: 0,
        mailbox: Mailbox::new(),
        fuel,
        crossings,
    };
    let mut store = Store::new(&code.engine, state);
    store.limiter(|state| &mut state.limiter);
    if let Some(fuel) = fuel {
        store.set_fuel(fuel).map_err(|error| WasmError::host("give fuel", error))?;
    }
    Ok((store, captured))
}
