//! The acknowledgements of the writer: for each table, how many words are committed.
//!
//! Invariant: counts only grow until the heap is removed. A writer that resumes with less than it
//! had acknowledged before has lost words.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Committed words of each table.
#[derive(Debug, Default)]
pub(crate) struct Acks(BTreeMap<String, u64>);

impl Acks {
    /// Takes a line of the writer's output; whether it was an acknowledgement (`ack TABLE WORDS`).
    pub(crate) fn take(&mut self, line: &str) -> bool {
        let mut words = line.split_whitespace();
        let (Some("ack"), Some(table), Some(count), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            return false;
        };
        // A line that was cut off by the kill is none.
        let Ok(count) = count.parse() else { return false };
        let known = self.0.entry(table.to_owned()).or_default();
        assert!(
            count >= *known,
            "the table {table} had {known} words acknowledged, and now {count}"
        );
        *known = count;
        true
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In the form that `spellcheck --verify` reads.
    pub(crate) fn to_text(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, (table, count)| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{table} {count}");
            text
        })
    }
}

#[test]
fn acknowledgements_are_told_from_other_lines() {
    let mut acks = Acks::default();
    assert!(acks.take("ack nouns 64") && acks.take("ack nouns 128") && acks.take("ack verbs 1"));
    assert!(!acks.take("text:1:3: xqzzyt") && !acks.take("ack nouns") && !acks.take("ack"));
    assert_eq!(acks.to_text(), "nouns 128\nverbs 1\n");
}
