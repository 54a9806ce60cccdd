//! The keeper at work: one loop that waits for everything at once and does one thing at a time.
//!
//! Invariants:
//! - While nothing happens it sleeps: it wakes for what it waits for, and a few times in a minute.
//! - An emergency goes before everything else that is ready.
//! - All times are those of the monotonic clock: a calendar that jumps changes nothing.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_sys::counted::counted;
use holdfast_sys::file::shown_options;
use holdfast_sys::terminal::notice;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

use crate::error::{DaemonError, Result};
use crate::keeper::Keeper;
use crate::keeper::status::status_of_files;
use crate::serve::{Connection, Progress, Server};
use crate::served::{Serving, raise_descriptor_limit};
use crate::systemd::{given_listener, notify};
use crate::triggers::Sources;
use crate::triggers::power_button::{self, Button};
use crate::triggers::power_supply::is_low;
use crate::triggers::pressure::Pressure;
use holdfast_keeper_client::Client;
use holdfast_keeper_client::wire::{Answer, Ask};
use holdfast_keeper_client::{Cause, SavedKind};

/// Linux: the power fails.
const SIGPWR: i32 = 30;
/// How often batteries, and averages of memory pressure, are looked at.
const LOOK: Duration = Duration::from_secs(10);
/// Memory pressure is acted on this often at most.
const RELIEF_PAUSE: Duration = Duration::from_secs(10);

/// What the loop waits for.
struct Watched {
    terminate: UnixStream,
    power: UnixStream,
    server: Server,
    buttons: Vec<Button>,
    pressure: Pressure,
}

/// When things are due that no descriptor tells of.
struct Clock {
    round: Instant,
    look: Instant,
    relieved: Option<Instant>,
    was_low: bool,
}

impl Keeper {
    /// Looks after the heaps until SIGTERM or SIGINT, which saves everything first.
    ///
    /// # Errors
    /// When the socket cannot be made, or the kernel refuses to wait. What goes wrong with single
    /// heaps is counted.
    pub fn run(&mut self, sources: &Sources) -> Result<()> {
        // In an emergency each stopped process takes one, and each copy that is replaced.
        let _ = raise_descriptor_limit();
        let mut watched = self.watch(sources)?;
        self.serving = match &sources.serve {
            Some(policy) => Some(Serving::new(self.places(), policy.clone())?),
            None => None,
        };
        let now = Instant::now();
        let mut clock = Clock { round: now, look: now, relieved: None, was_low: false };
        notify("READY=1");
        loop {
            let timeout = clock.next(&watched, self.serving.as_ref(), sources.button_hold);
            let mut is_short = watched.wait(timeout, self.serving.as_ref())?;
            let now = Instant::now();
            if drained(&mut watched.power) {
                self.emergency(Cause::PowerSignal);
            }
            if drained(&mut watched.terminate) {
                notify("STOPPING=1");
                self.emergency(Cause::Terminated);
                self.write_metrics(sources.metrics_file.as_deref());
                return Ok(());
            }
            watched.buttons.retain_mut(|button| button.read(now));
            for button in &mut watched.buttons {
                if button.due(sources.button_hold).is_some_and(|due| due <= now) {
                    button.act();
                    self.emergency(Cause::PowerButton);
                }
            }
            if now >= clock.look {
                clock.look = now + LOOK;
                let low = is_low(&sources.power_supply, sources.battery_percent);
                if low && !clock.was_low {
                    self.emergency(Cause::LowBattery);
                }
                clock.was_low = low;
                is_short |= watched.pressure.is_high();
            }
            if is_short && clock.relieved.is_none_or(|last| now >= last + RELIEF_PAUSE) {
                clock.relieved = Some(now);
                self.relieve();
            }
            if now >= clock.round {
                clock.round = now + self.round();
                self.tend();
                self.evict();
                self.write_metrics(sources.metrics_file.as_deref());
            }
            self.serve(&mut watched.server);
            self.serve_users();
        }
    }

