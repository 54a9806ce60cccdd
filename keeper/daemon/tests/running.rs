//! A keeper that runs: its triggers, its socket, and clients that do not behave.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use common::{Home, MIB, Player, is_idle, play, processor_ticks, soon};
use holdfast_keeper_client::{Client, KeeperError};
use holdfast_region::Opened;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::process::Signal;

#[test]
fn a_child_plays_its_role() {
    play();
}

struct Running {
    keeper: Player,
    home: Home,
    button: File,
}

impl Running {
    fn new() -> Running {
        let home = Home::new();
        home.closed("quiet", MIB, 1);
        let both = home.pool().parent().unwrap().to_owned();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            both.join("button"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        // Never without a process that could write to it, as a device is not.
        let button = File::options().read(true).write(true).open(both.join("button")).unwrap();
        let keeper = Player::start(&home, "run");
        let running = Running { keeper, home, button };
        assert!(soon(|| running.client().status().is_ok()), "it does not answer");
        running
    }

    fn client(&self) -> Client {
        Client::new(self.home.socket())
    }

    fn flushes(&self) -> u64 {
        self.client().status().unwrap().counters.flushes
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.home.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.home.pool().parent().unwrap().join(name)
    }
}

/// A keeper answers flushes and ends with everything saved.
///
/// Guarantee: keeper/flush
/// Guarantee: keeper/signals
#[test]
fn keeper_answers_flushes_and_ends_saved() {
    let running = Running::new();
    let status = running.client().status().unwrap();
    assert_eq!((status.keeper, status.heaps.len()), (Some(running.keeper.pid()), 1));
    assert!(running.client().metrics().unwrap().contains("holdfast_flushes_total 0\n"));
    running.home.crashed("dead", MIB, 4);
    let report = running.client().flush().unwrap();
    assert_eq!(report.saved.len(), 1);
    running.client().tend().unwrap();
    running.client().evict().unwrap();
    running.keeper.signal(Signal::POWER);
    assert!(soon(|| running.flushes() == 2));
    let mut program = Player::start(&running.home, "hold words");
    assert_eq!(program.hear(), "here");
    running.keeper.signal(Signal::TERM);
    let Running { mut keeper, home, .. } = running;
    assert_eq!(keeper.hear(), "ended");
    keeper.finish();
    let metrics =
        std::fs::read_to_string(home.pool().parent().unwrap().join("metrics.prom")).unwrap();
    assert!(metrics.contains("holdfast_flushes_total 3\n"), "{metrics}");
    let nobody = Client::new(home.socket()).status().unwrap_err();
    assert!(matches!(nobody, KeeperError::NoKeeper { .. }), "{nobody}");
    program.kill();
    home.lose_the_pool();
    assert_eq!(home.number("words"), (Opened::Rescued, 7));
}

/// A power button that is held and a battery that runs out save everything.
///
/// Guarantee: keeper/flush
/// Guarantee: keeper/signals
#[test]
fn power_button_and_low_battery_save_everything() {
    let running = Running::new();
    let mut button = &running.button;
    let event = |value: i32| {
        let mut bytes = vec![0; 2 * size_of::<usize>()];
        bytes.extend_from_slice(&[1, 0, 116, 0]);
        bytes.extend_from_slice(&value.to_le_bytes());
        bytes
    };
    // On a busy machine a short press may come out long.
    let is_ignored = (0..5).any(|_| {
        let before = running.flushes();
        button.write_all(&event(1)).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        button.write_all(&event(0)).unwrap();
        std::thread::sleep(Duration::from_millis(500));
        running.flushes() == before
    });
    assert!(is_ignored, "a short press is no emergency");
    let before = running.flushes();
    let pressed = Instant::now();
    button.write_all(&event(1)).unwrap();
    assert!(soon(|| running.flushes() == before + 1), "it was held");
    assert!(pressed.elapsed() >= Duration::from_millis(300));
    let supply = running.file("supplies").join("BAT0");
    std::fs::create_dir_all(&supply).unwrap();
    for (name, value) in [("type", "Battery"), ("capacity", "3"), ("status", "Discharging")] {
        std::fs::write(supply.join(name), value).unwrap();
    }
    assert!(soon(|| running.flushes() == before + 2), "the battery runs out");
}

/// Rows D2 to D4.
///
/// Guarantee: keeper/clients
#[test]
fn bad_clients_cost_others_nothing() {
    let running = Running::new();
    let mut random = SmallRng::seed_from_u64(1);
    for round in 0..300 {
        let mut stream = running.connect();
        let mut bytes = vec![0_u8; round % 97];
        random.fill_bytes(&mut bytes);
        if round % 3 == 0 {
            // A head that makes sense, and a body that does not.
            let length = bytes.len() as u32;
            bytes.splice(0..0, length.to_le_bytes());
        }
        let _ = stream.write_all(&bytes);
        if round % 2 == 0 {
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            assert!(
                answer.is_empty() || answer.windows(7).any(|part| part == b"refused"),
                "{answer:?}"
            );
        }
    }
    // As many as it takes at a time say nothing at all; they are sent away, and then others are
    // served.
    let silent: Vec<_> = (0..16).map(|_| running.connect()).collect();
    let started = Instant::now();
    assert!(running.client().status().is_ok());
    assert!(started.elapsed() < Duration::from_secs(15));
    drop(silent);
    let mut newer = running.connect();
    let request = br#"{"version":2,"ask":"status"}"#;
    newer.write_all(&(request.len() as u32).to_le_bytes()).unwrap();
    newer.write_all(request).unwrap();
    let mut answer = String::new();
    newer.take(500).read_to_string(&mut answer).unwrap();
    assert!(answer.contains("version 1"), "{answer}");
    assert!(running.client().status().unwrap().counters.refused_requests > 0);
}

/// Row D1: the keeper is killed while requests are under way; a process that asks the next one gets
/// an answer.
///
/// Guarantee: keeper/killed-keeper
#[test]
fn keeper_killed_in_a_request_is_succeeded() {
    let mut running = Running::new();
    running.home.crashed("dead", MIB, 4);
    for round in 0..10_u64 {
        let client = running.client();
        let asking = std::thread::spawn(move || {
            (0..20).map(|_| client.flush()).filter(Result::is_err).count()
        });
        std::thread::sleep(Duration::from_millis(round));
        // Until it is dead it has the lock, and the next one would be refused.
        running.keeper.end();
        asking.join().unwrap();
        running.keeper = Player::start(&running.home, "run");
        assert!(soon(|| running.client().flush().is_ok()), "round {round}");
    }
}

/// Guarantee: keeper/idle
#[test]
fn an_idle_keeper_uses_next_to_no_processor_time() {
    let running = Running::new();
    // Ticks of 10 ms: a loop that spins has 400 of them.
    assert!(is_idle(|| processor_ticks(running.keeper.pid()), Duration::from_secs(4), 4));
}
