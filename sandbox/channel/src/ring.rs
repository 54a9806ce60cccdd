//! One direction: a ring of bytes with one producer and one consumer, in shared memory.
//!
//! A control page, then the data. Two lines of 128 bytes in the control page hold what one side
//! writes and the other reads: the producer's position and the word on which a consumer without
//! data sleeps; the consumer's position and the word on which a producer without room sleeps.
//! Positions only grow, in steps of 64; a position's place in the data is its remainder.
//!
//! Invariants:
//! - Each side keeps its own position in private memory and only tells it the other; so nothing
//!   that the other side writes can move it.
//! - The other side's position is one load, which must not go back, must be a multiple of 64, and
//!   must keep the two positions at most a ring apart; whatever breaks this is
//!   [`ChannelError::PeerBroke`].
//! - A header is copied once, and what was checked in the copy is what is used: lengths are never
//!   loaded again.
//!
//! What it must not do: wait. [`wait`](crate::wait) does that, on the words that are named here.

#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, Ordering, fence};

use zerocopy::{FromBytes, IntoBytes};

use crate::error::ChannelError;
use crate::header::{
    FORGET, HEADER_BYTES, Header, MORE, RECORD_ALIGN, piece_bytes_max, record_bytes,
};
use crate::layout::CONTROL_BYTES;
use crate::protocol::MessageKind;
use crate::shared::Shared;

/// Producer's line of the control page: its position.
pub const PRODUCER_POSITION: usize = 0;
/// The same line: set by a consumer that sleeps until there is data.
pub const DATA_WORD: usize = 8;
/// Consumer's line: its position.
pub const CONSUMER_POSITION: usize = 128;
/// The same line: set by a producer that sleeps until there is room.
pub const ROOM_WORD: usize = 136;

/// A word says that a side sleeps on it.
pub(crate) const SLEEPING: u32 = 1;
/// A word says that no side does.
pub(crate) const AWAKE: u32 = 0;

/// What both ends have.
#[derive(Debug)]
struct Ring {
    control: Shared,
    data: Shared,
    ring_bytes: u32,
}

impl Ring {
    fn new(ring: Shared, ring_bytes: u32) -> Option<Ring> {
        let is_ring = ring_bytes.is_power_of_two() && ring_bytes >= 4 * HEADER_BYTES;
        let control = ring.part(0, CONTROL_BYTES).filter(|_| is_ring)?;
        let data = ring.part(CONTROL_BYTES, u64::from(ring_bytes))?;
        Some(Ring { control, data, ring_bytes })
    }

    /// One load of the other side's position.
    fn position(&self, at: usize) -> Result<u64, ChannelError> {
        Ok(self.control.word(at).ok_or(OUTSIDE)?.load(Ordering::Acquire))
    }

    fn publish(&self, at: usize, position: u64) -> Result<(), ChannelError> {
        self.control.word(at).ok_or(OUTSIDE)?.store(position, Ordering::Release);
        Ok(())
    }

    fn futex(&self, at: usize) -> Result<&AtomicU32, ChannelError> {
        self.control.half(at).ok_or(OUTSIDE)
    }

    /// Whether a side sleeps on a word; the word is cleared then, and the caller must wake
    /// it.
    fn sleeper(&self, at: usize) -> Result<Option<&AtomicU32>, ChannelError> {
        let word = self.futex(at)?;
        // Between the store of a position and this load; the other half is in `wait`. The position
        // is on its way meanwhile.
        fence(Ordering::SeqCst);
        if word.load(Ordering::Relaxed) == AWAKE {
            return Ok(None);
        }
        word.store(AWAKE, Ordering::Relaxed);
        Ok(Some(word))
    }

    /// Where a position is in the data, and how many of `bytes` bytes lie there before the ring
    /// begins anew.
    fn place(&self, position: u64, bytes: usize) -> (usize, usize) {
        let at = position as usize & (self.ring_bytes as usize - 1);
        (at, bytes.min(self.ring_bytes as usize - at))
    }

