//! Sizes in environment variables, in the same notation as the command line's.

use bytesize::ByteSize;

/// A text that is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is no size; write a number and a unit: 64MiB, 512KiB, 1GiB")]
pub struct SizeError {
    /// The text.
    pub text: String,
}

/// Reads `64MiB`, `1.5 GiB`, `4096`; `64M` means 64 MiB.
///
/// # Errors
/// [`SizeError`].
pub fn parse_size(text: &str) -> Result<u64, SizeError> {
    let trimmed = text.trim();
    let has_short_unit = trimmed.ends_with(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T']);
    let size = if has_short_unit { format!("{trimmed}iB").parse() } else { trimmed.parse() };
    let size: Result<ByteSize, _> = size;
    size.map(|size| size.as_u64()).map_err(|_| SizeError { text: text.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary_and_nonsense_is_named() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size(" 64M "), Ok(64 << 20));
        assert_eq!(parse_size("4096"), Ok(4096));
        for text in ["", "M", "-1", "many"] {
            assert!(parse_size(text).is_err_and(|error| error.to_string().contains("64MiB")));
        }
    }
}
