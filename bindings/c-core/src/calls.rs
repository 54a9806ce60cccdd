//! The calls of `holdfast.h` on a heap, in Rust's terms.
//!
//! Invariants:
//! - Levels of a transaction are the heap's own: an abort at any depth aborts it all, when the
//!   outermost level ends.
//! - What the papers' calls name is a root like any other: `nvmmap` uses `nvmap/NAME`, `qnvmalloc`
//!   uses `qnv/UID/MAGIC`. The names are part of the format: changing them would lose data.

use core::fmt::{self, Write};
use core::ptr::NonNull;

use crate::call_error::HeapCallError;
use crate::known_roots;
use holdfast_heap::{Backing, GrowError, Heap, HeapError, Root, RootType};
use holdfast_types::Durability;

/// Alignment of what `nvmmap` returns, and the unit of its sizes.
pub const PAGE_BYTES: u64 = 4096;
/// What is allocated on top, so that a page boundary lies in the first bytes (objects are aligned
/// to 16).
const SLACK_BYTES: u64 = PAGE_BYTES - 16;
/// Longest name of a root.
const NAME_BYTES_MAX: usize = 255;
const RANGE_PREFIX: &str = "nvmap/";

/// What a new object holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Every byte is zero.
    Zeroes,
    /// Whatever was there: bytes of objects of this heap that were freed.
    Any,
}

/// A heap and what C may do with it.
pub struct Calls<B: Backing> {
    heap: Heap<B>,
}

type Result<T> = core::result::Result<T, HeapCallError>;

impl<B: Backing> Calls<B> {
    /// The calls on a heap that was just opened.
    pub fn new(heap: Heap<B>) -> Calls<B> {
        Calls { heap }
    }

    /// The heap.
    #[inline]
    pub fn heap(&mut self) -> &mut Heap<B> {
        &mut self.heap
    }

    /// Puts what is made of the heap in its place, such as the same one opened anew.
    ///
    /// # Errors
    /// What `work` returns; the heap is gone then.
    pub fn replace_heap<E>(
        self,
        work: impl FnOnce(Heap<B>) -> core::result::Result<Heap<B>, E>,
    ) -> core::result::Result<Calls<B>, E> {
        Ok(Calls::new(work(self.heap)?))
    }

    /// The heap, as it is.
    pub fn into_heap(self) -> Heap<B> {
        self.heap
    }

    /// Ends it all; an open transaction is rolled back.
    pub fn close(self) -> B {
        self.heap.close()
    }

    /// A zeroed object: a root, or without a name an anonymous one.
    ///
    /// # Errors
    /// Those of [`Heap::create_root`].
    pub fn allocate(&mut self, name: Option<&str>, bytes: u64) -> Result<NonNull<u8>> {
        let allocated = match name {
            Some(name) => {
                self.heap.create_root(name, bytes).inspect(|root| known_roots::note(*root))
            }
            None => self.heap.alloc_zeroed(bytes),
        };
        allocated.map_err(|error| asked_for(error, bytes))
    }

    /// An anonymous object.
    ///
    /// # Errors
    /// Those of [`Heap::alloc`].
    pub fn allocate_anonymous(&mut self, bytes: u64, content: Content) -> Result<NonNull<u8>> {
        self.allocate_by(bytes, |heap| match content {
            Content::Zeroes => heap.alloc_zeroed(bytes),
            Content::Any => heap.alloc(bytes),
        })
    }

    /// An anonymous object of `bytes` bytes, allocated by `alloc` from this heap.
    ///
    /// # Errors
    /// Those of `alloc`.
    pub fn allocate_by(
        &mut self,
        bytes: u64,
        alloc: impl FnOnce(&mut Heap<B>) -> core::result::Result<NonNull<u8>, HeapError>,
    ) -> Result<NonNull<u8>> {
        alloc(&mut self.heap).map_err(|error| asked_for(error, bytes))
    }

