//! The errors of operations on an open heap, and the exception for each.
#![forbid(unsafe_code)]

use holdfast_dom::DomError;
use holdfast_heap::{HeapError, OpenError};
use holdfast_native_heap::OpenHeapError;
use holdfast_region::RegionError;
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::{Class, raise, region_error};

/// See the module. The text of each says what to do next.
#[derive(Debug)]
pub(crate) enum Refusal {
    Closed {
        name: String,
    },
    Views {
        what: String,
        count: usize,
    },
    Undone {
        count: usize,
    },
    InTransaction {
        what: &'static str,
    },
    Call(HeapError, Option<String>),
    Open(OpenHeapError),
    /// `close` of the document.
    DocumentClosed,
    /// The page was parsed again, compacted, removed or rolled back.
    OtherEdition {
        name: String,
    },
    /// A document has no memory to look at.
    IsDocument {
        name: String,
    },
    /// A page that is in no heap.
    Loose,
    Dom(Box<DomError>),
}

impl From<DomError> for Refusal {
    fn from(error: DomError) -> Refusal {
        Refusal::Dom(Box::new(error))
    }
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
                    OpenError::PointerMismatch { .. }
                    | OpenError::Portable
                    | OpenError::NotPortable { .. }
                    | OpenError::Empty
                    | OpenError::NoOrder => Class::HeapError,
                    _ => Class::HeapDamaged,
                };
                raise(py, class, error, ())
            }
            Refusal::Open(error) => raise(py, Class::HeapError, error, ()),
            Refusal::DocumentClosed => raise(
                py,
                Class::Closed,
                "the document is closed; open it anew with Document.open",
                (),
            ),
            Refusal::OtherEdition { name } => raise(
                py,
                Class::Closed,
                format!(
                    "the document {name:?} was parsed again, compacted, removed or rolled back since; open it anew with \
                     Document.open, or after Document.compact ask it for the node again"
                ),
                (),
            ),
            Refusal::IsDocument { name } => raise(
                py,
                Class::DocumentError,
                format!("the root {name:?} is a document; open it with Document.open"),
                (),
            ),
            Refusal::Loose => raise(
                py,
                Class::DocumentError,
                "a page that is in no heap cannot be changed; parse it into one: Document.parse(source, heap=\"NAME\")",
                (),
            ),
            Refusal::Dom(error) => document(py, error),
        }
    }
}

fn document(py: Python<'_>, error: &DomError) -> PyErr {
    let class = match error {
        DomError::Io(error) => return std::io::Error::from(error.kind()).into(),
        DomError::Heap(error) => return call(py, *error, None),
        DomError::Limit { limit, max } => {
            return raise(py, Class::DocumentTooLarge, error, |fields: &Bound<'_, PyDict>| {
                fields.set_item("limit", limit.to_string())?;
                fields.set_item("max", max)
            });
        }
        DomError::Selector { selector, reason, column } => {
            return raise(py, Class::SelectorError, error, |fields: &Bound<'_, PyDict>| {
                fields.set_item("selector", selector)?;
                fields.set_item("reason", reason)?;
                fields.set_item("column", column)
            });
        }
        DomError::NoSuchDocument { .. } => Class::DocumentNotFound,
        DomError::NewerFormat { .. } | DomError::Damaged(_) => Class::DocumentDamaged,
        DomError::Change(_) => Class::ChangeRefused,
        _ => Class::DocumentError,
    };
    raise(py, class, error, ())
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
        HeapError::TransactionAborted
        | HeapError::TransactionState { .. }
        | HeapError::OtherHeap => Class::TransactionError,
        HeapError::Damaged { .. } => Class::HeapDamaged,
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
