//! Any sequence of calls against a model: objects do not overlap and keep their bytes, roots are
//! found, transactions are all or nothing, and a process that ends anywhere leaves a heap that
//! opens and is sound.

#![no_main]

use std::collections::BTreeMap;
use std::ptr::NonNull;

use holdfast_fuzz::POINTERS;
use holdfast_heap::{Backing, Heap, HeapError, check};
use holdfast_testkit::TestMemory;
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

/// Most heaps are small, because each run makes and copies one; some have room for objects of whole
/// segments.
const SMALL_BYTES: u64 = 1 << 20;
const LARGE_BYTES: u64 = 13 << 20;
const LARGE_ONE_IN: u8 = 16;
const STEPS_MAX: usize = 100;

#[derive(Arbitrary, Debug)]
enum Step {
    Alloc(Size),
    AllocAligned(Size, u8),
    Free(u8),
    Realloc(u8, Size),
    CreateRoot(u8, u16),
    RemoveRoot(u8),
    Fill(u8, u8),
    Begin,
    Commit,
    Abort,
    Kill,
}

#[derive(Arbitrary, Debug)]
enum Size {
    Small(u8),
    Medium(u16),
    /// Chunks of 64 KiB.
    Large(u8),
}

impl Size {
    fn bytes(&self) -> u64 {
        match self {
            Size::Small(bytes) => u64::from(*bytes),
            Size::Medium(bytes) => u64::from(*bytes),
            Size::Large(chunks) => {
                u64::from(chunks % 80) * 65_536 - u64::from(chunks % 80 > 0) * 100
            }
        }
    }
}

/// An object: bytes that were asked for, and the byte that its first and last 64 are filled with.
type Objects = BTreeMap<u64, (u64, u8)>;

#[derive(Clone, Default)]
struct Model {
    objects: Objects,
    /// Object and size of each root; zeroed, never filled.
    roots: BTreeMap<u8, (u64, u64)>,
}

struct Run {
    heap: Heap<TestMemory>,
    now: Model,
    /// The state before the open transaction.
    before: Option<Model>,
    seed: u8,
}

fn at(heap: &Heap<TestMemory>, offset: u64) -> NonNull<u8> {
    NonNull::new(heap.backing().base().wrapping_add(offset as usize)).expect("a base")
}

/// The ranges of an object that are filled and looked at.
fn edges(bytes: u64) -> [(u64, u64); 2] {
    let edge = bytes.min(64);
    [(0, edge), (bytes - edge, edge)]
}

impl Run {
    fn fill(&self, offset: u64, bytes: u64, seed: u8) {
        for (start, length) in edges(bytes) {
            // SAFETY: inside an allocated object.
            unsafe { at(&self.heap, offset + start).as_ptr().write_bytes(seed, length as usize) };
        }
    }

    fn pick(&self, pick: u8) -> Option<u64> {
        let count = self.now.objects.len();
        self.now.objects.keys().nth(usize::from(pick) % count.max(1)).copied()
    }

