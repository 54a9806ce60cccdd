//! The pixels that an entry keeps: those of the viewport in which its page was opened first,
//! packed, and where on the page they are.
//!
//! Most of a page is its ground: pixels that are alike, one after the other. They are taken out as
//! runs, which are filled again faster than any packer copies them; what is left of the pixels, and
//! the runs, are packed by LZ4. If the page was written as a PNG when it was opened, that file is
//! kept behind them: written again it needs no pixels.
//!
//! Invariants: what is unpacked is as many pixels as the viewport has, no fewer and no more, or it
//! is damage; no more memory is taken for it than twice that. What would not become half as large
//! is not kept. A file that is given away is a PNG of the viewport's size with nothing in it but its
//! pixels, or it is damage.

use std::borrow::Cow;
use std::sync::Arc;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::entry::EntryPart;
use crate::error::EntryDamage;
use crate::picture::{CachedView, StaleReason, Tier};
use crate::pixels::Pixels;
use crate::view::View;

/// Pixels of a larger viewport are not kept.
const RAW_BYTES_MAX: usize = 64 << 20;
/// So many pixels that are alike are a run.
const RUN_PIXELS_MIN: usize = 16;

type Pixel = [u8; 4];

/// The beginning of the part.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SnapshotHeader {
    /// How far right and down the page is scrolled.
    scroll: [U32; 2],
    runs: U32,
    /// Pixels in no run.
    alone: U32,
    /// Of the packed runs; the packed pixels follow.
    runs_bytes: U32,
    /// Of the packed pixels; the file follows, if one is kept.
    alone_bytes: U32,
}

/// Pixels that stand alone, and then pixels that are alike.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Run {
    alone: U32,
    alike: U32,
    pixel: Pixel,
}

const HEAD_BYTES: usize = size_of::<SnapshotHeader>();
const SCROLL_BYTES: u64 = 8;
const _: () = assert!(HEAD_BYTES == 24 && size_of::<Run>() == 12);

/// On its way into an entry.
pub(crate) struct Snapshot {
    pixels: SnapshotPixels,
    /// The file that was made of them, if one was.
    png: Option<Arc<Vec<u8>>>,
    raw_bytes: usize,
}

/// Packed when there is time.
enum SnapshotPixels {
    Raw(Pixels, (u32, u32)),
    Packed(Vec<u8>),
}

impl Snapshot {
    /// Of pixels that were painted, at this scroll position; none, if there are too many of them.
    pub(crate) fn of(pixels: &Pixels, scroll: (u32, u32)) -> Option<Snapshot> {
        (pixels.bytes.len() <= RAW_BYTES_MAX).then(|| Snapshot {
            pixels: SnapshotPixels::Raw(pixels.clone(), scroll),
            png: None,
            raw_bytes: pixels.bytes.len(),
        })
    }

    /// Keeps the file, too, that was made of the pixels.
    pub(crate) fn set_png(&mut self, png: Arc<Vec<u8>>) {
        self.png = Some(png);
    }

    /// As the part of an entry; nothing, if it is not worth it.
    pub(crate) fn part(&self) -> Cow<'_, [u8]> {
        let part = self.packed();
        match &self.png {
            Some(png) if !part.is_empty() && part.len() + png.len() <= self.raw_bytes / 2 => {
                [&*part, png].concat().into()
            }
            _ => part,
        }
    }

    fn packed(&self) -> Cow<'_, [u8]> {
        match &self.pixels {
            SnapshotPixels::Raw(pixels, scroll) => pack(&pixels.bytes, *scroll).into(),
            SnapshotPixels::Packed(part) => part.into(),
        }
    }

    /// Packs it now.
    pub(crate) fn pack(&mut self) {
        self.pixels = SnapshotPixels::Packed(self.packed().into_owned());
    }
}

fn pack(bytes: &[u8], scroll: (u32, u32)) -> Vec<u8> {
    let (pixels, _) = bytes.as_chunks::<4>();
    let (mut runs, mut alone) = (Vec::new(), Vec::new());
    let (mut at, mut begun) = (0, 0);
    while let Some(first) = pixels.get(at) {
        let alike = pixels[at..].iter().take_while(|pixel| *pixel == first).count();
        if alike >= RUN_PIXELS_MIN {
            runs.push(run(alone.len() - begun, alike, *first));
            begun = alone.len();
        } else {
            alone.extend_from_slice(&pixels[at..at + alike]);
        }
        at += alike;
    }
    runs.push(run(alone.len() - begun, 0, Pixel::default()));
    let packed_runs = lz4_flex::block::compress(runs.as_bytes());
    let packed = lz4_flex::block::compress(alone.as_flattened());
    let head = SnapshotHeader {
        scroll: [scroll.0.into(), scroll.1.into()],
        runs: (runs.len() as u32).into(),
        alone: (alone.len() as u32).into(),
        runs_bytes: (packed_runs.len() as u32).into(),
        alone_bytes: (packed.len() as u32).into(),
    };
    let part = [head.as_bytes(), &packed_runs, &packed].concat();
    if part.len() <= bytes.len() / 2 { part } else { Vec::new() }
}

