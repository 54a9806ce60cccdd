//! Address space: reservations, and mappings put into them.
//!
//! Invariants:
//! - A [`Reservation`] owns its range: nothing else in the process maps there until it is dropped,
//!   and its drop unmaps the whole range, whatever was put into it (or gives it back to the window
//!   it is from).
//! - The free functions replace what is mapped at an address. They are `unsafe`, because only the
//!   owner of the range knows that no reference into it is alive.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};

use crate::process::thread_cpu_time;
use crate::window::{ClaimError, Window};

/// What the processor may do with a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Prot {
    /// Nothing: every access faults.
    None,
    /// Loads.
    Read,
    /// Loads and stores.
    ReadWrite,
}

impl Prot {
    fn map_flags(self) -> ProtFlags {
        match self {
            Prot::None => ProtFlags::empty(),
            Prot::Read => ProtFlags::READ,
            Prot::ReadWrite => ProtFlags::READ | ProtFlags::WRITE,
        }
    }

    fn protect_flags(self) -> MprotectFlags {
        match self {
            Prot::None => MprotectFlags::empty(),
            Prot::Read => MprotectFlags::READ,
            Prot::ReadWrite => MprotectFlags::READ | MprotectFlags::WRITE,
        }
    }
}

/// A range of address space that is ours and, until something is mapped into it, inaccessible.
#[derive(Debug)]
pub struct Reservation {
    base: *mut u8,
    len: usize,
    /// Where it goes when it is dropped; without one it is unmapped.
    window: Option<&'static Window>,
}

