//! Looks into a copy of a heap's bytes: for tools, which hold no heap open and change none.

use crate::backing::Fixed;
use crate::check::{CheckReport, Finding, check};
use crate::error::OpenError;
use crate::heap::{Heap, OpenOptions, Opened, Pointers, Usage};
use crate::layout::{DESCRIPTOR_BYTES, MAGIC, SUPER_MAGIC, SUPER_POINTER_BASE, SUPER_VERSION};

/// Bytes from the start of a heap that [`pointers_of`] needs.
pub const HEAD_BYTES: usize = DESCRIPTOR_BYTES as usize;

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

/// The kind of pointers in the heap that begins with these bytes, for a host that places it before
/// a program opens it; `None` if the bytes do not begin with the mark of a heap. Nothing else is
/// checked here: opening the heap checks the rest.
#[must_use]
pub fn pointers_of(head: &[u8]) -> Option<Pointers> {
    let word = |offset: u64| {
        let bytes = head.get(offset as usize..)?.first_chunk::<8>()?;
        Some(u64::from_le_bytes(*bytes))
    };
    (word(SUPER_MAGIC)? == MAGIC).then_some(())?;
    Some(Pointers { base: word(SUPER_POINTER_BASE)?, bytes: (word(SUPER_VERSION)? >> 32) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_bytes_tell_where_pointers_lead() {
        let mut words = std::vec![0_u64; 1 << 17];
        assert_eq!(pointers_of(bytes_of(&words)), None);
        let pointers = Pointers { base: 0x9000_0000, bytes: 4 };
        let bytes = size_of_val(words.as_slice()) as u64;
        // SAFETY: the words are this test's alone, aligned, and outlive the heap.
        let backing = unsafe { Fixed::new(words.as_mut_ptr().cast(), bytes) };
        let options = OpenOptions { pointers: Some(pointers), format_if_empty: true };
        let _ = Heap::open(backing, options).unwrap().close();
        let head = &bytes_of(&words)[..HEAD_BYTES];
        assert_eq!(pointers_of(head), Some(pointers));
        assert_eq!(pointers_of(&head[..SUPER_VERSION as usize]), None);
    }
}
