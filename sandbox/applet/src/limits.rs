//! The limits of an applet, whichever sandbox it runs in.
//!
//! Invariant: a limit that the sandbox of an applet cannot keep is refused before the applet
//! starts; of those that apply to what is done, none is dropped in silence.
#![forbid(unsafe_code)]

use std::time::Duration;

use holdfast_jail::JailLimits;
use holdfast_wasm::{
    CompileIn, DEFAULT_COMPILE_MEMORY_BYTES, DEFAULT_MEMORY_LIMIT_BYTES, DEFAULT_TEXT_BYTES,
};

use crate::error::Failure;
use crate::kind::SandboxKind;

const MIB: u64 = 1 << 20;

/// Limits of one applet. The heap's own limit is not among them: it belongs to the heap.
///
/// What a field says holds for both kinds of applets unless it names one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Wall time of a run ([`Command::run`](crate::Command::run)), compiling and waiting included;
    /// `None` is no limit.
    pub timeout: Option<Duration>,
    /// Wall time of each call, unless the call brings a deadline of its own; `None` is no limit.
    pub call_timeout: Option<Duration>,
    /// Wall time from the start until the applet serves.
    pub start_timeout: Duration,
    /// How long an applet that was asked to cancel a call, or to end, may take before it is killed.
    pub grace: Duration,
    /// WebAssembly: wall time for compiling an applet that is not in the cache; never more than
    /// `timeout`. `None` is as long as `timeout` allows; without one, `start_timeout` for an applet
    /// that is to serve and five minutes for a run.
    pub compile_timeout: Option<Duration>,
    /// WebAssembly: memory that compiling may take, in bytes.
    pub compile_memory_bytes: u64,
    /// WebAssembly: where an applet is compiled.
    pub compile_in: CompileIn,
    /// WebAssembly: the largest program in the text format, in bytes.
    pub text_bytes: u64,
    /// Volatile memory: linear memory, or for a native applet address space besides the heap and
    /// shared buffers.
    pub memory_bytes: u64,
    /// WebAssembly: fuel (about one unit per instruction) for a run, or for each call; `None` is no
    /// limit and no cost of counting.
    pub fuel: Option<u64>,
    /// Native: processor time in all, in whole seconds; `None` is no limit.
    pub cpu_time: Option<Duration>,
    /// Native: threads at a time, the first one included.
    pub threads: u32,
    /// Native: how much the applet yields to other processes, from 0 (not at all) to 19.
    pub nice: i32,
    /// Bytes of the result of one call, all its parts together, and of one part of a result that is
    /// streamed. One message has at most 64 MiB: a larger result comes in parts.
    pub result_bytes: usize,
    /// Shared buffers of all calls together.
    pub buffer_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            timeout: None,
            call_timeout: None,
            start_timeout: Duration::from_secs(30),
            grace: Duration::from_millis(200),
            compile_timeout: None,
            compile_memory_bytes: DEFAULT_COMPILE_MEMORY_BYTES,
            compile_in: CompileIn::default(),
            text_bytes: DEFAULT_TEXT_BYTES,
            memory_bytes: DEFAULT_MEMORY_LIMIT_BYTES,
            fuel: None,
            cpu_time: None,
            threads: 16,
            nice: 0,
            result_bytes: 64 << 20,
            buffer_bytes: 64 * MIB,
        }
    }
}

impl Limits {
    /// The limits of a sandbox for WebAssembly.
    pub(crate) fn for_wasm(&self) -> Result<holdfast_wasm::WasmLimits, Failure> {
        let default = Limits::default();
        refuse(self.cpu_time.is_some(), "cpu_time", SandboxKind::Wasm, "use a timeout or fuel")?;
        refuse(
            self.nice != default.nice,
            "nice",
            SandboxKind::Wasm,
            "it runs on the caller's thread",
        )?;
        let mut limits = holdfast_wasm::WasmLimits::default();
        limits.timeout = self.timeout;
        limits.compile_timeout = self.compile_timeout;
        limits.compile_memory_bytes = self.compile_memory_bytes;
        limits.compile_in = self.compile_in;
        limits.text_bytes = self.text_bytes;
        limits.memory_bytes = self.memory_bytes;
        limits.fuel = self.fuel;
        Ok(limits)
    }

    /// The limits of a native applet, with so much address space for its heap and shared memory, of
    /// which so much is mapped privately.
    pub(crate) fn for_jail(
        &self,
        mapped_bytes: u64,
        private_bytes: u64,
    ) -> Result<JailLimits, Failure> {
        refuse(self.fuel.is_some(), "fuel", SandboxKind::Native, "use a timeout or cpu_time")?;
        Ok(JailLimits {
            address_space_bytes: self.memory_bytes.saturating_add(mapped_bytes),
            private_bytes: self.memory_bytes.saturating_add(private_bytes),
            cpu_time: self.cpu_time,
            threads: self.threads,
            nice: self.nice,
            ..JailLimits::default()
        })
    }
}

fn refuse(
    is_set: bool,
    limit: &'static str,
    kind: SandboxKind,
    instead: &'static str,
) -> Result<(), Failure> {
    if is_set { Err(Failure::LimitNotOffered { limit, kind, instead }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A sandbox that cannot enforce a limit refuses it and names it.
    ///
    /// Guarantee: sandbox/limits-are-named
    #[test]
    fn unsupported_limit_is_refused_by_name() {
        let fuel = Limits { fuel: Some(1), ..Limits::default() };
        assert!(fuel.for_wasm().is_ok());
        let refused = fuel.for_jail(0, 0).map(drop).unwrap_err();
        assert!(refused.to_string().contains("fuel"), "{refused}");
        let cpu = Limits { cpu_time: Some(Duration::from_secs(1)), ..Limits::default() };
        assert!(cpu.for_wasm().is_err() && cpu.for_jail(0, 0).is_ok());
    }
}
