//! A heap on a region that is mapped at its own address, so that plain pointers into it stay valid
//! from run to run: what the C library for native programs and the `malloc` shim stand on.
//!
//! Invariants:
//! - The region's lock makes this process the only writer; the heap has the mapping to itself.
//! - Whatever fails while opening, the region is closed in order, so that a refused heap is left as
//!   it was.
//! - Where a keeper lends the region, the same holds by the loan: one program has it at a time.
//!
//! What it must not do: choose a heap, or close one that its owner still uses.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod backing;
mod exclusion;
mod moving;
mod rollback;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_heap::{Backing, Heap, OpenError, OpenOptions, Pointers, RelocationError};
use holdfast_region::{
    CheckpointReport, CloseReport, CommitReport, Durability, Region, RegionError,
};

use backing::hide;
pub use backing::{RegionBacking, grow_error};
pub use exclusion::{TransactionPlace, is_thread_in_transaction};
pub use holdfast_types::size::{SizeError, parse as parse_size};
pub use moving::{MovedHeap, open_typed_heap, open_typed_heap_on};
pub use rollback::{roll_back, roll_back_on};

/// Why a region did not become a heap.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenHeapError {
    /// The region cannot be mapped.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// Its bytes are no heap for a native program.
    #[error(transparent)]
    Heap(#[from] OpenError),
    /// Its address is taken, and its pointers cannot be rewritten for another one.
    #[error("{taken}; this heap cannot be relocated: {reason}")]
    NotRelocatable {
        /// Why it cannot be where it is.
        taken: Box<OpenHeapError>,
        /// Why it cannot be elsewhere.
        reason: RelocationError,
    },
}

/// The region under a heap, for what the heap itself cannot do.
#[derive(Debug, Clone)]
pub struct HeapRegion(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    region: Mutex<Region>,
    /// As the region has it, for a caller that must not wait.
    limit_bytes: AtomicU64,
    /// Whether children that are forked get nothing of the mapping.
    hidden: AtomicBool,
    /// Whether the heap keeps an order of its stores that survives a reset of the machine.
    ordered: bool,
    /// Whether the heap holds references and no pointers.
    portable: bool,
}

/// How a heap is opened on its region.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeapOptions {
    /// The heap writes its cache lines back in an order from which it recovers after a reset of the
    /// machine, also where the region does not need that ([`Region::needs_order`]; where it does,
    /// it is done anyway): each transaction is in memory when it has committed. Costs some 0.5 us a
    /// transaction, and brings nothing where the pool's memory does not survive a reset.
    pub ordered: bool,
    /// The program stores references in it and no pointers: a new heap becomes a portable one,
    /// which any program opens that says the same, and which lies elsewhere where its address is
    /// taken. A heap with pointers is refused.
    pub portable: bool,
}

impl HeapRegion {
    pub(crate) fn new(region: Region, options: HeapOptions) -> HeapRegion {
        let limit_bytes = AtomicU64::new(region.limit_bytes());
        // Where the processor cannot, commits at level `system` go to the store.
        let needed = region.needs_order() && holdfast_persist::instruction().is_some();
        let ordered = (needed || options.ordered) && !region.is_read_only();
        HeapRegion(Arc::new(Shared {
            region: Mutex::new(region),
            limit_bytes,
            hidden: AtomicBool::new(false),
            ordered,
            portable: options.portable,
        }))
    }

    /// Whether a heap in the mode `direct` on this region keeps an order of its stores that
    /// survives a reset.
    #[must_use]
    pub fn is_ordered(&self) -> bool {
        self.0.ordered
    }

    /// Runs `work` with the region.
    pub fn with<R>(&self, work: impl FnOnce(&mut Region) -> R) -> R {
        let mut region = self.0.region.lock().unwrap_or_else(PoisonError::into_inner);
        let result = work(&mut region);
        self.0.limit_bytes.store(region.limit_bytes(), Ordering::Relaxed);
        result
    }

