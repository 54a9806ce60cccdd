//! A persistent hash map over a heap, as an application would write one: an open-addressed table of
//! (entry, hash) and entries of any length, allocated one by one, with plain pointers throughout.
//!
//! Invariants:
//! - Everything that existed before is changed only in a transaction, after it was announced; so
//!   after a kill or an abort the map is what it was after the last commit.
//! - A slot counts when its entry pointer is not null. Its hash is stored before, unlogged: without
//!   the pointer nothing reads it.
//! - `used` in memory is the stored count plus what the open transaction inserted.

use std::ptr::NonNull;

use holdfast_heap::{Backing, Heap, HeapError};
use xxhash_rust::xxh3::xxh3_64;

const ROOT: &str = "map";
const SLOTS_FIRST: u64 = 1024;
const SLOT_BYTES: u64 = size_of::<Slot>() as u64;

/// The root object.
#[repr(C)]
struct Header {
    table: *mut Slot,
    /// A power of two.
    slots: u64,
    used: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Slot {
    entry: *mut Entry,
    hash: u64,
}

/// Key and value follow.
#[repr(C)]
struct Entry {
    key_bytes: u32,
    value_bytes: u32,
}

/// The volatile side of a map. Valid as long as the heap that it was opened with.
pub(crate) struct Map {
    header: NonNull<Header>,
    used: u64,
}

impl Map {
    /// Opens the map of a heap, or makes it.
    pub(crate) fn open_or_create<B: Backing>(heap: &mut Heap<B>) -> Result<Map, HeapError> {
        if let Some(root) = heap.root(ROOT) {
            let header = root.pointer.cast::<Header>();
            // SAFETY: the root was made below, with this type.
            return Ok(Map { header, used: unsafe { header.as_ref() }.used });
        }
        heap.transaction(|heap| {
            let table = heap.alloc_zeroed(SLOTS_FIRST * SLOT_BYTES)?.as_ptr().cast();
            let header = heap.create_root(ROOT, size_of::<Header>() as u64)?.cast::<Header>();
            // SAFETY: a new object of this size, aligned to 16, that nothing else knows.
            unsafe { header.write(Header { table, slots: SLOTS_FIRST, used: 0 }) };
            Ok(Map { header, used: 0 })
        })
    }

    /// How many keys there are.
    #[cfg(test)]
    pub(crate) fn len(&self) -> u64 {
        self.used
    }

    /// Inserts pairs, or replaces the values of keys that are there: all or none, as one
    /// transaction.
    pub(crate) fn insert_all<'a, B: Backing>(
        &mut self,
        heap: &mut Heap<B>,
        pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    ) -> Result<(), HeapError> {
        let before = self.used;
        let inserted = heap.transaction(|heap| {
            for (key, value) in pairs {
                self.insert(heap, key, value)?;
            }
            if self.used == before {
                return Ok(());
            }
            let header = self.header.as_ptr();
            // SAFETY: the header of this heap's map.
            let used = unsafe { &raw mut (*header).used };
            heap.add_range(used.cast(), 8)?;
            // SAFETY: as above; announced.
            unsafe { used.write(self.used) };
            Ok(())
        });
        if inserted.is_err() {
            self.used = before;
        }
        inserted
    }

    fn insert<B: Backing>(
        &mut self,
        heap: &mut Heap<B>,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), HeapError> {
        // SAFETY: the header of this heap's map; the copy is not used after `grow`.
        if (self.used + 1) * 4 > unsafe { self.header.as_ref() }.slots * 3 {
            self.grow(heap)?;
        }
        let hash = xxh3_64(key);
        let slot = self.find(key, hash);
        let lengths = (u32::try_from(key.len()), u32::try_from(value.len()));
        let (Ok(key_bytes), Ok(value_bytes)) = lengths else { return Err(HeapError::OutsideHeap) };
        let entry = heap.alloc((size_of::<Entry>() + key.len() + value.len()) as u64)?.as_ptr();
        // SAFETY: a new object of this length, aligned to 16; key and value lie outside of it.
        unsafe {
            entry.cast::<Entry>().write(Entry { key_bytes, value_bytes });
            let content = entry.add(size_of::<Entry>());
            content.copy_from_nonoverlapping(key.as_ptr(), key.len());
            content.add(key.len()).copy_from_nonoverlapping(value.as_ptr(), value.len());
        }
        // SAFETY: `find` returns a slot of the table.
        let (place, hash_place, old) =
            unsafe { (&raw mut (*slot).entry, &raw mut (*slot).hash, (*slot).entry) };
        heap.add_range(place.cast(), 8)?;
        // SAFETY: as above; what counts is announced, and stored last.
        unsafe {
            hash_place.write(hash);
            place.write(entry.cast());
        }
        match NonNull::new(old) {
            Some(old) => heap.free(old.cast()),
            None => {
                self.used += 1;
                Ok(())
            }
        }
    }

