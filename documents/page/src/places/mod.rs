//! The places of links, elements and text on a page. Without the engine, so that a kept layout
//! answers as a fresh one does.
//!
//! Places are in pixels of the page as it is unscrolled. What stays where it is when the page is
//! scrolled (`fixed`) has the place in the viewport instead.

mod find;
mod fragments;
pub(crate) mod take;
pub(crate) mod text;
pub(crate) mod wire;

use std::ops::Range;

pub use find::{FindOptions, Match};
use text::LinePiece;
pub use text::TextLine;

/// Left, top, right, bottom.
pub type Place = [f32; 4];

/// Where a link is.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Left, top, right, bottom, in pixels of the page.
    pub place: Place,
    /// What it leads to, as in the source.
    pub href: String,
    /// Whether it stays where it is when the page is scrolled.
    pub fixed: bool,
}

/// Where an element is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NodeBox {
    /// Its number in the document.
    pub node: u32,
    /// Left, top, right, bottom, in pixels of the page.
    pub place: Place,
    /// Whether it stays where it is when the page is scrolled.
    pub fixed: bool,
}

/// Text at a point.
#[derive(Clone, Debug, PartialEq)]
pub struct TextAt<'a> {
    /// The element that the text is laid out in, by its number in the document.
    pub node: u32,
    /// All of that text, as it is laid out.
    pub text: &'a str,
    /// Which of it is at the point.
    pub range: Range<usize>,
    /// Where that is.
    pub place: Place,
}

/// The text of a block of lines.
#[derive(Clone, Debug, PartialEq)]
pub struct TextBlock {
    node: u32,
    fixed: bool,
    text: String,
    /// From the block to the page.
    placed: [f32; 6],
    /// Where in the text something else is, as an image: no text goes over it.
    breaks: Vec<u32>,
    /// By where they are in the text.
    pieces: Vec<LinePiece>,
}

/// What can be clicked on, where everything is, and what is written where.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageLayout {
    /// Links, in the order of the document.
    pub links: Vec<Link>,
    /// Elements, by their numbers.
    pub boxes: Vec<NodeBox>,
    /// Text, in the order of the layout.
    pub text: Vec<TextBlock>,
}

impl PageLayout {
    /// Where a text is written. See [`FindOptions`] for what is the same text.
    #[must_use]
    pub fn find(&self, needle: &str, options: FindOptions) -> Vec<Match> {
        find::find(&self.text, needle, options)
    }

    /// The link at a point of the page, which is scrolled down by `scroll` pixels; the last one of
    /// several, which is on top.
    #[must_use]
    pub fn link_at(&self, x: f32, y: f32, scroll: u32) -> Option<&Link> {
        let mut links = self.links.iter().rev();
        links.find(|link| holds(link.place, x, in_place(y, link.fixed, scroll)))
    }

    /// The text at a point of the page, which is scrolled down by `scroll` pixels.
    #[must_use]
    pub fn text_at(&self, x: f32, y: f32, scroll: u32) -> Option<TextAt<'_>> {
        let mut blocks = self.text.iter().rev();
        blocks.find_map(|block| {
            let (range, place) = block.at(x, in_place(y, block.fixed(), scroll))?;
            Some(TextAt { node: block.node(), text: block.text(), range, place })
        })
    }

    /// Where an element of the document is; `None` if it is nowhere to be seen.
    #[must_use]
    pub fn box_of(&self, node: u32) -> Option<&NodeBox> {
        let at = self.boxes.binary_search_by_key(&node, |one| one.node).ok()?;
        self.boxes.get(at)
    }
}

/// The line of the viewport for what stays in place, that of the page for the rest.
fn in_place(y: f32, fixed: bool, scroll: u32) -> f32 {
    if fixed { y - scroll as f32 } else { y }
}

fn holds(place: Place, x: f32, y: f32) -> bool {
    place[0] <= x && x < place[2] && place[1] <= y && y < place[3]
}
