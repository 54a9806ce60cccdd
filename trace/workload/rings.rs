//! A workload that has the kernel do things without system calls of their own.
#![allow(unsafe_code, reason = "an io_uring is shared memory")]

use std::sync::atomic::{AtomicU32, Ordering};

use crate::facts::Facts;

/// Places in `struct io_uring_params`, in words of 4 bytes: the counts of entries, and where in the
/// shared memory of the queue its end, its mask and its list are.
const ENTRIES: usize = 0;
const TAIL: usize = 11;
const ARRAY: usize = 16;
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
    // SAFETY: the kernel has put its counter there; nothing else in this process uses it.
    let tail = unsafe { &*queue.add(parameters[TAIL] as usize).cast::<AtomicU32>() };
    let mut queued = 0;
    for _ in 0..count {
        tail.fetch_add(1, Ordering::Release);
        // SAFETY: no pointers.
        queued += unsafe { libc::syscall(libc::SYS_io_uring_enter, ring, 1, 0, 0, 0, 0) };
    }
    facts.tell("queued", queued as u64);
}
