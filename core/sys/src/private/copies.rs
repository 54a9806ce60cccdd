//! Finding private copies by what the page tables say of each page: two ways, with the same answer,
//! the ioctl PAGEMAP_SCAN (Linux 6.7), which returns ranges and skips what is not mapped, and
//! reading `/proc/self/pagemap`, eight bytes for every page. Both work for an ordinary user; a
//! process that is not dumpable (a set-user-ID program) cannot open its own pagemap.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

/// `struct pm_scan_arg` of linux/fs.h.
#[repr(C)]
#[derive(Default)]
struct ScanArguments {
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

/// `struct page_region` of linux/fs.h.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct PageRegion {
    start: u64,
    end: u64,
    categories: u64,
}

const _: () = assert!(size_of::<ScanArguments>() == 96 && size_of::<PageRegion>() == 24);

/// `_IOWR('f', 16, struct pm_scan_arg)`.
const PAGEMAP_SCAN: libc::c_ulong = 0xC060_6610;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
const PAGE_IS_SWAPPED: u64 = 1 << 4;
/// Ranges that one call returns at most.
const SCAN_RANGES: usize = 512;

/// Bits of an entry of `/proc/self/pagemap`.
const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_FILE_OR_SHARED: u64 = 1 << 61;
const ENTRY_BYTES: usize = 8;
/// Entries that one read returns at most.
const READ_ENTRIES: usize = 8192;

/// Finds private copies.
#[derive(Debug)]
pub(super) struct Copies {
    pagemap: File,
    method: Method,
    page_bytes: u64,
}

/// How they are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    /// The ioctl.
    Scan,
    /// Reading `/proc/self/pagemap`.
    Read,
}

impl Copies {
    /// The best method that this kernel has.
    ///
    /// # Errors
    /// When `/proc/self/pagemap` cannot be opened.
    pub(super) fn new() -> io::Result<Copies> {
        let mut pages = Copies::with(Method::Scan)?;
        let probe = 0_u8;
        if pages.scan(&raw const probe as u64 & !(pages.page_bytes - 1), pages.page_bytes).is_err()
        {
            pages.method = Method::Read;
        }
        Ok(pages)
    }

    /// A given method.
    ///
    /// # Errors
    /// When `/proc/self/pagemap` cannot be opened.
    pub(super) fn with(method: Method) -> io::Result<Copies> {
        let pagemap = File::open("/proc/self/pagemap")?;
        Ok(Copies { pagemap, method, page_bytes: rustix::param::page_size() as u64 })
    }

    /// The method in use.
    #[cfg(test)]
    pub(super) fn method(&self) -> Method {
        self.method
    }

    /// The ranges of private copies in `len` bytes from `base`, both multiples of the page size, as
    /// offsets from `base`, in order and merged.
    ///
    /// # Errors
    /// What the kernel reports.
    pub(super) fn find(&self, base: *const u8, len: usize) -> io::Result<Vec<Range<u64>>> {
        match self.method {
            Method::Scan => self.scan(base as u64, len as u64),
            Method::Read => self.read(base as u64, len as u64),
        }
    }

    fn scan(&self, base: u64, len: u64) -> io::Result<Vec<Range<u64>>> {
        let mut found = Vec::new();
        let mut regions = [PageRegion::default(); SCAN_RANGES];
        let (mut start, end) = (base, base + len);
        while start < end {
            let mut arguments = ScanArguments {
                size: size_of::<ScanArguments>() as u64,
                start,
                end,
                vec: regions.as_mut_ptr() as u64,
                vec_len: SCAN_RANGES as u64,
                category_inverted: PAGE_IS_FILE,
                category_mask: PAGE_IS_FILE,
                category_anyof_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                return_mask: PAGE_IS_PRESENT | PAGE_IS_SWAPPED,
                ..ScanArguments::default()
            };
            // SAFETY: the arguments are those of the ioctl, their vector has room for as many
            // regions as they say, and without flags the call only reads page tables.
            let count =
                unsafe { libc::ioctl(self.pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut arguments) };
            let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
            for region in regions.iter().take(count) {
                merge(&mut found, region.start - base..region.end - base);
            }
            if arguments.walk_end <= start {
                return Err(io::Error::other("PAGEMAP_SCAN made no progress"));
            }
            start = arguments.walk_end;
        }
        Ok(found)
    }

