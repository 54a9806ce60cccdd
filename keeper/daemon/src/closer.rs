//! Closing what others had their hands in, without waiting for them.
//!
//! The last `close` of a descriptor can take as long as its maker likes: a TCP connection lingers,
//! a file system in a program is asked first. So can the end of a socket with unread messages,
//! which may carry such descriptors. Whatever came from a peer is therefore closed by threads that
//! no caller waits for.
//!
//! Invariants:
//! - The caller never closes the last copy of a peer's descriptor, and never has the kernel drop
//!   one: descriptors are looked at before their message is taken, and a message whose descriptors
//!   do not all fit is not taken. (The bus is read without a look: a copy of the lock that is
//!   closed later would delay a shutdown. There is room for all that a message can have.)
//! - A closer has so many threads at most. What these do not get to is parked; a process that takes
//!   connections stops when [`Closer::is_full`] says so, and that bounds what is parked.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use holdfast_sys::quiet_thread;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown, recvmsg, shutdown,
    sockopt,
};

/// Threads that close, of one closer.
const THREADS_MAX: usize = 8;
/// What is read at once of what no process wants any more.
const PIECE_BYTES: usize = 8 << 10;
/// How often, before a thread does the rest.
const PIECES_MAX: usize = 64;

/// See the module. Copies are the same one.
#[derive(Debug, Clone)]
pub(crate) struct Closer {
    shared: Arc<Mutex<Queue>>,
    parked_max: usize,
}

#[derive(Debug, Default)]
struct Queue {
    parked: VecDeque<OwnedFd>,
    threads: usize,
}

impl Closer {
    /// One that is full when so many descriptors wait for a thread.
    pub(crate) fn new(parked_max: usize) -> Closer {
        Closer { shared: Arc::default(), parked_max }
    }

    /// Whether nothing should be taken from anybody new, since it could not be closed.
    pub(crate) fn is_full(&self) -> bool {
        self.queue().parked.len() >= self.parked_max
    }

    /// Closes a descriptor that came from another process, by and by.
    pub(crate) fn close(&self, descriptor: OwnedFd) {
        let mut queue = self.queue();
        queue.parked.push_back(descriptor);
        if queue.threads >= THREADS_MAX {
            return;
        }
        queue.threads += 1;
        drop(queue);
        let shared = Arc::clone(&self.shared);
        if quiet_thread::spawn("closer", move || close_all(&shared)).is_err() {
            // It waits for the next one that is closed.
            self.queue().threads -= 1;
        }
    }

    /// Closes each of several.
    pub(crate) fn close_each(&self, descriptors: impl IntoIterator<Item = OwnedFd>) {
        descriptors.into_iter().for_each(|descriptor| self.close(descriptor));
    }

    /// Ends a connection: at once if no descriptor lies unread in it, otherwise by and by. The peer
    /// is told at once.
    pub(crate) fn end(&self, stream: impl Into<OwnedFd>) {
        let stream = stream.into();
        // From here on nothing more can be put in. One that is not connected any more has nothing
        // in it that counts.
        let _ = shutdown(&stream, Shutdown::Both);
        if self.is_drained(&stream) { drop(stream) } else { self.close(stream) }
    }

    /// Reads bytes with the descriptors that came with them, without waiting. `space` says how many
    /// of these there may be.
    ///
    /// # Errors
    /// `TOOBIG` when there are more, or this process can have no more: then nothing is taken, and
    /// the socket has to be [ended](Self::end). Otherwise what the kernel reports.
    pub(crate) fn receive(
        &self,
        stream: impl AsFd,
        bytes: &mut [u8],
        space: &mut [MaybeUninit<u8>],
    ) -> Result<(usize, Vec<OwnedFd>), Errno> {
        let mut again = vec![MaybeUninit::uninit(); space.len()];
        let (looked_at, held, fits) = recv_with(&stream, bytes, space, RecvFlags::PEEK)?;
        let taken = if !fits {
            Err(Errno::TOOBIG)
        } else if looked_at == 0 {
            Ok((0, Vec::new()))
        } else {
            // Whatever the kernel drops now is held here. Which descriptors came with these bytes
            // is known only now: a look that fills its buffer tells of those of the next message,
            // too.
            match recv_with(&stream, &mut bytes[..looked_at], &mut again, RecvFlags::empty()) {
                Ok((count, came, true)) => Ok((count, came)),
                Ok((_, came, false)) => {
                    self.close_each(came);
                    Err(Errno::TOOBIG)
                }
                Err(error) => Err(error),
            }
        };
        self.close_each(held);
        taken
    }

