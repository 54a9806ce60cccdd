//! Writing to a stream of the process without ever waiting for its reader.
//!
//! What a full stream does to a writer depends on its kind, and the stream cannot simply be made
//! non-blocking: other processes share its open file description, and would get errors that they do
//! not expect.
//! - A terminal is opened anew by its name in `/proc`; that description is ours, and non-blocking.
//! - A socket has a flag for a single send.
//! - A pipe that says that it is writable takes a page without waiting (pipe(7)).
#![forbid(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::{FileType, OFlags};
use rustix::net::SendFlags;

use crate::file::is_writable_now;

/// What a pipe takes without waiting once it says that it is writable (`PIPE_BUF`).
const PIECE_BYTES: usize = 4096;

/// How to write to one stream.
#[derive(Debug)]
pub enum Outlet {
    /// A terminal's description of our own.
    Terminal(File),
    /// A socket.
    Socket,
    /// A pipe, a file; also a terminal that may not be opened anew, of which a full one can make a
    /// write wait.
    Other,
}

impl Outlet {
    /// Finds out what a stream is.
    pub fn of(stream: impl AsFd) -> Outlet {
        let stream = stream.as_fd();
        if stream.is_terminal() {
            let path = format!("/proc/self/fd/{}", stream.as_raw_fd());
            let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let opened =
                OpenOptions::new().write(true).custom_flags(flags.bits() as i32).open(path);
            return opened.map_or(Outlet::Other, Outlet::Terminal);
        }
        let is_socket = rustix::fs::fstat(stream)
            .is_ok_and(|found| FileType::from_raw_mode(found.st_mode) == FileType::Socket);
        if is_socket { Outlet::Socket } else { Outlet::Other }
    }

    /// Writes as much as goes through now: at least one byte, at most a page. `stream` is the one
    /// that the outlet was made for.
    ///
    /// # Errors
    /// `WouldBlock` when nothing goes through; else what the kernel reports.
    pub fn write_some(&self, stream: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
        let piece = &bytes[..bytes.len().min(PIECE_BYTES)];
        match self {
            Outlet::Terminal(terminal) => (&mut &*terminal).write(piece),
            Outlet::Socket => {
                Ok(rustix::net::send(stream, piece, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?)
            }
            Outlet::Other if is_writable_now(&stream) => Ok(rustix::io::write(stream, piece)?),
            Outlet::Other => Err(io::ErrorKind::WouldBlock.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    /// Writes until nothing goes through; says how much did.
    fn fill(stream: impl AsFd) -> usize {
        let outlet = Outlet::of(&stream);
        let (started, mut total) = (Instant::now(), 0);
        loop {
            match outlet.write_some(&stream, &[b'\n'; 5000]) {
                Ok(written) => total += written,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    break;
                }
            }
            assert!(started.elapsed() < Duration::from_secs(20));
        }
        total
    }

    /// Both ends of a terminal.
    fn terminal() -> Option<(File, File)> {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        let reader = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).ok()?;
        grantpt(&reader).and_then(|()| unlockpt(&reader)).ok()?;
        let name = ptsname(&reader, Vec::new()).ok()?.into_string().ok()?;
        let flags = OFlags::NOCTTY.bits() as i32;
        let writer =
            OpenOptions::new().read(true).write(true).custom_flags(flags).open(name).ok()?;
        Some((File::from(reader), writer))
    }

    /// A full stream of any kind makes no writer wait and keeps its own flags.
    #[test]
    fn full_stream_blocks_nobody_and_keeps_its_flags() {
        let (_reader, writer) = io::pipe().unwrap();
        assert!(fill(&writer) >= PIECE_BYTES);
        let (_peer, socket) = UnixStream::pair().unwrap();
        assert!(fill(&socket) > 0);
        let Some((_reader, writer)) = terminal() else {
            println!("not run: no terminal can be made");
            return;
        };
        assert!(fill(&writer) > 0);
        let flags = rustix::fs::fcntl_getfl(&writer).unwrap();
        assert!(!flags.contains(OFlags::NONBLOCK), "who shares the terminal would get errors");
    }
}
