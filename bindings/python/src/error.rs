//! Failures as Python's exceptions: which class, its text, its fields.
//!
//! The classes are in `python/holdfast/_errors.py`. Each takes the text and then fields by name.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::time::Duration;

use holdfast_applet::{
    AppletError, CallError, CloseError, End, Failure, FailureKind, KillReason, Recovery, Violation,
    WasmError,
};
use holdfast_identity::{IdentityError, OwnershipError};
use holdfast_region::{ErrorKind, KeyError, RegionError};
use holdfast_types::{AppletLimit, HowTo, Remedy};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyDict, PyTuple, PyType};

use crate::metrics;
use crate::turn::NoTurn;

/// The classes of `_errors.py`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Class {
    AppletBusy,
    AppletCrashed,
    AppletError,
    AppletGone,
    AppletLimit,
    AppletNotFound,
    AppletTimeout,
    CallError,
    CallFailed,
    Cancelled,
    ChangeRefused,
    Closed,
    DocumentDamaged,
    DocumentError,
    DocumentNotFound,
    DocumentTooLarge,
    ForeignBuffer,
    Forked,
    HeapDamaged,
    HeapDenied,
    HeapError,
    HeapHeld,
    HeapNoRoom,
    HeapNotFound,
    HostFunctionError,
    NoBuffer,
    PolicyViolation,
    ResultTooLarge,
    RootExists,
    RootNotFound,
    SelectorError,
    TransactionError,
    UnknownFunction,
}

/// How Python carries a remedy out; by the command, which the package brings, where no class has
/// it.
pub(crate) static IN_PYTHON: HowTo = |remedy, f| match remedy {
    Remedy::RaiseAppletLimit(limit) => write!(f, " ({})", field_of(*limit)),
    Remedy::OpenCompartment => f.write_str(" (`HeapGrant(PARENT, compartment=WORKER)`)"),
    other => holdfast_remedies::command(other, f),
};

/// The field of `Limits`, or the argument, that sets a limit.
fn field_of(limit: AppletLimit) -> &'static str {
    match limit {
        AppletLimit::Buffers => "buffers",
        AppletLimit::CompileMemory => "compile_memory",
        AppletLimit::CompileTime => "timeout of a run, compile_timeout of an applet",
        AppletLimit::Memory => "memory",
        AppletLimit::Result => "result",
        AppletLimit::RunTime => "call_timeout",
        AppletLimit::Text => "text",
        other => other.field(),
    }
}

/// Fields of an exception, by name.
pub(crate) trait Fields {
    /// Puts them in.
    fn put(self, fields: &Bound<'_, PyDict>) -> PyResult<()>;
}

impl Fields for () {
    fn put(self, _: &Bound<'_, PyDict>) -> PyResult<()> {
        Ok(())
    }
}

impl<F: FnOnce(&Bound<'_, PyDict>) -> PyResult<()>> Fields for F {
    fn put(self, fields: &Bound<'_, PyDict>) -> PyResult<()> {
        self(fields)
    }
}

impl Class {
    /// The class itself.
    pub(crate) fn python(self, py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
        static MODULE: PyOnceLock<Py<PyModule>> = PyOnceLock::new();
        let module = MODULE
            .get_or_try_init(py, || py.import("holdfast._errors").map(Bound::unbind))?
            .bind(py);
        Ok(module.getattr(format!("{self:?}"))?.cast_into::<PyType>()?)
    }
}

/// An exception of the class; whatever fails on the way is the exception instead.
pub(crate) fn raise(
    py: Python<'_>,
    class: Class,
    text: impl ToString,
    fields: impl Fields,
) -> PyErr {
    let make = || {
        let class = class.python(py)?;
        let named = PyDict::new(py);
        fields.put(&named)?;
        Ok(PyErr::from_value(class.call((text.to_string(),), Some(&named))?))
    };
    make().unwrap_or_else(|error: PyErr| error)
}

/// The exception with more at the end of its text.
pub(crate) fn extend(py: Python<'_>, error: PyErr, more: &[String]) -> PyErr {
    if more.is_empty() {
        return error;
    }
    let mut text = error.value(py).to_string();
    for part in more {
        text.push_str("; ");
        text.push_str(part);
    }
    match error.value(py).setattr("args", (text,)) {
        Ok(()) => error,
        Err(other) => other,
    }
}

/// Why a call has no result. `known_death` is what an earlier call has told already.
pub(crate) fn call_error(
    py: Python<'_>,
    error: &CallError,
    known_death: Option<&Arc<AppletError>>,
) -> PyErr {
    match error {
        CallError::UnknownFunction { name, known } => {
            raise(py, Class::UnknownFunction, error, |fields: &Bound<'_, PyDict>| {
                fields.set_item("name", name)?;
                fields.set_item("known", PyTuple::new(py, known)?)
            })
        }
        CallError::Failed { code, message } => {
            raise(py, Class::CallFailed, error, |fields: &Bound<'_, PyDict>| {
                fields.set_item("code", code)?;
                fields.set_item("message", message)
            })
        }
        CallError::ResultTooLarge { limit_bytes } => {
            raise(py, Class::ResultTooLarge, error, |fields: &Bound<'_, PyDict>| {
                fields.set_item("limit_bytes", limit_bytes)
            })
        }
        CallError::Cancelled => cancelled(py, error, true),
        CallError::ForeignBuffer => raise(py, Class::ForeignBuffer, error, ()),
        CallError::NoBuffer { .. } => raise(py, Class::NoBuffer, error, ()),
        CallError::NotPublished(cause) => region_error(py, cause),
        CallError::Died(death) if known_death.is_some_and(|known| Arc::ptr_eq(known, death)) => {
            let text =
                format!("the applet is gone ({death}); respawn() starts it anew on its heap");
            let gone = raise(py, Class::AppletGone, text, |fields: &Bound<'_, PyDict>| {
                common(death, fields)
            });
            gone.set_cause(py, Some(applet_error(py, death)));
            gone
        }
        CallError::Died(death) => applet_error(py, death),
        other => raise(py, Class::CallError, other, ()),
    }
}

