//! A survey of a heap's content for tools: size classes, a map of chunks, objects, roots, and
//! objects that no root reaches. Safe code over plain, untrusted bytes.
//!
//! Invariants:
//! - One walk over the tables says for each chunk what it is; everything else looks there, so
//!   objects never overlap and a word is resolved in constant time, whatever the bytes are.
//! - Each question costs at most one pass over the heap's bytes; memory is a few bytes per chunk,
//!   and for the leaks a bit per 16 bytes.
//!
//! What it must not do: judge. Contradictions are [`check`](fn@crate::check)'s affair; here they
//! end the walk or show as [`ChunkKind::Damaged`]. A transaction that is open shows as it stands.

use std::vec::Vec;

use crate::classes::{CLASS_BYTES, CLASS_SLOTS, CLASSES, slot_at, slot_mask};
use crate::layout::*;
use crate::reference::REF_UNIT_BYTES;
use crate::types::RootType;
use crate::wide::{WIDE_CLASSES, wide_index};
use xxhash_rust::xxh3::xxh3_64;

/// Slots of one size class in the whole heap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassUse {
    /// Bytes of a slot.
    pub class_bytes: u32,
    /// Chunks that are slabs of this class.
    pub slabs: u64,
    /// Slots in them.
    pub slots: u64,
    /// Slots that hold an object.
    pub used: u64,
}

/// What a chunk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChunkKind {
    /// Not in use.
    Free,
    /// A segment's table.
    Table,
    /// Objects of one size class, in a slab of one or a few chunks.
    Slab,
    /// A part of a large object.
    Large,
    /// A part of the transaction log.
    Log,
    /// Past the end of the region.
    Absent,
    /// In use, but not described.
    Damaged,
}

/// One chunk of 64 KiB: a tile in a picture of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkUse {
    /// Where, from the start of the heap.
    pub offset: u64,
    /// What it is.
    pub kind: ChunkKind,
    /// Bytes of a slot, of a slab; else 0.
    pub class_bytes: u32,
    /// Bytes that objects (or tables, or the log) take of it.
    pub used_bytes: u32,
}

/// An allocated object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectView {
    /// Where, from the start of the heap.
    pub offset: u64,
    /// Its room in bytes: what was asked for, or a little more.
    pub bytes: u64,
}

/// A named root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootView<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its object, from the start of the heap.
    pub offset: u64,
    /// Bytes that were asked for.
    pub bytes: u64,
    /// Its type, if it carries one.
    pub root_type: Option<RootType>,
}

/// What a search for leaks counted. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Leaks {
    /// Objects that a root reaches, those of the roots and of their table among them.
    pub reached_objects: u64,
    /// Their room.
    pub reached_bytes: u64,
    /// Objects that no root reaches.
    pub leaked_objects: u64,
    /// Their room.
    pub leaked_bytes: u64,
}

/// Size classes of narrow and of wide slabs.
pub const ALL_CLASSES: usize = CLASSES + WIDE_CLASSES.len();

fn slot_bytes_of(class: usize) -> u32 {
    CLASS_BYTES.get(class).copied().unwrap_or_else(|| WIDE_CLASSES[class - CLASSES].slot_bytes)
}

fn slots_of(class: usize) -> u64 {
    CLASS_SLOTS.get(class).copied().unwrap_or_else(|| WIDE_CLASSES[class - CLASSES].slots).into()
}

/// A heap's bytes, with what each chunk is.
#[derive(Debug)]
pub struct Survey<'a> {
    bytes: &'a [u8],
    chunks: Vec<Chunk>,
}

#[derive(Clone, Copy, Debug)]
struct Chunk {
    kind: ChunkKind,
    class: u8,
    /// Slabs, large objects and the log: where their first byte is and their end; and how many
    /// bytes were asked for.
    start: u64,
    end: u64,
    asked: u64,
}