    /// Frees an anonymous object by `free`, from this heap.
    ///
    /// # Errors
    /// [`HeapCallError::IsRoot`], those of `free`.
    pub fn free_by(
        &mut self,
        object: NonNull<u8>,
        free: impl FnOnce(&mut Heap<B>) -> core::result::Result<(), HeapError>,
    ) -> Result<()> {
        self.check_anonymous(object)?;
        Ok(free(&mut self.heap)?)
    }

    /// A zeroed object at an alignment.
    ///
    /// # Errors
    /// Those of [`Heap::alloc_aligned_zeroed`].
    pub fn allocate_aligned(&mut self, align_bytes: u64, bytes: u64) -> Result<NonNull<u8>> {
        self.heap.alloc_aligned_zeroed(bytes, align_bytes).map_err(|error| asked_for(error, bytes))
    }

    /// A zeroed root that carries a layout (0: none).
    ///
    /// # Errors
    /// Those of [`Heap::create_root`].
    pub fn allocate_typed(&mut self, name: &str, bytes: u64, layout: u64) -> Result<NonNull<u8>> {
        let Some(root_type) = type_of(layout) else { return self.allocate(Some(name), bytes) };
        let created = self.heap.create_root_of(name, bytes, root_type);
        created.inspect(|root| known_roots::note(*root)).map_err(|error| asked_for(error, bytes))
    }

    /// A root, if it carries this layout (0: whatever it carries).
    ///
    /// # Errors
    /// [`HeapError::NoSuchRoot`], [`HeapCallError::OtherLayout`].
    pub fn read_typed(&self, name: &str, layout: u64) -> Result<Root> {
        let root = self.read(name)?;
        let Some(wanted) = type_of(layout) else { return Ok(root) };
        match self.heap.root_type(name) {
            Some(stored) if stored == wanted => Ok(root),
            stored => {
                let stored = stored.map_or(0, |stored| stored.layout);
                Err(HeapCallError::OtherLayout { stored, wanted: layout })
            }
        }
    }

    /// Gives an anonymous object another size; in place where that is possible. Without an object,
    /// makes one.
    ///
    /// # Errors
    /// [`HeapCallError::IsRoot`]; those of [`Heap::realloc`]. The object is as it was then.
    pub fn reallocate(&mut self, object: Option<NonNull<u8>>, bytes: u64) -> Result<NonNull<u8>> {
        let Some(object) = object else { return self.allocate(None, bytes) };
        self.check_anonymous(object)?;
        self.heap.realloc(object, bytes).map_err(|error| asked_for(error, bytes))
    }

    /// Makes an anonymous object a root, whose type is `layout` (0: none).
    ///
    /// # Errors
    /// Those of [`Heap::name_object`].
    pub fn name(
        &mut self,
        name: &str,
        object: Option<NonNull<u8>>,
        bytes: u64,
        layout: u64,
    ) -> Result<()> {
        let object = object.ok_or(HeapError::NotAllocated)?;
        self.heap.name_object(name, object, bytes, type_of(layout))?;
        known_roots::note(object);
        Ok(())
    }

    /// A root.
    ///
    /// # Errors
    /// [`HeapError::NoSuchRoot`].
    pub fn read(&self, name: &str) -> Result<Root> {
        let root = self.heap.root(name).ok_or(HeapError::NoSuchRoot)?;
        known_roots::note(root.pointer);
        Ok(root)
    }

    /// Refuses a root that the program knows by its name, one of the latest few hundred.
    fn check_anonymous(&self, object: NonNull<u8>) -> Result<()> {
        if known_roots::may_be(object) && !self.heap.backing().is_read_only() {
            if self.heap.roots().any(|(_, root)| root.pointer == object) {
                return Err(HeapCallError::IsRoot);
            }
            known_roots::forget(object);
        }
        Ok(())
    }

    /// Frees an anonymous object.
    ///
    /// # Errors
    /// [`HeapError::NotAllocated`], [`HeapCallError::IsRoot`].
    pub fn free(&mut self, object: NonNull<u8>) -> Result<()> {
        self.free_by(object, |heap| heap.free(object))
    }

