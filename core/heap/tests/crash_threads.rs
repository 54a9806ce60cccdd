//! A thread commits, and at every single store of that another one allocates; the process is killed
//! there. Whatever the moment, what the other thread was given is still its own after the recovery.

#![allow(clippy::unwrap_used, reason = "a test ends where an expectation fails")]
// An applet has no threads.
#![cfg(not(target_family = "wasm"))]

mod common;

use std::ptr::NonNull;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use common::{TestMemory, assert_sound, at, open, share, share_with_barrier};
use holdfast_heap::{Backing, Handle, Heap, HeapError, SharedHeap, crash_points};

const LIMIT: u64 = 8 << 20;
const BYTES: u64 = 2048;
/// A slab of this class is one word of slots, all of which the other thread takes.
const SLOTS: usize = 32;
/// How long an answer may take that must come, and one that must not: then the other thread waits
/// for the lock.
const ANSWER: Duration = Duration::from_secs(20);
const NO_ANSWER: Duration = Duration::from_millis(30);

type Commit = fn(&mut Handle<TestMemory>, NonNull<u8>);
type Share = fn(Heap<TestMemory>) -> SharedHeap<TestMemory>;

/// An address that is sent between threads.
struct Place(NonNull<u8>);
// SAFETY: only its number is used.
unsafe impl Send for Place {}

/// What the other thread does when the commit is at one of its steps: gives an object of its own
/// back or not, and allocates two.
fn meanwhile(handle: &mut Handle<TestMemory>, own: Option<Place>, given: &Sender<u64>) {
    if let Some(own) = own {
        handle.free(own.0).unwrap();
    }
    for _ in 0..2 {
        let object = handle.alloc(BYTES).unwrap();
        // Nothing waits for it after the kill.
        let _ = given.send(object.as_ptr() as u64);
    }
}

/// Kills the process at this step of the commit, after the other thread did what it could. `None`
/// when the commit has no such step; else how many objects the other thread was given before the
/// kill.
fn kill_at(step: u64, commit: Commit, frees: bool, share: Share) -> Option<usize> {
    let shared = share(open(TestMemory::new(LIMIT)));
    let (mut one, mut other) = (shared.handle(), shared.handle());
    let objects: Vec<_> = (0..SLOTS).map(|_| other.alloc(BYTES).unwrap()).collect();
    let own = frees.then_some(Place(objects[6]));
    // A view of the same memory, whose owner is the shared heap.
    let (base, image) = one.with_heap(|heap| (heap.backing().base() as u64, heap.backing().copy()));
    let bytes = image.backed_bytes() as usize;
    let (started, start) = channel();
    let (answers, answered): (_, Receiver<u64>) = channel();
    let (images, killed) = channel();
    let found = thread::scope(|scope| {
        scope.spawn(move || {
            if start.recv().is_ok() {
                meanwhile(&mut other, own, &answers);
            }
        });
        crash_points::arm_meanwhile(step, move || {
            started.send(()).unwrap();
            let given: Vec<_> = [ANSWER, NO_ANSWER][usize::from(!frees)..]
                .iter()
                .map_while(|patience| answered.recv_timeout(*patience).ok())
                .collect();
            let mut image = image;
            // SAFETY: the heap has that many bytes; the one thread is here, the other has answered
            // or waits.
            let now = unsafe { std::slice::from_raw_parts(base as *const u8, bytes) };
            image.bytes_mut()[..bytes].copy_from_slice(now);
            images.send((given, image)).unwrap();
        });
        commit(&mut one, objects[5]);
        // What was not done is dropped with the sender: the other thread ends.
        crash_points::disarm();
        killed.recv().ok()
    });
    let (given, image) = found?;
    let heap = open(image);
    assert_sound(heap.backing().bytes(), &format!("killed at step {step}"));
    for object in &given {
        let usable = heap.usable_bytes(at(&heap, object - base));
        assert_eq!(usable, Ok(BYTES), "step {step}: the other thread's object is gone");
    }
    Some(given.len())
}

fn enumerate(commit: Commit) {
    for frees in [false, true] {
        let outcomes = |share| -> Vec<usize> {
            (0..).map_while(|step| kill_at(step, commit, frees, share)).collect()
        };
        let private = outcomes(share_with_barrier);
        // The commit has made its slab common: then the free waits, too.
        assert!(
            private.len() > 5 && private.iter().all(|given| *given <= usize::from(frees)),
            "{private:?}"
        );
        let outcomes = outcomes(share);
        // It waits with a full slab; what it frees itself it may take at once.
        assert!(
            outcomes.len() > 5 && outcomes.iter().all(|given| *given == usize::from(frees)),
            "{outcomes:?}"
        );
    }
}

/// What a commit frees is not anothers before no recovery can free it again.
///
/// Guarantee: heap/threads
#[test]
fn committed_free_is_reused_only_after_settling() {
    enumerate(|handle, object| {
        let done: Result<(), HeapError> = handle.transaction(|tx| tx.free(object));
        done.unwrap();
    });
}

/// What a resize moves away from is not anothers before no recovery can free it again.
///
/// Guarantee: heap/threads
#[test]
fn resized_space_is_reused_only_after_settling() {
    enumerate(|handle, object| _ = handle.realloc(object, 2 * BYTES + 900).unwrap());
}
