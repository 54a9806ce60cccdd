//! The data class `Limits` as the limits of an applet.
//!
//! Invariant: a limit that is `None` in Python is the default here; there is no other default in
//! Python.
#![forbid(unsafe_code)]

use holdfast_applet::Limits;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{Seconds, Size};

/// The limits in a `Limits`, or none, with those that were given by name on top.
pub(crate) fn read(
    py: Python<'_>,
    limits: Option<Bound<'_, PyAny>>,
    named: Option<&Bound<'_, PyDict>>,
) -> PyResult<Limits> {
    let types = py.import("holdfast._types")?;
    let limits = types.getattr("limits_of")?.call1((limits, named))?;
    let mut read = Limits::default();
    if let Some(time) = field::<Seconds>(&limits, "call_timeout")? {
        read.call_timeout = Some(time.0);
    }
    if let Some(time) = field::<Seconds>(&limits, "start_timeout")? {
        read.start_timeout = time.0;
    }
    if let Some(time) = field::<Seconds>(&limits, "compile_timeout")? {
        read.compile_timeout = Some(time.0);
    }
    if let Some(size) = field::<Size>(&limits, "compile_memory")? {
        read.compile_memory_bytes = size.0;
    }
    if let Some(size) = field::<Size>(&limits, "text")? {
        read.text_bytes = size.0;
    }
    if let Some(time) = field::<Seconds>(&limits, "grace")? {
        read.grace = time.0;
    }
    if let Some(size) = field::<Size>(&limits, "memory")? {
        read.memory_bytes = size.0;
    }
    if let Some(fuel) = field::<u64>(&limits, "fuel")? {
        read.fuel = Some(fuel);
    }
    if let Some(time) = field::<Seconds>(&limits, "cpu_time")? {
        read.cpu_time = Some(time.0);
    }
    if let Some(threads) = field::<u32>(&limits, "threads")? {
        read.threads = threads;
    }
    if let Some(nice) = field::<i32>(&limits, "nice")? {
        read.nice = nice;
    }
    if let Some(size) = field::<Size>(&limits, "result")? {
        read.result_bytes = usize::try_from(size.0).unwrap_or(usize::MAX);
    }
    if let Some(size) = field::<Size>(&limits, "buffers")? {
        read.buffer_bytes = size.0;
    }
    Ok(read)
}

fn field<'py, T: for<'a> FromPyObject<'a, 'py, Error = PyErr>>(
    limits: &Bound<'py, PyAny>,
    name: &str,
) -> PyResult<Option<T>> {
    let value = limits.getattr(name)?;
    if value.is_none() { Ok(None) } else { value.extract().map(Some) }
}
