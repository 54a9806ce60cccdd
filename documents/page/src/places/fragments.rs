//! The boxes of inline elements. The engine finds them for one element, and goes over all
//! lines for it; here all elements of the same lines are found at once, since there can be as many
//! of them as there are lines.

use std::borrow::Cow;
use std::collections::HashMap;

use blitz_dom::{BaseDocument, Node, NodeId};
use parley::PositionedLayoutItem;

/// Left, top, right, bottom, in CSS pixels of the box that has the lines.
pub(super) type LinePiece = [f32; 4];

/// Pieces of all elements that are held at once, in one box with lines: deep elements over many
/// lines have more than there is memory for.
const PIECES_MAX: usize = 4_000_000;

/// The boxes of all inline elements of one paragraph.
#[derive(Default)]
pub(super) struct Fragments {
    /// By the box that has the lines; none, if there are too many.
    known: HashMap<NodeId, Option<HashMap<NodeId, Vec<LinePiece>>>>,
}

impl Fragments {
    /// The box that has the lines that an element is in, and the element's pieces, one a line;
    /// none, if it has a box of its own.
    pub(super) fn of<'a>(
        &'a mut self,
        engine: &BaseDocument,
        element: &'a Node,
    ) -> Option<(NodeId, Cow<'a, [LinePiece]>)> {
        if !element.is_non_atomic_inline() {
            return None;
        }
        let root = element.inline_root_ancestor()?;
        root.element_data()?.inline_layout_data.as_ref()?;
        let known = self.known.entry(root.id).or_insert_with(|| pieces(engine, root, PIECES_MAX));
        let pieces = match known {
            Some(known) => Cow::Borrowed(known.get(&element.id).map_or(&[][..], Vec::as_slice)),
            None => Cow::Owned(told_by_engine(element)?),
        };
        Some((root.id, pieces))
    }
}

fn told_by_engine(element: &Node) -> Option<Vec<LinePiece>> {
    let pieces = element.inline_fragment_boxes()?;
    Some(pieces.map(|one| [one.left, one.top, one.right, one.bottom]).collect())
}

/// The pieces of all elements in the lines of a box; none, if there are more than so many.
fn pieces(
    engine: &BaseDocument,
    root: &Node,
    max: usize,
) -> Option<HashMap<NodeId, Vec<LinePiece>>> {
    let mut all: HashMap<NodeId, Vec<(usize, LinePiece)>> = HashMap::new();
    let lines = root.element_data().and_then(|element| element.inline_layout_data.as_deref());
    let Some(lines) = lines else { return Some(HashMap::new()) };
    let mut count = 0;
    for (number, line) in lines.layout.lines().enumerate() {
        let metrics = line.metrics();
        for item in line.items() {
            let (id, [left, top, right, bottom]) = match item {
                PositionedLayoutItem::GlyphRun(run) => {
                    let left = run.offset();
                    let piece = [
                        left,
                        metrics.block_min_coord,
                        left + run.advance(),
                        metrics.block_max_coord,
                    ];
                    (run.style().brush.id, piece)
                }
                PositionedLayoutItem::InlineBox(one) => (
                    NodeId::from_u64(one.id),
                    [one.x, one.y, one.x + one.width, one.y + one.height],
                ),
            };
            let mut next = Some(id).filter(|id| *id != root.id);
            while let Some(id) = next {
                let pieces = all.entry(id).or_default();
                match pieces.last_mut().filter(|(line, _)| *line == number) {
                    Some((_, piece)) => {
                        *piece = [
                            piece[0].min(left),
                            piece[1].min(top),
                            piece[2].max(right),
                            piece[3].max(bottom),
                        ];
                    }
                    None => {
                        count += 1;
                        if count > max {
                            return None;
                        }
                        pieces.push((number, [left, top, right, bottom]));
                    }
                }
                next = engine.get_node(id).and_then(|node| node.parent).filter(|id| *id != root.id);
            }
        }
    }
    let inset = root.unrounded_layout().padding + root.unrounded_layout().border;
    let (x, y) = (inset.left, inset.top + lines.block_offset);
    let scale = lines.layout.scale();
    let in_box = |(_, piece): (usize, LinePiece)| {
        let [left, top, right, bottom] = piece.map(|at| at / scale);
        [x + left, y + top, x + right, y + bottom]
    };
    Some(
        all.into_iter()
            .map(|(id, pieces)| (id, pieces.into_iter().map(in_box).collect()))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

    use std::collections::HashSet;

    use blitz_dom::DocumentConfig;
    use holdfast_dom::{Document, LoosePage, ParseOptions};

    use super::*;
    use crate::tree;

    /// Each piece of a line lies in the box that the engine reports for its element.
    ///
    /// Guarantee: pages/long-paragraphs
    #[test]
    fn line_pieces_lie_in_their_elements() {
        let page = "<!doctype html><body><p style='width: 200px; padding: 3px'>some <b>words that <i>go</i> over</b> lines <br>
            <a href=x>and <img width=20 height=30> <span style='display: inline-block'>a <u>box</u></span></a> <s></s><div>x
            <b>y<p>block</p><i>z</i></b></div><em>two<div>blocks</div>more <u>text</u></em>";
        let parsed = LoosePage::parse(page.as_bytes(), &ParseOptions::default()).unwrap();
        let document = Document::from_bytes(parsed.bytes()).unwrap();
        let mut engine = BaseDocument::new(DocumentConfig::default());
        let root = engine.root_node().id;
        let pairs = tree::build(
            &document,
            root,
            &HashSet::new(),
            &Default::default(),
            &Default::default(),
            &Default::default(),
            &mut engine.mutate(),
        )
        .unwrap();
        engine.resolve(0.0);
        let mut fragments = Fragments::default();
        let mut pieces = 0;
        for (number, made) in pairs {
            let node = engine.get_node(made).unwrap();
            let told = told_by_engine(node)
                .zip(node.inline_root_ancestor())
                .map(|(all, root)| (root.id, all));
            let found = fragments.of(&engine, node).map(|(root, all)| (root, all.to_vec()));
            assert_eq!(found, told, "node {number}");
            pieces += told.as_ref().map_or(0, |(_, all)| all.len());
            // One by one, when there are too many of them.
            if let Some((root, _)) = &told {
                assert!(
                    super::pieces(&engine, engine.get_node(*root).unwrap(), 0)
                        .is_none_or(|all| all.is_empty())
                );
                let mut too_many = Fragments { known: HashMap::from([(*root, None)]) };
                let found = too_many.of(&engine, node).map(|(root, all)| (root, all.to_vec()));
                assert_eq!(found, told, "node {number}");
            }
        }
        assert!(pieces > 5, "{pieces}");
    }
}
