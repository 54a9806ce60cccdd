//! Damerau-Levenshtein distance, up to two: how many letters must be inserted, left out, replaced, or swapped
//! with their neighbour.
//!
//! The unrestricted distance (a swap may have something inserted or left out in between), as in Lowrance and
//! Wagner, "An Extension of the String-to-String Correction Problem" (1975), in a band of five diagonals.

/// Distances above this are not told apart.
pub(crate) const DISTANCE_MAX: u8 = 2;
/// Longest words that are compared, in letters.
pub(crate) const LETTERS_MAX: usize = 48;

const FAR: u8 = DISTANCE_MAX + 1;
const BAND: usize = DISTANCE_MAX as usize;
/// Room for two cells before and one behind a row.
const ROW: usize = LETTERS_MAX + BAND + 2;

/// The distance of two words of at most [`LETTERS_MAX`] letters, if it is at most `limit` (at most 2).
pub(crate) fn distance<T: PartialEq + Copy>(a: &[T], b: &[T], limit: u8) -> Option<u8> {
    if a.len().abs_diff(b.len()) > usize::from(limit) || a.len().max(b.len()) > LETTERS_MAX {
        return None;
    }
    // What both start with costs nothing.
    let same = a.iter().zip(b).take_while(|(one, other)| one == other).count();
    let (a, b) = (&a[same..], &b[same..]);
    // rows[i % 4][BAND + j]: distance of the first i letters of a and the first j of b. Each row has a cell of
    // FAR at both ends of its band.
    let mut rows = [[FAR; ROW]; 4];
    for j in 0..=BAND {
        rows[0][BAND + j] = j as u8;
    }
    let mut before_min = 0;
    for i in 1..=a.len() {
        let low = i.saturating_sub(BAND);
        let high = (i + BAND).min(b.len());
        rows[i % 4][BAND + low - 1] = FAR;
        let mut row_min = FAR;
        for j in low..=high {
            let cell = if j == 0 { i as u8 } else { cell(&rows, a, b, i, j).min(FAR) };
            rows[i % 4][BAND + j] = cell;
            row_min = row_min.min(cell);
        }
        rows[i % 4][BAND + high + 1] = FAR;
        // A swap reaches back over one row, and from further back only at a cost that a row between shows.
        if row_min > limit && before_min > limit {
            return None;
        }
        before_min = row_min;
    }
    let distance = rows[a.len() % 4][BAND + b.len()];
    (distance <= limit).then_some(distance)
}

#[inline]
fn cell<T: PartialEq + Copy>(rows: &[[u8; ROW]; 4], a: &[T], b: &[T], i: usize, j: usize) -> u8 {
    let at = BAND + j;
    let above = &rows[(i + 3) % 4];
    let replaced = above[at - 1] + u8::from(a[i - 1] != b[j - 1]);
    let mut best = replaced.min(above[at] + 1).min(rows[i % 4][at - 1] + 1);
    if i > 1 && j > 1 && a[i - 2] == b[j - 1] && a[i - 1] == b[j - 2] {
        best = best.min(rows[(i + 2) % 4][at - 2] + 1);
    }
    if i > 2 && j > 1 && a[i - 3] == b[j - 1] && a[i - 1] == b[j - 2] {
        best = best.min(rows[(i + 1) % 4][at - 2] + 2);
    }
    if i > 1 && j > 2 && a[i - 2] == b[j - 1] && a[i - 1] == b[j - 3] {
        best = best.min(rows[(i + 2) % 4][at - 3] + 2);
    }
    best
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
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
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
