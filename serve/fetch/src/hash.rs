//! The SHA-256 of an applet's bytes: its name in the cache, and the pin of an address.

use std::fmt;
use std::str::FromStr;

/// SHA-256 of an applet's bytes. Its text is 64 hexadecimal digits, in lower case.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AppletHash([u8; 32]);

impl AppletHash {
    /// The hash with these bytes.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> AppletHash {
        AppletHash(bytes)
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }
}

impl fmt::Display for AppletHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for AppletHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "AppletHash({self})")
    }
}

/// The text is not 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a SHA-256 has 64 hexadecimal digits; `sha256sum FILE` prints one")]
pub struct NotAHash;

impl FromStr for AppletHash {
    type Err = NotAHash;

    fn from_str(text: &str) -> Result<AppletHash, NotAHash> {
        let digits = text.as_bytes();
        let mut bytes = [0; 32];
        if digits.len() != 2 * bytes.len() {
            return Err(NotAHash);
        }
        let value = |digit: u8| char::from(digit).to_digit(16).ok_or(NotAHash);
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (value(pair[0])? << 4 | value(pair[1])?) as u8;
        }
        Ok(AppletHash(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_are_one_hash() {
        let hash = AppletHash::from_bytes(std::array::from_fn(|at| at as u8 * 7));
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().to_uppercase().parse(), Ok(hash));
        for bad in ["", "0", &"0".repeat(63), &"0".repeat(65), &"g".repeat(64), &"é".repeat(32)] {
            assert_eq!(bad.parse::<AppletHash>(), Err(NotAHash), "{bad}");
        }
    }
}
