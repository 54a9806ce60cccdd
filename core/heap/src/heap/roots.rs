//! Named roots: how a program finds its data again. An open-addressed table of entry offsets, each
//! with 16 bits of the name's hash, in objects of the heap itself; changed only in transactions.
//!
//! The names follow Kannan et al. ("NVM Heaps for Accelerating Browser-based Applications", section
//! 2): `nvmalloc(name, size)` is [`Heap::create_root`], `nvread(name)` is [`Heap::root`], an
//! anonymous child is [`Heap::alloc`].

use core::ptr::NonNull;

use crate::backing::Backing;
use crate::error::HeapError;
use crate::heap::Heap;
use crate::layout::*;
use crate::types::RootType;
use xxhash_rust::xxh3::xxh3_64;

const OFFSET_BITS: u32 = 48;
pub(crate) const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;

/// Steps that finding places in a new table may take on average. An honest one takes a few; one
/// whose entries all claim the same hash would take for ever.
const PROBES_PER_SLOT_MAX: u64 = 64;
/// Steps that are allowed in a small table, too; they take less than a tenth of a second. An attacker
/// who chooses names that collide can make a heap slow, but must not keep it from having more roots.
const PROBES_FREE: u64 = 1 << 24;

/// A root: an object that has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The object.
    pub pointer: NonNull<u8>,
    /// Bytes that were asked for.
    pub bytes: u64,
}

/// Of a new root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    Zeroes,
    /// What its place had before.
    AsTheyAre,
}

/// The table as the superblock describes it.
#[derive(Clone, Copy, Debug)]
struct Table {
    offset: u64,
    slots: u64,
    /// Slots that are or were in use since the table was made.
    used: u64,
    roots: u64,
}

impl<B: Backing> Heap<B> {
    fn table(&self) -> Table {
        let word = |index: u64| self.memory.load(SUPER_ROOTS + index * 8);
        let table = Table { offset: word(0), slots: word(1), used: word(2), roots: word(3) };
        let sound = table.slots.is_power_of_two()
            && table.slots <= self.memory.len() / 8
            && table.roots <= table.used
            && table.used <= table.slots
            && self.memory.holds(table.offset, table.slots * 8);
        if sound { table } else { Table { offset: 0, slots: 0, used: 0, roots: 0 } }
    }

    /// Slot and entry of a name, if there is such a root.
    pub(crate) fn find(&self, name: &str) -> Option<(u64, u64)> {
        let (name, hash) = (name.as_bytes(), xxh3_64(name.as_bytes()));
        let table = self.table();
        for step in 0..table.slots {
            let slot = table.offset + (hash.wrapping_add(step) & (table.slots - 1)) * 8;
            match self.memory.load(slot) {
                0 => return None,
                SLOT_TOMBSTONE => {}
                word if word >> OFFSET_BITS == hash >> OFFSET_BITS => {
                    let entry = word & OFFSET_MASK;
                    // SAFETY: nothing writes to the heap while the name is compared.
                    let stored =
                        unsafe { self.memory.bytes(entry + ENTRY_NAME, name.len() as u64) };
                    let length = self.memory.load(entry + ENTRY_NAME_LENGTH) & !ENTRY_TYPED;
                    if length == name.len() as u64 && stored == Some(name) {
                        return Some((slot, entry));
                    }
                }
                _ => {}
            }
        }
        None
    }

    /// The root of this name: the paper's `nvread(name)`.
    pub fn root(&self, name: &str) -> Option<Root> {
        let (_, entry) = self.find(name)?;
        self.root_of(entry)
    }

    pub(crate) fn root_of(&self, entry: u64) -> Option<Root> {
        let (offset, bytes) =
            (self.memory.load(entry + ENTRY_OBJECT), self.memory.load(entry + ENTRY_SIZE));
        if offset == 0 || !self.memory.holds(offset, bytes) {
            return None;
        }
        Some(Root { pointer: NonNull::new(self.memory.at(offset))?, bytes })
    }

