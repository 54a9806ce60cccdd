//! One end of a channel: whole messages, sent and received with deadlines.
//!
//! Invariants:
//! - An interrupt that comes in the middle of a message is reported after it, unless the peer has
//!   stopped there, or the caller goes on with the message later ([`Endpoint::receive_by`],
//!   [`Endpoint::discard_by`], [`Endpoint::send_by`]).
//! - A message that was begun is finished, or the endpoint is of no use any more: after
//!   `PeerBroke`, and after an error in the middle of a message, each call fails.
//! - What a received header says was checked in the one copy of it; its payload has exactly the
//!   length that it says, which the caller's limit allows.
//! - A payload that does not fit stays, so that the caller may make room and ask again.

use core::cell::Cell;
use core::ptr::NonNull;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

use crate::Side;
use crate::error::ChannelError;
use crate::header::{Header, MORE};
use crate::layout::Layout;
use crate::protocol::{UNKNOWN_KIND, WRONG_WAY};
use crate::ring::{Consumer, Producer, Record};
use crate::shared::Shared;
use crate::sink::Sink;
use crate::wait::{Awaited, Deadline, Spin, Wait, wait_for};

/// How long a peer that has stopped in the middle of a message is waited for after an interrupt.
const STALL_NS: u64 = 1_000_000_000;

/// A message that is being taken, or sent.
#[derive(Debug, Clone, Copy)]
struct PartialMessage {
    header: Header,
    /// Bytes of the payload that were not taken, or sent, yet.
    left: u32,
}

impl PartialMessage {
    /// A message of which nothing was taken.
    fn whole(header: Header) -> PartialMessage {
        PartialMessage { header, left: header.payload_bytes }
    }
}

/// One end of a channel; `W` waits for the other end.
#[derive(Debug)]
pub struct Endpoint<W> {
    side: Side,
    producer: Producer,
    consumer: Consumer,
    room: Spin,
    data: Spin,
    /// Why it is of no use any more.
    failed: Option<ChannelError>,
    /// The message of which [`Endpoint::receive_by`] or [`Endpoint::discard_by`] has taken a part.
    partial: Option<PartialMessage>,
    /// The message of which [`Endpoint::send_by`] has sent a part; its header as it was given.
    unsent: Option<PartialMessage>,
    /// When an interrupt came that was not told yet.
    interrupted_ns: Cell<Option<u64>>,
    // Behind what leads to shared memory: a `W` may be what keeps that mapped.
    wait: W,
}

impl<W: Wait> Endpoint<W> {
    /// The end of `side` of a channel that is mapped from `base` with that layout, and in which
    /// nothing was sent yet.
    ///
    /// # Safety
    /// [`Layout::arena_offset`] bytes from `base` must be mapped for loads and stores as long as
    /// the endpoint lives, `base` aligned to 8 bytes, and nothing else in this process may touch
    /// them but atomically.
    #[must_use]
    pub unsafe fn new(
        base: NonNull<u8>,
        layout: &Layout,
        side: Side,
        wait: W,
    ) -> Option<Endpoint<W>> {
        let bytes = usize::try_from(layout.arena_offset()).ok()?;
        // SAFETY: the caller's contract is that of `Shared`.
        Endpoint::over(unsafe { Shared::new(base, bytes) }, layout, side, wait)
    }

    /// The same for memory that a side has promised all this of; `None` when it is too short.
    #[must_use]
    pub fn over(memory: Shared, layout: &Layout, side: Side, wait: W) -> Option<Endpoint<W>> {
        let ring_bytes = layout.ring_bytes();
        let ring = |offset| memory.part(offset, layout.ring_total_bytes());
        let (host, applet) = (ring(layout.host_ring_offset())?, ring(layout.applet_ring_offset())?);
        let (out, into) = match side {
            Side::Host => (host, applet),
            Side::Applet => (applet, host),
        };
        Some(Endpoint {
            side,
            producer: Producer::new(out, ring_bytes)?,
            consumer: Consumer::new(into, ring_bytes)?,
            room: Spin::new(),
            data: Spin::new(),
            failed: None,
            partial: None,
            unsent: None,
            interrupted_ns: Cell::new(None),
            wait,
        })
    }

