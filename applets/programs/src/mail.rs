//! `mail`: an offline classifier of mail by Bayes' rule, as the paper's: what it learnt is either
//! parsed from the learning texts on every start (line by line, into tokens and counts), or a
//! structure that lies in the storage as it is used.
//!
//! A text has one mail after the other; a line with nothing but a form feed ends each. Words are runs
//! of 3 to 40 ASCII letters and digits, without regard to case; a word counts once in each mail.
//!
//! The structure is bytes without addresses: a header, a hash table with open addressing, the words.
//! Nothing in it is believed: a damaged one is an error or finds no word.

use std::collections::{HashMap, HashSet};

use xxhash_rust::xxh3::xxh3_64;

use crate::error::ProgramError;
use crate::storage::{Reader, Storage, Writer};

/// As many as the paper has.
pub const CATEGORIES: usize = 10;
/// The structure.
pub const MODEL: &str = "model";
/// The mails that are to be classified.
pub const NEW: &str = "new";

const END: &[u8] = b"\x0c";
const WORD_BYTES: std::ops::RangeInclusive<usize> = 3..=40;
const MAGIC: &[u8; 8] = b"HFMAIL01";
/// Magic, the number of slots, and how many mails each category has.
const HEADER_BYTES: usize = 16 + 4 * CATEGORIES;
/// Where the word is, and in how many mails of each category.
const SLOT_BYTES: usize = 4 + 4 * CATEGORIES;

type Numbers = [u32; CATEGORIES];

/// The learning text of a category.
#[must_use]
pub fn text(category: usize) -> String {
    format!("mails-{category}")
}

/// What was learnt.
trait Learnt {
    /// How many mails of each category.
    fn mails(&self) -> Numbers;
    /// In how many of each a word is.
    fn counts(&self, word: &[u8]) -> Option<Numbers>;
}

/// Parses the texts of all categories, and classifies the new mails: the category of each.
///
/// # Errors
/// Of the storage.
pub fn classify_parsed<S: Storage>(storage: &mut S) -> Result<Vec<usize>, ProgramError> {
    let parsed = Parsed::read(storage)?;
    classify(storage, &parsed)
}

/// Classifies the new mails with the structure as it lies there.
///
/// # Errors
/// Of the storage; [`ProgramError::Foreign`] for an object that is no such structure.
pub fn classify_kept<S: Storage>(storage: &mut S) -> Result<Vec<usize>, ProgramError> {
    let mut reader = storage.open(MODEL)?;
    let foreign = || ProgramError::Foreign { name: MODEL.to_owned() };
    let model = Model::of(reader.rest()?).ok_or_else(foreign)?;
    classify(storage, &model)
}

/// Parses the texts of all categories and makes the structure of them. Returns its bytes.
///
/// # Errors
/// Of the storage.
pub fn learn<S: Storage>(storage: &mut S) -> Result<u64, ProgramError> {
    let model = Parsed::read(storage)?.model();
    let mut writer = storage.create(MODEL, model.len() as u64)?;
    writer.write(&model)?;
    storage.finish(writer)
}

/// Calls `found` for each mail with its words.
fn each_mail<S: Storage>(
    storage: &mut S,
    name: &str,
    mut found: impl FnMut(&HashSet<Vec<u8>>),
) -> Result<(), ProgramError> {
    let mut reader = storage.open(name)?;
    let mut words = HashSet::new();
    while let Some(line) = reader.line()? {
        if line == END {
            found(&words);
            words.clear();
            continue;
        }
        for word in line.split(|byte| !byte.is_ascii_alphanumeric()) {
            if WORD_BYTES.contains(&word.len()) {
                words.insert(word.to_ascii_lowercase());
            }
        }
    }
    Ok(())
}

/// The likeliest category of each new mail.
fn classify<S: Storage>(storage: &mut S, learnt: &impl Learnt) -> Result<Vec<usize>, ProgramError> {
    let mails = learnt.mails().map(f64::from);
    let all: f64 = mails.iter().sum();
    let mut categories = Vec::new();
    each_mail(storage, NEW, |words| {
        let mut scores = mails.map(|mails| ((mails + 1.0) / (all + 1.0)).ln());
        // In an order that does not change, so that sums do not either.
        let mut words: Vec<&Vec<u8>> = words.iter().collect();
        words.sort_unstable();
        for counts in words.into_iter().filter_map(|word| learnt.counts(word)) {
            // Each category counts as if it had one more mail, with the word as often as in all
            // mails: a rare word must not favour a category only because that one is small.
            let share = counts.iter().map(|count| f64::from(*count)).sum::<f64>() / all.max(1.0);
            for ((score, count), mails) in scores.iter_mut().zip(counts).zip(mails) {
                *score += ((f64::from(count) + share) / (mails + 1.0)).ln();
            }
        }
        let best =
            (0..CATEGORIES).reduce(|best, at| if scores[at] > scores[best] { at } else { best });
        categories.push(best.unwrap_or_default());
    })?;
    Ok(categories)
}

/// Counts in ordinary memory.
#[derive(Default)]
struct Parsed {
    mails: Numbers,
    words: HashMap<Vec<u8>, Numbers>,
}

impl Parsed {
    fn read<S: Storage>(storage: &mut S) -> Result<Parsed, ProgramError> {
        let mut parsed = Parsed::default();
        for category in 0..CATEGORIES {
            each_mail(storage, &text(category), |words| {
                parsed.mails[category] += 1;
                for word in words {
                    match parsed.words.get_mut(word) {
                        Some(counts) => counts[category] += 1,
                        None => {
                            parsed.words.entry(word.clone()).or_default()[category] = 1;
                        }
                    }
                }
            })?;
        }
        Ok(parsed)
    }

