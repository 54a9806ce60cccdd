//! The wasmtime engine of a program and the compiled module in it.
//!
//! Every program has an engine of its own, so that an epoch that is bumped to stop one applet disturbs only applets of
//! the same program. Creating one takes a fraction of a millisecond.
#![forbid(unsafe_code)]

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use wasmtime::{Config, Engine, Module, OptLevel};

use crate::cache::CodeCache;
use crate::complexity;
use crate::error::WasmError;
use crate::layout::LINEAR_MEMORY_BYTES;
use crate::limits::Limits;
use crate::linear_memory::Creator;
use crate::names;
use crate::program::Program;
use crate::stamped::{self, Stamped};

/// Inaccessible address space after a linear memory: compiled code needs no bounds check for accesses with
/// a constant offset below this.
const GUARD_BYTES: u64 = 32 << 20;
/// Stack of the compiled code.
const WASM_STACK_BYTES: usize = 1 << 20;
/// Stack of compiled code and the host functions that it calls.
const FIBER_STACK_BYTES: usize = 2 << 20;
/// Frames in a trap's report.
const BACKTRACE_FRAMES_MAX: usize = 64;

pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    pub(crate) module: Module,
    /// Whether the module was compiled now, rather than found in the cache.
    pub(crate) compiled: bool,
}

/// Whether an engine can compile. One that only loads is ready sooner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compiler {
    With,
    Without,
}

fn create(count_fuel: bool, compiler: Compiler) -> Result<Engine, WasmError> {
    let mut config = Config::new();
    config
        .with_host_memory(Arc::new(Creator))
        .memory_reservation(LINEAR_MEMORY_BYTES)
        .memory_guard_size(GUARD_BYTES)
        .memory_may_move(false)
        // Needs a memory of wasmtime's own; with ours, a module with active data segments would panic.
        .memory_init_cow(false)
        .epoch_interruption(true)
        .consume_fuel(count_fuel)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(FIBER_STACK_BYTES)
        .wasm_backtrace_max_frames(NonZeroUsize::new(BACKTRACE_FRAMES_MAX))
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        // Only debuggers and profilers read it, and registering it costs start-up time.
        .native_unwind_info(false);
    match compiler {
        Compiler::With => config.cranelift_opt_level(OptLevel::Speed),
        Compiler::Without => config.enable_compiler(false),
    };
    Engine::new(&config)
        .map_err(|error| WasmError::Host { step: "create the engine", reason: format!("{error:#}") })
}

/// Finds the program in the cache, or compiles it. `engine_time` gets what the engine took.
pub(crate) fn load(
    limits: &Limits,
    program: &Program,
    cache: Option<&CodeCache>,
    engine_time: &mut Duration,
) -> Result<Loaded, WasmError> {
    let count_fuel = limits.fuel.is_some();
    let mut create = |compiler| {
        let started = Instant::now();
        let engine = create(count_fuel, compiler);
        *engine_time += started.elapsed();
        engine
    };
    if let Some(stamped) = cache.and_then(|cache| Stamped::find(cache, count_fuel, program)) {
        let engine = create(Compiler::Without)?;
        if let Some(module) = stamped.load(&engine) {
            return Ok(Loaded { engine, module, compiled: false });
        }
    }
    let engine = create(Compiler::With)?;
    let bytes = program.bytes()?;
    let entry = cache.map(|cache| cache.entry(&engine, &bytes));
    if let (Some(cache), Some(entry)) = (cache, &entry)
        && let Some((module, file)) = entry.load(cache, &engine)
    {
        stamped::keep(cache, count_fuel, program, entry, &file);
        return Ok(Loaded { engine, module, compiled: false });
    }
    let module = compile(&engine, program.name(), &bytes, limits.compile_limit())?;
    if let (Some(cache), Some(entry)) = (cache, entry) {
        cache.keep(&entry, &module);
    }
    Ok(Loaded { engine, module, compiled: true })
}

/// Compiles a program, for as long as it may take.
fn compile(
    engine: &Engine,
    applet: &str,
    bytes: &[u8],
    limit: Option<Duration>,
) -> Result<Module, WasmError> {
    let invalid =
        |reason: String| WasmError::Invalid { applet: applet.to_owned(), reason: names::lines(&reason) };
    let binary = wat::parse_bytes(bytes).map_err(|error| invalid(error.to_string()))?;
    complexity::check(applet, &binary)?;
    let compiled = match limit {
        None => Module::new(engine, &binary),
        Some(limit) => {
            // Nothing stops the compiler half-way. Past the limit its thread is left to itself; what it can still
            // take up is bounded by what `complexity` lets pass.
            let (done, outcome) = mpsc::sync_channel(1);
            let (engine, binary) = (engine.clone(), binary.into_owned());
            let work = move || drop(done.send(Module::new(&engine, &binary)));
            std::thread::Builder::new()
                .name("holdfast-compile".to_owned())
                .spawn(work)
                .map_err(|error| WasmError::Host { step: "start the compiler", reason: error.to_string() })?;
            match outcome.recv_timeout(limit) {
                Ok(compiled) => compiled,
                Err(RecvTimeoutError::Timeout) => {
                    return Err(WasmError::CompileTimeLimit { applet: applet.to_owned(), limit });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(WasmError::Host {
                        step: "compile",
                        reason: "the compiler panicked".to_owned(),
                    });
                }
            }
        }
    };
    compiled.map_err(|error| invalid(format!("{error:#}")))
}
