//! The layout engine, at arm's length: a document goes in, plain results come out.
//!
//! Invariants:
//! - The engine runs in a thread of its own ([`steps`]), with a stack for the deepest page that is
//!   taken; a panic in it is a typed error, and so is a page that takes too long.
//! - What is painted is handed out before it is found out what is where and the whole page is
//!   recorded: no viewer waits for that.
//! - Nothing of the engine leaves the thread: its nodes hold addresses.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use blitz_dom::util::Point;
use blitz_dom::{BaseDocument, DocumentConfig};
use blitz_traits::shell::{ColorScheme, Viewport};
use encoding_rs::Encoding;
use holdfast_dom::{Document, DomError, Namespace, Node, Quirks};
use zerocopy::IntoBytes;

use crate::alts;
use crate::dots;
use crate::error::PageError;
use crate::faces::FontFaces;
use crate::families::Families;
use crate::hints;
use crate::limits::{PageLimits, ROUNDS_MAX};
use crate::loader::Loader;
use crate::paragraphs::{Bounds, Paragraphs};
use crate::pixels::{Pixels, direct};
use crate::place;
use crate::places::{self, PageLayout};
use crate::record::{self, PaintRecord};
use crate::resource::{Reach, Resource};
use crate::sheets;
use crate::sources::Sources;
use crate::spans::Spans;
use crate::srcset;
use crate::steps::{self, DeferredResult, ResultSender};
use crate::svg;
use crate::tree;
use crate::view::View;

/// A document's bytes, in memory of its own.
pub(crate) struct DomBytes {
    words: Vec<u64>,
    bytes: usize,
}

impl DomBytes {
    pub(crate) fn copy(bytes: &[u8]) -> DomBytes {
        let mut words = vec![0u64; bytes.len().div_ceil(size_of::<u64>())];
        words.as_mut_bytes()[..bytes.len()].copy_from_slice(bytes);
        DomBytes { words, bytes: bytes.len() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.words.as_bytes()[..self.bytes]
    }
}

impl fmt::Debug for DomBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DomBytes").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// What is to be made.
pub(crate) struct LayoutJob {
    pub(crate) dom: DomBytes,
    /// What addresses in the page are relative to.
    pub(crate) base_url: String,
    /// The encoding of the page's source.
    pub(crate) encoding: &'static Encoding,
    pub(crate) view: View,
    pub(crate) limits: PageLimits,
    /// What the page may ask for, and who gives it.
    pub(crate) reach: Reach,
    pub(crate) sources: Arc<Sources>,
    /// What is to be at the top of the viewport.
    pub(crate) fragment: Option<String>,
    /// Whether the whole page is recorded, to be kept.
    pub(crate) record: bool,
    /// Whether it reports the places of elements.
    pub(crate) places: bool,
}

/// What was made first: all that is shown.
pub(crate) struct LaidOutPage {
    pub(crate) pixels: Pixels,
    pub(crate) title: String,
    pub(crate) content: (u32, u32),
    pub(crate) scroll: u32,
    pub(crate) resources: Vec<Resource>,
    pub(crate) left_out: Vec<String>,
    /// Whether the page asked for something of the network.
    pub(crate) wants_network: bool,
    /// Whether text was drawn of whose fonts nothing tells.
    pub(crate) has_drawn_text: bool,
    pub(crate) times: EngineTimes,
}

/// What was made after that.
#[derive(Default)]
pub(crate) struct RecordedPage {
    /// The whole page, to be kept.
    pub(crate) recorded: Option<PaintRecord>,
    pub(crate) places: Option<PageLayout>,
}

/// How long it took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EngineTimes {
    /// The engine's tree with what it asks for, style and layout.
    pub(crate) layout: Duration,
    pub(crate) paint: Duration,
}

/// Does the job in a thread of its own, and returns when there are pixels.
///
/// # Errors
/// [`PageError::Engine`], [`PageError::TimeOut`], [`PageError::Dom`], [`PageError::Thread`].
pub(crate) fn run(
    job: LayoutJob,
) -> Result<(LaidOutPage, DeferredResult<RecordedPage>), PageError> {
    // One that is asked at the last moment takes its time as well.
    let network = if job.reach == Reach::Files { Duration::ZERO } else { job.limits.network * 2 };
    steps::run(job.limits.time + network, move |hand| make(&job, Bounds::ENGINE, hand))
}