    /// What waits for it.
    pub fn waiter(&self) -> &W {
        &self.wait
    }

    /// The moment that long from now.
    pub fn deadline_in(&self, time: Duration) -> Deadline {
        Deadline::after(self.wait.now_ns(), time)
    }

    /// Sends a message. Length and [`MORE`] of the header are set here; the rest goes out as it is.
    ///
    /// # Errors
    /// `PeerBroke`, `PeerGone`, `TimedOut` and `Interrupted` while waiting for room; `TooLarge` for
    /// a payload of 4 GiB or more; `HalfDone` after an error in the middle of a message.
    pub fn send(
        &mut self,
        header: &Header,
        payload: &[u8],
        deadline: Deadline,
    ) -> Result<(), ChannelError> {
        self.sendable(payload)?;
        if self.unsent.is_some() {
            // Its rest comes first, and only `send_by` can send it.
            return Err(ChannelError::HalfDone);
        }
        let most = self.producer.piece_bytes_max();
        let mut rest = payload;
        let mut is_first = true;
        loop {
            let (record, piece, behind) = next_piece(header, rest, most);
            let pushed = self.push(&record, piece, deadline, !is_first);
            self.keep(pushed, !is_first)?;
            is_first = false;
            rest = behind;
            if rest.is_empty() {
                return Ok(());
            }
        }
    }

    /// As [`Endpoint::send`], for who has other things to do: it comes back with `false` at `turn`
    /// and with an interrupt, also in the middle of a message. The next call goes on with that one,
    /// and must be given the same header and payload; until then there is no other way to send.
    ///
    /// # Errors
    /// As [`Endpoint::send`], but for `Interrupted`; `TimedOut` at `deadline` only, and in the
    /// middle of a message nothing can follow it. `HalfDone`, and nothing done, for another header
    /// in the middle of a message.
    pub fn send_by(
        &mut self,
        header: &Header,
        payload: &[u8],
        deadline: Deadline,
        turn: Deadline,
    ) -> Result<bool, ChannelError> {
        self.sendable(payload)?;
        let until = deadline.min(turn);
        let most = self.producer.piece_bytes_max();
        if self.unsent.is_some_and(|begun| begun.header != *header) {
            // The rest of that message comes first.
            return Err(ChannelError::HalfDone);
        }
        let mut in_message = self.unsent.is_some();
        let left = self.unsent.take().map_or(payload.len(), |begun| begun.left as usize);
        let mut rest = payload.get(payload.len().saturating_sub(left)..).unwrap_or_default();
        loop {
            let (record, piece, behind) = next_piece(header, rest, most);
            match self.push(&record, piece, until, false) {
                Err(error) if self.is_for_a_turn(error, deadline) => {
                    // A payload of 4 GiB or more is refused before.
                    let left = rest.len() as u32;
                    self.unsent = in_message.then_some(PartialMessage { header: *header, left });
                    return Ok(false);
                }
                pushed => self.keep(pushed, in_message)?,
            }
            in_message = true;
            rest = behind;
            if rest.is_empty() {
                return Ok(true);
            }
        }
    }

    /// Whether such a payload can be sent at all.
    fn sendable(&self, payload: &[u8]) -> Result<(), ChannelError> {
        self.usable()?;
        if u32::try_from(payload.len()).is_err() {
            return Err(ChannelError::TooLarge {
                bytes: payload.len() as u64,
                limit_bytes: u64::from(u32::MAX),
            });
        }
        if self.wait.peer_is_gone() { Err(ChannelError::PeerGone) } else { Ok(()) }
    }

    /// Whether an interrupt was not told yet: it is taken back.
    pub fn take_interrupt(&self) -> bool {
        self.interrupted_ns.take().is_some() | self.wait.take_interrupt()
    }

