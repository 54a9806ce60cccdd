//! The index of a WARC file: one pass over all of it, of which addresses and places are remembered,
//! and no contents.
//!
//! Invariant: whatever is in the file, the pass ends, and says what it had to leave out and where.
//! Behind a damaged record the search goes on for the next one.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use crate::fetch::Url;
use crate::import::folder::is_html;
use crate::import::warc::digest::PayloadDigest;
use crate::import::warc::http::{HEAD_BYTES_MAX, Response};
use crate::import::warc::record::{
    Compression, GZIP, RecordHeader, RecordReader, WarcDamage, WarcReader, read_head,
};

/// Records that are remembered, and the bytes of their addresses.
const RECORDS_MAX: usize = 4_000_000;
const URLS_BYTES_MAX: usize = 512 << 20;
/// Bytes that one packed record is unpacked to.
const UNPACKED_MAX: u64 = 256 << 20;
/// Sentences about what is wrong that are kept.
const TROUBLES_MAX: usize = 100;
/// Redirections in a row.
const REDIRECTS_MAX: usize = 10;

/// What is known of the response of an address.
#[derive(Clone, Debug)]
pub(crate) struct IndexedResponse {
    /// Where its record begins.
    pub(crate) at: u64,
    pub(crate) is_page: bool,
    date: u64,
    leads: IndexedTarget,
}

#[derive(Clone, Debug)]
enum IndexedTarget {
    /// The body is there.
    Here,
    /// The same body came before, where `WarcIndex::bodies` says, or at this address.
    Same { digest: Option<PayloadDigest>, url: Option<Box<str>> },
    /// It is at another address.
    MovedHeap(Box<str>),
}

/// What could not be taken of a file, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportProblem {
    /// Where it is in the file, if there is a place to name.
    pub at: Option<u64>,
    /// The address, if it is known.
    pub url: Option<String>,
    /// What is wrong, for people.
    pub what: String,
}

/// A response with a body.
#[derive(Clone, Copy, Debug)]
struct ResponseBody {
    at: u64,
    is_page: bool,
}

/// Where the response for each address is in a WARC file.
#[derive(Debug, Default)]
pub(crate) struct WarcIndex {
    slots: HashMap<Box<str>, IndexedResponse>,
    bodies: HashMap<PayloadDigest, ResponseBody>,
    urls_bytes: usize,
    pub(crate) records: u64,
    /// How many records are damaged; not all of them are named.
    pub(crate) damaged: u64,
    pub(crate) troubles: Vec<ImportProblem>,
}

/// Where the body of an address is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RecordPlace {
    /// Of the record whose headers count.
    pub(crate) at: u64,
    /// Of the record with the body.
    pub(crate) body_at: u64,
    /// The address after all redirections.
    pub(crate) url: String,
}

/// Why a file has no index.
#[derive(Debug)]
pub(crate) enum IndexError {
    Read(io::Error),
    NotWarc,
    PackedAsWhole,
    TooMany,
    Stopped,
}

/// How the records of a file are packed.
pub(crate) fn packing(file: &File) -> Result<Compression, IndexError> {
    let mut first = [0; 5];
    let read = file.read_at(&mut first, 0).map_err(IndexError::Read)?;
    match &first[..read] {
        first if first.starts_with(&GZIP) => Ok(Compression::Gzip),
        b"WARC/" => Ok(Compression::Plain),
        _ => Err(IndexError::NotWarc),
    }
}

impl WarcIndex {
    /// Reads all of a file once. `tell` hears how far it is.
    pub(crate) fn of(
        file: &Arc<File>,
        packing: Compression,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(u64),
    ) -> Result<WarcIndex, IndexError> {
        let mut index = WarcIndex::default();
        let size = file.metadata().map_err(IndexError::Read)?.len();
        let mut at = 0;
        while !stop.load(Ordering::Relaxed) {
            tell(at);
            if at >= size {
                return Ok(index);
            }
            match index.one(file, at, packing) {
                Ok(None) => return Ok(index),
                Ok(Some(next)) => at = next,
                Err(RecordIssue::NoIndex(error)) => return Err(error),
                Err(RecordIssue::Damaged(WarcDamage::NoRecord))
                    if index.records == 0 && at == 0 =>
                {
                    return Err(IndexError::NotWarc);
                }
                Err(RecordIssue::Damaged(damage)) => {
                    index.damaged += 1;
                    let next = search(file, at + 1, packing, stop).map_err(IndexError::Read)?;
                    let goes_on = match next {
                        Some(next) => format!("; it goes on at {next}"),
                        None => "; there is no record behind it".to_owned(),
                    };
                    index.trouble(Some(at), None, format!("{damage}{goes_on}"));
                    match next {
                        Some(next) => at = next,
                        None => return Ok(index),
                    }
                }
            }
        }
        Err(IndexError::Stopped)
    }

