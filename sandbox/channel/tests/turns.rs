//! Receiving and sending in turns: a host that has other things to do comes back in the middle of a
//! message, and goes on with it later.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::thread;
use std::time::{Duration, Instant};

use holdfast_channel::protocol::{AppletMessage, HostMessage};
use holdfast_channel::wait::Deadline;
use holdfast_channel::{Bell, ChannelError, ChannelMemory, Endpoint, Header, HostWait, Layout};

/// No wait of a test that goes well takes that long.
const LONG: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(5);
const RING_BYTES: u32 = 4096;
const LIMIT_BYTES: u64 = 1 << 20;

fn pair() -> (Endpoint<HostWait>, Endpoint<HostWait>, Bell) {
    let memory = ChannelMemory::create(Layout::new(RING_BYTES, 0).unwrap(), &[], true).unwrap();
    let (host, bell) = memory.host().unwrap();
    let other = ChannelMemory::open(memory.descriptor().unwrap()).unwrap();
    let (applet, _) = other.applet().unwrap();
    (host, applet, bell)
}

fn result() -> Header {
    AppletMessage::Result { call: 5 }.into()
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
}

/// A receive with turns returns in the middle of a message and resumes it at the next call.
///
/// Guarantee: applets/interruptible
#[test]
fn receive_with_turns_resumes_within_a_message() {
    let (mut host, mut applet, bell) = pair();
    let payload = pattern(100_000);
    let (mut taken, never) = (Vec::new(), Deadline::NEVER);
    let turn = host.deadline_in(SOON);
    assert_eq!(host.receive_by(&mut taken, LIMIT_BYTES, never, turn), Ok(None), "nothing was sent");
    thread::scope(|scope| {
        let payload = &payload;
        scope.spawn(move || {
            applet.send(&result(), payload, applet.deadline_in(LONG)).unwrap();
            applet.send(&result(), b"next", applet.deadline_in(LONG)).unwrap();
        });
        let started = Instant::now();
        let mut turns = 0_u32;
        let header = loop {
            // Every other turn ends before anything is taken.
            if turns.is_multiple_of(2) {
                bell.interrupt();
            }
            turns += 1;
            let turn = host.deadline_in(SOON);
            if let Some(header) = host.receive_by(&mut taken, LIMIT_BYTES, never, turn).unwrap() {
                break header;
            }
            assert_eq!(taken[..], payload[..taken.len()]);
            assert!(started.elapsed() < LONG);
        };
        assert!(turns > 1);
        assert_eq!((header.payload_bytes as usize, &taken), (payload.len(), payload));
        host.take_interrupt();
        let header = host.receive(&mut taken, LIMIT_BYTES, host.deadline_in(LONG)).unwrap();
        assert_eq!((header.payload_bytes, &taken[..]), (4, &b"next"[..]));
    });
}

/// A receive with turns reports a peer that stopped in the middle of a message at once.
///
/// Guarantee: applets/interruptible
#[test]
fn receive_with_turns_reports_a_stalled_peer() {
    let (mut host, mut applet, bell) = pair();
    let half_sent = applet.send(&result(), &pattern(100_000), applet.deadline_in(SOON));
    assert_eq!(half_sent, Err(ChannelError::TimedOut));
    let (mut taken, never) = (Vec::new(), Deadline::NEVER);
    let turn = host.deadline_in(SOON);
    assert_eq!(host.receive_by(&mut taken, LIMIT_BYTES, never, turn), Ok(None));
    assert!(!taken.is_empty());
    // The rest of that message comes first.
    assert_eq!(host.peek(Deadline::NOW), Err(ChannelError::HalfDone));
    bell.interrupt();
    assert_eq!(host.receive_by(&mut taken, LIMIT_BYTES, never, never), Ok(None));
    let deadline = host.deadline_in(SOON);
    assert_eq!(
        host.receive_by(&mut taken, LIMIT_BYTES, deadline, never),
        Err(ChannelError::TimedOut)
    );
    assert_eq!(host.receive_by(&mut taken, LIMIT_BYTES, never, never), Err(ChannelError::HalfDone));
}

