//! What rows hold: letters and digits by chance, so that compression gains nothing by them.
//!
//! Invariant: the same mark and length give the same texts, and the text of a key is always the
//! same.

use rand::SeedableRng;
use rand::distr::{Alphanumeric, SampleString};
use rand::rngs::SmallRng;

/// So many different ones: more than rows of a page, and few enough for a near cache.
const COUNT: usize = 251;

/// Texts of one length.
#[derive(Debug)]
pub(super) struct Texts(Vec<String>);

impl Texts {
    /// Texts that begin with the mark, so that a query can count them.
    pub(super) fn new(mark: &str, characters: usize) -> Texts {
        let seed = mark.bytes().chain(characters.to_le_bytes());
        let seed = seed.fold(0_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let mut random = SmallRng::seed_from_u64(seed);
        let rest = characters.saturating_sub(mark.len());
        let text = |_| format!("{mark}{}", Alphanumeric.sample_string(&mut random, rest));
        Texts((0..COUNT).map(text).collect())
    }

    /// The text of that key.
    pub(super) fn of(&self, key: i64) -> &str {
        &self.0[key.unsigned_abs() as usize % COUNT]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_have_mark_and_length_and_differ() {
        let texts = Texts::new("uu", 100);
        assert!((0..1000).all(|key| texts.of(key).len() == 100 && texts.of(key).starts_with("uu")));
        assert_ne!(texts.of(1), texts.of(2));
        assert_eq!(texts.of(3), Texts::new("uu", 100).of(3));
    }
}
