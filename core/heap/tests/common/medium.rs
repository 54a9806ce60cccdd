//! Memory behind a cache, as a reset of the machine would leave it: what of a store has reached it
//! for certain, and what may have.
//!
//! A line that was stored to may be in memory as of any of these stores, each line by itself. What
//! was written back and drained is there for certain. Words are stored whole, and the stores to one
//! line arrive in their order (Intel SDM volume 3, memory ordering; the persistency model of x86,
//! Raad et al., "Persistency Semantics of the Intel-x86 Architecture").

use std::collections::{BTreeMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Range;

use holdfast_heap::Backing;
use holdfast_heap::recorder::Event;

use super::{Dice, TestMemory};

pub const LINE: usize = 64;
type Line = [u8; LINE];

/// Larger stores count as one for each line.
const WORD_BY_WORD_BYTES_MAX: usize = 256;

/// A line whose last stores may be lost.
#[derive(Default)]
struct Pending {
    versions: Vec<Line>,
    /// How many of them are on their way.
    started: usize,
}

/// Which write-backs the medium does not see: for canaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Losing {
    Nothing,
    /// Of the range of offsets, a segment at a time.
    WriteBacks(u64, u64),
    Drains,
}

pub struct Medium {
    base: usize,
    bytes: usize,
    /// What is in memory for certain; between two images `scratch` has the same.
    scratch: TestMemory,
    durable: Vec<u8>,
    /// Changes with every line that arrives.
    mark: u64,
    pending: BTreeMap<usize, Pending>,
    pub losing: Losing,
    dice: Dice,
    /// Images of one moment at most.
    images_max: u64,
    seen: HashSet<u64>,
    pub images: u64,
}

impl Medium {
    /// All of `memory` is in memory now.
    pub fn new(memory: &TestMemory, seed: u64, images_max: u64) -> Medium {
        Medium {
            base: memory.base() as usize,
            bytes: memory.limit_bytes() as usize,
            scratch: memory.copy(),
            durable: memory.bytes().to_vec(),
            mark: 0,
            pending: BTreeMap::new(),
            losing: Losing::Nothing,
            dice: Dice(seed),
            images_max,
            seen: HashSet::new(),
            images: 0,
        }
    }

    /// What the processor sees, which is in the heap's own memory.
    fn cached(&self, line: usize) -> Line {
        let mut bytes = [0; LINE];
        // SAFETY: the test keeps the memory for as long as the medium listens, and no thread stores
        // to it meanwhile.
        unsafe {
            bytes.as_mut_ptr().copy_from_nonoverlapping((self.base + line) as *const u8, LINE)
        };
        bytes
    }

    /// Takes note of an event; `true` after a store, when there is something new that a reset may
    /// leave.
    pub fn note(&mut self, event: Event) -> bool {
        match event {
            Event::Stored { address, bytes } => {
                let Some(start) =
                    address.checked_sub(self.base).filter(|start| start + bytes <= self.bytes)
                else {
                    return false;
                };
                self.stored(start, bytes);
                true
            }
            Event::WrittenBack { address, bytes } => {
                let start = address - self.base;
                let within = start as u64 % (4 << 20);
                if !matches!(self.losing, Losing::WriteBacks(from, to) if (from..to).contains(&within))
                {
                    for (_, pending) in self.pending.range_mut(start / LINE * LINE..start + bytes) {
                        pending.started = pending.versions.len();
                    }
                }
                false
            }
            Event::Drained => {
                if self.losing != Losing::Drains {
                    self.arrive();
                }
                false
            }
        }
    }

