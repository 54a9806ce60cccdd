//! The programs inside the machine. The first process sets the machine up and carries orders out;
//! started again, it is the writer of records in heaps or databases, their reader, or the keeper of
//! the heaps. Another program calls the applet.
//!
//! What it must not do: end as the first process, which the kernel answers with a panic of its own.

pub mod agent;
pub mod applets;
pub mod database;
pub mod database_writer;
pub mod keeping;
#[allow(unsafe_code, reason = "hands C functions of SQLite to the VFS")]
pub mod linked;
pub mod part;
pub mod port;
#[allow(unsafe_code, reason = "records are objects in a heap, reached by pointers")]
pub mod records;
pub mod system;
pub mod writer;

use std::path::PathBuf;

use holdfast_region::{NameSpace, OwnerKey, Places, RegionName};

use crate::place::{Place, Pool};

/// The word by which the agent starts the keeper.
pub const KEEP: &str = "keep";

/// Where the disk is mounted.
pub(crate) const FLASH: &str = "/flash";
/// Where the DAX file system is.
pub(crate) const PMEM: &str = "/pmem";

fn pool_directory(pool: Pool) -> PathBuf {
    match pool {
        Pool::Tmpfs => PathBuf::from("/run/pool"),
        Pool::Dax => PathBuf::from(PMEM).join("pool"),
    }
}

/// Each pool has a home of its own on the disk, since what belongs to a home is in one pool.
fn home(pool: Pool) -> PathBuf {
    PathBuf::from(FLASH).join(format!("home-{}", pool.name()))
}

/// Regions of a pool.
fn names(pool: Pool) -> Result<NameSpace, String> {
    let places = Places::at(home(pool), pool_directory(pool));
    places.map(NameSpace::new).map_err(|error| error.to_string())
}

fn region_name(place: Place) -> Result<RegionName, String> {
    RegionName::parse(&place.to_string()).map_err(|error| error.to_string())
}

fn key() -> OwnerKey {
    OwnerKey::from_bytes([0x4c; 32])
}
