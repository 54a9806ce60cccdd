//! What a page says, as it is shown on a terminal: whoever wrote the page chose it.
//!
//! Invariant: no text of a page or an entry is printed but through here, so that none steers the terminal. JSON has it as it is.

/// A text without what would steer the terminal, or show in another order than it has.
pub(crate) fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            _ if c.is_control() => out.extend(c.escape_debug()),
            // Marks, overrides and isolates of direction, separators of lines, and what nobody sees.
            '\u{61C}'
            | '\u{200B}'
            | '\u{200E}'
            | '\u{200F}'
            | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{FEFF}'
            | '\u{E0000}'..='\u{E007F}' => out.extend(c.escape_unicode()),
            _ => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::shown;

    #[test]
    fn what_would_steer_a_terminal_is_escaped_and_ordinary_unicode_stays() {
        assert_eq!(shown("\u{1b}]0;x\u{7}\n\u{9b}2J\u{202E}"), "\\u{1b}]0;x\\u{7}\\n\\u{9b}2J\\u{202e}");
        for text in ["A page", "a \"b\" 'c' \\", "Gästebuch", "日本語", "دفتر", "👩\u{200D}🚀"] {
            assert_eq!(shown(text), text);
        }
    }
}