    /// How far the heap may grow. Never waits.
    #[must_use]
    pub fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes.load(Ordering::Relaxed)
    }

    /// From now on a child that this process forks, by whatever call, has nothing where the heap
    /// is: it cannot store to what is its parent's. It costs the child a SIGSEGV if it tries to.
    ///
    /// # Errors
    /// What the kernel reports.
    pub fn hide_from_children(&self) -> io::Result<()> {
        self.with(|region| {
            let Some(start) = region.mapping() else { return Ok(()) };
            hide(start.as_ptr(), region.backed_bytes())
        })?;
        self.0.hidden.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn is_hidden(&self) -> bool {
        self.0.hidden.load(Ordering::Relaxed)
    }

    /// Sets how far the heap may grow, while it is open, and says how far that is now: rounded up
    /// to 64 KiB, no less than it has. Nothing moves. No thread may store to the heap meanwhile.
    ///
    /// # Errors
    /// Those of [`Region::set_limit`].
    pub fn set_limit(&self, bytes: u64) -> Result<u64, RegionError> {
        self.with(|region| region.set_limit(bytes))
    }

    /// Copies what changed to the store. No thread may store to the heap meanwhile.
    ///
    /// # Errors
    /// Those of [`Region::checkpoint`].
    pub fn checkpoint(&self) -> Result<CheckpointReport, RegionError> {
        self.with(Region::checkpoint)
    }

    /// Makes everything stored so far count and survive the failure that the level names. No thread
    /// may store to the heap meanwhile.
    ///
    /// # Errors
    /// Those of [`Region::commit`].
    pub fn commit(&self, durability: Durability) -> Result<CommitReport, RegionError> {
        self.with(|region| region.commit(durability))
    }

    /// Closes the region, if no other handle holds it any more: the heap must have been closed
    /// before.
    ///
    /// # Errors
    /// Those of [`Region::close`]; `AlreadyMapped` when a heap still stands on it.
    pub fn close(self) -> Result<CloseReport, RegionError> {
        let shared = Arc::into_inner(self.0).ok_or(RegionError::AlreadyMapped)?;
        shared.region.into_inner().unwrap_or_else(PoisonError::into_inner).close()
    }
}

/// Maps the region at its own address and opens the heap in it; formats it if it is new.
///
/// # Errors
/// [`OpenHeapError`]; the region is closed then, and its data is as it was.
pub fn open_heap(region: Region) -> Result<(Heap<RegionBacking>, HeapRegion), OpenHeapError> {
    open_heap_on(region, HeapOptions::default(), |backing| backing)
}

/// As [`open_heap`], with options.
///
/// # Errors
/// As [`open_heap`]; [`OpenError::NoOrder`] where the processor cannot keep an order;
/// [`OpenError::NotPortable`].
pub fn open_heap_with(
    region: Region,
    options: HeapOptions,
) -> Result<(Heap<RegionBacking>, HeapRegion), OpenHeapError> {
    open_heap_on(region, options, |backing| backing)
}

/// As [`open_heap_with`], on a backing that is made from the region's.
///
/// # Errors
/// As [`open_heap_with`].
pub fn open_heap_on<B: Backing>(
    region: Region,
    options: HeapOptions,
    wrap: impl FnOnce(RegionBacking) -> B,
) -> Result<(Heap<B>, HeapRegion), OpenHeapError> {
    let mut shared = HeapRegion::new(region, options);
    let opened = try_open(&mut shared, wrap);
    match opened {
        Ok(heap) => Ok((heap, shared)),
        Err(error) => {
            // The reason why it cannot be opened says more than why it could not be closed.
            let _ = shared.close();
            Err(error)
        }
    }
}

fn try_open<B: Backing>(
    shared: &mut HeapRegion,
    wrap: impl FnOnce(RegionBacking) -> B,
) -> Result<Heap<B>, OpenHeapError> {
    if shared.is_ordered() {
        shared.with(Region::promise_order)?;
    }
    let base = match shared.with(Region::map_native) {
        // No pointer leads to its own address.
        Err(RegionError::AddressTaken { .. }) if shared.0.portable => {
            shared.with(Region::map_anywhere)?
        }
        mapped => mapped?,
    };
    let pointers = pointers_of(shared);
    let backing = wrap(RegionBacking::new(base, shared.clone()));
    Ok(Heap::open(backing, OpenOptions { pointers: Some(pointers), format_if_empty: true })?)
}

