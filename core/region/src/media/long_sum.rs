//! XXH3-64 of many bytes.
//!
//! The same sum as that of `xxhash-rust`, which the headers and records of a few hundred bytes use:
//! `twox-hash` finds out at run time which vector instructions the processor has, and is 1.6 times
//! as fast on one with AVX2. It allocates a buffer for each sum, which short ones would feel.

#![forbid(unsafe_code)]

use std::fmt;
use std::hash::Hasher;

use twox_hash::XxHash3_64;

/// A sum of bytes that come piece by piece.
pub(crate) struct LongSum(XxHash3_64);

impl LongSum {
    pub(crate) fn new() -> LongSum {
        LongSum(XxHash3_64::new())
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub(crate) fn digest(&self) -> u64 {
        self.0.finish()
    }
}

impl fmt::Debug for LongSum {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("LongSum").field(&self.digest()).finish()
    }
}

#[cfg(test)]
mod tests {
    use xxhash_rust::xxh3::xxh3_64;

    use super::*;

    /// However the bytes are cut, at every length around the steps of the algorithm.
    #[test]
    fn sum_is_that_of_the_other_library() {
        let bytes: Vec<u8> =
            (0..70_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        let lengths = (0..600).chain([1023, 1024, 1025, 4096, 65_535, 65_536, 70_000]);
        for len in lengths {
            for step in [1, 64, 255, 4096, 70_000] {
                let mut sum = LongSum::new();
                bytes[..len].chunks(step).for_each(|piece| sum.update(piece));
                assert_eq!(sum.digest(), xxh3_64(&bytes[..len]), "{len} bytes by {step}");
            }
        }
    }
}
