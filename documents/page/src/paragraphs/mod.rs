//! Paragraphs with more pieces than the engine can count: they are given to it as several, one
//! below the other.
//!
//! The engine's text layout counts the styles of a paragraph (one for each element in it) in 16
//! bits, and fails on more. A listing with its words in colours has more. Between style and layout
//! such a paragraph is broken where a line ends anyhow, so that it looks as it would; only where
//! there is no such place, a line ends earlier than it would, and that is said.
//!
//! Invariants:
//! - A page without such a paragraph is laid out as if this were not there.
//! - The engine's style is of the page as it is: what is changed here is no element to a selector,
//!   and is put back before anything is styled again.
//! - Places are those of the page as it is: see [`Paragraphs::parts`].
//!
//! What it must not do: recurse on the depth of the page.

mod changes;
mod cut;
mod plan;
mod survey;

use std::collections::HashMap;

use blitz_dom::{BaseDocument, Node, NodeId};
use style::computed_values::float::T as Float;
use style::computed_values::position::T as Position;
use style::computed_values::white_space_collapse::T as Collapse;
use style::properties::ComputedValues;
use style::values::specified::box_::{DisplayInside, DisplayOutside};

use self::changes::Changes;

/// Styles that an element makes at most: its own, and that of what its style puts before and behind
/// it, each with and without wrapping.
const STYLES_OF_ELEMENT: u64 = 6;

/// What is too much, and where it is broken.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Styles of a paragraph that is left as it is.
    styles_max: u32,
    /// Styles that a part has at least, if it is not the last one.
    line: u32,
    /// Styles within which the best line is looked for to end a part.
    far: u32,
    /// Styles of a part that ends with the next word: there are no ends of lines.
    word: u32,
    /// Styles of a part that ends with the next element, there being no words either. What is open
    /// then counts in the next part, too.
    element: u32,
}

impl Bounds {
    /// The engine counts from 0 to 65,535.
    pub(crate) const ENGINE: Bounds =
        Bounds { styles_max: 1 << 16, line: 1 << 14, far: 3 << 14, word: 60_000, element: 64_000 };
}

/// Where a part belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ParagraphPart {
    /// The number of the paragraph.
    pub(crate) paragraph: usize,
    /// Whether there was white space between it and the part before that neither of them has.
    pub(crate) has_space_before: bool,
}

/// What was broken, and into what.
#[derive(Default)]
pub(crate) struct ParagraphParts {
    /// The blocks that stand for paragraphs, by the engine's numbers.
    pub(crate) blocks: HashMap<NodeId, ParagraphPart>,
    /// What stands for an element behind the first end of a part within it.
    pub(crate) continued: HashMap<NodeId, Vec<NodeId>>,
    paragraphs: Vec<ParagraphReport>,
}

/// The facts of a paragraph.
struct ParagraphReport {
    styles: u32,
    parts: usize,
    /// Where no line ended.
    torn: usize,
}

/// The paragraphs of a page that were cut into several for the engine.
pub(crate) struct Paragraphs {
    bounds: Bounds,
    is_needed: bool,
    parts: ParagraphParts,
    changes: Changes,
    /// What was asked for when the engine was last asked to lay out.
    asked: Option<u32>,
}

impl Paragraphs {
    /// Of a page with so many elements.
    pub(crate) fn new(bounds: Bounds, elements: usize) -> Paragraphs {
        Paragraphs {
            bounds,
            is_needed: elements as u64 * STYLES_OF_ELEMENT >= u64::from(bounds.styles_max),
            parts: ParagraphParts::default(),
            changes: Changes::default(),
            asked: None,
        }
    }

    /// Style and layout. `asked` is how often the page asked for something up to now: only an
    /// answer changes what is already laid out.
    pub(crate) fn resolve(&mut self, engine: &mut BaseDocument, asked: u32) {
        if self.is_needed && self.asked.replace(asked) != Some(asked) {
            self.changes.undo(engine);
            self.parts = ParagraphParts::default();
            engine.handle_messages();
            // The engine does nothing either without a page, or while it waits for style sheets.
            if engine.try_root_element().is_some() && !engine.has_pending_critical_resources() {
                engine.resolve_stylist(0.0);
                for long in survey::long_paragraphs(engine, self.bounds.styles_max) {
                    self.changes.cut(engine, &long, self.bounds, &mut self.parts);
                }
            }
        }
        engine.resolve(0.0);
    }

    /// What was broken.
    pub(crate) fn parts(&self) -> &ParagraphParts {
        &self.parts
    }

    /// What does not look as it would, for people.
    pub(crate) fn left_out(&self) -> Vec<String> {
        let torn = self.parts.paragraphs.iter().filter(|told| told.torn > 0);
        torn.map(|told| {
            let ParagraphReport { styles, parts, torn } = told;
            format!(
                "a paragraph in one: it has {styles} pieces, and the engine takes no more than {} at once, so it was broken into \
                 {parts}, and {torn} of its lines end too early",
                self.bounds.styles_max
            )
        })
        .collect()
    }
}

/// A paragraph with too many styles.
struct LongParagraph {
    container: NodeId,
    /// Which of the container's children it is of.
    children: std::ops::Range<usize>,
    styles: u32,
}

/// How a node takes part in a paragraph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NodeRole {
    Text,
    /// Its children are part of the paragraph that it is in.
    Inline,
    /// It has no box, and its children are in its place.
    Contents,
    LineBreak,
    /// A box in a line or beside it, with paragraphs of its own if it has any.
    Atomic,
    /// It ends the paragraph before it.
    Block,
    /// As if it were not there.
    Nothing,
}

fn role_of(node: &Node) -> NodeRole {
    if node.is_text_node() {
        return NodeRole::Text;
    }
    let Some(element) = node.element_data() else { return NodeRole::Nothing };
    let Some(style) = node.primary_styles() else { return NodeRole::Nothing };
    let display = style.clone_display();
    match (display.outside(), display.inside()) {
        (_, DisplayInside::Contents) => NodeRole::Contents,
        (DisplayOutside::None, _) | (_, DisplayInside::None) => NodeRole::Nothing,
        _ if !is_in_flow(&style) => NodeRole::Atomic,
        (DisplayOutside::Inline, DisplayInside::Flow) => match &*element.name.local {
            "br" => NodeRole::LineBreak,
            // Those that the engine lays out as boxes whatever their style says.
            "img" | "svg" | "canvas" | "video" | "embed" | "iframe" | "input" | "textarea"
            | "button" => NodeRole::Atomic,
            _ => NodeRole::Inline,
        },
        (DisplayOutside::Inline, _) => NodeRole::Atomic,
        _ => NodeRole::Block,
    }
}

fn is_in_flow(style: &ComputedValues) -> bool {
    matches!(style.clone_position(), Position::Static | Position::Relative | Position::Sticky)
        && style.clone_float() == Float::None
}

/// Whether white space that follows white space is left away.
fn collapses(style: &ComputedValues) -> bool {
    matches!(style.clone_white_space_collapse(), Collapse::Collapse | Collapse::PreserveBreaks)
}

/// Whether a newline ends a line.
fn keeps_lines(style: &ComputedValues) -> bool {
    style.clone_white_space_collapse() != Collapse::Collapse
}

#[cfg(test)]
mod tests;
