//! The journal of an open region, as far as its session knows it.

#![forbid(unsafe_code)]

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::media::journal::{Journal, Record};
use crate::media::storage::Storage;

/// What is known about the journal in the store.
#[derive(Debug)]
pub(crate) enum JournalSlot {
    /// Not looked at in this session.
    Unread,
    /// It may be appended to.
    Ready(Journal),
    /// It may not, or there is none: a base must be made first.
    Broken,
}

impl JournalSlot {
    pub(crate) fn lock(slot: &Mutex<JournalSlot>) -> MutexGuard<'_, JournalSlot> {
        // Every state between two steps is a valid one, the worst being `Broken`.
        slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends and syncs. After an error the journal counts as broken: it is never synced again and
    /// believed.
    pub(crate) fn append(&mut self, storage: &dyn Storage, record: &Record) -> std::io::Result<()> {
        let JournalSlot::Ready(mut journal) = std::mem::replace(self, JournalSlot::Broken) else {
            return Err(std::io::Error::other(
                "the journal was lost between two steps of a commit",
            ));
        };
        journal.append(storage, record)?;
        *self = JournalSlot::Ready(journal);
        Ok(())
    }
}
