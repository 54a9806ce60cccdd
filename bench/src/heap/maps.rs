//! The three example maps of PMDK (crit-bit tree, B-tree, hash map), written anew over
//! transactions: the same code runs over `holdfast.h` and over libpmemobj, one transaction for each
//! insert.
//!
//! Objects that an insert fills are not zeroed before, as in those examples (`TX_NEW`). Both sides
//! hold plain pointers, which spares libpmemobj the 16-byte identities of its own
//! examples and a look-up at each step. LMDB inserts the same pairs, a transaction for each.
//!
//! Invariants: all sides insert the same keys of 8 bytes with values of 8 bytes in the same random
//! order into an empty map with its memory made ready; each key is looked up afterwards, outside of
//! the measured time.

use std::io::{self, Error};
use std::ptr::null_mut;
use std::time::Instant;

use crate::race::{Side, Times, race};

/// Transactions over memory.
pub(crate) trait Transactional {
    /// Opens a transaction.
    fn begin(&self) -> bool;
    /// Announces bytes that are about to change.
    fn add(&self, start: *const u8, bytes: usize) -> bool;
    /// A zeroed object that belongs to the transaction; null when there is no room.
    fn alloc(&self, bytes: usize) -> *mut u8;
    /// The same, with whatever bytes were there.
    fn alloc_uninit(&self, bytes: usize) -> *mut u8;
    /// Frees an object when the transaction commits.
    fn free(&self, object: *mut u8) -> bool;
    /// Commits.
    fn commit(&self) -> bool;
}

/// The sides.
pub(crate) const HOLDFAST: &str = "holdfast";
pub(crate) const PMDK: &str = "PMDK";
pub(crate) const LMDB: &str = "LMDB";

/// Which map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    BTree,
    CTree,
    HashMap,
}

pub(crate) const KINDS: [Kind; 3] = [Kind::BTree, Kind::CTree, Kind::HashMap];

/// The key and value of an insert; keys are different and in no order.
pub(crate) fn pair(number: u64) -> (u64, u64) {
    ((number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15), number)
}

/// What a side does for one measurement: makes an empty store, inserts so many pairs of a kind of
/// map and looks each up. Returns nanoseconds for an insert.
pub(crate) type Insert<'a> = Box<dyn Fn(Kind, u64) -> io::Result<f64> + 'a>;

pub(crate) fn run(
    runs: usize,
    kind: Kind,
    count: u64,
    sides: &[(&'static str, Insert<'_>)],
) -> io::Result<Times> {
    let sides = sides.iter().map(|(name, insert)| Side::new(name, move || insert(kind, count)));
    race(runs, sides.collect())
}

/// Inserts into a new map over a store and looks everything up.
pub(crate) fn insert_all<T: Transactional>(store: &T, kind: Kind, count: u64) -> io::Result<f64> {
    match kind {
        Kind::BTree => timed::<T, BTree>(store, count),
        Kind::CTree => timed::<T, CTree>(store, count),
        Kind::HashMap => timed::<T, HashMap>(store, count),
    }
}

fn timed<T: Transactional, M: Map>(store: &T, count: u64) -> io::Result<f64> {
    let no_room = || Error::other("a transaction failed");
    let map = within(store, || M::new(store)).ok_or_else(no_room)?;
    let started = Instant::now();
    for number in 0..count {
        let (key, value) = pair(number);
        // SAFETY: a map of this store, which no other code uses.
        within(store, || unsafe { M::insert(map, store, key, value) }).ok_or_else(no_room)?;
    }
    let taken_ns = started.elapsed().as_secs_f64() * 1e9;
    for (key, value) in (0..count).map(pair) {
        // SAFETY: as above.
        if unsafe { M::get(map, key) } != Some(value) {
            return Err(Error::other("a pair is gone"));
        }
    }
    Ok(taken_ns / count as f64)
}

fn within<T: Transactional, R>(store: &T, work: impl FnOnce() -> Option<R>) -> Option<R> {
    // A failure ends the measurement, and the store with it.
    if !store.begin() {
        return None;
    }
    let done = work()?;
    store.commit().then_some(done)
}

