//! Verifies a heap's bytes from outside: safe code over an untrusted slice, independent of the code
//! that writes them.
//!
//! What it proves when it finds nothing: the superblock is whole; every chunk in use is described
//! and no two objects overlap; no bit stands for a slot that does not exist; the log is empty and
//! owns just its chunk; every root has a findable name and an allocated object of at least its
//! size. What it cannot see: the content of objects, and objects that nothing refers to.

use crate::classes::{CLASS_BYTES, CLASS_SLOTS, CLASSES, slot_mask};
use crate::layout::*;
use crate::wide::{WIDE_CLASSES, WIDE_SLABS_VERSION, wide_index, wide_slab_around};
use xxhash_rust::xxh3::xxh3_64;

/// One contradiction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Where, from the start of the heap.
    pub offset: u64,
    /// What is wrong there.
    pub what: &'static str,
}

/// What a check counted. Sizes in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// Contradictions found.
    pub findings: u64,
    /// Formatted segments.
    pub segments: u64,
    /// Chunks in use, tables included.
    pub chunks: u64,
    /// Allocated objects.
    pub objects: u64,
    /// Bytes that they take, rounding included.
    pub object_bytes: u64,
    /// Named roots.
    pub roots: u64,
}

impl CheckReport {
    /// Whether nothing was found.
    pub fn is_sound(&self) -> bool {
        self.findings == 0
    }
}

/// Checks the bytes of a heap in which no transaction is open (open it once before, or check a
/// private copy that was opened). Calls `found` for every contradiction. Never panics, whatever the
/// bytes are.
pub fn check(bytes: &[u8], found: &mut dyn FnMut(Finding)) -> CheckReport {
    check_until(bytes, u64::MAX, found)
}

/// As [`check`], if the bytes are sound; `None` as soon as they are not.
#[cfg(feature = "std")]
pub(crate) fn check_if_sound(bytes: &[u8]) -> Option<CheckReport> {
    Some(check_until(bytes, 1, &mut |_| {})).filter(CheckReport::is_sound)
}

/// Ends soon after so many findings.
fn check_until(bytes: &[u8], findings_max: u64, found: &mut dyn FnMut(Finding)) -> CheckReport {
    let mut checker = Checker {
        bytes,
        found,
        report: CheckReport::default(),
        probes_left: 0,
        findings_max,
        waymarks: [0; WAYMARKS],
        stride: 1,
    };
    if checker.superblock() {
        checker.segments();
        checker.lane();
        checker.roots();
    }
    checker.report
}

/// An honest table, at most three quarters full, takes a few steps for each root.
const PROBES_PER_SLOT_MAX: u64 = 64;
/// Steps that a small table may take as well, whose names were chosen to meet: that is no damage.
const PROBES_FREE: u64 = 1 << 24;

/// Places in the row of segments from which an object is looked for.
const WAYMARKS: usize = 256;

struct Checker<'a> {
    bytes: &'a [u8],
    found: &'a mut dyn FnMut(Finding),
    report: CheckReport,
    /// Steps that looking roots up may still take: a hostile table must not make the check take for
    /// ever.
    probes_left: u64,
    /// With so many findings it may end.
    findings_max: u64,
    /// Number *i* is the segment that the segment *i* times `stride` belongs to, as far as the walk
    /// over them came: a heap has many, and only a walk tells a segment from the inside of a large
    /// object.
    waymarks: [u64; WAYMARKS],
    stride: u64,
}

