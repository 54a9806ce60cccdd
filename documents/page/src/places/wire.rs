//! Links, boxes and text as bytes, and back.

use crate::error::EntryDamage;
use crate::list::wire::{ByteReader, ByteWriter};

use super::text::{Cluster, LinePiece};
use super::{Link, NodeBox, TextBlock};

/// Bits of what is said of a block.
const FIXED: u8 = 1;
/// It is not only moved.
const TURNED: u8 = 2;

/// Bits of what is said of a piece.
const RIGHT_TO_LEFT: u8 = 1;
/// Its letters have more than a character each.
const CLUSTERED: u8 = 2;

/// Of a pixel: so exact is where a letter ends.
const STEP: f32 = 1.0 / 64.0;
/// The number of steps in the place of one that has no room: the number follows in full.
const WIDE: u16 = u16::MAX;

pub(crate) fn write_links(links: &[Link]) -> Vec<u8> {
    let mut to = ByteWriter::default();
    to.u32(links.len() as u32);
    for link in links {
        to.f32s(&link.place);
        to.u8(u8::from(link.fixed));
        to.block(link.href.as_bytes());
    }
    to.bytes
}

pub(crate) fn read_links(bytes: &[u8]) -> Result<Vec<Link>, EntryDamage> {
    let from = &mut ByteReader::new(bytes, "links");
    let mut links = Vec::new();
    for _ in 0..from.count(21)? {
        let place = from.f32s()?;
        let fixed = flag(from)?;
        links.push(Link { place, href: from.text()?.to_owned(), fixed });
    }
    from.end()?;
    Ok(links)
}

pub(crate) fn write_boxes(boxes: &[NodeBox]) -> Vec<u8> {
    let mut to = ByteWriter::default();
    to.u32(boxes.len() as u32);
    for one in boxes {
        to.u32(one.node);
        to.f32s(&one.place);
        to.u8(u8::from(one.fixed));
    }
    to.bytes
}

pub(crate) fn read_boxes(bytes: &[u8]) -> Result<Vec<NodeBox>, EntryDamage> {
    let from = &mut ByteReader::new(bytes, "boxes");
    let mut boxes: Vec<NodeBox> = Vec::new();
    for _ in 0..from.count(21)? {
        let one = NodeBox { node: from.u32()?, place: from.f32s()?, fixed: flag(from)? };
        if boxes.last().is_some_and(|before| before.node >= one.node) {
            return Err(from.wrong());
        }
        boxes.push(one);
    }
    from.end()?;
    Ok(boxes)
}

fn flag(from: &mut ByteReader<'_>) -> Result<bool, EntryDamage> {
    match from.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(from.wrong()),
    }
}

pub(crate) fn write_text(blocks: &[TextBlock]) -> Vec<u8> {
    let mut to = ByteWriter::default();
    to.u32(blocks.len() as u32);
    for block in blocks {
        let is_moved = block.placed[..4] == [1.0, 0.0, 0.0, 1.0];
        to.u32(block.node);
        to.u8(if block.fixed { FIXED } else { 0 } | if is_moved { 0 } else { TURNED });
        to.f32s(if is_moved { &block.placed[4..] } else { &block.placed });
        to.block(block.text.as_bytes());
        to.u32(block.breaks.len() as u32);
        block.breaks.iter().for_each(|at| to.u32(*at));
        to.u32(block.pieces.len() as u32);
        block.pieces.iter().for_each(|piece| write_piece(&mut to, piece, &block.text));
    }
    to.bytes
}