    /// Removes a root with its object.
    ///
    /// # Errors
    /// [`HeapError::NoSuchRoot`].
    pub fn remove(&mut self, name: &str) -> Result<()> {
        Ok(self.heap.remove_root(name)?)
    }

    /// The page-aligned range of a name, made if there is none, as large as asked for or larger.
    ///
    /// # Errors
    /// [`HeapCallError::TooSmall`]; with 0 bytes, which asks for whatever is there,
    /// [`HeapError::NoSuchRoot`].
    pub fn map(&mut self, name: &str, bytes: u64) -> Result<NonNull<u8>> {
        if name.is_empty() {
            return Err(HeapError::BadName.into());
        }
        let mut root_name = Name::new();
        write!(root_name, "{RANGE_PREFIX}{name}").map_err(|_| HeapError::BadName)?;
        let object = match self.heap.root(root_name.text()) {
            Some(root) => {
                let has_bytes = root.bytes.saturating_sub(SLACK_BYTES);
                if bytes > has_bytes {
                    return Err(HeapCallError::TooSmall { has_bytes, wanted_bytes: bytes });
                }
                root.pointer
            }
            None if bytes == 0 => return Err(HeapError::NoSuchRoot.into()),
            None => {
                let whole = bytes
                    .checked_next_multiple_of(PAGE_BYTES)
                    .and_then(|b| b.checked_add(SLACK_BYTES));
                let limit_bytes = self.heap.backing().limit_bytes();
                let cause = GrowError::LimitReached { limit_bytes };
                let whole = whole.ok_or(HeapError::OutOfMemory { wanted_bytes: bytes, cause })?;
                self.heap
                    .create_root(root_name.text(), whole)
                    .map_err(|error| asked_for(error, bytes))?
            }
        };
        // A large object begins at a page: then the range is the object, and no free may take it.
        known_roots::note(object);
        Ok(page_of(object))
    }

    /// Checks that a range is one that [`Calls::map`] returned; its use ends, its data stays.
    ///
    /// # Errors
    /// [`HeapCallError::NotARange`].
    pub fn unmap(&self, start: Option<NonNull<u8>>) -> Result<()> {
        let is_range = |start: NonNull<u8>| {
            self.heap.roots().any(|(name, root)| {
                name.starts_with(RANGE_PREFIX) && page_of(root.pointer) == start
            })
        };
        if start.is_some_and(is_range) { Ok(()) } else { Err(HeapCallError::NotARange) }
    }

    /// A zeroed object that is known by two numbers.
    ///
    /// # Errors
    /// Those of [`Heap::create_root`].
    pub fn allocate_numbered(&mut self, uid: u64, magic: u64, bytes: u64) -> Result<NonNull<u8>> {
        self.allocate(Some(Name::numbered(uid, magic).text()), bytes)
    }

    /// The object of two numbers.
    ///
    /// # Errors
    /// [`HeapError::NoSuchRoot`].
    pub fn read_numbered(&self, uid: u64, magic: u64) -> Result<Root> {
        self.read(Name::numbered(uid, magic).text())
    }

    /// Removes the object of two numbers.
    ///
    /// # Errors
    /// [`HeapError::NoSuchRoot`].
    pub fn remove_numbered(&mut self, uid: u64, magic: u64) -> Result<()> {
        self.remove(Name::numbered(uid, magic).text())
    }

    /// The heap's first byte, from which references count.
    ///
    /// # Errors
    /// [`HeapError::OutsideHeap`] for a heap at the address 0, which there is not.
    pub fn base(&self) -> Result<NonNull<u8>> {
        let base = self.heap.base().and_then(|base| NonNull::new(base.as_ptr()));
        Ok(base.ok_or(HeapError::OutsideHeap)?)
    }

    /// Makes room for so many bytes of objects, in one growth.
    ///
    /// # Errors
    /// Those of [`Heap::reserve`].
    pub fn reserve(&mut self, bytes: u64) -> Result<()> {
        Ok(self.heap.reserve(bytes).map(drop)?)
    }

