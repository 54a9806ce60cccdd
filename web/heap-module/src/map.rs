//! A hash map in the heap, from bytes to bytes, whose entries keep the order in which they came.
//!
//! A table of positions, with open addressing, leads to *cells* in that order, and each cell to its
//! entry: key and value in one object. A removed entry leaves an empty cell, until the table is
//! made anew. The format is in `docs/format.md`.
//!
//! Invariants:
//! - The table is at most three quarters full, empty cells counted, so each search ends at a free
//!   slot; in a damaged map, after as many steps as there are slots.
//! - What can fail for want of room is done before anything is changed.
//! - Outside of a transaction nothing is logged: a page stores what was committed, and no step of
//!   an operation can be seen between two commits.

use holdfast_heap::{Backing, Heap, Ref, RootType, Typed, portable};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::bytes;
use crate::fault::{Code, Fault};

portable! {
    /// An entry: its key, up to the next multiple of 8, and its value follow.
    pub struct MapEntry: 1 {
        /// Bytes of the key.
        pub key_bytes: u32,
        /// Bytes of the value.
        pub value_bytes: u32,
    }
}

portable! {
    /// The place of an entry in the order of the map.
    pub struct MapCell: 1 {
        /// Of the key: the lower half of its XXH3-64 with the map's seed.
        pub hash: u32,
        /// The entry; none where it was removed.
        pub entry: Ref<MapEntry>,
    }
}

portable! {
    /// The root of a map.
    pub struct MapHeader: 1 {
        /// `slots` numbers of cells, each with 1 added; 0 for a free slot.
        pub table: Ref<u32>,
        /// `room` cells.
        pub cells: Ref<MapCell>,
        /// A power of two, or 0 in a map that never had an entry.
        pub slots: u32,
        /// Cells that there is room for: at most three quarters of the slots.
        pub room: u32,
        /// Cells in use, empty ones among them.
        pub used: u32,
        /// Entries.
        pub length: u32,
        /// How often empty cells were taken out, so that the others moved.
        pub moves: u32,
        /// What keys are: 1 bytes, 2 text.
        pub key_kind: u16,
        /// What values are: 1 bytes, 2 text, 3 a float of 64 bits, 4 JSON, 5 a reference.
        pub value_kind: u16,
        /// Of the hashes, chosen at random.
        pub seed: u64,
        /// The layout of what values refer to; else 0.
        pub value_layout: u64,
    }
}

const ENTRY_BYTES: u64 = size_of::<MapEntry>() as u64;
const CELL_BYTES: u64 = size_of::<MapCell>() as u64;
const HEADER_BYTES: u64 = size_of::<MapHeader>() as u64;
const SLOTS_FIRST: u32 = 16;
/// Beyond that a heap in a page has no room for them.
const SLOTS_MAX: u32 = 1 << 28;

/// What keys and values of a map are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapKinds {
    /// See [`MapHeader::key_kind`].
    pub key: u16,
    /// See [`MapHeader::value_kind`].
    pub value: u16,
    /// See [`MapHeader::value_layout`].
    pub value_layout: u64,
}

/// A part of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Where it begins.
    pub at: u64,
    /// How long it is.
    pub bytes: u64,
}

/// An entry where it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The number of its cell.
    pub cell: u32,
    /// The key.
    pub key: Span,
    /// The value.
    pub value: Span,
}

/// A map by the offset of its header, which is that of a root; it borrows nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map {
    at: u64,
}

/// Makes an empty map under a name.
///
/// # Errors
/// [`Code::Exists`], [`Code::Argument`] for a bad name, [`Code::Full`], [`Code::ReadOnly`].
pub fn create<B: Backing>(
    heap: &mut Heap<B>,
    name: &str,
    kinds: MapKinds,
    seed: u64,
) -> Result<Map, Fault> {
    let object = heap.create_root_of(name, HEADER_BYTES, RootType::of::<MapHeader>())?;
    let map = Map { at: heap.offset_of(object).unwrap_or(0) };
    let MapKinds { key, value, value_layout } = kinds;
    let header = MapHeader { key_kind: key, value_kind: value, seed, value_layout, ..EMPTY };
    bytes::store_new(heap, map.at, header)?;
    Ok(map)
}

