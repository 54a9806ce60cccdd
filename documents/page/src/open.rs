//! Opening a page: from the cache where it can be, by the engine where it must be.
//!
//! The tiers, quickest first: the kept pixels of just this view (nothing is painted); the kept
//! display list (nothing is parsed, styled or laid out); the kept document (not parsed); nothing
//! kept. A tier that does not fit says why, and the next one is taken. What servers are asked for
//! is asked between two looks at the cache: the cache is never open while a server is waited for.

mod document;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use holdfast_dom::{Document, LoosePage, ParseLimits, ParseOptions};
use holdfast_heap::Owned;
use holdfast_native_heap::RegionBacking;

use crate::address::Address;
use crate::base;
use crate::cache::{self, Cache};
use crate::decode::decoded;
use crate::engine::{self, DomBytes, LaidOutPage, LayoutJob};
use crate::error::PageError;
use crate::fetch::{FetchError, Files, Purpose, Url};
use crate::fonts::FontsAhead;
use crate::keeping::{UnsavedPage, UnsavedView};
use crate::limits::PageLimits;
use crate::opened::{OpenOptions, OpenPage, OpenTimes, PageUse, ShownFrom};
use crate::page_now::PageSource;
use crate::picture::{CachedView, StaleReason, Tier};
use crate::pixels::Pixels;
use crate::place;
use crate::resource::{Reach, is_of_network};
use crate::snapshot::Snapshot;
use crate::sources::{CachePolicy, Sources};
use crate::view::View;
use crate::xhtml;

pub(crate) use document::open_document;

/// How often the cache is looked into, since another process may change it while servers are asked.
const LOOKS_MAX: u32 = 3;

/// Opens a page of this machine, which asks no server.
///
/// # Errors
/// As [`open_with`].
pub fn open(
    address: &Address,
    view: View,
    limits: &PageLimits,
    cache: Option<&Cache>,
) -> Result<OpenPage, PageError> {
    open_with(address, &OpenOptions::new(view, limits, cache, Arc::new(Files)))
}

/// Opens a page.
///
/// ```no_run
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use holdfast_page::{Address, Cache, OpenOptions, PageLimits, View, Web, open_with};
/// use holdfast_region::{NameSpace, Places, RegionName};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let cache = Cache::new(NameSpace::new(Places::from_env()?), RegionName::parse("page-cache")?, "default", 512 << 20);
/// let limits = PageLimits::default();
/// let web = Arc::new(Web::new(Duration::from_secs(30)));
/// let options = OpenOptions::new(View::new(1280, 800, 1000)?, &limits, Some(&cache), web);
/// let mut page = open_with(&Address::parse("https://example.org/")?, &options)?;
/// std::fs::write("page.png", page.pixels.to_png()?)?;
/// if let Some(to_keep) = page.to_keep.take() {
///     to_keep.keep(&cache)?;
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`PageError`]. Whatever is wrong with the cache is a note, and no error.
pub fn open_with(address: &Address, opening: &OpenOptions<'_>) -> Result<OpenPage, PageError> {
    OpenSession::of(address, opening, opening.view).open(opening.cache)
}

/// The picture file of a page of this machine that asks no server, if it is kept and would be made
/// the same now. `None` wherever something else is to be done or told, which [`open_with`] does.
///
/// It needs nothing that parses, lays out or paints: a program that calls nothing else is small, and
/// is there at once.
#[must_use]
pub fn open_kept_file(address: &Address, opening: &OpenOptions<'_>) -> Option<OpenPage> {
    let cache = opening.cache?;
    if address.is_of_network() || opening.want != PageUse::File || opening.repaint {
        return None;
    }
    let session = OpenSession::of(address, opening, opening.view);
    let (url, _, bytes_max) = session.wanted_page();
    let source = PageSource::sum_of_file(&url, bytes_max).or_else(|| {
        // A folder, and whatever else is read as a whole.
        session.of_file().ok().map(|page| page.source)
    })?;
    let look = |heap: &Owned<RegionBacking>| {
        let kept = CachedView::open(heap.bytes(&session.name)?).ok()?;
        session.show_file(heap, &kept, source).ok()?
    };
    let (opened, used_s) = cache.read(look).ok().flatten().flatten()?;
    // Only `open_with` writes to the cache.
    if opened.to_keep.is_some() {
        return None;
    }
    cache.note_use(&session.name, used_s, session.now_s);
    Some(opened)
}