/// A map; all of it lies in the store.
trait Map {
    fn new<T: Transactional>(store: &T) -> Option<*mut Self>;
    /// # Safety
    /// `map` is one of [`Map::new`] in this store, and a transaction is open.
    unsafe fn insert<T: Transactional>(
        map: *mut Self,
        store: &T,
        key: u64,
        value: u64,
    ) -> Option<()>;
    /// # Safety
    /// `map` is one of [`Map::new`] in an open store.
    unsafe fn get(map: *const Self, key: u64) -> Option<u64>;
}

/// A new object.
fn object<T: Transactional, O>(store: &T) -> Option<*mut O> {
    let object = store.alloc(size_of::<O>()).cast::<O>();
    (!object.is_null()).then_some(object)
}

/// The same, not zeroed: the caller fills it.
fn object_to_fill<T: Transactional, O>(store: &T) -> Option<*mut O> {
    let object = store.alloc_uninit(size_of::<O>()).cast::<O>();
    (!object.is_null()).then_some(object)
}

fn add<T: Transactional, O>(store: &T, place: *const O) -> Option<()> {
    store.add(place.cast(), size_of::<O>()).then_some(())
}

/// A crit-bit tree: nodes of two entries, told apart by the highest bit in which they differ.
#[repr(C)]
struct CTree {
    is_used: u64,
    root: Entry,
}

/// Of a leaf the value, of a node above it a pointer to that; as large as in PMDK's example.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry {
    key: u64,
    value: u64,
    node: *mut Node,
}

#[repr(C)]
struct Node {
    bit: u64,
    entries: [Entry; 2],
}

impl Map for CTree {
    fn new<T: Transactional>(store: &T) -> Option<*mut CTree> {
        object(store)
    }

    unsafe fn insert<T: Transactional>(
        map: *mut CTree,
        store: &T,
        key: u64,
        value: u64,
    ) -> Option<()> {
        // SAFETY: entries and nodes of the map, which are whole; changed after they are announced.
        unsafe {
            let new = Entry { key, value, node: null_mut() };
            if (*map).is_used == 0 {
                add(store, map)?;
                map.write(CTree { is_used: 1, root: new });
                return Some(());
            }
            let mut place = &raw mut (*map).root;
            while !(*place).node.is_null() {
                let node = (*place).node;
                place = &raw mut (*node).entries[(key >> (*node).bit & 1) as usize];
            }
            if (*place).key == key {
                add(store, place)?;
                *place = new;
                return Some(());
            }
            let bit = u64::from(63 - ((*place).key ^ key).leading_zeros());
            let side = (key >> bit & 1) as usize;
            place = &raw mut (*map).root;
            while !(*place).node.is_null() && (*(*place).node).bit > bit {
                let node = (*place).node;
                place = &raw mut (*node).entries[(key >> (*node).bit & 1) as usize];
            }
            let node = object_to_fill::<T, Node>(store)?;
            (*node).bit = bit;
            (*node).entries[side] = new;
            (*node).entries[1 - side] = *place;
            add(store, place)?;
            *place = Entry { key: 0, value: 0, node };
            Some(())
        }
    }

    unsafe fn get(map: *const CTree, key: u64) -> Option<u64> {
        // SAFETY: as above; nothing is changed.
        unsafe {
            let mut place = &raw const (*map).root;
            while !(*place).node.is_null() {
                let node = (*place).node;
                place = &raw const (*node).entries[(key >> (*node).bit & 1) as usize];
            }
            ((*map).is_used == 1 && (*place).key == key).then_some((*place).value)
        }
    }
}

/// A hash map of chains; twice as many of them when there are five entries for each.
#[repr(C)]
struct HashMap {
    chains: *mut *mut Link,
    count: u64,
    /// A power of two.
    chain_count: u64,
}

#[repr(C)]
struct Link {
    key: u64,
    value: u64,
    next: *mut Link,
}

const CHAINS_FIRST: u64 = 16;

/// The chain of a key, which is random in all of its bits but the lowest.
fn chain(key: u64, count: u64) -> usize {
    (key >> 8 & (count - 1)) as usize
}

impl Map for HashMap {
    fn new<T: Transactional>(store: &T) -> Option<*mut HashMap> {
        let map = object::<T, HashMap>(store)?;
        let chains = store.alloc(CHAINS_FIRST as usize * 8).cast();
        // SAFETY: a new object.
        unsafe { map.write(HashMap { chains, count: 0, chain_count: CHAINS_FIRST }) };
        Some(map)
    }

