//! The cost of drawing commands: their bytes are few, and what they ask for can be without end.
//!
//! Dashes of next to no length, curves and strokes as wide as numbers go: code that flattens them
//! into lines would not end, or run out of memory. The engine is asked the same when a page is
//! kept, so that no list is kept that would be refused.

use kurbo::{Affine, BezPath, Cap, Join, PathEl, Point, Stroke};

use crate::error::EntryDamage;

/// Dashes of a command, and of all that are painted at once.
pub(crate) const DASHES_MAX: f64 = 1e6;
/// Pixels from the origin to what is curved, or as wide as a stroke is. Pages are not as long.
const REACH_MAX: f64 = 1e9;
/// Lines that the curves of a command are flattened into: all of them are there at once.
const LINES_MAX: f64 = 2e7;
/// Lines of all commands that are painted at once.
pub(crate) const PICTURE_LINES_MAX: f64 = 2e8;
/// Points of a glyph. How many it has is known to the font alone.
const GLYPH_POINTS: f64 = 200.0;

/// Follows records whose bytes lie one behind the other, as they were written. In a planted entry a
/// million of them could have the same bytes, and so cost a million times what these may.
#[derive(Default)]
pub(crate) struct AscendingRanges {
    end: u64,
}

impl AscendingRanges {
    /// The next record's bytes; `what` the records are, for who is told that they go back.
    pub(crate) fn next(
        &mut self,
        at: u64,
        bytes: u64,
        what: &'static str,
    ) -> Result<(), EntryDamage> {
        if at < self.end {
            return Err(EntryDamage::Twice { what });
        }
        self.end = at.saturating_add(bytes);
        Ok(())
    }
}

/// How many lines what is filled or clipped is flattened into, or more; nothing, if it cannot be.
pub(crate) fn fill_lines(path: &BezPath, transform: Affine) -> Option<f64> {
    let is_curved = |one: &PathEl| matches!(one, PathEl::QuadTo(..) | PathEl::CurveTo(..));
    if !path.elements().iter().any(is_curved) {
        return Some(0.0);
    }
    let lines = lines(path, 0.0, transform);
    (reach(path, transform) <= REACH_MAX && lines <= LINES_MAX).then_some(lines)
}

/// What a stroke is made of, at most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StrokeCost {
    pub(crate) dashes: f64,
    /// Those that its curves and turns are flattened into.
    pub(crate) lines: f64,
}

/// What a stroke costs; nothing, if it cannot be flattened.
pub(crate) fn stroke_cost(
    path: &BezPath,
    stroke: &Stroke,
    transform: Affine,
) -> Option<StrokeCost> {
    let width = stroke.width * widest(transform);
    let can = reach(path, transform) <= REACH_MAX && within(stroke.width) && within(width);
    can.then_some(())?;
    let of_curves = 2.0 * lines(path, stroke.width, transform);
    let with = |dashes: f64| {
        let turns = path.elements().len() as f64 + 2.0 * dashes;
        let of_turns = if is_round(stroke) { turns * lines_of(2.0 * width) } else { 0.0 };
        let lines = of_curves + of_turns;
        (lines <= LINES_MAX).then_some(StrokeCost { dashes, lines })
    };
    if stroke.dash_pattern.is_empty() {
        return with(0.0);
    }
    let round: f64 = stroke.dash_pattern.iter().sum();
    let is_right = stroke.dash_pattern.iter().all(|dash| *dash >= 0.0) && round.is_finite();
    let rounds = (length(path) + stroke.dash_offset.abs()) / round;
    let count = rounds * stroke.dash_pattern.len() as f64;
    if is_right && count <= DASHES_MAX { with(count) } else { None }
}

/// How many lines the outlines of glyphs are flattened into, if they are stroked so; nothing, if
/// they cannot be: without dashes, since how long they are is known to the font alone.
pub(crate) fn outline_lines(
    stroke: &Stroke,
    glyphs: usize,
    size: f32,
    transform: Affine,
    glyph_transform: Option<Affine>,
) -> Option<f64> {
    let of_glyph = glyph_transform.map_or(transform, |of_glyph| transform * of_glyph);
    let scale = widest(transform).max(widest(of_glyph));
    let width = stroke.width * scale;
    let can = stroke.dash_pattern.is_empty() && within(stroke.width) && within(width);
    // A curve is as long as a glyph is large, and has two sides.
    let of_curve = 2.0 * lines_of((f64::from(size.max(0.0)) + 4.0 * stroke.width) * 2.0 * scale);
    let of_turn = if is_round(stroke) { lines_of(2.0 * width) } else { 0.0 };
    let lines = glyphs as f64 * GLYPH_POINTS * (of_curve + of_turn);
    (can && lines <= LINES_MAX).then_some(lines)
}

