//! A page as it is now: its bytes, or that they are those that were kept.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use encoding_rs::{Encoding, UTF_8};
use holdfast_sys::file::open_regular;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::decode::encoding_of;
use crate::fetch::{self, Fetch, FetchAnswer, FetchError, FetchRequest, Purpose, Url};
use crate::sources::Sources;
use crate::xhtml;

/// Bytes of a file that are summed up at a time; the processor's caches hold them. Where a page says
/// its encoding is in the first of them.
const PIECE_BYTES: u64 = 256 << 10;

/// A page as it is now.
pub(crate) struct PageSource {
    /// The sum of its bytes, and of how they are read unless that is as HTML in UTF-8.
    pub(crate) source: u128,
    pub(crate) encoding: &'static Encoding,
    /// Whether they are read as XHTML.
    pub(crate) is_xhtml: bool,
    /// None, if a server says that they are those that were kept.
    pub(crate) bytes: Option<Arc<Vec<u8>>>,
    /// Where it was found at last.
    pub(crate) found: Url,
}

impl PageSource {
    /// The page of a file or folder, which is read.
    pub(crate) fn of_file(
        url: &Url,
        bytes_max: u64,
        from: &dyn Fetch,
    ) -> Result<PageSource, Arc<FetchError>> {
        let wanted =
            FetchRequest { url, bytes_max, purpose: Purpose::Page, known: None, anew: false };
        match fetch::ask(from, &wanted)? {
            FetchAnswer::Bytes(fetched) => {
                let said = fetched.headers.get("content-type");
                let is_xhtml = xhtml::is_said(&fetched.url, said);
                let encoding = encoding_of(&fetched.bytes, said, is_xhtml);
                let source = source_of(xxh3_128(&fetched.bytes), encoding, is_xhtml);
                Ok(PageSource {
                    source,
                    encoding,
                    is_xhtml,
                    bytes: Some(Arc::new(fetched.bytes)),
                    found: fetched.url,
                })
            }
            FetchAnswer::Unchanged(_) | FetchAnswer::Nothing(_) => {
                Err(Arc::new(FetchError::NotFound))
            }
        }
    }

    /// [`PageSource::source`] of a regular file, which is read in pieces for it. `None` where there is no
    /// such file, it cannot be read, or it is too long.
    pub(crate) fn sum_of_file(url: &Url, bytes_max: u64) -> Option<u128> {
        if url.scheme() != "file" {
            return None;
        }
        let path = url.to_file_path().ok()?;
        let is_xhtml = xhtml::is_said(url, None);
        let mut file = open_regular(File::options().read(true), &path).ok()?;
        let (mut sum, mut encoding, mut bytes) = (Xxh3::new(), None, 0);
        let mut piece = Vec::with_capacity(PIECE_BYTES as usize);
        loop {
            piece.clear();
            let read = file.by_ref().take(PIECE_BYTES).read_to_end(&mut piece).ok()?;
            encoding = encoding.or_else(|| Some(encoding_of(&piece, None, is_xhtml)));
            sum.update(&piece);
            bytes += read as u64;
            if bytes > bytes_max {
                return None;
            }
            if (read as u64) < PIECE_BYTES {
                return Some(source_of(sum.digest128(), encoding.unwrap_or(UTF_8), is_xhtml));
            }
        }
    }

    /// The page as its server has it, which was asked.
    pub(crate) fn of_server(url: &str, sources: &Sources) -> Result<PageSource, Arc<FetchError>> {
        let none = || Arc::new(FetchError::NotFound);
        let there = sources.there(url).ok_or_else(none)?;
        let said = there.said.filter(|said| !said.is_missing());
        let Some(said) = said else { return Err(there.error.unwrap_or_else(none)) };
        let kind = said.headers.get("content-type");
        let is_xhtml = xhtml::is_said(&said.url, kind);
        let encoding = match &there.bytes {
            Some(bytes) => {
                let encoding = encoding_of(bytes, kind, is_xhtml);
                sources.note_encoding(url, encoding.name());
                encoding
            }
            None => Encoding::for_label(said.encoding.as_bytes()).unwrap_or(UTF_8),
        };
        Ok(PageSource {
            source: source_of(said.hash, encoding, is_xhtml),
            encoding,
            is_xhtml,
            bytes: there.bytes,
            found: said.url,
        })
    }
}

/// Of bytes in another encoding, or in XHTML, another document is made.
fn source_of(hash: u128, encoding: &'static Encoding, is_xhtml: bool) -> u128 {
    if encoding == UTF_8 && !is_xhtml {
        return hash;
    }
    let mut bytes = hash.to_le_bytes().to_vec();
    bytes.extend_from_slice(encoding.name().as_bytes());
    if is_xhtml {
        bytes.extend_from_slice(b" XHTML");
    }
    xxh3_128(&bytes)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;
    use crate::Files;

    /// A sum is that of the page as it is read, of any length and in any encoding.
    #[test]
    fn sum_of_a_file_is_that_of_the_page() {
        let folder = tempfile::tempdir().unwrap();
        let piece = PIECE_BYTES as usize;
        let latin = "<meta charset=windows-1251>";
        for (number, (start, bytes)) in [
            ("", 0),
            ("<p>", 10),
            (latin, 3000),
            ("\u{feff}<p>", piece - 1),
            (latin, piece),
            ("<p>", piece + 1),
            (latin, 3 * piece),
        ]
        .into_iter()
        .enumerate()
        {
            let path = folder.path().join(format!("{number}.html"));
            let mut text = start.as_bytes().to_vec();
            text.resize(bytes.max(start.len()), b'x');
            std::fs::write(&path, &text).unwrap();
            let url = Url::from_file_path(&path).unwrap();
            let read = PageSource::of_file(&url, 1 << 20, &Files).unwrap();
            assert_eq!(PageSource::sum_of_file(&url, 1 << 20), Some(read.source), "{number}");
            assert_eq!(read.encoding == UTF_8, start != latin);
            assert!(!read.is_xhtml);
            // The same bytes by another name are another document.
            let other = path.with_extension("xhtml");
            std::fs::copy(&path, &other).unwrap();
            let other = Url::from_file_path(&other).unwrap();
            let in_xml = PageSource::of_file(&other, 1 << 20, &Files).unwrap();
            assert_eq!(PageSource::sum_of_file(&other, 1 << 20), Some(in_xml.source), "{number}");
            assert!(in_xml.is_xhtml && in_xml.source != read.source && in_xml.encoding == UTF_8);
            if let Some(too_short) = (text.len() as u64).checked_sub(1) {
                assert_eq!(PageSource::sum_of_file(&url, too_short), None);
            }
        }
        let of_folder = Url::from_directory_path(folder.path()).unwrap();
        assert_eq!(PageSource::sum_of_file(&of_folder, 1 << 20), None);
        let elsewhere = Url::parse("data:text/html,<p>").unwrap();
        assert_eq!(PageSource::sum_of_file(&elsewhere, 1 << 20), None);
    }
}
