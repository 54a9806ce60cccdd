//! Alignments that the heap does not offer: a larger object, and a pointer into it.
//!
//! Invariants: before a pointer that is not the start of its object lie 16 bytes that name the
//! start, and the same disguised; both must agree and name an allocated object that holds the
//! pointer, or the pointer is not of this library.

use std::ptr::NonNull;

use holdfast_heap::{Backing, Heap};

/// What the heap itself aligns to.
pub(crate) const ALIGN_MIN: usize = 16;
const DISGUISE: usize = 0x4a6e_11f0_9c52_d3b7;

#[repr(C)]
struct Tag {
    object: usize,
    disguised: usize,
}

/// `bytes` at a multiple of `align`, a power of two above [`ALIGN_MIN`].
pub(crate) fn allocate<B: Backing>(
    heap: &mut Heap<B>,
    bytes: usize,
    align: usize,
) -> Option<NonNull<u8>> {
    if let Ok(object) = heap.alloc_aligned(bytes as u64, align as u64) {
        return Some(object);
    }
    let wanted = bytes.checked_add(align)?;
    let object = heap.alloc(wanted as u64).ok()?;
    let start = object.addr().get();
    let address = start.next_multiple_of(align);
    if address == start {
        return Some(object);
    }
    debug_assert!(address - start >= size_of::<Tag>() && address + bytes <= start + wanted);
    let tag = Tag { object: start, disguised: start ^ DISGUISE };
    // SAFETY: object and boundary are multiples of 16, so between them there is room for the tag,
    // in the object.
    unsafe { object.with_addr(address.try_into().ok()?).cast::<Tag>().sub(1).write(tag) };
    NonNull::new(object.as_ptr().with_addr(address))
}

/// The object that a pointer from [`allocate`] belongs to, and how many bytes may be used from the
/// pointer on.
pub(crate) fn object_of<B: Backing>(
    heap: &Heap<B>,
    pointer: NonNull<u8>,
) -> Option<(NonNull<u8>, usize)> {
    if let Ok(usable_bytes) = heap.usable_bytes(pointer) {
        return Some((pointer, usable_bytes as usize));
    }
    let offset = heap.offset_of(pointer)? as usize;
    if offset < size_of::<Tag>() || !offset.is_multiple_of(ALIGN_MIN) {
        return None;
    }
    // SAFETY: inside the heap, whose every byte may be read, and aligned.
    let tag = unsafe { pointer.cast::<Tag>().sub(1).read() };
    if tag.object ^ DISGUISE != tag.disguised {
        return None;
    }
    let object = NonNull::new(pointer.as_ptr().with_addr(tag.object))?;
    let usable_bytes = heap.usable_bytes(object).ok()? as usize;
    let before = pointer.addr().get().checked_sub(tag.object)?;
    Some((object, usable_bytes.checked_sub(before)?))
}
