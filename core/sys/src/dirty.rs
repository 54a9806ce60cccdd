//! Trackers of the pages of a shared mapping that were stored to, and the choice between them.
//!
//! Invariants:
//! - No store is missed: one that happens before [`DirtyTracker::take`] is called is in its answer,
//!   one that happens meanwhile is in that answer or in the next. A process that reads the pages
//!   after `take` has returned therefore has every byte that was stored before the call. An answer
//!   may name pages too many, never too few.
//! - After an error nothing is forgotten: the next answer is the whole mapping.
//!
//! What no tracker sees: stores through another mapping of the file, `write(2)` to the file, stores
//! of a process made by `fork` (the child has a mapping, but not the tracker), and transfers that
//! devices do to memory that was pinned before `take` (`O_DIRECT` reads, registered buffers of
//! io_uring) and end after it.

mod abi;
mod protect;
mod told;
mod userfault;

use std::fmt;
use std::io;
use std::ops::Range;
use std::str::FromStr;
use std::sync::OnceLock;

pub(crate) use abi::{PageRegion, Pagemap, Userfaultfd};
pub use told::Reporter;

use crate::mapping::{Prot, Reservation, map_shared_fixed};
use crate::probe::Support;

/// A way to find changed pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirtyMethod {
    /// userfaultfd with asynchronous write protection, and `ioctl(PAGEMAP_SCAN)`.
    Userfault,
    /// Pages are read-only until a fault handler notes their first store.
    Protect,
    /// The code that stores reports it; never chosen, only asked for.
    Reported,
    /// All pages, always.
    Everything,
}

impl DirtyMethod {
    /// All of them, best first.
    pub const ALL: [DirtyMethod; 4] = [
        DirtyMethod::Userfault,
        DirtyMethod::Protect,
        DirtyMethod::Reported,
        DirtyMethod::Everything,
    ];

    /// Its name, as it is asked for.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            DirtyMethod::Userfault => "uffd",
            DirtyMethod::Protect => "mprotect",
            DirtyMethod::Reported => "reported",
            DirtyMethod::Everything => "everything",
        }
    }

    /// Whether stores that the kernel does on the process's behalf, such as `read(2)` into the
    /// mapping, work and are noticed without [`DirtyTracker::make_writable`].
    #[must_use]
    pub fn sees_kernel_stores(self) -> bool {
        matches!(self, DirtyMethod::Userfault | DirtyMethod::Everything)
    }
}

impl fmt::Display for DirtyMethod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for DirtyMethod {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<DirtyMethod, UnknownKind> {
        DirtyMethod::ALL
            .into_iter()
            .find(|kind| kind.name() == name)
            .ok_or_else(|| UnknownKind(name.to_owned()))
    }
}

/// There is no tracker of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownKind(pub String);

impl fmt::Display for UnknownKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = DirtyMethod::ALL.map(DirtyMethod::name).join(", ");
        write!(
            formatter,
            "no way to find changed pages is called {:?}; say one of: {names}",
            self.0
        )
    }
}

impl std::error::Error for UnknownKind {}

/// Finds the pages of one mapping that were stored to. Dropping it ends the tracking; the mapping
/// is then readable and writable, and has its bytes.
pub trait DirtyTracker: Send {
    /// Which way it goes.
    fn kind(&self) -> DirtyMethod;

    /// The mapping now has `len` bytes, in place; the added part counts as not stored to.
    ///
    /// # Safety
    /// The added part must be as [`track`] wants the mapping, and no thread stores to it before
    /// this returns.
    ///
    /// # Errors
    /// `InvalidInput` when the mapping would shrink, pass its limit, or end within a page; else the
    /// kernel's.
    unsafe fn extend(&mut self, len: usize) -> io::Result<()>;

    /// What was stored to since the last call, or since the tracker was made: ranges of bytes
    /// relative to the mapping's first, page-aligned, sorted, none touching another. See the module
    /// for stores that happen meanwhile.
    ///
    /// # Errors
    /// The kernel's.
    fn take(&mut self) -> io::Result<Vec<Range<u64>>>;

    /// Whether [`DirtyTracker::take`] would answer with a range, without taking it; `None` from a
    /// tracker that does not know.
    fn peek(&self) -> Option<bool> {
        None
    }

    /// Prepares for stores to the range that the kernel is going to do on the process's behalf;
    /// they must end before the next [`DirtyTracker::take`]. Needed unless
    /// [`DirtyMethod::sees_kernel_stores`].
    ///
    /// # Errors
    /// The kernel's.
    fn make_writable(&mut self, bytes: Range<u64>) -> io::Result<()> {
        let _ = bytes;
        Ok(())
    }

    /// The reporter of stores, if the tracker needs one.
    fn reporter(&self) -> Option<Reporter> {
        None
    }
}

/// A shared mapping of a file, to be tracked.
#[derive(Debug, Clone, Copy)]
pub struct Mapping {
    /// First byte, page-aligned.
    pub base: *mut u8,
    /// Bytes that are mapped now, a multiple of the page size.
    pub len: usize,
    /// Bytes that it may grow to, in place.
    pub limit: usize,
}

// SAFETY: the value only carries bounds of address space, which belongs to the process and to no
// thread; what is done there is up to `unsafe` code under the contract of `track`.
unsafe impl Send for Mapping {}

impl Mapping {
    fn whole(&self) -> Vec<Range<u64>> {
        let mut whole = Vec::new();
        crate::page_set::push_merged(&mut whole, 0..self.len as u64);
        whole
    }

