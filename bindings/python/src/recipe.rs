//! The program, grants and limits with which an applet is started.
#![forbid(unsafe_code)]

use std::ffi::CString;
use std::path::PathBuf;

use holdfast_applet::{AppletError, Command, Failure, FailureKind, Input, Limits, Stdio};
use holdfast_identity::GivenName;
use pyo3::exceptions::{PyUserWarning, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{applet_error, extend, region_error};
use crate::functions::Functions;
use crate::grants::{Given, HeapSpec, Opened, directory, places};
use crate::limits;
use crate::signals::{self, Raised};

/// Bytes of each of an applet's captured outputs.
const OUTPUT_BYTES_MAX: usize = 1 << 20;

/// What is to be started; for a pool, again and again.
#[derive(Clone)]
pub(crate) struct Recipe {
    pub(crate) path: PathBuf,
    pub(crate) given: Given,
    pub(crate) limits: Limits,
    is_strict: bool,
    stdio: Stdio,
}

/// The options that applets and pools have in common.
pub(crate) struct Options<'py> {
    pub(crate) args: Vec<String>,
    pub(crate) env: Option<Bound<'py, PyDict>>,
    pub(crate) dirs: Vec<Bound<'py, PyAny>>,
    pub(crate) heap: Option<Bound<'py, PyAny>>,
    pub(crate) app: Option<String>,
    pub(crate) functions: Option<Bound<'py, PyAny>>,
    pub(crate) limits: Option<Bound<'py, PyAny>>,
    pub(crate) named: Option<Bound<'py, PyDict>>,
    pub(crate) strict: bool,
    pub(crate) output: String,
    pub(crate) home: Option<PathBuf>,
    pub(crate) pool: Option<PathBuf>,
}

impl Recipe {
    pub(crate) fn read(py: Python<'_>, path: PathBuf, options: Options<'_>) -> PyResult<Recipe> {
        let heaps = HeapSpec::read_all(options.heap.as_ref())?;
        let dirs = options.dirs.iter().map(directory).collect::<PyResult<_>>()?;
        let mut env = Vec::new();
        for (name, value) in options.env.iter().flatten() {
            env.push((name.extract()?, value.extract()?));
        }
        let stdio = match &*options.output {
            "discard" => Stdio::default(),
            "inherit" => Stdio::inherit().with_stdin(Input::Empty),
            "capture" => Stdio::capture(OUTPUT_BYTES_MAX),
            other => {
                let text =
                    format!("output is {other:?}; it is \"discard\", \"inherit\" or \"capture\"");
                return Err(PyValueError::new_err(text));
            }
        };
        let is_needed = !heaps.is_empty() || options.home.is_some() || options.pool.is_some();
        let places = match places(options.home, options.pool) {
            Ok(places) => Some(places),
            // Then there is no cache of what is compiled.
            Err(_) if !is_needed => None,
            Err(error) => return Err(region_error(py, &error.into())),
        };
        let limits = limits::read(py, options.limits, options.named.as_ref())?;
        let app = options.app.as_deref().map(GivenName::parse).transpose();
        let app = app.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let functions = Functions::read(options.functions.as_ref())?;
        let given = Given::new(&path, options.args, env, dirs, heaps, app, functions, places)?;
        Ok(Recipe { path, given, limits, is_strict: options.strict, stdio })
    }

    /// What it reads from its standard input.
    pub(crate) fn reads(&mut self, bytes: Vec<u8>) {
        self.stdio = std::mem::take(&mut self.stdio).with_stdin(Input::Bytes(bytes));
    }

    /// Starts it, without the interpreter; heaps that were made for nothing are removed again. A
    /// signal whose handler raises ends the wait for one that is to serve.
    pub(crate) fn start<T: Send>(
        &self,
        py: Python<'_>,
        begin: impl FnOnce(Command) -> Result<T, Box<AppletError>> + Send,
    ) -> PyResult<T> {
        let mut notes = Vec::new();
        let opened = py.detach(|| self.given.open(&self.path, &mut notes));
        // Before it starts: a caller for whom a warning is an error has no applet that ran.
        let warned = warn(py, notes);
        let opened = opened.map_err(|failure| failure.raise(py))?;
        if let Err(warning) = warned {
            let unclosed = py.detach(|| self.given.undo(opened));
            return Err(extend(py, warning, &unclosed));
        }
        let (command, made_now) = self.prepare(opened);
        let raised = Raised::default();
        let started = py.detach(|| {
            let _listening = raised.listen();
            begin(command).inspect_err(|error| {
                if !error.metrics.heap_dirty || never_ran(error) {
                    self.given.forget_heaps(&made_now);
                }
            })
        });
        started.map_err(|error| raised.take().unwrap_or_else(|| applet_error(py, &error)))
    }

    /// The command for a pool, whose starts have no caller to tell: what the user should be told is
    /// added to the notes, also when there is no command.
    pub(crate) fn command(&self, notes: &mut Vec<String>) -> Result<Command, Box<AppletError>> {
        match self.given.open(&self.path, notes) {
            Ok(opened) => Ok(self.prepare(opened).0),
            Err(failure) => {
                notes.extend(failure.unclosed);
                Err(failure.error)
            }
        }
    }

    /// The command, and which of its heaps were made now.
    fn prepare(&self, opened: Opened) -> (Command, Vec<HeapSpec>) {
        let mut grants = opened.grants;
        for (name, region) in opened.heaps {
            grants = grants.heap_as(name, region);
        }
        let mut command = Command::new(&self.path, grants)
            .limits(self.limits.clone())
            .strict(self.is_strict)
            .stdio(self.stdio.clone())
            .start_while(signals::start_goes_on);
        if let Some(file) = opened.examined {
            command = command.examined(file);
        }
        (command, opened.made_now)
    }
}

/// Gives notes as warnings. All of them are given; the first one that the caller makes an error of
/// is returned.
pub(crate) fn warn(py: Python<'_>, notes: Vec<String>) -> PyResult<()> {
    let mut first = Ok(());
    for note in notes {
        let note = CString::new(note).unwrap_or_default();
        first = first.and(PyErr::warn(py, &py.get_type::<PyUserWarning>(), &note, 1));
    }
    first
}

/// Whether nothing of the program ran, so that nothing is in heaps that were made for it.
fn never_ran(error: &AppletError) -> bool {
    let is_refused = matches!(error.kind(), FailureKind::NotFound | FailureKind::CannotLoad);
    is_refused && !matches!(error.failure, Failure::NotServing { .. })
}
