//! A page as it is now: its bytes, or that they are those that were kept.

use std::sync::Arc;

use encoding_rs::{Encoding, UTF_8};
use xxhash_rust::xxh3::xxh3_128;

use crate::decode::encoding_of;
use crate::fetch::{self, Fetch, FetchAnswer, FetchError, FetchRequest, Purpose, Url};
use crate::sources::Sources;

/// A page as it is now.
pub(crate) struct PageSource {
    /// The sum of its bytes, and of the name of their encoding unless that is UTF-8.
    pub(crate) source: u128,
    pub(crate) encoding: &'static Encoding,
    /// None, if a server says that they are those that were kept.
    pub(crate) bytes: Option<Arc<Vec<u8>>>,
    pub(crate) base: Url,
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
                let encoding = encoding_of(&fetched.bytes, fetched.headers.get("content-type"));
                let source = source_of(xxh3_128(&fetched.bytes), encoding);
                Ok(PageSource {
                    source,
                    encoding,
                    bytes: Some(Arc::new(fetched.bytes)),
                    base: fetched.url,
                })
            }
            FetchAnswer::Unchanged(_) | FetchAnswer::Nothing(_) => {
                Err(Arc::new(FetchError::NotFound))
            }
        }
    }

    /// The page as its server has it, which was asked.
    pub(crate) fn of_server(url: &str, sources: &Sources) -> Result<PageSource, Arc<FetchError>> {
        let none = || Arc::new(FetchError::NotFound);
        let there = sources.there(url).ok_or_else(none)?;
        let said = there.said.filter(|said| !said.is_missing());
        let Some(said) = said else { return Err(there.error.unwrap_or_else(none)) };
        let encoding = match &there.bytes {
            Some(bytes) => {
                let encoding = encoding_of(bytes, said.headers.get("content-type"));
                sources.note_encoding(url, encoding.name());
                encoding
            }
            None => Encoding::for_label(said.encoding.as_bytes()).unwrap_or(UTF_8),
        };
        Ok(PageSource {
            source: source_of(said.hash, encoding),
            encoding,
            bytes: there.bytes,
            base: said.url,
        })
    }
}

/// Of bytes in another encoding another document is made.
fn source_of(hash: u128, encoding: &'static Encoding) -> u128 {
    if encoding == UTF_8 {
        return hash;
    }
    let mut bytes = hash.to_le_bytes().to_vec();
    bytes.extend_from_slice(encoding.name().as_bytes());
    xxh3_128(&bytes)
}
