//! The mouse: links below it, scroll bars that are held.

use super::input::Button;
use super::{Axis, Link, Viewer};
use crate::Address;

/// What a link leads to.
pub(super) enum LinkTarget {
    /// A page.
    Page(Address),
    /// Something that is not opened, and why.
    Other(String, String),
}

impl Viewer {
    /// The link that the pointer is on.
    pub(super) fn hovered(&self) -> Option<&Link> {
        let (x, y) = self.pointer?;
        if self.held_bar.is_some() || !self.parts().page.has(x, y) {
            return None;
        }
        self.link_at((x, y), self.seen()?)
    }

    /// How far the page is scrolled in what is seen; the picture follows the scroll position.
    pub(super) fn seen(&self) -> Option<(u32, u32)> {
        let page = self.page.as_ref()?;
        let picture = self.picture.as_ref().filter(|picture| picture.page == page.id);
        Some(picture.map_or(self.scroll, |picture| picture.scroll))
    }

    /// The link that is at a point of the window when the page is seen scrolled so far.
    pub(super) fn link_at(&self, (x, y): (f64, f64), seen: (u32, u32)) -> Option<&Link> {
        let page = self.page.as_ref()?;
        let at = |is_fixed| {
            let scroll = if is_fixed { (0, 0) } else { seen };
            [x + f64::from(scroll.0), y + f64::from(scroll.1)].map(|pixels| pixels as f32)
        };
        // What comes later lies on top.
        page.links.iter().rev().find(|link| {
            let [left, top, right, bottom] = link.place;
            let at = at(link.fixed);
            at[0] >= left && at[0] < right && at[1] >= top && at[1] < bottom
        })
    }

    /// What a link of this page leads to.
    pub(super) fn target(&self, href: &str) -> Option<LinkTarget> {
        let page = self.page.as_ref()?;
        // A place in this page is in this page, wherever that was found.
        let is_place = href.trim_start().starts_with('#');
        let base = if is_place { page.address.url() } else { &page.base };
        Some(match page.address.join_from(base, href) {
            Ok(address) => LinkTarget::Page(address),
            Err(crate::PageError::Address { address, reason }) => {
                LinkTarget::Other(address, reason.to_owned())
            }
            Err(error) => LinkTarget::Other(href.to_owned(), error.to_string()),
        })
    }

    pub(super) fn pointed(&mut self, x: f64, y: f64) {
        self.pointer = Some((x, y));
        if let Some((direction, on_thumb)) = self.held_bar {
            let [across, down] = self.bars();
            match direction {
                Axis::Across => self.scroll_to(across.scrolled(x - on_thumb), self.scroll.1),
                Axis::Down => self.scroll_to(self.scroll.0, down.scrolled(y - on_thumb)),
            }
        }
    }

    pub(super) fn pressed(&mut self, button: Button) {
        match button {
            Button::Back => return self.travel(-1),
            Button::Forward => return self.travel(1),
            Button::Left | Button::Middle => {}
        }
        let Some((x, y)) = self.pointer else { return };
        let (parts, [across, down]) = (self.parts(), self.bars());
        if parts.beside.has(x, y) {
            self.grab(Axis::Down, y, down);
        } else if parts.below.has(x, y) && across.end() > 0 {
            self.grab(Axis::Across, x, across);
        } else if let Some(link) = self.hovered() {
            let href = link.href.clone();
            self.typing = None;
            self.follow(&href);
        } else if parts.page.has(x, y) {
            self.click_later((x, y));
        }
    }

    fn grab(&mut self, direction: Axis, at: f64, bar: super::place::ScrollBar) {
        let Some((from, length)) = bar.thumb() else { return };
        let (from, length) = (f64::from(from), f64::from(length));
        // Beside the thumb: it comes there.
        let on_thumb = if (from..from + length).contains(&at) { at - from } else { length / 2.0 };
        self.held_bar = Some((direction, on_thumb));
        let (x, y) = self.pointer.unwrap_or_default();
        self.pointed(x, y);
    }

    pub(super) fn released(&mut self, _button: Button) {
        self.held_bar = None;
    }

    /// The next link for the keyboard, or the one before, from what is seen on.
    pub(super) fn focus_step(&mut self, step: isize) {
        let Some(page) = &self.page else { return };
        let count = page.links.len();
        if page.awaits_links {
            return self.focus_later(step);
        }
        if count == 0 {
            self.said = Some("there are no links on this page".to_owned());
            return;
        }
        let next = match self.focus.filter(|number| *number < count) {
            // All pieces of one link are one.
            Some(now) => {
                let mut next = now;
                loop {
                    next = next
                        .checked_add_signed(step)
                        .filter(|next| *next < count)
                        .unwrap_or(if step > 0 { 0 } else { count - 1 });
                    if next == now || page.links[next].href != page.links[now].href {
                        break next;
                    }
                }
            }
            None => {
                let top = self.scroll.1 as f32;
                let first = page.links.iter().position(|link| link.place[1] >= top);
                first.unwrap_or(0)
            }
        };
        self.focus = Some(next);
        let Link { place, fixed, .. } = page.links[next];
        if !fixed {
            self.scroll_to_see(place);
        }
    }

    pub(super) fn focused(&self) -> Option<&Link> {
        self.page.as_ref()?.links.get(self.focus?)
    }

    pub(super) fn follow_focus(&mut self) {
        if let Some(link) = self.focused() {
            let href = link.href.clone();
            self.follow(&href);
        }
    }
}
