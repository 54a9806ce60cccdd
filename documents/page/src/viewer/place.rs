//! The geometry of the window: the page, its scroll bars, the status line; and how far scroll bars
//! are.
//!
//! The page's part is as large as the viewport that the page is laid out in: nothing lies over it.

/// A rectangle of the window: left, top, width, height, in pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowArea {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) width: u32,
    pub(crate) height: u32,
}

impl WindowArea {
    pub(crate) fn has(&self, x: f64, y: f64) -> bool {
        let (left, top) = (f64::from(self.x), f64::from(self.y));
        let inside = |at: f64, from: f64, length: u32| at >= from && at < from + f64::from(length);
        inside(x, left, self.width) && inside(y, top, self.height)
    }
}

/// The parts of the window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowParts {
    pub(crate) page: WindowArea,
    /// The scroll bar at its right.
    pub(crate) beside: WindowArea,
    /// The scroll bar for what is wider than the window: the upper edge of the line.
    pub(crate) below: WindowArea,
    pub(crate) line: WindowArea,
}

/// Of the scroll bar and the line, in pixels at scale 1.
const BAR_WIDTH: u32 = 14;
const LINE_HEIGHT: u32 = 26;
const BELOW_HEIGHT: u32 = 5;
/// The least that can be grabbed.
const THUMB_MIN: u32 = 24;

fn scaled(length: u32, scale_permille: u32) -> u32 {
    (u64::from(length) * u64::from(scale_permille) / 1000).clamp(1, 10_000) as u32
}

/// The size of a window with a page's part of this size.
pub(crate) fn around(page: (u32, u32), scale_permille: u32) -> (u32, u32) {
    (page.0 + scaled(BAR_WIDTH, scale_permille), page.1 + scaled(LINE_HEIGHT, scale_permille))
}

impl WindowParts {
    /// Of a window of this size. The page has a pixel, however small that is.
    pub(crate) fn of(width: u32, height: u32, scale_permille: u32) -> WindowParts {
        let bar = scaled(BAR_WIDTH, scale_permille).min(width.saturating_sub(1));
        let line = scaled(LINE_HEIGHT, scale_permille).min(height.saturating_sub(1));
        let below = scaled(BELOW_HEIGHT, scale_permille).min(line);
        let page =
            WindowArea { x: 0, y: 0, width: width.max(1) - bar, height: height.max(1) - line };
        WindowParts {
            page,
            beside: WindowArea { x: page.width, y: 0, width: bar, height: page.height },
            below: WindowArea { x: 0, y: page.height, width: page.width, height: below },
            line: WindowArea { x: 0, y: page.height, width, height: line },
        }
    }
}

/// A scroll bar in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ScrollBar {
    /// Of the track, in pixels.
    pub(crate) track: u32,
    /// What is seen, what there is, and how far it is scrolled.
    pub(crate) seen: u32,
    pub(crate) all: u32,
    pub(crate) at: u32,
}

impl ScrollBar {
    /// How far it can be scrolled.
    pub(crate) fn end(&self) -> u32 {
        self.all.saturating_sub(self.seen)
    }

    /// Where the thumb begins, and its length; none, if there is nothing to scroll.
    pub(crate) fn thumb(&self) -> Option<(u32, u32)> {
        if self.end() == 0 {
            return None;
        }
        let of_track = |part: u64, all: u64| (part * u64::from(self.track) / all.max(1)) as u32;
        let length = of_track(self.seen.into(), self.all.into())
            .max(THUMB_MIN)
            .min(self.track.saturating_sub(1));
        let room = u64::from(self.track - length);
        let from = u64::from(self.at.min(self.end())) * room / u64::from(self.end());
        Some((from as u32, length))
    }

    /// How far it is scrolled when the thumb begins there.
    pub(crate) fn scrolled(&self, thumb_from: f64) -> u32 {
        let Some((_, length)) = self.thumb() else { return 0 };
        let room = f64::from(self.track - length).max(1.0);
        (thumb_from.clamp(0.0, room) / room * f64::from(self.end())).round() as u32
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// The parts of the window fill it, and the page has the requested size.
    #[test]
    fn parts_fill_the_window() {
        for scale in [1000, 1500, 2000] {
            let (width, height) = around((1280, 800), scale);
            let parts = WindowParts::of(width, height, scale);
            assert_eq!(parts.page, WindowArea { x: 0, y: 0, width: 1280, height: 800 });
            assert_eq!(parts.beside.x + parts.beside.width, width);
            assert_eq!(parts.line.y + parts.line.height, height);
        }
        for small in [0, 1, 5] {
            let page = WindowParts::of(small, small, 1000).page;
            assert!(page.width >= 1 && page.height >= 1, "{page:?}");
        }
    }

    #[test]
    fn a_thumb_goes_from_end_to_end_and_leads_back() {
        let bar = |at| ScrollBar { track: 800, seen: 800, all: 8000, at };
        assert_eq!(bar(0).thumb(), Some((0, 80)));
        assert_eq!(bar(7200).thumb(), Some((720, 80)));
        assert_eq!(bar(9999).thumb(), Some((720, 80)));
        assert_eq!((bar(0).scrolled(720.0), bar(0).scrolled(-5.0)), (7200, 0));
        assert_eq!(ScrollBar { all: 800, ..bar(0) }.thumb(), None);
        let long = ScrollBar { all: 4_000_000, ..bar(0) };
        assert_eq!(long.thumb().unwrap().1, THUMB_MIN);
        assert_eq!(long.scrolled(f64::from(800 - THUMB_MIN)), long.end());
        assert_eq!(
            ScrollBar { track: 1, ..bar(7200) }.thumb(),
            Some((1, 0)),
            "no room is no panic"
        );
    }
}
