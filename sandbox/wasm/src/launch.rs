//! Builds the store of an applet before it runs, with its grants and limits.
#![forbid(unsafe_code)]

use std::sync::Arc;

use holdfast_crossings::Mark;
use tokio::runtime::Handle;
use wasmtime::Store;

use crate::code::Code;
use crate::error::WasmError;
use crate::heap_link::HeapLink;
use crate::imports;
use crate::layout::MAX_HEAP_LIMIT_BYTES;
use crate::limits::Limiter;
use crate::mailbox::Mailbox;
use crate::program::Program;
use crate::run::RunOptions;
use crate::state::StoreState;
use crate::stdio::Captured;
use crate::wasi;

/// Refuses heaps that no linear memory has room for.
pub(crate) fn check_heaps_fit(link: &HeapLink) -> Result<(), WasmError> {
    let mut heaps = link.names_and_limits().into_iter();
    match heaps.find(|(_, limit_bytes)| *limit_bytes > MAX_HEAP_LIMIT_BYTES) {
        Some((name, limit_bytes)) => Err(WasmError::HeapTooLarge { name, limit_bytes }),
        None => Ok(()),
    }
}

/// Chooses where the heaps lie. A program that attaches one by the oldest import may rely on where
/// that always put a new one.
pub(crate) fn place_heaps(link: &HeapLink, code: &Code) -> Result<(), WasmError> {
    let is_first_low = code
        .module
        .imports()
        .any(|import| (import.module(), import.name()) == (imports::MODULE, imports::ATTACH));
    link.place_heaps(is_first_low)
}

/// A store for one applet, and the buffers behind its captured streams.
pub(crate) fn new_store(
    program: &Program,
    options: &RunOptions,
    code: &Code,
    link: &Arc<HeapLink>,
    (runtime, crossings): (Handle, Mark),
) -> Result<(Store<StoreState>, Captured), WasmError> {
    let mut arguments = vec![options.name.clone().unwrap_or_else(|| program.name().to_owned())];
    arguments.extend(options.args.iter().cloned());
    let (wasi, captured) = wasi::context(&arguments, &options.env, &options.dirs, &options.stdio)?;
    let fuel = options.limits.fuel;
    let state = StoreState {
        wasi,
        runtime,
        limiter: Limiter::new(link.clone(), options.limits.memory_bytes),
        link: link.clone(),
        open_descriptors: 0,
        mailbox: Mailbox::new(),
        functions: options.functions.clone(),
        callers_stack: Arc::default(),
        host_input: Vec::new(),
        host_result: Vec::new(),
        memory: None,
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
