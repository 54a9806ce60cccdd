//! The error codes of `holdfast.h`: the numbers are part of the interface and never change their
//! meaning. Those that a host answers with, too, have the number of their [`RequestStatus`].

use core::ffi::{CStr, c_int};

use holdfast_heap::OpenError;
use holdfast_types::RequestStatus;

/// Why a call failed; the numbers of `enum nv_error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
#[allow(missing_docs, reason = "the header describes each")]
pub enum Code {
    NotGranted = RequestStatus::NotGranted.number(),
    LimitReached = RequestStatus::LimitReached.number(),
    NoRoom = RequestStatus::NoRoom.number(),
    Unsupported = RequestStatus::Unsupported.number(),
    Failed = RequestStatus::Failed.number(),
    NotAllocated = 6,
    MemoryShape = RequestStatus::MemoryShape.number(),
    NotAHeap = 8,
    NameTaken = 9,
    NoSuchRoot = 10,
    BadName = 11,
    BadRange = RequestStatus::BadRange.number(),
    NoTransaction = 13,
    InTransaction = 14,
    Held = 15,
    Forked = 16,
    TooSmall = 17,
    IsOpen = 18,
    BadFile = 19,
    ReadOnly = RequestStatus::ReadOnly.number(),
    Denied = 21,
    Aborted = 22,
    Layout = 23,
    Alignment = 24,
    IsRoot = 25,
    NoHost = 26,
    BadExport = 27,
    Replied = 28,
    NoMemory = 29,
    TooLarge = RequestStatus::TooLarge.number(),
    Cancelled = RequestStatus::Cancelled.number(),
    NoKeeper = 32,
    Superseded = 33,
    Nothing = 34,
    Stale = 35,
    DocDamaged = 36,
    DocLimit = 37,
    BadSelector = 38,
    BadChange = 39,
    NoFile = 40,
    OtherHeap = 41,
    NoFunction = 42,
    HostFunction = 43,
    Portable = 44,
    NotPortable = 45,
}

impl Code {
    /// Every code, in the order of its number.
    pub const ALL: [Code; 45] = [
        Code::NotGranted,
        Code::LimitReached,
        Code::NoRoom,
        Code::Unsupported,
        Code::Failed,
        Code::NotAllocated,
        Code::MemoryShape,
        Code::NotAHeap,
        Code::NameTaken,
        Code::NoSuchRoot,
        Code::BadName,
        Code::BadRange,
        Code::NoTransaction,
        Code::InTransaction,
        Code::Held,
        Code::Forked,
        Code::TooSmall,
        Code::IsOpen,
        Code::BadFile,
        Code::ReadOnly,
        Code::Denied,
        Code::Aborted,
        Code::Layout,
        Code::Alignment,
        Code::IsRoot,
        Code::NoHost,
        Code::BadExport,
        Code::Replied,
        Code::NoMemory,
        Code::TooLarge,
        Code::Cancelled,
        Code::NoKeeper,
        Code::Superseded,
        Code::Nothing,
        Code::Stale,
        Code::DocDamaged,
        Code::DocLimit,
        Code::BadSelector,
        Code::BadChange,
        Code::NoFile,
        Code::OtherHeap,
        Code::NoFunction,
        Code::HostFunction,
        Code::Portable,
        Code::NotPortable,
    ];

    /// The number that C sees.
    #[must_use]
    pub const fn number(self) -> c_int {
        self as c_int
    }

