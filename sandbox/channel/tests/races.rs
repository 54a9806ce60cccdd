//! A peer that changes shared memory while the host parses it (X8 of the fault matrix): a thread
//! with a mapping of its own plays an applet that sends messages in order and, at random, stores to
//! positions, headers, payloads and futex words, as fast as it can. The host must come to a typed
//! result each time, and what it has checked must be what it uses.
//!
//! `HOLDFAST_RACES` sets the number of results; 10,000 without it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use holdfast_channel::header::Header;
use holdfast_channel::layout::CONTROL_BYTES;
use holdfast_channel::line::LINE_BYTES;
use holdfast_channel::protocol::{HostMessage, MessageKind};
use holdfast_channel::ring::{
    DATA_ALIGN, DATA_WORD, LINES, LINES_OFFSET, ROOM_WORD, TAKEN_BYTES, TAKEN_RECORDS,
};
use holdfast_channel::wait::Deadline;
use holdfast_channel::{
    ChannelError, ChannelMemory, Endpoint, HostWait, Layout, Producer, Shared, Side,
};
use holdfast_sys::shared_memory::SharedMemory;
use holdfast_types::RequestStatus;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

const RACES_DEFAULT: u64 = 10_000;
const RING_BYTES: u32 = 8192;
/// Where in a line the payload begins: each header here has one field more than fits before.
const PAYLOAD_AT: usize = 24;
/// Victims are chosen among so many: what the host has taken it tells late.
const VICTIMS: usize = 20;
const LIMIT_BYTES: u64 = 500;
const RESULTS_PER_ATTACK: u64 = 20;
/// For each result of the host; far more than any deadline here.
const HANG: Duration = Duration::from_secs(20);

/// What the attacker stores to.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Attack {
    Payloads,
    Lengths,
    Headers,
    Positions,
    Futexes,
    Everything,
}

const ATTACKS: [Attack; 6] = [
    Attack::Payloads,
    Attack::Lengths,
    Attack::Headers,
    Attack::Positions,
    Attack::Futexes,
    Attack::Everything,
];

/// Numbers at which checks turn.
fn boundary(random: &mut SmallRng, near: u64) -> u64 {
    match random.random_range(0..6) {
        0 => random.random(),
        1 => near
            .wrapping_add(64 * random.random_range(0..8))
            .wrapping_sub(64 * random.random_range(0..8)),
        2 => near.wrapping_add(random.random_range(0..2 * u64::from(RING_BYTES))),
        3 => u64::MAX - random.random_range(0..64),
        4 => random.random_range(0..64),
        _ => near ^ 1 << random.random_range(0..64),
    }
}

struct Attacker<'a> {
    memory: Shared,
    layout: Layout,
    stop: &'a AtomicBool,
    random: SmallRng,
    /// How many records were sent, and how many bytes of the data they have.
    sent: u64,
    sent_bytes: u64,
    /// What is in the ring.
    records: VecDeque<Victim>,
}

/// A record: its number, the bytes of its payload, and where in the data these go on.
#[derive(Clone, Copy)]
struct Victim {
    number: u64,
    bytes: u64,
    data_at: u64,
}

