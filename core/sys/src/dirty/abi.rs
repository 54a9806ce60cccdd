//! The kernel's side of userfaultfd and of `ioctl(PAGEMAP_SCAN)`, as far as Holdfast uses them:
//! structures and numbers of `linux/userfaultfd.h` and `linux/fs.h`, one function per call.
//!
//! Nothing here decides anything; every error is the kernel's.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const UFFD_USER_MODE_ONLY: libc::c_int = 1;
const UFFD_API: u64 = 0xaa;
const UFFD_FEATURE_WP_HUGETLBFS_SHMEM: u64 = 1 << 12;
const UFFD_FEATURE_WP_UNPOPULATED: u64 = 1 << 13;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1 << 0;
/// `_IOWR(0xaa, 0x3f, struct uffdio_api)`
const UFFDIO_API: u64 = 0xc018_aa3f;
/// `_IOWR(0xaa, 0x00, struct uffdio_register)`
const UFFDIO_REGISTER: u64 = 0xc020_aa00;
/// `_IOR(0xaa, 0x01, struct uffdio_range)`
const UFFDIO_UNREGISTER: u64 = 0x8010_aa01;
/// `_IOWR(0xaa, 0x06, struct uffdio_writeprotect)`
const UFFDIO_WRITEPROTECT: u64 = 0xc018_aa06;
/// `_IOWR('f', 16, struct pm_scan_arg)`
const PAGEMAP_SCAN: u64 = 0xc060_6610;
const PM_SCAN_WP_MATCHING: u64 = 1 << 0;
const PM_SCAN_CHECK_WPASYNC: u64 = 1 << 1;
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;

#[repr(C)]
struct UffdioApi {
    api: u64,
    features: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioRange {
    start: u64,
    len: u64,
}

#[repr(C)]
struct UffdioRegister {
    range: UffdioRange,
    mode: u64,
    ioctls: u64,
}

#[repr(C)]
struct UffdioWriteprotect {
    range: UffdioRange,
    mode: u64,
}

/// A run of pages that a scan found: addresses.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PageRegion {
    pub(crate) start: u64,
    pub(crate) end: u64,
    categories: u64,
}

#[repr(C)]
#[derive(Default)]
struct PmScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

const _: () = assert!(size_of::<UffdioApi>() == 24 && size_of::<UffdioRegister>() == 32);
const _: () = assert!(size_of::<UffdioRange>() == 16 && size_of::<UffdioWriteprotect>() == 24);
const _: () = assert!(size_of::<PmScanArg>() == 96 && size_of::<PageRegion>() == 24);

fn range_of(addresses: &Range<usize>) -> UffdioRange {
    UffdioRange { start: addresses.start as u64, len: addresses.len() as u64 }
}

