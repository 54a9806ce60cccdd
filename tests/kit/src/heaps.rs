//! Is a heap sound? As `holdfast heap check` asks, but in this process, where a thousand checks
//! cost little.

use std::io;

use holdfast_heap::{OpenError, Opened, inspect};
use holdfast_region::{ErrorKind, NameSpace, RegionName};

/// What a check found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Soundness {
    /// The heap was not made yet.
    Missing,
    /// Made, and nothing in it.
    Empty,
    /// Everything fits.
    Sound {
        /// A killed program had left a transaction open.
        open_transaction: bool,
        /// Allocated objects.
        objects: u64,
    },
}

/// Checks a heap and changes nothing.
///
/// # Errors
/// When it cannot be read, or contradicts itself; the text has the contradictions.
pub fn heap_soundness(names: &NameSpace, heap: &str) -> io::Result<Soundness> {
    let name = RegionName::parse_any(heap).map_err(io::Error::other)?;
    let reader = match names.open_read(&name) {
        Ok(reader) => reader,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Soundness::Missing),
        Err(error) => return Err(io::Error::other(error)),
    };
    let words = reader.bytes().chunks_exact(8);
    let mut copy: Vec<u64> =
        words.map(|word| word.try_into().map_or(0, u64::from_le_bytes)).collect();
    let mut findings = Vec::new();
    match inspect(&mut copy, &mut |finding| findings.push(finding), &mut |_, _| {}) {
        Ok(seen) if seen.report.is_sound() => Ok(Soundness::Sound {
            open_transaction: seen.opened == Opened::Recovered,
            objects: seen.report.objects,
        }),
        Ok(_) => Err(io::Error::other(format!("the heap {heap} is damaged: {findings:#x?}"))),
        Err(OpenError::Empty) => Ok(Soundness::Empty),
        Err(error) => Err(io::Error::other(format!("the heap {heap} cannot be opened: {error}"))),
    }
}