    fn model(&self) -> Vec<u8> {
        let slots = (self.words.len() * 2).next_power_of_two().max(2);
        let mut model = vec![0; HEADER_BYTES + slots * SLOT_BYTES];
        model[..8].copy_from_slice(MAGIC);
        model[8..16].copy_from_slice(&(slots as u64).to_le_bytes());
        put(&mut model, 16, &self.mails);
        let mut words: Vec<_> = self.words.iter().collect();
        words.sort_unstable();
        for (word, counts) in words {
            let mut slot = xxh3_64(word) as usize & (slots - 1);
            while number(&model, HEADER_BYTES + slot * SLOT_BYTES) != Some(0) {
                slot = (slot + 1) & (slots - 1);
            }
            let at = HEADER_BYTES + slot * SLOT_BYTES;
            let place = model.len() as u32;
            put(&mut model, at, &[place]);
            put(&mut model, at + 4, counts);
            model.push(word.len() as u8);
            model.extend_from_slice(word);
        }
        model
    }
}

impl Learnt for Parsed {
    fn mails(&self) -> Numbers {
        self.mails
    }

    fn counts(&self, word: &[u8]) -> Option<Numbers> {
        self.words.get(word).copied()
    }
}

fn put(bytes: &mut [u8], at: usize, numbers: &[u32]) {
    for (place, number) in bytes[at..].chunks_exact_mut(4).zip(numbers) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn numbers(bytes: &[u8], at: usize) -> Option<Numbers> {
    let mut numbers = [0; CATEGORIES];
    for (index, place) in numbers.iter_mut().enumerate() {
        *place = number(bytes, at + 4 * index)?;
    }
    Some(numbers)
}

/// The structure, where it lies.
struct Model<'a> {
    bytes: &'a [u8],
    slots: usize,
    mails: Numbers,
}

impl Model<'_> {
    fn of(bytes: &[u8]) -> Option<Model<'_>> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let slots = usize::try_from(u64::from_le_bytes(*rest.first_chunk()?)).ok()?;
        let table_bytes = slots.checked_mul(SLOT_BYTES)?.checked_add(HEADER_BYTES)?;
        let mails = numbers(bytes, 16)?;
        (slots.is_power_of_two() && table_bytes <= bytes.len()).then_some(Model {
            bytes,
            slots,
            mails,
        })
    }
}

impl Learnt for Model<'_> {
    fn mails(&self) -> Numbers {
        self.mails
    }

    fn counts(&self, word: &[u8]) -> Option<Numbers> {
        let mut slot = xxh3_64(word) as usize & (self.slots - 1);
        // Ends in a damaged table, too, that is full.
        for _ in 0..self.slots {
            let at = HEADER_BYTES + slot * SLOT_BYTES;
            let place = number(self.bytes, at)? as usize;
            if place == 0 {
                return None;
            }
            let (length, rest) = self.bytes.get(place..)?.split_first()?;
            if rest.get(..usize::from(*length)) == Some(word) {
                return numbers(self.bytes, at + 4);
            }
            slot = (slot + 1) & (self.slots - 1);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::volatile::Volatile;

    /// Each category has two words of its own, and one that all have.
    fn storage() -> Volatile {
        let mut storage = Volatile::default();
        for category in 0..CATEGORIES {
            let letter = char::from(b'a' + category as u8);
            let (one, other) = (letter.to_string().repeat(4), letter.to_string().repeat(5));
            let mails = format!("{one}, common!\nno 12\n\x0c\n{} {other} common\n\x0c\n", other);
            storage.put(&text(category), mails.into_bytes());
        }
        storage.put(NEW, b"common CCCC ccccc\n\x0c\nunknown\njjjj\n\x0c\n\x0c\n".to_vec());
        storage
    }

    #[test]
    fn both_ways_find_the_same_categories() {
        let mut storage = storage();
        learn(&mut storage).unwrap();
        assert_eq!(classify_parsed(&mut storage).unwrap(), [2, 9, 0]);
        assert_eq!(classify_kept(&mut storage).unwrap(), [2, 9, 0]);
    }

    #[test]
    fn structure_has_the_counts_of_the_texts() {
        let parsed = Parsed::read(&mut storage()).unwrap();
        let bytes = parsed.model();
        let model = Model::of(&bytes).unwrap();
        assert_eq!(model.mails(), [2; CATEGORIES]);
        assert_eq!(model.counts(b"common"), Some([2; CATEGORIES]));
        assert_eq!(model.counts(b"bbbbb"), Some([0, 1, 0, 0, 0, 0, 0, 0, 0, 0]));
        assert_eq!(model.counts(b"12"), None);
        assert_eq!(parsed.words.len(), 21);
    }

    /// A damaged structure is refused, or what it says is wrong and nothing worse.
    #[test]
    fn damaged_structures_do_no_harm() {
        let bytes = Parsed::read(&mut storage()).unwrap().model();
        for length in 0..bytes.len() {
            if let Some(model) = Model::of(&bytes[..length]) {
                model.counts(b"common");
            }
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xFF;
            if let Some(model) = Model::of(&damaged) {
                model.counts(b"common");
                model.counts(b"none");
            }
        }
        let mut storage = storage();
        storage.put(MODEL, b"something".to_vec());
        let complaint = classify_kept(&mut storage).unwrap_err().to_string();
        assert!(complaint.starts_with("the root model is no object"), "{complaint}");
    }
}
