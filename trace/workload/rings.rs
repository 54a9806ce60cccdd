//! A workload that has the kernel do things without system calls of their own.
#![allow(unsafe_code, reason = "an io_uring is shared memory")]

use std::sync::atomic::{AtomicU32, Ordering};

use crate::facts::Facts;

/// Places in `struct io_uring_params`, in words of 4 bytes: the count of entries, and where in the
/// shared memory the end and the list of the queue are, and the head of the completions.
const ENTRIES: usize = 0;
const TAIL: usize = 11;
const ARRAY: usize = 16;
const COMPLETIONS_HEAD: usize = 20;
const PARAMETER_WORDS: usize = 30;
const ENTRY_BYTES: usize = 64;
/// `IORING_OFF_SQES`.
const OFFSET_OF_ENTRIES: i64 = 0x1000_0000;

/// Queues that many operations that do nothing, each with a call.
pub(crate) fn queues_operations(facts: &mut Facts, count: u64) {
    let mut parameters = [0_u32; PARAMETER_WORDS];
    // SAFETY: the parameters are as long as the kernel's structure.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    if ring < 0 {
        facts.tell("refused", 1);
        return;
    }
    let map = |bytes: usize, offset: i64| {
        let (rights, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_POPULATE);
        // SAFETY: a new mapping.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, ring as i32, offset) };
        assert_ne!(start, libc::MAP_FAILED);
        start.cast::<u8>()
    };
    let queue = map(parameters[ARRAY] as usize + parameters[ENTRIES] as usize * 4, 0);
    // All zeros: an operation of number 0, which does nothing.
    let _entries = map(parameters[ENTRIES] as usize * ENTRY_BYTES, OFFSET_OF_ENTRIES);
    let counter = |place: usize| {
        // SAFETY: the kernel has put its counter there, before the list; nothing else in this
        // process uses it.
        unsafe { &*queue.add(parameters[place] as usize).cast::<AtomicU32>() }
    };
    let (tail, head) = (counter(TAIL), counter(COMPLETIONS_HEAD));
    facts.tell("ready", 1);
    let mut queued = 0;
    for _ in 0..count {
        tail.fetch_add(1, Ordering::Release);
        // SAFETY: no pointers.
        let taken = unsafe { libc::syscall(libc::SYS_io_uring_enter, ring, 1, 0, 0, 0, 0) };
        // It is done by now, and what the kernel said of it is not kept.
        if taken == 1 {
            head.fetch_add(1, Ordering::Release);
        }
        queued += taken;
    }
    facts.tell("queued", queued as u64);
}