    fn read(&self, position: u64, into: &mut [u8]) -> Result<(), ChannelError> {
        let (at, first) = self.place(position, into.len());
        let (before, behind) = into.split_at_mut(first);
        self.data.read(at, before).and_then(|()| self.data.read(0, behind)).ok_or(OUTSIDE)
    }

    fn write(&self, position: u64, from: &[u8]) -> Result<(), ChannelError> {
        let (at, first) = self.place(position, from.len());
        let (before, behind) = from.split_at(first);
        self.data.write(at, before).and_then(|()| self.data.write(0, behind)).ok_or(OUTSIDE)
    }
}

/// The end that writes.
#[derive(Debug)]
pub struct Producer {
    ring: Ring,
    /// Where the next record goes: ours, never loaded.
    head: u64,
    /// Where the consumer was when we looked last.
    tail: u64,
}

impl Producer {
    /// The producer of an unused ring, which begins with its control page; `None` if the sizes do
    /// not fit.
    #[must_use]
    pub fn new(ring: Shared, ring_bytes: u32) -> Option<Producer> {
        Some(Producer { ring: Ring::new(ring, ring_bytes)?, head: 0, tail: 0 })
    }

    /// The most that one record carries.
    #[must_use]
    pub fn piece_bytes_max(&self) -> u32 {
        piece_bytes_max(self.ring.ring_bytes)
    }

    /// Puts one record in, with `piece` behind the header, and makes it visible; `false`, and
    /// nothing done, when there is no room for it. The header goes out as it is:
    /// [`Endpoint`](crate::Endpoint) sets lengths and flags.
    ///
    /// # Errors
    /// `PeerBroke` when the consumer's position is impossible, `TooLarge` for a piece that never
    /// fits.
    pub fn push(&mut self, header: &Header, piece: &[u8]) -> Result<bool, ChannelError> {
        let most = u64::from(self.piece_bytes_max());
        let Some(piece_bytes) =
            u32::try_from(piece.len()).ok().filter(|bytes| u64::from(*bytes) <= most)
        else {
            return Err(ChannelError::TooLarge { bytes: piece.len() as u64, limit_bytes: most });
        };
        let record = record_bytes(piece_bytes);
        if self.room() < record {
            self.look()?;
            if self.room() < record {
                return Ok(false);
            }
        }
        self.ring.write(self.head, header.as_bytes())?;
        self.ring.write(self.head + u64::from(HEADER_BYTES), piece)?;
        self.head += record;
        self.ring.publish(PRODUCER_POSITION, self.head)?;
        Ok(true)
    }

    /// The word on which the consumer sleeps, if it does. Ask after a push, and wake it.
    ///
    /// # Errors
    /// None in practice.
    pub fn sleeping_consumer(&self) -> Result<Option<&AtomicU32>, ChannelError> {
        self.ring.sleeper(DATA_WORD)
    }

    /// The word on which this producer sleeps until there is room.
    pub(crate) fn futex(&self) -> Result<&AtomicU32, ChannelError> {
        self.ring.futex(ROOM_WORD)
    }

    fn room(&self) -> u64 {
        u64::from(self.ring.ring_bytes) - (self.head - self.tail)
    }

    fn look(&mut self) -> Result<(), ChannelError> {
        let tail = self.ring.position(CONSUMER_POSITION)?;
        if !(self.tail..=self.head).contains(&tail) || !tail.is_multiple_of(RECORD_ALIGN) {
            return Err(ChannelError::PeerBroke {
                what: "claims to have read what was never sent",
            });
        }
        self.tail = tail;
        Ok(())
    }
}

/// A record whose header was copied and checked, and whose payload was not taken yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The copy.
    pub header: Header,
    /// Bytes of the payload in this record.
    pub piece_bytes: u32,
}

/// The end that reads.
#[derive(Debug)]
pub struct Consumer {
    ring: Ring,
    /// Where the next record is: ours, never loaded.
    tail: u64,
    /// Where the producer was when we looked last.
    head: u64,
    current: Option<Record>,
}

