//! One record of a WARC file: where it begins, what its header says, and its block as a stream.
//!
//! Files are read by position, never through a common cursor: any number of threads read one file.
//! A file is either plain, or each of its records is a gzip member of its own.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use flate2::bufread::GzDecoder;

/// Bytes of a record's header; those that are written have a thousand.
const HEAD_BYTES_MAX: u64 = 64 << 10;
/// Bytes of an address.
pub(crate) const URL_BYTES_MAX: usize = 8 << 10;
/// How a gzip member begins.
pub(crate) const GZIP: [u8; 3] = [0x1f, 0x8b, 8];

/// What is wrong with a record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WarcDamage {
    #[error("the file cannot be read: {0}")]
    Read(#[source] io::Error),
    #[error("the file ends in the middle of it")]
    Ends,
    #[error("it does not begin as a record of WARC 1.0 or 1.1 does")]
    NoRecord,
    #[error("its header {0}")]
    Head(&'static str),
    #[error("its length is wrong: no record follows where it says that it ends")]
    Length,
    #[error("it is unpacked to more than {0} bytes")]
    Large(u64),
    #[error("it cannot be unpacked: {0}")]
    Gzip(#[source] io::Error),
    #[error("its address {0}")]
    Address(&'static str),
}

/// A file, from a place on.
#[derive(Debug)]
pub(crate) struct WarcReader {
    file: Arc<File>,
    at: u64,
}

impl WarcReader {
    pub(crate) fn new(file: &Arc<File>, at: u64) -> WarcReader {
        WarcReader { file: Arc::clone(file), at }
    }
}

impl Read for WarcReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(to, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// How the records of a file are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    Plain,
    Gzip,
}

/// The bytes of a record, unpacked.
#[derive(Debug)]
pub(crate) enum RecordReader {
    Plain(BufReader<WarcReader>),
    Gzip(BufReader<GzDecoder<BufReader<WarcReader>>>),
}

impl RecordReader {
    pub(crate) fn open(file: &Arc<File>, at: u64, packing: Compression) -> RecordReader {
        let raw = BufReader::with_capacity(64 << 10, WarcReader::new(file, at));
        match packing {
            Compression::Plain => RecordReader::Plain(raw),
            Compression::Gzip => {
                RecordReader::Gzip(BufReader::with_capacity(32 << 10, GzDecoder::new(raw)))
            }
        }
    }

    /// Where in the file what was read so far ends. Of a gzip member that is so at its end only.
    pub(crate) fn position(&self) -> u64 {
        let raw = match self {
            RecordReader::Plain(raw) => raw,
            RecordReader::Gzip(unpacked) => unpacked.get_ref().get_ref(),
        };
        raw.get_ref().at - raw.buffer().len() as u64
    }

    /// What reading failed of.
    pub(crate) fn damage(&self, error: io::Error) -> WarcDamage {
        match (self, error.kind()) {
            (_, io::ErrorKind::UnexpectedEof) => WarcDamage::Ends,
            (RecordReader::Gzip(_), io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData) => {
                WarcDamage::Gzip(error)
            }
            _ => WarcDamage::Read(error),
        }
    }
}

impl Read for RecordReader {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self {
            RecordReader::Plain(reader) => reader.read(to),
            RecordReader::Gzip(reader) => reader.read(to),
        }
    }
}

impl BufRead for RecordReader {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        match self {
            RecordReader::Plain(reader) => reader.fill_buf(),
            RecordReader::Gzip(reader) => reader.fill_buf(),
        }
    }

    fn consume(&mut self, bytes: usize) {
        match self {
            RecordReader::Plain(reader) => reader.consume(bytes),
            RecordReader::Gzip(reader) => reader.consume(bytes),
        }
    }
}

/// What the header of a record says, as far as an import asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Bytes of the header itself, with its last empty line.
    pub(crate) bytes: u64,
    pub(crate) kind: String,
    /// Bytes of the block.
    pub(crate) length: u64,
    pub(crate) url: Option<String>,
    pub(crate) date: String,
    pub(crate) content_type: String,
    pub(crate) payload_digest: Option<String>,
    /// Why the crawler has not all of it.
    pub(crate) truncated: Option<String>,
    /// It is a piece of a record that goes on elsewhere.
    pub(crate) is_segment: bool,
    pub(crate) refers_to_url: Option<String>,
}

