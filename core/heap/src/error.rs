//! The errors of a heap, as values; every message says what to do next.

use core::fmt;

use holdfast_types::Remedy;

use crate::types::RootType;

/// `Debug` as the message. A `main` that returns an error prints it with `Debug`, so a variant's
/// name alone would be all that the user of an applet gets to see.
#[doc(hidden)]
#[macro_export]
macro_rules! show_as_text {
    ($($error:ty),*) => {$(
        impl ::core::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Display::fmt(self, f)
            }
        }
    )*};
}

/// Why a heap could not be opened.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpenError {
    /// The region is too small for a heap.
    TooSmall {
        /// Bytes that there are.
        bytes: u64,
        /// Bytes that are needed.
        needed_bytes: u64,
    },
    /// Nothing was ever stored here.
    Empty,
    /// The bytes are not a heap of ours.
    NotAHeap,
    /// A newer version of Holdfast made it.
    NewerFormat {
        /// The version found.
        version: u32,
    },
    /// The heap holds pointers of another kind of applet.
    PointerMismatch {
        /// Base address and pointer size stored in the heap.
        stored: (u64, u32),
        /// What this program would use.
        wanted: (u64, u32),
    },
    /// The heap is portable: it holds references, and this program would store pointers.
    Portable,
    /// The heap holds pointers, and this program would store references.
    NotPortable {
        /// Bytes of its pointers.
        pointer_bytes: u32,
    },
    /// The last program left a transaction open, and this one may not store to roll it back.
    Unfinished,
    /// The stores shall survive a reset in order, and this processor has no instruction for that.
    NoOrder,
    /// Metadata contradicts itself.
    Damaged {
        /// Offset of the contradiction.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
    /// The heap says that it is larger than what is backed.
    Truncated {
        /// Bytes that the heap's metadata speaks of.
        claimed_bytes: u64,
        /// Bytes that there are.
        bytes: u64,
    },
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooSmall { bytes, needed_bytes } => {
                write!(f, "a heap needs {needed_bytes} bytes, the region has {bytes}; give it a larger limit")
            }
            Self::Empty => f.write_str("the region holds no heap yet; run an applet with it"),
            Self::NotAHeap => f.write_str(
                "the region's data is not a heap; check that the name is right, or remove the region and start afresh",
            ),
            Self::NewerFormat { version } => write!(
                f,
                "the heap has format version {version}, this program knows {}; use a newer Holdfast",
                crate::layout::FORMAT_VERSION
            ),
            Self::PointerMismatch { stored, wanted } => write!(
                f,
                "the heap holds {}-byte pointers based at {:#x}, this program uses {}-byte pointers based at {:#x}; \
                 open it with the kind of applet that made it",
                stored.1, stored.0, wanted.1, wanted.0
            ),
            Self::Portable => f.write_str(
                "the heap is portable, it holds references, and this program would store pointers in it; open it as a \
                 portable one (in Rust attach_portable, in C nv_portable, in Python portable=True), or use another heap",
            ),
            Self::NotPortable { pointer_bytes } => write!(
                f,
                "the heap holds pointers of {pointer_bytes} bytes, and this program would store references in it; use \
                 another heap, or copy its data into a new one with the kind of program that made it"
            ),
            Self::Unfinished => f.write_str(
                "the heap's last program was killed in a transaction, which this one may not roll back; run one that may \
                 write to the heap first",
            ),
            Self::NoOrder => f.write_str(
                "this processor cannot write cache lines back, so the heap cannot keep its order through a reset; open it \
                 without that, and commit at level `power`",
            ),
            Self::Damaged { offset, what } => {
                write!(f, "the heap is damaged at offset {offset:#x} ({what}); {}", Remedy::Check { heap: None })
            }
            Self::Truncated { claimed_bytes, bytes } => write!(
                f,
                "the heap has {claimed_bytes} bytes by its own account but only {bytes} are there; {}",
                Remedy::RemoveImage { heap: None }
            ),
        }
    }
}

impl core::error::Error for OpenError {}

show_as_text!(OpenError);

/// Why more backing could not be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum GrowError {
    /// The region's limit is reached.
    LimitReached {
        /// The limit.
        limit_bytes: u64,
    },
    /// References reach no further ([`REF_REACH_BYTES`](crate::REF_REACH_BYTES)).
    OutOfReach,
    /// The pool has no room.
    NoRoom,
    /// The system refused for another reason.
    Failed,
}

