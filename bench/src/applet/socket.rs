//! The usual way: messages of 8 bytes over a pair of Unix sockets (`SOCK_SEQPACKET`).

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::other_side::{OtherSide, descriptor};
use super::processors::Placement;
use crate::race::bursts;

pub(crate) const ROLE: &str = "socket";

/// The measuring side.
pub(crate) struct Socket {
    socket: OwnedFd,
    other: OtherSide,
}

impl Socket {
    pub(crate) fn start() -> io::Result<Socket> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok(Socket { socket, other: OtherSide::start(ROLE, theirs)? })
    }

    /// Microseconds for a round trip.
    pub(crate) fn round_trip_us(&mut self, placement: Placement, trips: u32) -> io::Result<f64> {
        let _kept = placement.hold(self.other.pid())?;
        let mut trip = 0_u64;
        bursts(trips, || {
            trip += 1;
            let message = trip.to_le_bytes();
            rustix::io::write(&self.socket, &message)?;
            let mut answer = [0; 8];
            if rustix::io::read(&self.socket, &mut answer)? != 8 || answer != message {
                return Err(io::Error::other("the socket's answer is wrong"));
            }
            Ok(())
        })
    }
}

pub(crate) fn serve() -> io::Result<()> {
    let socket = descriptor()?;
    let mut message = [0; 8];
    loop {
        match rustix::io::read(&socket, &mut message)? {
            0 => return Ok(()),
            bytes => _ = rustix::io::write(&socket, &message[..bytes])?,
        }
    }
}
