//! Why a call failed, as a code and a text, and each thread's last failure for `nv_errno` and
//! `nv_message`.
//!
//! Invariant: a text ends with a zero byte; one that is too long is cut at a character.

use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::fmt::{self, Write};

use holdfast_c_core::{Code, HeapCallError};
use holdfast_dom::{ChangeError, DomError};
use holdfast_keeper_client::{KeeperError, OpenServedError, RefusedKind};
use holdfast_native_heap::{OpenHeapError, SizeError};
use holdfast_region::{
    AccessError, ErrorKind, KeyError, MediumError, NameError, PlaceError, RegionError,
};
use holdfast_types::{HowTo, Remedy, set_how_to};

/// Why a call failed. The large ones in boxes: most calls succeed, and pay for the size.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The heap says no.
    #[error(transparent)]
    Call(#[from] HeapCallError),
    /// The region says no, or is no heap for us.
    #[error(transparent)]
    Open(Box<OpenHeapError>),
    /// The directories cannot be used.
    #[error(transparent)]
    Places(Box<PlaceError>),
    /// The key cannot be used.
    #[error(transparent)]
    Key(Box<KeyError>),
    /// The name breaks the rules.
    #[error(transparent)]
    Name(#[from] NameError),
    /// HOLDFAST_HEAP_SIZE is nonsense.
    #[error("HOLDFAST_HEAP_SIZE: {0}")]
    Size(#[from] SizeError),
    /// HOLDFAST_RESERVE is nonsense.
    #[error("HOLDFAST_RESERVE: {0}")]
    Reserve(SizeError),
    /// HOLDFAST_HEAP_BACKING is nonsense.
    #[error("HOLDFAST_HEAP_BACKING: {0}")]
    Medium(#[from] MediumError),
    /// It was not said which heap.
    #[error("no heap is open; call nv_open, or set HOLDFAST_HEAP to a name")]
    NotGranted,
    /// A handle that is none, or of a heap that was closed.
    #[error(
        "the handle is of no open heap; pass what nv_heap_open returned, and look whether that was NULL"
    )]
    NoSuchHandle,
    /// Another thread has the compartment.
    #[error(
        "another thread of this process has the compartment {name}; wait until it leaves, or enter another one"
    )]
    HeldByThread {
        /// Its name.
        name: String,
    },
    /// A compartment of another heap than the open one.
    #[error(
        "the compartment is of another heap; threads of this program have compartments of {parent:?}, the heap of nv_open"
    )]
    NotItsCompartment {
        /// The heap that is open.
        parent: String,
    },
    /// Entering one, or opening a heap, from within a compartment.
    #[error("this thread is in a compartment; nv_compartment_leave it first")]
    IsInCompartment,
    /// What is about the heap of the whole process, from within a compartment.
    #[error(
        "this thread is in a compartment, and this is about the heap of all threads; nv_compartment_leave first"
    )]
    InCompartment,
    /// Leaving where none was entered.
    #[error("this thread is in no compartment; nv_compartment_enter one first")]
    OutsideCompartments,
    /// Entering with an open transaction.
    #[error("this thread has a transaction open; commit or abort it first")]
    InTransaction,
    /// A keeper lends heaps only.
    #[error("a heap that a keeper lends has no compartments; unset HOLDFAST_KEEPER")]
    ServedCompartment,
    /// HOLDFAST_COMPARTMENT_QUOTA is nonsense.
    #[error("HOLDFAST_COMPARTMENT_QUOTA: {0}")]
    Quota(SizeError),
    /// Too many heaps were opened by name.
    #[error("{limit} heaps were opened by nv_heap_open; open fewer in one process")]
    TooManyHandles {
        /// How many one process can open.
        limit: usize,
    },
    /// The program's file is not known.
    #[error(
        "the program's own name is not known ({0}), after which its heap would be named; call nv_open with a name"
    )]
    NoProgramName(std::io::Error),
    /// The process is ending.
    #[error("the program is ending and its heap is closed; use the heap before exit")]
    Ending,
    /// `nv_open` with an open heap.
    #[error("the heap {name:?} is open; nv_close it first")]
    IsOpen {
        /// Its name.
        name: String,
    },
    /// A forked child.
    #[error(
        "the heap belongs to process {opener}, from which process {us} was forked; open it after the fork, or exec",
        us = std::process::id()
    )]
    Forked {
        /// The process that opened it.
        opener: u32,
    },
    /// The heap cannot be kept from the process's children.
    #[error(
        "the heap cannot be kept from forked children ({0}); the machine is out of memory, try again"
    )]
    CannotHide(std::io::Error),
    /// It was closed by `nv_close`.
    #[error("the heap was closed; call nv_open before you use one again")]
    LetGo,
    /// The environment asks for a mode that there is not.
    #[error("HOLDFAST_HEAP_MODE is `{mode}`; it is direct or atomic")]
    BadMode {
        /// What it says.
        mode: String,
    },
    /// The other threads of an ending process cannot be kept from storing.
    #[error(
        "other threads still run and cannot be stopped ({0}); end them, or call nv_close, before the program ends"
    )]
    CannotStop(std::io::Error),
    /// An object of another user.
    #[error(
        "the object is user {uid}'s, and this program runs as user {us}; each user's objects are in heaps of that user's own \
         (with HOLDFAST_KEEPER, in that keeper's), so run it as that user"
    )]
    OtherUser {
        /// Whose it is.
        uid: u64,
        /// The process that asks.
        us: u32,
    },
    /// The keeper says no, or is not there.
    #[error(transparent)]
    Keeper(Box<KeeperError>),
    /// What a keeper lent is no heap for us.
    #[error(transparent)]
    Served(Box<OpenServedError>),
    /// Another mode than a keeper's.
    #[error(
        "a heap that a keeper lends is in the mode direct; unset HOLDFAST_HEAP_MODE, or HOLDFAST_KEEPER"
    )]
    ServedMode,
    /// A keeper lends memory.
    #[error(
        "a heap that a keeper lends is in memory; unset HOLDFAST_HEAP_BACKING, or HOLDFAST_KEEPER"
    )]
    ServedBacking,
    /// Its limit is the keeper's to keep.
    #[error("a heap that a keeper lends keeps its limit; make another heap with a larger one")]
    ServedLimit,
    /// The document says no.
    #[error(transparent)]
    Dom(Box<DomError>),
    /// There is no such thing.
    #[error("there is none: no such node, attribute or match")]
    Nothing,
    /// No node has this number.
    #[error("node {node} does not exist")]
    NoNode {
        /// The number.
        node: u32,
    },
    /// The document was closed or replaced.
    #[error(
        "the document was closed, parsed again, compacted or removed, or its heap was closed; nv_doc_open it again"
    )]
    Stale,
    /// What must be text is none.
    #[error("a name, selector or text is NULL, larger than memory or no UTF-8; pass UTF-8")]
    NoText,
    /// A page's file.
    #[error("cannot read {path}: {source}; check the path")]
    NoFile {
        /// Which one.
        path: String,
        /// The underlying error.
        source: std::io::Error,
    },
    /// What `nv_register_type` got is no type.
    #[error("{what}; pass what NV_TYPE describes")]
    BadType {
        /// What is wrong.
        what: String,
    },
    /// No memory for an array.
    #[error("the program's memory is used up; free some, and try again")]
    NoMemory,
    /// A panic while a page was parsed.
    #[error(
        "a failure inside the library while the page was parsed; nothing was changed: report this"
    )]
    Parser,
    /// A panic, now or before.
    #[error(
        "a failure inside the library left the heap's handle in an unknown state; what is stored is not lost: \
         start the program again, and report this"
    )]
    Panicked,
}

