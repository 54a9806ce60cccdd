//! Bytes that Python hands in, by the buffer protocol, without a copy.
//!
//! Invariant: the bytes stay where they are while the value lives. Another thread may change them
//! meanwhile, if they are those of a `bytearray` or the like; so they are only ever copied, and
//! nothing is decided by them.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::prelude::*;

/// The input of a call, borrowed from a Python object; `None` is no bytes.
pub(crate) struct Input(Option<PyUntypedBuffer>);

impl Input {
    /// The bytes of any object that offers them, one after the other; none without an object.
    pub(crate) fn of(object: Option<&Bound<'_, PyAny>>) -> PyResult<Input> {
        let Some(object) = object else { return Ok(Input(None)) };
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() {
            return Err(PyBufferError::new_err(
                "the data is not contiguous; pass a copy (bytes(...), numpy.ascontiguousarray)",
            ));
        }
        Ok(Input(Some(buffer)))
    }

    /// Where they are, and how many.
    pub(crate) fn place(&self) -> (*const u8, usize) {
        match &self.0 {
            Some(buffer) if buffer.len_bytes() > 0 => {
                (buffer.buf_ptr().cast_const().cast(), buffer.len_bytes())
            }
            _ => (std::ptr::NonNull::dangling().as_ptr(), 0),
        }
    }

    /// The bytes; see the module for what may be done with them.
    pub(crate) fn bytes(&self) -> &[u8] {
        let (start, len) = self.place();
        // SAFETY: the exporter keeps `len` contiguous, initialised bytes there until the buffer is
        // released, which is when this value is dropped. What other threads store there meanwhile
        // is as with every taker of such an object: the bytes are copied once, and whatever comes
        // out counts.
        unsafe { std::slice::from_raw_parts(start, len) }
    }
}
