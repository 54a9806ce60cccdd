//! Operations that a key may not do, and grants that cannot be given.

#![forbid(unsafe_code)]

use std::path::PathBuf;

use holdfast_sys::counted::counted;
use holdfast_types::Remedy;

use crate::error::kind::ErrorKind;

/// Why a key may not do something, or a grant cannot be given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AccessError {
    /// The region is open for reading, or the key may only read it.
    #[error(
        "the heap {name:?} may only be read with this key; {}",
        Remedy::GrantWriting { heap: Some(name) }
    )]
    ReadOnly {
        /// Name of the region.
        name: String,
    },
    /// The key may not let the region grow that far.
    #[error(
        "this key may let the heap {name:?} grow to {quota_bytes} bytes and {asked_bytes} were asked for; {}",
        Remedy::GrantQuota { heap: name }
    )]
    QuotaReached {
        /// Name of the region.
        name: String,
        /// The key's quota.
        quota_bytes: u64,
        /// What was asked for.
        asked_bytes: u64,
    },
    /// The access table is damaged: only the owner gets in.
    #[error(
        "the access table {} is damaged, so only the owner may use the heap, and can {}",
        path.display(),
        Remedy::RevokeAll { heap: name }
    )]
    TableDamaged {
        /// Name of the region.
        name: String,
        /// The table.
        path: PathBuf,
    },
    /// The access table has a newer format.
    #[error(
        "the access table {} has format version {found}, this program knows {known}; use a newer Holdfast",
        path.display()
    )]
    TableNewer {
        /// The table.
        path: PathBuf,
        /// Version in the table.
        found: u32,
        /// Newest version known here.
        known: u32,
    },
    /// There is nothing to revoke.
    #[error(
        "no key {key} was granted anything on the heap {name:?}; {}",
        Remedy::ListGrants { heap: name }
    )]
    NoSuchGrant {
        /// Name of the region.
        name: String,
        /// The key, as it was asked for.
        key: String,
    },
    /// The table is full.
    #[error("the heap {name:?} has {max} grants, which is all it can have; revoke some first")]
    TooManyGrants {
        /// Name of the region.
        name: String,
        /// How many a table can have.
        max: usize,
    },
    /// The key owns the region.
    #[error("this key owns the heap {name:?} and may do everything with it; grant to another key")]
    OwnKey {
        /// Name of the region.
        name: String,
    },
    /// A compartment was given where only a whole region can stand.
    #[error(
        "{name:?} is a compartment: private to one worker, made only by its owner, never granted, copied or merged; {}",
        Remedy::OpenCompartment
    )]
    Compartment {
        /// Name of the compartment.
        name: String,
    },
    /// A worker wants to change its own quota.
    #[error(
        "the limit of the compartment {name:?} counts against that of {parent:?} and is set with the key of that heap, not \
         by the worker: {}",
        Remedy::RaiseLimit { heap: Some(name) }
    )]
    ParentOnly {
        /// Name of the compartment.
        name: String,
        /// Name of the region above it.
        parent: String,
    },
    /// The region has compartments, which would be left behind.
    #[error(
        "the heap {name:?} has {} ({first:?} is one), which would be left behind; {}",
        counted(*count, "compartment"),
        Remedy::RemoveWithCompartments { heap: name }
    )]
    HasCompartments {
        /// Name of the region.
        name: String,
        /// How many.
        count: usize,
        /// The name of one.
        first: String,
    },
    /// The compartments of a region together would pass its limit.
    #[error(
        "the heap {parent:?} may have {limit_bytes} bytes with its compartments, {used_bytes} are given out and \
         {asked_bytes} were asked for; ask for a smaller compartment, remove one, or use a heap with a larger limit"
    )]
    NoQuotaLeft {
        /// Name of the region.
        parent: String,
        /// Its limit.
        limit_bytes: u64,
        /// What it has backed, and what its compartments may grow to.
        used_bytes: u64,
        /// What was asked for.
        asked_bytes: u64,
    },
}

impl AccessError {
    /// What kind of failure this is.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        match self {
            AccessError::ReadOnly { .. } | AccessError::ParentOnly { .. } => ErrorKind::Denied,
            AccessError::QuotaReached { .. } | AccessError::NoQuotaLeft { .. } => ErrorKind::NoRoom,
            AccessError::TableDamaged { .. } | AccessError::TableNewer { .. } => ErrorKind::BadFile,
            AccessError::NoSuchGrant { .. } => ErrorKind::NotFound,
            AccessError::TooManyGrants { .. }
            | AccessError::OwnKey { .. }
            | AccessError::Compartment { .. }
            | AccessError::HasCompartments { .. } => ErrorKind::Usage,
        }
    }
}
