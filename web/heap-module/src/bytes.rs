//! Loads and stores at offsets of the heap, inside of what is backed. In a transaction what a store
//! replaces is logged first, so that a rollback brings it back.
//!
//! Invariant: the only code that follows an offset. What is handed out borrows the heap; what
//! stores borrows it mutably.

use holdfast_heap::{Backing, Heap, Portable};

use crate::fault::Fault;

/// The address of a range inside the heap.
fn place<B: Backing>(heap: &Heap<B>, offset: u64, bytes: u64) -> Result<*mut u8, Fault> {
    let end = offset.checked_add(bytes).ok_or_else(outside)?;
    if end > heap.backing().backed_bytes() {
        return Err(outside());
    }
    let offset = usize::try_from(offset).map_err(|_| outside())?;
    Ok(heap.backing().base().wrapping_add(offset))
}

fn outside() -> Fault {
    Fault::corrupt("an offset leads out of the heap")
}

/// The bytes of a range.
pub(crate) fn bytes<B: Backing>(heap: &Heap<B>, offset: u64, bytes: u64) -> Result<&[u8], Fault> {
    let at = place(heap, offset, bytes)?;
    // SAFETY: inside the heap (checked), which is readable; nothing stores to it while it is
    // borrowed, by the contract of `Backing`.
    Ok(unsafe { std::slice::from_raw_parts(at, bytes as usize) })
}

/// A value.
#[inline]
pub(crate) fn load<B: Backing, T: Portable>(heap: &Heap<B>, offset: u64) -> Result<T, Fault> {
    let at = place(heap, offset, size_of::<T>() as u64)?;
    // SAFETY: inside the heap (checked); any bytes are a value of a portable type.
    Ok(unsafe { at.cast::<T>().read_unaligned() })
}

/// Stores a value; logged in a transaction.
#[inline]
pub(crate) fn store<B: Backing, T: Portable>(
    heap: &mut Heap<B>,
    offset: u64,
    value: T,
) -> Result<(), Fault> {
    let at = place(heap, offset, size_of::<T>() as u64)?;
    if heap.in_transaction() {
        heap.add_range(at, size_of::<T>() as u64)?;
    }
    // SAFETY: inside the heap (checked), which is writable: the callers look before they begin.
    unsafe { at.cast::<T>().write_unaligned(value) };
    Ok(())
}

/// As [`store`], to an object that nothing refers to yet.
#[inline]
pub(crate) fn store_new<B: Backing, T: Portable>(
    heap: &mut Heap<B>,
    offset: u64,
    value: T,
) -> Result<(), Fault> {
    let at = place(heap, offset, size_of::<T>() as u64)?;
    // SAFETY: as in `store`.
    unsafe { at.cast::<T>().write_unaligned(value) };
    Ok(())
}

/// Stores bytes; logged in a transaction.
pub(crate) fn write<B: Backing>(heap: &mut Heap<B>, offset: u64, from: &[u8]) -> Result<(), Fault> {
    let at = place(heap, offset, from.len() as u64)?;
    if heap.in_transaction() {
        heap.add_range(at, from.len() as u64)?;
    }
    write_new(heap, offset, from)
}

/// As [`write`], to an object that nothing refers to yet.
pub(crate) fn write_new<B: Backing>(
    heap: &mut Heap<B>,
    offset: u64,
    from: &[u8],
) -> Result<(), Fault> {
    let at = place(heap, offset, from.len() as u64)?;
    // SAFETY: inside the heap (checked); `from` is no part of it, as the heap is borrowed mutably.
    unsafe { at.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
    Ok(())
}

/// Makes bytes zero that nothing refers to, or that were logged.
pub(crate) fn zero_new<B: Backing>(
    heap: &mut Heap<B>,
    offset: u64,
    bytes: u64,
) -> Result<(), Fault> {
    let at = place(heap, offset, bytes)?;
    // SAFETY: inside the heap (checked), which is writable: the callers look before they begin.
    unsafe { at.write_bytes(0, bytes as usize) };
    Ok(())
}

/// Copies bytes within the heap, to an object that nothing refers to yet.
pub(crate) fn copy_new<B: Backing>(
    heap: &mut Heap<B>,
    from: u64,
    to: u64,
    bytes: u64,
) -> Result<(), Fault> {
    let (source, target) = (place(heap, from, bytes)?, place(heap, to, bytes)?);
    // SAFETY: both are inside the heap (checked), and may overlap where it is damaged.
    unsafe { target.copy_from(source, bytes as usize) };
    Ok(())
}

/// Allocates an object whose bytes are zero; its offset.
pub(crate) fn allocate<B: Backing>(heap: &mut Heap<B>, bytes: u64) -> Result<u64, Fault> {
    let object = heap.alloc_zeroed(bytes)?;
    heap.offset_of(object).ok_or_else(outside)
}

/// As [`allocate`], with whatever bytes were there.
pub(crate) fn allocate_raw<B: Backing>(heap: &mut Heap<B>, bytes: u64) -> Result<u64, Fault> {
    let object = heap.alloc(bytes)?;
    heap.offset_of(object).ok_or_else(outside)
}

/// Frees the object at an offset; in a transaction, when that commits.
pub(crate) fn free<B: Backing>(heap: &mut Heap<B>, offset: u64) -> Result<(), Fault> {
    let at = place(heap, offset, 1)?;
    let object = std::ptr::NonNull::new(at).ok_or_else(outside)?;
    Ok(heap.free(object)?)
}

/// Bytes that the object at an offset may use; 0 where no object begins.
pub(crate) fn usable<B: Backing>(heap: &Heap<B>, offset: u64) -> u64 {
    let object = place(heap, offset, 1).ok().and_then(std::ptr::NonNull::new);
    object.and_then(|object| heap.usable_bytes(object).ok()).unwrap_or(0)
}

/// Logs a range, which TypeScript is about to store to.
pub(crate) fn log<B: Backing>(heap: &mut Heap<B>, offset: u64, bytes: u64) -> Result<(), Fault> {
    let at = place(heap, offset, bytes)?;
    Ok(heap.add_range(at, bytes)?)
}
