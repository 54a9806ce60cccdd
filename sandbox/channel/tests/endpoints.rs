//! Both ends of a channel in one process, mapped twice: whole messages, limits, deadlines, and what
//! a peer can do to the words on which the other side sleeps.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_channel::header::{FORGET, Header};
use holdfast_channel::hello;
use holdfast_channel::protocol::{AppletMessage, HostMessage, MessageKind, PROTOCOL_VERSION};
use holdfast_channel::ring::DATA_WORD;
use holdfast_channel::wait::{Deadline, Wait};
use holdfast_channel::{
    Bell, ChannelError, ChannelMemory, Endpoint, Handle, HostWait, Layout, MESSAGE_BYTES_MAX,
    Shared, Side, SliceSink,
};
use holdfast_sys::shared_memory::SharedMemory;

/// No wait of a test that goes well takes that long.
const LONG: Duration = Duration::from_secs(20);
const RING_BYTES: u32 = 4096;

struct Pair {
    host: Endpoint<HostWait>,
    applet: Endpoint<HostWait>,
    bell: Bell,
    memory: Arc<ChannelMemory>,
}

fn pair() -> Pair {
    let memory = ChannelMemory::create(Layout::new(RING_BYTES, 0).unwrap(), &[], true).unwrap();
    let (host, bell) = memory.host().unwrap();
    let other = ChannelMemory::open(memory.descriptor().unwrap()).unwrap();
    let (applet, _) = other.applet().unwrap();
    Pair { host, applet, bell, memory }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

fn result() -> Header {
    AppletMessage::Result { call: 5 }.into()
}

/// The peer's look at the same memory.
fn hostile(memory: &ChannelMemory) -> (SharedMemory, Shared) {
    let other = SharedMemory::open(memory.descriptor().unwrap()).unwrap();
    // SAFETY: the test keeps `other` as long as it uses the second value, and touches it in no
    // other way.
    let shared = unsafe { Shared::new(other.base(), other.bytes()) };
    (other, shared)
}

/// Guarantee: applets/message-order
#[test]
fn messages_of_every_size_arrive_in_both_directions() {
    let Pair { mut host, mut applet, .. } = pair();
    let soon = host.deadline_in(LONG);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut payload = Vec::new();
            loop {
                let header = applet.receive(&mut payload, MESSAGE_BYTES_MAX, soon).unwrap();
                let HostMessage::Call { call, .. } = HostMessage::parse(&header).unwrap() else {
                    return;
                };
                applet.send(&AppletMessage::Result { call }.into(), &payload, soon).unwrap();
            }
        });
        let around = |bytes: usize| bytes - 3..bytes + 3;
        let sizes = (0..130).chain(around(512)).chain(around(560)).chain(around(1024));
        let sizes = sizes.chain([4095, 4096, 4097, 100_000, 1_000_003]);
        for (call, bytes) in sizes.enumerate() {
            let call = call as u64;
            let message =
                HostMessage::Call { call, index: 0, buffer: Handle::default(), time_ns: 0 };
            // The echo begins before the last piece is sent; a ring each is room enough only
            // because the echo waits for the whole.
            host.send(&message.into(), &pattern(bytes), soon).unwrap();
            let mut answer = Vec::new();
            let header = host.receive(&mut answer, MESSAGE_BYTES_MAX, soon).unwrap();
            assert_eq!(AppletMessage::parse(&header), Ok(AppletMessage::Result { call }));
            assert_eq!((header.payload_bytes as usize, header.flags), (bytes, 0));
            assert!(answer == pattern(bytes), "{bytes}");
        }
        host.send(&HostMessage::End.into(), &[], soon).unwrap();
    });
}

