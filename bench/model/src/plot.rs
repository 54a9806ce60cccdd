//! The paper's figures: break-even points over speed-ups (3 and 4), and times over sizes with what
//! was measured (9), as SVG or PNG. Logarithmic axes, since what is compared spans orders of
//! magnitude.
//!
//! Invariant: what is drawn depends on the numbers alone: the font is part of the program, so
//! nothing is asked of the machine.

use std::ops::Range;
use std::path::Path;
use std::sync::Once;

use plotters::coord::Shift;
use plotters::coord::combinators::LogCoord;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use crate::break_even::{BreakEvens, break_even};
use crate::comparison::{Comparison, Sample};
use crate::error::ModelError;
use crate::table::Size;
use crate::time::Time;
use crate::workload::Workload;

const WIDTH_PX: u32 = 960;
const HEIGHT_PX: u32 = 640;
const FONT: &str = "sans-serif";
/// As many points of a line as it takes to look like one.
const LINE_POINTS: u32 = 100;
/// Told apart also by who sees no colours: they differ in brightness.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0, 71, 171),
    RGBColor(213, 94, 0),
    RGBColor(0, 140, 105),
    RGBColor(150, 80, 160),
    RGBColor(120, 120, 120),
];

/// What a plot is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Text, sharp at any size.
    Svg,
    /// Pixels.
    Png,
}

impl Format {
    /// By the ending of a file's name.
    ///
    /// # Errors
    /// [`ModelError::UnknownFormat`] for any other ending.
    pub fn of(path: &Path) -> Result<Format, ModelError> {
        match path.extension().and_then(|extension| extension.to_str()) {
            Some(svg) if svg.eq_ignore_ascii_case("svg") => Ok(Format::Svg),
            Some(png) if png.eq_ignore_ascii_case("png") => Ok(Format::Png),
            _ => Err(ModelError::UnknownFormat { name: path.display().to_string() }),
        }
    }
}

/// Draws curves of break-even points, one for each cost of a call: figures 3 and 4 in one.
/// Vertical: the computation's time in the interface's language from which on the call pays.
///
/// # Errors
/// [`ModelError::NothingToDraw`] without two points of one curve, [`ModelError::Draw`] if the
/// drawing library fails.
pub fn plot_break_evens(curves: &[BreakEvens], format: Format) -> Result<Vec<u8>, ModelError> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let x = range(points().map(|point| point.speedup), 1.0);
    let y = range(points().map(|point| point.interface_us), 1.3);
    let (Some(x), Some(y)) = (x.filter(|x| x.start < x.end), y) else {
        return Err(ModelError::NothingToDraw {
            what: "curve of two speed-ups, and a call that costs something",
        });
    };
    let draw = Drawing {
        title: "From where on a call into an applet pays",
        x_title: "how many times as fast the applet computes",
        y_title: "the computation outside of the applet takes",
        x: x.clone(),
        y,
        legend: SeriesLabelPosition::UpperRight,
        x_label: &|speedup| format!("{}x", (speedup * 100.0).round() / 100.0),
        lines: curves
            .iter()
            .map(|curve| Line {
                name: format!("{} ({})", curve.name, Time(curve.call_us.get())),
                points: steps(&x)
                    .filter_map(|speedup| break_even(curve.call_us, speedup))
                    .map(|point| (point.speedup, point.interface_us))
                    .collect(),
                measured: Vec::new(),
            })
            .collect(),
    };
    draw.render(format)
}

