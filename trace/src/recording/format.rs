//! The bytes of a recording: its head, the room for its closing account, and frames. ADR 0034 says
//! why they are so.
//!
//! Invariants:
//! - Versions 1 and 2 are read and never written. A change of any structure here is a new version.
//! - Nothing is believed before its sum was compared, and no length before it was bounded.

use std::hash::Hasher;

use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::Xxh3Default;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How a recording begins.
pub(super) const MAGIC: [u8; 8] = *b"HFTRACE\n";
/// The version of a recording without what crossed sandboxes, as written up to format 2.
pub(super) const VERSION_PLAIN: u32 = 1;
/// The last version whose frames have no mark and no place.
pub(super) const VERSION_UNMARKED: u32 = 2;
/// The version that is written.
pub(super) const VERSION: u32 = 3;
/// Events are gathered up to this many bytes before they are compressed and written. A cut costs
/// one frame, so frames are small: some 250 calls.
pub(super) const FRAME_BYTES: usize = 8 << 10;
/// The most that a frame may say that it has, compressed or not: an event or an account that is
/// longer is not written.
pub(super) const FRAME_BYTES_MAX: usize = 4 << 20;
/// Bytes that the closing account may have beyond the opening one, packed: notes, mostly.
pub(super) const CLOSING_SLACK_BYTES: usize = 2 << 10;
/// The most that the room for the closing account may have.
pub(super) const CLOSING_BYTES_MAX: usize = FRAME_BYTES_MAX + (64 << 10);

/// [`Head::flags`]: the trace has a record of what crossed sandboxes.
pub(super) const FLAG_CROSSINGS: u32 = 1;

/// The first bytes of the file, in all versions.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Head {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    /// Zero up to version 2.
    pub(super) flags: U32,
}

/// What follows the head from version 3 on.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct HeadRest {
    /// Bytes behind this that are kept for the closing account; 0 in a recording that cannot be
    /// written but at its end.
    pub(super) closing_bytes: U32,
    pub(super) reserved: U32,
    /// XXH3 of all before.
    pub(super) sum: U64,
}

impl HeadRest {
    /// The sum of a head with these fields.
    pub(super) fn sum_with(&self, head: &Head) -> u64 {
        let mut sum = Xxh3Default::new();
        sum.write(head.as_bytes());
        sum.write(&self.closing_bytes.to_bytes());
        sum.write(&self.reserved.to_bytes());
        sum.finish()
    }
}

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FrameKind {
    /// A [`TraceDescription`](crate::TraceDescription) as known at the beginning: the first frame,
    /// and the closing room until the end.
    Beginning,
    /// Events, one after another.
    Events,
    /// The account as known at the end: an `About`, and a [`Tally`] from version 3 on.
    End,
    /// A piece of the hosts' record of what crossed sandboxes, as it was written: after all events.
    Crossings,
}

impl FrameKind {
    pub(super) fn code(self) -> u32 {
        match self {
            FrameKind::Beginning => 1,
            FrameKind::Events => 2,
            FrameKind::End => 3,
            FrameKind::Crossings => 4,
        }
    }

    pub(super) fn of(code: u32) -> Option<FrameKind> {
        [FrameKind::Beginning, FrameKind::Events, FrameKind::End, FrameKind::Crossings]
            .into_iter()
            .find(|kind| kind.code() == code)
    }
}

/// How many events there were, written behind the `About` in the closing account.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tally {
    /// The trace had ended. Else a write failed, and the tracer went on.
    pub(super) is_final: bool,
    /// Events that the recorder was given so far.
    pub(super) recorded: u64,
    /// Of these, such that are in frames.
    pub(super) kept: u64,
    /// Bytes of the hosts' record that are in frames.
    pub(super) crossings_bytes: u64,
    /// All that the hosts recorded is in frames.
    pub(super) has_all_crossings: bool,
    /// Why not all was written.
    pub(super) failure: Option<String>,
}

/// How a frame begins from version 3 on: what a reader looks for behind damage.
pub(super) const FRAME_MARK: [u8; 8] = *b"\xffHFTRFR\xfe";