/// Whether the turns and ends of a stroke are curves.
fn is_round(stroke: &Stroke) -> bool {
    stroke.join == Join::Round || stroke.start_cap == Cap::Round || stroke.end_cap == Cap::Round
}

fn within(number: f64) -> bool {
    number.abs() <= REACH_MAX
}

/// How much larger a transform makes what it is of, in one direction.
fn widest(transform: Affine) -> f64 {
    transform.as_coeffs()[..4].iter().fold(0.0_f64, |widest, number| widest.max(number.abs()))
}

/// How many lines a curve of a length is flattened into, or more: how far it is from a line grows
/// with the square of that one's length. What is no number has none.
fn lines_of(length: f64) -> f64 {
    2.0 * length.abs().sqrt().max(0.0)
}

/// How many lines the curves of a path are flattened into, of which one side is as far away as it
/// is wide.
fn lines(path: &BezPath, width: f64, transform: Affine) -> f64 {
    let (mut start, mut at, mut lines) = (Point::ZERO, Point::ZERO, 0.0);
    for element in path.elements() {
        let (length, to) = match element {
            PathEl::MoveTo(to) => {
                start = *to;
                (0.0, *to)
            }
            PathEl::LineTo(to) => (0.0, *to),
            PathEl::QuadTo(one, to) => (at.distance(*one) + one.distance(*to), *to),
            PathEl::CurveTo(one, other, to) => {
                (at.distance(*one) + one.distance(*other) + other.distance(*to), *to)
            }
            PathEl::ClosePath => (0.0, start),
        };
        if length > 0.0 {
            lines += lines_of((length + 4.0 * width) * 2.0 * widest(transform));
        }
        at = to;
    }
    lines
}

/// How far from the origin a path goes. What is no number goes nowhere.
fn reach(path: &BezPath, transform: Affine) -> f64 {
    if path.elements().is_empty() {
        return 0.0;
    }
    let bounds = path.control_box();
    let there = transform.transform_rect_bbox(bounds);
    [bounds, there]
        .iter()
        .flat_map(|rect| [rect.x0, rect.y0, rect.x1, rect.y1])
        .fold(0.0, |reach: f64, number| reach.max(number.abs()))
}