/// What the cache has of a page.
#[derive(Default)]
struct CachedState {
    opened: Option<(OpenPage, u64)>,
    stale: Option<StaleReason>,
    dom: Option<DomBytes>,
    document_is_damaged: bool,
}

/// A look into the cache.
enum Lookup {
    /// These have to be asked for first.
    Ask(Vec<(Url, Purpose, u64)>),
    Done(Box<CachedState>),
}

/// One opening.
struct OpenSession<'a> {
    started: Instant,
    address: &'a Address,
    view: View,
    limits: &'a PageLimits,
    reach: Reach,
    asking: CachePolicy,
    want: PageUse,
    repaint: bool,
    sources: Arc<Sources>,
    folders: FontsAhead,
    now_s: u64,
    name: String,
}

impl<'a> OpenSession<'a> {
    fn of(address: &'a Address, opening: &'a OpenOptions<'_>, view: View) -> OpenSession<'a> {
        let OpenOptions { limits, cache, from, asking, network, want, repaint, .. } = opening;
        OpenSession {
            started: Instant::now(),
            address,
            view,
            limits,
            reach: match (address.is_of_network(), network) {
                (true, _) if address.url().scheme() == "https" => Reach::SafeNetwork,
                (true, _) => Reach::Network,
                (false, true) => Reach::FilesAndNetwork,
                (false, false) => Reach::Files,
            },
            asking: *asking,
            want: *want,
            repaint: *repaint,
            sources: Arc::new(Sources::new(Arc::clone(from), cache.cloned(), *asking, limits)),
            folders: FontsAhead::begin(),
            now_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            name: cache::view_name(address.as_str(), view),
        }
    }

    fn open(self, cache: Option<&Cache>) -> Result<OpenPage, PageError> {
        let mut notes = Vec::new();
        // A file is read at once: that is the cheapest way to ask it.
        let mut page = if self.address.is_of_network() { None } else { Some(self.of_file()?) };
        let mut found = CachedState::default();
        for _ in 0..LOOKS_MAX {
            let Some(cache) = cache else { break };
            match cache.read(|heap| self.look(heap, page.as_ref())) {
                Ok(Some(Ok(Lookup::Ask(urls)))) => {
                    self.sources.ask(&urls);
                    continue;
                }
                Ok(Some(Ok(Lookup::Done(looked)))) => found = *looked,
                Ok(Some(Err(error))) => return Err(error),
                Ok(None) => {}
                Err(error) => notes.push(format!("the cache cannot be used: {error}")),
            }
            break;
        }
        if let (Some((mut opened, used_s)), Some(cache)) = (found.opened.take(), cache) {
            cache.note_use(&self.name, used_s, self.now_s);
            if self.want == PageUse::Places {
                let document = match (found.dom.take(), page.as_mut()) {
                    (Some(document), _) => document,
                    (None, Some(page)) => self.parse(page)?,
                    (None, None) => self.parse(&mut self.of_server()?)?,
                };
                opened.shown.set_document(document);
            }
            return Ok(opened);
        }
        if let Some(stale) = &found.stale {
            notes.push(format!("not as it was kept: {stale}"));
        }
        if found.document_is_damaged {
            notes.push("its document in the cache is damaged; it is parsed again".to_owned());
        }
        if page.is_none() {
            self.sources.ask(&[self.wanted_page()]);
            page = Some(self.of_server()?);
        }
        match page {
            Some(page) => self.make(page, found, notes, cache.is_some()),
            None => Err(self.failed(FetchError::NotFound)),
        }
    }

    fn failed(&self, error: impl Into<Arc<FetchError>>) -> PageError {
        PageError::Fetch { address: self.address.to_string(), error: error.into() }
    }

    fn wanted_page(&self) -> (Url, Purpose, u64) {
        (self.address.url().clone(), Purpose::Page, self.limits.source_bytes)
    }

    fn of_file(&self) -> Result<PageSource, PageError> {
        let (url, _, bytes_max) = self.wanted_page();
        PageSource::of_file(&url, bytes_max, self.sources.from())
            .map_err(|error| self.failed(error))
    }

    fn of_server(&self) -> Result<PageSource, PageError> {
        PageSource::of_server(self.address.as_str(), &self.sources)
            .map_err(|error| self.failed(error))
    }

    fn look(
        &self,
        heap: &Owned<RegionBacking>,
        page: Option<&PageSource>,
    ) -> Result<Lookup, PageError> {
        let kept = heap.bytes(&self.name).map(CachedView::open);
        let mut ask = Vec::new();
        if self.address.is_of_network()
            && !self.sources.learn(heap, self.address.as_str(), Purpose::Page)
        {
            ask.push(self.wanted_page());
        }
        if let Some(Ok(kept)) = &kept
            && self.reach != Reach::Files
        {
            let of_network =
                kept.about.resources.iter().filter(|resource| is_of_network(&resource.url));
            for resource in of_network {
                if let (false, Ok(url)) = (
                    self.sources.learn(heap, &resource.url, Purpose::Part),
                    Url::parse(&resource.url),
                ) {
                    ask.push((url, Purpose::Part, self.limits.resource_bytes));
                }
            }
        }
        if !ask.is_empty() {
            return Ok(Lookup::Ask(ask));
        }
        let of_server;
        let (source, found_at) = match page {
            Some(page) => (page.source, &page.found),
            None => {
                of_server = self.of_server()?;
                (of_server.source, &of_server.found)
            }
        };
        let mut found = CachedState::default();
        let kept = kept.map(|kept| {
            // The same bytes at another place have other addresses in them.
            let kept = kept.map_err(StaleReason::from)?;
            if kept.about.found != found_at.as_str() {
                return Err(StaleReason::Source);
            }
            self.show(heap, &kept, source)
        });
        match kept {
            Some(Ok(opened)) => {
                found.opened = Some(opened);
                if self.want != PageUse::Places {
                    return Ok(Lookup::Done(Box::new(found)));
                }
            }
            Some(Err(stale)) => found.stale = Some(stale),
            None => {}
        }
        match cache::document(heap, source) {
            Some(Ok(bytes)) => found.dom = Some(DomBytes::copy(bytes)),
            Some(Err(_)) => found.document_is_damaged = true,
            None => {}
        }
        Ok(Lookup::Done(Box::new(found)))
    }

    /// Paints what is kept, if that is what would be made.
    fn show(
        &self,
        heap: &Owned<RegionBacking>,
        kept: &CachedView<'_>,
        source: u128,
    ) -> Result<(OpenPage, u64), StaleReason> {
        if self.want == PageUse::File
            && !self.repaint
            && let Some(opened) = self.show_file(heap, kept, source)?
        {
            return Ok(opened);
        }
        if self.want != PageUse::Places {
            // Where a place in the page is will be known only when it is sure that the page is the
            // same.
            kept.begin(self.view, !self.repaint && self.fragment().is_none());
        }
        self.check(kept, source)?;
        let view = self.view_of_place(heap, kept, source)?;
        let read = Instant::now();
        let (pixels, places, tier) = match self.want {
            PageUse::Picture | PageUse::Scrolling | PageUse::File => {
                let (pixels, tier) = kept.picture(view, !self.repaint)?;
                (pixels, None, tier)
            }
            PageUse::Places => (Pixels::NONE, Some(kept.places()?), Tier::Layout),
        };
        // The mapping is not held on to: a writer waits for all who read.
        let entry = (self.want == PageUse::Scrolling)
            .then(|| heap.bytes(&self.name).unwrap_or_default().to_vec());
        let (mut opened, used_s) = self.opened(kept, view, (pixels, tier), read);
        opened.shown = ShownFrom::new(u128::from_le_bytes(kept.entry.header.source), None, entry);
        opened.places = places;
        Ok((opened, used_s))
    }

    /// The file of its pixels, if that is kept and would be made the same; nothing that paints is
    /// needed.
    fn show_file(
        &self,
        heap: &Owned<RegionBacking>,
        kept: &CachedView<'_>,
        source: u128,
    ) -> Result<Option<(OpenPage, u64)>, StaleReason> {
        // Where a place in the page is will be known only when it is sure that the page is the same.
        if self.fragment().is_none() && matches!(kept.png(self.view), Ok(None)) {
            return Ok(None);
        }
        self.check(kept, source)?;
        let view = self.view_of_place(heap, kept, source)?;
        let read = Instant::now();
        let Some(png) = kept.png(view)?.map(<[u8]>::to_vec) else { return Ok(None) };
        let (mut opened, used_s) = self.opened(kept, view, (Pixels::NONE, Tier::Pixels), read);
        opened.png = Some(Arc::new(png));
        Ok(Some((opened, used_s)))
    }

    /// Whether what is kept is what would be made now.
    fn check(&self, kept: &CachedView<'_>, source: u128) -> Result<(), StaleReason> {
        let bytes_max = self.limits.resource_bytes;
        kept.check(source, self.folders.get(), self.reach, &|resource| {
            self.sources.found_since(resource, bytes_max)
        })
    }

    /// A page that is kept, when its entry was read, and when it was used last.
    fn opened(
        &self,
        kept: &CachedView<'_>,
        view: View,
        (pixels, tier): (Pixels, Tier),
        read: Instant,
    ) -> (OpenPage, u64) {
        let header = &kept.entry.header;
        let content = (header.content[0].get(), header.content[1].get());
        let mut notes: Vec<String> =
            kept.about.left_out.iter().map(|text| format!("left out: {text}")).collect();
        self.note_age(&mut notes);
        let (news, forget) = (self.sources.news(), self.sources.forbidden());
        if let Some(url) = forget.first() {
            notes.push(format!("not kept any more: the server of {url} does not want it to be"));
        }
        let opened = OpenPage {
            shown: ShownFrom::new(u128::from_le_bytes(header.source), None, None),
            pixels,
            png: None,
            base: kept.about.base.clone(),
            title: kept.about.title.clone(),
            content,
            scroll: view.scroll_within(content.1),
            tier,
            stale: None,
            notes,
            split: OpenTimes {
                disk: read - self.started,
                paint: read.elapsed(),
                ..OpenTimes::default()
            },
            to_keep: (!news.is_empty())
                .then(|| UnsavedPage::new(self.address.as_str(), news, None, true, forget)),
            places: None,
        };
        (opened, header.used_s.get())
    }

    /// The viewport at the place that the address names, unless it is scrolled.
    fn view_of_place(
        &self,
        heap: &Owned<RegionBacking>,
        kept: &CachedView<'_>,
        source: u128,
    ) -> Result<View, StaleReason> {
        let Some(fragment) = self.fragment() else { return Ok(self.view) };
        let Some(Ok(bytes)) = cache::document(heap, source) else { return Ok(self.view) };
        let Ok(document) = Document::from_bytes(bytes) else { return Ok(self.view) };
        let boxes = kept.boxes()?;
        Ok(place::of(&document, &boxes, &fragment).map_or(self.view, |at| self.view.scrolled(at)))
    }

    fn fragment(&self) -> Option<String> {
        self.address.fragment().filter(|_| self.view.scroll() == 0).map(str::to_owned)
    }

    /// Says of when the page is, if no server was asked.
    fn note_age(&self, notes: &mut Vec<String>) {
        notes.extend(self.sources.silences(self.address.as_str()));
        let there = self.sources.there(self.address.as_str());
        if let (CachePolicy::Offline, Some(said)) =
            (self.asking, there.and_then(|there| there.said))
        {
            let at = humantime::format_rfc3339_seconds(said.at);
            notes.push(format!("nobody was asked: the page is as it was at {at}"));
        }
    }

    /// Parses what is not parsed, and lays the page out.
    fn make(
        self,
        mut page: PageSource,
        mut found: CachedState,
        mut notes: Vec<String>,
        is_kept: bool,
    ) -> Result<OpenPage, PageError> {
        let read = Instant::now();
        let dom = match found.dom.take() {
            Some(dom) => (dom, Tier::Document),
            None => (self.parse(&mut page)?, Tier::Nothing),
        };
        let (dom, tier) = dom;
        let parsed = Instant::now();
        // What was kept stays as good as it was without scrolling.
        let is_scrolling = self.want == PageUse::Scrolling;
        let mut is_news = is_kept
            && !matches!(
                found.stale,
                Some(
                    StaleReason::NoPicture | StaleReason::ScrollBound | StaleReason::Beyond { .. }
                )
            );
        let record = is_news || is_scrolling;
        let fonts = self.folders.get().of_now().stamps();
        let base: String = base::of(&Document::from_bytes(dom.bytes())?, &page.found).into();
        let job = LayoutJob {
            dom: DomBytes::copy(dom.bytes()),
            base_url: base.clone(),
            encoding: page.encoding,
            view: self.view,
            limits: *self.limits,
            reach: self.reach,
            sources: Arc::clone(&self.sources),
            fragment: self.fragment(),
            record,
            places: record || self.want == PageUse::Places,
        };
        let (mut made, rest) = engine::run(job)?;
        if !self.folders.get().has_fonts() {
            notes.push(
                "there are no fonts on this machine, so there is no text; install some (`fonts-dejavu-core`)"
                    .to_owned(),
            );
        }
        notes.extend(made.left_out.iter().map(|text| format!("left out: {text}")));
        self.note_age(&mut notes);
        if let (true, Some(url)) = (is_news, self.sources.unkeepable()) {
            is_news = false;
            notes.push(format!("not kept: the server of {url} does not want it to be"));
        }
        let forget = if is_kept { self.sources.forbidden() } else { Vec::new() };
        let times = made.times;
        let split = OpenTimes {
            disk: read - self.started,
            parse: parsed - read,
            layout: times.layout,
            paint: times.paint,
        };
        let pixels = std::mem::replace(&mut made.pixels, Pixels::NONE);
        let LaidOutPage { title, content, scroll, .. } = &made;
        let (title, content, scroll) = (title.clone(), *content, *scroll);
        let scroll_x = self.view.scroll_x_within(content.0);
        let snapshot = if is_news { Snapshot::of(&pixels, (scroll_x, scroll)) } else { None };
        let source = page.source;
        let document = (self.want == PageUse::Places).then(|| DomBytes::copy(dom.bytes()));
        let wanted = match self.want {
            PageUse::Places => rest.get().map_err(Clone::clone)?.places.clone(),
            PageUse::Picture | PageUse::Scrolling | PageUse::File => None,
        };
        let new = (is_news || is_scrolling).then(|| UnsavedView {
            name: self.name,
            source: page.source,
            dom,
            made,
            rest,
            snapshot,
            found: page.found.into(),
            base: base.clone(),
            reach: self.reach,
            view: self.view,
            fonts,
            folders: self.folders.into_folders(),
            now_s: self.now_s,
        });
        // Where nothing is kept, what is kept of the page as it was may have to go.
        let to_keep = (new.is_some() || !forget.is_empty()).then(|| {
            UnsavedPage::new(self.address.as_str(), self.sources.news(), new, is_news, forget)
        });
        let stale = found.stale;
        Ok(OpenPage {
            shown: ShownFrom::new(source, document, None),
            pixels,
            png: None,
            base,
            title,
            content,
            scroll,
            tier,
            stale,
            notes,
            split,
            places: wanted,
            to_keep,
        })
    }

    /// Parses the page, of which the bytes may have to be asked for again: they are not kept, since
    /// their document is.
    fn parse(&self, page: &mut PageSource) -> Result<DomBytes, PageError> {
        if page.bytes.is_none() {
            let (url, purpose, bytes_max) = self.wanted_page();
            self.sources.bytes(&url, purpose, bytes_max).map_err(|error| self.failed(error))?;
            *page = self.of_server()?;
        }
        let bytes = page.bytes.as_ref().ok_or_else(|| self.failed(FetchError::NotFound))?;
        let mut source = decoded(bytes, page.encoding);
        if page.is_xhtml {
            source = Cow::Owned(xhtml::as_html(&source));
        }
        let limits = ParseLimits {
            source_bytes: self.limits.source_bytes.max(source.len() as u64),
            nodes: self.limits.nodes,
            depth: self.limits.depth,
            ..ParseLimits::default()
        };
        let parsed =
            LoosePage::parse(&*source, &ParseOptions { limits, ..ParseOptions::default() })?;
        Ok(DomBytes::copy(parsed.bytes()))
    }
}
