//! Several threads on one heap: no object belongs to two, none is lost, and a kill of all of them
//! at any instruction leaves each object allocated or not.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]
// An applet has neither threads nor processes: `handles` tests what is left, and the tests of the
// command kill applets.
#![cfg(not(target_family = "wasm"))]

mod common;

use std::fs::{File, OpenOptions};
use std::path::Path;
use std::process::{Command, Stdio};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{Dice, OPTIONS, TestMemory, assert_sound, open, share, share_with_barrier};
use holdfast_heap::{Backing, GrowError, Handle, Heap, HeapError, SharedHeap, check};

const THREADS: usize = 4;
/// Slabs that are common from the start, and such as become so when another thread frees there.
const SHARES: [fn(Heap<TestMemory>) -> SharedHeap<TestMemory>; 2] = [share, share_with_barrier];

/// An object as the thread remembers it; sendable, because the threads pass objects on.
#[derive(Clone, Copy)]
struct Object {
    address: usize,
    bytes: u64,
    mark: u8,
}

impl Object {
    fn pointer(&self) -> NonNull<u8> {
        NonNull::new(self.address as *mut u8).unwrap()
    }

    fn fill(&self) {
        // SAFETY: the object is this thread's and has that many bytes.
        unsafe { self.pointer().as_ptr().write_bytes(self.mark, self.bytes as usize) };
    }

    fn holds(&self, bytes: u64) -> bool {
        // SAFETY: as above.
        let content =
            unsafe { std::slice::from_raw_parts(self.pointer().as_ptr(), bytes as usize) };
        content.iter().all(|byte| *byte == self.mark)
    }
}

fn work(
    handle: &mut Handle<TestMemory>,
    thread: u64,
    passed_on: &Mutex<Vec<Object>>,
) -> Vec<Object> {
    let mut dice = Dice(thread + 1);
    let mut objects: Vec<Object> = Vec::new();
    for step in 0..100_000_u64 {
        let mark = (step * 4 + thread) as u8;
        let pick = dice.below(objects.len().max(1) as u64) as usize;
        match dice.below(100) {
            0..47 if objects.len() < 2000 => {
                let bytes = dice.bytes();
                let address = handle.alloc(bytes).unwrap().as_ptr() as usize;
                let object = Object { address, bytes, mark };
                object.fill();
                objects.push(object);
            }
            47..55 if !objects.is_empty() => {
                let old = objects[pick];
                let bytes = dice.bytes();
                let moved = handle.realloc(old.pointer(), bytes).unwrap();
                let object = Object { address: moved.as_ptr() as usize, bytes, mark };
                assert!(
                    Object { mark: old.mark, ..object }.holds(bytes.min(old.bytes)),
                    "content lost"
                );
                object.fill();
                objects[pick] = object;
            }
            // Another thread will free it.
            55..60 if !objects.is_empty() => {
                passed_on.lock().unwrap().push(objects.swap_remove(pick))
            }
            60..65 => {
                let Some(object) = passed_on.lock().unwrap().pop() else { continue };
                assert!(object.holds(object.bytes), "somebody else's object changed");
                handle.free(object.pointer()).unwrap();
            }
            _ if !objects.is_empty() => {
                let object = objects.swap_remove(pick);
                assert!(object.holds(object.bytes), "two threads have the same bytes");
                handle.free(object.pointer()).unwrap();
            }
            _ => {}
        }
    }
    objects
}

/// Guarantee: heap/threads
#[test]
fn four_threads_never_share_an_object_and_lose_none() {
    for share in SHARES {
        four_threads(share(open(TestMemory::new(256 << 20))));
    }
}

