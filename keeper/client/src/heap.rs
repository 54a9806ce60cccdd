//! A heap on a region that a keeper lends: mapped at its address from the image that came over the
//! socket.
//!
//! Invariants:
//! - The image cannot shrink (`Borrower` has looked), and `backed_bytes` of it are allocated: no
//!   store meets its end.
//! - The mapping lives as long as a handle to the region does; growth maps what the keeper has
//!   allocated, and nothing before.
//! - Nothing here talks to the keeper on a load or a store, nor when the heap's own segments
//!   suffice.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_heap::{Backing, GrowError, Heap, OpenError, OpenOptions, Pointers};
use holdfast_native_heap::TransactionPlace;
use holdfast_region::{Durability, RegionError, claim_addresses};
use holdfast_sys::mapping::{Prot, Reservation, map_shared_fixed, share_with_children};

use crate::borrower::Borrowed;
use crate::error::KeeperError;
use crate::served_wire::RefusedKind;

/// Why a region that was lent did not become a heap.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenServedError {
    /// Its addresses are not free.
    #[error(transparent)]
    Region(#[from] RegionError),
    /// It cannot be mapped.
    #[error(
        "cannot map the heap that the keeper lent: {0}; the process is out of memory or address space"
    )]
    Map(io::Error),
    /// Its bytes are no heap for a native program.
    #[error(transparent)]
    Heap(#[from] OpenError),
}

/// The region under a served heap.
#[derive(Debug, Clone)]
pub struct ServedRegion(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    borrowed: Mutex<Borrowed>,
    range: Reservation,
    limit_bytes: u64,
    /// Whether children that are forked get nothing of the mapping.
    hidden: AtomicBool,
}

/// A served region as a heap's backing.
#[derive(Debug)]
pub struct ServedBacking {
    base: NonNull<u8>,
    backed_bytes: u64,
    region: ServedRegion,
    place: TransactionPlace,
}

// SAFETY: the mapping belongs to the process, not to a thread; the pointer is only handed on to the
// heap, which moves along.
unsafe impl Send for ServedBacking {}

impl ServedRegion {
    fn with<R>(&self, work: impl FnOnce(&mut Borrowed) -> R) -> R {
        work(&mut self.0.borrowed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// As
    /// [`HeapRegion::hide_from_children`](holdfast_native_heap::HeapRegion::hide_from_children).
    ///
    /// # Errors
    /// What the kernel reports.
    pub fn hide_from_children(&self) -> io::Result<()> {
        hide(self.0.range.base(), self.with(|borrowed| borrowed.backed_bytes()))?;
        self.0.hidden.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Has the keeper bring everything stored so far to its region, and make it survive what the
    /// level names. No thread may store to the heap meanwhile.
    ///
    /// # Errors
    /// Those of [`Borrowed::commit`].
    pub fn commit(&self, durability: Durability) -> Result<Durability, KeeperError> {
        self.with(|borrowed| borrowed.commit(durability))
    }

    /// Gives the region back. The heap must have been closed before.
    ///
    /// # Errors
    /// Those of [`Borrowed::close`].
    pub fn close(self) -> Result<(), KeeperError> {
        self.with(Borrowed::close)
    }
}

impl ServedBacking {
    /// The region.
    #[must_use]
    pub fn region(&self) -> &ServedRegion {
        &self.region
    }
}

// SAFETY: the region is mapped at `base` while a handle to it exists (see the module),
// page-aligned, lent to this process alone, never shrinks, and `backed_bytes` of it are allocated.
unsafe impl Backing for ServedBacking {
    fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    fn backed_bytes(&self) -> u64 {
        self.backed_bytes
    }

    fn limit_bytes(&self) -> u64 {
        self.region.0.limit_bytes
    }

    fn enter_transaction(&self) -> bool {
        self.place.enter()
    }

    fn leave_transaction(&self) {
        self.place.leave();
    }

    fn grow(&mut self, bytes: u64) -> Result<u64, GrowError> {
        let limit_bytes = self.limit_bytes();
        let grown =
            self.region.with(|borrowed| borrowed.grow(bytes)).map_err(|error| match error {
                KeeperError::NotServed { kind: RefusedKind::LimitReached, .. } => {
                    GrowError::LimitReached { limit_bytes }
                }
                KeeperError::NotServed { kind: RefusedKind::NoRoom, .. } => GrowError::NoRoom,
                _ => GrowError::Failed,
            })?;
        map_part(&self.region, self.backed_bytes..grown).map_err(|_| GrowError::Failed)?;
        if self.region.0.hidden.load(Ordering::Relaxed) {
            let start = self.base.as_ptr().wrapping_add(self.backed_bytes as usize);
            hide(start, grown.saturating_sub(self.backed_bytes)).map_err(|_| GrowError::Failed)?;
        }
        self.backed_bytes = grown;
        Ok(grown)
    }
}

/// Maps what was lent at its address and opens the heap in it, on a backing that is made from the
/// region's; formats it if it is new. `portable`: the program stores references in it and no
/// pointers.
///
/// # Errors
/// [`OpenServedError`]; the region is given back then, and its data is as it was.
pub fn open_served_heap<B: Backing>(
    borrowed: Borrowed,
    portable: bool,
    wrap: impl FnOnce(ServedBacking) -> B,
) -> Result<(Heap<B>, ServedRegion), OpenServedError> {
    let (address, backed_bytes, limit_bytes) =
        (borrowed.address(), borrowed.backed_bytes(), borrowed.limit_bytes());
    let range = claim_addresses(address, limit_bytes)?;
    let base = NonNull::new(range.base())
        .ok_or_else(|| OpenServedError::Map(io::ErrorKind::Other.into()))?;
    let shared = Shared {
        borrowed: Mutex::new(borrowed),
        range,
        limit_bytes,
        hidden: AtomicBool::new(false),
    };
    let region = ServedRegion(Arc::new(shared));
    map_part(&region, 0..backed_bytes).map_err(OpenServedError::Map)?;
    let pointers = match portable {
        true => Pointers::PORTABLE,
        false => Pointers { base: address, bytes: size_of::<usize>() as u32 },
    };
    let place = TransactionPlace::take();
    let backing = ServedBacking { base, backed_bytes, region: region.clone(), place };
    let heap =
        Heap::open(wrap(backing), OpenOptions { pointers: Some(pointers), format_if_empty: true })?;
    Ok((heap, region))
}

/// Keeps a part of the mapping from the children that this process forks.
fn hide(start: *mut u8, bytes: u64) -> io::Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    // SAFETY: the part is mapped, and is the region's; nothing that a child gets of it is promised.
    unsafe { share_with_children(start, bytes as usize, false) }
}

/// Maps a part that the keeper has allocated, and that was not mapped before.
fn map_part(region: &ServedRegion, part: std::ops::Range<u64>) -> io::Result<()> {
    if part.is_empty() || part.end > region.0.limit_bytes {
        return if part.is_empty() { Ok(()) } else { Err(io::ErrorKind::InvalidInput.into()) };
    }
    let start = region.0.range.base().wrapping_add(part.start as usize);
    let len = (part.end - part.start) as usize;
    region.with(|borrowed| {
        // SAFETY: a part of the reservation, which is ours, behind everything that was mapped and
        // referred to so far.
        unsafe { map_shared_fixed(start, len, borrowed.image(), part.start, Prot::ReadWrite) }
    })
}
