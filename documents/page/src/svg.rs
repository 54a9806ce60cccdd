//! SVG that a page has in it or asks for, looked at before the engine gets it.
//!
//! Invariants:
//! - The engine's SVG reads files of this machine by their names: no reference but to the picture
//!   itself and to data within it is let through.
//! - What a picture comes to is bounded before it is made: elements, with all that refer to them
//!   counted each time, and how deep they are in each other then; curves of arcs; text, with its
//!   entities; pixels of images within it, as often as they are painted; looks at selectors.
//! - No recursion on the depth of a picture.
//! - Style sheets are read by the engine's own parser: what they refer to is what the engine finds.
//! - What the engine leaves out of a picture is said.

mod cost;
mod graph;
mod lengths;
mod path;
mod sheets;
#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests;
mod xml;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Read;

use data_url::DataUrl;
use encoding_rs::{Encoding, WINDOWS_1252};
use holdfast_dom::{Document, Namespace, Node, NodeKind};
use roxmltree::ParsingOptions;

use crate::families;
use crate::resource::pixel_count;
use cost::vet;

/// Elements of a picture.
const ELEMENTS_MAX: usize = 200_000;
/// Bytes of a name that is referred to.
const ID_BYTES_MAX: usize = 1_024;
const TOO_MANY: &str = "it has more elements than are taken";

/// What is found in a picture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SvgSummary {
    /// What the engine does not paint of it, for people.
    pub(crate) lacks: BTreeSet<&'static str>,
    /// Whether it has text, which is painted in fonts of this machine.
    pub(crate) has_text: bool,
    /// Pixels of the images in it.
    pub(crate) pixels: u64,
    /// The family for text in families that are not there.
    pub(crate) family: Option<String>,
    /// Patterns, by their names: the engine paints a red ground in their place.
    patterns: HashSet<String>,
}

impl SvgSummary {
    /// The value of an attribute, or a style sheet, without what the engine paints wrong.
    pub(crate) fn without_patterns<'v>(&self, value: &'v str) -> Cow<'v, str> {
        let mut fixed: Option<String> = None;
        for (range, id) in references(value) {
            // Nothing is replaced across markup.
            if self.patterns.contains(id) && !id.contains(['<', '>', '&']) {
                let text = fixed.get_or_insert_with(|| value.to_owned());
                // As long as before, so that places in the source stay what they are.
                let none = format!("{:1$}", "none", range.len());
                text.replace_range(range, &none);
            }
        }
        fixed.map_or(Cow::Borrowed(value), Cow::Owned)
    }

    /// Takes up what was found in another picture of the page.
    pub(crate) fn merge(&mut self, other: SvgSummary) {
        self.lacks.extend(other.lacks);
        self.has_text |= other.has_text;
        self.pixels += other.pixels;
    }
}

/// Whether an attribute of an element would be followed out of the picture. `name` may have a
/// prefix.
pub(crate) fn leads_out(element: &str, name: &str, value: &str) -> bool {
    if !local(name).eq_ignore_ascii_case("href") {
        return false;
    }
    match local(element).to_ascii_lowercase().as_str() {
        "image" => image_pixels(value).is_none(),
        "feimage" => !value.starts_with('#') && image_pixels(value).is_none(),
        _ => false,
    }
}

/// Whether an element or attribute can be written as XML: HTML takes names that XML does not, and
/// prefixes that nothing declares.
pub(crate) fn is_plain(name: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_next = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.starts_with(is_first) && name.chars().all(is_next)
}

/// Text without characters that XML does not have.
pub(crate) fn xml_text(text: &str) -> Cow<'_, str> {
    let is_bad = |c: char| matches!(c, '\0'..='\u{8}' | '\u{B}' | '\u{C}' | '\u{E}'..='\u{1F}' | '\u{FFFE}' | '\u{FFFF}');
    if text.contains(is_bad) {
        Cow::Owned(text.replace(is_bad, "\u{FFFD}"))
    } else {
        Cow::Borrowed(text)
    }
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

