//! Sizes as people write and read them: binary units, both ways.

use bytesize::ByteSize;
use holdfast_region::{LIMIT_BYTES_MAX, LIMIT_BYTES_MIN};
use holdfast_types::size;

/// Reads `64MiB`, `1.5 GiB`, `4096`. As in other tools of this field, `64M` means 64 MiB.
pub fn parse_size(text: &str) -> Result<u64, String> {
    size::parse(text).map_err(|error| error.to_string())
}

/// Reads how large a heap may get. A limit below the least was rounded up silently: it is refused.
pub fn parse_heap_limit(text: &str) -> Result<u64, String> {
    match parse_size(text)? {
        bytes @ LIMIT_BYTES_MIN..=LIMIT_BYTES_MAX => Ok(bytes),
        _ => Err(format!(
            "a heap may have {} to {}",
            in_words(LIMIT_BYTES_MIN),
            in_words(LIMIT_BYTES_MAX)
        )),
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
    fn heap_limits_out_of_range_are_refused() {
        for text in ["0", "10", "1023KiB", "1025GiB", "2TiB"] {
            let refused = parse_heap_limit(text).unwrap_err();
            assert!(refused.contains("1MiB to 1TiB"), "{text}: {refused}");
        }
        assert_eq!(parse_heap_limit("1MiB"), Ok(1 << 20));
        assert_eq!(parse_heap_limit("1TiB"), Ok(1 << 40));
    }
}
