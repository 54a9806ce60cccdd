//! Damerau-Levenshtein distance, up to two: how many letters must be inserted, left out, replaced,
//! or swapped with their neighbour.
//!
//! The unrestricted distance (a swap may have something inserted or left out in between), as in
//! Lowrance and Wagner, "An Extension of the String-to-String Correction Problem" (1975). With so
//! few edits, trying each at the first place where the words differ is quicker than filling a
//! matrix: a suggestion compares thousands of words, and the matrix of `strsim` takes about 15
//! times as long for a pair.

/// Distances above this are not told apart.
pub(crate) const DISTANCE_MAX: u8 = 2;
/// Longest words that are compared, in letters.
pub(crate) const LETTERS_MAX: usize = 48;

/// The distance of two words of at most [`LETTERS_MAX`] letters, if it is at most `limit` (at most
/// 2).
#[inline]
pub(crate) fn distance<T: PartialEq + Copy>(a: &[T], b: &[T], limit: u8) -> Option<u8> {
    if a.len().max(b.len()) > LETTERS_MAX {
        return None;
    }
    // Nearly all pairs are too far apart, so the limit is asked for first.
    let near = match limit {
        0 => a == b,
        1 => within_one(a, b),
        _ => within_two(a, b),
    };
    if !near {
        None
    } else if a == b {
        Some(0)
    } else if limit < 2 || within_one(a, b) {
        Some(1)
    } else {
        Some(2)
    }
}

fn within_two<T: PartialEq + Copy>(a: &[T], b: &[T]) -> bool {
    if a.len().abs_diff(b.len()) > 2 {
        return false;
    }
    let (a, b) = without_same_start(a, b);
    let ([first_a, rest_a @ ..], [first_b, rest_b @ ..]) = (a, b) else { return true };
    if within_one(rest_a, rest_b) || within_one(rest_a, b) || within_one(a, rest_b) {
        return true;
    }
    match (rest_a, rest_b) {
        ([second_a, rest_a @ ..], [second_b, rest_b @ ..]) => {
            // A swap; with one letter in between, on either side, it is two edits.
            first_a == second_b && second_a == first_b && within_one(rest_a, rest_b)
                || first_a == second_b && rest_a.first() == Some(first_b) && rest_a[1..] == *rest_b
                || first_b == second_a && rest_b.first() == Some(first_a) && rest_b[1..] == *rest_a
        }
        _ => false,
    }
}

#[inline]
fn within_one<T: PartialEq + Copy>(a: &[T], b: &[T]) -> bool {
    if a.len().abs_diff(b.len()) > 1 {
        return false;
    }
    let (a, b) = without_same_start(a, b);
    let ([first_a, rest_a @ ..], [first_b, rest_b @ ..]) = (a, b) else { return true };
    if a.len() != b.len() {
        return if a.len() > b.len() { same(rest_a, b) } else { same(a, rest_b) };
    }
    same(rest_a, rest_b)
        || matches!((rest_a, rest_b), ([second_a, rest_a @ ..], [second_b, rest_b @ ..])
            if first_a == second_b && second_a == first_b && same(rest_a, rest_b))
}

/// Letter by letter: most words differ at once, and a call would cost more.
#[inline]
fn same<T: PartialEq>(a: &[T], b: &[T]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(one, other)| one == other)
}

/// What both start with costs nothing.
#[inline]
fn without_same_start<'a, 'b, T: PartialEq>(a: &'a [T], b: &'b [T]) -> (&'a [T], &'b [T]) {
    let same = a.iter().zip(b).take_while(|(one, other)| one == other).count();
    (&a[same..], &b[same..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::rngs::SmallRng;
    use rand::{RngExt, SeedableRng};

    #[test]
    fn it_agrees_with_the_full_matrix_up_to_two() {
        let mut random = SmallRng::seed_from_u64(1);
        for _ in 0..100_000 {
            let a: Vec<u8> =
                (0..random.random_range(0..8)).map(|_| random.random_range(0..4)).collect();
            let mut b = a.clone();
            for _ in 0..random.random_range(0..4) {
                let at = random.random_range(0..=b.len());
                match random.random_range(0..4) {
                    0 => b.insert(at, random.random_range(0..4)),
                    1 if at < b.len() => {
                        b.remove(at);
                    }
                    2 if at + 1 < b.len() => b.swap(at, at + 1),
                    _ if at < b.len() => b[at] = random.random_range(0..4),
                    _ => {}
                }
            }
            let full = strsim::generic_damerau_levenshtein(&a, &b);
            for limit in 0..=2 {
                let expected = (full <= usize::from(limit)).then_some(full as u8);
                assert_eq!(distance(&a, &b, limit), expected, "{a:?} {b:?} limit {limit}");
            }
        }
    }

    #[test]
    fn words_that_are_too_long_have_no_distance() {
        assert_eq!(distance(&[b'x'; 60], &[b'x'; 60], 2), None);
        assert_eq!(distance(&[b'x'; LETTERS_MAX], &[b'x'; LETTERS_MAX], 2), Some(0));
    }
}