    fn watch(&self, sources: &Sources) -> Result<Watched> {
        let signal = |signals: &[i32]| -> io::Result<UnixStream> {
            let (read, write) = UnixStream::pair()?;
            read.set_nonblocking(true)?;
            for &signal in signals {
                pipe::register(signal, write.try_clone()?)?;
            }
            Ok(read)
        };
        let terminate =
            signal(&[SIGTERM, SIGINT]).map_err(DaemonError::io("wait for", "signals"))?;
        let power = signal(&[SIGPWR]).map_err(DaemonError::io("wait for", "signals"))?;
        let server = match (&sources.socket, given_listener()) {
            (None, Some(listener)) => {
                // Of a keeper that was killed: a process that asked there would not find this one.
                let _ = fs::remove_file(Client::default_socket(self.places().pool()));
                Server::new(listener)?
            }
            (None, None) => Server::bind(&Client::default_socket(self.places().pool()))?,
            (Some(path), _) => Server::bind(path)?,
        };
        let buttons = sources.buttons.clone().unwrap_or_else(power_button::find);
        // A device that may not be opened is one that is not watched.
        let buttons: Vec<_> = buttons.iter().filter_map(|path| Button::open(path).ok()).collect();
        notify(&format!("STATUS=watches {}", counted(buttons.len(), "power button")));
        let pressure = Pressure::open(&sources.pressure);
        Ok(Watched { terminate, power, server, buttons, pressure })
    }

    fn emergency(&mut self, cause: Cause) {
        let report = self.flush(cause);
        let left: Vec<_> = report.left.iter().map(|left| left.name.as_str()).collect();
        let (heaps, databases) =
            (report.saved_of(SavedKind::Heap), report.saved_of(SavedKind::Database));
        let ms = report.milliseconds;
        let left = if left.is_empty() {
            String::new()
        } else {
            format!("; not saved: {}", left.join(", "))
        };
        let databases = match databases {
            0 => String::new(),
            databases => format!(" and {}", counted(databases, "database")),
        };
        let heaps = counted(heaps, "heap");
        notice(format_args!(
            "holdfast keeper: {cause:?}: {heaps}{databases} saved in {ms} ms{left}"
        ));
        notify(&format!("STATUS=saved {heaps}{databases} in {ms} ms{left}"));
    }

    /// The kernel wants memory: half of what the pool may have is enough for now.
    fn relieve(&mut self) {
        let has_bytes = status_of_files(&self.names).map_or(0, |status| status.pool_bytes);
        let may_bytes = self.config.pool_limit.bytes().unwrap_or(u64::MAX);
        self.evict_to(has_bytes.min(may_bytes) / 2);
    }

    fn serve(&mut self, server: &mut Server) {
        let now = Instant::now();
        server.accept(now);
        let mut connections = std::mem::take(&mut server.connections);
        let over = connections.extract_if(.., |connection| {
            let was_asking = !connection.is_sending();
            let progress = match connection.go_on(now) {
                Progress::Asks(ask) => {
                    self.counters.requests += 1;
                    let answer = self.answer(ask);
                    connection.answer(answer, Instant::now())
                }
                Progress::Refused(why) => {
                    self.counters.refused_requests += 1;
                    connection.answer(Answer::Refused(why), Instant::now())
                }
                other => {
                    // It hung up, or took too long, before it had asked.
                    self.counters.refused_requests +=
                        u64::from(was_asking && other == Progress::Done);
                    other
                }
            };
            progress != Progress::Waits
        });
        over.for_each(Connection::end);
        server.connections = connections;
    }

    fn serve_users(&mut self) {
        let Some(serving) = &mut self.serving else { return };
        let report = serving.turn(Instant::now());
        self.counters.refused_requests += report.refused;
        self.counters.failures += report.failures;
    }

    fn answer(&mut self, ask: Ask) -> Answer {
        let status = || self.status();
        let refused = |error: DaemonError| Answer::Refused(error.to_string());
        match ask {
            Ask::Status => status().map_or_else(refused, |found| Answer::Status(Box::new(found))),
            Ask::Metrics => status().map_or_else(refused, |found| Answer::Metrics(found.metrics())),
            Ask::Flush => Answer::Flush(self.flush(Cause::Asked)),
            Ask::Tend => Answer::Tend(self.tend()),
            Ask::Evict => Answer::Evict(self.evict()),
            Ask::MakeRoom { bytes, pool } if pool == self.places().pool().to_string_lossy() => {
                Answer::Evict(self.make_room(bytes))
            }
            Ask::MakeRoom { .. } => {
                Answer::Refused("this is the keeper of another pool".to_owned())
            }
        }
    }

