//! Sentences of the table of papers. `{SUITE KEY}` in one stands for the median of what a run
//! measured, `{SUITE KEY min}` and `{SUITE KEY max}` for its least and its largest value, each with
//! its unit, so that a sentence cannot contradict the run that it is printed with.
//!
//! A number of a paper, or one that no suite measures, stands in a sentence as it is.

/// What is said in place of a number that the run does not have.
const NOT_MEASURED: &str = "(not measured)";

/// A number of the run in a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reference<'a> {
    /// Suite of the key.
    pub suite: &'a str,
    /// Key of the measurement.
    pub key: &'a str,
    /// Which of its values.
    pub value: Value,
}

/// One value of a measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Value {
    /// The median.
    Median,
    /// The least one.
    Least,
    /// The largest one.
    Largest,
}

enum Part<'a> {
    Text(&'a str),
    Reference(Reference<'a>),
}

/// The references of a sentence.
///
/// # Errors
/// What is wrong with one: a brace without its other half, or words that are no reference.
pub fn references(text: &str) -> Result<Vec<Reference<'_>>, String> {
    let references = parts(text)?.into_iter().filter_map(|part| match part {
        Part::Text(_) => None,
        Part::Reference(reference) => Some(reference),
    });
    Ok(references.collect())
}

/// A sentence with the numbers of a run, as `number` shows them, in place of its references. One that
/// cannot be read stays as it is; the table of papers is refused with one (`Papers::parse`).
pub(crate) fn filled(text: &str, number: impl Fn(Reference<'_>) -> Option<String>) -> String {
    let Ok(parts) = parts(text) else { return text.to_owned() };
    let shown = |part: Part| match part {
        Part::Text(text) => text.to_owned(),
        Part::Reference(found) => number(found).unwrap_or_else(|| NOT_MEASURED.to_owned()),
    };
    parts.into_iter().map(shown).collect()
}

fn parts(text: &str) -> Result<Vec<Part<'_>>, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(['{', '}']) {
        parts.push(Part::Text(&rest[..start]));
        let whole = rest[start..].strip_prefix('{').and_then(|inside| inside.split_once('}'));
        let (words, behind) = whole.ok_or("a brace without its other half")?;
        parts.push(Part::Reference(Reference::parse(words)?));
        rest = behind;
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

impl<'a> Reference<'a> {
    fn parse(text: &'a str) -> Result<Reference<'a>, String> {
        let words: Vec<&'a str> = text.split(' ').collect();
        let (suite, key, value) = match words[..] {
            [suite, key] => (suite, key, Value::Median),
            [suite, key, "min"] => (suite, key, Value::Least),
            [suite, key, "max"] => (suite, key, Value::Largest),
            _ => return Err(no_reference(text)),
        };
        let is_name = |word: &str| {
            let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_-/.".contains(letter);
            !word.is_empty() && word.chars().all(is_part)
        };
        match is_name(suite) && is_name(key) {
            true => Ok(Reference { suite, key, value }),
            false => Err(no_reference(text)),
        }
    }
}

fn no_reference(text: &str) -> String {
    format!(
        "{{{text}}} is no reference, which is {{SUITE KEY}}, {{SUITE KEY min}} or {{SUITE KEY max}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_become_numbers() {
        let number =
            |found: Reference<'_>| (found.suite == "pool").then(|| format!("{:?}", found.value));
        for (text, shown) in [
            ("It takes {pool a}.", "It takes Median."),
            ("{pool a min} to {pool a max}", "Least to Largest"),
            ("{heap a}", "(not measured)"),
            ("no number", "no number"),
            ("", ""),
        ] {
            assert_eq!(filled(text, number), shown);
        }
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        let found = references("{pool a/b-c.d} and {slow e max}").unwrap();
        let keys: Vec<_> = found.iter().map(|found| (found.suite, found.key)).collect();
        assert_eq!(keys, [("pool", "a/b-c.d"), ("slow", "e")]);
        for (text, complaint) in [
            ("{pool}", "{pool} is no reference"),
            ("{pool a least}", "{pool a least} is no reference"),
            ("{pool a min b}", "is no reference"),
            ("{pool  a}", "is no reference"),
            ("{}", "{} is no reference"),
            ("{pool {a}", "is no reference"),
            ("{pool a", "a brace without its other half"),
            ("pool a}", "a brace without its other half"),
        ] {
            let error = references(text).unwrap_err();
            assert!(error.contains(complaint), "{text}: {error}");
        }
    }
}
