//! Bytes that are no page, where neither a name nor a server says what they are.
//!
//! Source: MIME Sniffing, "7.1 Identifying a resource with an unknown MIME type", of which browsers
//! take what is neither text nor known for a file to be stored.

use std::path::Path;

/// Bytes that are looked at.
const HEAD_BYTES: usize = 1_445;

/// What files of known kinds begin with; those that are text to a browser as well.
const KINDS: [(&[u8], &str); 19] = [
    (b"\x7FELF", "a program (ELF)"),
    (b"MZ", "a program (Windows)"),
    (b"\0asm", "a program (WebAssembly)"),
    (b"%PDF-", "a PDF document"),
    (b"\x89PNG\r\n\x1A\n", "an image (PNG)"),
    (b"\xFF\xD8\xFF", "an image (JPEG)"),
    (b"GIF87a", "an image (GIF)"),
    (b"GIF89a", "an image (GIF)"),
    (b"PK\x03\x04", "an archive (ZIP)"),
    (b"\x1F\x8B", "compressed data (gzip)"),
    (b"\xFD7zXZ\0", "compressed data (xz)"),
    (b"\x28\xB5\x2F\xFD", "compressed data (zstd)"),
    (b"BZh", "compressed data (bzip2)"),
    (b"SQLite format 3\0", "a database (SQLite)"),
    (b"OggS", "sound or video (Ogg)"),
    (b"ID3", "sound (MP3)"),
    (b"wOFF", "a font (WOFF)"),
    (b"wOF2", "a font (WOFF 2)"),
    (b"RIFF", "an image, sound or video (RIFF)"),
];
/// Marks of an encoding: what follows is text.
const MARKS: [&[u8]; 3] = [b"\xEF\xBB\xBF", b"\xFE\xFF", b"\xFF\xFE"];

/// What these bytes are, if they are no text.
pub(crate) fn binary_kind(bytes: &[u8]) -> Option<&'static str> {
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    if MARKS.iter().any(|mark| head.starts_with(mark)) || begins_as_page(head) {
        return None;
    }
    let kind = KINDS.iter().find(|(magic, _)| head.starts_with(magic)).map(|(_, kind)| *kind);
    // Some magics are words as well.
    let is_binary = head.iter().any(|byte| is_binary(*byte));
    if is_binary || head.starts_with(b"%PDF-") { Some(kind.unwrap_or("binary data")) } else { None }
}

fn is_binary(byte: u8) -> bool {
    matches!(byte, 0..=8 | 0x0B | 0x0E..=0x1A | 0x1C..=0x1F)
}

/// Whether a tag, a comment or a document type comes first.
fn begins_as_page(head: &[u8]) -> bool {
    let rest = head.trim_ascii_start();
    rest.first() == Some(&b'<')
        && rest.get(1).is_some_and(|next| next.is_ascii_alphabetic() || *next == b'!')
}

/// Whether a name says that a file is a page.
pub(crate) fn is_named_page(path: &Path) -> bool {
    let extension = path.extension().unwrap_or_default();
    ["html", "htm", "xhtml", "xht", "shtml"]
        .iter()
        .any(|known| extension.eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Guarantee: pages/too-much
    #[test]
    fn binaries_are_told_from_pages_and_text() {
        for (bytes, kind) in [
            (&b"\x7FELF\x02\x01\x01\0"[..], Some("a program (ELF)")),
            (b"%PDF-1.7\n", Some("a PDF document")),
            (b"\x89PNG\r\n\x1A\n\0\0", Some("an image (PNG)")),
            (b"abc\0def", Some("binary data")),
            (b"MZ is how some words begin", None),
            (b"", None),
            (b"plain text\r\n\tand \x0C more \x1B[1m", None),
            (b"caf\xE9", None),
            (b"  <p>\0</p>", None),
            (b"<!-- \x01 -->", None),
            (b"\xFF\xFEa\0b\0", None),
            (b"\xEF\xBB\xBF\0", None),
        ] {
            assert_eq!(binary_kind(bytes), kind, "{bytes:?}");
        }
        let late = [&[b'a'; HEAD_BYTES][..], b"\0"].concat();
        assert_eq!(binary_kind(&late), None);
        assert!(is_named_page(Path::new("a/b.HTML")) && !is_named_page(Path::new("/bin/ls")));
    }
}
