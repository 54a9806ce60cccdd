//! An open heap, as the views into it and the objects of Python share it.
//!
//! Invariants:
//! - The region stays mapped while there is a view: closing and undoing are refused, and the last
//!   one to let go closes.
//! - What a view shows is never given to another caller: a root with views is not removed, and
//!   after a rollback that undid a root with views nothing is allocated before they are gone.
//! - One thread at a time. A transaction belongs to the thread that began it, and the others wait
//!   until it has ended.
#![forbid(unsafe_code)]

use std::collections::{HashMap, HashSet};
use std::ptr::NonNull;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::ThreadId;

use holdfast_dom::Documents;
use holdfast_heap::{Heap, HeapError, OpenError, Owned, Ref, Root, RootType};
use holdfast_native_heap::{
    HeapOptions, HeapRegion, OpenHeapError, RegionBacking, open_data_heap_with, open_heap_with,
    roll_back,
};
use holdfast_region::{Consistency, Durability, Region};
use pyo3::prelude::*;

use crate::editions::Editions;
use crate::heap_error::Refusal;
use crate::process::Maker;
use crate::signals;
use crate::turn::wait_while;

/// The documents of an open heap.
pub(crate) type Lent<'heap> = Documents<RegionBacking, &'heap mut Owned<RegionBacking>>;

/// An open heap with its region, its views and its transaction.
pub(crate) struct Core {
    pub(crate) maker: Maker,
    pub(crate) name: String,
    turn: Mutex<Turn>,
    turned: Condvar,
    open: Mutex<Option<Open>>,
    views: Mutex<Views>,
    editions: Mutex<Editions>,
}

/// The heap and what it stands on.
pub(crate) struct Open {
    pub(crate) heap: Heap<RegionBacking>,
    pub(crate) region: HeapRegion,
    /// Objects that the open transaction has made.
    made: Vec<u64>,
    /// Objects that the open transaction has freed, those of removed roots included: they count as
    /// allocated until it commits.
    freed: HashSet<u64>,
}

/// Whose turn it is.
#[derive(Default)]
struct Turn {
    owner: Option<ThreadId>,
    depth: u32,
}

/// How many views there are, by the offset of what they show.
#[derive(Default)]
struct Views {
    counts: HashMap<u64, usize>,
    /// Of these, those of which a rollback has undone the root.
    undone: HashSet<u64>,
}

/// An object in the heap, of which a view was counted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) offset: u64,
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    pub(crate) is_read_only: bool,
}

/// The turn of a thread, until it is dropped.
pub(crate) struct MyTurn<'core>(&'core Core);

impl Drop for MyTurn<'_> {
    fn drop(&mut self) {
        self.0.end_turn();
    }
}

impl Core {
    /// Maps the region and opens the heap in it; closes it if that fails. `portable`: no other heap
    /// than a portable one.
    pub(crate) fn open(region: Region, portable: bool) -> Result<Core, Refusal> {
        let name = region.name().to_string();
        let options = HeapOptions { portable, ..HeapOptions::default() };
        let (heap, region) = match portable {
            true => open_heap_with(region, options)?,
            false => open_data_heap_with(region, options)?,
        };
        // A forked child that stores there would be a second writer.
        region.hide_from_children().map_err(|source| holdfast_region::RegionError::Io {
            step: "keep from children",
            path: (&name).into(),
            source,
        })?;
        let open = Open::new(heap, region);
        Ok(Core {
            maker: Maker::new(),
            name,
            turn: Mutex::default(),
            turned: Condvar::new(),
            open: Mutex::new(Some(open)),
            views: Mutex::default(),
            editions: Mutex::default(),
        })
    }

    /// Waits, without the interpreter, until no other thread has a transaction open, or the handler
    /// of a signal raises. To be paired with [`Core::end_turn`], unless it fails.
    pub(crate) fn take_turn(&self, py: Python<'_>) -> PyResult<()> {
        self.maker.check(py)?;
        if lock(&self.turn).take() {
            return Ok(());
        }
        signals::wait(py, |goes_on| {
            let turn = lock(&self.turn);
            let is_others = Turn::is_of_another;
            let mut turn = wait_while(&self.turn, &self.turned, turn, None, is_others, goes_on)?;
            turn.take();
            Ok(())
        })
    }

