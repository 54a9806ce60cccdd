//! Zeros written ahead of a journal's end. A record that replaces bytes of a file costs the disk
//! one write; one that makes the file longer costs the file system's own journal some more, and
//! about twice the time.
//!
//! Invariants:
//! - What lies between the last record and the end of the file is zeros, a mark, or a record whose
//!   writer died.
//! - Nothing relies on zeros being there, or being durable: a record is durable when the sync after
//!   it has returned.
//! - A writer that commits only a few times, one whose records are large, and a file system that is
//!   nearly full get none.
//!
//! It must not decide where a record goes.

#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::path::Path;

use crate::media::sparse::buffer;
use crate::media::storage::{Storage, is_full};

/// How far ahead. More costs more at once; less, and there is more often an append that costs as
/// much as it did.
const AHEAD_BYTES: u64 = 256 << 10;
/// With a record above this an append is mostly its bytes.
const RECORD_BYTES_MAX: u64 = AHEAD_BYTES / 4;
/// As many appends of a session are exact: most sessions make no more.
const EXACT_APPENDS: u32 = 3;
/// So much must be left to others.
const ROOM_BYTES_MIN: u64 = 16 << 20;

/// How far the file of a journal reaches beyond its last record.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Where the file ends, if that is behind the last record.
    end: u64,
    /// Records that were appended in this session.
    appends: u32,
    /// The file system has refused zeros.
    refused: bool,
}

impl Ahead {
    /// Of a file that ends there.
    pub(super) fn of(end: u64) -> Ahead {
        Ahead { end, appends: 0, refused: false }
    }

    /// Writes zeros if they are due behind a record of `record_bytes` that was written and ends at
    /// `end`. The sync of the record is that of the zeros.
    ///
    /// # Errors
    /// What the kernel reports, unless there was no room: then the file ends where it did, as if
    /// nothing had been tried.
    pub(super) fn write(
        &mut self,
        storage: &dyn Storage,
        (file, store): (&File, &Path),
        end: u64,
        record_bytes: u64,
    ) -> io::Result<()> {
        self.appends = self.appends.saturating_add(1);
        let is_due =
            self.appends > EXACT_APPENDS && record_bytes <= RECORD_BYTES_MAX && !self.refused;
        if !is_due || end + record_bytes <= self.end {
            return Ok(());
        }
        if storage.available_bytes(store).unwrap_or(0) < ROOM_BYTES_MIN {
            return Ok(());
        }
        let from = self.end.max(end);
        // Without memory for them there are none this time.
        let Ok(zeros) = buffer(end + AHEAD_BYTES - from) else { return Ok(()) };
        match storage.write_at(file, &zeros, from) {
            Ok(()) => self.end = end + AHEAD_BYTES,
            Err(error) if is_full(&error) => {
                self.refused = true;
                // What stays is zeros.
                let _ = storage.set_len(file, from);
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Gives back what lies behind the last record, which ends at `end`.
    ///
    /// # Errors
    /// What the kernel reports.
    pub(super) fn give_back(&self, storage: &dyn Storage, file: &File, end: u64) -> io::Result<()> {
        if self.end > end { storage.set_len(file, end) } else { Ok(()) }
    }
}