    unsafe fn insert<T: Transactional>(
        map: *mut HashMap,
        store: &T,
        key: u64,
        value: u64,
    ) -> Option<()> {
        // SAFETY: links and chains of the map, which are whole; changed after they are announced.
        unsafe {
            let mut link = *(*map).chains.add(chain(key, (*map).chain_count));
            while !link.is_null() {
                if (*link).key == key {
                    add(store, &raw const (*link).value)?;
                    (*link).value = value;
                    return Some(());
                }
                link = (*link).next;
            }
            if (*map).count >= (*map).chain_count * 5 {
                grow(map, store)?;
            }
            let place = (*map).chains.add(chain(key, (*map).chain_count));
            let link = object_to_fill::<T, Link>(store)?;
            link.write(Link { key, value, next: *place });
            add(store, place)?;
            *place = link;
            add(store, &raw const (*map).count)?;
            (*map).count += 1;
            Some(())
        }
    }

    unsafe fn get(map: *const HashMap, key: u64) -> Option<u64> {
        // SAFETY: as above; nothing is changed.
        unsafe {
            let mut link = *(*map).chains.add(chain(key, (*map).chain_count));
            while !link.is_null() {
                if (*link).key == key {
                    return Some((*link).value);
                }
                link = (*link).next;
            }
            None
        }
    }
}

/// # Safety
/// As for [`Map::insert`].
unsafe fn grow<T: Transactional>(map: *mut HashMap, store: &T) -> Option<()> {
    // SAFETY: as there.
    unsafe {
        let HashMap { chains: old, chain_count, .. } = map.read();
        let chains = store.alloc(chain_count as usize * 2 * 8).cast::<*mut Link>();
        if chains.is_null() {
            return None;
        }
        for index in 0..chain_count as usize {
            let mut link = *old.add(index);
            while !link.is_null() {
                let next = (*link).next;
                let place = chains.add(chain((*link).key, chain_count * 2));
                add(store, &raw const (*link).next)?;
                (*link).next = *place;
                *place = link;
                link = next;
            }
        }
        add(store, map)?;
        ((*map).chains, (*map).chain_count) = (chains, chain_count * 2);
        store.free(old.cast()).then_some(())
    }
}

/// Items of a node of the B-tree.
const ITEMS: usize = 7;

/// A B-tree of order 8; full nodes are split on the way down.
#[repr(C)]
struct BTree {
    root: *mut Page,
}

#[repr(C)]
struct Page {
    count: usize,
    items: [(u64, u64); ITEMS],
    /// Null in a leaf.
    pages: [*mut Page; ITEMS + 1],
}

impl Page {
    /// Where a key is, or where it would be: each item is looked at, as in PMDK's example, and none
    /// is waited for, so that the lines of a page come from memory at the same time.
    #[inline]
    fn find(&self, key: u64) -> Result<usize, usize> {
        let is_before = |(index, item): (usize, &(u64, u64))| {
            usize::from(item.0 < key) & usize::from(index < self.count)
        };
        let at = self.items.iter().enumerate().map(is_before).sum::<usize>();
        let found = at < self.count && self.items.get(at).is_some_and(|item| item.0 == key);
        if found { Ok(at) } else { Err(at) }
    }

    fn is_leaf(&self) -> bool {
        self.pages[0].is_null()
    }

    /// Makes room for an item at `at`.
    #[inline]
    fn open_leaf(&mut self, at: usize) {
        for index in (at..self.count).rev() {
            self.items[index + 1] = self.items[index];
        }
        self.count += 1;
    }

    /// Makes room for an item at `at`, and for the page behind it.
    fn open(&mut self, at: usize) {
        self.pages.copy_within(at + 1..self.count + 1, at + 2);
        self.open_leaf(at);
    }
}

impl Map for BTree {
    fn new<T: Transactional>(store: &T) -> Option<*mut BTree> {
        let map = object::<T, BTree>(store)?;
        let root = object::<T, Page>(store)?;
        // SAFETY: a new object.
        unsafe { (*map).root = root };
        Some(map)
    }