    fn added(&mut self, pointer: Result<NonNull<u8>, HeapError>, bytes: u64) {
        let Ok(pointer) = pointer else { return };
        let offset = self.heap.offset_of(pointer).expect("inside the heap");
        assert!(self.heap.usable_bytes(pointer).expect("allocated") >= bytes);
        self.seed = self.seed.wrapping_add(1);
        self.fill(offset, bytes, self.seed);
        assert!(self.now.objects.insert(offset, (bytes, self.seed)).is_none());
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Alloc(size) => {
                let pointer = self.heap.alloc(size.bytes());
                self.added(pointer, size.bytes());
            }
            Step::AllocAligned(size, power) => {
                let pointer = self.heap.alloc_aligned(size.bytes(), 1 << (power % 22));
                if let Ok(pointer) = pointer {
                    assert!((pointer.as_ptr() as usize).is_multiple_of(1 << (power % 22)));
                }
                self.added(pointer, size.bytes());
            }
            Step::Free(pick) => {
                let Some(offset) = self.pick(*pick) else { return };
                self.heap.free(at(&self.heap, offset)).expect("it is allocated");
                self.now.objects.remove(&offset);
            }
            // In a transaction the old bytes would have to be announced to be brought back.
            Step::Realloc(pick, size) if !self.heap.in_transaction() => {
                let Some(offset) = self.pick(*pick) else { return };
                let Ok(pointer) = self.heap.realloc(at(&self.heap, offset), size.bytes()) else {
                    return;
                };
                self.now.objects.remove(&offset);
                self.added(Ok(pointer), size.bytes());
            }
            Step::CreateRoot(name, bytes) => {
                let made = self.heap.create_root(&format!("root {name}"), u64::from(*bytes));
                match made {
                    Ok(pointer) => {
                        let offset = self.heap.offset_of(pointer).expect("inside the heap");
                        let known = self.now.roots.insert(*name, (offset, u64::from(*bytes)));
                        assert!(known.is_none());
                    }
                    Err(HeapError::NameTaken) => assert!(self.now.roots.contains_key(name)),
                    Err(_) => {}
                }
            }
            Step::RemoveRoot(name) => {
                let removed = self.heap.remove_root(&format!("root {name}"));
                assert_eq!(removed.is_ok(), self.now.roots.remove(name).is_some());
            }
            Step::Fill(pick, seed) => {
                let Some(offset) = self.pick(*pick) else { return };
                let bytes = self.now.objects[&offset].0;
                if self.heap.in_transaction() {
                    for (start, length) in edges(bytes) {
                        let pointer = at(&self.heap, offset + start);
                        if self.heap.add_range(pointer.as_ptr(), length).is_err() {
                            return;
                        }
                    }
                }
                self.fill(offset, bytes, *seed);
                self.now.objects.insert(offset, (bytes, *seed));
            }
            Step::Begin if !self.heap.in_transaction() => {
                self.heap.begin().expect("none is open");
                self.before = Some(self.now.clone());
            }
            Step::Commit if self.heap.in_transaction() => {
                self.heap.commit().expect("one is open");
                self.before = None;
            }
            Step::Abort if self.heap.in_transaction() => {
                self.heap.abort().expect("one is open");
                self.now = self.before.take().expect("saved at its beginning");
            }
            Step::Kill => self.reopen(),
            Step::Begin | Step::Commit | Step::Abort | Step::Realloc(..) => {}
        }
    }

    /// The process is gone without a word.
    fn reopen(&mut self) {
        let image = self.heap.backing().copy();
        self.heap = Heap::open(image, POINTERS).expect("it opens");
        if let Some(before) = self.before.take() {
            self.now = before;
        }
        self.verify();
    }

    fn verify(&self) {
        let bytes = self.heap.backing().bytes();
        for (offset, (size, seed)) in &self.now.objects {
            for (start, length) in edges(*size) {
                let found = &bytes[(offset + start) as usize..][..length as usize];
                assert!(found.iter().all(|byte| byte == seed), "the object at {offset:#x} changed");
            }
        }
        for (name, (offset, size)) in &self.now.roots {
            let root = self.heap.root(&format!("root {name}")).expect("the root is there");
            assert_eq!((self.heap.offset_of(root.pointer), root.bytes), (Some(*offset), *size));
            assert!(bytes[*offset as usize..][..*size as usize].iter().all(|byte| *byte == 0));
        }
        assert_eq!(self.heap.roots().count(), self.now.roots.len());
        let mut findings = Vec::new();
        let report = check(bytes, &mut |finding| findings.push(finding));
        assert!(report.is_sound(), "{findings:#x?}");
    }
}

fuzz_target!(|input: (u8, Vec<Step>)| {
    let (size, steps) = input;
    let limit = if size % LARGE_ONE_IN == 1 { LARGE_BYTES } else { SMALL_BYTES };
    let heap = Heap::open(TestMemory::new(limit), POINTERS).expect("a new heap");
    let mut run = Run { heap, now: Model::default(), before: None, seed: 0 };
    steps.iter().take(STEPS_MAX).for_each(|step| run.step(step));
    run.reopen();
});