    /// Waits for a message and returns its header, whole length included, without taking it.
    ///
    /// # Errors
    /// `PeerBroke`, `PeerGone`, `TimedOut`, `Interrupted`; `HalfDone` after an error in the middle
    /// of a message.
    pub fn peek(&mut self, deadline: Deadline) -> Result<Header, ChannelError> {
        self.usable()?;
        if self.partial.is_some() {
            // Its rest comes first, and only who has begun with it can take it.
            return Err(ChannelError::HalfDone);
        }
        if self.take_interrupt() {
            return Err(ChannelError::Interrupted);
        }
        let record = self.first(deadline);
        let record = self.keep(record, false)?;
        Ok(Header { flags: record.header.flags & !MORE, ..record.header })
    }

    /// Waits for a message and takes it: the payload goes to `sink`, the header is returned, with
    /// the length of the whole and without [`MORE`].
    ///
    /// # Errors
    /// As [`Endpoint::peek`]; `TooLarge` when the payload exceeds `limit_bytes` and `NoRoom` when
    /// the sink refuses it: the message stays then, for another try or [`Endpoint::discard`].
    pub fn receive(
        &mut self,
        sink: &mut impl Sink,
        limit_bytes: u64,
        deadline: Deadline,
    ) -> Result<Header, ChannelError> {
        let mut message = self.begin(sink, limit_bytes, deadline)?;
        let taken = self
            .take_all(&mut message, deadline, true, |consumer, bytes| give(consumer, sink, bytes));
        self.keep(taken, true).map(|()| message.header)
    }

    /// As [`Endpoint::receive`], for who has other things to do: it comes back with `None` at
    /// `turn` and with an interrupt, also in the middle of a message. The next call goes on with
    /// that one, and must be given the same sink; until then there is no other way to receive.
    ///
    /// # Errors
    /// As [`Endpoint::receive`], but for `Interrupted`; `TimedOut` at `deadline` only, and in the
    /// middle of a message nothing can follow it.
    pub fn receive_by(
        &mut self,
        sink: &mut impl Sink,
        limit_bytes: u64,
        deadline: Deadline,
        turn: Deadline,
    ) -> Result<Option<Header>, ChannelError> {
        let until = deadline.min(turn);
        let begun = self.begin_by(deadline, |this| this.begin(sink, limit_bytes, until))?;
        let Some(message) = begun else { return Ok(None) };
        self.go_on(message, deadline, until, |consumer, bytes| give(consumer, sink, bytes))
    }

    /// The message of which a part was taken, else the one that `begin` finds; `None` when the wait
    /// for one was given up for the caller's sake.
    fn begin_by(
        &mut self,
        deadline: Deadline,
        begin: impl FnOnce(&mut Self) -> Result<PartialMessage, ChannelError>,
    ) -> Result<Option<PartialMessage>, ChannelError> {
        self.usable()?;
        if let Some(message) = self.partial.take() {
            return Ok(Some(message));
        }
        match begin(self) {
            Err(error) if self.is_for_a_turn(error, deadline) => Ok(None),
            begun => begun.map(Some),
        }
    }

    /// Takes what is left of a message, up to a turn.
    fn go_on(
        &mut self,
        mut message: PartialMessage,
        deadline: Deadline,
        until: Deadline,
        take: impl FnMut(&mut Consumer, usize) -> Result<(), ChannelError>,
    ) -> Result<Option<Header>, ChannelError> {
        if self.take_interrupt() {
            self.partial = Some(message);
            return Ok(None);
        }
        match self.take_all(&mut message, until, false, take) {
            Err(error) if self.is_for_a_turn(error, deadline) => {
                self.partial = Some(message);
                Ok(None)
            }
            taken => self.keep(taken, true).map(|()| Some(message.header)),
        }
    }

    /// Whether a wait was given up for the caller's sake.
    fn is_for_a_turn(&self, error: ChannelError, deadline: Deadline) -> bool {
        match error {
            ChannelError::Interrupted => true,
            ChannelError::TimedOut => !deadline.has_passed(&self.wait),
            _ => false,
        }
    }

    /// Waits for a message, and finds room for it.
    fn begin(
        &mut self,
        sink: &mut impl Sink,
        limit_bytes: u64,
        deadline: Deadline,
    ) -> Result<PartialMessage, ChannelError> {
        let header = self.peek(deadline)?;
        let bytes = u64::from(header.payload_bytes);
        if bytes > limit_bytes {
            return Err(ChannelError::TooLarge { bytes, limit_bytes });
        }
        let no_room = ChannelError::NoRoom { needed_bytes: bytes };
        sink.begin(header.payload_bytes as usize).map_err(|_| no_room)?;
        Ok(PartialMessage::whole(header))
    }