/// A call carries the forget flag to the applet; a message to the host with the flag is a breach.
#[test]
fn only_the_host_may_send_the_forget_flag() {
    let Pair { mut host, mut applet, .. } = pair();
    let call = HostMessage::Call { call: 1, index: 0, buffer: Handle::default(), time_ns: 0 };
    let soon = host.deadline_in(LONG);
    // In one piece, and in several.
    for bytes in [0, 3000] {
        host.send(&Header { flags: FORGET, ..call.into() }, &pattern(bytes), soon).unwrap();
        let mut payload = Vec::new();
        let header = applet.receive(&mut payload, MESSAGE_BYTES_MAX, soon).unwrap();
        assert_eq!((header.flags, payload.len()), (FORGET, bytes));
    }
    applet.send(&Header { flags: FORGET, ..result() }, &[], soon).unwrap();
    let broke = host.receive(&mut Vec::new(), MESSAGE_BYTES_MAX, soon);
    assert!(matches!(broke, Err(ChannelError::PeerBroke { .. })), "{broke:?}");
}

#[test]
fn the_names_of_exports_arrive() {
    let Pair { mut host, mut applet, .. } = pair();
    let hello = AppletMessage::Hello { version: PROTOCOL_VERSION, count: 2 };
    applet.send(&hello.into(), "\u{3}add\u{7}größe".as_bytes(), Deadline::NOW).unwrap();
    let mut payload = Vec::new();
    let header = host.receive(&mut payload, hello::HELLO_BYTES_MAX as u64, Deadline::NOW).unwrap();
    let names = hello::Names::parse(&header, &payload).unwrap();
    assert!(names.iter().eq(["add", "größe"]));
}

/// A message larger than the receive buffer stays until there is room or it is skipped.
///
/// Guarantee: applets/message-size
#[test]
fn oversized_message_stays_until_taken_or_skipped() {
    let Pair { mut host, mut applet, .. } = pair();
    applet.send(&result(), &pattern(500), Deadline::NOW).unwrap();
    applet.send(&result(), &pattern(10), Deadline::NOW).unwrap();
    let mut payload = Vec::new();
    let refused = host.receive(&mut payload, 499, Deadline::NOW);
    assert_eq!(refused, Err(ChannelError::TooLarge { bytes: 500, limit_bytes: 499 }));
    let mut room = [0; 500];
    let refused = host.receive(&mut SliceSink::new(&mut room[..499]), 500, Deadline::NOW);
    assert_eq!(refused, Err(ChannelError::NoRoom { needed_bytes: 500 }));
    assert_eq!(host.peek(Deadline::NOW).unwrap().payload_bytes, 500);
    let mut sink = SliceSink::new(&mut room);
    host.receive(&mut sink, 500, Deadline::NOW).unwrap();
    assert_eq!(sink.filled(), 500);
    assert_eq!(room[..], pattern(500));
    assert_eq!(host.discard(Deadline::NOW).unwrap().payload_bytes, 10);
    assert_eq!(host.try_receive(&mut payload, 10, Deadline::NOW), Ok(None));
}

/// A message of several records that is too long is refused at the first record and can be skipped.
///
/// Guarantee: applets/message-size
#[test]
fn oversized_long_message_is_refused_at_its_start() {
    let Pair { mut host, mut applet, .. } = pair();
    let soon = host.deadline_in(LONG);
    thread::scope(|scope| {
        scope.spawn(|| {
            applet.send(&result(), &pattern(50_000), soon).unwrap();
            applet.send(&result(), b"next", soon).unwrap();
        });
        let refused = host.receive(&mut Vec::new(), 49_999, soon);
        assert_eq!(refused, Err(ChannelError::TooLarge { bytes: 50_000, limit_bytes: 49_999 }));
        assert_eq!(host.discard(soon).unwrap().payload_bytes, 50_000);
        let mut payload = Vec::new();
        host.receive(&mut payload, 4, soon).unwrap();
        assert_eq!(payload, b"next");
    });
}