impl Consumer {
    /// The consumer of an unused ring, which begins with its control page; `None` if the sizes do
    /// not fit.
    #[must_use]
    pub fn new(ring: Shared, ring_bytes: u32) -> Option<Consumer> {
        Some(Consumer { ring: Ring::new(ring, ring_bytes)?, tail: 0, head: 0, current: None })
    }

    /// The next record, if there is one. Its header is copied at the first call; until the payload
    /// is taken later calls return that copy.
    ///
    /// # Errors
    /// `PeerBroke` when position or header are impossible.
    pub fn poll(&mut self) -> Result<Option<Record>, ChannelError> {
        if self.current.is_none() {
            if self.head == self.tail {
                self.look()?;
            }
            if self.head == self.tail {
                return Ok(None);
            }
            self.current = Some(self.copy_header()?);
        }
        Ok(self.current)
    }

    /// Takes the payload of the record that [`Consumer::poll`] returned, into memory of exactly its
    /// [`piece_bytes`](Record::piece_bytes), and gives its room back to the producer.
    ///
    /// # Errors
    /// `NoRoom` when there is no such record, or the memory is not of its size; the record stays
    /// then.
    pub fn take(&mut self, into: &mut [u8]) -> Result<(), ChannelError> {
        let piece_bytes = self.current.map_or(0, |record| record.piece_bytes);
        if self.current.is_none() || into.len() != piece_bytes as usize {
            return Err(ChannelError::NoRoom { needed_bytes: u64::from(piece_bytes) });
        }
        self.ring.read(self.tail + u64::from(HEADER_BYTES), into)?;
        self.skip()
    }

    /// Passes over the record that [`Consumer::poll`] returned, if any.
    ///
    /// # Errors
    /// None in practice.
    pub fn skip(&mut self) -> Result<(), ChannelError> {
        if let Some(record) = self.current.take() {
            self.tail += record_bytes(record.piece_bytes);
            self.ring.publish(CONSUMER_POSITION, self.tail)?;
        }
        Ok(())
    }

    /// The word on which the producer sleeps, if it does. Ask after a record is taken, and wake it.
    ///
    /// # Errors
    /// None in practice.
    pub fn sleeping_producer(&self) -> Result<Option<&AtomicU32>, ChannelError> {
        self.ring.sleeper(ROOM_WORD)
    }

    /// The word on which this consumer sleeps until there is data.
    pub(crate) fn futex(&self) -> Result<&AtomicU32, ChannelError> {
        self.ring.futex(DATA_WORD)
    }

    fn look(&mut self) -> Result<(), ChannelError> {
        let head = self.ring.position(PRODUCER_POSITION)?;
        let most = self.tail + u64::from(self.ring.ring_bytes);
        if !(self.head..=most).contains(&head) || !head.is_multiple_of(RECORD_ALIGN) {
            return Err(ChannelError::PeerBroke {
                what: "claims to have sent more than fits in the ring",
            });
        }
        self.head = head;
        Ok(())
    }

    /// The one copy of a header, and all checks of what this module uses of it.
    fn copy_header(&self) -> Result<Record, ChannelError> {
        let broke = |what| Err(ChannelError::PeerBroke { what });
        // Not 0, and positions are multiples of more than a header.
        let available = self.head - self.tail;
        let mut bytes = [0; HEADER_BYTES as usize];
        self.ring.read(self.tail, &mut bytes)?;
        let Ok(header) = Header::read_from_bytes(&bytes) else { return Err(OUTSIDE) };
        let known = if header.kind() == Some(MessageKind::Call) { MORE | FORGET } else { MORE };
        if header.flags & !known != 0 {
            return broke("set flags in a header that mean nothing");
        }
        let most = piece_bytes_max(self.ring.ring_bytes);
        if header.has_more() != (header.payload_bytes > most) {
            return broke("split a message at the wrong place");
        }
        let piece_bytes = header.payload_bytes.min(most);
        if record_bytes(piece_bytes) > available {
            return broke("announced more bytes in a header than it sent");
        }
        Ok(Record { header, piece_bytes })
    }
}

/// A place outside of memory whose bounds were checked when the ring was made.
const OUTSIDE: ChannelError = ChannelError::PeerBroke { what: "led outside of the ring" };
