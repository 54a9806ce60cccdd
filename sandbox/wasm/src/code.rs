//! A program's compiled code, linked to the imports and ready to be instantiated any number of
//! times; and the memory of this process of what it has loaded.
//!
//! Invariants:
//! - Code is shared under the identity of the program that it was made from: the SHA-256 of its
//!   bytes, or the stamp of its file, looked at again after the file was read. It keeps the SHA-256
//!   of these bytes, which a program that expects another one does not get.
//! - What is remembered is bounded; code that is forgotten stays for as long as an applet runs on
//!   it.
#![forbid(unsafe_code)]

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use holdfast_sys::fault::{self, CodeRange};
use wasmtime::{Engine, InstancePre, Linker, Module};

use crate::cache::CodeCache;
use crate::error::WasmError;
use crate::limits::WasmLimits;
use crate::metrics::WasmMetrics;
use crate::program::{Identity, Program};
use crate::state::StoreState;
use crate::{engine, explain, host_imports, imports, messages, wasi};

/// How many programs are remembered; the one that was not started for longest is forgotten.
const PROGRAMS_MAX: usize = 32;

/// See the module's documentation.
pub(crate) struct Code {
    pub(crate) engine: Engine,
    pub(crate) ready: InstancePre<StoreState>,
    /// Gone before the code itself, which the others keep.
    _range: CodeRange,
    pub(crate) module: Module,
    /// Of the program that it was made from.
    sha256: [u8; 32],
}

/// What loading costs and notes, for the report of a run.
#[derive(Default)]
pub(crate) struct LoadReport {
    pub(crate) metrics: WasmMetrics,
    pub(crate) cache_note: Option<String>,
}

impl Code {
    /// Loads or compiles a program, and links it.
    pub(crate) fn load(
        program: &Program,
        limits: &WasmLimits,
        cache_dir: Option<&Path>,
        report: &mut LoadReport,
    ) -> Result<Code, WasmError> {
        let cache = match cache_dir.map(CodeCache::open) {
            Some(Ok(cache)) => Some(cache),
            Some(Err(note)) => {
                report.cache_note = Some(note);
                None
            }
            None => None,
        };
        let started = Instant::now();
        let metrics = &mut report.metrics;
        let loaded = engine::load(limits, program, cache.as_ref(), &mut metrics.engine_time)?;
        metrics.load_time = started.elapsed().saturating_sub(metrics.engine_time);
        metrics.compiled = loaded.compiled;
        // The engine put its handler over ours, once per process; ours must be asked first.
        fault::install().map_err(|error| WasmError::host("install the fault handler", error))?;
        let text = loaded.module.text().as_ptr_range();
        let range = CodeRange::new(text.start as usize..text.end as usize)
            .map_err(|error| WasmError::host("register the compiled code", error))?;
        let linking = Instant::now();
        let ready = link(program.name(), &loaded.engine, &loaded.module)?;
        metrics.instantiate_time = linking.elapsed();
        let (engine, module, sha256) = (loaded.engine, loaded.module, loaded.sha256);
        Ok(Code { engine, ready, _range: range, module, sha256 })
    }

    /// The same, but a program that this process has loaded before, and remembers, is only looked
    /// up.
    pub(crate) fn shared(
        program: &Program,
        limits: &WasmLimits,
        cache_dir: Option<&Path>,
        report: &mut LoadReport,
    ) -> Result<Arc<Code>, WasmError> {
        let key = Key { identity: program.identity(), counts_fuel: limits.fuel.is_some() };
        let place = place_of(key);
        // A caller that starts the same program meanwhile waits here, instead of compiling it as
        // well.
        let mut known = lock(&place);
        if let Some(code) = &*known {
            program.check(code.sha256)?;
            return Ok(code.clone());
        }
        let code = Arc::new(Code::load(program, limits, cache_dir, report)?);
        if program.is_unchanged() {
            *known = Some(code.clone());
        }
        Ok(code)
    }
}

fn link(
    applet: &str,
    engine: &Engine,
    module: &Module,
) -> Result<InstancePre<StoreState>, WasmError> {
    let mut linker = Linker::new(engine);
    wasi::add_to_linker(&mut linker)
        .and_then(|()| imports::add_to_linker(&mut linker))
        .and_then(|()| messages::add_to_linker(&mut linker))
        .and_then(|()| host_imports::add_to_linker(&mut linker))
        .map_err(|error| WasmError::host("set up the imports", format!("{error:#}")))?;
    let ready =
        linker.instantiate_pre(module).map_err(|error| explain::link_error(applet, &error))?;
    let refused =
        explain::missing_start(applet, module).or_else(|| explain::too_many_tables(applet, module));
    match refused {
        Some(error) => Err(error),
        None => Ok(ready),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    identity: Identity,
    counts_fuel: bool,
}

/// Where a program's code is, or will be.
type Place = Arc<Mutex<Option<Arc<Code>>>>;

/// Of the programs that are remembered; the last is the one that was started last.
static PLACES: Mutex<Vec<(Key, Place)>> = Mutex::new(Vec::new());

fn place_of(key: Key) -> Place {
    let forgotten;
    let mut places = lock(&PLACES);
    let place = match places.iter().position(|(known, _)| *known == key) {
        Some(index) => places.remove(index).1,
        None => Place::default(),
    };
    places.push((key, place.clone()));
    forgotten = (places.len() > PROGRAMS_MAX).then(|| places.remove(0));
    drop(places);
    // Taking code down takes longer than a look-up.
    drop(forgotten);
    place
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
