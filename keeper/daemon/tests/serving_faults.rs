//! Faults of keeper, clients and machine while regions are served (rows D1 to D4).

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use common::served::{Raw, Serving, is_alive, load_from, store_into};
use common::{is_idle, play, processor_ticks, soon};
use holdfast_keeper::Phase;
use holdfast_keeper_client::{Borrower, KeeperError, RefusedKind};
use holdfast_region::Durability;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;

#[test]
fn a_child_plays_its_role() {
    play();
}

/// As a program does whose keeper may not be there yet.
fn again<T>(mut attempt: impl FnMut() -> Result<T, KeeperError>) -> Result<T, KeeperError> {
    let mut last = None;
    assert!(soon(|| {
        last = Some(attempt());
        !matches!(
            last,
            Some(Err(KeeperError::NoKeeper { .. }
                | KeeperError::NotServed { kind: RefusedKind::Held | RefusedKind::Busy, .. }))
        )
    }));
    last.unwrap()
}

/// All that a program does with a region, each step as often as it takes.
fn life(borrower: &Borrower) {
    let mut borrowed = again(|| borrower.open("life", 12 << 20, None)).unwrap();
    store_into(&borrowed, 1);
    let backed = borrowed.grow(8 << 20).unwrap();
    assert!(backed >= 8 << 20);
    borrowed.commit(Durability::Power).unwrap();
    store_into(&borrowed, 2);
    borrowed.commit(Durability::Process).unwrap();
    store_into(&borrowed, 3);
    borrowed.close().unwrap();
    let mut borrowed = again(|| borrower.open("life", 0, None)).unwrap();
    assert_eq!(load_from(&borrowed), Some(3));
    assert_eq!(borrowed.backed_bytes(), backed);
    borrowed.close().unwrap();
    match again(|| borrower.delete("life", None)) {
        // The keeper that died had done it.
        Ok(()) | Err(KeeperError::NotServed { kind: RefusedKind::NotFound, .. }) => {}
        Err(error) => panic!("{error}"),
    }
    assert_eq!(again(|| borrower.list()).unwrap(), []);
}