    /// The same, without waiting for a message that is not there: `None` then.
    ///
    /// # Errors
    /// As [`Endpoint::receive`]; `TimedOut` when the rest of a message that has begun does not
    /// follow in time.
    pub fn try_receive(
        &mut self,
        sink: &mut impl Sink,
        limit_bytes: u64,
        deadline: Deadline,
    ) -> Result<Option<Header>, ChannelError> {
        match self.peek(Deadline::NOW) {
            Ok(_) => self.receive(sink, limit_bytes, deadline).map(Some),
            Err(ChannelError::TimedOut) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Passes over the next message.
    ///
    /// # Errors
    /// As [`Endpoint::peek`].
    pub fn discard(&mut self, deadline: Deadline) -> Result<Header, ChannelError> {
        let header = self.peek(deadline)?;
        let mut message = PartialMessage::whole(header);
        let passed = self.take_all(&mut message, deadline, true, |consumer, _| consumer.skip());
        self.keep(passed, true).map(|()| header)
    }

    /// As [`Endpoint::discard`], for who has other things to do: it comes back with `None` at
    /// `turn` and with an interrupt, also in the middle of the message. The next call goes on with
    /// that one; until then there is no other way to receive.
    ///
    /// # Errors
    /// As [`Endpoint::discard`], but for `Interrupted`; `TimedOut` at `deadline` only, and in the
    /// middle of a message nothing can follow it.
    pub fn discard_by(
        &mut self,
        deadline: Deadline,
        turn: Deadline,
    ) -> Result<Option<Header>, ChannelError> {
        let until = deadline.min(turn);
        let begun = self.begin_by(deadline, |this| this.peek(until).map(PartialMessage::whole))?;
        let Some(message) = begun else { return Ok(None) };
        self.go_on(message, deadline, until, |consumer, _| consumer.skip())
    }

    fn usable(&self) -> Result<(), ChannelError> {
        self.failed.map_or(Ok(()), Err)
    }

    /// Remembers an error that leaves nothing to go on with.
    fn keep<T>(
        &mut self,
        result: Result<T, ChannelError>,
        in_message: bool,
    ) -> Result<T, ChannelError> {
        match &result {
            Err(error @ ChannelError::PeerBroke { .. }) => self.failed = Some(*error),
            Err(_) if in_message => self.failed = Some(ChannelError::HalfDone),
            _ => {}
        }
        result
    }

    fn push(
        &mut self,
        header: &Header,
        piece: &[u8],
        deadline: Deadline,
        in_message: bool,
    ) -> Result<(), ChannelError> {
        let mut pushing = Pushing { producer: &mut self.producer, header, piece, is_pushed: false };
        let wait = Begun { wait: &self.wait, in_message, interrupted_ns: &self.interrupted_ns };
        match wait_for(&wait, &mut self.room, deadline, &mut pushing) {
            // It has gone, although the time is over: a caller that tries again must not send it
            // twice, and the peer may sleep.
            Err(ChannelError::TimedOut) if pushing.is_pushed => {}
            waited => waited?,
        }
        if let Some(word) = self.producer.sleeping_consumer()? {
            self.wait.wake(word);
        }
        Ok(())
    }

    /// The next record, when it is there.
    fn record(&mut self, deadline: Deadline, in_message: bool) -> Result<Record, ChannelError> {
        let wait = Begun { wait: &self.wait, in_message, interrupted_ns: &self.interrupted_ns };
        wait_for(&wait, &mut self.data, deadline, &mut self.consumer)?;
        self.consumer.poll()?.ok_or(ChannelError::TimedOut)
    }

    /// The record with which a message begins.
    fn first(&mut self, deadline: Deadline) -> Result<Record, ChannelError> {
        let record = self.record(deadline, false)?;
        match record.header.kind() {
            Some(kind) if kind.sender() == self.side.other() => Ok(record),
            Some(_) => Err(ChannelError::PeerBroke { what: WRONG_WAY }),
            None => Err(ChannelError::PeerBroke { what: UNKNOWN_KIND }),
        }
    }

    /// All records of a message that were not taken yet. Interrupts are kept for later, or end it.
    fn take_all(
        &mut self,
        message: &mut PartialMessage,
        deadline: Deadline,
        keeps_interrupts: bool,
        mut take: impl FnMut(&mut Consumer, usize) -> Result<(), ChannelError>,
    ) -> Result<(), ChannelError> {
        loop {
            let record = self.record(deadline, keeps_interrupts)?;
            let Header { payload_bytes, kind, call, .. } = record.header;
            if (payload_bytes, kind, call)
                != (message.left, message.header.kind, message.header.call)
            {
                return Err(ChannelError::PeerBroke {
                    what: "went on with another message in the middle of one",
                });
            }
            take(&mut self.consumer, record.piece_bytes as usize)?;
            if let Some(word) = self.consumer.sleeping_producer()? {
                self.wait.wake(word);
            }
            message.left -= record.piece_bytes;
            if message.left == 0 {
                return Ok(());
            }
        }
    }
}

/// The next record of a message of which `rest` was not sent yet: its header, its piece, and what
/// follows that.
fn next_piece<'a>(header: &Header, rest: &'a [u8], most: u32) -> (Header, &'a [u8], &'a [u8]) {
    // A payload of 4 GiB or more is refused before.
    let left = rest.len() as u32;
    let (piece, behind) = rest.split_at(left.min(most) as usize);
    let flags = header.flags & !MORE | if left > most { MORE } else { 0 };
    (Header { payload_bytes: left, flags, ..*header }, piece, behind)
}

/// Copies the record that was polled to where the sink wants it.
fn give(consumer: &mut Consumer, sink: &mut impl Sink, bytes: usize) -> Result<(), ChannelError> {
    let no_room = |_| ChannelError::NoRoom { needed_bytes: bytes as u64 };
    consumer.take(sink.next(bytes).map_err(no_room)?)
}

/// Waits as another one does, but in the middle of a message keeps interrupts for later.
struct Begun<'a, W> {
    wait: &'a W,
    in_message: bool,
    interrupted_ns: &'a Cell<Option<u64>>,
}

