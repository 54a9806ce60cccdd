//! Why a run failed. Fields carry what happened; each message says what to do next.
#![forbid(unsafe_code)]

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use holdfast_region::RegionError;
use holdfast_types::AppletLimit;
use holdfast_types::Remedy::{self, RaiseAppletLimit};

use crate::heaps::HeapsError;
use crate::host_functions::HostFunctionsError;
use crate::layout::MAX_HEAP_LIMIT_BYTES;

/// Why an applet could not be loaded, or how its run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WasmError {
    /// The applet's file cannot be read.
    #[error("cannot read the applet {}: {source}; check the path", path.display())]
    CannotRead {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// What was read is not what the host expects.
    #[error("{} was replaced or changed after it was examined; start it again", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
    },
    /// The file is something else.
    #[error(
        "{applet} is neither WebAssembly nor a native program (it starts with {}); give a .wasm, .wat or ELF file, and \
         for a script its interpreter",
        show_bytes(start)
    )]
    NotWasm {
        /// The applet.
        applet: String,
        /// Its first bytes.
        start: Vec<u8>,
    },
    /// It looks like WebAssembly but cannot be run.
    #[error("{applet} cannot be loaded: {reason}; build it for wasm32-wasip1")]
    Invalid {
        /// The applet.
        applet: String,
        /// What is wrong with it.
        reason: String,
    },
    /// One of its functions would take the compiler too long, or too much memory.
    #[error(
        "{applet} cannot be compiled in bounded time: its function {} has {found} {what}, and {limit} is the limit; \
         split the function, or build it with another optimisation level",
        match function { Some(name) => format!("`{name}`"), None => format!("number {function_index}") }
    )]
    TooComplex {
        /// The applet.
        applet: String,
        /// Index of the function in the module.
        function_index: u32,
        /// Its demangled name, when the applet has names.
        function: Option<String>,
        /// What it has too much of.
        what: String,
        /// How much it has.
        found: usize,
        /// How much it may have.
        limit: usize,
    },
    /// All of it together would take the compiler or the host too much memory.
    #[error(
        "{applet} cannot be compiled in bounded memory: it has {found} {what}, and {limit} is the limit; split it"
    )]
    TooMany {
        /// The applet.
        applet: String,
        /// What it has too much of.
        what: String,
        /// How much it has.
        found: usize,
        /// How much it may have.
        limit: usize,
    },
    /// It is a large program in the text format.
    #[error(
        "{applet} is WebAssembly in the text format, of {bytes} bytes, and {limit_bytes} is the limit for text; convert \
         it to .wasm, or {}",
        RaiseAppletLimit(AppletLimit::Text)
    )]
    TextTooLarge {
        /// The applet.
        applet: String,
        /// Its size.
        bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// Compiling it took longer than it may.
    #[error(
        "{applet} was not compiled within {limit:?}; {} for the first run: what was compiled is kept",
        RaiseAppletLimit(AppletLimit::CompileTime)
    )]
    CompileTimeLimit {
        /// The applet.
        applet: String,
        /// The limit (wall time).
        limit: Duration,
    },
    /// Compiling it took more memory than it may.
    #[error(
        "{applet} was not compiled within {limit_bytes} bytes of memory; {} if it is no attack: what \
         was compiled is kept",
        RaiseAppletLimit(AppletLimit::CompileMemory)
    )]
    CompileMemoryLimit {
        /// The applet.
        applet: String,
        /// The limit.
        limit_bytes: u64,
    },
    /// The process that compiles could not be started, or not be confined.
    #[error(
        "the process that compiles applets cannot be started: {reason}; {}, or run applets that are \
         compiled already",
        Remedy::ExamineMachine
    )]
    CompilerStart {
        /// What went wrong, in words.
        reason: String,
    },
    /// The process that compiles ended without a result.
    #[error(
        "{applet} was not compiled: the compiler's process died: {how}; this host and its heaps are unharmed"
    )]
    CompilerDied {
        /// The applet.
        applet: String,
        /// How, and what it said.
        how: String,
    },
    /// It imports something that Holdfast does not offer.
    #[error("{applet} imports {module}.{name}, which does not exist here; {hint}")]
    UnknownImport {
        /// The applet.
        applet: String,
        /// Module of the import.
        module: String,
        /// Name of the import.
        name: String,
        /// What exists, or what to do.
        hint: String,
    },
    /// It has no entry point.
    #[error("{applet} exports no function `_start`, so it is not a program; {hint}")]
    NoStart {
        /// The applet.
        applet: String,
        /// What to do.
        hint: String,
    },
    /// It did something that WebAssembly forbids.
    #[error("{0}")]
    Trap(Box<TrapReport>),
    /// It ran longer than it was allowed to.
    #[error(
        "the applet was stopped {} at its time limit of {limit:?}; {} if it needs longer",
        if *waiting { "while it waited for input or a clock".to_owned() } else { in_function(function) },
        RaiseAppletLimit(AppletLimit::RunTime)
    )]
    TimeLimit {
        /// The limit (wall time).
        limit: Duration,
        /// The function that was running, when known.
        function: Option<String>,
        /// Whether the applet was waiting in a host call rather than computing.
        waiting: bool,
    },
    /// A caller stopped it: see [`Interrupt`](crate::Interrupt).
    #[error(
        "the applet was stopped {}: {reason}",
        if *waiting { "while it waited".to_owned() } else { in_function(function) }
    )]
    Interrupted {
        /// The words of a caller that stopped it.
        reason: String,
        /// The function that was running, when known.
        function: Option<String>,
        /// Whether the applet was waiting in a host call rather than computing.
        waiting: bool,
    },
    /// It used up its fuel.
    #[error(
        "the applet was stopped {} after its {limit} units of fuel; {} if it needs more",
        in_function(function),
        RaiseAppletLimit(AppletLimit::Fuel)
    )]
    OutOfFuel {
        /// The fuel given.
        limit: u64,
        /// The function that was running.
        function: Option<String>,
    },
    /// It needs more memory to start than it may have.
    #[error(
        "{applet} needs {needed_bytes} bytes of memory to start and may have {limit_bytes}; {}",
        RaiseAppletLimit(AppletLimit::Memory)
    )]
    MemoryLimit {
        /// The applet.
        applet: String,
        /// What it declares as its smallest memory.
        needed_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
    /// It needs larger tables than it may have.
    #[error("{applet} exceeds the limit on {what}; such programs are refused")]
    TableLimit {
        /// The applet.
        applet: String,
        /// Which limit.
        what: String,
    },
    /// It passed a pointer to the host that points to no memory.
    #[error(
        "the applet was stopped {}: host access outside the heap and memory of the applet \
         (it passed a pointer that lies {place}); this is a bug in the applet",
        in_function(function)
    )]
    HostAccess {
        /// The function that was running.
        function: Option<String>,
        /// Where the pointer led.
        place: &'static str,
    },
    /// It had the host store to a heap that it may only read.
    #[error(
        "the applet was stopped {}: it had the host store to its heap, which this run may only read; {}",
        in_function(function),
        Remedy::GrantWriting { heap: None }
    )]
    ReadOnlyHeap {
        /// The function that was running.
        function: Option<String>,
    },
    /// The heap is too large for a linear memory.
    #[error(
        "the heap {name:?} has a limit of {limit_bytes} bytes and a WebAssembly applet can use {MAX_HEAP_LIMIT_BYTES} \
         (1792 MiB) at most; {}, or use another heap",
        Remedy::LowerLimit { heap: name }
    )]
    HeapTooLarge {
        /// The heap's name.
        name: String,
        /// Its limit.
        limit_bytes: u64,
    },
    /// The pointers of two heaps refer to the same addresses of a linear memory.
    #[error(
        "the heaps {first:?} and {second:?} cannot be granted to one WebAssembly applet: the pointers of both refer to \
         {base:#x} of its memory; make one of them anew in a run that has both, or give it the portable layout"
    )]
    HeapsOverlap {
        /// The name of the one that was granted first.
        first: String,
        /// The name of the other.
        second: String,
        /// The linear offset.
        base: u64,
    },
    /// A heap has more room than there is where its pointers refer to.
    #[error(
        "the pointers of the heap {name:?} refer to {base:#x} of a WebAssembly memory, where there is no room for its \
         limit of {limit_bytes} bytes; {}",
        Remedy::LowerLimit { heap: name }
    )]
    HeapPlace {
        /// The heap's name.
        name: String,
        /// Its limit.
        limit_bytes: u64,
        /// The linear offset.
        base: u64,
    },
    /// The other heaps leave no room in a linear memory.
    #[error(
        "a WebAssembly applet has no room for the heap {name:?} beside the others that are granted; all of them together \
         can have {MAX_HEAP_LIMIT_BYTES} bytes (1792 MiB); {}, or grant fewer",
        Remedy::LowerLimit { heap: name }
    )]
    NoRoomForHeap {
        /// The heap's name.
        name: String,
    },
    /// The heaps cannot be granted together.
    #[error(transparent)]
    Heaps(#[from] HeapsError),
    /// The host functions cannot be granted so.
    #[error(transparent)]
    HostFunctions(#[from] HostFunctionsError),
    /// The heap failed underneath the applet.
    #[error(transparent)]
    Heap(#[from] RegionError),
    /// The memory for shared buffers cannot be used.
    #[error("the memory for shared buffers cannot be given to an applet: {reason}")]
    Arena {
        /// What is wrong with it.
        reason: String,
    },
    /// A directory cannot be granted.
    #[error("cannot grant the directory {}: {reason}; check that path", path.display())]
    Grant {
        /// The directory on the host.
        path: PathBuf,
        /// What went wrong, in words.
        reason: String,
    },
    /// The host side failed.
    #[error("cannot {step}: {reason}; this is no fault of the applet")]
    Host {
        /// What was attempted, as a verb.
        step: &'static str,
        /// Why it failed.
        reason: String,
    },
}

/// What is known about a trap.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrapReport {
    /// What went wrong.
    pub cause: TrapCause,
    /// The function in which it went wrong, demangled; `None` when the applet has no names.
    pub function: Option<String>,
    /// All frames, innermost first.
    pub frames: Vec<Frame>,
    /// Set when the applet had asked for memory past its limit before.
    pub memory_limit: Option<MemoryLimitHit>,
}

/// A request for memory that was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimitHit {
    /// The limit of volatile memory.
    pub limit_bytes: u64,
    /// What the applet wanted to have in all.
    pub wanted_bytes: u64,
}