    /// For a collector of text files, which must never see a half of one.
    fn write_metrics(&mut self, path: Option<&Path>) {
        let Some(path) = path else { return };
        let written = self.status().map_err(io::Error::other);
        if written.and_then(|status| replace_shown(path, &status.metrics())).is_err() {
            self.counters.failures += 1;
        }
    }
}

/// Replaces a file, whole, that others may read. The directory may be another user's, such as the
/// collector's: what that puts at the temporary name is not written to.
fn replace_shown(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("tmp");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = shown_options().write(true).create_new(true).open(&temporary)?;
    file.write_all(text.as_bytes())?;
    fs::rename(&temporary, path)
}

impl Watched {
    /// Waits until something is ready, or for so long; whether the kernel told of memory pressure.
    fn wait(&mut self, timeout: Duration, serving: Option<&Serving>) -> Result<bool> {
        let mut waits = vec![
            PollFd::new(&self.terminate, PollFlags::IN),
            PollFd::new(&self.power, PollFlags::IN),
        ];
        let at_pressure = waits.len();
        if let Pressure::Trigger(file) = &self.pressure {
            waits.push(PollFd::new(file, PollFlags::PRI));
        }
        let at_others = waits.len();
        waits.extend(self.buttons.iter().map(|button| PollFd::new(&button.device, PollFlags::IN)));
        // The queue is not polled while there is no room, or the loop would spin.
        let room = self.server.has_room().then_some(&self.server.listener);
        waits.extend(room.map(|listener| PollFd::new(listener, PollFlags::IN)));
        waits.extend(self.server.connections.iter().map(|connection| {
            let flags = if connection.is_sending() { PollFlags::OUT } else { PollFlags::IN };
            PollFd::new(&connection.stream, flags)
        }));
        if let Some(serving) = serving {
            serving.wait_for(&mut waits);
        }
        let timeout = Timespec::try_from(timeout).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match poll(&mut waits, Some(&timeout)) {
            Ok(_) => {}
            // A signal, which its pipe tells.
            Err(rustix::io::Errno::INTR) => return Ok(false),
            Err(error) => return Err(DaemonError::io("wait for", "events")(error.into())),
        }
        let told =
            if at_pressure < at_others { waits[at_pressure].revents() } else { PollFlags::empty() };
        drop(waits);
        if told.contains(PollFlags::ERR) {
            // The kernel took the trigger back; it would be ready for ever.
            self.pressure = Pressure::None;
        }
        Ok(told.contains(PollFlags::PRI))
    }
}

impl Clock {
    /// How long nothing is due.
    fn next(&self, watched: &Watched, serving: Option<&Serving>, hold: Duration) -> Duration {
        let now = Instant::now();
        let served = serving.and_then(|serving| serving.next_end(now));
        let held = watched.buttons.iter().filter_map(|button| button.due(hold));
        let ends = [self.round, self.look]
            .into_iter()
            .chain(watched.server.next_end())
            .chain(held)
            .chain(served);
        ends.min().map_or(LOOK, |end| end.saturating_duration_since(now))
    }
}

/// Whether a signal came; takes all that came so far.
fn drained(pipe: &mut UnixStream) -> bool {
    let mut bytes = [0; 64];
    let mut came = false;
    while matches!(pipe.read(&mut bytes), Ok(count) if count > 0) {
        came = true;
    }
    came
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A link in place of the temporary file leads to no other file's end.
    #[test]
    fn metrics_overwrite_nothing_that_a_link_leads_to() {
        let directory = tempfile::tempdir().unwrap();
        let [path, letter] = ["metrics.prom", "letter"].map(|name| directory.path().join(name));
        fs::write(&letter, "dear").unwrap();
        std::os::unix::fs::symlink(&letter, directory.path().join("metrics.tmp")).unwrap();
        for text in ["one 1\n", "two 2\n"] {
            replace_shown(&path, text).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_to_string(&letter).unwrap(), "dear");
        assert!(path.symlink_metadata().unwrap().is_file());
    }
}
