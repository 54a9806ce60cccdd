//! Where a value lies on the bars of an exhibit.

use crate::report::{ExhibitPart, RowPart};

/// Values that are further apart than this are drawn on a logarithmic scale.
const LINEAR_UP_TO: f64 = 40.0;

/// The scale of all bars of one unit in an exhibit. Values are in that unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    /// Where the left end is.
    least: f64,
    /// Where the right end is.
    most: f64,
    /// Where bars start.
    base: f64,
    is_logarithmic: bool,
}

impl Scale {
    /// Bars of ratios start at 1, on a logarithmic scale, so that twice and half as good are as long.
    /// Others start at 0; where they are far apart, but for percents, at a power of ten on a
    /// logarithmic scale.
    pub(crate) fn of(exhibit: &ExhibitPart, unit: &str) -> Scale {
        let rows = exhibit.rows.iter().filter(|row| row.unit == unit);
        let shown: Vec<f64> = rows.flat_map(values).filter(|value| value.is_finite()).collect();
        let least = shown.iter().copied().fold(f64::INFINITY, f64::min);
        let most = shown.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        match (unit, least > 0.0) {
            ("x", true) => {
                let (least, most) = (least.min(1.0), most.max(1.0));
                Scale { least, most, base: 1.0, is_logarithmic: true }
            }
            (unit, true) if unit != "%" && most / least > LINEAR_UP_TO => {
                let base = 10f64.powf((least * 0.999).log10().floor());
                Scale { least: base, most, base, is_logarithmic: true }
            }
            _ => Scale {
                least: least.min(0.0),
                most: most.max(0.0),
                base: 0.0,
                is_logarithmic: false,
            },
        }
    }

    /// How far a value is from the left end, in percent of the width.
    pub(crate) fn place(self, value: f64) -> f64 {
        let position = |value: f64| if self.is_logarithmic { value.ln() } else { value };
        let (least, most) = (position(self.least), position(self.most));
        let part = (position(value) - least) / (most - least);
        // A logarithm of nothing, or a scale without length.
        if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) * 100.0 }
    }

    /// Left end and width of what lies between two values, as CSS.
    pub(crate) fn between(self, one: f64, other: f64) -> String {
        let (one, other) = (self.place(one), self.place(other));
        format!("left:{:.1}%;width:{:.1}%", one.min(other), (one - other).abs())
    }

    /// Left end and width of a value's bar, as CSS.
    pub(crate) fn bar(self, value: f64) -> String {
        self.between(self.base, value)
    }

    /// Where the line is at which bars start, if that is not the left end.
    pub(crate) fn base_line(self) -> Option<f64> {
        (self.least < self.base).then(|| self.place(self.base))
    }

    pub(crate) fn is_logarithmic(self) -> bool {
        self.is_logarithmic
    }

    pub(crate) fn base(self) -> f64 {
        self.base
    }
}

/// What the scale must have room for. The spread of a value that is not firm is cut off at its
/// ends, so that it does not make all bars short.
fn values(row: &RowPart) -> impl Iterator<Item = f64> {
    let ours = row.ours.iter().flat_map(|ours| {
        let spread = |value| ours.is_firm.then_some(value);
        [Some(ours.median), spread(ours.min), spread(ours.max), ours.bound]
    });
    ours.flatten().chain(row.published)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::sample;

    /// An exhibit of these values and of one in another unit, which has no part in the scale.
    fn scale(unit: &str, values: &[f64]) -> Scale {
        let mut exhibit = sample(0.013, 0.0).papers[0].exhibits[1].clone();
        let row = exhibit.rows[0].clone();
        let of = |unit: &str, value| RowPart {
            published: Some(value),
            published_text: None,
            unit: unit.to_owned(),
            ours: None,
            ..row.clone()
        };
        exhibit.rows = values.iter().map(|value| of(unit, *value)).collect();
        exhibit.rows.push(of("parsecs", 1e9));
        Scale::of(&exhibit, unit)
    }

    #[test]
    fn bars_start_at_zero() {
        let scale = scale("s", &[5.0, 10.0]);
        assert_eq!(scale.bar(5.0), "left:0.0%;width:50.0%");
        assert_eq!((scale.place(10.0), scale.base_line()), (100.0, None));
        assert_eq!(self::scale("%", &[1.0, 100.0]).bar(1.0), "left:0.0%;width:1.0%");
        assert_eq!(scale.place(f64::NAN), 0.0);
    }

    /// A ratio of one half is as long to the left of the line as two is to the right.
    #[test]
    fn ratios_start_at_one() {
        let scale = scale("x", &[0.5, 2.0]);
        assert_eq!(scale.base_line(), Some(50.0));
        assert_eq!(scale.bar(0.5), "left:0.0%;width:50.0%");
        assert_eq!(scale.bar(2.0), "left:50.0%;width:50.0%");
        assert_eq!(self::scale("x", &[2.0, 4.0]).bar(2.0), "left:0.0%;width:50.0%");
    }

    #[test]
    fn losses_lie_on_the_other_side_of_zero() {
        let scale = scale("%", &[-100.0, 300.0]);
        assert_eq!(scale.base_line(), Some(25.0));
        assert_eq!(scale.bar(-100.0), "left:0.0%;width:25.0%");
        assert!(!scale.is_logarithmic());
    }

    /// The least value has a bar, too.
    #[test]
    fn values_far_apart_start_at_a_power_of_ten() {
        let scale = scale("us", &[1.0, 1000.0]);
        assert!(scale.is_logarithmic());
        assert!((scale.base() - 0.1).abs() < 1e-12, "{scale:?}");
        assert_eq!(scale.bar(1.0), "left:0.0%;width:25.0%");
    }
}
