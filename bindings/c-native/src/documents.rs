//! The documents of the open heap: which are open, and the way to them.
//!
//! Invariants:
//! - C has numbers: of a document that was closed, replaced or removed, or whose heap was, one is
//!   refused, and never leads to what took its place. So a page is not replaced in a transaction,
//!   whose end could bring the old one back.
//! - A page is parsed without the lock of the heap.
//! - What may be a part of an answer is none: a damage that was met on the way is the result.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_dom::{Document, Documents, DomError, Edit, LoosePage, Node, ParseOptions};
use holdfast_heap::{HeapError, Owned};
use holdfast_keeper_client::NativeBacking;

use crate::ending;
use crate::failure::{Failure, note};
use crate::session::{self, with_documents};

/// The documents of the open heap, while the lock is held.
pub(crate) type Lent<'heap> = Documents<NativeBacking, &'heap mut Owned<NativeBacking>>;

/// Which documents are open. Its lock is taken below that of the heap.
static OPEN: Mutex<Opened> = Mutex::new(Opened { last: 0, names: BTreeMap::new() });

struct Opened {
    last: u64,
    /// By number: the session of the heap, and the name.
    names: BTreeMap<u64, (u64, Arc<str>)>,
}

fn opened<R>(work: impl FnOnce(&mut Opened) -> R) -> R {
    // Nothing panics under it.
    work(&mut OPEN.lock().unwrap_or_else(PoisonError::into_inner))
}

fn name_of(document: u64) -> Result<Arc<str>, Failure> {
    let found = opened(|opened| opened.names.get(&document).cloned());
    found
        .filter(|(session, _)| *session == session::current())
        .map(|(_, name)| name)
        .ok_or(Failure::Stale)
}

/// The documents of this name, or all of them, are of no use any more, in the heap of this session:
/// threads in compartments have documents of the same name.
pub(crate) fn forget(session: u64, name: Option<&str>) {
    opened(|opened| {
        opened
            .names
            .retain(|_, (of, known)| *of != session || name.is_some_and(|name| name != &**known));
    });
}

/// `nv_doc_open`.
pub(crate) fn open(name: &str) -> Result<u64, c_int> {
    with_documents(Ok, |documents, ()| {
        documents.open(name)?;
        Ok(opened(|opened| {
            opened.last += 1;
            opened.names.insert(opened.last, (session::current(), name.into()));
            opened.last
        }))
    })
}

/// `nv_doc_close`.
pub(crate) fn close(document: u64) -> Result<(), c_int> {
    if let Some(opener) = ending::forked_from() {
        return Err(note(&Failure::Forked { opener }));
    }
    let known = opened(|opened| opened.names.remove(&document));
    known.map(drop).ok_or_else(|| note(&Failure::Stale))
}

/// `nv_doc_parse`.
pub(crate) fn parse(
    name: &str,
    source: impl FnOnce() -> Result<Box<dyn Read>, Failure>,
    options: &ParseOptions,
) -> Result<(), c_int> {
    // Before the work, what would make it vain.
    with_documents(Ok, |documents, ()| check_place(documents, name))?;
    let parse = || -> Result<LoosePage, Failure> { Ok(LoosePage::parse(source()?, options)?) };
    // Unwind safe: what a panic leaves is dropped.
    let page = catch_unwind(AssertUnwindSafe(parse)).unwrap_or(Err(Failure::Parser));
    let page = page.map_err(|failure| note(&failure))?;
    with_documents(Ok, |documents, ()| {
        check_place(documents, name)?;
        documents.keep(name, &page)?;
        forget(session::current(), Some(name));
        Ok(())
    })
}

/// Whether a page may be kept under this name now.
fn check_place(documents: &Lent<'_>, name: &str) -> Result<(), Failure> {
    match documents.open(name) {
        Err(DomError::NoSuchDocument { .. }) => Ok(()),
        Err(error @ DomError::NotADocument { .. }) => Err(error.into()),
        // A damaged one is replaced like any other.
        _ => check_outside(documents),
    }
}

