//! A home, a heap that is open in it, and a workload.
//!
//! Invariants:
//! - One test at a time has a home: what one opens lies at addresses that another might want.
//! - After `n` steps of the workload every byte that must be there follows from `n`, in both modes.

use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_heap::{Backing, Heap, HeapError, check};
use holdfast_native_heap::{HeapRegion, RegionBacking, open_heap, roll_back};
use holdfast_region::{
    CommitReport, Consistency, Durability, KernelStorage, NameSpace, OwnerKey, Places, RegionError,
    RegionName, Storage,
};
use tempfile::TempDir;

pub(crate) const MODES: [Consistency; 2] = [Consistency::Direct, Consistency::Atomic];
pub(crate) const MIB: u64 = 1 << 20;
const LIMIT_BYTES: u64 = 64 * MIB;
/// Objects that the workload keeps.
const PLACES: u64 = 24;
/// Root, table of roots, and the entry of the root's name: objects that are always there.
const FIXED_OBJECTS: u64 = 3;

static TURN: Mutex<()> = Mutex::new(());

pub(crate) struct Home {
    places: (PathBuf, PathBuf),
    _turn: Option<MutexGuard<'static, ()>>,
    _directory: Option<TempDir>,
}

impl Home {
    pub(crate) fn new() -> Home {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        let places = (directory.path().join("home"), directory.path().join("pool"));
        Home { places, _turn: Some(turn), _directory: Some(directory) }
    }

    /// In directories of another user.
    pub(crate) fn at(home: PathBuf, pool: PathBuf) -> Home {
        Home { places: (home, pool), _turn: None, _directory: None }
    }

    pub(crate) fn home(&self) -> &PathBuf {
        &self.places.0
    }

    pub(crate) fn pool(&self) -> &PathBuf {
        &self.places.1
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.pool().join("heap.image")
    }

    pub(crate) fn lose_image(&self) {
        std::fs::remove_file(self.image()).unwrap();
    }

    /// Opens the heap in a mode; makes it if there is none.
    pub(crate) fn open(&self, mode: Consistency) -> Session {
        self.open_over(mode, Arc::new(KernelStorage))
    }

    pub(crate) fn open_over(&self, mode: Consistency, storage: Arc<dyn Storage>) -> Session {
        let places = Places::at(self.home(), self.pool()).unwrap();
        let name = RegionName::parse("heap").unwrap();
        let key = OwnerKey::from_bytes([7; 32]);
        let names = NameSpace::with_storage(places, storage);
        let mut region = names.open_or_create(&name, &key, LIMIT_BYTES).unwrap();
        region.set_consistency(mode).unwrap();
        let (heap, region) = open_heap(region).unwrap();
        Session { mode, heap, region }
    }
}

/// An open heap.
pub(crate) struct Session {
    pub(crate) mode: Consistency,
    pub(crate) heap: Heap<RegionBacking>,
    pub(crate) region: HeapRegion,
}

impl Session {
    /// What was stored so far counts, also when the process dies.
    pub(crate) fn commit(&self) {
        self.region.commit(Durability::Process).unwrap();
    }

    /// And when the image is lost.
    pub(crate) fn commit_to_disk(&self) -> Result<CommitReport, RegionError> {
        self.region.commit(Durability::Power)
    }

    /// Ends in order, with a commit.
    pub(crate) fn close(self) {
        drop(self.heap.close());
        self.region.commit(Durability::Process).unwrap();
        self.region.close().unwrap();
    }

    /// Ends without a word: nothing is committed, and an open transaction stays open.
    pub(crate) fn die(self) {
        drop(self.heap);
        drop(self.region);
    }

    /// Begins what [`Session::undo`] takes back, in the way of the mode.
    pub(crate) fn begin(&mut self) {
        match self.mode {
            Consistency::Atomic => self.commit(),
            _ => self.heap.begin().unwrap(),
        }
    }

    /// Makes it count instead.
    pub(crate) fn finish(&mut self) {
        match self.mode {
            Consistency::Atomic => self.commit(),
            _ => self.heap.commit().unwrap(),
        }
    }

    pub(crate) fn undo(mut self) -> Session {
        match self.mode {
            Consistency::Atomic => self.heap = roll_back(self.heap).unwrap(),
            _ => self.heap.abort().unwrap(),
        }
        self
    }

    /// A root's words; the root is made if there is none.
    pub(crate) fn words(&mut self, name: &str, count: u64) -> Words {
        let found = self.heap.root(name).map(|root| root.pointer);
        let start = found.map_or_else(|| self.heap.create_root(name, count * 8), Ok).unwrap();
        Words { start: start.cast(), count }
    }

