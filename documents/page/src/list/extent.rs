//! From where to where on the page a command may paint: rather too much than too little, since what
//! is left out of a picture is a wrong picture.

use std::collections::HashMap;

use anyrender::recording::{GlyphRunCommand, RenderCommand};
use kurbo::{Affine, BezPath, Rect};
use peniko::{BlendMode, Compose, FontData, Style};
use skrifa::raw::TableProvider;

/// Top and bottom, in pixels of the page.
pub(crate) type Range = (f64, f64);

const EVERYWHERE: Range = (f64::NEG_INFINITY, f64::INFINITY);
/// Antialiasing reaches into the next pixel.
const EDGE: f64 = 2.0;

/// Follows the layers of a list from its beginning.
#[derive(Default)]
pub(crate) struct LayerExtents {
    layers: Vec<Range>,
    reaches: HashMap<(u64, u32), f64>,
}

impl LayerExtents {
    /// Where the next command paints.
    pub(crate) fn next(&mut self, one: &RenderCommand) -> Range {
        let around = self.layers.last().copied().unwrap_or(EVERYWHERE);
        match one {
            RenderCommand::PushLayer(layer) if reaches_out(layer.blend) => self.enter(around),
            RenderCommand::PushLayer(layer) => {
                self.enter(within(path(layer.transform, &layer.clip, 0.0), around))
            }
            RenderCommand::PushClipLayer(clip) => {
                self.enter(within(path(clip.transform, &clip.clip, 0.0), around))
            }
            RenderCommand::PopLayer => self.layers.pop().unwrap_or(EVERYWHERE),
            RenderCommand::Stroke(one) => {
                let reach = one.style.width.abs() * one.style.miter_limit.abs().max(2.0);
                within(path(one.transform, &one.shape, reach), around)
            }
            RenderCommand::Fill(one) => within(path(one.transform, &one.shape, 0.0), around),
            RenderCommand::GlyphRun(run) => within(self.glyphs(run), around),
            RenderCommand::BoxShadow(shadow) => {
                let reach = shadow.std_dev.abs() * 4.0 + shadow.radius.abs();
                within(bounds(shadow.transform, shadow.rect.abs().inflate(reach, reach)), around)
            }
        }
    }

    /// Where a command paints by itself, whatever layers are around it.
    pub(crate) fn alone(&mut self, one: &RenderCommand) -> Range {
        let range = self.next(one);
        self.layers.clear();
        range
    }

    fn enter(&mut self, range: Range) -> Range {
        self.layers.push(range);
        range
    }

    fn glyphs(&mut self, run: &GlyphRunCommand) -> Range {
        let mut all: Option<Rect> = None;
        for glyph in &run.glyphs {
            let at = Rect::new(glyph.x.into(), glyph.y.into(), glyph.x.into(), glyph.y.into());
            all = Some(all.map_or(at, |all| all.union(at)));
        }
        let Some(all) = all else { return (0.0, 0.0) };
        let slant = run.glyph_transform.unwrap_or_default().as_coeffs().map(f64::abs);
        let stretch = (slant[0] + slant[1] + slant[2] + slant[3]).max(1.0);
        let pen = match &run.style {
            Style::Fill(_) => 0.0,
            Style::Stroke(stroke) => stroke.width.abs() * stroke.miter_limit.abs().max(2.0),
        };
        let outline = f64::from(run.font_size).abs() * self.reach(&run.font_data) + pen;
        let reach =
            outline * stretch + slant[4] + slant[5] + run.embolden.x.abs() + run.embolden.y.abs();
        bounds(run.transform, all.inflate(reach, reach))
    }

    /// How far a glyph of a font goes from its origin, in multiples of the font's size.
    fn reach(&mut self, font: &FontData) -> f64 {
        *self.reaches.entry((font.data.id(), font.index)).or_insert_with(|| {
            let head = skrifa::FontRef::from_index(font.data.data(), font.index)
                .and_then(|font| font.head());
            let Ok(head) = head else { return 16.0 };
            let furthest = [head.x_min(), head.x_max(), head.y_min(), head.y_max()]
                .map(|at| f64::from(at).abs())
                .into_iter()
                .fold(0.0, f64::max);
            // Variations and hints can go beyond what the font says of itself.
            (furthest / f64::from(head.units_per_em().max(1))).max(2.0) + 1.0
        })
    }
}

/// Whether a layer changes what is outside of it.
fn reaches_out(blend: BlendMode) -> bool {
    blend.is_destructive()
        || !matches!(blend.compose, Compose::SrcOver | Compose::SrcAtop | Compose::Plus)
}

fn path(transform: Affine, path: &BezPath, reach: f64) -> Range {
    if path.elements().is_empty() {
        return (0.0, 0.0);
    }
    bounds(transform, path.control_box().inflate(reach, reach))
}

fn bounds(transform: Affine, rect: Rect) -> Range {
    let found = transform.transform_rect_bbox(rect);
    if found.is_finite() { (found.y0 - EDGE, found.y1 + EDGE) } else { EVERYWHERE }
}

fn within(inner: Range, outer: Range) -> Range {
    (inner.0.max(outer.0), inner.1.min(outer.1))
}
