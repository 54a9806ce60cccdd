//! How an operation on an open heap fails, and which exception that is.
#![forbid(unsafe_code)]

use holdfast_heap::{HeapError, OpenError};
use holdfast_native_heap::OpenHeapError;
use holdfast_region::RegionError;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;

use crate::error::{Class, raise, region_error};

/// See the module. The text of each says what to do next.
#[derive(Debug)]
pub(crate) enum Refusal {
    Closed { name: String },
    Views { what: String, count: usize },
    Undone { count: usize },
    InTransaction { what: &'static str },
    Call(HeapError, Option<String>),
    Open(OpenHeapError),
}

impl From<RegionError> for Refusal {
    fn from(error: RegionError) -> Refusal {
        Refusal::Open(error.into())
    }
}

impl From<OpenHeapError> for Refusal {
    fn from(error: OpenHeapError) -> Refusal {
        Refusal::Open(error)
    }
}

impl From<HeapError> for Refusal {
    fn from(error: HeapError) -> Refusal {
        Refusal::Call(error, None)
    }
}

impl Refusal {
    /// As the exception of Python.
    pub(crate) fn raise(&self, py: Python<'_>) -> PyErr {
        match self {
            Refusal::Closed { name } => raise(
                py,
                Class::Closed,
                format!("the heap {name:?} is closed; open it anew with Heap({name:?})"),
                (),
            ),
            Refusal::Views { what, count } => PyBufferError::new_err(format!(
                "{what}: {} still exported; release them first (del, memoryview.release(); arrays made of them count)",
                views(*count)
            )),
            Refusal::Undone { count } => PyBufferError::new_err(format!(
                "{} still exported of roots that a rollback has undone: the heap hands out no memory before they are released (del, \
                 memoryview.release())",
                views(*count)
            )),
            Refusal::InTransaction { what } => raise(
                py,
                Class::TransactionError,
                format!("{what} is not possible inside a transaction; end the `with` block first"),
                (),
            ),
            Refusal::Call(error, name) => call(py, *error, name.as_deref()),
            Refusal::Open(OpenHeapError::Region(error)) => region_error(py, error),
            Refusal::Open(OpenHeapError::Heap(error)) => {
                let class = match error {
                    OpenError::TooSmall { .. } => Class::HeapNoRoom,
                    OpenError::Unfinished => Class::HeapDenied,
                    OpenError::PointerMismatch { .. } => Class::HeapError,
                    _ => Class::HeapDamaged,
                };
                raise(py, class, error, ())
            }
            Refusal::Open(error) => raise(py, Class::HeapError, error, ()),
        }
    }
}

fn call(py: Python<'_>, error: HeapError, name: Option<&str>) -> PyErr {
    let named = |text: String| match name {
        Some(name) => format!("{name:?}: {text}"),
        None => text,
    };
    let class = match error {
        HeapError::OutOfMemory { .. } => Class::HeapNoRoom,
        HeapError::ReadOnly => Class::HeapDenied,
        HeapError::NameTaken => Class::RootExists,
        HeapError::NoSuchRoot => Class::RootNotFound,
        HeapError::TransactionAborted | HeapError::TransactionState { .. } => Class::TransactionError,
        HeapError::BadName | HeapError::OutsideHeap => {
            return PyValueError::new_err(named(error.to_string()));
        }
        _ => Class::HeapError,
    };
    raise(py, class, named(error.to_string()), ())
}

fn views(count: usize) -> String {
    match count {
        1 => "1 memoryview is".to_owned(),
        count => format!("{count} memoryviews are"),
    }
}