    /// What growth to `len` bytes adds.
    fn added(&self, len: usize) -> io::Result<Range<usize>> {
        if len < self.len || len > self.limit || !len.is_multiple_of(rustix::param::page_size()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(self.len..len)
    }
}

/// Tracks a mapping in the way asked for; everything in it counts as not stored to.
///
/// # Safety
/// `len` bytes from `base` must be a shared mapping of a file that was opened for reading and
/// writing, of the caller's, that stays mapped until the tracker is dropped. Meanwhile nothing else
/// changes its protection to writable, maps over it or drops its pages (`madvise`). No thread
/// stores to it while the tracker is made or dropped.
///
/// # Errors
/// `InvalidInput` when the mapping is not aligned to pages or larger than its limit; else what the
/// kernel says.
pub unsafe fn track(mapping: Mapping, kind: DirtyMethod) -> io::Result<Box<dyn DirtyTracker>> {
    if !(mapping.base as usize).is_multiple_of(rustix::param::page_size()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    mapping.added(mapping.len)?;
    Ok(match kind {
        // SAFETY: the caller's contract.
        DirtyMethod::Userfault => Box::new(unsafe { userfault::Userfault::new(mapping)? }),
        // SAFETY: the caller's contract.
        DirtyMethod::Protect => Box::new(unsafe { protect::Protect::new(mapping)? }),
        DirtyMethod::Reported => Box::new(told::Reported::new(mapping)),
        DirtyMethod::Everything => Box::new(told::Everything(mapping)),
    })
}

/// Tracks a mapping in the way asked for or, if none is, in the best way that works for it here.
///
/// # Safety
/// As for [`track`].
///
/// # Errors
/// As [`track`] for a way that was asked for. Without that, only `InvalidInput`.
pub unsafe fn choose(
    mapping: Mapping,
    forced: Option<DirtyMethod>,
) -> io::Result<Box<dyn DirtyTracker>> {
    if let Some(kind) = forced {
        // SAFETY: the caller's contract.
        return unsafe { track(mapping, kind) };
    }
    for kind in CHOICES.into_iter().filter(|kind| available(*kind).is_usable()) {
        // What works in a memory file may yet be refused for this file.
        // SAFETY: the caller's contract.
        if let Ok(tracker) = unsafe { track(mapping, kind) } {
            return Ok(tracker);
        }
    }
    // SAFETY: the caller's contract.
    unsafe { track(mapping, DirtyMethod::Everything) }
}

/// Ways that ask something of the kernel, best first.
const CHOICES: [DirtyMethod; 2] = [DirtyMethod::Userfault, DirtyMethod::Protect];

/// The best way that works here.
#[must_use]
pub fn best() -> DirtyMethod {
    CHOICES.into_iter().find(|kind| available(*kind).is_usable()).unwrap_or(DirtyMethod::Everything)
}

/// Whether a way works for this process, found by using it once on a mapping made for that; the
/// answer is kept. Nothing is left behind, but that [`DirtyMethod::Protect`] installs the process's
/// fault handler, as every mapped region does.
#[must_use]
pub fn available(kind: DirtyMethod) -> Support {
    static USERFAULT: OnceLock<Support> = OnceLock::new();
    static PROTECT: OnceLock<Support> = OnceLock::new();
    match kind {
        DirtyMethod::Userfault => *USERFAULT.get_or_init(|| try_out(kind).into()),
        DirtyMethod::Protect => *PROTECT.get_or_init(|| try_out(kind).into()),
        DirtyMethod::Reported | DirtyMethod::Everything => Support::Usable,
    }
}

fn try_out(kind: DirtyMethod) -> io::Result<()> {
    let page_bytes = rustix::param::page_size();
    let len = 4 * page_bytes;
    let file = rustix::fs::memfd_create("holdfast-probe", rustix::fs::MemfdFlags::CLOEXEC)?;
    rustix::fs::ftruncate(&file, len as u64)?;
    let range = Reservation::anywhere(len, page_bytes)?;
    let mapping = Mapping { base: range.base(), len, limit: len };
    // SAFETY: the range is the reservation made above, which no other code knows; the tracker goes
    // before it does, and the store stays within the mapping.
    let (first, second) = unsafe {
        map_shared_fixed(range.base(), len, &file, 0, Prot::ReadWrite)?;
        let mut tracker = track(mapping, kind)?;
        range.base().add(2 * page_bytes).write_volatile(1);
        (tracker.take()?, tracker.take()?)
    };
    let stored = 2 * page_bytes as u64..3 * page_bytes as u64;
    if first == [stored] && second.is_empty() {
        Ok(())
    } else {
        // It takes the calls and does not do what they say.
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_is_found_by_its_name_and_no_other() {
        for kind in DirtyMethod::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "uffd ".parse::<DirtyMethod>().unwrap_err();
        assert!(error.to_string().contains("uffd, mprotect, reported, everything"), "{error}");
    }

    /// A mapping neither shrinks nor passes its limit nor ends within a page.
    #[test]
    fn mapping_grows_by_pages_within_its_limit() {
        let page_bytes = rustix::param::page_size();
        let mapping =
            Mapping { base: std::ptr::null_mut(), len: 2 * page_bytes, limit: 4 * page_bytes };
        assert_eq!(mapping.added(3 * page_bytes).unwrap(), 2 * page_bytes..3 * page_bytes);
        for len in [page_bytes, 5 * page_bytes, 2 * page_bytes + 1] {
            assert_eq!(mapping.added(len).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
    }
}
