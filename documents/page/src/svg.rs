//! SVG that a page has in it or asks for, looked at before the engine gets it.
//!
//! Invariants:
//! - The engine's SVG reads files of this machine by their names: no reference but to the picture
//!   itself and to data within it is let through.
//! - What a picture comes to is bounded before it is made: elements, with all that refer to them
//!   counted each time; text, with its entities; pixels of images within it.
//! - No recursion on the depth of a picture.
//! - What the engine leaves out of a picture is said.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io::Read;

use data_url::DataUrl;
use encoding_rs::{Encoding, WINDOWS_1252};
use holdfast_dom::{Document, Namespace, Node, NodeKind};
use roxmltree::ParsingOptions;

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
const TOO_MANY: &str = "it has more elements than are taken";
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
            if self.patterns.contains(id) {
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
    attributes: Vec<(&'a str, &'a str)>,
    /// Of a style sheet.
    text: String,
}

impl Element<'_> {
    fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }
}

/// Looks at the picture that an element of a page is; its descendants of other namespaces do not
/// count.
fn vet_inline(root: Node<'_>) -> Result<SvgSummary, &'static str> {
    let mut elements: Vec<Element<'_>> = Vec::new();
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
                    attributes: node.attributes().map(|one| (local(one.name), one.value)).collect(),
                    text: String::new(),
                });
            }
            NodeKind::Text => {
                if let Some(parent) = parent.filter(|parent| elements[*parent].name == "style") {
                    elements[parent].text.push_str(node.data().unwrap_or_default());
                }
            }
            _ => {}
        }
    }
    let mut vetted = vet(&elements)?;
    if foreign {
        vetted.lacks.insert("HTML within it");
    }
    Ok(vetted)
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
    let options = ParsingOptions {
        allow_dtd: true,
        nodes_limit: ELEMENTS_MAX as u32 * 4,
        ..ParsingOptions::default()
    };
    let document = match roxmltree::Document::parse_with_options(&text, options) {
        Ok(document) => document,
        Err(roxmltree::Error::NodesLimitReached) => return Err(TOO_MANY),
        // What was packed would be unpacked once more.
        Err(_) if is_packed(given) => return Err("it is no SVG that can be read"),
        Err(_) => return Ok(None),
    };
    let mut numbers = HashMap::new();
    let mut elements: Vec<Element<'_>> = Vec::new();
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        let parent = node.parent().and_then(|parent| numbers.get(&parent.id()).copied());
        numbers.insert(node.id(), elements.len());
        let name = node.tag_name().name();
        let is_style = name == "style";
        let texts = node.children().filter_map(|child| child.text().filter(|_| is_style));
        elements.push(Element {
            name,
            parent,
            attributes: node.attributes().map(|one| (one.name(), one.value())).collect(),
            text: texts.collect(),
        });
    }
    let vetted = vet(&elements)?;
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
    drop(elements);
    let mut changed = text.clone().into_owned();
    for (start, (end, other)) in edits.into_iter().rev() {
        changed.replace_range(start..end, &other);
    }
    drop(document);
    Ok(Some((vetted.without_patterns(&changed).into_owned().into_bytes(), vetted)))
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

/// Where a text refers to something by its name: `url(#name)`, with or without quotes.
fn references(text: &str) -> Vec<(std::ops::Range<usize>, &str)> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(at) = text[from..].find("url(") {
        let start = from + at;
        from = start + 4;
        let Some(end) = text[from..].find(')') else { break };
        let inner = text[from..from + end].trim().trim_matches(['"', '\'']);
        if let Some(id) = inner.strip_prefix('#') {
            found.push((start..from + end + 1, id));
        }
        from += end;
    }
    found
}

/// Rules of the picture's style sheets that refer to something: which elements they may be of, and
/// to what.
struct Rule<'a> {
    words: HashSet<&'a str>,
    is_of_all: bool,
    ids: Vec<&'a str>,
}

fn rules_of(sheet: &str) -> Vec<Rule<'_>> {
    let mut rules = Vec::new();
    for piece in sheet.split('}') {
        let Some((selector, body)) = piece.rsplit_once('{') else { continue };
        let ids: Vec<&str> = references(body).into_iter().map(|(_, id)| id).collect();
        if !ids.is_empty() {
            let is_part = |c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_'));
            let words: HashSet<&str> =
                selector.split(is_part).filter(|word| !word.is_empty()).collect();
            rules.push(Rule { words, is_of_all: selector.contains(['*', '[', ':', '\\']), ids });
        }
    }
    rules
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
    let mut by_id: HashMap<&str, usize> = HashMap::new();
    let rules: Vec<Rule<'_>> = elements.iter().flat_map(|one| rules_of(&one.text)).collect();
    for (number, element) in elements.iter().enumerate() {
        let depth = element.parent.map_or(0, |parent| depths[parent] + 1);
        if depth > DEPTH_MAX {
            return Err("its elements are deeper in each other than is taken");
        }
        depths.push(depth);
        vetted.lacks.extend(lack_of(element.name));
        vetted.has_text |= element.name == "text";
        if let Some(id) = element.attribute("id") {
            by_id.entry(id).or_insert(number);
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
    let mut graph: Vec<Vec<(usize, u64)>> = vec![Vec::new(); elements.len()];
    for (number, element) in elements.iter().enumerate() {
        if let Some(parent) = element.parent {
            graph[parent].push((number, 1));
        }
        let mut targets: Vec<&str> = Vec::new();
        for (name, value) in &element.attributes {
            if *name == "href" && element.name != "a" {
                targets.extend(value.trim().strip_prefix('#'));
            }
            targets.extend(references(value).into_iter().map(|(_, id)| id));
        }
        let classes = element.attribute("class").unwrap_or_default();
        for rule in &rules {
            let is_its = rule.is_of_all
                || rule.words.contains(element.name)
                || element.attribute("id").is_some_and(|id| rule.words.contains(id))
                || classes.split_ascii_whitespace().any(|class| rule.words.contains(class));
            if is_its {
                targets.extend(&rule.ids);
            }
        }
        // A mark is painted at each point of a line.
        let points = element
            .attribute("d")
            .or(element.attribute("points"))
            .map_or(1, |text| text.len() as u64 / 2);
        for target in targets.into_iter().filter_map(|id| by_id.get(id).copied()) {
            let times = if elements[target].name == "marker" { points.max(1) } else { 1 };
            graph[number].push((target, times));
        }
    }
    let own = |element: &Element<'_>| {
        let bytes: usize = element.attributes.iter().map(|(_, value)| value.len()).sum();
        1 + (bytes / COST_BYTES) as u64
    };
    match cost(&graph, |number| own(&elements[number])) {
        Some(cost) if cost <= COST_MAX => Ok(vetted),
        Some(_) => {
            Err("it comes to more elements than are taken, since they are used again and again")
        }
        None => Err("a part of it refers to itself"),
    }
}

/// What the first one comes to, with all that follows from it each time; nothing, if that leads in
/// a circle.
fn cost(graph: &[Vec<(usize, u64)>], own: impl Fn(usize) -> u64) -> Option<u64> {
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
    known.first().copied().flatten().or(Some(0))
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
