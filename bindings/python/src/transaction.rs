//! `with heap.transaction() as tx:`.
//!
//! Invariant: a level that was begun is ended: by `__exit__`, or when the object goes.
#![forbid(unsafe_code)]

use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::error::{Class, raise};
use crate::heap_core::Core;
use crate::input::Input;

/// A transaction of a heap: what happens in its `with` block happens altogether, or, if an
/// exception leaves the block or the process dies, not at all.
///
/// Roots are made and removed in it as anywhere. Bytes of roots that are to be restored have to be
/// announced with `add` *before* they are changed. Transactions nest, and count when the outermost
/// ends. Other threads that want the heap wait meanwhile; tasks of the same thread do not, so do
/// not `await` in one.
#[pyclass(frozen, weakref, module = "holdfast")]
pub(crate) struct Transaction {
    core: Option<Arc<Core>>,
    level: Mutex<Option<u32>>,
}

impl Transaction {
    pub(crate) fn new(core: Arc<Core>) -> Transaction {
        Transaction { core: Some(core), level: Mutex::default() }
    }

    fn core(&self, py: Python<'_>) -> PyResult<&Arc<Core>> {
        let core = self.core.as_ref();
        core.ok_or_else(|| raise(py, Class::TransactionError, "the transaction is gone", ()))
    }

    fn take_level(&self) -> Option<u32> {
        self.level.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

#[pymethods]
impl Transaction {
    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        let (py, this) = (slf.py(), slf.get());
        let core = this.core(py)?;
        core.take_turn(py)?;
        let mut level = this.level.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = match *level {
            Some(_) => Err(raise(
                py,
                Class::TransactionError,
                "the transaction is open; nest another one",
                (),
            )),
            None => core.begin().map_err(|refused| refused.raise(py)),
        };
        match begun {
            Ok(begun) => *level = Some(begun),
            Err(error) => {
                core.end_turn();
                return Err(error);
            }
        }
        drop(level);
        Ok(slf)
    }

    #[pyo3(signature = (kind, _value, _traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let core = self.core(py)?;
        core.maker.check(py)?;
        let Some(level) = self.take_level() else {
            return Err(raise(py, Class::TransactionError, "the transaction is not open", ()));
        };
        let commits = kind.is_none();
        let ended = core.end(level, commits);
        core.end_turn();
        match ended {
            // The exception on its way says more.
            Err(_) if !commits => Ok(()),
            ended => ended.map_err(|refused| refused.raise(py)),
        }
    }

    /// Announces that these parts of roots are going to change, so that a rollback restores them:
    /// contiguous views, such as `view[0:8]`.
    #[pyo3(signature = (*views))]
    fn add(&self, py: Python<'_>, views: &Bound<'_, PyTuple>) -> PyResult<()> {
        let core = self.core(py)?;
        let _turn = core.my_turn(py)?;
        if self.level.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            let text = "the transaction is not open; use it in a `with` block";
            return Err(raise(py, Class::TransactionError, text, ()));
        }
        for view in views {
            let input = Input::view(&view)?;
            let (start, bytes) = input.place();
            if bytes > 0 {
                let added = core.with(|open| Ok(open.heap.add_range(start, bytes as u64)?));
                added.map_err(|refused| refused.raise(py))?;
            }
        }
        Ok(())
    }

    fn __repr__(&self) -> String {
        let name = self.core.as_ref().map_or("", |core| &core.name);
        format!("<holdfast.Transaction of the heap {name:?}>")
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        let level = self.take_level();
        let Some(core) = self.core.take() else { return };
        if let Some(level) = level.filter(|_| core.maker.is_here()) {
            // It was abandoned, in a generator that never went on, say.
            let _ = core.end(level, false);
            core.end_turn();
        }
        core.maker.let_go(core);
    }
}
