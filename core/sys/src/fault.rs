//! Memory faults that Holdfast expects and resolves: the first store to a clean region or page, an
//! image that was truncated under its mapping, and host code that touches a hole of an applet's
//! linear memory.
//!
//! One handler for SIGSEGV and SIGBUS serves the whole process. It looks the faulting address up in
//! a fixed table of watched ranges, resolves the fault or passes it on to the handler that was
//! installed before.
//!
//! Invariants:
//! - The handler only reads atomics and calls `mprotect`, `mmap`, `mremap`: it allocates nothing,
//!   takes no lock, needs no descriptor and is async-signal-safe.
//! - Between a slot's claim and its release only its owner (a guard in this module) writes it. A
//!   slot is live only while its `kind` says so, and `kind` is stored last and cleared first.
//! - A fault whose instruction lies in a [`CodeRange`] is a hole's business of that code's own
//!   runtime (a wasm trap); only the first-store and lost-backing cases are resolved for it.
//! - A fault that no handler claims ends the process as it would have without us.

mod first;
mod handler;
mod pages;
mod table;

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub use first::{Resolve, ask_first, ask_no_more};
pub use handler::{install, stand_ins};
pub(crate) use pages::PageWatch;
use table::{CODE, Claim, HOLE, READ_WATCH, Scratch, WRITE_WATCH};

/// Called from the signal handler after a fault was resolved in a way that must stop the applet.
pub type Notify = Arc<dyn Fn() + Send + Sync>;

/// Watches a region's mapping: notices the first store to it, and survives the loss of its backing.
pub struct WriteWatch(Claim);

impl WriteWatch {
    /// Watches `backed_bytes` from `address`, both multiples of the page size.
    ///
    /// # Safety
    /// The range must be a shared file mapping of the caller's, readable and not writable now, that
    /// stays mapped until the watch is dropped, and that the caller allows to become writable.
    ///
    /// # Errors
    /// When no handler can be installed or too many ranges are watched.
    pub unsafe fn new(
        address: *mut u8,
        backed_bytes: usize,
        notify: Option<Notify>,
    ) -> io::Result<Self> {
        install()?;
        let start = address as usize;
        Claim::new(WRITE_WATCH, start..start + backed_bytes, notify).map(WriteWatch)
    }

    /// Whether a store happened since the watch was made or rearmed.
    pub fn is_dirty(&self) -> bool {
        self.0.0.touched.load(Ordering::Acquire)
    }

    /// Whether the file was found shorter than its mapping, or a page of it could be neither read
    /// nor allocated (its length tells which); scratch memory stands in for what is gone, and
    /// nothing stored there lasts.
    pub fn lost_backing(&self) -> bool {
        self.0.0.lost.load(Ordering::Acquire)
    }