/// A discard with turns returns in the middle of a message and resumes it at the next call.
///
/// Guarantee: applets/interruptible
#[test]
fn discard_with_turns_resumes_within_a_message() {
    let (mut host, mut applet, bell) = pair();
    let payload = pattern(100_000);
    let never = Deadline::NEVER;
    let turn = host.deadline_in(SOON);
    assert_eq!(host.discard_by(never, turn), Ok(None), "nothing was sent");
    let peer = &mut applet;
    thread::scope(|scope| {
        let payload = &payload;
        scope.spawn(move || {
            peer.send(&result(), payload, peer.deadline_in(LONG)).unwrap();
            peer.send(&result(), b"next", peer.deadline_in(LONG)).unwrap();
        });
        let started = Instant::now();
        let mut turns = 0_u32;
        let header = loop {
            // Every other turn ends before anything is taken.
            if turns.is_multiple_of(2) {
                bell.interrupt();
            }
            turns += 1;
            let turn = host.deadline_in(SOON);
            if let Some(header) = host.discard_by(never, turn).unwrap() {
                break header;
            }
            assert!(started.elapsed() < LONG);
        };
        assert!(turns > 1);
        assert_eq!(header.payload_bytes as usize, payload.len());
        host.take_interrupt();
        let mut taken = Vec::new();
        host.receive(&mut taken, LIMIT_BYTES, host.deadline_in(LONG)).unwrap();
        assert_eq!(taken, b"next");
    });
    // A peer that has stopped in the middle is left there, until the deadline.
    let half_sent = applet.send(&result(), &payload, applet.deadline_in(SOON));
    assert_eq!(half_sent, Err(ChannelError::TimedOut));
    let turn = host.deadline_in(SOON);
    assert_eq!(host.discard_by(never, turn), Ok(None));
    assert_eq!(host.peek(Deadline::NOW), Err(ChannelError::HalfDone));
    let deadline = host.deadline_in(SOON);
    assert_eq!(host.discard_by(deadline, never), Err(ChannelError::TimedOut));
    assert_eq!(host.discard_by(never, never), Err(ChannelError::HalfDone));
}

/// A send with turns returns in the middle of a message and resumes it at the next call. Nothing is
/// sent twice.
///
/// Guarantee: applets/interruptible
#[test]
fn send_with_turns_resumes_within_a_message() {
    let (mut host, mut applet, bell) = pair();
    let payload = pattern(100_000);
    let header = Header::from(HostMessage::Cancel { call: 5 });
    let never = Deadline::NEVER;
    let turn = host.deadline_in(SOON);
    assert_eq!(host.send_by(&header, &payload, never, turn), Ok(false), "nobody reads");
    // The rest of that message comes first.
    assert_eq!(host.send(&header, b"other", Deadline::NOW), Err(ChannelError::HalfDone));
    let other = Header::from(HostMessage::Cancel { call: 6 });
    assert_eq!(host.send_by(&other, b"", never, Deadline::NOW), Err(ChannelError::HalfDone));
    bell.interrupt();
    assert_eq!(host.send_by(&header, &payload, never, never), Ok(false));
    let peer = &mut applet;
    thread::scope(|scope| {
        let payload = &payload;
        scope.spawn(move || {
            let mut taken = Vec::new();
            peer.receive(&mut taken, LIMIT_BYTES, peer.deadline_in(LONG)).unwrap();
            assert!(taken == *payload, "{} bytes", taken.len());
        });
        let started = Instant::now();
        loop {
            let turn = host.deadline_in(SOON);
            if host.send_by(&header, payload, never, turn).unwrap() {
                break;
            }
            assert!(started.elapsed() < LONG);
        }
    });
    // What has room goes, also when the turn is over.
    let (mut taken, past) = (Vec::new(), Deadline::at_ns(1));
    for number in 0..500_u32 {
        let bytes = number.to_le_bytes();
        assert_eq!(host.send_by(&header, &bytes, never, past), Ok(true), "{number}");
        applet.receive(&mut taken, LIMIT_BYTES, Deadline::NOW).unwrap();
        assert_eq!(taken, bytes);
    }
    // And one that ends in the middle is the end of all.
    let deadline = host.deadline_in(SOON);
    assert_eq!(host.send_by(&header, &payload, deadline, never), Err(ChannelError::TimedOut));
    assert_eq!(host.send_by(&header, &payload, never, never), Err(ChannelError::HalfDone));
}
