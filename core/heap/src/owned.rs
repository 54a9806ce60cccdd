//! A heap that one value has to itself: what its roots hold can be read as bytes, and changed in
//! transactions, in safe code. For data without pointers: documents, tables, whatever finds its
//! parts by offsets of its own.
//!
//! Invariants:
//! - The heap came by value, or was lent by who has it alone, so no thread allocates in it beside
//!   us (a `SharedHeap` gives its heap away only when the last handle is gone, and what it lends is
//!   refused), and by the contract of [`Backing`] no other code stores to it.
//! - A slice that is handed out borrows the value; whatever stores borrows it mutably.
//! - Two slices at a time (a root's old bytes and the new ones) are compared first: a hostile root
//!   may claim any bytes.
//!
//! What it must not do: believe the size of a root that it stores to; hand out the bytes of two
//! objects as if a damaged heap could not let them overlap.

use core::ptr::NonNull;

use crate::backing::Backing;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::heap::Root;
use crate::types::RootType;

/// A heap with one user, which reads and changes the bytes of its roots in safe code.
#[repr(transparent)]
pub struct Owned<B: Backing> {
    heap: Heap<B>,
}

/// An open transaction on an [`Owned`] heap; see [`Owned::transaction`].
pub struct Changes<'heap, B: Backing> {
    heap: &'heap mut Heap<B>,
}

/// A root's object while a transaction is open: what [`Changes::root`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    root: Root,
}

impl Object {
    /// Bytes that were asked for.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.root.bytes
    }
}

impl<B: Backing> Owned<B> {
    /// Takes the heap.
    #[must_use]
    pub fn new(heap: Heap<B>) -> Owned<B> {
        Owned { heap }
    }

    /// Takes the heap for as long as it is lent. `None` while several threads allocate in it
    /// (`SharedHeap`): they store to it without having it.
    pub fn lent(heap: &mut Heap<B>) -> Option<&mut Owned<B>> {
        #[cfg(feature = "std")]
        if heap.is_shared() {
            return None;
        }
        // SAFETY: an `Owned` is a `Heap` and nothing else (transparent), whose every state is one
        // of the other's; the loan is exclusive and ends with the reference.
        Some(unsafe { &mut *core::ptr::from_mut(heap).cast() })
    }

    /// The heap, for what changes nothing.
    #[must_use]
    pub fn heap(&self) -> &Heap<B> {
        &self.heap
    }

    /// Gives the heap back.
    #[must_use]
    pub fn into_heap(self) -> Heap<B> {
        self.heap
    }

    /// What the root of this name holds.
    #[must_use]
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        bytes_of(&self.heap, self.heap.root(name)?)
    }

    /// Runs `work` in a transaction: commits when it returns `Ok`, rolls back when it returns an
    /// error or panics.
    ///
    /// # Errors
    /// What `work` returns, or why the transaction could not begin or commit.
    pub fn transaction<R, E: From<HeapError>>(
        &mut self,
        work: impl FnOnce(&mut Changes<'_, B>) -> Result<R, E>,
    ) -> Result<R, E> {
        self.heap.transaction(|tx| work(&mut Changes { heap: tx }))
    }
}

