//! The number of this process without a system call: `getpid` is one each time, which costs more
//! than what a caller may want it for.
//!
//! Invariant: a copy of this process that a fork makes, by whatever call, is never told its
//! parent's number. It is kept in a page that the kernel empties in such a copy; where the kernel
//! cannot do that, nothing is kept.
//!
//! (A child of `vfork` is its parent's memory, and may do nothing but `exec`.)

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// Where the number is kept: null before the first use, `NOWHERE` where the kernel cannot empty a
/// page.
static PAGE: AtomicPtr<AtomicU32> = AtomicPtr::new(ptr::null_mut());

/// Stands for no page.
static NOWHERE: AtomicU32 = AtomicU32::new(0);

/// A page has at least so many bytes.
const PAGE_BYTES: usize = 4096;

/// The number of this process.
#[must_use]
pub fn get() -> u32 {
    let page = PAGE.load(Ordering::Acquire);
    if page.is_null() {
        keep();
    } else if !ptr::eq(page, &raw const NOWHERE) {
        // SAFETY: it is a page that was mapped by `keep`, stays, and is used as this alone.
        let number = unsafe { &*page };
        let known = number.load(Ordering::Relaxed);
        if known != 0 {
            return known;
        }
        // The first use in a copy.
        number.store(std::process::id(), Ordering::Relaxed);
    }
    std::process::id()
}

/// Makes the page; its first bytes are zero, which is no process.
fn keep() {
    let place = new_page().unwrap_or((&raw const NOWHERE).cast_mut());
    let kept = PAGE.compare_exchange(ptr::null_mut(), place, Ordering::AcqRel, Ordering::Acquire);
    if kept.is_err() && !ptr::eq(place, &raw const NOWHERE) {
        // SAFETY: another thread was first, so nothing refers to this page.
        let _ = unsafe { rustix::mm::munmap(place.cast(), PAGE_BYTES) };
    }
}

/// A page that is empty in every copy of this process.
fn new_page() -> Option<*mut AtomicU32> {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a mapping of its own, wherever there is room.
    unsafe {
        let page =
            rustix::mm::mmap_anonymous(ptr::null_mut(), PAGE_BYTES, access, MapFlags::PRIVATE)
                .ok()?;
        match rustix::mm::madvise(page, PAGE_BYTES, Advice::LinuxWipeOnFork) {
            Ok(()) => Some(page.cast()),
            Err(_) => {
                let _ = rustix::mm::munmap(page, PAGE_BYTES);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number is that of this process, also in a copy that a fork made.
    #[test]
    fn number_is_right_after_fork_too() {
        for _ in 0..3 {
            assert_eq!(get(), std::process::id());
        }
        // SAFETY: the child makes system calls only, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_right = (0..3).all(|_| get() == std::process::id());
            // SAFETY: ends this process.
            unsafe { libc::_exit(i32::from(!is_right)) };
        }
        let mut status = 0;
        // SAFETY: the pointer is valid.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
    }
}
