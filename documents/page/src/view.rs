//! The view of a page: the size of the viewport, the scale, the scroll position.

use crate::error::PageError;
use crate::limits::VIEWPORT_MAX;

/// A viewport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    width: u32,
    height: u32,
    scale_permille: u32,
    scroll: u32,
    scroll_x: u32,
}

/// Pixels of a picture for one of the page, in thousandths.
const SCALE_PERMILLE: std::ops::RangeInclusive<u32> = 100..=10_000;

impl View {
    /// No viewport at all: what is kept of a page that was only parsed.
    pub(crate) const DOCUMENT: View =
        View { width: 0, height: 0, scale_permille: 0, scroll: 0, scroll_x: 0 };

    /// A viewport of `width` x `height` pixels, of which `scale_permille` thousandths are one pixel
    /// of CSS.
    ///
    /// # Errors
    /// [`PageError::Range`].
    pub fn new(width: u32, height: u32, scale_permille: u32) -> Result<View, PageError> {
        for (what, given) in [("the viewport's width", width), ("the viewport's height", height)] {
            if !(1..=VIEWPORT_MAX).contains(&given) {
                return Err(PageError::Range {
                    what,
                    given: given.to_string(),
                    min: 1,
                    max: VIEWPORT_MAX,
                });
            }
        }
        if !SCALE_PERMILLE.contains(&scale_permille) {
            let (min, max) = (*SCALE_PERMILLE.start(), *SCALE_PERMILLE.end());
            let what = "the scale in thousandths";
            return Err(PageError::Range { what, given: scale_permille.to_string(), min, max });
        }
        Ok(View { width, height, scale_permille, scroll: 0, scroll_x: 0 })
    }

    /// The viewport that comes nearest to this one.
    pub(crate) fn within(width: u32, height: u32, scale_permille: u32) -> View {
        View {
            width: width.clamp(1, VIEWPORT_MAX),
            height: height.clamp(1, VIEWPORT_MAX),
            scale_permille: scale_permille.clamp(*SCALE_PERMILLE.start(), *SCALE_PERMILLE.end()),
            scroll: 0,
            scroll_x: 0,
        }
    }

    /// Pixels from left to right.
    pub(crate) fn width(self) -> u32 {
        self.width
    }

    /// Pixels from top to bottom.
    pub(crate) fn height(self) -> u32 {
        self.height
    }

    /// Pixels for one of CSS, in thousandths.
    pub(crate) fn scale_permille(self) -> u32 {
        self.scale_permille
    }

    /// How far it is scrolled down, in pixels.
    pub(crate) fn scroll(self) -> u32 {
        self.scroll
    }

    /// How far it is scrolled to the right, in pixels.
    pub(crate) fn scroll_x(self) -> u32 {
        self.scroll_x
    }

    /// The same, scrolled down by this many pixels. Past the end of the page is its end.
    #[must_use]
    pub fn scrolled(self, scroll: u32) -> View {
        View { scroll, ..self }
    }

    /// The same, scrolled to the right by this many pixels. Past the edge of the page is its edge.
    #[must_use]
    pub fn scrolled_right(self, scroll_x: u32) -> View {
        View { scroll_x, ..self }
    }

    pub(crate) fn scroll_within(self, content_height: u32) -> u32 {
        self.scroll.min(content_height.saturating_sub(self.height))
    }

    pub(crate) fn scroll_x_within(self, content_width: u32) -> u32 {
        self.scroll_x.min(content_width.saturating_sub(self.width))
    }

    pub(crate) fn scale_factor(self) -> f32 {
        self.scale_permille as f32 / 1000.0
    }

    /// As the engine has it, which keeps it in single precision.
    pub(crate) fn scale_factor_f64(self) -> f64 {
        f64::from(self.scale_factor())
    }
}