    unsafe fn insert<T: Transactional>(
        map: *mut BTree,
        store: &T,
        key: u64,
        value: u64,
    ) -> Option<()> {
        // SAFETY: pages of the map, which are whole, each referred to once; changed after they are
        // announced.
        unsafe {
            if (*(*map).root).count == ITEMS {
                let root = object::<T, Page>(store)?;
                (*root).pages[0] = (*map).root;
                split(&mut *root, 0, store)?;
                add(store, &raw const (*map).root)?;
                (*map).root = root;
            }
            let mut page = (*map).root;
            loop {
                let at = match (*page).find(key) {
                    Ok(at) => {
                        add(store, &raw const (*page).items[at])?;
                        (*page).items[at].1 = value;
                        return Some(());
                    }
                    Err(at) => at,
                };
                if (*page).is_leaf() {
                    add(store, page)?;
                    (*page).open_leaf(at);
                    (*page).items[at] = (key, value);
                    return Some(());
                }
                if (*(*page).pages[at]).count == ITEMS {
                    add(store, page)?;
                    split(&mut *page, at, store)?;
                    continue;
                }
                page = (*page).pages[at];
            }
        }
    }

    unsafe fn get(map: *const BTree, key: u64) -> Option<u64> {
        // SAFETY: as above; nothing is changed.
        unsafe {
            let mut page = (*map).root;
            while !page.is_null() {
                match (*page).find(key) {
                    Ok(at) => return Some((*page).items[at].1),
                    Err(at) => page = (*page).pages[at],
                }
            }
            None
        }
    }
}

/// Splits the full page at `at` below a page that has room and is announced or new.
///
/// # Safety
/// As for [`Map::insert`].
unsafe fn split<T: Transactional>(above: &mut Page, at: usize, store: &T) -> Option<()> {
    let right = object::<T, Page>(store)?;
    let left = above.pages[at];
    add(store, left)?;
    // SAFETY: two pages of the map, the right one new.
    let (left, right) = unsafe { (&mut *left, &mut *right) };
    let middle = ITEMS / 2;
    right.count = ITEMS - middle - 1;
    right.items[..right.count].copy_from_slice(&left.items[middle + 1..]);
    right.pages[..right.count + 1].copy_from_slice(&left.pages[middle + 1..]);
    left.count = middle;
    above.open(at);
    above.items[at] = left.items[middle];
    above.pages[at + 1] = right;
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    /// The words of an object, and what they were when the transaction began.
    type Object = (Box<[u64]>, Vec<u64>);

    /// Memory that remembers what was announced, and finds what was changed without.
    #[derive(Default)]
    struct Watched {
        objects: RefCell<BTreeMap<usize, Object>>,
        announced: RefCell<Vec<(usize, usize)>>,
    }

    impl Transactional for Watched {
        fn begin(&self) -> bool {
            self.announced.borrow_mut().clear();
            for (words, before) in self.objects.borrow_mut().values_mut() {
                before.clear();
                before.extend_from_slice(words);
            }
            true
        }

        fn add(&self, start: *const u8, bytes: usize) -> bool {
            self.announced.borrow_mut().push((start as usize, bytes));
            true
        }

        fn alloc(&self, bytes: usize) -> *mut u8 {
            let mut words = vec![0; bytes.div_ceil(8)].into_boxed_slice();
            let object = words.as_mut_ptr();
            self.objects.borrow_mut().insert(object as usize, (words, Vec::new()));
            object.cast()
        }

        fn alloc_uninit(&self, bytes: usize) -> *mut u8 {
            let object = self.alloc(bytes);
            // SAFETY: a new object of so many bytes.
            unsafe { object.write_bytes(0xA5, bytes) };
            object
        }

        fn free(&self, object: *mut u8) -> bool {
            self.objects.borrow_mut().remove(&(object as usize)).is_some()
        }

        fn commit(&self) -> bool {
            let announced = self.announced.borrow();
            let is_announced = |at: usize| {
                announced.iter().any(|(start, bytes)| (*start..start + bytes).contains(&at))
            };
            self.objects.borrow().iter().all(|(start, (words, before))| {
                words
                    .iter()
                    .zip(before)
                    .enumerate()
                    .all(|(index, (now, then))| now == then || is_announced(start + index * 8))
            })
        }
    }

    /// Each map finds all that was inserted, and changes nothing of what was there that it has not
    /// announced.
    #[test]
    fn maps_keep_pairs_and_announce_changes() {
        for kind in KINDS {
            insert_all(&Watched::default(), kind, 600).unwrap();
        }
    }
}