    /// Begins a transaction, or goes one level deeper.
    ///
    /// # Errors
    /// Those of [`Heap::begin`].
    pub fn begin(&mut self) -> Result<()> {
        Ok(self.heap.begin()?)
    }

    /// Notes a range before it is changed.
    ///
    /// # Errors
    /// Those of [`Heap::add_range`].
    pub fn add(&mut self, start: *const u8, bytes: u64) -> Result<()> {
        Ok(self.heap.add_range(start, bytes)?)
    }

    /// Brings bytes of the heap from the processor's caches to memory, where memory survives a
    /// reset.
    ///
    /// # Errors
    /// Those of [`Heap::persist`].
    pub fn persist(&self, start: *const u8, bytes: u64) -> Result<()> {
        Ok(self.heap.persist(start, bytes)?)
    }

    /// Commits, or goes one level up.
    ///
    /// # Errors
    /// When no transaction is open; at the outermost level [`HeapError::TransactionAborted`] when
    /// an inner one was aborted, and everything is rolled back then.
    pub fn commit(&mut self) -> Result<()> {
        Ok(self.heap.commit()?)
    }

    /// Rolls the whole transaction back, or goes one level up in one that can only be rolled back
    /// from now on.
    ///
    /// # Errors
    /// When no transaction is open.
    pub fn abort(&mut self) -> Result<()> {
        Ok(self.heap.abort()?)
    }

    /// For what is not possible in a transaction.
    ///
    /// # Errors
    /// [`HeapError::TransactionState`] when one is open.
    pub fn outside_transactions(&self) -> Result<()> {
        match self.heap.in_transaction() {
            true => Err(HeapError::TransactionState { expected_open: false }.into()),
            false => Ok(()),
        }
    }

    /// The level that C names, unless a transaction is open.
    ///
    /// # Errors
    /// [`HeapCallError::NoSuchLevel`], or an open transaction.
    pub fn level(&self, number: i32) -> Result<Durability> {
        self.outside_transactions()?;
        let level = u32::try_from(number).ok().and_then(Durability::from_number);
        level.ok_or(HeapCallError::NoSuchLevel)
    }
}

/// The heap speaks of what it looked for; the caller asked for less.
fn asked_for(error: HeapError, bytes: u64) -> HeapCallError {
    match error {
        HeapError::OutOfMemory { cause, .. } => {
            HeapError::OutOfMemory { wanted_bytes: bytes, cause }.into()
        }
        error => error.into(),
    }
}

/// The type that C calls by one number; 0 is none.
fn type_of(layout: u64) -> Option<RootType> {
    (layout != 0).then_some(RootType { layout, version: 0 })
}

/// The first page boundary in an object of a range.
fn page_of(object: NonNull<u8>) -> NonNull<u8> {
    let to_boundary = (object.addr().get() as u64).wrapping_neg() % PAGE_BYTES;
    // Not zero: boundary and object lie in one allocation, which does not wrap around.
    NonNull::new(object.as_ptr().wrapping_add(to_boundary as usize)).unwrap_or(object)
}

/// A root's name, put together without allocating.
struct Name {
    bytes: [u8; NAME_BYTES_MAX],
    len: usize,
}

impl Name {
    fn new() -> Name {
        Name { bytes: [0; NAME_BYTES_MAX], len: 0 }
    }

    fn numbered(uid: u64, magic: u64) -> Name {
        let mut name = Name::new();
        // At most 4 + 20 + 1 + 20 bytes, so it fits.
        let _ = write!(name, "qnv/{uid}/{magic}");
        name
    }

    fn text(&self) -> &str {
        // Only whole strings are ever written.
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or("")
    }
}

impl Write for Name {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let end = self.len + text.len();
        self.bytes.get_mut(self.len..end).ok_or(fmt::Error)?.copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codes::Code;
    use holdfast_heap::OpenOptions;
    use holdfast_testkit::TestMemory;

    fn calls() -> Calls<TestMemory> {
        let options = OpenOptions { pointers: None, format_if_empty: true };
        Calls::new(Heap::open(TestMemory::new(64 << 20), options).unwrap())
    }

