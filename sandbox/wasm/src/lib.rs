//! The WebAssembly sandbox: runs an untrusted program whose heap is a persistent region.
//!
//! [`run`] takes a [`Program`], what it may use ([`RunOptions`]), and the regions that become its
//! heaps ([`Heaps`]); it returns how the program ended and the regions. The program sees its heaps
//! inside of its linear memory, from [`HEAP_BASE`] on, and reads and writes them with ordinary
//! loads and stores.
//!
//! Invariants:
//! - Nothing outside of its linear memory is reachable for a program but what [`RunOptions`]
//!   grants.
//! - Nothing that a program does ends this process or outlives its time limit, with the exceptions
//!   that [`run`] documents.
//! - This crate knows nothing of what is *in* a region.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "maps shared memory into a linear memory")]
mod arena;
#[allow(unsafe_code, reason = "loads compiled code that it wrote itself")]
mod cache;
#[allow(unsafe_code, reason = "changes the stack")]
mod callers_stack;
mod code;
mod compiler;
mod complexity;
mod control;
mod crossings;
mod descriptors;
#[allow(unsafe_code, reason = "loads compiled code that the compiler's process wrote")]
mod engine;
mod error;
mod execution;
mod explain;
mod grant;
mod heap_link;
mod heaps;
mod host_functions;
mod host_imports;
mod imports;
mod launch;
mod layout;
mod limits;
#[allow(unsafe_code, reason = "implements wasmtime's unsafe memory traits")]
mod linear_memory;
mod mailbox;
mod messages;
mod metrics;
mod names;
mod program;
mod run;
mod serving;
mod state;
mod stdio;
mod ticker;
mod wasi;

pub use arena::{ARENA_BYTES_MAX, BufferArena};
pub use compiler::{CompilerCommand, run_compiler, set_compiler_command, try_compiler};
pub use control::Interrupt;
pub use error::{Frame, MemoryLimitHit, TrapCause, TrapReport, WasmError};
pub use grant::{DirGrant, GrantError};
pub use heaps::{GrantedHeap, HeapRequest, HeapRequestError, Heaps, HeapsError};
pub use holdfast_channel::Header;
pub use holdfast_types::PathAccess;
pub use host_functions::{
    HOST_FUNCTION_NAME_BYTES_MAX, HOST_FUNCTIONS_MAX, HostCall, HostFunction, HostFunctionError,
    HostFunctions, HostFunctionsError, Returned, call_chain,
};
pub use imports::MODULE as IMPORT_MODULE;
pub use layout::{HEAP_BASE, MAX_HEAP_LIMIT_BYTES};
pub use limits::{
    CompileIn, DEFAULT_COMPILE_MEMORY_BYTES, DEFAULT_MEMORY_LIMIT_BYTES, DEFAULT_TEXT_BYTES,
    WasmLimits,
};
pub use mailbox::PAYLOAD_BYTES_MAX;
pub use metrics::WasmMetrics;
pub use program::Program;
pub use run::{Finished, RunOptions, run};
pub use serving::{Received, SendError, Serving, serve};
pub use stdio::{Input, Output, Stdio};