    /// The value of a key.
    pub(crate) fn get<'heap, B: Backing>(
        &self,
        _heap: &'heap Heap<B>,
        key: &[u8],
    ) -> Option<&'heap [u8]> {
        let slot = self.find(key, xxh3_64(key));
        // SAFETY: `find` returns a slot of the table; its entry is null or whole, and nothing
        // writes to the heap while it is borrowed.
        unsafe { NonNull::new((*slot).entry).map(|entry| parts(entry).1) }
    }

    /// The slot of a key: where it is, or where it belongs.
    fn find(&self, key: &[u8], hash: u64) -> *mut Slot {
        // SAFETY: the header of this heap's map.
        let Header { table, slots, .. } = unsafe { self.header.read() };
        let mut index = hash;
        loop {
            // SAFETY: below the table's number of slots, which is a power of two.
            let slot = unsafe { table.add((index & (slots - 1)) as usize) };
            // SAFETY: a slot of the table; a pointer that is not null leads to a whole entry. A
            // quarter of the slots is free, so this ends.
            let found = unsafe {
                let Slot { entry, hash: found } = *slot;
                NonNull::new(entry).is_none_or(|entry| found == hash && parts(entry).0 == key)
            };
            if found {
                return slot;
            }
            index = index.wrapping_add(1);
        }
    }

    /// Moves to a table twice as large.
    fn grow<B: Backing>(&mut self, heap: &mut Heap<B>) -> Result<(), HeapError> {
        // SAFETY: the header of this heap's map.
        let Header { table, slots, .. } = unsafe { self.header.read() };
        let larger = heap.alloc_zeroed(slots * 2 * SLOT_BYTES)?.as_ptr().cast::<Slot>();
        for index in 0..slots {
            // SAFETY: a slot of the old table.
            let slot = unsafe { *table.add(index as usize) };
            if slot.entry.is_null() {
                continue;
            }
            let mut place = slot.hash;
            // SAFETY: a slot of the new table, of which more than half is free.
            while unsafe { !(*larger.add((place & (slots * 2 - 1)) as usize)).entry.is_null() } {
                place = place.wrapping_add(1);
            }
            // SAFETY: as above.
            unsafe { larger.add((place & (slots * 2 - 1)) as usize).write(slot) };
        }
        let header = self.header.as_ptr();
        heap.add_range(header.cast(), size_of::<Header>() as u64)?;
        // SAFETY: as above; announced.
        unsafe {
            (*header).table = larger;
            (*header).slots = slots * 2;
        }
        NonNull::new(table).map_or(Ok(()), |table| heap.free(table.cast()))
    }
}

/// Key and value of an entry.
///
/// # Safety
/// The entry is whole, and nothing frees or changes it while the slices live.
unsafe fn parts<'a>(entry: NonNull<Entry>) -> (&'a [u8], &'a [u8]) {
    // SAFETY: whole by the contract, so its lengths are those of what follows.
    unsafe {
        let Entry { key_bytes, value_bytes } = entry.read();
        let content = entry.as_ptr().add(1).cast::<u8>();
        let key = std::slice::from_raw_parts(content, key_bytes as usize);
        (key, std::slice::from_raw_parts(content.add(key.len()), value_bytes as usize))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    use holdfast_heap::{OpenOptions, Opened};
    use holdfast_testkit::TestMemory;

    use rand::rngs::SmallRng;
    use rand::{Rng, RngExt, SeedableRng};

    fn open(memory: TestMemory) -> Heap<TestMemory> {
        Heap::open(memory, OpenOptions { pointers: None, format_if_empty: true }).unwrap()
    }

    /// After any sequence of batches, the map equals its model, also after reopening.
    #[test]
    fn map_matches_its_model_after_reopening() {
        let mut heap = open(TestMemory::new(64 << 20));
        let (mut map, mut model) = (Map::open_or_create(&mut heap).unwrap(), HashMap::new());
        let mut random = SmallRng::seed_from_u64(3);
        for round in 0..200 {
            let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
            for _ in 0..random.random_range(0..100) {
                // Few enough keys that many are replaced, also within a batch.
                let key = random.random_range(0..4000_u64).to_le_bytes().to_vec();
                let mut value = vec![0; random.random_range(0..300)];
                random.fill_bytes(&mut value);
                pairs.push((key, value));
            }
            map.insert_all(&mut heap, pairs.iter().map(|(key, value)| (&key[..], &value[..])))
                .unwrap();
            model.extend(pairs);
            if round % 20 == 19 {
                heap = open(heap.close());
                assert_eq!(heap.opened(), Opened::Clean);
                map = Map::open_or_create(&mut heap).unwrap();
            }
            assert_eq!(map.len(), model.len() as u64);
        }
        assert!(model.len() > 2000, "the table never grew");
        for (key, value) in &model {
            assert_eq!(map.get(&heap, key), Some(&value[..]));
        }
        assert_eq!(map.get(&heap, b"no such key"), None);
    }

    #[test]
    fn unfinished_batch_leaves_the_map_unchanged() {
        let mut heap = open(TestMemory::new(4 << 20));
        let mut map = Map::open_or_create(&mut heap).unwrap();
        map.insert_all(&mut heap, [(&b"key"[..], &b"old"[..])]).unwrap();
        let (new, huge) = (b"new".to_vec(), vec![1; 8 << 20]);
        let batch =
            [(&b"key"[..], &new[..]), (&b"third"[..], &new[..]), (&b"other"[..], &huge[..])];
        assert!(map.insert_all(&mut heap, batch).is_err());
        assert_eq!((map.len(), map.get(&heap, b"key")), (1, Some(&b"old"[..])));
        assert_eq!((map.get(&heap, b"third"), map.get(&heap, b"other")), (None, None));
    }
}