/// The pixels of an image that is in the address; none, if it is elsewhere, or no image of pixels.
fn image_pixels(value: &str) -> Option<u64> {
    let (bytes, _) = DataUrl::process(value).ok()?.decode_to_vec().ok()?;
    pixel_count(&bytes)
}

/// An element, in document order.
struct Element<'a> {
    name: &'a str,
    parent: Option<usize>,
    /// Names without prefixes.
    attributes: Vec<(&'a str, Cow<'a, str>)>,
    /// Of a style sheet.
    texts: Vec<String>,
    /// Bytes of the text in it that is no style sheet.
    letters: usize,
    /// Nodes between it and the element before it.
    gap: usize,
}

impl Element<'_> {
    /// All of a name: which of several in other namespaces counts is the engine's.
    fn values(&self, name: &str) -> impl Iterator<Item = &str> {
        self.attributes.iter().filter(move |(known, _)| *known == name).map(|(_, value)| &**value)
    }
}

/// Looks at the picture that an element of a page is; its descendants of other namespaces do not
/// count.
fn vet_inline(root: Node<'_>) -> Result<SvgSummary, &'static str> {
    let (elements, foreign) = elements_of(root, None)?;
    let mut vetted = vet(&elements)?;
    if !vetted.patterns.is_empty() {
        // What is replaced may be a class, a name, or part of a selector.
        vet(&elements_of(root, Some(&vetted))?.0)?;
    }
    if foreign {
        vetted.lacks.insert("HTML within it");
    }
    Ok(vetted)
}

/// A value as the engine reads it.
fn as_read<'v>(value: &'v str, without: Option<&SvgSummary>) -> Cow<'v, str> {
    let text = without.map_or(Cow::Borrowed(value), |vetted| vetted.without_patterns(value));
    let text = match text {
        Cow::Borrowed(text) => xml_text(text),
        Cow::Owned(text) => Cow::Owned(xml_text(&text).into_owned()),
    };
    // To XML they are white space of one kind.
    if text.contains(['\t', '\n', '\r']) {
        Cow::Owned(text.replace(['\t', '\n', '\r'], " "))
    } else {
        text
    }
}

/// The elements of a picture within a page, and whether there are others in it; with what was found
/// in it, as they are without its patterns.
fn elements_of<'d>(
    root: Node<'d>,
    without: Option<&SvgSummary>,
) -> Result<(Vec<Element<'d>>, bool), &'static str> {
    let mut elements: Vec<Element<'d>> = Vec::new();
    let mut numbers: HashMap<u32, usize> = HashMap::new();
    let mut foreign = false;
    for node in std::iter::once(root).chain(root.descendants()) {
        let parent = node.parent().and_then(|parent| numbers.get(&parent.id()).copied());
        match node.kind() {
            NodeKind::Element if node == root || parent.is_some() => {
                if node != root && node.namespace() != Some(Namespace::Svg) {
                    foreign = true;
                    continue;
                }
                if elements.len() >= ELEMENTS_MAX {
                    return Err(TOO_MANY);
                }
                numbers.insert(node.id(), elements.len());
                elements.push(Element {
                    name: local(node.name().unwrap_or_default()),
                    parent,
                    attributes: node
                        .attributes()
                        .map(|one| (local(one.name), as_read(one.value, without)))
                        .collect(),
                    texts: Vec::new(),
                    letters: 0,
                    // The engine gets no comments of a page.
                    gap: 1,
                });
            }
            NodeKind::Text => {
                let data = node.data().unwrap_or_default();
                match parent.map(|parent| &mut elements[parent]) {
                    Some(style) if style.name == "style" => {
                        style.texts.push(as_read(data, without).into_owned());
                    }
                    Some(other) => other.letters += data.len(),
                    None => {}
                }
            }
            _ => {}
        }
    }
    Ok((elements, foreign))
}

/// Whether the engine takes an element for a picture.
pub(crate) fn is_picture(node: Node<'_>) -> bool {
    node.name() == Some("svg")
}

/// The outermost pictures of a page, by their nodes: what is found in each, or why the engine does
/// not get it.
pub(crate) type Pictures = BTreeMap<u32, Result<SvgSummary, &'static str>>;

/// Looks at all pictures of a page.
pub(crate) fn pictures(document: &Document<'_>) -> Pictures {
    let mut found = Pictures::new();
    let mut inside: HashSet<u32> = HashSet::new();
    let mut family: Option<Option<String>> = None;
    for node in document.root().descendants() {
        // In document order the parent was seen before.
        if node.parent().is_some_and(|parent| inside.contains(&parent.id())) {
            inside.insert(node.id());
        } else if is_picture(node) {
            inside.insert(node.id());
            let mut vetted = vet_inline(node);
            if let Ok(vetted) = &mut vetted
                && vetted.has_text
            {
                vetted.family = family.get_or_insert_with(families::usual).clone();
            }
            found.insert(node.id(), vetted);
        }
    }
    found
}

/// Whether bytes may be a picture of SVG: what is not, the engine does not take for one.
pub(crate) fn may_be(bytes: &[u8]) -> bool {
    is_packed(bytes)
        || Encoding::for_bom(bytes).is_some()
        || bytes.trim_ascii_start().first() == Some(&b'<')
}

fn is_packed(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1F, 0x8B])
}

