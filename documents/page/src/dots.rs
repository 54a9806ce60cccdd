//! Borders of dots around boxes as long as numbers go: the engine makes a circle of each dot,
//! whether it is seen or not.

use blitz_dom::BaseDocument;
use style::values::specified::BorderStyle;

use crate::tree::Pair;

/// Pixels of a side that may have dots.
const SIDE_MAX: f32 = 1e6;

/// Gives boxes that are longer a border of lines; whether there was one.
pub(crate) fn are_too_many(engine: &mut BaseDocument, pairs: &[Pair]) -> bool {
    let is_long = |(_, id): &&Pair| {
        engine.get_node(*id).is_some_and(|node| {
            let size = node.final_layout().size;
            let is_dotted = || {
                node.primary_styles().is_some_and(|style| {
                    let border = style.get_border();
                    [
                        border.border_top_style,
                        border.border_right_style,
                        border.border_bottom_style,
                        border.border_left_style,
                    ]
                    .contains(&BorderStyle::Dotted)
                })
            };
            (size.width > SIDE_MAX || size.height > SIDE_MAX) && is_dotted()
        })
    };
    let found: Vec<_> = pairs.iter().filter(is_long).map(|(_, id)| *id).collect();
    for id in &found {
        for side in
            ["border-top-style", "border-right-style", "border-bottom-style", "border-left-style"]
        {
            engine.set_style_property(*id, side, "solid");
        }
    }
    !found.is_empty()
}
