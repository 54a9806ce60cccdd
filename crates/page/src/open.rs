//! Opening a page: from the cache where it can be, by the engine where it must be.
//!
//! The tiers, quickest first: the kept display list (nothing is parsed, styled or laid out); the kept document (not parsed); nothing
//! kept. A tier that does not fit says why, and the next one is taken.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use holdfast_dom::{Document, DomError, Limits, LoosePage, ParseOptions, Selector};
use xxhash_rust::xxh3::xxh3_128;

use crate::address::Address;
use crate::cache::{self, Cache};
use crate::engine::{self, DomBytes, Job, Made};
use crate::error::{CacheError, PageError};
use crate::fetch::{Answer, Fetch, FetchError, Files, Purpose, Wanted};
use crate::fonts::Folders;
use crate::limits::PageLimits;
use crate::loader::{Found as Was, Reach};
use crate::picture::{Kept, Origin, Stale, to_entry};
use crate::pixels::Pixels;
use crate::places::{NodeBox, Places};
use crate::view::View;

/// What served a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Its display list was painted.
    List,
    /// Its layout was there, which was asked for what is where; nothing was laid out or painted.
    Layout,
    /// Its document was there; it was laid out.
    Document,
    /// It was parsed and laid out.
    Nothing,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Tier::List => "display list",
            Tier::Layout => "layout",
            Tier::Document => "document",
            Tier::Nothing => "cold",
        })
    }
}

/// How long it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Split {
    /// Reading the page, what it was made from, and the cache.
    pub disk: Duration,
    /// Parsing.
    pub parse: Duration,
    /// The engine's tree, style sheets, images, style and layout.
    pub layout: Duration,
    /// From the display list or the layout to pixels.
    pub paint: Duration,
}

impl Split {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.disk + self.parse + self.layout + self.paint
    }
}

/// A page that is open.
#[derive(Debug)]
pub struct Opened {
    /// What it looks like.
    pub pixels: Pixels,
    /// Its title.
    pub title: String,
    /// Width and height of all of it.
    pub content: (u32, u32),
    /// How far down the viewport is.
    pub scroll: u32,
    /// What served it.
    pub tier: Tier,
    /// Why it was not the tier above, if there was something in the cache.
    pub stale: Option<Stale>,
    /// What was not shown of it, why it was not found in the cache, and the like, for people.
    pub notes: Vec<String>,
    /// How long it took.
    pub split: Split,
    /// What is where, if that was wanted.
    pub places: Option<Places>,
    /// What is to be kept of it.
    pub to_keep: Option<ToKeep>,
    /// Its document, if it was wanted what is where.
    document: Option<DomBytes>,
}

impl Opened {
    /// Where the elements that match a selector are, in the order of the document. Those that are nowhere to be seen are left out.
    ///
    /// # Errors
    /// When the selector is none, or the document is damaged. Of a page that was not opened for it ([`Want::Places`]) nothing is known.
    pub fn boxes_of(&self, selector: &str) -> Result<Vec<NodeBox>, DomError> {
        let selector = Selector::parse(selector)?;
        let (Some(places), Some(bytes)) = (&self.places, &self.document) else { return Ok(Vec::new()) };
        let document = Document::from_bytes(bytes.bytes())?;
        let found = document.select(&selector)?;
        Ok(found.into_iter().filter_map(|node| places.box_of(node.id()).copied()).collect())
    }
}

/// What a page is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Want {
    /// To be looked at.
    #[default]
    Picture,
    /// To be asked what is where. There are no pixels if the layout was kept.
    Places,
}

/// What is kept of a page; made while it was opened, so that it can be shown first.
pub struct ToKeep {
    name: String,
    source: u128,
    dom: DomBytes,
    made: Made,
    places: Places,
    address: String,
    base: String,
    view: View,
    fonts: u64,
    folders: Folders,
    now_s: u64,
}

impl fmt::Debug for ToKeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToKeep").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What keeping came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptReport {
    /// Bytes of the view.
    pub view_bytes: u64,
    /// Bytes of the document.
    pub document_bytes: u64,
    /// Views of other pages that had to go.
    pub evicted: u64,
}

impl ToKeep {
    /// What is where on the page.
    #[must_use]
    pub fn places(&self) -> &Places {
        &self.places
    }

