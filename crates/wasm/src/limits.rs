//! What an applet may use, and the accounting of it.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use wasmtime::ResourceLimiter;

use crate::error::MemoryLimitHit;
use crate::heap_link::HeapLink;

/// Volatile memory that an applet may have unless told otherwise.
pub const DEFAULT_MEMORY_LIMIT_BYTES: u64 = 1 << 30;
/// Entries of all tables of an applet together; a compiler emits one per function whose address is taken.
const TABLE_ELEMENTS_MAX: usize = 1 << 20;
/// Tables in an applet; compilers emit one or two.
const TABLES_MAX: usize = 16;

/// Limits of one run. The heap's own limit is not among them: it belongs to the heap.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Limits {
    /// Wall time from instantiation to the end, waiting included; `None` is no limit.
    pub timeout: Option<Duration>,
    /// Wall time for compiling an applet that is not in the cache. By default, as long as `timeout` allows, and at
    /// least half a minute; without a `timeout`, no limit.
    pub compile_timeout: Option<Duration>,
    /// Volatile linear memory.
    pub memory_bytes: u64,
    /// Fuel (about one unit per instruction); `None` is no limit and no cost of counting.
    pub fuel: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { timeout: None, compile_timeout: None, memory_bytes: DEFAULT_MEMORY_LIMIT_BYTES, fuel: None }
    }
}

/// The least that compiling may take: it is done once, and what it costs does not depend on how short a run is to be.
const COMPILE_TIMEOUT_MIN: Duration = Duration::from_secs(30);

impl Limits {
    /// What compiling may take.
    pub(crate) fn compile_limit(&self) -> Option<Duration> {
        self.compile_timeout.or(self.timeout.map(|timeout| timeout.max(COMPILE_TIMEOUT_MIN)))
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
            self.refused_memory = Some(MemoryLimitHit { limit_bytes: self.memory_limit_bytes, wanted_bytes });
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