/// Guarantee: applets/bounded-waits
/// Guarantee: applets/deadlines
#[test]
fn a_deadline_ends_every_wait_in_time() {
    let Pair { mut host, mut applet, .. } = pair();
    for time_ms in [0, 1, 30] {
        let started = Instant::now();
        let deadline = host.deadline_in(Duration::from_millis(time_ms));
        assert_eq!(host.receive(&mut Vec::new(), 0, deadline), Err(ChannelError::TimedOut));
        let took = started.elapsed();
        assert!(took >= Duration::from_millis(time_ms) && took < LONG, "{took:?}");
    }
    // A full ring: the third message of that size does not fit.
    for _ in 0..2 {
        host.send(&HostMessage::Cancel { call: 1 }.into(), &pattern(1900), Deadline::NOW).unwrap();
    }
    let deadline = host.deadline_in(Duration::from_millis(30));
    let refused = host.send(&HostMessage::Cancel { call: 1 }.into(), &pattern(1900), deadline);
    assert_eq!(refused, Err(ChannelError::TimedOut));
    // Nothing of it was sent, so the channel is as good as before.
    applet.discard(Deadline::NOW).unwrap();
    host.send(&HostMessage::End.into(), &pattern(1900), Deadline::NOW).unwrap();
    // And one that ends in the middle of a message is the end of all.
    let deadline = host.deadline_in(Duration::from_millis(10));
    applet.discard(Deadline::NOW).unwrap();
    assert_eq!(
        host.send(&HostMessage::End.into(), &pattern(9000), deadline),
        Err(ChannelError::TimedOut)
    );
    assert_eq!(host.send(&HostMessage::End.into(), &[], deadline), Err(ChannelError::HalfDone));
    assert_eq!(host.peek(deadline), Err(ChannelError::HalfDone));
}

/// A peer that always has a message ready cannot hold the receiver past its deadline.
///
/// Guarantee: applets/bounded-waits
/// Guarantee: applets/deadlines
#[test]
fn busy_sender_cannot_delay_the_deadline() {
    let Pair { mut host, mut applet, .. } = pair();
    let deadline = host.deadline_in(Duration::from_millis(5));
    let started = Instant::now();
    let ended = loop {
        applet.send(&result(), b"more", Deadline::NOW).unwrap();
        if let Err(error) = host.receive(&mut Vec::new(), 4, deadline) {
            break error;
        }
        assert!(started.elapsed() < LONG);
    };
    assert_eq!(ended, ChannelError::TimedOut);
}

/// The death of the peer ends the wait at once, and its last messages are still received.
#[test]
fn dead_peer_ends_the_wait_after_its_messages() {
    let Pair { mut host, mut applet, bell, .. } = pair();
    applet.send(&result(), b"last", Deadline::NOW).unwrap();
    let started = Instant::now();
    let (received, ended) = thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let mut payload = Vec::new();
            let late = host.deadline_in(LONG);
            let received = host.receive(&mut payload, 4, late).map(|_| payload);
            (received, host.receive(&mut Vec::new(), 4, late))
        });
        thread::sleep(Duration::from_millis(50));
        bell.peer_is_gone();
        waiting.join().unwrap()
    });
    assert_eq!(received.unwrap(), b"last");
    assert_eq!(ended, Err(ChannelError::PeerGone));
    assert!(started.elapsed() < LONG / 2);
    assert!(bell.has_gone());
    assert_eq!(
        host.send(&HostMessage::End.into(), &[], Deadline::NEVER),
        Err(ChannelError::PeerGone)
    );
    assert_eq!(host.receive(&mut Vec::new(), 4, Deadline::NEVER), Err(ChannelError::PeerGone));
}

/// The bell that reports the death of the peer ends a wait at any moment of it.
///
/// Guarantee: applets/death-ends-waits
#[test]
fn bell_is_heard_at_any_moment_of_a_wait() {
    for trial in 0..300 {
        let Pair { mut host, bell, .. } = pair();
        if trial % 2 == 0 {
            host.waiter().set_spin_ns_max(0);
        }
        let ended = thread::scope(|scope| {
            let late = host.deadline_in(LONG);
            let waiting = scope.spawn(move || host.receive(&mut Vec::new(), 0, late));
            let until = Instant::now() + Duration::from_micros(trial);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            let rang = Instant::now();
            bell.peer_is_gone();
            let ended = waiting.join().unwrap();
            assert!(rang.elapsed() < LONG / 2);
            ended
        });
        assert_eq!(ended, Err(ChannelError::PeerGone));
    }
}