impl<W: Wait> Wait for Begun<'_, W> {
    fn now_ns(&self) -> u64 {
        self.wait.now_ns()
    }

    fn sleep(&self, word: &AtomicU32, expected: u32, deadline: Deadline) {
        self.wait.sleep(word, expected, deadline);
    }

    fn wake(&self, word: &AtomicU32) {
        self.wait.wake(word);
    }

    fn peer_is_gone(&self) -> bool {
        self.wait.peer_is_gone()
    }

    fn take_interrupt(&self) -> bool {
        if !self.in_message {
            return self.wait.take_interrupt();
        }
        if self.wait.take_interrupt() && self.interrupted_ns.get().is_none() {
            self.interrupted_ns.set(Some(self.wait.now_ns()));
        }
        // A side that waits looks here again with every wake-up, and at least once a second.
        self.interrupted_ns
            .get()
            .is_some_and(|since| self.wait.now_ns().saturating_sub(since) >= STALL_NS)
    }

    fn spin_ns_max(&self) -> u64 {
        self.wait.spin_ns_max()
    }
}

/// A record on its way into the ring: what is waited for is room.
struct Pushing<'a> {
    producer: &'a mut Producer,
    header: &'a Header,
    piece: &'a [u8],
    is_pushed: bool,
}

impl Awaited for Pushing<'_> {
    fn futex(&self) -> Result<&AtomicU32, ChannelError> {
        self.producer.futex()
    }

    fn look(&mut self) -> Result<bool, ChannelError> {
        self.is_pushed = self.producer.push(self.header, self.piece)?;
        Ok(self.is_pushed)
    }
}

impl Awaited for Consumer {
    fn futex(&self) -> Result<&AtomicU32, ChannelError> {
        Consumer::futex(self)
    }

    fn look(&mut self) -> Result<bool, ChannelError> {
        self.poll().map(|record| record.is_some())
    }
}
