//! Functions of the host that it lets this program call.
//!
//! Invariant: while one runs, the thread that called it waits, and other threads that need the host
//! wait for it.

use core::fmt;

use crate::buffer::Buffer;
use crate::platform;
use holdfast_channel::protocol::MESSAGE_BYTES_MAX;
use holdfast_types::RequestStatus;

/// A function of the host, found by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFunction(u32);

/// Bytes of a host's words that are kept.
const WORDS_BYTES_MAX: usize = 96;

/// Why a host function has no result.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum HostCallError {
    /// There is no host.
    NoHost,
    /// The host does not let this program call a function of this name.
    NotGranted,
    /// Input or result are longer than the function's limits, or than 64 MiB.
    TooLarge {
        /// The host's words.
        words: Words,
    },
    /// This program has no memory for the result.
    NoMemory,
    /// The function failed; the code is its own, and never 0.
    Failed {
        /// The code.
        code: i32,
        /// The function's words.
        words: Words,
    },
    /// The function panicked, did not return in time, or lies too deep within others.
    NotRun {
        /// The host's words.
        words: Words,
    },
    /// The host cannot be reached; the code of the way to it.
    Host(i32),
}

/// The first 96 bytes of what a host says about a failure; [`HostFunction::call_into`] keeps all.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Words {
    bytes: [u8; WORDS_BYTES_MAX],
    len: usize,
}

impl Words {
    fn new(bytes: &[u8]) -> Words {
        let text = core::str::from_utf8(bytes).unwrap_or_default();
        let text = &text[..text.floor_char_boundary(WORDS_BYTES_MAX)];
        let mut kept = [0; WORDS_BYTES_MAX];
        kept[..text.len()].copy_from_slice(text.as_bytes());
        Words { bytes: kept, len: text.len() }
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // What is kept was text, and cut at a boundary.
        core::str::from_utf8(&self.bytes[..self.len]).unwrap_or_default()
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for HostCallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoHost => f.write_str(
                "there is no host, whose functions these are; start the program with `holdfast` or as an applet",
            ),
            Self::NotGranted => f.write_str(
                "the host lets this program call no function of this name; in Rust it grants one with Grants::function",
            ),
            Self::TooLarge { words } => write!(f, "{words}; pass less, or in several calls"),
            Self::NoMemory => {
                f.write_str("the applet has no memory left for the result; raise its memory limit")
            }
            Self::Failed { code, words } => {
                write!(f, "the host function failed with code {code}: {words}")
            }
            Self::NotRun { words } => words.fmt(f),
            Self::Host(code) => {
                write!(f, "the host cannot be reached (code {code}); start the applet anew")
            }
        }
    }
}

impl core::error::Error for HostCallError {}

holdfast_heap::show_as_text!(HostCallError);
holdfast_heap::show_as_text!(Words);

impl HostFunction {
    /// The function of this name, if the host lets this program call it.
    ///
    /// # Errors
    /// `NoHost`, `NotGranted`, `Host`.
    pub fn import(name: &str) -> Result<HostFunction, HostCallError> {
        platform::host_import(name).map(HostFunction)
    }

    /// The function of a number that [`HostFunction::number`] gave.
    #[must_use]
    pub fn from_number(number: u32) -> HostFunction {
        HostFunction(number)
    }

    /// Its number, which stays the same while the program runs.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// Calls it with bytes and returns its result.
    ///
    /// # Errors
    /// [`HostCallError`]; only after `Host` no later call can succeed.
    pub fn call(self, input: &[u8]) -> Result<HostResult, HostCallError> {
        let mut result = HostResult::empty();
        self.call_into(input, &mut result)?;
        Ok(result)
    }

    /// As [`HostFunction::call`], into a result whose memory is used again. After an error it holds
    /// all of the host's words.
    ///
    /// # Errors
    /// As there.
    pub fn call_into(self, input: &[u8], result: &mut HostResult) -> Result<(), HostCallError> {
        let payload = &mut result.0;
        payload.clear();
        if input.len() as u64 > MESSAGE_BYTES_MAX {
            let words = Words::new(b"a host function takes 64 MiB at most");
            return Err(HostCallError::TooLarge { words });
        }
        let (status, code) = platform::host_call(self.0, input, payload)?;
        let words = || Words::new(payload.as_slice());
        match status {
            RequestStatus::Ok if code == 0 => Ok(()),
            RequestStatus::Ok => Err(HostCallError::Failed { code, words: words() }),
            RequestStatus::NotGranted => Err(HostCallError::NotGranted),
            RequestStatus::TooLarge => Err(HostCallError::TooLarge { words: words() }),
            RequestStatus::NoRoom => Err(HostCallError::NoMemory),
            _ => Err(HostCallError::NotRun { words: words() }),
        }
    }
}

/// What a host function returned, in memory of the library's own.
#[derive(Debug)]
pub struct HostResult(Buffer<u8>);

/// A [`HostResult`] for code in C: the memory, its used bytes, its size.
pub type HostResultParts = (*mut u8, usize, usize);

impl HostResult {
    /// Nothing.
    #[must_use]
    pub fn empty() -> HostResult {
        HostResult(Buffer::new())
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// Hands its memory out, until [`HostResult::from_parts`].
    #[must_use]
    pub fn into_parts(self) -> HostResultParts {
        self.0.into_parts()
    }

    /// The result of these parts.
    ///
    /// # Safety
    /// They are from [`HostResult::into_parts`], and used once; or the pointer is null.
    #[must_use]
    pub unsafe fn from_parts(parts: HostResultParts) -> HostResult {
        // SAFETY: per the contract.
        HostResult(unsafe { Buffer::from_parts(parts) })
    }
}