/// Why an operation on an open heap failed. The heap is as it was before.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HeapError {
    /// No room for the object, and the region could not grow.
    OutOfMemory {
        /// Bytes asked for.
        wanted_bytes: u64,
        /// Why the region did not grow.
        cause: GrowError,
    },
    /// The heap may only be read.
    ReadOnly,
    /// The pointer is not the start of an allocated object.
    NotAllocated,
    /// A range that is not inside the heap.
    OutsideHeap,
    /// A root of that name exists.
    NameTaken,
    /// No root has that name.
    NoSuchRoot,
    /// The root has a type, and so the size of that.
    TypedRoot,
    /// Root names have 1 to 255 bytes.
    BadName,
    /// The root has another type than the program wants, or none.
    LayoutMismatch {
        /// What the root carries.
        stored: Option<RootType>,
        /// What the program wants.
        wanted: RootType,
    },
    /// The heap is portable, and the type of the root is not.
    NotPortable,
    /// A reference does not lead to an allocated object that has room for a value of its type.
    BadReference {
        /// Where it leads, from the start of the heap.
        offset: u64,
    },
    /// Objects are aligned to powers of two up to 2 MiB, and no further than the heap's first byte.
    Alignment {
        /// The alignment that was asked for.
        align_bytes: u64,
    },
    /// An inner transaction was aborted, or something with several parts failed half-way, so the
    /// whole transaction was rolled back.
    TransactionAborted,
    /// The operation is not possible inside (or outside) a transaction.
    TransactionState {
        /// What was expected.
        expected_open: bool,
    },
    /// The caller has a transaction open in another heap, and two heaps do not commit together.
    OtherHeap,
    /// Metadata contradicts itself.
    Damaged {
        /// Offset of the contradiction, from the start of the heap.
        offset: u64,
        /// What is wrong there.
        what: &'static str,
    },
}

impl fmt::Display for HeapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::OutOfMemory { wanted_bytes, cause: GrowError::LimitReached { limit_bytes } } => write!(
                f,
                "no room for {wanted_bytes} bytes: the heap's limit of {limit_bytes} bytes is reached; \
                 free something, or {}",
                Remedy::RaiseLimit { heap: None }
            ),
            Self::OutOfMemory { wanted_bytes, cause: GrowError::OutOfReach } => write!(
                f,
                "no room for {wanted_bytes} bytes: a portable heap ends at 32 GiB, where references end; free something, \
                 or keep a part of the data in another heap"
            ),
            Self::OutOfMemory { wanted_bytes, cause: GrowError::NoRoom } => write!(
                f,
                "no room for {wanted_bytes} bytes: the pool is full; remove heaps that are not needed, \
                 or set HOLDFAST_POOL to a larger tmpfs"
            ),
            Self::OutOfMemory { wanted_bytes, cause: GrowError::Failed } => write!(
                f,
                "no room for {wanted_bytes} bytes: the region could not grow; {}",
                Remedy::ExamineMachine
            ),
            Self::ReadOnly => write!(
                f,
                "the heap may only be read by this run; {}",
                Remedy::GrantWriting { heap: None }
            ),
            Self::NotAllocated => {
                f.write_str("the pointer is not the start of an allocated object (freed twice?)")
            }
            Self::OutsideHeap => f.write_str("the range is not inside the heap"),
            Self::NameTaken => f.write_str("a root of that name exists; read it, or remove it first"),
            Self::NoSuchRoot => f.write_str("no root has that name; create it first"),
            Self::BadName => f.write_str("a root's name has 1 to 255 bytes of UTF-8"),
            Self::LayoutMismatch { stored: Some(stored), wanted } => write!(
                f,
                "the root has layout {:#018x} version {}, this program wants layout {:#018x} version {}; \
                 migrate it (`root_or_migrate`), or use the program that made it",
                stored.layout, stored.version, wanted.layout, wanted.version
            ),
            Self::LayoutMismatch { stored: None, wanted } => write!(
                f,
                "the root has no type, or is too small for layout {:#018x} version {} that this program wants; \
                 adopt it (`adopt_root`) if it is known to be of that type, or read it without a type",
                wanted.layout, wanted.version
            ),
            Self::NotPortable => f.write_str(
                "the heap is portable, and the type of this root is not: it may lie in memory otherwise in another program; \
                 declare it with `portable!`",
            ),
            Self::BadReference { offset } => write!(
                f,
                "the reference to {offset:#x} leads to no object of its type; check what stored it, and whether the object \
                 was freed"
            ),
            Self::Alignment { align_bytes } => write!(
                f,
                "an alignment of {align_bytes} bytes is not offered; ask for a power of two up to 2 MiB, \
                 no larger than that of the heap's first byte"
            ),
            Self::TransactionAborted => f.write_str(
                "a part of the transaction was aborted or failed, so all of it was rolled back; do all of it again, or give up",
            ),
            Self::TransactionState { expected_open: true } => {
                f.write_str("no transaction is open; begin one first")
            }
            Self::TransactionState { expected_open: false } => {
                f.write_str("a transaction is open; commit or abort it first")
            }
            Self::TypedRoot => f.write_str(
                "a root with a type keeps the size of its type; make a root of the new type and remove the old one",
            ),
            Self::OtherHeap => f.write_str(
                "a transaction is open in another heap, and two heaps do not commit together; commit or abort it first",
            ),
            Self::Damaged { offset, what } => {
                write!(f, "the heap is damaged at offset {offset:#x} ({what}); {}", Remedy::Check { heap: None })
            }
        }
    }
}

impl core::error::Error for HeapError {}

show_as_text!(HeapError);