impl Attacker<'_> {
    fn run(&mut self, attack: Attack) {
        let layout = self.layout;
        let ring =
            self.memory.part(layout.applet_ring_offset(), layout.ring_total_bytes()).unwrap();
        let mut producer = Producer::new(ring, RING_BYTES).unwrap();
        let started = Instant::now();
        while !self.stop.load(Ordering::Relaxed) && started.elapsed() < HANG {
            let bytes = self.random.random_range(0..600);
            let payload = vec![0xab; bytes as usize];
            let kinds =
                [MessageKind::Result, MessageKind::Chunk, MessageKind::Failure, MessageKind::Grow];
            let kind = kinds[self.random.random_range(0..4) as usize];
            let header =
                Header { payload_bytes: bytes as u32, call: bytes, status: 1, ..Header::new(kind) };
            if producer.push(&header, &payload) == Ok(true) {
                self.records.push_back(self.next(bytes));
                self.sent += 1;
                let beyond = bytes.saturating_sub((LINE_BYTES - PAYLOAD_AT) as u64);
                self.sent_bytes += beyond.next_multiple_of(DATA_ALIGN);
            }
            for _ in 0..self.random.random_range(0..64) {
                let victim = self.victim();
                self.attack(attack, victim);
            }
        }
    }

    fn next(&self, bytes: u64) -> Victim {
        Victim { number: self.sent, bytes, data_at: self.sent_bytes }
    }

    /// The record that the host is about to take, or one near it.
    fn victim(&mut self) -> Victim {
        let mut taken = [0; 8];
        let at = self.layout.applet_ring_offset() as usize + TAKEN_RECORDS;
        self.memory.read(at, &mut taken).unwrap();
        let taken = u64::from_le_bytes(taken);
        while self.records.len() > 1
            && self.records.front().is_some_and(|victim| victim.number < taken)
        {
            self.records.pop_front();
        }
        let near = self.records.len().clamp(1, VICTIMS);
        let index = self.random.random_range(0..near as u64) as usize;
        self.records.get(index).copied().unwrap_or(self.next(0))
    }

    fn attack(&mut self, attack: Attack, victim: Victim) {
        let ring = self.layout.applet_ring_offset() as usize;
        let line = ring + LINES_OFFSET + (victim.number % LINES) as usize * LINE_BYTES;
        let bytes = victim.bytes;
        let kinds = [
            Attack::Payloads,
            Attack::Lengths,
            Attack::Headers,
            Attack::Positions,
            Attack::Futexes,
        ];
        match attack {
            Attack::Payloads => {
                let words = bytes.div_ceil(8);
                if words > 0 {
                    let word = 8 * self.random.random_range(0..words);
                    let value = self.random.random();
                    let in_line = (LINE_BYTES - PAYLOAD_AT) as u64;
                    let place = match word.checked_sub(in_line) {
                        None => line + PAYLOAD_AT + word as usize,
                        Some(beyond) => {
                            let data = ring + CONTROL_BYTES as usize;
                            let at = (victim.data_at + beyond) % u64::from(RING_BYTES);
                            data + at as usize
                        }
                    };
                    self.store(place, value);
                }
            }
            // The length goes to and fro between two that can be.
            Attack::Lengths => {
                let length = if self.random.random_range(0..2) == 0 {
                    bytes
                } else {
                    self.random.random_range(0..=bytes)
                };
                self.memory.write(line + 4, &(length as u32).to_le_bytes()).unwrap();
            }
            Attack::Headers => {
                let word = self.random.random_range(0..8);
                let first = (victim.number + 1) | (bytes << 32);
                let near = [first, MessageKind::Result as u64];
                let value = boundary(&mut self.random, near[word as usize % 2]);
                self.store(line + 8 * word as usize, value);
            }
            Attack::Positions => {
                let host_ring = self.layout.host_ring_offset() as usize;
                let next = ring + LINES_OFFSET + (self.sent % LINES) as usize * LINE_BYTES;
                let places = [host_ring + TAKEN_RECORDS, host_ring + TAKEN_BYTES, line, next];
                let at = places[self.random.random_range(0..4) as usize];
                let value = boundary(&mut self.random, self.sent);
                self.store(at, value);
                if self.random.random_range(0..2) == 0 {
                    self.store(next, 0);
                }
            }
            Attack::Futexes => {
                let rings = [self.layout.host_ring_offset(), self.layout.applet_ring_offset()];
                let words = [DATA_WORD, ROOM_WORD];
                let at = rings[self.random.random_range(0..2) as usize] as usize
                    + words[self.random.random_range(0..2) as usize];
                let value = self.random.random_range(0..3) as u32;
                self.memory.write(at, &value.to_le_bytes()).unwrap();
            }
            Attack::Everything => {
                let kind = kinds[self.random.random_range(0..5) as usize];
                self.attack(kind, victim);
            }
        }
    }

    fn store(&self, at: usize, value: u64) {
        self.memory.write(at, &value.to_le_bytes()).unwrap();
    }
}

/// How often what came out.
#[derive(Debug, Default)]
struct Seen {
    messages: u64,
    refused: u64,
    broke: u64,
    timed_out: u64,
}

impl Seen {
    fn all(&self) -> u64 {
        self.messages + self.refused + self.broke + self.timed_out
    }
}

