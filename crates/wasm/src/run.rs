//! One run of an applet, from its bytes to its exit.
//!
//! Invariants: whatever happens, the store is dropped and the region unmapped before [`run`] returns, and
//! the region goes back to the caller, who recovers and closes it.
#![forbid(unsafe_code)]

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use holdfast_region::{Region, RegionError};
use holdfast_sys::fault::{self, CodeRange};
use wasmtime::{Engine, Error, InstancePre, Linker, Module, Store, UpdateDeadline};

use crate::alarm::Alarm;
use crate::cache::CodeCache;
use crate::error::WasmError;
use crate::explain::{self, Ended};
use crate::grant::DirGrant;
use crate::heap_link::{HeapLink, HostFault};
use crate::layout::MAX_HEAP_LIMIT_BYTES;
use crate::limits::{Limiter, Limits};
use crate::metrics::{Clocks, Metrics};
use crate::program::Program;
use crate::state::{State, Stop};
use crate::stdio::{Captured, Stdio};
use crate::{engine, imports, wasi};

/// What a run may use. By default: no arguments, no environment, no directory, no input, output discarded.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RunOptions {
    /// Arguments after the program's name.
    pub args: Vec<String>,
    /// Environment variables, the only ones that the applet sees.
    pub env: Vec<(String, String)>,
    /// Directories that it may reach.
    pub dirs: Vec<DirGrant>,
    /// Its standard streams.
    pub stdio: Stdio,
    /// What it may use up.
    pub limits: Limits,
    /// Where compiled applets are kept; `None` compiles anew.
    pub cache_dir: Option<PathBuf>,
}

/// How a run ended, and what is left of it.
#[non_exhaustive]
pub struct Finished {
    /// The applet's exit status, or why there is none.
    pub end: Result<i32, WasmError>,
    /// What it cost.
    pub metrics: Metrics,
    /// The region that was given to the run, unmapped.
    pub region: Option<Region>,
    /// A failure of the heap that the applet was told only as a number.
    pub heap_error: Option<RegionError>,
    /// Why compiled code is not kept, when it was to be.
    pub cache_note: Option<String>,
    /// Captured standard output.
    pub stdout: Vec<u8>,
    /// Captured standard error.
    pub stderr: Vec<u8>,
}

/// Runs an applet to its end on this thread, with `region` as its heap.
///
/// A time limit covers the applet's own work and its waiting for streams and clocks; compiling has one of its own
/// ([`Limits::compile_timeout`]), past which a thread may go on compiling for a while. A time limit cannot reach into
/// the kernel: a granted directory on a file system that does not answer, or with a pipe in it, can delay
/// the end.
///
/// If the region's mode is `atomic`, a run that comes to its own end (returns, or exits with whatever status)
/// publishes what it stored; one that is stopped does not.
pub fn run(program: &Program, options: &RunOptions, region: Option<Region>) -> Finished {
    let run = Run { program, options, link: HeapLink::new(region) };
    let mut report = Report::default();
    let end = if tokio::runtime::Handle::try_current().is_ok() {
        // A runtime cannot be started inside of another one on the same thread.
        std::thread::scope(|scope| scope.spawn(|| run.execute(&mut report)).join())
            .unwrap_or_else(|_| Err(host("run the applet", "its thread panicked")))
    } else {
        run.execute(&mut report)
    };
    let region = run.link.take_region();
    if let Some(region) = &region {
        report.metrics.heap_backed_bytes = region.backed_bytes();
        report.metrics.heap_dirty = region.is_dirty();
    }
    Finished {
        end,
        metrics: report.metrics,
        heap_error: run.link.take_error(),
        region,
        cache_note: report.cache_note,
        stdout: report.captured.stdout(),
        stderr: report.captured.stderr(),
    }
}

/// What a run leaves behind whether it succeeds or fails.
#[derive(Default)]
struct Report {
    metrics: Metrics,
    cache_note: Option<String>,
    captured: Captured,
}

