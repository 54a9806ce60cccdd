//! Functions in Python that an applet may call.
//!
//! Invariants:
//! - Whatever a function raises, the applet gets words and this process goes on; a Ctrl-C in one is
//!   seen by the call under way.
//! - A thread is known to be in a function as long as it is in one ([`is_in_one`]): where it waits
//!   for the end of an applet it may wait for itself.
//! - A function that refers to its own applet, stream or pool keeps that no longer than the program
//!   does: the garbage collector is shown what an applet may call, once ([`Callables`]), and takes
//!   it away.
#![forbid(unsafe_code)]

use std::cell::Cell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_applet::{Grants, HostCall, HostFunction, HostFunctionError};
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyKeyboardInterrupt, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pyo3::{PyTraverseError, PyVisit};

use crate::convert::{Seconds, Size};
use crate::error::Class;
use crate::input::Input;

/// The code of a function that raised.
const CODE_RAISED: i32 = 1;

thread_local! {
    /// How many functions this thread is in, each called in the one before.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is in a function that an applet called, whichever applet, and also while
/// that ends.
pub(crate) fn is_in_one() -> bool {
    DEPTH.get() > 0
}

/// This thread is in one more function, until it is dropped.
#[must_use]
struct Inside;

impl Inside {
    fn enter() -> Inside {
        DEPTH.set(DEPTH.get() + 1);
        Inside
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// Functions by name.
#[derive(Clone, Default)]
pub(crate) struct Functions(Vec<(String, Function)>);

/// What is called, until the garbage collector takes it away.
struct Callable(Mutex<Option<Py<PyAny>>>);

impl Callable {
    fn of(object: Py<PyAny>) -> Arc<Callable> {
        Arc::new(Callable(Mutex::new(Some(object))))
    }

    fn get(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        self.lock().as_ref().map(|object| object.clone_ref(py))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Py<PyAny>>> {
        // It holds one value, set at once.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows it to the garbage collector. A thread that uses it holds the lock for no longer than
    /// it has the interpreter.
    fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        match self.0.try_lock() {
            Ok(object) => visit.call(object.as_ref()),
            Err(_) => Ok(()),
        }
    }

    /// Takes it away.
    fn clear(&self) {
        let object = self.lock().take();
        // Dropping it may run any code.
        drop(object);
    }
}

/// What an applet may call, for the garbage collector. All objects of Python by which a program has
/// the applet refer to one of these: the applet, its streams, the pool that it is from. A thread
/// that works for the applet does not: what no program has is taken away under it.
#[pyclass(frozen, module = "holdfast", name = "_Functions")]
pub(crate) struct Callables {
    all: Vec<Arc<Callable>>,
}

#[pymethods]
impl Callables {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.all.iter().try_for_each(|callable| callable.traverse(&visit))
    }

    fn __clear__(&self) {
        self.all.iter().for_each(|callable| callable.clear());
    }
}

/// A function, and what bounds it.
#[derive(Clone)]
struct Function {
    callable: Arc<Callable>,
    timeout: Option<Duration>,
    input_bytes_max: Option<usize>,
    result_bytes_max: Option<usize>,
}

impl Function {
    fn read(name: &Bound<'_, PyAny>, given: &Bound<'_, PyAny>) -> PyResult<Function> {
        let py = given.py();
        let types = py.import("holdfast._types")?;
        let is_bounded = given.is_instance(&types.getattr("HostFunction")?)?;
        let callable = if is_bounded { given.getattr("function")? } else { given.clone() };
        let inspect = py.import("inspect")?;
        if !callable.is_callable() {
            return Err(PyTypeError::new_err(format!(
                "functions[{}] cannot be called; give a function that takes bytes and returns bytes",
                name.repr()?
            )));
        }
        if inspect.call_method1("iscoroutinefunction", (&callable,))?.is_truthy()? {
            return Err(PyTypeError::new_err(format!(
                "functions[{}] is a coroutine function, which needs a loop; start the applet with \
                 AsyncApplet",
                name.repr()?
            )));
        }
        let mut function = Function {
            callable: Callable::of(callable.unbind()),
            timeout: None,
            input_bytes_max: None,
            result_bytes_max: None,
        };
        if is_bounded {
            let size = |field: &str| -> PyResult<Option<usize>> {
                let size: Option<Size> = given.getattr(field)?.extract()?;
                Ok(size.map(|size| usize::try_from(size.0).unwrap_or(usize::MAX)))
            };
            let timeout: Option<Seconds> = given.getattr("timeout")?.extract()?;
            function.timeout = timeout.map(|timeout| timeout.0);
            function.input_bytes_max = size("input_bytes_max")?;
            function.result_bytes_max = size("result_bytes_max")?;
        }
        Ok(function)
    }

    fn host_function(&self) -> HostFunction {
        let callable = self.callable.clone();
        let mut function = HostFunction::new(move |_: &HostCall<'_>, input: &[u8]| {
            // Before the interpreter, which drops what waits for that.
            let _inside = Inside::enter();
            Python::attach(|py| {
                let gone = || HostFunctionError::new(CODE_RAISED, "the function is gone");
                let function = callable.get(py).ok_or_else(gone)?;
                call(py, &function, input).map_err(|error| failure(py, &error))
            })
        });
        if let Some(timeout) = self.timeout {
            function = function.timeout(timeout);
        }
        if let Some(bytes) = self.input_bytes_max {
            function = function.input_bytes_max(bytes);
        }
        if let Some(bytes) = self.result_bytes_max {
            function = function.result_bytes_max(bytes);
        }
        function
    }
}

impl Functions {
    /// Those in a mapping from names.
    pub(crate) fn read(functions: Option<&Bound<'_, PyAny>>) -> PyResult<Functions> {
        let mut read = Vec::new();
        let Some(functions) = functions else { return Ok(Functions(read)) };
        let mapping = functions.py().import("collections.abc")?.getattr("Mapping")?;
        if !functions.is_instance(&mapping)? {
            return Err(PyTypeError::new_err(format!(
                "functions are a mapping from names to functions, not {}",
                functions.get_type().name()?
            )));
        }
        for item in functions.call_method0("items")?.try_iter()? {
            let item = item?;
            let (name, given) = (item.get_item(0)?, item.get_item(1)?);
            read.push((name.extract()?, Function::read(&name, &given)?));
        }
        Ok(Functions(read))
    }

    /// What an applet refers to by them. To be made once: the garbage collector counts it.
    pub(crate) fn callables(&self, py: Python<'_>) -> PyResult<Py<Callables>> {
        let all = self.0.iter().map(|(_, function)| function.callable.clone()).collect();
        Py::new(py, Callables { all })
    }

    pub(crate) fn grant(&self, mut grants: Grants) -> Grants {
        for (name, function) in &self.0 {
            grants = grants.function(name, function.host_function());
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
    // Bytes may lie apart; elements of another size may not.
    if let Ok(buffer) = PyBuffer::<u8>::get(result) {
        return buffer.to_vec(py);
    }
    let buffer = Input::of(Some(result)).map_err(|_| {
        let kind = result.get_type();
        PyTypeError::new_err(format!("it returned {kind}; return bytes, or None for none"))
    })?;
    Ok(buffer.bytes().to_vec())
}

fn failure(py: Python<'_>, error: &PyErr) -> HostFunctionError {
    let own = Class::HostFunctionError.python(py);
    if own.is_ok_and(|own| error.is_instance(py, &own)) {
        let value = error.value(py);
        let code = value.getattr("code").and_then(|code| code.extract());
        return HostFunctionError::new(code.unwrap_or(CODE_RAISED), value.to_string());
    }
    let words = error.to_string();
    // Last, as whatever runs next in the interpreter is interrupted.
    if error.is_instance_of::<PyKeyboardInterrupt>(py) {
        // The call that waits for the applet raises it, as it does for a signal of its own.
        let _ = py.import("_thread").and_then(|module| module.call_method0("interrupt_main"));
    }
    HostFunctionError::new(CODE_RAISED, words)
}
