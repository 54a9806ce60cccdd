//! The heap itself: opening, allocating, freeing. The modules inside are its parts, and nothing
//! else sees its fields: `chunks`, `slabs` and `wide` are the allocator, `recent` its short way;
//! `log`, `transaction`, `recovery` and `order` make changes whole, `at_once` is their short way;
//! `superblock`, `roots` and `typed_roots` say what is where; `thread_slabs` and `shared` lend it to
//! threads.
//!
//! Invariants:
//! - Opening a heap that is in order writes nothing, so a session that only reads leaves the region
//!   clean.
//! - `memory` always covers exactly what the backing has backed, or less.
//! - An allocation inside an open transaction is logged before it happens; a free is logged and
//!   happens at the commit.

mod absent;
mod aligned;
mod at_once;
mod chunks;
mod log;
mod order;
mod recent;
mod recovery;
mod references;
mod reserve;
mod resize;
mod roots;
#[cfg(feature = "std")]
mod shared;
mod slabs;
mod superblock;
#[cfg(feature = "std")]
mod thread_slabs;
mod transaction;
mod typed_roots;
mod wide;

pub use roots::{Root, Roots};
#[cfg(feature = "std")]
pub use shared::{Handle, SharedHeap};
#[cfg(feature = "std")]
pub use thread_slabs::{ThreadBarrier, ThreadSlabs};
pub use transaction::Transaction;

use core::ptr::NonNull;

use crate::backing::Backing;
use crate::classes::{CLASSES, SMALL_BYTES_MAX, class_of};
use crate::error::{HeapError, OpenError};
use crate::heap::chunks::{Rovers, Run};
use crate::heap::log::Log;
use crate::heap::recent::KnownSlabs;
use crate::heap::slabs::{Cursor, SlotPlace, cursors};
use crate::heap::wide::{WidePlace, WideRooms};
use crate::layout::*;
use crate::memory::Memory;
#[allow(unused_imports, reason = "for the documentation")]
use crate::reference::Ref;

/// What kind of pointers the applet keeps in the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pointers {
    /// The applet's address of the heap's first byte.
    pub base: u64,
    /// Bytes of one pointer: 4 in WebAssembly, 8 natively; 0 in a portable heap, which holds none.
    pub bytes: u32,
}

impl Pointers {
    /// None, but references ([`Ref`]): what a portable heap holds, wherever it lies.
    pub const PORTABLE: Pointers = Pointers { base: 0, bytes: 0 };

    /// Whether it is a portable heap that holds them.
    #[must_use]
    pub const fn is_portable(self) -> bool {
        self.bytes == 0
    }
}

/// How to open a heap.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// The pointers that this program would keep in the heap; a heap of another kind is refused.
    /// `None` for tools, which follow no pointer.
    pub pointers: Option<Pointers>,
    /// Whether an all-zero region is formatted; otherwise it is refused as [`OpenError::Empty`].
    pub format_if_empty: bool,
}

/// What opening found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// The region was empty and has been formatted.
    Formatted,
    /// In order; nothing was written.
    Clean,
    /// The last session ended inside a transaction, which has been rolled back (or, when it had
    /// committed, completed).
    Recovered,
}

/// Where a heap's bytes went. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// In formatted segments.
    pub formatted_bytes: u64,
    /// In chunks that are in use, allocator tables included.
    pub chunk_bytes: u64,
}

/// A persistent heap. One value per heap and program; not for several threads at once.
pub struct Heap<B: Backing> {
    backing: B,
    memory: Memory,
    cursors: [Cursor; CLASSES],
    known: KnownSlabs,
    wide: WideRooms,
    /// Empty slabs of earlier sessions were given back. Volatile.
    is_swept: bool,
    log: Log,
    /// Where the search for free chunks begins. Volatile.
    rovers: Rovers,
    opened: Opened,
    read_only: bool,
    /// Slabs from which threads allocate on their own. Volatile.
    #[cfg(feature = "std")]
    claims: std::collections::BTreeMap<u64, thread_slabs::Claim>,
    /// What these threads share. Volatile.
    #[cfg(feature = "std")]
    threads: Option<std::sync::Arc<thread_slabs::Threads>>,
    /// Whether it is a `SharedHeap`'s. Volatile.
    #[cfg(feature = "std")]
    is_shared: bool,
}

// SAFETY: the raw pointers in `memory` and `cursors` point into the backing, which moves along.
unsafe impl<B: Backing + Send> Send for Heap<B> {}

