//! Damerau-Levenshtein distance, up to two: how many letters must be inserted, left out, replaced,
//! or swapped with their neighbour.
//!
//! The unrestricted distance (a swap may have something inserted or left out in between), as in
//! Lowrance and Wagner, "An Extension of the String-to-String Correction Problem" (1975). With so
//! few edits it is quicker to try each at the first place where the words differ than to fill a
//! matrix.

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

    /// The textbook, without bounds.
    fn plain(a: &[u8], b: &[u8]) -> usize {
        let mut last = [0_usize; 256];
        let far = a.len() + b.len();
        let mut d = vec![vec![far; b.len() + 2]; a.len() + 2];
        for i in 0..=a.len() {
            d[i + 1][1] = i;
        }
        for j in 0..=b.len() {
            d[1][j + 1] = j;
        }
        for i in 1..=a.len() {
            let mut column = 0;
            for j in 1..=b.len() {
                let (k, l) = (last[usize::from(b[j - 1])], column);
                let same = a[i - 1] == b[j - 1];
                if same {
                    column = j;
                }
                d[i + 1][j + 1] = (d[i][j] + usize::from(!same))
                    .min(d[i + 1][j] + 1)
                    .min(d[i][j + 1] + 1)
                    .min(d[k][l] + (i - k - 1) + 1 + (j - l - 1));
            }
            last[usize::from(a[i - 1])] = i;
        }
        d[a.len() + 1][b.len() + 1]
    }

    #[test]
    fn it_agrees_with_the_textbook_up_to_two() {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut random = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..100_000 {
            let length = random(8);
            let a: Vec<u8> = (0..length).map(|_| random(4) as u8).collect();
            let mut b = a.clone();
            for _ in 0..random(4) {
                let at = random(b.len() as u64 + 1) as usize;
                match random(4) {
                    0 => b.insert(at, random(4) as u8),
                    1 if at < b.len() => {
                        b.remove(at);
                    }
                    2 if at + 1 < b.len() => b.swap(at, at + 1),
                    _ if at < b.len() => b[at] = random(4) as u8,
                    _ => {}
                }
            }
            let full = plain(&a, &b);
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
