//! The requests of users at the socket of a keeper that serves, and its answers: frames as in
//! [`crate::wire`], with version 2.
//!
//! A descriptor travels with the first byte of its frame: two with the answer `lent` (the image,
//! then the lease), one with the question `resume` (the image). More of them are closed, and the
//! request is refused.

use holdfast_types::Durability;
use serde::{Deserialize, Serialize};

/// The version of what users ask.
pub const SERVED_VERSION: u32 = 2;
/// A longer request is refused before it is read. Names and numbers need no more.
pub const SERVED_REQUEST_BYTES_MAX: usize = 4 << 10;
/// Descriptors of an answer.
pub const DESCRIPTORS_LENT: usize = 2;

/// What a user can ask. Names are the user's own: the keeper puts who asks before them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum ServedAsk {
    /// A region that is there or, with a limit, is made.
    Open(RegionRequest),
    /// The same region once more, with the image in hand, after the connection was lost.
    Resume {
        name: String,
        token: String,
    },
    /// The descriptors of `lent` arrived. Nothing else is answered before.
    Taken,
    Grow {
        at_least_bytes: u64,
    },
    Commit {
        level: Durability,
    },
    /// Everything goes to the store, and the region is free.
    Close,
    Delete {
        name: String,
        user: Option<u32>,
    },
    List,
    Usage,
}

/// Which region.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionRequest {
    pub name: String,
    /// 0: it must be there.
    pub limit_bytes: u64,
    /// Whose it is, for programs that name a user. Only the one who asks is served.
    #[serde(default)]
    pub user: Option<u32>,
}

/// What is answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServedAnswer {
    Lent(LentAnswer),
    Ready,
    Grown { backed_bytes: u64 },
    Committed { level: Durability },
    Closed,
    Deleted,
    Listed(Vec<OwnRegion>),
    Usage(Usage),
    Refused { kind: RefusedKind, why: String },
}

/// What a program needs to use an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LentAnswer {
    /// Proves, after the connection was lost, that no process had the region in between.
    pub token: String,
    pub address: u64,
    pub backed_bytes: u64,
    pub limit_bytes: u64,
    pub is_new: bool,
}

/// A region, as its user sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnRegion {
    /// Its name.
    pub name: String,
    /// How far it may grow; counted against the quota.
    pub limit_bytes: u64,
    /// How much of it is allocated.
    pub backed_bytes: u64,
    /// Whether a program has it.
    pub is_lent: bool,
}

/// What a user has, and may have.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Regions.
    pub regions: u64,
    /// The limits of all of them.
    pub bytes: u64,
    /// How many regions there may be.
    pub quota_regions: u64,
    /// What their limits may be together.
    pub quota_bytes: u64,
}

/// Why a request was refused, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum RefusedKind {
    /// It is no request of this version.
    Malformed,
    /// This user is not served, or asks for what is another's.
    Denied,
    /// There is no such region.
    NotFound,
    /// Another program has it.
    Held,
    /// The user's quota is used up.
    Quota,
    /// The machine, or what all users may have together, is used up.
    NoRoom,
    /// The region is as large as it may get.
    LimitReached,
    /// Another program had the region since.
    Superseded,
    /// Not now: there is no region on this connection, or already one.
    OutOfTurn,
    /// Too many connections.
    Busy,
    /// The keeper failed.
    #[serde(other)]
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Request, frame, parse_request};

    #[test]
    fn requests_of_version_2_are_read_as_they_are_written() {
        let wanted = RegionRequest { name: "words".to_owned(), limit_bytes: 0, user: Some(7) };
        for ask in [
            ServedAsk::Open(wanted),
            ServedAsk::Resume { name: "words".to_owned(), token: "00".to_owned() },
            ServedAsk::Taken,
            ServedAsk::Grow { at_least_bytes: u64::MAX },
            ServedAsk::Commit { level: Durability::Power },
            ServedAsk::Close,
            ServedAsk::Delete { name: "words".to_owned(), user: None },
            ServedAsk::List,
            ServedAsk::Usage,
        ] {
            let bytes = frame(&Request { version: SERVED_VERSION, ask: ask.clone() });
            let parsed =
                parse_request::<ServedAsk>(&bytes, SERVED_VERSION, SERVED_REQUEST_BYTES_MAX);
            assert_eq!(parsed, Some(Ok(ask)));
        }
        let bytes = frame(&Request { version: SERVED_VERSION, ask: ServedAsk::Close });
        assert_eq!(&bytes[4..], br#"{"version":2,"ask":"close"}"#);
    }

    #[test]
    fn a_kind_of_a_later_keeper_is_a_failure() {
        assert_eq!(
            serde_json::from_str::<RefusedKind>(r#""moonlight""#).unwrap(),
            RefusedKind::Failed
        );
        assert_eq!(serde_json::from_str::<RefusedKind>(r#""quota""#).unwrap(), RefusedKind::Quota);
    }
}
