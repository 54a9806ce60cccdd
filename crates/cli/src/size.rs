//! Sizes as people write and read them: binary units, both ways.

use bytesize::ByteSize;

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
    Ok(size.as_u64())
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
}
