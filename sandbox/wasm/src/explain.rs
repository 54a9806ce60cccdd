//! Turns what wasmtime reports into the errors of this crate.
#![forbid(unsafe_code)]

use wasmtime::{Error, ExternType, Module, Trap, UnknownImportError, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::error::{Frame, MemoryLimitHit, TrapCause, TrapReport, WasmError};
use crate::imports;
use crate::layout::Layout;
use crate::limits::TABLES_MAX;
use crate::names::{self, Bounded};
use crate::state::StopCause;

/// How wasmtime words the address of a memory fault, for want of a typed accessor; a test notices a
/// change.
const FAULT_PREFIX: &str = "memory fault at wasm address 0x";

/// Longer than the beginning of such a text, with the address and what follows it.
const FAULT_BYTES_MAX: usize = 128;

/// How a call into the applet ended, before limits and heap are considered.
pub(crate) enum Ended {
    Exited(i32),
    /// By the host.
    Stopped(StopCause, Option<String>),
    OutOfFuel(Option<String>),
    Trapped(Box<TrapReport>),
}

impl Ended {
    /// The function that was running at the end, as far as that is known.
    pub(crate) fn function(&self) -> Option<String> {
        match self {
            Ended::Stopped(_, function) | Ended::OutOfFuel(function) => function.clone(),
            Ended::Trapped(report) => report.function.clone(),
            Ended::Exited(_) => None,
        }
    }
}

/// Sorts out the error with which a call into the applet ended.
pub(crate) fn ended(error: &Error, layout: &Layout, memory_limit: Option<MemoryLimitHit>) -> Ended {
    if let Some(I32Exit(status)) = error.downcast_ref::<I32Exit>() {
        return Ended::Exited(*status);
    }
    let frames = frames(error);
    let function = frames.iter().find_map(|frame| frame.function.clone());
    if let Some(stop) = error.downcast_ref::<StopCause>() {
        return Ended::Stopped(*stop, function);
    }
    let cause = match error.downcast_ref::<Trap>() {
        Some(Trap::OutOfFuel) => return Ended::OutOfFuel(function),
        Some(trap) => trap_cause(*trap, error, layout),
        None => TrapCause::HostCall { detail: names::escaped(&error.root_cause().to_string()) },
    };
    Ended::Trapped(Box::new(TrapReport { cause, function, frames, memory_limit }))
}

fn trap_cause(trap: Trap, error: &Error, layout: &Layout) -> TrapCause {
    match trap {
        Trap::UnreachableCodeReached => TrapCause::Unreachable,
        Trap::MemoryOutOfBounds => {
            let address = fault_address(error);
            if let Some(address) = address.filter(|address| layout.is_read_only_at(*address)) {
                return TrapCause::ReadOnlyHeap { address };
            }
            TrapCause::OutOfBounds {
                address,
                place: address.map(|address| layout.describe(address)),
            }
        }
        Trap::IntegerDivisionByZero => TrapCause::DivisionByZero,
        Trap::IntegerOverflow => TrapCause::IntegerOverflow,
        Trap::BadConversionToInteger => TrapCause::BadConversion,
        Trap::StackOverflow => TrapCause::StackOverflow,
        Trap::TableOutOfBounds | Trap::IndirectCallToNull | Trap::BadSignature => {
            TrapCause::BadIndirectCall { detail: without_prefix(trap) }
        }
        other => TrapCause::Other { detail: without_prefix(other) },
    }
}

fn without_prefix(trap: Trap) -> String {
    let text = trap.to_string();
    text.strip_prefix("wasm trap: ").map(str::to_owned).unwrap_or(text)
}

fn fault_address(error: &Error) -> Option<u64> {
    error.chain().find_map(|cause| {
        // One of the causes is the whole backtrace, of which no more than the beginning is wanted.
        let text = Bounded::show(cause, FAULT_BYTES_MAX).unwrap_or_else(|beginning| beginning);
        let digits = text.strip_prefix(FAULT_PREFIX)?;
        let end = digits.find(|c: char| !c.is_ascii_hexdigit())?;
        u64::from_str_radix(&digits[..end], 16).ok()
    })
}

fn frames(error: &Error) -> Vec<Frame> {
    let Some(backtrace) = error.downcast_ref::<WasmBacktrace>() else { return Vec::new() };
    backtrace
        .frames()
        .iter()
        .map(|frame| Frame {
            function: frame.func_name().map(names::function),
            function_index: frame.func_index(),
            module_offset: frame.module_offset(),
        })
        .collect()
}

/// Why a module could not be linked.
pub(crate) fn link_error(applet: &str, error: &Error) -> WasmError {
    let applet = applet.to_owned();
    match error.downcast_ref::<UnknownImportError>() {
        Some(unknown) => {
            let (module, name) = (names::shown(unknown.module()), names::shown(unknown.name()));
            let hint = import_hint(unknown.module(), &unknown.ty());
            WasmError::UnknownImport { applet, module, name, hint }
        }
        None => WasmError::Invalid { applet, reason: names::lines(&format!("{error:#}")) },
    }
}

fn import_hint(module: &str, ty: &ExternType) -> String {
    match module {
        _ if matches!(ty, ExternType::Memory(_) | ExternType::Table(_)) => {
            "an applet brings its own memory and tables: link it without `--import-memory` and `--import-table`"
                .to_owned()
        }
        imports::MODULE => format!("module `holdfast` offers {}", imports::OFFER),
        "wasi_snapshot_preview1" => {
            "it is no function of WASI preview 1, and Holdfast offers no other version".to_owned()
        }
        other if other.starts_with("wasi") => {
            "Holdfast offers WASI preview 1 (`wasi_snapshot_preview1`): build for wasm32-wasip1"
                .to_owned()
        }
        "env" => {
            "`env` usually means a function without a definition: link the library that has it"
                .to_owned()
        }
        _ => "an applet can import `wasi_snapshot_preview1` and `holdfast` only".to_owned(),
    }
}

/// The refusal of a module that has more tables than an applet may have.
pub(crate) fn too_many_tables(applet: &str, module: &Module) -> Option<WasmError> {
    let is_over = module.resources_required().num_tables as usize > TABLES_MAX;
    is_over.then(|| WasmError::TableLimit {
        applet: applet.to_owned(),
        what: format!("tables ({TABLES_MAX})"),
    })
}

/// Why a module is no program, if it is none.
pub(crate) fn missing_start(applet: &str, module: &Module) -> Option<WasmError> {
    let is_start = |ty: ExternType| {
        ty.func().is_some_and(|ty| ty.params().len() == 0 && ty.results().len() == 0)
    };
    if module.get_export("_start").is_some_and(is_start) {
        return None;
    }
    let hint = if module.get_export("_start").is_some() {
        "its `_start` takes parameters or returns something; a program's does neither"
    } else if module.get_export("_initialize").is_some() {
        "it is a library (reactor); build it as a command"
    } else {
        "build it as a program (with a `main`) for wasm32-wasip1"
    };
    Some(WasmError::NoStart { applet: applet.to_owned(), hint: hint.to_owned() })
}