    /// As [`Core::take_turn`], ended by itself.
    pub(crate) fn my_turn(&self, py: Python<'_>) -> PyResult<MyTurn<'_>> {
        self.take_turn(py)?;
        Ok(MyTurn(self))
    }

    /// Gives the turn back; by whichever thread, because an abandoned transaction is ended by who
    /// finds it.
    pub(crate) fn end_turn(&self) {
        let mut turn = lock(&self.turn);
        turn.depth = turn.depth.saturating_sub(1);
        if turn.depth == 0 {
            turn.owner = None;
            self.turned.notify_all();
        }
    }

    /// Works with the heap; the caller has the turn.
    pub(crate) fn with<R>(
        &self,
        work: impl FnOnce(&mut Open) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        match &mut *lock(&self.open) {
            Some(open) => work(open),
            None => Err(self.closed()),
        }
    }

    /// Works with the documents of the heap; the caller has the turn.
    pub(crate) fn documents<R>(
        &self,
        work: impl FnOnce(&mut Lent<'_>, &mut Editions) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        self.with(|open| {
            let mut documents = Documents::lent(&mut open.heap).ok_or_else(|| self.closed())?;
            work(&mut documents, &mut lock(&self.editions))
        })
    }

    /// As [`Core::documents`] with one that was opened, if it is the same one still.
    pub(crate) fn document<R>(
        &self,
        name: &str,
        edition: u64,
        work: impl FnOnce(&mut Lent<'_>) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        self.documents(|documents, editions| {
            editions.check(name, edition)?;
            work(documents)
        })
    }

    /// As [`Core::documents`], for what allocates.
    pub(crate) fn change_documents<R>(
        &self,
        work: impl FnOnce(&mut Lent<'_>, &mut Editions) -> Result<R, Refusal>,
    ) -> Result<R, Refusal> {
        self.check_undone()?;
        self.documents(work)
    }

    /// A root by its name, with its view counted. Not of a document: changing one moves it.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Found>, Refusal> {
        if self.documents(|documents, _| Ok(documents.holds(name)))? {
            return Err(Refusal::IsDocument { name: name.to_owned() });
        }
        self.with(|open| open.heap.root(name).map(|root| self.count(open, root)).transpose())
    }

    /// Makes a root, with its view counted; one of a portable type carries its layout.
    pub(crate) fn create(
        &self,
        name: &str,
        bytes: u64,
        layout: Option<u64>,
    ) -> Result<Found, Refusal> {
        self.with(|open| {
            self.check_undone()?;
            let refused = |error| Refusal::Call(error, Some(name.to_owned()));
            let created = match layout {
                Some(layout) => {
                    open.check_portable()?;
                    open.heap.create_root_of(name, bytes, RootType { layout, version: 0 })
                }
                None => open.heap.create_root(name, bytes),
            };
            let pointer = created.map_err(refused)?;
            self.count_new(open, Root { pointer, bytes })
        })
    }

    /// The layout that a root carries; `None` without one, and without the root.
    pub(crate) fn layout(&self, name: &str) -> Result<Option<u64>, Refusal> {
        self.with(|open| Ok(open.heap.root_type(name).map(|root_type| root_type.layout)))
    }

    /// Makes an anonymous object of zeroes, with its view counted.
    pub(crate) fn allocate(&self, bytes: u64) -> Result<Found, Refusal> {
        self.with(|open| {
            open.check_portable()?;
            self.check_undone()?;
            let pointer = open.heap.alloc_zeroed(bytes)?;
            self.count_new(open, Root { pointer, bytes })
        })
    }

    /// The first bytes of the object that a reference leads to, with its view counted.
    pub(crate) fn object(&self, offset: u64, bytes: u64) -> Result<Found, Refusal> {
        self.with(|open| {
            let bad = HeapError::BadReference { offset };
            let object = open.target(offset)?;
            if open.heap.usable_bytes(object)? < bytes {
                return Err(bad.into());
            }
            self.count(open, Root { pointer: object, bytes })
        })
    }

    /// Frees an anonymous object that has no views.
    pub(crate) fn free(&self, offset: u64) -> Result<(), Refusal> {
        self.with(|open| {
            let object = open.target(offset)?;
            if open.heap.roots().any(|(_, root)| root.pointer == object) {
                return Err(HeapError::NameTaken.into());
            }
            let count = lock(&self.views).counts.get(&offset).copied();
            if let Some(count) = count {
                return Err(Refusal::Views { what: "cannot free the object".to_owned(), count });
            }
            self.check_undone()?;
            open.heap.free(object)?;
            if open.heap.in_transaction() {
                open.freed.insert(offset);
            }
            Ok(())
        })
    }

    /// The offset of what a view shows from the heap's first byte.
    pub(crate) fn offset_of(&self, start: *const u8) -> Result<u64, Refusal> {
        self.with(|open| {
            let start = NonNull::new(start.cast_mut()).ok_or(HeapError::OutsideHeap)?;
            Ok(open.heap.offset_of(start).ok_or(HeapError::OutsideHeap)?)
        })
    }

    fn count_new(&self, open: &mut Open, root: Root) -> Result<Found, Refusal> {
        let found = self.count(open, root)?;
        if open.heap.in_transaction() {
            open.made.push(found.offset);
        }
        Ok(found)
    }

    /// Removes a root that has no views.
    pub(crate) fn remove(&self, name: &str) -> Result<(), Refusal> {
        self.with(|open| {
            let refused = |error| Refusal::Call(error, Some(name.to_owned()));
            let root = open.heap.root(name).ok_or(refused(HeapError::NoSuchRoot))?;
            let offset = open.heap.offset_of(root.pointer);
            let count = offset.and_then(|offset| lock(&self.views).counts.get(&offset).copied());
            if let Some(count) = count {
                return Err(Refusal::Views {
                    what: format!("cannot remove the root {name:?}"),
                    count,
                });
            }
            self.check_undone()?;
            open.heap.remove_root(name).map_err(refused)?;
            if open.heap.in_transaction() {
                // References may still lead there.
                open.freed.extend(offset);
            }
            lock(&self.editions).made(name, open.heap.in_transaction());
            Ok(())
        })
    }

    /// Begins a transaction, or a level of the open one; says which level.
    pub(crate) fn begin(&self) -> Result<u32, Refusal> {
        self.with(|open| {
            self.check_undone()?;
            open.heap.begin()?;
            Ok(open.heap.transaction_depth())
        })
    }

    /// Ends the level: commits it, or undoes the transaction.
    pub(crate) fn end(&self, level: u32, commits: bool) -> Result<(), Refusal> {
        self.with(|open| {
            // Levels inside that have not ended.
            while open.heap.transaction_depth() > level {
                open.heap.abort()?;
            }
            if open.heap.transaction_depth() < level {
                return Err(HeapError::TransactionState { expected_open: true }.into());
            }
            let ended = if commits { open.heap.commit() } else { open.heap.abort() };
            if !open.heap.in_transaction() {
                lock(&self.editions).end_transaction(!commits || ended.is_err());
                open.freed.clear();
                let made = std::mem::take(&mut open.made);
                if !commits || ended.is_err() {
                    let mut views = lock(&self.views);
                    let seen = made.into_iter().filter(|offset| views.counts.contains_key(offset));
                    let seen: Vec<u64> = seen.collect();
                    views.undone.extend(seen);
                }
            }
            Ok(ended?)
        })
    }

    /// Makes what was stored so far count and survive.
    pub(crate) fn commit(&self, durability: Durability) -> Result<(), Refusal> {
        self.with(|open| {
            open.check_outside("a commit to the store")?;
            open.region.commit(durability)?;
            Ok(())
        })
    }

    /// In the mode `atomic`: back to the last commit.
    pub(crate) fn roll_back(&self) -> Result<(), Refusal> {
        self.check_no_views("cannot roll back")?;
        let mut open = lock(&self.open);
        let Some(there) = open.take() else { return Err(self.closed()) };
        let is_atomic = there.region.with(|region| region.consistency()) == Consistency::Atomic;
        let refused = match is_atomic {
            true => there.check_outside("going back to the last commit").err(),
            false => {
                Some(holdfast_region::RegionError::NotAtomic { name: self.name.clone() }.into())
            }
        };
        if let Some(refused) = refused {
            *open = Some(there);
            return Err(refused);
        }
        let Open { heap, region, .. } = there;
        lock(&self.editions).next_of_all();
        // After an error it is closed: its state is not known, and the last commit is what counts.
        *open = Some(Open::new(roll_back(heap)?, region));
        Ok(())
    }

    /// Whether the heap can be closed once so many objects that values have are let go; the caller
    /// has the turn.
    pub(crate) fn check_close(&self, with_values: usize) -> Result<(), Refusal> {
        match self.view_count().saturating_sub(with_values) {
            0 => self.with(|open| open.check_outside("closing the heap")),
            count => {
                let what = format!("cannot close the heap {:?}", self.name);
                Err(Refusal::Views { what, count })
            }
        }
    }

    /// Closes the heap, in order; `publishes`: what was stored in the mode `atomic` counts.
    pub(crate) fn close(&self, publishes: bool) -> Result<(), Refusal> {
        self.check_no_views(&format!("cannot close the heap {:?}", self.name))?;
        let mut open = lock(&self.open);
        match open.as_ref().map(|open| open.check_outside("closing the heap")) {
            None => return Ok(()),
            Some(Err(refused)) => return Err(refused),
            Some(Ok(())) => {}
        }
        match open.take() {
            Some(open) => open.close(publishes),
            None => Ok(()),
        }
    }

    /// Whether it is closed. Not while a thread works with it, or closes it: that may take long, and
    /// this is asked with the interpreter in hand.
    pub(crate) fn is_closed(&self) -> bool {
        match self.open.try_lock() {
            Ok(open) => open.is_none(),
            Err(TryLockError::Poisoned(open)) => open.into_inner().is_none(),
            Err(TryLockError::WouldBlock) => false,
        }
    }

    /// Whether it is closed, for the thread that has the turn: waits for one that just looks. To be
    /// asked without the interpreter.
    pub(crate) fn is_closed_in_turn(&self) -> bool {
        lock(&self.open).is_none()
    }

    /// How many views there are.
    pub(crate) fn view_count(&self) -> usize {
        lock(&self.views).counts.values().sum()
    }

    /// A view is gone.
    pub(crate) fn forget_view(&self, offset: u64) {
        let mut views = lock(&self.views);
        if let Some(count) = views.counts.get_mut(&offset) {
            *count -= 1;
            if *count == 0 {
                views.counts.remove(&offset);
                views.undone.remove(&offset);
            }
        }
    }

    fn count(&self, open: &Open, root: Root) -> Result<Found, Refusal> {
        let offset = open.heap.offset_of(root.pointer).ok_or(HeapError::OutsideHeap)?;
        *lock(&self.views).counts.entry(offset).or_default() += 1;
        Ok(Found {
            offset,
            address: root.pointer.as_ptr().expose_provenance(),
            bytes: root.bytes as usize,
            is_read_only: open.is_read_only(),
        })
    }

    fn check_no_views(&self, what: &str) -> Result<(), Refusal> {
        match self.view_count() {
            0 => Ok(()),
            count => Err(Refusal::Views { what: what.to_owned(), count }),
        }
    }

    fn check_undone(&self) -> Result<(), Refusal> {
        match lock(&self.views).undone.len() {
            0 => Ok(()),
            count => Err(Refusal::Undone { count }),
        }
    }

    fn closed(&self) -> Refusal {
        Refusal::Closed { name: self.name.clone() }
    }
}