struct Run<'a> {
    program: &'a Program,
    options: &'a RunOptions,
    link: Arc<HeapLink>,
}

impl Run<'_> {
    fn execute(&self, report: &mut Report) -> Result<i32, WasmError> {
        self.check_heap_fits()?;
        let cache = match self.options.cache_dir.as_deref().map(CodeCache::open) {
            Some(Ok(cache)) => Some(cache),
            Some(Err(note)) => {
                report.cache_note = Some(note);
                None
            }
            None => None,
        };
        let started = Instant::now();
        let limits = &self.options.limits;
        let engine_time = &mut report.metrics.engine_time;
        let loaded = engine::load(&self.link, limits, self.program, cache.as_ref(), engine_time)?;
        report.metrics.load_time = started.elapsed().saturating_sub(report.metrics.engine_time);
        report.metrics.compiled = loaded.compiled;
        // The engine put its handler over ours, once per process; ours must be asked first.
        fault::install().map_err(|error| host("install the fault handler", error))?;
        let code = loaded.module.text().as_ptr_range();
        let _code = CodeRange::new(code.start as usize..code.end as usize)
            .map_err(|error| host("register the compiled code", error))?;
        self.execute_module(&loaded.engine, &loaded.module, report)
    }

    fn check_heap_fits(&self) -> Result<(), WasmError> {
        match self.link.name_and_limit() {
            Some((name, limit_bytes)) if limit_bytes > MAX_HEAP_LIMIT_BYTES => {
                Err(WasmError::HeapTooLarge { name, limit_bytes })
            }
            _ => Ok(()),
        }
    }

    fn execute_module(
        &self,
        engine: &Engine,
        module: &Module,
        report: &mut Report,
    ) -> Result<i32, WasmError> {
        let started = Instant::now();
        let ready = self.link_imports(engine, module)?;
        let mut store = self.new_store(engine, report)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .map_err(|error| host("start the timer", error))?;
        let limits = &self.options.limits;
        let deadline = limits.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        stop_at(&mut store, deadline);
        let alarm = match deadline {
            Some(deadline) => {
                Some(Alarm::set(engine, deadline).map_err(|error| host("start the alarm", error))?)
            }
            None => None,
        };

        let mut clocks = Clocks::start();
        let mut is_instantiated = false;
        let outcome = runtime.block_on(async {
            let work = async {
                let instance = ready.instantiate_async(&mut store).await?;
                report.metrics.instantiate_time = started.elapsed();
                is_instantiated = true;
                let start = instance.get_typed_func::<(), ()>(&mut store, "_start")?;
                clocks = Clocks::start();
                start.call_async(&mut store, ()).await
            };
            match deadline {
                Some(deadline) => tokio::time::timeout_at(deadline.into(), work).await.ok(),
                None => Some(work.await),
            }
        });
        clocks.stop(&mut report.metrics);
        drop(alarm);
        // Tasks on other threads (a read from standard input) must not delay the end.
        runtime.shutdown_background();
        report.metrics.peak_volatile_bytes = store.data().limiter.peak_volatile_bytes;
        if let Some(fuel) = limits.fuel {
            report.metrics.fuel_used = store.get_fuel().ok().map(|left| fuel.saturating_sub(left));
        }
        self.verdict(&store, outcome, is_instantiated)
    }

    fn link_imports(&self, engine: &Engine, module: &Module) -> Result<InstancePre<State>, WasmError> {
        let mut linker = Linker::new(engine);
        wasi::add_to_linker(&mut linker)
            .and_then(|()| imports::add_to_linker(&mut linker))
            .map_err(|error| host("set up the imports", format!("{error:#}")))?;
        let ready = linker
            .instantiate_pre(module)
            .map_err(|error| explain::link_error(self.program.name(), &error))?;
        match explain::missing_start(self.program.name(), module) {
            Some(error) => Err(error),
            None => Ok(ready),
        }
    }

    fn new_store(&self, engine: &Engine, report: &mut Report) -> Result<Store<State>, WasmError> {
        let options = self.options;
        let mut arguments = vec![self.program.name().to_owned()];
        arguments.extend(options.args.iter().cloned());
        let (wasi, captured) = wasi::context(&arguments, &options.env, &options.dirs, &options.stdio)?;
        report.captured = captured;
        let limiter = Limiter::new(self.link.clone(), options.limits.memory_bytes);
        let state = State { wasi, limiter, link: self.link.clone(), open_descriptors: 0 };
        let mut store = Store::new(engine, state);
        store.limiter(|state| &mut state.limiter);
        if let Some(fuel) = options.limits.fuel {
            store.set_fuel(fuel).map_err(|error| host("give fuel", error))?;
        }
        Ok(store)
    }

    /// Puts together what the call, the limits and the heap say about the end.
    fn verdict(
        &self,
        store: &Store<State>,
        outcome: Option<Result<(), Error>>,
        is_instantiated: bool,
    ) -> Result<i32, WasmError> {
        let (state, limits) = (store.data(), &self.options.limits);
        let time_limit = |function, waiting| WasmError::TimeLimit {
            limit: limits.timeout.unwrap_or_default(),
            function,
            waiting,
        };
        let ended = match &outcome {
            Some(Ok(())) => Ended::Exited(0),
            Some(Err(error)) => explain::ended(error, &self.link.layout(), state.limiter.refused_memory),
            None => Ended::Stopped(None),
        };
        // What happened in host code explains whatever came after it.
        match (self.link.host_fault(), &ended) {
            (Some(HostFault::BackingLost), _) => return Err(self.link.backing_lost()),
            (Some(HostFault::ReadOnly), ended) => {
                return Err(WasmError::ReadOnlyHeap { function: ended.function() });
            }
            (Some(HostFault::Hole(place)), ended) => {
                return Err(WasmError::HostAccess { function: ended.function(), place });
            }
            (None, _) => {}
        }
        match ended {
            Ended::Exited(status) => self.link.publish_at_end().map(|()| status).map_err(WasmError::Heap),
            Ended::Stopped(function) => Err(time_limit(function, outcome.is_none())),
            Ended::OutOfFuel(function) => {
                Err(WasmError::OutOfFuel { limit: limits.fuel.unwrap_or_default(), function })
            }
            // Code of its own that ran already was not kept from it by a limit.
            Ended::Trapped(report) if is_instantiated || !report.frames.is_empty() => {
                Err(WasmError::Trap(report))
            }
            Ended::Trapped(report) => Err(self.refused_start(state).unwrap_or(WasmError::Trap(report))),
        }
    }

    /// The refusal of a limit, in a run that ended before any code of the applet's ran.
    fn refused_start(&self, state: &State) -> Option<WasmError> {
        let applet = self.program.name().to_owned();
        if let Some(what) = &state.limiter.refused_table {
            return Some(WasmError::TableLimit { applet, what: what.clone() });
        }
        let hit = state.limiter.refused_memory?;
        Some(WasmError::MemoryLimit { applet, needed_bytes: hit.wanted_bytes, limit_bytes: hit.limit_bytes })
    }
}

/// Ends the applet in its next loop or call once the deadline is over or a host fault happened; whoever
/// notices that bumps the epoch.
fn stop_at(store: &mut Store<State>, deadline: Option<Instant>) {
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(move |context| {
        if context.data().link.host_fault().is_some() {
            return Err(Stop::HostFault.into());
        }
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return Err(Stop::TimeLimit.into());
        }
        Ok(UpdateDeadline::Continue(1))
    });
}

fn host(step: &'static str, reason: impl ToString) -> WasmError {
    WasmError::Host { step, reason: reason.to_string() }
}
