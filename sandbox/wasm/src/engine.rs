//! The wasmtime engine of a program and the compiled module in it.
//!
//! Every program has an engine of its own, so that an epoch that is bumped to stop one applet
//! disturbs only applets of the same program. Creating one takes a fraction of a millisecond.
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::{Config, Engine, Module, OptLevel};

use crate::cache::{self, CodeCache};
use crate::compiler::{self, CompileTerms};
use crate::error::WasmError;
use crate::layout::LINEAR_MEMORY_BYTES;
use crate::limits::{CompileIn, WasmLimits};
use crate::linear_memory::Creator;
use crate::program::Program;

/// Inaccessible address space after a linear memory: compiled code needs no bounds check for
/// accesses with a constant offset below this.
const GUARD_BYTES: u64 = 32 << 20;
/// Stack of the compiled code.
pub(crate) const WASM_STACK_BYTES: usize = 1 << 20;
/// Stack of compiled code and the host functions that it calls.
pub(crate) const FIBER_STACK_BYTES: usize = 2 << 20;
/// Frames in a trap's report.
const BACKTRACE_FRAMES_MAX: usize = 64;

pub(crate) struct Loaded {
    pub(crate) engine: Engine,
    pub(crate) module: Module,
    /// Of the program that the module was made from.
    pub(crate) sha256: [u8; 32],
    /// Whether the module was compiled now, rather than found in the cache.
    pub(crate) compiled: bool,
}

/// Creates an engine; with `is_parallel` it compiles functions in several threads.
pub(crate) fn create(count_fuel: bool, is_parallel: bool) -> Result<Engine, WasmError> {
    let mut config = Config::new();
    config
        .with_host_memory(Arc::new(Creator))
        .memory_reservation(LINEAR_MEMORY_BYTES)
        .memory_guard_size(GUARD_BYTES)
        .memory_may_move(false)
        // Needs a memory of wasmtime's own; with ours, a module with active data segments would
        // panic.
        .memory_init_cow(false)
        .epoch_interruption(true)
        .consume_fuel(count_fuel)
        .max_wasm_stack(WASM_STACK_BYTES)
        .async_stack_size(FIBER_STACK_BYTES)
        .wasm_backtrace_max_frames(NonZeroUsize::new(BACKTRACE_FRAMES_MAX))
        .wasm_multi_memory(false)
        .wasm_memory64(false)
        // Only debuggers and profilers read it, and registering it costs start-up time.
        .native_unwind_info(false)
        .cranelift_opt_level(OptLevel::Speed)
        .parallel_compilation(is_parallel);
    Engine::new(&config).map_err(|error| WasmError::Host {
        step: "create the engine",
        reason: format!("{error:#}"),
    })
}

/// Finds the program in the cache, or compiles it. `engine_time` gets what the engine took.
pub(crate) fn load(
    limits: &WasmLimits,
    program: &Program,
    cache: Option<&CodeCache>,
    engine_time: &mut Duration,
) -> Result<Loaded, WasmError> {
    let count_fuel = limits.fuel.is_some();
    let started = Instant::now();
    // The engine of the host names the code by the compiler's settings; only
    // [`CompileIn::ThisProcess`] compiles in it.
    let engine = create(count_fuel, true)?;
    *engine_time = started.elapsed();
    if let Some(cache) = cache {
        let sha256 = program.sha256()?;
        program.check(sha256)?;
        if let Some(module) = cache.entry(&engine, sha256).load(cache, &engine) {
            return Ok(Loaded { engine, module, sha256, compiled: false });
        }
    }
    let source = program.source()?;
    // Nothing can change it any more.
    program.check(source.sha256)?;
    if source.is_text && source.bytes > limits.text_bytes {
        let (applet, limit_bytes) = (program.name().to_owned(), limits.text_bytes);
        return Err(WasmError::TextTooLarge { applet, bytes: source.bytes, limit_bytes });
    }
    // Reading a large program counts.
    let (limit, memory_bytes) = (limits.compile_limit(), limits.compile_memory_bytes);
    let terms = CompileTerms { count_fuel, memory_bytes, started, limit };
    // What is in the source may be newer than what the first look-up was for.
    let entry = cache.map(|cache| cache.entry(&engine, source.sha256));
    let module = match limits.compile_in {
        CompileIn::OwnProcess => {
            let artefact = compiler::compile(program.name(), &source, &terms)?;
            if let (Some(cache), Some(entry)) = (cache, &entry) {
                cache.keep_file(entry, &artefact);
            }
            // SAFETY: the file is sealed, and its checksum says that it is whole. It was written by
            // this program's own compiler, in a process that could do nothing else; wasmtime
            // refuses another version or other settings.
            unsafe { cache::map(&engine, artefact.file) }.ok_or_else(|| {
                WasmError::CompilerDied {
                    applet: program.name().to_owned(),
                    how: "what it left cannot be loaded".to_owned(),
                }
            })?
        }
        CompileIn::ThisProcess => {
            let module = compiler::compile_here(&engine, program.name(), &source, &terms)?;
            if let (Some(cache), Some(entry)) = (cache, &entry) {
                cache.keep(entry, &module);
            }
            module
        }
    };
    Ok(Loaded { engine, module, sha256: source.sha256, compiled: true })
}
