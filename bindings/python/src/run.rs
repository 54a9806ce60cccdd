//! Running an applet to its end.
//!
//! Invariant: a thread that waits for it has let go of the interpreter.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use holdfast_applet::{Heaps, Outcome};
use holdfast_region::RegionError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::convert::Seconds;
use crate::error::{Class, raise, region_error};
use crate::input::Input;
use crate::metrics;
use crate::recipe::{Options, Recipe};

/// Runs an untrusted program to its end, in a sandbox, and returns an `Outcome`: its exit status,
/// what it wrote, what it cost.
///
/// Options are those of `Applet`. `input` is anything with the buffer protocol, which the program
/// reads from its standard input. `timeout` (seconds) limits the whole run; the limit `fuel` counts
/// for it as well. Its output is captured, unless `output` says something else, up to 1 MiB of each
/// stream.
///
/// An exit status other than 0 is no exception: it is the program's own. `AppletError` is raised
/// when there is none: the program did not start, crashed, took too long, did something forbidden;
/// and for a program that only serves calls. Signals (Ctrl-C) are handled when the run is over:
/// give it a `timeout`.
#[pyfunction]
#[pyo3(signature = (path, *, input=None, timeout=None, args=Vec::new(), env=None, dirs=Vec::new(), heap=None, app=None,
                        functions=None, limits=None,
                    strict=false, output="capture".to_owned(), home=None, pool=None, **named))]
#[allow(clippy::too_many_arguments, reason = "Python names them")]
pub(crate) fn run<'py>(
    py: Python<'py>,
    path: PathBuf,
    input: Option<Bound<'py, PyAny>>,
    timeout: Option<Seconds>,
    args: Vec<String>,
    env: Option<Bound<'py, PyDict>>,
    dirs: Vec<Bound<'py, PyAny>>,
    heap: Option<Bound<'py, PyAny>>,
    app: Option<String>,
    functions: Option<Bound<'py, PyAny>>,
    limits: Option<Bound<'py, PyAny>>,
    strict: bool,
    output: String,
    home: Option<PathBuf>,
    pool: Option<PathBuf>,
    named: Option<Bound<'py, PyDict>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = Options {
        args,
        env,
        dirs,
        heap,
        app,
        functions,
        limits,
        named,
        strict,
        output,
        home,
        pool,
    };
    let mut recipe = Recipe::read(py, path, options)?;
    recipe.limits.timeout = timeout.map(|timeout| timeout.0);
    if input.is_some() {
        recipe.reads(Input::of(input.as_ref())?.bytes().to_vec());
    }
    let (outcome, closed) = recipe.start(py, |command| {
        let mut outcome = command.run()?;
        let closed = close_all(std::mem::take(&mut outcome.heaps));
        Ok((outcome, closed))
    })?;
    closed.map_err(|error| region_error(py, &error))?;
    let Outcome { exit_status, functions, metrics, heap_error, mut notes, .. } = outcome;
    let Outcome { stdout, stderr, is_output_truncated, .. } = outcome;
    if let Some(functions) = functions {
        let text = format!(
            "the program serves calls, and run() makes none: of its functions ({}) none ran; start it with Applet(path) and \
             call them",
            functions.join(", ")
        );
        return Err(raise(py, Class::AppletError, text, |fields: &Bound<'_, PyDict>| {
            fields.set_item("stdout", PyBytes::new(py, &stdout))?;
            fields.set_item("stderr", PyBytes::new(py, &stderr))?;
            fields.set_item("output_truncated", is_output_truncated)
        }));
    }
    notes.extend(heap_error.as_ref().map(RegionError::to_string));
    let fields = PyDict::new(py);
    fields.set_item("exit_status", exit_status)?;
    fields.set_item("stdout", PyBytes::new(py, &stdout))?;
    fields.set_item("stderr", PyBytes::new(py, &stderr))?;
    fields.set_item("output_truncated", is_output_truncated)?;
    fields.set_item("metrics", metrics::of_applet(py, &metrics)?)?;
    fields.set_item("notes", PyTuple::new(py, notes)?)?;
    py.import("holdfast._types")?.getattr("Outcome")?.call((), Some(&fields))
}

/// Closes all of them, also where one fails; the first failure.
fn close_all(heaps: Heaps) -> Result<(), RegionError> {
    let closed: Vec<_> = heaps.into_iter().map(|heap| heap.region.close()).collect();
    closed.into_iter().try_for_each(|closed| closed.map(drop))
}
