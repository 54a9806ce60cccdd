//! A database file whose image is lost: it is brought to the newest state that there is, which is that of the redo log, or of a copy
//! that the keeper saved when the log was not as far.
//!
//! Invariants:
//! - Log and copy stay until the database file has what they hold, durable, and without its mark: whoever dies on the way leaves
//!   what makes the next one do the same.
//! - What does not fit is not applied, not in part either, and stays where it is.

#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::path::Path;

use crate::apply::apply;
use crate::attach::{Identity, read_mark};
use crate::base::Base;
use crate::copy::{self, Copy, Fit};
use crate::error::{Result, SqliteError};
use crate::ffi;
use crate::host;
use crate::log::{Contents, Generation, Log, log_path};
use crate::mark::{self, Mark, Stamp};

/// Where the newest state came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// From the log, or the database file had it.
    Log,
    /// From a copy that the keeper saved.
    Copy,
}

/// A database file, and who it is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lost<'a> {
    pub(crate) base: &'a dyn Base,
    pub(crate) database: &'a Path,
    pub(crate) identity: Identity,
    pub(crate) mark: Mark,
    /// The folder of saved copies.
    pub(crate) copies: &'a Path,
}

/// The log of a database, read.
struct Known {
    log: Log,
    generation: Generation,
    contents: Contents,
}

impl Known {
    /// The transaction as of which database file and log are together.
    fn reached(&self) -> u64 {
        self.contents.last.map_or(self.generation.transaction, |record| record.transaction)
    }
}

impl Lost<'_> {
    /// Brings the file in order, when it is ours alone, and tells the user what was lost.
    pub(crate) fn recover(self) -> Result<Source> {
        self.base.lock_exclusive()?;
        let recovered = self.recover_locked();
        self.base.unlock()?;
        let source = recovered?;
        let what = match source {
            Source::Log => "the database is as of its last flush",
            Source::Copy => "the database is as the keeper saved it",
        };
        let text = format!(
            "the pool of {} is gone (the machine was started anew, or the pool was emptied): {what}, and what was committed \
             after that is lost",
            self.database.display()
        );
        host::log(ffi::NOTICE, &text);
        Ok(source)
    }

    /// The same for whoever has locked it already.
    pub(crate) fn recover_locked(self) -> Result<Source> {
        let Lost { base, mark, .. } = self;
        // Somebody may have been faster.
        if read_mark(base)?.0 != Some(mark) {
            return Ok(Source::Log);
        }
        let known = self.read_log()?;
        let copy = self.newer_copy(&known);
        // In the middle of a checkpoint, as it were: the log stays as it is.
        let stamp = Stamp { nonce: mark.nonce, transaction: known.reached() };
        let mut size = None;
        if let Some(last) = known.contents.last {
            apply(base, &known.contents.blocks(&known.log), stamp)?;
            size = Some(last.size);
        }
        if let Some((copy, places)) = &copy {
            apply(base, &copy.blocks(places), stamp)?;
            size = Some(copy.origin.size);
        }
        clear_mark(base, size)?;
        if copy.is_some() {
            copy::remove(self.copies, mark.nonce);
        }
        let path = log_path(self.database);
        Log::remove(&path).map_err(SqliteError::io("remove", &path))?;
        Ok(if copy.is_some() { Source::Copy } else { Source::Log })
    }

    /// Whether a recovery would go on from a saved copy. Nothing is changed.
    pub(crate) fn has_newer_copy(self) -> bool {
        self.read_log().is_ok_and(|known| self.newer_copy(&known).is_some())
    }

    fn read_log(self) -> Result<Known> {
        let path = log_path(self.database);
        let foreign =
            |what| SqliteError::LogForeign { log: path.clone(), database: self.database.to_owned(), what };
        let log = Log::open(&path).map_err(SqliteError::io("open", &path))?;
        let missing = || SqliteError::LogMissing { database: self.database.to_owned(), log: path.clone() };
        let mut log = log.ok_or_else(missing)?;
        let generation = log.generation().map_err(SqliteError::io("read", &path))?;
        let generation = generation.ok_or_else(|| foreign("its header is not whole"))?;
        if generation.nonce != self.mark.nonce {
            return Err(foreign("it belongs to another database"));
        }
        let contents = log.contents(generation.salt, u64::MAX).map_err(SqliteError::io("read", &path))?;
        let known = Known { log, generation, contents };
        if !(self.mark.is_since(generation.transaction) && self.mark.is_until(known.reached())) {
            return Err(foreign(
                "it is of another time than the file: one of them was put back from a backup",
            ));
        }
        Ok(known)
    }

    /// A copy that has what file and log lack. One that does not fit, or is damaged, stays, and the user is told.
    fn newer_copy(self, known: &Known) -> Option<(Copy, BTreeMap<u32, u64>)> {
        let path = copy::path_of(self.copies, self.mark.nonce);
        let tell = |what: &str| {
            let (copy, database) = (path.display(), self.database.display());
            host::log(
                ffi::NOTICE,
                &format!("{copy}, which a keeper saved, is not applied to {database}: {what}"),
            );
            None
        };
        let copy = match Copy::open(self.copies, self.mark.nonce) {
            Ok(copy) => copy?,
            Err(error) => return tell(&format!("it cannot be read ({error})")),
        };
        match copy.fits(self.identity, known.reached()) {
            Fit::Older => None,
            Fit::OtherFile => {
                let of = copy.origin.database.display();
                tell(&format!(
                    "it is of {of}, and this is a copy of that, or was moved here from another disk"
                ))
            }
            Fit::NoBase => tell(
                "database and redo log are older than what it was made on: they were put back from a backup",
            ),
            Fit::Newer => match copy.places() {
                Ok(places) => Some((copy, places)),
                Err(error) => tell(&format!("it is damaged ({error})")),
            },
        }
    }
}

/// Takes the mark out of a complete database file, whose size may be known.
pub(crate) fn clear_mark(base: &dyn Base, size: Option<u64>) -> Result<()> {
    let mut header = [0; mark::HEADER_BYTES];
    base.read(0, &mut header)?;
    let Some(found) = mark::find(&header) else { return Ok(()) };
    if size == Some(0) || found.was_empty && size.is_none() {
        base.truncate(0)?;
    } else {
        mark::take(&mut header);
        base.write(0, &header)?;
    }
    base.sync()
}
