//! What people are told on standard error, and text of others there: whoever wrote it must not steer the terminal of whoever reads it.

#![forbid(unsafe_code)]

use std::fmt::{self, Display, Formatter, Write};
use std::io::{self, Write as _};

/// Tells the person something on standard error, in one piece. Where that cannot be written there is nobody to tell, and no reason
/// to end, as `eprintln!` would.
pub fn notice(text: impl Display) {
    let _ = io::stderr().write_all(format!("{text}\n").as_bytes());
}

/// Whether a character steers a terminal or a line of text, or shows what follows in another order than it has: controls, marks,
/// overrides and isolates of direction, separators of lines, and what nobody sees.
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

/// A text without what would steer a terminal, or show it in another order than it has: that is escaped.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_steer_a_terminal_is_escaped_and_ordinary_unicode_stays() {
        for c in ('\0'..='\u{9F}').filter(|c| c.is_control()).chain(['\u{202E}', '\u{2066}', '\u{2028}']) {
            let shown = Shown(&format!("a{c}b")).to_string();
            assert!(shown.starts_with("a\\") && shown.ends_with('b'), "{shown:?}");
            assert!(!shown.contains(c), "{shown:?}");
        }
        assert_eq!(Shown("\u{1b}]0;gone\u{7}\n\u{9b}2J").to_string(), "\\u{1b}]0;gone\\u{7}\\n\\u{9b}2J");
        for name in ["guestbook", "a \"b\" 'c' \\", "Gästebuch", "日本語", "دفتر", "👩\u{200D}🚀", "e\u{301}"]
        {
            assert_eq!(Shown(name).to_string(), name);
        }
    }
}
