//! Looks into a copy of a heap's bytes: for tools, which hold no heap open and change none.

use crate::backing::Fixed;
use crate::check::{CheckReport, Finding, check};
use crate::error::OpenError;
use crate::heap::{Heap, OpenOptions, Opened, Pointers, Usage};

/// What was seen.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Inspection {
    /// Whether a transaction was open (it is rolled back in the copy, as the next open will do).
    pub opened: Opened,
    /// What the checker counted.
    pub report: CheckReport,
    /// The kind of pointers that the heap holds.
    pub pointers: Pointers,
    /// Where the bytes went.
    pub usage: Usage,
}

/// Opens and checks a copy of a heap's bytes, which it changes as an open would. Calls `found` for
/// every contradiction and `root` with name and size of every root: of a hostile heap one for every
/// 8 of its bytes, with names of up to 255 bytes. A caller that keeps them keeps a bounded number.
///
/// # Errors
/// When the bytes are no heap that can be opened.
pub fn inspect(
    copy: &mut [u64],
    found: &mut dyn FnMut(Finding),
    root: &mut dyn FnMut(&str, u64),
) -> Result<Inspection, OpenError> {
    // SAFETY: the borrow is exclusive and outlives the heap below; words are aligned to 8.
    let backing = unsafe { Fixed::new(copy.as_mut_ptr().cast(), size_of_val(copy) as u64) };
    let heap = Heap::open(backing, OpenOptions::default())?;
    heap.roots().for_each(|(name, entry)| root(name, entry.bytes));
    // SAFETY: no thread writes to the heap while the checker reads it.
    let report =
        unsafe { heap.memory().bytes(0, heap.memory().len()) }.map(|bytes| check(bytes, found));
    Ok(Inspection {
        opened: heap.opened(),
        report: report.unwrap_or_default(),
        pointers: heap.pointers(),
        usage: heap.usage(),
    })
}

/// The bytes of a copy, for what reads bytes.
pub fn bytes_of(copy: &[u64]) -> &[u8] {
    // SAFETY: words are initialised bytes; the slice borrows them.
    unsafe { core::slice::from_raw_parts(copy.as_ptr().cast(), size_of_val(copy)) }
}