impl Failure {
    /// Whether another thread or process has it.
    pub(crate) fn is_held(&self) -> bool {
        self.code() == Code::Held
    }

    pub(crate) fn code(&self) -> Code {
        match self {
            Failure::Call(error) => error.code(),
            Failure::Open(error) => match &**error {
                OpenHeapError::Region(error) => code_of_region(error),
                OpenHeapError::Heap(error) => Code::from(error),
                _ => Code::NotAHeap,
            },
            // Another user's home or pool.
            Failure::Places(error) if matches!(**error, PlaceError::NotOurs { .. }) => Code::Denied,
            Failure::Places(_) | Failure::Key(_) | Failure::Size(_) | Failure::Medium(_) => {
                Code::Failed
            }
            Failure::CannotHide(_) | Failure::BadMode { .. } | Failure::Panicked => Code::Failed,
            Failure::CannotStop(_) => Code::Failed,
            Failure::OtherUser { .. } => Code::Denied,
            Failure::Keeper(error) => code_of_keeper(error),
            Failure::Served(error) => match &**error {
                OpenServedError::Region(error) => code_of_region(error),
                OpenServedError::Map(_) => Code::MemoryShape,
                OpenServedError::Heap(error) => Code::from(error),
                _ => Code::NotAHeap,
            },
            Failure::ServedMode | Failure::ServedBacking | Failure::ServedLimit => {
                Code::Unsupported
            }
            Failure::Dom(error) => code_of_document(error),
            Failure::Nothing | Failure::NoNode { .. } => Code::Nothing,
            Failure::Stale => Code::Stale,
            Failure::NoFile { .. } => Code::NoFile,
            Failure::NoMemory | Failure::Parser => Code::Failed,
            Failure::BadType { .. } => Code::Layout,
            Failure::Name(_) | Failure::NoText => Code::BadName,
            Failure::NotGranted
            | Failure::Ending
            | Failure::LetGo
            | Failure::NoSuchHandle
            | Failure::NoProgramName(_) => Code::NotGranted,
            Failure::TooManyHandles { .. }
            | Failure::InCompartment
            | Failure::ServedCompartment => Code::Unsupported,
            Failure::IsOpen { .. } | Failure::IsInCompartment => Code::IsOpen,
            Failure::HeldByThread { .. } => Code::Held,
            Failure::NotItsCompartment { .. } | Failure::OutsideCompartments => Code::NotGranted,
            Failure::InTransaction => Code::InTransaction,
            Failure::Quota(_) | Failure::Reserve(_) => Code::Failed,
            Failure::Forked { .. } => Code::Forked,
        }
    }
}

