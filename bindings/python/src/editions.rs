//! Counts the editions of each document: parsing a page again, compacting and removing it make
//! another one, in which nodes have other numbers.
#![forbid(unsafe_code)]

use std::collections::HashMap;

use crate::heap_error::Refusal;

/// Of one open heap.
#[derive(Default)]
pub(crate) struct Editions {
    last: u64,
    /// All documents are of at least this one: a rollback can have brought any other one back.
    all: u64,
    by_name: HashMap<String, u64>,
    /// Those that the open transaction has made or removed.
    in_transaction: Vec<String>,
}

impl Editions {
    /// The one that there is.
    pub(crate) fn of(&self, name: &str) -> u64 {
        self.by_name.get(name).copied().unwrap_or(0).max(self.all)
    }

    /// There is another one now; if that is undone with the open transaction, again another one.
    pub(crate) fn made(&mut self, name: &str, in_transaction: bool) -> u64 {
        if in_transaction {
            self.in_transaction.push(name.to_owned());
        }
        self.last += 1;
        self.by_name.insert(name.to_owned(), self.last);
        self.last
    }

    /// The transaction has ended.
    pub(crate) fn end_transaction(&mut self, undone: bool) {
        for name in std::mem::take(&mut self.in_transaction).into_iter().filter(|_| undone) {
            self.made(&name, false);
        }
    }

    /// There may be another one of each.
    pub(crate) fn next_of_all(&mut self) {
        self.last += 1;
        self.all = self.last;
    }

    /// Refuses one that is over.
    pub(crate) fn check(&self, name: &str, edition: u64) -> Result<(), Refusal> {
        if self.of(name) == edition {
            Ok(())
        } else {
            Err(Refusal::OtherEdition { name: name.to_owned() })
        }
    }
}
