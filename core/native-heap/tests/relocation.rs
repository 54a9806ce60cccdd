//! A heap whose address is taken: moved, if every object has a type, in one step that a kill cannot
//! split; else refused with the reason.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(unsafe_code, reason = "heaps are followed by pointers")]

use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use holdfast_heap::{Described, Heap, Link, RelocationError, typed};
use holdfast_native_heap::{OpenHeapError, RegionBacking, open_heap, open_typed_heap};
use holdfast_region::{
    KernelStorage, NameSpace, Opened, OwnerKey, Places, Region, RegionName, Storage,
};
use tempfile::TempDir;

typed! { struct List: 1 { count: u64, first: Link<Node> } }
typed! { struct Node: 1 { next: Link<Node>, value: u64 } }

const NODES: u64 = 500;
/// More steps than a relocation with its commit has.
const STEPS_MAX: i64 = 200;

/// Dies in a step: it and all after it fail, half of a write done.
#[derive(Debug)]
struct Dying(AtomicI64);

impl Dying {
    fn step(&self) -> io::Result<()> {
        let left = self.0.fetch_sub(1, Ordering::SeqCst);
        if left > 0 { Ok(()) } else { Err(io::Error::other("the process is as good as dead")) }
    }
}

impl Storage for Dying {
    fn create(&self, path: &Path) -> io::Result<File> {
        self.step()?;
        KernelStorage.create(path)
    }
    fn allocate(&self, file: &File, range: Range<u64>) -> io::Result<()> {
        self.step()?;
        KernelStorage.allocate(file, range)
    }
    fn set_len(&self, file: &File, len_bytes: u64) -> io::Result<()> {
        self.step()?;
        KernelStorage.set_len(file, len_bytes)
    }
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let alive = self.step();
        if alive.is_err() && self.0.load(Ordering::SeqCst) == -1 {
            let _ = KernelStorage.write_at(file, &bytes[..bytes.len() / 2], offset);
        }
        alive.and_then(|()| KernelStorage.write_at(file, bytes, offset))
    }
    fn sync(&self, _: &File) -> io::Result<()> {
        self.step()
    }
    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        self.step()
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.step()?;
        KernelStorage.rename(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.step()?;
        KernelStorage.remove(path)
    }
    fn available_bytes(&self, path: &Path) -> io::Result<u64> {
        KernelStorage.available_bytes(path)
    }
}

struct Home(TempDir);

impl Home {
    fn new() -> Home {
        Home(tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap())
    }

    fn names(&self, storage: impl Storage + 'static) -> NameSpace {
        let places = Places::at(self.0.path().join("home"), self.0.path().join("pool")).unwrap();
        NameSpace::with_storage(places, Arc::new(storage))
    }

    fn open(&self) -> Region {
        self.names(KernelStorage).open(&name(), &key()).unwrap()
    }

    /// A home with the same files, so with a heap of the same address.
    fn copy(&self) -> Home {
        let copy = Home::new();
        copy.names(KernelStorage);
        for directory in ["home/store", "pool"] {
            for entry in std::fs::read_dir(self.0.path().join(directory)).unwrap() {
                let entry = entry.unwrap();
                // The pool of the copy has its own owner: a link.
                if entry.file_type().unwrap().is_file() {
                    let target = copy.0.path().join(directory).join(entry.file_name());
                    std::fs::copy(entry.path(), target).unwrap();
                }
            }
        }
        copy
    }
}

fn name() -> RegionName {
    RegionName::parse("heap").unwrap()
}

fn key() -> OwnerKey {
    OwnerKey::from_bytes([7; 32])
}

fn types() -> [Described; 1] {
    [Described::of::<List>()]
}

/// A home with a heap of a linked list.
fn with_list() -> Home {
    let home = Home::new();
    let region = home.names(KernelStorage).create(&name(), &key(), 8 << 20).unwrap();
    let (mut heap, region) = open_heap(region).unwrap();
    let root = heap.create_root_typed::<List>("list").unwrap();
    let mut first = Link::null();
    for value in 0..NODES {
        let node = heap.alloc(size_of::<Node>() as u64).unwrap().cast::<Node>();
        // SAFETY: allocated just now with this size.
        unsafe { node.write(Node { next: first, value }) };
        first = Link::to(node);
    }
    // SAFETY: the root is a `List`.
    unsafe { root.write(List { count: NODES, first }) };
    drop(heap.close());
    region.close().unwrap();
    home
}