impl Chunk {
    const fn plain(kind: ChunkKind) -> Chunk {
        Chunk { kind, class: 0, start: 0, end: 0, asked: 0 }
    }
}

impl<'a> Survey<'a> {
    /// Looks at the bytes of a heap; `None` when they are none, or of a newer version.
    pub fn new(bytes: &'a [u8]) -> Option<Survey<'a>> {
        let mut survey = Survey { bytes, chunks: Vec::new() };
        let version = survey.load(SUPER_VERSION) as u32;
        if survey.load(SUPER_MAGIC) != MAGIC || !(1..=FORMAT_VERSION).contains(&version) {
            return None;
        }
        let there = survey.len().div_ceil(SEGMENT_BYTES);
        let segments = survey.load(SUPER_SEGMENTS).min(there);
        let mut segment = 0;
        while segment < segments {
            let start = segment * SEGMENT_BYTES;
            let head = Head::decode(survey.load(start + DESC_HEAD)).filter(|head| {
                head.kind == HeadKind::Segment
                    && (1..=segments - segment).contains(&head.span.into())
            });
            let Some(head) = head else { break };
            match (head.span, head.object_start()) {
                (1, _) => survey.segment(start),
                (_, Some(object)) => survey.spanning(start, head.span.into(), start + object),
                (_, None) => break,
            }
            segment += u64::from(head.span);
        }
        survey.chunks.truncate((survey.len() / CHUNK_BYTES) as usize);
        Some(survey)
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub(crate) fn load(&self, offset: u64) -> u64 {
        let word =
            usize::try_from(offset).ok().and_then(|at| self.bytes.get(at..)?.first_chunk::<8>());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    }

    fn spanning(&mut self, start: u64, span: u64, object: u64) {
        let end = start + span * SEGMENT_BYTES;
        let before = (object - start) / CHUNK_BYTES - 1;
        self.chunks.push(Chunk::plain(ChunkKind::Table));
        // What lies before an aligned object belongs to it, and nothing is there.
        let nothing = Chunk { start: object, end: object, ..Chunk::plain(ChunkKind::Large) };
        self.chunks.extend((0..before).map(|_| nothing));
        let asked = self.load(start + DESC_RUN_BYTES).min(end - object);
        let large = Chunk { kind: ChunkKind::Large, class: 0, start: object, end, asked };
        self.chunks.extend((1 + before..span * SEGMENT_CHUNKS).map(|_| large));
    }

    fn segment(&mut self, segment: u64) {
        let used = self.load(segment + DESC_USED_CHUNKS);
        self.chunks.push(Chunk::plain(ChunkKind::Table));
        let mut chunk = 1;
        while chunk < SEGMENT_CHUNKS {
            if used >> chunk & 1 == 0 {
                self.chunks.push(Chunk::plain(ChunkKind::Free));
                chunk += 1;
                continue;
            }
            let head = Head::decode(self.load(segment + chunk * DESCRIPTOR_BYTES + DESC_HEAD));
            let fits = |head: &Head| (1..=SEGMENT_CHUNKS - chunk).contains(&head.span.into());
            let Some(head) = head.filter(fits) else {
                self.chunks.push(Chunk::plain(ChunkKind::Damaged));
                chunk += 1;
                continue;
            };
            let span = u64::from(head.span);
            let start = segment + chunk * CHUNK_BYTES;
            let (kind, span) = match head.kind {
                HeadKind::Slab if usize::from(head.class) < CLASSES => (ChunkKind::Slab, 1),
                HeadKind::Slab if wide_index(head).is_some() => (ChunkKind::Slab, span),
                HeadKind::Run => (ChunkKind::Large, span),
                HeadKind::Log => (ChunkKind::Log, span),
                HeadKind::Absent => (ChunkKind::Absent, 1),
                _ => (ChunkKind::Damaged, 1),
            };
            let asked = self
                .load(segment + chunk * DESCRIPTOR_BYTES + DESC_RUN_BYTES)
                .min(span * CHUNK_BYTES);
            let what =
                Chunk { kind, class: head.class, start, end: start + span * CHUNK_BYTES, asked };
            self.chunks.extend((0..span).map(|_| what));
            chunk += span;
        }
    }

    /// Free slots and used ones of every size class, ascending.
    pub fn classes(&self) -> [ClassUse; ALL_CLASSES] {
        let mut classes = [ClassUse::default(); ALL_CLASSES];
        for (class, entry) in classes.iter_mut().enumerate() {
            entry.class_bytes = slot_bytes_of(class);
        }
        for (_, chunk) in self.slabs() {
            let class = usize::from(chunk.class);
            let entry = &mut classes[class];
            entry.slabs += (chunk.end - chunk.start) / CHUNK_BYTES;
            entry.slots += slots_of(class);
            entry.used += self.slots_used(chunk.start / CHUNK_BYTES, class);
        }
        classes.sort_unstable_by_key(|entry| entry.class_bytes);
        classes
    }

    /// The first chunk of every slab.
    fn slabs(&self) -> impl Iterator<Item = (u64, &Chunk)> + '_ {
        let chunks = self.chunks.iter().enumerate();
        let chunks = chunks.map(|(index, chunk)| (index as u64 * CHUNK_BYTES, chunk));
        chunks.filter(|(offset, chunk)| chunk.kind == ChunkKind::Slab && chunk.start == *offset)
    }

    /// Every chunk in its order.
    pub fn chunks(&self) -> impl Iterator<Item = ChunkUse> + '_ {
        self.chunks.iter().enumerate().map(|(index, chunk)| {
            let offset = index as u64 * CHUNK_BYTES;
            let (class_bytes, used_bytes) = match chunk.kind {
                ChunkKind::Slab => {
                    let class = usize::from(chunk.class);
                    (slot_bytes_of(class), self.slot_bytes_used(chunk, offset))
                }
                ChunkKind::Large | ChunkKind::Log if offset >= chunk.start => {
                    (0, (chunk.start + chunk.asked).saturating_sub(offset).min(CHUNK_BYTES))
                }
                ChunkKind::Table => (0, CHUNK_BYTES),
                _ => (0, 0),
            };
            ChunkUse { offset, kind: chunk.kind, class_bytes, used_bytes: used_bytes as u32 }
        })
    }