pub(crate) fn make(
    job: &LayoutJob,
    bounds: Bounds,
    hand: &ResultSender<LaidOutPage, RecordedPage>,
) -> Result<RecordedPage, PageError> {
    let started = Instant::now();
    let document = Document::from_bytes(job.dom.bytes())?;
    check_depth(&document, &job.limits)?;
    let sources = Arc::clone(&job.sources);
    let is_old = document.quirks() == Quirks::Full;
    let loader = Arc::new(Loader::new(job.limits, job.reach, sources, job.encoding, is_old));
    let view = job.view;
    let mut engine = BaseDocument::new(DocumentConfig {
        viewport: Some(Viewport::new(
            view.width(),
            view.height(),
            view.scale_factor(),
            ColorScheme::Light,
        )),
        base_url: Some(job.base_url.clone()),
        net_provider: Some(Arc::clone(&loader) as _),
        ua_stylesheets: hints::sheets(&document, &job.base_url),
        ..DocumentConfig::default()
    });
    let root = engine.root_node().id;
    let without = sheets::left_out(&document, &mut engine);
    let mut pictures = svg::pictures(&document);
    loader.note_pictures(&mut pictures);
    let spans = Spans::of(&document);
    let images = srcset::choose(&document, &mut engine, view);
    let mut pairs = {
        let mut tree = engine.mutate();
        tree::build(&document, root, &without, &pictures, &spans, &images, &mut tree)?
    };

    let mut paragraphs = Paragraphs::new(bounds, pairs.len());

    // A style sheet may ask for images and fonts, which are there at once, and change the layout.
    let (mut faces, mut families) = (FontFaces::default(), Families::default());
    for _ in 0..ROUNDS_MAX {
        let before = loader.requests();
        loader.deliver();
        paragraphs.resolve(&mut engine, loader.requests());
        loader.deliver();
        let has_fonts = faces.walk(&mut engine, &loader)
            | families.stand_in(&mut engine, &pairs, |name| faces.has(name));
        if loader.requests() == before && !has_fonts {
            break;
        }
    }
    loader.deliver();
    engine.handle_messages();
    alts::show(&mut engine, &document, &mut pairs);
    let pixel_sizes = srcset::set_natural_sizes(&mut engine, &pairs, &images);
    paragraphs.resolve(&mut engine, loader.requests());
    if dots::are_too_many(&mut engine, &pairs) {
        paragraphs.resolve(&mut engine, loader.requests());
    }
    // Nothing is laid out from here on.
    pixel_sizes.put_back(&mut engine);
    let laid_out = Instant::now();

    let content = content_size(&engine, view);
    let take = |engine: &BaseDocument| {
        places::take::take(engine, &document, &pairs, paragraphs.parts(), view)
    };
    let of_fragment = job.fragment.as_ref().map(|fragment| (fragment, take(&engine)));
    let at = of_fragment
        .as_ref()
        .and_then(|(fragment, places)| place::of(&document, &places.boxes, fragment));
    let view = at.map_or(view, |at| view.scrolled(at));
    let scroll = view.scroll_within(content.1);
    let place = (view.scroll_x_within(content.0), scroll);
    let [x, y] = [place.0, place.1].map(|pixels| f64::from(pixels) / view.scale_factor_f64());
    engine.set_viewport_scroll(Point { x, y });
    let pixels = direct(&mut engine, view);
    let painted = Instant::now();

    // Only style asks for more, and that is done: what was found is all.
    let loaded = loader.finish();
    let left_out = loaded
        .left_out
        .into_iter()
        .chain(faces.left_out())
        .chain(spans.left_out())
        .chain(paragraphs.left_out())
        .collect();
    hand.out(LaidOutPage {
        pixels,
        title: title_of(&document),
        content,
        scroll,
        resources: loaded.resources,
        left_out,
        wants_network: loaded.wants_network,
        has_drawn_text: loaded.has_drawn_text,
        times: EngineTimes { layout: laid_out - started, paint: painted - laid_out },
    });

    let mut rest = RecordedPage::default();
    engine.set_viewport_scroll(Point { x: 0.0, y: 0.0 });
    if job.places && hand.is_wanted() {
        rest.places = Some(of_fragment.map_or_else(|| take(&engine), |(_, places)| places));
    }
    if job.record && hand.is_wanted() {
        rest.recorded = Some(record::whole_page(&mut engine, view, content));
    }
    Ok(rest)
}

