//! The line below the page, as pixels: shaped by what shapes the text of pages, painted by what
//! paints them.

use anyrender::{Glyph, PaintScene};
use kurbo::{Affine, Rect, Vec2};
use parley::{
    FontContext, FontFamily, GenericFamily, Layout, LayoutContext, PositionedLayoutItem,
    StyleProperty,
};
use peniko::{Color, Fill, Style};

use super::talk::LineText;
use crate::pixels::{Pixels, rasterize};
use crate::view::View;

const INK: Color = Color::from_rgb8(0x20, 0x20, 0x20);
const FAINT: Color = Color::from_rgb8(0x55, 0x55, 0x55);
const GROUND: Color = Color::from_rgb8(0xec, 0xec, 0xec);
/// Pixels at scale 1.
const SIZE: f32 = 13.0;
const MARGIN: f64 = 8.0;

/// The fonts that there are, found once.
#[derive(Default)]
pub(super) struct LinePainter {
    fonts: FontContext,
    layouts: LayoutContext<()>,
}

impl LinePainter {
    /// Paints the line: what is right has its room first, but for half of the line.
    pub(super) fn paint(&mut self, line: &LineText) -> Pixels {
        let scale = line.scale_permille as f32 / 1000.0;
        let right = self.layout(&line.right, scale);
        let left = self.layout(&line.left, scale);
        let (width, height) = (f64::from(line.width), f64::from(line.height));
        let margin = MARGIN * f64::from(scale);
        let right_from = (width - margin - f64::from(right.full_width())).max(width / 2.0);
        let room = (right_from - 2.0 * margin).max(0.0);
        let left_width = f64::from(left.full_width());
        // Of what is typed the end is seen.
        let left_from = if line.is_typed { margin + (room - left_width).min(0.0) } else { margin };
        let view = View::within(line.width, line.height, 1000);
        rasterize(view, Vec::new(), |painter| {
            let all = Rect::new(0.0, 0.0, width, height);
            painter.fill(Fill::NonZero, Affine::IDENTITY, GROUND, None, &all);
            let parts = [
                (&left, left_from, INK, Rect::new(margin, 0.0, margin + room, height)),
                (&right, right_from, FAINT, Rect::new(right_from, 0.0, width - margin, height)),
            ];
            for (layout, from, ink, within) in parts {
                painter.push_clip_layer(Fill::NonZero, Affine::IDENTITY, &within);
                let top = ((height - f64::from(layout.height())) / 2.0).round();
                draw(painter, layout, Affine::translate((from.round(), top)), ink);
                painter.pop_layer();
            }
        })
    }

    fn layout(&mut self, text: &str, scale: f32) -> Layout<()> {
        let mut builder = self.layouts.ranged_builder(&mut self.fonts, text, scale, true);
        builder.push_default(StyleProperty::FontSize(SIZE));
        builder.push_default(StyleProperty::FontFamily(FontFamily::from(GenericFamily::SansSerif)));
        let mut layout = builder.build(text);
        layout.break_all_lines(None);
        layout
    }
}

fn draw(painter: &mut impl PaintScene, layout: &Layout<()>, place: Affine, ink: Color) {
    for item in layout.lines().flat_map(|line| line.items()) {
        let PositionedLayoutItem::GlyphRun(run) = item else { continue };
        let shaped = run.run();
        let coordinates: Vec<i16> =
            shaped.normalized_coords().iter().map(|one| one.to_bits()).collect();
        painter.draw_glyphs(
            shaped.font(),
            shaped.font_size(),
            true,
            &coordinates,
            Vec2::ZERO,
            &Style::Fill(Fill::NonZero),
            ink,
            1.0,
            place,
            None,
            run.positioned_glyphs().map(|glyph| Glyph { id: glyph.id, x: glyph.x, y: glyph.y }),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status line shows both of its texts and cuts a long one at the middle.
    #[test]
    fn line_shows_both_ends_and_cuts_long_text() {
        let mut painter = LinePainter::default();
        let line = |left: &str, right: &str, is_typed| LineText {
            left: left.to_owned(),
            right: right.to_owned(),
            is_typed,
            width: 400,
            height: 26,
            scale_permille: 1000,
        };
        let mut paint =
            |left: &str, right: &str, is_typed| painter.paint(&line(left, right, is_typed));
        let empty = paint("", "", false);
        assert_eq!((empty.width, empty.height), (400, 26));
        let both = paint("left", "right", false);
        if both == empty {
            println!("not run: there are no fonts; `./test` installs some");
            return;
        }
        let columns = |pixels: &Pixels| -> Vec<usize> {
            let ground = &empty.bytes[..4];
            let inked =
                pixels.bytes.chunks_exact(4).enumerate().filter(|(_, pixel)| *pixel != ground);
            let mut columns: Vec<usize> = inked.map(|(number, _)| number % 400).collect();
            columns.sort_unstable();
            columns.dedup();
            columns
        };
        let inked = columns(&both);
        assert!(inked[0] < 20 && *inked.last().unwrap_or(&0) > 380, "{inked:?}");
        let long = "a long text that does not fit ".repeat(30);
        let cut = columns(&paint(&long, "right", false));
        let gap = columns(&paint("", "right", false))[0];
        assert!(!cut.contains(&(gap - 2)), "what is left does not reach into what is right");
        assert_ne!(
            paint(&long, "", false),
            paint(&long, "", true),
            "the end of what is typed is seen"
        );
    }
}
