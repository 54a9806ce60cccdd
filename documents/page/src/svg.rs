//! SVG that a page has in it or asks for, looked at before the engine gets it.
//!
//! Invariants:
//! - The engine's SVG reads files of this machine by their names: no reference but to the picture
//!   itself and to data within it is let through.
//! - What a picture comes to is bounded before it is made: elements, with all that refer to them
//!   counted each time; text, with its entities; pixels of images within it.
//! - No recursion on the depth of a picture.
//! - Style sheets are read by the engine's own parser: what they refer to is what the engine finds.
//! - What the engine leaves out of a picture is said.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Read;

use data_url::DataUrl;
use encoding_rs::{Encoding, WINDOWS_1252};
use holdfast_dom::{Document, Namespace, Node, NodeKind};
use roxmltree::ParsingOptions;
use simplecss::{AttributeOperator, PseudoClass, StyleSheet};

use crate::families;
use crate::resource::pixel_count;

/// Elements of a picture.
const ELEMENTS_MAX: usize = 200_000;
/// Elements of a picture below each other; the engine takes 1,024.
const DEPTH_MAX: u32 = 1_000;
/// What a picture comes to: elements, each as often as it is used, with [`COST_BYTES`] more
/// counting as one more.
const COST_MAX: u64 = 500_000;
const COST_BYTES: usize = 256;
/// Bytes of a name that is referred to.
const ID_BYTES_MAX: usize = 1_024;
const TOO_MANY: &str = "it has more elements than are taken";
const TOO_OFTEN: &str =
    "it comes to more elements than are taken, since they are used again and again";
