//! Which words about a failure on this machine a page gets, and which only the user.
//!
//! Invariants: no words for a page have a path of this machine or the number of a process, whatever an
//! error says of them; where they were left out, the user gets the whole words on standard error.
//! One origin's messages are bounded, so none hides those of the others.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use holdfast_sys::terminal::notice;

use crate::message::Kind;

/// So many messages about a page are shown, and about so many pages.
const MESSAGES_MAX: usize = 20;
const PAGES_MAX: usize = 100;
/// What stands before the number of a process.
const BEFORE_A_NUMBER: [&str; 2] = ["process", "pid"];

/// What the user was told about pages on standard error, where each message is shown once.
#[derive(Debug, Default)]
pub(crate) struct Notices(Mutex<HashMap<String, Vec<String>>>);

impl Notices {
    /// Tells the user something about a page, once.
    pub(crate) fn tell(&self, page: impl Display, words: &str) {
        if self.is_new(&page.to_string(), words) {
            notice(format_args!("holdfast: {words}"));
        }
    }

    fn is_new(&self, page: &str, words: &str) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.len() >= PAGES_MAX && !told.contains_key(page) {
            return false;
        }
        let of_page = told.entry(page.to_owned()).or_default();
        let is_new = of_page.len() < MESSAGES_MAX && !of_page.iter().any(|known| known == words);
        if is_new {
            of_page.push(words.to_owned());
        }
        is_new
    }

    /// As [`for_page`]; the user is told the whole where the page is not.
    pub(crate) fn for_page(
        &self,
        page: impl Display,
        kind: Kind,
        whole: &str,
        program: Option<&Path>,
    ) -> String {
        let words = for_page(kind, whole, program);
        if words != whole {
            self.tell(&page, &format!("a page of {page}: {whole}"));
        }
        words
    }
}

/// The words about a failure, or a note, that a page gets. `program` is the file of its applet.
pub(crate) fn for_page(kind: Kind, whole: &str, program: Option<&Path>) -> String {
    let named = match program.map(|program| program.display().to_string()) {
        Some(program) => whole.replace(&program, "the applet"),
        None => whole.to_owned(),
    };
    let words = without_numbers(&named);
    if has_path(&words) { instead(kind).to_owned() } else { words }
}

/// What a page is told in place of words with a path.
fn instead(kind: Kind) -> &'static str {
    match kind {
        Kind::Held => {
            "a heap is open elsewhere; close it there, or try again (the terminal of the server says where)"
        }
        Kind::NoRoom => {
            "this machine has no room for it; the terminal of the server says of what, and what to do"
        }
        Kind::Died => "the applet was stopped; the terminal of the server says why",
        Kind::NotAnApplet => {
            "the program is no applet that can be called here; the terminal of the server says why"
        }
        _ => "this machine could not do it; the terminal of the server says why",
    }
}

/// A text in which no process is named by its number.
fn without_numbers(text: &str) -> String {
    let mut named = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((at, word)) = next_word(rest) {
        let (before, behind) = (&rest[..at], &rest[at + word.len()..]);
        let number = behind.trim_start_matches([' ', ':', '=']);
        let is_number =
            number.len() < behind.len() && number.starts_with(|c: char| c.is_ascii_digit());
        named.push_str(before);
        named.push_str(if is_number { "another page or process" } else { word });
        rest = if is_number {
            number.trim_start_matches(|c: char| c.is_ascii_digit())
        } else {
            behind
        };
    }
    named.push_str(rest);
    named
}

/// Where the next word is that may stand before a number.
fn next_word(text: &str) -> Option<(usize, &'static str)> {
    BEFORE_A_NUMBER.iter().filter_map(|word| Some((text.find(word)?, *word))).min()
}

/// Whether a path is in a text: a slash that begins a word, or stands behind a `~`. The slashes of
/// an address are none.
fn has_path(text: &str) -> bool {
    let text = text.replace("://", "  ");
    let mut before = ' ';
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let begins = !before.is_alphanumeric() && !matches!(before, '/' | '.' | '_' | '-');
        let goes_on = letters.peek().is_some_and(|next| !next.is_whitespace());
        if letter == '/' && begins && goes_on {
            return true;
        }
        before = letter;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: serve/discretion
    #[test]
    fn page_learns_no_path_and_no_process() {
        let notices = Notices::default();
        let program = Path::new("/home/ada lovelace/.holdfast/applets/5e52");
        let said =
            |kind, whole: &str| notices.for_page("https://a.example", kind, whole, Some(program));
        assert_eq!(
            said(
                Kind::Held,
                "the heap \"a\" is held by process 15538; wait for it to end, or end it"
            ),
            "the heap \"a\" is held by another page or process; wait for it to end, or end it"
        );
        let note =
            format!("the layer is missing here (open {}: denied); chmod a+rx", program.display());
        assert_eq!(
            said(Kind::Other, &note),
            "the layer is missing here (open the applet: denied); chmod a+rx"
        );
        for path in [
            "cannot read /home/ada/x: denied",
            "'/x'",
            "in=/x",
            "(/x)",
            "~/x",
            "file:///x",
            "\"/a b\"",
        ] {
            assert_eq!(said(Kind::Other, path), instead(Kind::Other), "{path}");
        }
        for plain in [
            "4 MiB/s and/or 5 / 6",
            "the process ended",
            "pids: 5 of 7",
            "HOST/PATH",
            "use https://a.example/b",
        ] {
            assert_eq!(said(Kind::Other, plain), plain);
        }
    }

    /// Guarantee: serve/discretion
    #[test]
    fn user_is_told_once_and_no_page_hides_others() {
        let notices = Notices::default();
        assert!(notices.is_new("a", "x") && !notices.is_new("a", "x") && notices.is_new("b", "x"));
        let shown = (0..1000).filter(|at| notices.is_new("a", &at.to_string())).count();
        assert_eq!(shown, MESSAGES_MAX - 1);
        assert!(notices.is_new("b", "y"));
        let pages = (0..1000).filter(|at| notices.is_new(&format!("page {at}"), "x")).count();
        assert_eq!(pages, PAGES_MAX - 2);
    }
}