    /// What went wrong, and what to do about it.
    #[must_use]
    pub const fn text(self) -> &'static CStr {
        match self {
            Code::NotGranted => {
                c"no heap was granted; an applet's host grants one (holdfast run --heap NAME, in Python heap=NAME), a native \
                  program opens one (nv_open or HOLDFAST_HEAP)"
            }
            Code::LimitReached => {
                c"the heap's limit is reached; free something, or make a heap with a larger limit"
            }
            Code::NoRoom => {
                c"the pool is full; remove heaps that are not needed, or set HOLDFAST_POOL to a larger tmpfs"
            }
            Code::OtherHeap => {
                c"a transaction is open in another heap, and two heaps do not commit together; commit or abort it first"
            }
            Code::NoFunction => {
                c"the host lets this program call no function of this name; it grants functions by name"
            }
            Code::HostFunction => {
                c"the host function failed; the result has its code and its words"
            }
            Code::Portable => {
                c"the heap is portable, it holds references, and this program would store pointers in it; call nv_portable(1) \
                  before it is opened, and keep nv_ref in the place of pointers (holdfast_portable.h), or use another heap"
            }
            Code::NotPortable => {
                c"the heap holds pointers, and this program would store references in it (nv_portable); use another heap, or \
                  copy its data into a new one with the kind of program that made it"
            }
            Code::Unsupported => c"this is not offered here; holdfast.h says what is",
            Code::Failed => c"the host or the library failed; run `holdfast doctor`",
            Code::NotAllocated => c"the pointer is not the start of an allocated object (freed twice?)",
            Code::MemoryShape => {
                c"the heap's addresses are not free; link an applet without a maximum memory size, \
                  open a native heap in a fresh process"
            }
            Code::NotAHeap => {
                c"the region's bytes are no heap for this program: what is native cannot use a heap that WebAssembly made, nor \
                  WebAssembly one of a native program or applet (`holdfast heap show` says whose it is; nv_portable makes heaps \
                  for both); else run `holdfast heap check`"
            }
            Code::NameTaken => c"a root of that name exists; nvread it, or nvremove it first",
            Code::NoSuchRoot => c"no root has that name; nvmalloc it first",
            Code::BadName => c"a root's name has 1 to 255 bytes of UTF-8, a heap's 1 to 64 of A-Z a-z 0-9 . _ -",
            Code::BadRange => c"the range is not inside the heap, or no range that nvmmap returned",
            Code::NoTransaction => c"no transaction is open; call nv_tx_begin first",
            Code::InTransaction => c"a transaction is open; commit or abort it first",
            Code::Held => {
                c"another process has the heap (wait for it to end; nv_message says which it is), or another thread the \
                  compartment (wait until it leaves)"
            }
            Code::Forked => {
                c"the heap belongs to the process that this one was forked from; open it after the fork, or exec"
            }
            Code::TooSmall => c"the range of that name is smaller; ask for its size, or nvremove it first",
            Code::IsOpen => c"a heap is open; nv_close it first (a compartment: nv_compartment_leave)",
            Code::BadFile => {
                c"the heap, or a file of it, is damaged, foreign or newer (nv_message says which); run `holdfast heap check`"
            }
            Code::ReadOnly => {
                c"the heap may only be read by this run; its owner can let it write: \
                  `holdfast heap grant NAME --to KEY --rw`"
            }
            Code::Denied => {
                c"the heap belongs to another key; its owner can let this one use it: `holdfast heap grant NAME --to KEY`"
            }
            Code::Aborted => {
                c"a part of the transaction was aborted or failed, so all of it was rolled back; do all of it again, or give up"
            }
            Code::Layout => {
                c"the root has another layout, or none; use the program that made it, or nvread it as bytes"
            }
            Code::Alignment => c"an alignment is a power of two up to 2 MiB",
            Code::IsRoot => c"the object is a root: only nvremove frees it, by its name",
            Code::NoHost => c"this program is an applet and was not started by a host; run it with holdfast run",
            Code::BadExport => {
                c"an exported function has a name of 1 to 64 printable bytes of UTF-8 that no other one has, there are at most \
                  1024, and they are exported before holdfast_serve"
            }
            Code::Replied => {
                c"the call has its result already; send the parts of a result with holdfast_send, and reply once"
            }
            Code::NoMemory => {
                c"the applet's own memory is used up; raise its memory limit, or pass large data in a shared buffer"
            }
            Code::TooLarge => {
                c"one message holds 64 MiB; send the result in parts with holdfast_send, or use a shared buffer"
            }
            Code::Cancelled => c"the host no longer wants the result; clean up and return",
            Code::NoKeeper => {
                c"no keeper serves at the socket that HOLDFAST_KEEPER names; start one (`holdfast keeper run --serve`), or unset it"
            }
            Code::Superseded => {
                c"another program had the heap since the keeper was lost; what was stored since the last commit is not in it: nv_open it again"
            }
            Code::Nothing => c"there is none: no such node, attribute or match; look for something else",
            Code::Stale => {
                c"the document was closed, parsed again, compacted or removed, or its heap was closed; nv_doc_open it again"
            }
            Code::DocDamaged => c"the document is damaged (nv_message says where); parse the page again",
            Code::DocLimit => {
                c"the page or the selector is more than a limit allows (nv_message says which); raise it if the page is known to be good"
            }
            Code::BadSelector => c"that is no selector (nv_message says why, and at which character)",
            Code::BadChange => c"no tree can be so (nv_message says why); nothing was changed",
            Code::NoFile => c"the page cannot be read (nv_message says why); check the path",
        }
    }
}

