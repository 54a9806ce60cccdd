//! The points of an exhibit as lines over its axis: one small picture, both axes logarithmic.

use maud::{Markup, html};

use crate::number::short;
use crate::report::{ExhibitPart, RowPart};

/// Size of the picture, and of its edges, where the labels are.
const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 62.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 42.0;

/// A line: its name, whether it is the paper's, and its points.
struct Line<'a> {
    name: &'a str,
    is_theirs: bool,
    points: Vec<(f64, f64)>,
}

/// The lines of an exhibit; nothing if it has no points.
pub(crate) fn lines(exhibit: &ExhibitPart) -> Option<Markup> {
    let axis = exhibit.axis.as_deref()?;
    let unit = &exhibit.rows.iter().find(|row| row.at.is_some())?.unit;
    let lines = lines_of(&exhibit.rows);
    let points = || lines.iter().flat_map(|line| &line.points);
    let x = Axis::of(points().map(|point| point.0))?;
    let y = Axis::of(points().map(|point| point.1))?.with_decades();
    let place = |&(at, value): &(f64, f64)| {
        let across = LEFT + x.part(at) * (WIDTH - LEFT - RIGHT);
        (across, HEIGHT - BOTTOM - y.part(value) * (HEIGHT - TOP - BOTTOM))
    };
    let path = |line: &Line| {
        let places = line.points.iter().map(place);
        places.map(|(x, y)| format!("{x:.1},{y:.1}")).collect::<Vec<_>>().join(" ")
    };
    let (bottom, right) = (HEIGHT - BOTTOM, WIDTH - RIGHT);
    Some(html! {
        figure {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label={ (unit) " over " (axis) } {
                @for decade in y.decades() {
                    @let (_, at) = place(&(x.least, decade));
                    line class="grid" x1=(LEFT) x2=(right) y1=(px(at)) y2=(px(at)) {}
                    text x=(LEFT - 8.0) y=(px(at + 4.0)) text-anchor="end" { (size(decade)) }
                }
                @for at in ticks(&lines) {
                    @let (across, _) = place(&(at, y.least));
                    text x=(px(across)) y=(bottom + 18.0) text-anchor="middle" { (size(at)) }
                }
                text x=(px((LEFT + right) / 2.0)) y=(HEIGHT - 6.0) text-anchor="middle" { (axis) }
                @for (number, line) in lines.iter().enumerate() {
                    polyline class={ "line l" (number % 4) @if line.is_theirs { " dashed" } } points=(path(line)) {}
                    @for (x, y) in line.points.iter().map(place) {
                        circle class={ "l" (number % 4) } cx=(px(x)) cy=(px(y)) r="2.6" {}
                    }
                }
            }
            figcaption class="legend" {
                @for (number, line) in lines.iter().enumerate() {
                    span { i class={ "l" (number % 4) } {} @if line.is_theirs { "the paper: " } (line.name) }
                }
                span { (if unit == "x" { "times" } else { unit }) ", both axes logarithmic" }
            }
        }
    })
}

fn px(value: f64) -> String {
    format!("{value:.1}")
}

/// Ours and the paper's, in the order of the rows.
fn lines_of(rows: &[RowPart]) -> Vec<Line<'_>> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let Some(at) = row.at else { continue };
        let ours = row.ours.as_ref().map(|ours| ours.median);
        for (is_theirs, value) in [(false, ours), (true, row.published)] {
            let Some(value) = value.filter(|value| *value > 0.0 && at > 0.0) else { continue };
            let is_same = |line: &&mut Line| line.name == row.line && line.is_theirs == is_theirs;
            match lines.iter_mut().find(is_same) {
                Some(line) => line.points.push((at, value)),
                None => lines.push(Line { name: &row.line, is_theirs, points: vec![(at, value)] }),
            }
        }
    }
    lines
}

/// Where labels of the horizontal axis are: where points are.
fn ticks(lines: &[Line]) -> Vec<f64> {
    let mut all: Vec<f64> =
        lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all
}

/// A number as short as it can be said: 64 k is 64,000, and 64 Ki is 65,536.
fn size(value: f64) -> String {
    for (step, unit) in [(1e6, " M"), (1e3, " k"), (1_048_576.0, " Mi"), (1024.0, " Ki")] {
        if value >= step && value % step == 0.0 {
            return format!("{}{unit}", short(value / step));
        }
    }
    short(value)
}

/// A logarithmic axis.
#[derive(Debug, Clone, Copy)]
struct Axis {
    least: f64,
    most: f64,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>) -> Option<Axis> {
        let axis = values.fold(Axis { least: f64::INFINITY, most: 0.0 }, |axis, value| Axis {
            least: axis.least.min(value),
            most: axis.most.max(value),
        });
        (axis.least < axis.most).then_some(axis)
    }

    /// The same with powers of ten at both ends.
    fn with_decades(self) -> Axis {
        Axis {
            least: 10f64.powf(self.least.log10().floor()),
            most: 10f64.powf(self.most.log10().ceil()),
        }
    }

    /// How far along a value lies, from 0 to 1.
    fn part(self, value: f64) -> f64 {
        (value / self.least).ln() / (self.most / self.least).ln()
    }

    fn decades(self) -> impl Iterator<Item = f64> {
        let (from, to) = (self.least.log10().round() as i32, self.most.log10().round() as i32);
        (from..=to).map(|power| 10f64.powi(power))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    #[test]
    fn points_become_lines_over_their_axis() {
        let mut exhibit = sample(0.013, 0.0).papers[0].exhibits[0].clone();
        assert!(lines(&exhibit).is_none(), "bars, without an axis");
        exhibit.axis = Some("bytes <all>".to_owned());
        let row = exhibit.rows[0].clone();
        let point = |at, value, published| {
            let mut row = RowPart { at: Some(at), line: "applet".to_owned(), ..row.clone() };
            row.published = published;
            row.ours = row.ours.map(|ours| crate::report::Ours { median: value, ..ours });
            row
        };
        exhibit.rows = vec![point(1.0, 1.0, None), point(100.0, 10.0, Some(1.0))];
        let picture = lines(&exhibit).unwrap().into_string();
        assert!(picture.contains("points=\"62.0,258.0 616.0,12.0\""), "{picture}");
        assert!(
            picture.contains("bytes &lt;all&gt;") && picture.contains("the paper: "),
            "{picture}"
        );
    }

    #[test]
    fn sizes_are_short() {
        for (value, text) in [(64.0, "64"), (64_000.0, "64 k"), (65_536.0, "64 Ki"), (16e6, "16 M")]
        {
            assert_eq!(size(value), text);
        }
    }
}