/// Calls an ioctl that reads and writes one `T`.
///
/// # Safety
/// `request` must be the number of an ioctl on this kind of descriptor whose argument is a `T`.
unsafe fn ioctl<T>(fd: RawFd, request: u64, argument: &mut T) -> io::Result<usize> {
    // SAFETY: the argument is valid for the call and of the type that the request asks for
    // (contract).
    let result = unsafe { libc::ioctl(fd, request as _, std::ptr::from_mut(argument)) };
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A userfaultfd with asynchronous write protection: the kernel itself lets a store to a protected
/// page through, and takes the protection off that page. No process reads events from it.
#[derive(Debug)]
pub(crate) struct Userfaultfd(OwnedFd);

impl Userfaultfd {
    /// Opens one as any user may: it does not catch faults of the kernel, and need not, because
    /// asynchronous protection never stops a thread.
    pub(crate) fn open() -> io::Result<Userfaultfd> {
        let flags = libc::O_CLOEXEC | libc::O_NONBLOCK | UFFD_USER_MODE_ONLY;
        // SAFETY: no pointer is passed.
        let fd = unsafe { libc::syscall(libc::SYS_userfaultfd, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that no other code knows.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as RawFd) };
        let features =
            UFFD_FEATURE_WP_ASYNC | UFFD_FEATURE_WP_UNPOPULATED | UFFD_FEATURE_WP_HUGETLBFS_SHMEM;
        let mut api = UffdioApi { api: UFFD_API, features, ioctls: 0 };
        // SAFETY: the request takes a uffdio_api.
        unsafe { ioctl(fd.as_raw_fd(), UFFDIO_API, &mut api)? };
        Ok(Userfaultfd(fd))
    }

    /// Registers a mapped range for write protection. It changes no access to the range.
    pub(crate) fn register(&self, addresses: &Range<usize>) -> io::Result<()> {
        let mut argument =
            UffdioRegister { range: range_of(addresses), mode: UFFDIO_REGISTER_MODE_WP, ioctls: 0 };
        // SAFETY: the request takes a uffdio_register.
        unsafe { ioctl(self.0.as_raw_fd(), UFFDIO_REGISTER, &mut argument).map(drop) }
    }

    /// Write-protects every page of a registered range, also those that no page table knows yet.
    pub(crate) fn write_protect(&self, addresses: &Range<usize>) -> io::Result<()> {
        let mut argument =
            UffdioWriteprotect { range: range_of(addresses), mode: UFFDIO_WRITEPROTECT_MODE_WP };
        // SAFETY: the request takes a uffdio_writeprotect.
        unsafe { ioctl(self.0.as_raw_fd(), UFFDIO_WRITEPROTECT, &mut argument).map(drop) }
    }

    /// Takes registration and protection off a range.
    pub(crate) fn unregister(&self, addresses: &Range<usize>) -> io::Result<()> {
        let mut argument = range_of(addresses);
        // SAFETY: the request takes a uffdio_range.
        unsafe { ioctl(self.0.as_raw_fd(), UFFDIO_UNREGISTER, &mut argument).map(drop) }
    }
}

/// What one call of a scan did.
pub(crate) struct Scanned {
    /// How many regions it filled in.
    pub(crate) found: usize,
    /// The address up to which it came.
    pub(crate) end: usize,
}

/// The process's page tables, to be scanned.
#[derive(Debug)]
pub(crate) struct Pagemap(File);

impl Pagemap {
    pub(crate) fn open() -> io::Result<Pagemap> {
        File::open("/proc/self/pagemap").map(Pagemap)
    }

    /// Those of another process.
    pub(crate) fn of(pid: u32) -> io::Result<Pagemap> {
        File::open(format!("/proc/{pid}/pagemap")).map(Pagemap)
    }

    /// The file, for kernels without a scan.
    pub(crate) fn file(&self) -> &File {
        &self.0
    }

    /// Lists pages that are memory of the process's own, in memory or swapped out; changes nothing.
    pub(crate) fn list_own(
        &self,
        addresses: &Range<usize>,
        regions: &mut [PageRegion],
    ) -> io::Result<Scanned> {
        let argument = PmScanArg {
            category_inverted: PAGE_IS_FILE,
            category_mask: PAGE_IS_FILE,
            category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
            return_mask: PAGE_IS_PRESENT,
            ..PmScanArg::default()
        };
        self.scan_for(addresses, regions, argument)
    }

    /// Lists pages whose asynchronous write protection is off, and protects each in the same step,
    /// until the range ends or `regions` is full.
    ///
    /// The category asked for is exactly "written": asked like that, the kernel counts a page
    /// without an entry in its page table as written, which is what a stored-to page looks like
    /// once its memory was reclaimed.
    pub(crate) fn take_written(
        &self,
        addresses: &Range<usize>,
        regions: &mut [PageRegion],
    ) -> io::Result<Scanned> {
        self.scan(addresses, regions, PAGE_IS_WRITTEN, PM_SCAN_WP_MATCHING | PM_SCAN_CHECK_WPASYNC)
    }

    /// Whether a page's asynchronous write protection is off; changes nothing.
    pub(crate) fn any_written(&self, addresses: &Range<usize>) -> io::Result<bool> {
        let scanned = self.scan(addresses, &mut [PageRegion::default()], PAGE_IS_WRITTEN, 0)?;
        Ok(scanned.found > 0)
    }

    /// Lists pages that are in memory; changes nothing.
    pub(crate) fn list_present(
        &self,
        addresses: &Range<usize>,
        regions: &mut [PageRegion],
    ) -> io::Result<Scanned> {
        self.scan(addresses, regions, PAGE_IS_PRESENT, 0)
    }

    fn scan(
        &self,
        addresses: &Range<usize>,
        regions: &mut [PageRegion],
        category: u64,
        flags: u64,
    ) -> io::Result<Scanned> {
        let argument = PmScanArg {
            flags,
            category_mask: category,
            return_mask: category,
            ..PmScanArg::default()
        };
        self.scan_for(addresses, regions, argument)
    }

    fn scan_for(
        &self,
        addresses: &Range<usize>,
        regions: &mut [PageRegion],
        categories: PmScanArg,
    ) -> io::Result<Scanned> {
        let mut argument = PmScanArg {
            size: size_of::<PmScanArg>() as u64,
            start: addresses.start as u64,
            end: addresses.end as u64,
            vec: regions.as_mut_ptr() as u64,
            vec_len: regions.len() as u64,
            ..categories
        };
        // SAFETY: the request takes a pm_scan_arg, and the kernel writes at most `vec_len` regions
        // at `vec`.
        let found = unsafe { ioctl(self.0.as_raw_fd(), PAGEMAP_SCAN, &mut argument)? };
        Ok(Scanned { found: found.min(regions.len()), end: argument.walk_end as usize })
    }
}
