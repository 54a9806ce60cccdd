//! The ends of what takes several turns: a region is lent, committed, closed, or taken back from a
//! program that is gone.

use std::os::fd::OwnedFd;
use std::time::Instant;

use holdfast_region::{Durability, RegionError, RegionName};
use holdfast_sys::terminal::notice;

use crate::served::asks::Refusal;
use crate::served::connection::AfterAnswer;
use crate::served::lease::Note;
use crate::served::loan::LoanWork;
use crate::served::policy::Phase;
use crate::served::serving::{Serving, TurnReport};
use holdfast_keeper_client::served_wire::{LentAnswer, ServedAnswer};

impl Serving {
    /// All slices of a loan's work are done.
    pub(crate) fn finish(&mut self, name: &RegionName, now: Instant, report: &mut TurnReport) {
        let Some(work) = self.loans.get(name).and_then(|loan| loan.work) else { return };
        self.policy.at_phase(match work.what {
            LoanWork::Fill | LoanWork::Resume => Phase::Filled,
            _ => Phase::Copied,
        });
        let finished = match work.what {
            LoanWork::Fill | LoanWork::Resume => self.finish_lending(name, now),
            LoanWork::Commit(level) => self.finish_commit(name, level, now),
            LoanWork::Close | LoanWork::HungUp => {
                self.finish_loan(name, work.what == LoanWork::Close, now)
            }
        };
        if let Err(error) = finished {
            self.fail(name, &error, now, report);
        }
    }

    /// It stays as it is: a waiting process gets the error, and what no caller waits for is tried
    /// again.
    pub(crate) fn fail(
        &mut self,
        name: &RegionName,
        error: &RegionError,
        now: Instant,
        report: &mut TurnReport,
    ) {
        report.failures += 1;
        let Some(loan) = self.loans.get_mut(name) else { return };
        let (connection, work) = (loan.connection, loan.work.take());
        match connection.and_then(|id| self.connections.iter().position(|found| found.id == id)) {
            Some(index) => {
                match work.map(|work| work.what) {
                    Some(LoanWork::Fill) => {
                        self.loans.remove(name);
                        self.connections[index].region = None;
                    }
                    Some(LoanWork::Resume) => {
                        // It was not given back, and what was stored in it is brought all the same.
                        loan.hang_up();
                        self.connections[index].region = None;
                    }
                    _ => {}
                }
                self.refuse(index, Refusal::of(error), now, report);
            }
            None => {
                notice(format_args!(
                    "holdfast keeper: {name}: what its program left is not brought yet: {error}"
                ));
                loan.work = work;
                self.retry_later(name, now);
            }
        }
    }

    fn finish_lending(&mut self, name: &RegionName, now: Instant) -> Result<(), RegionError> {
        let Some(loan) = self.loans.get_mut(name) else { return Ok(()) };
        let failed = |step, source| RegionError::Io { step, path: name.as_str().into(), source };
        let lease = self.leases.take(name, &loan.token);
        let lease = lease.map_err(|source| failed("lock the lease of", source))?;
        let noted = Note::new(loan.token.clone(), &loan.image)
            .and_then(|note| self.leases.put(name, &note));
        noted.map_err(|source| failed("note the loan of", source))?;
        self.policy.at_phase(Phase::Noted);
        let image =
            loan.image.try_clone().map_err(|source| failed("share the image of", source))?;
        loan.work = None;
        let facts = loan.facts;
        let answer = ServedAnswer::Lent(LentAnswer {
            token: loan.token.clone(),
            address: facts.address,
            backed_bytes: facts.backed_bytes,
            limit_bytes: facts.limit_bytes,
            is_new: facts.is_new,
        });
        let connection = loan.connection;
        self.say(connection, &answer, vec![image.into(), lease], AfterAnswer::Taken, now);
        Ok(())
    }

    fn finish_commit(
        &mut self,
        name: &RegionName,
        level: Durability,
        now: Instant,
    ) -> Result<(), RegionError> {
        let Some(loan) = self.loans.get_mut(name) else { return Ok(()) };
        loan.commit(&self.names, Durability::Process)?;
        self.policy.at_phase(Phase::Published);
        let committed = loan.commit(&self.names, level)?;
        self.policy.at_phase(Phase::Committed);
        loan.work = None;
        let connection = loan.connection;
        let level = committed.level;
        self.say(
            connection,
            &ServedAnswer::Committed { level },
            Vec::new(),
            AfterAnswer::Asks,
            now,
        );
        Ok(())
    }

    /// What the borrower stored counts, and the region is free. After a close it is in the store as
    /// well.
    fn finish_loan(
        &mut self,
        name: &RegionName,
        closes: bool,
        now: Instant,
    ) -> Result<(), RegionError> {
        let Some(loan) = self.loans.get_mut(name) else { return Ok(()) };
        loan.commit(&self.names, Durability::Process)?;
        self.policy.at_phase(Phase::Published);
        if closes {
            loan.close(&self.names)?;
            self.policy.at_phase(Phase::Closed);
        }
        // A note that stays says that it is lent, and its lease that no process has it.
        if let Ok(Some(note)) = self.leases.note(name) {
            let _ = self.leases.put(name, &Note { is_lent: false, ..note });
        }
        self.policy.at_phase(Phase::Returned);
        let connection = loan.connection;
        self.loans.remove(name);
        self.say(connection, &ServedAnswer::Closed, Vec::new(), AfterAnswer::HangsUp, now);
        Ok(())
    }

    fn say(
        &mut self,
        connection: Option<u64>,
        answer: &ServedAnswer,
        lent: Vec<OwnedFd>,
        after: AfterAnswer,
        now: Instant,
    ) {
        let Some(id) = connection else { return };
        let Some(connection) = self.connections.iter_mut().find(|found| found.id == id) else {
            return;
        };
        self.counts.entry(connection.user).or_default().requests += 1;
        self.policy.at_phase(Phase::Answering);
        connection.has_borrowed |= !lent.is_empty();
        connection.answer(answer, lent, after, now);
    }
}
