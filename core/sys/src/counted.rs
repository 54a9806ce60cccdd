//! Numbers with their nouns in messages: `1 view`, `2 views`.
//!
//! Invariant: regular English plurals only. A noun with an irregular one needs another wording.

#![forbid(unsafe_code)]

/// A number and its noun: `counted(1, "system call")` is `1 system call`, `counted(0, "copy")` is
/// `0 copies`.
#[must_use]
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {}", noun_for(count, noun))
}

/// The noun alone, for numbers that are written in another form.
#[must_use]
pub fn noun_for(count: impl TryInto<u64>, noun: &str) -> String {
    if count.try_into().is_ok_and(|count| count == 1) {
        return noun.to_owned();
    }
    let before_last = noun.chars().rev().nth(1);
    match noun.strip_suffix('y') {
        Some(stem) if before_last.is_some_and(|c| !"aeiou".contains(c)) => format!("{stem}ies"),
        _ if ["s", "x", "ch", "sh"].iter().any(|end| noun.ends_with(end)) => format!("{noun}es"),
        _ => format!("{noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular_and_all_others_plural() {
        for (count, noun, expected) in [
            (1, "view", "1 view"),
            (0, "view", "0 views"),
            (2, "system call", "2 system calls"),
            (1, "copy", "1 copy"),
            (2, "copy", "2 copies"),
            (2, "key", "2 keys"),
            (2, "process", "2 processes"),
            (3, "flush", "3 flushes"),
        ] {
            assert_eq!(counted(count, noun), expected);
        }
        assert_eq!(counted(1_usize, "page"), "1 page");
        assert_eq!(noun_for(u64::MAX, "entry"), "entries");
    }
}
