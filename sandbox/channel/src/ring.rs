//! One direction: a ring with one producer and one consumer, in shared memory.
//!
//! A record begins with a line of the processor's caches, which has its header and the first bytes
//! of its payload ([`line`](crate::line)); what does not fit there is in the data, which both sides
//! use in order. The line's first word has a stamp, the number of the record: a consumer looks at
//! the one line that comes next, and a producer writes to it once. So a short message is one line
//! that goes from one processor to the other, and each 64 bytes beyond are one more.
//!
//! Everything else stays where it is while messages go to and fro. What the consumer has taken it
//! says now and then, on a line of its own, at which the producer looks when it knows of no more
//! room. The words on which a side sleeps are on lines of their own, too: they change when a side
//! goes to sleep or is woken.
//!
//! Invariants:
//! - Each side counts records and bytes in private memory and only tells them the other; so nothing
//!   that the other side writes can move it.
//! - What the other side tells is one load, which is checked: a stamp is that of the record that
//!   comes next or of the one that was there before; what was taken does not go back, and is not
//!   more than was sent. Whatever breaks this is [`ChannelError::PeerBroke`].
//! - A line is copied once, and what was checked in the copy is what is used: lengths are never
//!   loaded again.
//! - What the consumer keeps to itself is less than a quarter of the lines and an eighth of the
//!   data, and a record needs one line and at most an eighth: a producer without room has a
//!   consumer that is going to give some back.
//!
//! What it must not do: wait. [`wait`](crate::wait) does that, on the words that are named here.

#![forbid(unsafe_code)]

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::error::ChannelError;
use crate::header::{FORGET, Header, MORE, piece_bytes_max};
use crate::layout::{CONTROL_BYTES, PAGE_BYTES};
use crate::line::{LINE_BYTES, LINE_WORDS, Line, MEANINGLESS_FLAGS};
use crate::protocol::MessageKind;
use crate::shared::Shared;

/// The consumer's line of the control page: how many records it has taken.
pub const TAKEN_RECORDS: usize = 0;
/// The same line: how many bytes of the data.
pub const TAKEN_BYTES: usize = 8;
/// A line of its own: set by a consumer that sleeps until there is a record.
pub const DATA_WORD: usize = 128;
/// A line of its own: set by a producer that sleeps until there is room.
pub const ROOM_WORD: usize = 256;
/// Where the lines begin.
pub const LINES_OFFSET: usize = PAGE_BYTES as usize;
/// How many there are: so many records are in a ring at most.
pub const LINES: u64 = 64;

/// What a record takes in the data is a multiple of it.
pub const DATA_ALIGN: u64 = LINE_BYTES as u64;
/// A consumer gives lines back when there are so many.
const LINES_GIVEN_BACK: u64 = LINES / 4;

const _: () = assert!(LINES_OFFSET as u64 + LINES * LINE_BYTES as u64 <= CONTROL_BYTES);

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

/// How far a side is: in records, and in bytes of the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Position {
    records: u64,
    bytes: u64,
}

impl Position {
    /// Behind a record that has so many bytes in the data.
    fn after(self, bytes: usize) -> Position {
        let bytes = (bytes as u64).next_multiple_of(DATA_ALIGN);
        Position { records: self.records + 1, bytes: self.bytes + bytes }
    }

    /// The stamp of the record that begins here.
    fn stamp(self) -> u32 {
        (self.records + 1) as u32
    }

    /// The stamp that was in its line before.
    fn stamp_before(self) -> u32 {
        if self.records < LINES { 0 } else { self.stamp().wrapping_sub(LINES as u32) }
    }

    /// Where the line of the record is.
    fn line_offset(self) -> usize {
        LINES_OFFSET + (self.records % LINES) as usize * LINE_BYTES
    }
}

impl Ring {
    fn new(ring: Shared, ring_bytes: u32) -> Option<Ring> {
        let least = DATA_ALIGN as u32 * crate::header::PIECES_OF_RING;
        let is_ring = ring_bytes.is_power_of_two() && ring_bytes >= least;
        let control = ring.part(0, CONTROL_BYTES).filter(|_| is_ring)?;
        let data = ring.part(CONTROL_BYTES, u64::from(ring_bytes))?;
        Some(Ring { control, data, ring_bytes })
    }

