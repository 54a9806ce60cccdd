//! The answers of servers, in the cache: for each address a root `http:` with the headers of its
//! last answer and the sum of its bytes, and for each part of a page that came from a server a root
//! `body:` with the bytes.
//!
//! Invariants: no byte is believed: an answer has a sum, a body is named by its own. Both go with
//! the last view of a page that asks for them.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use blitz_traits::net::Url;
use holdfast_heap::Owned;
use holdfast_native_heap::RegionBacking;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128};

use crate::about::{PageDescription, decode, encode};
use crate::decode::said_encoding;
use crate::entry::{Entry, EntryPart};
use crate::error::EntryDamage;
use crate::fetch::{Headers, TIME_END_S, freshness};
use crate::resource::{ResourceSum, is_page, is_style};

pub(crate) const ANSWER: &str = "http:";
pub(crate) const BODY: &str = "body:";
const MAGIC: &[u8; 8] = b"HFHTTP\x03\n";

type Heap = Owned<RegionBacking>;

/// What a server said of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CachedResponse {
    /// Where the bytes were found at last.
    pub(crate) url: Url,
    pub(crate) headers: Headers,
    /// When it was asked last.
    pub(crate) at: SystemTime,
    /// 200, or 404 or 410: there is nothing.
    pub(crate) status: u16,
    /// The sum of the bytes, and how many they are.
    pub(crate) hash: u128,
    pub(crate) bytes: u64,
    /// Of a page: the name of the encoding that it was read in.
    pub(crate) encoding: String,
}

/// The stored form of a [`CachedResponse`], between the magic number and the sum.
#[derive(Deserialize, Serialize)]
struct Record<'a> {
    status: u16,
    hash: u128,
    bytes: u64,
    /// Since 1970.
    at_s: u64,
    url: &'a str,
    encoding: &'a str,
    #[serde(borrow)]
    headers: Vec<(&'a str, &'a str)>,
}

impl CachedResponse {
    /// Whether it was that there is nothing.
    pub(crate) fn is_missing(&self) -> bool {
        self.status != freshness::FOUND
    }

    /// What was found at the address that was asked for. What the server says of the bytes counts
    /// only where they would be read otherwise: those in UTF-8 (`is_utf_8`) are in any case read as
    /// such.
    pub(crate) fn found(&self, asked: &str, is_utf_8: bool) -> ResourceSum {
        if self.is_missing() {
            return ResourceSum::Nothing;
        }
        let said = self.headers.get("content-type");
        let kind = if is_page(said) { "page" } else { "" };
        let moved_to = self.moved_style(asked).map_or("", Url::as_str);
        // Never empty for other bytes, so that no sum is that of both.
        let letters = if is_utf_8 {
            ""
        } else if Url::parse(asked).is_ok_and(|asked| is_style(&asked, said)) {
            said_encoding(said).map_or("unsaid", |encoding| encoding.name())
        } else {
            "none"
        };
        let read_as = match (kind, moved_to, letters) {
            ("", "", "") => 0,
            _ => xxh3_64(format!("{kind}\n{moved_to}\n{letters}").as_bytes()),
        };
        ResourceSum::Bytes { hash: self.hash, bytes: self.bytes, read_as }
    }