fn write_piece(to: &mut ByteWriter, piece: &LinePiece, text: &str) {
    let is_backwards = piece.clusters.windows(2).any(|pair| pair[1].start < pair[0].start);
    let is_one = |cluster: &Cluster| {
        let part = text.get(cluster.start as usize..cluster.end as usize);
        part.is_some_and(|part| part.chars().nth(1).is_none())
    };
    let is_clustered = !piece.clusters.iter().all(is_one);
    to.u32(piece.line);
    to.u32(piece.range.start);
    to.u32(piece.range.end - piece.range.start);
    to.f32s(&[piece.left, piece.top, piece.bottom, piece.baseline]);
    to.u8(if is_backwards { RIGHT_TO_LEFT } else { 0 } | if is_clustered { CLUSTERED } else { 0 });
    if is_clustered {
        to.u32(piece.clusters.len() as u32);
        piece.clusters.iter().for_each(|cluster| to.u32(cluster.end - cluster.start));
    }
    // Steps are counted from the piece's left, so that what is lost by rounding does not add up.
    let mut steps = 0_i64;
    for cluster in &piece.clusters {
        let (next, exact) = steps_of(cluster.right - piece.left);
        match u16::try_from(next - steps) {
            Ok(advance) if advance != WIDE && exact => {
                to.bytes.extend_from_slice(&advance.to_le_bytes())
            }
            _ => {
                to.bytes.extend_from_slice(&WIDE.to_le_bytes());
                to.f32s(&[cluster.right - piece.left]);
            }
        }
        steps = next;
    }
}

/// How many steps that are, and whether they are as good as the number.
fn steps_of(pixels: f32) -> (i64, bool) {
    let steps = (pixels / STEP).round();
    if steps.abs() < 1e9 { (steps as i64, true) } else { (0, false) }
}

pub(crate) fn read_text(bytes: &[u8]) -> Result<Vec<TextBlock>, EntryDamage> {
    let from = &mut ByteReader::new(bytes, "text");
    let mut blocks = Vec::new();
    for _ in 0..from.count(25)? {
        let node = from.u32()?;
        let said = from.u8()?;
        if said & !(FIXED | TURNED) != 0 {
            return Err(from.wrong());
        }
        let placed = if said & TURNED != 0 {
            from.f32s()?
        } else {
            let [x, y] = from.f32s()?;
            [1.0, 0.0, 0.0, 1.0, x, y]
        };
        let text = from.text()?.to_owned();
        let mut breaks: Vec<u32> = Vec::new();
        for _ in 0..from.count(4)? {
            let at = from.u32()?;
            if breaks.last().is_some_and(|before| *before > at) {
                return Err(from.wrong());
            }
            breaks.push(at);
        }
        let mut pieces: Vec<LinePiece> = Vec::new();
        for _ in 0..from.count(29)? {
            let piece = read_piece(from, &text)?;
            if pieces.last().is_some_and(|before| before.range.end > piece.range.start) {
                return Err(from.wrong());
            }
            pieces.push(piece);
        }
        blocks.push(TextBlock { node, fixed: said & FIXED != 0, text, placed, breaks, pieces });
    }
    from.end()?;
    Ok(blocks)
}

