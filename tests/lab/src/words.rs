//! The protocol between host and guest: one line for each message, words parted by blanks.
//!
//! Invariant: a line counts only with the mark of its end, which stands nowhere else. The failures
//! cut lines off, and half a number is a number.

use std::time::Duration;

use crate::place::Place;

/// The last word of every line.
const END: &str = ".";

/// What the host wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Write records, and acknowledge each; `early` before it was committed, by which the lab tests
    /// itself.
    Write {
        /// Whether what is acknowledged is a lie.
        early: bool,
    },
    /// SIGKILL for the writer.
    Kill,
    /// SIGSTOP for the writer: it hangs.
    Hang,
    /// The kernel panics.
    Panic,
    /// Say what is found.
    Verify,
    /// Remove all heaps.
    Forget,
    /// Start a keeper for the heaps in ordinary memory, and tell of the first emergency that it has
    /// dealt with.
    Keep,
    /// Run the program that was brought along.
    Run,
}

const ORDERS: [(Order, &str); 9] = [
    (Order::Write { early: false }, "write"),
    (Order::Write { early: true }, "write-early"),
    (Order::Kill, "kill"),
    (Order::Hang, "hang"),
    (Order::Panic, "panic"),
    (Order::Verify, "verify"),
    (Order::Forget, "forget"),
    (Order::Keep, "keep"),
    (Order::Run, "run"),
];

impl Order {
    /// The line for it, with its end.
    #[must_use]
    pub fn to_line(self) -> String {
        let word = ORDERS.iter().find(|(order, _)| *order == self).map_or("", |(_, word)| word);
        format!("{word} {END}\n")
    }

    /// Reads a line.
    #[must_use]
    pub fn read(line: &str) -> Option<Order> {
        let word = whole(line)?;
        ORDERS.iter().find(|(_, known)| *known == word).map(|(order, _)| *order)
    }
}

/// What the guest reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The machine has started.
    Ready {
        /// Since the kernel began.
        uptime: Duration,
        /// Whether the DAX file system was there from an earlier start.
        memory_kept: bool,
    },
    /// An order was carried out.
    Done,
    /// Every record up to this one is promised.
    Acknowledged {
        /// Which one.
        place: Place,
        /// The record, from 1.
        number: u64,
    },
    /// Every record up to this one is on the disk, whatever its level: a checkpoint has brought it
    /// there.
    Kept {
        /// The database.
        place: Place,
        /// The record.
        number: u64,
    },
    /// The power button was pressed.
    Button,
    /// The keeper has dealt with an emergency.
    Saved {
        /// Heaps that it saved.
        heaps: u64,
        /// Databases that it saved.
        databases: u64,
        /// Those of both that it did not.
        left: u64,
        /// What it took.
        took: Duration,
    },
    /// A heap or database was opened and looked at.
    Found {
        /// Which one.
        place: Place,
        /// Every record up to this one is there, whole.
        number: u64,
        /// What opening took, with recovery.
        opening: Duration,
        /// How it was opened, in a word.
        opened: String,
    },
    /// It, or what is in it, is not what it should be.
    Broken {
        /// Which one.
        place: Place,
        /// What is wrong.
        what: String,
    },
    /// The program that was brought along has ended.
    Ended {
        /// Its exit status; `None` after a signal.
        status: Option<i32>,
    },
    /// The guest cannot go on.
    Failed(String),
}

impl Report {
    /// The line for it, with its end.
    #[must_use]
    pub fn to_line(&self) -> String {
        let words = match self {
            Report::Ready { uptime, memory_kept } => {
                format!("ready {} {memory_kept}", uptime.as_micros())
            }
            Report::Done => "done".to_owned(),
            Report::Acknowledged { place, number } => format!("ack {place} {number}"),
            Report::Kept { place, number } => format!("kept {place} {number}"),
            Report::Button => "button".to_owned(),
            Report::Saved { heaps, databases, left, took } => {
                format!("saved {heaps} {databases} {left} {}", took.as_micros())
            }
            Report::Found { place, number, opening, opened } => {
                format!("found {place} {number} {} {}", opening.as_micros(), one_line(opened))
            }
            Report::Broken { place, what } => format!("broken {place} {}", one_line(what)),
            Report::Ended { status } => format!("ended {}", status.unwrap_or(-1)),
            Report::Failed(what) => format!("failed {}", one_line(what)),
        };
        format!("{words} {END}\n")
    }

    /// Reads a line; `None` for one that was cut off.
    #[must_use]
    pub fn read(line: &str) -> Option<Report> {
        let text = whole(line)?;
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let mut words = rest.splitn(4, ' ');
        let mut next = || words.next();
        Some(match word {
            "ready" => {
                Report::Ready { uptime: micros(next()?)?, memory_kept: next()?.parse().ok()? }
            }
            "done" => Report::Done,
            "ack" => {
                Report::Acknowledged { place: next()?.parse().ok()?, number: next()?.parse().ok()? }
            }
            "kept" => Report::Kept { place: next()?.parse().ok()?, number: next()?.parse().ok()? },
            "button" => Report::Button,
            "saved" => Report::Saved {
                heaps: next()?.parse().ok()?,
                databases: next()?.parse().ok()?,
                left: next()?.parse().ok()?,
                took: micros(next()?)?,
            },
            "found" => Report::Found {
                place: next()?.parse().ok()?,
                number: next()?.parse().ok()?,
                opening: micros(next()?)?,
                opened: next()?.to_owned(),
            },
            "broken" => {
                let (place, what) = rest.split_once(' ')?;
                Report::Broken { place: place.parse().ok()?, what: what.to_owned() }
            }
            "ended" => {
                Report::Ended { status: Some(next()?.parse().ok()?).filter(|status| *status >= 0) }
            }
            "failed" => Report::Failed(rest.to_owned()),
            _ => return None,
        })
    }
}

fn micros(word: &str) -> Option<Duration> {
    word.parse().ok().map(Duration::from_micros)
}

/// The line without its end, if it has one.
fn whole(line: &str) -> Option<&str> {
    line.trim_end().strip_suffix(END)?.strip_suffix(' ')
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{Holder, Pool};
    use holdfast_types::Durability;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let place = Place { holder: Holder::Database, pool: Pool::Dax, level: Durability::Power };
        let reports = [
            Report::Ready { uptime: Duration::from_millis(4321), memory_kept: true },
            Report::Done,
            Report::Acknowledged { place, number: 12 },
            Report::Kept { place, number: 8 },
            Report::Button,
            Report::Saved { heaps: 3, databases: 2, left: 1, took: Duration::from_millis(12) },
            Report::Found {
                place,
                number: 7,
                opening: Duration::from_micros(88),
                opened: "Warm".to_owned(),
            },
            Report::Broken { place, what: "record 3 is missing.".to_owned() },
            Report::Ended { status: Some(3) },
            Report::Ended { status: None },
            Report::Failed("no /dev/vda".to_owned()),
        ];
        for report in reports {
            assert_eq!(Report::read(&report.to_line()), Some(report));
        }
        for (order, _) in ORDERS {
            assert_eq!(Order::read(&order.to_line()), Some(order));
        }
    }

    #[test]
    fn a_line_that_was_cut_off_says_nothing() {
        let place = Place { holder: Holder::Heap, pool: Pool::Tmpfs, level: Durability::Process };
        let line = Report::Acknowledged { place, number: 1234 }.to_line();
        for end in 0..line.len() - 1 {
            assert_eq!(Report::read(&line[..end]), None, "{end}");
        }
    }
}
