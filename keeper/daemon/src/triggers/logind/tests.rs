//! A bus made of a socket, with a logind behind it; and the real bus, without one.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::message::tests::{answer, long, parsed, refusal, signal};
use super::*;

const NAME: &str = ":1.2";

struct Fake {
    directory: tempfile::TempDir,
    listener: UnixListener,
}

/// The bus's side of a connection.
struct Served {
    stream: UnixStream,
    came: Vec<u8>,
}

impl Fake {
    fn new() -> Fake {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("bus")).unwrap();
        Fake { directory, listener }
    }

    fn logind(&self, now: Instant) -> Logind {
        Logind::new(Some(self.directory.path().join("bus")), now)
    }

    fn serve(&self) -> Served {
        let (stream, _) = self.listener.accept().unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut served = Served { stream, came: Vec::new() };
        let end = b"BEGIN\r\n";
        while !served.came.windows(end.len()).any(|part| part == end) {
            served.hear();
        }
        let begin = served.came.windows(end.len()).position(|part| part == end).unwrap() + end.len();
        let hello = String::from_utf8(served.came.drain(..begin).collect()).unwrap();
        assert!(hello.starts_with("\0AUTH EXTERNAL ") && hello.contains("NEGOTIATE_UNIX_FD"), "{hello}");
        served.send(b"OK 0123456789abcdef\r\nAGREE_UNIX_FD\r\n");
        served
    }
}

impl Served {
    fn hear(&mut self) {
        let mut bytes = [0; 4096];
        let count = self.stream.read(&mut bytes).unwrap();
        assert!(count > 0, "the keeper hung up");
        self.came.extend_from_slice(&bytes[..count]);
    }

    /// The serial number of the next call of a method.
    fn called(&mut self, member: &str) -> u32 {
        loop {
            while let Some(message) = parsed(&self.came) {
                let extent = message::Extent::of(&self.came).unwrap().unwrap();
                self.came.drain(..extent.header_bytes + extent.body_bytes);
                if message.member == member {
                    return message.serial;
                }
            }
            self.hear();
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends a message with a descriptor, and returns what shows whether that is open.
    fn send_with(&mut self, bytes: &[u8]) -> UnixStream {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors = [theirs.as_fd()];
        assert!(control.push(SendAncillaryMessage::ScmRights(&descriptors)));
        sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::empty()).unwrap();
        ours.set_nonblocking(true).unwrap();
        ours
    }

    /// Ends the connection, whoever else holds its descriptor.
    fn hang_up(self) {
        self.stream.shutdown(Shutdown::Both).unwrap();
    }

    /// Answers the call for the lock.
    fn give(&mut self) -> UnixStream {
        let serial = self.called("Inhibit");
        self.send_with(&answer(serial, ":1.9", NAME, 1))
    }
}

fn is_open(lock: &mut UnixStream) -> bool {
    !matches!(lock.read(&mut [0]), Ok(0))
}

/// Waits for it: a child that another test begins at this moment holds all descriptors until its `exec`.
fn is_closed(lock: &mut UnixStream) -> bool {
    lock.set_nonblocking(false).unwrap();
    lock.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let closed = !is_open(lock);
    lock.set_nonblocking(true).unwrap();
    closed
}

fn goes(value: bool) -> Vec<u8> {
    signal(NAME, SHUTDOWN_SIGNAL, value)
}

/// A keeper with the lock.
fn locked() -> (Fake, Logind, Served, UnixStream, Instant) {
    let (fake, now) = (Fake::new(), Instant::now());
    let mut logind = fake.logind(now);
    assert!(!logind.look(now));
    let mut served = fake.serve();
    let lock = served.give();
    assert!(!logind.look(now));
    assert_eq!(logind.says(), Some(Ok(())));
    (fake, logind, served, lock, now)
}

#[test]
fn a_shutdown_waits_until_everything_is_saved_and_one_that_is_called_off_finds_the_lock_taken_anew() {
    let (_fake, mut logind, mut served, mut lock, now) = locked();
    served.send(&goes(true));
    assert!(logind.look(now));
    assert!(is_open(&mut lock), "the machine may go before anything was saved");
    logind.let_go();
    assert!(is_closed(&mut lock) && !logind.look(now));
    served.send(&goes(true));
    assert!(!logind.look(now), "that was acted on");
    served.send(&goes(false));
    assert!(!logind.look(now));
    let mut again = served.give();
    assert!(!logind.look(now) && is_open(&mut again));
    served.send(&goes(true));
    assert!(logind.look(now));
}

#[test]
fn a_shutdown_that_is_called_off_before_it_was_heard_of_leaves_the_lock_held() {
    let (_fake, mut logind, mut served, mut lock, now) = locked();
    served.send(&[goes(true), goes(false)].concat());
    assert!(!logind.look(now) && is_open(&mut lock));
    // The same with the answer in one batch.
    let (fake, now) = (Fake::new(), Instant::now());
    let mut logind = fake.logind(now);
    logind.look(now);
    let mut served = fake.serve();
    let mut lock = served.give();
    served.send(&[goes(true), goes(false)].concat());
    assert!(!logind.look(now) && is_open(&mut lock));
    assert_eq!(logind.says(), Some(Ok(())));
}

#[test]
fn a_bus_that_dies_takes_the_lock_with_it_and_is_found_again() {
    let (fake, mut logind, served, mut lock, now) = locked();
    served.hang_up();
    assert!(!logind.look(now) && is_closed(&mut lock));
    assert!(logind.says().unwrap().unwrap_err().contains("ended the connection"));
    assert_eq!((logind.waits().is_none(), logind.due()), (true, Some(now + PAUSE_MIN)));
    assert!(!logind.look(now + PAUSE_MIN / 2) && logind.waits().is_none());
    let now = now + PAUSE_MIN;
    logind.look(now);
    let mut served = fake.serve();
    let mut lock = served.give();
    assert!(!logind.look(now) && is_open(&mut lock));
    assert_eq!((logind.says(), logind.pause), (Some(Ok(())), PAUSE_MIN));
}

#[test]
fn a_shutdown_that_was_announced_right_before_the_bus_died_is_acted_on() {
    let (_fake, mut logind, mut served, _lock, now) = locked();
    served.send(&goes(true));
    served.hang_up();
    assert!(logind.look(now));
    logind.let_go();
    assert!(!logind.look(now));
}

#[test]
fn who_is_refused_is_told_why_and_asks_again_less_and_less_often() {
    let (fake, mut now) = (Fake::new(), Instant::now());
    let mut logind = fake.logind(now);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        logind.look(now);
        let mut served = fake.serve();
        let serial = served.called("Inhibit");
        served.send(&refusal(serial, "org.freedesktop.DBus.Error.AccessDenied", "Permission denied"));
        assert!(!logind.look(now));
        let why = logind.says().unwrap().unwrap_err().to_owned();
        assert!(why.contains("AccessDenied") && why.contains("Permission denied"), "{why}");
        pauses.push(logind.due().unwrap() - now);
        now = logind.due().unwrap();
    }
    assert!(pauses.is_sorted() && pauses[11] == PAUSE_MAX && pauses[0] == PAUSE_MIN, "{pauses:?}");
    let mut absent = Logind::new(Some(PathBuf::from("/nowhere/bus")), now);
    assert!(!absent.look(now) && absent.says().unwrap().is_err());
    let mut none = Logind::new(None, now);
    assert_eq!((none.look(now), none.due(), none.says()), (false, None, None));
}

