//! `reverse-complement`: reads a FASTA file line by line and writes each sequence's id and
//! description and its reverse complement, in lines of 60 characters. The definition is that of the
//! Computer Language Benchmarks Game.

use crate::error::ProgramError;
use crate::fasta::LINE;
use crate::storage::{Reader, Storage, Writer};

/// What each character becomes; 0 for those that are none of a sequence.
const COMPLEMENT: [u8; 256] = {
    let mut table = [0; 256];
    let (codes, complements) = (b"ABCDGHKMNRSTUVWY", b"TVGHCDMKNYSAABWR");
    let mut index = 0;
    while index < codes.len() {
        table[codes[index] as usize] = complements[index];
        table[codes[index].to_ascii_lowercase() as usize] = complements[index];
        index += 1;
    }
    table
};

/// Reads the object `input` and writes `output`.
///
/// # Errors
/// Of the storage; [`ProgramError::Input`] when the input is no FASTA file.
pub fn run<S: Storage>(storage: &mut S, input: &str, output: &str) -> Result<u64, ProgramError> {
    let mut reader = storage.open(input)?;
    // Lines may be longer in the input than in the output.
    let capacity_bytes = reader.size_bytes() + reader.size_bytes() / LINE as u64 + 2;
    let mut writer = storage.create(output, capacity_bytes)?;
    let mut sequence = Vec::new();
    let (mut has_id, mut number) = (false, 0);
    while let Some(line) = reader.line()? {
        number += 1;
        let wrong =
            |complaint| ProgramError::Input { name: input.to_owned(), line: number, complaint };
        if line.first() == Some(&b'>') {
            reversed(&mut writer, &mut sequence)?;
            writer.write(&[line, b"\n"].concat())?;
            has_id = true;
        } else if !has_id {
            return Err(wrong("the first line of a FASTA file begins with `>`"));
        } else {
            let known = sequence.len();
            sequence.extend(line.iter().map(|character| COMPLEMENT[usize::from(*character)]));
            if memchr::memchr(0, &sequence[known..]).is_some() {
                return Err(wrong("a sequence has the letters ABCDGHKMNRSTUVWY only"));
            }
        }
    }
    reversed(&mut writer, &mut sequence)?;
    drop(reader);
    storage.finish(writer)
}

/// Writes the complements backwards, and forgets them.
fn reversed(writer: &mut impl Writer, sequence: &mut Vec<u8>) -> Result<(), ProgramError> {
    let mut line = [b'\n'; LINE + 1];
    for piece in sequence.rchunks(LINE) {
        for (to, from) in line.iter_mut().zip(piece.iter().rev()) {
            *to = *from;
        }
        line[piece.len()] = b'\n';
        writer.write(&line[..=piece.len()])?;
    }
    sequence.clear();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::volatile::Volatile;

    fn output(input: &[u8]) -> Result<String, ProgramError> {
        let mut storage = Volatile::default();
        storage.put("in", input.to_vec());
        run(&mut storage, "in", "out")?;
        let content = storage.open("out")?.rest()?.to_vec();
        Ok(String::from_utf8_lossy(&content).into_owned())
    }

    /// All codes, small letters, several sequences, one without characters.
    #[test]
    fn sequences_are_reversed_and_complemented() {
        let input = b">one all codes\nABCDGHKMNRSTUVWY\n>two\n>three small\nacgt\nn\n";
        let expected = ">one all codes\nRWBAASYNKMDCHGVT\n>two\n>three small\nNACGT\n";
        assert_eq!(output(input).unwrap(), expected);
        // The same without the last line's end.
        assert_eq!(output(&input[..input.len() - 1]).unwrap(), expected);
        assert_eq!(output(b"").unwrap(), "");
    }

    #[test]
    fn lines_of_any_length_become_lines_of_60() {
        let input = [b">x\n", &[b'A'; 61][..], b"\n", &[b'C'; 60][..], b"\n"].concat();
        let expected = format!(">x\n{}\n{}\nT\n", "G".repeat(60), "T".repeat(60));
        assert_eq!(output(&input).unwrap(), expected);
        let ones = format!(">x\n{}", "A\n".repeat(125));
        let expected = format!(">x\n{0}\n{0}\nTTTTT\n", "T".repeat(60));
        assert_eq!(output(ones.as_bytes()).unwrap(), expected);
    }

    #[test]
    fn other_input_is_refused_with_its_line() {
        let complaint = output(b">x\nACGT\nAC!T\n").unwrap_err().to_string();
        assert_eq!(complaint, "in, line 3: a sequence has the letters ABCDGHKMNRSTUVWY only");
        let complaint = output(b"ACGT\n").unwrap_err().to_string();
        assert_eq!(complaint, "in, line 1: the first line of a FASTA file begins with `>`");
    }
}