// SAFETY: a reservation is address space of the whole process, not of a thread; the value only
// carries its bounds, and what is done with the memory is up to `unsafe` code elsewhere.
unsafe impl Send for Reservation {}
// SAFETY: as above; the methods on `&self` only read the bounds.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// Reserves `len` bytes at an address of the kernel's choice that is a multiple of `align`.
    ///
    /// # Errors
    /// `InvalidInput` when `len` is zero or `align` is no power of two, else what `mmap` reports.
    pub fn anywhere(len: usize, align: usize) -> io::Result<Reservation> {
        let page_bytes = rustix::param::page_size();
        let align = align.max(page_bytes);
        let padded = len
            .checked_next_multiple_of(page_bytes)
            .and_then(|len| len.checked_add(align - page_bytes));
        let (Some(padded), true, true) = (padded, len > 0, align.is_power_of_two()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let len = len.next_multiple_of(page_bytes);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), padded, ProtFlags::empty(), flags)?
        };
        let start = start.cast::<u8>();
        let skip = start.align_offset(align);
        let base = start.wrapping_add(skip);
        // Give back what alignment left over; a failure would leave address space reserved, no
        // more.
        for (piece, piece_len) in [(start, skip), (base.wrapping_add(len), padded - len - skip)] {
            if piece_len > 0 {
                // SAFETY: the piece is a part of the mapping made above that no caller has seen.
                let _ = unsafe { rustix::mm::munmap(piece.cast(), piece_len) };
            }
        }
        Ok(Reservation { base, len, window: None })
    }

    /// Reserves exactly `address..address + len`; never replaces what is there.
    ///
    /// # Errors
    /// `AlreadyExists` when a part of the range is in use, else what `mmap` reports.
    pub fn at(address: usize, len: usize) -> io::Result<Reservation> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let wanted = std::ptr::without_provenance_mut::<u8>(address);
        // SAFETY: FIXED_NOREPLACE fails rather than touch an existing mapping.
        let got =
            unsafe { rustix::mm::mmap_anonymous(wanted.cast(), len, ProtFlags::empty(), flags)? };
        let reservation = Reservation { base: got.cast(), len, window: None };
        if reservation.base == wanted {
            Ok(reservation)
        } else {
            // Kernels before 4.17 take the address as a hint only.
            Err(io::ErrorKind::AlreadyExists.into())
        }
    }

    /// A range that was claimed from a window.
    pub(crate) fn of_window(window: &'static Window, address: usize, len: usize) -> Reservation {
        Reservation { base: std::ptr::without_provenance_mut(address), len, window: Some(window) }
    }

    /// Leaves the range reserved for good.
    pub(crate) fn keep(self) {
        std::mem::forget(self);
    }

    /// First byte of the range.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.base
    }

    /// Bytes of the range.
    #[must_use]
    #[allow(clippy::len_without_is_empty, reason = "a reservation is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Reserves what lies behind it, too, up to `len` bytes in all. It stays where it is.
    ///
    /// # Errors
    /// [`ClaimError`]; nothing has changed then. `Unsupported` for a range that is of no window.
    pub fn extend(&mut self, len: usize) -> Result<(), ClaimError> {
        let Some(window) = self.window else {
            return Err(ClaimError::Refused(io::ErrorKind::Unsupported.into()));
        };
        if len > self.len {
            window.extend(self.base, self.len, len - self.len)?;
            self.len = len;
        }
        Ok(())
    }

    /// Gives back to its window what it has past `len` bytes. No reference may lead there, as at
    /// its drop. What the kernel does not let go of it keeps; so does a range that is of no window.
    pub fn shorten(&mut self, len: usize) {
        let shorter = 0 < len && len < self.len;
        if shorter && self.window.is_some_and(|window| window.shorten(self.base, self.len, len)) {
            self.len = len;
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Some(window) = self.window {
            return window.give_back(self.base, self.len);
        }
        // SAFETY: the range is ours alone (invariant of the type), and the code that put mappings
        // into it had to promise that they end before the reservation does.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}

/// # Safety
/// As for [`map_shared_fixed`].
unsafe fn map_fixed(
    address: *mut u8,
    len: usize,
    file: impl AsFd,
    offset: u64,
    prot: Prot,
    kind: MapFlags,
) -> io::Result<()> {
    let flags = kind | MapFlags::FIXED;
    // SAFETY: the caller owns the range.
    unsafe { rustix::mm::mmap(address.cast(), len, prot.map_flags(), flags, file, offset)? };
    Ok(())
}

/// Maps `len` bytes of a file from `offset`, shared, at `address`, in place of what is there.
///
/// # Safety
/// The range must lie in address space that the caller owns, with no reference into it alive.
///
/// # Errors
/// What `mmap` reports; the range is then unchanged or, when memory ran out, unmapped.
pub unsafe fn map_shared_fixed(
    address: *mut u8,
    len: usize,
    file: impl AsFd,
    offset: u64,
    prot: Prot,
) -> io::Result<()> {
    // SAFETY: per the contract.
    unsafe { map_fixed(address, len, file, offset, prot, MapFlags::SHARED) }
}

/// As [`map_shared_fixed`], of a file whose pages are persistent memory itself (MAP_SYNC): when a
/// store to the mapping is let through, all that leads to its page is durable, so that writing back
/// the processor's caches makes the store so.
///
/// # Safety
/// As for [`map_shared_fixed`].
///
/// # Errors
/// As for [`map_shared_fixed`]; `Unsupported` where the file is none such.
pub unsafe fn map_synchronous_fixed(
    address: *mut u8,
    len: usize,
    file: impl AsFd,
    offset: u64,
    prot: Prot,
) -> io::Result<()> {
    // SAFETY: per the contract.
    unsafe {
        map_fixed(address, len, file, offset, prot, MapFlags::SHARED_VALIDATE | MapFlags::SYNC)
    }
}

/// Maps `len` bytes of a file from `offset`, privately: what is stored there stays in this process,
/// in copies of the pages.
///
/// # Safety
/// As for [`map_shared_fixed`].
///
/// # Errors
/// As for [`map_shared_fixed`].
pub unsafe fn map_private_fixed(
    address: *mut u8,
    len: usize,
    file: impl AsFd,
    offset: u64,
    prot: Prot,
) -> io::Result<()> {
    // SAFETY: per the contract.
    unsafe { map_fixed(address, len, file, offset, prot, MapFlags::PRIVATE | MapFlags::NORESERVE) }
}

/// Puts fresh zeroed private memory at `address`, in place of what is there.
///
/// # Safety
/// As for [`map_shared_fixed`].
///
/// # Errors
/// As for [`map_shared_fixed`].
pub unsafe fn map_anon_fixed(address: *mut u8, len: usize, prot: Prot) -> io::Result<()> {
    let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED;
    // SAFETY: the caller owns the range.
    unsafe { rustix::mm::mmap_anonymous(address.cast(), len, prot.map_flags(), flags)? };
    Ok(())
}

/// Makes the range reserved and inaccessible again, dropping what was mapped there.
///
/// # Safety
/// As for [`map_shared_fixed`].
///
/// # Errors
/// As for [`map_shared_fixed`].
pub unsafe fn map_none_fixed(address: *mut u8, len: usize) -> io::Result<()> {
    // SAFETY: the caller's contract is ours.
    unsafe { map_anon_fixed(address, len, Prot::None) }
}

/// Changes what may be done with a range.
///
/// # Safety
/// The caller must own the range, and no access that `prot` forbids may follow, unless a fault
/// handler resolves it.
///
/// # Errors
/// What `mprotect` reports.
pub unsafe fn protect(address: *mut u8, len: usize, prot: Prot) -> io::Result<()> {
    // SAFETY: the caller owns the range.
    unsafe { rustix::mm::mprotect(address.cast(), len, prot.protect_flags())? };
    Ok(())
}

/// Whether a child that this process forks, by whatever call, gets a copy of a range (as is usual)
/// or nothing there.
///
/// # Safety
/// The caller must own the range. A child must not rely on what it does not get.
///
/// # Errors
/// What `madvise` reports.
pub unsafe fn share_with_children(address: *mut u8, len: usize, share: bool) -> io::Result<()> {
    let advice = match share {
        true => rustix::mm::Advice::LinuxDoFork,
        false => rustix::mm::Advice::LinuxDontFork,
    };
    // SAFETY: changes no byte of this process.
    unsafe { rustix::mm::madvise(address.cast(), len, advice)? };
    Ok(())
}

/// Size of a huge page, on all platforms that this crate supports.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// What is gathered between two looks at the clock: some milliseconds' work.
const GATHERED_AT_ONCE: usize = 8 * HUGE_PAGE_BYTES;

/// Gathers the pages of a file in memory (tmpfs) into huge ones, from `offset` on for as long as
/// `time`, and says how many bytes it came to. `offset` must be a multiple of [`HUGE_PAGE_BYTES`]; a
/// rest of `len` that fills no huge page stays as it is. A process that maps the file at an address of
/// that alignment then takes one fault instead of 512, and misses the TLB less often. The kernel does
/// this on request whatever its setting for shared memory says, except `deny`.
///
/// Pages that hold data are copied, which takes from a quarter of a millisecond to three for each
/// MiB; those that are huge already cost next to nothing. At least 16 MiB are gathered.
///
/// # Errors
/// What `madvise(MADV_COLLAPSE)` reports, on kernels before 6.1 always; the file is the same in any
/// case.
pub fn gather_huge_pages(
    time: Duration,
    file: impl AsFd,
    offset: u64,
    len: usize,
) -> io::Result<usize> {
    let len = len / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if len == 0 {
        return Ok(0);
    }
    let range = Reservation::anywhere(len, HUGE_PAGE_BYTES)?;
    // SAFETY: the range is the reservation made above, and nothing has a reference into it.
    unsafe { map_shared_fixed(range.base(), len, file, offset, Prot::Read)? };
    let begun = Instant::now();
    let mut gathered = 0;
    while gathered < len && (gathered == 0 || begun.elapsed() < time) {
        let bytes = GATHERED_AT_ONCE.min(len - gathered);
        // SAFETY: the bytes lie in the range, and the advice changes none of them.
        let refused = unsafe {
            libc::madvise(range.base().add(gathered).cast(), bytes, libc::MADV_COLLAPSE) != 0
        };
        if refused {
            return Err(io::Error::last_os_error());
        }
        gathered += bytes;
    }
    Ok(gathered)
}

/// New huge pages that are made between two looks at the clock, at most: the first is made alone,
/// since what it takes says most of what others will.
const NEW_AT_ONCE: usize = 4 * HUGE_PAGE_BYTES;
/// What a new huge page may take of the processor's time: as much as its 512 small ones would.
const NEW_HUGE_PAGE_TIME: Duration = Duration::from_millis(1);
/// So many times that, all may take on the clock: the kernel may wait for room, or for processors.
const WAIT_FACTOR: u32 = 16;

/// Allocates the whole huge pages of a range of a file in memory (tmpfs), filled with zeros: in an
/// eighth of the time that small pages take until all of them were stored to. What is there stays as
/// it is. A file that is shorter becomes as long as the huge pages that were tried.
///
/// Ends at the first that the kernel has no room for, and when it took longer than small pages
/// would, since huge ones are rare, or a virtual machine's host has to make them first. It says then
/// that no more should be tried. So who relies on the range allocates it afterwards, which costs
/// little where it is.
///
/// # Errors
/// What `fallocate` and `madvise(MADV_COLLAPSE)` report; a part may have been allocated.
pub fn allocate_huge_pages(file: &File, range: Range<u64>) -> io::Result<NewHugePages> {
    const HUGE: u64 = HUGE_PAGE_BYTES as u64;
    let start = range.start.next_multiple_of(HUGE);
    let Some(len) = (range.end / HUGE * HUGE).checked_sub(start).filter(|len| *len > 0) else {
        return Ok(NewHugePages::All);
    };
    let window = Reservation::anywhere(len as usize, HUGE_PAGE_BYTES)?;
    // SAFETY: the range is the reservation made above, and nothing has a reference into it.
    unsafe { map_shared_fixed(window.base(), window.len(), file, start, Prot::Read)? };
    let (begun, begun_cpu, mut time) = (Instant::now(), thread_cpu_time(), Duration::ZERO);
    let (mut at, mut at_once) = (0, HUGE_PAGE_BYTES);
    while at < window.len() {
        let bytes = at_once.min(window.len() - at);
        for page in (at..at + bytes).step_by(HUGE_PAGE_BYTES) {
            // The kernel gathers where something is. With the last page, the file is long enough.
            let end = start + page as u64 + HUGE;
            crate::file::allocate(file, end - 4096..end)?;
            time += NEW_HUGE_PAGE_TIME;
        }
        // SAFETY: the bytes lie in the reservation, and the advice changes none of them.
        if unsafe { libc::madvise(window.base().add(at).cast(), bytes, libc::MADV_COLLAPSE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // Who else uses the processor says little of them, so the clock has more of it.
        if thread_cpu_time() - begun_cpu > time || begun.elapsed() > time * WAIT_FACTOR {
            return Ok(NewHugePages::TooSlow);
        }
        at += bytes;
        at_once = (2 * at_once).min(NEW_AT_ONCE);
    }
    Ok(NewHugePages::All)
}

/// How far [`allocate_huge_pages`] came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewHugePages {
    /// All are there.
    All,
    /// Some are, and they took longer than small pages.
    TooSlow,
}

/// Asks for huge pages under memory that no process has touched yet, so that filling it takes few
/// faults. A kernel that refuses costs speed only.
pub fn prefer_huge_pages(memory: &mut [std::mem::MaybeUninit<u8>]) {
    let skip = memory.as_ptr().align_offset(HUGE_PAGE_BYTES);
    let len = memory.len().saturating_sub(skip) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if len > 0 {
        // SAFETY: the range lies in memory that the caller lends, and the advice changes no byte of
        // it.
        let _ = unsafe {
            rustix::mm::madvise(
                memory.as_mut_ptr().add(skip).cast(),
                len,
                rustix::mm::Advice::LinuxHugepage,
            )
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// Gathering huge pages changes no byte and may be refused.
    #[test]
    fn huge_page_collapse_changes_no_byte() {
        let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
        let bytes: Vec<u8> = (0..5 << 20).map(|at: u32| (at / 4096) as u8).collect();
        file.write_all(&bytes).unwrap();
        // Old kernels and the setting `deny` refuse; both leave the file alone.
        let _ = gather_huge_pages(Duration::MAX, &file, 0, bytes.len());
        assert_eq!(gather_huge_pages(Duration::MAX, &file, 0, 4096).unwrap(), 0);
        let mut found = vec![0; bytes.len()];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 0).unwrap();
        assert!(found == bytes);
    }

    /// Without time the gathering ends after its first piece, and says so; with time it comes to the
    /// end.
    #[test]
    fn gathering_of_huge_pages_ends_with_its_time() {
        let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
        let len = 2 * GATHERED_AT_ONCE + HUGE_PAGE_BYTES;
        file.write_all(&vec![1; len]).unwrap();
        let Ok(first) = gather_huge_pages(Duration::ZERO, &file, 0, len + 4096) else {
            eprintln!("the kernel gathers no huge pages");
            return;
        };
        assert_eq!(first, GATHERED_AT_ONCE);
        let all = gather_huge_pages(Duration::MAX, &file, 0, len + 4096).unwrap();
        assert_eq!(all, len);
    }

    /// Whole huge pages of a range are there, as zeros; what was there is as it was, and the rest a
    /// hole.
    #[test]
    fn new_huge_pages_are_zeros_beside_what_was_there() {
        const HUGE: u64 = HUGE_PAGE_BYTES as u64;
        let mut file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.write_all(&vec![7; HUGE_PAGE_BYTES + 5_000]).unwrap();
        match allocate_huge_pages(&file, 4096..4 * HUGE + 4096) {
            Ok(NewHugePages::All) => {}
            other => {
                println!("not run: the kernel has no huge pages on request: {other:?}");
                return;
            }
        }
        assert_eq!(file.metadata().unwrap().len(), 4 * HUGE);
        let mut found = vec![1; 4 * HUGE_PAGE_BYTES];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 0).unwrap();
        let (old, new) = found.split_at(HUGE_PAGE_BYTES + 5_000);
        assert!(old.iter().all(|byte| *byte == 7) && new.iter().all(|byte| *byte == 0));
        use std::os::unix::fs::MetadataExt;
        let allocated = file.metadata().unwrap().blocks() * 512;
        assert_eq!(allocated, 4 * HUGE, "of the range");
        // Nothing to do, and a file that is in no memory.
        allocate_huge_pages(&file, 1..2 * HUGE - 1).unwrap();
        let disk = tempfile::tempfile_in("/var/tmp").unwrap();
        let _ = allocate_huge_pages(&disk, 0..HUGE);
    }

    #[test]
    fn a_reservation_has_the_alignment_asked_for() {
        for align in [1, 4096, 64 << 10, 2 << 20, 1 << 30] {
            let reservation = Reservation::anywhere(3 << 20, align).unwrap();
            assert_eq!(reservation.base() as usize % align.max(4096), 0);
            assert_eq!(reservation.len(), 3 << 20);
        }
        assert!(Reservation::anywhere(0, 4096).is_err());
        assert!(Reservation::anywhere(4096, 12_288).is_err());
        assert!(Reservation::anywhere(usize::MAX, 4096).is_err());
    }

    /// A taken address is refused and free again after the drop.
    #[test]
    fn taken_address_is_refused_until_dropped() {
        let address = 0x1234_0000_0000;
        let first = Reservation::at(address, 1 << 20).unwrap();
        let error = Reservation::at(address + (512 << 10), 1 << 20).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        drop(first);
        assert!(Reservation::at(address, 1 << 20).is_ok());
    }

    #[test]
    fn a_file_mapped_into_a_reservation_shares_its_bytes() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 8192]).unwrap();
        let reservation = Reservation::anywhere(1 << 20, 4096).unwrap();
        // SAFETY: the range lies in this test's reservation, and no reference into it exists.
        unsafe {
            map_shared_fixed(reservation.base(), 8192, &file, 0, Prot::Read).unwrap();
            assert_eq!(reservation.base().add(5000).read_volatile(), 7);
            protect(reservation.base(), 8192, Prot::ReadWrite).unwrap();
            reservation.base().write_volatile(9);
            map_none_fixed(reservation.base(), 8192).unwrap();
            map_anon_fixed(reservation.base(), 8192, Prot::ReadWrite).unwrap();
            assert_eq!(reservation.base().read_volatile(), 0);
        }
        let mut first = [0];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut first, 0).unwrap();
        assert_eq!(first, [9]);
    }
}
