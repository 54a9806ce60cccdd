//! The class `Pool` of Python: applets that are started before they are needed. It wraps
//! `holdfast_applet::Pool`, which has the threads and the rules.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::applet::Applet;
use crate::error::{Class, applet_error, raise};
use crate::inner::{Held, Inner};
use crate::process::Maker;
use crate::recipe::{Options, Recipe, warn};

/// Keeps `size` applets ready: `with pool.take() as applet:`. Options are those of `Applet`.
///
/// Every `take` gives a fresh applet, which is ended when it is closed. With `reuse=True` it goes
/// back instead and serves the next one, with whatever it remembers. A `heap` has to be a
/// `HeapGrant` with `{}` in the name of its compartment, which becomes the lowest number of which
/// no other applet has the compartment: two applets never share one.
#[pyclass(frozen, weakref, module = "holdfast")]
pub(crate) struct Pool {
    pool: Mutex<Option<Arc<holdfast_applet::Pool>>>,
    path: PathBuf,
    grace: Duration,
    is_reusing: bool,
    maker: Maker,
    notes: Notes,
}

/// What the user should be told of the starts so far, in the background or not: each note once.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<NotesSoFar>>);

#[derive(Default)]
struct NotesSoFar {
    all: HashSet<String>,
    waiting: Vec<String>,
}

impl Notes {
    fn add(&self, notes: Vec<String>) {
        let mut so_far = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for note in notes {
            if so_far.all.insert(note.clone()) {
                so_far.waiting.push(note);
            }
        }
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner).waiting)
    }
}

impl Pool {
    fn pool(&self, py: Python<'_>) -> PyResult<Arc<holdfast_applet::Pool>> {
        self.maker.check(py)?;
        self.lock()
            .clone()
            .ok_or_else(|| raise(py, Class::Closed, "the pool is closed; make another one", ()))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<holdfast_applet::Pool>>> {
        // It holds one value, set at once.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Pool {
    #[new]
    #[pyo3(signature = (path, *, size=2, reuse=false, args=Vec::new(), env=None, dirs=Vec::new(), heap=None, app=None,
                        functions=None, limits=None,
                        strict=false, output="discard".to_owned(), home=None, pool=None, **named))]
    #[allow(clippy::too_many_arguments, reason = "Python names them")]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        size: usize,
        reuse: bool,
        args: Vec<String>,
        env: Option<Bound<'_, PyDict>>,
        dirs: Vec<Bound<'_, PyAny>>,
        heap: Option<Bound<'_, PyAny>>,
        app: Option<String>,
        functions: Option<Bound<'_, PyDict>>,
        limits: Option<Bound<'_, PyAny>>,
        strict: bool,
        output: String,
        home: Option<PathBuf>,
        pool: Option<PathBuf>,
        named: Option<Bound<'_, PyDict>>,
    ) -> PyResult<Pool> {
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
        let recipe = Recipe::read(py, path, options)?;
        if !recipe.given.is_for_many() {
            return Err(PyValueError::new_err(
                "the applets of a pool cannot share a heap; give each its compartment: HeapGrant(NAME, \
                 compartment=\"worker-{}\")",
            ));
        }
        let (path, grace) = (recipe.path.clone(), recipe.limits.grace);
        let notes = Notes::default();
        let noted = notes.clone();
        let source = move || {
            let mut notes = Vec::new();
            let command = recipe.command(&mut notes);
            noted.add(notes);
            command
        };
        let pool = py.detach(|| holdfast_applet::Pool::new(size, reuse, source));
        let warned = warn(py, notes.take());
        let pool = pool.map_err(|error| applet_error(py, &error))?;
        if let Err(warning) = warned {
            py.detach(|| drop(pool));
            return Err(warning);
        }
        let pool = Mutex::new(Some(Arc::new(pool)));
        Ok(Pool { pool, path, grace, is_reusing: reuse, maker: Maker::new(), notes })
    }

    /// An applet that serves: a warm one, or, when there is none, one that is started now. Close it
    /// (a `with` block does) to give it back.
    fn take(&self, py: Python<'_>) -> PyResult<Applet> {
        let pool = self.pool(py)?;
        let taken = py.detach(|| {
            let taken = pool.take();
            drop(pool);
            let held = |applet| match self.is_reusing {
                true => Held::Reused(applet),
                false => Held::Pooled(applet),
            };
            taken.map(|applet| Inner::new(self.path.clone(), self.grace, held(applet)))
        });
        // Of starts in the background, too.
        let warned = warn(py, self.notes.take());
        let taken = taken.map_err(|error| applet_error(py, &error))?;
        warned.map(|()| Applet::of(taken))
    }

    /// How many are ready now.
    #[getter]
    fn ready(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.pool(py)?.ready())
    }

    /// Ends the applets that are ready. Those that were taken serve until they are closed.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.maker.check(py)?;
        let pool = self.lock().take();
        py.detach(|| drop(pool));
        Ok(())
    }

    /// Whether it was closed.
    #[getter]
    fn closed(&self) -> bool {
        self.lock().is_none()
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        slf.get().pool(slf.py())?;
        Ok(slf)
    }

    #[pyo3(signature = (_kind, _value, _traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let pool = self.lock().take();
        self.maker.let_go(pool);
    }
}