impl From<&OpenError> for Code {
    /// Why a region is no heap for this program.
    fn from(error: &OpenError) -> Code {
        match error {
            OpenError::Portable => Code::Portable,
            OpenError::NotPortable { .. } => Code::NotPortable,
            OpenError::NewerFormat { .. }
            | OpenError::Damaged { .. }
            | OpenError::Truncated { .. } => Code::BadFile,
            // A program that may write has to come first.
            OpenError::Unfinished => Code::ReadOnly,
            OpenError::TooSmall { .. } => Code::LimitReached,
            OpenError::NoOrder => Code::Unsupported,
            _ => Code::NotAHeap,
        }
    }
}

/// The text of a number that C hands in; 0 is no error.
#[must_use]
pub fn text_of(number: c_int) -> Option<&'static CStr> {
    if number == 0 {
        return Some(c"no error");
    }
    Code::ALL.into_iter().find(|code| code.number() == number).map(Code::text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::HeapCallError;
    use holdfast_heap::HeapError;

    /// Every error code has its number in the C header and a text that says what to do.
    #[test]
    fn every_code_has_a_number_and_a_helpful_text() {
        let header = include_str!("../../c/include/holdfast.h");
        let listed = header.lines().filter(|line| line.trim_start().starts_with("NV_")).count();
        // The codes, NV_OK and the three durability levels.
        assert_eq!(listed, Code::ALL.len() + 1 + 3);
        for (index, code) in Code::ALL.into_iter().enumerate() {
            assert_eq!(code.number(), index as c_int + 1);
            assert!(text_of(code.number()).is_some_and(|text| text.to_bytes().contains(&b' ')));
            let [with_comma, without] =
                [",", " "].map(|end| std::format!(" = {}{end}", code.number()));
            assert!(
                header.contains(&with_comma) || header.contains(&without),
                "{code:?} is not in the header"
            );
        }
        // The library does not know its host: the text names what to do in each.
        let not_granted = Code::NotGranted.text().to_str().unwrap();
        for remedy in ["holdfast run --heap NAME", "in Python heap=NAME", "nv_open"] {
            assert!(not_granted.contains(remedy), "{not_granted}");
        }
        assert_eq!(text_of(0), Some(c"no error"));
        assert_eq!(text_of(-1), None);
        assert_eq!(text_of(Code::ALL.len() as c_int + 1), None);
    }

    /// Damage had the code of a host that failed, and who may only read was told that a heap with a
    /// transaction to roll back is none.
    ///
    /// Guarantee: programs/errors
    #[test]
    fn damaged_and_unfinished_heaps_have_fitting_codes() {
        let (offset, what) = (128, "the root table");
        let damaged = HeapCallError::Heap(HeapError::Damaged { offset, what });
        assert_eq!(damaged.code(), Code::BadFile);
        let refusals = [
            (OpenError::Damaged { offset, what }, Code::BadFile),
            (OpenError::Truncated { claimed_bytes: 2, bytes: 1 }, Code::BadFile),
            (OpenError::NewerFormat { version: u32::MAX }, Code::BadFile),
            (OpenError::Unfinished, Code::ReadOnly),
            (OpenError::TooSmall { bytes: 1, needed_bytes: 2 }, Code::LimitReached),
            (OpenError::NoOrder, Code::Unsupported),
            (OpenError::NotAHeap, Code::NotAHeap),
            (OpenError::Empty, Code::NotAHeap),
        ];
        for (error, code) in refusals {
            assert_eq!(Code::from(&error), code, "{error}");
        }
    }
}
