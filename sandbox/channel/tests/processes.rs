//! A host and an applet in two processes: the applet is this test program again, which finds the
//! shared file at its standard input and its role in the environment.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::io;
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use holdfast_channel::header::Header;
use holdfast_channel::protocol::{AppletMessage, HostMessage};
use holdfast_channel::{
    Bell, ChannelError, ChannelMemory, Endpoint, Handle, HostWait, Layout, MESSAGE_BYTES_MAX,
};

const ROLE: &str = "HOLDFAST_TEST_ROLE";
/// No wait of a test that goes well takes that long.
const LONG: Duration = Duration::from_secs(30);

#[test]
fn a_child_plays_its_role() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let memory = ChannelMemory::open(io::stdin().as_fd().try_clone_to_owned().unwrap()).unwrap();
    let (mut applet, _) = memory.applet().unwrap();
    let end = applet.deadline_in(LONG);
    if role == "ignore" {
        return thread::sleep(LONG);
    }
    if role == "echo asleep" {
        applet.waiter().set_spin_ns_max(0);
    }
    let mut input = Vec::new();
    loop {
        let header = applet.receive(&mut input, MESSAGE_BYTES_MAX, end).unwrap();
        let HostMessage::Call { call, index, buffer, .. } = HostMessage::parse(&header).unwrap()
        else {
            return;
        };
        let done = Header::from(AppletMessage::Result { call });
        match role.as_str() {
            "echo" | "echo asleep" => applet.send(&done, &input, end).unwrap(),
            "slow" => {
                thread::sleep(Duration::from_millis(2));
                applet.send(&done, &input, end).unwrap();
            }
            // As many chunks as the index says.
            "stream" => {
                for number in 0..index {
                    let chunk = AppletMessage::Chunk { call, part: Handle::default() };
                    applet.send(&chunk.into(), &number.to_le_bytes().repeat(50), end).unwrap();
                }
                applet.send(&done, &[], end).unwrap();
            }
            // Adds one to each byte of the buffer.
            "increment" => {
                let shared = memory.given(buffer).unwrap();
                let mut bytes = vec![0; shared.len() as usize];
                shared.copy_out(0, &mut bytes).unwrap();
                bytes.iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                shared.copy_in(0, &bytes).unwrap();
                applet.send(&done, &[], end).unwrap();
            }
            "die" => std::process::abort(),
            "answer and die" => {
                applet.send(&done, &input, end).unwrap();
                std::process::abort();
            }
            other => panic!("there is no role {other}"),
        }
    }
}

struct Applet {
    child: Child,
    host: Endpoint<HostWait>,
    bell: Bell,
    memory: Arc<ChannelMemory>,
}

impl Applet {
    fn start(role: &str, ring_bytes: u32) -> Applet {
        let layout = Layout::new(ring_bytes, 4 << 20).unwrap();
        let memory = ChannelMemory::create(layout, &[], true).unwrap();
        let (host, bell) = memory.host().unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_child_plays_its_role", "--nocapture"])
            .env(ROLE, role)
            .stdin(memory.descriptor().unwrap())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Applet { child, host, bell, memory }
    }

    fn begin(&mut self, call: u64, index: u32, buffer: Handle, input: &[u8]) {
        let message = HostMessage::Call { call, index, buffer, time_ns: 0 };
        let soon = self.host.deadline_in(LONG);
        self.host.send(&message.into(), input, soon).unwrap();
    }

    fn answer(&mut self) -> Result<(AppletMessage, Vec<u8>), ChannelError> {
        let mut payload = Vec::new();
        let soon = self.host.deadline_in(LONG);
        let header = self.host.receive(&mut payload, MESSAGE_BYTES_MAX, soon)?;
        Ok((AppletMessage::parse(&header).unwrap(), payload))
    }

