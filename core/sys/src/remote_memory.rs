//! Memory of another process: reading it, and finding what it changed in a private mapping of a
//! file.
//!
//! The other process may change both meanwhile. Nothing of it is followed, only copied.

use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use crate::dirty::{PageRegion, Pagemap};
use crate::page_set::push_merged;

/// Regions that one scan reports.
const REGIONS: usize = 512;
/// Entries of `/proc/PID/pagemap` that are read at once.
const ENTRIES: usize = 4096;
const ENTRY_BYTES: u64 = 8;
const ENTRY_PRESENT: u64 = 1 << 63;
const ENTRY_SWAPPED: u64 = 1 << 62;
const ENTRY_FILE: u64 = 1 << 61;

/// Copies memory of a process; all of the buffer, or an error.
///
/// # Errors
/// `UnexpectedEof` when a part is not mapped or not readable; else what the kernel says.
pub fn read(pid: u32, address: u64, buffer: &mut [u8]) -> io::Result<()> {
    let pid = libc::pid_t::try_from(pid).map_err(io::Error::other)?;
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let to = libc::iovec { iov_base: rest.as_mut_ptr().cast(), iov_len: rest.len() };
        let remote = usize::try_from(address).map_err(io::Error::other)?.wrapping_add(done);
        let from = libc::iovec { iov_base: remote as *mut libc::c_void, iov_len: rest.len() };
        // SAFETY: the kernel writes within `rest`; the other side is an address for it to check.
        let copied =
            unsafe { libc::process_vm_readv(pid, &raw const to, 1, &raw const from, 1, 0) };
        match usize::try_from(copied) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(copied) => done += copied,
            Err(_) => {
                let error = io::Error::last_os_error();
                return match error.raw_os_error() {
                    Some(libc::EFAULT) => Err(io::ErrorKind::UnexpectedEof.into()),
                    _ => Err(error),
                };
            }
        }
    }
    Ok(())
}

/// Pages in a range of a process's addresses that are its own: in a private mapping of a file,
/// those that it stored to. Ranges of addresses, sorted, none touching another.
///
/// # Errors
/// `InvalidInput` when the range does not begin and end with a page; else what the kernel says.
pub fn own_pages(pid: u32, range: Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let page_bytes = rustix::param::page_size() as u64;
    if range.start > range.end
        || ![range.start, range.end].iter().all(|at| at.is_multiple_of(page_bytes))
    {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let pagemap = Pagemap::of(pid)?;
    match scanned(&pagemap, &range) {
        // The kernel has no scan (before 6.7).
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => {
            listed(&pagemap, &range, page_bytes)
        }
        other => other,
    }
}

fn scanned(pagemap: &Pagemap, range: &Range<u64>) -> io::Result<Vec<Range<u64>>> {
    let mut pages = Vec::new();
    let bound = |address: u64| usize::try_from(address).map_err(io::Error::other);
    let (mut at, end) = (bound(range.start)?, bound(range.end)?);
    let mut regions = [PageRegion::default(); REGIONS];
    while at < end {
        let scan = pagemap.list_own(&(at..end), &mut regions)?;
        for region in regions.iter().take(scan.found) {
            push_merged(&mut pages, region.start..region.end);
        }
        if scan.end <= at {
            break;
        }
        at = scan.end;
    }
    Ok(pages)
}

fn listed(pagemap: &Pagemap, range: &Range<u64>, page_bytes: u64) -> io::Result<Vec<Range<u64>>> {
    let mut pages = Vec::new();
    let mut buffer = vec![0_u8; ENTRIES * ENTRY_BYTES as usize];
    let mut at = range.start;
    while at < range.end {
        let wanted = ((range.end - at) / page_bytes).min(ENTRIES as u64) * ENTRY_BYTES;
        let Some(entries) = buffer.get_mut(..wanted as usize) else { break };
        pagemap.file().read_exact_at(entries, at / page_bytes * ENTRY_BYTES)?;
        for entry in entries.as_chunks::<8>().0 {
            let entry = u64::from_le_bytes(*entry);
            if entry & (ENTRY_PRESENT | ENTRY_SWAPPED) != 0 && entry & ENTRY_FILE == 0 {
                push_merged(&mut pages, at..at + page_bytes);
            }
            at += page_bytes;
        }
    }
    Ok(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_process_is_copied_or_refused_whole() {
        let secret = [7_u8; 100];
        let mut copy = [0; 100];
        let me = std::process::id();
        read(me, secret.as_ptr() as u64, &mut copy).unwrap();
        assert_eq!(copy, secret);
        assert_eq!(read(me, 8, &mut copy).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    /// Both ways find exactly the pages that were stored to.
    ///
    /// Guarantee: sandbox/changed-pages
    #[test]
    fn both_methods_find_exactly_the_stored_pages() {
        let page_bytes = rustix::param::page_size();
        let file =
            rustix::fs::memfd_create("holdfast-test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 16 * page_bytes as u64).unwrap();
        let flags = rustix::mm::MapFlags::PRIVATE;
        let access = rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE;
        // SAFETY: a fresh mapping of a file that does not shrink; all accesses are within it.
        let base = unsafe {
            let base =
                rustix::mm::mmap(std::ptr::null_mut(), 16 * page_bytes, access, flags, &file, 0)
                    .unwrap()
                    .cast::<u8>();
            let _ = base.add(page_bytes).read_volatile();
            for page in [3, 4, 9] {
                base.add(page * page_bytes).write_volatile(1);
            }
            base
        };
        let (start, page) = (base as u64, page_bytes as u64);
        let expected = [start + 3 * page..start + 5 * page, start + 9 * page..start + 10 * page];
        let range = start..start + 16 * page;
        assert_eq!(own_pages(std::process::id(), range.clone()).unwrap(), expected);
        let pagemap = Pagemap::of(std::process::id()).unwrap();
        assert_eq!(listed(&pagemap, &range, page).unwrap(), expected);
        assert!(own_pages(std::process::id(), start + 1..start + page).is_err());
        // SAFETY: the mapping made above, not used any more.
        unsafe { rustix::mm::munmap(base.cast(), 16 * page_bytes).unwrap() };
    }
}