#[test]
fn a_bus_that_never_answers_is_left() {
    let (fake, now) = (Fake::new(), Instant::now());
    let mut logind = fake.logind(now);
    logind.look(now);
    let _served = fake.serve();
    let until = logind.due().unwrap();
    assert_eq!(until, now + ANSWER_PATIENCE);
    logind.look(until);
    assert!(logind.waits().is_none() && logind.says().unwrap().unwrap_err().contains("does not answer"));
}

#[test]
fn what_others_send_announces_nothing_keeps_nothing_open_and_ends_nothing() {
    let (_fake, mut logind, mut served, mut lock, now) = locked();
    served.send(&signal(":1.666", SHUTDOWN_SIGNAL, true));
    served.send(&signal(":1.666", OWNER_SIGNAL, true));
    assert!(!logind.look(now));
    // More than the socket holds: the keeper reads while it is written.
    let mut noise = Served { stream: served.stream.try_clone().unwrap(), came: Vec::new() };
    let noise = std::thread::spawn(move || {
        (0..300).for_each(|_| noise.send(&long(100, 0)));
        let foreign: Vec<_> = (0..100).map(|_| noise.send_with(&long(40, 1))).collect();
        // Longer than anything that is looked at.
        noise.send(&long(3 << 20, 0));
        foreign
    });
    while !noise.is_finished() {
        assert!(!logind.look(now));
    }
    let mut foreign = noise.join().unwrap();
    let started = Instant::now();
    while foreign.iter_mut().any(is_open) {
        assert!(!logind.look(now));
        assert!(started.elapsed() < Duration::from_secs(20), "descriptors of others are kept");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(is_open(&mut lock));
    served.send(&goes(true));
    let started = Instant::now();
    while !logind.look(now) {
        assert!(started.elapsed() < Duration::from_secs(20), "the announcement was lost");
    }
}

/// A private instance of the real bus.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_real_bus_is_understood_and_says_that_there_is_no_logind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("bus");
    let config = directory.path().join("bus.conf");
    let text = format!(
        "<busconfig><type>session</type><listen>unix:path={}</listen><policy context=\"default\">\
         <allow send_destination=\"*\"/><allow eavesdrop=\"true\"/><allow own=\"*\"/></policy></busconfig>",
        path.display()
    );
    std::fs::write(&config, text).unwrap();
    let mut command = Command::new("dbus-daemon");
    command.arg(format!("--config-file={}", config.display())).args(["--nofork", "--nopidfile"]);
    let Ok(daemon) = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn() else {
        println!("not run: no dbus-daemon here");
        return;
    };
    let _daemon = Daemon(daemon);
    let started = Instant::now();
    let mut logind = Logind::new(Some(path), started);
    loop {
        logind.look(Instant::now());
        if logind.says().is_some_and(|says| says.is_err_and(|why| why.contains("ServiceUnknown"))) {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(20), "it says: {:?}", logind.says());
        std::thread::sleep(Duration::from_millis(5));
    }
}