/// The map of a name; `None` where there is nothing of that name.
///
/// # Errors
/// [`Code::Layout`] for something else, also a map of other kinds; [`Code::Corrupt`].
pub fn open<B: Backing>(heap: &Heap<B>, name: &str, kinds: MapKinds) -> Result<Option<Map>, Fault> {
    let Some(root) = heap.root_typed::<MapHeader>(name)? else { return Ok(None) };
    let map = Map { at: heap.offset_of(root.cast()).unwrap_or(0) };
    let header = map.header(heap)?;
    let stored = MapKinds {
        key: header.key_kind,
        value: header.value_kind,
        value_layout: header.value_layout,
    };
    if stored != kinds {
        let named = |kinds: MapKinds| {
            let layout = match kinds.value_layout {
                0 => String::new(),
                layout => format!(" of layout {layout:#018x}"),
            };
            let (key, value) = (kind_name(kinds.key), kind_name(kinds.value));
            format!("from {key} to {value}{layout}")
        };
        let text =
            format!("the map leads {}, and the program wants one {}", named(stored), named(kinds));
        return Err(Fault::new(Code::Layout, text));
    }
    Ok(Some(map))
}

fn kind_name(kind: u16) -> &'static str {
    match kind {
        1 => "bytes",
        2 => "string",
        3 => "number",
        4 => "json",
        5 => "references",
        _ => "what this version does not know",
    }
}

const EMPTY: MapHeader = MapHeader {
    table: Ref::null(),
    cells: Ref::null(),
    slots: 0,
    room: 0,
    used: 0,
    length: 0,
    moves: 0,
    key_kind: 0,
    value_kind: 0,
    seed: 0,
    value_layout: 0,
};

impl Map {
    /// The map whose header lies at an offset, as [`Map::offset`] gave it.
    #[must_use]
    pub fn at(offset: u64) -> Map {
        Map { at: offset }
    }

    /// Where its header lies.
    #[must_use]
    pub fn offset(self) -> u64 {
        self.at
    }

    /// Its header, with tables that lie in the heap.
    ///
    /// # Errors
    /// [`Code::Corrupt`].
    pub fn header<B: Backing>(self, heap: &Heap<B>) -> Result<MapHeader, Fault> {
        let header: MapHeader = bytes::load(heap, self.at)?;
        let MapHeader { slots, room, used, length, .. } = header;
        let backed = heap.backing().backed_bytes();
        let lies = |at: u64, bytes: u64| at != 0 && at + bytes <= backed;
        let sound = slots == 0 && room == 0
            || slots.is_power_of_two()
                && u64::from(room) * 4 <= u64::from(slots) * 3
                && lies(header.table.offset(), u64::from(slots) * 4)
                && lies(header.cells.offset(), u64::from(room) * CELL_BYTES);
        if !sound || used > room || length > used {
            return Err(Fault::corrupt("the header of a map contradicts itself"));
        }
        Ok(header)
    }

    /// How many entries it has.
    ///
    /// # Errors
    /// [`Code::Corrupt`].
    pub fn length<B: Backing>(self, heap: &Heap<B>) -> Result<u32, Fault> {
        Ok(self.header(heap)?.length)
    }

    /// The entry of a key.
    ///
    /// # Errors
    /// [`Code::Corrupt`].
    pub fn get<B: Backing>(self, heap: &Heap<B>, key: &[u8]) -> Result<Option<Found>, Fault> {
        let header = self.header(heap)?;
        find(heap, &header, key, hash_of(&header, key))
    }

    /// Sets the value of a key; whether the key is new.
    ///
    /// # Errors
    /// [`Code::Full`], [`Code::ReadOnly`]: nothing has changed then. [`Code::Corrupt`].
    pub fn set<B: Backing>(
        self,
        heap: &mut Heap<B>,
        key: &[u8],
        value: &[u8],
    ) -> Result<bool, Fault> {
        writable(heap)?;
        let mut header = self.header(heap)?;
        let hash = hash_of(&header, key);
        if let Some(found) = find(heap, &header, key, hash)? {
            self.replace(heap, &header, found, key, value)?;
            return Ok(false);
        }
        let entry = new_entry(heap, key, value)?;
        if header.used == header.room
            && let Err(fault) = self.make_room(heap, &mut header)
        {
            bytes::free(heap, entry)?;
            return Err(fault);
        }
        let cell = header.used;
        let slot = free_slot(heap, &header, hash)?;
        let of_entry = MapCell { hash, entry: reference(entry)? };
        bytes::store(heap, cell_at(&header, cell), of_entry)?;
        bytes::store(heap, slot, cell + 1)?;
        header.used += 1;
        header.length += 1;
        bytes::store(heap, self.at, header)?;
        Ok(true)
    }

