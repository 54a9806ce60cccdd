//! Numbers that look random and are the same in every run and on every side.

/// A small generator (splitmix64): cheap enough to stand inside a loop that is measured.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// The next number.
    #[inline]
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    /// A number below `bound`, which is far below 2^32.
    #[inline]
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (((self.word() >> 32) * bound as u64) >> 32) as usize
    }

    /// Fills bytes.
    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            piece.copy_from_slice(&self.word().to_le_bytes()[..piece.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same seed gives the same numbers, all below the bound.
    #[test]
    fn same_seed_gives_the_same_bounded_numbers() {
        let (mut one, mut other) = (Random::new(7), Random::new(7));
        for _ in 0..1000 {
            let number = one.below(10);
            assert!(number < 10 && number == other.below(10));
        }
    }
}
