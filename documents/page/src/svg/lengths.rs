//! How long lengths are that are a part of others, before the engine works them out: of fonts, of
//! pictures and of view boxes around them.

use std::str::FromStr;

use simplecss::DeclarationTokenizer;
use svgtypes::{Length, LengthUnit, ViewBox};

use super::Element;
use super::graph::{PASSES_MAX, totals};

/// How exactly growth is counted, which is added up as its logarithm.
const GROWTHS: f64 = 1_024.0;

/// How many curves the engine makes of a circle, an ellipse or the corners of a rectangle, or more;
/// `widest` is what their radii can be relative to.
pub(super) fn round_curves(element: &Element<'_>, widest: f64) -> u64 {
    let radii: &[&str] = match element.name {
        "circle" => &["r"],
        "ellipse" | "rect" => &["rx", "ry"],
        _ => return 0,
    };
    let lengths = radii.iter().flat_map(|name| element.values(name));
    let radius = lengths
        .filter_map(|value| Length::from_str(value).ok())
        .map(|length| length_of(&length, widest).abs())
        .fold(0.0_f64, f64::max)
        .min(f64::from(f32::MAX));
    // As `kurbo` has it for a whole turn, of a radius that is rounded up, and for each quarter.
    (radius * 16.0).powf(1.0 / 6.0).ceil() as u64 + 4
}

/// A length in pixels, or more.
fn length_of(length: &Length, widest: f64) -> f64 {
    match length.unit {
        LengthUnit::None | LengthUnit::Px => length.number,
        LengthUnit::Em | LengthUnit::Ex => length.number * widest,
        LengthUnit::Percent => length.number / 100.0 * widest,
        LengthUnit::In | LengthUnit::Cm | LengthUnit::Mm | LengthUnit::Pt | LengthUnit::Pc => {
            length.number * 96.0
        }
    }
}

/// Sizes of fonts and of view boxes: the largest that is said in pixels.
struct Sizes {
    largest: f64,
}

impl Sizes {
    /// How much larger a size may be than the one around it, if it is a part of that.
    fn growth(&mut self, text: &str) -> f64 {
        let is_within = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '-' | '%');
        let is_digit = |c: char| c.is_ascii_digit();
        let mut growth = 1.0_f64;
        for word in text.split(|c: char| !is_within(c)) {
            let Ok(length) = Length::from_str(word) else {
                let is_unit = |c: char| c.is_ascii_alphabetic() || c == '%';
                let (number, unit) = word.split_at(word.trim_end_matches(is_unit).len());
                if matches!(word, "large" | "larger" | "x-large" | "xx-large") {
                    growth *= 1.2_f64.powi(3);
                } else if let Ok(number) = number.parse::<f64>() {
                    // In `font` the engine may take the start of a word, with a unit that it knows.
                    self.say(number * 96.0);
                    if ["em", "ex", "%"].iter().any(|part| unit.starts_with(part)) {
                        growth *= number.abs().max(1.0);
                    }
                } else if word.trim_start_matches(['+', '-', '.']).starts_with(is_digit) {
                    growth = f64::INFINITY;
                }
                continue;
            };
            match length.unit {
                LengthUnit::Em | LengthUnit::Ex | LengthUnit::Percent => {
                    growth *= length_of(&length, 1.0).abs().max(1.0);
                }
                _ => self.say(length_of(&length, 1.0)),
            }
        }
        growth
    }

    /// Takes up a size in pixels.
    fn say(&mut self, pixels: f64) {
        self.largest = self.largest.max(pixels.abs());
    }
}

pub(super) fn is_font_size(name: &str) -> bool {
    matches!(name, "font-size" | "font")
}

/// What a length can be relative to, or more; nothing, if the graph leads in a circle.
pub(super) fn widest(
    elements: &[Element<'_>],
    fonts: &[&str],
    graph: &[Vec<(usize, u64)>],
) -> Option<f64> {
    // The engine begins with less.
    let mut sizes = Sizes { largest: 100.0 };
    // A rule may be of each element around one.
    let of_rules: f64 = fonts.iter().map(|font| sizes.growth(font)).product();
    let mut growths: Vec<u64> = Vec::with_capacity(elements.len());
    for element in elements {
        let mut all = of_rules;
        for (name, value) in &element.attributes {
            all *= match *name {
                "font-size" => sizes.growth(value),
                "width" | "height" if matches!(element.name, "svg" | "use") => sizes.growth(value),
                // Its numbers need nothing between them, and are a part of nothing.
                "viewBox" if matches!(element.name, "svg" | "use") => {
                    if let Ok(view) = ViewBox::from_str(value) {
                        sizes.say(view.w.max(view.h));
                    }
                    1.0
                }
                "style" if value.contains("font") => DeclarationTokenizer::from(&**value)
                    .filter(|declaration| is_font_size(declaration.name))
                    .map(|declaration| sizes.growth(declaration.value))
                    .product::<f64>(),
                _ => 1.0,
            };
        }
        growths.push((all.log2() * GROWTHS).ceil() as u64);
    }
    let most = totals(
        graph,
        |number| growths[number],
        |number, all, of_one, _| all.max(growths[number].saturating_add(of_one)),
    )?;
    let most = most.first().copied().unwrap_or(0) as f64 / GROWTHS;
    // A mark may be within another one, and what is in it again in that.
    let marks = elements.iter().filter(|element| element.name == "marker").count();
    Some(sizes.largest * (most * (1 + marks.min(PASSES_MAX)) as f64).exp2())
}
