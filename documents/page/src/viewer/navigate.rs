//! From page to page: links, addresses, back and forth, again, in another size.

use super::history::HistoryEntry;
use super::pointer::LinkTarget;
use super::talk::{OpenedView, PageRequest, ReloadMode, ViewerRequest};
use super::{HistoryChange, PendingPage, ShownPage, Viewer, ZOOM};
use crate::Address;
use crate::fetch::Url;
use crate::view::View;

/// Steps of the zoom, in thousandths.
const STEPS: [u32; 15] =
    [250, 333, 500, 667, 750, 800, 900, 1000, 1100, 1250, 1500, 1750, 2000, 3000, 5000];

/// In another scale the same text is further down.
fn rescaled((x, y): (u32, u32), from: View, to: View) -> (u32, u32) {
    let factor = f64::from(to.scale_permille()) / f64::from(from.scale_permille());
    let one = |at: u32| (f64::from(at) * factor).min(1e9) as u32;
    (one(x), one(y))
}

impl Viewer {
    /// The first page.
    pub(super) fn begin(&mut self, address: Address, view: View) {
        let fragment = address.fragment().map(str::to_owned);
        self.open(address, view, fragment, ReloadMode::Cached, HistoryChange::New);
    }

    fn open(
        &mut self,
        address: Address,
        view: View,
        fragment: Option<String>,
        again: ReloadMode,
        then: HistoryChange,
    ) {
        let is_resize = matches!(then, HistoryChange::Fit);
        self.last_id += 1;
        let id = self.last_id;
        self.said = None;
        self.later = None;
        self.asks.push(ViewerRequest::Open(PageRequest {
            id,
            address: address.clone(),
            view,
            fragment,
            again,
            is_resize,
        }));
        self.pending = Some(PendingPage { id, address, view, then });
    }

    /// Whether a page is on its way, and which.
    pub(super) fn awaited(&self) -> Option<&Address> {
        self.pending.as_ref().map(|pending| &pending.address)
    }

    /// Opens an address.
    pub(super) fn go(&mut self, address: Address) {
        let fragment = address.fragment().map(str::to_owned);
        if let (Some(page), Some(place)) = (&self.page, &fragment)
            && !page.is_failure
            && page.address.as_str() == address.as_str()
            && self.pending.is_none()
        {
            let (page, fragment) = (page.id, place.clone());
            self.asks.push(ViewerRequest::Place { page, fragment });
            self.remember_scroll();
            self.history
                .push(HistoryEntry { address: address.clone(), scroll: self.scroll_of_page() });
            if let Some(page) = &mut self.page {
                page.address = address;
            }
            return;
        }
        let view = self.view();
        self.open(address, view, fragment, ReloadMode::Cached, HistoryChange::New);
    }

    /// Opens what a link leads to.
    pub(super) fn follow(&mut self, href: &str) {
        match self.target(href) {
            Some(LinkTarget::Page(address)) => self.go(address),
            Some(LinkTarget::Other(address, why)) => self.said = Some(format!("{address}: {why}")),
            None => {}
        }
    }

    /// Back, or forth.
    pub(super) fn travel(&mut self, steps: i32) {
        let on_its_way = self.pending.as_ref().and_then(|pending| match pending.then {
            HistoryChange::Visit(at) => Some(at),
            HistoryChange::New | HistoryChange::Stay | HistoryChange::Fit => None,
        });
        let Some((at, visit)) = self.history.ahead(on_its_way, steps) else {
            let end = if steps < 0 {
                "there is no page before this one"
            } else {
                "there is no page after this one"
            };
            self.said = Some(end.to_owned());
            return;
        };
        let (address, css) = (visit.address.clone(), visit.scroll);
        self.remember_scroll();
        let here = self.page.as_ref().filter(|page| !page.is_failure && self.pending.is_none());
        if here.is_some_and(|page| page.address.as_str() == address.as_str()) {
            self.history.go(at);
            if let Some(page) = &mut self.page {
                page.address = address;
            }
            let (x, y) = self.scroll_from(css);
            self.scroll_to(x, y);
            return;
        }
        let (x, y) = self.scroll_from(css);
        let view = self.view().scrolled(y).scrolled_right(x);
        self.open(address, view, None, ReloadMode::Cached, HistoryChange::Visit(at));
    }

    /// Opens the same page again.
    pub(super) fn reload(&mut self, again: ReloadMode) {
        let (x, y) = self.scroll;
        let view = self.view().scrolled(y).scrolled_right(x);
        match (self.pending.take(), &self.page) {
            (Some(PendingPage { address, then, .. }), _) => {
                let fragment = address.fragment().map(str::to_owned);
                self.open(address, self.view(), fragment, again, then);
            }
            (None, Some(page)) => {
                let address = page.address.clone();
                self.open(address, view, None, again, HistoryChange::Stay);
            }
            (None, None) => {}
        }
    }

