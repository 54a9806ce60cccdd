//! A page, in a thread of its own: opened, painted, looked through and kept.
//!
//! Invariants: pixels are told of as soon as they are there; what needs the record of the page
//! (other places of it, its links, what is found in it) is done when that is there, and of what is
//! asked for meanwhile the newest counts. A page whose record cannot be made is shown all the same,
//! and painted by the engine where it is scrolled to.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use super::failure;
use super::pages::{EventSink, OpenSlot, OpenSlots, Opener, PageDemand};
use super::talk::{
    OpenStats, OpenedView, PageRequest, PaintedView, ReloadMode, ViewerEvent, ViewerRequest,
};
use crate::PageError;
use crate::keeping::UnsavedPage;
use crate::open::open_with;
use crate::opened::{OpenPage, PageUse};
use crate::picture::StaleReason;
use crate::pixels::Pixels;
use crate::showing::LivePage;
use holdfast_sys::counted::counted;

/// A page is kept when it was looked at for so long, or was left.
const KEPT_AFTER: Duration = Duration::from_millis(300);

/// A message to the thread of a page.
pub(super) enum PageMessage {
    Ask(ViewerRequest),
    /// The page is not shown any more.
    Left,
    /// The page is recorded, or will never be.
    Recorded,
}

/// What the thread of one page works with: how it opens pages, and whom it tells.
pub(super) struct PageServer {
    pub(super) opener: Arc<Opener>,
    pub(super) tell: EventSink,
    pub(super) wanted: Arc<PageDemand>,
    pub(super) asked: PageRequest,
}

/// What is asked for, and was not done yet.
#[derive(Default)]
struct PendingRequests {
    asks: Vec<ViewerRequest>,
    is_left: bool,
}

impl PendingRequests {
    fn take(&mut self, told: PageMessage) {
        match told {
            PageMessage::Ask(ask) => {
                // Of what is to be painted, and to be found, the newest.
                let is_older = |older: &ViewerRequest| match ask {
                    ViewerRequest::Paint { .. } => matches!(older, ViewerRequest::Paint { .. }),
                    ViewerRequest::Find { .. } => matches!(older, ViewerRequest::Find { .. }),
                    _ => false,
                };
                self.asks.retain(|older| !is_older(older));
                self.asks.push(ask);
            }
            PageMessage::Left => self.is_left = true,
            PageMessage::Recorded => {}
        }
    }
}

impl PageServer {
    fn is_gone(&self) -> bool {
        self.wanted.is_gone.load(Ordering::Relaxed)
    }

    /// `itself` sends messages to the thread.
    pub(super) fn run(
        &self,
        told: &Receiver<PageMessage>,
        itself: Sender<PageMessage>,
        slots: &OpenSlots,
    ) {
        let Some(slot) = slots.take(&self.wanted) else { return };
        let asked = &self.asked;
        let cache = self.opener.cache.as_ref().filter(|_| asked.again != ReloadMode::IgnoreCache);
        let mut opening = self.opener.opening(asked, cache);
        opening.want = PageUse::Scrolling;
        let (opened, failure) = match open_with(&asked.named(), &opening) {
            Ok(opened) => (opened, None),
            Err(error) => {
                match failure::page(&asked.address, &error, asked.view, &self.opener.limits) {
                    Ok(page) => (page, Some(error)),
                    Err(worse) => {
                        let text = format!("{error} ({worse})");
                        return (self.tell)(ViewerEvent::Failed { page: asked.id, text });
                    }
                }
            }
        };
        self.wanted.is_opening.store(false, Ordering::Relaxed);
        if !self.is_gone() {
            self.show(opened, failure, told, itself, slot);
        }
    }

