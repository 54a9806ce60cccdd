//! Answers each request of a user. Where something takes longer, the answer comes from
//! [`crate::served::ends`].
//!
//! Invariants:
//! - A user's name for a region leads below that user's number, and nowhere else. A process that
//!   names another user is refused before anything is looked at, so the refusal tells nothing.
//! - What the keeper's own files and paths are called is not told to users; the keeper's log has
//!   it.
//! - A region is charged with its limit when it is made: all of it can be in memory.

use std::fs::File;
use std::time::Instant;

use holdfast_region::{ErrorKind, OwnerKey, RegionError, RegionName};
use holdfast_sys::counted::counted;
use holdfast_sys::terminal::notice;

use crate::served::connection::AfterAnswer;
use crate::served::image::{has_seals, is_of_size};
use crate::served::loan::{Loan, LoanWork, Work};
use crate::served::own_name::{in_home, key_name};
use crate::served::policy::Phase;
use crate::served::serving::{Serving, TurnReport};
use crate::served::users::Holdings;
use holdfast_keeper_client::served_wire::{
    OwnRegion, RefusedKind, RegionRequest, ServedAnswer, ServedAsk,
};

/// What a limit is rounded to, and the least there is.
const LIMIT_UNIT_BYTES: u64 = 64 << 10;
const LIMIT_BYTES_MIN: u64 = 1 << 20;

/// Why not, in the words of a process that asks.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub(crate) kind: RefusedKind,
    pub(crate) why: String,
}

impl Refusal {
    pub(crate) fn new(kind: RefusedKind, why: impl Into<String>) -> Refusal {
        Refusal { kind, why: why.into() }
    }

    /// Without the keeper's paths, which its log has.
    pub(crate) fn of(error: &RegionError) -> Refusal {
        let (kind, why) = match error {
            RegionError::LimitReached { limit_bytes, asked_bytes } => (
                RefusedKind::LimitReached,
                format!(
                    "the region may have {limit_bytes} bytes, and {asked_bytes} were asked for"
                ),
            ),
            RegionError::LimitOutOfRange { asked_bytes, max_bytes } => (
                RefusedKind::Malformed,
                format!(
                    "a region may have {max_bytes} bytes at most, and {asked_bytes} were asked for"
                ),
            ),
            other => match other.kind() {
                ErrorKind::NotFound => (RefusedKind::NotFound, NOT_FOUND.to_owned()),
                ErrorKind::Held => (RefusedKind::Held, HELD.to_owned()),
                ErrorKind::NoRoom => (RefusedKind::NoRoom, NO_ROOM.to_owned()),
                ErrorKind::Denied => {
                    (RefusedKind::Denied, "a region of that name has another owner".to_owned())
                }
                _ => {
                    notice(format_args!("holdfast keeper: {other}"));
                    (RefusedKind::Failed, FAILED.to_owned())
                }
            },
        };
        Refusal { kind, why }
    }
}

const NOT_FOUND: &str = "there is no region of that name; give a size to have it made";
const HELD: &str = "another program has the region; end it first";
const NO_ROOM: &str =
    "memory or disk of the keeper is full; delete regions, or ask whoever runs it";
const FAILED: &str = "the keeper could not do it; its log says why";

type Answered = Result<Option<ServedAnswer>, Refusal>;

impl Serving {
    /// Answers the request of a connection, or begins what its answer needs.
    pub(crate) fn answer(&mut self, index: usize, now: Instant, report: &mut TurnReport) {
        let connection = &mut self.connections[index];
        let Some(ask) = connection.ask.take() else { return };
        let user = connection.user;
        self.policy.at_phase(Phase::Asked);
        match self.answer_to(index, ask) {
            Ok(None) => {}
            Ok(Some(answer)) => {
                self.counts.entry(user).or_default().requests += 1;
                self.policy.at_phase(Phase::Answering);
                self.connections[index].answer(&answer, Vec::new(), AfterAnswer::Asks, now);
            }
            Err(refusal) => self.refuse(index, refusal, now, report),
        }
    }

    pub(crate) fn refuse(
        &mut self,
        index: usize,
        refusal: Refusal,
        now: Instant,
        report: &mut TurnReport,
    ) {
        let Refusal { kind, why } = refusal;
        report.refused += 1;
        let counts = self.counts.entry(self.connections[index].user).or_default();
        counts.refusals += 1;
        counts.quota_refusals +=
            u64::from(matches!(kind, RefusedKind::Quota | RefusedKind::NoRoom));
        self.policy.at_phase(Phase::Answering);
        self.connections[index].answer(
            &ServedAnswer::Refused { kind, why },
            Vec::new(),
            AfterAnswer::Asks,
            now,
        );
    }

