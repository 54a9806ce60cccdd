//! The HTTP response in a record: its head, and its body with what was wrapped around it for the
//! way taken off.
//!
//! Crawlers keep the response as it came, some keep it unwrapped beside headers that say that it is
//! wrapped: what does not begin as it should is taken as it is. What is unpacked is bounded while
//! it is read; half a body is an error.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

/// Bytes of the head of a response, and fields in it.
pub(crate) const HEAD_BYTES_MAX: usize = 64 << 10;
const FIELDS_MAX: usize = 256;
/// Bytes of the line with the size of a chunk.
const CHUNK_LINE_MAX: u64 = 1 << 10;

/// What is wrong with a response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpError {
    #[error("it is no HTTP response")]
    NoResponse,
    #[error("its head has more than {HEAD_BYTES_MAX} bytes")]
    LongHead,
    #[error("its content is encoded as {0:?}, which is not decoded here")]
    Encoding(String),
    #[error("it has more than {0} bytes")]
    TooLarge(u64),
    #[error("only {found} of {said} bytes of it are there")]
    Half { found: u64, said: u64 },
    #[error("it cannot be read: {0}")]
    Read(#[from] io::Error),
}

/// The head of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Response {
    /// Bytes of the head.
    pub(crate) bytes: usize,
    pub(crate) status: u16,
    /// Names in small letters, in the order in which they came.
    pub(crate) fields: Vec<(String, String)>,
}

impl Response {
    /// Reads the head of a response from its first bytes, of which there are no more than
    /// [`HEAD_BYTES_MAX`].
    ///
    /// # Errors
    /// [`HttpError::NoResponse`], [`HttpError::LongHead`].
    pub(crate) fn parse(first: &[u8]) -> Result<Response, HttpError> {
        // Newer versions of the protocol have no such line; crawlers that write one mean this.
        let newer = first.starts_with(b"HTTP/2") || first.starts_with(b"HTTP/3");
        let line = first.iter().position(|byte| *byte == b' ').filter(|_| newer);
        let renamed = line.map(|end| [b"HTTP/1.1", &first[end..]].concat());
        let shorter = line.map_or(0, |end| 8 - end as isize);
        let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
        let mut response = httparse::Response::new(&mut fields);
        let mut config = httparse::ParserConfig::default();
        config
            .allow_obsolete_multiline_headers_in_responses(true)
            .allow_spaces_after_header_name_in_responses(true)
            .ignore_invalid_headers_in_responses(true);
        let parsed = config.parse_response(&mut response, renamed.as_deref().unwrap_or(first));
        let bytes = match parsed {
            Ok(httparse::Status::Complete(bytes)) => bytes.saturating_add_signed(-shorter),
            Ok(httparse::Status::Partial) if first.len() >= HEAD_BYTES_MAX => {
                return Err(HttpError::LongHead);
            }
            _ => return Err(HttpError::NoResponse),
        };
        let fields = response.headers.iter().map(|field| {
            (
                field.name.to_ascii_lowercase(),
                String::from_utf8_lossy(field.value).trim().to_owned(),
            )
        });
        Ok(Response { bytes, status: response.code.unwrap_or(0), fields: fields.collect() })
    }

    /// The first field of this name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Reads the body from what follows the head. `raw` is what is there, `bytes_max` bounds what
    /// comes of it.
    ///
    /// # Errors
    /// [`HttpError`].
    pub(crate) fn body(&self, raw: impl BufRead, bytes_max: u64) -> Result<Vec<u8>, HttpError> {
        let is_chunked = self
            .field("transfer-encoding")
            .is_some_and(|value| value.to_ascii_lowercase().contains("chunked"));
        let mut raw = raw;
        let mut counted = CountingReader { inner: &mut raw, read: 0 };
        let chunked = is_chunked && begins_as_chunk(counted.inner)?;
        let encoding = self.field("content-encoding").unwrap_or("").trim().to_ascii_lowercase();
        let (body, was_packed) = if chunked {
            unpacked(
                BufReader::new(ChunkedReader {
                    inner: counted.inner,
                    left: 0,
                    is_first: true,
                    is_over: false,
                }),
                &encoding,
                bytes_max,
            )?
        } else {
            unpacked(BufReader::new(&mut counted), &encoding, bytes_max)?
        };
        // What came in chunks has told of its end. A length counts what is packed.
        let said = self.field("content-length").and_then(|value| value.parse::<u64>().ok());
        if let (Some(said), false) = (said, is_chunked) {
            let found = if was_packed { counted.read } else { body.len() as u64 };
            let is_unpacked_already = !was_packed && !matches!(encoding.as_str(), "" | "identity");
            if found < said && !is_unpacked_already {
                return Err(HttpError::Half { found, said });
            }
        }
        Ok(body)
    }
}

