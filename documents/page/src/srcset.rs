//! Which of its images an `img` shows: of those that its `srcset` names, or that of a `source`
//! before it in a `picture`, the one that fits the viewport.
//!
//! The engine knows `src` alone, and gets what was chosen as that. Nor does it know that an image
//! can have another size in CSS than in pixels: it lays the page out while its images say their
//! size in CSS ([`set_natural_sizes`]), and paints while they say their pixels.
//!
//! Source: HTML, "4.8.4.3 Processing model" of images, with "Parsing a srcset attribute" and
//! "Parsing a sizes attribute". Which of several images of one `srcset` is best is left to browsers:
//! here the least dense that has enough pixels for the viewport's scale, or else the densest.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use blitz_dom::{BaseDocument, NodeId};
use holdfast_dom::{Document, Namespace, Node};
use style::context::QuirksMode;
use style::properties::{PropertyDeclaration, parse_style_attribute};
use style::selector_parser::RestyleDamage;
use style::stylesheets::{CssRuleType, UrlExtraData};
use style::values::computed::{Context, ToComputedValue};
use style::values::specified::Perspective;

use crate::sheets;
use crate::view::View;

/// Images of a `srcset` that are looked at.
const CANDIDATES_MAX: usize = 1_000;
/// Conditions and lengths of a page that are looked at: each is a style sheet to the engine.
const QUERIES_MAX: u32 = 20_000;
/// Pixels of an image in one direction, in CSS.
const NATURAL_MAX: f64 = 1e9;
/// Bytes that the chosen images' addresses may come to: all images of a `picture` have the same one.
const ADDRESS_BYTES_MAX: usize = 128 << 20;
/// Kinds of images that are decoded; those of which there is a second name have both.
const KINDS: [&str; 8] = [
    "image/apng",
    "image/gif",
    "image/jpeg",
    "image/jpg",
    "image/png",
    "image/svg+xml",
    "image/webp",
    "image/x-png",
];

/// The image that an `img` shows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ImageSource<'d> {
    /// Its address, as the page writes it.
    pub(crate) address: &'d str,
    /// Width and height that its `source` says; with one of them, those of the `img` do not count.
    pub(crate) dimensions: [Option<&'d str>; 2],
    /// How many of its pixels are one of CSS.
    pub(crate) density: f64,
}

impl ImageSource<'_> {
    fn bytes(&self) -> usize {
        let of_dimensions: usize = self.dimensions.iter().flatten().map(|text| text.len()).sum();
        self.address.len() + of_dimensions
    }
}

/// The images of those elements that do not just have a `src`, by the elements' numbers.
pub(crate) type ImageSources<'d> = HashMap<u32, ImageSource<'d>>;

/// An image that a `srcset` names.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Candidate<'d> {
    address: &'d str,
    descriptor: Descriptor,
}

/// What a `srcset` says of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Descriptor {
    /// How many of its pixels are one of CSS.
    Density(f64),
    /// How many pixels wide it is.
    Width(f64),
}

/// Chooses the images of a page.
pub(crate) fn choose<'d>(
    document: &'d Document<'d>,
    engine: &mut BaseDocument,
    view: View,
) -> ImageSources<'d> {
    let base = UrlExtraData::from(engine.base_url().clone());
    let widths = HashMap::new();
    let mut chooser = Chooser { engine, base, view, widths, queries_left: QUERIES_MAX };
    let mut bytes_left = ADDRESS_BYTES_MAX;
    let mut of_pictures: HashMap<u32, ImageSource<'d>> = HashMap::new();
    let mut sources = HashMap::new();
    for node in document.root().descendants() {
        if node.namespace() != Some(Namespace::Html) {
            continue;
        }
        match node.name() {
            Some("source") => {
                if let Some(picture) = picture_of(node)
                    && let Entry::Vacant(place) = of_pictures.entry(picture)
                    && let Some(source) = chooser.of_source(node)
                {
                    place.insert(source);
                }
            }
            Some("img") => {
                let of_picture = picture_of(node).and_then(|picture| of_pictures.get(&picture));
                let source = of_picture.copied().or_else(|| chooser.of_image(node));
                if let Some(source) = source
                    && let Some(left) = bytes_left.checked_sub(source.bytes())
                {
                    bytes_left = left;
                    sources.insert(node.id(), source);
                }
            }
            _ => {}
        }
    }
    sources
}

