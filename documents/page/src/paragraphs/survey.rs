//! Finds paragraphs with too many styles.

use std::ops::Range;

use blitz_dom::{BaseDocument, Node, NodeId};
use style::computed_values::text_wrap_mode::T as Wrap;
use style::properties::ComputedValues;
use style::values::specified::box_::{DisplayInside, DisplayOutside};

use super::{LongParagraph, NodeRole, collapses, role_of};

/// An element that the survey is in.
struct SurveyFrame {
    id: NodeId,
    role: NodeRole,
    next_child: usize,
    /// The paragraph that its children are making: where it began, and the styles of it.
    first_child: usize,
    styles: u32,
    has_block: bool,
    long: Vec<(Range<usize>, u32)>,
}

impl SurveyFrame {
    fn of(id: NodeId, role: NodeRole) -> SurveyFrame {
        SurveyFrame {
            id,
            role,
            next_child: 0,
            first_child: 0,
            styles: 0,
            has_block: false,
            long: Vec::new(),
        }
    }

    fn end_paragraph(&mut self, behind: usize, own: u32, styles_max: u32) {
        let styles = self.styles.saturating_add(own);
        if styles > styles_max {
            self.long.push((self.first_child..behind, styles));
        }
        (self.first_child, self.styles) = (behind + 1, 0);
    }
}

/// Those of the page, each container's last one first.
pub(super) fn long_paragraphs(engine: &BaseDocument, styles_max: u32) -> Vec<LongParagraph> {
    let mut found = Vec::new();
    let Some(root) = engine.try_root_element() else { return found };
    let mut frames = vec![SurveyFrame::of(root.id, NodeRole::Block)];
    while let Some(frame) = frames.last_mut() {
        let Some(node) = engine.get_node(frame.id) else { break };
        if let Some(child) = node.children.get(frame.next_child) {
            frame.next_child += 1;
            let Some(child) = engine.get_node(*child) else { continue };
            match role_of(child) {
                NodeRole::Text | NodeRole::Nothing => {}
                NodeRole::LineBreak => frame.styles = frame.styles.saturating_add(1),
                role => {
                    if role == NodeRole::Block {
                        frame.end_paragraph(frame.next_child - 1, styles_of(node), styles_max);
                        frame.has_block = true;
                    }
                    frames.push(SurveyFrame::of(child.id, role));
                }
            }
            continue;
        }
        let Some(mut done) = frames.pop() else { break };
        let own = styles_of(node);
        let is_part = match done.role {
            NodeRole::Inline | NodeRole::Contents => !done.has_block,
            _ => false,
        };
        if is_part {
            // Without anything in it, it makes no style.
            let own = if done.styles == 0 && !has_content(node) { 0 } else { own };
            if let Some(parent) = frames.last_mut() {
                parent.styles = parent.styles.saturating_add(done.styles.saturating_add(own));
            }
            continue;
        }
        done.end_paragraph(node.children.len(), own, styles_max);
        if has_paragraphs(node, done.role) {
            found.extend(done.long.drain(..).rev().map(|(children, styles)| LongParagraph {
                container: done.id,
                children,
                styles,
            }));
        }
        // An element in a line that has a block in it is laid out as a block itself.
        if let (NodeRole::Inline | NodeRole::Contents, Some(parent)) =
            (done.role, frames.last_mut())
            && let Some(around) = engine.get_node(parent.id)
        {
            parent.end_paragraph(parent.next_child - 1, styles_of(around), styles_max);
            parent.has_block = true;
        }
    }
    found
}

fn has_content(node: &Node) -> bool {
    !node.children.is_empty() || pseudo_styles(node) > 0
}

/// Whether what is directly in it makes lines.
fn has_paragraphs(node: &Node, role: NodeRole) -> bool {
    let Some(style) = node.primary_styles() else { return false };
    let display = style.clone_display();
    match (display.outside(), display.inside()) {
        (_, DisplayInside::Flex | DisplayInside::Grid | DisplayInside::Table) => false,
        (DisplayOutside::InternalTable, inside) => inside == DisplayInside::TableCell,
        _ => role != NodeRole::Contents,
    }
}

/// Styles that an element makes in the paragraph that it is in, or in those that are in it: no
/// fewer than the engine makes.
pub(super) fn styles_of(node: &Node) -> u32 {
    let Some(style) = node.primary_styles() else { return 0 };
    // A marker in the line is one more.
    let marker = u32::from(style.clone_display().is_list_item());
    of_style(&style) + pseudo_styles(node) + marker
}

/// White space can be broken at though what is around it cannot: the engine makes another style of
/// it.
fn of_style(style: &ComputedValues) -> u32 {
    1 + u32::from(collapses(style) && style.clone_text_wrap_mode() == Wrap::Nowrap)
}

fn pseudo_styles(node: &Node) -> u32 {
    let Some(data) = node.try_stylo_element_data().and_then(|data| data.get()) else { return 0 };
    data.styles.pseudos.as_array().iter().flatten().map(|style| of_style(style)).sum()
}