    /// Makes a named object of zeroes: the paper's `nvmalloc(name, size)`. Object and name appear
    /// together or not at all; inside an open transaction, with it.
    ///
    /// # Errors
    /// [`HeapError::NameTaken`], [`HeapError::BadName`], [`HeapError::OutOfMemory`],
    /// [`HeapError::Damaged`] when the table of roots is; nothing has changed then, or, inside an
    /// open transaction, that can only be rolled back any more.
    pub fn create_root(&mut self, name: &str, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        self.create(name, bytes, Contents::Zeroes, 1, None)
    }

    /// The same with whatever bytes its place had before, for a program that is going to write all
    /// of them.
    ///
    /// # Errors
    /// As [`Heap::create_root`].
    pub fn create_root_uninit(&mut self, name: &str, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        self.create(name, bytes, Contents::AsTheyAre, 1, None)
    }

    pub(crate) fn create(
        &mut self,
        name: &str,
        bytes: u64,
        contents: Contents,
        align_bytes: u64,
        root_type: Option<RootType>,
    ) -> Result<NonNull<u8>, HeapError> {
        self.check_new_name(name)?;
        self.all_or_nothing(|heap| {
            let object = heap.alloc_aligned(bytes, align_bytes)?;
            let offset = heap.offset_of(object).ok_or(HeapError::OutsideHeap)?;
            if contents == Contents::Zeroes && !heap.memory.zero(offset, bytes) {
                return Err(HeapError::OutsideHeap);
            }
            let entry = heap.write_entry(name, offset, bytes, root_type)?;
            heap.insert_entry(entry, name)?;
            Ok(object)
        })
    }

    /// Whether there can be a new root of this name.
    pub(crate) fn check_new_name(&self, name: &str) -> Result<(), HeapError> {
        if name.is_empty() || name.len() > ROOT_NAME_BYTES_MAX {
            return Err(HeapError::BadName);
        }
        self.check_table()?;
        if self.find(name).is_some() { Err(HeapError::NameTaken) } else { Ok(()) }
    }

    /// Refuses a root table that is not where it should be, or not what it was: a new table in its
    /// place would lose every root, and a root that is put into other bytes destroys an object.
    fn check_table(&self) -> Result<(), HeapError> {
        let table = self.table();
        let is_sound = if table.slots == 0 {
            // There never was one.
            (0..4).all(|index| self.memory.load(SUPER_ROOTS + index * 8) == 0)
        } else {
            let place = self.place(table.offset);
            place.is_some_and(|place| place.usable_bytes() / 8 >= table.slots)
        };
        if is_sound {
            return Ok(());
        }
        let what = "the root table is not an allocated object of its size";
        Err(HeapError::Damaged { offset: SUPER_ROOTS, what })
    }

    /// Allocates and writes a root's entry; nothing refers to it yet.
    pub(crate) fn write_entry(
        &mut self,
        name: &str,
        object: u64,
        bytes: u64,
        root_type: Option<RootType>,
    ) -> Result<u64, HeapError> {
        let length = name.len() as u64;
        let entry_bytes = match root_type {
            Some(_) => entry_type_at(0, length) + ENTRY_TYPE_BYTES,
            None => ENTRY_NAME + length,
        };
        let entry = self.alloc(entry_bytes)?;
        let at = self.offset_of(entry).ok_or(HeapError::OutsideHeap)?;
        self.memory.store(at + ENTRY_OBJECT, object);
        self.memory.store(at + ENTRY_SIZE, bytes);
        self.memory.store(at + ENTRY_HASH, xxh3_64(name.as_bytes()));
        self.memory.store(at + ENTRY_NAME_LENGTH, length);
        self.memory.write(at + ENTRY_NAME, name.as_bytes());
        if let Some(root_type) = root_type {
            self.raise_format();
            self.memory.store(entry_type_at(at, length), root_type.layout);
            self.memory.store(entry_type_at(at, length) + 8, u64::from(root_type.version));
            self.memory.store(at + ENTRY_NAME_LENGTH, length | ENTRY_TYPED);
        }
        Ok(at)
    }

