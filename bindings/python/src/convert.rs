//! Sizes and times as Python's programmers write them.
#![forbid(unsafe_code)]

use std::time::Duration;

use holdfast_native_heap::parse_size;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyString;

/// A number of bytes, or a text such as `"64MiB"`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size(pub(crate) u64);

impl<'py> FromPyObject<'_, 'py> for Size {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Size> {
        if let Ok(text) = value.cast::<PyString>() {
            let bytes = parse_size(&text.to_cow()?);
            return bytes.map(Size).map_err(|error| PyValueError::new_err(error.to_string()));
        }
        match value.extract::<i128>() {
            Ok(number) => u64::try_from(number).map(Size).map_err(|_| {
                PyValueError::new_err(format!(
                    "{number} is no size; give a number of bytes, 0 or more"
                ))
            }),
            Err(_) => Err(PyTypeError::new_err(format!(
                "a size is an int (bytes) or a str (\"64MiB\"), not {}",
                value.get_type().name()?
            ))),
        }
    }
}

/// Seconds as a number, or a `timedelta`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seconds(pub(crate) Duration);

impl<'py> FromPyObject<'_, 'py> for Seconds {
    type Error = PyErr;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> PyResult<Seconds> {
        if let Ok(seconds) = value.extract::<f64>() {
            return Duration::try_from_secs_f64(seconds).map(Seconds).map_err(|_| {
                PyValueError::new_err(format!("{seconds} is no time; give seconds, 0 or more"))
            });
        }
        match value.extract::<Duration>() {
            Ok(time) => Ok(Seconds(time)),
            Err(_) => Err(PyTypeError::new_err(format!(
                "a time is a number (seconds) or a timedelta of 0 or more, not {}",
                value.get_type().name()?
            ))),
        }
    }
}
