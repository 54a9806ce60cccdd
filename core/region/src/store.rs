//! The copy of a region on a disk: base file, the journal that continues it, and portable streams.
//!
//! Reads and writes whole copies, and verifies them before they are used. Knows files
//! ([`crate::media`]), and neither mappings nor locks: the caller makes sure that no other process
//! writes.

pub(crate) mod base;
pub(crate) mod compare;
pub(crate) mod debt;
pub(crate) mod journal_slot;
pub(crate) mod rescue;
pub(crate) mod stored;
pub(crate) mod stream;
