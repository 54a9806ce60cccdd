//! Takes the places of links, elements and text from the engine once it has laid a page out: places
//! are those at which the engine paints.
//!
//! What it must not do: recurse on the depth of the page.

use std::collections::{HashMap, HashSet};

use blitz_dom::node::TextBrush;
use blitz_dom::{BaseDocument, Node, NodeId};
use holdfast_dom::{Document, NodeKind};
use kurbo::{Affine, Rect};
use parley::{Layout, PositionedLayoutItem};
use style::computed_values::visibility::T as Visibility;

use super::fragments::Fragments;
use super::text::{Cluster, LinePiece, place_of};
use super::{Link, NodeBox, PageLayout, TextBlock};
use crate::paragraphs::ParagraphParts;
use crate::tree::Pair;
use crate::view::View;

/// Bytes of the addresses of all links: each line of a link has its address once more.
const HREF_BYTES_MAX: usize = 64 << 20;

/// Takes it all. The engine is not scrolled.
pub(crate) fn take(
    engine: &BaseDocument,
    document: &Document<'_>,
    pairs: &[Pair],
    parts: &ParagraphParts,
    view: View,
) -> PageLayout {
    let mut taking = LayoutCollector {
        engine,
        parts,
        scale: view.scale_factor_f64(),
        of_root: painted_by_root(engine),
        known: HashMap::new(),
        fragments: Fragments::default(),
    };
    let (links, mut boxes) = taking.links_and_boxes(document, pairs);
    boxes.sort_by_key(|one| one.node);
    boxes.dedup_by_key(|one| one.node);
    let numbers: HashMap<NodeId, u32> = pairs.iter().map(|(node, made)| (*made, *node)).collect();
    PageLayout { links, boxes, text: taking.text(&numbers) }
}

/// How a box comes onto the page.
#[derive(Clone, Copy)]
struct BoxPlacement {
    /// From its border box to the page, in pixels.
    transform: Affine,
    /// It does not scroll.
    fixed: bool,
    /// It is not to be seen, nor what is in it.
    gone: bool,
}

struct LayoutCollector<'a> {
    engine: &'a BaseDocument,
    parts: &'a ParagraphParts,
    scale: f64,
    of_root: HashSet<NodeId>,
    known: HashMap<NodeId, BoxPlacement>,
    fragments: Fragments,
}

