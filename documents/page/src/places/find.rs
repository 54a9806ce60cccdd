//! Finding text: the same letters, however they are written.

use std::ops::Range;

use caseless::Caseless;
use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

use super::{Place, TextBlock};

/// What counts as the same text. White space is the same whatever and however much it is, and
/// hyphens that are only seen at the end of a line are not there; an accent of its own is the same
/// as one that comes with its letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FindOptions {
    /// Whether capitals differ from small letters.
    pub case: bool,
    /// How many matches are looked for: 10,000.
    pub max: usize,
}

impl Default for FindOptions {
    fn default() -> FindOptions {
        FindOptions { case: false, max: 10_000 }
    }
}

/// Where the text is.
#[derive(Clone, Debug, PartialEq)]
pub struct Match {
    /// Left, top, right, bottom, in pixels of the page; several where it goes over the end of a
    /// line.
    pub places: Vec<Place>,
    /// Whether it stays where it is when the page is scrolled.
    pub fixed: bool,
    /// The element that it is laid out in, by its number in the document.
    pub node: u32,
    /// Which of the page's blocks of text it is in.
    pub block: usize,
    /// Which of the block's text it is.
    pub range: Range<usize>,
}

pub(crate) fn find(blocks: &[TextBlock], needle: &str, options: FindOptions) -> Vec<Match> {
    let needle = FoldedText::of(needle, options.case).text;
    let mut matches = Vec::new();
    if needle.is_empty() {
        return matches;
    }
    for (number, block) in blocks.iter().enumerate() {
        // Folded text has not half as many bytes; most blocks are shorter than that.
        if block.text.len().saturating_mul(6) < needle.len() {
            continue;
        }
        let folded = FoldedText::of(&block.text, options.case);
        let mut from = 0;
        while let Some(found) = folded.text.get(from..).and_then(|rest| rest.find(&needle)) {
            if matches.len() >= options.max {
                return matches;
            }
            let start = from + found;
            let whole =
                folded.whole(start..start + needle.len()).filter(|range| !is_broken(block, range));
            let places = whole.clone().map(|range| block.places(range)).unwrap_or_default();
            match whole.filter(|_| !places.is_empty()) {
                Some(range) => {
                    from = start + needle.len();
                    matches.push(Match {
                        places,
                        fixed: block.fixed,
                        node: block.node,
                        block: number,
                        range,
                    });
                }
                None => {
                    from = start + folded.text[start..].chars().next().map_or(1, char::len_utf8)
                }
            }
        }
    }
    matches
}

fn is_broken(block: &TextBlock, range: &Range<usize>) -> bool {
    let behind = block.breaks.partition_point(|at| *at as usize <= range.start);
    block.breaks.get(behind).is_some_and(|at| (*at as usize) < range.end)
}

/// Text without the differences that do not count.
struct FoldedText {
    text: String,
    units: Vec<FoldedChar>,
}

/// A character of folded text.
struct FoldedChar {
    at: u32,
    /// The character of the text that it comes from.
    start: u32,
    end: u32,
    is_mark: bool,
}

impl FoldedText {
    fn of(text: &str, case: bool) -> FoldedText {
        let mut folded = FoldedText {
            text: String::with_capacity(text.len()),
            units: Vec::with_capacity(text.len()),
        };
        for (start, one) in text.char_indices() {
            let end = (start + one.len_utf8()) as u32;
            if one.is_whitespace() {
                match folded.units.last_mut() {
                    Some(last) if folded.text.ends_with(' ') => last.end = end,
                    _ => folded.push(' ', start as u32, end),
                }
            } else if case {
                decompose_canonical(one, |part| folded.push(part, start as u32, end));
            } else {
                let mut parts = Vec::with_capacity(4);
                decompose_canonical(one, |part| parts.push(part));
                for part in parts.into_iter().default_case_fold() {
                    folded.push(part, start as u32, end);
                }
            }
        }
        folded
    }

    fn push(&mut self, one: char, start: u32, end: u32) {
        // Soft hyphen, zero-width space, word joiner.
        if matches!(one, '\u{ad}' | '\u{200b}' | '\u{2060}') {
            return;
        }
        let is_mark = !one.is_ascii() && canonical_combining_class(one) != 0;
        self.units.push(FoldedChar { at: self.text.len() as u32, start, end, is_mark });
        self.text.push(one);
    }