    fn read(&self, base: u64, len: u64) -> io::Result<Vec<Range<u64>>> {
        let mut found = Vec::new();
        let mut entries = vec![0; READ_ENTRIES * ENTRY_BYTES];
        let (first, pages) = (base / self.page_bytes, len / self.page_bytes);
        let mut page = 0;
        while page < pages {
            let count = (pages - page).min(READ_ENTRIES as u64);
            let piece = &mut entries[..count as usize * ENTRY_BYTES];
            self.pagemap.read_exact_at(piece, (first + page) * ENTRY_BYTES as u64)?;
            let (words, _) = piece.as_chunks::<ENTRY_BYTES>();
            for (index, word) in words.iter().enumerate() {
                let entry = u64::from_ne_bytes(*word);
                if entry & (ENTRY_PRESENT | ENTRY_SWAPPED) != 0 && entry & ENTRY_FILE_OR_SHARED == 0
                {
                    let start = (page + index as u64) * self.page_bytes;
                    merge(&mut found, start..start + self.page_bytes);
                }
            }
            page += count;
        }
        Ok(found)
    }
}

fn merge(found: &mut Vec<Range<u64>>, next: Range<u64>) {
    match found.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => found.push(next),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::{Prot, Reservation, map_private_fixed};

    const PAGE: usize = 4096;

    /// Pages that were stored to are found by both methods and dropped.
    #[test]
    fn stored_pages_are_found_and_dropped_by_both_methods() {
        let directory = std::path::Path::new("/dev/shm");
        let file = tempfile::tempfile_in(directory).or_else(|_| tempfile::tempfile()).unwrap();
        let pages = 3 * READ_ENTRIES;
        file.write_all_at(&[7; PAGE], 0).unwrap();
        file.set_len((pages * PAGE) as u64).unwrap();
        let range = Reservation::anywhere(pages * PAGE, PAGE).unwrap();
        let base = range.base();
        // SAFETY: the range is this test's own reservation, which outlives every access.
        unsafe {
            map_private_fixed(base, pages * PAGE, &file, 0, Prot::ReadWrite).unwrap();
            // Loads make no copies.
            assert_eq!((base.read_volatile(), base.add(5 * PAGE).read_volatile()), (7, 0));
            // More ranges than one call returns, some of them of two pages.
            let mut expected = Vec::new();
            for index in (0..2 * SCAN_RANGES).chain([READ_ENTRIES - 1, pages / 3]) {
                let page = index * 4 % pages;
                base.add(page * PAGE + 9).write_volatile(1);
                base.add((page + 1) * PAGE).write_volatile(1);
                expected.push((page * PAGE) as u64..((page + 2) * PAGE) as u64);
            }
            expected.sort_by_key(|range| range.start);
            expected.dedup();
            let read = Copies::with(Method::Read).unwrap();
            assert_eq!(read.find(base, pages * PAGE).unwrap(), expected);
            let best = Copies::new().unwrap();
            println!("the best method here: {:?}", best.method());
            assert_eq!(best.find(base, pages * PAGE).unwrap(), expected);
            assert_eq!(best.find(base.add(8 * PAGE), PAGE).unwrap(), [0..PAGE as u64].to_vec());
            rustix::mm::madvise(base.cast(), pages * PAGE, rustix::mm::Advice::LinuxDontNeed)
                .unwrap();
            assert_eq!(best.find(base, pages * PAGE).unwrap(), []);
            assert_eq!((base.read_volatile(), base.add(9).read_volatile()), (7, 7));
        }
    }
}
