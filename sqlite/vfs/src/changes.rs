//! What changed in a block: ranges of bytes that take the place of those that it had.
//!
//! Each range is its offset and its length (2 bytes each, little-endian) and the bytes, which are
//! there as they are afterwards: whoever applies ranges twice, or in order of their age to a version
//! that has some of them already, comes to the same block.
//!
//! Invariant: ranges lie within the block, and what is none is refused.

#![forbid(unsafe_code)]

use crate::image::BLOCK_BYTES;

/// Ranges begin and end at multiples of it.
const WORD_BYTES: usize = 8;
/// Of a range, before its bytes.
const RANGE_BYTES: usize = 4;

/// Appends what makes the one block the other; false, with some of it appended, where that takes
/// more than `bytes_max`.
pub(crate) fn put(
    before: &[u8; BLOCK_BYTES],
    after: &[u8; BLOCK_BYTES],
    target: &mut Vec<u8>,
    bytes_max: usize,
) -> bool {
    let (old, _) = before.as_chunks::<WORD_BYTES>();
    let (new, _) = after.as_chunks::<WORD_BYTES>();
    let (begin, mut word) = (target.len(), 0);
    while let Some(first) = (word..new.len()).find(|at| old[*at] != new[*at]) {
        word = (first..new.len()).find(|at| old[*at] == new[*at]).unwrap_or(new.len());
        put_range(after, first * WORD_BYTES..word * WORD_BYTES, target);
        if target.len() - begin > bytes_max {
            return false;
        }
    }
    if target.len() == begin {
        // A block of no bytes is none.
        put_range(after, 0..WORD_BYTES, target);
    }
    true
}

fn put_range(after: &[u8], range: std::ops::Range<usize>, target: &mut Vec<u8>) {
    target.extend_from_slice(&(range.start as u16).to_le_bytes());
    target.extend_from_slice(&(range.len() as u16).to_le_bytes());
    target.extend_from_slice(&after[range]);
}

/// Makes the changes in a block; `None`, with some of them made, where they are none of a block.
pub(crate) fn apply(mut changes: &[u8], page: &mut [u8]) -> Option<()> {
    while !changes.is_empty() {
        let (head, rest) = changes.split_at_checked(RANGE_BYTES)?;
        let half = |at: usize| usize::from(u16::from_le_bytes([head[at], head[at + 1]]));
        let (offset, bytes) = (half(0), half(2));
        let (new, rest) = rest.split_at_checked(bytes)?;
        page.get_mut(offset..offset + bytes)?.copy_from_slice(new);
        changes = rest;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(at: &[usize]) -> ([u8; BLOCK_BYTES], [u8; BLOCK_BYTES]) {
        let before = [7; BLOCK_BYTES];
        let mut after = before;
        at.iter().for_each(|at| after[*at] ^= 0xff);
        (before, after)
    }

    #[test]
    fn changes_make_the_one_block_the_other() {
        for at in [&[][..], &[0], &[4095], &[0, 7, 8, 100, 4095], &[24, 25, 26, 27, 92, 93]] {
            let (before, after) = changed(at);
            let mut changes = vec![1, 2];
            assert!(put(&before, &after, &mut changes, 100));
            let mut page = before;
            // Also twice.
            for _ in 0..2 {
                apply(&changes[2..], &mut page).unwrap();
                assert!(page == after, "{at:?}");
            }
        }
        let (before, after) = changed(&[100]);
        let mut changes = Vec::new();
        assert!(put(&before, &after, &mut changes, 12));
        assert_eq!(changes.len(), 12);
        assert!(!put(&before, &after, &mut Vec::new(), 11));
    }

    #[test]
    fn what_is_no_change_of_a_block_is_refused() {
        let mut page = [0; BLOCK_BYTES];
        for lie in [
            &[0, 0, 1][..],
            &[0, 0, 2, 0, 9],
            &[0xff, 0x0f, 2, 0, 9, 9],
            &[0xff, 0xff, 1, 0, 9],
            &[0, 0, 0xff, 0xff],
        ] {
            assert_eq!(apply(lie, &mut page), None, "{lie:?}");
        }
        assert_eq!(apply(&[0xff, 0x0f, 1, 0, 9], &mut page), Some(()));
    }
}