    /// What of the text that was folded is here; nothing, if it begins or ends within a letter.
    fn whole(&self, folded: Range<usize>) -> Option<Range<usize>> {
        let unit = |at: usize| self.units.binary_search_by_key(&(at as u32), |unit| unit.at).ok();
        let first = unit(folded.start)?;
        let behind =
            if folded.end == self.text.len() { self.units.len() } else { unit(folded.end)? };
        let (start, last) = (&self.units[first], &self.units[behind.checked_sub(1)?]);
        let begins =
            first.checked_sub(1).is_none_or(|before| self.units[before].start != start.start);
        let ends =
            self.units.get(behind).is_none_or(|next| next.start != last.start && !next.is_mark);
        (begins && ends).then_some(start.start as usize..last.end as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::{Cluster, LinePiece};
    use super::*;

    /// Letters of zero width have no place, and a search does not scan the whole line for each of
    /// them.
    ///
    /// Guarantee: pages/clicks
    /// Guarantee: pages/window
    #[test]
    fn letters_without_room_cost_no_line_each() {
        let mut long = block(&["x".repeat(300_000).as_str()]);
        for cluster in &mut long.pieces[0].clusters {
            cluster.right = 0.0;
        }
        // The letter that is meant, forwards and backwards, and none beside it.
        assert_eq!(long.pieces[0].letters(&(150_000..150_001)), 150_000..150_001);
        let mut backward = long.pieces[0].clone();
        backward.clusters.reverse();
        assert_eq!(backward.letters(&(100_000..100_002)), 199_998..200_000);
        assert_eq!(find(&[long], "x", FindOptions::default()), []);
    }

    /// Each line by itself, ten pixels a letter.
    fn block(lines: &[&str]) -> TextBlock {
        let text = lines.concat();
        let mut at = 0;
        let mut pieces = Vec::new();
        for (line, part) in lines.iter().enumerate() {
            let clusters = part.char_indices().enumerate().map(|(number, (from, one))| Cluster {
                start: at + from as u32,
                end: at + (from + one.len_utf8()) as u32,
                right: (number + 1) as f32 * 10.0,
            });
            let clusters = clusters.collect();
            let (top, end) = (line as f32 * 20.0, at + part.len() as u32);
            let line = line as u32;
            let bottom = top + 20.0;
            pieces.push(LinePiece {
                line,
                range: at..end,
                left: 0.0,
                top,
                bottom,
                baseline: top + 15.0,
                clusters,
            });
            at = end;
        }
        let placed = [1.0, 0.0, 0.0, 1.0, 100.0, 1000.0];
        TextBlock { node: 7, fixed: false, text, placed, breaks: Vec::new(), pieces }
    }

    fn ranges(text: &str, needle: &str, case: bool) -> Vec<Range<usize>> {
        let found = find(&[block(&[text])], needle, FindOptions { case, ..FindOptions::default() });
        found.into_iter().map(|one| one.range).collect()
    }

    /// Guarantee: pages/places
    #[test]
    fn text_is_found_however_it_is_written() {
        assert_eq!(ranges("Straße STRASSE strasse", "straSSe", false), [0..7, 8..15, 16..23]);
        assert_eq!(
            ranges("\u{3a3}\u{399}\u{3a3} \u{3c3}\u{3b9}\u{3c2}", "\u{3c3}\u{3b9}\u{3c3}", false),
            [0..6, 7..13]
        );
        assert_eq!(
            ranges("caf\u{e9} cafe\u{301} CAF\u{c9}", "cafe\u{301}", false),
            [0..5, 6..12, 13..18]
        );
        assert_eq!(ranges("a \n\t b a\u{a0}b ab", "a b", false), [0..6, 7..11]);
        assert_eq!(ranges("hy\u{ad}phen\u{200b}ated", "hyphenated", false), [0..15]);
        assert_eq!(ranges("Word word", "word", true), [5..9]);
        assert_eq!(ranges("aaaa", "aa", false), [0..2, 2..4]);
        assert_eq!(ranges("abc", "", false), []);
        assert_eq!(ranges("", "abc", false), []);
    }

    /// Guarantee: pages/places
    #[test]
    fn nothing_is_found_within_a_letter() {
        assert_eq!(ranges("ßs", "s", false), [2..3]);
        assert_eq!(ranges("e\u{301}e \u{e9}", "e", false), [3..4]);
        assert_eq!(ranges("ess ßs", "ss", false), [1..3, 4..6]);
    }

    #[test]
    fn a_match_over_the_end_of_a_line_has_a_place_in_each() {
        let found = find(&[block(&["one two ", "three"])], "two three", FindOptions::default());
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].places,
            [[140.0, 1000.0, 180.0, 1020.0], [100.0, 1020.0, 150.0, 1040.0]]
        );
        assert_eq!((found[0].node, found[0].range.clone()), (7, 4..13));
    }

    /// A match does not span content that is not text, and the search stops at the requested
    /// number.
    ///
    /// Guarantee: pages/places
    #[test]
    fn matches_stay_in_text_and_within_the_limit() {
        let mut broken = block(&["onetwo two"]);
        broken.breaks.push(3);
        assert_eq!(find(&[broken.clone()], "onetwo", FindOptions::default()), []);
        assert_eq!(find(&[broken.clone()], "two", FindOptions::default()).len(), 2);
        assert_eq!(
            find(&[broken], "two", FindOptions { max: 1, ..FindOptions::default() }).len(),
            1
        );
    }
}