/// Draws a comparison: predicted times as lines, measured means as points with one standard
/// deviation either way. Figure 9.
///
/// # Errors
/// [`ModelError::NothingToDraw`] without points of two sizes, [`ModelError::Draw`] if the drawing
/// library fails.
pub fn plot_comparison(comparison: &Comparison, format: Format) -> Result<Vec<u8>, ModelError> {
    let Comparison { workload, deviations, .. } = comparison;
    let x = range(deviations.iter().map(|one| one.bytes as f64), 1.2);
    let Some(x) = x.filter(|_| deviations.iter().any(|one| one.bytes != deviations[0].bytes))
    else {
        return Err(ModelError::NothingToDraw { what: "measured point for each of two sizes" });
    };
    let line = |name: &str,
                predicted: fn(&Workload, u64) -> f64,
                measured: &dyn Fn(usize) -> Option<Sample>| Line {
        name: name.to_owned(),
        points: steps(&x).map(|bytes| (bytes, predicted(workload, bytes as u64))).collect(),
        measured: (0..deviations.len())
            .filter_map(|index| Some((deviations[index].bytes as f64, measured(index)?)))
            .collect(),
    };
    let lines = vec![
        line("applet", Workload::applet_us, &|index| Some(deviations[index].applet)),
        line("outside", Workload::interface_us, &|index| deviations[index].interface),
    ];
    let times = lines.iter().flat_map(|line| {
        let measured = line.measured.iter().map(|(_, sample)| sample.mean_us.get());
        line.points.iter().map(|&(_, us)| us).chain(measured)
    });
    let y = range(times, 1.3).ok_or(ModelError::NothingToDraw { what: "time that is not 0" })?;
    let draw = Drawing {
        title: &format!("{}: predicted (lines) and measured (points)", workload.name),
        x_title: "size of the input",
        y_title: "time",
        x,
        y,
        legend: SeriesLabelPosition::UpperLeft,
        x_label: &|bytes| Size(bytes.round() as u64).to_string(),
        lines,
    };
    draw.render(format)
}

/// From the smallest to the largest of what a logarithmic axis can show, and a factor beyond;
/// `None` if there is nothing.
fn range(values: impl Iterator<Item = f64>, beyond: f64) -> Option<Range<f64>> {
    let shown = values.filter(|value| value.is_finite() && *value > 0.0);
    let (least, most) =
        shown.fold((f64::MAX, 0.0f64), |(least, most), value| (least.min(value), most.max(value)));
    (most > 0.0).then(|| least / beyond..most * beyond)
}

/// Evenly over a logarithmic axis.
fn steps(x: &Range<f64>) -> impl Iterator<Item = f64> {
    let (start, factor) = (x.start, x.end / x.start);
    (0..=LINE_POINTS)
        .map(move |index| start * factor.powf(f64::from(index) / f64::from(LINE_POINTS)))
}

/// A line, and points with bars.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
    measured: Vec<(f64, Sample)>,
}

/// All there is to one figure.
struct Drawing<'a> {
    title: &'a str,
    x_title: &'a str,
    y_title: &'a str,
    x: Range<f64>,
    y: Range<f64>,
    x_label: &'a dyn Fn(f64) -> String,
    /// Where no line is.
    legend: SeriesLabelPosition,
    lines: Vec<Line>,
}

type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<LogCoord<f64>, LogCoord<f64>>>;

impl Drawing<'_> {
    fn render(&self, format: Format) -> Result<Vec<u8>, ModelError> {
        provide_font();
        let size = (WIDTH_PX, HEIGHT_PX);
        match format {
            Format::Svg => {
                let mut text = String::new();
                self.draw(SVGBackend::with_string(&mut text, size).into_drawing_area())?;
                Ok(text.into_bytes())
            }
            Format::Png => {
                let mut pixels = vec![0; WIDTH_PX as usize * HEIGHT_PX as usize * 3];
                self.draw(BitMapBackend::with_buffer(&mut pixels, size).into_drawing_area())?;
                encode_png(&pixels)
            }
        }
    }

    fn draw<DB: DrawingBackend>(&self, area: DrawingArea<DB, Shift>) -> Result<(), ModelError> {
        area.fill(&WHITE).map_err(failed)?;
        let mut chart: Chart<'_, DB> = ChartBuilder::on(&area)
            .caption(self.title, (FONT, 22))
            .margin(16)
            .x_label_area_size(48)
            .y_label_area_size(80)
            .build_cartesian_2d(self.x.clone().log_scale().base(2.0), self.y.clone().log_scale())
            .map_err(failed)?;
        chart
            .configure_mesh()
            .light_line_style(RGBColor(240, 240, 240))
            .bold_line_style(RGBColor(215, 215, 215))
            .label_style((FONT, 14))
            .axis_desc_style((FONT, 16))
            .x_desc(self.x_title)
            .y_desc(self.y_title)
            .x_label_formatter(&|&x| (self.x_label)(x))
            .y_label_formatter(&|&us| Time(us).to_string())
            .draw()
            .map_err(failed)?;
        for (line, &colour) in self.lines.iter().zip(COLOURS.iter().cycle()) {
            self.draw_line(&mut chart, line, colour)?;
        }
        chart
            .configure_series_labels()
            .position(self.legend.clone())
            .label_font((FONT, 15))
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(180, 180, 180))
            .draw()
            .map_err(failed)?;
        area.present().map_err(failed)
    }

    fn draw_line<DB: DrawingBackend>(
        &self,
        chart: &mut Chart<'_, DB>,
        line: &Line,
        colour: RGBColor,
    ) -> Result<(), ModelError> {
        // What a logarithmic axis cannot show is left out.
        let shown = line.points.iter().copied().filter(|&(x, y)| x > 0.0 && y > 0.0);
        chart
            .draw_series(LineSeries::new(shown, colour.stroke_width(2)))
            .map_err(failed)?
            .label(&line.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], colour.stroke_width(2)));
        let bars = line.measured.iter().filter(|(_, sample)| sample.mean_us.get() > 0.0).map(
            |(x, sample)| {
                let (mean, deviation) = (sample.mean_us.get(), sample.standard_deviation_us.get());
                let low = (mean - deviation).max(self.y.start);
                ErrorBar::new_vertical(*x, low, mean, mean + deviation, colour.filled(), 8)
            },
        );
        chart.draw_series(bars).map_err(failed)?;
        Ok(())
    }
}

