//! Regions by name: places, keys, locks, access, opening, and the open region with its commits.
//!
//! Uses the floors below ([`crate::media`], [`crate::store`], [`crate::image`]).

pub(crate) mod access;
pub(crate) mod addresses;
pub(crate) mod compartments;
pub(crate) mod eviction;
pub(crate) mod granting;
pub(crate) mod grants;
pub(crate) mod key;
pub(crate) mod limits;
pub(crate) mod namespace;
pub(crate) mod one_pool;
pub(crate) mod opening;
pub(crate) mod places;
pub(crate) mod pool_owner;
pub(crate) mod quotas;
pub(crate) mod reader;
pub(crate) mod region;
pub(crate) mod removing;
pub(crate) mod room;
pub(crate) mod shared;
pub(crate) mod summary;
