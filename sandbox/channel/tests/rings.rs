//! One ring, without waiting: records go through as they are, in order, whatever their sizes and
//! wherever they begin.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::VecDeque;
use std::ptr::NonNull;

use holdfast_channel::header::{Header, MORE};
use holdfast_channel::layout::CONTROL_BYTES;
use holdfast_channel::line::{INLINE_BYTES_MAX, LINE_BYTES};
use holdfast_channel::protocol::MessageKind;
use holdfast_channel::ring::{DATA_ALIGN, LINES, LINES_OFFSET, TAKEN_BYTES, TAKEN_RECORDS};
use holdfast_channel::{ChannelError, Consumer, Producer, Shared};
use proptest::prelude::*;

const RING_BYTES: u32 = 4096;
/// The most that one record of it carries.
const PIECE_BYTES: usize = 512;
/// Where in a line lie the bytes of the payload, kind and flags.
const LENGTH_AT: usize = LINES_OFFSET + 4;
const KIND_AT: usize = LINES_OFFSET + 8;

/// A ring of its own, with both ends.
struct Ends {
    shared: Shared,
    producer: Producer,
    consumer: Consumer,
    /// What the three lead to, touched through them alone.
    _memory: Vec<u64>,
}

impl Ends {
    fn new() -> Ends {
        let mut memory = vec![0_u64; (CONTROL_BYTES as usize + RING_BYTES as usize) / 8];
        let base = NonNull::new(memory.as_mut_ptr().cast()).unwrap();
        // SAFETY: the memory lives in the value, is not moved by a move of the vector, and is
        // touched through `Shared` alone.
        let shared = unsafe { Shared::new(base, memory.len() * 8) };
        let producer = Producer::new(shared, RING_BYTES).unwrap();
        let consumer = Consumer::new(shared, RING_BYTES).unwrap();
        Ends { shared, producer, consumer, _memory: memory }
    }

    fn push(&mut self, payload: &[u8], call: u64) -> bool {
        let payload_bytes = payload.len() as u32;
        let header = Header { payload_bytes, call, ..Header::new(MessageKind::Result) };
        self.producer.push(&header, payload).unwrap()
    }

    fn pop(&mut self) -> Option<(u64, Vec<u8>)> {
        let record = self.consumer.poll().unwrap()?;
        assert_eq!(record.header.payload_bytes, record.piece_bytes);
        let mut payload = vec![0; record.piece_bytes as usize];
        self.consumer.take(&mut payload).unwrap();
        Some((record.header.call, payload))
    }

    fn set(&self, at: usize, value: u64) {
        self.shared.write(at, &value.to_le_bytes()).unwrap();
    }
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (seed.wrapping_mul(31) + at * 7) as u8).collect()
}

/// What a record without further fields has in the data.
fn data_bytes(payload_bytes: usize) -> u64 {
    let beyond = payload_bytes.saturating_sub(INLINE_BYTES_MAX) as u64;
    beyond.next_multiple_of(DATA_ALIGN)
}

