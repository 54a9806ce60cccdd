//! The users that a keeper serves, and the limits of each. Data only.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const MIB: u64 = 1 << 20;

/// The users that may ask, besides the keeper's own and root.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Served {
    /// No process: what a user holds is the whole machine's memory, so each is let in by name.
    #[default]
    Nobody,
    /// These, by their numbers.
    Users(Vec<u32>),
    /// Everybody who can connect.
    All,
}

/// What one user may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Quota {
    /// The limits of all regions together. All of it can be in memory, so all of it counts.
    pub bytes: u64,
    /// Regions.
    pub regions: u64,
    /// Open connections, each of which can have one region.
    pub connections: usize,
    /// Requests in a turn of the keeper, in which every other user has as many.
    pub requests_per_turn: usize,
}

/// A step of a request, for tests that kill the keeper there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Phase {
    /// The request was read and is understood.
    Asked,
    /// The region is open, or was made.
    Opened,
    /// The image for the borrower is filled.
    Filled,
    /// It is noted that the region is lent.
    Noted,
    /// Its image was grown.
    Grown,
    /// What the borrower stored was read.
    Copied,
    /// It counts.
    Published,
    /// It is where the level says.
    Committed,
    /// The region is closed.
    Closed,
    /// It is noted that it is lent no more.
    Returned,
    /// The region is gone.
    Removed,
    /// The answer is ready, and nothing of it was sent.
    Answering,
}

impl Phase {
    /// All of them.
    pub const ALL: [Phase; 12] = [
        Phase::Asked,
        Phase::Opened,
        Phase::Filled,
        Phase::Noted,
        Phase::Grown,
        Phase::Copied,
        Phase::Published,
        Phase::Committed,
        Phase::Closed,
        Phase::Returned,
        Phase::Removed,
        Phase::Answering,
    ];
}

/// Called at each phase.
#[derive(Clone)]
pub struct PhaseHook(pub Arc<dyn Fn(Phase) + Send + Sync>);

impl std::fmt::Debug for PhaseHook {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("PhaseHook")
    }
}

/// Which users a keeper serves, and the limits of each.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServePolicy {
    /// Where users connect.
    pub socket: PathBuf,
    /// The users that may ask.
    pub users: Served,
    /// What each may have.
    pub quota: Quota,
    /// What the regions of all users may take together.
    pub total_bytes: u64,
    /// Connections of all users together.
    pub connections: usize,
    /// How long a request may take to arrive, and an answer to be taken.
    pub patience: Duration,
    /// How long a connection without a region may be silent.
    pub idle: Duration,
    /// For tests.
    pub phases: Option<PhaseHook>,
}

impl ServePolicy {
    /// Only the keeper's own user and root, at a socket.
    #[must_use]
    pub fn at(socket: impl Into<PathBuf>) -> ServePolicy {
        ServePolicy {
            socket: socket.into(),
            users: Served::default(),
            quota: Quota { bytes: 256 * MIB, regions: 64, connections: 16, requests_per_turn: 1 },
            total_bytes: 1024 * MIB,
            connections: 128,
            patience: Duration::from_secs(5),
            idle: Duration::from_secs(60),
            phases: None,
        }
    }

    /// Whether a user is served by a keeper that runs as `us`.
    #[must_use]
    pub fn admits(&self, user: u32, us: u32) -> bool {
        user == 0
            || user == us
            || match &self.users {
                Served::Nobody => false,
                Served::Users(users) => users.contains(&user),
                Served::All => true,
            }
    }

    pub(crate) fn at_phase(&self, phase: Phase) {
        if let Some(PhaseHook(hook)) = &self.phases {
            hook(phase);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: keeper/admission
    #[test]
    fn nobody_is_served_who_was_not_let_in() {
        let mut policy = ServePolicy::at("/run/s");
        assert!(policy.admits(5, 5) && policy.admits(0, 5) && !policy.admits(6, 5));
        policy.users = Served::Users(vec![6]);
        assert!(policy.admits(6, 5) && !policy.admits(7, 5));
        policy.users = Served::All;
        assert!(policy.admits(7, 5));
    }
}
