//! A heap whose address is taken in this process gets another one, if all of its objects have
//! types.
//!
//! Invariants:
//! - Nothing is changed unless every pointer is known; the change counts as a whole or not at all
//!   (see `holdfast_region::Region::begin_relocation`).
//! - A heap whose relocation was killed before its last step is recognised by the address in its
//!   superblock, and is relocated again.

use holdfast_heap::{Backing, Described, Heap, OpenError, OpenOptions, Relocated, relocate};
use holdfast_region::{Region, RegionError};

use crate::{HeapOptions, HeapRegion, OpenHeapError, RegionBacking, try_open};

/// A heap that got another address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MovedHeap {
    /// The address before.
    pub from: u64,
    /// The address from now on.
    pub to: u64,
    /// What that changed.
    pub rewritten: Relocated,
}

/// As [`open_heap`](crate::open_heap); but if the heap's address is taken, all of its pointers are
/// rewritten for another one, which it keeps. `types` are the types of its roots.
///
/// # Errors
/// [`OpenHeapError`]; the region is closed then, and its data is as it was.
pub fn open_typed_heap(
    region: Region,
    types: &[Described],
) -> Result<(Heap<RegionBacking>, HeapRegion, Option<MovedHeap>), OpenHeapError> {
    open_typed_heap_on(region, HeapOptions::default(), types, |backing| backing)
}

/// As [`open_typed_heap`], with options, on a backing that is made from the region's.
///
/// # Errors
/// As [`open_typed_heap`] and [`open_heap_with`](crate::open_heap_with).
#[allow(clippy::type_complexity, reason = "three things, one of which is seldom there")]
pub fn open_typed_heap_on<B: Backing>(
    region: Region,
    options: HeapOptions,
    types: &[Described],
    wrap: impl Fn(RegionBacking) -> B,
) -> Result<(Heap<B>, HeapRegion, Option<MovedHeap>), OpenHeapError> {
    let mut shared = HeapRegion::new(region, options);
    let opened = match try_open(&mut shared, &wrap) {
        Err(taken) if is_elsewhere(&taken) => move_away(&mut shared, types, taken)
            .and_then(|moved| Ok((try_open(&mut shared, &wrap)?, Some(moved)))),
        opened => opened.map(|heap| (heap, None)),
    };
    match opened {
        Ok((heap, moved)) => Ok((heap, shared, moved)),
        Err(error) => {
            // The reason why it cannot be opened says more than why it could not be closed.
            let _ = shared.close();
            Err(error)
        }
    }
}

/// Whether another address would help.
fn is_elsewhere(error: &OpenHeapError) -> bool {
    match error {
        OpenHeapError::Region(RegionError::AddressTaken { .. }) => true,
        // A relocation published its pointers and died.
        OpenHeapError::Heap(OpenError::PointerMismatch { stored, wanted }) => stored.1 == wanted.1,
        _ => false,
    }
}

fn move_away(
    shared: &mut HeapRegion,
    types: &[Described],
    taken: OpenHeapError,
) -> Result<MovedHeap, OpenHeapError> {
    shared.with(Region::unmap)?;
    let (base, to) = shared.with(Region::begin_relocation)?;
    let backing = RegionBacking::new(base, shared.clone());
    let rewritten =
        match Heap::open(backing, OpenOptions { pointers: None, format_if_empty: false }) {
            Ok(mut heap) => {
                let from = heap.pointers().base;
                let rewritten = relocate(&mut heap, types, to);
                drop(heap.close());
                rewritten.map(|rewritten| MovedHeap { from, to, rewritten }).map_err(Ok)
            }
            // Nothing was ever stored in it: there is nothing to rewrite.
            Err(OpenError::Empty) => Ok(MovedHeap { from: 0, to, rewritten: Relocated::default() }),
            Err(error) => Err(Err(error)),
        };
    match rewritten {
        Ok(moved) => {
            shared.with(Region::finish_relocation)?;
            Ok(moved)
        }
        Err(reason) => {
            shared.with(Region::abandon_relocation)?;
            Err(match reason {
                Ok(reason) => OpenHeapError::NotRelocatable { taken: Box::new(taken), reason },
                Err(error) => error.into(),
            })
        }
    }
}