/// Where an allocated object lies.
pub(crate) enum Place {
    Slot(SlotPlace),
    Wide(WidePlace),
    Run(Run),
    Spanning { first: u64, span: u64, start: u64 },
}

impl Place {
    pub(crate) fn usable_bytes(&self) -> u64 {
        match self {
            Place::Slot(slot) => slot.usable_bytes(),
            Place::Wide(slot) => slot.usable_bytes(),
            Place::Run(run) => run.chunks * CHUNK_BYTES,
            Place::Spanning { span, start, .. } => span * SEGMENT_BYTES - start,
        }
    }
}

impl<B: Backing> Heap<B> {
    /// Opens the heap on a backing: formats an all-zero one, rolls back what a killed session left
    /// open. Costs the same whatever the heap's size.
    ///
    /// # Errors
    /// When the bytes are no heap, a damaged one, one of a newer format or of other pointers, or
    /// when an order is asked for that the processor cannot keep; then nothing has been written.
    pub fn open(mut backing: B, options: OpenOptions) -> Result<Self, OpenError> {
        if backing.backed_bytes() < HEAP_BYTES_MIN {
            let _ = backing.grow(HEAP_BYTES_MIN);
        }
        let bytes = backing.backed_bytes().min(HEAP_BYTES_MAX);
        if bytes < HEAP_BYTES_MIN {
            return Err(OpenError::TooSmall { bytes, needed_bytes: HEAP_BYTES_MIN });
        }
        let read_only = backing.is_read_only();
        let ordered = backing.is_ordered() && !read_only;
        if ordered && holdfast_persist::instruction().is_none() {
            return Err(OpenError::NoOrder);
        }
        // SAFETY: the contract of `Backing`: aligned, readable, writable, ours alone, for the
        // value's life.
        let memory = unsafe { Memory::new(backing.base(), bytes) }.with_order(ordered);
        let mut heap = Heap {
            backing,
            memory,
            cursors: cursors(),
            known: KnownSlabs::new(),
            wide: WideRooms::new(),
            is_swept: false,
            log: Log::new(),
            rovers: Rovers::new(),
            opened: Opened::Clean,
            read_only,
            #[cfg(feature = "std")]
            claims: std::collections::BTreeMap::new(),
            #[cfg(feature = "std")]
            threads: None,
            #[cfg(feature = "std")]
            is_shared: false,
        };
        match memory.load(SUPER_MAGIC) {
            MAGIC => {
                heap.verify(options.pointers)?;
                if read_only {
                    heap.check_settled()?;
                } else if heap.recover_log()? {
                    heap.opened = Opened::Recovered;
                }
            }
            // The formatting was killed; nothing was ever stored.
            MAGIC_FORMATTING => match options.format_if_empty && !read_only {
                true => heap.format(options.pointers),
                false => return Err(OpenError::Empty),
            },
            0 if heap.head_is_zero() => {
                heap.check_never_formatted()?;
                match options.format_if_empty && !read_only {
                    true => heap.format(options.pointers),
                    false => return Err(OpenError::Empty),
                }
            }
            _ => return Err(OpenError::NotAHeap),
        }
        heap.log.sequence = memory.load(LANE_OFFSET + LANE_STATE) >> 1;
        Ok(heap)
    }

    /// What opening found.
    pub fn opened(&self) -> Opened {
        self.opened
    }

    /// The backing.
    pub fn backing(&self) -> &B {
        &self.backing
    }

    /// Gives the backing back; an open transaction is rolled back.
    pub fn close(mut self) -> B {
        self.abort_all();
        #[cfg(feature = "std")]
        self.take_back_slabs();
        self.backing
    }

    /// Refuses what would store to a heap that may only be read. Cheap enough for what runs once in
    /// a while; the fast way of an allocation passes here before it finds its first slot.
    pub(crate) fn check_writable(&self) -> Result<(), HeapError> {
        if self.read_only { Err(HeapError::ReadOnly) } else { Ok(()) }
    }

    /// The bytes, as the parts of the library that are not the heap itself read and store them.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether several threads allocate in it (`SharedHeap`).
    #[cfg(feature = "std")]
    pub(crate) fn is_shared(&self) -> bool {
        self.is_shared
    }

