//! Messages on standard error, and untrusted text in them: its author must not steer the terminal
//! of its reader.

#![forbid(unsafe_code)]

use std::fmt::{self, Display, Formatter, Write};
use std::io::{self, Write as _};

/// Tells the person something on standard error, in one piece. Where that cannot be written there
/// is no reader, and no reason to end, as `eprintln!` would. Whatever is in the text (names of
/// files, words of applets) steers no terminal, and no line of it but the first begins where this
/// program's messages do.
pub fn notice(text: impl Display) {
    let text = format!("{text}");
    let _ = io::stderr().write_all(format!("{}\n", ShownMessage(&text)).as_bytes());
}

/// Whether a character steers a terminal or a line of text, or shows what follows in another order
/// than it has: controls, marks, overrides and isolates of direction, separators of lines, and what
/// is invisible.
#[must_use]
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{61C}'
                | '\u{200B}'
                | '\u{200E}'
                | '\u{200F}'
                | '\u{2028}'..='\u{202E}'
                | '\u{2060}'..='\u{206F}'
                | '\u{FEFF}'
                | '\u{E0000}'..='\u{E007F}'
        )
}

/// A text without what would steer a terminal, or show it in another order than it has: that is
/// escaped.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'t>(pub &'t str);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                _ if c.is_control() => write!(f, "{}", c.escape_debug())?,
                _ if steers(c) => write!(f, "{}", c.escape_unicode())?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// As [`Shown`], in several lines with columns: ends of lines and tabs stay.
#[derive(Debug, Clone, Copy)]
pub struct ShownLines<'t>(pub &'t str);

impl Display for ShownLines<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for line in self.0.split_inclusive(['\n', '\t']) {
            match line.as_bytes().last() {
                Some(b'\n' | b'\t') => {
                    let (text, end) = line.split_at(line.len() - 1);
                    write!(f, "{}{end}", Shown(text))?;
                }
                _ => Shown(line).fmt(f)?,
            }
        }
        Ok(())
    }
}

/// As [`ShownLines`], with all lines but the first indented: a text of others that has ends of
/// lines makes no message of its own.
#[derive(Debug, Clone, Copy)]
pub struct ShownMessage<'t>(pub &'t str);

impl Display for ShownMessage<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (index, line) in self.0.trim_end_matches('\n').split('\n').enumerate() {
            let gap = if index == 0 { "" } else { "\n  " };
            write!(f, "{gap}{}", ShownLines(line))?;
        }
        Ok(())
    }
}

/// JSON with the same meaning that steers no terminal. What JSON has escaped already stays; text
/// outside of strings has nothing that would be changed.
#[derive(Debug, Clone, Copy)]
pub struct ShownJson<'t>(pub &'t str);

impl Display for ShownJson<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            // Below U+0020 there are only the ends of lines and the spaces between values.
            if c >= '\u{7F}' && steers(c) {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(f, "\\u{unit:04x}")?;
                }
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What would steer a terminal is escaped and ordinary unicode stays.
    ///
    /// Guarantee: heap/hostile-content
    /// Guarantee: pages/terminal
    #[test]
    fn control_characters_are_escaped_and_unicode_stays() {
        for c in
            ('\0'..='\u{9F}').filter(|c| c.is_control()).chain(['\u{202E}', '\u{2066}', '\u{2028}'])
        {
            let shown = Shown(&format!("a{c}b")).to_string();
            assert!(shown.starts_with("a\\") && shown.ends_with('b'), "{shown:?}");
            assert!(!shown.contains(c), "{shown:?}");
        }
        assert_eq!(
            Shown("\u{1b}]0;gone\u{7}\n\u{9b}2J").to_string(),
            "\\u{1b}]0;gone\\u{7}\\n\\u{9b}2J"
        );
        for name in [
            "guestbook",
            "a \"b\" 'c' \\",
            "Gästebuch",
            "日本語",
            "دفتر",
            "👩\u{200D}🚀",
            "e\u{301}",
        ] {
            assert_eq!(Shown(name).to_string(), name);
        }
    }

    /// Guarantee: sandbox/terminal
    #[test]
    fn lines_and_columns_stay_and_nothing_else_steers() {
        assert_eq!(ShownLines("a\tb\n\u{1b}[2Jc\r\n").to_string(), "a\tb\n\\u{1b}[2Jc\\r\n");
        assert_eq!(ShownLines("\n\n").to_string(), "\n\n");
        // A name with an end of a line makes no message that begins as ours do.
        let forged = "cannot open x\nholdfast: all is well\u{1b}[0m\n";
        let shown = ShownMessage(forged).to_string();
        assert_eq!(shown, "cannot open x\n  holdfast: all is well\\u{1b}[0m");
    }

    /// Guarantee: sandbox/terminal
    #[test]
    fn json_keeps_its_meaning() {
        let text = "{\n  \"a\u{9b}\u{7f}\u{202e}\u{E0001}ä\": \"\\u001b\"\n}";
        let shown = ShownJson(text).to_string();
        assert_eq!(shown, "{\n  \"a\\u009b\\u007f\\u202e\\udb40\\udc01ä\": \"\\u001b\"\n}");
    }
}
