//! `compress`: the paper's cache of a browser, compressed with Snappy: each file is loaded as a
//! whole, compressed, and written to a file of its own. Where objects are memory, they are read and
//! made where they are.

use std::time::{Duration, Instant};

use snap::raw::{Decoder, Encoder, max_compress_len};

use crate::error::ProgramError;
use crate::storage::{Reader, Storage, Writer};

/// The name of a file of the cache.
#[must_use]
pub fn input(number: u64) -> String {
    format!("file-{number:04}")
}

/// That of the compressed one.
#[must_use]
pub fn output(number: u64) -> String {
    format!("snappy-{number:04}")
}

/// What the outputs are and took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Of all outputs.
    pub bytes: u64,
    /// In Snappy: the time that the program takes whatever its storage is.
    pub encoding: Duration,
}

/// Compresses so many files, from number 0 on.
///
/// # Errors
/// Of the storage; [`ProgramError::Input`] for a file that Snappy cannot take.
pub fn run<S: Storage>(storage: &mut S, count: u64) -> Result<Report, ProgramError> {
    let (mut encoder, mut scratch, mut report) = (Encoder::new(), Vec::new(), Report::default());
    for number in 0..count {
        let name = input(number);
        let too_large = || ProgramError::Input {
            name: name.clone(),
            line: 1,
            complaint: "a file has at most 4 GiB less 1 byte",
        };
        let mut reader = storage.open(&name)?;
        let bytes = reader.rest()?;
        let room = max_compress_len(bytes.len());
        // Before there is an object for it. Snappy's answer for what it cannot take is 0.
        if room == 0 {
            return Err(too_large());
        }
        let mut writer = storage.create(&output(number), room as u64)?;
        writer.write_made(room, &mut scratch, |space| {
            let started = Instant::now();
            let length = encoder.compress(bytes, space).map_err(|_| too_large());
            report.encoding += started.elapsed();
            length
        })?;
        report.bytes += storage.finish(writer)?;
    }
    Ok(report)
}

/// Decompresses the outputs and compares them with the inputs. Returns the bytes of all inputs.
///
/// # Errors
/// Of the storage; [`ProgramError::Input`] for an output that is not what its input becomes.
pub fn verify<S: Storage>(storage: &mut S, count: u64) -> Result<u64, ProgramError> {
    let mut all_bytes = 0;
    for number in 0..count {
        let name = output(number);
        let content = Decoder::new().decompress_vec(storage.open(&name)?.rest()?).ok();
        let mut reader = storage.open(&input(number))?;
        let expected = reader.rest()?;
        if content.as_deref() != Some(expected) {
            let complaint = "is not the compressed input; compress it again";
            return Err(ProgramError::Input { name, line: 1, complaint });
        }
        all_bytes += expected.len() as u64;
    }
    Ok(all_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::volatile::Volatile;

    fn storage() -> Volatile {
        let mut storage = Volatile::default();
        storage.put(&input(0), b"holdfast ".repeat(5_000));
        storage.put(&input(1), Vec::new());
        storage.put(&input(2), (0..=255).collect());
        storage
    }

    #[test]
    fn files_are_compressed_and_come_back() {
        let mut storage = storage();
        let bytes = run(&mut storage, 3).unwrap().bytes;
        assert!((256..3_000).contains(&bytes), "{bytes}");
        // Snappy's format says: an empty stream is its length, 0, in one byte.
        assert_eq!(storage.open(&output(1)).unwrap().rest().unwrap(), [0]);
        assert_eq!(verify(&mut storage, 3).unwrap(), 45_256);
    }

    #[test]
    fn another_output_is_found() {
        let mut storage = storage();
        run(&mut storage, 3).unwrap();
        storage.put(&output(2), vec![1, 2, 3]);
        let complaint = verify(&mut storage, 3).unwrap_err().to_string();
        assert!(complaint.starts_with("snappy-0002, line 1: is not the compressed input"));
        assert!(run(&mut storage, 4).unwrap_err().to_string().contains("file-0003"));
    }
}