/// The engine goes as deep as the page; documents that were not parsed under our limits can be
/// deeper.
fn check_depth(document: &Document<'_>, limits: &PageLimits) -> Result<(), PageError> {
    let (mut node, mut depth) = (document.root(), 0u32);
    let mut steps_left = u64::from(document.size().nodes) * 2;
    loop {
        if let Some(child) = node.first_child() {
            (node, depth) = (child, depth + 1);
            if depth > limits.depth {
                let max = u64::from(limits.depth);
                return Err(DomError::Limit { limit: holdfast_dom::ParseLimit::Depth, max }.into());
            }
        } else {
            while node.next_sibling().is_none() {
                match node.parent() {
                    Some(parent) if depth > 0 => (node, depth) = (parent, depth - 1),
                    _ => return Ok(()),
                }
            }
            let Some(sibling) = node.next_sibling() else { return Ok(()) };
            node = sibling;
        }
        steps_left = match steps_left.checked_sub(1) {
            Some(left) => left,
            // A circle: building the tree says so.
            None => return Ok(()),
        };
    }
}

pub(crate) fn title_of(document: &Document<'_>) -> String {
    // A picture in SVG has titles, too.
    let is_title =
        |node: &Node<'_>| node.name() == Some("title") && node.namespace() == Some(Namespace::Html);
    let title = document.root().descendants().find(is_title);
    let text = title.and_then(|title| title.text().ok()).unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(500).collect()
}

/// Width and height of the page, in pixels of the picture; at least the viewport's.
fn content_size(engine: &BaseDocument, view: View) -> (u32, u32) {
    let Some(root) = engine.try_root_element() else { return (view.width(), view.height()) };
    let layout = root.final_layout();
    let scaled =
        |css: f32| (f64::from(css) * view.scale_factor_f64()).ceil().clamp(0.0, 1e9) as u32;
    (
        view.width().max(scaled(layout.size.width.max(layout.scrollable_overflow_rect.right))),
        view.height().max(scaled(layout.size.height.max(layout.scrollable_overflow_rect.bottom))),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use holdfast_dom::{LoosePage, ParseOptions};

    use super::*;
    use crate::fetch::Files;
    use crate::sources::CachePolicy;
    use crate::steps::held::ends;

    fn job() -> LayoutJob {
        let limits = PageLimits::default();
        let source =
            "<!doctype html><title>A</title><p style='background:red'>words, <a href=b>a link</a>";
        let page = LoosePage::parse(source.as_bytes(), &ParseOptions::default()).unwrap();
        LayoutJob {
            dom: DomBytes::copy(page.bytes()),
            base_url: "file:///a.html".to_owned(),
            encoding: encoding_rs::UTF_8,
            view: View::new(300, 200, 1000).unwrap(),
            limits,
            reach: Reach::Files,
            sources: Arc::new(Sources::new(Arc::new(Files), None, CachePolicy::Usual, &limits)),
            fragment: None,
            record: true,
            places: true,
        }
    }

    #[test]
    fn title_of_a_picture_is_not_that_of_the_page() {
        for (source, title) in [
            ("<svg><title>Icon</title></svg><title> The\n page </title>", "The page"),
            ("<svg><title>Icon</title></svg>", ""),
        ] {
            let page = LoosePage::parse(source.as_bytes(), &ParseOptions::default()).unwrap();
            assert_eq!(title_of(&page.open().unwrap()), title, "{source}");
        }
    }

    /// The pixels are ready before the page is recorded, and nothing is recorded if no caller waits
    /// for it.
    ///
    /// Guarantee: pages/window-waits
    #[test]
    fn pixels_precede_the_record() {
        let (sender, made) = channel();
        let wanted: Arc<Mutex<Option<DeferredResult<RecordedPage>>>> = Arc::default();
        let until = Arc::clone(&wanted);
        let (hand, coming) = ends(move |made: LaidOutPage| {
            sender.send(made).unwrap();
            // Nothing more than these pixels is wanted: what is made from here on is nothing.
            drop(until.lock().unwrap().take());
        });
        *wanted.lock().unwrap() = Some(coming);
        let rest = make(&job(), Bounds::ENGINE, &hand).unwrap();
        let made = made.try_recv().unwrap();
        assert_eq!((made.title.as_str(), made.pixels.bytes.len()), ("A", 300 * 200 * 4));
        assert!(made.pixels.bytes.chunks_exact(4).any(|pixel| pixel[..3] == [255, 0, 0]));
        assert!(
            rest.recorded.is_none() && rest.places.is_none(),
            "it was made before the pixels were there"
        );
    }

    /// The layout and the record are delivered after the pixels.
    ///
    /// Guarantee: pages/window-waits
    #[test]
    fn layout_and_record_follow_the_pixels() {
        let (made, coming) = run(job()).unwrap();
        assert_eq!(made.pixels.width, 300);
        let rest = coming.get().unwrap();
        assert_eq!(rest.places.as_ref().unwrap().links[0].href, "b");
        assert_eq!(rest.recorded.as_ref().unwrap().strips.len(), 1);
    }
}