    fn stored(&mut self, start: usize, bytes: usize) {
        for line in (start / LINE * LINE..start + bytes).step_by(LINE) {
            let now = self.cached(line);
            let (from, to) = (start.max(line) - line, (start + bytes).min(line + LINE) - line);
            let durable = &self.durable[line..line + LINE];
            let pending = self.pending.entry(line).or_default();
            let mut version =
                pending.versions.last().copied().unwrap_or_else(|| durable.try_into().unwrap());
            if bytes <= WORD_BY_WORD_BYTES_MAX {
                for word in (from / 8 * 8..to).step_by(8) {
                    let part = word.max(from)..(word + 8).min(to);
                    version[part.clone()].copy_from_slice(&now[part]);
                    pending.versions.push(version);
                }
            } else {
                version[from..to].copy_from_slice(&now[from..to]);
                pending.versions.push(version);
            }
        }
    }

    /// The operation has come to its end: what was seen of it counts as new when the next one
    /// leaves it.
    pub fn end_operation(&mut self) {
        self.seen.clear();
    }

    fn arrive(&mut self) {
        let (durable, scratch, mark) = (&mut self.durable, &mut self.scratch, &mut self.mark);
        self.pending.retain(|line, pending| {
            if pending.started > 0 {
                let arrived = pending.versions[pending.started - 1];
                *mark = hash_of(&(*mark, line, arrived));
                durable[*line..line + LINE].copy_from_slice(&arrived);
                scratch.bytes_mut()[*line..line + LINE].copy_from_slice(&arrived);
                pending.versions.drain(..pending.started);
                pending.started = 0;
            }
            !pending.versions.is_empty()
        });
    }

    /// Makes what a reset may leave now, image by image: with few lines all choices of which of
    /// them are there, with more a part of these; and some that have a line as of a store in
    /// between. `see` gets each image that is new, and returns where it has stored to it.
    pub fn each_image(&mut self, mut see: impl FnMut(&mut TestMemory, u64) -> Vec<Range<usize>>) {
        let lines: Vec<(usize, Vec<Line>)> =
            self.pending.iter().map(|(line, pending)| (*line, pending.versions.clone())).collect();
        let all = 1_u64.checked_shl(lines.len() as u32).unwrap_or(u64::MAX).min(1 << 63);
        let exhaustive = lines.len() <= 12 && all <= self.images_max;
        let between = if lines.iter().any(|(_, versions)| versions.len() > 1) { 16 } else { 0 };
        let count = if exhaustive { all } else { self.images_max };
        for number in 0..count + between {
            let choice: Vec<usize> = lines
                .iter()
                .enumerate()
                .map(|(index, (_, versions))| {
                    let newest = versions.len();
                    match number {
                        // Of many lines: none and all, and then each alone and all but each, as far
                        // as that goes.
                        _ if number >= count => self.dice.below(newest as u64 + 1) as usize,
                        0 => 0,
                        1 if !exhaustive => newest,
                        _ if exhaustive => newest * (number as usize >> index & 1),
                        _ if number / 2 <= lines.len() as u64 => {
                            let alone = number / 2 - 1 == index as u64;
                            newest * usize::from(alone == (number % 2 == 0))
                        }
                        _ => newest * self.dice.below(2) as usize,
                    }
                })
                .collect();
            self.one_image(&lines, &choice, &mut see);
        }
    }

    fn one_image(
        &mut self,
        lines: &[(usize, Vec<Line>)],
        choice: &[usize],
        see: &mut impl FnMut(&mut TestMemory, u64) -> Vec<Range<usize>>,
    ) {
        let chosen = lines.iter().zip(choice).filter(|(_, choice)| **choice > 0);
        let mut touched = Vec::new();
        for ((line, versions), choice) in chosen {
            let version = versions[choice - 1];
            if self.durable[*line..line + LINE] != version {
                touched.push((*line, version));
            }
        }
        if !self.seen.insert(hash_of(&(self.mark, &touched))) {
            return;
        }
        self.images += 1;
        for (line, version) in &touched {
            self.scratch.bytes_mut()[*line..line + LINE].copy_from_slice(version);
        }
        let stored = see(&mut self.scratch, self.images);
        for range in
            stored.into_iter().chain(touched.into_iter().map(|(line, _)| line..line + LINE))
        {
            self.scratch.bytes_mut()[range.clone()].copy_from_slice(&self.durable[range]);
        }
    }
}

fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
