//! The report: lines for people and editors (`FILE:LINE:COLUMN: word -> suggestion`), or one JSON
//! document.

use std::fmt::Write;

use crate::checker::Checker;
use crate::options::ReportFormat;

/// Everything that a report says.
pub struct Report<'a> {
    /// Names of the texts.
    pub files: &'a [String],
    /// What was found in them.
    pub checker: &'a Checker,
    /// For each different unknown word.
    pub suggestions: &'a [Option<String>],
    /// Names of the dictionaries.
    pub dictionaries: &'a [String],
}

impl Report<'_> {
    /// The report's text.
    pub fn render(&self, format: ReportFormat) -> String {
        match format {
            ReportFormat::Text => self.lines(),
            ReportFormat::Json => self.json(),
        }
    }

    fn lines(&self) -> String {
        let mut out = String::with_capacity(self.checker.findings().len() * 64);
        for finding in self.checker.findings() {
            let form = &self.checker.forms()[finding.form];
            out.push_str(&self.files[finding.file]);
            out.push(':');
            push_number(&mut out, finding.line);
            out.push(':');
            push_number(&mut out, finding.column);
            out.push_str(": ");
            out.push_str(&form.word);
            if let Some(suggestion) = &self.suggestions[form.unknown] {
                out.push_str(" -> ");
                out.push_str(suggestion);
            }
            out.push('\n');
        }
        out
    }

    fn json(&self) -> String {
        let mut out = String::from("{\"unknown\":[");
        for (index, finding) in self.checker.findings().iter().enumerate() {
            let form = &self.checker.forms()[finding.form];
            out.push_str(if index == 0 { "\n" } else { ",\n" });
            out.push_str("{\"file\":");
            push_json(&mut out, &self.files[finding.file]);
            // Writing to a string does not fail.
            let _ =
                write!(out, ",\"line\":{},\"column\":{},\"word\":", finding.line, finding.column);
            push_json(&mut out, &form.word);
            out.push_str(",\"suggestion\":");
            match &self.suggestions[form.unknown] {
                Some(suggestion) => push_json(&mut out, suggestion),
                None => out.push_str("null"),
            }
            out.push('}');
        }
        let _ = write!(
            out,
            "],\n\"words\":{},\"unknown_words\":{},\"dictionaries\":[",
            self.checker.words(),
            self.checker.findings().len()
        );
        for (index, dictionary) in self.dictionaries.iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            push_json(&mut out, dictionary);
        }
        out.push_str("]}\n");
        out
    }

    /// The line for standard error.
    pub fn summary(&self) -> String {
        let count = |number: u64, one: &str, more: &str| {
            let mut text = number.to_string();
            text.push_str(if number == 1 { one } else { more });
            text
        };
        let mut line = count(self.checker.words(), " word, ", " words, ");
        line.push_str(&self.checker.findings().len().to_string());
        line.push_str(" unknown, ");
        line.push_str(&count(self.dictionaries.len() as u64, " dictionary", " dictionaries"));
        let limit = crate::suggest::SUGGESTIONS_MAX;
        if self.checker.unknown().len() > limit {
            let _ =
                write!(line, " (suggestions only for the first {limit} different unknown words)");
        }
        line.push('\n');
        line
    }
}

/// Without a formatter, which takes longer than all else of a line.
fn push_number(out: &mut String, number: u32) {
    let mut digits = [0; 10];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend(digits[at..].iter().map(|digit| char::from(*digit)));
}

fn push_json(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            control if control < ' ' => {
                let _ = write!(out, "\\u{:04x}", control as u32);
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_as_a_formatter_writes_them() {
        for number in [0, 7, 10, 99, 100, 12_345, u32::MAX] {
            let mut out = String::new();
            push_number(&mut out, number);
            assert_eq!(out, number.to_string());
        }
    }

    #[test]
    fn strings_are_escaped_for_json() {
        let mut out = String::new();
        push_json(&mut out, "a\"b\\c\nü");
        assert_eq!(out, r#""a\"b\\c\u000aü""#);
    }
}
