//! Persistent byte ranges with a name, an owner key, a size limit and a fixed address.
//!
//! A *region* lives as an *image* in the *pool*, a directory in memory (tmpfs), where programs map it and
//! store to it; a *commit* brings it to the *store*, on a disk: as a *base file*, or as what changed since, in
//! the *journal* beside it. Opening finds
//! the image (a *warm* open: nothing is copied, whatever the size) or rebuilds it from the base (a *cold*
//! one).
//!
//! ```no_run
//! use holdfast_region::{NameSpace, OwnerKey, Places, RegionName};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let places = Places::from_env()?;
//! let key = OwnerKey::load_or_create(&places, "default")?;
//! let names = NameSpace::new(places);
//! let mut region = names.open_or_create(&RegionName::parse("words")?, &key, 64 << 20)?;
//! let base = region.map_native()?;
//! println!("{} bytes at {base:p}, {:?}", region.backed_bytes(), region.opened());
//! region.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! Invariants of the whole:
//! - One writer at a time, or many readers. A holder that died never blocks the next one.
//! - A key other than the owner's may do what the owner granted it, and nothing else.
//! - The trusted side never believes a byte of a data area. What it needs to know is in the headers, which no
//!   applet can reach.
//! - Memory is allocated before it is exposed: a full pool is an error value, not a signal.
//! - An operation that fails leaves image and base as they were.
//!
//! This crate must not know what is in a region, or who maps it.

#![deny(unsafe_code)]

mod access;
mod address;
mod atomic;
mod base;
mod closing;
mod commit;
mod compare;
mod compartments;
mod dirty;
mod error;
mod error_kind;
mod files;
mod format;
mod granting;
mod grants;
mod growth;
mod image;
mod journal;
mod key;
mod lending;
mod limit;
mod lines;
mod medium;
mod memory;
mod name;
mod namespace;
mod one_pool;
mod opening;
mod order;
mod pending;
mod places;
mod pool_kind;
mod pool_owner;
mod private;
mod reader;
mod redo;
mod region;
mod relocation;
mod remedy;
mod repair;
mod rescue;
mod room;
mod salvage;
mod settle;
mod shared;
mod snapshot;
mod sparse;
mod storage;
mod stored;
mod stream;
mod summary;
mod tidy;
mod transfer;
mod unheld;
mod view;

pub use access::{Access, AccessError, Grant, Rights};
pub use address::{AddressWindow, address_window, claim_addresses, reserve_addresses};
pub use atomic::{Consistency, PublishReport};
pub use closing::CloseReport;
pub use commit::{CommitReport, Written};
pub use dirty::DirtySource;
pub use error::{ErrorKind, RegionError, Remedy, Result};
pub use format::{LIMIT_BYTES_MAX, LIMIT_BYTES_MIN};
pub use holdfast_types::Durability;
pub use key::{KeyError, KeyFingerprint, OwnerKey};
pub use lending::Lent;
pub use limit::LimitError;
pub use medium::{Medium, MediumError};
pub use name::{NAME_BYTES_MAX, NameError, RegionName, WORKER_BYTES_MAX};
pub use namespace::NameSpace;
pub use places::{PlaceError, Places};
pub use pool_kind::{PoolKind, Survives};
pub use reader::RegionReader;
pub use region::{CheckpointReport, Opened, Region};
pub use repair::{Examination, FileFinding};
pub use rescue::{Replaced, Rescue};
pub use room::{RoomMaker, RoomReport, ask_keeper_for_room, evict_databases_for_room, make_room};
pub use salvage::{ContinuationReport, DamageReport, DamagedFile, HeaderState};
pub use shared::{EnteredRegion, SharedRegion};
pub use snapshot::{RestoreReport, SnapshotError, SnapshotReader, SnapshotSummary};
pub use storage::{KernelStorage, Storage};
pub use stream::StreamError;
pub use summary::{FileSummary, RegionState, RegionSummary};
pub use tidy::{Leftover, LeftoverKind};
pub use transfer::TransferReport;
pub use unheld::EvictionReport;
pub use view::FileView;

pub use holdfast_sys::process::Occupant;
