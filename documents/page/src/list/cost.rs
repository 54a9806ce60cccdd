//! The cost of drawing commands: their bytes are few, and what they ask for can be without end.
//!
//! Dashes of next to no length, curves and strokes as wide as numbers go: code that flattens them
//! into lines would not end, or run out of memory. The engine is asked the same when a page is
//! kept, so that no list is kept that would be refused.

use kurbo::{Affine, BezPath, PathEl, Point, Stroke};

use crate::error::EntryDamage;

/// Dashes of a command, and of all that are painted at once.
pub(crate) const DASHES_MAX: f64 = 1e6;
/// Pixels from the origin to what is curved, or as wide as a stroke is. Pages are not as long.
const REACH_MAX: f64 = 1e9;

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

/// Whether what is filled or clipped can be flattened.
pub(crate) fn can_fill(path: &BezPath, transform: Affine) -> bool {
    let is_curved = |one: &PathEl| matches!(one, PathEl::QuadTo(..) | PathEl::CurveTo(..));
    !path.elements().iter().any(is_curved) || reach(path, transform) <= REACH_MAX
}

/// How many dashes a stroke has, at most; nothing, if it cannot be flattened.
pub(crate) fn dashes(path: &BezPath, stroke: &Stroke, transform: Affine) -> Option<f64> {
    let widest =
        transform.as_coeffs()[..4].iter().fold(0.0_f64, |widest, number| widest.max(number.abs()));
    let can = reach(path, transform) <= REACH_MAX
        && within(stroke.width)
        && within(stroke.width * widest);
    can.then_some(())?;
    if stroke.dash_pattern.is_empty() {
        return Some(0.0);
    }
    let round: f64 = stroke.dash_pattern.iter().sum();
    let is_right = stroke.dash_pattern.iter().all(|dash| *dash >= 0.0) && round.is_finite();
    let rounds = (length(path) + stroke.dash_offset.abs()) / round;
    let count = rounds * stroke.dash_pattern.len() as f64;
    (is_right && count <= DASHES_MAX).then_some(count)
}

/// Whether the outlines of glyphs can be stroked so: without dashes, since how long they are is
/// known to the font alone.
pub(crate) fn can_outline(stroke: &Stroke) -> bool {
    stroke.dash_pattern.is_empty() && within(stroke.width)
}

fn within(number: f64) -> bool {
    number.abs() <= REACH_MAX
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