    /// Removes a key; whether it was there.
    ///
    /// # Errors
    /// [`Code::ReadOnly`], [`Code::Corrupt`].
    pub fn delete<B: Backing>(self, heap: &mut Heap<B>, key: &[u8]) -> Result<bool, Fault> {
        writable(heap)?;
        let mut header = self.header(heap)?;
        let hash = hash_of(&header, key);
        let Some(found) = find(heap, &header, key, hash)? else { return Ok(false) };
        let at = cell_at(&header, found.cell);
        let cell: MapCell = bytes::load(heap, at)?;
        let left = header.length.checked_sub(1);
        header.length = left.ok_or_else(|| Fault::corrupt("a map counts too few entries"))?;
        bytes::store(heap, at, MapCell { entry: Ref::null(), ..cell })?;
        bytes::store(heap, self.at, header)?;
        released(bytes::free(heap, cell.entry.offset()))?;
        Ok(true)
    }

    /// Removes all entries.
    ///
    /// # Errors
    /// [`Code::ReadOnly`], [`Code::Corrupt`].
    pub fn clear<B: Backing>(self, heap: &mut Heap<B>) -> Result<(), Fault> {
        writable(heap)?;
        let header = self.header(heap)?;
        let MapHeader { key_kind, value_kind, seed, value_layout, .. } = header;
        let moves = header.moves.wrapping_add(1);
        let empty = MapHeader { moves, key_kind, value_kind, seed, value_layout, ..EMPTY };
        bytes::store(heap, self.at, empty)?;
        for cell in 0..header.used {
            let cell: MapCell = bytes::load(heap, cell_at(&header, cell))?;
            if !cell.entry.is_null() {
                released(bytes::free(heap, cell.entry.offset()))?;
            }
        }
        free_tables(heap, &header)
    }

    /// Removes the map with its entries: its name leads nowhere.
    ///
    /// # Errors
    /// [`Code::ReadOnly`], [`Code::Missing`], [`Code::Corrupt`].
    pub fn remove<B: Backing>(self, heap: &mut Heap<B>, name: &str) -> Result<(), Fault> {
        self.clear(heap)?;
        Ok(heap.remove_root(name)?)
    }

    /// The entries from a cell on, in their order, as long as `each` asks for more.
    ///
    /// # Errors
    /// [`Code::Corrupt`].
    pub fn scan<B: Backing>(
        self,
        heap: &Heap<B>,
        from: u32,
        mut each: impl FnMut(Found) -> bool,
    ) -> Result<(), Fault> {
        let header = self.header(heap)?;
        for number in from..header.used {
            let cell: MapCell = bytes::load(heap, cell_at(&header, number))?;
            if !cell.entry.is_null() && !each(entry_at(heap, number, cell.entry)?) {
                break;
            }
        }
        Ok(())
    }

    /// Puts another value in the place of one.
    fn replace<B: Backing>(
        self,
        heap: &mut Heap<B>,
        header: &MapHeader,
        found: Found,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), Fault> {
        if found.value.bytes == value.len() as u64 {
            return bytes::write(heap, found.value.at, value);
        }
        let at = cell_at(header, found.cell);
        let cell: MapCell = bytes::load(heap, at)?;
        let entry = new_entry(heap, key, value)?;
        bytes::store(heap, at, MapCell { entry: reference(entry)?, ..cell })?;
        released(bytes::free(heap, cell.entry.offset()))
    }

    /// Makes room for another cell: takes the empty ones out where these are a half, or where there
    /// is no room for tables of twice the size.
    fn make_room<B: Backing>(
        self,
        heap: &mut Heap<B>,
        header: &mut MapHeader,
    ) -> Result<(), Fault> {
        if header.slots != 0 && header.length <= header.room / 2 {
            return self.compact(heap, header);
        }
        match self.grow(heap, header) {
            Err(fault) if fault.code == Code::Full && header.length < header.used => {
                self.compact(heap, header)
            }
            result => result,
        }
    }

