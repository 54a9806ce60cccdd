//! Names of roots, as they come out of a heap: whoever made it chose them.
//!
//! Invariant: JSON has a name as it is stored, text never has what would steer the terminal: as names are of this type,
//! no command can forget that.

use std::fmt::{self, Write};

use serde::Serialize;

/// The name of a root.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct RootName(String);

impl From<&str> for RootName {
    fn from(name: &str) -> RootName {
        RootName(name.to_owned())
    }
}

impl fmt::Display for RootName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                _ if c.is_control() => write!(f, "{}", c.escape_debug())?,
                // Marks, overrides and isolates of direction, separators of lines, and what nobody sees.
                '\u{61C}'
                | '\u{200B}'
                | '\u{200E}'
                | '\u{200F}'
                | '\u{2028}'..='\u{202E}'
                | '\u{2060}'..='\u{206F}'
                | '\u{FEFF}'
                | '\u{E0000}'..='\u{E007F}' => write!(f, "{}", c.escape_unicode())?,
                _ => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::RootName;

    fn shown(name: &str) -> String {
        RootName::from(name).to_string()
    }

    #[test]
    fn what_would_steer_a_terminal_is_escaped_and_ordinary_unicode_stays() {
        for c in ('\0'..='\u{9F}').filter(|c| c.is_control()).chain(['\u{202E}', '\u{2066}', '\u{2028}']) {
            let shown = shown(&format!("a{c}b"));
            assert!(shown.starts_with("a\\") && shown.ends_with('b'), "{shown:?}");
            assert!(!shown.contains(c), "{shown:?}");
        }
        assert_eq!(shown("\u{1b}]0;gone\u{7}\n\u{9b}2J"), "\\u{1b}]0;gone\\u{7}\\n\\u{9b}2J");
        for name in ["guestbook", "a \"b\" 'c' \\", "Gästebuch", "日本語", "دفتر", "👩\u{200D}🚀", "e\u{301}"]
        {
            assert_eq!(shown(name), name);
        }
    }

    #[test]
    fn json_has_a_name_as_it_is_stored() {
        for name in ["\u{1b}[2J\n", "\u{202E}a", "Gästebuch", "\u{9b}"] {
            let json = serde_json::to_string(&RootName::from(name)).unwrap_or_default();
            assert_eq!(serde_json::from_str::<String>(&json).ok().as_deref(), Some(name), "{json}");
        }
    }
}