    /// Makes the range writable and dirty without waiting for a fault, for stores that the kernel
    /// does on the applet's behalf (they would fail with EFAULT instead of faulting).
    ///
    /// # Errors
    /// What `mprotect` reports.
    pub fn make_writable(&self) -> io::Result<()> {
        if handler::unlock(self.0.0) { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Says that the range is dirty, for stores that another tracker lets through: a tracker of
    /// single pages.
    pub fn mark_dirty(&self) {
        self.0.0.touched.store(true, Ordering::Release);
    }

    /// Tells the watch that the mapping now has `backed_bytes` bytes; the caller mapped the new
    /// part with the protection that fits [`WriteWatch::is_dirty`].
    pub fn extend(&self, backed_bytes: usize) {
        let start = self.0.0.start.load(Ordering::Acquire);
        self.0.0.end.store(start + backed_bytes, Ordering::Release);
    }

    /// Makes the range read-only and clean again. No thread may be storing to it meanwhile.
    ///
    /// # Errors
    /// What `mprotect` reports.
    pub fn rearm(&self) -> io::Result<()> {
        let (start, end) =
            (self.0.0.start.load(Ordering::Acquire), self.0.0.end.load(Ordering::Acquire));
        // SAFETY: the range is the owner's live mapping (contract of `new`); taking write
        // permission away keeps every reference to it readable.
        if unsafe { libc::mprotect(start as *mut _, end - start, libc::PROT_READ) } != 0 {
            return Err(io::Error::last_os_error());
        }
        self.0.0.touched.store(false, Ordering::Release);
        Ok(())
    }
}

/// Watches a mapping that may only be read: survives the loss of its backing, and keeps host code
/// that stores to it on an applet's behalf from crashing the host.
pub struct ReadWatch(Claim);

impl ReadWatch {
    /// Watches `backed_bytes` from `address`, both multiples of the page size.
    ///
    /// A store from a [`CodeRange`] is its runtime's business (a wasm trap). With `notify`, any
    /// other store is host code's: it gets scratch memory of bounded size in place of what lay
    /// there, and `notify` must have the applet stopped. Without, it ends the process, as for any
    /// read-only memory.
    ///
    /// # Safety
    /// The range must be a mapping of the caller's, readable and not writable, that stays mapped
    /// until the watch is dropped and of which the handler may replace pages. `notify` must be
    /// async-signal-safe.
    ///
    /// # Errors
    /// When no handler can be installed or too many ranges are watched.
    pub unsafe fn new(
        address: *mut u8,
        backed_bytes: usize,
        notify: Option<Notify>,
    ) -> io::Result<Self> {
        install()?;
        let start = address as usize;
        let scratch = notify.is_some().then(Scratch::new).transpose()?;
        Claim::over_scratch(READ_WATCH, start..start + backed_bytes, notify, scratch).map(ReadWatch)
    }

    /// As [`WriteWatch::lost_backing`].
    pub fn lost_backing(&self) -> bool {
        self.0.0.lost.load(Ordering::Acquire)
    }

    /// Whether host code stored to the range; nothing of it lasts.
    pub fn refused_store(&self) -> bool {
        self.0.0.touched.load(Ordering::Acquire)
    }
}

/// Guards a hole (reserved, inaccessible address space) of a linear memory against *host* accesses:
/// the host gets bounded scratch memory there, and the owner is notified, so that it can stop the
/// applet.
pub struct HoleGuard(Claim);

impl HoleGuard {
    /// Guards nothing yet; see [`HoleGuard::set_range`].
    ///
    /// # Safety
    /// `notify` runs in a signal handler: it must be async-signal-safe (no allocation, no locks).
    ///
    /// # Errors
    /// When no handler can be installed, too many ranges are watched, or there is no address space
    /// left.
    pub unsafe fn new(notify: Notify) -> io::Result<Self> {
        install()?;
        Claim::over_scratch(HOLE, 0..0, Some(notify), Some(Scratch::new()?)).map(HoleGuard)
    }

    /// Moves the guard to a hole; empty ranges guard nothing.
    ///
    /// # Safety
    /// The range must be inaccessible reserved address space of the caller's, page-aligned, in
    /// which the handler may put scratch mappings until the range is changed or the guard dropped.
    /// No thread may be faulting in it meanwhile.
    pub unsafe fn set_range(&self, hole: Range<*mut u8>) {
        self.0.0.end.store(0, Ordering::Release);
        self.0.0.start.store(hole.start as usize, Ordering::Release);
        self.0.0.end.store(hole.end as usize, Ordering::Release);
    }

    /// Whether host code touched the hole.
    pub fn touched(&self) -> bool {
        self.0.0.touched.load(Ordering::Acquire)
    }
}

/// Marks code whose faults in holes belong to its own runtime (compiled wasm: they are traps).
pub struct CodeRange(#[allow(dead_code, reason = "held for its drop")] Claim);

impl CodeRange {
    /// Registers the addresses of the code.
    ///
    /// # Errors
    /// When too many ranges are watched.
    pub fn new(code: Range<usize>) -> io::Result<Self> {
        Claim::new(CODE, code, None).map(CodeRange)
    }
}

#[cfg(test)]
mod tests {
    use super::table::SLOTS;
    use super::*;
    use std::fs::File;
    use std::os::fd::{AsRawFd, FromRawFd};
    use std::sync::atomic::AtomicU64;

    const PAGE: usize = 4096;

    fn memfd(bytes: usize) -> File {
        // SAFETY: a fresh descriptor that the File then owns.
        let file =
            unsafe { File::from_raw_fd(libc::memfd_create(c"t".as_ptr(), libc::MFD_CLOEXEC)) };
        file.set_len(bytes as u64).unwrap();
        file
    }

    fn map(file: Option<&File>, bytes: usize, prot: libc::c_int) -> *mut u8 {
        let (flags, fd) = match file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1),
        };
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, prot, flags, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at.cast()
    }

    /// The first store makes a clean region dirty and a load does not.
    #[test]
    fn first_store_marks_dirty_and_a_load_does_not() {
        let file = memfd(4 * PAGE);
        let at = map(Some(&file), 4 * PAGE, libc::PROT_READ);
        // SAFETY: `at` is a read-only shared mapping of four pages that lives to the end of the
        // test.
        unsafe {
            let watch = WriteWatch::new(at, 4 * PAGE, None).unwrap();
            assert_eq!(at.read_volatile(), 0);
            assert!(!watch.is_dirty());
            at.add(2 * PAGE).write_volatile(7);
            assert!(watch.is_dirty());
            watch.rearm().unwrap();
            assert!(!watch.is_dirty());
            at.write_volatile(8);
            assert!(watch.is_dirty());
            assert_eq!((at.read_volatile(), at.add(2 * PAGE).read_volatile()), (8, 7));
        }
    }

    /// A file that is truncated under its mapping is reported and kills no process.
    #[test]
    fn truncated_file_is_reported_and_kills_nobody() {
        let file = memfd(2 * PAGE);
        let at = map(Some(&file), 2 * PAGE, libc::PROT_READ);
        // SAFETY: as above.
        unsafe {
            let watch = WriteWatch::new(at, 2 * PAGE, None).unwrap();
            at.add(PAGE).write_volatile(1);
            file.set_len(PAGE as u64).unwrap();
            assert_eq!(at.add(PAGE).read_volatile(), 0);
            assert!(watch.lost_backing());
        }
    }

    /// A store to a mapping that may only be read never reaches the file.
    #[test]
    fn store_to_read_only_mapping_never_reaches_the_file() {
        let file = memfd(4 * PAGE);
        let at = map(Some(&file), 4 * PAGE, libc::PROT_READ);
        let calls = Arc::new(AtomicU64::new(0));
        let counter = calls.clone();
        // SAFETY: as above; the notification only adds to an atomic.
        unsafe {
            let notify: Notify = Arc::new(move || {
                counter.fetch_add(1, Ordering::Relaxed);
            });
            let watch = ReadWatch::new(at, 4 * PAGE, Some(notify)).unwrap();
            assert_eq!(at.read_volatile(), 0);
            assert!(!watch.refused_store());
            at.add(PAGE).write_volatile(7);
            assert!(watch.refused_store() && !watch.lost_backing());
        }
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        let mut byte = [9];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, PAGE as u64).unwrap();
        assert_eq!(byte, [0]);
    }

    /// A host access to a hole costs bounded memory and is reported.
    #[test]
    fn host_access_to_a_hole_is_bounded_and_reported() {
        let bytes = 256 << 20;
        let at = map(None, bytes, libc::PROT_NONE);
        let calls = Arc::new(AtomicU64::new(0));
        let counter = calls.clone();
        // SAFETY: the notification only adds to an atomic; the hole is this test's own reservation.
        unsafe {
            let guard = HoleGuard::new(Arc::new(move || {
                counter.fetch_add(1, Ordering::Relaxed);
            }))
            .unwrap();
            guard.set_range(at..at.add(bytes));
            assert!(!guard.touched());
            std::ptr::write_bytes(at, 0xAB, bytes);
            assert!(guard.touched());
        }
        let windows = (bytes / handler::SCRATCH_BYTES) as u64;
        assert!((windows..=windows + 1).contains(&calls.load(Ordering::Relaxed)));
    }

    #[test]
    fn slots_are_given_back() {
        for _ in 0..2 * SLOTS {
            drop(CodeRange::new(1..2).unwrap());
        }
    }
}