/// One call on the applet's stack.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// Demangled name, when the applet has names.
    pub function: Option<String>,
    /// Index of the function in the module.
    pub function_index: u32,
    /// Offset of the instruction in the module's file.
    pub module_offset: Option<usize>,
}

/// What an applet did wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TrapCause {
    /// It ran into `unreachable`: what a panic or an abort compiles to.
    Unreachable,
    /// A load or store outside of what exists.
    OutOfBounds {
        /// The linear address, when known.
        address: Option<u64>,
        /// What lies there.
        place: Option<&'static str>,
    },
    /// A store to a heap that it may only read.
    ReadOnlyHeap {
        /// The linear address.
        address: u64,
    },
    /// Integer division by zero.
    DivisionByZero,
    /// Integer overflow.
    IntegerOverflow,
    /// A float that fits no integer was converted to one.
    BadConversion,
    /// Too many nested calls.
    StackOverflow,
    /// An indirect call to nothing, or with another signature.
    BadIndirectCall {
        /// What exactly.
        detail: String,
    },
    /// A function of the host ended the applet.
    HostCall {
        /// Its reason.
        detail: String,
    },
    /// Anything else.
    Other {
        /// In the runtime's words.
        detail: String,
    },
}

impl fmt::Display for TrapCause {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TrapCause::Unreachable => write!(formatter, "it panicked or aborted (`unreachable`)"),
            TrapCause::OutOfBounds { address: Some(address), place: Some(place) } => {
                write!(formatter, "memory access out of bounds at {address:#x}, {place}")
            }
            TrapCause::OutOfBounds { .. } => write!(formatter, "memory access out of bounds"),
            TrapCause::ReadOnlyHeap { address } => write!(
                formatter,
                "it stored to its heap at {address:#x}, which this run may only read; {}",
                Remedy::GrantWriting { heap: None }
            ),
            TrapCause::DivisionByZero => write!(formatter, "integer division by zero"),
            TrapCause::IntegerOverflow => write!(formatter, "integer overflow"),
            TrapCause::BadConversion => {
                write!(formatter, "a number that fits no integer was converted to one")
            }
            TrapCause::StackOverflow => write!(formatter, "stack overflow (too many nested calls)"),
            TrapCause::BadIndirectCall { detail } => {
                write!(formatter, "bad indirect call: {detail}")
            }
            TrapCause::HostCall { detail } => {
                write!(formatter, "a host function refused: {detail}")
            }
            TrapCause::Other { detail } => write!(formatter, "{detail}"),
        }
    }
}

impl fmt::Display for TrapReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "the applet trapped {}: {}", in_function(&self.function), self.cause)?;
        if let Some(hit) = &self.memory_limit {
            write!(
                formatter,
                " (before that, its memory limit of {} bytes was reached when it asked for {}; {})",
                hit.limit_bytes,
                hit.wanted_bytes,
                RaiseAppletLimit(AppletLimit::Memory)
            )?;
        }
        Ok(())
    }
}

impl WasmError {
    pub(crate) fn host(step: &'static str, reason: impl ToString) -> WasmError {
        WasmError::Host { step, reason: reason.to_string() }
    }
}

fn in_function(function: &Option<String>) -> String {
    match function {
        Some(name) => format!("in `{name}`"),
        None => "in an unnamed function".to_owned(),
    }
}

fn show_bytes(start: &[u8]) -> String {
    if start.is_empty() {
        return "nothing, it is empty".to_owned();
    }
    start.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}