/// Without a font in the program, a plot would look as the machine's fonts do, and fail where there
/// are none.
fn provide_font() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A font that was refused shows as `Draw` when text is drawn.
        let _refused = register_font(FONT, FontStyle::Normal, epaint_default_fonts::HACK_REGULAR);
    });
}

fn encode_png(pixels: &[u8]) -> Result<Vec<u8>, ModelError> {
    let mut file = Vec::new();
    let mut encoder = png::Encoder::new(&mut file, WIDTH_PX, HEIGHT_PX);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(failed)?;
    writer.write_image_data(pixels).map_err(failed)?;
    writer.finish().map_err(failed)?;
    Ok(file)
}

fn failed(error: impl std::fmt::Display) -> ModelError {
    ModelError::Draw { what: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::measured;
    use crate::time::Microseconds;

    fn curves() -> Vec<BreakEvens> {
        [1000.0, 10.0]
            .map(|us| {
                BreakEvens::over("a call", Microseconds::new(us).unwrap(), &BreakEvens::SPEEDUPS)
            })
            .to_vec()
    }

    /// Figures are SVG with their text or PNG with their size.
    #[test]
    fn figures_are_svg_with_text_or_png_of_their_size() {
        let svg = String::from_utf8(plot_break_evens(&curves(), Format::Svg).unwrap()).unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("a call (1.00 ms)") && svg.contains("a call (10.0 us)"));
        for figure in
            [plot_break_evens(&curves(), Format::Png), plot_comparison(&measured(), Format::Png)]
        {
            let figure = figure.unwrap();
            let reader = png::Decoder::new(std::io::Cursor::new(&figure)).read_info().unwrap();
            assert_eq!((reader.info().width, reader.info().height), (WIDTH_PX, HEIGHT_PX));
        }
    }

    #[test]
    fn measured_points_are_drawn_beside_the_lines() {
        let svg = String::from_utf8(plot_comparison(&measured(), Format::Svg).unwrap()).unwrap();
        // Five means were measured; each is a filled circle.
        assert_eq!(svg.matches("<circle").count(), 5);
        for colour in ["#0047AB", "#D55E00"] {
            let is_line =
                |element: &str| element.starts_with("polyline") && element.contains(colour);
            assert!(svg.split('<').any(is_line), "no line of colour {colour}");
        }
    }

    #[test]
    fn nothing_to_draw_and_unknown_endings_are_errors() {
        assert!(matches!(
            plot_break_evens(&[], Format::Svg),
            Err(ModelError::NothingToDraw { .. })
        ));
        let free = BreakEvens::over("free", Microseconds::ZERO, &BreakEvens::SPEEDUPS);
        assert!(matches!(
            plot_break_evens(&[free], Format::Png),
            Err(ModelError::NothingToDraw { .. })
        ));
        let none = Comparison::of(measured().workload, &[]);
        assert!(matches!(
            plot_comparison(&none, Format::Png),
            Err(ModelError::NothingToDraw { .. })
        ));
        assert_eq!(Format::of(Path::new("a/b.PNG")).unwrap(), Format::Png);
        assert!(matches!(Format::of(Path::new("b.pdf")), Err(ModelError::UnknownFormat { .. })));
    }
}
