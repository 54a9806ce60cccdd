//! `fasta`: DNA sequences, one copied and two made by weighted random selection, written line by
//! line. The definition is that of the Computer Language Benchmarks Game: a linear congruential
//! generator, cumulated probabilities, lines of 60 characters.
//!
//! Invariant: each number of the generator is computed, none is remembered. Four of them are
//! computed side by side, each from the one four steps before it.

use crate::error::ProgramError;
use crate::storage::{Storage, Writer};

/// Characters of a line.
pub const LINE: usize = 60;

const MODULUS: u32 = 139_968;
const FACTOR: u32 = 3_877;
const INCREMENT: u32 = 29_573;
const SEED: u32 = 42;

const ALU: &[u8] = b"GGCCGGGCGCGGTGGCTCACGCCTGTAATCCCAGCACTTTGG\
GAGGCCGAGGCGGGCGGATCACCTGAGGTCAGGAGTTCGAGA\
CCAGCCTGGCCAACATGGTGAAACCCCGTCTCTACTAAAAAT\
ACAAAAATTAGCCGGGCGTGGTGGCGCGCGCCTGTAATCCCA\
GCTACTCGGGAGGCTGAGGCAGGAGAATCGCTTGAACCCGGG\
AGGCGGAGGTTGCAGTGAGCCGAGATCGCGCCACTGCACTCC\
AGCCTGGGCGACAGAGCGAGACTCCGTCTCAAAAA";

const AMBIGUITY_CODES: [(u8, f64); 15] = [
    (b'a', 0.27),
    (b'c', 0.12),
    (b'g', 0.12),
    (b't', 0.27),
    (b'B', 0.02),
    (b'D', 0.02),
    (b'H', 0.02),
    (b'K', 0.02),
    (b'M', 0.02),
    (b'N', 0.02),
    (b'R', 0.02),
    (b'S', 0.02),
    (b'V', 0.02),
    (b'W', 0.02),
    (b'Y', 0.02),
];

const HOMO_SAPIENS: [(u8, f64); 4] = [
    (b'a', 0.302_954_942_668_0),
    (b'c', 0.197_988_300_492_1),
    (b'g', 0.197_547_306_639_1),
    (b't', 0.301_509_450_200_8),
];

const IDS: [&[u8]; 3] =
    [b">ONE Homo sapiens alu\n", b">TWO IUB ambiguity codes\n", b">THREE Homo sapiens frequency\n"];

/// Bytes of the output for `n`.
#[must_use]
pub fn output_bytes(n: u64) -> u64 {
    let ids: u64 = IDS.iter().map(|id| id.len() as u64).sum();
    let sequence = |length: u64| length + length.div_ceil(LINE as u64);
    ids + sequence(2 * n) + sequence(3 * n) + sequence(5 * n)
}

/// Writes sequences of 2n, 3n and 5n characters.
///
/// # Errors
/// Of the storage.
pub fn write<S: Storage>(storage: &mut S, name: &str, n: u64) -> Result<u64, ProgramError> {
    let mut writer = storage.create(name, output_bytes(n))?;
    writer.write(IDS[0])?;
    repeated(&mut writer, 2 * n)?;
    writer.write(IDS[1])?;
    let mut random = Random::new();
    chosen(&mut writer, &mut random, &AMBIGUITY_CODES, 3 * n)?;
    writer.write(IDS[2])?;
    chosen(&mut writer, &mut random, &HOMO_SAPIENS, 5 * n)?;
    storage.finish(writer)
}

/// Writes characters of the ALU sequence, over and over.
fn repeated(writer: &mut impl Writer, mut left: u64) -> Result<(), ProgramError> {
    let twice = [ALU, ALU].concat();
    let mut at = 0;
    let mut line = [b'\n'; LINE + 1];
    while left > 0 {
        let length = left.min(LINE as u64) as usize;
        line[..length].copy_from_slice(&twice[at..at + length]);
        line[length] = b'\n';
        writer.write(&line[..=length])?;
        at = (at + length) % ALU.len();
        left -= length as u64;
    }
    Ok(())
}