    /// Puts it into the cache.
    ///
    /// # Errors
    /// [`CacheError`]: the cache has what it had, perhaps fewer of the oldest views.
    pub fn keep(self, cache: &Cache) -> Result<KeptReport, CacheError> {
        let Some(recorded) = &self.made.recorded else {
            return Ok(KeptReport { view_bytes: 0, document_bytes: 0, evicted: 0 });
        };
        let origin = Origin {
            address: &self.address,
            base: &self.base,
            source: self.source,
            view: self.view,
            fonts: self.fonts,
            folders: &self.folders,
            now_s: self.now_s,
        };
        let entry = to_entry(&self.made, recorded, &self.places, &origin);
        let evicted = cache.keep(&self.name, self.source, &entry, self.dom.bytes())?;
        let document_bytes = self.dom.bytes().len() as u64;
        Ok(KeptReport { view_bytes: entry.len() as u64, document_bytes, evicted })
    }
}

/// How a page is opened.
#[derive(Clone)]
pub struct Opening<'a> {
    /// What is looked at.
    pub view: View,
    /// How much is taken.
    pub limits: PageLimits,
    /// What was kept, and where what is made is kept.
    pub cache: Option<&'a Cache>,
    /// Who gives the page and what it asks for.
    pub from: Arc<dyn Fetch>,
    /// Whether a page of this machine may ask servers. A page from the network may, and gets no files.
    pub network: bool,
    /// What it is opened for.
    pub want: Want,
}

impl fmt::Debug for Opening<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening")
            .field("view", &self.view)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

impl<'a> Opening<'a> {
    /// The usual one, from whoever gives the pages.
    #[must_use]
    pub fn new(
        view: View,
        limits: &PageLimits,
        cache: Option<&'a Cache>,
        from: Arc<dyn Fetch>,
    ) -> Opening<'a> {
        Opening { view, limits: *limits, cache, from, network: false, want: Want::Picture }
    }
}

/// Opens a page of this machine, which asks no server.
///
/// # Errors
/// As [`open_with`].
pub fn open(
    address: &Address,
    view: View,
    limits: &PageLimits,
    cache: Option<&Cache>,
) -> Result<Opened, PageError> {
    open_with(address, &Opening::new(view, limits, cache, Arc::new(Files)))
}

/// Opens a page.
///
/// # Errors
/// [`PageError`]. Whatever is wrong with the cache is a note, and no error.
pub fn open_with(address: &Address, opening: &Opening<'_>) -> Result<Opened, PageError> {
    let started = Instant::now();
    let Opening { view, limits, cache, .. } = opening;
    let (view, from) = (*view, &opening.from);
    let text = address.as_str();
    let reach = match (address.is_of_network(), opening.network) {
        (true, _) => Reach::Network,
        (false, true) => Reach::FilesAndNetwork,
        (false, false) => Reach::Files,
    };
    let failed = |error| PageError::Fetch { address: address.to_string(), error };
    let wanted = Wanted {
        url: address.url(),
        bytes_max: limits.source_bytes,
        purpose: Purpose::Page,
        known: None,
        anew: false,
    };
    let fetched = match from.fetch(&wanted).map_err(failed)? {
        Answer::Bytes(fetched) => fetched,
        Answer::Unchanged(_) => return Err(failed(FetchError::NotFound)),
    };
    let source = &fetched.bytes;
    let hash = xxh3_128(source);
    let folders = Folders::of_system();
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let name = cache::view_name(text, view);
    let mut notes = Vec::new();
    let mut found = Found::default();
    if let Some(cache) = cache {
        let looked = cache.read(|heap| look(heap, &name, hash, &folders, opening, started));
        match looked {
            Ok(looked) => found = looked.unwrap_or_default(),
            Err(error) => notes.push(format!("the cache cannot be used: {error}")),
        }
        if let Some((mut opened, used_s)) = found.opened.take() {
            cache.note_use(&name, used_s, now_s);
            if opening.want == Want::Places {
                opened.document = Some(found.dom.take().map_or_else(|| parse(source, limits), Ok)?);
            }
            return Ok(opened);
        }
    }
    if let Some(stale) = &found.stale {
        notes.push(format!("not as it was kept: {stale}"));
    }
    if found.document_is_damaged {
        notes.push("its document in the cache is damaged; it is parsed again".to_owned());
    }
    let read = Instant::now();

    let tier = if found.dom.is_some() { Tier::Document } else { Tier::Nothing };
    let dom = match found.dom.take() {
        Some(dom) => dom,
        None => parse(source, limits)?,
    };
    let parsed = Instant::now();
    // What was kept stays as good as it was for whoever does not scroll.
    let record = cache.is_some()
        && !matches!(found.stale, Some(Stale::NoPicture | Stale::ScrollBound | Stale::Beyond { .. }));
    let fonts = folders.stamp();
    let base: String = fetched.url.into();
    let job = Job {
        dom: DomBytes::copy(dom.bytes()),
        base_url: base.clone(),
        view,
        limits: *limits,
        reach,
        from: Arc::clone(from),
        record,
        places: record || opening.want == Want::Places,
    };
    let mut made = engine::run(job)?;
    if !folders.has_fonts() {
        notes.push(
            "there are no fonts on this machine, so there is no text; install some (`fonts-dejavu-core`)"
                .to_owned(),
        );
    }
    notes.extend(made.left_out.iter().map(|text| format!("left out: {text}")));
    let times = made.times;
    let split =
        Split { disk: read - started, parse: parsed - read, layout: times.layout, paint: times.paint };
    let empty = Pixels { width: 0, height: 0, bytes: Vec::new() };
    let pixels = std::mem::replace(&mut made.pixels, empty);
    let (title, content, scroll) = (made.title.clone(), made.content, made.scroll);
    let places = made.places.take();
    let document = (opening.want == Want::Places).then(|| DomBytes::copy(dom.bytes()));
    let wanted = places.as_ref().filter(|_| opening.want == Want::Places).cloned();
    let to_keep = places.filter(|_| record).map(|places| ToKeep {
        name,
        source: hash,
        dom,
        made,
        places,
        address: text.to_owned(),
        base,
        view,
        fonts,
        folders,
        now_s,
    });
    let stale = found.stale;
    Ok(Opened {
        pixels,
        title,
        content,
        scroll,
        tier,
        stale,
        notes,
        split,
        places: wanted,
        to_keep,
        document,
    })
}