/// Follows the list; every node must lie in this heap.
fn verify(heap: &Heap<RegionBacking>) {
    // SAFETY: each pointer is checked to lie in the heap before it is followed.
    unsafe {
        let list = heap.root_typed::<List>("list").unwrap().unwrap().read();
        let mut node = list.first;
        for value in (0..list.count).rev() {
            let at = node.target().unwrap();
            assert!(heap.offset_of(at.cast()).is_some(), "a pointer leads out of the heap");
            assert_eq!(at.read().value, value);
            node = at.read().next;
        }
        assert_eq!((list.count, node), (NODES, Link::null()));
    }
}

/// A typed heap whose address is taken is moved and keeps its new address.
///
/// Guarantee: heap/relocation
#[test]
fn typed_heap_moves_and_keeps_its_new_address() {
    let home = with_list();
    let other = home.copy();
    let (squatter, squatting) = open_heap(other.open()).unwrap();
    let from = squatting.with(|region| region.address());
    let (heap, region, moved) = open_typed_heap(home.open(), &types()).unwrap();
    let moved = moved.unwrap();
    assert_eq!((moved.from, moved.rewritten.pointers), (from, NODES));
    assert_eq!(region.with(|region| region.address()), moved.to);
    verify(&heap);
    verify(&squatter);
    drop(heap.close());
    assert!(!region.close().unwrap().checkpoint.skipped, "the store has the old pointers");
    // From the image and from the store, by programs that know nothing of types.
    for opened in [Opened::Warm, Opened::Cold] {
        let region = home.open();
        assert_eq!((region.opened(), region.address()), (opened, moved.to));
        let (heap, region) = open_heap(region).unwrap();
        verify(&heap);
        drop(heap.close());
        region.close().unwrap();
        home.names(KernelStorage).remove_image(&name(), &key()).unwrap();
    }
    drop((squatter, squatting));
    let (heap, _region, moved) = open_typed_heap(home.open(), &types()).unwrap();
    assert_eq!(moved, None, "moved without need");
    verify(&heap);
}

/// A heap with an object without a type stays and the error says what sits there and why.
///
/// Guarantee: heap/relocation
#[test]
fn untyped_object_prevents_relocation_with_a_reason() {
    let home = with_list();
    let (mut heap, region) = open_heap(home.open()).unwrap();
    heap.create_root("plain", 100).unwrap();
    drop(heap.close());
    region.close().unwrap();
    let other = home.copy();
    let squatter = open_heap(other.open()).unwrap();
    let error = open_typed_heap(home.open(), &types()).err().unwrap();
    let OpenHeapError::NotRelocatable { reason, .. } = &error else { panic!("{error}") };
    assert_eq!(*reason, RelocationError::UntypedRoot { name: "plain".to_owned() });
    let text = error.to_string();
    assert!(
        text.contains("another heap that this process has open") && text.contains("adopt_root"),
        "{text}"
    );
    assert!(matches!(open_heap(home.open()), Err(OpenHeapError::Region(_))));
    drop(squatter);
    let region = home.open();
    assert_eq!(region.opened(), Opened::Warm, "it was left as it was");
    verify(&open_heap(region).unwrap().0);
}

/// A relocation that dies in any step is done again and every pointer is whole.
///
/// Guarantee: heap/relocation
#[test]
fn killed_relocation_is_repeated_with_whole_pointers() {
    let template = with_list();
    let other = template.copy();
    for step in 0.. {
        assert!(step < STEPS_MAX, "the relocation never comes through");
        let mut squatter = Some(open_heap(other.open()).unwrap());
        let home = template.copy();
        let storage = Dying(AtomicI64::new(step));
        let died = (|| {
            let region = home.names(storage).open(&name(), &key()).ok()?;
            let (heap, region, _) = open_typed_heap(region, &types()).ok()?;
            drop(heap.close());
            region.close().ok()
        })()
        .is_none();
        // Also when the pool is lost on top of it: then the store must be consistent with itself.
        // And when the old address is free again: the pointers may be for the new one already.
        for (lose_pool, free) in [(false, false), (true, false), (false, true), (true, true)] {
            let home = home.copy();
            if free && let Some((heap, region)) = squatter.take() {
                drop(heap.close());
                region.close().unwrap();
            }
            if lose_pool {
                home.names(KernelStorage).remove_image(&name(), &key()).unwrap();
            }
            let (heap, region, _) = open_typed_heap(home.open(), &types())
                .unwrap_or_else(|error| panic!("step {step}, pool lost: {lose_pool}: {error}"));
            verify(&heap);
            drop(heap.close());
            region.close().unwrap();
            verify(&open_heap(home.open()).unwrap().0);
        }
        if !died {
            assert!(step > 10, "the relocation has hardly a step");
            break;
        }
    }
}
