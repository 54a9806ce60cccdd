//! The failure of an exported function: a code of its own choice and a text, both for the host.

use core::fmt::{self, Display, Write};

use crate::buffer::Buffer;

/// What an exported function returns when it has no result. Any error becomes one by `?`, with the
/// code 1 and the error's text.
///
/// It is no [`Error`](core::error::Error) itself, because only the host gets to see it.
#[derive(Debug)]
pub struct Failure {
    code: i32,
    text: Buffer<u8>,
}

impl Failure {
    /// A failure with a code above 0 (anything else counts as 1) and a text that says what to do.
    /// Without memory for the text, it is cut off.
    #[must_use]
    pub fn new(code: i32, text: impl Display) -> Failure {
        let mut failure = Failure::from_code(code);
        // What fits is better than nothing.
        let _ = write!(failure.text, "{text}");
        failure
    }

    /// A failure with a code above 0 (anything else counts as 1), whose text is the one that
    /// [`Call::fail`](crate::Call::fail) was given last, or empty.
    #[must_use]
    pub const fn from_code(code: i32) -> Failure {
        Failure { code: if code > 0 { code } else { 1 }, text: Buffer::new() }
    }

    /// Its code.
    #[must_use]
    pub fn code(&self) -> i32 {
        self.code
    }

    /// Its text as it was stored: what did not fit may have cut a character.
    pub(crate) fn text_bytes(&self) -> &[u8] {
        self.text.as_slice()
    }

    /// Its text.
    #[must_use]
    pub fn text(&self) -> &str {
        core::str::from_utf8(self.text.as_slice()).unwrap_or("")
    }
}

impl<E: core::error::Error> From<E> for Failure {
    fn from(error: E) -> Failure {
        Failure::new(1, error)
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (code {})", self.text(), self.code)
    }
}
