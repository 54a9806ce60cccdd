//! Mends the tables of a heap in a copy of its bytes, as far as nothing that is intact is lost by
//! it.
//!
//! What the checker finds is mended in two ways. A single flipped bit is turned back, if among all
//! bits of the words concerned one, and one only, makes the checker content and keeps the most in
//! use. Whatever else has only one possible meaning is written anew: what is always the same, what
//! can be counted, memory that was never described. Content of objects is never touched.
//!
//! Invariants:
//! - Without `accept_loss` no object and no root that the tables still tell of is given up, and
//!   nothing is guessed: what has two possible meanings stays as it is and is reported. A chunk is
//!   freed only if nothing speaks for an object in it (see `evidence`), however content that would
//!   make the checker.
//! - The result counts only if the independent checker ([`check`](fn@crate::check)) finds nothing
//!   in it.
//! - The work is bounded, whatever the bytes are.

use std::string::{String, ToString};
use std::time::{Duration, Instant};
use std::vec::Vec;

use crate::check::{Finding, check, check_if_sound};
use crate::classes::{CLASS_SLOTS, CLASSES, slot_mask};
use crate::error::OpenError;
use crate::evidence::{chunk_may_be_free, chunk_was_never_used, nothing_from_segment};
use crate::inspect::{bytes_of, inspect};
use crate::layout::*;
use crate::wide::{WIDE_CLASSES, wide_index, wide_slab_around};
use xxhash_rust::xxh3::xxh3_64;

/// For all of it. What is not mended by then is left.
const TIME_MAX: Duration = Duration::from_secs(60);
/// Findings that are kept: a hostile heap can have any number of them.
const FINDINGS_KEPT_MAX: usize = 10_000;
/// Findings whose words are searched for a flipped bit.
const FINDINGS_SEARCHED_MAX: usize = 4;
/// For all searches for flipped bits together.
const SEARCH_TIME_MAX: Duration = Duration::from_secs(30);

/// What the checker says about a part of the log that no transaction owns.
const LOG_OF_NOBODY: &str = "a part of the log belongs to no transaction";

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct MendReport {
    /// What was done, in order.
    pub mended: Vec<Mended>,
    /// What is left, when it could not be mended: the first of it, when it is very much. Empty: the
    /// bytes are those of a sound heap now.
    pub left: Vec<Finding>,
}

/// Something that was mended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Mended {
    /// What was wrong, and where.
    pub finding: Finding,
    /// What was done about it.
    pub how: &'static str,
    /// What is lost by it. Never anything without `accept_loss`.
    pub lost: Option<String>,
}

/// Mends a copy of a heap's bytes in place: rolls an open transaction back, as opening does, then
/// mends what the checker finds. With `accept_loss` it also gives up roots and small objects that
/// nothing is known about any more. When something is left, the copy is no use.
///
/// # Errors
/// When the bytes are no heap that can be opened or made one.
pub fn mend(copy: &mut [u64], accept_loss: bool) -> Result<MendReport, OpenError> {
    let mut mender = Mender { copy, mended: Vec::new(), begin: Instant::now() };
    loop {
        let found = match mender.look() {
            Ok(found) => found,
            // Also when the formatting was killed: that is done again, not mended.
            Err(error @ OpenError::Empty) => return Err(error),
            Err(error) if mender.superblock() || mender.segments() => {
                let offset = SUPER_MAGIC;
                let what = match error {
                    OpenError::Damaged { what, .. } => what,
                    _ => "the superblock cannot be read",
                };
                mender.note(
                    Finding { offset, what },
                    "written anew: only one set of values fits",
                    None,
                );
                continue;
            }
            // Not even a transaction can be rolled back: mend what that needs, but give nothing up
            // yet.
            Err(error) => match mender.findings_as_it_is() {
                found if mender.begin.elapsed() < TIME_MAX && mender.round(&found, false) => {
                    continue;
                }
                _ => return Err(error),
            },
        };
        let in_time = mender.begin.elapsed() < TIME_MAX;
        if found.is_empty() || !in_time || !mender.round(&found, accept_loss) {
            return Ok(MendReport { mended: mender.mended, left: found });
        }
    }
}

fn keep(found: &mut Vec<Finding>, finding: Finding) {
    if found.len() < FINDINGS_KEPT_MAX {
        found.push(finding);
    }
}