    fn end(mut self) {
        let soon = self.host.deadline_in(LONG);
        self.host.send(&HostMessage::End.into(), &[], soon).unwrap();
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Applet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Another process answers calls whether or not the two sides spin.
#[test]
fn calls_work_with_and_without_spinning() {
    for (role, spins) in [("echo", true), ("echo", false), ("echo asleep", false)] {
        let mut applet = Applet::start(role, 256 << 10);
        if !spins {
            applet.host.waiter().set_spin_ns_max(0);
        }
        for call in 0..2000_u64 {
            let input = call.to_le_bytes().repeat(1 + call as usize % 5);
            applet.begin(call, 0, Handle::default(), &input);
            assert_eq!(applet.answer().unwrap(), (AppletMessage::Result { call }, input));
        }
        applet.end();
    }
}

#[test]
fn large_inputs_and_results_pass_through_a_small_ring() {
    let mut applet = Applet::start("slow", 4096);
    for call in 0..4 {
        let input: Vec<u8> =
            (0..300_001_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        applet.begin(call, 0, Handle::default(), &input);
        let (message, output) = applet.answer().unwrap();
        assert!(message == AppletMessage::Result { call } && output == input);
    }
    applet.end();
}

/// A stream arrives in order, and the sender waits for a slow reader.
///
/// Guarantee: applets/message-order
#[test]
fn stream_is_ordered_and_waits_for_the_reader() {
    let mut applet = Applet::start("stream", 4096);
    applet.begin(1, 2000, Handle::default(), &[]);
    for number in 0..2000_u32 {
        if number % 500 == 0 {
            // Long enough for the ring to fill: 16 chunks do.
            thread::sleep(Duration::from_millis(5));
        }
        let (message, payload) = applet.answer().unwrap();
        assert_eq!(message, AppletMessage::Chunk { call: 1, part: Handle::default() });
        assert_eq!(payload, number.to_le_bytes().repeat(50));
    }
    assert_eq!(applet.answer().unwrap().0, AppletMessage::Result { call: 1 });
    applet.end();
}

#[test]
fn a_shared_buffer_is_read_and_written_by_both() {
    let mut applet = Applet::start("increment", 4096);
    let buffer = applet.memory.buffer(1_000_003).unwrap();
    let bytes: Vec<u8> = (0..1_000_003_u32).map(|at| at as u8).collect();
    buffer.copy_in(0, &bytes).unwrap();
    applet.begin(1, 0, buffer.handle(), &[]);
    applet.answer().unwrap();
    let mut found = vec![0; bytes.len()];
    buffer.copy_out(0, &mut found).unwrap();
    assert!(found.iter().zip(&bytes).all(|(found, byte)| *found == byte.wrapping_add(1)));
    applet.end();
}

/// An applet that never reads cannot hold the sender past its deadline.
///
/// Guarantee: applets/bounded-waits
/// Guarantee: applets/deadlines
#[test]
fn applet_that_never_reads_cannot_delay_a_deadline() {
    let mut applet = Applet::start("ignore", 4096);
    let started = Instant::now();
    let deadline = applet.host.deadline_in(Duration::from_millis(100));
    let message = Header::from(HostMessage::Cancel { call: 1 });
    let ended = (0..1000).find_map(|_| applet.host.send(&message, &[0; 1000], deadline).err());
    assert_eq!(ended, Some(ChannelError::TimedOut));
    let took = started.elapsed();
    assert!(took >= Duration::from_millis(100) && took < LONG / 2, "{took:?}");
}

/// What a supervisor does: it waits for the process's end, at the moment that is returned, and
/// rings.
fn watch(applet: &mut Applet) -> thread::JoinHandle<Instant> {
    let mut child = std::mem::replace(&mut applet.child, Command::new("true").spawn().unwrap());
    let bell = applet.bell.clone();
    thread::spawn(move || {
        child.wait().unwrap();
        let died = Instant::now();
        bell.peer_is_gone();
        died
    })
}

/// Guarantee: applets/death-ends-waits
#[test]
fn applet_death_ends_the_wait_within_a_second() {
    let wait = || {
        let mut applet = Applet::start("die", 4096);
        let watching = watch(&mut applet);
        applet.begin(1, 0, Handle::default(), &[]);
        let late = applet.host.deadline_in(LONG);
        let ended = applet.host.receive(&mut Vec::new(), 0, late);
        let noticed = Instant::now();
        assert_eq!(ended, Err(ChannelError::PeerGone));
        noticed.saturating_duration_since(watching.join().unwrap())
    };
    // On a busy machine not always.
    assert!((0..5).any(|_| wait() < Duration::from_secs(1)));
}

/// Guarantee: applets/death-ends-waits
#[test]
fn what_an_applet_answered_before_it_died_counts() {
    let mut applet = Applet::start("answer and die", 4096);
    let watching = watch(&mut applet);
    applet.begin(7, 0, Handle::default(), b"input");
    watching.join().unwrap();
    assert_eq!(applet.answer().unwrap(), (AppletMessage::Result { call: 7 }, b"input".to_vec()));
    assert_eq!(applet.answer(), Err(ChannelError::PeerGone));
}

/// Guarantee: applets/death-ends-waits
#[test]
fn the_death_of_an_applet_ends_a_wait_for_room_too() {
    let mut applet = Applet::start("ignore", 4096);
    let bell = applet.bell.clone();
    let ended = thread::scope(|scope| {
        let host = &mut applet.host;
        let sending = scope.spawn(|| {
            let message = Header::from(HostMessage::Cancel { call: 1 });
            let late = host.deadline_in(LONG);
            (0..1000).find_map(|_| host.send(&message, &[0; 1000], late).err())
        });
        thread::sleep(Duration::from_millis(50));
        applet.child.kill().unwrap();
        applet.child.wait().unwrap();
        bell.peer_is_gone();
        sending.join().unwrap()
    });
    assert_eq!(ended, Some(ChannelError::PeerGone));
}
