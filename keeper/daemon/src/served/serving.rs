//! The side of a keeper that serves other users: who is connected, which regions are lent, and one
//! turn after the other.
//!
//! Invariants:
//! - A turn waits for no process. In each, every user gets as many answers as every other, and one
//!   slice of work.
//! - The kernel names the client (`SO_PEERCRED`), once for a connection. A process that is
//!   not admitted, or has too many connections, gets a word and nothing else.
//! - A connection that ends, however it does, ends its loan: what was stored is brought to the
//!   region, before anybody else can have it.
//! - All that is kept is bounded: connections by number, each with one request, one answer and one
//!   region; and so is what waits to be closed.

use std::collections::BTreeMap;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use holdfast_region::{NameSpace, Places, RegionName};
use holdfast_sys::counted::counted;
use rustix::event::{PollFd, PollFlags};

use crate::closer::Closer;
use crate::error::{DaemonError, Result};
use crate::serve::{ACCEPT_PAUSE, pauses};
use crate::served::connection::{AfterAnswer, Connection, peer};
use crate::served::lease::Leases;
use crate::served::loan::{Loan, LoanOutcome};
use crate::served::place::{bind, raise_descriptor_limit};
use crate::served::policy::ServePolicy;
use crate::served::users::{Counts, Holdings};
use holdfast_keeper_client::ServedStatus;
use holdfast_keeper_client::served_wire::{RefusedKind, ServedAnswer};

/// What is read or copied for a user in a turn.
const SLICE_BYTES: u64 = 4 << 20;
/// Connections taken in a turn.
const ACCEPTS_MAX: usize = 16;
/// How long until what failed for a process that is gone is tried again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Connections and descriptors of peers that wait until they can be closed; then no new peer is
/// taken.
const PARKED_MAX: u64 = 64;
/// Descriptors that a loan takes, at most: image, lease, and what a region has open.
const DESCRIPTORS_PER_LOAN: u64 = 12;
/// Those that the rest of the keeper needs, and a commit for a moment.
const DESCRIPTORS_OF_KEEPER: u64 = 40;

/// The state of serving: policy, leases, connections and loans.
#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) policy: ServePolicy,
    pub(crate) names: NameSpace,
    pub(crate) leases: Leases,
    pub(crate) connections: Vec<Connection>,
    pub(crate) loans: BTreeMap<RegionName, Loan>,
    pub(crate) counts: BTreeMap<u32, Counts>,
    pub(crate) loans_max: usize,
    pub(crate) closer: Closer,
    listener: UnixListener,
    us: u32,
    /// Numbers connections and answers.
    sequence: u64,
    accepts_from: Option<Instant>,
    last_asked: u32,
    last_worked: u32,
}

/// What a turn did, for the counters of the keeper.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct TurnReport {
    pub(crate) refused: u64,
    pub(crate) failures: u64,
}

impl Serving {
    /// Brings what a region's borrower stored to the region, as [`Loan::bring_quietly`].
    pub(crate) fn bring(
        &mut self,
        name: &RegionName,
        attempts: u32,
        until: Option<Instant>,
    ) -> LoanOutcome {
        let Some(loan) = self.loans.get_mut(name) else { return LoanOutcome::Whole };
        let brought = loan.bring_quietly(&self.names, attempts, until);
        brought.unwrap_or_else(|error| LoanOutcome::Failed(error.to_string()))
    }

    /// Listens for users.
    pub(crate) fn new(places: &Places, policy: ServePolicy) -> Result<Serving> {
        let path = places.pool().join("served");
        let leases = Leases::of(places.pool()).map_err(DaemonError::io("make", &path))?;
        let listener = bind(&policy.socket)?;
        let descriptors = raise_descriptor_limit();
        let free = descriptors.saturating_sub(DESCRIPTORS_OF_KEEPER);
        let connections = (policy.connections as u64).min(free / 4).max(1);
        let parked = PARKED_MAX.min(free / 8).max(1);
        let loans_max = free.saturating_sub(connections + parked) / DESCRIPTORS_PER_LOAN;
        let policy = ServePolicy { connections: connections as usize, ..policy };
        Ok(Serving {
            names: NameSpace::new(places.clone()),
            leases,
            connections: Vec::new(),
            loans: BTreeMap::new(),
            counts: BTreeMap::new(),
            loans_max: usize::try_from(loans_max).unwrap_or(usize::MAX).max(1),
            closer: Closer::new(parked as usize),
            listener,
            us: holdfast_sys::file::effective_user(),
            sequence: 0,
            accepts_from: None,
            last_asked: 0,
            last_worked: 0,
            policy,
        })
    }