fn run(alone: usize, alike: usize, pixel: Pixel) -> Run {
    Run { alone: (alone as u32).into(), alike: (alike as u32).into(), pixel }
}

/// The pixels of a part, so many bytes of them; in `room`, if that is as large.
pub(crate) fn unpack(part: &[u8], bytes: usize, mut room: Vec<u8>) -> Result<Vec<u8>, EntryDamage> {
    let wrong = EntryDamage::Value { what: "pixels" };
    let (head, rest) = SnapshotHeader::read_from_prefix(part).map_err(|_| wrong)?;
    let (packed_runs, rest) = rest.split_at_checked(head.runs_bytes.get() as usize).ok_or(wrong)?;
    let packed = rest.get(..head.alone_bytes.get() as usize).ok_or(wrong)?;
    let (count, alone) = (head.runs.get() as usize, head.alone.get() as usize);
    // Before memory is taken for them: all runs but the last are that long.
    let least = alone.saturating_add(count.saturating_sub(1).saturating_mul(RUN_PIXELS_MIN));
    if least > bytes / size_of::<Pixel>() {
        return Err(wrong);
    }
    let mut runs = vec![Run::new_zeroed(); count];
    let mut left = vec![Pixel::default(); alone];
    exactly(packed_runs, runs.as_mut_bytes())?;
    exactly(packed, left.as_flattened_mut())?;

    room.resize(bytes, 0);
    let (mut to, _) = room.as_chunks_mut::<4>();
    let mut left = left.as_slice();
    for run in &runs {
        let (alone, alike) = (run.alone.get() as usize, run.alike.get() as usize);
        let (given, others) = left.split_at_checked(alone).ok_or(wrong)?;
        let (copied, rest) = to.split_at_mut_checked(alone).ok_or(wrong)?;
        let (filled, rest) = rest.split_at_mut_checked(alike).ok_or(wrong)?;
        copied.copy_from_slice(given);
        filled.fill(run.pixel);
        (left, to) = (others, rest);
    }
    if left.is_empty() && to.is_empty() { Ok(room) } else { Err(wrong) }
}

/// Unpacks what becomes just this.
fn exactly(packed: &[u8], to: &mut [u8]) -> Result<(), EntryDamage> {
    match lz4_flex::block::decompress_into(packed, to) {
        Ok(bytes) if bytes == to.len() => Ok(()),
        _ => Err(EntryDamage::Value { what: "pixels" }),
    }
}

/// Whether this is the beginning and the end of a PNG of so many pixels, with nothing in between but
/// what they are: whoever decodes it takes no more memory than for the viewport.
fn is_png_of(file: &[u8], (width, height): (u32, u32)) -> bool {
    const SIGNATURE: &[u8] = b"\x89PNG\r\n\x1a\n";
    const CHUNK_BYTES: usize = 12;
    let head = [&width.to_be_bytes()[..], &height.to_be_bytes(), &[8, 6, 0, 0, 0]].concat();
    let Some(mut rest) = file.strip_prefix(SIGNATURE) else { return false };
    let mut chunks = 0;
    loop {
        let Some((length, after)) = rest.split_first_chunk::<4>() else { return false };
        let length = u32::from_be_bytes(*length) as usize;
        let (Some((kind, after)), Some(body)) = (after.split_first_chunk::<4>(), after.get(4..))
        else {
            return false;
        };
        let Some(body) = body.get(..length) else { return false };
        let is_right = match kind {
            b"IHDR" => chunks == 0 && body == head,
            b"IDAT" => chunks > 0,
            b"IEND" => chunks > 1 && rest.len() == CHUNK_BYTES && length == 0,
            _ => false,
        };
        if !is_right || kind == b"IEND" {
            return is_right;
        }
        let Some(next) = after.get(length + 4..) else { return false };
        (rest, chunks) = (next, chunks + 1);
    }
}

/// Bytes of the pixels of a viewport.
fn raw_bytes(view: View) -> usize {
    view.width() as usize * view.height() as usize * size_of::<Pixel>()
}

