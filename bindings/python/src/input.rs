//! Bytes that Python hands in, by the buffer protocol, without a copy.
//!
//! Invariant: the bytes stay where they are while the value lives. Another thread may change them
//! meanwhile, if they are those of a `bytearray` or the like; so they are only ever copied, and
//! nothing is decided by them.
//!
//! What it must not do: take references to objects of Python, or addresses, for data. An applet is
//! not to know where anything lies in this process.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// The input of a call, borrowed from a Python object; `None` is no bytes.
pub(crate) struct Input(Option<PyUntypedBuffer>);

impl Input {
    /// The bytes of any object that offers them, one after the other; none without an object.
    /// Objects of which elements are references or addresses, or have some as fields, are refused.
    pub(crate) fn of(object: Option<&Bound<'_, PyAny>>) -> PyResult<Input> {
        let Some(object) = object else { return Ok(Input(None)) };
        let input = Input::view(object)?;
        if let Some(buffer) = &input.0
            && has_addresses(buffer.format().to_bytes())
        {
            let format = buffer.format().to_string_lossy();
            return Err(PyTypeError::new_err(format!(
                "the data has references to objects, or addresses (format {format:?}), which mean nothing to an applet; \
                 pass what they refer to"
            )));
        }
        Ok(input)
    }

    /// As [`Input::of`], whatever the elements are: for callers that want only the place.
    pub(crate) fn view(object: &Bound<'_, PyAny>) -> PyResult<Input> {
        // Those of `ctypes` leave out what a view of them fills in.
        let buffer = PyUntypedBuffer::get(object).or_else(|error| {
            let view = PyMemoryView::from(object).map_err(|_| error)?;
            PyUntypedBuffer::get(&view).map_err(|_| {
                PyBufferError::new_err("the data is no row of bytes; pass a copy (bytes(...))")
            })
        })?;
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

/// Whether elements of this format are references or addresses, or have some as fields: codes of
/// `struct` and PEP 3118 (`O`, `P`, `&`, `X{}`), and those of `ctypes` for texts in C (`z`, `Z`).
fn has_addresses(format: &[u8]) -> bool {
    // Names of fields stand between colons.
    format.split(|byte| *byte == b':').step_by(2).any(|codes| {
        codes.iter().enumerate().any(|(at, code)| match code {
            b'O' | b'P' | b'&' | b'X' | b'z' => true,
            // With one of these behind it, it is a complex number.
            b'Z' => !matches!(codes.get(at + 1), Some(b'f' | b'd' | b'g')),
            _ => false,
        })
    })
}