    /// The record there; where the next one is.
    fn one(
        &mut self,
        file: &Arc<File>,
        at: u64,
        packing: Compression,
    ) -> Result<Option<u64>, RecordIssue> {
        let mut from = RecordReader::open(file, at, packing);
        let Some(head) = read_head(&mut from)? else { return Ok(None) };
        if packing == Compression::Gzip && head.length > UNPACKED_MAX {
            return Err(WarcDamage::Large(UNPACKED_MAX).into());
        }
        let mut first = Vec::new();
        let room = head.length.min(HEAD_BYTES_MAX as u64);
        from.by_ref().take(room).read_to_end(&mut first).map_err(|error| from.damage(error))?;
        if (first.len() as u64) < room {
            return Err(WarcDamage::Ends.into());
        }
        let next = match packing {
            Compression::Plain => end_of_plain(
                file,
                at.checked_add(head.bytes).and_then(|at| at.checked_add(head.length)),
            )?,
            Compression::Gzip => end_of_member(&mut from, head.length - room)?,
        };
        self.records += 1;
        self.take(at, &head, &first)?;
        Ok(Some(next))
    }

    /// Remembers a record, if it is of use.
    fn take(&mut self, at: u64, head: &RecordHeader, first: &[u8]) -> Result<(), IndexError> {
        if !matches!(head.kind.as_str(), "response" | "resource" | "revisit") {
            return Ok(());
        }
        let Some(url) = head.url.as_deref() else {
            self.trouble(Some(at), None, "a response without an address".to_owned());
            return Ok(());
        };
        // Crawlers keep what they asked name servers and the like as well.
        let Ok(url) = Url::parse(url) else {
            self.trouble(Some(at), Some(url), "it is no address".to_owned());
            return Ok(());
        };
        if !matches!(url.scheme(), "http" | "https") {
            return Ok(());
        }
        let key = key(&url);
        if head.is_segment {
            self.trouble(
                Some(at),
                Some(&key),
                "it is in several records, which are not put together".to_owned(),
            );
            return Ok(());
        }
        let digest = head.payload_digest.as_deref().and_then(PayloadDigest::parse);
        let (is_page, leads) = match head.kind.as_str() {
            "resource" => (names_html(&head.content_type), IndexedTarget::Here),
            "revisit" => {
                // Of one that did not change the server says so, and little else; some crawlers
                // keep nothing of it.
                let response = Response::parse(first).ok();
                let named =
                    |response: &Response| response.field("content-type").is_some_and(names_html);
                if response.as_ref().is_some_and(|response| !matches!(response.status, 200 | 304)) {
                    return Ok(());
                }
                let url = head
                    .refers_to_url
                    .as_deref()
                    .and_then(|url| Url::parse(url).ok())
                    .map(|url| self::key(&url).into());
                (response.as_ref().is_some_and(named), IndexedTarget::Same { digest, url })
            }
            _ => {
                let response = match Response::parse(first) {
                    Ok(response) => response,
                    Err(error) => {
                        self.trouble(Some(at), Some(&key), error.to_string());
                        return Ok(());
                    }
                };
                let moved = response.field("location").and_then(|to| url.join(to).ok());
                match (response.status, moved) {
                    (200, _) => (is_page(&response, first), IndexedTarget::Here),
                    (301 | 302 | 303 | 307 | 308, Some(to)) => {
                        (false, IndexedTarget::MovedHeap(self::key(&to).into()))
                    }
                    _ => return Ok(()),
                }
            }
        };
        if let (Some(digest), IndexedTarget::Here) = (digest, &leads) {
            self.bodies.insert(digest, ResponseBody { at, is_page });
        }
        let slot = IndexedResponse { at, is_page, date: date(&head.date), leads };
        let before = self.slots.get(key.as_str());
        // The newest counts; of two of one moment the later.
        if before.is_some_and(|before| before.date > slot.date) {
            return Ok(());
        }
        if before.is_none() {
            self.urls_bytes += key.len();
        }
        self.slots.insert(key.into(), slot);
        if self.slots.len() > RECORDS_MAX || self.urls_bytes > URLS_BYTES_MAX {
            return Err(IndexError::TooMany);
        }
        Ok(())
    }

    pub(crate) fn trouble(&mut self, at: Option<u64>, url: Option<&str>, what: String) {
        if self.troubles.len() < TROUBLES_MAX {
            let url = url.map(|url| url.chars().take(300).collect());
            self.troubles.push(ImportProblem { at, url, what });
        }
    }

    /// Addresses of pages, in the order of the file.
    pub(crate) fn pages(&self) -> Vec<String> {
        let is_page = |slot: &IndexedResponse| {
            slot.is_page || self.body(slot).is_some_and(|body| body.is_page)
        };
        let mut pages: Vec<(u64, &str)> = self
            .slots
            .iter()
            .filter(|(_, slot)| is_page(slot))
            .map(|(url, slot)| (slot.at, &**url))
            .collect();
        pages.sort_unstable();
        pages.into_iter().map(|(_, url)| url.to_owned()).collect()
    }

