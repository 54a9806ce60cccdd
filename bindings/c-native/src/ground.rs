//! The region under the open heap: one of this user's home, or one that a keeper lends
//! (`HOLDFAST_KEEPER`).
//!
//! Invariant: a served heap is given up only after the keeper has all of it in its store.

use std::path::{Path, PathBuf};

use holdfast_heap::Heap;
use holdfast_keeper_client::{Borrower, NativeBacking, ServedRegion, open_served_heap};
use holdfast_native_heap::HeapRegion;
use holdfast_region::{Consistency, Durability, Region};

use crate::failure::Failure;

/// Where a keeper serves.
const KEEPER_VARIABLE: &str = "HOLDFAST_KEEPER";

/// The region under the open heap, and the calls that depend on whose it is.
pub(crate) enum Ground {
    Own(HeapRegion),
    Served(ServedRegion),
}

impl Ground {
    /// The socket of the keeper that the user wants heaps from.
    pub(crate) fn keeper() -> Option<PathBuf> {
        std::env::var_os(KEEPER_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    /// A heap from a keeper.
    pub(crate) fn borrow(
        socket: &Path,
        name: &str,
        limit_bytes: u64,
        portable: bool,
    ) -> Result<(Heap<NativeBacking>, ServedRegion), Failure> {
        let borrowed = Borrower::new(socket).open(name, limit_bytes, None)?;
        Ok(open_served_heap(borrowed, portable, NativeBacking::Served)?)
    }

    pub(crate) fn consistency(&self) -> Consistency {
        match self {
            Ground::Own(region) => region.with(|region: &mut Region| region.consistency()),
            Ground::Served(_) => Consistency::Direct,
        }
    }

    pub(crate) fn set_limit(&self, limit_bytes: u64) -> Result<(), Failure> {
        match self {
            Ground::Own(region) => region.set_limit(limit_bytes).map(drop).map_err(Failure::from),
            Ground::Served(_) => Err(Failure::ServedLimit),
        }
    }

    pub(crate) fn commit(backing: &NativeBacking, durability: Durability) -> Result<(), Failure> {
        match backing {
            NativeBacking::Own(backing) => {
                backing.region().commit(durability).map(drop).map_err(Failure::from)
            }
            NativeBacking::Served(backing) => {
                backing.region().commit(durability).map(drop).map_err(Failure::from)
            }
        }
    }

    /// The heap was closed.
    pub(crate) fn close(self) -> Result<(), Failure> {
        match self {
            Ground::Own(region) => {
                region.commit(Durability::Process)?;
                region.close()?;
            }
            // Everything is in the store already: a keeper that is gone by now finds the region
            // when it comes back, and the lease goes with this value.
            Ground::Served(region) => drop(region.close()),
        }
        Ok(())
    }
}