/// Takes the content's encoding off; whether there was one.
fn unpacked(
    mut raw: impl BufRead,
    encoding: &str,
    bytes_max: u64,
) -> Result<(Vec<u8>, bool), HttpError> {
    let first = raw.fill_buf()?;
    let [one, two] = [first.first().copied().unwrap_or(0), first.get(1).copied().unwrap_or(0)];
    let is_zlib = one & 15 == 8 && (u16::from(one) * 256 + u16::from(two)).is_multiple_of(31);
    match encoding {
        "gzip" | "x-gzip" if [one, two] == [0x1f, 0x8b] => {
            Ok((bounded(MultiGzDecoder::new(raw), bytes_max)?, true))
        }
        "deflate" if is_zlib => Ok((bounded(ZlibDecoder::new(raw), bytes_max)?, true)),
        // As some servers understood the word.
        "deflate" if !first.is_empty() && !is_text(first) => {
            Ok((bounded(DeflateDecoder::new(raw), bytes_max)?, true))
        }
        "" | "identity" | "gzip" | "x-gzip" | "deflate" => Ok((bounded(raw, bytes_max)?, false)),
        other => Err(HttpError::Encoding(other.chars().take(40).collect())),
    }
}

/// Whether this is no packed content but the text itself.
fn is_text(first: &[u8]) -> bool {
    let first = first.trim_ascii_start();
    first.first().is_some_and(|byte| matches!(byte, b'<' | b'/' | b'@' | b'.' | b'#' | b'*' | b'{'))
}

fn bounded(from: impl Read, bytes_max: u64) -> Result<Vec<u8>, HttpError> {
    let mut body = Vec::new();
    from.take(bytes_max.saturating_add(1)).read_to_end(&mut body)?;
    if body.len() as u64 > bytes_max { Err(HttpError::TooLarge(bytes_max)) } else { Ok(body) }
}

struct CountingReader<R> {
    inner: R,
    read: u64,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(to)?;
        self.read += read as u64;
        Ok(read)
    }
}

/// Whether there is a size of a chunk, and not what the chunks were made to.
fn begins_as_chunk(from: &mut impl BufRead) -> io::Result<bool> {
    let first = from.fill_buf()?;
    let digits = first.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    Ok((1..=16).contains(&digits) && matches!(first.get(digits), Some(b'\r' | b'\n' | b';' | b' ')))
}

/// A body that comes in chunks.
struct ChunkedReader<R> {
    inner: R,
    left: u64,
    is_first: bool,
    is_over: bool,
}

impl<R: BufRead> ChunkedReader<R> {
    fn next(&mut self) -> io::Result<()> {
        let mut line = Vec::new();
        if !self.is_first {
            // The end of the chunk before.
            self.inner.by_ref().take(2).read_until(b'\n', &mut line)?;
        }
        self.is_first = false;
        line.clear();
        self.inner.by_ref().take(CHUNK_LINE_MAX).read_until(b'\n', &mut line)?;
        if !line.ends_with(b"\n") {
            let message = "it ends before its last chunk";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
        }
        let size = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let size = str::from_utf8(size).ok().filter(|size| !size.starts_with('+'));
        let size = size.and_then(|size| u64::from_str_radix(size, 16).ok());
        self.left = size.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidData, "a chunk of it has no size")
        })?;
        self.is_over = self.left == 0;
        Ok(())
    }
}

