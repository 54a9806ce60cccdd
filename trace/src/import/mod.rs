//! Logs of strace (`-f -T`, with -t, -tt, -ttt, -r, -y as they come, and `-c`) as events.
//!
//! A log says how long a call took, and not where the time went: all of it is [`untold_ns`]. With
//! `-c` alone there are sums, and no calls at all.
//!
//! Invariants: no line can do harm, and none is dropped silently: what cannot be read is counted,
//! and the first few are kept. Memory is bounded: by the number of threads at a time, not by the
//! log.
//!
//! [`untold_ns`]: crate::report::document::Time::untold_ns

mod beside;
mod counts;
mod line;
mod meaning;
mod threads;

use std::io::{self, BufRead};

pub use beside::{BesideRow, StraceComparison, terminal};

use counts::Part;
use holdfast_sys::counted::noun_for;
use threads::Threads;

use crate::report::document::Source;
use crate::summary::Summary;

/// A line is cut off here: strings of arguments are long with `-s`.
const LINE_BYTES_MAX: usize = 1 << 20;
/// Lines that were not understood and are shown.
const SHOWN_MAX: usize = 5;
const SHOWN_BYTES_MAX: usize = 160;

/// What a log was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Imported {
    /// All its lines.
    pub lines: u64,
    /// Those that are none of strace's.
    pub skipped: u64,
    /// The first of them, by their number.
    pub shown: Vec<(u64, String)>,
    /// Calls that it has one by one.
    pub calls: u64,
    /// Of these, calls without their length.
    pub without_length: u64,
    /// Calls that its table counts.
    pub summed: u64,
    /// Whether its lines have times.
    pub has_times: bool,
    /// What the person should know.
    pub notes: Vec<String>,
}

impl Imported {
    /// What the report says of where its numbers come from.
    #[must_use]
    pub fn source(&self, name: &str) -> Source {
        Source {
            backend: crate::BackendKind::Imported.name().to_owned(),
            command: vec![name.to_owned()],
            notes: self.notes.clone(),
            ..Source::default()
        }
    }

    fn skip(&mut self, text: &str) {
        self.skipped += 1;
        if self.shown.len() < SHOWN_MAX {
            let end =
                (0..=SHOWN_BYTES_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
            let text = crate::report::text::plain(text[..end.unwrap_or(0)].trim_end());
            self.shown.push((self.lines, text));
        }
    }

    fn conclude(&mut self, table_left_out: bool) {
        if self.calls > 0 {
            self.notes
                .push("A log has the length of calls, and not where the time went.".to_owned());
        }
        if self.without_length > 0 {
            self.notes.push(format!(
                "{} {} without a length in the log; make it with -T.",
                crate::report::text::count(self.without_length),
                noun_for(self.without_length, "call")
            ));
        }
        if self.summed > 0 {
            self.notes.push(
                "The times are those of `strace -c`: without -w, the system time of the whole process and of the children that it \
                 waited for, charged to whichever call returned then."
                    .to_owned(),
            );
        }
        if table_left_out {
            self.notes.push(
                "The table at its end is left out: its calls are in the log one by one.".to_owned(),
            );
        }
    }
}

/// Reads a log into a summary.
///
/// # Errors
/// Those of reading. What a log says is no error.
pub fn read(log: &mut dyn BufRead, summary: &mut Summary) -> io::Result<Imported> {
    let mut imported = Imported::default();
    let mut threads = Threads::default();
    let mut bytes = Vec::new();
    let (mut in_table, mut left_out) = (false, false);
    let mut carried = String::new();
    while read_line(log, &mut bytes)? {
        imported.lines += 1;
        let text = std::mem::take(&mut carried) + &String::from_utf8_lossy(&bytes);
        let text = text.trim_end();
        if let Some(begun) = cut_by_remark(text) {
            carried = begun.to_owned();
            continue;
        }
        if text.is_empty() {
            in_table = false;
            continue;
        }
        if counts::is_header(text) {
            in_table = true;
            continue;
        }
        if in_table && let Some(part) = counts::parse(text) {
            match part {
                Part::Row(_) if imported.calls > 0 => left_out = true,
                Part::Row(row) => {
                    imported.summed = imported.summed.saturating_add(row.calls);
                    summary.add_sum(row.name, row.calls, row.errors, row.wall_ns);
                }
                Part::Rule => {}
                Part::Total => in_table = false,
            }
            continue;
        }
        match line::parse(text) {
            Some(line) => threads.line(&line, &mut imported, &mut |event| summary.add(event)),
            None => imported.skip(text),
        }
    }
    // A line that another thread cut in two, and the log ends before the rest of it.
    if !carried.is_empty() {
        imported.skip(&carried);
    }
    threads.end(&mut imported, &mut |event| summary.add(event));
    summary.skip_lines(imported.skipped);
    imported.conclude(left_out);
    Ok(imported)
}

/// On a terminal strace writes of a new thread in the middle of the call that makes it: what is
/// before that goes on in the next line.
fn cut_by_remark(text: &str) -> Option<&str> {
    let (begun, number) = text.strip_suffix(" attached")?.rsplit_once("strace: Process ")?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    (is_number && !begun.is_empty() && begun.len() < LINE_BYTES_MAX / 2).then_some(begun)
}

/// The next line, without what is beyond the limit; false at the end.
fn read_line(log: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    let mut any = false;
    loop {
        let buffer = match log.fill_buf() {
            Ok(buffer) => buffer,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if buffer.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let part = &buffer[..end.unwrap_or(buffer.len())];
        let room = LINE_BYTES_MAX.saturating_sub(line.len());
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = end.map_or(part.len(), |end| end + 1);
        log.consume(used);
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests;