fn picture_of(node: Node<'_>) -> Option<u32> {
    let parent = node.parent()?;
    let is_picture =
        parent.name() == Some("picture") && parent.namespace() == Some(Namespace::Html);
    is_picture.then(|| parent.id())
}

struct Chooser<'e, 'd> {
    engine: &'e mut BaseDocument,
    base: UrlExtraData,
    view: View,
    /// What values of `sizes` come to: most images of a page have the same.
    widths: HashMap<&'d str, f64>,
    queries_left: u32,
}

impl<'d> Chooser<'_, 'd> {
    /// The image of a `source`, if that counts.
    fn of_source(&mut self, node: Node<'d>) -> Option<ImageSource<'d>> {
        let candidates = candidates(node.attribute("srcset")?);
        let media = node.attribute("media").unwrap_or_default();
        if candidates.is_empty() || !is_decoded(node.attribute("type")) || !self.applies(media) {
            return None;
        }
        let best = self.best(&candidates, node.attribute("sizes"))?;
        let dimensions = [node.attribute("width"), node.attribute("height")];
        Some(ImageSource { dimensions, ..best })
    }

    /// The image of an `img` that no `source` decides about; none, if there is nothing to choose.
    fn of_image(&mut self, node: Node<'d>) -> Option<ImageSource<'d>> {
        let mut candidates = candidates(node.attribute("srcset")?);
        let src = node.attribute("src").filter(|address| !address.is_empty());
        let lacks_plain = candidates.iter().all(|candidate| match candidate.descriptor {
            Descriptor::Density(density) => density != 1.0,
            Descriptor::Width(_) => false,
        });
        if let (Some(address), true) = (src, lacks_plain) {
            candidates.push(Candidate { address, descriptor: Descriptor::Density(1.0) });
        }
        self.best(&candidates, node.attribute("sizes"))
    }

    fn best(
        &mut self,
        candidates: &[Candidate<'d>],
        sizes: Option<&'d str>,
    ) -> Option<ImageSource<'d>> {
        let wanted = self.scale();
        // Once for all of them: what is said of it may be long.
        let mut width: Option<f64> = None;
        let mut best: Option<ImageSource<'d>> = None;
        for candidate in candidates {
            let density = match candidate.descriptor {
                Descriptor::Density(density) => density,
                Descriptor::Width(pixels) => {
                    pixels / *width.get_or_insert_with(|| self.width_of(sizes.unwrap_or_default()))
                }
            };
            // Of two that are as dense the first one counts.
            let is_better = best.is_none_or(|best| match best.density < wanted {
                true => density > best.density,
                false => density >= wanted && density < best.density,
            });
            if is_better {
                let address = candidate.address;
                best = Some(ImageSource { address, dimensions: [None; 2], density });
            }
        }
        best
    }

    /// How wide an image is going to be, in CSS, as its page says by `sizes`; as the viewport,
    /// where it says nothing.
    fn width_of(&mut self, sizes: &'d str) -> f64 {
        if let Some(width) = self.widths.get(sizes) {
            return *width;
        }
        let of_viewport = f64::from(self.view.width()) / self.scale();
        let width = entries(sizes).find_map(|entry| self.size(entry)).unwrap_or(of_viewport);
        self.widths.insert(sizes, width);
        width
    }

    /// What an entry of `sizes` says, if it counts.
    fn size(&mut self, entry: &str) -> Option<f64> {
        let entry = entry.trim_ascii();
        let (condition, length) = entry.split_at(last_component(entry));
        let condition = condition.trim_ascii();
        let counts = is_condition(condition) && self.applies(condition);
        if !(condition.is_empty() || counts) {
            return None;
        }
        self.queries_left = self.queries_left.checked_sub(1)?;
        pixels(length, &self.base, self.engine)
    }

    fn applies(&mut self, media: &str) -> bool {
        match self.queries_left.checked_sub(1) {
            Some(left) => {
                self.queries_left = left;
                sheets::applies(Some(media), self.engine)
            }
            None => media.is_empty(),
        }
    }

    fn scale(&self) -> f64 {
        f64::from(self.view.scale_permille()) / 1000.0
    }
}

/// Whether images of this type are decoded; of those without one it is not known before.
fn is_decoded(kind: Option<&str>) -> bool {
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim_ascii();
    kind.is_empty() || KINDS.iter().any(|known| known.eq_ignore_ascii_case(kind))
}

/// The images of a `srcset`. What is written wrong of one leaves that one out.
fn candidates(srcset: &str) -> Vec<Candidate<'_>> {
    let mut found = Vec::new();
    let mut rest = srcset;
    while found.len() < CANDIDATES_MAX {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        if rest.is_empty() {
            break;
        }
        let end = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
        let (written, behind) = rest.split_at(end);
        // An address may have commas in it, but not at its end.
        let address = written.trim_end_matches(',');
        let (descriptors, behind) =
            if address.len() < written.len() { ("", behind) } else { until_comma(behind) };
        rest = behind;
        if let Some(descriptor) = descriptor_of(descriptors) {
            found.push(Candidate { address, descriptor });
        }
    }
    found
}

