//! Access to a region: rights, grants, and what is refused.
//!
//! Invariants:
//! - A region's owner key may do everything, whatever any table says. Every other key may do what a
//!   whole table of this very region grants it, and nothing else.
//! - What is refused tells nothing of the region's content.

#![forbid(unsafe_code)]

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::name::RegionName;
use crate::names::key::KeyFingerprint;

/// What a key may do with a region that it does not own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Rights {
    /// Map it and read it.
    Read,
    /// Store to it as well, commit, and let it grow.
    Write {
        /// How far this key may let the region grow, in bytes; `None` up to the region's limit.
        quota_bytes: Option<u64>,
    },
}

/// One row of an access table.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grant {
    /// The key, by its fingerprint.
    pub key: KeyFingerprint,
    /// What the owner calls the key: the name of its file at the time of the grant.
    pub label: Option<RegionName>,
    /// What it may do.
    pub rights: Rights,
}

impl Grant {
    /// A row for a key that the owner calls `label`.
    #[must_use]
    pub fn new(key: KeyFingerprint, label: Option<RegionName>, rights: Rights) -> Grant {
        Grant { key, label, rights }
    }
}

impl Serialize for Grant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let (rights, quota_bytes) = match self.rights {
            Rights::Read => ("ro", None),
            Rights::Write { quota_bytes } => ("rw", quota_bytes),
        };
        let mut row = serializer.serialize_struct("Grant", 4)?;
        row.serialize_field("key", &self.label)?;
        row.serialize_field("fingerprint", &self.key)?;
        row.serialize_field("rights", rights)?;
        row.serialize_field("quota_bytes", &quota_bytes)?;
        row.end()
    }
}

/// What a key may do with a region, all told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// It is the owner's: everything.
    Owner,
    /// What the owner granted.
    Granted(Rights),
}

impl Access {
    /// Whether it may store.
    #[must_use]
    pub fn may_write(self) -> bool {
        !matches!(self, Access::Granted(Rights::Read))
    }

    pub(crate) fn quota_bytes(self) -> Option<u64> {
        match self {
            Access::Granted(Rights::Write { quota_bytes }) => quota_bytes,
            _ => None,
        }
    }
}
