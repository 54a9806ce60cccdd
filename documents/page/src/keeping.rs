//! Keeps a page that was opened.

use std::fmt;
use std::sync::Arc;

use crate::cache::Cache;
use crate::engine::{DomBytes, LaidOutPage, RecordedPage};
use crate::error::{CacheError, RecordError};
use crate::fonts::FontFolders;
use crate::picture::{Origin, to_entry};
use crate::places::PageLayout;
use crate::resource::Reach;
use crate::snapshot::Snapshot;
use crate::sources::{FetchedResource, stored_answers, stored_roots};
use crate::steps::DeferredResult;
use crate::view::View;

/// What is kept of a page. The engine may be at it still while the page is shown already: a caller
/// that needs it waits, no longer than the page may take.
pub struct UnsavedPage {
    address: String,
    /// What servers said.
    news: Vec<(String, FetchedResource)>,
    /// What was made; none, if the page is kept already.
    view: Option<UnsavedView>,
    /// Not, if the cache has as much of it, or may not have it.
    is_news: bool,
    /// Addresses of which nothing is to be kept any more, of no page that asks for them.
    forget: Vec<String>,
}

/// A view that was made.
pub(crate) struct UnsavedView {
    pub(crate) name: String,
    pub(crate) source: u128,
    pub(crate) dom: DomBytes,
    pub(crate) made: LaidOutPage,
    /// What the engine made after the page was painted.
    pub(crate) rest: DeferredResult<RecordedPage>,
    /// What of it was painted, if that is kept.
    pub(crate) snapshot: Option<Snapshot>,
    /// Where the page was found at last.
    pub(crate) found: String,
    /// What addresses in it are relative to.
    pub(crate) base: String,
    pub(crate) reach: Reach,
    pub(crate) view: View,
    pub(crate) fonts: [u64; 2],
    pub(crate) folders: FontFolders,
    pub(crate) now_s: u64,
}

impl fmt::Debug for UnsavedPage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToKeep").field("address", &self.address).finish_non_exhaustive()
    }
}

/// What keeping came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveReport {
    /// Bytes of the view.
    pub view_bytes: u64,
    /// Bytes of the document.
    pub document_bytes: u64,
    /// Views of other pages that had to go.
    pub evicted: u64,
    /// Pictures of other pages that had to go.
    pub pictures_evicted: u64,
}

impl UnsavedPage {
    /// Of a page at `address`: what servers said, the view that was made, and whether the cache
    /// wants either. Of the addresses in `forget` nothing is to be kept any more.
    pub(crate) fn new(
        address: &str,
        news: Vec<(String, FetchedResource)>,
        view: Option<UnsavedView>,
        is_news: bool,
        forget: Vec<String>,
    ) -> UnsavedPage {
        UnsavedPage { address: address.to_owned(), news, view, is_news, forget }
    }

    /// As a page is whose server does not want it to be kept any more.
    #[cfg(test)]
    pub(crate) fn forget_also(&mut self, address: &str) {
        self.forget.push(address.to_owned());
    }

    /// What the engine makes after the page was painted.
    #[cfg(test)]
    pub(crate) fn rest_mut(&mut self) -> Option<&mut DeferredResult<RecordedPage>> {
        self.view.as_mut().map(|new| &mut new.rest)
    }

    /// Whether a view was made.
    pub(crate) fn has_view(&self) -> bool {
        self.view.is_some()
    }

    /// Whether the cache has less of it, and may have it.
    pub(crate) fn is_news(&self) -> bool {
        self.is_news
    }

    /// Whether it takes something out of the cache.
    pub(crate) fn forgets(&self) -> bool {
        !self.forget.is_empty()
    }

    /// What is where on the page; none, if it is kept already. Waits for it.
    ///
    /// # Errors
    /// [`RecordError`].
    pub fn places(&self) -> Result<Option<&PageLayout>, RecordError> {
        let Some(new) = &self.view else { return Ok(None) };
        Ok(new.rest.get().map_err(Clone::clone)?.places.as_ref())
    }

    /// What is on its way; none, if nothing was made.
    pub(crate) fn coming(&self) -> Option<&DeferredResult<RecordedPage>> {
        self.view.as_ref().map(|new| &new.rest)
    }

    /// Puts it into the cache, when it is there.
    ///
    /// # Errors
    /// [`CacheError`], also that there is nothing to be kept ([`CacheError::Record`]): the cache
    /// has what it had, perhaps fewer of the oldest views.
    pub fn keep(self, cache: &Cache) -> Result<SaveReport, CacheError> {
        // For what goes no record is waited for.
        let entry = if self.forget.is_empty() { self.entry()? } else { Vec::new() };
        self.keep_entry(&entry, cache)
    }

    /// Makes it smaller until it is kept.
    pub(crate) fn pack(&mut self) {
        if let Some(snapshot) = self.view.as_mut().and_then(|new| new.snapshot.as_mut()) {
            snapshot.pack();
        }
    }

    /// Keeps the file, too, that was made of its pixels.
    pub(crate) fn set_png(&mut self, png: &Arc<Vec<u8>>) {
        if let Some(snapshot) = self.view.as_mut().and_then(|new| new.snapshot.as_mut()) {
            snapshot.set_png(Arc::clone(png));
        }
    }

    /// The document that was made.
    pub(crate) fn dom(&self) -> Option<&[u8]> {
        self.view.as_ref().map(|new| new.dom.bytes())
    }

    /// What is kept of the view; nothing, if none was made or recorded. Waits for the record.
    pub(crate) fn entry(&self) -> Result<Vec<u8>, RecordError> {
        let Some(new) = &self.view else { return Ok(Vec::new()) };
        let rest = new.rest.get().map_err(Clone::clone)?;
        let (Some(recorded), Some(places)) = (&rest.recorded, &rest.places) else {
            return Ok(Vec::new());
        };
        let origin = Origin {
            address: &self.address,
            found: &new.found,
            base: &new.base,
            reach: new.reach,
            source: new.source,
            view: new.view,
            fonts: new.fonts,
            folders: &new.folders,
            now_s: new.now_s,
        };
        Ok(to_entry(&new.made, recorded, places, new.snapshot.as_ref(), &origin))
    }

    /// Puts it into the cache, with the entry made already.
    pub(crate) fn keep_entry(&self, entry: &[u8], cache: &Cache) -> Result<SaveReport, CacheError> {
        let nothing =
            SaveReport { view_bytes: 0, document_bytes: 0, evicted: 0, pictures_evicted: 0 };
        if !self.forget.is_empty() {
            cache.forget(&self.forget)?;
            return Ok(nothing);
        }
        if !self.is_news {
            return Ok(nothing);
        }
        let Some(new) = &self.view else {
            cache.note_answers(&stored_answers(&self.news));
            return Ok(nothing);
        };
        if entry.is_empty() {
            return Ok(nothing);
        }
        let roots = stored_roots(&self.news, &self.address);
        let evicted = cache.keep(&new.name, new.source, entry, new.dom.bytes(), &roots)?;
        let document_bytes = new.dom.bytes().len() as u64;
        Ok(SaveReport {
            view_bytes: entry.len() as u64,
            document_bytes,
            evicted: evicted.views,
            pictures_evicted: evicted.pictures,
        })
    }
}
