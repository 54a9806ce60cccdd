//! One user's connection: frames in and out with their descriptors, never more than one of each.
//!
//! Invariants:
//! - Nothing here waits. What is kept is one request, one answer, and the descriptors of both.
//! - No byte after a request is read before that request has its answer: what a client sends ahead
//!   stays in its socket.
//! - A slow client is dropped: with a request that does not end, an answer that is not taken,
//!   descriptors that are not acknowledged.
//! - What the peer sent, and the connection itself, is closed by the [`Closer`].

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use holdfast_region::RegionName;
use holdfast_sys::process::ProcessId;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::closer::{self, Closer};
use holdfast_keeper_client::served_wire::{
    DESCRIPTORS_LENT, RefusedKind, SERVED_REQUEST_BYTES_MAX, SERVED_VERSION, ServedAnswer,
    ServedAsk,
};
use holdfast_keeper_client::wire::{BadRequest, LENGTH_BYTES, Reply, frame, length, parse_request};

/// What a connection is in the middle of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It may ask.
    Asks,
    /// Its request waits for its turn, or is being worked at.
    Waits,
    /// Its answer is on its way.
    Sends(AfterAnswer),
    /// Nothing more.
    Over,
}

/// What comes after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterAnswer {
    /// The next request.
    Asks,
    /// The word that the descriptors arrived.
    Taken,
    /// The end.
    HangsUp,
}

/// The connection of one user.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) id: u64,
    pub(crate) user: u32,
    /// The process that connected; none if it is in a name space of its own, or could not be seen.
    pub(crate) process: Option<ProcessId>,
    /// The region that it has, or is about to get.
    pub(crate) region: Option<RegionName>,
    /// It had one: descriptors were sent, and are not sent again.
    pub(crate) has_borrowed: bool,
    /// When it was answered last, to be fair among those of one user.
    pub(crate) served: u64,
    pub(crate) ask: Option<ServedAsk>,
    pub(crate) given: Option<OwnedFd>,
    stream: UnixStream,
    stage: Stage,
    owes_taken: bool,
    received: Vec<u8>,
    answer: Vec<u8>,
    sent: usize,
    lent: Vec<OwnedFd>,
    ends: Option<Instant>,
    patience: Duration,
    idle: Duration,
    closer: Closer,
}

impl Connection {
    pub(crate) fn new(
        id: u64,
        stream: UnixStream,
        (user, process): (u32, Option<ProcessId>),
        (patience, idle): (Duration, Duration),
        closer: Closer,
        now: Instant,
    ) -> Connection {
        Connection {
            id,
            user,
            process,
            region: None,
            has_borrowed: false,
            served: 0,
            ask: None,
            given: None,
            stream,
            stage: Stage::Asks,
            owes_taken: false,
            received: Vec::new(),
            answer: Vec::new(),
            sent: 0,
            lent: Vec::new(),
            ends: Some(now + idle),
            patience,
            idle,
            closer,
        }
    }

    /// The end, told to the peer.
    pub(crate) fn end(self) {
        self.closer.close_each(self.given);
        self.closer.end(self.stream);
    }

    pub(crate) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// When it is dropped, if nothing more comes or goes until then.
    pub(crate) fn ends(&self) -> Option<Instant> {
        self.ends
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// What to wait for.
    pub(crate) fn waits_for(&self) -> PollFlags {
        match self.stage {
            Stage::Asks => PollFlags::IN,
            Stage::Sends(_) => PollFlags::OUT,
            // Its hang-up is reported all the same, and found when its answer cannot be sent.
            Stage::Waits | Stage::Over => PollFlags::empty(),
        }
    }

    pub(crate) fn hang_up(&mut self) {
        self.stage = Stage::Over;
    }

    /// Goes on as far as that is possible without waiting; a request that is no good is answered.
    ///
    /// Whether something was refused.
    pub(crate) fn go_on(&mut self, now: Instant) -> bool {
        let before = (self.stage, self.ends);
        let is_refused = match self.stage {
            Stage::Asks => match self.receive(now) {
                Ok(()) => false,
                Err(why) => {
                    let why = why.to_string();
                    let refused = ServedAnswer::Refused { kind: RefusedKind::Malformed, why };
                    self.answer(&refused, Vec::new(), AfterAnswer::HangsUp, now);
                    true
                }
            },
            Stage::Sends(after) => {
                self.send(after, now);
                false
            }
            Stage::Waits | Stage::Over => false,
        };
        // What had come in time counts, however long the keeper was busy with others before it
        // looked.
        if (self.stage, self.ends) == before && self.ends.is_some_and(|ends| now >= ends) {
            self.hang_up();
        }
        is_refused
    }

    fn receive(&mut self, now: Instant) -> Result<(), BadRequest> {
        loop {
            // Up to the end of the length, then up to the end of the frame: the descriptors of the
            // next one come with it.
            let wanted = match length(&self.received) {
                None => LENGTH_BYTES - self.received.len(),
                Some(bytes) if bytes > SERVED_REQUEST_BYTES_MAX => {
                    return Err(BadRequest::TooLong { bytes, bytes_max: SERVED_REQUEST_BYTES_MAX });
                }
                Some(bytes) => LENGTH_BYTES + bytes - self.received.len(),
            };
            if wanted == 0 {
                let parsed =
                    parse_request(&self.received, SERVED_VERSION, SERVED_REQUEST_BYTES_MAX);
                return match parsed
                    .unwrap_or_else(|| Err(BadRequest::Malformed("half a frame".to_owned())))
                {
                    Ok(ServedAsk::Taken) if self.owes_taken => {
                        self.owes_taken = false;
                        self.expect(now);
                        Ok(())
                    }
                    Ok(_) if self.owes_taken => {
                        Err(BadRequest::Malformed("`taken` must come after `lent`".to_owned()))
                    }
                    Ok(ask) => {
                        if self.given.is_some() && !matches!(ask, ServedAsk::Resume { .. }) {
                            return Err(BadRequest::Malformed(
                                "a descriptor that nobody asked for".to_owned(),
                            ));
                        }
                        self.ask = Some(ask);
                        self.stage = Stage::Waits;
                        self.ends = None;
                        Ok(())
                    }
                    Err(why) => Err(why),
                };
            }
            let begins = self.received.is_empty();
            match self.read(wanted) {
                Ok(0) => {
                    self.hang_up();
                    return Ok(());
                }
                // From the first byte on, however slowly the others come.
                Ok(_) if begins => self.ends = Some(now + self.patience),
                Ok(_) => {}
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::TOOBIG) => {
                    return Err(BadRequest::Malformed("more than one descriptor".to_owned()));
                }
                Err(_) => {
                    self.hang_up();
                    return Ok(());
                }
            }
        }
    }

