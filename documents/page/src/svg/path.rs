//! What the engine makes of the data of a path, before it makes it: segments, and the curves of
//! arcs.

use kurbo::{Arc, PathEl, Point, SvgArc, Vec2};
use svgtypes::{PathParser, PathSegment};

/// Segments of one line: it is copied some times before it is painted.
pub(super) const POINTS_MAX: u64 = 1_000_000;
/// Curves of one arc. An arc as large as this is no longer one to any eye; the parser moves all
/// that are left each time one is taken.
const ARC_CURVES_MAX: usize = 1_000;
/// How exact curves are of which the engine makes an arc.
const ARC_TOLERANCE: f64 = 0.1;
/// The length of an arc's chord; where it is less but not nothing, its centre is nowhere.
const CHORD_MIN: f64 = 1e-100;
/// Parts of a line in a row of which nothing comes: for each one the parser calls itself.
const EMPTY_MAX: u32 = 1_000;
pub(super) const TOO_LARGE_ARC: &str = "an arc in it is larger than is taken";
pub(super) const TOO_MANY_POINTS: &str = "a line in it has more points than are taken";
pub(super) const TOO_MANY_EMPTY: &str =
    "a line in it has more parts without a length than are taken";

/// The segments of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LineSize {
    pub(super) segments: u64,
    /// The curves among them that the engine makes of arcs.
    pub(super) of_arcs: u64,
}

/// What the engine makes of the data of a path, as its parser reads them: an arc it makes into
/// curves, the more the larger it is, and all of them before the first one is used.
pub(super) fn size_of_path(data: &str) -> Result<LineSize, &'static str> {
    let mut size = LineSize::default();
    let (mut start, mut at) = (Point::ZERO, Point::ZERO);
    let mut is_closed = false;
    let mut empty = 0;
    for segment in PathParser::from(data) {
        // What is behind an error is not read.
        let Ok(segment) = segment else { break };
        let to = move |is_absolute: bool, x: f64, y: f64| {
            if is_absolute { Point::new(x, y) } else { Point::new(x + at.x, y + at.y) }
        };
        let mut made = 1;
        match segment {
            PathSegment::MoveTo { abs, x, y } => {
                at = to(abs, x, y);
                start = at;
            }
            PathSegment::ClosePath { .. } => {
                made = u64::from(!is_closed);
                at = start;
            }
            PathSegment::HorizontalLineTo { abs, x } => at = Point::new(to(abs, x, 0.0).x, at.y),
            PathSegment::VerticalLineTo { abs, y } => at = Point::new(at.x, to(abs, 0.0, y).y),
            PathSegment::LineTo { abs, x, y }
            | PathSegment::CurveTo { abs, x, y, .. }
            | PathSegment::SmoothCurveTo { abs, x, y, .. }
            | PathSegment::Quadratic { abs, x, y, .. }
            | PathSegment::SmoothQuadratic { abs, x, y } => at = to(abs, x, y),
            PathSegment::EllipticalArc { abs, rx, ry, x_axis_rotation, large_arc, sweep, x, y } => {
                let arc = SvgArc {
                    from: at,
                    to: to(abs, x, y),
                    radii: Vec2::new(rx, ry),
                    x_rotation: x_axis_rotation.to_radians(),
                    large_arc,
                    sweep,
                };
                (made, at) = curves_of(&arc)?;
                size.of_arcs += made;
            }
        }
        let closes = matches!(segment, PathSegment::ClosePath { .. });
        // A line that goes on where it was closed begins there once more.
        if is_closed && !closes && !matches!(segment, PathSegment::MoveTo { .. }) {
            made += 1;
        }
        is_closed = closes;
        empty = if made == 0 { empty + 1 } else { 0 };
        if empty > EMPTY_MAX {
            return Err(TOO_MANY_EMPTY);
        }
        size.segments += made;
        if size.segments > POINTS_MAX {
            return Err(TOO_MANY_POINTS);
        }
    }
    Ok(size)
}

/// How many curves the engine makes of an arc, and where they end: none of what has no angle, and a
/// line of what has no radius.
fn curves_of(arc: &SvgArc) -> Result<(u64, Point), &'static str> {
    let chord = arc.from.distance(arc.to);
    if arc.from != arc.to && (chord.is_nan() || chord < CHORD_MIN) {
        return Err(TOO_LARGE_ARC);
    }
    let Some(ellipse) = Arc::from_svg_arc(arc) else { return Ok((1, arc.to)) };
    let (mut curves, mut end) = (0, arc.from);
    for curve in ellipse.append_iter(ARC_TOLERANCE).take(ARC_CURVES_MAX + 1) {
        curves += 1;
        if let PathEl::CurveTo(_, _, to) = curve {
            end = to;
        }
    }
    if curves > ARC_CURVES_MAX as u64 { Err(TOO_LARGE_ARC) } else { Ok((curves, end)) }
}