    fn body(&self, slot: &IndexedResponse) -> Option<ResponseBody> {
        let here = |slot: &IndexedResponse| ResponseBody { at: slot.at, is_page: slot.is_page };
        match &slot.leads {
            IndexedTarget::Here => Some(here(slot)),
            IndexedTarget::MovedHeap(_) => None,
            IndexedTarget::Same { digest, url } => {
                let same = digest.as_ref().and_then(|digest| self.bodies.get(digest).copied());
                let named = || {
                    self.slots
                        .get(url.as_deref()?)
                        .filter(|named| matches!(named.leads, IndexedTarget::Here))
                };
                same.or_else(|| named().map(here))
            }
        }
    }

    /// Where the body of an address is, after redirections; `None`, if this file does not have it.
    pub(crate) fn find(&self, url: &str) -> Option<RecordPlace> {
        let mut url = url;
        for _ in 0..=REDIRECTS_MAX {
            let slot = self.slots.get(url)?;
            if let IndexedTarget::MovedHeap(to) = &slot.leads {
                url = to;
                continue;
            }
            let body_at = self.body(slot)?.at;
            return Some(RecordPlace { at: slot.at, body_at, url: url.to_owned() });
        }
        None
    }
}

/// Why one record came to nothing.
enum RecordIssue {
    Damaged(WarcDamage),
    NoIndex(IndexError),
}

impl From<WarcDamage> for RecordIssue {
    fn from(damage: WarcDamage) -> RecordIssue {
        RecordIssue::Damaged(damage)
    }
}

impl From<IndexError> for RecordIssue {
    fn from(error: IndexError) -> RecordIssue {
        RecordIssue::NoIndex(error)
    }
}

/// What an address is found by: without a place in it.
pub(crate) fn key(url: &Url) -> String {
    let mut url = url.clone();
    url.set_fragment(None);
    url.into()
}

/// Digits of a date, most significant first: years to seconds, which compare as numbers.
fn date(text: &str) -> u64 {
    let digits = text.bytes().filter(u8::is_ascii_digit).take(14);
    let (value, count) = digits
        .fold((0u64, 0), |(value, count), digit| (value * 10 + u64::from(digit - b'0'), count + 1));
    value * 10u64.pow(14 - count)
}

fn names_html(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    matches!(kind.as_str(), "text/html" | "application/xhtml+xml")
}

fn is_page(response: &Response, first: &[u8]) -> bool {
    match response.field("content-type") {
        Some(kind) if !kind.trim().is_empty() => names_html(kind),
        _ => is_html(first.get(response.bytes..).unwrap_or_default()),
    }
}

/// Looks behind a plain record: empty lines and another record, or the end of the file.
fn end_of_plain(file: &Arc<File>, end: Option<u64>) -> Result<u64, WarcDamage> {
    let size = file.metadata().map_err(WarcDamage::Read)?.len();
    let end = end.filter(|end| *end <= size).ok_or(WarcDamage::Ends)?;
    let mut behind = Vec::new();
    WarcReader::new(file, end).take(12).read_to_end(&mut behind).map_err(WarcDamage::Read)?;
    let skipped = behind.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    let rest = &behind[skipped..];
    // Where the file ends in the first word of a record, the next look at it says so.
    let is_record = b"WARC/".starts_with(&rest[..rest.len().min(5)]);
    if is_record { Ok(end + skipped as u64) } else { Err(WarcDamage::Length) }
}

/// Reads a member to its end, whose sum tells whether it is whole.
fn end_of_member(from: &mut RecordReader, left: u64) -> Result<u64, RecordIssue> {
    let read = io::copy(&mut from.by_ref().take(left), &mut io::sink())
        .map_err(|error| from.damage(error))?;
    if read < left {
        return Err(WarcDamage::Length.into());
    }
    let mut behind = Vec::new();
    from.by_ref().take(64).read_to_end(&mut behind).map_err(|error| from.damage(error))?;
    let rest = behind.trim_ascii_start();
    if rest.starts_with(b"WARC/") {
        return Err(IndexError::PackedAsWhole.into());
    }
    if !rest.is_empty() || behind.len() == 64 {
        return Err(WarcDamage::Length.into());
    }
    Ok(from.position())
}

/// Looks for a record from a place on.
fn search(
    file: &Arc<File>,
    from: u64,
    packing: Compression,
    stop: &AtomicBool,
) -> io::Result<Option<u64>> {
    let (mark, skipped) = match packing {
        Compression::Plain => (&b"\nWARC/1."[..], 1),
        Compression::Gzip => (&GZIP[..], 0),
    };
    let finder = memchr::memmem::Finder::new(mark);
    let mut window = vec![0; 1 << 20];
    let mut at = from.saturating_sub(skipped);
    while !stop.load(Ordering::Relaxed) {
        let read = file.read_at(&mut window, at)?;
        for found in finder.find_iter(&window[..read]) {
            let place = at + found as u64 + skipped;
            let mut begins = [0; 7];
            let is_record =
                RecordReader::open(file, place, packing).read_exact(&mut begins).is_ok()
                    && &begins == b"WARC/1.";
            if is_record && place >= from {
                return Ok(Some(place));
            }
        }
        if read < mark.len() {
            return Ok(None);
        }
        at += (read - (mark.len() - 1)) as u64;
    }
    Ok(None)
}