/// What comes before a comma that is in no parentheses, and what comes behind it.
fn until_comma(text: &str) -> (&str, &str) {
    let mut is_within = false;
    let comma = text.find(|c: char| {
        match c {
            '(' => is_within = true,
            ')' => is_within = false,
            _ => {}
        }
        c == ',' && !is_within
    });
    comma.map_or((text, ""), |at| (&text[..at], &text[at + 1..]))
}

/// What a `srcset` says of an image behind its address; none, if that is nothing that there is.
fn descriptor_of(text: &str) -> Option<Descriptor> {
    let (mut width, mut density, mut height) = (None, None, None);
    for word in text.split_ascii_whitespace() {
        let (value, unit) = word.split_at_checked(word.len() - 1)?;
        match unit {
            "w" if width.is_none() && density.is_none() => width = Some(positive(value)?),
            "x" if width.is_none() && density.is_none() && height.is_none() => {
                density = Some(number(value)?);
            }
            "h" if height.is_none() && density.is_none() => height = Some(positive(value)?),
            _ => return None,
        }
    }
    match (width, height) {
        (Some(width), _) => Some(Descriptor::Width(width)),
        // A height says nothing by itself.
        (None, Some(_)) => None,
        (None, None) => Some(Descriptor::Density(density.unwrap_or(1.0))),
    }
}

/// A whole number above nought.
fn positive(value: &str) -> Option<f64> {
    let is_whole = value.bytes().all(|byte| byte.is_ascii_digit());
    value.parse::<f64>().ok().filter(|number| is_whole && *number > 0.0 && number.is_finite())
}

/// A number as HTML has it, not below nought: no sign but `-`, no word, no point at the end.
fn number(value: &str) -> Option<f64> {
    let is_part = |byte: u8| byte.is_ascii_digit() || b".-+eE".contains(&byte);
    let is_written_right = !value.starts_with('+')
        && value.bytes().all(is_part)
        && value
            .split_once('.')
            .is_none_or(|(_, behind)| behind.starts_with(|c: char| c.is_ascii_digit()));
    let number = value.parse::<f64>().ok()?;
    (is_written_right && number >= 0.0 && number.is_finite()).then_some(number)
}