impl LayoutCollector<'_> {
    /// As the engine's painter goes: from the root down, each box within the one that contains it.
    fn placed(&mut self, id: NodeId) -> BoxPlacement {
        let mut chain = Vec::new();
        let mut placed = BoxPlacement { transform: Affine::IDENTITY, fixed: false, gone: false };
        let mut next = Some(id);
        while let Some(node) = next.and_then(|id| self.engine.get_node(id)) {
            if let Some(known) = self.known.get(&node.id) {
                placed = *known;
                break;
            }
            chain.push(node);
            next = node.containing_block();
        }
        for node in chain.into_iter().rev() {
            let around = node.containing_block().and_then(|id| self.engine.get_node(id));
            let scrolled = around
                .map_or((0.0, 0.0), |around| (around.scroll_offset().x, around.scroll_offset().y));
            let at = node.final_layout().location;
            let offset = (f64::from(at.x) - scrolled.0, f64::from(at.y) - scrolled.1);
            let is_fixed =
                node.taffy_position() == taffy::Position::Fixed && self.of_root.contains(&node.id);
            let is_clear =
                node.primary_styles().is_some_and(|style| style.get_effects().opacity == 0.0);
            placed = BoxPlacement {
                transform: placed.transform
                    * Affine::translate((offset.0 * self.scale, offset.1 * self.scale))
                    * node.transform().as_deref().copied().unwrap_or_default(),
                fixed: placed.fixed || is_fixed,
                gone: placed.gone || is_clear,
            };
            self.known.insert(node.id, placed);
        }
        placed
    }

    /// Where an element is, in one piece or several, and whether it is fixed.
    fn rects(&mut self, id: NodeId) -> (Vec<Rect>, bool) {
        let Some(node) = self.engine.get_node(id) else { return (Vec::new(), false) };
        let scale = self.scale;
        let scaled = move |left: f32, top: f32, right: f32, bottom: f32| {
            let [x0, y0, x1, y1] = [left, top, right, bottom].map(|css| f64::from(css) * scale);
            Rect::new(x0, y0, x1, y1)
        };
        if let Some((root, pieces)) = self.fragments.of(self.engine, node) {
            let rects: Vec<Rect> =
                pieces.iter().map(|[x0, y0, x1, y1]| scaled(*x0, *y0, *x1, *y1)).collect();
            let placed = self.placed(root);
            let rects = rects.into_iter().map(|rect| placed.transform.transform_rect_bbox(rect));
            return (rects.collect(), placed.fixed);
        }
        let placed = self.placed(id);
        let size = node.final_layout().size;
        (
            vec![placed.transform.transform_rect_bbox(scaled(0.0, 0.0, size.width, size.height))],
            placed.fixed,
        )
    }

    fn links_and_boxes(
        &mut self,
        document: &Document<'_>,
        pairs: &[Pair],
    ) -> (Vec<Link>, Vec<NodeBox>) {
        let (mut links, mut boxes) = (Vec::new(), Vec::new());
        let mut room = HREF_BYTES_MAX;
        for (number, made) in pairs {
            let (mut rects, fixed) = self.rects(*made);
            if let Some(continued) = self.parts.continued.get(made) {
                rects.extend(
                    continued.iter().flat_map(|next| self.rects(*next).0).collect::<Vec<_>>(),
                );
                // What has no box of its own has one without a size in each part.
                rects.retain(|rect| rect.width() > 0.0 || rect.height() > 0.0);
            }
            let node = document.node(*number).filter(|node| node.kind() == NodeKind::Element);
            let link = node.filter(|node| matches!(node.name(), Some("a" | "area")));
            if let Some(href) = link.and_then(|node| node.attribute("href")) {
                for rect in &rects {
                    let Some(left) = room.checked_sub(href.len()) else { break };
                    room = left;
                    links.push(Link { place: place_of(*rect), href: href.to_owned(), fixed });
                }
            }
            let all = rects.into_iter().reduce(|one, other| one.union(other));
            if let Some(all) = all.filter(|all| all.width() > 0.0 || all.height() > 0.0) {
                boxes.push(NodeBox { node: *number, place: place_of(all), fixed });
            }
        }
        (links, boxes)
    }

    fn text(&mut self, numbers: &HashMap<NodeId, u32>) -> Vec<TextBlock> {
        let mut blocks = Vec::new();
        // Where the block of a paragraph is that the engine has in parts.
        let mut joined: HashMap<usize, JoinedParagraph> = HashMap::new();
        let mut next: Vec<NodeId> =
            self.engine.try_root_element().map(|root| root.id).into_iter().collect();
        while let Some(node) = next.pop().and_then(|id| self.engine.get_node(id)) {
            next.extend(node.layout_children.borrow().iter().flatten().rev());
            let Some(element) = node.element_data() else { continue };
            let input = element
                .text_input_data()
                .filter(|_| node.attr(blitz_dom::local_name!("type")) != Some("password"));
            let (text, layout, x, y) = if let Some(input) = input {
                let Some(layout) = input.editor.try_layout() else { continue };
                (
                    input.editor.raw_text(),
                    layout,
                    0.0,
                    node.text_input_v_centering_offset(self.scale),
                )
            } else if let Some(lines) =
                element.inline_layout_data.as_deref().filter(|_| node.flags.is_inline_root())
            {
                (&*lines.text, &lines.layout, 0.0, f64::from(lines.block_offset))
            } else {
                continue;
            };
            let part = self.parts.blocks.get(&node.id);
            if text.trim().is_empty() && part.is_none() {
                continue;
            }
            let placed = self.placed(node.id);
            let is_hidden = |style: &Node| {
                style
                    .primary_styles()
                    .is_some_and(|style| style.clone_visibility() != Visibility::Visible)
            };
            if placed.gone || is_hidden(node) {
                continue;
            }
            let inset = node.final_layout().padding + node.final_layout().border;
            let origin = (f64::from(inset.left) + x, f64::from(inset.top) + y);
            let transform = placed.transform
                * Affine::translate((origin.0 * self.scale, origin.1 * self.scale));
            let mut breaks: Vec<u32> = layout
                .inline_boxes()
                .filter(|one| one.kind == parley::InlineBoxKind::InFlow)
                .map(|one| one.index as u32)
                .collect();
            breaks.sort_unstable();
            let block = TextBlock {
                node: self.number_of(node, numbers),
                fixed: placed.fixed,
                text: text.to_owned(),
                placed: transform.as_coeffs().map(|number| number as f32),
                breaks,
                pieces: pieces(layout, text.len()),
            };
            let Some(part) = part else {
                blocks.push(block);
                continue;
            };
            let paragraph = joined
                .entry(part.paragraph)
                .or_insert(JoinedParagraph { block: blocks.len(), lines: 0 });
            match blocks.get_mut(paragraph.block) {
                Some(before) => join(before, block, part.has_space_before, paragraph.lines),
                None => blocks.push(block),
            }
            paragraph.lines += lines_of(layout);
        }
        blocks.retain(|block: &TextBlock| !block.text.trim().is_empty());
        blocks
    }

    /// The element of the document that a box belongs to: boxes without one are in one that has.
    fn number_of(&self, node: &Node, numbers: &HashMap<NodeId, u32>) -> u32 {
        let mut next = Some(node);
        while let Some(node) = next {
            if let Some(number) = numbers.get(&node.id) {
                return *number;
            }
            next = node.layout_parent.get().or(node.parent).and_then(|id| self.engine.get_node(id));
        }
        0
    }
}

