//! The keeper's side of the socket: a few connections at a time, each with one request, none of
//! which can hold up the rest.
//!
//! Invariants:
//! - Nothing here waits: what has not arrived, or cannot be sent yet, is left for the next time.
//! - The kernel names the client (`SO_PEERCRED`): this user and root are answered, everybody
//!   else is refused.
//! - What is kept of a connection is bounded: its request, its answer, and a time. Its end waits
//!   for no process ([`Closer`]).

use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::{Duration, Instant};

use holdfast_sys::file::effective_user;
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::closer::{self, Closer};
use crate::error::{DaemonError, Result};
use holdfast_keeper_client::wire::{
    Answer, Ask, LENGTH_BYTES, REQUEST_BYTES_MAX, Reply, VERSION, frame, parse_request,
};

/// More wait in the listener's queue.
const CONNECTIONS_MAX: usize = 16;
/// As the standard library has it.
const BACKLOG: i32 = 128;
/// How long a connection may take for all of it.
const CONNECTION_PATIENCE: Duration = Duration::from_secs(5);
/// How long no connection is taken when the kernel has no descriptor left: the listener would be
/// ready for ever.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The listener and its connections.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) listener: UnixListener,
    pub(crate) connections: Vec<Connection>,
    accepts_from: Option<Instant>,
    closer: Closer,
}

/// A process that asks.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: UnixStream,
    request: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    ends: Instant,
    closer: Closer,
}

/// What became of a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    Waits,
    Asks(Ask),
    Refused(String),
    Done,
}

/// Removes the socket that a keeper which was killed left at a path.
///
/// # Errors
/// `Place` when something else is there, which stays; `Io`.
pub(crate) fn remove_old_socket(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(found) if found.file_type().is_socket() && found.uid() == effective_user() => {
            std::fs::remove_file(path).map_err(DaemonError::io("remove the old socket", path))
        }
        Ok(_) => {
            let why = "something else is there; move it away, or choose another path";
            Err(DaemonError::Place { path: path.to_owned(), why })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(DaemonError::io("examine", path)(error)),
    }
}

/// A socket that only its user can connect to, from the first moment on: the mode of its file is
/// that of the socket, less the umask.
fn bind_private(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

impl Server {
    /// Listens at a path. The socket that a keeper which was killed left there is removed: the
    /// caller is the only keeper.
    pub(crate) fn bind(path: &Path) -> Result<Server> {
        remove_old_socket(path)?;
        Server::new(bind_private(path).map_err(DaemonError::io("listen at", path))?)
    }

    /// Listens with what another process made.
    pub(crate) fn new(listener: UnixListener) -> Result<Server> {
        listener.set_nonblocking(true).map_err(DaemonError::io("listen at", "the socket"))?;
        let closer = Closer::new(CONNECTIONS_MAX);
        Ok(Server { listener, connections: Vec::new(), accepts_from: None, closer })
    }

    /// Whether another connection can be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.accepts_from.is_none()
            && self.connections.len() < CONNECTIONS_MAX
            && !self.closer.is_full()
    }

    /// Takes who waits.
    pub(crate) fn accept(&mut self, now: Instant) {
        self.accepts_from.take_if(|from| *from <= now);
        while self.has_room() {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) => {
                    if pauses(&error) {
                        self.accepts_from = Some(now + ACCEPT_PAUSE);
                    }
                    return;
                }
            };
            if stream.set_nonblocking(true).is_ok() && closer::prepare(&stream).is_ok() {
                let (ends, closer) = (now + CONNECTION_PATIENCE, self.closer.clone());
                let (request, answer) = (Vec::new(), Vec::new());
                self.connections.push(Connection {
                    stream,
                    request,
                    answer,
                    sent: 0,
                    ends,
                    closer,
                });
            } else {
                self.closer.end(stream);
            }
        }
    }

    /// When the first connection has taken too long, or the next is taken after a pause.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        self.connections.iter().map(|connection| connection.ends).chain(self.accepts_from).min()
    }
}

/// Whether a connection that could not be taken would be there again at once: no descriptor, or no
/// memory, is left.
pub(crate) fn pauses(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted)
}

impl Connection {
    /// Whether it waits for its answer to be taken.
    pub(crate) fn is_sending(&self) -> bool {
        !self.answer.is_empty()
    }

    /// The end, told to the peer.
    pub(crate) fn end(self) {
        self.closer.end(self.stream);
    }

    /// Goes on as far as that is possible without waiting.
    pub(crate) fn go_on(&mut self, now: Instant) -> Progress {
        let progress = if self.is_sending() { self.send() } else { self.receive() };
        // What had come in time counts, however long the keeper was busy before it looked.
        if progress == Progress::Waits && now >= self.ends { Progress::Done } else { progress }
    }

    fn receive(&mut self) -> Progress {
        let mut piece = [0; 4096];
        loop {
            // Checked before more is read, so that never more than a request is kept.
            match parse_request(&self.request, VERSION, REQUEST_BYTES_MAX) {
                None => {}
                Some(Err(why)) => return Progress::Refused(why.to_string()),
                Some(Ok(_)) if !self.is_allowed() => {
                    return Progress::Refused(
                        "only the user of the heaps, and root, may ask".to_owned(),
                    );
                }
                Some(Ok(ask)) => return Progress::Asks(ask),
            }
            let room = (LENGTH_BYTES + REQUEST_BYTES_MAX - self.request.len()).min(piece.len());
            // No descriptor is asked for here.
            match self.closer.receive(&self.stream, &mut piece[..room], &mut []) {
                Ok((0, _)) => return Progress::Done,
                Ok((count, _)) => self.request.extend_from_slice(&piece[..count]),
                Err(Errno::AGAIN) => return Progress::Waits,
                Err(Errno::INTR) => {}
                Err(_) => return Progress::Done,
            }
        }
    }

    fn is_allowed(&self) -> bool {
        let us = effective_user();
        socket_peercred(&self.stream).is_ok_and(|peer| {
            let uid = peer.uid.as_raw();
            uid == us || uid == 0
        })
    }

    /// Begins to answer. What took long before does not count.
    pub(crate) fn answer(&mut self, answer: Answer, now: Instant) -> Progress {
        self.answer = frame(&Reply { version: VERSION, answer });
        self.ends = now + CONNECTION_PATIENCE;
        self.send()
    }

    fn send(&mut self) -> Progress {
        while self.sent < self.answer.len() {
            match self.stream.write(&self.answer[self.sent..]) {
                Ok(0) => return Progress::Done,
                Ok(count) => self.sent += count,
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Progress::Waits,
                    io::ErrorKind::Interrupted => {}
                    _ => return Progress::Done,
                },
            }
        }
        Progress::Done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path that leads to something else, mistyped perhaps, costs that nothing.
    ///
    /// Guarantee: keeper/socket
    #[test]
    fn only_an_old_socket_makes_way_for_a_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("keeper.sock");
        drop(Server::bind(&path).unwrap());
        drop(Server::bind(&path).unwrap());
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "a letter").unwrap();
        assert!(matches!(Server::bind(&path), Err(DaemonError::Place { .. })));
        assert_eq!(std::fs::read(&path).unwrap(), b"a letter");
    }
}
