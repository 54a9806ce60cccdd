//! The messages between the viewer and the threads of pages. Nothing of it is waited for: what is
//! on its way when something newer is asked for is not looked at any more.

use std::fmt;
use std::time::Duration;

use crate::pixels::Pixels;
use crate::places::{Link, Match};
use crate::view::View;
use crate::{Address, OpenTimes, PageError, Tier};

/// A number of its own for each time that a page is opened.
pub(crate) type PageId = u64;

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ViewerRequest {
    /// A page, instead of the one that was asked for before and is not there yet.
    Open(PageRequest),
    /// That page is shown now: no other is needed.
    Show(PageId),
    /// Not that page any more.
    Stop(PageId),
    /// What of a page that is open is at this scroll position.
    Paint { page: PageId, scroll: (u32, u32) },
    /// Where a text is on a page.
    Find { page: PageId, text: String },
    /// Where a place is on a page.
    Place { page: PageId, fragment: String },
    /// The line below the page.
    Line(LineText),
}

/// A page that is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PageRequest {
    pub(crate) id: PageId,
    pub(crate) address: Address,
    /// With the scroll position, which a place in the page comes before.
    pub(crate) view: View,
    pub(crate) fragment: Option<String>,
    /// Whether it is loaded again.
    pub(crate) again: ReloadMode,
    /// It is the page that is shown, in another viewport.
    pub(crate) is_resize: bool,
}

impl PageRequest {
    /// Its address, with the place in it only if that comes before the scroll position.
    pub(crate) fn named(&self) -> Address {
        match self.fragment {
            Some(_) => self.address.clone(),
            None => self.address.without_fragment(),
        }
    }
}

/// Whether a page is loaded again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ReloadMode {
    /// It is opened as usual, from the cache where that holds it.
    #[default]
    Cached,
    /// Its server is asked, whether or not the stored answer is still fresh.
    AskServer,
    /// It is opened as if there were no cache.
    IgnoreCache,
}

/// The line below the page.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LineText {
    /// What is cut when it is too long; at its end, if one types there.
    pub(crate) left: String,
    pub(crate) right: String,
    pub(crate) is_typed: bool,
    /// Pixels.
    pub(crate) width: u32,
    pub(crate) height: u32,
    pub(crate) scale_permille: u32,
}

/// An event for the viewer.
#[derive(Debug)]
pub(crate) enum ViewerEvent {
    Opened(Box<OpenedView>),
    /// The links of a page that came without them; or why they are not known.
    Links {
        page: PageId,
        links: Result<Vec<Link>, String>,
    },
    /// A page is not there, nor one that says why.
    Failed {
        page: PageId,
        text: String,
    },
    Painted(PaintedView),
    Found {
        page: PageId,
        text: String,
        matches: Result<Vec<Match>, String>,
    },
    Place {
        page: PageId,
        line: Option<u32>,
    },
    Line(LineText, Pixels),
    /// For people.
    Note {
        page: PageId,
        text: String,
    },
}

/// What served a page, and how long that took.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenStats {
    /// None, if it was not opened.
    pub tier: Option<Tier>,
    /// How long.
    pub split: OpenTimes,
}

impl fmt::Display for OpenStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(tier) = self.tier else { return f.write_str("not opened") };
        let ms = |time: Duration| format!("{:.1}", time.as_secs_f64() * 1000.0);
        let split = self.split;
        write!(
            f,
            "{tier}: {} ms (disk {}, parse {}, ",
            ms(split.total()),
            ms(split.disk),
            ms(split.parse)
        )?;
        write!(f, "layout {}, paint {})", ms(split.layout), ms(split.paint))
    }
}

/// Pixels of a page.
#[derive(Debug)]
pub(crate) struct PaintedView {
    pub(crate) page: PageId,
    /// How far the page is scrolled in them.
    pub(crate) scroll: (u32, u32),
    pub(crate) pixels: Result<Pixels, String>,
}

/// A page that is there.
#[derive(Debug)]
pub(crate) struct OpenedView {
    pub(crate) id: PageId,
    /// What addresses in it are relative to.
    pub(crate) base: String,
    pub(crate) title: String,
    /// Width and height of all of it.
    pub(crate) content: (u32, u32),
    /// None, if they are told later: the page was painted before it was found out what is where.
    pub(crate) links: Option<Vec<Link>>,
    pub(crate) served: OpenStats,
    pub(crate) notes: Vec<String>,
    /// Why this is not the page, but one that says why.
    pub(crate) failure: Option<PageError>,
    pub(crate) first: PaintedView,
}
