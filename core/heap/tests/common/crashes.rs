//! Dies at every single store of an operation, and at every store of the recovery from that.

use holdfast_heap::{Backing, Fixed, Heap, OpenOptions};

use super::kill::{Left, killed_at};
use super::{TestMemory, assert_sound, open};

/// Limits of the heaps that die: every crash point copies the heap a few times.
pub const SMALL: u64 = 1 << 20;
pub const LARGE: u64 = 20 << 20;

pub type Operation = fn(&mut Heap<TestMemory>);
/// What an observer sees of the heap: must be the state before or after the operation.
pub type Observe = fn(&Heap<TestMemory>) -> Vec<u8>;

/// Runs `operation` on copies of the prepared heap, dying at each step of it, and at each step of
/// the recovery. Returns how many crash points were tried.
pub fn enumerate(limit: u64, prepare: Operation, operation: Operation, observe: Observe) -> u64 {
    let mut heap = open(TestMemory::new(limit));
    prepare(&mut heap);
    enumerate_from(&heap.close(), operation, observe)
}

pub fn enumerate_from(prepared: &TestMemory, operation: Operation, observe: Observe) -> u64 {
    let reopened = |memory: &TestMemory| open(memory.copy());
    let before = observe(&reopened(prepared));
    let mut complete = reopened(prepared);
    operation(&mut complete);
    let complete = complete.close();
    let after = observe(&reopened(&complete));

    let mut tried = 0;
    for step in 0.. {
        let mut victim = reopened(prepared);
        let dead = killed_at(step, Left::of(victim.backing()), || operation(&mut victim));
        let left = victim.backing().copy();
        drop(victim);
        for recovery_step in 0.. {
            let image = left.copy();
            let died_again = killed_at(recovery_step, Left::of(&image), || recover(&image));
            let heap = open(image);
            let context = format!("step {step}, recovery step {recovery_step}");
            assert_sound(heap.backing().bytes(), &context);
            let seen = observe(&heap);
            assert!(seen == before || seen == after, "{context}: neither before nor after");
            tried += 1;
            if !died_again {
                break;
            }
        }
        if !dead {
            return tried;
        }
    }
    unreachable!("the loop ends when the operation was not killed");
}

/// Opens (and so recovers) a heap on the image's own memory, which outlives a kill in between.
fn recover(image: &TestMemory) {
    // SAFETY: the image's memory is used by nothing else while this runs.
    let fixed = unsafe { Fixed::new(image.base(), image.backed_bytes()) };
    Heap::open(fixed, OpenOptions::default()).unwrap();
}