/// How long a path is, at most.
fn length(path: &BezPath) -> f64 {
    let (mut start, mut at, mut length) = (Point::ZERO, Point::ZERO, 0.0);
    for element in path.elements() {
        let points: &[Point] = match element {
            PathEl::MoveTo(to) => {
                (start, at) = (*to, *to);
                continue;
            }
            PathEl::LineTo(to) => &[*to],
            PathEl::QuadTo(one, to) => &[*one, *to],
            PathEl::CurveTo(one, other, to) => &[*one, *other, *to],
            PathEl::ClosePath => &[start],
        };
        for point in points {
            length += at.distance(*point);
            at = *point;
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(to: f64) -> BezPath {
        let mut path = BezPath::new();
        path.move_to((0.0, 0.0));
        path.line_to((to, 0.0));
        path
    }

    fn dashed(pattern: &[f64], offset: f64) -> Stroke {
        Stroke::new(1.0).with_dashes(offset, pattern)
    }

    fn can_fill(path: &BezPath, transform: Affine) -> bool {
        fill_lines(path, transform).is_some()
    }

    fn dashes(path: &BezPath, stroke: &Stroke, transform: Affine) -> Option<f64> {
        stroke_cost(path, stroke, transform).map(|cost| cost.dashes)
    }

    fn can_outline(stroke: &Stroke) -> bool {
        outline_lines(stroke, 1, 12.0, Affine::IDENTITY, None).is_some()
    }

    /// Guarantee: pages/planted
    #[test]
    fn dashes_are_counted_before_they_are_painted() {
        let count = |to, pattern: &[f64], offset| {
            dashes(&line(to), &dashed(pattern, offset), Affine::IDENTITY)
        };
        assert_eq!(count(1000.0, &[4.0, 1.0], 0.0), Some(400.0));
        assert_eq!(count(1000.0, &[], 0.0), Some(0.0));
        assert_eq!(count(0.0, &[3.0, 3.0], 0.0), Some(0.0));
        for (to, pattern, offset) in [
            (1000.0, &[1e-300, 1e-300][..], 0.0),
            (1000.0, &[0.0, 0.0], 0.0),
            (1000.0, &[-1.0, 2.0], 0.0),
            (1000.0, &[f64::NAN], 0.0),
            (1000.0, &[f64::INFINITY], 0.0),
            (1000.0, &[1.0], 1e300),
            (1000.0, &[1.0], f64::NAN),
            (1e300, &[1e299], 0.0),
            (1e8, &[1.0], 0.0),
        ] {
            assert_eq!(count(to, pattern, offset), None, "{to} {pattern:?} {offset}");
        }
    }

    /// Guarantee: pages/planted
    #[test]
    fn lines_of_curves_are_counted_before_they_are_made() {
        let curves = |count: u32, size: f64| {
            let mut path = line(5.0);
            for _ in 0..count {
                path.curve_to((size, 0.0), (size, size), (0.0, size));
                path.curve_to((-size, 0.0), (-size, size), (0.0, 0.0));
            }
            path
        };
        assert!(can_fill(&curves(100_000, 9.0), Affine::IDENTITY));
        assert!(can_fill(&curves(1, 4e8), Affine::IDENTITY));
        assert!(!can_fill(&curves(1_000, 4e8), Affine::IDENTITY));
        assert!(!can_fill(&curves(1_000, 4.0), Affine::scale(1e8)));
        let mut zigzag = line(5.0);
        (0..10_000).for_each(|n| zigzag.line_to((f64::from(n % 2), 0.0)));
        let round = |width: f64| dashes(&zigzag, &Stroke::new(width), Affine::IDENTITY);
        assert_eq!((round(9.0), round(9e8)), (Some(0.0), None));
        let sharp = Stroke::new(9e8).with_join(Join::Miter).with_caps(Cap::Butt);
        assert_eq!(dashes(&zigzag, &sharp, Affine::IDENTITY), Some(0.0));
        assert_eq!(dashes(&curves(1_000, 9.0), &sharp, Affine::IDENTITY), None);
        // They are added up, also those of glyphs.
        let lines = fill_lines(&curves(1, 9.0), Affine::IDENTITY).unwrap_or_default();
        assert!(lines > 1.0 && fill_lines(&line(9.0), Affine::IDENTITY) == Some(0.0));
        let more = stroke_cost(&curves(1, 9.0), &Stroke::new(1.0), Affine::IDENTITY);
        assert!(more.is_some_and(|more| more.lines > 2.0 * lines));
        let outlines = |width: f64, glyphs: usize, scale: f64| {
            let glyph = Some(Affine::scale(scale));
            outline_lines(&Stroke::new(width), glyphs, 12.0, Affine::IDENTITY, glyph)
        };
        assert!(outlines(1.0, 100, 1.0).is_some());
        assert_eq!(outlines(1e9, 1, 1.0), None);
        assert_eq!(outlines(1.0, 1_000_000, 1.0), None);
        assert_eq!(outlines(1.0, 1, 1e10), None);
    }

    /// Guarantee: pages/planted
    #[test]
    fn what_is_as_wide_as_numbers_go_is_not_flattened() {
        let mut curve = line(5.0);
        curve.curve_to((1.0, 1.0), (2.0, 2.0), (1e10, 3.0));
        assert!(!can_fill(&curve, Affine::IDENTITY) && can_fill(&line(1e300), Affine::IDENTITY));
        assert!(!can_fill(&curve, Affine::scale(1e-3)));
        let mut curve = line(5.0);
        curve.quad_to((1.0, 1.0), (2.0, 2.0));
        assert!(can_fill(&curve, Affine::IDENTITY) && !can_fill(&curve, Affine::scale(1e300)));
        assert_eq!(dashes(&curve, &Stroke::new(1e300), Affine::IDENTITY), None);
        assert_eq!(
            dashes(&curve, &Stroke::new(1.0), Affine::new([1e200, 0.0, 0.0, 0.0, 0.0, 0.0])),
            None
        );
        assert!(!can_outline(&dashed(&[1.0], 0.0)) && !can_outline(&Stroke::new(f64::NAN)));
    }
}
