//! Sizes as people write and read them: binary units, both ways.

use bytesize::ByteSize;
use holdfast_region::{LIMIT_BYTES_MAX, LIMIT_BYTES_MIN};

/// Above this a size with a unit was cut off silently, or lost its last digits.
const SIZE_BYTES_END: u64 = 1 << 62;

/// Reads `64MiB`, `1.5 GiB`, `4096`. As in other tools of this field, `64M` means 64 MiB.
pub fn parse_size(text: &str) -> Result<u64, String> {
    let wrong = || format!("{text:?} is no size; write a number and a unit: 64MiB, 512KiB, 1GiB");
    let trimmed = text.trim();
    let size: ByteSize = match trimmed.chars().last() {
        Some('k' | 'K' | 'm' | 'M' | 'g' | 'G' | 't' | 'T') => {
            format!("{trimmed}iB").parse().map_err(|_| wrong())?
        }
        _ => trimmed.parse().map_err(|_| wrong())?,
    };
    match size.as_u64() {
        0 if trimmed.contains(|c| ('1'..='9').contains(&c)) => Err(format!("{text:?} is less than a byte")),
        bytes if bytes >= SIZE_BYTES_END => Err(format!("{text:?} is more than any file or memory has")),
        bytes => Ok(bytes),
    }
}

/// Reads how large a heap may get. A limit below the least was rounded up silently: it is refused.
pub fn parse_heap_limit(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes @ LIMIT_BYTES_MIN..=LIMIT_BYTES_MAX => Ok(bytes),
        _ => Err(format!("a heap may have {} to {}", in_words(LIMIT_BYTES_MIN), in_words(LIMIT_BYTES_MAX))),
    }
}

/// A size as it would be typed.
fn in_words(bytes: u64) -> String {
    let unit = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.trailing_zeros() / 10).min(4);
    format!("{}{}", bytes >> (10 * power), unit[power as usize])
}

/// Writes a size with one decimal: `4.0 MiB`.
pub fn show_size(bytes: u64) -> String {
    ByteSize::b(bytes).display().iec().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        assert_eq!(parse_size("64MiB"), Ok(64 << 20));
        assert_eq!(parse_size("64M"), Ok(64 << 20));
        assert_eq!(parse_size("1GiB"), Ok(1 << 30));
        assert_eq!(parse_size("4096"), Ok(4096));
        assert_eq!(show_size(4 << 20), "4.0 MiB");
        for text in ["", "MiB", "-1", "many"] {
            assert!(parse_size(text).unwrap_err().contains("64MiB"));
        }
    }

    #[test]
    fn sizes_that_no_number_holds_are_refused() {
        for text in ["99999999TiB", "18446744073709551615", "1e300GiB", "0.0001B", "5EiB"] {
            assert!(parse_size(text).is_err(), "{text}: {:?}", parse_size(text));
        }
        assert_eq!(parse_size("0"), Ok(0));
        assert_eq!(parse_size("0.5KiB"), Ok(512));
    }

    #[test]
    fn heap_limits_out_of_range_are_refused() {
        for text in ["0", "10", "1023KiB", "1025GiB", "2TiB"] {
            let refused = parse_heap_limit(text).unwrap_err();
            assert!(refused.contains("1MiB to 1TiB"), "{text}: {refused}");
        }
        assert_eq!(parse_heap_limit("1MiB"), Ok(1 << 20));
        assert_eq!(parse_heap_limit("1TiB"), Ok(1 << 40));
    }
}