    /// Reads so many bytes at most, and the descriptor that comes with them.
    fn read(&mut self, wanted: usize) -> Result<usize, Errno> {
        let mut piece = [0; 1024];
        let bytes = wanted.min(piece.len());
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (count, came) = self.closer.receive(&self.stream, &mut piece[..bytes], &mut space)?;
        let mut too_many = false;
        for descriptor in came {
            let before = self.given.replace(descriptor);
            too_many |= before.is_some();
            self.closer.close_each(before);
        }
        if too_many {
            return Err(Errno::TOOBIG);
        }
        self.received.extend_from_slice(&piece[..count]);
        Ok(count)
    }

    /// Begins to answer.
    pub(crate) fn answer(
        &mut self,
        answer: &ServedAnswer,
        lent: Vec<OwnedFd>,
        after: AfterAnswer,
        now: Instant,
    ) {
        // What the answer took is none of the time that its receiver has.
        let now = now.max(Instant::now());
        self.answer = frame(&Reply { version: SERVED_VERSION, answer });
        self.sent = 0;
        self.lent = lent;
        self.closer.close_each(self.given.take());
        self.stage = Stage::Sends(after);
        self.ends = Some(now + self.patience);
        self.send(after, now);
    }

    fn send(&mut self, after: AfterAnswer, now: Instant) {
        while self.sent < self.answer.len() {
            match self.write() {
                Ok(0) => return self.hang_up(),
                Ok(count) => {
                    self.sent += count;
                    self.lent.clear();
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Err(_) => return self.hang_up(),
            }
        }
        match after {
            AfterAnswer::HangsUp => self.hang_up(),
            AfterAnswer::Asks => self.expect(now),
            AfterAnswer::Taken => {
                self.expect(now);
                self.owes_taken = true;
                self.ends = Some(now + self.patience);
            }
        }
    }

    fn write(&mut self) -> Result<usize, Errno> {
        let descriptors: Vec<_> = self.lent.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_LENT))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
            return Err(Errno::TOOBIG);
        }
        let bytes = [IoSlice::new(&self.answer[self.sent..])];
        sendmsg(&self.stream, &bytes, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
    }

    /// The next request may come, whenever it likes if there is a region.
    fn expect(&mut self, now: Instant) {
        self.stage = Stage::Asks;
        self.received.clear();
        self.answer = Vec::new();
        self.ends = self.region.is_none().then_some(now + self.idle);
    }
}

/// A stream that never waits, and who is at its other end.
pub(crate) fn peer(stream: &UnixStream) -> io::Result<(u32, Option<ProcessId>)> {
    stream.set_nonblocking(true)?;
    closer::prepare(stream)?;
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    let process = u32::try_from(peer.pid.as_raw_pid()).ok();
    let process = process.and_then(|pid| ProcessId::of(pid).ok().flatten());
    Ok((peer.uid.as_raw(), process))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    fn connected(now: Instant) -> (Connection, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let connection =
            Connection::new(1, ours, (7, None), (PATIENCE, PATIENCE), Closer::new(1), now);
        theirs.set_read_timeout(Some(PATIENCE)).unwrap();
        (connection, theirs)
    }

    /// Of an earlier attempt: a flush of 6 s ended the loans of all whose word of taking had come
    /// meanwhile.
    ///
    /// Guarantee: keeper/timeouts
    #[test]
    fn timely_message_counts_when_read_late() {
        let now = Instant::now();
        let (mut connection, mut client) = connected(now);
        connection.answer(&ServedAnswer::Closed, Vec::new(), AfterAnswer::Taken, now);
        client.read_exact(&mut [0; 4]).unwrap();
        client.write_all(b"\x1b\0\0\0{\"version\":2,\"ask\":\"taken\"}").unwrap();
        let late = Instant::now() + 2 * PATIENCE;
        assert!(!connection.go_on(late) && !connection.is_over() && !connection.owes_taken);
        client.write_all(b"\x1a\0\0\0{\"version\":2,\"ask\":\"list\"}").unwrap();
        assert!(!connection.go_on(late + 2 * PATIENCE) && connection.ask.is_some());
    }

    /// Guarantee: keeper/timeouts
    #[test]
    fn who_did_not_say_it_in_time_is_hung_up_on() {
        for sent in [&b""[..], &b"\x1b\0\0\0{\"vers"[..]] {
            let now = Instant::now();
            let (mut connection, mut client) = connected(now);
            connection.answer(&ServedAnswer::Closed, Vec::new(), AfterAnswer::Taken, now);
            client.write_all(sent).unwrap();
            let _ = connection.go_on(Instant::now());
            assert!(!connection.is_over());
            connection.go_on(Instant::now() + 2 * PATIENCE);
            assert!(connection.is_over());
        }
    }
}
