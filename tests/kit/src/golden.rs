//! Golden files as text: the length, then every word that is not zero, all in hexadecimal; lines
//! with `#` are for people.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Writes the file that a text is of, for its owner alone.
///
/// # Errors
/// What the kernel reports, and `InvalidData` for a text that is none.
pub fn lay(text: &str, path: &Path) -> io::Result<()> {
    let is_no_text = || io::Error::from(io::ErrorKind::InvalidData);
    let number = |digits: &str| u64::from_str_radix(digits, 16).map_err(|_| is_no_text());
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.set_len(number(lines.next().ok_or_else(is_no_text)?)?)?;
    for line in lines {
        let (at, word) = line.split_once(' ').ok_or_else(is_no_text)?;
        file.write_all_at(&number(word)?.to_be_bytes(), number(at)?)?;
    }
    Ok(())
}

/// The text of a file's bytes, which are a multiple of 8. `title` says what they are and who makes
/// them.
#[must_use]
pub fn text(title: &str, bytes: &[u8]) -> String {
    let mut text = format!(
        "# {title}: its length, then every word that is not zero, all in hexadecimal\n{:x}\n",
        bytes.len()
    );
    for (index, word) in bytes.as_chunks().0.iter().enumerate() {
        let word = u64::from_be_bytes(*word);
        if word != 0 {
            text += &format!("{:x} {word:016x}\n", index * 8);
        }
    }
    text
}
