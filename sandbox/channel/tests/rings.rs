//! One ring, without waiting: records go through as they are, in order, whatever their sizes and
//! wherever they begin.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::VecDeque;
use std::ptr::NonNull;

use holdfast_channel::header::{Header, MORE, RECORD_ALIGN, record_bytes};
use holdfast_channel::protocol::MessageKind;
use holdfast_channel::ring::{CONSUMER_POSITION, PRODUCER_POSITION};
use holdfast_channel::{ChannelError, Consumer, Producer, Shared};
use proptest::prelude::*;
use zerocopy::IntoBytes;

const RING_BYTES: u32 = 4096;

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
        let mut memory = vec![0_u64; (4096 + RING_BYTES as usize) / 8];
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

/// Guarantee: applets/message-order
#[test]
fn records_go_through_wherever_they_begin() {
    for start in (0..RING_BYTES as usize).step_by(RECORD_ALIGN as usize) {
        let mut ends = Ends::new();
        for number in 0..start / RECORD_ALIGN as usize {
            assert!(ends.push(&pattern(number, 16), 1));
            assert_eq!(ends.pop(), Some((1, pattern(number, 16))));
        }
        for bytes in [0, 1, 8, 101, 1999] {
            assert!(ends.push(&pattern(start, bytes), bytes as u64));
            assert_eq!(ends.pop(), Some((bytes as u64, pattern(start, bytes))), "{start}");
        }
        assert_eq!(ends.pop(), None);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Guarantee: applets/message-order
    #[test]
    fn a_ring_behaves_as_a_queue_of_bounded_size(
        steps in prop::collection::vec((any::<bool>(), 0_usize..2000), 1..300),
    ) {
        let mut ends = Ends::new();
        let mut model = VecDeque::new();
        let mut used = 0;
        for (index, (pushes, bytes)) in steps.into_iter().enumerate() {
            if pushes {
                let record = record_bytes(bytes as u32);
                let fits = used + record <= u64::from(RING_BYTES);
                prop_assert_eq!(ends.push(&pattern(index, bytes), index as u64), fits);
                if fits {
                    used += record;
                    model.push_back((index as u64, pattern(index, bytes)));
                }
            } else {
                let expected = model.pop_front();
                if let Some((_, payload)) = &expected {
                    used -= record_bytes(payload.len() as u32);
                }
                prop_assert_eq!(ends.pop(), expected);
            }
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

/// A producer position that cannot occur is a breach by the peer.
///
/// Guarantee: applets/hostile-channel
#[test]
fn impossible_producer_position_is_a_breach() {
    for told in [8, 4095, 4160, u64::MAX] {
        let mut ends = Ends::new();
        ends.set(PRODUCER_POSITION, told);
        let found = ends.consumer.poll().unwrap_err();
        assert!(
            matches!(found, ChannelError::PeerBroke { what } if what.contains("more than fits")),
            "{found}"
        );
    }
    let mut ends = Ends::new();
    assert!(ends.push(&[1; 100], 1) && ends.pop().is_some());
    // Backwards.
    ends.set(PRODUCER_POSITION, 64);
    assert!(matches!(ends.consumer.poll(), Err(ChannelError::PeerBroke { .. })));
}

/// A consumer position that cannot occur is a breach by the peer.
///
/// Guarantee: applets/hostile-channel
#[test]
fn impossible_consumer_position_is_a_breach() {
    for told in [4, 4096, 8192, u64::MAX] {
        let mut ends = Ends::new();
        assert!(ends.push(&[], 1));
        ends.set(CONSUMER_POSITION, told);
        // It is looked at when room runs out, and not before.
        let found = (0..100)
            .find_map(|_| ends.producer.push(&Header::new(MessageKind::Result), &[0; 1000]).err());
        assert!(matches!(found, Some(ChannelError::PeerBroke { .. })), "{told}: {found:?}");
    }
}

/// Guarantee: applets/hostile-channel
#[test]
fn a_header_that_cannot_be_is_the_peers_breach() {
    let good = Header { payload_bytes: 8, ..Header::new(MessageKind::Result) };
    for (wrong, what) in [
        (Header { payload_bytes: 17, ..good }, "announced more"),
        (Header { payload_bytes: 2000, ..good }, "announced more"),
        (Header { payload_bytes: 2001, ..good }, "wrong place"),
        (Header { payload_bytes: u32::MAX, ..good }, "wrong place"),
        (Header { flags: MORE, ..good }, "wrong place"),
        (Header { payload_bytes: u32::MAX, flags: MORE, ..good }, "announced more"),
        (Header { flags: 2, ..good }, "flags"),
        (Header { flags: 0xffff, ..good }, "flags"),
    ] {
        let mut ends = Ends::new();
        assert!(ends.producer.push(&good, &[0; 8]).unwrap());
        ends.shared.write(4096, wrong.as_bytes()).unwrap();
        let found = ends.consumer.poll().unwrap_err();
        assert!(
            matches!(found, ChannelError::PeerBroke { what: found } if found.contains(what)),
            "{found}"
        );
    }
}

/// A header is copied once from shared memory, and only the copy is used.
///
/// Guarantee: applets/hostile-channel
#[test]
fn header_is_copied_once_and_used_from_the_copy() {
    let mut ends = Ends::new();
    assert!(ends.push(&[7; 100], 1));
    let seen = ends.consumer.poll().unwrap().unwrap();
    // Now that it is checked the peer changes it.
    let other =
        Header { payload_bytes: 4, call: 99, flags: 0x80, ..Header::new(MessageKind::Seal) };
    ends.shared.write(4096, other.as_bytes()).unwrap();
    assert_eq!(ends.consumer.poll().unwrap(), Some(seen));
    assert_eq!(ends.pop(), Some((1, vec![7; 100])));
}
