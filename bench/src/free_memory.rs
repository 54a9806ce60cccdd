//! Free memory as a machine has it that has just used some.
//!
//! A virtual machine may give its free memory back to its host: Linux reports huge pages that were
//! free for two seconds (`CONFIG_PAGE_REPORTING`, with virtio-balloon), and the host has to provide each
//! again when it is used, which takes up to 5 ms. What a program takes for new memory depends then on
//! how long the machine was idle before, by a factor of 20, and not on the program.

use std::ffi::c_void;
use std::io;
use std::ptr;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// More than what most of the measured programs need. The kernel hands out first what became free
/// last.
const LEN: usize = 1 << 30;
const PAGE: usize = 4096;

/// Stores to free memory and frees it again, so that the next process finds it at hand: 0.1 s where
/// it was, 2 to 5 s where the host has to make it.
///
/// # Errors
/// What `mmap` reports.
pub(crate) fn warm_up() -> io::Result<()> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: without an address, and without `FIXED`, the mapping lies where nothing is.
    let start = unsafe { mmap_anonymous(ptr::null_mut(), LEN, access, MapFlags::PRIVATE)? };
    // Without huge pages, small ones do as well.
    // SAFETY: the range is the mapping made above, and the advice changes none of its bytes.
    let _ = unsafe { madvise(start, LEN, Advice::LinuxHugepage) };
    for at in (0..LEN).step_by(PAGE) {
        // SAFETY: the byte lies in the mapping, to which nothing else has a reference.
        unsafe { start.cast::<u8>().add(at).write_volatile(1) };
    }
    // SAFETY: the mapping was made above, and nothing refers to it any more.
    unsafe { munmap(start.cast::<c_void>(), LEN)? };
    Ok(())
}
