//! A connection to a keeper on which nothing waits for longer than it may: neither for a keeper that
//! stands still, whose queue of connections is full at last, nor as a signal interrupts each wait.

use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, socket_with};

/// A shorter time would be none, which stands for ever.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

/// An answer on its way, which must be there at some time.
#[derive(Debug)]
pub(crate) struct TimedAnswer {
    stream: UnixStream,
    until: Instant,
}

/// Connects to a socket; a write to it may then take as long as is left of the time.
///
/// # Errors
/// `TimedOut`; what the kernel reports.
pub(crate) fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let until = Instant::now() + patience;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    let address = SocketAddrUnix::new(path)?;
    loop {
        set_socket_timeout(&socket, Timeout::Send, Some(time_left(until)?))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(UnixStream::from(socket)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

impl TimedAnswer {
    pub(crate) fn new(stream: UnixStream, until: Instant) -> TimedAnswer {
        TimedAnswer { stream, until }
    }
}

impl Read for TimedAnswer {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            self.stream.set_read_timeout(Some(time_left(self.until)?))?;
            match self.stream.read(into) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(ErrorKind::TimedOut.into());
                }
                done => return done,
            }
        }
    }
}

fn time_left(until: Instant) -> io::Result<Duration> {
    match until.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(ErrorKind::TimedOut.into()),
        left => Ok(left.max(TIMEOUT_MIN)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A keeper that takes no connection, and one that gives no answer, are given up on.
    ///
    /// Guarantee: keeper/timeouts
    #[test]
    fn keeper_that_stands_still_is_given_up_on() {
        let path = std::env::temp_dir().join(format!("holdfast-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        rustix::net::bind(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        rustix::net::listen(&socket, 0).unwrap();
        let (sender, receiver) = mpsc::channel();
        let asked = path.clone();
        std::thread::spawn(move || {
            let patience = Duration::from_millis(200);
            let mut taken = Vec::new();
            // The queue has room for one, or a few.
            let refused = loop {
                match connect(&asked, patience) {
                    Ok(stream) if taken.len() < 64 => taken.push(stream),
                    done => break done.map_err(|error| error.kind()).map(drop),
                }
            };
            let stream = taken.swap_remove(0);
            let mut answer = TimedAnswer::new(stream, Instant::now() + patience);
            let unanswered = answer.read(&mut [0]).map_err(|error| error.kind());
            let _ = sender.send((refused, unanswered));
        });
        let came = receiver.recv_timeout(Duration::from_secs(30));
        let _ = std::fs::remove_file(&path);
        assert_eq!(came, Ok((Err(ErrorKind::TimedOut), Err(ErrorKind::TimedOut))));
    }
}
