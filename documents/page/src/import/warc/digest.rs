//! The sums that crawlers put beside what they keep: `sha1:` in base 32 as a rule.

use std::io::{self, Read};

use data_encoding::{BASE32_NOPAD, HEXLOWER};
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

/// A sum that a record says its payload has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum PayloadDigest {
    Sha1([u8; 20]),
    Sha256([u8; 32]),
}

impl PayloadDigest {
    /// `ALGORITHM:VALUE`, in base 32 or 16; `None` if it is another one.
    pub(crate) fn parse(text: &str) -> Option<PayloadDigest> {
        let (algorithm, value) = text.split_once(':')?;
        let value = value.trim_end_matches('=');
        let bytes = |count: usize| {
            if value.len() == count * 2 {
                HEXLOWER.decode(value.to_ascii_lowercase().as_bytes()).ok()
            } else {
                BASE32_NOPAD.decode(value.to_ascii_uppercase().as_bytes()).ok()
            }
        };
        match algorithm.to_ascii_lowercase().as_str() {
            "sha1" | "sha-1" => Some(PayloadDigest::Sha1(bytes(20)?.try_into().ok()?)),
            "sha256" | "sha-256" => Some(PayloadDigest::Sha256(bytes(32)?.try_into().ok()?)),
            _ => None,
        }
    }

    fn hasher(self) -> DigestHasher {
        match self {
            PayloadDigest::Sha1(_) => DigestHasher::Sha1(Sha1::new()),
            PayloadDigest::Sha256(_) => DigestHasher::Sha256(Sha256::new()),
        }
    }

    /// Whether these bytes have this sum.
    pub(crate) fn is_of(self, bytes: &[u8]) -> bool {
        let mut hasher = self.hasher();
        hasher.update(bytes);
        hasher.end() == self
    }
}

enum DigestHasher {
    Sha1(Sha1),
    Sha256(Sha256),
}

impl DigestHasher {
    fn update(&mut self, bytes: &[u8]) {
        match self {
            DigestHasher::Sha1(hasher) => hasher.update(bytes),
            DigestHasher::Sha256(hasher) => hasher.update(bytes),
        }
    }

    fn end(self) -> PayloadDigest {
        match self {
            DigestHasher::Sha1(hasher) => PayloadDigest::Sha1(hasher.finalize().into()),
            DigestHasher::Sha256(hasher) => PayloadDigest::Sha256(hasher.finalize().into()),
        }
    }
}

/// Passes bytes on and adds them up.
pub(crate) struct DigestReader<R> {
    inner: R,
    hasher: Option<(PayloadDigest, DigestHasher)>,
}

impl<R: Read> DigestReader<R> {
    pub(crate) fn new(inner: R, said: Option<PayloadDigest>) -> DigestReader<R> {
        DigestReader { inner, hasher: said.map(|said| (said, said.hasher())) }
    }

    /// Reads the rest; whether all of it has the sum that was said.
    pub(crate) fn ends_right(mut self) -> io::Result<bool> {
        io::copy(&mut self, &mut io::sink())?;
        Ok(self.hasher.is_none_or(|(said, hasher)| hasher.end() == said))
    }
}

impl<R: Read> Read for DigestReader<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(to)?;
        if let Some((_, hasher)) = &mut self.hasher {
            hasher.update(&to[..read]);
        }
        Ok(read)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// WARC digests are parsed in base 32 and base 16; other forms are ignored.
    #[test]
    fn digests_parse_base_32_and_16() {
        // The sum of nothing, as the standard's examples write it.
        let empty = PayloadDigest::parse("sha1:3I42H3S6NNFQ2MSVX7XZKYAYSCX5QBYJ").unwrap();
        assert!(empty.is_of(b"") && !empty.is_of(b"a"));
        assert_eq!(
            PayloadDigest::parse("SHA1:da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            Some(empty)
        );
        let long = "sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855";
        assert!(PayloadDigest::parse(long).unwrap().is_of(b""));
        for other in
            ["md5:d41d8cd98f00b204e9800998ecf8427e", "sha1:", "sha1", "sha1:3I42", "sha1:\u{e9}"]
        {
            assert_eq!(PayloadDigest::parse(other), None, "{other}");
        }
    }
}
