//! The modes that tests and benchmarks use: `--verify` and `--bench-lookups`.

use std::hint::black_box;
use std::time::{Duration, Instant};

use crate::arena::Arena;
use crate::dictionary::Query;
use crate::error::SpellError;
use crate::source::Source;
use crate::speller::Speller;
use crate::table::Table;
use crate::text::{compounds, folded};

/// Missing words that are printed; the others are only counted.
const MISSING_SHOWN: u64 = 20;

/// Looks up the first words of each dictionary, as many as `counts` says (lines `[ack] ROOT
/// WORDS_DONE`; the highest count of a root holds). Returns what to print and whether no word is
/// missing.
///
/// # Errors
/// A line that is no count, a root without a dictionary file, a file that cannot be read.
pub fn verify<A: Arena>(
    arena: &A,
    sources: &[Source],
    counts: &str,
) -> Result<(String, bool), SpellError> {
    let mut wanted = vec![0_u64; sources.len()];
    for line in counts.lines().filter(|line| !line.trim().is_empty()) {
        let mut fields = line.strip_prefix("ack ").unwrap_or(line).split_whitespace();
        let (Some(root), Some(count), None) = (fields.next(), fields.next(), fields.next()) else {
            return Err(SpellError::usage(["not a line ROOT WORDS_DONE: ", line].concat()));
        };
        let index = sources.iter().position(|source| source.root == root);
        match (index, count.parse::<u64>()) {
            (Some(index), Ok(count)) => wanted[index] = wanted[index].max(count),
            (None, _) => {
                return Err(SpellError::usage(["--dict has no file for the root ", root].concat()));
            }
            (_, Err(_)) => {
                return Err(SpellError::usage(["not a number of words: ", count].concat()));
            }
        }
    }
    let (mut verified, mut missing, mut out) = (0, 0, String::new());
    for (source, count) in sources.iter().zip(wanted).filter(|(_, count)| *count > 0) {
        let table = Table::open(arena, &source.root)?;
        let dictionary = table.as_ref().map(|table| table.dictionary(arena));
        let mut words = source.words(0)?;
        for _ in 0..count {
            let failed = |error| SpellError::Read { path: source.path.clone(), source: error };
            let Some(word) = words.next_word().map_err(failed)? else {
                return Err(SpellError::SourceChanged { path: source.path.clone() });
            };
            if dictionary.is_some_and(|dictionary| dictionary.contains(Query::new(word))) {
                verified += 1;
                continue;
            }
            missing += 1;
            if missing <= MISSING_SHOWN {
                out +=
                    &["missing ", &source.root, " ", &String::from_utf8_lossy(word), "\n"].concat();
            }
        }
    }
    if missing > MISSING_SHOWN {
        out += &["missing ", &missing.to_string(), " words in all\n"].concat();
    } else if missing == 0 {
        out = ["verified ", &verified.to_string(), "\n"].concat();
    }
    Ok((out, missing == 0))
}

/// Times `count` look-ups of words of the text and as many of words that are in no table, all
/// together. The order depends on the text and the tables' words only, not on where they lie.
///
/// # Errors
/// A text without words that some table has.
pub fn bench_lookups(
    speller: &Speller<'_>,
    name: &str,
    text: &[u8],
    count: u32,
) -> Result<Duration, SpellError> {
    let words: Vec<Vec<u8>> = compounds(text)
        .map(|compound| folded(&String::from_utf8_lossy(&text[compound.range()])).into_bytes())
        .filter(|word| speller.contains(word))
        .take(count as usize)
        .collect();
    if words.is_empty() {
        return Err(SpellError::NoWords { path: name.to_owned() });
    }
    let mut random = Random(0x9E37_79B9_7F4A_7C15);
    let mut queries: Vec<Vec<u8>> =
        words.iter().map(|word| missing_word(speller, word, &mut random)).collect();
    queries.extend(words);
    for index in (1..queries.len()).rev() {
        queries.swap(index, random.below(index + 1));
    }
    // Once, not timed; the count of hits is known from it.
    let hits = |rounds: u32| {
        let mut hits = 0_u32;
        for query in queries.iter().cycle().take(rounds as usize) {
            hits += u32::from(speller.contains(black_box(query)));
        }
        hits
    };
    black_box(hits(queries.len() as u32));
    let rounds = count.saturating_mul(2);
    let started = Instant::now();
    black_box(hits(rounds));
    Ok(started.elapsed())
}

/// The word with letters replaced until no table has it.
fn missing_word(speller: &Speller<'_>, word: &[u8], random: &mut Random) -> Vec<u8> {
    let mut missing = word.to_vec();
    while speller.contains(&missing) {
        let at = random.below(missing.len());
        missing[at] = b'a' + random.below(26) as u8;
        if random.below(4) == 0 {
            missing.push(b'q');
        }
    }
    missing
}

/// A linear congruential generator (Knuth's constants): the same order in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % limit as u64) as usize
    }
}