    /// A range begins at a page, keeps its address and has at least the requested size.
    ///
    /// Guarantee: programs/fixed-addresses
    #[test]
    fn range_is_aligned_stable_and_large_enough() {
        let mut calls = calls();
        for (index, bytes) in
            [1, 4096, 4097, 9000, 9001, 9002, 40_000, 6 << 20].into_iter().enumerate()
        {
            let name = std::format!("range {index}");
            let start = calls.map(&name, bytes).unwrap();
            assert_eq!(start.addr().get() as u64 % PAGE_BYTES, 0);
            assert_eq!(calls.map(&name, bytes), Ok(start));
            assert_eq!(calls.map(&name, 0), Ok(start));
            calls.unmap(Some(start)).unwrap();
            let root = calls.read(&std::format!("nvmap/{name}")).unwrap();
            let end = root.pointer.addr().get() as u64 + root.bytes;
            assert!(start.addr().get() as u64 + bytes.next_multiple_of(PAGE_BYTES) <= end);
            let whole = bytes.next_multiple_of(PAGE_BYTES);
            assert_eq!(calls.map(&name, whole), Ok(start));
            let too_much = HeapCallError::TooSmall { has_bytes: whole, wanted_bytes: whole + 1 };
            assert_eq!(calls.map(&name, whole + 1), Err(too_much));
        }
    }

    /// A large range is its object: `nvfree` gave its memory to the next caller, and the name kept
    /// it, too.
    ///
    /// Guarantee: programs/objects
    #[test]
    fn range_is_not_freed_or_resized_as_an_object() {
        let mut calls = calls();
        let start = calls.map("range", 1 << 20).unwrap();
        let object = calls.heap().root("nvmap/range").unwrap().pointer;
        assert_eq!(start, object, "this one begins at a page");
        assert_eq!(calls.free(start), Err(HeapCallError::IsRoot));
        assert_eq!(calls.map("range", 0), Ok(start));
        assert_eq!(calls.reallocate(Some(start), 1), Err(HeapCallError::IsRoot));
        assert_eq!(calls.map("range", 1 << 20), Ok(start));
        calls.remove("nvmap/range").unwrap();
        assert_eq!(calls.free(start), Err(HeapError::NotAllocated.into()));
    }

    #[test]
    fn what_is_no_range_is_refused_and_changes_nothing() {
        let mut calls = calls();
        let object = calls.allocate(Some("object"), 8192).unwrap();
        assert_eq!(calls.unmap(Some(object)), Err(HeapCallError::NotARange));
        assert_eq!(calls.unmap(None), Err(HeapCallError::NotARange));
        assert_eq!(calls.map("missing", 0), Err(HeapError::NoSuchRoot.into()));
        assert_eq!(calls.map("", 1), Err(HeapError::BadName.into()));
        assert_eq!(calls.map(&"x".repeat(250), 1), Err(HeapError::BadName.into()));
        assert_eq!(calls.map("huge", u64::MAX).unwrap_err().code(), Code::LimitReached);
        assert_eq!(calls.map("large", 1 << 40).unwrap_err().code(), Code::LimitReached);
        for bytes in [100 << 20, (100 << 20) + 1] {
            let errors = [
                calls.map("large", bytes),
                calls.allocate(None, bytes),
                calls.allocate(Some("x"), bytes),
            ];
            let cause = GrowError::LimitReached { limit_bytes: 64 << 20 };
            let error = HeapError::OutOfMemory { wanted_bytes: bytes, cause };
            assert_eq!(errors, [Err(error.into()); 3], "the size is what was asked for");
        }
        assert_eq!(calls.heap().roots().count(), 1);
    }

