//! Persistent byte ranges with a name, an owner key, a size limit and a fixed address.
//!
//! A *region* lives as an *image* in the *pool*, a directory in memory (tmpfs), where programs map
//! it and store to it; a *commit* brings it to the *store*, on a disk: as a *base file*, or as what
//! changed since, in the *journal* beside it. Opening finds the image (a *warm* open: nothing is
//! copied, whatever the size) or rebuilds it from the base (a *cold* one).
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
//! - The trusted side never believes a byte of a data area. What it needs to know is in the
//!   headers, which no applet can reach.
//! - Memory is allocated before it is exposed: a full pool is an error value, not a signal.
//! - An operation that fails leaves image and base as they were.
//!
//! This crate must not know what is in a region, or who maps it.

#![deny(unsafe_code)]

mod care;
mod error;
mod image;
mod media;
mod name;
mod names;
mod store;
pub mod text_file;

pub use care::repair::{Examination, FileFinding};
pub use care::rescue::{Replaced, Rescue};
pub use care::salvage::{ContinuationReport, DamageReport, DamagedFile, HeaderState};
pub use care::snapshot::{RestoreReport, SnapshotReader, SnapshotSummary};
pub use care::tidy::{Leftover, LeftoverKind};
pub use care::transfer::TransferReport;
pub use error::access::AccessError;
pub use error::key::KeyError;
pub use error::limit::LimitError;
pub use error::place::PlaceError;
pub use error::room::RoomReport;
pub use error::snapshot::SnapshotError;
pub use error::stream::StreamError;
pub use error::{ErrorKind, FileRemedy, RegionError, Result};
pub use holdfast_types::Durability;
pub use image::address::{AddressWindow, address_window, claim_addresses, reserve_addresses};
pub use image::dirty::DirtySource;
pub use image::memory::Consistency;
pub use image::private_copy::PrivateCopy;
pub use media::format::{LIMIT_BYTES_MAX, LIMIT_BYTES_MIN};
pub use media::medium::{Medium, MediumError};
pub use media::pool_kind::{PoolKind, Survives};
pub use media::storage::{KernelStorage, Storage};
pub use media::view::FileView;
pub use name::{NAME_BYTES_MAX, NameError, RegionName, WORKER_BYTES_MAX};
pub use names::access::{Access, Grant, Rights};
pub use names::eviction::EvictionReport;
pub use names::eviction::make_room;
pub use names::key::{KeyFingerprint, OwnerKey};
pub use names::namespace::NameSpace;
pub use names::places::Places;
pub use names::reader::RegionReader;
pub use names::region::closing::CloseReport;
pub use names::region::commit::{CommitReport, Written};
pub use names::region::lending::Lent;
pub use names::region::publication::PublishReport;
pub use names::region::{CheckpointReport, Opened, Region};
pub use names::room::{RoomMaker, ask_keeper_for_room, evict_databases_for_room};
pub use names::shared::{EnteredRegion, SharedRegion};
pub use names::summary::{FileSummary, RegionState, RegionSummary};

pub use holdfast_sys::process::Occupant;
