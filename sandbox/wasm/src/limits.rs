//! The limits of an applet, and their accounting.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use wasmtime::ResourceLimiter;

use crate::error::MemoryLimitHit;
use crate::heap_link::HeapLink;

/// Volatile memory that an applet may have unless told otherwise.
pub const DEFAULT_MEMORY_LIMIT_BYTES: u64 = 1 << 30;
/// Memory that compiling may take unless told otherwise; the largest programs need half of it.
pub const DEFAULT_COMPILE_MEMORY_BYTES: u64 = 1 << 30;
/// The largest program in the text format unless told otherwise.
pub const DEFAULT_TEXT_BYTES: u64 = 1 << 20;
/// How long compiling may take where no limit says how long.
const DEFAULT_COMPILE_TIMEOUT: Duration = Duration::from_secs(300);
/// Entries of all tables of an applet together; a compiler emits one per function whose address is
/// taken.
const TABLE_ELEMENTS_MAX: usize = 1 << 20;
/// Tables in an applet; compilers emit one or two.
pub(crate) const TABLES_MAX: usize = 16;

/// WasmLimits of one run. The heap's own limit is not among them: it belongs to the heap.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct WasmLimits {
    /// Wall time of a run, from the call of [`crate::run`] to the end: compiling and waiting
    /// included; `None` is no limit.
    pub timeout: Option<Duration>,
    /// Wall time for compiling an applet that is not in the cache; never more than `timeout`.
    /// `None` is as long as `timeout` allows, and five minutes without one.
    pub compile_timeout: Option<Duration>,
    /// Memory that compiling may take, in bytes.
    pub compile_memory_bytes: u64,
    /// Where an applet is compiled.
    pub compile_in: CompileIn,
    /// The largest program in the text format, in bytes. Parsing text takes up to a hundred times
    /// its size.
    pub text_bytes: u64,
    /// Volatile linear memory.
    pub memory_bytes: u64,
    /// Fuel (about one unit per instruction); `None` is no limit and no cost of counting.
    pub fuel: Option<u64>,
}

impl Default for WasmLimits {
    fn default() -> Self {
        WasmLimits {
            timeout: None,
            compile_timeout: None,
            compile_memory_bytes: DEFAULT_COMPILE_MEMORY_BYTES,
            compile_in: CompileIn::default(),
            text_bytes: DEFAULT_TEXT_BYTES,
            memory_bytes: DEFAULT_MEMORY_LIMIT_BYTES,
            fuel: None,
        }
    }
}

/// Where an applet is compiled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CompileIn {
    /// In a process of its own, which is confined, has its own limits, and is killed at the
    /// deadline.
    #[default]
    OwnProcess,
    /// In this process, for hosts that may not start another one. Weaker: what is known to take the
    /// compiler minutes or gigabytes is refused, but a program can still take hundreds of megabytes
    /// of the host's memory, and past the time limit a thread goes on compiling.
    ThisProcess,
}

impl WasmLimits {
    /// What compiling may take: wall time.
    pub(crate) fn compile_limit(&self) -> Duration {
        let limits = [self.compile_timeout, self.timeout];
        limits.into_iter().flatten().min().unwrap_or(DEFAULT_COMPILE_TIMEOUT)
    }
}

/// Answers wasmtime's questions whether something may grow, and remembers what it refused.
pub(crate) struct Limiter {
    link: Arc<HeapLink>,
    memory_limit_bytes: u64,
    pub(crate) peak_volatile_bytes: u64,
    pub(crate) refused_memory: Option<MemoryLimitHit>,
    pub(crate) refused_table: Option<String>,
    table_elements: usize,
}

impl Limiter {
    pub(crate) fn new(link: Arc<HeapLink>, memory_limit_bytes: u64) -> Self {
        Limiter {
            link,
            memory_limit_bytes,
            peak_volatile_bytes: 0,
            refused_memory: None,
            refused_table: None,
            table_elements: 0,
        }
    }
}

impl ResourceLimiter for Limiter {
    fn memory_growing(
        &mut self,
        _current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if self.link.is_attaching() {
            return Ok(true);
        }
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let wanted_bytes = self.link.layout().volatile_bytes_at(desired as u64);
        if wanted_bytes > self.memory_limit_bytes {
            self.refused_memory =
                Some(MemoryLimitHit { limit_bytes: self.memory_limit_bytes, wanted_bytes });
            return Ok(false);
        }
        self.peak_volatile_bytes = self.peak_volatile_bytes.max(wanted_bytes);
        Ok(true)
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        maximum: Option<usize>,
    ) -> wasmtime::Result<bool> {
        if maximum.is_some_and(|maximum| desired > maximum) {
            return Ok(false);
        }
        let elements = self.table_elements.saturating_add(desired.saturating_sub(current));
        if elements > TABLE_ELEMENTS_MAX {
            self.refused_table = Some(format!("table entries ({TABLE_ELEMENTS_MAX})"));
            return Ok(false);
        }
        self.table_elements = elements;
        Ok(true)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        TABLES_MAX
    }

    fn memories(&self) -> usize {
        1
    }
}