/// Why a call was not made.
pub(crate) fn no_turn(py: Python<'_>, why: NoTurn) -> PyErr {
    match why {
        NoTurn::TimeLimit(limit) => {
            let text = format!(
                "another thread's call of the applet was still running after {limit:?}, so this one was not made; raise \
                 timeout, cancel() the other call, or use several applets (Pool)"
            );
            raise(py, Class::AppletBusy, text, |fields: &Bound<'_, PyDict>| {
                fields.set_item("limit_seconds", limit.as_secs_f64())
            })
        }
        NoTurn::GivenUp => cancelled(py, "the call was cancelled before it was made", true),
    }
}

/// What an applet died of, or why it did not start.
pub(crate) fn applet_error(py: Python<'_>, error: &AppletError) -> PyErr {
    let (class, special) = match &error.failure {
        Failure::Heap(cause) | Failure::Wasm(WasmError::Heap(cause)) => {
            return region_error(py, cause);
        }
        Failure::Identity(IdentityError::Ownership(OwnershipError::Region(cause))) => {
            return region_error(py, cause);
        }
        Failure::Identity(IdentityError::Ownership(refused)) => {
            return raise(py, Class::HeapDenied, refused, ());
        }
        Failure::IgnoredCancel { .. }
        | Failure::StartGivenUp
        | Failure::Wasm(WasmError::Interrupted { .. }) => {
            return cancelled(py, error, false);
        }
        Failure::CallTimeLimit { limit }
        | Failure::StartTimeLimit { limit }
        | Failure::Wasm(
            WasmError::TimeLimit { limit, .. } | WasmError::CompileTimeLimit { limit, .. },
        )
        | Failure::Ended { end: End::Killed(KillReason::Deadline { limit }) } => {
            (Class::AppletTimeout, ClassFields::TimeLimit(*limit))
        }
        Failure::Wasm(WasmError::Trap(report)) => (Class::AppletCrashed, ClassFields::Trap(report)),
        Failure::Wasm(WasmError::OutOfFuel { .. } | WasmError::CompileMemoryLimit { .. }) => {
            (Class::AppletLimit, ClassFields::None)
        }
        Failure::Ended { end } => match end {
            End::Violation(violation) => {
                (Class::PolicyViolation, ClassFields::Violation(violation))
            }
            End::Signal { signal, name } => {
                (Class::AppletCrashed, ClassFields::Signal(*signal, name))
            }
            End::Exited { status } => (Class::AppletCrashed, ClassFields::Exit(*status)),
            End::Limit(_) if error.kind() == FailureKind::TimeLimit => {
                (Class::AppletTimeout, ClassFields::None)
            }
            End::Limit(_) => (Class::AppletLimit, ClassFields::None),
            _ => (Class::AppletError, ClassFields::None),
        },
        _ if error.kind() == FailureKind::NotFound => (Class::AppletNotFound, ClassFields::None),
        _ => (Class::AppletError, ClassFields::None),
    };
    let mut text = error.to_string();
    if matches!(error.failure, Failure::NotServing { status } if status != 0) {
        let written = String::from_utf8_lossy(&error.stderr);
        let last: String = written
            .lines()
            .last()
            .unwrap_or_default()
            .chars()
            .filter(|c| !c.is_control())
            .collect();
        text = match last.as_str() {
            "" => format!(
                "{text}, which output=\"capture\" brings here; if it is that no heap was granted, pass heap=\"NAME\""
            ),
            last => format!("{text}: {last}"),
        };
    }
    raise(py, class, text, |fields: &Bound<'_, PyDict>| {
        common(error, fields)?;
        special.put(fields)
    })
}

