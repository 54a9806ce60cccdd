//! A connection to the bus that never waits: bytes and descriptors in, messages out.
//!
//! Invariants:
//! - What came is taken apart after each read, so no crowd of messages gathers, and no sender can fill the memory.
//! - Bodies that are too long are skipped; their senders break nothing.
//! - A descriptor belongs to the message that it came with, and is closed with it unless somebody takes it; by the [`Closer`],
//!   since anybody on the bus can have sent it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use holdfast_sys::file::effective_user;
use rustix::net::sockopt::socket_error;
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::closer::{self, Closer, recv_with};

use super::message::{Extent, MESSAGE_BYTES_MAX, Message};

/// What is read at once.
const READ_BYTES: usize = 4 << 10;
/// Reads until something else has its turn.
const READS_MAX: usize = 64;
/// The kernel passes no more with one message.
const DESCRIPTORS_MAX: usize = 253;
/// No line of the handshake is longer.
const LINE_BYTES_MAX: usize = 1 << 10;

/// See the module.
#[derive(Debug)]
pub(super) struct Bus {
    pub(super) stream: UnixStream,
    /// Lines of the handshake that are still to come.
    lines_left: u8,
    incoming: Vec<u8>,
    /// Of a body that is too long.
    skip_bytes: usize,
    descriptors: VecDeque<OwnedFd>,
    outgoing: Vec<u8>,
}

impl Bus {
    /// Connects, and says who this is. Waits for nothing.
    pub(super) fn connect(path: &Path) -> io::Result<Bus> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        socket_error(&socket)??;
        closer::prepare(&socket)?;
        let user: String = effective_user().to_string().bytes().map(|digit| format!("{digit:02x}")).collect();
        let hello = format!("\0AUTH EXTERNAL {user}\r\nNEGOTIATE_UNIX_FD\r\nBEGIN\r\n");
        Ok(Bus {
            stream: UnixStream::from(socket),
            lines_left: 2,
            incoming: Vec::new(),
            skip_bytes: 0,
            descriptors: VecDeque::new(),
            outgoing: hello.into_bytes(),
        })
    }

    /// The end, of what was not taken as well.
    pub(super) fn end(self, closer: &Closer) {
        closer.close_each(self.descriptors);
        closer.end(self.stream);
    }

    /// Sends a message, now or when there is room.
    pub(super) fn send(&mut self, message: &[u8]) -> io::Result<()> {
        self.outgoing.extend_from_slice(message);
        self.flush()
    }

    /// Whether something waits for room.
    pub(super) fn is_sending(&self) -> bool {
        !self.outgoing.is_empty()
    }

    pub(super) fn flush(&mut self) -> io::Result<()> {
        while !self.outgoing.is_empty() {
            match self.stream.write(&self.outgoing) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => drop(self.outgoing.drain(..count)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads what has come, and gives each message, with its descriptors, to `take`.
    ///
    /// # Errors
    /// When the connection is over, or what comes is no message.
    pub(super) fn read(
        &mut self,
        closer: &Closer,
        mut take: impl FnMut(Message, Vec<OwnedFd>),
    ) -> io::Result<()> {
        for _ in 0..READS_MAX {
            if closer.is_full() || !self.read_some()? {
                break;
            }
            while let Some((message, descriptors)) = self.next()? {
                take(message, descriptors);
            }
        }
        Ok(())
    }

    /// Whether anything came.
    fn read_some(&mut self) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut bytes = [0; READ_BYTES];
        let (count, descriptors, are_all) = loop {
            match recv_with(&self.stream, &mut bytes, &mut space, RecvFlags::empty()) {
                Ok(received) => break received,
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(false),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        self.descriptors.extend(descriptors);
        if !are_all {
            return Err(io::Error::other("descriptors from the bus were lost"));
        }
        if count == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the bus ended the connection"));
        }
        let skipped = self.skip_bytes.min(count);
        self.skip_bytes -= skipped;
        self.incoming.extend_from_slice(&bytes[skipped..count]);
        Ok(true)
    }

    fn next(&mut self) -> io::Result<Option<(Message, Vec<OwnedFd>)>> {
        while self.lines_left > 0 {
            let Some(end) = self.incoming.windows(2).position(|pair| pair == b"\r\n") else {
                let is_short = self.incoming.len() < LINE_BYTES_MAX;
                return if is_short { Ok(None) } else { Err(io::Error::other("what answers is no bus")) };
            };
            let line = String::from_utf8_lossy(&self.incoming[..end]).into_owned();
            let expected = if self.lines_left == 2 { "OK " } else { "AGREE_UNIX_FD" };
            if !line.starts_with(expected) {
                return Err(io::Error::new(ErrorKind::PermissionDenied, format!("the bus answers {line:?}")));
            }
            self.incoming.drain(..end + 2);
            self.lines_left -= 1;
        }
        let extent = Extent::of(&self.incoming).map_err(io::Error::other)?;
        let Some(Extent { header_bytes, body_bytes }) = extent else { return Ok(None) };
        let is_long = header_bytes.saturating_add(body_bytes) > MESSAGE_BYTES_MAX;
        let needed_bytes = if is_long { header_bytes } else { header_bytes + body_bytes };
        let Some(bytes) = self.incoming.get(..needed_bytes) else { return Ok(None) };
        let (header, body) = bytes.split_at(header_bytes);
        let message = Message::parse(header, body)
            .ok_or_else(|| io::Error::other("a message that cannot be understood came from the bus"))?;
        self.incoming.drain(..needed_bytes);
        if is_long {
            let there = body_bytes.min(self.incoming.len());
            self.incoming.drain(..there);
            self.skip_bytes = body_bytes - there;
        }
        let count = message.descriptors.min(self.descriptors.len());
        let descriptors = self.descriptors.drain(..count).collect();
        Ok(Some((message, descriptors)))
    }
}