    /// Where a style sheet was found at last, if that is not where it was asked for.
    pub(crate) fn moved_style(&self, asked: &str) -> Option<&Url> {
        let is_moved =
            self.url.as_str() != asked && is_style(&self.url, self.headers.get("content-type"));
        is_moved.then_some(&self.url)
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let record = Record {
            status: self.status,
            hash: self.hash,
            bytes: self.bytes,
            at_s: self.at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            url: self.url.as_str(),
            encoding: &self.encoding,
            headers: self.headers.iter().collect(),
        };
        let mut bytes = encode(&record, MAGIC.to_vec());
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    pub(crate) fn read(bytes: &[u8]) -> Result<CachedResponse, EntryDamage> {
        let (bytes, sum) = bytes.split_last_chunk::<8>().ok_or(EntryDamage::NoHeader)?;
        let record = bytes.strip_prefix(MAGIC).ok_or(EntryDamage::NoHeader)?;
        if xxh3_64(bytes) != u64::from_le_bytes(*sum) {
            return Err(EntryDamage::HeaderSum);
        }
        let what = "answer of a server";
        let wrong = EntryDamage::Value { what };
        let record: Record<'_> = decode(record, what)?;
        if !matches!(record.status, 200 | 404 | 410) || record.at_s >= TIME_END_S {
            return Err(wrong);
        }
        let mut headers = Headers::default();
        for (name, value) in record.headers {
            headers.add(name, value);
        }
        Ok(CachedResponse {
            url: Url::parse(record.url).map_err(|_| wrong)?,
            headers,
            at: UNIX_EPOCH + Duration::from_secs(record.at_s),
            status: record.status,
            hash: record.hash,
            bytes: record.bytes,
            encoding: record.encoding.to_owned(),
        })
    }
}

/// The name of the answer for an address.
pub(crate) fn answer_name(url: &str) -> String {
    format!("{ANSWER}{:032x}", xxh3_128(url.as_bytes()))
}

/// The name of bytes with this sum.
pub(crate) fn body_name(hash: u128) -> String {
    format!("{BODY}{hash:032x}")
}

/// What a server said of an address when it was asked last, if that is kept and whole.
pub(crate) fn said(heap: &Heap, url: &str) -> Option<CachedResponse> {
    CachedResponse::read(heap.bytes(&answer_name(url))?).ok()
}

/// Kept bytes, if they are what their name says.
pub(crate) fn body(heap: &Heap, hash: u128) -> Option<&[u8]> {
    heap.bytes(&body_name(hash)).filter(|bytes| xxh3_128(bytes) == hash)
}

/// The names of the answers and bodies that a view asks for.
pub(crate) fn wanted_by(entry: &[u8]) -> Result<HashSet<String>, EntryDamage> {
    let about = PageDescription::read(Entry::open(entry)?.part(EntryPart::PageDescription)?)?;
    let mut wanted = HashSet::from([answer_name(&about.address)]);
    for resource in &about.resources {
        wanted.insert(answer_name(&resource.url));
        if let ResourceSum::Bytes { hash, .. } = resource.found {
            wanted.insert(body_name(hash));
        }
    }
    Ok(wanted)
}

/// Answers and bodies that no view of these asks for, but for those that are named.
pub(crate) fn lonely(heap: &Heap, views: &[String], but: &HashSet<String>) -> Vec<String> {
    let is_ours = |name: &&str| name.starts_with(ANSWER) || name.starts_with(BODY);
    let ours: Vec<String> =
        heap.heap().roots().map(|(name, _)| name).filter(is_ours).map(str::to_owned).collect();
    if ours.is_empty() {
        return ours;
    }
    let mut wanted = but.clone();
    for name in views {
        wanted.extend(heap.bytes(name).and_then(|bytes| wanted_by(bytes).ok()).unwrap_or_default());
    }
    ours.into_iter().filter(|name| !wanted.contains(name)).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// A stored server response reads as written, and every flipped bit is found.
    ///
    /// Guarantee: pages/servers
    #[test]
    fn response_reads_as_written_and_shows_flipped_bits() {
        let mut headers = Headers::default();
        headers.add("ETag", "\"a\"");
        headers.add("Set-Cookie", "not kept");
        headers.add("cache-control", "max-age=5");
        headers.add("Cache-Control", "private");
        assert_eq!(headers.get("cache-control"), Some("max-age=5, private"));
        let said = CachedResponse {
            url: Url::parse("http://example.org/a").unwrap(),
            headers,
            at: UNIX_EPOCH + Duration::from_secs(1_700_000_000),
            status: 410,
            hash: 7,
            bytes: 9,
            encoding: "KOI8-R".to_owned(),
        };
        let bytes = said.write();
        assert_eq!(CachedResponse::read(&bytes), Ok(said));
        for bit in 0..bytes.len() * 8 {
            let mut spoiled = bytes.clone();
            spoiled[bit / 8] ^= 1 << (bit % 8);
            assert!(CachedResponse::read(&spoiled).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            assert!(CachedResponse::read(&bytes[..length]).is_err(), "{length} bytes");
        }
    }

    /// A server that names the type of a part in other words, with the same meaning, does not cause
    /// another layout of the page.
    ///
    /// Guarantee: pages/servers
    #[test]
    fn kind_counts_where_it_changes_the_reading() {
        let found_at = |url: &str, said: &str, is_utf_8: bool| {
            let mut headers = Headers::default();
            if !said.is_empty() {
                headers.add("Content-Type", said);
            }
            let said = CachedResponse {
                url: Url::parse(url).unwrap(),
                headers,
                at: UNIX_EPOCH,
                status: 200,
                hash: 7,
                bytes: 9,
                encoding: String::new(),
            };
            said.found("http://example.org/a.css", is_utf_8)
        };
        let found =
            |said: &str, is_utf_8: bool| found_at("http://example.org/a.css", said, is_utf_8);
        let utf_8 = "TEXT/CSS ;charset=\"UTF-8\"";
        for same in ["", "text/css; charset=utf-8", utf_8] {
            assert_eq!(found(same, true), found("text/css", true), "{same}");
        }
        assert_eq!(found("text/html", true), found("Text/HTML; charset=utf-8", true));
        assert_ne!(found("text/html", true), found("text/css", true));

        assert_eq!(found("", false), found("text/css", false));
        assert_eq!(found("text/css; charset=utf-8", false), found(utf_8, false));
        let kinds = ["text/css", utf_8, "text/css; charset=koi8-r", "text/plain", "text/html"];
        let different: HashSet<u64> = kinds
            .iter()
            .map(|said| match found(said, false) {
                ResourceSum::Bytes { read_as, .. } => read_as,
                ResourceSum::Nothing => panic!("{said}"),
            })
            .collect();
        assert_eq!(different.len(), kinds.len());
        for kind in kinds {
            assert_ne!(found(kind, true), found(kind, false), "{kind}");
        }
        let elsewhere = found_at("http://example.org/b.css", "text/css", true);
        assert_ne!(elsewhere, found("text/css", true));
    }

    // The bytes of a build before version 3, with the right sum.
    #[test]
    fn response_of_version_2_is_refused() {
        let mut bytes = b"HFHTTP\x02\n".to_vec();
        bytes.extend(200_u32.to_le_bytes());
        bytes.extend([7; 16]);
        bytes.extend(9_u64.to_le_bytes());
        bytes.extend(1_700_000_000_u64.to_le_bytes());
        for text in ["http://example.org/a", "UTF-8"] {
            bytes.extend((text.len() as u32).to_le_bytes());
            bytes.extend(text.as_bytes());
        }
        bytes.extend([0; 4]);
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        assert_eq!(CachedResponse::read(&bytes), Err(EntryDamage::NoHeader));
        // Nor are they read in today's form when the magic number is today's.
        bytes.truncate(bytes.len() - 8);
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        assert!(CachedResponse::read(&bytes).is_err());
    }
}
