//! The resources of a page: the terms that the loader, the cache and the pages' descriptions share.
//!
//! Invariant: two resources are equal exactly if a page made from one would be made from the other.
//!
//! What it must not do: ask a server, or decide when one is asked (that is for [`crate::sources`]).

use std::io::Cursor;

use serde::{Deserialize, Serialize};
use skrifa::raw::FileRef;
use xxhash_rust::xxh3::xxh3_128;

use crate::fetch::{self, Fetch, FetchAnswer, FetchError, FetchRequest, Purpose, Url};

/// What a page asked for.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Resource {
    /// Its address, without a place in it.
    pub(crate) url: String,
    /// What was found.
    pub(crate) found: ResourceSum,
}

/// What was found at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum ResourceSum {
    /// These bytes.
    Bytes {
        /// Their sum.
        hash: u128,
        /// How many.
        bytes: u64,
        /// The sum of what else decides how they are read; 0, if nothing does.
        read_as: u64,
    },
    /// Nothing that can be read.
    Nothing,
}

impl ResourceSum {
    /// What is there now, of which no more than `bytes_max` count.
    #[must_use]
    pub(crate) fn at(url: &str, bytes_max: u64, from: &dyn Fetch) -> ResourceSum {
        let bytes = Url::parse(url).ok().and_then(|url| bytes_of(&url, bytes_max, from).ok());
        bytes.map_or(ResourceSum::Nothing, |bytes| ResourceSum::of(&bytes))
    }

    pub(crate) fn of(bytes: &[u8]) -> ResourceSum {
        ResourceSum::Bytes { hash: xxh3_128(bytes), bytes: bytes.len() as u64, read_as: 0 }
    }
}

/// The bytes of a part of a page that no server is asked for.
pub(crate) fn bytes_of(url: &Url, bytes_max: u64, from: &dyn Fetch) -> Result<Vec<u8>, FetchError> {
    match fetch::ask(
        from,
        &FetchRequest { url, bytes_max, purpose: Purpose::Part, known: None, anew: false },
    )? {
        FetchAnswer::Bytes(fetched) => Ok(fetched.bytes),
        FetchAnswer::Unchanged(_) | FetchAnswer::Nothing(_) => Err(FetchError::NotFound),
    }
}

/// What a page may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Reach {
    /// A page of this machine: files.
    Files,
    /// A page of this machine: files, and servers.
    FilesAndNetwork,
    /// A page from the network: servers alone. Its author learns nothing of this machine's
    /// files.
    Network,
    /// A page that came safely: what comes safely alone, or else a host on the way could change
    /// how it looks.
    SafeNetwork,
}

impl Reach {
    pub(crate) fn allows(self, scheme: &str) -> Result<(), &'static str> {
        match (scheme, self) {
            ("file", Reach::Network | Reach::SafeNetwork) => {
                Err("a page from the network gets no files")
            }
            ("http", Reach::SafeNetwork) => {
                Err("a page of https: gets nothing by http:, which anybody can change")
            }
            ("http" | "https", Reach::Files) => {
                Err("the network is not asked; allow it by --network")
            }
            ("data" | "file" | "http" | "https", _) => Ok(()),
            _ => Err("only files and addresses of http: and https: are read"),
        }
    }
}

/// Whether the address is one of the network.
pub(crate) fn is_of_network(url: &str) -> bool {
    url.starts_with("http:") || url.starts_with("https:")
}

/// Whether something is a style sheet, as its server says, or else its address.
pub(crate) fn is_style(url: &Url, content_type: Option<&str>) -> bool {
    const KIND: &str = "text/css";
    match content_type {
        Some(said) => said.get(..KIND.len()).is_some_and(|kind| kind.eq_ignore_ascii_case(KIND)),
        None => url.path().ends_with(".css"),
    }
}

/// Whether a server says that something is a page, as those do that have no other answer.
pub(crate) fn is_page(content_type: Option<&str>) -> bool {
    let kind = content_type.unwrap_or_default().split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("text/html")
}

/// Whether bytes begin as a font does that the engine reads, and are as many as it says.
pub(crate) fn seems_font(bytes: &[u8]) -> bool {
    match bytes.first_chunk::<4>() {
        Some(b"wOFF" | b"wOF2") => {
            let length =
                bytes.get(8..12).and_then(|word| word.try_into().ok()).map(u32::from_be_bytes);
            length.is_some_and(|length| length as usize <= bytes.len())
        }
        Some(b"OTTO" | b"true" | [0, 1, 0, 0]) => FileRef::new(bytes).is_ok(),
        _ => false,
    }
}

/// The pixels of an image; none, if it is no image that can be decoded.
pub(crate) fn pixel_count(bytes: &[u8]) -> Option<u64> {
    let format = image::guess_format(bytes).ok()?;
    let (width, height) =
        image::ImageReader::with_format(Cursor::new(bytes), format).into_dimensions().ok()?;
    Some(u64::from(width) * u64::from(height))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which resources a page may request depends on where the page comes from.
    ///
    /// Guarantee: pages/no-local-files
    #[test]
    fn reach_depends_on_the_origin_of_the_page() {
        let schemes = ["data", "file", "http", "https", "ftp"];
        let allowed = |reach: Reach| schemes.map(|scheme| reach.allows(scheme).is_ok());
        assert_eq!(allowed(Reach::Files), [true, true, false, false, false]);
        assert_eq!(allowed(Reach::FilesAndNetwork), [true, true, true, true, false]);
        assert_eq!(allowed(Reach::Network), [true, false, true, true, false]);
        assert_eq!(allowed(Reach::SafeNetwork), [true, false, false, true, false]);
    }
}