    /// Removes a root and frees its object (not what the object points to), also a root whose
    /// object was freed by mistake.
    ///
    /// # Errors
    /// [`HeapError::NoSuchRoot`].
    pub fn remove_root(&mut self, name: &str) -> Result<(), HeapError> {
        let (slot, entry) = self.find(name).ok_or(HeapError::NoSuchRoot)?;
        let object = self.root_of(entry).ok_or(HeapError::NoSuchRoot)?;
        self.all_or_nothing(|heap| {
            heap.store_logged(slot, SLOT_TOMBSTONE)?;
            heap.store_logged(SUPER_ROOTS + 24, heap.table().roots.saturating_sub(1))?;
            heap.free_if_there(object.pointer)?;
            heap.free_if_there(NonNull::new(heap.memory.at(entry)).ok_or(HeapError::OutsideHeap)?)
        })
    }

    /// Gives the object of a root room for `bytes`; returns where it lies then, which can be another
    /// place: pointers to it from elsewhere are the caller's own. The content is kept as far as it
    /// fits; what is new has whatever bytes its place had before. Size, place and content change
    /// together or not at all; inside an open transaction, with it. An object that was aligned to more
    /// than 16 need not be any more.
    ///
    /// # Errors
    /// [`HeapError::NoSuchRoot`], [`HeapError::TypedRoot`], [`HeapError::NotAllocated`],
    /// [`HeapError::OutOfMemory`], [`HeapError::ReadOnly`]; the root is then as it was, or, inside an
    /// open transaction, that can only be rolled back any more.
    pub fn resize_root(&mut self, name: &str, bytes: u64) -> Result<NonNull<u8>, HeapError> {
        self.check_writable()?;
        let (_, entry) = self.find(name).ok_or(HeapError::NoSuchRoot)?;
        let root = self.root_of(entry).ok_or(HeapError::NoSuchRoot)?;
        if self.type_of(entry).is_some() {
            return Err(HeapError::TypedRoot);
        }
        self.all_or_nothing(|heap| {
            let object = heap.realloc(root.pointer, bytes)?;
            let offset = heap.offset_of(object).ok_or(HeapError::OutsideHeap)?;
            heap.store_logged(entry + ENTRY_OBJECT, offset)?;
            heap.store_logged(entry + ENTRY_SIZE, bytes)?;
            Ok(object)
        })
    }