    /// Shows a page that was opened, until it is left.
    fn show(
        &self,
        mut opened: OpenPage,
        failure: Option<PageError>,
        told: &Receiver<PageMessage>,
        itself: Sender<PageMessage>,
        slot: OpenSlot<'_>,
    ) {
        let asked = &self.asked;
        let is_failure = failure.is_some();
        let since = Instant::now();
        let was = (opened.content, opened.shown.source());
        (self.tell)(ViewerEvent::Opened(Box::new(self.told(&mut opened, failure))));
        let Some(mut waiting) = self.until_recorded(&opened, told, itself) else { return };
        drop(slot);
        let mut showing = LivePage::of(&mut opened);
        if !waiting.is_left && opened.to_keep.as_ref().and_then(UnsavedPage::coming).is_some() {
            let links = opened.links().map_err(|error| error.to_string());
            (self.tell)(ViewerEvent::Links { page: asked.id, links });
        }
        let mut unkept = if is_failure { None } else { Some(opened) };
        while !waiting.is_left {
            self.answer(std::mem::take(&mut waiting.asks), &mut showing, was);
            let first = if unkept.is_some() {
                told.recv_timeout(
                    KEPT_AFTER.saturating_sub(since.elapsed()).max(Duration::from_millis(1)),
                )
            } else {
                told.recv().map_err(|_| RecvTimeoutError::Disconnected)
            };
            match first {
                Ok(first) => {
                    std::iter::once(first).chain(told.try_iter()).for_each(|one| waiting.take(one))
                }
                Err(RecvTimeoutError::Timeout) => self.keep(&showing, unkept.take()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        self.keep(&showing, unkept);
    }

    fn told(&self, opened: &mut OpenPage, failure: Option<PageError>) -> OpenedView {
        let pixels = std::mem::replace(&mut opened.pixels, Pixels::NONE);
        let is_kept = opened.to_keep.as_ref().and_then(UnsavedPage::coming).is_none();
        let tier = failure.is_none().then_some(opened.tier);
        let scroll = (self.asked.view.scroll_x_within(opened.content.0), opened.scroll);
        OpenedView {
            id: self.asked.id,
            base: std::mem::take(&mut opened.base),
            title: std::mem::take(&mut opened.title),
            content: opened.content,
            links: is_kept.then(|| opened.links().unwrap_or_default()),
            served: OpenStats { tier, split: opened.split },
            notes: std::mem::take(&mut opened.notes),
            failure,
            first: PaintedView { page: self.asked.id, scroll, pixels: Ok(pixels) },
        }
    }

    /// Waits for the record of a page that was made, and takes what is asked for meanwhile. None,
    /// if the page was left and is not to be kept.
    fn until_recorded(
        &self,
        opened: &OpenPage,
        told: &Receiver<PageMessage>,
        itself: Sender<PageMessage>,
    ) -> Option<PendingRequests> {
        let mut waiting = PendingRequests::default();
        let Some(coming) = opened.to_keep.as_ref().and_then(UnsavedPage::coming) else {
            return Some(waiting);
        };
        coming.then(move || {
            let _ = itself.send(PageMessage::Recorded);
        });
        loop {
            match told.recv_timeout(coming.end().saturating_duration_since(Instant::now())) {
                // Its time is over: that is found again by the code that takes it.
                Ok(PageMessage::Recorded) | Err(RecvTimeoutError::Timeout) => return Some(waiting),
                Ok(one) => waiting.take(one),
                Err(RecvTimeoutError::Disconnected) => waiting.is_left = true,
            }
            if waiting.is_left && self.cache_for(opened.to_keep.as_ref()).is_none() {
                return None;
            }
        }
    }

    /// Does what was asked for.
    fn answer(&self, asks: Vec<ViewerRequest>, showing: &mut LivePage, was: ((u32, u32), u128)) {
        let id = self.asked.id;
        for ask in asks {
            match ask {
                ViewerRequest::Paint { scroll, .. } => {
                    let pixels = self.paint(showing, scroll.0, scroll.1, was);
                    (self.tell)(ViewerEvent::Painted(PaintedView { page: id, scroll, pixels }));
                }
                ViewerRequest::Find { text, .. } => {
                    let matches =
                        showing.find(&text).map_err(|why| format!("cannot look for it: {why}"));
                    (self.tell)(ViewerEvent::Found { page: id, text, matches });
                }
                ViewerRequest::Place { fragment, .. } => {
                    let line = showing.line_of(&fragment, self.opener.cache.as_ref());
                    (self.tell)(ViewerEvent::Place { page: id, line });
                }
                _ => {}
            }
        }
    }

    /// Where it is kept; none, if it is not to be.
    fn cache_for(&self, to_keep: Option<&UnsavedPage>) -> Option<&crate::Cache> {
        let is_passing = self.wanted.is_passing.load(Ordering::Relaxed);
        // What must not be kept goes also where it was only passed.
        let is_wanted = |it: &UnsavedPage| it.is_news() && !is_passing || it.forgets();
        self.opener.cache.as_ref().filter(|_| to_keep.is_some_and(is_wanted))
    }

    fn keep(&self, showing: &LivePage, opened: Option<OpenPage>) {
        let to_keep = opened.and_then(|opened| opened.to_keep);
        let (Some(cache), Some(to_keep)) = (self.cache_for(to_keep.as_ref()), &to_keep) else {
            return;
        };
        // What goes needs no entry.
        let entry = if to_keep.forgets() { Ok(&[][..]) } else { showing.entry() };
        let entry = entry.map_err(|error| error.clone().into());
        let text = match entry.and_then(|entry| to_keep.keep_entry(entry, cache)) {
            Ok(kept) if kept.evicted + kept.pictures_evicted > 0 => {
                format!(
                    "{} of pages that were used longer ago had to go",
                    counted(kept.evicted + kept.pictures_evicted, "view")
                )
            }
            Ok(_) => return,
            Err(error) => format!("the page is not kept: {error}"),
        };
        (self.tell)(ViewerEvent::Note { page: self.asked.id, text });
    }

    /// What is at this scroll position: from the list, or by the engine where the list has it not.
    fn paint(
        &self,
        showing: &mut LivePage,
        x: u32,
        y: u32,
        was: ((u32, u32), u128),
    ) -> Result<Pixels, String> {
        let view = self.asked.view.scrolled(y).scrolled_right(x);
        let changed = || "the page is another one by now; load it again (F5)".to_owned();
        match showing.paint(view) {
            Ok(pixels) => Ok(pixels),
            // A page whose pixels were kept may be shown though its list is damaged.
            Err(
                StaleReason::NoPicture
                | StaleReason::PictureEvicted
                | StaleReason::ScrollBound
                | StaleReason::Beyond { .. }
                | StaleReason::Damaged(_)
                | StaleReason::Undrawable,
            ) => {
                let asked = PageRequest { view, again: ReloadMode::Cached, ..self.asked.clone() };
                // What could not be recorded is not tried again each time.
                let cache = self.opener.cache.as_ref().filter(|_| showing.entry().is_ok());
                let opening = self.opener.opening(&asked, cache);
                let mut again = open_with(&self.asked.address.without_fragment(), &opening)
                    .map_err(|error| error.to_string())?;
                if let (Some(to_keep), Some(cache)) = (again.to_keep.take(), cache) {
                    // What is not mended is made again the next time, too.
                    let _ = to_keep.keep(cache);
                }
                if (again.content, again.shown.source()) == was {
                    Ok(again.pixels)
                } else {
                    Err(changed())
                }
            }
            Err(stale) => Err(format!("{stale}; load the page again (F5)")),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests;
