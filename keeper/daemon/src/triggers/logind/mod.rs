//! The lock of systemd-logind that puts a shutdown off for some seconds ("delay"): the keeper holds one, is told that the
//! machine is about to go (`PrepareForShutdown`), saves everything and lets go. See "Inhibitor Locks" of systemd.
//!
//! A library for the bus would bring threads and thirty crates; what is needed are four calls and two signals.
//!
//! Invariants:
//! - The keeper never waits for the bus: without it, or when it refuses, everything else goes on, and it is asked again
//!   later, less and less often.
//! - Only logind itself, by its unique name, announces a shutdown. What anybody else sends changes nothing.
//! - What came together is taken in order: after a shutdown that was called off the lock is held, whether or not the
//!   keeper had time to let go of it before.
//! - After any error bus and lock are dropped together: a lock of which nobody tells would delay every shutdown in vain.

mod bus;
mod message;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::closer::Closer;

use self::bus::Bus;
use self::message::{Kind, Message, Method, call};

/// From the first attempt to the next, and the longest time between two.
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);
/// How long an answer may take.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);
/// Descriptors that others sent over the bus and that cannot be closed yet; with more, the bus is not read.
const PARKED_MAX: usize = 64;
/// When it is looked at again whether they are closed.
const PARKED_PAUSE: Duration = Duration::from_millis(100);

const DRIVER: &str = "org.freedesktop.DBus";
const HELLO: Method =
    Method { destination: DRIVER, path: "/org/freedesktop/DBus", interface: DRIVER, member: "Hello" };
const ADD_MATCH: Method = Method { member: "AddMatch", ..HELLO };
const LOGIND: &str = "org.freedesktop.login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";
const INHIBIT: Method =
    Method { destination: LOGIND, path: "/org/freedesktop/login1", interface: MANAGER, member: "Inhibit" };
const SHUTDOWN_SIGNAL: &str = "PrepareForShutdown";
const OWNER_SIGNAL: &str = "NameOwnerChanged";
const SHUTDOWN_MATCH: &str = "type='signal',sender='org.freedesktop.login1',interface='org.freedesktop.login1.Manager',\
     member='PrepareForShutdown'";
const OWNER_MATCH: &str =
    "type='signal',sender='org.freedesktop.DBus',member='NameOwnerChanged',arg0='org.freedesktop.login1'";
const WHAT: [&str; 4] = ["shutdown", "Holdfast keeper", "Heaps in memory are saved", "delay"];

/// See the module.
#[derive(Debug)]
pub(crate) struct Logind {
    /// The socket of the system's bus; none where nobody asks for it.
    path: Option<PathBuf>,
    link: Option<Link>,
    /// When it is tried again, and how long after that.
    retry: Instant,
    pause: Duration,
    /// Why there is no lock, in words.
    why_not: String,
    closer: Closer,
}

/// What holds while the bus is there.
#[derive(Debug)]
struct Link {
    bus: Bus,
    serial: u32,
    /// The call that asks for the lock, and until when it may take.
    asked: Option<(u32, Instant)>,
    lock: Option<OwnedFd>,
    /// The unique name of logind, from its answer: nobody else can have that.
    logind: Option<String>,
    /// A shutdown was announced and not called off.
    is_going: bool,
    /// And nobody acted on it yet.
    is_due: bool,
    /// Since when the bus is not read, and when it is looked at again.
    parked: Option<(Instant, Instant)>,
}

impl Logind {
    /// Looks for the bus when it is first asked to.
    pub(crate) fn new(path: Option<PathBuf>, now: Instant) -> Logind {
        Logind {
            path,
            link: None,
            retry: now,
            pause: PAUSE_MIN,
            why_not: String::new(),
            closer: Closer::new(PARKED_MAX),
        }
    }

    /// What to wait for, and whether for room to send as well.
    pub(crate) fn waits(&self) -> Option<(&UnixStream, bool)> {
        let link = self.link.as_ref().filter(|link| link.parked.is_none());
        link.map(|link| (&link.bus.stream, link.bus.is_sending()))
    }

    /// When something is to be done that no descriptor tells of.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.path.as_ref()?;
        match &self.link {
            Some(link) => {
                link.asked.map(|(_, until)| until).into_iter().chain(link.parked.map(|(_, look)| look)).min()
            }
            None => Some(self.retry),
        }
    }

    /// Whether a shutdown is announced; the caller acts, and then calls [`Logind::let_go`].
    pub(crate) fn look(&mut self, now: Instant) -> bool {
        let Some(path) = &self.path else { return false };
        if self.link.is_none() {
            if now < self.retry {
                return false;
            }
            let connected = Bus::connect(path).map_err(|error| {
                io::Error::new(error.kind(), format!("no bus at {}: {error}", path.display()))
            });
            match connected.and_then(|bus| Link::new(bus, now)) {
                Ok(link) => self.link = Some(link),
                Err(error) => self.drop_link(&error, now),
            }
        }
        let Some(link) = &mut self.link else { return false };
        match link.go_on(&self.closer, now) {
            Ok(()) => {
                if link.lock.is_some() {
                    (self.pause, self.why_not) = (PAUSE_MIN, String::new());
                }
                link.is_due
            }
            Err(error) => {
                let is_due = link.is_due;
                self.drop_link(&error, now);
                // It was announced before the bus went.
                is_due
            }
        }
    }

    /// What was announced is done: the machine may go.
    pub(crate) fn let_go(&mut self) {
        if let Some(link) = &mut self.link {
            link.is_due = false;
            link.lock = None;
        }
    }

    fn drop_link(&mut self, error: &io::Error, now: Instant) {
        if let Some(link) = self.link.take() {
            link.bus.end(&self.closer);
        }
        self.why_not = error.to_string();
        self.retry = now + self.pause;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
    }

    /// Whether there is a lock; if there is none, why.
    pub(crate) fn says(&self) -> Option<Result<(), &str>> {
        self.path.as_ref()?;
        if self.link.as_ref().is_some_and(|link| link.lock.is_some()) {
            return Some(Ok(()));
        }
        (!self.why_not.is_empty()).then_some(Err(&self.why_not))
    }
}

