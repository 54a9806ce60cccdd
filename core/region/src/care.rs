//! Maintenance of regions: repair, salvage, rescue, transfer, limits, snapshots.
//!
//! Stands above all other floors; none of them uses it.

pub(crate) mod limit;
pub(crate) mod medium;
pub(crate) mod repair;
pub(crate) mod rescue;
pub(crate) mod salvage;
pub(crate) mod settle;
pub(crate) mod snapshot;
pub(crate) mod tidy;
pub(crate) mod transfer;
