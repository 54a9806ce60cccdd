//! Numbers as a reader of a table wants them: three digits that say something.

/// Three significant digits, without zeros behind the point, thousands apart.
#[must_use]
pub fn short(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let magnitude = if value == 0.0 { 0 } else { value.abs().log10().floor() as i32 };
    let decimals = usize::try_from(2 - magnitude).unwrap_or(0);
    let text = format!("{value:.decimals$}");
    let text = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    let (sign, digits) = text.strip_prefix('-').map_or(("", text), |digits| ("-", digits));
    let (whole, part) = digits.split_once('.').map_or((digits, None), |(w, p)| (w, Some(p)));
    let mut grouped = String::new();
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match part {
        Some(part) => format!("{sign}{grouped}.{part}"),
        None => format!("{sign}{grouped}"),
    }
}

/// A number to six digits, which is more than a measurement has; what has no fraction, or as many
/// digits before it, as it is.
#[must_use]
pub(crate) fn rounded(value: f64) -> f64 {
    if value.fract() == 0.0 || !value.is_finite() {
        return value;
    }
    let magnitude = value.abs().log10().floor() as i32;
    match usize::try_from(5 - magnitude) {
        Ok(decimals) => format!("{value:.decimals$}").parse().unwrap_or(value),
        Err(_) => value,
    }
}

/// A number with its unit; a ratio is followed by a sign of multiplication.
#[must_use]
pub(crate) fn with_unit(value: f64, unit: &str) -> String {
    match unit {
        "" | "1" => short(value),
        "x" => format!("{}×", short(value)),
        "%" => format!("{} %", short(value)),
        unit => format!("{} {unit}", short(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_kept_to_six_digits() {
        let cases = [
            (0.0, 0.0),
            (1.0 / 3.0, 0.333_333),
            (-2e-9 / 3.0, -6.666_67e-10),
            (27.949_931_114_482, 27.949_9),
            (123_456_789.25, 123_456_789.25),
            (1e12, 1e12),
        ];
        for (value, kept) in cases {
            assert_eq!(rounded(value), kept);
            assert_eq!(short(rounded(value)), short(value));
        }
        assert!(rounded(f64::NAN).is_nan());
    }

    #[test]
    fn three_digits_say_enough() {
        let cases = [
            (0.0, "0"),
            (0.000_123_4, "0.000123"),
            (0.5, "0.5"),
            (1.0, "1"),
            (2.345, "2.35"),
            (46.04, "46"),
            (999.6, "1,000"),
            (123_456.7, "123,457"),
            (-1234.0, "-1,234"),
            (f64::NAN, "-"),
        ];
        for (value, text) in cases {
            assert_eq!(short(value), text);
        }
        assert_eq!(with_unit(3.5, "x"), "3.5×");
        assert_eq!(with_unit(12.0, "%"), "12 %");
        assert_eq!(with_unit(12.0, "ms"), "12 ms");
    }
}