    /// All roots, in no particular order: no more than the table has slots, with names of no more
    /// than 255 bytes, whatever the heap's bytes are.
    pub fn roots(&self) -> Roots<'_, B> {
        Roots { heap: self, table: self.table(), next: 0 }
    }

    /// In the open transaction, or in one of its own. What fails after its first record leaves the
    /// open one to be rolled back: its caller cannot undo half of it.
    pub(crate) fn all_or_nothing<R>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<R, HeapError>,
    ) -> Result<R, HeapError> {
        if !self.in_transaction() {
            return self.transaction(|tx| work(tx));
        }
        let records = self.log.records();
        let result = work(self);
        if result.is_err() && self.log.records() != records {
            self.log.doom();
        }
        result
    }

    /// Frees an object whose place may have been freed before: the name that leads to it goes
    /// nevertheless.
    fn free_if_there(&mut self, object: NonNull<u8>) -> Result<(), HeapError> {
        match self.free(object) {
            Err(HeapError::NotAllocated) => Ok(()),
            result => result,
        }
    }

    pub(crate) fn store_logged(&mut self, offset: u64, word: u64) -> Result<(), HeapError> {
        self.add_range(self.memory.at(offset), 8)?;
        self.memory.store(offset, word);
        Ok(())
    }

    pub(crate) fn insert_entry(&mut self, entry: u64, name: &str) -> Result<(), HeapError> {
        let hash = xxh3_64(name.as_bytes());
        let mut table = self.table();
        if (table.used + 1) * 4 > table.slots * 3 {
            table = self.rebuild_table(table)?;
        }
        // A removed slot is used again, or a root that is replaced over and over would leave a row
        // of them that each search walks along.
        for step in 0..table.slots {
            let slot = table.offset + (hash.wrapping_add(step) & (table.slots - 1)) * 8;
            let word = self.memory.load(slot);
            if word == 0 || word == SLOT_TOMBSTONE {
                self.store_logged(slot, entry | hash & !OFFSET_MASK)?;
                if word == 0 {
                    self.store_logged(SUPER_ROOTS + 16, table.used + 1)?;
                }
                return self.store_logged(SUPER_ROOTS + 24, table.roots + 1);
            }
        }
        Err(HeapError::OutsideHeap)
    }

    /// Makes a table with room (larger, or free of removed slots) and switches over to it.
    fn rebuild_table(&mut self, old: Table) -> Result<Table, HeapError> {
        let words = (0..old.slots).map(|index| old.offset + index * 8);
        let is_root = |word: u64| word != 0 && word != SLOT_TOMBSTONE;
        // Counted, not believed: none may be left behind for lack of a slot.
        let roots = words.clone().filter(|at| is_root(self.memory.load(*at))).count() as u64;
        let slots = (roots * 2 + 2).next_power_of_two().max(ROOT_SLOTS_FIRST);
        let fresh = self.alloc_zeroed(slots * 8)?;
        let offset = self.offset_of(fresh).ok_or(HeapError::OutsideHeap)?;
        let mut probes_left = (slots * PROBES_PER_SLOT_MAX).max(PROBES_FREE);
        for word in words.map(|at| self.memory.load(at)).filter(|word| is_root(*word)) {
            let hash = self.memory.load((word & OFFSET_MASK) + ENTRY_HASH);
            let step = (0..slots.min(probes_left))
                .find(|step| {
                    self.memory.load(offset + (hash.wrapping_add(*step) & (slots - 1)) * 8) == 0
                })
                .ok_or(HeapError::OutsideHeap)?;
            probes_left -= step + 1;
            self.memory.store(offset + (hash.wrapping_add(step) & (slots - 1)) * 8, word);
        }
        self.add_range(self.memory.at(SUPER_ROOTS), 32)?;
        for (index, word) in [offset, slots, roots, roots].into_iter().enumerate() {
            self.memory.store(SUPER_ROOTS + 8 * index as u64, word);
        }
        if old.slots > 0
            && let Some(object) = NonNull::new(self.memory.at(old.offset))
        {
            self.free(object)?;
        }
        Ok(self.table())
    }
}

/// Iterator over `(name, root)`; see [`Heap::roots`].
pub struct Roots<'heap, B: Backing> {
    heap: &'heap Heap<B>,
    table: Table,
    next: u64,
}

impl<'heap, B: Backing> Iterator for Roots<'heap, B> {
    type Item = (&'heap str, Root);

    fn next(&mut self) -> Option<Self::Item> {
        self.next_entry().map(|(name, root, _)| (name, root))
    }
}

impl<'heap, B: Backing> Roots<'heap, B> {
    /// The same roots with the types that they carry, none of which is looked up by its name.
    pub fn with_types(mut self) -> impl Iterator<Item = (&'heap str, Root, Option<RootType>)> {
        core::iter::from_fn(move || {
            let (name, root, entry) = self.next_entry()?;
            Some((name, root, self.heap.type_of(entry)))
        })
    }

    /// Name, object and entry of the next root.
    fn next_entry(&mut self) -> Option<(&'heap str, Root, u64)> {
        let heap = self.heap;
        while self.next < self.table.slots {
            let word = heap.memory.load(self.table.offset + self.next * 8);
            self.next += 1;
            if word == 0 {
                continue;
            }
            let entry = word & OFFSET_MASK;
            let length = heap.memory.load(entry + ENTRY_NAME_LENGTH) & !ENTRY_TYPED;
            // Whatever was stored there: no root has such a name, and who copies it must not run
            // out of memory.
            if !(1..=ROOT_NAME_BYTES_MAX as u64).contains(&length) {
                continue;
            }
            // SAFETY: the iterator borrows the heap, so nothing writes to it meanwhile.
            let name = unsafe { heap.memory.bytes(entry + ENTRY_NAME, length) };
            if let (Some(root), Some(Ok(name))) =
                (heap.root_of(entry), name.map(core::str::from_utf8))
            {
                return Some((name, root, entry));
            }
        }
        None
    }
}