    pub(crate) fn remap(&mut self, backed_bytes: u64) {
        // SAFETY: the backing's contract holds for all of what it says is backed; its base never
        // moves.
        let memory = unsafe { Memory::new(self.backing.base(), backed_bytes.min(HEAP_BYTES_MAX)) };
        self.memory = memory.with_order(self.memory.is_ordered());
    }

    /// Allocates `bytes` (at least 1 is counted), aligned to 16. The content is whatever was there
    /// before. In an open transaction the allocation belongs to it.
    ///
    /// # Errors
    /// [`HeapError::OutOfMemory`] when there is no room and the region does not grow;
    /// [`HeapError::ReadOnly`].
    #[inline]
    pub fn alloc(&mut self, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        if bytes > SMALL_BYTES_MAX {
            return self.alloc_medium(bytes);
        }
        let class = class_of(bytes);
        if !self.log.open()
            && let Some(pointer) = self.cursors[class].take_latest()
        {
            return Ok(pointer);
        }
        self.alloc_small(class)
    }

    /// As [`Heap::alloc`], by class, where the slot freed last is no choice.
    #[inline(never)]
    fn alloc_small(&mut self, class: usize) -> Result<NonNull<u8>, HeapError> {
        if !self.log.open()
            && let Some(pointer) = self.take_recent(class)
        {
            return Ok(pointer);
        }
        if self.log.open()
            && let Some(pointer) = self.take_logged(class)
        {
            return Ok(pointer);
        }
        if self.log.open() {
            // Before a slot is picked: making room may give an empty slab back.
            self.make_room(RECORD_BYTES)?;
        }
        let slot = self.pick_slot(class)?;
        if self.log.open() {
            self.log_alloc(slot.pointer)?;
        }
        self.take_slot(slot);
        if self.memory.is_ordered() {
            self.write_back_slot(slot);
        }
        NonNull::new(slot.pointer).ok_or(HeapError::OutsideHeap)
    }

    /// As [`Heap::alloc`], with every byte zero.
    ///
    /// # Errors
    /// As [`Heap::alloc`].
    pub fn alloc_zeroed(&mut self, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        let pointer = self.alloc(bytes)?;
        let offset = self.offset_of(pointer).ok_or(HeapError::OutsideHeap)?;
        if self.memory.zero(offset, bytes) { Ok(pointer) } else { Err(HeapError::OutsideHeap) }
    }

    /// An object of whole chunks or segments; `align_bytes` is a power of two, at most
    /// [`ALIGN_BYTES_MAX`].
    #[cold]
    pub(crate) fn alloc_large(
        &mut self,
        bytes: u64,
        align_bytes: u64,
    ) -> Result<NonNull<u8>, HeapError> {
        if self.log.open() {
            // Before a place is chosen: making room can take a free run itself.
            self.make_room(RECORD_BYTES)?;
        }
        self.check_writable()?;
        // Chunk 0 is the table: the first chunk that is aligned comes one step later.
        let step = (align_bytes / CHUNK_BYTES).max(1);
        let chunks = bytes.div_ceil(CHUNK_BYTES).max(1);
        if chunks <= SEGMENT_CHUNKS - step {
            let run = self.find_run(chunks, step)?;
            self.describe_run(run, HeadKind::Run, 0, bytes);
            let pointer = self.memory.at(run.offset());
            if self.log.open() {
                self.log_alloc(pointer)?;
            }
            self.publish_run(run);
            return NonNull::new(pointer).ok_or(HeapError::OutsideHeap);
        }
        let start = step * CHUNK_BYTES;
        let span = bytes.saturating_add(start).div_ceil(SEGMENT_BYTES);
        let (first, new) = self.find_segments(span, bytes)?;
        let class = if step == 1 { 0 } else { start.trailing_zeros() as u8 };
        if class != 0 {
            self.raise_format();
        }
        let pointer = self.memory.at(first * SEGMENT_BYTES + start);
        if self.log.open() {
            self.log_alloc(pointer)?;
        }
        self.publish_spanning(
            first,
            new,
            Head { kind: HeadKind::Segment, class, span: span as u32 },
            bytes,
        );
        NonNull::new(pointer).ok_or(HeapError::OutsideHeap)
    }