    fn futex(&self, at: usize) -> Result<&AtomicU32, ChannelError> {
        self.control.half(at).ok_or(OUTSIDE)
    }

    /// Whether a side sleeps on a word; the word is cleared then, and the caller must wake
    /// it.
    fn sleeper(&self, at: usize) -> Result<Option<&AtomicU32>, ChannelError> {
        let word = self.futex(at)?;
        // Between the store of a stamp or a position and this load; the other half is in `wait`.
        // The line is on its way meanwhile.
        fence(Ordering::SeqCst);
        if word.load(Ordering::Relaxed) == AWAKE {
            return Ok(None);
        }
        word.store(AWAKE, Ordering::Relaxed);
        Ok(Some(word))
    }

    /// The line of the record at a position.
    fn line(&self, position: Position) -> Result<&[AtomicU64; LINE_WORDS], ChannelError> {
        self.control.line(position.line_offset()).ok_or(OUTSIDE)
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
    next: Position,
    /// What the consumer had taken when we looked last.
    taken: Position,
}

impl Producer {
    /// The producer of an unused ring, which begins with its control pages; `None` if the sizes do
    /// not fit.
    #[must_use]
    pub fn new(ring: Shared, ring_bytes: u32) -> Option<Producer> {
        let (next, taken) = Default::default();
        Some(Producer { ring: Ring::new(ring, ring_bytes)?, next, taken })
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
    /// `PeerBroke` when the consumer claims to have taken what cannot be, `TooLarge` for a piece
    /// that never fits.
    pub fn push(&mut self, header: &Header, piece: &[u8]) -> Result<bool, ChannelError> {
        let most = self.piece_bytes_max();
        if piece.len() > most as usize {
            let limit_bytes = u64::from(most);
            return Err(ChannelError::TooLarge { bytes: piece.len() as u64, limit_bytes });
        }
        let line = Line::new(header, self.next.stamp(), piece);
        let (inline, rest) = piece.split_at(line.inline_bytes(piece.len()));
        let after = self.next.after(rest.len());
        if !self.has_room_until(after) {
            self.look()?;
            if !self.has_room_until(after) {
                return Ok(false);
            }
        }
        if !rest.is_empty() {
            self.ring.write(self.next.bytes, rest)?;
        }
        let [stamped, places @ ..] = self.ring.line(self.next)?;
        let (first, words) = line.words(inline.len());
        for (place, word) in places.iter().zip(words) {
            place.store(word.to_le(), Ordering::Relaxed);
        }
        // The record is complete.
        stamped.store(first.to_le(), Ordering::Release);
        self.next = after;
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

    /// Whether there is room for everything before a position.
    fn has_room_until(&self, end: Position) -> bool {
        end.records - self.taken.records <= LINES
            && end.bytes - self.taken.bytes <= u64::from(self.ring.ring_bytes)
    }

    fn look(&mut self) -> Result<(), ChannelError> {
        let load = |at| Ok(self.ring.control.word(at).ok_or(OUTSIDE)?.load(Ordering::Acquire));
        // Each of the two is what was true at some time, and only grows.
        let taken = Position { records: load(TAKEN_RECORDS)?, bytes: load(TAKEN_BYTES)? };
        let is_right = (self.taken.records..=self.next.records).contains(&taken.records)
            && (self.taken.bytes..=self.next.bytes).contains(&taken.bytes)
            && taken.bytes.is_multiple_of(DATA_ALIGN);
        if !is_right {
            return Err(ChannelError::PeerBroke {
                what: "claims to have read what was never sent",
            });
        }
        self.taken = taken;
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
    next: Position,
    /// What of that the producer was told.
    told: Position,
    /// It was told since it was asked whether it sleeps.
    has_told: bool,
    /// The record that comes next.
    current: Option<Record>,
    /// Its line.
    line: Line,
}

impl Consumer {
    /// The consumer of an unused ring, which begins with its control pages; `None` if the sizes do
    /// not fit.
    #[must_use]
    pub fn new(ring: Shared, ring_bytes: u32) -> Option<Consumer> {
        let (next, told) = Default::default();
        let (ring, line) = (Ring::new(ring, ring_bytes)?, Line::default());
        Some(Consumer { ring, next, told, has_told: false, current: None, line })
    }

    /// The next record, if there is one. Its line is copied at the first call; until the payload is
    /// taken later calls return what the copy says.
    ///
    /// # Errors
    /// `PeerBroke` when stamp or header are impossible.
    #[inline]
    pub fn poll(&mut self) -> Result<Option<Record>, ChannelError> {
        if self.current.is_none() {
            let line = self.ring.line(self.next)?;
            let first = u64::from_le(line[0].load(Ordering::Acquire));
            let stamp = first as u32;
            if stamp == self.next.stamp_before() {
                return Ok(None);
            }
            if stamp != self.next.stamp() {
                return Err(ChannelError::PeerBroke { what: "stamped a record out of turn" });
            }
            let (record, line) = copy_line(line, first, self.ring.ring_bytes)?;
            (self.current, self.line) = (Some(record), line);
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
        let needed_bytes = self.current.map_or(0, |record| u64::from(record.piece_bytes));
        if self.current.is_none() || into.len() as u64 != needed_bytes {
            return Err(ChannelError::NoRoom { needed_bytes });
        }
        let (inline, rest) = into.split_at_mut(self.line.inline_bytes(into.len()));
        self.line.copy_payload(inline);
        if !rest.is_empty() {
            self.ring.read(self.next.bytes, rest)?;
        }
        self.skip()
    }

    /// Passes over the record that [`Consumer::poll`] returned, if any.
    ///
    /// # Errors
    /// None in practice.
    pub fn skip(&mut self) -> Result<(), ChannelError> {
        let Some(record) = self.current.take() else { return Ok(()) };
        let piece_bytes = record.piece_bytes as usize;
        self.next = self.next.after(piece_bytes - self.line.inline_bytes(piece_bytes));
        // Not for each: the producer's processor then has the line, and this one has to fetch it.
        let given_back = u64::from(piece_bytes_max(self.ring.ring_bytes));
        if self.next.records - self.told.records >= LINES_GIVEN_BACK
            || self.next.bytes - self.told.bytes >= given_back
        {
            let tell = |at, value| {
                self.ring.control.word(at).ok_or(OUTSIDE)?.store(value, Ordering::Release);
                Ok(())
            };
            tell(TAKEN_RECORDS, self.next.records)?;
            tell(TAKEN_BYTES, self.next.bytes)?;
            self.told = self.next;
            self.has_told = true;
        }
        Ok(())
    }

    /// The word on which the producer sleeps, if it does and was given room since the last time.
    /// Ask after a record is taken, and wake it.
    ///
    /// # Errors
    /// None in practice.
    pub fn sleeping_producer(&mut self) -> Result<Option<&AtomicU32>, ChannelError> {
        if core::mem::take(&mut self.has_told) { self.ring.sleeper(ROOM_WORD) } else { Ok(None) }
    }

    /// The word on which this consumer sleeps until there is a record.
    pub(crate) fn futex(&self) -> Result<&AtomicU32, ChannelError> {
        self.ring.futex(DATA_WORD)
    }
}

/// The one copy of a line, and all checks of what this module uses of it. The word that had the
/// stamp is not loaded again.
#[inline]
fn copy_line(
    line: &[AtomicU64; LINE_WORDS],
    first: u64,
    ring_bytes: u32,
) -> Result<(Record, Line), ChannelError> {
    let broke = |what| Err(ChannelError::PeerBroke { what });
    let mut words = [first; LINE_WORDS];
    for (word, place) in words.iter_mut().zip(line).skip(1) {
        *word = u64::from_le(place.load(Ordering::Relaxed));
    }
    let (header, line) = match Line::read(words) {
        Ok(read) => read,
        Err(what) => return broke(what),
    };
    let is_call = header.kind == MessageKind::Call as u16;
    if header.flags & !(if is_call { MORE | FORGET } else { MORE }) != 0 {
        return broke(MEANINGLESS_FLAGS);
    }
    let most = piece_bytes_max(ring_bytes);
    if header.has_more() != (header.payload_bytes > most) {
        return broke("split a message at the wrong place");
    }
    Ok((Record { header, piece_bytes: header.payload_bytes.min(most) }, line))
}

/// A place outside of memory whose bounds were checked when the ring was made.
const OUTSIDE: ChannelError = ChannelError::PeerBroke { what: "led outside of the ring" };