impl Open {
    fn new(heap: Heap<RegionBacking>, region: HeapRegion) -> Open {
        Open { heap, region, made: Vec::new(), freed: HashSet::new() }
    }

    /// Where a reference leads: to an object that is there, and stays when the transaction commits.
    fn target(&self, offset: u64) -> Result<NonNull<u8>, Refusal> {
        self.check_portable()?;
        let bad = HeapError::BadReference { offset };
        if self.freed.contains(&offset) {
            return Err(bad.into());
        }
        Ok(self.heap.target(Ref::<u8>::at(offset).ok_or(bad)?)?)
    }

    /// Refuses references in a heap that holds pointers.
    fn check_portable(&self) -> Result<(), Refusal> {
        if self.heap.is_portable() {
            return Ok(());
        }
        let pointer_bytes = self.heap.pointers().bytes;
        Err(Refusal::Open(OpenHeapError::Heap(OpenError::NotPortable { pointer_bytes })))
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.region.with(|region| region.is_read_only())
    }

    fn check_outside(&self, what: &'static str) -> Result<(), Refusal> {
        if self.heap.in_transaction() { Err(Refusal::InTransaction { what }) } else { Ok(()) }
    }

    fn close(self, publishes: bool) -> Result<(), Refusal> {
        drop(self.heap.close());
        if publishes && !self.region.with(|region| region.is_read_only()) {
            self.region.commit(Durability::Process)?;
        }
        self.region.close()?;
        Ok(())
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        let open = self.open.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        // A caller that wants to hear of it calls `close`; a heap that is not closed in order loses
        // nothing that counts.
        let _ = open.map(|open| open.close(false));
    }
}

impl Turn {
    /// Whether another thread has it.
    fn is_of_another(&self) -> bool {
        self.owner.is_some_and(|owner| owner != std::thread::current().id())
    }

    /// Whether this thread has it now.
    fn take(&mut self) -> bool {
        if self.is_of_another() {
            return false;
        }
        self.owner = Some(std::thread::current().id());
        self.depth += 1;
        true
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What a panic left is a heap that its log rolls back.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