    /// Takes bytes out of a socket that is shut until it is empty; whether it is, and had no
    /// descriptors.
    fn is_drained(&self, stream: &OwnedFd) -> bool {
        let mut bytes = [0; PIECE_BYTES];
        for _ in 0..PIECES_MAX {
            match self.receive(stream, &mut bytes, &mut []) {
                Ok((0, _)) => return true,
                Ok(_) | Err(Errno::INTR | Errno::CONNRESET) => {}
                Err(_) => return false,
            }
        }
        false
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing in it can be half done.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn close_all(shared: &Mutex<Queue>) {
    loop {
        let mut queue = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(descriptor) = queue.parked.pop_front() else {
            queue.threads -= 1;
            return;
        };
        drop(queue);
        drop(descriptor);
    }
}

/// Has a socket give urgent bytes in their turn; otherwise the kernel drops one, and what came with
/// it, when that is read past.
pub(crate) fn prepare(stream: impl AsFd) -> rustix::io::Result<()> {
    sockopt::set_socket_oobinline(stream, true)
}

/// Bytes, descriptors, and whether these are all: those that are not the kernel has dropped, unless
/// this was a look.
pub(crate) fn recv_with(
    stream: impl AsFd,
    bytes: &mut [u8],
    space: &mut [MaybeUninit<u8>],
    how: RecvFlags,
) -> Result<(usize, Vec<OwnedFd>, bool), Errno> {
    let mut control = RecvAncillaryBuffer::new(space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT | how;
    let received = recvmsg(stream, &mut [IoSliceMut::new(bytes)], &mut control, flags)?;
    let mut descriptors: Vec<OwnedFd> = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(found) = message {
            descriptors.extend(found);
        }
    }
    Ok((received.bytes, descriptors, !received.flags.contains(ReturnFlags::CTRUNC)))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant};

    use super::*;

    /// An end is reported at once and takes no thread if no descriptor lies unread.
    ///
    /// Guarantee: keeper/descriptors
    #[test]
    fn end_without_descriptors_is_immediate() {
        let closer = Closer::new(1);
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(&[7; 100_000]).unwrap();
        closer.end(theirs);
        assert_eq!(Arc::strong_count(&closer.shared), 1, "a thread was started");
        assert_eq!(ours.read(&mut [0; 8]).unwrap(), 0);
    }

    /// What is parked is closed when the threads get to it.
    ///
    /// Guarantee: keeper/descriptors
    #[test]
    fn parked_descriptors_are_closed_by_the_threads() {
        let closer = Closer::new(4);
        closer.queue().threads = THREADS_MAX;
        let pairs: Vec<_> = (0..4).map(|_| UnixStream::pair().unwrap()).collect();
        let (mut ours, theirs): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
        assert!(!closer.is_full());
        closer.close_each(theirs.into_iter().map(OwnedFd::from));
        assert!(closer.is_full());
        // One of them gets to it.
        close_all(&closer.shared);
        assert!(!closer.is_full());
        for stream in &mut ours {
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
        }
    }

    /// More descriptors than there is room for stay where they are.
    ///
    /// Guarantee: keeper/descriptors
    #[test]
    fn excess_descriptors_stay_where_they_are() {
        let closer = Closer::new(1);
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (sent, mut kept) = UnixStream::pair().unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = rustix::net::SendAncillaryBuffer::new(&mut space);
        let given = [sent.as_fd()];
        assert!(control.push(rustix::net::SendAncillaryMessage::ScmRights(&given)));
        let bytes = [std::io::IoSlice::new(b"words")];
        rustix::net::sendmsg(&ours, &bytes, &mut control, rustix::net::SendFlags::empty()).unwrap();
        drop(sent);
        let mut into = [0; 16];
        assert_eq!(closer.receive(&theirs, &mut into, &mut []).unwrap_err(), Errno::TOOBIG);
        kept.set_nonblocking(true).unwrap();
        assert!(
            kept.read(&mut [0; 1])
                .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
        );
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (count, came) = closer.receive(&theirs, &mut into, &mut space).unwrap();
        assert_eq!((&into[..count], came.len()), (&b"words"[..], 1));
        closer.close_each(came);
        let started = Instant::now();
        while !matches!(kept.read(&mut [0; 1]), Ok(0)) {
            assert!(started.elapsed() < Duration::from_secs(10), "it was not closed");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
