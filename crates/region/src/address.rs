//! Native addresses: every region of a home has a range of its own, far from where Linux puts anything.

#![forbid(unsafe_code)]

use std::ops::Range;

use crate::format::{ADDRESS_UNIT_BYTES, WINDOW_END, WINDOW_START};

/// The first free address for a region of `limit_bytes`, given the ranges of all others.
pub(crate) fn first_free(mut taken: Vec<Range<u64>>, limit_bytes: u64) -> Option<u64> {
    taken.sort_unstable_by_key(|range| range.start);
    let mut candidate = WINDOW_START;
    for range in taken {
        if candidate.checked_add(limit_bytes)? <= range.start {
            break;
        }
        candidate = candidate.max(range.end.checked_next_multiple_of(ADDRESS_UNIT_BYTES)?);
    }
    (candidate.checked_add(limit_bytes)? <= WINDOW_END).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIT: u64 = ADDRESS_UNIT_BYTES;

    fn range(slot: u64, limit_bytes: u64) -> Range<u64> {
        WINDOW_START + slot * UNIT..WINDOW_START + slot * UNIT + limit_bytes
    }

    #[test]
    fn the_first_gap_that_is_large_enough_is_taken() {
        assert_eq!(first_free(vec![], 1), Some(WINDOW_START));
        let taken = vec![range(3, 5), range(0, UNIT), range(7, 2 * UNIT + 1)];
        assert_eq!(first_free(taken.clone(), UNIT), Some(WINDOW_START + UNIT));
        assert_eq!(first_free(taken.clone(), 2 * UNIT + 1), Some(WINDOW_START + 4 * UNIT));
        assert_eq!(first_free(taken, 4 * UNIT), Some(WINDOW_START + 10 * UNIT));
    }

    #[test]
    fn overlapping_ranges_and_copies_of_a_header_do_no_harm() {
        let taken = vec![range(0, 4 * UNIT), range(0, 4 * UNIT), range(1, 5)];
        assert_eq!(first_free(taken, 1), Some(WINDOW_START + 4 * UNIT));
    }

    #[test]
    fn a_full_window_is_an_answer_and_not_an_overflow() {
        let all = WINDOW_END - WINDOW_START;
        assert_eq!(first_free(vec![range(0, all)], 1), None);
        assert_eq!(first_free(vec![range(0, UNIT)], all), None);
        let everything = 0..u64::MAX;
        assert_eq!(first_free(vec![everything], 1), None);
        assert_eq!(first_free(vec![], u64::MAX), None);
    }
}