fn read_piece(from: &mut ByteReader<'_>, text: &str) -> Result<LinePiece, EntryDamage> {
    let (line, start, bytes) = (from.u32()?, from.u32()?, from.u32()?);
    let [left, top, bottom, baseline] = from.f32s()?;
    let said = from.u8()?;
    let end = start.checked_add(bytes).ok_or_else(|| from.wrong())?;
    let part = text.get(start as usize..end as usize).ok_or_else(|| from.wrong())?;
    if said & !(RIGHT_TO_LEFT | CLUSTERED) != 0 {
        return Err(from.wrong());
    }
    let is_backwards = said & RIGHT_TO_LEFT != 0;
    let lengths: Vec<u32> = if said & CLUSTERED != 0 {
        let mut lengths = Vec::new();
        for _ in 0..from.count(4)? {
            lengths.push(from.u32()?);
        }
        lengths
    } else if is_backwards {
        part.chars().rev().map(|one| one.len_utf8() as u32).collect()
    } else {
        part.chars().map(|one| one.len_utf8() as u32).collect()
    };
    let mut at = if is_backwards { end } else { start };
    let mut steps = 0_i64;
    let mut clusters = Vec::with_capacity(lengths.len());
    for length in lengths {
        let range = if is_backwards {
            at.checked_sub(length).filter(|first| *first >= start).map(|first| first..at)
        } else {
            at.checked_add(length).filter(|last| *last <= end).map(|last| at..last)
        };
        let range = range.ok_or_else(|| from.wrong())?;
        if !text.is_char_boundary(range.start as usize)
            || !text.is_char_boundary(range.end as usize)
        {
            return Err(from.wrong());
        }
        at = if is_backwards { range.start } else { range.end };
        let right = match from.u16()? {
            WIDE => {
                let [right] = from.f32s()?;
                steps = steps_of(right).0;
                left + right
            }
            advance => {
                steps += i64::from(advance);
                left + steps as f32 * STEP
            }
        };
        clusters.push(Cluster { start: range.start, end: range.end, right });
    }
    let is_all = at == if is_backwards { start } else { end };
    if !is_all {
        return Err(from.wrong());
    }
    Ok(LinePiece { line, range: start..end, left, top, bottom, baseline, clusters })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(line: u32, range: std::ops::Range<u32>, clusters: &[(u32, u32, f32)]) -> LinePiece {
        let clusters = clusters.iter().map(|(start, end, right)| Cluster {
            start: *start,
            end: *end,
            right: *right,
        });
        let clusters = clusters.collect();
        LinePiece { line, range, left: 10.0, top: 1.0, bottom: 21.5, baseline: 17.25, clusters }
    }

    fn blocks() -> Vec<TextBlock> {
        // "aé" forwards, two Hebrew letters backwards, a cluster of two characters, a letter that
        // is very wide, one that goes back.
        let text = "aé\u{5d0}\u{5d1}e\u{301}xy".to_owned();
        let pieces = vec![
            piece(0, 0..3, &[(0, 1, 20.25), (1, 3, 30.5)]),
            piece(0, 3..7, &[(5, 7, 18.0), (3, 5, 26.0)]),
            piece(1, 7..12, &[(7, 10, 20.0), (10, 11, 5000.0), (11, 12, 4000.5)]),
        ];
        let placed = [1.0, 0.0, 0.0, 1.0, 5.5, 1e6];
        let turned = TextBlock {
            node: 4,
            fixed: true,
            text: String::new(),
            placed: [0.0, 1.0, -1.0, 0.0, 9.0, 9.0],
            breaks: Vec::new(),
            pieces: Vec::new(),
        };
        vec![TextBlock { node: 3, fixed: false, text, placed, breaks: vec![3, 7], pieces }, turned]
    }

    /// Guarantee: pages/byte-for-byte
    /// Guarantee: pages/places
    #[test]
    fn text_comes_back_as_it_was() {
        assert_eq!(read_text(&write_text(&blocks())).unwrap(), blocks());
    }

    /// Guarantee: pages/byte-for-byte
    /// Guarantee: pages/places
    #[test]
    fn what_is_lost_by_rounding_does_not_add_up() {
        let clusters: Vec<(u32, u32, f32)> = (0..3000)
            .map(|number| (number, number + 1, 10.0 + (number + 1) as f32 * 7.003))
            .collect();
        let text = "x".repeat(3000);
        let pieces = vec![piece(0, 0..3000, &clusters)];
        let placed = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0];
        let block = TextBlock { node: 0, fixed: false, text, placed, breaks: Vec::new(), pieces };
        let read = read_text(&write_text(&[block])).unwrap();
        for (cluster, (_, _, right)) in read[0].pieces[0].clusters.iter().zip(&clusters) {
            assert!((cluster.right - right).abs() <= 0.01, "{cluster:?} {right}");
        }
    }

    /// Text with any changed byte is reported as damage or can still be searched.
    ///
    /// Guarantee: pages/damage
    #[test]
    fn text_with_changed_bytes_is_damage_or_searchable() {
        let bytes = write_text(&blocks());
        for at in 0..bytes.len() {
            for change in [0x01, 0x80, 0xff] {
                let mut other = bytes.clone();
                other[at] ^= change;
                let Ok(text) = read_text(&other) else { continue };
                let places = crate::places::PageLayout { text, ..Default::default() };
                let _ = places.find("e", crate::places::FindOptions::default());
                let _ = places.text_at(15.0, 1e6 + 5.0, 0);
                places.text.iter().for_each(|block| drop(block.lines()));
            }
            assert!(read_text(&bytes[..at]).is_err(), "{at}");
        }
    }

    /// Guarantee: pages/damage
    #[test]
    fn boxes_out_of_order_are_damage() {
        let one = NodeBox { node: 2, place: [0.0; 4], fixed: false };
        assert!(read_boxes(&write_boxes(&[one, NodeBox { node: 3, ..one }])).is_ok());
        assert!(read_boxes(&write_boxes(&[one, one])).is_err());
    }
}
