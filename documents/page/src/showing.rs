//! A page that is open and painted again and again: its entry, in memory of its own, whether it was
//! kept or has just been made.
//!
//! Invariants: what is painted is what opening the page at that scroll position gives, byte for
//! byte; what the entry does not have is said, and not painted ([`StaleReason`]). Sums are compared
//! each time, as for an entry in the cache.

use holdfast_dom::Document;

use crate::cache::{self, Cache};
use crate::engine::DomBytes;
use crate::error::RecordError;
use crate::keeping::UnsavedPage;
use crate::opened::OpenPage;
use crate::picture::{CachedView, LoadedParts, StaleReason};
use crate::pixels::Pixels;
use crate::place;
use crate::places::{FindOptions, Match, PageLayout};
use crate::view::View;

/// An open page with its entry in memory.
pub(crate) struct LivePage {
    /// Or why there is none.
    entry: Result<Vec<u8>, RecordError>,
    loaded: LoadedParts,
    /// Of a page that has just been made; that of a kept one is in the cache.
    dom: Option<DomBytes>,
}

impl LivePage {
    /// Of a page that was opened to be painted again. Waits for its record, if it was just made.
    pub(crate) fn of(opened: &mut OpenPage) -> LivePage {
        let made = opened.to_keep.as_ref();
        let kept = opened.shown.take_entry().map(Ok);
        LivePage {
            entry: kept.or_else(|| made.map(UnsavedPage::entry)).unwrap_or_else(|| Ok(Vec::new())),
            loaded: LoadedParts::default(),
            dom: made.and_then(|made| made.dom()).map(DomBytes::copy),
        }
    }

    /// The entry, to be kept.
    pub(crate) fn entry(&self) -> Result<&[u8], &RecordError> {
        self.entry.as_deref()
    }

    /// Paints a viewport of the size that the page was opened with.
    pub(crate) fn paint(&mut self, view: View) -> Result<Pixels, StaleReason> {
        // Without a record each place is painted by the engine.
        let entry = self.entry.as_ref().map_err(|_| StaleReason::NoPicture)?;
        let kept = CachedView::open_again(entry, std::mem::take(&mut self.loaded))?;
        let painted = kept.check_view(view).and_then(|()| kept.paint(view));
        self.loaded = kept.into_loaded();
        painted
    }

    /// What can be clicked on, where everything is, and what is written where.
    ///
    /// # Errors
    /// Why that is not known, for people.
    pub(crate) fn places(&self) -> Result<PageLayout, String> {
        let entry = self.entry.as_ref().map_err(ToString::to_string)?;
        CachedView::open(entry).and_then(|kept| kept.places()).map_err(|damage| damage.to_string())
    }

    /// Where a text is, however its letters are written.
    pub(crate) fn find(&self, text: &str) -> Result<Vec<Match>, String> {
        Ok(self.places()?.find(text, FindOptions::default()))
    }

    /// The line where a place begins: the element with this `id`, or the link of this name.
    pub(crate) fn line_of(&self, fragment: &str, cache: Option<&Cache>) -> Option<u32> {
        let places = self.places().ok()?;
        let of =
            |bytes: &[u8]| place::of(&Document::from_bytes(bytes).ok()?, &places.boxes, fragment);
        match &self.dom {
            Some(dom) => of(dom.bytes()),
            None => {
                let source = u128::from_le_bytes(
                    CachedView::open(self.entry.as_ref().ok()?).ok()?.entry.header.source,
                );
                let look = |heap: &holdfast_heap::Owned<_>| {
                    cache::document(heap, source)?.ok().and_then(of)
                };
                cache?.read(look).ok()??
            }
        }
    }
}