/// The entries of a `sizes`: what is between commas that are in no parentheses.
fn entries(sizes: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0u32;
    sizes.split(move |c: char| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
}

/// Where the last component of an entry begins, which is its length: a function as a whole.
fn last_component(entry: &str) -> usize {
    let (mut depth, mut is_begun) = (0u32, false);
    for (at, c) in entry.char_indices().rev() {
        if is_begun && depth == 0 && (c.is_ascii_whitespace() || c == ')') {
            return at + 1;
        }
        is_begun = true;
        match c {
            ')' => depth += 1,
            '(' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    0
}

/// Whether it is a condition, as a media query may be, and not the name of a medium.
fn is_condition(text: &str) -> bool {
    let is_not = text.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("not"));
    text.starts_with('(') || is_not && text[3..].trim_ascii_start().starts_with('(')
}

/// A length in pixels of CSS; none, if it is no length, or is below nought.
fn pixels(length: &str, base: &UrlExtraData, engine: &mut BaseDocument) -> Option<f64> {
    // A declaration may be important, a length is not.
    if length.contains('!') {
        return None;
    }
    // A property that has just such a length, besides a word.
    let declared = parse_style_attribute(
        &format!("perspective: {length}"),
        base,
        None,
        QuirksMode::NoQuirks,
        CssRuleType::Style,
    );
    let [PropertyDeclaration::Perspective(Perspective::Length(length))] = declared.declarations()
    else {
        return None;
    };
    let device = engine.stylist_device();
    let computed = Context::for_media_query_evaluation(device, QuirksMode::NoQuirks, |context| {
        length.to_computed_value(context)
    });
    Some(f64::from(computed.px()))
}

/// The sizes of images in pixels, while they say others.
pub(crate) struct PixelSizes {
    sizes: Vec<(NodeId, u32, u32)>,
}

/// Has images say their size in CSS, for the layout that comes next. Images that were chosen by
/// their density have another one in pixels.
pub(crate) fn set_natural_sizes(
    engine: &mut BaseDocument,
    pairs: &[(u32, NodeId)],
    sources: &ImageSources<'_>,
) -> PixelSizes {
    let mut sizes = Vec::new();
    for (number, id) in pairs {
        let Some(density) = sources.get(number).map(|source| source.density) else { continue };
        // Where `sizes` says nought, it is infinite.
        if density == 1.0 || density <= 0.0 {
            continue;
        }
        let Some(node) = engine.get_node_mut(*id) else { continue };
        let image = node.element_data_mut().and_then(|element| element.raster_image_data_mut());
        let Some(image) = image else { continue };
        sizes.push((*id, image.width, image.height));
        for side in [&mut image.width, &mut image.height] {
            *side = (f64::from(*side) / density).round().clamp(1.0, NATURAL_MAX) as u32;
        }
        node.insert_damage(RestyleDamage::RELAYOUT);
    }
    PixelSizes { sizes }
}

impl PixelSizes {
    /// Has them say their pixels again, which are painted.
    pub(crate) fn put_back(self, engine: &mut BaseDocument) {
        for (id, width, height) in self.sizes {
            let element = engine.get_node_mut(id).and_then(|node| node.element_data_mut());
            if let Some(image) = element.and_then(|element| element.raster_image_data_mut()) {
                (image.width, image.height) = (width, height);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use blitz_dom::DocumentConfig;
    use blitz_traits::shell::{ColorScheme, Viewport};
    use holdfast_dom::{LoosePage, ParseOptions};

    use super::*;

    /// The images of a `srcset` are those that the standard's algorithm finds.
    ///
    /// Guarantee: pages/images
    #[test]
    fn srcset_reads_as_the_standard_says() {
        use Descriptor::{Density, Width};
        for (srcset, expected) in [
            ("a", &[("a", Density(1.0))][..]),
            ("", &[]),
            (" , ,", &[]),
            (" a 2x,b 1.5x , c", &[("a", Density(2.0)), ("b", Density(1.5)), ("c", Density(1.0))]),
            ("a,b 2x", &[("a,b", Density(2.0))]),
            ("a, b 2x,", &[("a", Density(1.0)), ("b", Density(2.0))]),
            ("a,,\tb", &[("a", Density(1.0)), ("b", Density(1.0))]),
            ("data:x,y 100w", &[("data:x,y", Width(100.0))]),
            ("a 100w 50h, b 50h 200w", &[("a", Width(100.0)), ("b", Width(200.0))]),
            (
                "a 1e1x, b .5x, c 0x",
                &[("a", Density(10.0)), ("b", Density(0.5)), ("c", Density(0.0))],
            ),
            // What is written wrong leaves just that image out.
            ("a 2, b", &[("b", Density(1.0))]),
            ("a 0w, b -1x, c 1.5w, d 50h, e 1w 1x, f 1x 2x, g 1w 2w, h", &[("h", Density(1.0))]),
            ("a +1x, b 1.x, c infx, d nanx, e x, f w, g 1é, h", &[("h", Density(1.0))]),
            ("a (1x, 2x), b", &[("b", Density(1.0))]),
            ("a (1x, b", &[]),
        ] {
            let found: Vec<_> = candidates(srcset)
                .into_iter()
                .map(|candidate| (candidate.address, candidate.descriptor))
                .collect();
            assert_eq!(found, expected, "{srcset}");
        }
        assert_eq!(candidates(&"a 2x, ".repeat(5_000)).len(), CANDIDATES_MAX);
    }

    fn engine(view: View) -> BaseDocument {
        BaseDocument::new(DocumentConfig {
            viewport: Some(Viewport::new(
                view.width(),
                view.height(),
                view.scale_factor(),
                ColorScheme::Light,
            )),
            base_url: Some("file:///a.html".to_owned()),
            ..DocumentConfig::default()
        })
    }

    /// What each image of a page is loaded from, and its density.
    fn chosen(source: &str, view: View) -> Vec<(String, f64)> {
        let page = LoosePage::parse(source.as_bytes(), &ParseOptions::default()).unwrap();
        let document = page.open().unwrap();
        let sources = choose(&document, &mut engine(view), view);
        let mut found: Vec<_> = sources.into_iter().collect();
        found.sort_by_key(|(number, _)| *number);
        found.into_iter().map(|(_, source)| (source.address.to_owned(), source.density)).collect()
    }

    /// The image of a `srcset` follows the scale of the viewport, or its width.
    ///
    /// Guarantee: pages/images
    #[test]
    fn image_fits_the_viewport() {
        let one = View::new(400, 300, 1000).unwrap();
        let two = View::new(800, 600, 2000).unwrap();
        let densities = "<img src=a srcset='b 1.5x, c 2x, d 3x, e 2x'>";
        assert_eq!(chosen(densities, one), [("a".to_owned(), 1.0)]);
        assert_eq!(chosen(densities, two), [("c".to_owned(), 2.0)]);
        assert_eq!(chosen(densities, View::new(9, 9, 9000).unwrap()), [("d".to_owned(), 3.0)]);
        // There is one for each pixel of CSS already.
        assert_eq!(chosen("<img src=a srcset='b'>", one), [("b".to_owned(), 1.0)]);
        assert_eq!(chosen("<img src=a srcset=','>", one), [("a".to_owned(), 1.0)]);
        assert!(chosen("<img src=a><img srcset=','><p srcset=a><img srcset>", one).is_empty());
        for (sizes, width) in [
            ("", 400.0),
            ("sizes=''", 400.0),
            ("sizes='50vw'", 200.0),
            ("sizes=' (max-width: 399px) 1px, ( min-width:400px )100px , 7px'", 100.0),
            ("sizes='not (min-width: 400px) 1px, calc(100vw - (2 * 100px))'", 200.0),
            ("sizes='(min-width: 1px) and (max-width: 2px) min(1px, 2px), 50px'", 50.0),
            ("sizes='1em'", 16.0),
            // What is no length, no condition, or not known before the layout, does not count.
            ("sizes='auto, 50%, -1px, 5, screen 1px, 40px; color: red, none, 80px'", 80.0),
            ("sizes='(min-width: 1px) { } a { } 5px, 90px'", 90.0),
            ("sizes='100px 50px'", 400.0),
            ("sizes='not print and (min-width: 1px) 3px, 10px!important, 60px'", 60.0),
            ("sizes='((('", 400.0),
        ] {
            let page = format!("<img src=a srcset='b 1w, c {width}w' {sizes}>");
            assert_eq!(chosen(&page, one), [("c".to_owned(), 1.0)], "{sizes}");
            let page = format!("<img src=a srcset='b 1w, c {}w' {sizes}>", width - 1.0);
            assert_eq!(chosen(&page, one)[0].1, (width - 1.0) / width, "{sizes}");
        }
    }

    /// Of a picture the first source counts whose medium and type do.
    ///
    /// Guarantee: pages/images
    #[test]
    fn first_source_that_applies_counts() {
        let view = View::new(400, 300, 1000).unwrap();
        for (counts, attributes) in [
            (true, ""),
            (true, "media='' type=''"),
            (true, "media='(min-width: 400px)' type='image/WebP; x=y'"),
            (true, "type=image/svg+xml"),
            (false, "media='(min-width: 401px)'"),
            (false, "media=print"),
            (false, "media='screen { } a { } @media screen'"),
            (false, "type=image/avif"),
            (false, "type=image"),
        ] {
            // A source within a paragraph is not one of the picture.
            let page = format!(
                "<picture><source><source srcset=','><p><source srcset=c></p>\
                 <source srcset='b 2x' {attributes}><img src=a srcset=d></picture>"
            );
            let (address, density) = if counts { ("b", 2.0) } else { ("d", 1.0) };
            assert_eq!(chosen(&page, view), [(address.to_owned(), density)], "{attributes}");
        }
        let two = "<picture><source srcset='b 2x'><img src=a><img srcset=c></picture>";
        let both = [("b".to_owned(), 2.0), ("b".to_owned(), 2.0)];
        assert_eq!(chosen(two, view), both, "all images of a picture have its source");
        let long = "b".repeat(1 << 20);
        let many = format!("<picture><source srcset={long}>{}", "<img src=a>".repeat(200));
        assert_eq!(chosen(&many, view).len(), ADDRESS_BYTES_MAX >> 20);
        let page = "<picture><img src=a><source srcset=b></picture><source srcset=c><img src=a>";
        assert!(chosen(page, view).is_empty(), "it counts for what is behind it in a picture");
    }
}