impl<R: BufRead> Read for ChunkedReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        if self.left == 0 && !self.is_over {
            self.next()?;
        }
        if self.is_over {
            return Ok(0);
        }
        let room = to.len().min(usize::try_from(self.left).unwrap_or(usize::MAX));
        let read = self.inner.read(&mut to[..room])?;
        if read == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it ends within a chunk"));
        }
        self.left -= read as u64;
        Ok(read)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    const TEXT: &[u8] =
        b"<!doctype html><p>a text that is long enough to be packed, packed, packed, packed";

    fn body(head: &str, raw: &[u8]) -> Result<Vec<u8>, HttpError> {
        let all = [head.as_bytes(), b"\r\n\r\n"].concat();
        let response = Response::parse(&all).unwrap();
        assert_eq!((response.bytes, response.status), (all.len(), 200));
        response.body(raw, 1_000)
    }

    fn chunked(bytes: &[u8]) -> Vec<u8> {
        let mut raw = Vec::new();
        for chunk in bytes.chunks(7) {
            raw.extend_from_slice(format!("{:X};name=value\r\n", chunk.len()).as_bytes());
            raw.extend_from_slice(chunk);
            raw.extend_from_slice(b"\r\n");
        }
        raw.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
        raw
    }

    /// Guarantee: pages/warc
    #[test]
    fn what_was_wrapped_for_the_way_is_unwrapped() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(TEXT).unwrap();
        let gzip = gzip.finish().unwrap();
        let mut zlib = ZlibEncoder::new(Vec::new(), Compression::default());
        zlib.write_all(TEXT).unwrap();
        let zlib = zlib.finish().unwrap();
        let mut deflate = DeflateEncoder::new(Vec::new(), Compression::default());
        deflate.write_all(TEXT).unwrap();
        let deflate = deflate.finish().unwrap();
        let length = format!("HTTP/1.1 200 OK\r\nContent-Length: {}", gzip.len());
        for (head, raw) in [
            ("HTTP/1.1 200 OK", TEXT.to_vec()),
            ("HTTP/2 200", TEXT.to_vec()),
            ("HTTP/2.0 200 ", TEXT.to_vec()),
            ("HTTP/1.1 200 OK\r\nfolded: a\r\n b\r\nTransfer-Encoding: chunked", chunked(TEXT)),
            ("HTTP/1.1 200 OK\r\nContent-Encoding: gzip", gzip.clone()),
            (&format!("{length}\r\nContent-Encoding: gzip"), gzip.clone()),
            (
                "HTTP/1.1 200 OK\r\nContent-Encoding: x-gzip\r\nTransfer-Encoding: chunked",
                chunked(&gzip),
            ),
            ("HTTP/1.1 200 OK\r\nContent-Encoding: deflate", zlib),
            ("HTTP/1.1 200 OK\r\nContent-Encoding: deflate", deflate),
            // Kept unwrapped, beside what the server said.
            ("HTTP/1.1 200 OK\r\nContent-Encoding: gzip", TEXT.to_vec()),
            ("HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: 3000", TEXT.to_vec()),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", TEXT.to_vec()),
        ] {
            assert_eq!(body(head, &raw).unwrap(), TEXT, "{head}");
        }
    }

    /// Guarantee: pages/warc
    #[test]
    fn half_a_body_and_one_that_is_too_much_is_an_error() {
        let long = format!("HTTP/1.1 200 OK\r\nContent-Length: {}", TEXT.len() + 1);
        assert!(matches!(body(&long, TEXT), Err(HttpError::Half { .. })));
        let chunks = chunked(TEXT);
        for end in [1, chunks.len() / 2, chunks.len() - 20] {
            let cut = body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", &chunks[..end]);
            assert!(matches!(cut, Err(HttpError::Read(_))) || end == 1, "{end}: {cut:?}");
        }
        let wrong = body("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", b"3\r\nabc\r\nzz\r\n");
        assert!(matches!(wrong, Err(HttpError::Read(_))), "{wrong:?}");
        let mut bomb = GzEncoder::new(Vec::new(), Compression::best());
        bomb.write_all(&vec![b' '; 10 << 20]).unwrap();
        let bomb = bomb.finish().unwrap();
        let packed = "HTTP/1.1 200 OK\r\nContent-Encoding: gzip";
        assert!(matches!(body(packed, &bomb), Err(HttpError::TooLarge(1_000))));
        assert!(matches!(body(packed, &bomb[..bomb.len() / 2]), Err(HttpError::TooLarge(1_000))));
        let brotli = body("HTTP/1.1 200 OK\r\nContent-Encoding: br", TEXT);
        assert!(matches!(&brotli, Err(HttpError::Encoding(name)) if name == "br"), "{brotli:?}");
    }

    #[test]
    fn what_is_no_response_or_has_no_end_is_an_error() {
        for wrong in
            [&b""[..], b"<!doctype html>", b"HTTP/1.1 200 OK\r\nname: value\r\n", b"HTTP/2"]
        {
            assert!(matches!(Response::parse(wrong), Err(HttpError::NoResponse)), "{wrong:?}");
        }
        let mut endless = b"HTTP/1.1 200 OK\r\nx: ".to_vec();
        endless.resize(HEAD_BYTES_MAX, b'a');
        assert!(matches!(Response::parse(&endless), Err(HttpError::LongHead)));
    }
}