    /// Every allocated object, ascending; those of roots and their table among them.
    pub fn objects(&self) -> impl Iterator<Item = ObjectView> + '_ {
        self.chunks.iter().enumerate().flat_map(move |(index, chunk)| {
            let offset = index as u64 * CHUNK_BYTES;
            let is_slab = chunk.kind == ChunkKind::Slab && chunk.start == offset;
            let slots = if is_slab { slots_of(usize::from(chunk.class)) } else { 0 };
            let first =
                chunk.kind == ChunkKind::Large && chunk.start == offset && chunk.end > chunk.start;
            let large = first.then_some(ObjectView { offset, bytes: chunk.end - chunk.start });
            let small = (0..slots).filter_map(move |slot| {
                let bytes = u64::from(slot_bytes_of(usize::from(chunk.class)));
                self.object_at(offset + slot * bytes)
                    .filter(|object| object.offset == offset + slot * bytes)
            });
            large.into_iter().chain(small)
        })
    }

    /// The allocated object that `offset` lies in.
    pub fn object_at(&self, offset: u64) -> Option<ObjectView> {
        let index = offset / CHUNK_BYTES;
        let chunk = self.chunks.get(usize::try_from(index).ok()?)?;
        match chunk.kind {
            ChunkKind::Large if (chunk.start..chunk.end).contains(&offset) => {
                Some(ObjectView { offset: chunk.start, bytes: chunk.end - chunk.start })
            }
            ChunkKind::Slab => {
                let class = usize::from(chunk.class);
                let bytes = u64::from(slot_bytes_of(class));
                let slot = match CLASS_BYTES.get(class) {
                    Some(_) => slot_at(class, offset % CHUNK_BYTES),
                    None => (offset - chunk.start) / bytes,
                };
                let taken = slot < slots_of(class) && self.is_taken(chunk.start, slot);
                taken.then_some(ObjectView { offset: chunk.start + slot * bytes, bytes })
            }
            _ => None,
        }
    }

    fn slot_word(&self, chunk: u64, word: u64) -> u64 {
        self.load(descriptor_of(chunk * CHUNK_BYTES) + DESC_SLOTS + word * 8)
    }

    fn is_taken(&self, slab: u64, slot: u64) -> bool {
        self.slot_word(slab / CHUNK_BYTES, slot / 64) >> (slot % 64) & 1 == 1
    }

    /// Bytes of the chunk at `offset`, of a slab, that lie in slots that hold an object.
    fn slot_bytes_used(&self, slab: &Chunk, offset: u64) -> u64 {
        let class = usize::from(slab.class);
        let bytes = u64::from(slot_bytes_of(class));
        if class < CLASSES {
            return self.slots_used(offset / CHUNK_BYTES, class) * bytes;
        }
        let overlap = |slot: u64| {
            let start = (slab.start + slot * bytes).max(offset);
            let end = (slab.start + (slot + 1) * bytes).min(offset + CHUNK_BYTES);
            end.saturating_sub(start)
        };
        let taken = (0..slots_of(class)).filter(|slot| self.is_taken(slab.start, *slot));
        taken.map(overlap).sum()
    }

    fn slots_used(&self, chunk: u64, class: usize) -> u64 {
        if let Some(wide) = class.checked_sub(CLASSES) {
            return (self.slot_word(chunk, 0) & WIDE_CLASSES[wide].mask()).count_ones().into();
        }
        let words = u64::from(CLASS_SLOTS[class]).div_ceil(64);
        let used = |word| (self.slot_word(chunk, word) & slot_mask(class, word)).count_ones();
        (0..words).map(|word| u64::from(used(word))).sum()
    }

    /// Offset and slots of the root table. No table is larger than the heap, so a hostile one does
    /// not make this take for ever.
    fn root_table(&self) -> (u64, u64) {
        let (table, slots) = (self.load(SUPER_ROOTS), self.load(SUPER_ROOTS + 8));
        (table, slots.min(self.len().saturating_sub(table) / 8))
    }

    /// Words of the root table that stand for roots.
    fn root_words(&self) -> impl Iterator<Item = u64> + '_ {
        let (table, slots) = self.root_table();
        let words = (0..slots).map(move |slot| self.load(table + slot * 8));
        words.filter(|word| *word != 0 && *word != SLOT_TOMBSTONE)
    }

    /// Offsets of the entries of roots.
    fn entries(&self) -> impl Iterator<Item = u64> + '_ {
        self.root_words().map(|word| word & ((1 << 48) - 1))
    }

    /// Offsets of the objects that hold the root table and the entries.
    pub(crate) fn root_objects(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.root_table().0).chain(self.entries())
    }

    /// Every root whose entry can be read, in no particular order, whatever else is damaged. Its
    /// object may lie anywhere.
    pub fn roots(&self) -> impl Iterator<Item = RootView<'a>> + '_ {
        self.root_words().filter_map(|word| self.root(word))
    }

    /// How many entries of roots cannot be read: they are not where they should be, or not what
    /// they were.
    pub fn unreadable_roots(&self) -> u64 {
        self.root_words().filter(|word| self.root(*word).is_none()).count() as u64
    }

    fn root(&self, word: u64) -> Option<RootView<'a>> {
        let entry = word & ((1 << 48) - 1);
        let length_word = self.load(entry + ENTRY_NAME_LENGTH);
        let length = length_word & !ENTRY_TYPED;
        // Before any byte of the name is looked at: a hostile length must not make this take for
        // ever.
        if !(1..=ROOT_NAME_BYTES_MAX as u64).contains(&length) {
            return None;
        }
        let start = usize::try_from(entry + ENTRY_NAME).ok()?;
        let name = self.bytes.get(start..)?.get(..length as usize)?;
        let hash = xxh3_64(name);
        let fits = hash == self.load(entry + ENTRY_HASH) && hash >> 48 == word >> 48;
        let at = entry_type_at(entry, length);
        let root_type = RootType { layout: self.load(at), version: self.load(at + 8) as u32 };
        Some(RootView {
            name: core::str::from_utf8(name).ok().filter(|_| fits)?,
            offset: self.load(entry + ENTRY_OBJECT),
            bytes: self.load(entry + ENTRY_SIZE),
            root_type: (length_word & ENTRY_TYPED != 0).then_some(root_type),
        })
    }

    /// Follows every aligned word that could be a pointer, from the objects of the roots on, and
    /// calls `leaked` for each object that was not met, ascending. Conservative: a number that
    /// looks like a pointer, also one into the middle of an object, keeps it; so what is reported
    /// is leaked for certain, unless the program keeps its links as something else than pointers.
    pub fn leaks(&self, leaked: &mut dyn FnMut(ObjectView)) -> Leaks {
        let mut met = Met { bits: std::vec![0; (self.len() / (16 * 64) + 1) as usize] };
        let mut queue: Vec<ObjectView> = Vec::new();
        let start_of =
            |offset: u64| self.object_at(offset).filter(|object| object.offset == offset);
        for object in self.root_objects().filter_map(start_of) {
            met.insert(object.offset);
        }
        for object in self.entries().filter_map(|entry| start_of(self.load(entry + ENTRY_OBJECT))) {
            if met.insert(object.offset) {
                queue.push(object);
            }
        }
        let base = self.load(SUPER_POINTER_BASE);
        let (wide, unit_bytes) = match self.load(SUPER_VERSION) >> 32 {
            // References of a portable heap.
            0 => (false, REF_UNIT_BYTES),
            bytes => (bytes == 8, 1),
        };
        while let Some(object) = queue.pop() {
            let end = (object.offset + object.bytes).min(self.len());
            let content = self.bytes.get(object.offset as usize..end as usize).unwrap_or(&[]);
            let mut follow = |pointer: u64| {
                let next = pointer.checked_sub(base).and_then(|offset| self.object_at(offset));
                queue.extend(next.filter(|next| met.insert(next.offset)));
            };
            if wide {
                content
                    .as_chunks::<8>()
                    .0
                    .iter()
                    .for_each(|word| follow(u64::from_le_bytes(*word)));
            } else {
                content
                    .as_chunks::<4>()
                    .0
                    .iter()
                    .for_each(|word| follow(u64::from(u32::from_le_bytes(*word)) * unit_bytes));
            }
        }
        let mut leaks = Leaks::default();
        for object in self.objects() {
            if met.holds(object.offset) {
                leaks.reached_objects += 1;
                leaks.reached_bytes += object.bytes;
            } else {
                leaks.leaked_objects += 1;
                leaks.leaked_bytes += object.bytes;
                leaked(object);
            }
        }
        leaks
    }
}

/// A set of objects: a bit for each 16 bytes.
struct Met {
    bits: Vec<u64>,
}

impl Met {
    /// Whether it was new.
    fn insert(&mut self, offset: u64) -> bool {
        let Some(word) = self.bits.get_mut((offset / 1024) as usize) else { return false };
        let bit = 1 << (offset / 16 % 64);
        let new = *word & bit == 0;
        *word |= bit;
        new
    }

    fn holds(&self, offset: u64) -> bool {
        self.bits
            .get((offset / 1024) as usize)
            .is_some_and(|word| word >> (offset / 16 % 64) & 1 == 1)
    }
}