struct Mender<'a> {
    copy: &'a mut [u64],
    mended: Vec<Mended>,
    begin: Instant,
}

impl Mender<'_> {
    fn look(&mut self) -> Result<Vec<Finding>, OpenError> {
        let mut found = Vec::new();
        inspect(self.copy, &mut |finding| keep(&mut found, finding), &mut |_, _| {})?;
        Ok(found)
    }

    /// What the checker finds without an open before. The log may belong to a transaction that is
    /// still open.
    fn findings_as_it_is(&self) -> Vec<Finding> {
        let mut found = Vec::new();
        check(bytes_of(self.copy), &mut |finding| match finding.what {
            LOG_OF_NOBODY => {}
            _ => keep(&mut found, finding),
        });
        found
    }

    fn load(&self, offset: u64) -> u64 {
        self.copy.get((offset / 8) as usize).copied().unwrap_or(0)
    }

    fn store(&mut self, offset: u64, word: u64) {
        if let Some(place) = self.copy.get_mut((offset / 8) as usize) {
            *place = word;
        }
    }

    fn len(&self) -> u64 {
        size_of_val(self.copy) as u64
    }

    fn note(&mut self, finding: Finding, how: &'static str, lost: Option<String>) {
        self.mended.push(Mended { finding, how, lost });
    }

    /// Mends one thing; whether it could.
    fn round(&mut self, found: &[Finding], accept_loss: bool) -> bool {
        if self.flipped_bit(found) {
            self.note(found[0], "a flipped bit turned back", None);
            return true;
        }
        for finding in found {
            if let Some(how) = self.certain(*finding) {
                self.note(*finding, how, None);
                return true;
            }
        }
        if !accept_loss {
            return false;
        }
        for finding in found {
            if let Some((how, lost)) = self.with_loss(*finding) {
                self.note(*finding, how, Some(lost));
                return true;
            }
        }
        false
    }

    /// Looks for the one bit that, flipped, leaves nothing to find. Where a chunk that is not
    /// described could also be counted as free, what keeps more in use is right: nothing is lost by
    /// that.
    fn flipped_bit(&mut self, found: &[Finding]) -> bool {
        let mut words: Vec<u64> = Vec::new();
        for finding in found.iter().take(FINDINGS_SEARCHED_MAX) {
            self.words_of(*finding, &mut words);
        }
        words.sort_unstable();
        words.dedup();
        // The most that is kept in use, and whether two bits keep as much.
        let mut right: Option<((u64, u64), u64, u64)> = None;
        let mut certain = false;
        for at in words {
            let was = self.load(at);
            for bit in 0..64 {
                if self.begin.elapsed() > SEARCH_TIME_MAX {
                    self.store(at, was);
                    return false;
                }
                let frees = at % SEGMENT_BYTES == DESC_USED_CHUNKS && was >> bit & 1 == 1;
                let descriptor = (at & !(SEGMENT_BYTES - 1)) + bit * DESCRIPTOR_BYTES;
                let cuts_off =
                    at == SUPER_SEGMENTS && !nothing_from_segment(self.copy, was ^ 1 << bit);
                if cuts_off || frees && !chunk_may_be_free(self.copy, descriptor) {
                    continue;
                }
                self.store(at, was ^ 1 << bit);
                let report = check_if_sound(bytes_of(self.copy));
                let Some(kept) = report.map(|report| (report.chunks, report.objects)) else {
                    continue;
                };
                if right.is_none_or(|(most, ..)| kept >= most) {
                    certain = right.is_none_or(|(most, ..)| kept > most);
                    right = Some((kept, at, was ^ 1 << bit));
                }
            }
            self.store(at, was);
        }
        match right {
            Some((_, at, word)) if certain => self.store(at, word),
            _ => return false,
        }
        true
    }

    /// The words of the tables that a finding is about.
    fn words_of(&self, finding: Finding, words: &mut Vec<u64>) {
        let offset = finding.offset & !7;
        words.push(offset);
        let segment = offset & !(SEGMENT_BYTES - 1);
        words.extend([segment + DESC_HEAD, segment + DESC_USED_CHUNKS]);
        words.extend((0..4).map(|index| SUPER_ROOTS + index * 8));
        if offset - segment < CHUNK_BYTES {
            // In a table: the descriptor, and that of the chunk before it, which may be the head of
            // its run.
            let descriptor = offset & !(DESCRIPTOR_BYTES - 1);
            words.extend([descriptor + DESC_HEAD, descriptor + DESC_RUN_BYTES]);
            let head = Head::decode(self.load(descriptor + DESC_HEAD));
            let span = head.map_or(1, |head| u64::from(head.span).min(SEGMENT_CHUNKS));
            words
                .extend((1..span).map(|inside| descriptor + inside * DESCRIPTOR_BYTES + DESC_HEAD));
        } else if offset == LANE_OFFSET {
            words.extend([
                LANE_OFFSET + LANE_STATE,
                LANE_OFFSET + LANE_EXTENT,
                LANE_OFFSET + LANE_PENDING,
            ]);
            words.push(descriptor_of(LANE_OFFSET) + DESC_HEAD);
        } else {
            // A slot of the root table, or the entry of a root.
            let word = self.load(offset) & ((1 << 48) - 1);
            words.extend(self.root_slot(offset));
            for entry in [offset, word & !7] {
                let length = (self.load(entry + ENTRY_NAME_LENGTH) & !ENTRY_TYPED)
                    .min(ROOT_NAME_BYTES_MAX as u64);
                words.extend((0..(ENTRY_NAME + length).div_ceil(8)).map(|index| entry + index * 8));
            }
            let object = self.load(offset + ENTRY_OBJECT);
            for place in [offset, word, object] {
                let descriptor = descriptor_of(place);
                words.extend([
                    descriptor + DESC_HEAD,
                    (place & !(SEGMENT_BYTES - 1)) + DESC_USED_CHUNKS,
                ]);
                words.extend(self.slot_word(place));
            }
        }
        let len = self.len();
        words.retain(|word| *word < len);
    }

    /// Where the bit of the slot is that holds `offset`.
    fn slot_word(&self, offset: u64) -> Option<u64> {
        let head = Head::decode(self.load(descriptor_of(offset) + DESC_HEAD))?;
        if let Some((slab, _)) = wide_slab_around(|at| self.load(at), offset) {
            return Some(descriptor_of(slab) + DESC_SLOTS);
        }
        let class = usize::from(head.class);
        if head.kind != HeadKind::Slab || class >= CLASSES {
            return None;
        }
        let slot = crate::classes::slot_at(class, offset % CHUNK_BYTES);
        Some(descriptor_of(offset) + DESC_SLOTS + slot / 64 * 8)
    }

    /// What has only one possible meaning.
    fn certain(&mut self, finding: Finding) -> Option<&'static str> {
        let Finding { offset, what } = finding;
        let segment = offset & !(SEGMENT_BYTES - 1);
        let chunk = (offset - segment) / DESCRIPTOR_BYTES;
        let head = Head::decode(self.load(offset + DESC_HEAD));
        let used_at = segment + DESC_USED_CHUNKS;
        match what {
            "the segment has no valid head" if offset == 0 => {
                self.store(0, Head { kind: HeadKind::Segment, class: 0, span: 1 }.encode());
                Some("written anew: the first segment is always alone")
            }
            "a large object is larger than its segments" => {
                let head = head?;
                let room = u64::from(head.span)
                    .checked_mul(SEGMENT_BYTES)?
                    .checked_sub(head.object_start()?)?;
                self.store(offset + DESC_RUN_BYTES, room);
                Some("its size is set to all of its room")
            }
            "an object is larger than its run" => {
                self.store(offset + DESC_RUN_BYTES, u64::from(head?.span) * CHUNK_BYTES);
                Some("its size is set to all of its room")
            }
            "the table's own chunk counts as free" => {
                self.store(offset, self.load(offset) | TABLE_CHUNK_BIT);
                Some("counted as in use")
            }
            "a chunk past the end counts as free" => {
                self.store(
                    offset + DESC_HEAD,
                    Head { kind: HeadKind::Absent, class: 0, span: 1 }.encode(),
                );
                self.store(used_at, self.load(used_at) | 1 << chunk);
                Some("described as absent")
            }
            "a chunk in use has no valid head" if chunk_was_never_used(self.copy, offset) => {
                self.store(used_at, self.load(used_at) & !(1 << chunk));
                Some("counted as free: it was never described, so nothing was ever put there")
            }
            "a slot that does not exist counts as allocated" => {
                let descriptor = offset & !(DESCRIPTOR_BYTES - 1);
                let head = Head::decode(self.load(descriptor + DESC_HEAD))?;
                if let Some(index) = wide_index(head) {
                    self.store(offset, self.load(offset) & WIDE_CLASSES[index].mask());
                    return Some("no longer counted");
                }
                let class = usize::from(head.class);
                let word = (offset - descriptor - DESC_SLOTS) / 8;
                if class >= CLASSES || word >= u64::from(CLASS_SLOTS[class]).div_ceil(64) {
                    return None;
                }
                self.store(offset, self.load(offset) & slot_mask(class, word));
                Some("no longer counted")
            }
            "a part of a run counts as free" => {
                let span = u64::from(head?.span);
                if !self.is_whole_run(offset, span) {
                    return None;
                }
                self.store(used_at, self.load(used_at) | (u64::MAX >> (64 - span)) << chunk);
                Some("counted as in use")
            }
            "a chunk inside a run is described as something else" => {
                // One that is described, soundly, as something else may be that: two meanings.
                let damaged = |at: &u64| Head::decode(self.load(*at)).is_none();
                let inside = (1..u64::from(head?.span))
                    .map(|inside| offset + inside * DESCRIPTOR_BYTES + DESC_HEAD);
                let at = inside.into_iter().find(damaged)?;
                self.store(at, Head { kind: HeadKind::Inside, class: 0, span: 1 }.encode());
                Some("described anew")
            }
            LOG_OF_NOBODY => {
                let span = u64::from(head?.span).clamp(1, SEGMENT_CHUNKS - chunk);
                if !self.is_whole_run(offset, span) {
                    return None;
                }
                self.store(used_at, self.load(used_at) & !((u64::MAX >> (64 - span)) << chunk));
                Some("counted as free: no transaction is open")
            }
            "the transaction lane is not described" => {
                let descriptor = descriptor_of(LANE_OFFSET);
                self.store(
                    descriptor + DESC_HEAD,
                    Head { kind: HeadKind::Log, class: 0, span: 1 }.encode(),
                );
                self.store(descriptor + DESC_RUN_BYTES, CHUNK_BYTES);
                self.store(
                    DESC_USED_CHUNKS,
                    self.load(DESC_USED_CHUNKS) | 1 << (LANE_OFFSET / CHUNK_BYTES),
                );
                Some("described anew: it is always in the same place")
            }
            "the number of roots is told wrongly" => {
                self.count_roots();
                Some("counted anew")
            }
            _ => None,
        }
    }

    /// Whether every chunk of a run but its first is described as inside one.
    fn is_whole_run(&self, descriptor: u64, span: u64) -> bool {
        let inside = (1..span).map(|inside| descriptor + inside * DESCRIPTOR_BYTES + DESC_HEAD);
        let mut heads = inside.map(|at| Head::decode(self.load(at)).map(|head| head.kind));
        heads.all(|kind| kind == Some(HeadKind::Inside))
    }

    /// Gives up what nothing is known about; what was done, and what is lost.
    fn with_loss(&mut self, finding: Finding) -> Option<(&'static str, String)> {
        let Finding { offset, what } = finding;
        match what {
            "a chunk in use has no valid head"
            | "a chunk is described as what it cannot be"
            | "a slab's size class does not exist" => {
                self.store(
                    offset + DESC_HEAD,
                    Head { kind: HeadKind::Run, class: 0, span: 1 }.encode(),
                );
                self.store(offset + DESC_RUN_BYTES, CHUNK_BYTES);
                let segment = offset & !(SEGMENT_BYTES - 1);
                let chunk = segment + (offset - segment) / DESCRIPTOR_BYTES * CHUNK_BYTES;
                let lost = std::format!(
                    "which objects were in the 64 KiB at {chunk:#x}; their bytes stay"
                );
                Some(("described as one object", lost))
            }
            "a root's entry is not an allocated object of its size"
            | "a root's entry leaves the heap"
            | "a root's name does not match its hash"
            | "a root cannot be found by its name"
            | "a root's object is not allocated with its size" => {
                let slot = self.root_slot(offset)?;
                let name = self.root_name(self.load(slot) & ((1 << 48) - 1));
                self.store(slot, SLOT_TOMBSTONE);
                self.count_roots();
                Some(("removed", std::format!("the root {name}")))
            }
            _ => None,
        }
    }

    fn root_slots(&self) -> impl Iterator<Item = u64> + use<> {
        let (table, slots) = (self.load(SUPER_ROOTS), self.load(SUPER_ROOTS + 8));
        let slots = slots.min(self.len().saturating_sub(table) / 8);
        (0..slots).map(move |index| table + index * 8)
    }

    /// The slot of the root table that is, or leads to, `offset`.
    fn root_slot(&self, offset: u64) -> Option<u64> {
        let words = self.root_slots().map(|slot| (slot, self.load(slot)));
        let mut live = words.filter(|(_, word)| *word != 0 && *word != SLOT_TOMBSTONE);
        live.find(|(slot, word)| *slot == offset || word & ((1 << 48) - 1) == offset)
            .map(|(slot, _)| slot)
    }

    fn root_name(&self, entry: u64) -> String {
        let length = self.load(entry + ENTRY_NAME_LENGTH) & !ENTRY_TYPED;
        let start = (entry + ENTRY_NAME) as usize;
        let name = bytes_of(self.copy).get(start..).and_then(|rest| rest.get(..length as usize));
        let name =
            name.filter(|name| name.len() <= ROOT_NAME_BYTES_MAX).map(String::from_utf8_lossy);
        name.map_or("whose name is lost".to_string(), |name| std::format!("{name:?}"))
    }

    fn count_roots(&mut self) {
        let words: Vec<u64> =
            self.root_slots().map(|slot| self.load(slot)).filter(|word| *word != 0).collect();
        self.store(SUPER_ROOTS + 16, words.len() as u64);
        let live = words.iter().filter(|word| **word != SLOT_TOMBSTONE).count();
        self.store(SUPER_ROOTS + 24, live as u64);
    }

    /// Writes the fixed part of the superblock anew if only one set of values fits it; whether it
    /// did.
    fn superblock(&mut self) -> bool {
        let fixed: Vec<u64> = (SUPER_MAGIC..SUPER_SUM).step_by(8).map(|at| self.load(at)).collect();
        let sum = self.load(SUPER_SUM);
        let fits = |words: &[u64]| {
            let pointer_bytes = words[1] >> 32;
            words[0] == MAGIC
                && words[3] == LANE_OFFSET
                && (1..=FORMAT_VERSION).contains(&(words[1] as u32))
                && matches!(pointer_bytes, 0 | 4 | 8)
        };
        let mut right: Vec<(Vec<u64>, u64)> = Vec::new();
        let mut note = |words: Vec<u64>, sum: u64| {
            if fits(&words) && !right.iter().any(|known| *known == (words.clone(), sum)) {
                right.push((words, sum));
            }
        };
        // Words that are always the same, and one flipped bit in the others.
        let known = [MAGIC, fixed[1], fixed[2], LANE_OFFSET];
        for index in 0..4 {
            for bit in 0..64 {
                let mut words = known.to_vec();
                words[index] ^= 1 << bit;
                if sum_of(&words) == sum {
                    note(words, sum);
                }
            }
        }
        if sum_of(&known) == sum {
            note(known.to_vec(), sum);
        }
        // One flipped bit in the sum.
        if (sum_of(&fixed) ^ sum).is_power_of_two() {
            note(fixed.clone(), sum_of(&fixed));
        }
        let [(words, sum)] = right.as_slice() else { return false };
        if *words == fixed && *sum == self.load(SUPER_SUM) {
            return false;
        }
        for (index, word) in words.iter().enumerate() {
            self.store(SUPER_MAGIC + index as u64 * 8, *word);
        }
        self.store(SUPER_SUM, *sum);
        true
    }

    /// Turns a flipped bit in the number of segments back, without which nothing else can be looked
    /// at.
    fn segments(&mut self) -> bool {
        let was = self.load(SUPER_SEGMENTS);
        let mut right = (0..64).map(|bit| was ^ 1 << bit).filter(|word| {
            self.store(SUPER_SEGMENTS, *word);
            check_if_sound(bytes_of(self.copy)).is_some() && nothing_from_segment(self.copy, *word)
        });
        let (first, second) = (right.next(), right.next());
        let word = first.filter(|_| second.is_none());
        self.store(SUPER_SEGMENTS, word.unwrap_or(was));
        word.is_some()
    }
}

fn sum_of(words: &[u64]) -> u64 {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    xxh3_64(&bytes)
}
