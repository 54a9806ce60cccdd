//! Text as it is laid out: lines, and where each letter of them is.

use std::ops::Range;

use kurbo::{Affine, Point, Rect};

use super::{Place, TextBlock};

/// A piece of a line: text of one direction and font. Measures are those of the block.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LinePiece {
    pub(crate) line: u32,
    pub(crate) range: Range<u32>,
    pub(crate) left: f32,
    pub(crate) top: f32,
    pub(crate) bottom: f32,
    pub(crate) baseline: f32,
    /// From left to right.
    pub(crate) clusters: Vec<Cluster>,
}

/// What is one letter to a reader.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cluster {
    pub(crate) start: u32,
    pub(crate) end: u32,
    pub(crate) right: f32,
}

/// A line of text.
#[derive(Clone, Debug, PartialEq)]
pub struct TextLine {
    /// What is in it.
    pub range: Range<usize>,
    /// Left, top, right, bottom, in pixels of the page.
    pub place: Place,
    /// The line that letters stand on, in pixels of the page.
    pub baseline: f32,
}

impl LinePiece {
    pub(crate) fn right(&self) -> f32 {
        self.clusters.last().map_or(self.left, |last| last.right)
    }

    fn rect(&self) -> Rect {
        rect(self.left, self.top, self.right(), self.bottom)
    }

    /// The numbers of the letters that a part of the text has. They follow each other in the text
    /// as on the line, or the other way round, so that a long line is not gone through for each
    /// match.
    pub(crate) fn letters(&self, range: &Range<u32>) -> Range<usize> {
        let all = &self.clusters;
        let is_backward =
            all.first().zip(all.last()).is_some_and(|(first, last)| first.start > last.start);
        if is_backward {
            all.partition_point(|one| one.start >= range.end)
                ..all.partition_point(|one| one.end > range.start)
        } else {
            all.partition_point(|one| one.end <= range.start)
                ..all.partition_point(|one| one.start < range.end)
        }
    }

    /// From where to where a part of the text goes; nothing, if nothing of it is here to be seen.
    fn part(&self, range: &Range<u32>) -> Option<Rect> {
        let letters = self.letters(range);
        let mut left =
            letters.start.checked_sub(1).map_or(self.left, |before| self.clusters[before].right);
        let mut found: Option<(f32, f32)> = None;
        for cluster in self.clusters.get(letters).unwrap_or_default() {
            let right = cluster.right;
            if cluster.start < range.end && cluster.end > range.start && right > left {
                found = Some(found.map_or((left, right), |(first, _)| (first, right)));
            }
            left = right;
        }
        found.map(|(left, right)| rect(left, self.top, right, self.bottom))
    }
}

#[cfg(test)]
impl TextBlock {
    pub(crate) fn placed(&self) -> [f32; 6] {
        self.placed
    }

    pub(crate) fn breaks(&self) -> &[u32] {
        &self.breaks
    }

    pub(crate) fn pieces(&self) -> &[LinePiece] {
        &self.pieces
    }
}

impl TextBlock {
    /// The element that it is laid out in, by its number in the document.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.node
    }

    /// Whether it stays where it is when the page is scrolled.
    #[must_use]
    pub fn fixed(&self) -> bool {
        self.fixed
    }

    /// All of it, with white space as it is laid out.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Its lines, from the top.
    #[must_use]
    pub fn lines(&self) -> Vec<TextLine> {
        let mut lines: Vec<(u32, Range<u32>, Rect, f32)> = Vec::new();
        for piece in &self.pieces {
            match lines.last_mut().filter(|line| line.0 == piece.line) {
                Some((_, range, place, _)) => {
                    range.end = piece.range.end;
                    *place = place.union(piece.rect());
                }
                None => lines.push((piece.line, piece.range.clone(), piece.rect(), piece.baseline)),
            }
        }
        let placed = self.affine();
        let on_page = |(_, range, place, baseline): (u32, Range<u32>, Rect, f32)| TextLine {
            range: range.start as usize..range.end as usize,
            place: place_of(placed.transform_rect_bbox(place)),
            baseline: (placed * Point::new(place.x0, f64::from(baseline))).y as f32,
        };
        lines.into_iter().map(on_page).collect()
    }

    /// Where a part of the text is: a rectangle for each line that it goes over, or more where its
    /// letters are not beside each other.
    #[must_use]
    pub fn places(&self, range: Range<usize>) -> Vec<Place> {
        let range = range.start as u32..range.end as u32;
        let first = self.pieces.partition_point(|piece| piece.range.end <= range.start);
        let mut rects: Vec<(u32, Rect)> = Vec::new();
        for piece in self.pieces[first..].iter().take_while(|piece| piece.range.start < range.end) {
            let Some(part) = piece.part(&range) else { continue };
            let touches =
                |last: &Rect| (last.x1 - part.x0).abs() < 0.5 || (part.x1 - last.x0).abs() < 0.5;
            match rects.last_mut().filter(|(line, last)| *line == piece.line && touches(last)) {
                Some((_, last)) => *last = last.union(part),
                None => rects.push((piece.line, part)),
            }
        }
        let placed = self.affine();
        rects.into_iter().map(|(_, rect)| place_of(placed.transform_rect_bbox(rect))).collect()
    }

    /// The letter at a point, and where it is.
    pub(crate) fn at(&self, x: f32, y: f32) -> Option<(Range<usize>, Place)> {
        let placed = self.affine();
        let point = placed.inverse() * Point::new(x.into(), y.into());
        let piece = self.pieces.iter().find(|piece| piece.rect().contains(point))?;
        let number = piece.clusters.partition_point(|cluster| f64::from(cluster.right) <= point.x);
        let cluster = piece.clusters.get(number)?;
        let left = number.checked_sub(1).map_or(piece.left, |before| piece.clusters[before].right);
        let found = rect(left, piece.top, cluster.right, piece.bottom);
        Some((
            cluster.start as usize..cluster.end as usize,
            place_of(placed.transform_rect_bbox(found)),
        ))
    }

    pub(crate) fn affine(&self) -> Affine {
        Affine::new(self.placed.map(f64::from))
    }
}

fn rect(left: f32, top: f32, right: f32, bottom: f32) -> Rect {
    Rect::new(left.into(), top.into(), right.into(), bottom.into())
}

pub(crate) fn place_of(rect: Rect) -> Place {
    [rect.x0, rect.y0, rect.x1, rect.y1].map(|at| at as f32)
}
