//! The table of `strace -c`: sums, without single calls.

use super::line::ns;

/// A row.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row<'a> {
    pub(super) name: &'a str,
    pub(super) calls: u64,
    pub(super) errors: u64,
    pub(super) wall_ns: u64,
}

/// Whether the lines behind this one are rows.
pub(super) fn is_header(text: &str) -> bool {
    let mut words = text.split_whitespace();
    words.next() == Some("%")
        && words.next() == Some("time")
        && words.next() == Some("seconds")
        && text.contains("syscall")
}

/// What a line of the table is.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part<'a> {
    Row(Row<'a>),
    Rule,
    /// The last one.
    Total,
}

/// None if it is no line of the table.
pub(super) fn parse(text: &str) -> Option<Part<'_>> {
    let words: Vec<_> = text.split_whitespace().take(8).collect();
    if words.iter().all(|word| word.bytes().all(|byte| byte == b'-')) && !words.is_empty() {
        return Some(Part::Rule);
    }
    let (percent, seconds, calls, errors, name) = match words[..] {
        [percent, seconds, _, calls, errors, name] => (percent, seconds, calls, errors, name),
        [percent, seconds, _, calls, name] => (percent, seconds, calls, "0", name),
        // Old ones leave the time for each call out of the total.
        [percent, seconds, calls, "total"] => (percent, seconds, calls, "0", "total"),
        _ => return None,
    };
    percent.parse::<f64>().ok()?;
    let (wall_ns, calls, errors) = (ns(seconds)?, calls.parse().ok()?, errors.parse().ok()?);
    if name == "total" {
        return Some(Part::Total);
    }
    let plain =
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') && name.len() <= 64;
    plain.then_some(Part::Row(Row { name, calls, errors, wall_ns }))
}
