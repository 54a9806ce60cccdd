//! The job that all sides do: a set of records, of which a commit changes some.
//!
//! Invariants: every side gets the same changes in the same order, and is read back completely; a
//! side that lost a change ends the suite.

use std::io::{self, Error};

use rand::rngs::SmallRng;
use rand::{Rng, RngExt, SeedableRng};

/// How many records there are.
pub(crate) const RECORDS: usize = 2000;
/// Bytes of each.
pub(crate) const RECORD_BYTES: usize = 100;

/// The content of a record.
pub(crate) type Record = [u8; RECORD_BYTES];
/// A record's number and its new content.
pub(crate) type Change = (usize, Record);

/// A side.
pub(crate) trait RecordSet {
    /// Makes these changes and commits them, all or none, at the side's level.
    fn commit(&mut self, changes: &[Change]) -> io::Result<()>;
    /// The content of a record.
    fn get(&mut self, number: usize) -> io::Result<Record>;
    /// Puts down what was put off, as the end of a program does.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What the records hold at first.
pub(crate) fn initial() -> Vec<Record> {
    let mut random = SmallRng::seed_from_u64(RECORDS as u64);
    (0..RECORDS).map(|_| content(&mut random)).collect()
}

/// As many commits with as many changes each, of random records, none twice in a commit.
pub(crate) fn commits(count: usize, changes: usize) -> Vec<Vec<Change>> {
    let mut random = SmallRng::seed_from_u64(changes as u64);
    let commit = |_| {
        let mut commit: Vec<Change> = Vec::with_capacity(changes);
        while commit.len() < changes {
            let number = random.random_range(0..RECORDS);
            if commit.iter().all(|(other, _)| *other != number) {
                commit.push((number, content(&mut random)));
            }
        }
        commit
    };
    (0..count).map(commit).collect()
}

/// Compares a side with what its records should hold.
pub(crate) fn compare(side: &mut dyn RecordSet, commits: &[Vec<Change>]) -> io::Result<()> {
    let mut expected = initial();
    for (number, content) in commits.iter().flatten() {
        expected[*number] = *content;
    }
    for (number, content) in expected.iter().enumerate() {
        if side.get(number)? != *content {
            return Err(Error::other(format!(
                "record {number} does not hold what was committed last"
            )));
        }
    }
    Ok(())
}

fn content(random: &mut SmallRng) -> Record {
    let mut record = [0; RECORD_BYTES];
    random.fill_bytes(&mut record);
    record
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every side gets the same changes, and no change occurs twice in a commit.
    #[test]
    fn sides_get_the_same_distinct_changes() {
        let first = commits(20, 10);
        assert_eq!(first, commits(20, 10));
        for commit in &first {
            let mut numbers: Vec<usize> = commit.iter().map(|(number, _)| *number).collect();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), 10);
        }
    }
}
