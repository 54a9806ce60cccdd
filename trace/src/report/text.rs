//! Numbers and sentences as people read them.
//!
//! Invariant: what a name holds never moves the cursor or the layout of a terminal: [`plain`] takes
//! that out.

use holdfast_sys::terminal::steers;

/// Nanoseconds, in three digits and the unit that fits.
#[must_use]
pub fn time(ns: u64) -> String {
    let ns = ns as f64;
    let (value, unit) = match ns {
        ns if ns < 999.5 => return format!("{ns} ns"),
        ns if ns < 999_500.0 => (ns / 1e3, "us"),
        ns if ns < 999_500_000.0 => (ns / 1e6, "ms"),
        _ => (ns / 1e9, "s"),
    };
    let digits = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.digits$} {unit}")
}

/// A time that is not there as nothing.
#[must_use]
pub fn time_or_blank(ns: u64) -> String {
    if ns == 0 { "-".to_owned() } else { time(ns) }
}

/// A count, in groups of three digits.
#[must_use]
pub fn count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A count, none as nothing.
#[must_use]
pub fn count_or_blank(number: u64) -> String {
    if number == 0 { "-".to_owned() } else { count(number) }
}

/// How many there are of something for each of something else.
#[must_use]
pub fn mean(value: f64) -> String {
    if value < 999.95 { format!("{value:.1}") } else { count(value.round() as u64) }
}

/// A percentage, without its sign. A value that rounds to zero is distinguished from zero.
#[must_use]
pub fn percent(percent: f64) -> String {
    match percent {
        0.0 => "-".to_owned(),
        percent if percent.abs() < 0.005 => "<0.01".to_owned(),
        percent => format!("{percent:.2}"),
    }
}

/// How many percent of a whole a part is; none of nothing.
#[must_use]
pub fn percent_of(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part * 100.0 / whole } else { 0.0 }
}

/// How much more or less time, nothing as nothing.
#[must_use]
pub fn signed_time(ns: f64) -> String {
    match ns {
        ns if ns.abs() < 0.5 => "-".to_owned(),
        ns if ns < 0.0 => format!("-{}", time(-ns.round() as u64)),
        ns => format!("+{}", time(ns.round() as u64)),
    }
}

/// Bytes, in the unit that fits.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut units = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"].into_iter();
    if bytes < 1024 {
        return if bytes == 0 { "-".to_owned() } else { format!("{bytes} B") };
    }
    let mut unit = "B";
    while value >= 1023.5 {
        value /= 1024.0;
        unit = units.next().unwrap_or("EiB");
    }
    let digits = usize::from(value < 99.95);
    format!("{value:.digits$} {unit}")
}

/// Text of others for a terminal, a file of columns or a picture: characters that would steer a
/// terminal, or show what follows in another order, become `?`.
#[must_use]
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if steers(c) { '?' } else { c }).collect()
}

/// A command as it can be typed: arguments with other than plain characters in quotes.
#[must_use]
pub fn command(words: &[String]) -> String {
    let safe = |c: char| c.is_ascii_alphanumeric() || "_-./=:,+@%".contains(c);
    let word = |word: &String| {
        if !word.is_empty() && word.chars().all(safe) {
            word.clone()
        } else {
            format!("'{}'", plain(word).replace('\'', r"'\''"))
        }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

/// At most this many characters; what is cut off shows.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width.saturating_sub(1)).chain(['…']).collect()
}

/// A title above what it is of, in a line of its own.
#[must_use]
pub fn title(title: &str, width: usize, colour: bool) -> String {
    let title = cut(title, width);
    if colour { format!("\n\x1b[1;36m{title}\x1b[0m\n") } else { format!("\n{title}\n") }
}

/// A paragraph, broken between words.
#[must_use]
pub fn paragraph(words: &str, width: usize) -> String {
    let (mut out, mut filled) = (String::new(), 0);
    for word in plain(words).split_whitespace() {
        let word = cut(word, width);
        let length = word.chars().count();
        if filled > 0 && filled + 1 + length > width {
            out.push('\n');
            filled = 0;
        } else if filled > 0 {
            out.push(' ');
            filled += 1;
        }
        out += &word;
        filled += length;
    }
    out + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_keep_three_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (9_994, "9.99 us"),
            (9_996, "10.0 us"),
            (99_960, "100 us"),
            (999_499, "999 us"),
            (999_500, "1.00 ms"),
            (1_500_000_000, "1.50 s"),
            (213_000_000_000, "213 s"),
        ] {
            assert_eq!(time(ns), text);
        }
        assert_eq!(
            (count(0).as_str(), count(1_234_567).as_str(), count(123).as_str()),
            ("0", "1,234,567", "123")
        );
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(
            (bytes(0).as_str(), bytes(1023).as_str(), bytes(1 << 20).as_str()),
            ("-", "1023 B", "1.0 MiB")
        );
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
        assert_eq!(
            (percent(0.0).as_str(), percent(0.001).as_str(), percent(99.999).as_str()),
            ("-", "<0.01", "100.00")
        );
    }

    #[test]
    fn changes_and_parts_of_nothing_are_told() {
        let changes = [0.4, -0.4, 0.6, -0.6, 1_500.0, -1_500.0].map(signed_time);
        assert_eq!(changes, ["-", "-", "+1 ns", "-1 ns", "+1.50 us", "-1.50 us"]);
        assert_eq!((percent_of(1.0, 4.0), percent_of(0.0, 0.0)), (25.0, 0.0));
    }

    /// A mean is printed with a decimal place only while that digit carries information.
    #[test]
    fn means_have_a_decimal_place_below_1000() {
        assert_eq!(
            [0.04, 1.5, 999.94, 999.95, 12_345.6].map(mean),
            ["0.0", "1.5", "999.9", "1,000", "12,346"]
        );
    }

    #[test]
    fn paragraphs_break_between_words_and_titles_are_cut() {
        assert_eq!(paragraph(" one  two three ", 7), "one two\nthree\n");
        assert_eq!(paragraph("extraordinary a", 7), "extrao…\na\n");
        assert_eq!(paragraph("", 7), "\n");
        assert_eq!(title("extraordinary", 7, false), "\nextrao…\n");
        assert_eq!(title("one", 7, true), "\n\u{1b}[1;36mone\u{1b}[0m\n");
    }

    #[test]
    fn text_of_others_cannot_move_the_cursor() {
        assert_eq!(plain("a\u{1b}[2Jb\n\u{202e}"), "a?[2Jb??");
        assert_eq!(plain("a\u{200f}b\u{2028}\u{e0041}\u{e9}"), "a?b??\u{e9}");
        assert_eq!(
            command(&["sh".into(), "-c".into(), "it's\n".into(), String::new()]),
            r"sh -c 'it'\''s?' ''"
        );
        assert_eq!(cut("abcdef", 4), "abc…");
    }
}
