//! The line of the processor's caches with which each record of a ring begins: stamp, header and
//! the first bytes of the payload, so that a short message is one line that goes from one processor
//! to the other.
//!
//! The first word has the stamp, which says that the record is complete, and the bytes of the
//! payload from this record on; the second one kind, flags, and the numbers of export and call as
//! far as they are small. Fields of the header that are not zero, or too large for that, follow as
//! words, in a fixed order; behind them the payload begins.
//!
//! Invariants: little endian, explicit widths; a header is read as it was written; whatever the
//! bytes are, reading them yields a header or the reason why they are none.
//!
//! What it must not do: touch shared memory, or judge whether a header comes at the right moment.

#![forbid(unsafe_code)]

use crate::header::{FORGET, Header, MORE};

/// Bytes of the line.
pub const LINE_BYTES: usize = 64;
/// Bytes before the fields.
const FIXED_BYTES: usize = 16;
/// The most of a payload that the line has room for.
pub const INLINE_BYTES_MAX: usize = LINE_BYTES - FIXED_BYTES;

/// The flags that a header can have, which are the lowest bits.
const FLAGS: u8 = (MORE | FORGET) as u8;
/// The line has a word with status and index.
const HAS_NUMBERS: u8 = 1 << 2;
/// One with the call's number.
const HAS_CALL: u8 = 1 << 3;
/// One with `a`, `b`, `c`.
const HAS_A: u8 = 1 << 4;
const HAS_B: u8 = 1 << 5;
const HAS_C: u8 = 1 << 6;
const FIELDS: u8 = HAS_NUMBERS | HAS_CALL | HAS_A | HAS_B | HAS_C;
/// From here on a call's number has a word of its own.
const CALL_BITS: u32 = 40;

/// Words of the line.
pub(crate) const LINE_WORDS: usize = LINE_BYTES / size_of::<u64>();
/// Words before the fields.
const FIXED_WORDS: usize = FIXED_BYTES / size_of::<u64>();

/// A line in private memory, as numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Line {
    words: [u64; LINE_WORDS],
    /// Where the payload begins.
    payload_at: usize,
}

impl Line {
    /// The line for a header, and as much of the payload as it has room for.
    #[inline]
    pub(crate) fn new(header: &Header, stamp: u32, piece: &[u8]) -> Line {
        let Header { payload_bytes, kind, flags, call, status, index, a, b, c } = *header;
        let mut line = Line { words: [0; LINE_WORDS], payload_at: FIXED_WORDS };
        let mut has = flags as u8 & FLAGS;
        // Most headers have none of the fields.
        let is_small = index <= u32::from(u8::MAX) && call >> CALL_BITS == 0;
        if !is_small || (status as u32 as u64 | a | b | c) != 0 {
            has |= line.add_fields(header);
        }
        // A kind beyond all that there are becomes 0, which is none either.
        let kind = u8::try_from(kind).unwrap_or(0);
        line.words[0] = u64::from(stamp) | u64::from(payload_bytes) << 32;
        // With a word of their own, index and call are not looked for here.
        let small = u64::from(index as u8) << 16 | call << (u64::BITS - CALL_BITS);
        line.words[1] = u64::from(kind) | u64::from(has) << 8 | small;
        let (words, rest) = piece[..line.inline_bytes(piece.len())].as_chunks();
        let room = line.words.get_mut(line.payload_at..).unwrap_or_default();
        for (place, word) in room.iter_mut().zip(words) {
            *place = u64::from_le_bytes(*word);
        }
        if let (Some(place), true) = (room.get_mut(words.len()), !rest.is_empty()) {
            let mut last = [0; size_of::<u64>()];
            last[..rest.len()].copy_from_slice(rest);
            *place = u64::from_le_bytes(last);
        }
        line
    }

    /// Fields that have a word of their own; which.
    #[cold]
    fn add_fields(&mut self, header: &Header) -> u8 {
        let Header { call, status, index, a, b, c, .. } = *header;
        let numbers = status as u32 as u64 | u64::from(index) << 32;
        let fields = [
            (status != 0 || index > u32::from(u8::MAX), HAS_NUMBERS, numbers),
            (call >> CALL_BITS != 0, HAS_CALL, call),
            (a != 0, HAS_A, a),
            (b != 0, HAS_B, b),
            (c != 0, HAS_C, c),
        ];
        let mut has = 0;
        for (_, bit, value) in fields.into_iter().filter(|(is_there, ..)| *is_there) {
            has |= bit;
            self.words[self.payload_at] = value;
            self.payload_at += 1;
        }
        has
    }