impl<B: Backing> Changes<'_, B> {
    /// The heap, for what changes nothing.
    #[must_use]
    pub fn heap(&self) -> &Heap<B> {
        self.heap
    }

    /// The object of the root of this name.
    #[must_use]
    pub fn root(&self, name: &str) -> Option<Object> {
        self.heap.root(name).map(|root| Object { root })
    }

    /// What an object holds.
    #[must_use]
    pub fn bytes(&self, object: Object) -> Option<&[u8]> {
        bytes_of(self.heap, object.root)
    }

    /// Stores to a part of an object, and logs what was there.
    ///
    /// # Errors
    /// [`HeapError::OutsideHeap`] when the part is not inside the object, or the object is not (or
    /// no longer) as large as its root says; [`HeapError::OutOfMemory`] when the log has no room.
    pub fn write(&mut self, object: Object, at: u64, bytes: &[u8]) -> Result<(), HeapError> {
        let offset = self.part(object, at, bytes.len() as u64)?;
        self.heap.add_range(self.heap.memory().at(offset), bytes.len() as u64)?;
        self.store(offset, bytes)
    }

    /// As [`Changes::write`] of bytes that mean nothing before the commit, and nothing after a
    /// rollback: what was there is not logged.
    ///
    /// # Errors
    /// As [`Changes::write`].
    pub fn write_unlogged(
        &mut self,
        object: Object,
        at: u64,
        bytes: &[u8],
    ) -> Result<(), HeapError> {
        let offset = self.part(object, at, bytes.len() as u64)?;
        self.store(offset, bytes)
    }

    fn store(&mut self, offset: u64, bytes: &[u8]) -> Result<(), HeapError> {
        if self.heap.memory().write(offset, bytes) { Ok(()) } else { Err(HeapError::OutsideHeap) }
    }

    /// Offset of a part of an object that is allocated as large as its root says.
    fn part(&self, object: Object, at: u64, bytes: u64) -> Result<u64, HeapError> {
        let fits = at.checked_add(bytes).is_some_and(|end| end <= object.root.bytes);
        if !fits || self.heap.usable_bytes(object.root.pointer)? < object.root.bytes {
            return Err(HeapError::OutsideHeap);
        }
        Ok(self.heap.offset_of(object.root.pointer).ok_or(HeapError::OutsideHeap)? + at)
    }

    /// Makes a root of `bytes` bytes, which `fill` stores first. What it leaves is whatever was
    /// there before.
    ///
    /// # Errors
    /// As [`Heap::create_root`].
    pub fn create(
        &mut self,
        name: &str,
        bytes: u64,
        root_type: Option<RootType>,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Object, HeapError> {
        self.heap.check_new_name(name)?;
        self.heap.all_or_nothing(|heap| {
            let pointer = heap.alloc(bytes)?;
            let offset = heap.offset_of(pointer).ok_or(HeapError::OutsideHeap)?;
            fill(new_bytes(heap, pointer, bytes)?);
            finish(heap, name, offset, bytes, root_type)?;
            Ok(Object { root: Root { pointer, bytes } })
        })
    }

    /// Puts an object of `bytes` bytes in the place of a root's, and frees the old one at the
    /// commit. `fill` gets the old bytes and the new ones.
    ///
    /// # Errors
    /// [`HeapError::NoSuchRoot`]; else as [`Heap::create_root`].
    pub fn replace(
        &mut self,
        name: &str,
        bytes: u64,
        root_type: Option<RootType>,
        fill: impl FnOnce(&[u8], &mut [u8]),
    ) -> Result<Object, HeapError> {
        let old = self.heap.root(name).ok_or(HeapError::NoSuchRoot)?;
        self.heap.all_or_nothing(|heap| {
            let pointer = heap.alloc(bytes)?;
            let offset = heap.offset_of(pointer).ok_or(HeapError::OutsideHeap)?;
            let old_offset = heap.offset_of(old.pointer).ok_or(HeapError::OutsideHeap)?;
            let apart = old_offset.saturating_add(old.bytes) <= offset
                || offset.saturating_add(bytes) <= old_offset;
            if !apart
                || !heap.memory().holds(old_offset, old.bytes)
                || !heap.memory().holds(offset, bytes)
            {
                return Err(HeapError::OutsideHeap);
            }
            // SAFETY: inside the heap and apart from each other (checked); no other code stores to
            // the heap (see the module), and nothing here does before `fill` has returned.
            let (before, after) = unsafe {
                (
                    core::slice::from_raw_parts(old.pointer.as_ptr(), old.bytes as usize),
                    core::slice::from_raw_parts_mut(pointer.as_ptr(), bytes as usize),
                )
            };
            fill(before, after);
            heap.remove_root(name)?;
            finish(heap, name, offset, bytes, root_type)?;
            Ok(Object { root: Root { pointer, bytes } })
        })
    }

    /// Removes a root and its object.
    ///
    /// # Errors
    /// As [`Heap::remove_root`].
    pub fn remove(&mut self, name: &str) -> Result<(), HeapError> {
        self.heap.remove_root(name)
    }
}

/// The bytes of an object that was allocated just now.
fn new_bytes<B: Backing>(
    heap: &mut Heap<B>,
    pointer: NonNull<u8>,
    bytes: u64,
) -> Result<&mut [u8], HeapError> {
    let offset = heap.offset_of(pointer).ok_or(HeapError::OutsideHeap)?;
    if !heap.memory().holds(offset, bytes) {
        return Err(HeapError::OutsideHeap);
    }
    // SAFETY: inside the heap (checked), of which no other slice exists while it is borrowed
    // mutably, and to which no thread else stores (see the module); memory of a mapping is
    // initialised.
    Ok(unsafe { core::slice::from_raw_parts_mut(pointer.as_ptr(), bytes as usize) })
}

/// Brings a new object to memory, where order is kept, and names it.
fn finish<B: Backing>(
    heap: &mut Heap<B>,
    name: &str,
    offset: u64,
    bytes: u64,
    root_type: Option<RootType>,
) -> Result<(), HeapError> {
    heap.memory().persist(offset, bytes);
    let entry = heap.write_entry(name, offset, bytes, root_type)?;
    heap.insert_entry(entry, name)
}

fn bytes_of<B: Backing>(heap: &Heap<B>, root: Root) -> Option<&[u8]> {
    let offset = heap.offset_of(root.pointer)?;
    // SAFETY: the heap is borrowed, and only who borrows it mutably stores to it (see the module).
    unsafe { heap.memory().bytes(offset, root.bytes) }
}
