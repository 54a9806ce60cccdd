//! Pixels: of the engine's page, or of a kept picture, by the same rasterizer; and PNG.

use anyrender::{ImageRenderer, PaintScene};
use anyrender_vello_cpu::{VelloCpuImageRenderer, VelloCpuScenePainter};
use blitz_dom::BaseDocument;
use kurbo::{Affine, Rect};
use peniko::{Color, Fill};

use crate::bounded::BoundedPainter;
use crate::error::PageError;
use crate::view::View;

/// A picture: red, green, blue and alpha of each pixel, line by line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pixels {
    /// Pixels of a line.
    pub width: u32,
    /// Lines.
    pub height: u32,
    /// Four bytes for each pixel.
    pub bytes: Vec<u8>,
}

impl Pixels {
    /// Where there are none.
    pub(crate) const NONE: Pixels = Pixels { width: 0, height: 0, bytes: Vec::new() };
}

/// Paints on white, as paper is; into `bytes`, if they are as many as are needed.
pub(crate) fn rasterize(
    view: View,
    mut bytes: Vec<u8>,
    paint: impl FnOnce(&mut VelloCpuScenePainter),
) -> Pixels {
    let mut renderer = VelloCpuImageRenderer::new(view.width(), view.height());
    renderer.render_to_vec(
        |painter| {
            let all = Rect::new(0.0, 0.0, f64::from(view.width()), f64::from(view.height()));
            painter.fill(Fill::NonZero, Affine::IDENTITY, Color::WHITE, None, &all);
            paint(painter);
        },
        &mut bytes,
    );
    Pixels { width: view.width(), height: view.height(), bytes }
}

/// The viewport of a page that is laid out.
pub(crate) fn direct(engine: &mut BaseDocument, view: View) -> Pixels {
    rasterize(view, Vec::new(), |painter| {
        paint_scene(painter, engine, view, (view.width(), view.height()))
    })
}

/// Has the engine paint its page, from where it is scrolled to, but for what would take no end.
pub(crate) fn paint_scene(
    scene: &mut impl PaintScene,
    engine: &mut BaseDocument,
    view: View,
    (width, height): (u32, u32),
) {
    let mut bounded = BoundedPainter::new(scene);
    blitz_paint::paint_scene(&mut bounded, engine, view.scale_factor_f64(), width, height, 0, 0);
}

impl Pixels {
    /// As a PNG; the same pixels are the same bytes.
    ///
    /// # Errors
    /// [`PageError::Png`].
    pub fn to_png(&self) -> Result<Vec<u8>, PageError> {
        let mut file = Vec::new();
        let mut encoder = png::Encoder::new(&mut file, self.width, self.height);
        encoder.set_color(png::ColorType::Rgba);
        encoder.set_depth(png::BitDepth::Eight);
        encoder.set_compression(png::Compression::Fastest);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.bytes)?;
        writer.finish()?;
        Ok(file)
    }
}