    fn answer_to(&mut self, index: usize, ask: ServedAsk) -> Answered {
        let user = self.connections[index].user;
        match ask {
            ServedAsk::Open(wanted) => self.open(index, &wanted),
            ServedAsk::Resume { name, token } => self.resume(index, &name, &token),
            ServedAsk::Grow { at_least_bytes } => {
                let name = self.own_loan(index)?;
                let Some(loan) = self.loans.get_mut(&name) else { return Err(no_region()) };
                let backed_bytes =
                    loan.grow(&self.names, at_least_bytes).map_err(|error| Refusal::of(&error))?;
                self.policy.at_phase(Phase::Grown);
                Ok(Some(ServedAnswer::Grown { backed_bytes }))
            }
            ServedAsk::Commit { level } => self.begin(index, LoanWork::Commit(level)),
            ServedAsk::Close => self.begin(index, LoanWork::Close),
            ServedAsk::Delete { name, user: of } => {
                check_user(user, of)?;
                self.delete(user, &name)
            }
            ServedAsk::List => {
                let holdings = Holdings::of(&self.names).map_err(|error| Refusal::of(&error))?;
                let regions = holdings.of_user(user).map(|(name, region)| OwnRegion {
                    name: name.to_owned(),
                    limit_bytes: region.limit_bytes,
                    backed_bytes: region.backed_bytes,
                    is_lent: self.loans.contains_key(&region.name)
                        || self.leases.is_leased(&region.name),
                });
                Ok(Some(ServedAnswer::Listed(regions.collect())))
            }
            ServedAsk::Usage => {
                let holdings = Holdings::of(&self.names).map_err(|error| Refusal::of(&error))?;
                Ok(Some(ServedAnswer::Usage(holdings.usage(user, &self.policy.quota))))
            }
            ServedAsk::Taken => Err(Refusal::new(RefusedKind::OutOfTurn, "nothing was lent")),
        }
    }

    fn open(&mut self, index: usize, wanted: &RegionRequest) -> Answered {
        let user = self.connections[index].user;
        check_user(user, wanted.user)?;
        let name = self.free_name(index, &wanted.name)?;
        if self.leases.is_leased(&name) {
            return Err(Refusal::new(RefusedKind::Held, HELD));
        }
        let exists = match self.names.summary(&name) {
            Ok(_) => true,
            Err(RegionError::NotFound { .. }) => false,
            Err(error) => return Err(Refusal::of(&error)),
        };
        if !exists {
            if wanted.limit_bytes == 0 {
                return Err(Refusal::new(RefusedKind::NotFound, NOT_FOUND));
            }
            self.check_quota(user, wanted.limit_bytes)?;
        }
        self.lend(index, name, wanted.limit_bytes, None)
    }

    fn resume(&mut self, index: usize, name: &str, token: &str) -> Answered {
        let given = self.connections[index].given.take();
        let given = given.ok_or_else(|| {
            Refusal::new(
                RefusedKind::Malformed,
                "a region is resumed with the descriptor of its image",
            )
        })?;
        // Before anything else is asked of it: what is no memory of that kind may take its time
        // with any answer.
        let image = if has_seals(&given) {
            Some(File::from(given))
        } else {
            self.closer.close(given);
            None
        };
        let name = self.free_name(index, name)?;
        let note = match self.leases.note(&name) {
            Ok(note) => note.filter(|note| note.token == token),
            Err(error) => {
                notice(format_args!("holdfast keeper: could not read the note of {name}: {error}"));
                return Err(Refusal::new(RefusedKind::Failed, FAILED));
            }
        };
        let Some(image) = image.filter(|image| note.is_some_and(|note| note.is_of(image))) else {
            let why = "another program had the region since the connection was lost, or removed it; what this one has \
                       stored since its last commit is not in it. Open it again";
            return Err(Refusal::new(RefusedKind::Superseded, why));
        };
        let limit_bytes =
            self.names.summary(&name).map_err(|error| Refusal::of(&error))?.limit_bytes;
        if !is_of_size(&image, limit_bytes) {
            return Err(Refusal::new(
                RefusedKind::Malformed,
                "the descriptor is not the image that was lent",
            ));
        }
        self.lend(index, name, 0, Some(image))
    }

