//! Roots that carry their type: opened only as what they are, and rewritten as something newer in
//! one step.
//!
//! Invariants:
//! - An entry with a type is never changed: a new type or object is a new entry, and one logged
//!   store of the table's slot switches over. So a kill leaves the old root whole or the new one
//!   whole.
//! - A type is compared before the object's bytes are looked at.

use core::ptr::NonNull;

use crate::backing::Backing;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::heap::roots::{Contents, OFFSET_MASK, Root};
use crate::heap::transaction::Transaction;
use crate::layout::*;
use crate::types::{RootType, Typed};

impl<B: Backing> Heap<B> {
    /// The type that a root carries; `None` when there is no such root, or it has no type.
    pub fn root_type(&self, name: &str) -> Option<RootType> {
        let (_, entry) = self.find(name)?;
        self.type_of(entry)
    }

    /// Makes a named object of zeroes that carries the type of `T`, as [`Heap::create_root`] does.
    ///
    /// # Errors
    /// As [`Heap::create_root`], and [`HeapError::Alignment`] for a `T` that the heap cannot align;
    /// [`HeapError::NotPortable`] in a portable heap for a `T` that is not.
    pub fn create_root_typed<T: Typed>(&mut self, name: &str) -> Result<NonNull<T>, HeapError> {
        self.check_portable::<T>()?;
        self.create(
            name,
            size_of::<T>() as u64,
            Contents::Zeroes,
            align_of::<T>() as u64,
            Some(RootType::of::<T>()),
        )
        .map(NonNull::cast)
    }

    /// As [`Heap::create_root`], of a type that the program knows by its number only: for other
    /// languages.
    ///
    /// # Errors
    /// As [`Heap::create_root`].
    pub fn create_root_of(
        &mut self,
        name: &str,
        bytes: u64,
        root_type: RootType,
    ) -> Result<NonNull<u8>, HeapError> {
        self.create(name, bytes, Contents::Zeroes, 1, Some(root_type))
    }

    /// Makes an object that is there already a root of `bytes` bytes, in one step: so it can be
    /// made ready before it can be found. Inside an open transaction, with that. Looks at every
    /// root.
    ///
    /// # Errors
    /// [`HeapError::NotAllocated`]; [`HeapError::OutsideHeap`] when the object has fewer bytes;
    /// [`HeapError::NameTaken`], also when it is a root already; [`HeapError::BadName`],
    /// [`HeapError::OutOfMemory`], [`HeapError::ReadOnly`], [`HeapError::Damaged`]. The object
    /// stays what it was then.
    pub fn name_object(
        &mut self,
        name: &str,
        object: NonNull<u8>,
        bytes: u64,
        root_type: Option<RootType>,
    ) -> Result<(), HeapError> {
        self.check_writable()?;
        self.check_new_name(name)?;
        if bytes > self.usable_bytes(object)? {
            return Err(HeapError::OutsideHeap);
        }
        if self.roots().any(|(_, root)| root.pointer == object) {
            return Err(HeapError::NameTaken);
        }
        let offset = self.offset_of(object).ok_or(HeapError::NotAllocated)?;
        self.all_or_nothing(|heap| {
            let entry = heap.write_entry(name, offset, bytes, root_type)?;
            heap.insert_entry(entry, name)
        })
    }

    /// The root of this name as a `T`; `None` when there is none.
    ///
    /// # Errors
    /// [`HeapError::LayoutMismatch`] when it has another type, or none.
    pub fn root_typed<T: Typed>(&self, name: &str) -> Result<Option<NonNull<T>>, HeapError> {
        let Some((_, entry)) = self.find(name) else { return Ok(None) };
        let (stored, wanted) = (self.type_of(entry), RootType::of::<T>());
        if !stored.is_some_and(RootType::is_of::<T>) {
            return Err(HeapError::LayoutMismatch { stored, wanted });
        }
        let root = self.root_of(entry).ok_or(HeapError::OutsideHeap)?;
        fitting(root).map(Some)
    }