impl CachedView<'_> {
    /// Begins to make ready what will be shown; with `pixels`, if those of this view are kept,
    /// these alone.
    pub(crate) fn begin(&self, view: View, pixels: bool) {
        // What is wrong with them is reported when they are needed.
        if pixels
            && let Ok(true) = self.has_pixels(view)
            && let Ok(part) = self.entry.part(EntryPart::Pixels)
        {
            let (part, bytes) = (part.to_vec(), raw_bytes(view));
            self.ahead.begin_pixels(move || unpack(&part, bytes, Vec::new()));
        } else {
            self.ahead.begin(view, &self.about.fonts);
        }
    }

    /// The viewport: its pixels, if they are kept and may be taken, or else painted from the list.
    pub(crate) fn picture(&self, view: View, pixels: bool) -> Result<(Pixels, Tier), StaleReason> {
        if pixels && self.has_pixels(view)? {
            return Ok((self.pixels(view)?, Tier::Pixels));
        }
        self.check_view(view)?;
        Ok((self.paint(view)?, Tier::List))
    }

    /// The file of just this view, if it is kept.
    pub(crate) fn png(&self, view: View) -> Result<Option<&[u8]>, EntryDamage> {
        if !self.has_pixels(view)? {
            return Ok(None);
        }
        let wrong = EntryDamage::Value { what: "pixels" };
        let head = self.entry.piece(EntryPart::Pixels, 0, HEAD_BYTES as u64)?;
        let head = SnapshotHeader::read_from_bytes(head).map_err(|_| wrong)?;
        let start = HEAD_BYTES as u64
            + u64::from(head.runs_bytes.get())
            + u64::from(head.alone_bytes.get());
        let bytes = self.entry.header.pixels_bytes().checked_sub(start).ok_or(wrong)?;
        if bytes == 0 {
            return Ok(None);
        }
        let file = self.entry.piece(EntryPart::Pixels, start, bytes)?;
        if is_png_of(file, (view.width(), view.height())) { Ok(Some(file)) } else { Err(wrong) }
    }

    /// Whether pixels are kept of just this view.
    fn has_pixels(&self, view: View) -> Result<bool, EntryDamage> {
        let header = &self.entry.header;
        let viewport: [U32; 2] = [view.width().into(), view.height().into()];
        if header.pixels_bytes() == 0
            || header.viewport != viewport
            || header.scale_permille.get() != view.scale_permille()
        {
            return Ok(false);
        }
        let scroll = self.entry.piece(EntryPart::Pixels, 0, SCROLL_BYTES)?;
        let wanted = [
            U32::from(view.scroll_x_within(header.content[0].get())),
            view.scroll_within(header.content[1].get()).into(),
        ];
        Ok(scroll == wanted.as_bytes())
    }

    fn pixels(&self, view: View) -> Result<Pixels, EntryDamage> {
        let bytes = match self.ahead.pixels() {
            Some(unpacked) => unpacked?,
            None => {
                unpack(self.entry.part(EntryPart::Pixels)?, raw_bytes(view), self.ahead.room())?
            }
        };
        Ok(Pixels { width: view.width(), height: view.height(), bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text-like: ground, and short pieces of other colours in it.
    fn drawn(pixels: usize) -> Vec<u8> {
        let pixel = |at: usize| {
            if at % 97 < 20 { [at as u8, (at / 256) as u8, 7, 255] } else { [250, 251, 252, 255] }
        };
        (0..pixels).flat_map(pixel).collect()
    }

    /// Guarantee: pages/kept-pixels
    #[test]
    fn pixels_come_out_as_they_went_in() {
        let noise: Vec<u8> =
            (0..4_000u32).map(|at| xxhash_rust::xxh3::xxh3_64(&at.to_le_bytes()) as u8).collect();
        for raw in [
            drawn(5_000),
            drawn(97 * 20),
            vec![255; 4],
            vec![9; 4 * 15],
            [1, 2, 3, 4].repeat(100_000),
        ] {
            let part = pack(&raw, (3, 4));
            if raw.len() > 60 {
                assert!(!part.is_empty() && part.len() < raw.len() / 2, "{}", part.len());
                assert_eq!(unpack(&part, raw.len(), Vec::new()).unwrap(), raw);
                assert_eq!(unpack(&part, raw.len(), vec![77; raw.len() + 5]).unwrap(), raw);
            } else {
                assert!(part.is_empty(), "it is not worth it");
            }
        }
        assert!(pack(&noise, (0, 0)).is_empty(), "it is not worth it");
    }

    /// Guarantee: pages/kept-pixels
    #[test]
    fn pixels_that_are_fewer_or_more_or_cut_are_damage() {
        let raw = drawn(5_000);
        let part = pack(&raw, (0, 0));
        for bytes in [0, 4, raw.len() - 4, raw.len() + 4, raw.len() * 2, raw.len() * 100] {
            assert!(unpack(&part, bytes, Vec::new()).is_err(), "{bytes}");
        }
        for cut in 0..part.len() {
            assert!(unpack(&part[..cut], raw.len(), Vec::new()).is_err(), "{cut}");
        }
    }

    /// A snapshot with flipped bits decodes to the same number of bytes or fails.
    ///
    /// Guarantee: pages/kept-pixels
    #[test]
    fn flipped_bits_keep_the_length_or_fail() {
        let raw = drawn(2_000);
        let part = pack(&raw, (0, 0));
        for at in 0..part.len() {
            for bit in 0..8 {
                let mut other = part.clone();
                other[at] ^= 1 << bit;
                if let Ok(bytes) = unpack(&other, raw.len(), Vec::new()) {
                    assert_eq!(bytes.len(), raw.len(), "byte {at}");
                }
            }
        }
    }

    /// A snapshot that would decode to more than the viewport is damage before memory is allocated.
    ///
    /// Guarantee: pages/kept-pixels
    #[test]
    fn oversized_snapshot_takes_no_memory() {
        let bomb = lz4_flex::block::compress(&vec![0; 32 << 20]);
        let head = |runs: u32, alone: u32| SnapshotHeader {
            scroll: [0.into(); 2],
            runs: runs.into(),
            alone: alone.into(),
            runs_bytes: (bomb.len() as u32).into(),
            alone_bytes: (bomb.len() as u32).into(),
        };
        for (runs, alone) in [(1, 0), (1, 100), (63, 1_000), (u32::MAX, 0), (1, u32::MAX)] {
            let part = [head(runs, alone).as_bytes(), &bomb, &bomb].concat();
            assert_eq!(
                unpack(&part, 4_000, Vec::new()),
                Err(EntryDamage::Value { what: "pixels" })
            );
        }
    }

    /// The pixels of a viewport that is too large are not copied.
    ///
    /// Guarantee: pages/kept-pixels
    #[test]
    fn pixels_of_a_huge_viewport_are_not_copied() {
        let pixels =
            |bytes: usize| Pixels { width: 1, height: (bytes / 4) as u32, bytes: vec![0; bytes] };
        assert!(Snapshot::of(&pixels(RAW_BYTES_MAX + 4), (0, 0)).is_none());
        let mut taken = Snapshot::of(&pixels(RAW_BYTES_MAX / 16), (1, 2)).unwrap();
        let part = taken.part().into_owned();
        taken.pack();
        let packed = matches!(&taken.pixels, SnapshotPixels::Packed(packed) if *packed == part);
        assert!(packed && !part.is_empty());
    }

    /// A file is kept behind the pixels, which come out as before; one that would make the part
    /// large is not.
    ///
    /// Guarantee: pages/kept-pixels
    #[test]
    fn png_is_kept_behind_the_pixels() {
        let raw = [drawn(1_000), [250, 251, 252, 255].repeat(9_000)].concat();
        let pixels = Pixels { width: 100, height: 100, bytes: raw.clone() };
        let mut taken = Snapshot::of(&pixels, (0, 0)).unwrap();
        let without = taken.part().into_owned();
        let png = Arc::new(pixels.to_png().unwrap());
        taken.set_png(Arc::clone(&png));
        taken.pack();
        let part = taken.part().into_owned();
        assert_eq!((&part[..without.len()], &part[without.len()..]), (&*without, png.as_slice()));
        assert_eq!(unpack(&part, raw.len(), Vec::new()).unwrap(), raw);
        taken.set_png(Arc::new(vec![0; raw.len() / 2]));
        assert_eq!(taken.part(), without);
    }

    /// What is given away as a PNG is one of this size, whole, and with nothing in it but pixels.
    ///
    /// Guarantee: pages/kept-pixels
    #[test]
    fn what_is_no_png_of_the_viewport_is_told() {
        let pixels = Pixels { width: 100, height: 50, bytes: drawn(5_000) };
        let file = pixels.to_png().unwrap();
        assert!(is_png_of(&file, (100, 50)));
        assert!(
            !is_png_of(&file, (50, 100))
                && !is_png_of(&[file.clone(), vec![0]].concat(), (100, 50))
        );
        for cut in 0..file.len() {
            assert!(!is_png_of(&file[..cut], (100, 50)), "{cut}");
        }
        // A text, and a second header, before the pixels.
        let at = 8 + 25;
        for chunk in [&b"\0\0\0\x01tEXta\0\0\0\0"[..], &file[8..at]] {
            let other = [&file[..at], chunk, &file[at..]].concat();
            assert!(!is_png_of(&other, (100, 50)));
        }
    }
}
