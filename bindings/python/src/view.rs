//! The exporter behind a `memoryview` of a root.
//!
//! Invariants:
//! - A view refers to one of these, and this to the heap: so the heap stays mapped as long as a
//!   view lives, and knows how many there are.
//! - What is stored by way of a view is the program's business, as is whatever the heap's bytes
//!   say: nothing here looks at them.

use std::ffi::c_int;
use std::sync::Arc;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

use crate::buffer::fill;
use crate::heap_core::{Core, Found};

/// One root of an open heap, as the owner of views.
#[pyclass(frozen, module = "holdfast", name = "_Root")]
pub(crate) struct RootMemory {
    core: Option<Arc<Core>>,
    found: Found,
}

impl RootMemory {
    /// A view of a root that was just found; `core` has counted it.
    pub(crate) fn view<'py>(
        py: Python<'py>,
        core: Arc<Core>,
        found: Found,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let memory = Bound::new(py, RootMemory { core: Some(core), found })?;
        PyMemoryView::from(memory.as_any())
    }
}

#[pymethods]
impl RootMemory {
    /// Where the object lies, from the heap's first byte; for `Portable`.
    #[getter]
    fn _offset(&self) -> u64 {
        self.found.offset
    }

    /// # Safety
    /// The interpreter calls this with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        if let Some(core) = &this.core {
            core.maker.check(slf.py())?;
        }
        let Found { address, bytes, is_read_only, .. } = this.found;
        // SAFETY: the heap found the object there, in its mapping, which stays while the core
        // counts this value; the mapping is writable unless the heap is open for reading only.
        unsafe { fill(&slf, view, flags, address as *mut u8, bytes, is_read_only) }
    }
}

impl Drop for RootMemory {
    fn drop(&mut self) {
        let Some(core) = self.core.take() else { return };
        // In a forked child another thread of the parent may have had the lock under which they are
        // counted.
        if core.maker.is_here() {
            core.forget_view(self.found.offset);
        }
        // It may be the last one to have the heap.
        core.maker.let_go(core);
    }
}