/// As [`open_heap`], for a program that keeps no pointers in the heap and follows none: a heap with
/// pointers of any kind is as good as another, be it an applet's. A new one becomes a portable
/// one, for programs of every kind. A region whose address is taken, such as by another reader in
/// this process, is mapped at another one.
///
/// # Errors
/// As [`open_heap`], but never for pointers of another kind, nor for an address that is taken.
pub fn open_data_heap(region: Region) -> Result<(Heap<RegionBacking>, HeapRegion), OpenHeapError> {
    open_data_heap_with(region, HeapOptions { portable: true, ..HeapOptions::default() })
}

/// As [`open_data_heap`], where a new heap becomes what the options say. One that is to hold
/// pointers is open for writing at its own address only.
///
/// # Errors
/// As [`open_data_heap`]; `AddressTaken`.
pub fn open_data_heap_with(
    region: Region,
    options: HeapOptions,
) -> Result<(Heap<RegionBacking>, HeapRegion), OpenHeapError> {
    let mut shared = HeapRegion::new(region, options);
    let opened = match try_open(&mut shared, |backing| backing) {
        Err(OpenHeapError::Heap(
            OpenError::PointerMismatch { .. } | OpenError::Portable | OpenError::NotPortable { .. },
        )) => reopen_data_heap(&shared),
        Err(OpenHeapError::Region(RegionError::AddressTaken { .. }))
            if shared.with(|region| region.is_read_only()) =>
        {
            let mapped = shared.with(Region::map_anywhere);
            mapped.map_err(OpenHeapError::from).and_then(|_| reopen_data_heap(&shared))
        }
        other => other,
    };
    match opened {
        Ok(heap) => Ok((heap, shared)),
        Err(error) => {
            // As in `open_heap_on`.
            let _ = shared.close();
            Err(error)
        }
    }
}

/// On a region that is mapped already.
fn reopen_data_heap(shared: &HeapRegion) -> Result<Heap<RegionBacking>, OpenHeapError> {
    let base = shared.with(|region| region.mapping()).ok_or(RegionError::AlreadyMapped)?;
    let backing = RegionBacking::new(base, shared.clone());
    Ok(Heap::open(backing, OpenOptions { pointers: None, format_if_empty: false })?)
}

