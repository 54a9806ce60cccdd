//! Objects of the persistent heap: a root for each, with 16 bytes of header in front of the content.
//!
//! Invariants:
//! - An object is made and written inside a transaction, in which the old one of its name is
//!   removed: after a kill there is the old object or the new one.
//! - While a reader lives, the object that it reads is not replaced ([`HeapStorage::create`]
//!   refuses), so its bytes do not change.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::rc::Rc;
use std::slice;

use holdfast_heap::{Backing, Heap, HeapError};

use super::{Lines, Reader, Storage, Writer};
use crate::error::ProgramError;

/// In front of the content: how many bytes of it there are, and [`MAGIC`].
pub(super) const HEADER_BYTES: u64 = 16;
const MAGIC: u64 = u64::from_le_bytes(*b"HFPROGOB");

/// How many readers each object has.
type Readers = Rc<RefCell<HashMap<String, usize>>>;

/// The objects of a heap.
pub struct HeapStorage<B: Backing> {
    heap: Heap<B>,
    readers: Readers,
    crossings: u64,
}

impl<B: Backing> HeapStorage<B> {
    /// The objects of this heap.
    pub fn new(heap: Heap<B>) -> Self {
        HeapStorage { heap, readers: Readers::default(), crossings: 0 }
    }

    /// Gives the heap back.
    pub fn into_heap(self) -> Heap<B> {
        self.heap
    }

    /// The object of this name: its content.
    fn object(&self, name: &str) -> Result<Option<NonNull<[u8]>>, ProgramError> {
        let Some(root) = self.heap.root(name) else { return Ok(None) };
        let foreign = || ProgramError::Foreign { name: name.to_owned() };
        let capacity_bytes = root.bytes.checked_sub(HEADER_BYTES).ok_or_else(foreign)?;
        let header = root.pointer.cast::<[u64; 2]>();
        // SAFETY: the root has at least these 16 bytes and is aligned to 16.
        let [bytes, magic] = unsafe { header.read() };
        if magic != MAGIC || bytes > capacity_bytes {
            return Err(foreign());
        }
        // SAFETY: within the object.
        let content = unsafe { root.pointer.add(HEADER_BYTES as usize) };
        Ok(Some(NonNull::slice_from_raw_parts(content, bytes as usize)))
    }
}

impl<B: Backing> Storage for HeapStorage<B> {
    type Reader = HeapReader;
    type Writer = HeapWriter;

    fn open(&mut self, name: &str) -> Result<HeapReader, ProgramError> {
        let content = self
            .object(name)?
            .ok_or_else(|| ProgramError::Missing { name: name.to_owned(), storage: "heap" })?;
        let name = name.to_owned();
        *self.readers.borrow_mut().entry(name.clone()).or_default() += 1;
        Ok(HeapReader { content, lines: Lines::default(), name, readers: Rc::clone(&self.readers) })
    }

    fn create(&mut self, name: &str, capacity_bytes: u64) -> Result<HeapWriter, ProgramError> {
        // Does not replace what is no object of ours, nor what is being read.
        self.object(name)?;
        if self.readers.borrow().get(name).is_some_and(|readers| *readers > 0) {
            return Err(ProgramError::Usage(format!("{name} is still being read")));
        }
        self.heap.begin()?;
        let backed_bytes = self.heap.backing().backed_bytes();
        let object = self.replace(name, capacity_bytes.saturating_add(HEADER_BYTES));
        self.crossings += u64::from(self.heap.backing().backed_bytes() > backed_bytes);
        match object {
            Ok(start) => {
                // SAFETY: the new object has the header and so many bytes behind it.
                let at = unsafe { start.add(HEADER_BYTES as usize) };
                let free_bytes = capacity_bytes as usize;
                Ok(HeapWriter { name: name.to_owned(), start, at, free_bytes, capacity_bytes })
            }
            Err(error) => {
                self.heap.abort()?;
                Err(error.into())
            }
        }
    }

