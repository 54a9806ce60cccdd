//! The program inside the machine: as its first process it sets the machine up and carries orders out; started again, it is
//! the writer of records, their reader, or the keeper of their heaps.
//!
//! What it must not do: end as the first process, which the kernel answers with a panic of its own.

pub mod agent;
pub mod keeping;
pub mod port;
#[allow(unsafe_code, reason = "records are objects in a heap, reached by pointers")]
pub mod records;
pub mod system;
pub mod writer;

use std::path::PathBuf;

use holdfast_region::{NameSpace, OwnerKey, Places, RegionName};

use crate::words::{Place, Pool};

/// The word by which the agent starts the writer; `early` for one that lies.
pub const WRITE: &str = "write";
/// As [`WRITE`].
pub const WRITE_EARLY: &str = "write-early";
/// The word by which the agent starts the reader.
pub const VERIFY: &str = "verify";

/// The word by which the agent starts the keeper.
pub const KEEP: &str = "keep";

/// Where the disk is mounted.
pub(crate) const FLASH: &str = "/flash";
/// Where the DAX file system is.
pub(crate) const PMEM: &str = "/pmem";

/// Regions of a pool. Each pool has a home of its own on the disk, since the heaps of a home are in one pool.
fn names(pool: Pool) -> Result<NameSpace, String> {
    let directory = match pool {
        Pool::Tmpfs => PathBuf::from("/run/pool"),
        Pool::Dax => PathBuf::from(PMEM).join("pool"),
    };
    let home = PathBuf::from(FLASH).join(format!("home-{}", pool.name()));
    Places::at(home, directory).map(NameSpace::new).map_err(|error| error.to_string())
}

fn region_name(place: Place) -> Result<RegionName, String> {
    RegionName::parse(&place.to_string()).map_err(|error| error.to_string())
}

fn key() -> OwnerKey {
    OwnerKey::from_bytes([0x4c; 32])
}
