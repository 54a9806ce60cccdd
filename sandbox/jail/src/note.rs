//! The notes in a program's file: what its author, or its linker, says of it before it runs.
//!
//! Invariants: nothing of it is believed, or decides what the program may do; what is longer than any note in good faith
//! is passed over, so that looking costs little whatever the file says.

#![forbid(unsafe_code)]

use std::path::Path;

use crate::error::JailError;
use crate::program::Program;

/// Bytes of one segment of notes that are looked at.
pub(crate) const SEGMENT_BYTES_MAX: u64 = 64 << 10;
/// Notes that are looked at.
const NOTES_MAX: usize = 256;
const HEAD_BYTES: usize = 12;

/// One note of an ELF program.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Note {
    /// Who defines what it means, without the NUL at the end.
    pub owner: Vec<u8>,
    /// What it is, among the notes of this owner.
    pub kind: u32,
    /// What it says.
    pub content: Vec<u8>,
}

/// The notes of a program's file, in its order. What is broken ends them.
///
/// # Errors
/// Those of a file that is no native program.
pub fn notes(path: &Path) -> Result<Vec<Note>, JailError> {
    let mut found = Vec::new();
    for (bytes, alignment) in Program::open(path)?.note_segments() {
        parse(&bytes, alignment, &mut found);
    }
    Ok(found)
}

/// System V Application Binary Interface, "Note Section"; an alignment of 8 is that of newer linkers' properties.
fn parse(mut bytes: &[u8], alignment: usize, found: &mut Vec<Note>) {
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD_BYTES>()
        && found.len() < NOTES_MAX
    {
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let (owner_bytes, content_bytes) = (word(0) as usize, word(4) as usize);
        let content_at = (HEAD_BYTES + owner_bytes).next_multiple_of(alignment) - HEAD_BYTES;
        let (Some(owner), Some(content)) = (
            rest.get(..owner_bytes),
            content_at.checked_add(content_bytes).and_then(|end| rest.get(content_at..end)),
        ) else {
            return;
        };
        let owner = owner.strip_suffix(b"\0").unwrap_or(owner).to_vec();
        found.push(Note { owner, kind: word(8), content: content.to_vec() });
        let end = (HEAD_BYTES + content_at + content_bytes).next_multiple_of(alignment) - HEAD_BYTES;
        bytes = rest.get(end..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &[u8], kind: u32, content: &[u8], alignment: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            [owner.len() as u32, content.len() as u32, kind].into_iter().flat_map(u32::to_le_bytes).collect();
        for part in [owner, content] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(alignment), 0);
        }
        bytes
    }

    fn parsed(bytes: &[u8], alignment: usize) -> Vec<(Vec<u8>, u32, Vec<u8>)> {
        let mut found = Vec::new();
        parse(bytes, alignment, &mut found);
        found.into_iter().map(|note| (note.owner, note.kind, note.content)).collect()
    }

    #[test]
    fn notes_are_found_one_after_the_other_in_either_alignment() {
        for alignment in [4, 8] {
            let mut bytes = note(b"GNU\0", 3, b"twenty bytes of hash", alignment);
            bytes.extend(note(b"", 9, b"", alignment));
            bytes.extend(note(b"Holdfast\0", 1, &[1, 0, 0, 0], alignment));
            let expected = [
                (b"GNU".to_vec(), 3, b"twenty bytes of hash".to_vec()),
                (Vec::new(), 9, Vec::new()),
                (b"Holdfast".to_vec(), 1, vec![1, 0, 0, 0]),
            ];
            assert_eq!(parsed(&bytes, alignment), expected);
        }
    }

    #[test]
    fn what_is_broken_ends_the_notes_and_nothing_else() {
        let whole = note(b"GNU\0", 3, b"content", 4);
        for cut in 0..whole.len() - 1 {
            assert_eq!(parsed(&whole[..cut], 4), [], "{cut}");
        }
        for lie in [u32::MAX, u32::MAX - 11, 1 << 31, 5000] {
            for at in [0, 4] {
                let mut bytes = whole.clone();
                bytes[at..at + 4].copy_from_slice(&lie.to_le_bytes());
                assert_eq!(parsed(&bytes, 4), [], "{lie:#x} at {at}");
            }
        }
        assert_eq!(parsed(&vec![0; SEGMENT_BYTES_MAX as usize], 4).len(), NOTES_MAX);
    }

    #[test]
    fn every_program_of_this_machines_linker_has_notes_and_a_text_has_none() {
        let own = notes(&std::env::current_exe().unwrap()).unwrap();
        assert!(own.iter().any(|note| note.owner == b"GNU"), "{own:?}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), b"no program").unwrap();
        assert!(matches!(notes(file.path()), Err(JailError::NotNative { .. })));
    }
}