const CIRCLE: &str = "a part of it refers to itself";
/// How often what is passed on to a mark, and to others by it, is looked for.
const PASSES_MAX: usize = 16;
/// Rules of style sheets that are looked at, once for each element that they may be of, and what
/// they refer to. What is there of that costs more than [`COST_MAX`] before.
const RULE_LOOKS_MAX: usize = 16 * COST_MAX as usize;
/// What the engine's parser of style sheets may come to: it walks from the start to where it is for
/// each declaration, copies those of a rule for each of its selectors, and recurses on comments.
const SHEET_WALKS_MAX: usize = 4_000_000_000;
const SHEET_COPIES_MAX: usize = 32 << 20;
const SHEET_COMMENTS_MAX: usize = 1_000;
/// Bytes that entities of a document type may come to.
const ENTITY_BYTES_MAX: usize = 64 << 20;
/// References that one entity can come to, as the XML parser counts them.
const ENTITY_REFERENCES: usize = 256;

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
                });
            }
            NodeKind::Text => {
                if let Some(parent) = parent.filter(|parent| elements[*parent].name == "style") {
                    let text = as_read(node.data().unwrap_or_default(), without);
                    elements[parent].texts.push(text.into_owned());
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
    check_entities(&text)?;
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
        nodes_limit: ELEMENTS_MAX as u32 * 4,
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
        elements.push(Element {
            name,
            parent,
            attributes: node
                .attributes()
                .map(|one| (one.name(), Cow::Borrowed(one.value())))
                .collect(),
            texts: texts.map(str::to_owned).collect(),
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

/// A rule of the picture's style sheets that refers to something: which elements it may be of, and
/// to what.
struct Rule<'a> {
    /// Their name, class or id; none, if it may be of any.
    word: Option<String>,
    ids: Vec<&'a str>,
    /// Whether they have a mask, clip path or filter of their parent.
    inherits: bool,
}

fn is_group_property(name: &str) -> bool {
    matches!(name, "mask" | "clip-path" | "filter")
}

/// Whether an element says itself that it has a mask, clip path or filter of its parent.
fn says_inherit(element: &Element<'_>) -> bool {
    element.attributes.iter().any(|(name, value)| {
        if *name == "style" {
            let properties = ["mask", "clip-path", "filter"];
            value.contains("inherit") && properties.iter().any(|property| value.contains(property))
        } else {
            is_group_property(name) && value.trim() == "inherit"
        }
    })
}

/// Whether the engine does not paint an element where it is, but where something refers to it.
fn is_apart(name: &str) -> bool {
    matches!(name, "defs" | "symbol" | "marker" | "mask" | "clipPath" | "pattern" | "filter")
}

/// How often an element by itself is filled.
fn shapes_of(element: &Element<'_>) -> u64 {
    let is_text = matches!(element.name, "text" | "tspan" | "textPath" | "tref");
    u64::from(is_text || points_of(element) > 0)
}

/// The points of a shape, or more: in `zh1` there are two.
fn points_of(element: &Element<'_>) -> u64 {
    match element.name {
        "path" | "polyline" | "polygon" => {
            let lines = element.values("d").chain(element.values("points"));
            lines.map(|text| text.len() as u64 / 3 * 2 + 2).max().unwrap_or(0)
        }
        "line" => 2,
        "rect" | "circle" | "ellipse" => 16,
        _ => 0,
    }
}

/// Reads a style sheet as the engine does, by the same parser. `walks` is what that came to.
fn rules_of<'s>(sheet: &'s str, walks: &mut usize) -> Result<Vec<Rule<'s>>, &'static str> {
    let count = |sign: u8| sheet.bytes().filter(|byte| *byte == sign).count();
    let (commas, declarations) = (count(b','), count(b':'));
    let stops = commas + declarations + count(b'{') + count(b'@');
    *walks = walks.saturating_add(stops.saturating_mul(sheet.len()));
    if *walks > SHEET_WALKS_MAX
        || commas.saturating_mul(declarations) > SHEET_COPIES_MAX
        || sheet.matches("/*").count() > SHEET_COMMENTS_MAX
    {
        return Err("its style sheets have more rules than are taken");
    }
    if !sheet.contains("url(") && !sheet.contains("inherit") {
        return Ok(Vec::new());
    }
    let mut rules = Vec::new();
    for rule in StyleSheet::parse(sheet).rules {
        let mut ids = Vec::new();
        let mut inherits = false;
        for declaration in &rule.declarations {
            inherits |=
                is_group_property(declaration.name) && declaration.value.trim() == "inherit";
            ids.extend(references(declaration.value).into_iter().map(|(_, id)| id));
        }
        if inherits || !ids.is_empty() {
            let subject = Subject::default();
            // What it says is not asked for, but what it asks.
            let _ = rule.selector.matches(&&subject);
            let word = subject.word.take().filter(|word| !word.is_empty());
            rules.push(Rule { word, ids, inherits });
        }
    }
    Ok(rules)
}

/// An element that is asked whether a selector is of it, and notes the first name, class or id that
/// it would need.
#[derive(Default)]
struct Subject {
    word: RefCell<Option<String>>,
}

impl Subject {
    fn needs(&self, word: &str) -> bool {
        *self.word.borrow_mut() = Some(word.to_owned());
        false
    }
}

impl simplecss::Element for &Subject {
    fn parent_element(&self) -> Option<Self> {
        None
    }

    fn prev_sibling_element(&self) -> Option<Self> {
        None
    }

    fn has_local_name(&self, name: &str) -> bool {
        self.needs(name)
    }

    fn attribute_matches(&self, local_name: &str, operator: AttributeOperator<'_>) -> bool {
        match (local_name, operator) {
            ("class", AttributeOperator::Contains(word))
            | ("id", AttributeOperator::Matches(word)) => self.needs(word),
            _ => true,
        }
    }

    fn pseudo_class_matches(&self, _: PseudoClass<'_>) -> bool {
        true
    }
}

/// What the engine does not know, and what it is called.
fn lack_of(name: &str) -> Option<&'static str> {
    Some(match name {
        "pattern" => "patterns",
        "filter" => "filters",
        "mask" => "masks",
        "foreignObject" => "HTML within it",
        "animate" | "animateTransform" | "animateMotion" | "set" => "movement",
        "script" => "scripts",
        _ => return None,
    })
}

fn vet(elements: &[Element<'_>]) -> Result<SvgSummary, &'static str> {
    if elements.len() > ELEMENTS_MAX {
        return Err(TOO_MANY);
    }
    let mut vetted = SvgSummary::default();
    let mut depths: Vec<u32> = Vec::with_capacity(elements.len());
    let mut by_id: HashMap<&str, Vec<usize>> = HashMap::new();
    // The engine reads the first text of a style sheet, which may be all of them joined by then.
    let joined: Vec<String> =
        elements.iter().filter(|one| one.texts.len() > 1).map(|one| one.texts.concat()).collect();
    let mut rules: Vec<Rule<'_>> = Vec::new();
    let mut walks = 0;
    for text in elements.iter().flat_map(|one| &one.texts).chain(&joined) {
        rules.extend(rules_of(text, &mut walks)?);
    }
    for (number, element) in elements.iter().enumerate() {
        let depth = element.parent.map_or(0, |parent| depths[parent] + 1);
        if depth > DEPTH_MAX {
            return Err("its elements are deeper in each other than is taken");
        }
        depths.push(depth);
        vetted.lacks.extend(lack_of(element.name));
        vetted.has_text |= element.name == "text";
        for id in element.values("id") {
            if id.len() > ID_BYTES_MAX {
                return Err("a name in it is longer than is taken");
            }
            // Of several the engine takes the first or the last, by who refers to them.
            by_id.entry(id).or_default().push(number);
            if element.name == "pattern" {
                vetted.patterns.insert(id.to_owned());
            }
        }
        for (name, value) in &element.attributes {
            if *name == "href" && matches!(element.name, "image" | "feImage") {
                vetted.pixels = vetted.pixels.saturating_add(image_pixels(value).unwrap_or(0));
                if leads_out(element.name, name, value) {
                    vetted.lacks.insert("images that are not in it");
                }
            }
        }
    }
    // By the words of their selectors, but for those that may be of any element.
    let mut by_word: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut of_all: Vec<usize> = Vec::new();
    for (number, rule) in rules.iter().enumerate() {
        match &rule.word {
            Some(word) => by_word.entry(word).or_default().push(number),
            None => of_all.push(number),
        }
    }
    let mut looks = 0;
    let mut graph: Vec<Vec<(usize, u64)>> = vec![Vec::new(); elements.len()];
    // What is painted as a part of an element, and so has its marks and colours.
    let mut drawn: Vec<Vec<(usize, u64)>> = vec![Vec::new(); elements.len()];
    // Marks and colours that an element names, for itself and all that is painted as a part of it;
    // whether at each point, or once for each shape.
    let mut passed: Vec<Vec<(usize, bool)>> = vec![Vec::new(); elements.len()];
    // Masks, clip paths and filters of an element, and whether it has those of its parent.
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); elements.len()];
    let mut inherits: Vec<bool> = Vec::with_capacity(elements.len());
    let mut uses: Vec<(usize, usize)> = Vec::new();
    // What is painted elsewhere, with the marks and colours of where it is.
    let mut apart: Vec<usize> = Vec::new();
    for (number, element) in elements.iter().enumerate() {
        if let Some(parent) = element.parent {
            graph[parent].push((number, 1));
            if !is_apart(element.name) {
                drawn[parent].push((number, 1));
            }
        }
        if matches!(element.name, "marker" | "mask" | "pattern") {
            apart.push(number);
        }
        let mut hrefs: Vec<&str> = Vec::new();
        // With each, whether it would be a mark at an end of a line.
        let mut targets: Vec<(&str, bool)> = Vec::new();
        for (name, value) in &element.attributes {
            if *name == "href" && element.name != "a" {
                let name = value.trim_start().strip_prefix('#');
                hrefs.extend(name.and_then(|name| name.split(' ').next()));
            }
            let at_end = matches!(*name, "marker-start" | "marker-end");
            targets.extend(references(value).into_iter().map(|(_, id)| (id, at_end)));
        }
        let words: HashSet<&str> = std::iter::once(element.name)
            .chain(element.values("id"))
            .chain(element.values("class").flat_map(str::split_ascii_whitespace))
            .chain(element.values("class").flat_map(|value| value.split(' ')))
            .collect();
        let mut its = of_all.clone();
        for found in words.into_iter().filter_map(|word| by_word.get(word)) {
            looks += found.len();
            if looks > RULE_LOOKS_MAX {
                return Err(TOO_OFTEN);
            }
            its.extend(found);
        }
        its.sort_unstable();
        its.dedup();
        let mut inherits_here = says_inherit(element);
        for rule in its {
            looks += 1 + rules[rule].ids.len();
            if looks > RULE_LOOKS_MAX {
                return Err(TOO_OFTEN);
            }
            inherits_here |= rules[rule].inherits;
            targets.extend(rules[rule].ids.iter().map(|id| (*id, false)));
        }
        inherits.push(inherits_here);
        for target in hrefs.into_iter().filter_map(|id| by_id.get(id)).flatten().copied() {
            looks += 1;
            if looks > RULE_LOOKS_MAX {
                return Err(TOO_OFTEN);
            }
            graph[number].push((target, 1));
            if element.name == "use" {
                drawn[number].push((target, 1));
                uses.push((number, target));
            } else if element.name == "feImage" {
                apart.push(target);
            }
        }
        for (id, at_end) in targets {
            for target in by_id.get(id).into_iter().flatten().copied() {
                looks += 1;
                if looks > RULE_LOOKS_MAX {
                    return Err(TOO_OFTEN);
                }
                match elements[target].name {
                    "marker" => passed[number].push((target, !at_end)),
                    "linearGradient" | "radialGradient" | "pattern" => {
                        passed[number].push((target, false));
                    }
                    name => {
                        graph[number].push((target, 1));
                        if matches!(name, "mask" | "clipPath" | "filter") {
                            groups[number].push(target);
                        }
                    }
                }
            }
        }
        if let (true, Some(parent)) = (inherits_here, element.parent) {
            let of_parent = groups[parent].clone();
            looks += of_parent.len();
            if looks > RULE_LOOKS_MAX {
                return Err(TOO_OFTEN);
            }
            // None is a part of itself to the engine.
            for target in of_parent.into_iter().filter(|target| *target != number) {
                graph[number].push((target, 1));
                groups[number].push(target);
            }
        }
    }
    // The parent of what is used is what uses it.
    if uses.iter().any(|(by, target)| inherits[*target] && !groups[*by].is_empty()) {
        return Err("a part of it inherits a mask, clip path or filter from what uses it");
    }
    let shapes = costs(&drawn, |number| shapes_of(&elements[number])).ok_or(CIRCLE)?;
    let points = costs(&drawn, |number| points_of(&elements[number])).ok_or(CIRCLE)?;
    let often =
        |number: usize, at_points: bool| if at_points { points[number] } else { shapes[number] };
    for (number, its) in passed.iter().enumerate() {
        for (target, at_points) in its {
            graph[number].push((*target, often(number, *at_points).max(1)));
        }
    }
    // The next ancestor of each that names marks or colours.
    let mut above: Vec<Option<usize>> = Vec::with_capacity(elements.len());
    for element in elements {
        let next = element.parent.and_then(|parent| {
            if passed[parent].is_empty() { above[parent] } else { Some(parent) }
        });
        above.push(next);
    }
    // No part of the graph: that a mark is within an element that names it leads in no circle, since
    // the engine paints no mark within itself.
    let mut inherited: Vec<(usize, usize, u64)> = Vec::new();
    apart.sort_unstable();
    apart.dedup();
    for number in apart {
        let mut next = above[number];
        while let Some(ancestor) = next {
            for (target, at_points) in &passed[ancestor] {
                looks += 1;
                // Each one costs at least one.
                if looks > RULE_LOOKS_MAX || inherited.len() as u64 > COST_MAX {
                    return Err(TOO_OFTEN);
                }
                let times = often(number, *at_points);
                if *target != number && times > 0 {
                    inherited.push((number, *target, times));
                }
            }
            next = above[ancestor];
        }
    }
    let own = |element: &Element<'_>| {
        let bytes: usize = element.attributes.iter().map(|(_, value)| value.len()).sum();
        1 + (bytes / COST_BYTES) as u64
    };
    // Each pass is of marks one deeper in each other; deeper than there are marks they are not.
    let marks: HashSet<usize> = inherited.iter().map(|(_, target, _)| *target).collect();
    let mut extra: Vec<u64> = vec![0; elements.len()];
    for pass in 0..PASSES_MAX {
        let all = costs(&graph, |number| own(&elements[number]).saturating_add(extra[number]))
            .ok_or(CIRCLE)?;
        if all.first().is_some_and(|cost| *cost > COST_MAX) {
            return Err(TOO_OFTEN);
        }
        let mut more: Vec<u64> = vec![0; elements.len()];
        for (number, target, times) in &inherited {
            more[*number] = more[*number].saturating_add(all[*target].saturating_mul(*times));
        }
        if pass >= marks.len() || more == extra {
            return Ok(vetted);
        }
        extra = more;
    }
    Err(TOO_OFTEN)
}