    /// Adds what it waits for.
    pub(crate) fn wait_for<'a>(&'a self, waits: &mut Vec<PollFd<'a>>) {
        if self.accepts_from.is_none() {
            waits.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        for connection in &self.connections {
            waits.push(PollFd::new(connection.stream(), connection.waits_for()));
        }
    }

    /// When something is due that no descriptor tells of.
    pub(crate) fn next_end(&self, now: Instant) -> Option<Instant> {
        let is_busy = self.connections.iter().any(|connection| connection.ask.is_some())
            || self.loans.values().any(|loan| loan.work.is_some() && loan.pause.is_none());
        let ends = self.connections.iter().filter_map(Connection::ends);
        let pauses = self.loans.values().filter_map(|loan| loan.pause);
        let all = ends.chain(pauses).chain(self.accepts_from).chain(is_busy.then_some(now));
        all.min()
    }

    /// Does what can be done now, a little for each.
    pub(crate) fn turn(&mut self, now: Instant) -> TurnReport {
        let mut report = TurnReport::default();
        self.accept(now, &mut report);
        for connection in &mut self.connections {
            if connection.go_on(now) {
                report.refused += 1;
                self.counts.entry(connection.user).or_default().refusals += 1;
            }
        }
        self.answer_some(now, &mut report);
        self.work_some(now, &mut report);
        self.end_loans();
        self.connections
            .extract_if(.., |connection| connection.is_over())
            .for_each(Connection::end);
        report
    }

    fn accept(&mut self, now: Instant, report: &mut TurnReport) {
        if self.accepts_from.take_if(|from| *from <= now).is_none() && self.accepts_from.is_some() {
            return;
        }
        for _ in 0..ACCEPTS_MAX {
            if self.closer.is_full() {
                self.accepts_from = Some(now + ACCEPT_PAUSE);
                return;
            }
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if pauses(&error) {
                        self.accepts_from = Some(now + ACCEPT_PAUSE);
                    }
                    return;
                }
            };
            let Ok(peer) = peer(&stream) else {
                self.closer.end(stream);
                continue;
            };
            self.sequence += 1;
            let times = (self.policy.patience, self.policy.idle);
            let mut connection =
                Connection::new(self.sequence, stream, peer, times, self.closer.clone(), now);
            match self.why_not(peer.0) {
                None => self.connections.push(connection),
                Some((kind, why)) => {
                    report.refused += 1;
                    // Once, without waiting: what does not fit is not sent.
                    let refused = ServedAnswer::Refused { kind, why };
                    connection.answer(&refused, Vec::new(), AfterAnswer::HangsUp, now);
                    connection.end();
                }
            }
        }
    }

    fn why_not(&mut self, user: u32) -> Option<(RefusedKind, String)> {
        if !self.policy.admits(user, self.us) {
            let why = format!(
                "user {user} is not served; whoever runs the keeper can add --serve-to {user}"
            );
            return Some((RefusedKind::Denied, why));
        }
        let of_user = self.connections.iter().filter(|connection| connection.user == user).count();
        let (user_max, all_max) = (self.policy.quota.connections, self.policy.connections);
        let why = if of_user >= user_max {
            format!(
                "user {user} has {}, and may have {user_max}; end one first",
                counted(of_user, "connection")
            )
        } else if self.connections.len() >= all_max {
            "the keeper has as many connections as it may; try again later".to_owned()
        } else {
            return None;
        };
        let counts = self.counts.entry(user).or_default();
        counts.quota_refusals += 1;
        counts.refusals += 1;
        Some((RefusedKind::Busy, why))
    }

    /// Answers as many requests of each user as of every other, beginning with another user each
    /// time.
    fn answer_some(&mut self, now: Instant, report: &mut TurnReport) {
        let asking = self.connections.iter().filter(|connection| connection.ask.is_some());
        let users = in_turn(asking.map(|connection| connection.user).collect(), self.last_asked);
        for user in users {
            self.last_asked = user;
            for _ in 0..self.policy.quota.requests_per_turn {
                let of_user = self.connections.iter().enumerate();
                let next = of_user
                    .filter(|(_, connection)| connection.user == user && connection.ask.is_some())
                    .min_by_key(|(_, connection)| connection.served);
                let Some((index, _)) = next else { break };
                self.sequence += 1;
                self.connections[index].served = self.sequence;
                self.answer(index, now, report);
            }
        }
    }

    /// One slice of work for each user that has some.
    fn work_some(&mut self, now: Instant, report: &mut TurnReport) {
        for loan in self.loans.values_mut() {
            loan.pause.take_if(|pause| *pause <= now);
        }
        let is_ready = |loan: &&Loan| loan.work.is_some() && loan.pause.is_none();
        let working = self.loans.values().filter(is_ready);
        let users = in_turn(working.map(|loan| loan.user).collect(), self.last_worked);
        for user in users {
            self.last_worked = user;
            let of_user =
                self.loans.iter_mut().filter(|(_, loan)| loan.user == user && is_ready(&&**loan));
            let Some((name, loan)) = of_user.min_by_key(|(_, loan)| loan.worked) else { continue };
            let name = name.clone();
            self.sequence += 1;
            loan.worked = self.sequence;
            match loan.step(&self.names, SLICE_BYTES) {
                Ok(false) => {}
                Ok(true) => self.finish(&name, now, report),
                Err(error) => self.fail(&name, &error, now, report),
            }
        }
    }

    /// What becomes of the loans of those who are gone.
    fn end_loans(&mut self) {
        for connection in self.connections.iter().filter(|connection| connection.is_over()) {
            let Some(name) = &connection.region else { continue };
            let Some(loan) = self.loans.get_mut(name) else { continue };
            if loan.connection != Some(connection.id) {
                continue;
            }
            if loan.is_filling() {
                // No process has got it.
                self.loans.remove(name);
                continue;
            }
            loan.hang_up();
        }
    }

    pub(crate) fn retry_later(&mut self, name: &RegionName, now: Instant) {
        if let Some(loan) = self.loans.get_mut(name) {
            loan.pause = Some(now + RETRY_PAUSE);
        }
    }

    /// What there is to say.
    pub(crate) fn status(&self) -> Result<ServedStatus> {
        let holdings = Holdings::of(&self.names)?;
        let mut users = holdings.users(&self.counts);
        for connection in &self.connections {
            let status = users.entry(connection.user).or_default();
            (status.user, status.connections) = (connection.user, status.connections + 1);
        }
        for loan in self.loans.values() {
            let status = users.entry(loan.user).or_default();
            (status.user, status.lent) = (loan.user, status.lent + 1);
        }
        Ok(ServedStatus {
            socket: self.policy.socket.display().to_string(),
            bytes: holdings.bytes(),
            total_bytes: self.policy.total_bytes,
            users: users.into_values().collect(),
        })
    }
}