    /// Opens the region for a connection. A new image is filled before it is answered.
    fn lend(
        &mut self,
        index: usize,
        name: RegionName,
        limit_bytes: u64,
        image: Option<File>,
    ) -> Answered {
        let connection = &self.connections[index];
        let (user, borrower) =
            (connection.user, (connection.user, connection.id, connection.process));
        let key = OwnerKey::load_or_create(self.names.places(), &key_name(user));
        let key = key.map_err(|error| Refusal::of(&error.into()))?;
        let is_filled = image.is_some();
        let opened = Loan::open(&self.names, (&name, &key, limit_bytes), borrower, image);
        let mut loan = opened.map_err(|error| Refusal::of(&error))?;
        if is_filled {
            loan.facts.is_new = false;
        }
        self.policy.at_phase(Phase::Opened);
        self.connections[index].region = Some(name.clone());
        self.loans.insert(name, loan);
        Ok(None)
    }

    /// The home's name of a region that no program has, for a connection that may get one.
    fn free_name(&self, index: usize, name: &str) -> Result<RegionName, Refusal> {
        let connection = &self.connections[index];
        if connection.region.is_some() || connection.has_borrowed {
            let why = "a connection has one region at most, and once; make another connection";
            return Err(Refusal::new(RefusedKind::OutOfTurn, why));
        }
        let name = named(connection.user, name)?;
        if self.loans.contains_key(&name) {
            return Err(Refusal::new(RefusedKind::Held, HELD));
        }
        if self.loans.len() >= self.loans_max {
            let why = "the keeper has lent as many regions as it can; try again later";
            return Err(Refusal::new(RefusedKind::Busy, why));
        }
        Ok(name)
    }

    fn check_quota(&self, user: u32, asked_bytes: u64) -> Result<(), Refusal> {
        let holdings = Holdings::of(&self.names).map_err(|error| Refusal::of(&error))?;
        let usage = holdings.usage(user, &self.policy.quota);
        let charged = asked_bytes.max(LIMIT_BYTES_MIN).checked_next_multiple_of(LIMIT_UNIT_BYTES);
        let charged = charged.unwrap_or(u64::MAX);
        if usage.regions >= usage.quota_regions {
            let why = format!(
                "a user may have {}, and this one has them; delete one",
                counted(usage.regions, "region")
            );
            return Err(Refusal::new(RefusedKind::Quota, why));
        }
        if usage.bytes.saturating_add(charged) > usage.quota_bytes {
            let why = format!(
                "the limits of a user's regions may be {} bytes together; they are {}, and {charged} were asked for",
                usage.quota_bytes, usage.bytes
            );
            return Err(Refusal::new(RefusedKind::Quota, why));
        }
        if holdings.bytes().saturating_add(charged) > self.policy.total_bytes {
            return Err(Refusal::new(RefusedKind::NoRoom, NO_ROOM));
        }
        Ok(())
    }

    fn begin(&mut self, index: usize, what: LoanWork) -> Answered {
        let name = self.own_loan(index)?;
        if let Some(loan) = self.loans.get_mut(&name) {
            loan.work = Work::new(what);
        }
        Ok(None)
    }

    fn delete(&mut self, user: u32, name: &str) -> Answered {
        let name = named(user, name)?;
        if self.loans.contains_key(&name) || self.leases.is_leased(&name) {
            return Err(Refusal::new(RefusedKind::Held, HELD));
        }
        let places = self.names.places();
        let key =
            OwnerKey::load(places, &key_name(user)).map_err(|error| Refusal::of(&error.into()))?;
        let key = key.ok_or_else(|| Refusal::new(RefusedKind::NotFound, NOT_FOUND))?;
        self.names.remove(&name, &key).map_err(|error| Refusal::of(&error))?;
        self.policy.at_phase(Phase::Removed);
        // A note that stays leads to no region.
        let _ = self.leases.forget(&name);
        Ok(Some(ServedAnswer::Deleted))
    }

    /// The region that the connection has.
    fn own_loan(&self, index: usize) -> Result<RegionName, Refusal> {
        let connection = &self.connections[index];
        let name = connection.region.as_ref().ok_or_else(no_region)?;
        let loan = self.loans.get(name).filter(|loan| loan.connection == Some(connection.id));
        loan.map(|_| name.clone()).ok_or_else(no_region)
    }
}

/// No process is served what is another user's; whether it is there is not even looked at.
fn check_user(user: u32, asked: Option<u32>) -> Result<(), Refusal> {
    match asked {
        Some(asked) if asked != user => {
            let why = format!("user {user} is served regions of user {user}, and of nobody else");
            Err(Refusal::new(RefusedKind::Denied, why))
        }
        _ => Ok(()),
    }
}

fn named(user: u32, name: &str) -> Result<RegionName, Refusal> {
    in_home(user, name).map_err(|error| Refusal::new(RefusedKind::Malformed, error.to_string()))
}

fn no_region() -> Refusal {
    Refusal::new(RefusedKind::OutOfTurn, "there is no region on this connection; open one first")
}
