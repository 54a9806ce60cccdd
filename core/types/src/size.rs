//! Sizes as people write them in options and environment variables: binary units.

use core::fmt;

use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::String;

use bytesize::ByteSize;

/// A larger size is more than any file or memory has.
const SIZE_BYTES_END: u64 = 1 << 62;

/// A text that is no size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SizeError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: InvalidSize,
}

/// What is wrong with a size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidSize {
    /// It is not a number with a unit.
    Malformed,
    /// It is more than nothing and less than a byte.
    BelowOne,
    /// No file or memory has so much.
    TooLarge,
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            InvalidSize::Malformed => "write a number and a unit: 64MiB, 512KiB, 1GiB",
            InvalidSize::BelowOne => "less than a byte",
            InvalidSize::TooLarge => "more than any file or memory has",
        };
        write!(f, "invalid size {:?}: {reason}", self.text)
    }
}

impl core::error::Error for SizeError {}

/// Reads `64MiB`, `1.5 GiB`, `4096`, in bytes. As in other tools of this field, `64M` means 64 MiB.
///
/// # Errors
/// [`SizeError`].
pub fn parse(text: &str) -> Result<u64, SizeError> {
    let invalid = |reason| SizeError { text: text.to_owned(), reason };
    let trimmed = text.trim();
    let has_short_unit = trimmed.ends_with(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T']);
    let size = if has_short_unit { format!("{trimmed}iB").parse() } else { trimmed.parse() };
    let size: ByteSize = size.map_err(|_| invalid(InvalidSize::Malformed))?;
    match size.as_u64() {
        0 if trimmed.contains(|c| ('1'..='9').contains(&c)) => Err(invalid(InvalidSize::BelowOne)),
        // A size with a unit beyond this was cut off silently, or lost its last digits.
        bytes if bytes >= SIZE_BYTES_END => Err(invalid(InvalidSize::TooLarge)),
        bytes => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [
            ("64MiB", 64 << 20),
            (" 64M ", 64 << 20),
            ("1GiB", 1 << 30),
            ("4096", 4096),
            ("0", 0),
            ("0.5KiB", 512),
        ] {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "M", "MiB", "-1", "many"] {
            assert_eq!(parse(text).unwrap_err().reason, InvalidSize::Malformed, "{text}");
        }
        assert_eq!(parse("0.0001B").unwrap_err().reason, InvalidSize::BelowOne);
        assert!(parse("many").unwrap_err().to_string().contains("64MiB"));
        for text in ["99999999TiB", "18446744073709551615", "1e300GiB", "5EiB"] {
            assert!(parse(text).is_err(), "{text}: {:?}", parse(text));
        }
    }
}
