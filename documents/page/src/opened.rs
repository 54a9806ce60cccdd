//! The request and the result of opening a page.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use holdfast_dom::{Document, DomError, Selector};

use crate::cache::Cache;
use crate::engine::DomBytes;
use crate::entry::EntryPart;
use crate::error::{CacheError, PageError, RecordError};
use crate::fetch::Fetch;
use crate::keeping::UnsavedPage;
use crate::limits::PageLimits;
use crate::picture::{CachedView, StaleReason, Tier};
use crate::pixels::Pixels;
use crate::places::wire::read_links;
use crate::places::{Link, NodeBox, PageLayout};
use crate::sources::CachePolicy;
use crate::view::View;

/// How long it took.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenTimes {
    /// Reading the page, what it was made from, and the cache.
    pub disk: Duration,
    /// Parsing.
    pub parse: Duration,
    /// The engine's tree, style sheets, images, style and layout.
    pub layout: Duration,
    /// From the display list or the layout to pixels, or what was kept of these.
    pub paint: Duration,
}

impl OpenTimes {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> Duration {
        self.disk + self.parse + self.layout + self.paint
    }
}

/// A page that is open.
#[derive(Debug)]
pub struct OpenPage {
    /// What it looks like; nothing, if it was opened to be written ([`PageUse::File`]) and its file
    /// was kept.
    pub pixels: Pixels,
    /// The same as a PNG, if it was made or kept ([`OpenPage::png`] makes it).
    pub png: Option<Arc<Vec<u8>>>,
    /// What addresses in it are relative to: where it was found at last, or what its `<base>` says.
    pub base: String,
    /// Its title.
    pub title: String,
    /// Width and height of all of it.
    pub content: (u32, u32),
    /// How far down the viewport is.
    pub scroll: u32,
    /// What served it.
    pub tier: Tier,
    /// Why it was not the tier above, if there was something in the cache.
    pub stale: Option<StaleReason>,
    /// What was not shown of it, why it was not found in the cache, and the like, for people.
    pub notes: Vec<String>,
    /// How long it took.
    pub split: OpenTimes,
    /// What is where, if that was wanted.
    pub places: Option<PageLayout>,
    /// What is to be kept of it. Of a page that was just made it may be on its way still.
    pub to_keep: Option<UnsavedPage>,
    /// What it was shown from.
    pub shown: ShownFrom,
}

/// What a page was shown from, for what is asked of it later.
#[derive(Debug)]
pub struct ShownFrom {
    source: u128,
    document: Option<DomBytes>,
    entry: Option<Vec<u8>>,
}

impl ShownFrom {
    /// By the sum of the page's bytes; with its document, if it was wanted what is where, and what
    /// was kept of it, if it is to be painted again.
    pub(crate) fn new(
        source: u128,
        document: Option<DomBytes>,
        entry: Option<Vec<u8>>,
    ) -> ShownFrom {
        ShownFrom { source, document, entry }
    }

    /// The sum of the page's bytes.
    pub(crate) fn source(&self) -> u128 {
        self.source
    }

    pub(crate) fn set_document(&mut self, document: DomBytes) {
        self.document = Some(document);
    }

    pub(crate) fn take_entry(&mut self) -> Option<Vec<u8>> {
        self.entry.take()
    }
}

impl OpenPage {
    /// The viewport as a PNG; the same pixels are the same bytes. Is kept with the page.
    ///
    /// # Errors
    /// [`PageError::Png`].
    pub fn png(&mut self) -> Result<Arc<Vec<u8>>, PageError> {
        if let Some(png) = &self.png {
            return Ok(Arc::clone(png));
        }
        let png = Arc::new(self.pixels.to_png()?);
        if let Some(to_keep) = &mut self.to_keep {
            to_keep.set_png(&png);
        }
        self.png = Some(Arc::clone(&png));
        Ok(png)
    }

    /// Where the elements that match a selector are, in the order of the document. Those that are
    /// nowhere to be seen are left out.
    ///
    /// # Errors
    /// When the selector is none, or the document is damaged. Of a page that was not opened for it
    /// ([`PageUse::Places`]) nothing is known.
    pub fn boxes_of(&self, selector: &str) -> Result<Vec<NodeBox>, DomError> {
        let selector = Selector::parse(selector)?;
        let (Some(places), Some(bytes)) = (&self.places, &self.shown.document) else {
            return Ok(Vec::new());
        };
        let document = Document::from_bytes(bytes.bytes())?;
        let found = document.select(&selector)?;
        Ok(found.into_iter().filter_map(|node| places.box_of(node.id()).copied()).collect())
    }

    /// The links of a page that is to be painted again. Waits for them, if it was just made.
    pub(crate) fn links(&self) -> Result<Vec<Link>, RecordError> {
        if let Some(made) = self.to_keep.as_ref().map_or(Ok(None), UnsavedPage::places)? {
            return Ok(made.links.clone());
        }
        let entry = self.shown.entry.as_deref().unwrap_or_default();
        let links =
            CachedView::open(entry).and_then(|kept| read_links(kept.entry.part(EntryPart::Links)?));
        Ok(links.unwrap_or_default())
    }
}

/// What a page is opened for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageUse {
    /// To be looked at.
    #[default]
    Picture,
    /// To be written as a PNG ([`OpenPage::png`]). There are no pixels if the file was kept.
    File,
    /// To be looked at and scrolled: what that needs is given too, also without a cache.
    Scrolling,
    /// To be asked what is where. There are no pixels if the layout was kept.
    Places,
}

/// How a page is opened.
#[derive(Clone)]
pub struct OpenOptions<'a> {
    /// What is looked at.
    pub view: View,
    /// How much is taken.
    pub limits: PageLimits,
    /// What was kept, and where what is made is kept.
    pub cache: Option<&'a Cache>,
    /// The source of the page and its resources.
    pub from: Arc<dyn Fetch>,
    /// Whether a page of this machine may ask servers. A page from the network may, and gets no
    /// files.
    pub network: bool,
    /// Whether servers are asked for what is kept.
    pub asking: CachePolicy,
    /// What it is opened for.
    pub want: PageUse,
    /// Paint it from its display list, also where its pixels are kept.
    pub repaint: bool,
}

impl fmt::Debug for OpenOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening")
            .field("view", &self.view)
            .field("network", &self.network)
            .finish_non_exhaustive()
    }
}

impl<'a> OpenOptions<'a> {
    /// The usual one, with the [`Fetch`] that gives the pages.
    #[must_use]
    pub fn new(
        view: View,
        limits: &PageLimits,
        cache: Option<&'a Cache>,
        from: Arc<dyn Fetch>,
    ) -> OpenOptions<'a> {
        OpenOptions {
            view,
            limits: *limits,
            cache,
            from,
            network: false,
            asking: CachePolicy::Usual,
            want: PageUse::Picture,
            repaint: false,
        }
    }
}

impl Cache {
    /// The links and boxes of a view; `None`, if there is no such view.
    ///
    /// # Errors
    /// When the heap cannot be opened. What is wrong with the entry is inside.
    pub fn places(
        &self,
        view: &str,
    ) -> Result<Option<Result<PageLayout, crate::error::EntryDamage>>, CacheError> {
        let look = |heap: &holdfast_heap::Owned<_>| {
            heap.bytes(view).map(|bytes| CachedView::open(bytes).and_then(|kept| kept.places()))
        };
        Ok(self.read(look)?.flatten())
    }
}
