//! Memory that Python and an applet share.
//!
//! Invariants:
//! - A view refers to the Python object, which has the memory; so the memory outlives every view.
//! - The applet may store there at any time. Python's views copy, or hand the address on; no Rust
//!   reference is made.

use std::ffi::c_int;
use std::sync::Arc;

use holdfast_applet::SharedBuffer;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::process::Maker;

/// Memory that the host and one applet share: made by `Applet.buffer`, handed to a call with
/// `buffer=`, and never copied on the way.
///
/// It has the buffer protocol, writable: `memoryview(buffer)`, `numpy.frombuffer(buffer, ...)`. It
/// is zeroed when it is made and freed when nothing refers to it any more. The applet may change
/// its bytes at any time, also while no caller calls it: copy (`bytes(view)`) what you decide on
/// before you look at it.
#[pyclass(frozen, weakref, module = "holdfast")]
pub(crate) struct Buffer {
    memory: Option<Arc<SharedBuffer>>,
    maker: Maker,
}

impl Buffer {
    pub(crate) fn new(memory: SharedBuffer) -> Buffer {
        Buffer { memory: Some(Arc::new(memory)), maker: Maker::new() }
    }

    pub(crate) fn memory(&self, py: Python<'_>) -> PyResult<Arc<SharedBuffer>> {
        self.maker.check(py)?;
        // It is taken out in `drop` only.
        self.memory
            .clone()
            .ok_or_else(|| pyo3::exceptions::PyBufferError::new_err("the buffer is gone"))
    }
}

#[pymethods]
impl Buffer {
    fn __len__(&self) -> usize {
        self.memory.as_ref().map_or(0, |memory| memory.len())
    }

    fn __repr__(&self) -> String {
        format!("<holdfast.Buffer of {} bytes>", self.__len__())
    }

    /// # Safety
    /// The interpreter calls this with a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let memory = slf.get().memory(slf.py())?;
        // SAFETY: the memory is mapped, readable and writable while the object lives, to which the
        // view refers.
        unsafe { fill(&slf, view, flags, memory.as_ptr(), memory.len(), false) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.maker.let_go(self.memory.take());
    }
}

/// Describes memory to a caller that asked for it.
///
/// # Safety
/// `view` is one that the interpreter wants filled; `len` bytes from `start` stay mapped while
/// `owner` lives, writable unless they are said to be read-only.
pub(crate) unsafe fn fill<T>(
    owner: &Bound<'_, T>,
    view: *mut ffi::Py_buffer,
    flags: c_int,
    start: *mut u8,
    len: usize,
    is_read_only: bool,
) -> PyResult<()> {
    // SAFETY: the contract of this function; the view takes a reference to the owner by itself.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(
            view,
            owner.as_ptr(),
            start.cast(),
            len as ffi::Py_ssize_t,
            c_int::from(is_read_only),
            flags,
        )
    };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(owner.py())) }
}
