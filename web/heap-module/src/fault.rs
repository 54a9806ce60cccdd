//! Why something was not done: a number, by which TypeScript picks a class of error, and a
//! sentence.

use std::fmt;

use holdfast_dom::DomError;
use holdfast_heap::{HeapError, OpenError, RootType};

/// What kind of failure it is; the numbers are those of `web/src/heap-module.ts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Code {
    /// Bytes contradict each other.
    Corrupt = 1,
    /// The heap has no room, and may not grow.
    Full = 2,
    /// The bytes are of another type than the program wants.
    Layout = 3,
    /// There is nothing of that name.
    Missing = 4,
    /// There is something of that name already.
    Exists = 5,
    /// A name or an argument is none that there can be.
    Argument = 6,
    /// The heap was opened for reading.
    ReadOnly = 7,
    /// An object was freed, or never was one.
    Stale = 8,
    /// Not possible inside, or outside, of a transaction.
    Transaction = 9,
    /// The selector is invalid.
    Selector = 10,
    /// A page or a query passes a limit.
    Limit = 11,
    /// A newer version wrote it.
    Newer = 12,
    /// The host failed.
    Host = 13,
}

/// A failure; see the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind it is.
    pub code: Code,
    /// What to tell the caller.
    pub text: String,
    /// Where in a selector it is, from 1; else 0.
    pub column: u32,
}

impl Fault {
    /// A failure of a kind, and a sentence.
    #[must_use]
    pub fn new(code: Code, text: impl Into<String>) -> Fault {
        Fault { code, text: text.into(), column: 0 }
    }

    /// Damage of a part of a container.
    #[must_use]
    pub fn corrupt(what: &str) -> Fault {
        Fault::new(Code::Corrupt, format!("{what}; restore the heap from an export"))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Fault {}

impl From<HeapError> for Fault {
    fn from(error: HeapError) -> Fault {
        let code = match error {
            HeapError::OutOfMemory { .. } => Code::Full,
            HeapError::ReadOnly => Code::ReadOnly,
            HeapError::NotAllocated | HeapError::BadReference { .. } => Code::Stale,
            HeapError::OutsideHeap => Code::Corrupt,
            HeapError::NameTaken => Code::Exists,
            HeapError::NoSuchRoot => Code::Missing,
            HeapError::BadName | HeapError::Alignment { .. } => Code::Argument,
            HeapError::LayoutMismatch { stored, wanted } => return layout(stored, wanted),
            HeapError::NotPortable | HeapError::TypedRoot => Code::Layout,
            HeapError::TransactionAborted
            | HeapError::TransactionState { .. }
            | HeapError::OtherHeap => Code::Transaction,
            _ => Code::Corrupt,
        };
        Fault::new(code, error.to_string())
    }
}

/// What is wrong with a root that has another type.
pub(crate) fn layout(stored: Option<RootType>, wanted: RootType) -> Fault {
    let name = |of: RootType| match of.version {
        0 => format!("{:#018x}", of.layout),
        version => format!("{:#018x} version {version}", of.layout),
    };
    let stored = stored.map_or_else(|| "no layout".to_owned(), |of| format!("layout {}", name(of)));
    let wanted = name(wanted);
    Fault::new(Code::Layout, format!("the root has {stored}, and the program wants {wanted}"))
}

impl From<OpenError> for Fault {
    fn from(error: OpenError) -> Fault {
        let code = match error {
            OpenError::NewerFormat { .. } => Code::Newer,
            OpenError::PointerMismatch { .. } | OpenError::NotPortable { .. } => Code::Layout,
            OpenError::Empty => Code::Missing,
            OpenError::Unfinished => Code::ReadOnly,
            OpenError::TooSmall { .. } => Code::Full,
            _ => Code::Corrupt,
        };
        Fault::new(code, error.to_string())
    }
}

impl From<DomError> for Fault {
    fn from(error: DomError) -> Fault {
        let (code, column) = match error {
            DomError::Heap(heap) => return heap.into(),
            DomError::NoSuchDocument { .. } => (Code::Missing, 0),
            DomError::NotADocument { .. } => (Code::Layout, 0),
            DomError::NewerFormat { .. } => (Code::Newer, 0),
            DomError::Selector { column, .. } => (Code::Selector, column),
            DomError::Limit { .. } => (Code::Limit, 0),
            DomError::Damaged(_) => (Code::Corrupt, 0),
            _ => (Code::Argument, 0),
        };
        Fault { column, ..Fault::new(code, error.to_string()) }
    }
}