/// Receives until the channel is of no use any more, or enough was seen.
fn host(endpoint: &mut Endpoint<HostWait>, attack: Attack, seen: &mut Seen) {
    let mut payload = Vec::new();
    for turn in 0..RESULTS_PER_ATTACK {
        let started = Instant::now();
        let deadline = endpoint.deadline_in(Duration::from_millis(1));
        let outcome = endpoint.receive(&mut payload, LIMIT_BYTES, deadline);
        assert!(started.elapsed() < HANG, "{attack:?}");
        match outcome {
            Ok(header) => {
                seen.messages += 1;
                // What was validated is what was used.
                assert_eq!(payload.len(), header.payload_bytes as usize, "{attack:?}");
                assert!(
                    u64::from(header.payload_bytes) <= LIMIT_BYTES && header.flags == 0,
                    "{header:?}"
                );
                assert_eq!(
                    header.kind().map(MessageKind::sender),
                    Some(Side::Applet),
                    "{header:?}"
                );
                if attack == Attack::Futexes || attack == Attack::Payloads {
                    assert_eq!(header.call, u64::from(header.payload_bytes), "{attack:?}");
                }
            }
            Err(ChannelError::TooLarge { bytes, limit_bytes }) => {
                seen.refused += 1;
                assert!(bytes > limit_bytes);
                // The same header again, whatever is there now.
                let again =
                    endpoint.peek(Deadline::NOW).map(|header| u64::from(header.payload_bytes));
                assert_eq!(again, Ok(bytes));
                if endpoint.discard(deadline).is_err() {
                    return;
                }
            }
            Err(ChannelError::PeerBroke { what }) => {
                seen.broke += 1;
                // No message has more than one record here, so no side can have changed it in the
                // middle: a side that says so has loaded a header twice.
                let middle = attack == Attack::Lengths && what.contains("in the middle");
                let never = matches!(attack, Attack::Payloads | Attack::Futexes) || middle;
                assert!(!never || what.contains("again and again"), "{attack:?}: {what}");
                return;
            }
            Err(ChannelError::TimedOut) => seen.timed_out += 1,
            Err(ChannelError::HalfDone) => return,
            Err(other) => panic!("{attack:?}: {other}"),
        }
        if turn % 8 == 0 {
            let reply = Header::from(HostMessage::Reply { status: RequestStatus::Ok, value: 1 });
            match endpoint.send(&reply, &[0; 700], deadline) {
                Ok(()) | Err(ChannelError::TimedOut) => {}
                Err(ChannelError::PeerBroke { .. } | ChannelError::HalfDone) => return,
                Err(other) => panic!("{attack:?}: {other}"),
            }
        }
    }
}

/// Whatever a peer stores while the host parses, the result is typed and only checked values are
/// used.
///
/// Guarantee: applets/hostile-channel
#[test]
fn racing_peer_stores_give_typed_results_only() {
    let wanted =
        std::env::var("HOLDFAST_RACES").map_or(RACES_DEFAULT, |text| text.parse().unwrap());
    let mut seen = Seen::default();
    for round in 0_u64.. {
        if seen.all() >= wanted {
            break;
        }
        let layout = Layout::new(RING_BYTES, 0).unwrap();
        let memory = ChannelMemory::create(layout, &[], true).unwrap();
        let (mut endpoint, _bell) = memory.host().unwrap();
        let mapped = SharedMemory::open(memory.descriptor().unwrap()).unwrap();
        // SAFETY: `mapped` outlives the attacker, and is touched through this value alone.
        let shared = unsafe { Shared::new(mapped.base(), mapped.bytes()) };
        let stop = AtomicBool::new(false);
        // As many results of each.
        let attack = ATTACKS[(seen.all() / RESULTS_PER_ATTACK) as usize % ATTACKS.len()];
        let random = SmallRng::seed_from_u64(round);
        let mut attacker = Attacker {
            memory: shared,
            layout,
            stop: &stop,
            random,
            sent: 0,
            sent_bytes: 0,
            records: VecDeque::new(),
        };
        std::thread::scope(|scope| {
            scope.spawn(|| attacker.run(attack));
            host(&mut endpoint, attack, &mut seen);
            stop.store(true, Ordering::Relaxed);
        });
    }
    println!("{seen:?}");
    // All of it happens, or nothing was tested.
    assert!(
        seen.messages > wanted / 20 && seen.broke > wanted / 1000 && seen.refused > 0,
        "{seen:?}"
    );
}