/// The pointers that a program keeps in a heap on this region.
fn pointers_of(region: &HeapRegion) -> Pointers {
    if region.0.portable {
        return Pointers::PORTABLE;
    }
    Pointers { base: region.with(|region| region.address()), bytes: size_of::<usize>() as u32 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_heap::{GrowError, HeapError};
    use holdfast_region::{Consistency, NameSpace, Opened, OwnerKey, Places, RegionName};

    fn scratch() -> (tempfile::TempDir, NameSpace, OwnerKey, RegionName) {
        let directory = tempfile::tempdir().unwrap();
        let places =
            Places::at(directory.path().join("home"), directory.path().join("pool")).unwrap();
        let name = RegionName::parse("heap").unwrap();
        (directory, NameSpace::new(places), OwnerKey::from_bytes([7; 32]), name)
    }

    /// A heap grows in its region and is there again at the same address.
    #[test]
    fn heap_grows_and_returns_to_its_address() {
        let (_directory, names, key, name) = scratch();
        let (mut heap, region) = open_heap(names.create(&name, &key, 64 << 20).unwrap()).unwrap();
        let root = heap.create_root("large", 20 << 20).unwrap();
        // SAFETY: the root has this many bytes, and nothing else refers to it.
        #[allow(unsafe_code)]
        unsafe {
            root.as_ptr().write_bytes(9, 20 << 20);
        };
        assert!(region.with(|region| region.backed_bytes()) > 20 << 20);
        drop(heap.close());
        assert!(!region.close().unwrap().checkpoint.skipped);
        let region = names.open(&name, &key).unwrap();
        assert_eq!(region.opened(), Opened::Warm);
        let (heap, region) = open_heap(region).unwrap();
        assert_eq!(heap.root("large").unwrap().pointer, root);
        drop(heap.close());
        assert!(region.close().unwrap().checkpoint.skipped);
    }

    /// The second reader was refused: the address was taken by "another heap", which was the same
    /// one.
    #[test]
    fn readers_of_one_heap_share_a_process() {
        let (_directory, names, key, name) = scratch();
        let (mut heap, region) =
            open_data_heap(names.create(&name, &key, 64 << 20).unwrap()).unwrap();
        heap.create_root("kept", 64).unwrap();
        drop(heap.close());
        region.close().unwrap();
        let readers: Vec<_> = (0..3)
            .map(|_| open_data_heap(names.open_read_only(&name, &key).unwrap()).unwrap())
            .collect();
        let places: Vec<_> =
            readers.iter().map(|(heap, _)| heap.root("kept").unwrap().pointer).collect();
        assert!(places[0] != places[1] && places[1] != places[2] && places[0] != places[2]);
        // A program that follows pointers gets no copy at another address.
        let refused = open_heap(names.open_read_only(&name, &key).unwrap());
        assert!(matches!(refused, Err(OpenHeapError::Region(RegionError::AddressTaken { .. }))));
        for (heap, region) in readers {
            assert_eq!(heap.root("kept").map(|root| root.bytes), Some(64));
            drop(heap.close());
            region.close().unwrap();
        }
        let (heap, region) = open_data_heap(names.open(&name, &key).unwrap()).unwrap();
        drop(heap.close());
        region.close().unwrap();
    }

    /// A heap is ordered when it was asked for and the mode does not do it.
    ///
    /// Guarantee: heap/reset-ordered
    #[test]
    fn heap_is_ordered_only_on_request_and_outside_atomic() {
        let (_directory, names, key, name) = scratch();
        let ordered = HeapOptions { ordered: true, ..HeapOptions::default() };
        let (mut heap, region) =
            open_heap_with(names.create(&name, &key, 64 << 20).unwrap(), ordered).unwrap();
        assert!(heap.is_ordered());
        let root = heap.create_root("large", 20 << 20).unwrap();
        assert!(heap.is_ordered(), "it has grown");
        assert_eq!(heap.persist(root.as_ptr(), 20 << 20), Ok(()));
        drop(heap.close());
        region.close().unwrap();
        let (heap, region) = open_heap(names.open(&name, &key).unwrap()).unwrap();
        assert!(!heap.is_ordered());
        assert_eq!(heap.root("large").unwrap().pointer, root);
        drop(heap.close());
        region.close().unwrap();
        let mut region = names.open(&name, &key).unwrap();
        region.set_consistency(Consistency::Atomic).unwrap();
        let (heap, region) = open_heap_with(region, ordered).unwrap();
        assert!(!heap.is_ordered(), "the region publishes in its own order");
        drop(heap.close());
        region.close().unwrap();
    }

    /// A heap in a pool that outlives a reset has every commit after it.
    #[test]
    fn heap_in_reset_proof_pool_keeps_every_commit() {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let names = |boot| {
            let (home, pool) = (directory.path().join("home"), directory.path().join("pool"));
            NameSpace::new(Places::at_emulated_dax(home, pool, [boot; 16]).unwrap())
        };
        let (key, name) = (OwnerKey::from_bytes([7; 32]), RegionName::parse("heap").unwrap());
        let (mut heap, region) = open_heap(names(1).create(&name, &key, 8 << 20).unwrap()).unwrap();
        assert!(heap.is_ordered());
        heap.create_root("committed", 64).unwrap();
        region.commit(Durability::System).unwrap();
        heap.begin().unwrap();
        heap.create_root("unfinished", 64).unwrap();
        // The machine is reset.
        drop((heap, region));
        let region = names(2).open(&name, &key).unwrap();
        assert_eq!(region.opened(), Opened::WarmAfterReset);
        let (heap, region) = open_heap(region).unwrap();
        assert!(heap.root("committed").is_some() && heap.root("unfinished").is_none());
        drop(heap.close());
        region.close().unwrap();
    }

    /// An open heap uses a limit that was raised and keeps to one that was lowered.
    ///
    /// Guarantee: heap/limits
    #[test]
    fn open_heap_follows_raised_and_lowered_limits() {
        let (_directory, names, key, name) = scratch();
        let (mut heap, region) = open_heap(names.create(&name, &key, 8 << 20).unwrap()).unwrap();
        let first = heap.create_root("first", 64).unwrap();
        let refused = heap.create_root("large", 20 << 20).unwrap_err();
        let reached = HeapError::OutOfMemory {
            wanted_bytes: 20 << 20,
            cause: GrowError::LimitReached { limit_bytes: 8 << 20 },
        };
        assert_eq!(refused, reached);
        assert_eq!(region.set_limit(64 << 20).unwrap(), 64 << 20);
        heap.create_root("large", 20 << 20).unwrap();
        let size_bytes = region.with(|region| region.backed_bytes());
        region.set_limit(size_bytes).unwrap();
        assert!(region.set_limit(size_bytes - 1_000_000).is_err());
        assert!(matches!(heap.create_root("more", 40 << 20), Err(HeapError::OutOfMemory { .. })));
        drop(heap.close());
        region.close().unwrap();
        let (heap, region) = open_heap(names.open(&name, &key).unwrap()).unwrap();
        assert_eq!(
            (heap.root("first").unwrap().pointer, region.limit_bytes()),
            (first, size_bytes)
        );
        drop(heap.close());
        region.close().unwrap();
    }

    /// A heap with a limit within a segment is sound and uses all of a limit that is raised.
    ///
    /// Guarantee: heap/limits
    #[test]
    fn heap_with_odd_limit_uses_all_of_a_raised_one() {
        let (_directory, names, key, name) = scratch();
        let (mut heap, region) = open_heap(names.create(&name, &key, 6 << 20).unwrap()).unwrap();
        let fill = |heap: &mut Heap<_>| std::iter::from_fn(|| heap.alloc(60_000).ok()).count();
        let check = || {
            let reader = names.open_read(&name).unwrap();
            let mut findings = Vec::new();
            holdfast_heap::check(reader.bytes(), &mut |finding| findings.push(finding));
            assert_eq!(findings, []);
        };
        // 96 chunks, of which two are tables and one is the log.
        assert_eq!(fill(&mut heap), 93);
        // While the heap is open, and at rest.
        region.set_limit(7 << 20).unwrap();
        assert_eq!(fill(&mut heap), 16);
        drop(heap.close());
        region.close().unwrap();
        check();
        names.set_limit(&name, &key, 16 << 20).unwrap();
        let (mut heap, region) = open_heap(names.open(&name, &key).unwrap()).unwrap();
        assert_eq!(fill(&mut heap), 256 - 112 - 2);
        drop(heap.close());
        region.close().unwrap();
        check();
    }

    /// Guarantee: programs/errors
    #[test]
    fn a_heap_of_an_applet_is_refused_and_left_as_it_was() {
        let (_directory, names, key, name) = scratch();
        let mut region = names.create(&name, &key, 8 << 20).unwrap();
        let base = region.map_native().unwrap();
        let shared = HeapRegion::new(region, HeapOptions::default());
        let pointers = Some(Pointers { base: 1 << 31, bytes: 4 });
        let options = OpenOptions { pointers, format_if_empty: true };
        drop(Heap::open(RegionBacking::new(base, shared.clone()), options).unwrap().close());
        shared.close().unwrap();
        let refused = open_heap(names.open(&name, &key).unwrap()).err().unwrap();
        assert!(
            matches!(refused, OpenHeapError::Heap(OpenError::PointerMismatch { .. })),
            "{refused}"
        );
        assert_eq!(
            names.open(&name, &key).unwrap().opened(),
            Opened::Warm,
            "it was closed in order"
        );
    }
}
