//! The output file of the compiler's process: compiled code, or why there is none; and a trailer
//! that tells a whole report from one that was broken off.
//!
//! Invariants: nothing is believed that the trailer's checksum does not cover. Code is not read
//! here, but for its checksum, in pieces. A refusal is bounded, and its fields are text from a
//! process that hostile bytes may have taken over.
#![forbid(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::stages::Refusal;
use crate::cache;
use crate::complexity::Excess;

/// Ends a whole report, with a version.
const MAGIC: &[u8; 8] = b"HFSTRPT1";
/// The magic, the kind, bytes of the payload, and their XXH3-64 seeded by the kind.
const TRAILER_BYTES: usize = 32;
/// The longest refusal.
const REFUSAL_BYTES_MAX: u64 = 64 << 10;

const CODE: u64 = 1;
const INVALID: u64 = 2;
const TOO_COMPLEX: u64 = 3;
const NO_MEMORY: u64 = 4;
const NOT_CONFINED: u64 = 5;

/// A whole report.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Report {
    /// The file starts with so many bytes of compiled code.
    Code {
        /// Their number.
        bytes: u64,
    },
    /// There is none.
    Refused(Refusal),
}

/// Writes a report to an empty file.
pub(crate) fn write(file: &File, outcome: &Result<Vec<u8>, Refusal>) -> io::Result<()> {
    let written;
    let (kind, payload) = match outcome {
        Ok(code) => (CODE, code.as_slice()),
        Err(refusal) => {
            let (kind, text) = to_text(refusal);
            written = text;
            (kind, written.as_bytes())
        }
    };
    let mut trailer = [0; TRAILER_BYTES];
    trailer[..8].copy_from_slice(MAGIC);
    trailer[8..16].copy_from_slice(&kind.to_le_bytes());
    trailer[16..24].copy_from_slice(&(payload.len() as u64).to_le_bytes());
    trailer[24..]
        .copy_from_slice(&xxhash_rust::xxh3::xxh3_64_with_seed(payload, kind).to_le_bytes());
    file.write_all_at(payload, 0)?;
    file.write_all_at(&trailer, payload.len() as u64)
}

/// Reads the report in a file that nothing writes to any more; `None` when it is not whole.
pub(crate) fn read(file: &File) -> io::Result<Option<Report>> {
    let Some(bytes) = file.metadata()?.len().checked_sub(TRAILER_BYTES as u64) else {
        return Ok(None);
    };
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact_at(&mut trailer, bytes)?;
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&trailer[at..at + 8]);
        u64::from_le_bytes(word)
    };
    let kind = word(8);
    if trailer[..8] != *MAGIC || word(16) != bytes || word(24) != cache::sum_of(file, bytes, kind)?
    {
        return Ok(None);
    }
    if kind == CODE {
        return Ok(Some(Report::Code { bytes }));
    }
    if bytes > REFUSAL_BYTES_MAX {
        return Ok(None);
    }
    let mut text = vec![0; bytes as usize];
    file.read_exact_at(&mut text, 0)?;
    Ok(from_text(kind, &String::from_utf8_lossy(&text)).map(Report::Refused))
}

fn to_text(refusal: &Refusal) -> (u64, String) {
    match refusal {
        Refusal::Invalid(reason) => (INVALID, reason.clone()),
        Refusal::NoMemory => (NO_MEMORY, String::new()),
        Refusal::NotConfined(reason) => (NOT_CONFINED, reason.clone()),
        Refusal::TooComplex(Excess { function, what, found, limit }) => {
            let (index, name) = match function {
                Some((index, name)) => (index.to_string(), name.as_deref().unwrap_or("")),
                None => (String::new(), ""),
            };
            (TOO_COMPLEX, format!("{found}\n{limit}\n{index}\n{what}\n{name}"))
        }
    }
}

fn from_text(kind: u64, text: &str) -> Option<Refusal> {
    match kind {
        INVALID => Some(Refusal::Invalid(text.to_owned())),
        NO_MEMORY => Some(Refusal::NoMemory),
        NOT_CONFINED => Some(Refusal::NotConfined(text.to_owned())),
        TOO_COMPLEX => {
            let mut fields = text.splitn(5, '\n');
            let found = fields.next()?.parse().ok()?;
            let limit = fields.next()?.parse().ok()?;
            let index = fields.next()?;
            let (what, name) = (fields.next()?.to_owned(), fields.next()?);
            let function = match index {
                "" => None,
                index => Some((index.parse().ok()?, (!name.is_empty()).then(|| name.to_owned()))),
            };
            Some(Refusal::TooComplex(Excess { function, what, found, limit }))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> File {
        tempfile::tempfile().unwrap()
    }

    #[test]
    fn reports_are_read_as_they_were_written() {
        let excess = |function| Excess { function, what: "loops".to_owned(), found: 9, limit: 8 };
        for refusal in [
            Refusal::Invalid("line 1\nline 2".to_owned()),
            Refusal::NoMemory,
            Refusal::NotConfined("EPERM".to_owned()),
            Refusal::TooComplex(excess(None)),
            Refusal::TooComplex(excess(Some((3, None)))),
            Refusal::TooComplex(excess(Some((3, Some("f\ng".to_owned()))))),
        ] {
            let file = file();
            let outcome = Err(refusal);
            write(&file, &outcome).unwrap();
            assert_eq!(
                read(&file).unwrap().map(|report| match report {
                    Report::Refused(refusal) => Err(refusal),
                    Report::Code { .. } => Ok(Vec::new()),
                }),
                Some(outcome)
            );
        }
        let file = file();
        write(&file, &Ok(vec![7; 100_000])).unwrap();
        assert_eq!(read(&file).unwrap(), Some(Report::Code { bytes: 100_000 }));
    }

    /// Guarantee: sandbox/compile-cache
    #[test]
    fn a_report_that_is_not_whole_is_none() {
        let whole = file();
        write(&whole, &Ok(vec![7; 1000])).unwrap();
        let bytes = whole.metadata().unwrap().len();
        for cut in [0, 1, 31, 500, bytes - 1] {
            let file = file();
            let mut part = vec![0; cut as usize];
            whole.read_exact_at(&mut part, 0).unwrap();
            file.write_all_at(&part, 0).unwrap();
            assert_eq!(read(&file).unwrap(), None, "{cut}");
        }
        for flipped in [0, 999, 1000, 1008, 1016, 1024, bytes - 1] {
            let mut byte = [0];
            whole.read_exact_at(&mut byte, flipped).unwrap();
            whole.write_all_at(&[byte[0] ^ 1], flipped).unwrap();
            assert_eq!(read(&whole).unwrap(), None, "{flipped}");
            whole.write_all_at(&byte, flipped).unwrap();
        }
        assert!(read(&whole).unwrap().is_some());
    }
}
