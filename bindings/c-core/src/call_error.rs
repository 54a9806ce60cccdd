//! Why a call failed: the code that C gets, and what natively the message says.
//!
//! Invariant: every failure has a code, and a text that says what to do in terms of `holdfast.h`.

use core::fmt;

use crate::codes::Code;
use holdfast_heap::{GrowError, HeapError};

/// Why a call failed, apart from what only one of the libraries knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeapCallError {
    /// The heap says no.
    Heap(HeapError),
    /// A range of that name exists and is smaller than asked for.
    TooSmall {
        /// What it has.
        has_bytes: u64,
        /// What was asked for.
        wanted_bytes: u64,
    },
    /// Not the start of a range that `nvmmap` returned.
    NotARange,
    /// No such durability level.
    NoSuchLevel,
    /// The root has another layout than the program wants.
    OtherLayout {
        /// What it has; 0 is none.
        stored: u64,
        /// What the program wants.
        wanted: u64,
    },
    /// A root's object stays where it is, and as long as its name does.
    IsRoot,
}

impl HeapCallError {
    /// The number for C.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Heap(HeapError::OutOfMemory {
                cause: GrowError::LimitReached { .. } | GrowError::OutOfReach,
                ..
            }) => Code::LimitReached,
            Self::Heap(HeapError::OutOfMemory { cause: GrowError::NoRoom, .. }) => Code::NoRoom,
            Self::Heap(HeapError::ReadOnly) => Code::ReadOnly,
            Self::Heap(HeapError::NotAllocated) => Code::NotAllocated,
            Self::Heap(HeapError::OutsideHeap | HeapError::BadReference { .. })
            | Self::NotARange => Code::BadRange,
            Self::Heap(HeapError::NameTaken) => Code::NameTaken,
            Self::Heap(HeapError::NoSuchRoot) => Code::NoSuchRoot,
            Self::Heap(HeapError::BadName) => Code::BadName,
            Self::Heap(HeapError::TransactionState { expected_open: true }) => Code::NoTransaction,
            Self::Heap(HeapError::TransactionState { expected_open: false }) => Code::InTransaction,
            Self::Heap(HeapError::TransactionAborted) => Code::Aborted,
            Self::Heap(HeapError::OtherHeap) => Code::OtherHeap,
            Self::Heap(
                HeapError::LayoutMismatch { .. } | HeapError::NotPortable | HeapError::TypedRoot,
            ) => Code::Layout,
            Self::Heap(HeapError::Alignment { .. }) => Code::Alignment,
            Self::Heap(HeapError::Damaged { .. }) => Code::BadFile,
            Self::Heap(_) => Code::Failed,
            Self::TooSmall { .. } => Code::TooSmall,
            Self::NoSuchLevel => Code::Unsupported,
            Self::OtherLayout { .. } => Code::Layout,
            Self::IsRoot => Code::IsRoot,
        }
    }
}

impl fmt::Display for HeapCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Heap(error) => error.fmt(f),
            Self::TooSmall { has_bytes, wanted_bytes } => write!(
                f,
                "the range has {has_bytes} bytes and {wanted_bytes} were asked for; ask for no more, or \
                 nvremove it first"
            ),
            Self::NotARange => f.write_str("the pointer is no range that nvmmap returned; pass that one"),
            Self::OtherLayout { stored, wanted } => write!(
                f,
                "the root has the layout {stored:#018x} (0: none), this program wants {wanted:#018x}; use the program \
                 that made it, or nvread it as bytes"
            ),
            Self::IsRoot => f.write_str(
                "the object is a root: only nvremove frees it, by its name; to give it another size, make another one, copy, \
                 and nvremove this one",
            ),
            Self::NoSuchLevel => f.write_str("there is no such durability level; see enum nv_level"),
        }
    }
}

impl core::error::Error for HeapCallError {}

impl From<HeapError> for HeapCallError {
    fn from(error: HeapError) -> Self {
        Self::Heap(error)
    }
}