/// Before the bytes of each frame.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct FrameHead {
    pub(super) mark: [u8; 8],
    pub(super) kind: U32,
    /// Bytes that follow.
    pub(super) stored_bytes: U32,
    /// What they are when unpacked.
    pub(super) raw_bytes: U32,
    /// Events in it; 1 for an account or a piece of crossings.
    pub(super) items: U32,
    /// Events in the frames before this one; of a piece of crossings, bytes in the pieces before.
    pub(super) before: U64,
    /// XXH3 of the fields above but the mark, and of the bytes that follow.
    pub(super) sum: U64,
}

/// The same up to version 2.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct UnmarkedFrameHead {
    kind: U32,
    stored_bytes: U32,
    raw_bytes: U32,
    items: U32,
    sum: U64,
}

const _: () = assert!(size_of::<Head>() == 16 && size_of::<HeadRest>() == 16);
const _: () = assert!(size_of::<FrameHead>() == 40 && size_of::<UnmarkedFrameHead>() == 24);

impl FrameHead {
    /// The head of a frame with these bytes.
    pub(super) fn of(
        kind: FrameKind,
        items: u32,
        before: u64,
        raw_bytes: usize,
        stored: &[u8],
    ) -> FrameHead {
        let mut head = FrameHead {
            mark: FRAME_MARK,
            kind: kind.code().into(),
            stored_bytes: (stored.len() as u32).into(),
            raw_bytes: (raw_bytes as u32).into(),
            items: items.into(),
            before: before.into(),
            sum: 0.into(),
        };
        head.sum = sum(&head.as_bytes()[8..32], stored).into();
        head
    }
}

/// XXH3 of the fields of a head and of the bytes that follow it.
fn sum(fields: &[u8], stored: &[u8]) -> u64 {
    let mut sum = Xxh3Default::new();
    sum.write(fields);
    sum.write(stored);
    sum.finish()
}

/// A head that may be one: its lengths are bounded, its sum was not compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) kind: FrameKind,
    pub(super) head_bytes: usize,
    pub(super) stored_bytes: usize,
    pub(super) raw_bytes: usize,
    pub(super) items: u32,
    /// None in versions that do not say.
    pub(super) before: Option<u64>,
}

/// How frames are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Versions 1 and 2.
    Unmarked,
    /// From version 3 on.
    Marked,
}

impl Layout {
    pub(super) fn head_bytes(self) -> usize {
        match self {
            Layout::Unmarked => size_of::<UnmarkedFrameHead>(),
            Layout::Marked => size_of::<FrameHead>(),
        }
    }

    /// What these bytes say, if they can be the head of a frame.
    pub(super) fn candidate(self, bytes: &[u8]) -> Option<Candidate> {
        let (kind, stored_bytes, raw_bytes, items, before) = match self {
            Layout::Unmarked => {
                let (head, _) = UnmarkedFrameHead::ref_from_prefix(bytes).ok()?;
                (head.kind, head.stored_bytes, head.raw_bytes, head.items, None)
            }
            Layout::Marked => {
                let (head, _) = FrameHead::ref_from_prefix(bytes).ok()?;
                let is_marked = head.mark == FRAME_MARK;
                let before = is_marked.then(|| head.before.get());
                (head.kind, head.stored_bytes, head.raw_bytes, head.items, Some(before?))
            }
        };
        let (stored_bytes, raw_bytes) = (stored_bytes.get() as usize, raw_bytes.get() as usize);
        // LZ4 makes what cannot be compressed a little longer.
        let stored_bytes_max = lz4_flex::block::get_maximum_output_size(FRAME_BYTES_MAX);
        let is_bounded = stored_bytes <= stored_bytes_max && raw_bytes <= FRAME_BYTES_MAX;
        let kind = FrameKind::of(kind.get()).filter(|_| is_bounded)?;
        let head_bytes = self.head_bytes();
        Some(Candidate { kind, head_bytes, stored_bytes, raw_bytes, items: items.get(), before })
    }

    /// Whether a frame, head and stored bytes, has the sum that it says.
    pub(super) fn is_sound(self, frame: &[u8]) -> bool {
        let (fields, sum_at) = match self {
            Layout::Unmarked => (0..16, 16..24),
            Layout::Marked => (8..32, 32..40),
        };
        let told =
            frame.get(sum_at).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
        let stored = frame.get(self.head_bytes()..);
        match (frame.get(fields), stored, told) {
            (Some(fields), Some(stored), Some(told)) => sum(fields, stored) == told,
            _ => false,
        }
    }
}
