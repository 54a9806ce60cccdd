//! `k-nucleotide`: reads the sequence THREE of a FASTA file line by line, counts all frames of some
//! lengths in hash tables that grow, and reports them. The definition is that of the Computer
//! Language Benchmarks Game.
//!
//! Frames are numbers, two bits for each nucleotide. Up to 8 nucleotides the number is its own
//! hash, and the table has a place for each.

use std::fmt::Write;
use std::time::{Duration, Instant};

use crate::error::ProgramError;
use crate::storage::{Reader, Storage};

const NUCLEOTIDES: &[u8; 4] = b"ACGT";
/// Those that are counted one by one.
const SEARCHED: [&str; 5] = ["GGT", "GGTA", "GGTATT", "GGTATTTTAATT", "GGTATTTTAATTTATAGT"];
const THREE: &[u8] = b">THREE";

/// The code of each character; 4 for those that are no nucleotide.
const CODES: [u8; 256] = {
    let mut codes = [4; 256];
    let mut index = 0;
    while index < NUCLEOTIDES.len() {
        codes[NUCLEOTIDES[index] as usize] = index as u8;
        codes[NUCLEOTIDES[index].to_ascii_lowercase() as usize] = index as u8;
        index += 1;
    }
    codes
};

/// What the program prints, and how long it read.
#[derive(Debug)]
pub struct Report {
    /// The report.
    pub text: String,
    /// Until the sequence was in memory.
    pub reading: Duration,
}

/// Counts what is in the object `input`.
///
/// # Errors
/// Of the storage; [`ProgramError::Input`] when there is no sequence THREE, or it has other
/// characters than nucleotides.
pub fn run<S: Storage>(storage: &mut S, input: &str) -> Result<Report, ProgramError> {
    let started = Instant::now();
    let sequence = third(storage, input)?;
    let reading = started.elapsed();
    let mut text = String::new();
    for length in [1, 2] {
        let counts = counts(&sequence, length);
        let all: u64 = counts.all().map(|(_, count)| count).sum();
        let mut frames: Vec<(u64, u64)> = counts.all().collect();
        frames.sort_by_key(|(frame, count)| (std::cmp::Reverse(*count), *frame));
        for (frame, count) in frames {
            // A text takes everything.
            let _ = writeln!(text, "{} {:.3}", name(frame, length), percent(count, all));
        }
        text.push('\n');
    }
    for searched in SEARCHED {
        let counts = counts(&sequence, searched.len());
        let frame = searched
            .bytes()
            .fold(0, |frame, character| frame << 2 | u64::from(CODES[usize::from(character)]));
        let _ = writeln!(text, "{}\t{searched}", counts.of(frame));
    }
    Ok(Report { text, reading })
}

fn percent(count: u64, all: u64) -> f64 {
    count as f64 * 100.0 / all as f64
}

fn name(frame: u64, length: usize) -> String {
    let code = |place| (frame >> (2 * place)) as usize & 3;
    (0..length).rev().map(|place| char::from(NUCLEOTIDES[code(place)])).collect()
}

/// The codes of the sequence THREE.
fn third<S: Storage>(storage: &mut S, input: &str) -> Result<Vec<u8>, ProgramError> {
    let mut reader = storage.open(input)?;
    let mut number = 1;
    let wrong = |line, complaint| ProgramError::Input { name: input.to_owned(), line, complaint };
    loop {
        match reader.line()? {
            Some(line) if line.starts_with(THREE) => break,
            Some(_) => number += 1,
            None => return Err(wrong(number, "a sequence `>THREE` is needed, as fasta writes it")),
        }
    }
    let mut sequence = Vec::with_capacity(reader.size_bytes() as usize / 2);
    while let Some(line) = reader.line()? {
        number += 1;
        if line.first() == Some(&b'>') {
            break;
        }
        let known = sequence.len();
        sequence.extend(line.iter().map(|character| CODES[usize::from(*character)]));
        if memchr::memchr(4, &sequence[known..]).is_some() {
            return Err(wrong(number, "the sequence has the letters ACGT only"));
        }
    }
    Ok(sequence)
}

/// Frames and how often they occur.
enum Counts {
    /// Each at its own place.
    Direct(Vec<u32>),
    Hashed(Table),
}

/// Frames of at most so many nucleotides have a place each.
const DIRECT_MAX: usize = 8;

fn counts(sequence: &[u8], length: usize) -> Counts {
    let mask = (1_u64 << (2 * length)) - 1;
    let mut frame = 0_u64;
    let (first, others) = sequence.split_at((length - 1).min(sequence.len()));
    for code in first {
        frame = frame << 2 | u64::from(*code);
    }
    if length <= DIRECT_MAX {
        let mut counts = vec![0_u32; 1 << (2 * length)];
        for code in others {
            frame = (frame << 2 | u64::from(*code)) & mask;
            counts[frame as usize] += 1;
        }
        return Counts::Direct(counts);
    }
    let mut table = Table::new();
    // Hashes are known before they are needed, so that several places are fetched at once.
    for piece in others.chunks(BATCH) {
        let mut batch = [0; BATCH];
        for (place, code) in batch.iter_mut().zip(piece) {
            frame = (frame << 2 | u64::from(*code)) & mask;
            *place = frame;
        }
        table.count(&batch[..piece.len()]);
    }
    Counts::Hashed(table)
}