/// Writes characters that are chosen by their probabilities.
fn chosen(
    writer: &mut impl Writer,
    random: &mut Random,
    weights: &[(u8, f64)],
    mut left: u64,
) -> Result<(), ProgramError> {
    let by_number = by_number(weights);
    let mut line = [b'\n'; LINE + 1];
    while left >= LINE as u64 {
        random.line(|place, number| line[place] = by_number[number as usize]);
        writer.write(&line)?;
        left -= LINE as u64;
    }
    if left > 0 {
        let length = left as usize;
        for place in &mut line[..length] {
            *place = by_number[random.one() as usize];
        }
        line[length] = b'\n';
        writer.write(&line[..=length])?;
    }
    Ok(())
}

/// The character that each number of the generator chooses: the first whose cumulated probability
/// is greater.
fn by_number(weights: &[(u8, f64)]) -> Vec<u8> {
    let mut cumulated = Vec::new();
    let mut sum = 0.0;
    for (character, probability) in weights {
        sum += probability;
        cumulated.push((*character, sum));
    }
    let last = cumulated.last().map_or(b'\n', |(character, _)| *character);
    let choose = |number| {
        let random = f64::from(number) / f64::from(MODULUS);
        cumulated.iter().find(|(_, sum)| random < *sum).map_or(last, |(character, _)| *character)
    };
    (0..MODULUS).map(choose).collect()
}

/// The generator.
struct Random {
    /// The number that was handed out last.
    last: u32,
}

/// One step.
const fn next(number: u32) -> u32 {
    (number * FACTOR + INCREMENT) % MODULUS
}

/// Factor and increment of four steps at once.
const FOUR_STEPS: (u64, u64) = {
    let factor = FACTOR as u64;
    let modulus = MODULUS as u64;
    let square = factor * factor % modulus;
    let increment = INCREMENT as u64 * (1 + factor + square + square * factor % modulus) % modulus;
    (square * square % modulus, increment)
};

impl Random {
    fn new() -> Random {
        Random { last: SEED }
    }

    fn one(&mut self) -> u32 {
        self.last = next(self.last);
        self.last
    }

    /// The next [`LINE`] numbers, with their places.
    #[inline]
    fn line(&mut self, mut put: impl FnMut(usize, u32)) {
        let first = next(self.last);
        let second = next(first);
        let third = next(second);
        let mut lanes = [first, second, third, next(third)];
        for place in (0..LINE).step_by(4) {
            for (lane, number) in lanes.iter_mut().enumerate() {
                put(place + lane, *number);
                self.last = *number;
                let (factor, increment) = FOUR_STEPS;
                *number = ((u64::from(*number) * factor + increment) % u64::from(MODULUS)) as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::Reader;
    use crate::storage::volatile::Volatile;

    fn written(n: u64) -> Vec<u8> {
        let mut storage = Volatile::default();
        let bytes = write(&mut storage, "out", n).unwrap();
        let content = storage.open("out").unwrap().rest().unwrap().to_vec();
        assert_eq!(content.len() as u64, bytes);
        assert_eq!(bytes, output_bytes(n));
        content
    }

    /// The output for n = 12, computed by a program in Python that follows the definition with
    /// floating-point numbers.
    #[test]
    fn small_output_is_that_of_the_definition() {
        assert_eq!(String::from_utf8(written(12)).unwrap(), SMALL);
    }

    /// The same for n = 1,000 and 100,003, by their sums.
    #[test]
    fn larger_outputs_are_those_of_the_definition() {
        for (n, sum) in LARGER {
            assert_eq!(xxhash_rust::xxh3::xxh3_64(&written(n)), sum, "{n}");
        }
    }

    #[test]
    fn numbers_side_by_side_are_those_one_by_one() {
        let (mut four, mut one) = (Random::new(), Random::new());
        for _ in 0..5_000 {
            let mut line = [0; LINE];
            four.line(|place, number| line[place] = number);
            for number in line {
                assert_eq!(number, one.one());
            }
        }
    }

    const SMALL: &str = "\
>ONE Homo sapiens alu
GGCCGGGCGCGGTGGCTCACGCCT
>TWO IUB ambiguity codes
cttBtatcatatgctaKggNcataaaSatgtaaaDc
>THREE Homo sapiens frequency
ttgtgcttcgttagaagtctcgactacgtgtagcctagtgtttgtgttgcgttatagtct
";
    const LARGER: [(u64, u64); 2] =
        [(1_000, 0x384d_eac4_bbf9_b2cb), (100_003, 0xbf43_ea00_5ce1_dc7d)];
}
