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
            let file = &self.files[finding.file];
            // Writing to a string does not fail.
            let _ = write!(out, "{file}:{}:{}: {}", finding.line, finding.column, finding.word);
            if let Some(suggestion) = &self.suggestions[finding.unknown] {
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
            out.push_str(if index == 0 { "\n" } else { ",\n" });
            out.push_str("{\"file\":");
            push_json(&mut out, &self.files[finding.file]);
            let _ =
                write!(out, ",\"line\":{},\"column\":{},\"word\":", finding.line, finding.column);
            push_json(&mut out, &finding.word);
            out.push_str(",\"suggestion\":");
            match &self.suggestions[finding.unknown] {
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
    fn strings_are_escaped_for_json() {
        let mut out = String::new();
        push_json(&mut out, "a\"b\\c\nü");
        assert_eq!(out, r#""a\"b\\c\u000aü""#);
    }
}