/// Each of them once, those behind the last one first.
fn in_turn(mut users: Vec<u32>, last: u32) -> Vec<u32> {
    users.sort_unstable();
    users.dedup();
    let behind = users.partition_point(|user| *user <= last);
    users.rotate_left(behind);
    users
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of an earlier attempt: a process that had more connections was answered more often.
    ///
    /// Guarantee: keeper/fairness
    #[test]
    fn each_user_gets_one_answer_a_turn() {
        use std::io::Write;
        let directory = tempfile::tempdir().unwrap();
        let places =
            Places::at(directory.path().join("home"), directory.path().join("pool")).unwrap();
        let policy = ServePolicy::at(directory.path().join("served.sock"));
        let mut serving = Serving::new(&places, policy).unwrap();
        let asks = b"\x1a\0\0\0{\"version\":2,\"ask\":\"list\"}".repeat(20);
        let _clients: Vec<_> = (0..6)
            .map(|_| {
                let path = directory.path().join("served.sock");
                let mut client = std::os::unix::net::UnixStream::connect(path).unwrap();
                client.write_all(&asks).unwrap();
                client
            })
            .collect();
        // They come before they are taken: no process asks in the turn that takes them but the ones
        // taken.
        serving.accept(Instant::now(), &mut TurnReport::default());
        for (index, connection) in serving.connections.iter_mut().enumerate() {
            connection.user = if index < 5 { 7 } else { 8 };
        }
        for _ in 0..10 {
            serving.turn(Instant::now());
        }
        let answered = |user| serving.counts.get(&user).map_or(0, |counts| counts.requests);
        assert_eq!((answered(7), answered(8)), (10, 10));
        let served = serving.connections.iter().filter(|found| found.user == 7 && found.served > 0);
        assert_eq!(served.count(), 5, "one of its connections was forgotten");
    }

    /// Each user has a turn and the first is another one each time.
    #[test]
    fn users_take_turns_and_the_first_changes() {
        assert_eq!(in_turn(vec![3, 1, 2, 1], 0), [1, 2, 3]);
        assert_eq!(in_turn(vec![3, 1, 2, 1], 1), [2, 3, 1]);
        assert_eq!(in_turn(vec![3, 1, 2], 3), [1, 2, 3]);
        assert_eq!(in_turn(Vec::new(), 3), [0_u32; 0]);
    }
}