impl Link {
    fn new(bus: Bus, now: Instant) -> io::Result<Link> {
        let mut link = Link {
            bus,
            serial: 0,
            asked: None,
            lock: None,
            logind: None,
            is_going: false,
            is_due: false,
            parked: None,
        };
        link.call(HELLO, &[])?;
        // Before the lock: whatever is announced once that is held is heard.
        link.call(ADD_MATCH, &[OWNER_MATCH])?;
        link.call(ADD_MATCH, &[SHUTDOWN_MATCH])?;
        link.ask(now)?;
        Ok(link)
    }

    fn call(&mut self, method: Method, arguments: &[&str]) -> io::Result<u32> {
        // Zero is no serial number.
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        self.bus.send(&call(self.serial, method, arguments))?;
        Ok(self.serial)
    }

    fn ask(&mut self, now: Instant) -> io::Result<()> {
        let serial = self.call(INHIBIT, &WHAT)?;
        self.asked = Some((serial, now + ANSWER_PATIENCE));
        Ok(())
    }

    fn go_on(&mut self, closer: &Closer, now: Instant) -> io::Result<()> {
        self.bus.flush()?;
        if closer.is_full() {
            let (since, _) = *self.parked.get_or_insert((now, now));
            if now >= since + ANSWER_PATIENCE {
                return Err(io::Error::other("others on the bus send descriptors that cannot be closed"));
            }
            self.parked = Some((since, now + PARKED_PAUSE));
            return Ok(());
        }
        self.parked = None;
        let mut came = Vec::new();
        let read = self.bus.read(closer, |message, descriptors| {
            let mut descriptors = descriptors.into_iter();
            if is_wanted(&message) {
                let descriptor = if message.kind == Kind::Answer { descriptors.next() } else { None };
                came.push((message, descriptor));
            }
            // Whoever sends others has nothing kept open by that.
            closer.close_each(descriptors);
        });
        // In order, and also what came before the bus ended.
        let mut came = came.into_iter();
        let taken = came.try_for_each(|(message, mut descriptor)| {
            let taken = self.take(&message, &mut descriptor);
            closer.close_each(descriptor);
            taken
        });
        closer.close_each(came.filter_map(|(_, descriptor)| descriptor));
        taken?;
        read?;
        if self.asked.is_some_and(|(_, until)| until <= now) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "logind does not answer"));
        }
        // A shutdown was called off, and what was let go of is held again.
        if self.lock.is_none() && self.asked.is_none() && !self.is_going {
            self.ask(now)?;
        }
        Ok(())
    }

    fn take(&mut self, message: &Message, descriptor: &mut Option<OwnedFd>) -> io::Result<()> {
        let answers = |asked: Option<(u32, Instant)>| {
            asked.is_some_and(|(serial, _)| message.reply_serial == Some(serial))
        };
        match message.kind {
            Kind::Answer if answers(self.asked) => {
                self.asked = None;
                let lock = descriptor.take().ok_or_else(|| io::Error::other("logind gave no lock"))?;
                self.logind = Some(message.sender.clone());
                // Too late for a shutdown that was acted on: it is not delayed.
                if !self.is_going || self.is_due {
                    self.lock = Some(lock);
                }
            }
            // While a shutdown is under way there are no new locks; when it is called off they are asked for again.
            Kind::Error if answers(self.asked) && self.is_going => self.asked = None,
            Kind::Error if message.reply_serial.is_some() => {
                let why = message.text().unwrap_or_default();
                return Err(io::Error::other(format!("{}: {why}", message.error_name)));
            }
            Kind::Signal
                if message.member == OWNER_SIGNAL && message.sender == DRIVER && self.logind.is_some() =>
            {
                return Err(io::Error::other("logind was started anew"));
            }
            Kind::Signal if message.member == SHUTDOWN_SIGNAL => {
                let is_logind = self.logind.as_deref() == Some(message.sender.as_str());
                if let Some(goes) = message.truth().filter(|_| is_logind && message.interface == MANAGER) {
                    self.is_due = goes && (self.is_due || !self.is_going);
                    self.is_going = goes;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// What is of any interest; the rest is dropped where it is read, with its descriptors.
fn is_wanted(message: &Message) -> bool {
    match message.kind {
        Kind::Answer | Kind::Error => true,
        Kind::Signal => [SHUTDOWN_SIGNAL, OWNER_SIGNAL].contains(&message.member.as_str()),
        Kind::Call | Kind::Other => false,
    }
}

#[cfg(test)]
mod tests;