impl Counts {
    fn of(&self, frame: u64) -> u64 {
        match self {
            Counts::Direct(counts) => u64::from(counts[frame as usize]),
            Counts::Hashed(table) => table.of(frame),
        }
    }

    /// All that occur.
    fn all(&self) -> Box<dyn Iterator<Item = (u64, u64)> + '_> {
        match self {
            Counts::Direct(counts) => Box::new(
                (0..).zip(counts.iter().map(|count| u64::from(*count))).filter(|(_, n)| *n > 0),
            ),
            Counts::Hashed(table) => Box::new(table.all()),
        }
    }
}

const BATCH: usize = 64;
/// Of a slot: the frame is above it, at most 36 bits.
const COUNT_BITS: u32 = 28;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;

/// A hash table with open addressing. A slot is 0, or a frame and its count.
struct Table {
    slots: Vec<u64>,
    used: usize,
}

impl Table {
    fn new() -> Table {
        Table { slots: vec![0; 1 << 12], used: 0 }
    }

    /// Where the search for a frame begins.
    #[inline]
    fn place(&self, frame: u64) -> usize {
        let bits = self.slots.len().trailing_zeros();
        // Knuth's multiplicative hashing.
        (frame.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits)) as usize
    }

    fn count(&mut self, frames: &[u64]) {
        if (self.used + frames.len()) * 4 > self.slots.len() * 3 {
            self.grow();
        }
        for frame in frames {
            self.add(*frame, 1);
        }
    }

    #[inline]
    fn add(&mut self, frame: u64, count: u64) {
        let mask = self.slots.len() - 1;
        let mut place = self.place(frame);
        loop {
            let slot = self.slots[place];
            if slot == 0 {
                self.slots[place] = frame << COUNT_BITS | count;
                self.used += 1;
                return;
            }
            if slot >> COUNT_BITS == frame {
                // A sequence is shorter than the largest count.
                self.slots[place] = slot + count;
                return;
            }
            place = (place + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let larger = vec![0; self.slots.len() * 4];
        let smaller = std::mem::replace(&mut self.slots, larger);
        self.used = 0;
        for slot in smaller.into_iter().filter(|slot| *slot != 0) {
            self.add(slot >> COUNT_BITS, slot & COUNT_MAX);
        }
    }

    fn of(&self, frame: u64) -> u64 {
        let mask = self.slots.len() - 1;
        let mut place = self.place(frame);
        while self.slots[place] != 0 {
            if self.slots[place] >> COUNT_BITS == frame {
                return self.slots[place] & COUNT_MAX;
            }
            place = (place + 1) & mask;
        }
        0
    }

    fn all(&self) -> impl Iterator<Item = (u64, u64)> {
        let split = |slot: u64| (slot >> COUNT_BITS, slot & COUNT_MAX);
        self.slots.iter().copied().filter(|slot| *slot != 0).map(split)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fasta;
    use crate::storage::volatile::Volatile;
    use std::collections::HashMap;

    /// The report on the output of `fasta` for n = 1,000, computed by a program in Python that
    /// counts texts in dictionaries.
    #[test]
    fn report_is_that_of_the_definition() {
        let mut storage = Volatile::default();
        fasta::write(&mut storage, "in", 1_000).unwrap();
        let expected = "\
T 31.520\nA 29.600\nC 19.480\nG 19.400\n
AT 9.922\nTT 9.602\nTA 9.402\nAA 8.402\nGA 6.321\nTC 6.301\nTG 6.201\nGT 6.041\nCT 5.961
AG 5.841\nCA 5.461\nAC 5.441\nCC 4.041\nCG 4.021\nGC 3.701\nGG 3.341\n
54\tGGT\n24\tGGTA\n4\tGGTATT\n0\tGGTATTTTAATT\n0\tGGTATTTTAATTTATAGT\n";
        assert_eq!(run(&mut storage, "in").unwrap().text, expected);
    }

    /// Frames beyond those with a place each, against the standard library's table.
    #[test]
    fn hashed_frames_are_counted_as_by_a_map() {
        let mut storage = Volatile::default();
        fasta::write(&mut storage, "in", 20_000).unwrap();
        let sequence = third(&mut storage, "in").unwrap();
        for length in [9, 12, 18] {
            let mut expected: HashMap<&[u8], u64> = HashMap::new();
            for frame in sequence.windows(length) {
                *expected.entry(frame).or_default() += 1;
            }
            let counts = counts(&sequence, length);
            assert_eq!(counts.all().count(), expected.len());
            for (frame, count) in expected {
                let number = frame.iter().fold(0, |number, code| number << 2 | u64::from(*code));
                assert_eq!(counts.of(number), count);
            }
        }
    }

    #[test]
    fn short_and_other_input_is_an_error_or_empty() {
        let report = |input: &[u8]| {
            let mut storage = Volatile::default();
            storage.put("in", input.to_vec());
            run(&mut storage, "in").map(|report| report.text).map_err(|error| error.to_string())
        };
        assert_eq!(
            report(b">ONE\nACGT\n").unwrap_err(),
            "in, line 3: a sequence `>THREE` is needed, as fasta writes it"
        );
        assert_eq!(
            report(b">THREE\nACGT\nACNT\n").unwrap_err(),
            "in, line 3: the sequence has the letters ACGT only"
        );
        assert!(report(b">THREE\na\n").unwrap().starts_with("A 100.000\n\n\n0\tGGT\n"));
    }
}