fn code_of_keeper(error: &KeeperError) -> Code {
    match error {
        KeeperError::NoKeeper { .. } => Code::NoKeeper,
        KeeperError::NotServed { kind, .. } => match kind {
            RefusedKind::Denied => Code::Denied,
            RefusedKind::Held | RefusedKind::Busy => Code::Held,
            RefusedKind::Quota | RefusedKind::LimitReached => Code::LimitReached,
            RefusedKind::NoRoom => Code::NoRoom,
            RefusedKind::Superseded => Code::Superseded,
            RefusedKind::Malformed => Code::BadName,
            _ => Code::Failed,
        },
        _ => Code::Failed,
    }
}

fn code_of_document(error: &DomError) -> Code {
    match error {
        DomError::Io(_) => Code::NoFile,
        DomError::Limit { .. } => Code::DocLimit,
        DomError::NoSuchDocument { .. } => Code::NoSuchRoot,
        DomError::NotADocument { .. } => Code::Layout,
        DomError::NewerFormat { .. } => Code::BadFile,
        DomError::Damaged(_) => Code::DocDamaged,
        DomError::Selector { .. } => Code::BadSelector,
        DomError::Change(ChangeError::NoSuchNode { .. }) => Code::Nothing,
        DomError::Change(_) => Code::BadChange,
        DomError::Heap(error) => HeapCallError::from(*error).code(),
        _ => Code::Failed,
    }
}