impl Checker<'_> {
    fn goes_on(&self) -> bool {
        self.report.findings < self.findings_max
    }

    fn load(&self, offset: u64) -> u64 {
        let word =
            usize::try_from(offset).ok().and_then(|at| self.bytes.get(at..)?.first_chunk::<8>());
        word.map_or(0, |word| u64::from_le_bytes(*word))
    }

    fn expect(&mut self, holds: bool, offset: u64, what: &'static str) -> bool {
        if !holds {
            self.report.findings += 1;
            (self.found)(Finding { offset, what });
        }
        holds
    }

    fn version(&self) -> u32 {
        self.load(SUPER_VERSION) as u32
    }

    fn superblock(&mut self) -> bool {
        let len = self.bytes.len() as u64;
        if !self.expect(len >= HEAP_BYTES_MIN, 0, "there is not even room for an empty heap")
            || !self.expect(
                self.load(SUPER_MAGIC) == MAGIC,
                SUPER_MAGIC,
                "the magic number is not a heap's",
            )
        {
            return false;
        }
        let version = self.version();
        // A kill in the step to a newer version leaves the newer one's sum, and the older version
        // in force.
        let sum_holds = (version..=FORMAT_VERSION).any(|version| {
            let mut fixed = [0; (SUPER_SUM - SUPER_MAGIC) as usize];
            fixed.copy_from_slice(&self.bytes[SUPER_MAGIC as usize..SUPER_SUM as usize]);
            fixed[(SUPER_VERSION - SUPER_MAGIC) as usize..][..4]
                .copy_from_slice(&version.to_le_bytes());
            self.load(SUPER_SUM) == xxh3_64(&fixed)
        });
        let mut sound =
            self.expect(sum_holds, SUPER_SUM, "the superblock's checksum does not match");
        sound &= self.expect(
            (1..=FORMAT_VERSION).contains(&version),
            SUPER_VERSION,
            "the format version is not known",
        );
        sound &= self.expect(
            self.load(SUPER_LANE) == LANE_OFFSET,
            SUPER_LANE,
            "the lane is not where it must be",
        );
        let segments = self.load(SUPER_SEGMENTS);
        let starts_inside = segments >= 1
            && segments.saturating_sub(1).saturating_mul(SEGMENT_BYTES).saturating_add(CHUNK_BYTES)
                <= len;
        sound
            & self.expect(
                starts_inside,
                SUPER_SEGMENTS,
                "more segments are counted than there is room for",
            )
    }

    fn segments(&mut self) {
        let segments = self.load(SUPER_SEGMENTS);
        self.stride = segments.div_ceil(WAYMARKS as u64).max(1);
        let mut segment = 0;
        while segment < segments && self.goes_on() {
            let start = segment * SEGMENT_BYTES;
            let head = match Head::decode(self.load(start + DESC_HEAD)) {
                Some(head @ Head { kind: HeadKind::Segment, span: 1.., .. }) => head,
                _ => {
                    self.expect(false, start, "the segment has no valid head");
                    return;
                }
            };
            let span = u64::from(head.span);
            let first = segment.div_ceil(self.stride);
            let last = ((segment + span - 1) / self.stride).min(WAYMARKS as u64 - 1);
            (first..=last).for_each(|mark| self.waymarks[mark as usize] = segment);
            self.report.segments += span;
            if span > 1 {
                self.spanning(segment, head, segments);
            } else {
                self.segment(start);
            }
            segment += span;
        }
    }

    fn spanning(&mut self, segment: u64, head: Head, segments: u64) {
        let start = segment * SEGMENT_BYTES;
        let span = u64::from(head.span);
        let object_start = head.object_start();
        let known = object_start.is_some_and(|at| at == CHUNK_BYTES || self.version() > 1);
        self.expect(known, start, "a large object starts where none can");
        let fits = span <= segments - segment
            && (segment + span) * SEGMENT_BYTES <= self.bytes.len() as u64;
        self.expect(fits && segment > 0, start, "a large object reaches past the end of the heap");
        let room = span * SEGMENT_BYTES - object_start.unwrap_or(CHUNK_BYTES);
        self.expect(
            self.load(start + DESC_RUN_BYTES) <= room,
            start,
            "a large object is larger than its segments",
        );
        self.report.chunks += span * SEGMENT_CHUNKS;
        self.report.objects += 1;
        self.report.object_bytes += room;
    }

    fn segment(&mut self, start: u64) {
        let used = self.load(start + DESC_USED_CHUNKS);
        let present = ((self.bytes.len() as u64 - start) / CHUNK_BYTES).min(SEGMENT_CHUNKS);
        self.expect(
            used & TABLE_CHUNK_BIT != 0,
            start + DESC_USED_CHUNKS,
            "the table's own chunk counts as free",
        );
        self.report.chunks += 1;
        let mut chunk = 1;
        while chunk < SEGMENT_CHUNKS {
            let descriptor = start + chunk * DESCRIPTOR_BYTES;
            if used >> chunk & 1 == 0 {
                self.expect(chunk < present, descriptor, "a chunk past the end counts as free");
                chunk += 1;
                continue;
            }
            let Some(head) = Head::decode(self.load(descriptor + DESC_HEAD)) else {
                self.expect(false, descriptor, "a chunk in use has no valid head");
                chunk += 1;
                continue;
            };
            // One that is there may still be described as absent: the region has grown, and the
            // heap had other room since.
            let absent = head.kind == HeadKind::Absent;
            self.expect(
                absent || chunk < present,
                descriptor,
                "a chunk's presence is told wrongly",
            );
            self.report.chunks += u64::from(!absent) * u64::from(head.span);
            match head.kind {
                HeadKind::Slab => match wide_index(head) {
                    Some(index) => self.wide_slab(descriptor, head, index, chunk, used),
                    None => self.slab(descriptor, head),
                },
                HeadKind::Run | HeadKind::Log => self.run(descriptor, head, chunk, used),
                // With a span it would hide the chunks behind it.
                HeadKind::Absent => {
                    self.expect(head.span == 1, descriptor, "a chunk's presence is told wrongly");
                }
                HeadKind::Segment | HeadKind::Inside => {
                    self.expect(false, descriptor, "a chunk is described as what it cannot be");
                }
            }
            chunk += if absent { 1 } else { u64::from(head.span.max(1)) };
        }
    }

    fn slab(&mut self, descriptor: u64, head: Head) {
        let class = usize::from(head.class);
        if !self.expect(
            class < CLASSES && head.span == 1,
            descriptor,
            "a slab's size class does not exist",
        ) {
            return;
        }
        for word in 0..u64::from(CLASS_SLOTS[class]).div_ceil(64) {
            let at = descriptor + DESC_SLOTS + word * 8;
            let bits = self.load(at);
            self.expect(
                bits & !slot_mask(class, word) == 0,
                at,
                "a slot that does not exist counts as allocated",
            );
            let objects = u64::from((bits & slot_mask(class, word)).count_ones());
            self.report.objects += objects;
            self.report.object_bytes += objects * u64::from(CLASS_BYTES[class]);
        }
    }

    /// A slab of several chunks, whose bitmap is one word.
    fn wide_slab(&mut self, descriptor: u64, head: Head, index: usize, chunk: u64, used: u64) {
        self.expect(
            self.version() >= WIDE_SLABS_VERSION,
            descriptor,
            "a slab spans chunks in a version that has no such slabs",
        );
        if !self.chunks_of_run(descriptor, head, chunk, used) {
            return;
        }
        let (at, class) = (descriptor + DESC_SLOTS, WIDE_CLASSES[index]);
        let bits = self.load(at);
        self.expect(
            bits & !class.mask() == 0,
            at,
            "a slot that does not exist counts as allocated",
        );
        let objects = u64::from((bits & class.mask()).count_ones());
        self.report.objects += objects;
        self.report.object_bytes += objects * u64::from(class.slot_bytes);
    }

    /// Looks at the chunks of a run or of a wide slab; `false` when it leaves its segment.
    fn chunks_of_run(&mut self, descriptor: u64, head: Head, chunk: u64, used: u64) -> bool {
        let span = u64::from(head.span);
        if !self.expect(
            (1..=SEGMENT_CHUNKS - chunk).contains(&span),
            descriptor,
            "a run leaves its segment",
        ) {
            return false;
        }
        let mask = (u64::MAX >> (64 - span)) << chunk;
        self.expect(used & mask == mask, descriptor, "a part of a run counts as free");
        for inside in 1..span {
            let head = Head::decode(self.load(descriptor + inside * DESCRIPTOR_BYTES + DESC_HEAD));
            let described = head.is_some_and(|head| head.kind == HeadKind::Inside);
            self.expect(
                described,
                descriptor,
                "a chunk inside a run is described as something else",
            );
        }
        true
    }

    fn run(&mut self, descriptor: u64, head: Head, chunk: u64, used: u64) {
        if !self.chunks_of_run(descriptor, head, chunk, used) {
            return;
        }
        let span = u64::from(head.span);
        let bytes = self.load(descriptor + DESC_RUN_BYTES);
        self.expect(bytes <= span * CHUNK_BYTES, descriptor, "an object is larger than its run");
        if head.kind == HeadKind::Run {
            self.report.objects += 1;
            self.report.object_bytes += span * CHUNK_BYTES;
        } else {
            let own = descriptor == descriptor_of(LANE_OFFSET);
            self.expect(own, descriptor, "a part of the log belongs to no transaction");
        }
    }

    fn lane(&mut self) {
        let head = Head::decode(self.load(descriptor_of(LANE_OFFSET) + DESC_HEAD));
        let described = head == Some(Head { kind: HeadKind::Log, class: 0, span: 1 });
        let in_use = self.load(DESC_USED_CHUNKS) >> (LANE_OFFSET / CHUNK_BYTES) & 1 == 1;
        self.expect(described && in_use, LANE_OFFSET, "the transaction lane is not described");
        let idle = self.load(LANE_OFFSET + LANE_STATE) & 1 == 0
            && self.load(LANE_OFFSET + LANE_EXTENT) == 0
            && self.load(LANE_OFFSET + LANE_PENDING) == 0;
        self.expect(
            idle && !self.has_record(),
            LANE_OFFSET,
            "a transaction is open: open the heap once before checking it",
        );
    }

    /// Whether the log has a record that counts. Of one that was cut off by a reset some words may
    /// be there.
    fn has_record(&self) -> bool {
        let at = LANE_OFFSET + EXTENT_RECORDS;
        let sequence = self.load(at + RECORD_SEQUENCE);
        let (target, lengths) = (self.load(at + RECORD_TARGET), self.load(at + RECORD_LENGTHS));
        let payload = usize::try_from(at + RECORD_BYTES).ok().and_then(|start| {
            let bytes = (lengths & 0xFFFF_FFFF).min(RECORD_PAYLOAD_MAX + 1) as usize;
            self.bytes.get(start..)?.get(..bytes)
        });
        sequence >> 8 == self.load(LANE_OFFSET + LANE_STATE) >> 1
            && (1..=3).contains(&(sequence & 0xFF))
            && self.load(at + RECORD_SUM)
                == sum_of_record(target, lengths, sequence, payload.unwrap_or(&[]))
    }

    fn roots(&mut self) {
        let word = |index: u64| self.load(SUPER_ROOTS + index * 8);
        let (table, slots, used, roots) = (word(0), word(1), word(2), word(3));
        if slots == 0 {
            self.expect(
                table == 0 && used == 0 && roots == 0,
                SUPER_ROOTS,
                "roots are counted but there is no table",
            );
            return;
        }
        let sound = slots.is_power_of_two()
            && self.object_bytes_at(table).is_some_and(|bytes| bytes / 8 >= slots);
        if !self.expect(sound, SUPER_ROOTS, "the root table is not an allocated object of its size")
        {
            return;
        }
        let (mut in_use, mut live) = (0, 0);
        self.probes_left = slots.saturating_mul(PROBES_PER_SLOT_MAX).max(PROBES_FREE);
        for index in 0..slots {
            if !self.goes_on() {
                return;
            }
            let at = table + index * 8;
            match self.load(at) {
                0 => {}
                SLOT_TOMBSTONE => in_use += 1,
                word => {
                    in_use += 1;
                    live += 1;
                    if self.probes_left > 0 {
                        self.entry(at, word, table, slots);
                    }
                }
            }
        }
        self.expect(
            self.probes_left > 0,
            SUPER_ROOTS,
            "the root table is too crowded to be searched",
        );
        self.expect(
            used == in_use && roots == live,
            SUPER_ROOTS,
            "the number of roots is told wrongly",
        );
        self.report.roots = live;
    }

    fn entry(&mut self, at: u64, word: u64, table: u64, slots: u64) {
        let entry = word & ((1 << 48) - 1);
        let length = self.load(entry.saturating_add(ENTRY_NAME_LENGTH));
        let typed = length & ENTRY_TYPED != 0 && self.version() > 1;
        let length = if typed { length & !ENTRY_TYPED } else { length };
        let needed = if typed {
            entry_type_at(ENTRY_TYPE_BYTES, length)
        } else {
            ENTRY_NAME.saturating_add(length)
        };
        let fits = length >= 1
            && length <= ROOT_NAME_BYTES_MAX as u64
            && self.object_bytes_at(entry).is_some_and(|bytes| bytes >= needed);
        if !self.expect(fits, at, "a root's entry is not an allocated object of its size") {
            return;
        }
        let Some(name) =
            self.bytes.get((entry + ENTRY_NAME) as usize..(entry + ENTRY_NAME + length) as usize)
        else {
            self.expect(false, at, "a root's entry leaves the heap");
            return;
        };
        let hash = xxh3_64(name);
        let known = hash == self.load(entry + ENTRY_HASH) && hash >> 48 == word >> 48;
        let is_text = core::str::from_utf8(name).is_ok();
        self.expect(known && is_text, entry, "a root's name does not match its hash");
        let place = (0..slots.min(self.probes_left))
            .map(|step| table + (hash.wrapping_add(step) & (slots - 1)) * 8)
            .take_while(|slot| self.load(*slot) != 0)
            .position(|slot| slot == at);
        self.probes_left =
            self.probes_left.saturating_sub(place.map_or(slots, |place| place as u64 + 1));
        self.expect(place.is_some(), at, "a root cannot be found by its name");
        let (object, bytes) = (self.load(entry + ENTRY_OBJECT), self.load(entry + ENTRY_SIZE));
        let holds = self.object_bytes_at(object).is_some_and(|room| room >= bytes);
        self.expect(holds, entry, "a root's object is not allocated with its size");
    }

    /// Room of the allocated object that starts at `offset`.
    fn object_bytes_at(&self, offset: u64) -> Option<u64> {
        let segments = self.load(SUPER_SEGMENTS);
        let mark = usize::try_from(offset / SEGMENT_BYTES / self.stride).ok()?;
        let mut segment = *self.waymarks.get(mark)?;
        while segment < segments {
            let start = segment * SEGMENT_BYTES;
            let head = Head::decode(self.load(start + DESC_HEAD))
                .filter(|head| head.kind == HeadKind::Segment && head.span >= 1)?;
            let span = u64::from(head.span);
            let end = start.saturating_add(span.saturating_mul(SEGMENT_BYTES));
            if offset < end {
                let room = end.min(self.bytes.len() as u64);
                return if span == 1 {
                    self.object_in_segment(start, offset)
                } else {
                    (head.object_start() == Some(offset - start))
                        .then(|| room.saturating_sub(offset))
                };
            }
            segment += span;
        }
        None
    }

    fn object_in_segment(&self, start: u64, offset: u64) -> Option<u64> {
        let chunk = (offset - start) / CHUNK_BYTES;
        let used = self.load(start + DESC_USED_CHUNKS);
        let head = Head::decode(self.load(descriptor_of(offset) + DESC_HEAD))?;
        if chunk == 0 || used >> chunk & 1 == 0 {
            return None;
        }
        let within = offset % CHUNK_BYTES;
        match head.kind {
            HeadKind::Run => (within == 0).then_some(u64::from(head.span) * CHUNK_BYTES),
            HeadKind::Slab if usize::from(head.class) < CLASSES => {
                let class = usize::from(head.class);
                let bytes = u64::from(CLASS_BYTES[class]);
                let slot = within / bytes;
                let word = self.load(descriptor_of(offset) + DESC_SLOTS + slot / 64 * 8);
                let taken = within.is_multiple_of(bytes)
                    && slot < u64::from(CLASS_SLOTS[class])
                    && word >> (slot % 64) & 1 == 1;
                taken.then_some(bytes)
            }
            HeadKind::Slab | HeadKind::Inside => {
                let (slab, index) = wide_slab_around(|at| self.load(at), offset)?;
                let first = slab / CHUNK_BYTES % SEGMENT_CHUNKS;
                let class = WIDE_CLASSES[index];
                let slot = class.slot_at(offset - slab)?;
                let word = self.load(descriptor_of(slab) + DESC_SLOTS);
                let taken = slot * u64::from(class.slot_bytes) == offset - slab
                    && used >> first & 1 == 1
                    && word >> slot & 1 == 1;
                taken.then_some(class.slot_bytes.into())
            }
            _ => None,
        }
    }
}
