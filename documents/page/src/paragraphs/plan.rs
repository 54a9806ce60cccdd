//! After which of its lines a paragraph is broken.
//!
//! The engine begins each line at a whole pixel, but counts what is before it exactly. A block
//! begins at a whole pixel too, so a part should begin where the lines before it take whole pixels.
//! How high they are is not known before they are laid out, but mostly they are equally high: a
//! round number of them takes whole pixels, if any does.

use blitz_dom::{BaseDocument, NodeId};

use super::{Bounds, NodeRole, keeps_lines, role_of, survey};

/// What the number of lines should be a multiple of, or of as much of it as can be: pixels have
/// binary fractions mostly, or decimal ones.
const ROUND: u32 = (1 << 13) * 25;

/// The ends of lines in the nodes of a paragraph, by their numbers from 1 on, that are the ends of
/// parts.
pub(super) fn ends(
    engine: &BaseDocument,
    container: NodeId,
    nodes: &[NodeId],
    bounds: Bounds,
) -> Vec<u32> {
    let (lines, styles) = lines(engine, container, nodes);
    let mut ends = Vec::new();
    let (mut begun, mut next) = (0, 0);
    while styles - begun > bounds.far {
        let from = next + lines[next..].partition_point(|at| at - begun < bounds.line);
        let behind = next + lines[next..].partition_point(|at| at - begun <= bounds.far);
        // There may be none so soon.
        let Some(best) = (from..behind.max(from + 1).min(lines.len()))
            .max_by_key(|line| greatest_common_divisor(*line as u32 + 1, ROUND))
        else {
            break;
        };
        ends.push(best as u32 + 1);
        (begun, next) = (lines[best], best + 1);
    }
    ends
}

/// How many styles there are before the end of each line, and how many there are in all.
fn lines(engine: &BaseDocument, container: NodeId, nodes: &[NodeId]) -> (Vec<u32>, u32) {
    let (mut lines, mut styles) = (Vec::new(), 0);
    let mut next: Vec<(NodeId, NodeId)> =
        nodes.iter().rev().map(|node| (*node, container)).collect();
    while let Some((id, around)) = next.pop() {
        let Some(node) = engine.get_node(id) else { continue };
        match role_of(node) {
            NodeRole::Text => {
                let text = node.text_data().map_or("", |text| &text.content);
                let style = engine.get_node(around).and_then(|node| node.primary_styles());
                if style.is_some_and(|style| keeps_lines(&style)) {
                    lines.extend(text.matches('\n').map(|_| styles));
                }
            }
            NodeRole::LineBreak => {
                styles += 1;
                lines.push(styles);
            }
            NodeRole::Inline | NodeRole::Contents => {
                styles += survey::styles_of(node);
                next.extend(node.children.iter().rev().map(|child| (*child, id)));
            }
            NodeRole::Atomic | NodeRole::Block | NodeRole::Nothing => {}
        }
    }
    (lines, styles)
}

fn greatest_common_divisor(one: u32, other: u32) -> u32 {
    let (mut one, mut other) = (one, other);
    while other != 0 {
        (one, other) = (other, one % other);
    }
    one
}