    /// Opens the page that is shown, or the one that is on its way, in the viewport that there is
    /// now.
    pub(super) fn adapt(&mut self) {
        let view = self.view();
        if let Some(pending) = &self.pending {
            if (pending.view.width(), pending.view.height(), pending.view.scale_permille())
                == (view.width(), view.height(), view.scale_permille())
            {
                return;
            }
            if let Some(PendingPage { address, view: was, then, .. }) = self.pending.take() {
                let fragment = address
                    .fragment()
                    .map(str::to_owned)
                    .filter(|_| matches!(then, HistoryChange::New));
                // The same page is where it was scrolled to meanwhile, another one where it was
                // asked for.
                let (at, was) = match (&then, &self.page) {
                    (HistoryChange::Stay | HistoryChange::Fit, Some(page)) => {
                        (self.scroll, page.view)
                    }
                    _ => ((was.scroll_x(), was.scroll()), was),
                };
                let (x, y) = rescaled(at, was, view);
                self.open(
                    address,
                    view.scrolled(y).scrolled_right(x),
                    fragment,
                    ReloadMode::Cached,
                    then,
                );
            }
            return;
        }
        let Some(page) = &self.page else { return };
        let then = page.view;
        if (then.width(), then.height(), then.scale_permille())
            == (view.width(), view.height(), view.scale_permille())
        {
            return;
        }
        let (x, y) = rescaled(self.scroll, then, view);
        let address = page.address.clone();
        self.open(
            address,
            view.scrolled(y).scrolled_right(x),
            None,
            ReloadMode::Cached,
            HistoryChange::Fit,
        );
    }

    /// A step larger, smaller, or as usual.
    pub(super) fn zoom(&mut self, step: i32) {
        let now = self.zoom_permille;
        let next = match step {
            0 => Some(1000),
            1.. => STEPS.iter().copied().find(|step| *step > now),
            _ => STEPS.iter().rev().copied().find(|step| *step < now),
        };
        self.zoom_permille = next.unwrap_or(now).clamp(ZOOM.0, ZOOM.1);
        self.adapt();
        self.said = Some(format!("zoom {} %", self.zoom_permille / 10));
    }

    /// Leaves what one was about to do.
    pub(super) fn stop(&mut self) {
        if let Some(pending) = self.pending.take() {
            self.asks.push(ViewerRequest::Stop(pending.id));
            self.said = Some("stopped".to_owned());
        }
        self.finding = None;
        self.focus = None;
    }

    /// A page is there.
    pub(super) fn opened(&mut self, opened: OpenedView) {
        let Some(pending) = self.pending.take_if(|pending| pending.id == opened.id) else { return };
        let is_same = matches!(pending.then, HistoryChange::Stay | HistoryChange::Fit);
        match pending.then {
            HistoryChange::New => {
                self.remember_scroll();
                self.history
                    .push(HistoryEntry { address: pending.address.clone(), scroll: (0, 0) });
            }
            HistoryChange::Visit(at) => {
                self.remember_scroll();
                self.history.go(at);
            }
            HistoryChange::Stay | HistoryChange::Fit => {}
        }
        // What the user did while the same page was on its way counts; another page begins where it
        // does.
        let is_moved = is_same
            && self.scroll != (pending.view.scroll_x(), pending.view.scroll())
            && !self.is_resized(&pending.view);
        let scroll = if is_moved { self.scroll } else { opened.first.scroll };
        let searched = self.finding.take().filter(|_| is_same);
        self.focus = None;
        self.later = None;
        self.held_bar = self.held_bar.filter(|_| is_same);
        self.page = Some(ShownPage {
            id: opened.id,
            base: Url::parse(&opened.base).unwrap_or_else(|_| pending.address.url().clone()),
            address: pending.address,
            view: pending.view,
            title: opened.title,
            content: opened.content,
            awaits_links: opened.links.is_none(),
            links: opened.links.unwrap_or_default(),
            served: opened.served,
            notes: opened.notes,
            is_failure: opened.failure.is_some(),
        });
        if let Some(failure) = opened.failure {
            self.said = Some(failure.to_string());
        }
        self.asks.push(ViewerRequest::Show(opened.id));
        self.scroll = opened.first.scroll;
        self.asked_paint = (opened.id, self.scroll);
        self.painted(opened.first);
        self.scroll_to(scroll.0, scroll.1);
        if let Some(searched) = searched {
            self.find_again(searched.text);
        }
        // The window may have got another size since.
        self.adapt();
    }

    /// Whether the page that is shown has another viewport than this one.
    fn is_resized(&self, view: &View) -> bool {
        self.page.as_ref().is_some_and(|page| {
            (page.view.width(), page.view.scale_permille()) != (view.width(), view.scale_permille())
        })
    }
}