    /// Gives a root without a type the type of `T`: for heaps that were made before their roots had
    /// types. The caller knows that its bytes are a `T`.
    ///
    /// # Errors
    /// [`HeapError::NoSuchRoot`]; [`HeapError::LayoutMismatch`] when it has a type already, or is
    /// too small for a `T`; as [`Heap::create_root`] when there is no room for the type.
    pub fn adopt_root<T: Typed>(&mut self, name: &str) -> Result<NonNull<T>, HeapError> {
        self.check_portable::<T>()?;
        let (slot, entry) = self.find(name).ok_or(HeapError::NoSuchRoot)?;
        let root = self.root_of(entry).ok_or(HeapError::NoSuchRoot)?;
        let (stored, wanted) = (self.type_of(entry), RootType::of::<T>());
        let Ok(pointer) = fitting(root) else {
            return Err(HeapError::LayoutMismatch { stored, wanted });
        };
        if stored.is_some() {
            return Err(HeapError::LayoutMismatch { stored, wanted });
        }
        self.all_or_nothing(|heap| heap.switch_entry(name, slot, entry, root, wanted))?;
        Ok(pointer)
    }

    /// The root of this name as a `New`; if it still is an `Old`, `migrate` makes a `New` of it
    /// first. All that it does with the heap, the new object, and the end of the old one are one
    /// transaction: a kill or an error leaves the old root or the new one.
    ///
    /// # Errors
    /// What `migrate` returns; [`HeapError::NoSuchRoot`]; [`HeapError::LayoutMismatch`] when the
    /// root is neither; no room.
    pub fn root_or_migrate<Old: Typed, New: Typed, E: From<HeapError>>(
        &mut self,
        name: &str,
        migrate: impl FnOnce(&mut Transaction<'_, B>, Old) -> Result<New, E>,
    ) -> Result<NonNull<New>, E> {
        self.check_portable::<New>()?;
        let (_, entry) = self.find(name).ok_or(HeapError::NoSuchRoot)?;
        let (stored, wanted) = (self.type_of(entry), RootType::of::<New>());
        if stored.is_some_and(RootType::is_of::<New>) {
            return Ok(self.root_typed(name)?.ok_or(HeapError::NoSuchRoot)?);
        }
        if !stored.is_some_and(RootType::is_of::<Old>) {
            return Err(HeapError::LayoutMismatch { stored, wanted }.into());
        }
        self.transaction(|tx| {
            let old: NonNull<Old> = tx.root_typed(name)?.ok_or(HeapError::NoSuchRoot)?;
            // SAFETY: inside the heap, large enough and aligned (`fitting`), of this type by its
            // entry, and any bytes are a value of it.
            let value = unsafe { old.read() };
            let value = migrate(tx, value)?;
            // `migrate` may have created roots: the table can be another one.
            let (slot, entry) = tx.find(name).ok_or(HeapError::NoSuchRoot)?;
            let old = tx.root_of(entry).ok_or(HeapError::NoSuchRoot)?;
            let bytes = size_of::<New>() as u64;
            let pointer = tx.alloc_aligned(bytes, align_of::<New>() as u64)?;
            // SAFETY: just allocated with this size and alignment.
            unsafe { pointer.cast::<New>().write(value) };
            tx.switch_entry(name, slot, entry, Root { pointer, bytes }, wanted)?;
            tx.free(old.pointer)?;
            Ok(pointer.cast())
        })
    }

    fn check_portable<T: Typed>(&self) -> Result<(), HeapError> {
        match self.is_portable() && !T::IS_PORTABLE {
            true => Err(HeapError::NotPortable),
            false => Ok(()),
        }
    }

    pub(crate) fn type_of(&self, entry: u64) -> Option<RootType> {
        let word = self.memory.load(entry + ENTRY_NAME_LENGTH);
        if word & ENTRY_TYPED == 0 {
            return None;
        }
        let at = entry_type_at(entry, word & !ENTRY_TYPED);
        Some(RootType { layout: self.memory.load(at), version: self.memory.load(at + 8) as u32 })
    }

    /// Replaces the entry of a root; inside a transaction.
    fn switch_entry(
        &mut self,
        name: &str,
        slot: u64,
        entry: u64,
        root: Root,
        root_type: RootType,
    ) -> Result<(), HeapError> {
        let object = self.offset_of(root.pointer).ok_or(HeapError::OutsideHeap)?;
        let fresh = self.write_entry(name, object, root.bytes, Some(root_type))?;
        self.store_logged(slot, fresh | self.memory.load(slot) & !OFFSET_MASK)?;
        self.free(NonNull::new(self.memory.at(entry)).ok_or(HeapError::OutsideHeap)?)
    }
}

/// The object of a root as a `T`, if it is one by size and alignment.
fn fitting<T>(root: Root) -> Result<NonNull<T>, HeapError> {
    let pointer = root.pointer.cast::<T>();
    let fits = root.bytes >= size_of::<T>() as u64 && pointer.is_aligned();
    fits.then_some(pointer).ok_or(HeapError::OutsideHeap)
}