/// What the cache has of a page.
#[derive(Default)]
struct Found {
    opened: Option<(Opened, u64)>,
    stale: Option<Stale>,
    dom: Option<DomBytes>,
    document_is_damaged: bool,
}

fn look(
    heap: &holdfast_heap::Owned<holdfast_native_heap::RegionBacking>,
    name: &str,
    source: u128,
    folders: &Folders,
    opening: &Opening<'_>,
    started: Instant,
) -> Found {
    let view = opening.view;
    let now = |url: &str| Was::at(url, opening.limits.resource_bytes, &*opening.from);
    let mut found = Found::default();
    if let Some(bytes) = heap.bytes(name) {
        let shown = Kept::open(bytes).map_err(Stale::from).and_then(|kept| {
            kept.check(source, folders, &now)?;
            let read = Instant::now();
            let (pixels, places) = match opening.want {
                Want::Picture => {
                    kept.check_picture(view)?;
                    (kept.paint(view)?, None)
                }
                Want::Places => (Pixels { width: 0, height: 0, bytes: Vec::new() }, Some(kept.places()?)),
            };
            let header = &kept.entry.header;
            let content = (header.content[0].get(), header.content[1].get());
            let opened = Opened {
                pixels,
                title: kept.about.title.clone(),
                content,
                scroll: view.scroll_within(content.1),
                tier: if places.is_some() { Tier::Layout } else { Tier::List },
                stale: None,
                notes: kept.about.left_out.iter().map(|text| format!("left out: {text}")).collect(),
                split: Split { disk: read - started, paint: read.elapsed(), ..Split::default() },
                places,
                to_keep: None,
                document: None,
            };
            Ok((opened, header.used_s.get()))
        });
        match shown {
            Ok(opened) => {
                found.opened = Some(opened);
                if opening.want == Want::Picture {
                    return found;
                }
            }
            Err(stale) => found.stale = Some(stale),
        }
    }
    match cache::document(heap, source) {
        Some(Ok(bytes)) => found.dom = Some(DomBytes::copy(bytes)),
        Some(Err(_)) => found.document_is_damaged = true,
        None => {}
    }
    found
}

fn parse(source: &[u8], limits: &PageLimits) -> Result<DomBytes, PageError> {
    let limits = Limits {
        source_bytes: limits.source_bytes,
        nodes: limits.nodes,
        depth: limits.depth,
        ..Limits::default()
    };
    let page = LoosePage::parse(source, &ParseOptions { limits, ..ParseOptions::default() })?;
    Ok(DomBytes::copy(page.bytes()))
}

impl Cache {
    /// The links and boxes of a view; `None`, if there is no such view.
    ///
    /// # Errors
    /// When the heap cannot be opened. What is wrong with the entry is inside.
    pub fn places(
        &self,
        view: &str,
    ) -> Result<Option<Result<Places, crate::error::EntryDamage>>, CacheError> {
        let look = |heap: &holdfast_heap::Owned<_>| {
            heap.bytes(view).map(|bytes| Kept::open(bytes).and_then(|kept| kept.places()))
        };
        Ok(self.read(look)?.flatten())
    }
}