    /// Stores a word, announced if a transaction is open.
    pub(crate) fn store(&mut self, words: Words, index: u64, value: u64) -> Result<(), HeapError> {
        let word = words.at(index);
        if self.heap.in_transaction() {
            self.heap.add_range(word.cast(), 8)?;
        }
        // SAFETY: inside an object of the heap, and nothing else refers to it.
        unsafe { word.write_volatile(value) };
        Ok(())
    }

    /// An object that is filled with a byte.
    pub(crate) fn object(&mut self, bytes: u64, with: u8) -> Result<NonNull<u8>, HeapError> {
        let object = self.heap.alloc(bytes)?;
        // SAFETY: just allocated with this size.
        unsafe { object.as_ptr().write_bytes(with, bytes as usize) };
        Ok(object)
    }

    /// Whether an object of this size is there and filled with a byte.
    pub(crate) fn holds(&self, object: NonNull<u8>, bytes: u64, with: u8) -> bool {
        let there = self.heap.usable_bytes(object).is_ok_and(|usable| usable >= bytes);
        // SAFETY: an allocated object of at least this size, which no thread writes to.
        there
            && unsafe { std::slice::from_raw_parts(object.as_ptr(), bytes as usize) }
                .iter()
                .all(|byte| *byte == with)
    }

    /// How many objects there are; the checker must find nothing. No transaction may be open.
    pub(crate) fn sound_objects(&self) -> u64 {
        let (base, bytes) = (self.heap.backing().base(), self.heap.backing().backed_bytes());
        // SAFETY: backed and mapped, and no thread writes to it now.
        let bytes = unsafe { std::slice::from_raw_parts(base, bytes as usize) };
        let mut findings = Vec::new();
        let report = check(bytes, &mut |finding| findings.push(finding));
        assert!(report.is_sound(), "{:?}: {findings:#x?}", self.mode);
        report.objects
    }

    /// The workload's root, made and committed if there is none: the number of steps, then its
    /// objects.
    pub(crate) fn work(&mut self) -> Words {
        let work = self.words("work", 1 + PLACES);
        self.commit();
        work
    }

    pub(crate) fn steps(&mut self) -> u64 {
        self.work().load(0)
    }

    /// Makes one step: an object takes the place of an older one. Does not commit.
    pub(crate) fn step(&mut self) -> Result<u64, HeapError> {
        let work = self.words("work", 1 + PLACES);
        let step = work.load(0) + 1;
        let object = self.object(size(step), step as u8)?;
        let place = 1 + step % PLACES;
        if let Some(old) = NonNull::new(work.load(place) as *mut u8) {
            self.heap.free(old)?;
        }
        self.store(work, place, object.as_ptr() as u64)?;
        self.store(work, 0, step)?;
        Ok(step)
    }

    /// Steps that count.
    pub(crate) fn make_steps(&mut self, count: u64) {
        for _ in 0..count {
            self.begin();
            self.step().unwrap();
            self.finish();
        }
    }

    /// Looks at every byte of the workload: exactly `steps` steps were made, and nothing else is
    /// there.
    pub(crate) fn verify(&mut self, steps: u64, context: &str) {
        let (mode, work) = (self.mode, self.words("work", 1 + PLACES));
        assert_eq!(work.load(0), steps, "{mode:?}, {context}");
        for step in steps.saturating_sub(PLACES - 1).max(1)..=steps {
            let object = NonNull::new(work.load(1 + step % PLACES) as *mut u8);
            let whole = object.is_some_and(|object| self.holds(object, size(step), step as u8));
            assert!(whole, "{mode:?}, {context}: the object of step {step} of {steps}");
        }
        assert_eq!(
            self.sound_objects(),
            FIXED_OBJECTS + steps.min(PLACES),
            "{mode:?}, {context}: objects"
        );
    }
}

fn size(step: u64) -> u64 {
    match step % 53 {
        0 => 140_000,
        1 => 70_000,
        2 => 9000,
        rest => 16 + rest * 17,
    }
}

/// The words of an object.
#[derive(Clone, Copy)]
pub(crate) struct Words {
    start: NonNull<u64>,
    count: u64,
}

impl Words {
    fn at(self, index: u64) -> *mut u64 {
        assert!(index < self.count);
        self.start.as_ptr().wrapping_add(index as usize)
    }

    pub(crate) fn load(self, index: u64) -> u64 {
        // SAFETY: inside an object of the heap that is open.
        unsafe { self.at(index).read_volatile() }
    }
}