/// A picture as the engine may have it, in UTF-8, and what was found in it; nothing, if the bytes
/// are no XML, and so no picture.
pub(crate) fn vet_file(
    given: &[u8],
    bytes_max: u64,
) -> Result<Option<(Vec<u8>, SvgSummary)>, &'static str> {
    let unpacked;
    let bytes = if is_packed(given) {
        let mut all = Vec::new();
        let read =
            flate2::read::MultiGzDecoder::new(given).take(bytes_max + 1).read_to_end(&mut all);
        if read.is_err() {
            return Err("it is compressed, and cannot be unpacked");
        }
        if all.len() as u64 > bytes_max {
            return Err("unpacked it has more bytes than are taken");
        }
        unpacked = all;
        &unpacked
    } else {
        given
    };
    let text = in_utf_8(bytes);
    xml::check(&text)?;
    let document = match roxmltree::Document::parse_with_options(&text, options()) {
        Ok(document) => document,
        Err(roxmltree::Error::NodesLimitReached) => return Err(TOO_MANY),
        // What was packed would be unpacked once more.
        Err(_) if is_packed(given) => return Err("it is no SVG that can be read"),
        Err(_) => return Ok(None),
    };
    let vetted = vet(&elements_of_file(&document))?;
    // What is in an entity has its place there, and is changed there.
    let mut edits: BTreeMap<usize, (usize, String)> = BTreeMap::new();
    let family = if vetted.has_text { families::usual() } else { None };
    let family = family.filter(|family| !family.contains(['"', '\'', '&', '<', ',']));
    for node in document.descendants() {
        for attribute in node.attributes() {
            if leads_out(node.tag_name().name(), attribute.name(), attribute.value()) {
                let range = attribute.range();
                edits.insert(range.start, (range.end, String::new()));
            } else if let ("font-family", Some(family)) = (attribute.name(), &family) {
                let end = attribute.range_value().end;
                edits.insert(end, (end, format!(", {family}")));
            }
        }
    }
    let root = document.root_element();
    if let (Some(family), None) = (&family, root.attribute("font-family")) {
        let name = root.range().start + 1;
        let length = text[name..].find(|c: char| c.is_ascii_whitespace() || matches!(c, '/' | '>'));
        let end = name + length.unwrap_or(0);
        edits.insert(end, (end, format!(" font-family=\"{family}\"")));
    }
    let mut changed = String::with_capacity(text.len());
    let mut copied = 0;
    for (start, (end, other)) in edits {
        // One within another there is not.
        changed.push_str(text.get(copied..start).ok_or("it is no SVG that can be read")?);
        changed.push_str(&other);
        copied = end;
    }
    changed.push_str(&text[copied..]);
    drop(document);
    let without = match vetted.without_patterns(&changed) {
        Cow::Owned(without) => without,
        Cow::Borrowed(_) => return Ok(Some((changed.into_bytes(), vetted))),
    };
    // What was replaced may have been a class, a name, or part of a selector.
    let document = roxmltree::Document::parse_with_options(&without, options())
        .map_err(|_| "it is no SVG that can be read")?;
    vet(&elements_of_file(&document))?;
    drop(document);
    Ok(Some((without.into_bytes(), vetted)))
}

