//! Asking the keeper of a home, over its socket: the command `holdfast keeper`, and programs that
//! need room in a pool.
//!
//! Invariant: an answer comes in bounded time, or an error does.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::error::{KeeperError, Result};
use crate::report::{EvictReport, FlushReport, Status, TendReport};
use crate::stream::{TimedAnswer, connect};
use crate::wire::{
    ANSWER_BYTES_MAX, Answer, Ask, LENGTH_BYTES, Request, VERSION, frame, length, parse_answer,
};

/// How long an answer may take. A flush on slow flash takes long.
const ANSWER_PATIENCE: Duration = Duration::from_secs(120);

/// How long a program waits for a keeper that makes room; after that it does so itself.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);

/// A client that asks; each question is a connection of its own.
#[derive(Debug, Clone)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// For the keeper that listens there.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Client {
        Client { socket: socket.into() }
    }

    /// The default socket of a keeper.
    #[must_use]
    pub fn default_socket(pool: &Path) -> PathBuf {
        pool.join("keeper.sock")
    }

    /// For the keeper of a pool: at its own socket, or at the one that the service manager made for
    /// it.
    #[must_use]
    pub fn of(pool: &Path) -> Client {
        let own = Client::default_socket(pool);
        let runtime = std::env::var_os("XDG_RUNTIME_DIR")
            .map(PathBuf::from)
            .filter(|path| path.is_absolute());
        let made = runtime.map(|directory| directory.join("holdfast-keeper.sock"));
        // One that a keeper left which was killed answers no process; the next keeper removes it.
        let made = made.filter(|made| !own.exists() && made.exists());
        Client::new(made.unwrap_or(own))
    }

    /// What there is to say.
    ///
    /// # Errors
    /// `NoKeeper`, `Refused`, `Protocol`.
    pub fn status(&self) -> Result<Status> {
        match self.ask(Ask::Status)? {
            Answer::Status(status) => Ok(*status),
            other => Err(unexpected(&other)),
        }
    }

    /// The same for Prometheus.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub fn metrics(&self) -> Result<String> {
        match self.ask(Ask::Metrics)? {
            Answer::Metrics(text) => Ok(text),
            other => Err(unexpected(&other)),
        }
    }

    /// Has everything saved now.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub fn flush(&self) -> Result<FlushReport> {
        match self.ask(Ask::Flush)? {
            Answer::Flush(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Has a round made in the background now.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub fn tend(&self) -> Result<TendReport> {
        match self.ask(Ask::Tend)? {
            Answer::Tend(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Has the pool brought below its limit.
    ///
    /// # Errors
    /// As [`Client::status`].
    pub fn evict(&self) -> Result<EvictReport> {
        match self.ask(Ask::Evict)? {
            Answer::Evict(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    /// Has the keeper of a pool evict images that no process has, until so many bytes are free
    /// there.
    ///
    /// # Errors
    /// As [`Client::status`]; `Refused` by the keeper of another pool, and by one of an earlier
    /// version.
    pub fn make_room(&self, pool: &Path, bytes: u64) -> Result<EvictReport> {
        let ask = Ask::MakeRoom { bytes, pool: pool.to_string_lossy().into_owned() };
        match self.ask_within(ROOM_PATIENCE, ask)? {
            Answer::Evict(report) => Ok(report),
            other => Err(unexpected(&other)),
        }
    }

    fn ask(&self, ask: Ask) -> Result<Answer> {
        self.ask_within(ANSWER_PATIENCE, ask)
    }

    fn ask_within(&self, patience: Duration, ask: Ask) -> Result<Answer> {
        let failed = |source| KeeperError::NoKeeper { path: self.socket.clone(), source };
        let until = Instant::now() + patience;
        let mut stream = connect(&self.socket, patience).map_err(failed)?;
        stream.write_all(&frame(&Request { version: VERSION, ask })).map_err(failed)?;
        let mut answer = TimedAnswer::new(stream, until);
        let mut head = [0; LENGTH_BYTES];
        answer.read_exact(&mut head).map_err(failed)?;
        let bytes = length(&head).filter(|&bytes| bytes <= ANSWER_BYTES_MAX);
        let bytes = bytes
            .ok_or_else(|| KeeperError::Protocol { what: "an answer without end".to_owned() })?;
        let mut body = Vec::new();
        answer.take(bytes as u64).read_to_end(&mut body).map_err(failed)?;
        match parse_answer(&body)? {
            Answer::Refused(why) => Err(KeeperError::Refused { why }),
            answer => Ok(answer),
        }
    }
}

fn unexpected(answer: &Answer) -> KeeperError {
    let text = format!("{answer:?}");
    let kind = text.split(['(', ' ']).next().unwrap_or_default();
    KeeperError::Protocol { what: format!("it answered {kind} to another question") }
}
