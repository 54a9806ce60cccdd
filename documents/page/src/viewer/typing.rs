//! Text that is typed into the line below the page: what is looked for, or an address.

use super::input::{Key, Modifiers};
use super::{LineInput, LineInputKind, Viewer};
use crate::Address;

/// Characters of a line.
const TEXT_MAX: usize = 4_000;

impl Viewer {
    pub(super) fn begin_find(&mut self) {
        let text = self.finding.as_ref().map(|finding| finding.text.clone()).unwrap_or_default();
        self.typing = Some(LineInput { what: LineInputKind::Find, text });
    }

    pub(super) fn begin_address(&mut self) {
        self.typing = Some(LineInput { what: LineInputKind::Address, text: String::new() });
    }

    /// Takes a key into the line; false, if it is none for it.
    pub(super) fn typed(&mut self, key: Key, held: Modifiers, text: &str) -> bool {
        let Some(typing) = &mut self.typing else { return false };
        let what = typing.what;
        match (key, held.ctrl) {
            (Key::Escape, _) => {
                self.typing = None;
                self.finding = None;
            }
            (Key::Enter, _) => match what {
                LineInputKind::Find => {
                    let text = typing.text.clone();
                    // The line stays: Enter again leads to the next one.
                    if self.finding.as_ref().is_some_and(|finding| finding.text == text) {
                        self.find_step(if held.shift { -1 } else { 1 });
                    } else {
                        self.find(text);
                    }
                }
                LineInputKind::Address => {
                    let text = std::mem::take(&mut typing.text);
                    self.typing = None;
                    self.go_to_typed(text.trim());
                }
            },
            (Key::Backspace, false) => {
                typing.text.pop();
                self.changed(what);
            }
            (Key::Char('u'), true) => {
                typing.text.clear();
                self.changed(what);
            }
            (Key::Function(3), _) | (Key::Char('g'), true) if what == LineInputKind::Find => {
                self.find_step(if held.shift { -1 } else { 1 });
            }
            (Key::Char(_), false) if !held.alt => {
                let room = TEXT_MAX.saturating_sub(typing.text.chars().count());
                typing.text.extend(text.chars().filter(|one| !one.is_control()).take(room));
                self.changed(what);
            }
            // To scroll, to quit, to look for something else.
            _ => return false,
        }
        true
    }

    /// What is looked for is found while it is typed.
    fn changed(&mut self, what: LineInputKind) {
        if what == LineInputKind::Find
            && let Some(typing) = &self.typing
        {
            let text = typing.text.clone();
            self.find(text);
        }
    }

    fn go_to_typed(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        match Address::parse(text) {
            Ok(address) => self.go(address),
            Err(error) => self.said = Some(error.to_string()),
        }
    }
}