/// Reads the header of a record; `None` where the file ends in order.
///
/// # Errors
/// [`WarcDamage`].
pub(crate) fn read_head(from: &mut RecordReader) -> Result<Option<RecordHeader>, WarcDamage> {
    let mut left = HEAD_BYTES_MAX;
    let mut line = Vec::new();
    if !next_line(from, &mut left, &mut line)? {
        return Ok(None);
    }
    let version = line.trim_ascii_end();
    if version != b"WARC/1.0" && version != b"WARC/1.1" {
        return Err(WarcDamage::NoRecord);
    }
    let mut head = RecordHeader::default();
    let mut length = None;
    let mut name = String::new();
    let mut value = String::new();
    loop {
        if !next_line(from, &mut left, &mut line)? {
            return Err(WarcDamage::Ends);
        }
        let text = String::from_utf8_lossy(line.trim_ascii_end());
        if text.starts_with([' ', '\t']) {
            // A field goes on.
            value.push(' ');
            value.push_str(text.trim());
            continue;
        }
        if !name.is_empty() {
            set(&mut head, &mut length, &name, &value)?;
        }
        if text.is_empty() {
            break;
        }
        let (field, said) =
            text.split_once(':').ok_or(WarcDamage::Head("has a line that is no field"))?;
        (name, value) = (field.trim().to_ascii_lowercase(), said.trim().to_owned());
    }
    head.length = length.ok_or(WarcDamage::Head("does not say how long it is"))?;
    head.bytes = HEAD_BYTES_MAX - left;
    Ok(Some(head))
}

fn set(
    head: &mut RecordHeader,
    length: &mut Option<u64>,
    name: &str,
    value: &str,
) -> Result<(), WarcDamage> {
    let address = |value: &str| {
        // As older versions of wget write it.
        let bare =
            value.strip_prefix('<').and_then(|value| value.strip_suffix('>')).unwrap_or(value);
        if bare.len() > URL_BYTES_MAX {
            return Err(WarcDamage::Address("is too long"));
        }
        if bare.contains(char::is_control) {
            return Err(WarcDamage::Address("has control characters"));
        }
        Ok(Some(bare.to_owned()))
    };
    match name {
        "content-length" => {
            let wrong = WarcDamage::Head("has a length that is no number");
            let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
            let said = digits.then(|| value.parse().ok()).flatten().ok_or(wrong)?;
            if length.replace(said).is_some_and(|before| before != said) {
                return Err(WarcDamage::Head("has two lengths"));
            }
        }
        "warc-type" => head.kind = value.to_ascii_lowercase(),
        "warc-target-uri" => head.url = address(value)?,
        "warc-refers-to-target-uri" => head.refers_to_url = address(value)?,
        "warc-date" => head.date = value.chars().take(40).collect(),
        "content-type" => head.content_type = value.to_ascii_lowercase(),
        "warc-payload-digest" => head.payload_digest = Some(value.chars().take(200).collect()),
        "warc-truncated" => head.truncated = Some(value.chars().take(40).collect()),
        "warc-segment-number" => head.is_segment = true,
        _ => {}
    }
    Ok(())
}

/// Reads a line with its end; `false` where nothing is left.
fn next_line(
    from: &mut RecordReader,
    left: &mut u64,
    line: &mut Vec<u8>,
) -> Result<bool, WarcDamage> {
    line.clear();
    let read =
        from.by_ref().take(*left).read_until(b'\n', line).map_err(|error| from.damage(error))?;
    *left -= read as u64;
    if line.ends_with(b"\n") {
        return Ok(true);
    }
    if *left == 0 {
        return Err(WarcDamage::Head("has no end"));
    }
    if read == 0 { Ok(false) } else { Err(WarcDamage::Ends) }
}