fn code_of_region(error: &RegionError) -> Code {
    match error {
        RegionError::LimitReached { .. }
        | RegionError::LimitOutOfRange { .. }
        | RegionError::Limit(_) => Code::LimitReached,
        RegionError::AddressTaken { .. }
        | RegionError::AddressSpace { .. }
        | RegionError::AddressesExhausted { .. } => Code::MemoryShape,
        RegionError::Name(_) => Code::BadName,
        RegionError::NotAtomic { .. } => Code::Unsupported,
        RegionError::Access(AccessError::ReadOnly { .. }) => Code::ReadOnly,
        RegionError::Access(AccessError::QuotaReached { .. } | AccessError::NoQuotaLeft { .. }) => {
            Code::LimitReached
        }
        error => match error.kind() {
            ErrorKind::Held => Code::Held,
            ErrorKind::BadFile => Code::BadFile,
            ErrorKind::Denied => Code::Denied,
            ErrorKind::NoRoom => Code::NoRoom,
            _ => Code::Failed,
        },
    }
}

impl From<KeeperError> for Failure {
    fn from(error: KeeperError) -> Self {
        Failure::Keeper(Box::new(error))
    }
}

impl From<DomError> for Failure {
    fn from(error: DomError) -> Self {
        Failure::Dom(Box::new(error))
    }
}

impl From<OpenServedError> for Failure {
    fn from(error: OpenServedError) -> Self {
        Failure::Served(Box::new(error))
    }
}

impl From<OpenHeapError> for Failure {
    fn from(error: OpenHeapError) -> Self {
        Failure::Open(Box::new(error))
    }
}

impl From<RegionError> for Failure {
    fn from(error: RegionError) -> Self {
        OpenHeapError::Region(error).into()
    }
}

impl From<PlaceError> for Failure {
    fn from(error: PlaceError) -> Self {
        Failure::Places(Box::new(error))
    }
}

impl From<KeyError> for Failure {
    fn from(error: KeyError) -> Self {
        Failure::Key(Box::new(error))
    }
}

/// Room for a message with a long path or two.
const TEXT_BYTES: usize = 1024;

/// The last failure of a thread.
struct Last {
    code: c_int,
    text: [u8; TEXT_BYTES],
    len: usize,
}

thread_local! {
    // Without a destructor, so that it can be used to the very end of a thread.
    static LAST: RefCell<Last> = const { RefCell::new(Last { code: 0, text: [0; TEXT_BYTES], len: 0 }) };
}

impl Write for Last {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        // The last byte is for the zero.
        let room = TEXT_BYTES - 1 - self.len;
        let end =
            (0..=piece.len().min(room)).rev().find(|end| piece.is_char_boundary(*end)).unwrap_or(0);
        self.text[self.len..self.len + end].copy_from_slice(&piece.as_bytes()[..end]);
        self.len += end;
        if end == piece.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// How C carries a remedy out: by the command, except for what `holdfast.h` has.
static IN_C: HowTo = |remedy, f| match remedy {
    Remedy::RaiseLimit { heap } => {
        let name = heap.unwrap_or("NAME");
        write!(f, " (nv_set_limit, or `holdfast heap limit {name} SIZE`)")
    }
    Remedy::PutOnDisk => write!(f, " (HOLDFAST_HEAP_BACKING=file for a new heap)"),
    other => holdfast_remedies::command(other, f),
};

/// Notes a failure for this thread and returns its code.
#[cold]
#[inline(never)]
pub(crate) fn note(failure: &Failure) -> c_int {
    set_how_to(&IN_C);
    LAST.with_borrow_mut(|last| {
        last.code = failure.code().number();
        last.len = 0;
        // An error means that the text was cut.
        let _ = write!(last, "{failure}");
        last.text[last.len] = 0;
        last.code
    })
}

/// The code of this thread's last failure; 0 if there was none.
pub(crate) fn last_code() -> c_int {
    LAST.with_borrow(|last| last.code)
}

/// Its text, which stays where it is until the thread's next failure.
pub(crate) fn last_text() -> *const c_char {
    LAST.with_borrow(|last| match last.code {
        0 => c"no error".as_ptr(),
        _ => last.text.as_ptr().cast(),
    })
}
