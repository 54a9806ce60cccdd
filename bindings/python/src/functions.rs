//! Functions in Python that an applet may call.
//!
//! Invariant: whatever a function raises, the applet gets words and this process goes on; a Ctrl-C
//! in one is seen by the call under way.
#![forbid(unsafe_code)]

use std::sync::Arc;

use holdfast_applet::{Grants, HostFunctionError};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// The code of a function that raised.
const CODE_RAISED: i32 = 1;

/// Functions by name.
#[derive(Clone, Default)]
pub(crate) struct Functions(Vec<(String, Arc<Py<PyAny>>)>);

impl Functions {
    pub(crate) fn read(functions: Option<&Bound<'_, PyDict>>) -> PyResult<Functions> {
        let mut read = Vec::new();
        for (name, function) in functions.into_iter().flatten() {
            if !function.is_callable() {
                return Err(PyTypeError::new_err(format!(
                    "functions[{}] cannot be called; give a function that takes bytes and returns bytes",
                    name.repr()?
                )));
            }
            read.push((name.extract()?, Arc::new(function.unbind())));
        }
        Ok(Functions(read))
    }

    pub(crate) fn grant(&self, mut grants: Grants) -> Grants {
        for (name, function) in &self.0 {
            let function = function.clone();
            grants =
                grants.function(name, move |_: &holdfast_applet::HostCall<'_>, input: &[u8]| {
                    Python::attach(|py| {
                        call(py, &function, input).map_err(|error| failure(py, &error))
                    })
                });
        }
        grants
    }
}

fn call(py: Python<'_>, function: &Py<PyAny>, input: &[u8]) -> PyResult<Vec<u8>> {
    let result = function.call1(py, (PyBytes::new(py, input),))?;
    let result = result.bind(py);
    if result.is_none() {
        return Ok(Vec::new());
    }
    if let Ok(bytes) = result.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    let buffer = PyBuffer::<u8>::get(result).map_err(|_| {
        let kind = result.get_type();
        PyTypeError::new_err(format!("it returned {kind}; return bytes, or None for none"))
    })?;
    buffer.to_vec(py)
}

fn failure(py: Python<'_>, error: &PyErr) -> HostFunctionError {
    let words = error.to_string();
    // Last, as whatever runs next in the interpreter is interrupted.
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        // The call that waits for the applet raises it, as it does for a signal of its own.
        let _ = py.import("_thread").and_then(|module| module.call_method0("interrupt_main"));
    }
    HostFunctionError::new(CODE_RAISED, words)
}
