//! Text that an applet's file brings along, made fit to be shown: names of functions, modules and
//! imports.
//!
//! Invariants:
//! - Whatever a name is, showing it takes bounded time and memory: a few hundred bytes of a mangled
//!   name can stand for more text than there is memory.
//! - No control character reaches a terminal, and nothing that turns the direction of writing
//!   round.
#![forbid(unsafe_code)]

use std::fmt::{self, Write as _};

/// The longest name that is demangled, in bytes.
const MANGLED_BYTES_MAX: usize = 512;
/// The longest text that a demangled name may become, in bytes.
const DEMANGLED_BYTES_MAX: usize = 1024;
/// What is shown of any other name, in bytes.
const SHOWN_BYTES_MAX: usize = 256;
/// What is shown of a line of a message, in bytes: an error in the text format quotes its line,
/// which can be the whole program.
const LINE_BYTES_MAX: usize = 600;
/// Lines of a message.
const LINES_MAX: usize = 12;
/// Stands for what is left out.
const CUT: char = '…';

/// Takes text up to a bound; what would pass it is an error, so the writer stops there.
pub(crate) struct Bounded {
    text: String,
    bytes_max: usize,
}

impl Bounded {
    /// What `value` shows as, if that is not longer than `bytes_max`; else its beginning.
    pub(crate) fn show(value: impl fmt::Display, bytes_max: usize) -> Result<String, String> {
        let mut bounded = Bounded { text: String::new(), bytes_max };
        match write!(bounded, "{value:#}") {
            Ok(()) => Ok(bounded.text),
            Err(fmt::Error) => Err(bounded.text),
        }
    }
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        let room = self.bytes_max - self.text.len();
        let fits = piece.floor_char_boundary(room);
        self.text.push_str(&piece[..fits]);
        if fits == piece.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

/// The name of a function as the programmer wrote it, as far as its name shows it in the
/// file.
pub(crate) fn function(name: &str) -> String {
    let demangled = if name.len() <= MANGLED_BYTES_MAX { demangle(name) } else { None };
    match demangled {
        Some(text) => escaped(&text),
        None => shown(name),
    }
}

/// Any other name: its beginning, without control characters.
pub(crate) fn shown(name: &str) -> String {
    let cut = name.floor_char_boundary(SHOWN_BYTES_MAX);
    let mut text = escaped(&name[..cut]);
    if cut < name.len() {
        text.push(CUT);
    }
    text
}

/// The text, its control characters written as Rust would write them.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_control() || turns_text(character) {
            safe.extend(character.escape_default());
        } else {
            safe.push(character);
        }
    }
    safe
}

/// A message of several lines (the text format's errors show where they are), each made safe. Long
/// lines are cut, and there are not more than [`LINES_MAX`].
pub(crate) fn lines(text: &str) -> String {
    let line = |line: &str| {
        let cut = line.floor_char_boundary(LINE_BYTES_MAX);
        let mut safe = escaped(&line[..cut]);
        if cut < line.len() {
            safe.push(CUT);
        }
        safe
    };
    text.split('\n').take(LINES_MAX).map(line).collect::<Vec<_>>().join("\n")
}

/// Whether a character begins another line or changes in which order the others are shown.
fn turns_text(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}

fn demangle(name: &str) -> Option<String> {
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        return Bounded::show(rust, DEMANGLED_BYTES_MAX).ok();
    }
    // Without the prefix a name is C's own: `f` and `i` would be taken for the types float and int.
    if !name.starts_with("_Z") && !name.starts_with("__Z") {
        return None;
    }
    let symbol = cpp_demangle::Symbol::new(name).ok()?;
    let mut bounded = Bounded { text: String::new(), bytes_max: DEMANGLED_BYTES_MAX };
    symbol.structured_demangle(&mut bounded, &cpp_demangle::DemangleOptions::default()).ok()?;
    Some(bounded.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A C++ name that doubles (and more) with each step: each type has `width` times the one
    /// before.
    fn bomb(depth: usize, width: usize) -> String {
        let mut name = "_Z1f1aIiE".to_owned();
        for step in 0..depth {
            let back = 2 * step;
            let digit = char::from_digit(back as u32, 36).unwrap().to_ascii_uppercase();
            let class = char::from(b'b' + step as u8);
            name.push_str(&format!("1{class}I{}E", format!("S{digit}_").repeat(width)));
        }
        name
    }

    /// A short mangled name that would demangle to huge text is shown as it is.
    #[test]
    fn exponential_mangled_name_is_shown_raw() {
        for name in [bomb(6, 14), bomb(8, 10), bomb(16, 6)] {
            assert!(name.len() <= MANGLED_BYTES_MAX, "{}", name.len());
            let started = std::time::Instant::now();
            let text = function(&name);
            assert!(
                text.starts_with("_Z1f1aIiE1bI") && text.len() <= SHOWN_BYTES_MAX + CUT.len_utf8(),
                "{text}"
            );
            assert!(started.elapsed() < std::time::Duration::from_secs(10));
        }
        assert_eq!(function(&bomb(1, 2)), "f(a<int>, b<a<int>, a<int> >)");
    }

    /// Only names with a mangling prefix are demangled.
    #[test]
    fn only_prefixed_names_are_demangled() {
        for name in ["f", "i", "main", "Z1f", "_start", "v", "St6vectorIiE"] {
            assert_eq!(function(name), name);
        }
        assert_eq!(function("_ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(function("__ZN3foo3barEi"), "foo::bar(int)");
        assert_eq!(function("_ZN5hello5world17h0123456789abcdefE"), "hello::world");
        assert_eq!(function("_RNvC6_123foo3bar"), "123foo::bar");
    }

    /// Control characters in names are escaped, and long names are cut.
    #[test]
    fn names_are_escaped_and_cut() {
        assert_eq!(function("\x1b[31mX\x07\n"), "\\u{1b}[31mX\\u{7}\\n");
        assert_eq!(shown("a\u{202e}b\u{9b}c"), "a\\u{202e}b\\u{9b}c");
        assert_eq!(lines("a\x1b\nb\r\n"), "a\\u{1b}\nb\\r\n");
        assert_eq!(lines(&"x".repeat(7000)), format!("{}…", "x".repeat(LINE_BYTES_MAX)));
        assert_eq!(lines(&"\n".repeat(7000)), "\n".repeat(LINES_MAX - 1));
        assert_eq!(shown("naïve_größe"), "naïve_größe");
        let long = "ä".repeat(400);
        assert_eq!(shown(&long), format!("{}…", "ä".repeat(128)));
        assert_eq!(
            function(&format!("_Z{}x{}", 600, "y".repeat(599))).len(),
            SHOWN_BYTES_MAX + CUT.len_utf8()
        );
    }

    #[test]
    fn text_past_the_bound_ends_the_writing() {
        assert_eq!(Bounded::show("short", 5), Ok("short".to_owned()));
        assert_eq!(Bounded::show("äöü", 3), Err("ä".to_owned()));
    }
}
