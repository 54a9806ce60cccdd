//! Size classes: four per doubling from 128 bytes up to 8 KiB, then what divides a chunk with
//! little left over. Every slot is a multiple of 16 bytes and so aligned to 16. Part of the format:
//! a slab stores its class.

use crate::layout::{CHUNK_BYTES, SLOT_WORDS_MAX};

/// Slot bytes of each class, ascending. The last ones are what divides a chunk with little left
/// over.
pub const CLASS_BYTES: [u32; 37] = [
    16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024,
    1280, 1536, 1792, 2048, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 10_240, 13_104, 16_384,
    21_840, 32_768,
];
/// Number of classes.
pub const CLASSES: usize = CLASS_BYTES.len();
/// The largest object in a slot of one of these classes.
pub const NARROW_BYTES_MAX: u64 = CLASS_BYTES[CLASSES - 1] as u64;
/// Above this an object may fit better into a slot of a slab of several chunks, see
/// [`wide`](crate::wide).
pub const SMALL_BYTES_MAX: u64 = 8192;

const fn slots(class: usize) -> u32 {
    CHUNK_BYTES as u32 / CLASS_BYTES[class]
}

/// Slots in a slab of each class.
pub const CLASS_SLOTS: [u32; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        table[class] = slots(class);
        assert!(
            table[class] as u64 <= SLOT_WORDS_MAX * 64 && CLASS_BYTES[class].is_multiple_of(16)
        );
        class += 1;
    }
    table
};

/// ceil(2^32 / slot bytes): turns the division by the slot size into a multiplication (exact for
/// every offset inside a chunk, see the test).
pub const CLASS_RECIPROCAL: [u32; CLASSES] = {
    let mut table = [0; CLASSES];
    let mut class = 0;
    while class < CLASSES {
        table[class] = (1u64 << 32).div_ceil(CLASS_BYTES[class] as u64) as u32;
        class += 1;
    }
    table
};

/// Class by 16-byte step.
const BY_STEP: [u8; NARROW_BYTES_MAX as usize / 16 + 1] = {
    let mut table = [0; NARROW_BYTES_MAX as usize / 16 + 1];
    let mut step = 0;
    let mut class = 0;
    while step < table.len() {
        while (CLASS_BYTES[class] as usize) < step * 16 {
            class += 1;
        }
        table[step] = class as u8;
        step += 1;
    }
    table
};

/// The smallest class that holds `bytes` (at most [`NARROW_BYTES_MAX`]).
#[inline]
pub const fn class_of(bytes: u64) -> usize {
    BY_STEP[bytes.div_ceil(16) as usize] as usize
}

/// Slot number at `within` bytes from the start of a slab.
#[inline]
pub const fn slot_at(class: usize, within: u64) -> u64 {
    (within * CLASS_RECIPROCAL[class] as u64) >> 32
}

/// The slot that starts at `within` bytes from the start of a slab of the class with this
/// reciprocal, if one does: one multiplication is both the division and the test that nothing is
/// left over (Lemire, Kaser and Kurz, "Faster Remainder by Direct Computation"). Slots past the
/// last one are not told apart.
#[inline]
pub(crate) const fn slot_starting_at(reciprocal: u32, within: u64) -> Option<u64> {
    let scaled = within * reciprocal as u64;
    if (scaled as u32) < reciprocal { Some(scaled >> 32) } else { None }
}

/// Words of the bitmap of a slab of the class.
#[inline]
pub(crate) fn words_of(class: usize) -> u64 {
    u64::from(CLASS_SLOTS[class]).div_ceil(64)
}

/// The bits of a word that stand for slots.
#[inline]
pub(crate) fn slot_mask(class: usize, word: u64) -> u64 {
    let left = u64::from(CLASS_SLOTS[class]).saturating_sub(word * 64);
    if left >= 64 { u64::MAX } else { (1 << left) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every small size gets a slot that holds it and loses little.
    #[test]
    fn every_small_size_gets_a_tight_slot() {
        for bytes in 1..=NARROW_BYTES_MAX {
            let slot = u64::from(CLASS_BYTES[class_of(bytes)]);
            assert!(slot >= bytes, "{bytes} in {slot}");
            let smaller =
                class_of(bytes).checked_sub(1).map_or(0, |class| u64::from(CLASS_BYTES[class]));
            assert!(smaller < bytes, "{bytes} would fit into {smaller}");
            assert!(bytes <= 128 || slot - bytes <= bytes / 2 + 256, "{bytes} in {slot}");
        }
        assert_eq!(class_of(0), 0);
    }

    #[test]
    fn the_reciprocal_divides_exactly() {
        for (class, bytes) in CLASS_BYTES.into_iter().enumerate() {
            for within in 0..CHUNK_BYTES {
                let bytes = u64::from(bytes);
                let slot = within / bytes;
                assert_eq!(slot_at(class, within), slot);
                let starts = within.is_multiple_of(bytes).then_some(slot);
                assert_eq!(
                    slot_starting_at(CLASS_RECIPROCAL[class], within),
                    starts,
                    "{bytes} {within}"
                );
            }
        }
    }
}