fn four_threads(shared: SharedHeap<TestMemory>) {
    let passed_on = Mutex::new(Vec::new());
    let mut objects: Vec<Object> = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS as u64)
            .map(|thread| {
                let (mut handle, passed_on) = (shared.handle(), &passed_on);
                scope.spawn(move || work(&mut handle, thread, passed_on))
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    objects.extend(passed_on.into_inner().unwrap());
    objects.sort_by_key(|object| object.address);
    assert!(objects.iter().all(|object| object.holds(object.bytes)));
    let apart = |pair: &[Object]| pair[0].address as u64 + pair[0].bytes <= pair[1].address as u64;
    assert!(objects.windows(2).all(apart), "objects overlap");
    let Ok(mut heap) = shared.into_heap() else { panic!("a handle is left") };
    assert_eq!(assert_sound(heap.backing().bytes(), "four threads").objects, objects.len() as u64);
    for object in &objects {
        heap.free(object.pointer()).unwrap();
        assert_eq!(heap.free(object.pointer()), Err(HeapError::NotAllocated));
    }
    assert_eq!(assert_sound(heap.backing().bytes(), "all freed").objects, 0);
}

/// Guarantee: heap/threads
#[test]
fn no_bit_is_lost_that_two_threads_change_in_one_word() {
    for share in SHARES {
        two_threads(share(open(TestMemory::new(16 << 20))));
    }
}

fn two_threads(shared: SharedHeap<TestMemory>) {
    const OBJECTS: usize = 1_000_000;
    // A short ring without a lock: objects are freed in the very moment in which their neighbours
    // are allocated.
    let ring: [AtomicUsize; 32] = Default::default();
    let wait = |slot: &AtomicUsize, empty: bool| {
        let mut turns = 0_u32;
        while (slot.load(Ordering::Acquire) == 0) != empty {
            turns += 1;
            if turns.is_multiple_of(1000) { thread::yield_now() } else { std::hint::spin_loop() }
        }
    };
    let (mut one, mut two) = (shared.handle(), shared.handle());
    thread::scope(|scope| {
        scope.spawn(|| {
            for slot in ring.iter().cycle().take(OBJECTS) {
                wait(slot, true);
                slot.store(one.alloc(64).unwrap().as_ptr() as usize, Ordering::Release);
            }
        });
        scope.spawn(|| {
            for slot in ring.iter().cycle().take(OBJECTS) {
                wait(slot, false);
                let object = slot.swap(0, Ordering::AcqRel) as *mut u8;
                two.free(NonNull::new(object).unwrap()).unwrap();
            }
        });
    });
    drop((one, two));
    let heap = shared.into_heap().ok().unwrap();
    assert_eq!(assert_sound(heap.backing().bytes(), "all freed").objects, 0);
}

/// A file that two processes map in turn.
struct MappedFile {
    base: *mut u8,
    bytes: u64,
}

impl MappedFile {
    const BYTES: u64 = 32 << 20;

    fn map(file: &File) -> MappedFile {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at a place of the kernel's choice.
        let base = unsafe {
            mmap(std::ptr::null_mut(), Self::BYTES as usize, protection, MapFlags::SHARED, file, 0)
                .unwrap()
        };
        MappedFile { base: base.cast(), bytes: Self::BYTES }
    }
}

impl Drop for MappedFile {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`; nothing refers to it any more.
        unsafe { rustix::mm::munmap(self.base.cast(), self.bytes as usize).unwrap() };
    }
}

// SAFETY: one mapping of the whole file, which stays until it is dropped.
unsafe impl Backing for MappedFile {
    fn base(&self) -> *mut u8 {
        self.base
    }

    fn backed_bytes(&self) -> u64 {
        self.bytes
    }

    fn limit_bytes(&self) -> u64 {
        self.bytes
    }

    fn grow(&mut self, _bytes: u64) -> Result<u64, GrowError> {
        Err(GrowError::LimitReached { limit_bytes: self.bytes })
    }
}

// SAFETY: a mapping may be used from any thread.
unsafe impl Send for MappedFile {}

/// How many objects each thread links to.
const LINKS: usize = 200;

/// Allocates, links, unlinks and frees until it is killed; each object holds its own offset and
/// size.
fn churn(handle: &mut Handle<MappedFile>, links: usize, seed: u64, until: Instant) {
    let base = handle.with_heap(|heap| heap.backing().base() as usize);
    let mut dice = Dice(seed);
    // SAFETY: the root has that many words, and only this thread uses it.
    let link = |index: u64| unsafe { &*(links as *const AtomicU64).add(index as usize) };
    let order = Ordering::SeqCst;
    while Instant::now() < until {
        let link = link(dice.below(LINKS as u64));
        match link.load(order) {
            0 => {
                let bytes = dice.bytes().max(16);
                let object = handle.alloc(bytes).unwrap();
                let offset = (object.as_ptr() as usize - base) as u64;
                // SAFETY: at least sixteen bytes, aligned to 16.
                unsafe { object.cast::<[u64; 2]>().write([offset, bytes]) };
                link.store(offset, order);
            }
            offset => {
                link.store(0, order);
                handle.free(NonNull::new((base + offset as usize) as *mut u8).unwrap()).unwrap();
            }
        }
    }
}

/// What the child does until its parent kills it.
fn child(path: &Path, until: Instant) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut heap = Heap::open(MappedFile::map(&file), OPTIONS).unwrap();
    let mut roots = Vec::new();
    for thread in 0..THREADS {
        let name = format!("links {thread}");
        let root = heap.root(&name).map(|root| root.pointer);
        let root = root.unwrap_or_else(|| heap.create_root(&name, LINKS as u64 * 8).unwrap());
        roots.push(root.as_ptr() as usize);
    }
    let shared = share_with_barrier(heap);
    thread::scope(|scope| {
        for (thread, links) in roots.into_iter().enumerate() {
            let mut handle = shared.handle();
            let seed = u64::from(std::process::id()) * 8 + thread as u64;
            scope.spawn(move || churn(&mut handle, links, seed, until));
        }
    });
}

/// A kill of four threads leaves every object allocated or not.
///
/// Guarantee: heap/kill-any-instruction
/// Guarantee: heap/threads
#[test]
fn killed_threads_leave_objects_allocated_or_free() {
    const FILE: &str = "HOLDFAST_TEST_SHARED_HEAP";
    if let Some(path) = std::env::var_os(FILE) {
        // An orphan ends by itself.
        return child(Path::new(&path), Instant::now() + Duration::from_secs(10));
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(MappedFile::BYTES).unwrap();
    let mut linked = 0;
    for round in 0..10 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "killed_threads_leave_objects_allocated_or_free"])
            .env(FILE, file.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(60 + round * 23));
        victim.kill().unwrap();
        assert_eq!(
            victim.wait().unwrap().code(),
            None,
            "round {round}: it ended before it was killed"
        );
        let mapped = MappedFile::map(file.as_file());
        let Ok(heap) = Heap::open(mapped, OPTIONS) else {
            panic!("round {round}: the heap does not open")
        };
        linked = expect_whole(&heap, round);
    }
    assert!(linked > 0, "the child never came to link anything");
}

/// Every linked object is allocated and its own; at most one object of each thread and round is not
/// linked.
fn expect_whole(heap: &Heap<MappedFile>, round: u64) -> u64 {
    // SAFETY: nothing else maps the file now.
    let bytes =
        unsafe { std::slice::from_raw_parts(heap.backing().base(), MappedFile::BYTES as usize) };
    let mut findings = Vec::new();
    let report = check(bytes, &mut |finding| findings.push(finding));
    assert!(report.is_sound(), "round {round}: {findings:#x?}");
    let word = |at: u64| u64::from_le_bytes(*bytes[at as usize..].first_chunk().unwrap());
    let mut linked = 0;
    for (_, root) in heap.roots() {
        let links = heap.offset_of(root.pointer).unwrap();
        for link in (0..LINKS as u64).map(|index| word(links + index * 8)).filter(|link| *link != 0)
        {
            linked += 1;
            let object = NonNull::new(heap.backing().base().wrapping_add(link as usize)).unwrap();
            let usable = heap.usable_bytes(object).unwrap_or(0);
            assert_eq!(word(link), link, "round {round}: a linked object was given away");
            assert!(usable >= word(link + 8), "round {round}: a linked object is not allocated");
        }
    }
    // The table, and an entry and an object for each root.
    let own = if report.roots == 0 { 0 } else { 1 + 2 * report.roots };
    let in_flight = (round + 1) * THREADS as u64;
    assert!(
        report.objects <= linked + own + in_flight && report.objects >= linked + own,
        "round {round}: {} objects for {linked} links",
        report.objects
    );
    linked
}
