//! The keeper's work for SQLite databases of the VFS `holdfast`: copies of what only their images
//! have, in emergencies and between them, and eviction.
//!
//! Invariants:
//! - Of a database that a process has open no lock is taken and nothing is changed: a process that
//!   has it may have been stopped while it held one. A copy of it is looked for nowhere but in the
//!   store, when the pool is lost.
//! - A copy is as of one commit or it is none, whatever goes on meanwhile; so no process has to
//!   stand still for it to be right, only for it to come about.
//! - Only databases that no process has open are evicted: into their files, by a checkpoint that a
//!   crash does not tear.

use std::time::Instant;

use holdfast_region::Replaced;
use holdfast_sqlite::{Database, Rescue, SqliteError};

use crate::freeze::{Frozen, Held};
use crate::keeper::KnownHeap;
use crate::keeper::background::WINDOWS_UNTIL_STOPPED;
use crate::keeper::flush::{left, milliseconds};
use crate::keeper::{Keeper, seconds_since};
use crate::plan::{Candidate, Subject};
use crate::procfs::{FileId, stat};
use holdfast_keeper_client::{FlushReport, Saved, SavedKind, TendReport, UnsavedReason};

/// The user of a database, and the place of its image.
pub(crate) fn held(database: &Database) -> Held {
    let (name, holders) = (database.name(), database.holders.clone());
    Held { name, holders, image: FileId::of(&database.image) }
}

/// What a flush would have to do for a database. One that is open may have been written to since it
/// was looked at.
pub(crate) fn candidate(database: Database) -> Option<Candidate> {
    let is_one = database.is_open || database.unsaved_bytes > 0 || database.damaged.is_some();
    is_one.then(|| Candidate {
        bytes: database.unsaved_bytes,
        unsaved_s: seconds_since(database.saved_unix_s),
        holder: database.holders.first().copied(),
        subject: Subject::Database(Box::new(database)),
    })
}

impl Keeper {
    /// Saves databases whose copies become safe together.
    pub(crate) fn save_databases(
        &self,
        batch: Vec<Candidate>,
        started: Instant,
        report: &mut FlushReport,
        replaced: &mut Replaced,
    ) {
        let databases = batch.iter().filter_map(|found| match &found.subject {
            Subject::Database(database) => Some(database.as_ref()),
            Subject::Heap(_) => None,
        });
        let databases: Vec<&Database> = databases.collect();
        let rescued = self.databases.save_each(&databases, replaced);
        let done_ms = milliseconds(started.elapsed());
        for (found, rescued) in batch.iter().zip(rescued) {
            let why = match rescued {
                Ok(Rescue::Written { bytes }) => {
                    let (kind, name) = (SavedKind::Database, found.subject.name());
                    report.saved.push(Saved { kind, name, bytes, done_ms });
                    continue;
                }
                Ok(Rescue::Busy) => UnsavedReason::Running,
                Ok(_) => continue,
                Err(error) if error.is_full() => UnsavedReason::NoRoom,
                Err(error) => UnsavedReason::Failed(error.to_string()),
            };
            report.left.push(left(found, why));
        }
    }

    /// One round over all databases. What the loss window is for heaps it is for these: what only
    /// an image has is copied, also where the program itself would never flush it.
    pub(crate) fn tend_databases(&mut self, report: &mut TendReport) {
        let databases = match self.databases.list() {
            Ok(databases) => databases,
            Err(error) => {
                report.failed.push(error.to_string());
                return;
            }
        };
        if let Err(error) = self.databases.tidy(&databases) {
            report.failed.push(error.to_string());
        }
        self.seen_databases
            .retain(|image, _| databases.iter().any(|database| database.image == *image));
        for database in databases.iter().filter(|database| database.damaged.is_none()) {
            self.tend_database(database, report);
        }
    }

    fn tend_database(&mut self, database: &Database, report: &mut TendReport) {
        let (name, now) = (database.name(), Instant::now());
        if database.unsaved_bytes == 0 {
            self.seen_databases.remove(&database.image);
            return;
        }
        let seen =
            *self.seen_databases.entry(database.image.clone()).or_insert(KnownHeap { safe: now });
        if !self.allowance.allows(database.unsaved_bytes, now) {
            report.put_off.push(name);
            return;
        }
        let is_late = now.saturating_duration_since(seen.safe)
            >= self.config.loss_window.saturating_mul(WINDOWS_UNTIL_STOPPED);
        let mut copied = self.databases.save(database);
        if is_late && matches!(copied, Ok(Rescue::Busy)) {
            copied = self.save_stopped(database);
        }
        match copied {
            Ok(Rescue::Busy) => {
                report.busy.push(name);
                return;
            }
            Ok(Rescue::Written { bytes }) => {
                self.allowance.spend(bytes);
                report.bytes += bytes;
                report.copied.push(name);
            }
            Ok(_) => {}
            Err(error) => {
                report.failed.push(format!("{name}: {error}"));
                return;
            }
        }
        self.seen_databases.remove(&database.image);
    }

    /// Copies a database in which a process commits without a pause, if its processes may be
    /// stopped.
    fn save_stopped(&self, database: &Database) -> Result<Rescue, SqliteError> {
        let held = [held(database)];
        // A shell would take the terminal back from a program that is stopped.
        let is_watched = |pid| stat(pid).is_none_or(|stat| stat.on_terminal);
        if !self.config.stop_for_copies || Frozen::any_writer(&held, is_watched) {
            return Ok(Rescue::Busy);
        }
        match Frozen::stop(self.names.places().pool(), &held, self.config.guard.as_ref()) {
            Ok(_frozen) => self.databases.save(database),
            Err(_) => Ok(Rescue::Busy),
        }
    }
}