fn check_outside(documents: &Lent<'_>) -> Result<(), Failure> {
    match documents.heap().in_transaction() {
        true => Err(Failure::Call(HeapError::TransactionState { expected_open: false }.into())),
        false => Ok(()),
    }
}

/// Changes that give nodes other numbers, or take them away.
pub(crate) fn renumber(
    name: &str,
    work: impl FnOnce(&mut Lent<'_>) -> Result<(), DomError>,
) -> Result<(), c_int> {
    with_documents(Ok, |documents, ()| {
        check_outside(documents)?;
        work(documents)?;
        forget(session::current(), Some(name));
        Ok(())
    })
}

/// Reads a document.
pub(crate) fn read<R>(
    document: u64,
    work: impl FnOnce(&Document<'_>) -> Result<R, Failure>,
) -> Result<R, c_int> {
    with_documents(
        |()| name_of(document),
        |documents, name| {
            let document = documents.open(&name).map_err(gone)?;
            let result = work(&document);
            match document.damage() {
                Some(damage) => Err(DomError::Damaged(damage).into()),
                None => result,
            }
        },
    )
}

/// Reads a node of a document; `None` from `work` is that there is no such thing.
pub(crate) fn read_node<R>(
    document: u64,
    node: u32,
    work: impl FnOnce(Node<'_>) -> Result<Option<R>, Failure>,
) -> Result<R, c_int> {
    read(document, |document| {
        let node = document.node(node).ok_or(Failure::NoNode { node })?;
        work(node)?.ok_or(Failure::Nothing)
    })
}

/// Changes a document, in a transaction of its own or in the one that is open. What is refused
/// before a store leaves that as it was.
pub(crate) fn edit<R>(
    document: u64,
    work: impl FnOnce(&mut Edit<'_, '_, NativeBacking>) -> Result<R, DomError>,
) -> Result<R, c_int> {
    with_documents(
        |()| name_of(document),
        |documents, name| {
            let done = documents.edit(&name, |edit| match work(edit) {
                Err(refused @ (DomError::Change(_) | DomError::Limit { .. })) => Ok(Err(refused)),
                done => done.map(Ok),
            });
            Ok(done.map_err(gone)??)
        },
    )
}

/// The document was there when it was opened.
fn gone(error: DomError) -> Failure {
    match error {
        DomError::NoSuchDocument { .. } | DomError::NotADocument { .. } => Failure::Stale,
        error => error.into(),
    }
}

/// # Safety
/// `text` must be NULL or a C string.
pub(crate) unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::NoText);
    }
    // SAFETY: per the contract.
    unsafe { CStr::from_ptr(text) }.to_str().map_err(|_| Failure::NoText)
}

/// The bytes of a text with a size. NULL has none: a size beside it, or one that is more than memory
/// holds, is a mistake, and not the text of no bytes that would take the place of what is there.
///
/// # Safety
/// `bytes` must be NULL or lead to `size` bytes, which stay for `'a`, unless that is more than memory
/// holds.
pub(crate) unsafe fn bytes<'a>(bytes: *const u8, size: usize) -> Result<&'a [u8], Failure> {
    match size {
        0 => Ok(&[]),
        _ if bytes.is_null() || isize::try_from(size).is_err() => Err(Failure::NoText),
        // SAFETY: per the contract.
        _ => Ok(unsafe { std::slice::from_raw_parts(bytes, size) }),
    }
}

/// # Safety
/// As for [`bytes`].
pub(crate) unsafe fn sized_text<'a>(text: *const c_char, size: usize) -> Result<&'a str, Failure> {
    // SAFETY: per the contract.
    std::str::from_utf8(unsafe { bytes(text.cast(), size) }?).map_err(|_| Failure::NoText)
}

pub(crate) fn status(result: Result<(), c_int>) -> c_int {
    result.err().unwrap_or(0)
}
