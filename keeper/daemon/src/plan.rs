//! The order in which heaps and databases are saved when there may not be time for all. Arithmetic
//! only; nothing is opened here.
//!
//! What one is worth grows with the time since it was saved last; what it costs are its bytes. The
//! heaps that are worth most for each byte go first, so that as much as possible is as new as
//! possible; heaps that a person named go before all others.

use std::time::Duration;

use holdfast_region::RegionName;
use holdfast_sqlite::Database;

/// What is to be saved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subject {
    Heap(RegionName),
    Database(Box<Database>),
}

impl Subject {
    /// As it is reported: a path names a database, and no heap.
    pub(crate) fn name(&self) -> String {
        match self {
            Subject::Heap(name) => name.to_string(),
            Subject::Database(database) => database.name(),
        }
    }
}

/// A heap or a database that is not in the store as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) subject: Subject,
    /// What saving it writes, at most.
    pub(crate) bytes: u64,
    /// How long ago it was saved last.
    pub(crate) unsaved_s: u64,
    /// The process that writes it now.
    pub(crate) holder: Option<u32>,
}

/// Orders candidates, the most valuable first.
pub(crate) fn order(candidates: &mut [Candidate], first: &[RegionName]) {
    let rank = |candidate: &Candidate| match &candidate.subject {
        Subject::Heap(own) => first.iter().position(|name| name == own).unwrap_or(first.len()),
        Subject::Database(_) => first.len(),
    };
    candidates.sort_by(|a, b| {
        // a is worth more than b: unsaved(a) / bytes(a) > unsaved(b) / bytes(b), without the
        // division.
        let worth = |own: &Candidate, other: &Candidate| {
            u128::from(own.unsaved_s + 1) * u128::from(other.bytes.max(1))
        };
        let by_worth = worth(b, a).cmp(&worth(a, b));
        rank(a).cmp(&rank(b)).then(by_worth).then_with(|| a.subject.name().cmp(&b.subject.name()))
    });
}

/// What can be written in a time.
pub(crate) fn bytes_in(bytes_per_s: u64, time: Duration) -> u64 {
    (u128::from(bytes_per_s).saturating_mul(time.as_millis()) / 1000).min(u128::from(u64::MAX))
        as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(name: &str, bytes: u64, unsaved_s: u64) -> Candidate {
        Candidate {
            subject: Subject::Heap(RegionName::parse(name).unwrap()),
            bytes,
            unsaved_s,
            holder: None,
        }
    }

    /// Small and long unsaved heaps go first and named ones before them.
    #[test]
    fn named_then_small_and_long_unsaved_heaps_go_first() {
        let mut heaps = [
            candidate("large", 1000, 10),
            candidate("small", 10, 10),
            candidate("old", 1000, 100_000),
            candidate("huge", u64::MAX, u64::MAX - 1),
            candidate("named", 1 << 40, 0),
        ];
        order(&mut heaps, &[RegionName::parse("named").unwrap()]);
        let names: Vec<_> = heaps.iter().map(|heap| heap.subject.name()).collect();
        assert_eq!(names, ["named", "old", "small", "huge", "large"]);
    }

    #[test]
    fn what_can_be_written_never_overflows() {
        assert_eq!(bytes_in(100 << 20, Duration::from_millis(2500)), 250 << 20);
        assert_eq!(bytes_in(u64::MAX, Duration::MAX), u64::MAX);
    }
}
