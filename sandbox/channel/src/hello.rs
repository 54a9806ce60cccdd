//! The payload of `Hello`: the names of an applet's exports, each one byte of length and UTF-8.
//!
//! Invariant: a [`Names`] that exists was checked in full: the number of names is the one that was
//! announced, each is a [valid name](is_valid_name), no two are alike, and no byte is left over.

#![forbid(unsafe_code)]

use crate::header::Header;
use crate::protocol::{AppletMessage, PROTOCOL_VERSION};

/// The longest name.
pub const NAME_BYTES_MAX: usize = 64;
/// The most exports of an applet.
pub const EXPORTS_MAX: usize = 1024;
/// The longest payload.
pub const HELLO_BYTES_MAX: usize = EXPORTS_MAX * (1 + NAME_BYTES_MAX);

/// Whether an export may be called so: 1 to [`NAME_BYTES_MAX`] bytes, no control characters (names
/// are printed).
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.chars().any(char::is_control)
}

/// Names of exports, in the order of their numbers.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    payload: &'a [u8],
    count: usize,
}

impl<'a> Names<'a> {
    /// Reads and checks what an applet sent.
    ///
    /// # Errors
    /// What is wrong, as a part of a sentence about the applet.
    pub fn parse(header: &Header, payload: &'a [u8]) -> Result<Names<'a>, &'static str> {
        let Ok(AppletMessage::Hello { version, count }) = AppletMessage::parse(header) else {
            return Err("did not begin with its exports");
        };
        if version != PROTOCOL_VERSION {
            return Err(
                "speaks another version of the protocol; build it with this release's guest library",
            );
        }
        if count > EXPORTS_MAX as u64 || payload.len() > HELLO_BYTES_MAX {
            return Err("has too many exports");
        }
        let names = Names { payload, count: count as usize };
        let mut rest = payload;
        for index in 0..names.count {
            let (name, behind) = split(rest).ok_or("sent a list of exports that ends early")?;
            rest = behind;
            let name = str::from_utf8(name).map_err(|_| "has an export whose name is not UTF-8")?;
            if !is_valid_name(name) {
                return Err("has an export whose name is empty, too long, or not printable");
            }
            if names.iter().take(index).any(|earlier| earlier == name) {
                return Err("has two exports of the same name");
            }
        }
        if rest.is_empty() {
            Ok(names)
        } else {
            Err("sent a list of exports with something behind it")
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The names, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let mut rest = self.payload;
        core::iter::from_fn(move || {
            let (name, behind) = split(rest)?;
            rest = behind;
            str::from_utf8(name).ok()
        })
    }
}

fn split(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::MessageKind;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    fn hello(count: u64) -> Header {
        AppletMessage::Hello { version: PROTOCOL_VERSION, count }.into()
    }

    #[test]
    fn names_are_read_in_their_order() {
        let many: Vec<String> = (0..EXPORTS_MAX).map(|index| format!("{index:0>64}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        for names in [&[][..], &["a", "größe", "add two"], &many] {
            let mut payload = Vec::new();
            for name in names {
                payload.push(name.len() as u8);
                payload.extend(name.bytes());
            }
            let header = hello(names.len() as u64);
            let read = Names::parse(&header, &payload).unwrap();
            assert_eq!((read.len(), read.is_empty()), (names.len(), names.is_empty()));
            assert!(read.iter().eq(names.iter().copied()));
        }
    }

    #[test]
    fn a_list_that_is_not_in_order_is_refused() {
        let refused = |header: &Header, payload: &[u8]| Names::parse(header, payload).unwrap_err();
        assert!(refused(&hello(1), b"").contains("ends early"));
        assert!(refused(&hello(1), b"\x05abc").contains("ends early"));
        assert!(refused(&hello(u64::MAX), b"").contains("too many"));
        assert!(refused(&hello(0), &[0; HELLO_BYTES_MAX + 1]).contains("too many"));
        assert!(refused(&hello(1), b"\x01\xff").contains("UTF-8"));
        assert!(refused(&hello(1), b"\x00").contains("empty"));
        assert!(refused(&hello(1), b"\x01\x1b").contains("printable"));
        assert!(refused(&hello(2), b"\x01a\x01a").contains("same name"));
        assert!(refused(&hello(1), b"\x01a\x01b").contains("behind"));
        assert!(refused(&Header::new(MessageKind::Result), b"").contains("begin"));
        let newer = AppletMessage::Hello { version: 2, count: 0 }.into();
        assert!(refused(&newer, b"").contains("version"));
    }
}
