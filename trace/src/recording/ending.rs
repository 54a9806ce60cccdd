//! The parts that a recording lacks, and the words for them.
//!
//! Invariant: it never says that nothing is missing unless the writer's own count was read and
//! agrees, or, up to version 2, which has no count, the last frame was read and all before it was
//! sound.

use std::fmt::Write;

use crate::TraceDescription;
use crate::report::text;

/// Bytes of a recording that are no part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Where the first of them is.
    pub at_byte: u64,
    /// How many there are in all, in one place or several.
    pub bytes: u64,
    /// They reach to the end of the file.
    pub reaches_end: bool,
}

/// How a recording ends, and what it lacks.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Ending {
    /// The account as written at the end of the trace; None if the tracer did not come so far, or
    /// it cannot be read.
    pub account: Option<Box<TraceDescription>>,
    /// Events that were read.
    pub events: u64,
    /// Events that are known to be missing.
    pub missing: u64,
    /// More may be missing than that: the tracer never wrote how many there were.
    pub may_miss_more: bool,
    /// Of those that are missing, such as the tracer could not write.
    pub unwritten: u64,
    /// Why it could not.
    pub failure: Option<String>,
    /// Bytes that cannot be read as a recording.
    pub damage: Option<Damage>,
    /// Why the file cannot be read to its end.
    pub unreadable: Option<String>,
    /// Not all that the hosts recorded of crossings is there.
    pub lacks_crossings: bool,
}

impl Ending {
    /// Whether it has all that the tracer saw.
    pub fn is_complete(&self) -> bool {
        self.account.is_some()
            && self.missing == 0
            && !self.may_miss_more
            && !self.lacks_crossings
            && self.failure.is_none()
            && self.damage.is_none()
            && self.unreadable.is_none()
    }

    /// What is missing, or what is not known of it: sentences for the user, none of a complete
    /// recording.
    pub fn notes(&self) -> Vec<String> {
        if self.is_complete() {
            return Vec::new();
        }
        let mut notes = vec![self.verdict()];
        if let Some(failure) = &self.failure {
            notes.push(match self.unwritten {
                0 => format!("The tracer could not write all of it: {failure}."),
                events => format!(
                    "The tracer could not write {} of them: {failure}.",
                    text::count(events)
                ),
            });
        }
        if let Some(damage) = &self.damage {
            let mut note = format!("The file is damaged from byte {} on", damage.at_byte);
            // Writing to a string cannot fail.
            let _ = match damage.reaches_end {
                true => write!(
                    note,
                    ": it ends within a frame ({} bytes cannot be read).",
                    damage.bytes
                ),
                false => write!(note, ": {} bytes cannot be read.", damage.bytes),
            };
            notes.push(note);
        }
        if let Some(why) = &self.unreadable {
            notes.push(format!("The file cannot be read to its end: {why}."));
        }
        if self.account.is_none() {
            notes.push(
                "There is no closing account: the tracer was killed, is still at work, or the end of the file is gone."
                    .to_owned(),
            );
        } else if self.missing > self.unwritten
            && self.damage.is_none()
            && self.unreadable.is_none()
        {
            notes.push("The file was cut off after it was written.".to_owned());
        }
        if self.lacks_crossings {
            notes.push("What crossed sandboxes is not all there.".to_owned());
        }
        notes
    }

    /// How much is missing.
    fn verdict(&self) -> String {
        let count = text::count(self.missing);
        match (self.missing, self.may_miss_more) {
            (0, true) => "INCOMPLETE: how many events are missing is not known.".to_owned(),
            (0, false) => "DAMAGED: all events are there, but not all of the rest.".to_owned(),
            (1, false) => "INCOMPLETE: 1 event is missing; sums are too small by it.".to_owned(),
            (_, false) => {
                format!("INCOMPLETE: {count} events are missing; sums are too small by them.")
            }
            (_, true) => {
                format!(
                    "INCOMPLETE: {count} events are missing, and it is not known whether more are."
                )
            }
        }
    }
}
