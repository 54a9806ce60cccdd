//! Reads the record of what crossed sandboxes, for the tracer that asked hosts to write it.
//!
//! Invariant: the file is untrusted. Reading stops at the first bytes that are no frame, and takes
//! memory in proportion to what is there, up to [`RECORDS_MAX`].

use std::collections::HashMap;
use std::io::{self, Read as Source};

use zerocopy::{FromZeros, IntoBytes};

use crate::record::{FLAG_AT_REST, FRAME_BYTES_MAX, FrameHead, MAGIC, Record};

/// Records that are read of all processes together; what comes after is counted.
pub const RECORDS_MAX: u64 = 1 << 24;
/// Processes that are distinguished.
const HOSTS_MAX: usize = 4096;

/// What is in a file.
#[derive(Debug, Default)]
pub struct Read {
    /// Each process that wrote to it, by its number.
    pub hosts: Vec<Host>,
    /// How the file ends.
    pub ending: Ending,
    /// Records that were not read for their number.
    pub passed_over: u64,
}

/// How a file ends.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// After a whole frame.
    #[default]
    Whole,
    /// With bytes that are no frame: nothing from here on is read.
    Torn {
        /// Where the good part ends, in bytes.
        at_byte: u64,
    },
}

/// What one process wrote.
#[derive(Debug)]
pub struct Host {
    process: u32,
    records: Vec<Record>,
    /// The names in them.
    names: HashMap<u32, String>,
    writes: Vec<(u32, u64)>,
    dropped: u64,
    is_finished: bool,
    has_gaps: bool,
    frames: u32,
}

impl Host {
    /// Its number.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.process
    }

    /// In the order in which they were marked: by their ends.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// When frames were written, and by which threads: the write is the first call of that thread
    /// from then on.
    #[must_use]
    pub fn writes(&self) -> &[(u32, u64)] {
        &self.writes
    }

    /// Records that the host could not keep.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether all its applets had ended with the last frame; else later records are missing.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.is_finished
    }

    /// Whether a frame between the first and the last is missing.
    #[must_use]
    pub fn has_gaps(&self) -> bool {
        self.has_gaps
    }

    /// The name with this number; empty if the record has none.
    #[must_use]
    pub fn name(&self, number: u32) -> &str {
        self.names.get(&number).map_or("", String::as_str)
    }
}

/// Reads all frames up to the first bytes that are none.
///
/// # Errors
/// Those of the source.
pub fn read(source: &mut impl Source) -> io::Result<Read> {
    let mut found = Read::default();
    let (mut at_byte, mut records) = (0, 0_u64);
    let mut hosts: HashMap<u32, Host> = HashMap::new();
    let mut bytes = Vec::new();
    loop {
        let mut head = FrameHead::new_zeroed();
        match fill(source, head.as_mut_bytes())? {
            0 => break,
            filled if filled == size_of::<FrameHead>() && take(source, &head, &mut bytes)? => {}
            _ => {
                found.ending = Ending::Torn { at_byte };
                break;
            }
        }
        at_byte += (size_of::<FrameHead>() + bytes.len()) as u64;
        let process = head.process.get();
        if hosts.len() >= HOSTS_MAX && !hosts.contains_key(&process) {
            found.passed_over += u64::from(head.records.get());
            continue;
        }
        // A number that another process had before: after all of the other's frames.
        let host = hosts.entry(process).or_insert_with(|| Host::new(process));
        host.begin_frame(&head);
        let mut rest = bytes.as_slice();
        for index in 0..head.records.get() {
            if records >= RECORDS_MAX {
                found.passed_over += u64::from(head.records.get() - index);
                break;
            }
            let Ok((record, after)) = postcard::take_from_bytes::<Record>(rest) else {
                // The sum was right, so this was written by something else.
                found.ending = Ending::Torn { at_byte };
                break;
            };
            rest = after;
            records += 1;
            host.add(record);
        }
        if found.ending != Ending::Whole {
            break;
        }
    }
    found.hosts = hosts.into_values().collect();
    found.hosts.sort_by_key(|host| host.process);
    Ok(found)
}

impl Host {
    fn new(process: u32) -> Host {
        Host {
            process,
            records: Vec::new(),
            names: HashMap::new(),
            writes: Vec::new(),
            dropped: 0,
            is_finished: false,
            has_gaps: false,
            frames: 0,
        }
    }

    fn begin_frame(&mut self, head: &FrameHead) {
        self.has_gaps |= head.sequence.get() != self.frames;
        self.frames = head.sequence.get().wrapping_add(1);
        self.dropped = head.dropped.get();
        self.is_finished = head.flags.get() & FLAG_AT_REST != 0;
        self.writes.push((head.thread.get(), head.written_ns.get()));
    }

    fn add(&mut self, record: Record) {
        match record {
            Record::Name { number, text } => drop(self.names.insert(number, text)),
            record => self.records.push(record),
        }
    }
}

/// Takes the bytes of a frame; false if these are not what its head says.
fn take(source: &mut impl Source, head: &FrameHead, bytes: &mut Vec<u8>) -> io::Result<bool> {
    let length = head.bytes.get() as usize;
    if head.magic != MAGIC || length > FRAME_BYTES_MAX {
        return Ok(false);
    }
    bytes.resize(length, 0);
    Ok(fill(source, bytes)? == length && head.sum_with(bytes) == head.sum.get())
}

/// How many bytes there were, up to that many.
fn fill(source: &mut impl Source, mut bytes: &mut [u8]) -> io::Result<usize> {
    Ok(io::copy(&mut source.take(bytes.len() as u64), &mut bytes)? as usize)
}

#[cfg(test)]
mod tests;