    /// Takes the empty cells out, in place.
    fn compact<B: Backing>(self, heap: &mut Heap<B>, header: &mut MapHeader) -> Result<(), Fault> {
        let (table, bytes) = (header.table.offset(), u64::from(header.slots) * 4);
        if heap.in_transaction() {
            bytes::log(heap, header.cells.offset(), u64::from(header.used) * CELL_BYTES)?;
            bytes::log(heap, table, bytes)?;
        }
        bytes::zero_new(heap, table, bytes)?;
        let moves = header.moves.wrapping_add(1);
        self.refill(heap, header, MapHeader { moves, ..*header })
    }

    /// Goes over to tables of twice the size.
    fn grow<B: Backing>(self, heap: &mut Heap<B>, header: &mut MapHeader) -> Result<(), Fault> {
        let old = *header;
        let slots = match old.slots {
            0 => SLOTS_FIRST,
            SLOTS_MAX.. => return Err(Fault::new(Code::Full, "the map has too many entries")),
            slots => slots * 2,
        };
        let room = slots / 4 * 3;
        let table = bytes::allocate(heap, u64::from(slots) * 4)?;
        let cells = match bytes::allocate_raw(heap, u64::from(room) * CELL_BYTES) {
            Ok(cells) => cells,
            Err(fault) => {
                bytes::free(heap, table)?;
                return Err(fault);
            }
        };
        let moves = old.moves.wrapping_add(u32::from(old.length != old.used));
        let (table, cells) = (reference(table)?, reference(cells)?);
        self.refill(heap, header, MapHeader { table, cells, slots, room, moves, ..old })?;
        free_tables(heap, &old)
    }

    /// Brings the cells that have an entry into the tables of `new`, of which the first one is
    /// empty; those of cells may be the same.
    fn refill<B: Backing>(
        self,
        heap: &mut Heap<B>,
        header: &mut MapHeader,
        mut new: MapHeader,
    ) -> Result<(), Fault> {
        new.used = 0;
        for number in 0..header.used {
            let cell: MapCell = bytes::load(heap, cell_at(header, number))?;
            if cell.entry.is_null() {
                continue;
            }
            bytes::store_new(heap, cell_at(&new, new.used), cell)?;
            let slot = free_slot(heap, &new, cell.hash)?;
            new.used += 1;
            bytes::store_new(heap, slot, new.used)?;
        }
        if new.used != new.length {
            return Err(Fault::corrupt("a map has not as many entries as it counts"));
        }
        bytes::store(heap, self.at, new)?;
        *header = new;
        Ok(())
    }
}

fn free_tables<B: Backing>(heap: &mut Heap<B>, header: &MapHeader) -> Result<(), Fault> {
    if header.slots == 0 {
        return Ok(());
    }
    released(bytes::free(heap, header.table.offset()))?;
    released(bytes::free(heap, header.cells.offset()))
}

/// What a container refers to is an object, or it is damaged.
fn released(freed: Result<(), Fault>) -> Result<(), Fault> {
    freed.map_err(|fault| match fault.code {
        Code::Stale => Fault::corrupt("a map refers to what is no object"),
        _ => fault,
    })
}

/// Refuses what would store to a heap that is only read: a store to it would be lost.
fn writable<B: Backing>(heap: &Heap<B>) -> Result<(), Fault> {
    match heap.backing().is_read_only() {
        true => Err(Fault::new(Code::ReadOnly, "the heap was opened for reading")),
        false => Ok(()),
    }
}

fn reference<T>(offset: u64) -> Result<Ref<T>, Fault> {
    Ref::at(offset).ok_or_else(|| Fault::corrupt("an object lies where no reference leads"))
}

fn hash_of(header: &MapHeader, key: &[u8]) -> u32 {
    xxh3_64_with_seed(key, header.seed) as u32
}

fn cell_at(header: &MapHeader, cell: u32) -> u64 {
    header.cells.offset() + u64::from(cell) * CELL_BYTES
}

/// The places of the slots in which a hash may be, one after the other.
fn slots_of(header: &MapHeader, hash: u32) -> impl Iterator<Item = u64> + use<> {
    let (table, slots) = (header.table.offset(), header.slots);
    (0..slots).map(move |step| table + u64::from(hash.wrapping_add(step) & (slots - 1)) * 4)
}

