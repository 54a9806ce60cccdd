//! The format of the record of what crossed sandboxes: frames with checksums, each of one process,
//! with records in them. `log` writes it and `read` reads it; `docs/format.md` draws it.
//!
//! Invariant: the numbers are part of the format and never change their meaning.

use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How a frame begins.
pub(crate) const MAGIC: [u8; 4] = *b"HFX1";
/// The longest name of an applet or function that is kept; the rest is cut off.
pub const NAME_BYTES_MAX: usize = 128;
/// A frame's records are gathered up to this many bytes.
pub(crate) const FRAME_BYTES: usize = 256 << 10;
/// The most that a frame may say that it has.
pub(crate) const FRAME_BYTES_MAX: usize = 1 << 20;
/// The longest that a record gets: seven numbers, or a name.
pub(crate) const RECORD_BYTES_MAX: usize = 256;
/// Set in the last frame of a process whose applets have all ended.
pub(crate) const FLAG_AT_REST: u32 = 1;

/// The kinds of applets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AppletKind {
    /// In the host's process, whose functions it imports.
    Wasm,
    /// A process of its own, whose system calls a filter lets through or gives to the host.
    Native,
}

/// What the host said to a system call of a native applet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Answer {
    /// The kernel carries it out.
    Allowed,
    /// It fails with an error number.
    Refused,
    /// It ends the applet.
    Ended,
}

/// One record. Times are nanoseconds of `CLOCK_MONOTONIC`; numbers of threads and processes are
/// those that the host's kernel gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Record {
    /// A name gets a number, by which later records of the process have it.
    Name {
        /// The number.
        number: u32,
        /// The name.
        text: String,
    },
    /// An applet is being started.
    Applet {
        /// Its number in this process.
        applet: u32,
        /// Of which kind.
        kind: AppletKind,
        /// What runs, by [`Record::Name`].
        name: u32,
        /// The time, in nanoseconds.
        at_ns: u64,
    },
    /// A native applet is about to run its first instruction in this process. What that process did
    /// before is the host's work.
    Process {
        /// Which applet.
        applet: u32,
        /// Its process.
        process: u32,
        /// The time, in nanoseconds.
        at_ns: u64,
    },
    /// The host called an applet, and the call is over.
    Call {
        /// Which applet.
        applet: u32,
        /// The function, by [`Record::Name`].
        name: u32,
        /// The thread that began it.
        thread: u32,
        /// Its begin.
        start_ns: u64,
        /// Its end.
        end_ns: u64,
    },
    /// An applet in this process ran, or the host for it, on this thread.
    Turn {
        /// Which applet.
        applet: u32,
        /// The thread.
        thread: u32,
        /// Since when.
        start_ns: u64,
        /// Until when.
        end_ns: u64,
    },
    /// An applet called a function of its host's.
    Crossing {
        /// Which applet.
        applet: u32,
        /// The function, by [`Record::Name`].
        name: u32,
        /// The thread on which it began.
        thread: u32,
        /// Its begin.
        start_ns: u64,
        /// Its end: what lies between is the applet's wait as well, if it was suspended.
        end_ns: u64,
    },
    /// The host decided on a system call of a native applet.
    Question {
        /// Which applet.
        applet: u32,
        /// The host's thread.
        thread: u32,
        /// The applet's thread, as the host sees it; 0 if it does not.
        asked_by: u32,
        /// The call's number.
        number: u32,
        /// What the host said.
        answer: Answer,
        /// When the host took it up.
        start_ns: u64,
        /// When it was answered.
        end_ns: u64,
    },
    /// The record's own work on a thread of the host's, but for the writes of frames.
    Own {
        /// The thread.
        thread: u32,
        /// Since when.
        start_ns: u64,
        /// Until when.
        end_ns: u64,
    },
}

/// Before the records of a frame.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct FrameHead {
    pub(crate) magic: [u8; 4],
    /// Which process wrote it.
    pub(crate) process: U32,
    /// How many frames of it come before.
    pub(crate) sequence: U32,
    pub(crate) flags: U32,
    /// Bytes that follow.
    pub(crate) bytes: U32,
    /// Records in them.
    pub(crate) records: U32,
    /// Records of the process that were not kept, so far.
    pub(crate) dropped: U64,
    /// By which thread it was written: the write is its first call from then on.
    pub(crate) thread: U32,
    pub(crate) reserved: U32,
    pub(crate) written_ns: U64,
    /// XXH3 of the fields above and of the bytes that follow.
    pub(crate) sum: U64,
}

const _: () = assert!(size_of::<FrameHead>() == 56);

/// A frame of these records, as a host with this number writes it. For those who make records
/// without running anything.
#[doc(hidden)]
#[must_use]
pub fn frame(process: u32, sequence: u32, is_at_rest: bool, records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for record in records {
        if let Ok(record) = postcard::to_slice(record, &mut [0; RECORD_BYTES_MAX]) {
            bytes.extend_from_slice(record);
        }
    }
    let mut head = FrameHead {
        magic: MAGIC,
        process: process.into(),
        sequence: sequence.into(),
        flags: if is_at_rest { FLAG_AT_REST } else { 0 }.into(),
        bytes: (bytes.len() as u32).into(),
        records: (records.len() as u32).into(),
        dropped: 0.into(),
        thread: 0.into(),
        reserved: 0.into(),
        written_ns: 0.into(),
        sum: 0.into(),
    };
    head.sum = head.sum_with(&bytes).into();
    [head.as_bytes(), &bytes].concat()
}

impl FrameHead {
    pub(crate) fn sum_with(&self, bytes: &[u8]) -> u64 {
        let mut sum = Xxh3Default::new();
        let fields = self.as_bytes();
        sum.write(&fields[..fields.len() - size_of::<U64>()]);
        sum.write(bytes);
        sum.finish()
    }
}