/// Row D1: whichever step it is, the same request succeeds with the next keeper, and nothing of it
/// is done twice or half.
///
/// Guarantee: keeper/keeper-dies
/// Guarantee: keeper/killed-keeper
#[test]
fn keeper_death_at_any_phase_costs_nothing() {
    for phase in Phase::ALL {
        for passes in 0..10 {
            let mut serving = Serving::new(&format!("dies={phase:?}:{passes}"));
            let borrower = serving.borrower();
            std::thread::scope(|scope| {
                let program = scope.spawn(|| life(&borrower));
                // Some phases do not come so often in a life.
                while !program.is_finished() {
                    if serving.is_gone() {
                        serving.start("");
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                program.join().unwrap_or_else(|_| panic!("{phase:?} {passes}"));
            });
        }
    }
}

/// A frame that is right, nearly right, or not at all.
fn frame(random: &mut SmallRng) -> Vec<u8> {
    let asks = [
        json!({"open": {"name": "words", "limit_bytes": 1 << 20}}),
        json!({"open": {"name": "../words", "limit_bytes": u64::MAX, "user": 3}}),
        json!({"resume": {"name": "words", "token": "x"}}),
        json!("taken"),
        json!({"grow": {"at_least_bytes": u64::MAX}}),
        json!({"commit": {"level": "power"}}),
        json!("close"),
        json!({"delete": {"name": "words", "user": null}}),
        json!("list"),
        json!("usage"),
        json!({"fly": 1}),
    ];
    let ask = &asks[random.random_range(0..asks.len())];
    let version = [1, 2, 2, 2, 2, 3][random.random_range(0..6)];
    let body = json!({"version": version, "ask": ask}).to_string();
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend_from_slice(body.as_bytes());
    match random.random_range(0..6) {
        0 => bytes.truncate(random.random_range(0..bytes.len())),
        1 => {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random::<u8>();
        }
        2 => (0..random.random_range(0..64)).for_each(|_| bytes.push(random.random::<u8>())),
        3 => bytes[..4].copy_from_slice(&random.random::<u32>().to_le_bytes()),
        _ => {}
    }
    bytes
}

/// Rows D2 to D4: half frames, malformed ones, hang-ups at any moment, and another process that is
/// served all the while.
///
/// Guarantee: keeper/garbage
#[test]
fn a_hundred_thousand_frames_of_all_kinds_harm_nobody() {
    const FRAMES: usize = 100_000;
    let serving = Serving::new("patience=200 idle=200 connections=64");
    let (keeper, before) = (serving.pid(), serving.descriptors());
    let mut other = serving.open("other");
    let mut random = SmallRng::seed_from_u64(1);
    let mut connections: Vec<Raw> = Vec::new();
    for sent in 0..FRAMES {
        if connections.len() < 8 {
            connections.push(serving.raw());
        }
        let index = random.random_range(0..connections.len());
        // The keeper may have hung up on what came before.
        let is_up = connections[index].send_some(&frame(&mut random));
        if !is_up || random.random_range(0..40) == 0 {
            drop(connections.swap_remove(index));
        }
        if sent % 1000 == 0 {
            store_into(&other, sent as u64 + 1);
            other.commit(Durability::Process).unwrap();
        }
    }
    drop(connections);
    assert!(is_alive(keeper) && serving.pid() == keeper);
    other.close().unwrap();
    assert_eq!(load_from(&serving.open("other")), Some((FRAMES - 1000) as u64 + 1));
    assert!(soon(|| serving.descriptors() <= before + 1), "{} and {before}", serving.descriptors());
}

/// What is no request is refused by kind and the keeper hangs up.
///
/// Guarantee: keeper/garbage
#[test]
fn invalid_requests_are_refused_and_disconnected() {
    let serving = Serving::new("patience=200");
    for (bytes, reason) in [
        (u32::MAX.to_le_bytes().to_vec(), "at most 4096"),
        (b"\x02\0\0\0{}".to_vec(), "version"),
        (b"\x1b\0\0\0{\"version\":1,\"ask\":\"close\"}".to_vec(), "version 2"),
    ] {
        let mut raw = serving.raw();
        raw.send(&bytes, &[]);
        let answer = raw.answer().unwrap();
        assert_eq!(answer["refused"]["kind"], "malformed");
        assert!(answer["refused"]["why"].as_str().unwrap().contains(reason), "{answer}");
        assert!(raw.is_hung_up());
    }
    let mut half = serving.raw();
    half.send(b"\x20\0\0\0{\"ver", &[]);
    assert!(half.is_hung_up(), "half a request is waited for for ever");
    for ask in [
        json!("close"),
        json!({"grow": {"at_least_bytes": 1}}),
        json!({"commit": {"level": "power"}}),
    ] {
        let mut raw = serving.raw();
        raw.ask(&ask);
        assert_eq!(raw.refusal(), "out-of-turn");
        // It may ask something else.
        raw.ask(&json!("list"));
        assert!(raw.answer().unwrap()["listed"].is_array());
    }
}

/// A TCP connection whose last close waits for 10 s for bytes that no process reads, and the end
/// that does not read.
fn lingering() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rustix::net::sockopt::set_socket_recv_buffer_size(&listener, 4096).unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (silent, _) = listener.accept().unwrap();
    stream.set_nonblocking(true).unwrap();
    while stream.write(&[7; 65536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(10))).unwrap();
    (stream, silent)
}

/// Of an earlier attempt: a process that could connect stopped the keeper for as long as it liked.
///
/// Guarantee: keeper/descriptors
#[test]
fn slow_descriptor_close_delays_nobody() {
    let mut serving = Serving::new("connections=8 patience=500");
    // Taken by the keeper; more than one; unread when it hangs up; urgent; and on the socket of the
    // keeper's own user.
    let cases: [(&[u8], usize, bool); 5] = [
        (b"\x04\0\0\0{}{}", 1, false),
        (b"\x04\0\0\0{}{}", 3, false),
        (b"\xff\xff\xff\xff", 0, false),
        (b"\x04", 1, true),
        (b"\x04\0\0\0{}{}", 1, false),
    ];
    for (case, (bytes, count, is_urgent)) in cases.into_iter().enumerate() {
        let (stream, silent) = lingering();
        let mut raw = if case == 4 { Raw::connect(&serving.home.socket()) } else { serving.raw() };
        let given = vec![stream.as_fd(); count];
        if count == 0 {
            // What comes after the frame that is refused is never read.
            raw.send(&[bytes, &[7; 2000]].concat(), &[stream.as_fd()]);
        } else if is_urgent {
            raw.send_urgent(bytes, &given);
        } else {
            raw.send(bytes, &given);
        }
        drop((stream, raw));
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(800) {
            let asked = Instant::now();
            serving.status();
            let waited = asked.elapsed();
            assert!(waited < Duration::from_secs(8), "case {case}: {waited:?}");
        }
        drop(silent);
    }
    serving.end_keeper();
}

/// Row D3: no descriptor is left.
///
/// Guarantee: keeper/garbage
#[test]
fn a_keeper_without_descriptors_refuses_and_serves_on() {
    let serving = Serving::new("connections=64");
    let mut borrowed = serving.open("words");
    store_into(&borrowed, 1);
    let few = serving.limit_descriptors(serving.descriptors() as u64);
    let flood: Vec<_> = (0..20).map(|_| serving.raw()).collect();
    let other_flood: Vec<_> = (0..5).map(|_| Raw::connect(&serving.home.socket())).collect();
    for number in 2..50 {
        store_into(&borrowed, number);
        borrowed.commit(Durability::Process).unwrap();
    }
    let is_idle = is_idle(|| processor_ticks(serving.pid()), Duration::from_millis(500), 9);
    assert!(is_idle, "it spins on connections that it cannot take");
    drop((flood, other_flood));
    serving.limit_descriptors(few);
    borrowed.close().unwrap();
    assert_eq!(load_from(&serving.open("words")), Some(49));
}

/// A keeper with few descriptors lends no more than it can.
///
/// Guarantee: keeper/garbage
#[test]
fn keeper_lends_no_more_than_its_descriptors_allow() {
    let serving = Serving::new("descriptors=80 connections=64");
    let mut lent = Vec::new();
    let refused = loop {
        match serving.borrower().open(&format!("r{}", lent.len()), 1 << 20, None) {
            Ok(borrowed) => lent.push(borrowed),
            Err(KeeperError::NotServed { kind, .. }) => break kind,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(refused, RefusedKind::Busy);
    assert!((1..10).contains(&lent.len()), "{}", lent.len());
    for mut borrowed in lent {
        borrowed.commit(Durability::Power).unwrap();
        borrowed.close().unwrap();
    }
}

/// Row D4: memory for what a program stores is refused before the program can store there.
///
/// Guarantee: keeper/garbage
#[test]
fn full_pool_refuses_growth_and_keeps_data() {
    let Some(serving) = Serving::in_small_pool(10) else { return };
    let mut borrowed = serving.borrower().open("large", 32 << 20, None).unwrap();
    store_into(&borrowed, 1);
    let error = borrowed.grow(30 << 20).unwrap_err();
    assert!(matches!(error, KeeperError::NotServed { kind: RefusedKind::NoRoom, .. }), "{error}");
    assert!(!error.to_string().contains("/dev/shm"), "{error}");
    store_into(&borrowed, 2);
    borrowed.close().unwrap();
    assert_eq!(load_from(&serving.borrower().open("large", 0, None).unwrap()), Some(2));
}
