//! The bytes of a recording: its first sixteen, and frames.

use std::hash::Hasher;

use xxhash_rust::xxh3::Xxh3Default;
use zerocopy::byteorder::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// How a recording begins.
pub(super) const MAGIC: [u8; 8] = *b"HFTRACE\n";
/// The version of a recording without what crossed sandboxes.
pub(super) const VERSION_PLAIN: u32 = 1;
/// The newest version, with it.
pub(super) const VERSION: u32 = 2;
/// Events are gathered up to this many bytes before they are compressed and written.
pub(super) const FRAME_BYTES: usize = 256 << 10;
/// The most that a frame may say that it has, compressed or not: an event or an account that is longer is not written.
pub(super) const FRAME_BYTES_MAX: usize = 4 << 20;

/// The first bytes of the file.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Head {
    pub(super) magic: [u8; 8],
    pub(super) version: U32,
    pub(super) reserved: U32,
}

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An account of the trace as known at its beginning: the first frame.
    Beginning,
    /// Events, one after another.
    Events,
    /// The account as known at the end: the last frame.
    End,
    /// A piece of the hosts' record of what crossed sandboxes, as it was written: after all events.
    Crossings,
}

impl Kind {
    pub(super) fn code(self) -> u32 {
        match self {
            Kind::Beginning => 1,
            Kind::Events => 2,
            Kind::End => 3,
            Kind::Crossings => 4,
        }
    }

    pub(super) fn of(code: u32) -> Option<Kind> {
        [Kind::Beginning, Kind::Events, Kind::End, Kind::Crossings]
            .into_iter()
            .find(|kind| kind.code() == code)
    }
}

/// Before the bytes of each frame.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct FrameHead {
    pub(super) kind: U32,
    /// Bytes that follow.
    pub(super) stored_bytes: U32,
    /// What they are when unpacked.
    pub(super) raw_bytes: U32,
    /// Events in it; 1 for an account.
    pub(super) items: U32,
    /// XXH3 of the fields above and of the bytes that follow.
    pub(super) sum: U64,
}

const _: () = assert!(size_of::<Head>() == 16 && size_of::<FrameHead>() == 24);

impl FrameHead {
    /// The sum of a frame with these fields and bytes.
    pub(super) fn sum_with(&self, stored: &[u8]) -> u64 {
        let mut sum = Xxh3Default::new();
        for field in [self.kind, self.stored_bytes, self.raw_bytes, self.items] {
            sum.write(&field.to_bytes());
        }
        sum.write(stored);
        sum.finish()
    }

    /// Whether its lengths may be believed as far as memory goes.
    pub(super) fn is_bounded(&self) -> bool {
        // LZ4 makes what cannot be compressed a little longer.
        let stored_bytes_max = lz4_flex::block::get_maximum_output_size(FRAME_BYTES_MAX);
        self.stored_bytes.get() as usize <= stored_bytes_max
            && self.raw_bytes.get() as usize <= FRAME_BYTES_MAX
    }
}