/// A paragraph that the engine has in parts.
struct JoinedParagraph {
    /// Its block of text.
    block: usize,
    /// Of the parts up to now.
    lines: u32,
}

/// How many lines there are; behind a line that is ended by the text, none begins at the end.
fn lines_of(layout: &Layout<TextBrush>) -> u32 {
    let last = layout.len().checked_sub(1).and_then(|last| layout.get(last));
    let is_empty = last.is_some_and(|last| last.text_range().is_empty());
    (layout.len() - usize::from(is_empty)) as u32
}

/// Adds the next part of a paragraph, of which there are so many lines.
fn join(block: &mut TextBlock, next: TextBlock, has_space_before: bool, lines: u32) {
    if has_space_before {
        block.text.push(' ');
    }
    let at = block.text.len() as u32;
    // Both are in the same box, one below the other.
    let moved = (block.affine().inverse() * next.affine()).translation();
    let (right, down) = (moved.x as f32, moved.y as f32);
    block.text.push_str(&next.text);
    block.breaks.extend(next.breaks.iter().map(|index| index + at));
    block.pieces.extend(next.pieces.into_iter().map(|mut piece| {
        piece.line += lines;
        piece.range = piece.range.start + at..piece.range.end + at;
        for x in
            [&mut piece.left].into_iter().chain(piece.clusters.iter_mut().map(|one| &mut one.right))
        {
            *x += right;
        }
        for y in [&mut piece.top, &mut piece.bottom, &mut piece.baseline] {
            *y += down;
        }
        for cluster in &mut piece.clusters {
            (cluster.start, cluster.end) = (cluster.start + at, cluster.end + at);
        }
        piece
    }));
}

/// The boxes that are painted as children of the root: the only ones that the engine keeps in place.
/// One with a `z-index` goes with the page.
fn painted_by_root(engine: &BaseDocument) -> HashSet<NodeId> {
    let Some(root) = engine.try_root_element() else { return HashSet::new() };
    let children = root.paint_children.borrow();
    children.iter().flatten().copied().collect()
}

/// The pieces of all lines, by where they are in the text.
fn pieces(layout: &Layout<TextBrush>, text_bytes: usize) -> Vec<LinePiece> {
    let mut pieces = Vec::new();
    for (line, number) in layout.lines().zip(0..) {
        let mut before = None;
        for item in line.items() {
            let PositionedLayoutItem::GlyphRun(glyphs) = item else { continue };
            let run = glyphs.run();
            // A run is there once for each of its styles.
            if before.replace(run.index()) == Some(run.index()) {
                continue;
            }
            let metrics = run.font_metrics();
            let (left, baseline) = (glyphs.offset(), glyphs.baseline());
            let mut right = left;
            let clusters = run.visual_clusters().map(|cluster| {
                right += cluster.advance();
                let range = cluster.text_range();
                Cluster { start: range.start as u32, end: range.end as u32, right }
            });
            let clusters: Vec<Cluster> = clusters.collect();
            let ends = clusters
                .iter()
                .map(|one| one.start)
                .min()
                .zip(clusters.iter().map(|one| one.end).max());
            let Some((start, end)) = ends.filter(|(_, end)| *end as usize <= text_bytes) else {
                continue;
            };
            pieces.push(LinePiece {
                line: number,
                range: start..end,
                left,
                top: baseline - metrics.ascent,
                bottom: baseline + metrics.descent,
                baseline,
                clusters,
            });
        }
    }
    pieces.sort_by_key(|piece: &LinePiece| piece.range.start);
    // What is there once cannot be there again; the engine has not been seen to do so.
    pieces.dedup_by(|next, before| next.range.start < before.range.end);
    pieces
}
