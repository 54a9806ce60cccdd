//! What reading a picture's text comes to, found before the XML parser gets it: the parser bounds
//! the nodes that it makes, but not what it does for each.

use std::collections::HashSet;

use super::ELEMENTS_MAX;

/// Attributes of an element: the XML parser compares each one with all before it.
pub(super) const ATTRIBUTES_MAX: usize = 1_000;
/// Bytes that entities of a document type may come to.
const ENTITY_BYTES_MAX: usize = 64 << 20;
/// References that one entity can come to, as the XML parser counts them.
const ENTITY_REFERENCES: usize = 256;
/// Names of namespaces that the XML parser compares.
const NAMES_COMPARED_MAX: usize = 1_000_000_000;
pub(super) const TOO_MANY_ATTRIBUTES: &str = "an element of it has more attributes than are taken";
pub(super) const TOO_MANY_NAMESPACES: &str = "it declares more namespaces than are taken";

/// Nodes that the XML parser makes of a picture.
pub(super) const NODES_MAX: usize = ELEMENTS_MAX * 4;

/// Whether the XML parser may have a text.
pub(super) fn check(text: &str) -> Result<(), &'static str> {
    check_entities(text)?;
    check_attributes(text)?;
    check_namespaces(text)
}

/// The XML parser bounds how deep entities go, but not how long they are.
fn check_entities(text: &str) -> Result<(), &'static str> {
    let Some(at) = text.find("<!ENTITY") else { return Ok(()) };
    let longest = text[at..].split(['"', '\'']).map(str::len).max().unwrap_or(0);
    let longest =
        longest.min(text.find("]>").map_or(usize::MAX, |end| end.saturating_sub(at)).max(1));
    let references = text.bytes().filter(|byte| *byte == b'&').count();
    match longest.checked_mul(references * ENTITY_REFERENCES) {
        Some(bytes) if bytes <= ENTITY_BYTES_MAX => Ok(()),
        _ => Err("its entities come to more bytes than are taken"),
    }
}

/// What an element of the file has between its name and the end of its mark is counted before the
/// XML parser compares it. Within attributes no other mark can begin.
fn check_attributes(text: &str) -> Result<(), &'static str> {
    for mark in text.split('<').skip(1).filter(|mark| !mark.starts_with(['!', '?', '/'])) {
        let mut quote = None;
        let mut attributes = 0;
        for byte in mark.bytes() {
            match (quote, byte) {
                (Some(open), _) if byte == open => quote = None,
                (Some(_), _) => {}
                // Each attribute has one value.
                (None, b'"' | b'\'') => {
                    quote = Some(byte);
                    attributes += 1;
                }
                // Nothing like it is in the mark of an element, but in a script.
                (None, b'>' | b'&' | b'(' | b'[' | b'{' | b',' | b';') => break,
                (None, _) => {}
            }
        }
        if attributes > ATTRIBUTES_MAX {
            return Err(TOO_MANY_ATTRIBUTES);
        }
    }
    Ok(())
}

/// An element that declares a namespace gets all that are known around it, each of them compared
/// with those that it has already; and a name is compared with all that are known where it is. An
/// entity can have such elements, and be there any number of times.
fn check_namespaces(text: &str) -> Result<(), &'static str> {
    let mut names: HashSet<&str> = HashSet::new();
    let mut declared = 0;
    for (at, xmlns) in text.match_indices("xmlns") {
        declared += 1;
        let prefix = text[at + xmlns.len()..].strip_prefix(':').unwrap_or_default();
        let ends = |c: char| c.is_ascii_whitespace() || matches!(c, ':' | '=' | '<' | '>');
        names.insert(prefix.split(ends).next().unwrap_or_default());
    }
    let mut named = text.bytes().filter(|byte| matches!(byte, b'<' | b'=')).count();
    if declared > 0 && text.contains("<!ENTITY") {
        declared = NODES_MAX;
        named = named.max(NODES_MAX);
    }
    let compared = names.len().saturating_mul(declared).saturating_add(named);
    if names.len().saturating_mul(compared) > NAMES_COMPARED_MAX {
        return Err(TOO_MANY_NAMESPACES);
    }
    Ok(())
}