/// The bell ends the wait even if the peer keeps changing the futex words.
///
/// Guarantee: applets/death-ends-waits
#[test]
fn bell_is_heard_while_the_peer_changes_words() {
    for _ in 0..20 {
        let Pair { mut host, bell, memory, .. } = pair();
        let (_mapped, shared) = hostile(&memory);
        let word = memory.layout().applet_ring_offset() as usize + DATA_WORD;
        let stop = AtomicU32::new(0);
        let ended = thread::scope(|scope| {
            let late = host.deadline_in(LONG);
            let waiting = scope.spawn(move || host.receive(&mut Vec::new(), 0, late));
            scope.spawn(|| {
                for _ in 0..u32::MAX {
                    // It pretends that a side sleeps, so that a sleeper lies down whatever the
                    // bell stores.
                    shared.write(word, &1_u32.to_le_bytes()).unwrap();
                    if stop.load(Ordering::Relaxed) == 1 {
                        break;
                    }
                }
            });
            thread::sleep(Duration::from_millis(2));
            let rang = Instant::now();
            bell.peer_is_gone();
            let ended = waiting.join().unwrap();
            stop.store(1, Ordering::Relaxed);
            assert!(rang.elapsed() < LONG / 2);
            ended
        });
        assert_eq!(ended, Err(ChannelError::PeerGone));
    }
}

/// The bell ends the wait even if the peer moved the sleeping thread to another futex word.
///
/// Guarantee: applets/bounded-waits
#[test]
fn bell_is_heard_after_a_futex_requeue() {
    let Pair { mut host, bell, memory, .. } = pair();
    host.waiter().set_spin_ns_max(0);
    let (mapped, _shared) = hostile(&memory);
    let word = |at: usize| {
        // SAFETY: aligned, inside of the mapping, which the test keeps, and shared memory that
        // others store to atomically.
        unsafe { AtomicU32::from_ptr(mapped.base().add(at).cast().as_ptr()) }
    };
    let (slept_on, other) =
        (word(memory.layout().applet_ring_offset() as usize + DATA_WORD), word(64));
    let ended = thread::scope(|scope| {
        let late = host.deadline_in(LONG);
        let waiting = scope.spawn(move || host.receive(&mut Vec::new(), 0, late));
        let shared = rustix::thread::futex::Flags::empty();
        let started = Instant::now();
        while rustix::thread::futex::requeue(slept_on, shared, 0, 1, other).unwrap() == 0 {
            assert!(started.elapsed() < LONG, "nobody sleeps");
            thread::sleep(Duration::from_millis(1));
        }
        let rang = Instant::now();
        bell.peer_is_gone();
        let ended = waiting.join().unwrap();
        assert!(rang.elapsed() < LONG / 2, "{:?}", rang.elapsed());
        ended
    });
    assert_eq!(ended, Err(ChannelError::PeerGone));
}

/// An interrupt in the middle of a message takes effect only after the message.
///
/// Guarantee: applets/cancel
#[test]
fn interrupt_waits_for_the_end_of_a_message() {
    let Pair { mut host, mut applet, bell, .. } = pair();
    host.waiter().set_spin_ns_max(0);
    let bytes = pattern(100_000);
    let (stop, seen) = (AtomicU32::new(0), AtomicU32::new(0));
    let late = host.deadline_in(LONG);
    thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            while stop.load(Ordering::Relaxed) == 0 && started.elapsed() < LONG {
                bell.interrupt();
                thread::sleep(Duration::from_micros(200));
            }
        });
        scope.spawn(|| {
            // Slowly, so that the host has to wait in every message.
            let mut payload = Vec::new();
            loop {
                applet.receive(&mut payload, MESSAGE_BYTES_MAX, late).unwrap();
                if payload.is_empty() {
                    break;
                }
                thread::sleep(Duration::from_millis(1));
                applet.send(&result(), &payload, late).unwrap();
            }
        });
        let send = |host: &mut Endpoint<HostWait>, bytes: &[u8]| {
            let message = Header::from(HostMessage::Cancel { call: 1 });
            while let Err(error) = host.send(&message, bytes, late) {
                assert_eq!(error, ChannelError::Interrupted);
            }
        };
        for round in 0.. {
            if round >= 20 && seen.load(Ordering::Relaxed) > 0 {
                break;
            }
            send(&mut host, &bytes);
            let mut payload = Vec::new();
            while let Err(error) = host.receive(&mut payload, MESSAGE_BYTES_MAX, late) {
                assert_eq!(error, ChannelError::Interrupted);
                seen.fetch_add(1, Ordering::Relaxed);
            }
            assert!(payload == bytes);
        }
        stop.store(1, Ordering::Relaxed);
        send(&mut host, &[]);
    });
}

