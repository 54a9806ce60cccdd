//! The scroll position of the page.

use super::place::ScrollBar;
use super::talk::ViewerRequest;
use super::{ShownPage, Viewer};

/// Of an arrow key, in pixels of the page at scale 1.
const LINE: f64 = 40.0;

impl Viewer {
    pub(super) fn line_pixels(&self) -> f64 {
        LINE * f64::from(self.view().scale_permille()) / 1000.0
    }

    /// The scroll bars: to the right and down.
    pub(super) fn bars(&self) -> [ScrollBar; 2] {
        let parts = self.parts();
        let content = self.page.as_ref().map_or((0, 0), |page| page.content);
        let [across, down] = [
            (parts.page.width, content.0, self.scroll.0),
            (parts.page.height, content.1, self.scroll.1),
        ]
        .map(|(seen, all, at)| ScrollBar { track: seen, seen, all, at });
        [across, down]
    }

    /// How far it can be scrolled, as the page was laid out.
    fn ends(page: &ShownPage) -> (u32, u32) {
        (
            page.content.0.saturating_sub(page.view.width()),
            page.content.1.saturating_sub(page.view.height()),
        )
    }

    /// Scrolls there, as far as the page goes.
    pub(super) fn scroll_to(&mut self, x: u32, y: u32) {
        let Some(page) = &self.page else { return };
        let (end_x, end_y) = Viewer::ends(page);
        let scroll = (x.min(end_x), y.min(end_y));
        self.scroll = scroll;
        // Also back to what is shown still, if something else was asked for since.
        if self.asked_paint != (page.id, scroll) {
            self.asked_paint = (page.id, scroll);
            let ask = ViewerRequest::Paint { page: page.id, scroll };
            // One that was not sent yet is of no use.
            self.asks.retain(|asked| !matches!(asked, ViewerRequest::Paint { .. }));
            self.asks.push(ask);
        }
        self.is_changed = true;
    }

    /// Scrolls by so many pixels; what is less than one counts the next time.
    pub(super) fn scroll_by(&mut self, x: f64, y: f64) {
        let (all_x, all_y) = (self.rest.0 + x, self.rest.1 + y);
        let whole = |all: f64| all.clamp(-1e9, 1e9).trunc();
        self.rest = (all_x - whole(all_x), all_y - whole(all_y));
        let moved = |at: u32, by: f64| (f64::from(at) + by).clamp(0.0, f64::from(u32::MAX)) as u32;
        self.scroll_to(moved(self.scroll.0, whole(all_x)), moved(self.scroll.1, whole(all_y)));
    }

    /// Scrolls only as far as is needed to see a rectangle of the page: left, top, right, bottom.
    pub(super) fn scroll_to_see(&mut self, [left, top, right, bottom]: [f32; 4]) {
        let Some(page) = &self.page else { return };
        let view = page.view;
        let one = |at: u32, seen: u32, from: f32, to: f32| {
            let (from, to) = (f64::from(from.max(0.0)), f64::from(to.max(0.0)));
            let (at_f, seen_f) = (f64::from(at), f64::from(seen));
            if from >= at_f && to <= at_f + seen_f {
                return at;
            }
            // In the upper third: one reads on from there.
            (from - seen_f / 3.0).clamp(0.0, f64::from(u32::MAX)) as u32
        };
        let x = one(self.scroll.0, view.width(), left, right);
        let y = one(self.scroll.1, view.height(), top, bottom);
        self.scroll_to(x, y);
    }

    /// How far the page is scrolled, in thousandths of its own pixels.
    pub(super) fn scroll_of_page(&self) -> (u64, u64) {
        let scale = self.page.as_ref().map_or(1000, |page| page.view.scale_permille()).max(1);
        let of = |pixels: u32| (u64::from(pixels) * 1_000_000).div_ceil(u64::from(scale));
        (of(self.scroll.0), of(self.scroll.1))
    }

    /// The same in pixels of the viewport that there is now.
    pub(super) fn scroll_from(&self, (x, y): (u64, u64)) -> (u32, u32) {
        let scale = u64::from(self.view().scale_permille());
        let of = |thousandths: u64| {
            (thousandths.saturating_mul(scale) / 1_000_000).min(u64::from(u32::MAX)) as u32
        };
        (of(x), of(y))
    }

    /// Notes in the history how far this page is scrolled.
    pub(super) fn remember_scroll(&mut self) {
        let scroll = self.scroll_of_page();
        if self.page.is_some()
            && let Some(visit) = self.history.now()
        {
            visit.scroll = scroll;
        }
    }
}
