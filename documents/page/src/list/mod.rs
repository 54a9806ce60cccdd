//! The display list: what a page paints, in bytes without pointers, found by where on the page it
//! is.
//!
//! The page is cut into bands of [`BAND_HEIGHT`] lines. Each has the numbers of the commands that
//! may paint in it, in the order of painting, with the layers around them; what goes through many
//! bands is in a list of its own. A viewport is the commands of its bands.

pub(crate) mod cost;
mod extent;
#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]
mod extreme;
mod read;
pub(crate) mod stays;
pub(crate) mod wire;
mod write;

use std::ops::Range;

use anyrender::recording::Scene;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub(crate) use cost::AscendingRanges;
use extent::LayerExtents;
pub(crate) use read::{PaintSource, PaintState, paint};
use stays::ScrollBehavior;
use wire::ByteWriter;
pub(crate) use write::SharedObjects;

/// Lines of a band.
pub(crate) const BAND_HEIGHT: u32 = 256;
/// What goes through more bands is in the list of what is tall.
const TALL_BANDS: u32 = 32;

/// A command of the list.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct CommandRecord {
    /// Where its bytes are.
    pub(crate) at: U32,
    /// How many they are, and [`STAYS`].
    pub(crate) bytes: U32,
    /// The first and last of the bands that it may paint in.
    pub(crate) first: U32,
    pub(crate) last: U32,
}

/// It is not moved when the page is scrolled.
pub(crate) const STAYS: u32 = 1 << 31;

impl CommandRecord {
    pub(crate) fn length(&self) -> u32 {
        self.bytes.get() & !STAYS
    }

    pub(crate) fn scrolls(&self) -> ScrollBehavior {
        if self.bytes.get() & STAYS == 0 { ScrollBehavior::Moves } else { ScrollBehavior::Stays }
    }
}

/// Something is painted that a display list cannot have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Uncapturable;

/// A display list, to be stored.
#[derive(Default)]
pub(crate) struct List {
    pub(crate) commands: Vec<CommandRecord>,
    pub(crate) payload: Vec<u8>,
    /// For each band and for the end, where its numbers begin.
    pub(crate) starts: Vec<U32>,
    pub(crate) items: Vec<U32>,
    pub(crate) tall: Vec<U32>,
    pub(crate) strips: Vec<StripRecord>,
    pub(crate) shared: SharedObjects,
}

/// A part of the page, from line to line, recorded in the page's coordinates.
pub(crate) struct Strip {
    pub(crate) first: u32,
    pub(crate) end: u32,
    pub(crate) scene: Scene,
    /// For each command what it does when the page is scrolled; nothing, if all of it goes with the
    /// page.
    pub(crate) scrolls: Vec<ScrollBehavior>,
}

/// Where a strip begins.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct StripRecord {
    /// Its first line. A viewport is painted from the last strip that does not begin below the
    /// viewport's top.
    pub(crate) line: U32,
    /// Its first command; the others up to the next strip's follow.
    pub(crate) command: U32,
}

/// Makes the display list of strips that follow each other from the top of the page.
pub(crate) fn capture(strips: &[Strip]) -> Result<List, Uncapturable> {
    let height = strips.last().map_or(0, |last| last.end);
    let bands = height.div_ceil(BAND_HEIGHT).max(1);
    let mut list = List::default();
    let mut payload = ByteWriter::default();
    let mut of_band: Vec<Vec<U32>> = vec![Vec::new(); bands as usize];
    for strip in strips {
        let command = (list.commands.len() as u32).into();
        list.strips.push(StripRecord { line: strip.first.into(), command });
        let mut extents = LayerExtents::default();
        let everywhere = stays::everywhere(&strip.scene.commands, &strip.scrolls);
        for (place, one) in strip.scene.commands.iter().enumerate() {
            let found = extents.next(one);
            let (top, bottom) = if everywhere[place] { (0.0, f64::from(height)) } else { found };
            // Also false of what is nowhere, because it is clipped away.
            let is_seen =
                top <= bottom && bottom >= f64::from(strip.first) && top < f64::from(strip.end);
            if !is_seen {
                continue;
            }
            let at = payload.bytes.len();
            write::write(one, &mut payload, &mut list.shared)?;
            let (at, end) = match (u32::try_from(at), u32::try_from(payload.bytes.len())) {
                (Ok(at), Ok(end)) if end - at < STAYS => (at, end),
                _ => return Err(Uncapturable),
            };
            let first = (top.max(f64::from(strip.first)) as u32 / BAND_HEIGHT).min(bands - 1);
            let last = (bottom.min(f64::from(strip.end)) as u32 / BAND_HEIGHT).min(bands - 1);
            let number = U32::new(list.commands.len() as u32);
            let said = match strip.scrolls.get(place) {
                Some(ScrollBehavior::Stays) => STAYS,
                Some(ScrollBehavior::Moves) | None => 0,
            };
            list.commands.push(CommandRecord {
                at: at.into(),
                bytes: ((end - at) | said).into(),
                first: first.into(),
                last: last.into(),
            });
            if last - first >= TALL_BANDS || everywhere[place] {
                list.tall.push(number);
            } else {
                for band in first..=last {
                    of_band[band as usize].push(number);
                }
            }
        }
    }
    list.payload = payload.bytes;
    for band in of_band {
        list.starts.push((list.items.len() as u32).into());
        list.items.extend(band);
    }
    list.starts.push((list.items.len() as u32).into());
    Ok(list)
}

/// The tables by which commands are found.
pub(crate) struct Tables<'a> {
    pub(crate) commands: &'a [CommandRecord],
    pub(crate) starts: &'a [U32],
    pub(crate) items: &'a [U32],
    pub(crate) tall: &'a [U32],
    pub(crate) strips: &'a [StripRecord],
}

impl Tables<'_> {
    /// The numbers of the commands that these lines need, in the order of painting. What leads out
    /// of the tables is left out, or a number of no command: who reads it says so.
    pub(crate) fn chosen(&self, lines: Range<u32>) -> Vec<u32> {
        let first = lines.start / BAND_HEIGHT;
        let last = lines.end.saturating_sub(1).max(lines.start) / BAND_HEIGHT;
        let behind = self.strips.partition_point(|strip| strip.line.get() <= lines.start);
        let command = |strip: usize| self.strips.get(strip).map(|strip| strip.command.get());
        let of_strip =
            command(behind.saturating_sub(1)).unwrap_or(0)..command(behind).unwrap_or(u32::MAX);
        let touches = |number: &U32| {
            let record = self.commands.get(number.get() as usize);
            record.is_none_or(|record| record.first.get() <= last && record.last.get() >= first)
        };
        let tall = self.tall.iter().filter(|number| touches(number));
        let mut chosen: Vec<u32> = tall.map(|number| number.get()).collect();
        let mut end_before = 0;
        for band in first..=last {
            let ends = self.starts.get(band as usize..).and_then(|rest| rest.first_chunk::<2>());
            let Some([start, end]) = ends else { break };
            // The items of bands follow each other; in a planted list they could be the same again
            // and again.
            if start.get() < end_before {
                break;
            }
            end_before = end.get();
            let items =
                self.items.get(start.get() as usize..end.get() as usize).unwrap_or_default();
            chosen.extend(items.iter().map(|number| number.get()));
        }
        chosen.retain(|number| of_strip.contains(number));
        chosen.sort_unstable();
        chosen.dedup();
        chosen
    }
}