/// What each one comes to, with all that follows from it each time; nothing, if that leads in a
/// circle.
fn costs(graph: &[Vec<(usize, u64)>], own: impl Fn(usize) -> u64) -> Option<Vec<u64>> {
    const OPEN: u64 = u64::MAX;
    let mut known: Vec<Option<u64>> = vec![None; graph.len()];
    for start in 0..graph.len() {
        if known[start].is_some() {
            continue;
        }
        let mut open = vec![(start, 0)];
        known[start] = Some(OPEN);
        while let Some((number, next)) = open.pop() {
            let Some((target, _)) = graph[number].get(next) else {
                let of_others = graph[number]
                    .iter()
                    .map(|(target, times)| known[*target].unwrap_or(0).saturating_mul(*times));
                let all = of_others.fold(own(number), u64::saturating_add);
                known[number] = Some(all.min(OPEN - 1));
                continue;
            };
            open.push((number, next + 1));
            match known[*target] {
                None => {
                    known[*target] = Some(OPEN);
                    open.push((*target, 0));
                }
                Some(OPEN) => return None,
                Some(_) => {}
            }
        }
    }
    known.into_iter().collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn vetted(body: &str) -> Result<(String, SvgSummary), &'static str> {
        let text = format!(
            "<svg xmlns='http://www.w3.org/2000/svg' xmlns:x='http://www.w3.org/1999/xlink'>{body}</svg>"
        );
        let (bytes, vetted) = vet_file(text.as_bytes(), 1 << 20)?.expect("it is XML");
        Ok((String::from_utf8(bytes).unwrap(), vetted))
    }

    /// Guarantee: pages/svg-bounds
    #[test]
    fn references_out_of_a_picture_are_taken_away() {
        for href in [
            "/etc/passwd.png",
            "file:///a.png",
            "a.svg",
            "http://a/b.png",
            "#a",
            "data:image/svg+xml,%3Csvg/%3E",
        ] {
            for image in ["image href", "image x:href", "image width='1' x:href"] {
                let (text, found) = vetted(&format!("<{image}='{href}'/>")).unwrap();
                assert!(!text.contains("href="), "{text}");
                assert!(found.lacks.contains("images that are not in it"));
            }
        }
        let png = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAIAAAADCAYAAAC56t6BAAAAC0lEQVR4nGNgwAkAABsAAco8Sg0AAAAASUVORK5CYII=";
        let (text, found) =
            vetted(&format!("<image href='{png}'/><use href='#a'/><a href='b.html'/>")).unwrap();
        assert!(text.contains(png) && text.contains("#a") && text.contains("b.html"), "{text}");
        assert_eq!((found.pixels, found.lacks.len()), (6, 0));
        // By an entity, too.
        let text = "<!DOCTYPE svg [<!ENTITY i '<image href=\"/etc/a.png\"/>'>]>\
            <svg xmlns='http://www.w3.org/2000/svg'>&i;</svg>";
        let (bytes, _) = vet_file(text.as_bytes(), 1 << 20).unwrap().unwrap();
        assert!(!String::from_utf8(bytes).unwrap().contains("href="));
    }

    /// Guarantee: pages/svg-bounds
    #[test]
    fn what_is_used_again_and_again_is_counted_each_time() {
        let doubling = |levels: usize, element: &dyn Fn(usize) -> String| -> String {
            (0..levels).map(element).chain([format!("<path id='g{levels}'/>")]).collect()
        };
        let uses = |level: usize| {
            let next = level + 1;
            format!("<g id='g{level}'><use href='#g{next}'/><use x:href='#g{next}'/></g>")
        };
        assert!(vetted(&doubling(10, &uses)).is_ok());
        let patterns = |level: usize| {
            let fill = format!("fill='url(#g{})'", level + 1);
            format!("<pattern id='g{level}'><rect {fill}/><rect style=\"{fill}\"/></pattern>")
        };
        let styled = |level: usize| {
            let next = level + 1;
            format!(
                "<style>.c{level} {{ mask: url(\"#g{next}\") }}</style><mask id='g{level}'><g class='c{level}'/>\
                 <g class='c{level}'/></mask>"
            )
        };
        let too_much =
            Err("it comes to more elements than are taken, since they are used again and again");
        for bomb in [doubling(40, &uses), doubling(40, &patterns), doubling(40, &styled)] {
            assert_eq!(vetted(&bomb).map(|_| ()), too_much);
        }
        // Also where there is nothing that they refer to, rules are looked at for each element.
        let rules = |count: usize| {
            let rules = "g { fill: url(#x) } .c { fill: url(#x) }".repeat(count);
            format!("<style>{rules}</style>{}", "<g/><path class='d'/>".repeat(count))
        };
        assert!(vetted(&rules(100)).is_ok());
        assert_eq!(vetted(&rules(3_000)).map(|_| ()), too_much);
        let points = "1 2 ".repeat(20_000);
        let marks = format!(
            "<marker id='m'>{}</marker><path d='{points}' marker-mid='url(#m)'/>",
            "<path/>".repeat(50)
        );
        assert_eq!(vetted(&marks).map(|_| ()), too_much);
        assert_eq!(
            vetted("<g id='a'><use href='#b'/></g><g id='b'><use href='#a'/></g>").map(|_| ()),
            Err("a part of it refers to itself")
        );
        assert!(vetted(&format!("{}{}", "<g>".repeat(1_100), "</g>".repeat(1_100))).is_err());
    }

    /// What an element has from those around it is counted, as the engine paints it.
    ///
    /// Guarantee: pages/svg-bounds
    #[test]
    fn what_is_inherited_is_counted_each_time() {
        let points = "1 2 ".repeat(20_000);
        let mark = |id: &str| format!("<marker id='{id}'>{}</marker>", "<path/>".repeat(50));
        let path = format!("<path id='p' d='{points}'/>");
        let stops = format!("<linearGradient id='l'>{}</linearGradient>", "<stop/>".repeat(2_000));
        let rects = "<rect/>".repeat(2_000);
        let masks = |part: &str| -> String {
            let level = |level: usize| {
                let part = part.replace('N', &(level + 1).to_string());
                format!("<mask id='g{level}'>{part}</mask>")
            };
            (0..40).map(level).collect()
        };
        for body in [
            format!("{}<g marker-mid='url(#m)'><g>{path}</g></g>", mark("m")),
            format!("{}<g style='marker:url(#m)'>{path}</g>", mark("m")),
            format!("<style>.c{{marker:url(#m)}}</style>{}<g class='c'>{path}</g>", mark("m")),
            format!(
                "{}<g marker-mid='url(#m)'><path marker-mid='inherit' d='{points}'/></g>",
                mark("m")
            ),
            format!("{}<defs>{path}</defs><g marker-mid='url(#m)'><use href='#p'/></g>", mark("m")),
            // In a mark, a mask or a filter within the element that names it.
            format!("{}<g marker-mid='url(#m)'><marker id='n'>{path}</marker></g>", mark("m")),
            format!("{}<g marker-mid='url(#m)'><mask id='n'>{path}</mask></g>", mark("m")),
            format!(
                "{}<g marker-mid='url(#m)'><defs>{path}</defs></g><feImage href='#p'/>",
                mark("m")
            ),
            format!("{stops}<g fill='url(#l)'>{rects}</g>"),
            format!("{stops}<g style='stroke:url(#l)'><g stroke='inherit'>{rects}</g></g>"),
            masks("<g mask='url(#gN)'><g mask='inherit'/></g>"),
            masks("<g style='mask:url(#gN)'><g style='mask:inherit'/></g>"),
            "<style>.i{mask:inherit}</style>".to_owned()
                + &masks("<g mask='url(#gN)'><g class='i'/></g>"),
        ] {
            let start: String = body.chars().take(200).collect();
            assert_eq!(vetted(&body).map(|_| ()), Err(TOO_OFTEN), "{start}");
        }
        let used = "<clipPath id='c'/><g id='g' clip-path='inherit'/>";
        assert!(vetted(&format!("{used}<use href='#g' clip-path='url(#c)'/>")).is_err());
        // What is named around what it is in is no circle, and ends of lines are two.
        let line = "<path d='M0 0h1'/>";
        for body in [
            format!("<g marker-mid='url(#m)'><marker id='m'>{line}</marker>{line}</g>"),
            format!(
                "<g style='marker-start:url(#m);marker-end:url(#n)'><marker id='m'>{line}</marker>\
                 <marker id='n'>{line}</marker>{line}</g>"
            ),
            format!("{}<g marker-start='url(#m)' marker-end='url(#m)'>{path}</g>", mark("m")),
            format!("{}{path}<g marker-mid='url(#m)'>{line}</g>", mark("m")),
            format!("{stops}<g fill='url(#l)'><rect/></g>{rects}"),
            "<g clip-path='url(#c)'><clipPath id='c' clip-path='inherit'/><g clip-path='inherit'/></g>"
                .to_owned(),
            format!("{used}<use href='#g'/>"),
        ] {
            let start: String = body.chars().take(200).collect();
            assert!(vetted(&body).is_ok(), "{start}");
        }
    }

    /// What the engine finds is counted, however it is written.
    ///
    /// Guarantee: pages/svg-bounds
    #[test]
    fn references_are_counted_in_every_spelling() {
        // `L` is a level and `N` the next one, which each level has twice.
        let bomb = |written: &str| -> String {
            let level = |level: usize| {
                written.replace('L', &level.to_string()).replace('N', &(level + 1).to_string())
            };
            (0..40).map(level).collect()
        };
        let mask = |id: &str, attribute: &str, sheet: &str| {
            let part = format!("<g class='cL \u{2605}L' {attribute}/>");
            format!("<style>{sheet}</style><mask {id}>{part}{part}</mask>")
        };
        let foreign = "xmlns:z='urn:z' z:id='o' id='gL'";
        for (id, attribute, sheet) in [
            ("id='gL'", "mask='url(#gN)'", ""),
            ("id='gL'", "mask=\"url('#gN ')\"", ""),
            ("id='gL'", "mask=\"url( ' #gN' )\"", ""),
            ("id='a)gL'", "mask=\"url('#a)gN')\"", ""),
            ("id='gL'", "style='/*url(#*/mask:url(#gN)'", ""),
            (foreign, "mask='url(#gN)'", ""),
            ("id='gL'", "", ".cL{/*}*/mask:url(#gN)}"),
            ("id='gL'", "", ".cL{mask:url(#gN);x:\"{\"}"),
            ("id='gL'", "", ".cL/}.d{mask:url(#gN)}"),
            ("id='gL'", "", "a,.cL{mask:url(#gN);b{c:d}}"),
            ("id='gL'", "", ".\u{2605}L{mask:url(#gN)}"),
        ] {
            let written = mask(id, attribute, sheet);
            assert_eq!(vetted(&bomb(&written)).map(|_| ()), Err(TOO_OFTEN), "{written}");
        }
        // To `url()` the last one of a name counts, to `href` the first one.
        let plain = mask("id='gL'", "mask='url(#gN)'", "");
        let twice = [bomb("<g id='gL'/>"), bomb(&plain)];
        assert_eq!(vetted(&twice.concat()).map(|_| ()), Err(TOO_OFTEN));
        // What is written in the place of a pattern is a class as well.
        let written = mask("id='gL'", "", ".none{mask:url(#gN)}");
        let replaced = written.replace("class='", "class='url(#p) ");
        assert!(vetted(&bomb(&replaced)).is_ok());
        let pattern = "<pattern id='p'/>".to_owned();
        assert!(vetted(&(pattern + &bomb(&replaced))).is_err());
        let long = "a".repeat(ID_BYTES_MAX + 1);
        assert!(vetted(&format!("<g id='{long}'/>")).is_err());
    }

    /// A style sheet is not read where that takes long.
    ///
    /// Guarantee: pages/svg-bounds
    #[test]
    fn style_sheets_are_bounded_before_they_are_read() {
        let many = format!("{} {{{}fill:url(#a)}}", "a,".repeat(10_000), "b:c;".repeat(10_000));
        assert!(rules_of(&many, &mut 0).is_err());
        let long = "a{fill:url(#a)}".repeat(20_000);
        assert!(rules_of(&long, &mut 0).is_err());
        assert!(rules_of(&format!("a{}{{}}", "/**/".repeat(2_000)), &mut 0).is_err());
        let rules = rules_of("a, .b > #c, [d='e'] { fill: url(#f) } g { h: i }", &mut 0).unwrap();
        let found: Vec<_> =
            rules.iter().map(|rule| (rule.word.as_deref(), &rule.ids[..])).collect();
        assert_eq!(found.len(), 3);
        for word in [Some("a"), Some("c"), None] {
            assert!(found.contains(&(word, &["f"][..])), "{found:?}");
        }
    }

    /// Nothing but references is replaced: no quotation mark, and no markup.
    ///
    /// Guarantee: pages/svg-bounds
    #[test]
    fn replaced_patterns_uncover_no_markup() {
        for body in [
            "<pattern id='p&lt;!--'/><pattern id='--&gt;'/><text>url(#p<!--)<image href='/a.png'/>url(#-->)</text>",
            "<pattern id='p\" b='/><g a=\"url(#p\" b=')' c='\" href=\"x\" '/>",
        ] {
            let (text, _) = vetted(body).unwrap();
            assert!(text.contains(body), "{text}");
        }
    }

    /// Guarantee: pages/svg-bounds
    #[test]
    fn entities_and_compressed_bytes_are_bounded() {
        let entity = |value: &str, body: &str| {
            let text = format!(
                "<!DOCTYPE svg [<!ENTITY a '{value}'>]><svg xmlns='http://www.w3.org/2000/svg'><text>{body}</text></svg>"
            );
            vet_file(text.as_bytes(), 1 << 24).map(|_| ())
        };
        assert_eq!(entity("http://ns.adobe.com/", "&a;&a;"), Ok(()));
        assert!(entity(&"x".repeat(100_000), &"&a;".repeat(100_000)).is_err());
        let laughs: String = (1..10)
            .map(|n| format!("<!ENTITY l{n} '{}'>", format!("&l{};", n - 1).repeat(10)))
            .collect();
        let text = format!("<!DOCTYPE svg [<!ENTITY l0 'lol'>{laughs}]><svg>&l9;</svg>");
        // The parser refuses it, here as in the engine.
        assert_eq!(vet_file(text.as_bytes(), 1 << 20), Ok(None));
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut packed, &vec![b' '; 4 << 20]).unwrap();
        assert_eq!(
            vet_file(&packed.finish().unwrap(), 1 << 20).map(|_| ()),
            Err("unpacked it has more bytes than are taken")
        );
    }

    /// Guarantee: pages/svg
    #[test]
    fn patterns_are_not_painted_and_said() {
        let (text, found) = vetted(
            "<pattern id='p'><path/></pattern><linearGradient id='l'/><rect fill='url(#p)'/>\
             <rect style=\"fill: url('#p'); stroke: url(#l)\"/><style>a { fill: url(#p) }</style>",
        )
        .unwrap();
        assert!(
            !text.contains("#p") && text.contains("url(#l)") && text.contains("fill='none   '"),
            "{text}"
        );
        assert!(found.lacks.contains("patterns"));
    }

    #[test]
    fn letters_of_other_encodings_are_read() {
        let latin = b"<?xml version='1.0' encoding='iso-8859-1'?><svg xmlns='http://www.w3.org/2000/svg'><text>\xE9</text></svg>";
        let (bytes, found) = vet_file(latin, 1 << 20).unwrap().unwrap();
        assert!(String::from_utf8(bytes).unwrap().contains('\u{e9}') && found.has_text);
        let wide: Vec<u8> = "\u{feff}<svg xmlns='http://www.w3.org/2000/svg'/>"
            .encode_utf16()
            .flat_map(u16::to_le_bytes)
            .collect();
        assert!(may_be(&wide) && vet_file(&wide, 1 << 20).unwrap().is_some());
    }
}
