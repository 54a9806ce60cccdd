//! Classes of objects between small and large ones: a slot of them is a third of a few chunks, or a
//! seventh, so that little of a chunk is lost. Part of the format, from version
//! [`WIDE_SLABS_VERSION`] on: a slab stores its class, and spans its chunks as a run does.
//!
//! Invariants: a class has fewer slots than a word has bits, so the first word of a slab's bitmap
//! is all of it; the numbers of these classes follow those of [`CLASSES`](crate::classes::CLASSES).

use crate::classes::CLASSES;
use crate::layout::*;

/// The format version that brought wide slabs.
pub const WIDE_SLABS_VERSION: u32 = 4;

/// Slots of one size that share a few chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WideClass {
    /// Bytes of a slot, a multiple of 16.
    pub slot_bytes: u32,
    /// Chunks of a slab.
    pub chunks: u32,
    /// Slots in them.
    pub slots: u32,
}

const fn divided(chunks: u32, slots: u32) -> WideClass {
    WideClass { slot_bytes: (chunks * CHUNK_BYTES as u32 / slots) & !15, chunks, slots }
}

/// All of them, ascending; what lies between two of them loses about an eighth at most.
pub const WIDE_CLASSES: [WideClass; 11] = [
    divided(1, 7),
    divided(1, 6),
    divided(2, 11),
    divided(2, 9),
    divided(2, 7),
    divided(2, 5),
    divided(4, 9),
    divided(4, 7),
    divided(2, 3),
    divided(3, 4),
    divided(6, 7),
];
/// Chunks of the widest slab.
const CHUNKS_MAX: u64 = 6;

const _: () = {
    let mut index = 0;
    while index < WIDE_CLASSES.len() {
        let WideClass { slot_bytes, chunks, slots } = WIDE_CLASSES[index];
        assert!(slots < u64::BITS && chunks as u64 <= CHUNKS_MAX);
        assert!(slot_bytes as u64 * slots as u64 <= chunks as u64 * CHUNK_BYTES);
        assert!(index == 0 || WIDE_CLASSES[index - 1].slot_bytes < slot_bytes);
        index += 1;
    }
    assert!(CLASSES + WIDE_CLASSES.len() <= u8::MAX as usize);
};

impl WideClass {
    /// The bits of the bitmap that stand for slots.
    pub(crate) const fn mask(self) -> u64 {
        (1 << self.slots) - 1
    }

    /// The slot with the byte at `within` from the start of a slab, if one has it.
    pub(crate) fn slot_at(self, within: u64) -> Option<u64> {
        let slot = within / u64::from(self.slot_bytes);
        (slot < u64::from(self.slots)).then_some(slot)
    }
}

/// The index of the class of a slab with this head, if it is a wide one.
pub(crate) fn wide_index(head: Head) -> Option<usize> {
    let index = usize::from(head.class).checked_sub(CLASSES)?;
    let class = WIDE_CLASSES.get(index)?;
    (head.kind == HeadKind::Slab && head.span == class.chunks).then_some(index)
}

/// The head of a wide slab of the class at this index.
pub(crate) fn wide_head(index: usize) -> Head {
    let span = WIDE_CLASSES[index].chunks;
    Head { kind: HeadKind::Slab, class: (CLASSES + index) as u8, span }
}

/// The wide slab that `offset` lies in, as the descriptors tell that `load` reads: the offset of
/// its first chunk, and the index of its class. Whether its chunks are in use the caller asks.
pub(crate) fn wide_slab_around(load: impl Fn(u64) -> u64, offset: u64) -> Option<(u64, usize)> {
    let chunk = offset & !(CHUNK_BYTES - 1);
    let before = (chunk / CHUNK_BYTES % SEGMENT_CHUNKS).min(CHUNKS_MAX);
    for back in 0..before {
        let first = chunk - back * CHUNK_BYTES;
        let head = Head::decode(load(descriptor_of(first) + DESC_HEAD))?;
        if head.kind != HeadKind::Inside {
            let reaches = u64::from(head.span) > back;
            return wide_index(head).filter(|_| reaches).map(|index| (first, index));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classes::{CLASS_BYTES, CLASS_SLOTS};
    use std::vec::Vec;

    /// Whatever an object between 8 KiB and 64 KiB takes of chunks is at most a fifth more than it
    /// asked for.
    ///
    /// Guarantee: heap/space
    #[test]
    fn objects_between_small_and_large_lose_little() {
        let narrow = CLASS_BYTES
            .iter()
            .zip(CLASS_SLOTS)
            .map(|(bytes, slots)| (u64::from(*bytes), CHUNK_BYTES as f64 / f64::from(slots)));
        let wide = WIDE_CLASSES.iter().map(|class| {
            let taken = f64::from(class.chunks) * CHUNK_BYTES as f64 / f64::from(class.slots);
            (u64::from(class.slot_bytes), taken)
        });
        let mut classes: Vec<(u64, f64)> = narrow.chain(wide).collect();
        classes.push((CHUNK_BYTES, CHUNK_BYTES as f64));
        classes.sort_by_key(|class| class.0);
        for bytes in 8192..=CHUNK_BYTES {
            let (_, taken) = classes.iter().find(|class| class.0 >= bytes).copied().unwrap();
            assert!(taken <= 1.21 * bytes as f64, "{bytes} in {taken}");
        }
    }

    /// A chunk inside of a wide slab leads to its head; one behind it, or of another kind, to none.
    #[test]
    fn chunks_of_a_wide_slab_lead_to_its_head() {
        let inside = Head { kind: HeadKind::Inside, class: 0, span: 1 }.encode();
        let run = Head { kind: HeadKind::Run, class: 0, span: 6 }.encode();
        let index = WIDE_CLASSES.len() - 1;
        for head in [wide_head(index).encode(), run] {
            let load = |at: u64| match (at - DESC_HEAD) / DESCRIPTOR_BYTES {
                3 => head,
                4..=9 => inside,
                _ => 0,
            };
            let expected = (head != run).then_some((3 * CHUNK_BYTES, index));
            assert_eq!(wide_slab_around(load, 3 * CHUNK_BYTES), expected);
            assert_eq!(wide_slab_around(load, 8 * CHUNK_BYTES + 5), expected);
            assert_eq!(wide_slab_around(load, 9 * CHUNK_BYTES), None);
            assert_eq!(wide_slab_around(load, 2 * CHUNK_BYTES), None);
            assert_eq!(wide_slab_around(load, 0), None);
        }
    }
}
