//! Any bytes as an applet's side of a channel: sending and receiving never panics, hangs, or waits
//! past its deadline, and what a received header says is what arrived.
//!
//! The input is a list of stores to the shared memory, honest records among them, and of what the
//! host does between. Time is the program's own: whenever the host would sleep, the applet's next
//! store happens instead.

#![no_main]

use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

use holdfast_channel::header::{Header, MORE};
use holdfast_channel::hello::Names;
use holdfast_channel::line::LINE_BYTES;
use holdfast_channel::protocol::{AppletMessage, HostMessage, MessageKind};
use holdfast_channel::ring::{
    DATA_WORD, LINES, LINES_OFFSET, ROOM_WORD, TAKEN_BYTES, TAKEN_RECORDS,
};
use holdfast_channel::wait::{Deadline, Wait};
use holdfast_channel::{Boot, ChannelError, Endpoint, Handle, Layout, Producer, Shared, Side};
use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;

const RING_BYTES: u32 = 4096;
/// The most that a record of it carries.
const PIECE_BYTES: usize = 512;
const ARENA_BYTES: u64 = 1 << 20;
const LIMIT_BYTES: u64 = 10_000;
const WAIT_NS: u64 = 1_000_000;
/// More waits than any deadline here allows.
const SLEEPS_MAX: u32 = 5_000;
const OPERATIONS_MAX: usize = 60;

#[derive(Arbitrary, Debug)]
struct Input {
    stores: Vec<Store>,
    operations: Vec<Operation>,
}

#[derive(Arbitrary, Debug, Clone)]
enum Store {
    /// A whole message of one record, in order.
    Honest {
        kind: u8,
        bytes: u16,
        index: u8,
        a: u32,
        text: Vec<u8>,
    },
    /// A record as a list of fields, with a position that fits.
    Record {
        payload_bytes: u32,
        kind: u8,
        flags: u8,
        call: u8,
        piece: u16,
    },
    Word {
        at: u16,
        value: u64,
    },
    Position {
        ring: bool,
        in_bytes: bool,
        value: u32,
    },
    /// The first word of a line: a stamp, and a length.
    Stamp {
        ring: bool,
        line: u8,
        stamp: u8,
        payload_bytes: u16,
    },
    Futex {
        ring: bool,
        line: bool,
        value: u8,
    },
    Boot {
        at: u8,
        value: u64,
    },
}

#[derive(Arbitrary, Debug)]
enum Operation {
    Receive { waits: bool },
    TryReceive,
    Discard,
    Send { bytes: u16 },
    Applet,
}

/// The applet: what it has not stored yet.
struct Applet {
    memory: Shared,
    layout: Layout,
    producer: RefCell<Producer>,
    stores: RefCell<std::vec::IntoIter<Store>>,
    sleeps: Cell<u32>,
    now_ns: Cell<u64>,
}

impl Applet {
    fn ring(&self, ring: bool) -> usize {
        (if ring { self.layout.host_ring_offset() } else { self.layout.applet_ring_offset() })
            as usize
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        self.memory.write(at, bytes).expect("inside of the memory");
    }

    fn step(&self) {
        let Some(store) = self.stores.borrow_mut().next() else { return };
        let kind_of = |kind: u8| {
            MessageKind::ALL.get(usize::from(kind)).map_or(u16::from(kind), |kind| *kind as u16)
        };
        match store {
            Store::Honest { kind, bytes, index, a, text } => {
                let mut payload = text;
                payload.resize(usize::from(bytes).max(payload.len()).min(PIECE_BYTES), 1);
                let header = Header {
                    payload_bytes: payload.len() as u32,
                    kind: kind_of(kind),
                    index: u32::from(index),
                    a: u64::from(a),
                    ..Header::default()
                };
                let _ = self.producer.borrow_mut().push(&header, &payload);
            }
            Store::Record { payload_bytes, kind, flags, call, piece } => {
                let flags = u16::from(flags) & (MORE | 2);
                let piece = usize::from(piece).min(PIECE_BYTES);
                let (kind, call) = (kind_of(kind), u64::from(call % 4));
                let header = Header { payload_bytes, kind, flags, call, ..Header::default() };
                let _ = self.producer.borrow_mut().push(&header, &vec![2; piece]);
            }
            Store::Word { at, value } => {
                let rings = 2 * self.layout.ring_total_bytes() as usize;
                self.write(4096 + usize::from(at & !7) % rings, &value.to_le_bytes());
            }
            Store::Position { ring, in_bytes, value } => {
                let at = if in_bytes { TAKEN_BYTES } else { TAKEN_RECORDS };
                self.write(self.ring(ring) + at, &u64::from(value % 32_768).to_le_bytes());
            }
            Store::Stamp { ring, line, stamp, payload_bytes } => {
                let at = LINES_OFFSET + (u64::from(line) % LINES) as usize * LINE_BYTES;
                let word = u64::from(stamp) | u64::from(payload_bytes) << 32;
                self.write(self.ring(ring) + at, &word.to_le_bytes());
            }
            Store::Futex { ring, line, value } => {
                let line = if line { DATA_WORD } else { ROOM_WORD };
                self.write(self.ring(ring) + line, &u32::from(value).to_le_bytes());
            }
            Store::Boot { at, value } => self.write(usize::from(at & !7), &value.to_le_bytes()),
        }
    }
}