    #[test]
    fn numbered_objects_are_told_apart_by_both_numbers() {
        let mut calls = calls();
        let one = calls.allocate_numbered(1, 23, 10).unwrap();
        let other = calls.allocate_numbered(12, 3, 20).unwrap();
        assert_ne!(one, other);
        calls.allocate_numbered(u64::MAX, u64::MAX, 30).unwrap();
        assert_eq!(calls.allocate_numbered(1, 23, 10), Err(HeapError::NameTaken.into()));
        assert_eq!(calls.read_numbered(1, 23), Ok(Root { pointer: one, bytes: 10 }));
        assert_eq!(calls.read_numbered(u64::MAX, u64::MAX).unwrap().bytes, 30);
        calls.remove_numbered(1, 23).unwrap();
        assert_eq!(calls.remove_numbered(1, 23), Err(HeapError::NoSuchRoot.into()));
        assert_eq!(calls.read("qnv/12/3"), Ok(Root { pointer: other, bytes: 20 }));
    }

    /// A root created with a layout is read only under that layout.
    ///
    /// Guarantee: programs/objects
    #[test]
    fn root_is_read_only_with_its_layout() {
        let mut calls = calls();
        let root = calls.allocate_typed("typed", 100, 7).unwrap();
        let found = Root { pointer: root, bytes: 100 };
        assert_eq!(calls.read_typed("typed", 7), Ok(found));
        assert_eq!(
            calls.read_typed("typed", 8),
            Err(HeapCallError::OtherLayout { stored: 7, wanted: 8 })
        );
        assert_eq!((calls.read_typed("typed", 0), calls.read("typed")), (Ok(found), Ok(found)));
        calls.allocate(Some("plain"), 100).unwrap();
        assert_eq!(calls.read_typed("plain", 7).unwrap_err().code(), Code::Layout);
        assert_eq!(calls.read_typed("none", 7), Err(HeapError::NoSuchRoot.into()));
    }

    /// Guarantee: programs/objects
    #[test]
    fn objects_change_their_size_and_roots_do_not() {
        let mut calls = calls();
        let first = calls.reallocate(None, 100_000).unwrap();
        assert_eq!(calls.reallocate(Some(first), 400_000), Ok(first), "there is room behind it");
        assert_eq!(calls.reallocate(Some(first), u64::MAX).unwrap_err().code(), Code::LimitReached);
        let root = calls.allocate(Some("root"), 100).unwrap();
        assert_eq!(calls.reallocate(Some(root), 10_000), Err(HeapCallError::IsRoot));
        calls.name("first", Some(first), 400_000, 0).unwrap();
        assert_eq!(calls.reallocate(Some(first), 1), Err(HeapCallError::IsRoot));
        let aligned = calls.allocate_aligned(4096, 100).unwrap();
        assert!(aligned.addr().get().is_multiple_of(4096));
        assert_eq!(calls.allocate_aligned(3, 100).unwrap_err().code(), Code::Alignment);
    }

    /// Nested transactions form one transaction, and an inner abort aborts all of it.
    ///
    /// Guarantee: programs/transactions
    #[test]
    fn nested_transactions_abort_as_one() {
        let mut calls = calls();
        calls.begin().unwrap();
        calls.allocate(Some("outer"), 8).unwrap();
        calls.begin().unwrap();
        calls.allocate(Some("inner"), 8).unwrap();
        calls.commit().unwrap();
        assert!(calls.level(0).is_err());
        calls.commit().unwrap();
        assert_eq!(calls.heap().roots().count(), 2);
        let child = calls.allocate(None, 100).unwrap();
        calls.begin().unwrap();
        calls.remove("outer").unwrap();
        calls.begin().unwrap();
        calls.abort().unwrap();
        // What the outer level still does belongs to the transaction, too.
        assert_eq!(calls.outside_transactions().unwrap_err().code(), Code::InTransaction);
        calls.free(child).unwrap();
        calls.allocate(Some("late"), 8).unwrap();
        assert_eq!(calls.commit().unwrap_err().code(), Code::Aborted);
        assert_eq!(calls.commit().unwrap_err().code(), Code::NoTransaction);
        assert_eq!(calls.heap().roots().count(), 2);
        assert_ne!(calls.allocate(None, 100), Ok(child), "it was never freed");
        assert_eq!(calls.level(2), Ok(Durability::Power));
        assert_eq!(calls.level(3), Err(HeapCallError::NoSuchLevel));
    }
}