/// Guarantee: applets/message-order
#[test]
fn records_go_through_wherever_they_begin() {
    for start in 0..2 * u64::from(RING_BYTES) / DATA_ALIGN {
        let mut ends = Ends::new();
        for number in 0..start as usize {
            // A line, and as much in the data.
            assert!(ends.push(&pattern(number, 64), 1));
            assert_eq!(ends.pop(), Some((1, pattern(number, 64))));
        }
        for bytes in [0, 1, 8, 47, 48, 49, 101, 511, PIECE_BYTES] {
            assert!(ends.push(&pattern(start as usize, bytes), bytes as u64));
            assert_eq!(ends.pop(), Some((bytes as u64, pattern(start as usize, bytes))), "{start}");
        }
        assert_eq!(ends.pop(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// What was taken may be told late, by no more than a quarter of the lines and one piece.
    ///
    /// Guarantee: applets/message-order
    #[test]
    fn a_ring_behaves_as_a_queue_of_bounded_size(
        steps in prop::collection::vec((any::<bool>(), 0_usize..=PIECE_BYTES, any::<bool>()), 1..400),
    ) {
        let mut ends = Ends::new();
        let mut model = VecDeque::new();
        let mut used = 0;
        for (index, (pushes, bytes, is_short)) in steps.into_iter().enumerate() {
            let bytes = if is_short { bytes % 64 } else { bytes };
            if pushes {
                let (lines, data) = (model.len() as u64 + 1, used + data_bytes(bytes));
                let has_come = ends.push(&pattern(index, bytes), index as u64);
                let fits = lines <= LINES && data <= u64::from(RING_BYTES);
                let fits_surely = lines <= LINES - LINES / 4
                    && data <= u64::from(RING_BYTES) - PIECE_BYTES as u64;
                prop_assert!(if has_come { fits } else { !fits_surely }, "{} {}", lines, data);
                if has_come {
                    used = data;
                    model.push_back((index as u64, pattern(index, bytes)));
                }
            } else {
                let expected = model.pop_front();
                if let Some((_, payload)) = &expected {
                    used -= data_bytes(payload.len());
                }
                prop_assert_eq!(ends.pop(), expected);
            }
        }
    }
}

/// The lines of memory that an action changes.
fn changed_lines(ends: &mut Ends, act: impl FnOnce(&mut Ends)) -> Vec<usize> {
    let shared = ends.shared;
    let all = || {
        let mut bytes = vec![0; shared.bytes()];
        shared.read(0, &mut bytes).unwrap();
        bytes
    };
    let before = all();
    act(ends);
    let after = all();
    let lines = before.chunks(LINE_BYTES).zip(after.chunks(LINE_BYTES)).enumerate();
    lines.filter(|(_, (before, after))| before != after).map(|(line, _)| line).collect()
}

/// A message of up to 48 bytes is one line, and each 64 bytes beyond are one more; a consumer that
/// takes one stores nothing, but for one in 16.
///
/// Guarantee: applets/one-line
#[test]
fn a_short_message_is_one_line() {
    for bytes in [0, 1, 47, 48, 49, 112, 113, 176, 177, 500] {
        let mut ends = Ends::new();
        for number in 0..3 * LINES {
            let payload = vec![1 + number as u8; bytes];
            let stored = changed_lines(&mut ends, |ends| assert!(ends.push(&payload, number)));
            let beyond = bytes.saturating_sub(48).div_ceil(64);
            assert_eq!(stored.len(), 1 + beyond, "{bytes}");
            let own = LINES_OFFSET / LINE_BYTES + (number % LINES) as usize;
            assert!(stored.contains(&own), "{stored:?}");
            let told = changed_lines(&mut ends, |ends| {
                assert_eq!(ends.pop(), Some((number, payload)));
            });
            let is_due = beyond > 0 || (number + 1).is_multiple_of(LINES / 4);
            assert!(told.is_empty() || (is_due && told == [0]), "{told:?}");
            assert!(beyond > 0 || told.is_empty() != is_due);
        }
    }
}

/// A piece that can never fit is refused, and a record is taken only with its exact size.
#[test]
fn oversized_piece_is_refused_by_the_ring() {
    let mut ends = Ends::new();
    let most = ends.producer.piece_bytes_max() as usize;
    let header = Header::new(MessageKind::Result);
    let refused = ends.producer.push(&header, &vec![0; most + 1]);
    assert_eq!(
        refused,
        Err(ChannelError::TooLarge { bytes: most as u64 + 1, limit_bytes: most as u64 })
    );
    assert!(matches!(ends.consumer.take(&mut []), Err(ChannelError::NoRoom { needed_bytes: 0 })));
    assert!(ends.push(&[7; 10], 1));
    assert!(ends.consumer.poll().unwrap().is_some());
    assert_eq!(ends.consumer.take(&mut [0; 9]), Err(ChannelError::NoRoom { needed_bytes: 10 }));
    assert_eq!(ends.pop(), Some((1, vec![7; 10])));
}

/// A stamp that cannot occur is a breach by the peer.
///
/// Guarantee: applets/hostile-channel
#[test]
fn impossible_stamp_is_a_breach() {
    let breaks = |ends: &mut Ends, line: usize, stamp: u32| {
        ends.set(LINES_OFFSET + line * LINE_BYTES, stamp.into());
        let found = ends.consumer.poll();
        let is_breach =
            matches!(found, Err(ChannelError::PeerBroke { what }) if what.contains("out of turn"));
        assert!(is_breach, "{stamp}: {found:?}");
    };
    for stamp in [2, 64, 65, u32::MAX, u32::MAX - 62] {
        breaks(&mut Ends::new(), 0, stamp);
    }
    // In the second round a line has the stamp of the first one before it has its own.
    let mut ends = Ends::new();
    for number in 0..LINES {
        assert!(ends.push(&[1; 100], number) && ends.pop().is_some());
    }
    assert_eq!(ends.consumer.poll(), Ok(None));
    breaks(&mut ends, 0, 0);
    breaks(&mut ends, 0, 66);
}

/// What a consumer cannot have taken is a breach by the peer.
///
/// Guarantee: applets/hostile-channel
#[test]
fn impossible_consumer_position_is_a_breach() {
    for (at, told) in [
        (TAKEN_RECORDS, 200),
        (TAKEN_RECORDS, u64::MAX),
        (TAKEN_BYTES, 4),
        (TAKEN_BYTES, 1 << 20),
        (TAKEN_BYTES, u64::MAX),
    ] {
        let mut ends = Ends::new();
        assert!(ends.push(&[], 1));
        ends.set(at, told);
        // It is looked at when room runs out, and not before.
        let found = (0..100)
            .find_map(|_| ends.producer.push(&Header::new(MessageKind::Result), &[0; 200]).err());
        assert!(matches!(found, Some(ChannelError::PeerBroke { .. })), "{told}: {found:?}");
    }
    // Backwards.
    let mut ends = Ends::new();
    for number in 0..LINES + 1 {
        assert!(ends.push(&[1; 400], number) && ends.pop().is_some());
    }
    ends.set(TAKEN_RECORDS, 1);
    let found = (0..100).find_map(|number| {
        ends.producer.push(&Header { call: number, ..Header::default() }, &[0; 200]).err()
    });
    assert!(matches!(found, Some(ChannelError::PeerBroke { .. })), "{found:?}");
}

/// Guarantee: applets/hostile-channel
#[test]
fn a_header_that_cannot_be_is_the_peers_breach() {
    let piece = PIECE_BYTES as u32;
    for (payload_bytes, kind, flags, what) in [
        (piece + 1, MessageKind::Result, 0, "wrong place"),
        (u32::MAX, MessageKind::Result, 0, "wrong place"),
        (8, MessageKind::Result, MORE, "wrong place"),
        (piece, MessageKind::Result, MORE, "wrong place"),
        (8, MessageKind::Result, 2, "flags"),
        (8, MessageKind::Call, 0x80, "flags"),
        (8, MessageKind::Result, 0xff, "flags"),
    ] {
        let mut ends = Ends::new();
        assert!(ends.push(&[0; 8], 1));
        ends.shared.write(LENGTH_AT, &payload_bytes.to_le_bytes()).unwrap();
        ends.shared.write(KIND_AT, &[kind as u8, flags as u8]).unwrap();
        let found = ends.consumer.poll().unwrap_err();
        assert!(
            matches!(found, ChannelError::PeerBroke { what: found } if found.contains(what)),
            "{found}"
        );
    }
}

/// A line is copied once from shared memory, and only the copy is used.
///
/// Guarantee: applets/hostile-channel
#[test]
fn header_is_copied_once_and_used_from_the_copy() {
    let mut ends = Ends::new();
    assert!(ends.push(&[7; 100], 1));
    let seen = ends.consumer.poll().unwrap().unwrap();
    // Now that it is checked the peer changes it: length, kind, flags, and what is in the line of
    // the payload.
    ends.shared.write(LINES_OFFSET, &[0xee; LINE_BYTES]).unwrap();
    assert_eq!(ends.consumer.poll().unwrap(), Some(seen));
    assert_eq!(ends.pop(), Some((1, vec![7; 100])));
}