impl Wait for &Applet {
    fn now_ns(&self) -> u64 {
        self.now_ns.set(self.now_ns.get() + 100);
        self.now_ns.get()
    }

    fn sleep(&self, _: &AtomicU32, _: u32, _: Deadline) {
        self.sleeps.set(self.sleeps.get() + 1);
        assert!(self.sleeps.get() < SLEEPS_MAX, "the host sleeps on and on");
        self.now_ns.set(self.now_ns.get() + 10_000);
        self.step();
    }

    fn wake(&self, _: &AtomicU32) {}

    fn spin_ns_max(&self) -> u64 {
        2_000
    }
}

/// What a host would do with it.
fn read(header: &Header, payload: &[u8], layout: &Layout) {
    assert_eq!(payload.len(), header.payload_bytes as usize);
    assert!(payload.len() as u64 <= LIMIT_BYTES && header.flags == 0);
    match AppletMessage::parse(header) {
        Ok(AppletMessage::Hello { .. }) => {
            if let Ok(names) = Names::parse(header, payload) {
                assert_eq!(names.iter().count(), names.len());
            }
        }
        Ok(AppletMessage::Chunk { part, .. }) => {
            if let Some(range) = layout.locate(part) {
                assert!(range.end <= layout.total_bytes() && range.end - range.start == part.bytes);
            }
        }
        _ => {}
    }
}

fuzz_target!(|input: Input| {
    let layout = Layout::new(RING_BYTES, ARENA_BYTES).expect("a layout");
    let mut memory = vec![0_u64; layout.arena_offset() as usize / 8];
    let base = NonNull::new(memory.as_mut_ptr().cast()).expect("memory");
    // SAFETY: the memory lives longer than everything here, is aligned, and is touched through
    // these values alone.
    let shared = unsafe { Shared::new(base, layout.arena_offset() as usize) };
    let ring = shared.part(layout.applet_ring_offset(), layout.ring_total_bytes()).expect("a ring");
    let applet = Applet {
        memory: shared,
        layout,
        producer: RefCell::new(Producer::new(ring, RING_BYTES).expect("a ring")),
        stores: RefCell::new(input.stores.into_iter()),
        sleeps: Cell::new(0),
        now_ns: Cell::new(1),
    };
    let mut host = Endpoint::over(shared, &layout, Side::Host, &applet).expect("an endpoint");
    let mut payload = Vec::new();
    for operation in input.operations.iter().take(OPERATIONS_MAX) {
        applet.sleeps.set(0);
        let began_ns = applet.now_ns.get();
        let deadline = Deadline::at_ns(began_ns + WAIT_NS);
        let outcome = match operation {
            Operation::Receive { waits } => {
                let deadline = if *waits { deadline } else { Deadline::NOW };
                let received = host.receive(&mut payload, LIMIT_BYTES, deadline);
                received.map(|header| read(&header, &payload, &layout))
            }
            Operation::TryReceive => host
                .try_receive(&mut payload, LIMIT_BYTES, deadline)
                .map(|received| received.map_or((), |header| read(&header, &payload, &layout))),
            Operation::Discard => host.discard(deadline).map(drop),
            Operation::Send { bytes } => {
                let call =
                    HostMessage::Call { call: 1, index: 0, buffer: Handle::default(), time_ns: 0 };
                host.send(&call.into(), &vec![3; usize::from(*bytes)], deadline)
            }
            Operation::Applet => {
                applet.step();
                Ok(())
            }
        };
        assert!(applet.now_ns.get() <= began_ns + 2 * WAIT_NS, "a wait goes past its deadline");
        if let Err(ChannelError::PeerBroke { .. }) = outcome {
            // And nothing goes on from there.
            assert_eq!(host.peek(Deadline::NOW).map(drop), outcome);
        }
    }
    // The applet's own start, with whatever is in the first page.
    let mut page = [0; 4096];
    shared.read(0, &mut page).expect("a page");
    if let Ok(boot) = Boot::parse(&page) {
        _ = boot
            .layout(layout.total_bytes())
            .map(|found| assert_eq!(found.total_bytes(), boot.total_bytes));
    }
});