    fn finish(&mut self, writer: HeapWriter) -> Result<u64, ProgramError> {
        let bytes = writer.capacity_bytes - writer.free_bytes as u64;
        // SAFETY: the object has at least these 16 bytes and is aligned to 16.
        unsafe { writer.start.cast::<[u64; 2]>().write([bytes, MAGIC]) };
        if writer.free_bytes > 0
            && let Err(error) = self.heap.resize_root(&writer.name, bytes + HEADER_BYTES)
        {
            self.heap.abort()?;
            return Err(error.into());
        }
        self.heap.commit()?;
        Ok(bytes)
    }

    fn crossings(&self) -> u64 {
        self.crossings
    }
}

impl<B: Backing> HeapStorage<B> {
    /// The object that has this name when the open transaction is committed.
    fn replace(&mut self, name: &str, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        if self.heap.root(name).is_some() {
            self.heap.remove_root(name)?;
        }
        self.heap.create_root_uninit(name, bytes)
    }
}

/// An object, read where it lies.
#[derive(Debug)]
pub struct HeapReader {
    content: NonNull<[u8]>,
    lines: Lines,
    name: String,
    readers: Readers,
}

impl Drop for HeapReader {
    fn drop(&mut self) {
        if let Some(readers) = self.readers.borrow_mut().get_mut(&self.name) {
            *readers -= 1;
        }
    }
}

impl Reader for HeapReader {
    fn size_bytes(&self) -> u64 {
        self.content.len() as u64
    }

    #[inline]
    fn line(&mut self) -> Result<Option<&[u8]>, ProgramError> {
        // SAFETY: bytes of an object that is there while this reader lives, which `create` sees to;
        // the region stays mapped until the program ends.
        let bytes = unsafe { self.content.as_ref() };
        Ok(self.lines.next(bytes))
    }

    fn rest(&mut self) -> Result<&[u8], ProgramError> {
        // SAFETY: as in `line`.
        let bytes = unsafe { self.content.as_ref() };
        Ok(self.lines.rest(bytes))
    }
}

/// An object that has no name yet.
#[derive(Debug)]
pub struct HeapWriter {
    name: String,
    start: NonNull<u8>,
    at: NonNull<u8>,
    /// From `at` to the end of the object.
    free_bytes: usize,
    capacity_bytes: u64,
}

impl Writer for HeapWriter {
    #[inline]
    fn write(&mut self, record: &[u8]) -> Result<(), ProgramError> {
        if record.len() > self.free_bytes {
            return Err(self.full());
        }
        // SAFETY: `free_bytes` bytes from `at` on are of the object, which nothing else refers to
        // before it has its name.
        unsafe {
            self.at.copy_from_nonoverlapping(NonNull::from(record).cast(), record.len());
            self.at = self.at.add(record.len());
        }
        self.free_bytes -= record.len();
        Ok(())
    }

    fn write_made(
        &mut self,
        bytes_max: usize,
        _scratch: &mut Vec<u8>,
        make: impl FnOnce(&mut [u8]) -> Result<usize, ProgramError>,
    ) -> Result<(), ProgramError> {
        if bytes_max > self.free_bytes {
            return Err(self.full());
        }
        // SAFETY: as in `write`. It is memory of the heap, all of whose bytes have a value.
        let length = make(unsafe { slice::from_raw_parts_mut(self.at.as_ptr(), bytes_max) })?;
        // Not more than there is, whatever `make` says.
        let length = length.min(bytes_max);
        // SAFETY: within the object.
        self.at = unsafe { self.at.add(length) };
        self.free_bytes -= length;
        Ok(())
    }
}

impl HeapWriter {
    #[cold]
    fn full(&self) -> ProgramError {
        ProgramError::Full { name: self.name.clone(), capacity_bytes: self.capacity_bytes }
    }
}
