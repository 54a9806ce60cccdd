//! The class `Pool` of Python: applets that are started before they are needed. It wraps
//! `holdfast_applet::Pool`, which has the threads and the rules.
#![forbid(unsafe_code)]

use std::collections::HashSet;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use holdfast_applet::{CloseError, Closed};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use pyo3::{PyTraverseError, PyVisit};

use crate::applet::Applet;
use crate::closing::Closing;
use crate::error::{Class, applet_error, raise};
use crate::functions::{self, Callables};
use crate::inner::{Held, Inner};
use crate::process::Maker;
use crate::recipe::{Options, Recipe, warn};
use crate::signals::{self, Raised};

/// Keeps `size` applets ready: `with pool.take() as applet:`. Options are those of `Applet`.
///
/// Every `take` gives a fresh applet, which is ended when it is closed. With `reuse=True` it goes
/// back instead and serves the next one, with whatever it remembers. A `heap` has to be a
/// `HeapGrant` with `{}` in the name of its compartment, which becomes the lowest number of which
/// no other applet has the compartment: two applets never share one.
///
/// A signal whose handler raises (Ctrl-C) ends the wait for an applet that does not serve yet.
#[pyclass(frozen, weakref, module = "holdfast")]
pub(crate) struct Pool {
    pool: Mutex<Option<Arc<holdfast_applet::Pool>>>,
    /// How it ends, once it was taken out.
    closing: Arc<Closing>,
    callables: Py<Callables>,
    path: PathBuf,
    grace: Duration,
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

    /// Begins the end, or does it at once: see [`Inner::end`].
    fn end(&self, pool: Arc<holdfast_applet::Pool>) {
        let end = move || -> Result<Option<Closed>, CloseError> {
            // Another thread that takes from it has it still.
            pool.close();
            drop(pool);
            Ok(None)
        };
        match functions::is_in_one() {
            true => self.closing.run(end),
            false => self.closing.begin(end),
        }
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
        functions: Option<Bound<'_, PyAny>>,
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
        let callables = recipe.given.callables(py)?;
        let notes = Notes::default();
        let noted = notes.clone();
        let source = move || {
            let mut notes = Vec::new();
            let command = recipe.command(&mut notes);
            noted.add(notes);
            command
        };
        let raised = Raised::default();
        let pool = py.detach(|| {
            let _listening = raised.listen();
            holdfast_applet::Pool::new(size, reuse, source)
        });
        let warned = warn(py, notes.take());
        let pool =
            pool.map_err(|error| raised.take().unwrap_or_else(|| applet_error(py, &error)))?;
        if let Err(warning) = warned {
            py.detach(|| drop(pool));
            return Err(warning);
        }
        let (pool, closing) = (Mutex::new(Some(Arc::new(pool))), Arc::default());
        Ok(Pool { pool, closing, callables, path, grace, maker: Maker::new(), notes })
    }

    /// There is nothing to clear: a cycle that leads through here leads on through the functions.
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.callables)
    }

    /// An applet that serves: a warm one, or, when there is none, one that is started now. Close it
    /// (a `with` block does) to give it back.
    fn take(&self, py: Python<'_>) -> PyResult<Applet> {
        let pool = self.pool(py)?;
        let raised = Raised::default();
        let taken = py.detach(|| {
            let listening = raised.listen();
            let taken = pool.take();
            drop(listening);
            drop(pool);
            taken.map(|applet| Inner::new(self.path.clone(), self.grace, Held::Pooled(applet)))
        });
        // Of starts in the background, too.
        let warned = warn(py, self.notes.take());
        let taken =
            taken.map_err(|error| raised.take().unwrap_or_else(|| applet_error(py, &error)))?;
        if let Err(warning) = warned {
            // It may take a while to end.
            py.detach(|| drop(taken));
            return Err(warning);
        }
        Ok(Applet::of(taken, self.callables.clone_ref(py)))
    }

    /// How many are ready now.
    #[getter]
    fn ready(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.pool(py)?.ready())
    }

    /// Ends the applets that are ready. Those that were taken serve until they are closed. Closing
    /// twice does nothing.
    ///
    /// A signal whose handler raises ends the wait; the pool goes on to end by itself, and closing
    /// it again waits for that.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.maker.check(py)?;
        let pool = self.lock().take();
        let ended = signals::wait(py, |goes_on| {
            match pool {
                Some(pool) => self.end(pool),
                // That end may wait for this function.
                None if functions::is_in_one() => return Ok(None),
                None => {}
            }
            self.closing.wait(goes_on)
        })?;
        if let Some(Err(panic)) = ended {
            resume_unwind(panic);
        }
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
        /// Ends the pool when it is dropped, or waits for an end that no caller waited for.
        struct End(Option<Arc<holdfast_applet::Pool>>, Arc<Closing>);
        impl Drop for End {
            fn drop(&mut self) {
                drop(self.0.take());
                // That end may wait for the function.
                if !functions::is_in_one() {
                    self.1.join();
                }
            }
        }
        let pool = self.lock().take();
        self.maker.let_go(End(pool, self.closing.clone()));
    }
}