/// An interrupt that was withdrawn does not affect a later message.
#[test]
fn withdrawn_interrupt_spares_later_messages() {
    let Pair { mut host, mut applet, bell, memory } = pair();
    host.waiter().set_spin_ns_max(0);
    let (_mapped, shared) = hostile(&memory);
    let layout = memory.layout();
    let ring = shared.part(layout.applet_ring_offset(), layout.ring_total_bytes()).unwrap();
    let mut slow = holdfast_channel::Producer::new(ring, RING_BYTES).unwrap();
    let most = slow.piece_bytes_max();
    let late = host.deadline_in(LONG);
    let waker = applet.waiter();
    let header = Header { payload_bytes: most + 1, ..result() };
    let begin = Header { flags: holdfast_channel::header::MORE, ..header };
    assert_eq!(slow.push(&begin, &vec![1; most as usize]), Ok(true));
    thread::scope(|scope| {
        scope.spawn(move || {
            let started = Instant::now();
            let asleep = loop {
                match slow.sleeping_consumer().unwrap() {
                    Some(word) => break word,
                    None => assert!(
                        started.elapsed() < LONG,
                        "the host does not wait for the second piece"
                    ),
                }
                thread::sleep(Duration::from_millis(1));
            };
            // The host has the first piece and sleeps until the second comes.
            waker.wake(asleep);
            thread::sleep(Duration::from_millis(100));
            bell.interrupt();
            thread::sleep(Duration::from_millis(100));
            assert_eq!(slow.push(&Header { payload_bytes: 1, ..header }, &[1]), Ok(true));
            if let Some(word) = slow.sleeping_consumer().unwrap() {
                waker.wake(word);
            }
        });
        host.receive(&mut Vec::new(), MESSAGE_BYTES_MAX, late).unwrap();
    });
    assert!(host.take_interrupt() && !host.take_interrupt());
    // Longer than a peer that has stopped in the middle is waited for.
    thread::sleep(Duration::from_millis(1100));
    let bytes = pattern(100_000);
    thread::scope(|scope| {
        let receiving = scope.spawn(move || {
            thread::sleep(Duration::from_millis(50));
            let mut payload = Vec::new();
            applet.receive(&mut payload, MESSAGE_BYTES_MAX, late).map(|_| payload)
        });
        host.send(&HostMessage::Cancel { call: 1 }.into(), &bytes, late).unwrap();
        assert!(receiving.join().unwrap().unwrap() == bytes);
    });
}

/// An interrupt ends the wait for a peer that stopped in the middle of a message.
///
/// Guarantee: applets/cancel
#[test]
fn interrupt_ends_the_wait_for_a_stalled_peer() {
    let Pair { mut host, bell, memory, .. } = pair();
    let (_mapped, shared) = hostile(&memory);
    let layout = memory.layout();
    let ring = shared.part(layout.applet_ring_offset(), layout.ring_total_bytes()).unwrap();
    let mut half = holdfast_channel::Producer::new(ring, RING_BYTES).unwrap();
    let most = half.piece_bytes_max();
    let header =
        Header { payload_bytes: 2 * most, flags: holdfast_channel::header::MORE, ..result() };
    assert_eq!(half.push(&header, &vec![0; most as usize]), Ok(true));
    let ended = thread::scope(|scope| {
        let late = host.deadline_in(LONG);
        let waiting = scope.spawn(move || host.receive(&mut Vec::new(), MESSAGE_BYTES_MAX, late));
        thread::sleep(Duration::from_millis(20));
        let rang = Instant::now();
        bell.interrupt();
        let ended = waiting.join().unwrap();
        assert!(rang.elapsed() < LONG / 2, "{:?}", rang.elapsed());
        ended
    });
    assert_eq!(ended, Err(ChannelError::Interrupted));
}