/// The call was cancelled, and the applet serves on or not.
pub(crate) fn cancelled(py: Python<'_>, error: impl ToString, is_alive: bool) -> PyErr {
    raise(py, Class::Cancelled, error, |fields: &Bound<'_, PyDict>| {
        fields.set_item("is_alive", is_alive)
    })
}

/// What one class has and the others do not.
enum ClassFields<'a> {
    None,
    TimeLimit(Duration),
    Trap(&'a holdfast_applet::TrapReport),
    Signal(i32, &'static str),
    Exit(i32),
    Violation(&'a Violation),
}

impl Fields for ClassFields<'_> {
    fn put(self, fields: &Bound<'_, PyDict>) -> PyResult<()> {
        match self {
            ClassFields::None => Ok(()),
            ClassFields::TimeLimit(limit) => fields.set_item("limit_seconds", limit.as_secs_f64()),
            ClassFields::Trap(report) => {
                fields.set_item("trap", report.cause.to_string())?;
                fields.set_item("function", report.function.as_deref())?;
                let frames = report.frames.iter().map(|frame| frame.function.as_deref());
                let frames: Vec<&str> = frames.map(|name| name.unwrap_or("?")).collect();
                fields.set_item("backtrace", PyTuple::new(fields.py(), frames)?)
            }
            ClassFields::Signal(signal, name) => {
                fields.set_item("signal", signal)?;
                fields.set_item("signal_name", name)
            }
            ClassFields::Exit(status) => fields.set_item("exit_status", status),
            ClassFields::Violation(violation) => {
                fields.set_item("syscall", violation.syscall)?;
                fields.set_item("name", &violation.name)?;
                fields.set_item("arguments", PyTuple::new(fields.py(), violation.args)?)?;
                fields.set_item("instruction_pointer", violation.instruction_pointer)?;
                fields.set_item("arch", violation.arch)?;
                fields.set_item("reason", violation.reason)
            }
        }
    }
}

/// What every exception about an applet has.
fn common(error: &AppletError, fields: &Bound<'_, PyDict>) -> PyResult<()> {
    let py = fields.py();
    fields.set_item("metrics", metrics::of_applet(py, &error.metrics)?)?;
    fields.set_item("stdout", PyBytes::new(py, &error.stdout))?;
    fields.set_item("stderr", PyBytes::new(py, &error.stderr))?;
    fields.set_item("output_truncated", error.is_output_truncated)?;
    // Of several the one that was granted first, or the first one that could not be recovered.
    let failed = error.heaps.iter().find(|heap| matches!(heap.recovery, Some(Err(_))));
    if let Some(heap) = failed.or(error.heaps.first()) {
        fields.set_item("heap", &heap.name)?;
        let recovery = heap.recovery.as_ref().map(|recovery| match recovery {
            Ok(Recovery::RolledBack) => "rolled-back",
            Ok(Recovery::NoHeap) => "no-heap",
            Ok(_) => "in-order",
            Err(_) => "failed",
        });
        fields.set_item("heap_recovery", recovery.unwrap_or("not-needed"))?;
    }
    Ok(())
}

/// Why an applet was not closed in order.
pub(crate) fn close_error(py: Python<'_>, error: &CloseError) -> PyErr {
    match error {
        CloseError::Heap(error) => region_error(py, error),
        other => raise(py, Class::Forked, other, ()),
    }
}

/// What is wrong with a heap's region.
pub(crate) fn region_error(py: Python<'_>, error: &RegionError) -> PyErr {
    if matches!(error, RegionError::Name(_) | RegionError::LimitOutOfRange { .. }) {
        return PyValueError::new_err(error.to_string());
    }
    let class = match error {
        // The heap may be there; who makes one where there is none would be told the same again.
        RegionError::Key(KeyError::Missing { .. }) => Class::HeapDenied,
        error => class_of(error.kind()),
    };
    raise(py, class, error, ())
}

fn class_of(kind: ErrorKind) -> Class {
    match kind {
        ErrorKind::NotFound => Class::HeapNotFound,
        ErrorKind::Held => Class::HeapHeld,
        ErrorKind::BadFile => Class::HeapDamaged,
        ErrorKind::Denied => Class::HeapDenied,
        ErrorKind::NoRoom => Class::HeapNoRoom,
        _ => Class::HeapError,
    }
}