    /// The header of a line, and the line, which knows now where its payload begins.
    #[inline]
    pub(crate) fn read(words: [u64; LINE_WORDS]) -> Result<(Header, Line), &'static str> {
        let mut line = Line { words, payload_at: FIXED_WORDS };
        let [first, second, ..] = words;
        let has = (second >> 8) as u8;
        let mut header = Header {
            payload_bytes: (first >> 32) as u32,
            kind: u16::from(second as u8),
            flags: u16::from(has & FLAGS),
            index: u32::from((second >> 16) as u8),
            call: second >> (u64::BITS - CALL_BITS),
            ..Header::default()
        };
        if has & !FLAGS != 0 {
            line.read_fields(has, &mut header)?;
        }
        Ok((header, line))
    }

    #[cold]
    fn read_fields(&mut self, has: u8, header: &mut Header) -> Result<(), &'static str> {
        if has & !(FLAGS | FIELDS) != 0 {
            return Err(MEANINGLESS_FLAGS);
        }
        let Line { words, payload_at } = self;
        let mut field = |bit, otherwise| {
            if has & bit == 0 {
                return otherwise;
            }
            *payload_at += 1;
            words[*payload_at - 1]
        };
        let numbers = field(HAS_NUMBERS, u64::from(header.index) << 32);
        header.status = numbers as u32 as i32;
        header.index = (numbers >> 32) as u32;
        header.call = field(HAS_CALL, header.call);
        header.a = field(HAS_A, 0);
        header.b = field(HAS_B, 0);
        header.c = field(HAS_C, 0);
        Ok(())
    }

    /// How much of a piece of the payload lies in the line.
    #[inline]
    pub(crate) fn inline_bytes(&self, piece_bytes: usize) -> usize {
        piece_bytes.min(LINE_BYTES - self.payload_at * size_of::<u64>())
    }

    /// The first word, and those behind it that mean something with so much of a payload.
    #[inline]
    pub(crate) fn words(&self, inline_bytes: usize) -> (u64, &[u64]) {
        let end = self.payload_at + inline_bytes.div_ceil(size_of::<u64>());
        (self.words[0], self.words.get(1..end).unwrap_or_default())
    }

    /// Copies the payload that lies in the line.
    #[inline]
    pub(crate) fn copy_payload(&self, into: &mut [u8]) {
        let from = self.words.get(self.payload_at..).unwrap_or_default();
        let (words, rest) = into.as_chunks_mut();
        for (word, value) in words.iter_mut().zip(from) {
            *word = value.to_le_bytes();
        }
        if let Some(value) = from.get(words.len()) {
            let bytes = rest.len();
            rest.copy_from_slice(&value.to_le_bytes()[..bytes]);
        }
    }
}

/// What a side did whose header has flags that there are not.
pub(crate) const MEANINGLESS_FLAGS: &str = "set flags in a header that mean nothing";

const _: () = assert!(FIXED_BYTES + 5 * size_of::<u64>() <= LINE_BYTES);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::MessageKind;
    use proptest::prelude::*;
    use std::vec;
    use std::vec::Vec;

    /// The line as it lies in memory.
    fn bytes(line: &Line) -> Vec<u8> {
        line.words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// Guarantee: applets/one-line
    #[test]
    fn the_fields_are_where_the_format_says() {
        let short = Header {
            payload_bytes: 0x0403_0201,
            call: 0x0d_0c0b_0a09,
            index: 8,
            ..Header::new(MessageKind::Result)
        };
        let line = Line::new(&short, 0x8070_6050, &[14; 100]);
        assert_eq!((line.inline_bytes(48), line.inline_bytes(49)), (48, 48));
        let expected = [0x50, 0x60, 0x70, 0x80, 1, 2, 3, 4, 17, 0, 8, 9, 10, 11, 12, 13];
        assert_eq!(bytes(&line)[..16], expected);
        assert_eq!(bytes(&line)[16..], [14; 48]);
        let long = Header { flags: 3, status: -1, index: 256, call: 1 << 40, c: 5, ..short };
        let line = Line::new(&long, 1, &[6; 9]);
        let bytes = bytes(&line);
        assert_eq!((bytes[9], line.inline_bytes(100)), (0b100_1111, 24));
        assert_eq!(bytes[16..24], [255, 255, 255, 255, 0, 1, 0, 0]);
        assert_eq!(
            (bytes[29], bytes[32], &bytes[40..50]),
            (1, 5, &[6, 6, 6, 6, 6, 6, 6, 6, 6, 0][..])
        );
    }

    /// A kind that no byte holds is read as one that there is not, and unknown flags are refused.
    #[test]
    fn what_a_line_cannot_say_is_no_message() {
        let odd = Header { kind: 0x0111, ..Header::default() };
        let (read, _) = Line::read(Line::new(&odd, 1, &[]).words).unwrap();
        assert_eq!(read.kind(), None);
        let mut line = Line::new(&Header::new(MessageKind::Result), 1, &[]);
        line.words[1] |= 1 << 15;
        assert!(Line::read(line.words).unwrap_err().contains("flags"));
    }

    proptest! {
        /// Every header is read as it was written, whichever of its fields are zero, small or
        /// large, and whatever payload follows.
        #[test]
        fn a_header_is_read_as_it_was_written(
            numbers in any::<(u32, u8, u64, i32, u32)>(),
            words in any::<[u64; 3]>(),
            shifts in any::<[u8; 6]>(),
            flags in 0_u16..4,
            piece in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            let (payload_bytes, kind, call, status, index) = numbers;
            let [a, b, c] = words;
            let less = |value: u64, shift: u8| value.checked_shr(shift.into()).unwrap_or(0);
            let header = Header {
                payload_bytes,
                kind: kind.into(),
                flags,
                call: less(call, shifts[0]),
                status: if shifts[1] < 128 { 0 } else { status },
                index: less(index.into(), shifts[2]) as u32,
                a: less(a, shifts[3]),
                b: less(b, shifts[4]),
                c: less(c, shifts[5]),
            };
            let line = Line::new(&header, 7, &piece);
            let (read, same) = Line::read(line.words).unwrap();
            prop_assert_eq!(read, header);
            let mut found = vec![0; line.inline_bytes(piece.len())];
            same.copy_payload(&mut found);
            prop_assert_eq!(&found, &piece[..found.len()]);
            let (_, behind) = line.words(found.len());
            prop_assert!(line.words[1 + behind.len()..].iter().all(|word| *word == 0));
        }
    }
}
