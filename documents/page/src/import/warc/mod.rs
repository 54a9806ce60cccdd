//! WARC files (ISO 28500, versions 1.0 and 1.1), plain or with each record packed by gzip: the
//! responses that a crawler kept.
//!
//! One pass finds what is where; after that, any number of threads read responses by address. No
//! more of the file is in memory than what is read at the moment.

mod digest;
mod http;
mod index;
mod record;

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::fetch::{Fetch, FetchAnswer, FetchError, FetchRequest, FetchedBytes, Headers, Url};
use crate::import::error::ImportError;
use digest::{DigestReader, PayloadDigest};
use http::{HEAD_BYTES_MAX, HttpError, Response};
use index::{IndexError, WarcIndex};
use record::{Compression, RecordHeader, RecordReader, WarcDamage, read_head};

pub use index::ImportProblem;

/// An open WARC file with its index.
#[derive(Debug)]
pub(crate) struct Warc {
    file: Arc<File>,
    packing: Compression,
    index: WarcIndex,
    /// Responses whose payload does not have the sum that the file says.
    wrong_sums: AtomicU64,
}

/// Why a response cannot be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ResponseError {
    #[error("the file has no response of this address")]
    NotThere,
    #[error("the record at {at} is damaged: {damage}")]
    Damaged { at: u64, damage: WarcDamage },
    #[error("the crawler has cut it short ({0})")]
    Truncated(String),
    #[error(transparent)]
    Http(#[from] HttpError),
}

impl Warc {
    /// Opens a file and looks through all of it.
    ///
    /// # Errors
    /// [`ImportError`], when it is no WARC file that can be read by places.
    pub(crate) fn open(
        path: &Path,
        stop: &AtomicBool,
        tell: &mut dyn FnMut(u64),
    ) -> Result<Warc, ImportError> {
        let read = |error: io::Error| ImportError::Read { path: path.to_owned(), error };
        let file = Arc::new(File::open(path).map_err(read)?);
        let index = index::packing(&file)
            .and_then(|packing| Ok((packing, WarcIndex::of(&file, packing, stop, tell)?)));
        let (packing, index) = index.map_err(|error| match error {
            IndexError::Read(error) => read(error),
            IndexError::NotWarc => ImportError::NotWarc { path: path.to_owned() },
            IndexError::PackedAsWhole => ImportError::PackedAsWhole { path: path.to_owned() },
            IndexError::TooMany => ImportError::TooMany { path: path.to_owned() },
            IndexError::Stopped => ImportError::Stopped,
        })?;
        Ok(Warc { file, packing, index, wrong_sums: AtomicU64::new(0) })
    }

    /// The addresses of its pages, in its order.
    pub(crate) fn pages(&self) -> Vec<String> {
        self.index.pages()
    }

    /// How many records are damaged.
    pub(crate) fn damaged(&self) -> u64 {
        self.index.damaged
    }

    /// What was found wrong.
    pub(crate) fn troubles(&self) -> &[ImportProblem] {
        &self.index.troubles
    }

    /// How many responses that were read have another sum than the file says.
    pub(crate) fn wrong_sums(&self) -> u64 {
        self.wrong_sums.load(Ordering::Relaxed)
    }

    /// The response of an address, after redirections.
    fn get(&self, url: &Url, bytes_max: u64) -> Result<FetchedBytes, ResponseError> {
        let place = self.index.find(&index::key(url)).ok_or(ResponseError::NotThere)?;
        let (head, response, block) = self.response(place.body_at)?;
        if let Some(why) = head.truncated {
            return Err(ResponseError::Truncated(why));
        }
        let said = head.payload_digest.as_deref().and_then(PayloadDigest::parse);
        let mut raw = BufReader::new(DigestReader::new(block, said));
        let bytes = response.body(&mut raw, bytes_max)?;
        // The sum is of what came over the wire; crawlers that keep it unwrapped add up that.
        let is_right = match said {
            Some(said) => said.is_of(&bytes) || is_right(raw).map_err(HttpError::Read)?,
            None => true,
        };
        self.wrong_sums.fetch_add(u64::from(!is_right), Ordering::Relaxed);
        let (mut headers, mut date) = (headers(&response), head.date);
        if place.at != place.body_at {
            // Of bytes that came before, what was said last counts.
            let (head, later, _) = self.response(place.at)?;
            (headers, date) = (headers.renewed_by(&self::headers(&later)), head.date);
        }
        let url = Url::parse(&place.url).map_err(|_| ResponseError::NotThere)?;
        let at = humantime::parse_rfc3339(&date).unwrap_or(UNIX_EPOCH).min(SystemTime::now());
        Ok(FetchedBytes { bytes, url, headers, at })
    }

    /// The record there: its header, the head of the response in it, and what follows that.
    fn response(&self, at: u64) -> Result<(RecordHeader, Response, impl Read), ResponseError> {
        let (head, mut from) = self.record(at)?;
        if head.kind == "resource" {
            let fields = vec![("content-type".to_owned(), head.content_type.clone())];
            let rest = Cursor::new(Vec::new()).chain(from.take(head.length));
            return Ok((head, Response { bytes: 0, status: 200, fields }, rest));
        }
        let mut first = Vec::new();
        let room = head.length.min(HEAD_BYTES_MAX as u64);
        let read = from.by_ref().take(room).read_to_end(&mut first);
        read.map_err(|error| ResponseError::Damaged { at, damage: from.damage(error) })?;
        // What came again unchanged may have been kept without what was said of it.
        let response = match Response::parse(&first) {
            Err(_) if head.kind == "revisit" => Response::default(),
            response => response?,
        };
        // The head ends somewhere in these.
        let rest = first.split_off(response.bytes);
        let block = Cursor::new(rest).chain(from.take(head.length - room));
        Ok((head, response, block))
    }

    fn record(&self, at: u64) -> Result<(RecordHeader, RecordReader), ResponseError> {
        let mut from = RecordReader::open(&self.file, at, self.packing);
        let damaged = |damage| ResponseError::Damaged { at, damage };
        let head =
            read_head(&mut from).map_err(damaged)?.ok_or_else(|| damaged(WarcDamage::Ends))?;
        Ok((head, from))
    }
}

impl Fetch for Warc {
    fn fetch(&self, wanted: &FetchRequest<'_>) -> Result<FetchAnswer, FetchError> {
        let failed = |error: ResponseError| match error {
            ResponseError::NotThere => FetchError::NotFound,
            ResponseError::Http(HttpError::TooLarge(bytes_max)) => {
                FetchError::TooLarge { bytes_max }
            }
            error => FetchError::Read(io::Error::new(io::ErrorKind::InvalidData, error)),
        };
        self.get(wanted.url, wanted.bytes_max).map(FetchAnswer::Bytes).map_err(failed)
    }
}

/// What the server said. What it did not want to be kept has been: it is asked for anew whenever it
/// can be.
fn headers(response: &Response) -> Headers {
    let mut headers = Headers::default();
    for (name, value) in &response.fields {
        if name == "cache-control" && value.to_ascii_lowercase().contains("no-store") {
            headers.add(name, "no-cache");
        } else {
            headers.add(name, value);
        }
    }
    headers
}

/// Reads the rest; whether the sum of all is what was said.
fn is_right<R: Read>(mut raw: BufReader<DigestReader<R>>) -> io::Result<bool> {
    io::copy(&mut raw, &mut io::sink())?;
    raw.into_inner().ends_right()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests;