fn options<'i>() -> ParsingOptions<'i> {
    ParsingOptions {
        allow_dtd: true,
        nodes_limit: xml::NODES_MAX as u32,
        ..ParsingOptions::default()
    }
}

fn elements_of_file<'d>(document: &'d roxmltree::Document<'_>) -> Vec<Element<'d>> {
    let mut numbers = HashMap::new();
    let mut elements: Vec<Element<'d>> = Vec::new();
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let parent = node.parent().and_then(|parent| numbers.get(&parent.id()).copied());
        numbers.insert(node.id(), elements.len());
        let name = node.tag_name().name();
        let is_style = name == "style";
        let texts = node.children().filter_map(|child| child.text().filter(|_| is_style));
        let others = node.children().filter(|child| child.is_text() && !is_style);
        elements.push(Element {
            name,
            parent,
            attributes: node
                .attributes()
                .map(|one| (one.name(), Cow::Borrowed(one.value())))
                .collect(),
            texts: texts.map(str::to_owned).collect(),
            letters: others.filter_map(|child| child.text()).map(str::len).sum(),
            gap: node.prev_siblings().skip(1).take_while(|other| !other.is_element()).count(),
        });
    }
    elements
}

/// The letters of a file: by its first bytes, or else as it says, or else of Western Europe, if
/// they are not UTF-8.
fn in_utf_8(bytes: &[u8]) -> Cow<'_, str> {
    if let Some((encoding, mark)) = Encoding::for_bom(bytes) {
        return encoding.decode_without_bom_handling(&bytes[mark..]).0;
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).into_owned();
    let label = head.split_once("encoding=").and_then(|(_, rest)| {
        let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''))?;
        rest[1..].split(quote).next()
    });
    label
        .and_then(|label| Encoding::for_label(label.as_bytes()))
        .unwrap_or(WINDOWS_1252)
        .decode(bytes)
        .0
}

/// Where a text refers to something by its name: `url(#name)`, with or without quotes. What ends a
/// name is what ends it to the engine; to it no name has quotes.
fn references(text: &str) -> Vec<(std::ops::Range<usize>, &str)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("url(") {
        let start = from + at;
        from = start + 4;
        let written = text[from..].trim_start();
        let quote = written.chars().next().filter(|first| matches!(first, '"' | '\''));
        let inner = quote.map_or(written, |_| written[1..].trim_start());
        let Some(name) = inner.strip_prefix('#') else { continue };
        let end = match quote {
            Some(quote) => name.find(quote),
            None => {
                name.bytes().take(ID_BYTES_MAX + 1).position(|byte| matches!(byte, b' ' | b')'))
            }
        };
        let Some(end) = end else { continue };
        let (id, behind) = name.split_at(end);
        let behind = behind[usize::from(quote.is_some())..].trim_start();
        let id = if quote.is_some() { id.trim_end() } else { id };
        if let (Some(rest), false) = (behind.strip_prefix(')'), id.contains(['"', '\''])) {
            found.push((start..text.len() - rest.len(), id));
        }
    }
    found
}
