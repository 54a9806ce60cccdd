//! The metrics of an applet as the data classes of `python/holdfast/_types.py`.
#![forbid(unsafe_code)]

use holdfast_applet::{CallMetrics, Metrics};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// An instance of a data class of `_types.py`.
fn make<'py>(
    py: Python<'py>,
    class: &str,
    fields: &Bound<'py, PyDict>,
) -> PyResult<Bound<'py, PyAny>> {
    py.import("holdfast._types")?.getattr(class)?.call((), Some(fields))
}

/// The account of an applet.
pub(crate) fn of_applet<'py>(py: Python<'py>, metrics: &Metrics) -> PyResult<Bound<'py, PyAny>> {
    let fields = PyDict::new(py);
    let kind = if metrics.kind == holdfast_applet::SandboxKind::Native { "native" } else { "wasm" };
    fields.set_item("kind", kind)?;
    fields.set_item("start_seconds", metrics.start_time.as_secs_f64())?;
    fields.set_item("wall_seconds", metrics.wall_time.as_secs_f64())?;
    fields.set_item("cpu_seconds", metrics.cpu_time.as_secs_f64())?;
    fields.set_item("fuel_used", metrics.fuel_used)?;
    fields.set_item("peak_memory_bytes", metrics.peak_memory_bytes)?;
    fields.set_item("heap_backed_bytes", metrics.heap_backed_bytes)?;
    fields.set_item("heap_dirty", metrics.heap_dirty)?;
    fields.set_item("calls", metrics.calls)?;
    fields.set_item("messages", metrics.messages)?;
    fields.set_item("message_bytes", metrics.message_bytes)?;
    make(py, "Metrics", &fields)
}

/// The account of one call.
pub(crate) fn of_call<'py>(py: Python<'py>, metrics: &CallMetrics) -> PyResult<Bound<'py, PyAny>> {
    let fields = PyDict::new(py);
    fields.set_item("wall_seconds", metrics.wall_time.as_secs_f64())?;
    fields.set_item("cpu_seconds", metrics.cpu_time.map(|time| time.as_secs_f64()))?;
    fields.set_item("messages", metrics.messages)?;
    fields.set_item("message_bytes", metrics.message_bytes)?;
    fields.set_item("heap_backed_bytes", metrics.heap_backed_bytes)?;
    make(py, "CallMetrics", &fields)
}