    /// Frees an object; in an open transaction, when it commits. The object of a root is freed by
    /// [`Heap::remove_root`]: nothing here knows that it has a name, which would lead to a free
    /// place then.
    ///
    /// # Errors
    /// [`HeapError::NotAllocated`] when the pointer is not the start of an allocated object, and
    /// [`HeapError::OtherHeap`] for one of whole segments while this thread has a transaction open
    /// in another heap; nothing has changed then. [`HeapError::ReadOnly`].
    #[inline]
    pub fn free(&mut self, pointer: NonNull<u8>) -> Result<(), HeapError> {
        if !self.log.open() && self.free_known(pointer) { Ok(()) } else { self.free_any(pointer) }
    }

    /// As [`Heap::free`], whatever it is.
    #[inline(never)]
    fn free_any(&mut self, pointer: NonNull<u8>) -> Result<(), HeapError> {
        self.check_writable()?;
        let offset = self.offset_of(pointer).ok_or(HeapError::NotAllocated)?;
        let place = self.place(offset).ok_or(HeapError::NotAllocated)?;
        if self.log.open() {
            return self.log_free(offset);
        }
        match place {
            Place::Slot(slot) => {
                if !self.make_known(slot) || !self.free_known(pointer) {
                    self.release_slot(slot);
                    self.memory.drain();
                }
            }
            Place::Wide(slot) => self.release_wide(slot),
            Place::Run(run) => self.release_run(run),
            // Unmaking it takes many stores: as a transaction of its own it is all or nothing.
            Place::Spanning { .. } => {
                self.begin()?;
                self.log_free(offset)?;
                self.commit()?;
            }
        }
        Ok(())
    }

    /// Frees what lies at `offset`, if something does; for the log, whose records may be applied
    /// twice.
    pub(crate) fn free_if_allocated(&mut self, offset: u64) {
        match self.place(offset) {
            Some(Place::Slot(slot)) => self.release_slot(slot),
            Some(Place::Wide(slot)) => self.release_wide(slot),
            Some(Place::Run(run)) => self.release_run(run),
            Some(Place::Spanning { first, span, .. }) => self.release_spanning(first, span),
            None => {}
        }
    }

    /// The allocated object that starts at `offset`.
    pub(crate) fn place(&self, offset: u64) -> Option<Place> {
        let segment = offset / SEGMENT_BYTES;
        let segments = self.segments();
        if segment >= segments {
            return None;
        }
        let span = self.span_of(segment);
        if span > 1 {
            let start = offset % SEGMENT_BYTES;
            let head = Head::decode(self.memory.load(segment * SEGMENT_BYTES + DESC_HEAD));
            let whole = head.and_then(Head::object_start) == Some(start)
                && span <= segments - segment
                && self.memory.holds(segment * SEGMENT_BYTES, span * SEGMENT_BYTES);
            return whole.then_some(Place::Spanning { first: segment, span, start });
        }
        if let Some(run) = self.run_at(offset, HeadKind::Run) {
            return Some(Place::Run(run));
        }
        let narrow = self.slot_place(offset).map(Place::Slot);
        narrow.or_else(|| self.wide_place(offset).map(Place::Wide))
    }

    /// Bytes that the object at `pointer` may use: what was asked for or a little more.
    ///
    /// # Errors
    /// [`HeapError::NotAllocated`].
    pub fn usable_bytes(&self, pointer: NonNull<u8>) -> Result<u64, HeapError> {
        let offset = self.offset_of(pointer).ok_or(HeapError::NotAllocated)?;
        Ok(self.place(offset).ok_or(HeapError::NotAllocated)?.usable_bytes())
    }

    /// Offset of a pointer in the heap.
    pub fn offset_of(&self, pointer: NonNull<u8>) -> Option<u64> {
        self.memory.offset_of(pointer.as_ptr())
    }

    /// Where the heap's bytes went.
    pub fn usage(&self) -> Usage {
        let segments = self.segments();
        let mut usage = Usage { formatted_bytes: 0, chunk_bytes: 0 };
        let mut segment = 0;
        while segment < segments {
            let span = self.span_of(segment);
            usage.formatted_bytes += span * SEGMENT_BYTES;
            usage.chunk_bytes += if span > 1 {
                span * SEGMENT_BYTES
            } else {
                let used = self.memory.load(segment * SEGMENT_BYTES + DESC_USED_CHUNKS);
                u64::from((used & !self.absent_chunks(segment)).count_ones()) * CHUNK_BYTES
            };
            segment += span;
        }
        usage.formatted_bytes = usage.formatted_bytes.min(self.memory.len());
        usage.chunk_bytes = usage.chunk_bytes.min(usage.formatted_bytes);
        usage
    }
}