/// The first free slot for a hash.
fn free_slot<B: Backing>(heap: &Heap<B>, header: &MapHeader, hash: u32) -> Result<u64, Fault> {
    for at in slots_of(header, hash) {
        if bytes::load::<_, u32>(heap, at)? == 0 {
            return Ok(at);
        }
    }
    Err(Fault::corrupt("a map has no free slot"))
}

fn find<B: Backing>(
    heap: &Heap<B>,
    header: &MapHeader,
    key: &[u8],
    hash: u32,
) -> Result<Option<Found>, Fault> {
    for at in slots_of(header, hash) {
        let word: u32 = bytes::load(heap, at)?;
        let Some(number) = word.checked_sub(1) else { return Ok(None) };
        if number >= header.used {
            return Err(Fault::corrupt("a slot of a map leads to no cell"));
        }
        let cell: MapCell = bytes::load(heap, cell_at(header, number))?;
        if cell.hash != hash || cell.entry.is_null() {
            continue;
        }
        let found = entry_at(heap, number, cell.entry)?;
        if bytes::bytes(heap, found.key.at, found.key.bytes)? == key {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// An entry, both parts of which lie in the heap.
fn entry_at<B: Backing>(heap: &Heap<B>, cell: u32, entry: Ref<MapEntry>) -> Result<Found, Fault> {
    let head: MapEntry = bytes::load(heap, entry.offset())?;
    let key = Span { at: entry.offset() + ENTRY_BYTES, bytes: head.key_bytes.into() };
    let at = key.at + key.bytes.next_multiple_of(8);
    let value = Span { at, bytes: head.value_bytes.into() };
    bytes::bytes(heap, value.at, value.bytes)?;
    Ok(Found { cell, key, value })
}

fn new_entry<B: Backing>(heap: &mut Heap<B>, key: &[u8], value: &[u8]) -> Result<u64, Fault> {
    let too_long = |_| Fault::new(Code::Argument, "a key or a value has 4 GiB or more");
    let head = MapEntry {
        key_bytes: u32::try_from(key.len()).map_err(too_long)?,
        value_bytes: u32::try_from(value.len()).map_err(too_long)?,
    };
    let padded = (key.len() as u64).next_multiple_of(8);
    let entry = bytes::allocate_raw(heap, ENTRY_BYTES + padded + value.len() as u64)?;
    bytes::store_new(heap, entry, head)?;
    bytes::write_new(heap, entry + ENTRY_BYTES, key)?;
    bytes::write_new(heap, entry + ENTRY_BYTES + padded, value)?;
    Ok(entry)
}

const _: () = assert!(MapHeader::IS_PORTABLE && HEADER_BYTES == 48);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{self, KINDS, Memory};
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    fn all(heap: &Heap<Memory>, map: Map) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut found = Vec::new();
        let span = |span: Span| bytes::bytes(heap, span.at, span.bytes).unwrap().to_vec();
        map.scan(heap, 0, |entry| {
            found.push((span(entry.key), span(entry.value)));
            true
        })
        .unwrap();
        found
    }

    fn key(number: u64) -> Vec<u8> {
        format!("key {number}").repeat(number as usize % 3 + 1).into_bytes()
    }

    /// Random operations, with a list in the order of the keys as the model, inside and outside of
    /// transactions, half of which are rolled back.
    #[test]
    fn map_is_its_model_in_its_order() {
        let mut heap = testing::heap(64 << 20);
        let map = create(&mut heap, "map", KINDS, 7).unwrap();
        let mut model: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        let mut random = SmallRng::seed_from_u64(1);
        for round in 0..400 {
            let before = model.clone();
            let in_transaction = round % 2 == 1;
            if in_transaction {
                heap.begin().unwrap();
            }
            for _ in 0..random.random_range(1..80) {
                let key = key(random.random_range(0..300));
                let place = model.iter().position(|(known, _)| *known == key);
                match random.random_range(0..9) {
                    0..5 => {
                        let value = vec![random.random(); random.random_range(0..40)];
                        assert_eq!(map.set(&mut heap, &key, &value).unwrap(), place.is_none());
                        match place {
                            Some(at) => model[at].1 = value,
                            None => model.push((key, value)),
                        }
                    }
                    5..8 => {
                        assert_eq!(map.delete(&mut heap, &key).unwrap(), place.is_some());
                        place.map(|at| model.remove(at));
                    }
                    _ if random.random_range(0..40) == 0 => {
                        map.clear(&mut heap).unwrap();
                        model.clear();
                    }
                    _ => assert_eq!(map.get(&heap, &key).unwrap().is_some(), place.is_some()),
                }
            }
            if in_transaction && random.random() {
                heap.abort().unwrap();
                model = before;
            } else if in_transaction {
                heap.commit().unwrap();
            }
            assert_eq!(map.length(&heap).unwrap() as usize, model.len());
            assert_eq!(all(&heap, map), model, "round {round}");
        }
        let used = heap.usage().chunk_bytes;
        map.remove(&mut heap, "map").unwrap();
        assert!(heap.usage().chunk_bytes <= used);
        assert_eq!(open(&heap, "map", KINDS).unwrap(), None);
    }

    /// A full heap changes nothing of the map.
    #[test]
    fn full_heap_leaves_the_map_as_it_was() {
        let mut heap = testing::heap(1 << 20);
        let map = create(&mut heap, "map", KINDS, 7).unwrap();
        let mut count = 0;
        let fault = loop {
            match map.set(&mut heap, &key(count), &[1; 100]) {
                Ok(_) => count += 1,
                Err(fault) => break fault,
            }
        };
        assert_eq!(fault.code, Code::Full);
        assert!(count > 300, "{count}");
        assert_eq!(all(&heap, map).len() as u64, count);
        for number in 0..count {
            map.delete(&mut heap, &key(number)).unwrap();
            map.set(&mut heap, &key(number), &[2; 100]).unwrap();
        }
    }

    /// A map of other kinds, and what is no map, are refused.
    #[test]
    fn other_kinds_are_refused() {
        let mut heap = testing::heap(1 << 20);
        create(&mut heap, "map", KINDS, 7).unwrap();
        let other = MapKinds { value: 3, ..KINDS };
        let told = open(&heap, "map", other).unwrap_err();
        assert_eq!(told.code, Code::Layout);
        assert!(told.text.contains("from string to bytes"), "{told}");
        assert!(told.text.contains("from string to number"), "{told}");
        heap.create_root("plain", 100).unwrap();
        assert_eq!(open(&heap, "plain", KINDS).unwrap_err().code, Code::Layout);
    }

    /// Whatever bytes a map has, each operation ends with an answer or an error.
    #[test]
    fn damaged_map_ends_every_operation() {
        let mut random = SmallRng::seed_from_u64(2);
        for round in 0..300 {
            let mut heap = testing::heap(1 << 20);
            let map = create(&mut heap, "map", KINDS, 7).unwrap();
            for number in 0..100 {
                map.set(&mut heap, &key(number), &[3; 20]).unwrap();
            }
            let header = map.header(&heap).unwrap();
            let parts = [
                (map.offset(), HEADER_BYTES),
                (header.table.offset(), u64::from(header.slots) * 4),
                (header.cells.offset(), u64::from(header.room) * CELL_BYTES),
            ];
            for _ in 0..random.random_range(1..30) {
                let (start, length) = parts[random.random_range(0..parts.len())];
                let at = start + random.random_range(0..length);
                bytes::store(&mut heap, at, random.random::<u8>()).unwrap();
            }
            let mut faults = 0;
            for number in 0..150 {
                faults += u32::from(map.get(&heap, &key(number)).is_err());
                faults += u32::from(map.set(&mut heap, &key(number), &[4; 21]).is_err());
                faults += u32::from(map.delete(&mut heap, &key(number)).is_err());
            }
            let _ = map.scan(&heap, 0, |_| true);
            let _ = map.clear(&mut heap);
            assert!(faults <= 450, "round {round}");
        }
    }

    /// Roots on media carry these numbers.
    #[test]
    fn layouts_are_what_they_were() {
        assert_eq!([MapHeader::LAYOUT, MapCell::LAYOUT, MapEntry::LAYOUT], PINNED);
    }

    const PINNED: [u64; 3] = [0x5192_95D1_E238_87B0, 0x2C3C_AB5D_38F2_3A34, 0xCCAA_9CE2_D3A2_1559];
}