#[test]
fn an_interrupt_returns_once_and_the_channel_goes_on() {
    let Pair { mut host, mut applet, bell, .. } = pair();
    let started = Instant::now();
    bell.interrupt();
    applet.send(&result(), b"here", Deadline::NOW).unwrap();
    assert_eq!(host.receive(&mut Vec::new(), 4, Deadline::NEVER), Err(ChannelError::Interrupted));
    host.receive(&mut Vec::new(), 4, Deadline::NEVER).unwrap();
    let ended = thread::scope(|scope| {
        let late = host.deadline_in(LONG);
        let waiting = scope.spawn(move || host.receive(&mut Vec::new(), 4, late));
        thread::sleep(Duration::from_millis(20));
        bell.interrupt();
        waiting.join().unwrap()
    });
    assert_eq!(ended, Err(ChannelError::Interrupted));
    assert!(started.elapsed() < LONG / 2);
}

/// A message of an unknown kind or of the wrong side is a breach by the peer and closes the
/// channel.
#[test]
fn unknown_or_misdirected_kind_breaks_the_channel() {
    let hosts = [MessageKind::Call, MessageKind::End, MessageKind::Return].map(|kind| kind as u16);
    for kind in [0, 6, 15, 25, u16::MAX].into_iter().chain(hosts) {
        let Pair { mut host, mut applet, .. } = pair();
        applet.send(&Header { kind, ..Header::default() }, &[], Deadline::NOW).unwrap();
        let broken = host.receive(&mut Vec::new(), 0, Deadline::NEVER).unwrap_err();
        assert!(matches!(broken, ChannelError::PeerBroke { .. }), "{kind}");
        // And there is no way back.
        assert_eq!(host.receive(&mut Vec::new(), 0, Deadline::NEVER), Err(broken));
        assert_eq!(host.send(&HostMessage::End.into(), &[], Deadline::NEVER), Err(broken));
    }
}

/// A clock that goes on by itself and never sleeps: a peer that wakes the other side all the time.
struct Restless {
    now_ns: Cell<u64>,
    step_ns: u64,
}

impl Wait for Restless {
    fn now_ns(&self) -> u64 {
        self.now_ns.set(self.now_ns.get() + self.step_ns);
        self.now_ns.get()
    }

    fn sleep(&self, _: &AtomicU32, _: u32, _: Deadline) {}

    fn wake(&self, _: &AtomicU32) {}
}

/// A peer that wakes the other side again and again without a message breaks the channel.
///
/// Guarantee: applets/bounded-waits
/// Guarantee: applets/deadlines
#[test]
fn endless_wake_ups_break_the_channel() {
    let layout = Layout::new(RING_BYTES, 0).unwrap();
    let mut memory = vec![0_u64; layout.total_bytes() as usize / 8];
    let base = NonNull::new(memory.as_mut_ptr().cast()).unwrap();
    let wait = Restless { now_ns: Cell::new(1), step_ns: 1000 };
    // SAFETY: the memory outlives the endpoint, is aligned, and no other side touches it meanwhile.
    let mut host = unsafe { Endpoint::new(base, &layout, Side::Host, wait) }.unwrap();
    let broken = host.receive(&mut Vec::new(), 0, Deadline::NEVER).unwrap_err();
    assert!(
        matches!(broken, ChannelError::PeerBroke { what } if what.contains("again")),
        "{broken}"
    );
    // With an earlier deadline that counts.
    let wait = Restless { now_ns: Cell::new(1), step_ns: 1000 };
    // SAFETY: as above; the first endpoint is not used any more.
    let mut host = unsafe { Endpoint::new(base, &layout, Side::Host, wait) }.unwrap();
    let ended = host.receive(&mut Vec::new(), 0, Deadline::at_ns(200_000));
    assert_eq!(ended, Err(ChannelError::TimedOut));
}
