//! The drawing commands of a page, without those that would paint without end.
//!
//! Borders and pictures in SVG have strokes and dashes of any size. What is left out here is what a
//! display list does not take either ([`cost`](crate::list::cost)), so a page looks alike when it
//! is made and when it is painted again.

use std::any::Any;
use std::sync::Arc;

use anyrender::{
    Filter, Glyph, NormalizedCoord, PaintRef, PaintScene, RegisterResourceError, RenderContext,
    ResourceId,
};
use kurbo::{Affine, Rect, Shape, Stroke, Vec2};
use peniko::{BlendMode, Color, Fill, FontData, StyleRef};

use crate::list::cost;

/// Commands of one picture: a picture in SVG may be in a page a thousand times.
const COMMANDS_MAX: u32 = 4_000_000;
/// How exactly a shape is made a path, to be looked at.
const TOLERANCE: f64 = 0.1;

fn fill_lines(shape: &impl Shape, transform: Affine) -> Option<f64> {
    let curves = || cost::fill_lines(&shape.to_path(TOLERANCE), transform);
    if shape.as_rect().is_some() { Some(0.0) } else { curves() }
}

/// Hands on what can be painted.
pub(crate) struct BoundedPainter<'s, S> {
    to: &'s mut S,
    commands_left: u32,
    /// Lines that what was handed on is flattened into.
    lines: f64,
}

impl<'s, S: PaintScene> BoundedPainter<'s, S> {
    pub(crate) fn new(to: &'s mut S) -> BoundedPainter<'s, S> {
        BoundedPainter { to, commands_left: COMMANDS_MAX, lines: 0.0 }
    }

    fn take(&mut self) -> bool {
        let left = self.commands_left.checked_sub(1);
        self.commands_left = left.unwrap_or(0);
        left.is_some()
    }

    /// Takes up the lines of a command, if it and all before it can be painted: the same sum as is
    /// made of those in a display list.
    fn flatten(&mut self, lines: Option<f64>) -> bool {
        let Some(lines) = lines.map(|lines| self.lines + lines) else { return false };
        let fits = lines <= cost::PICTURE_LINES_MAX;
        if fits {
            self.lines = lines;
        }
        fits
    }
}

impl<S: PaintScene> RenderContext for BoundedPainter<'_, S> {
    fn try_register_custom_resource(
        &mut self,
        resource: Box<dyn Any>,
    ) -> Result<ResourceId, RegisterResourceError> {
        self.to.try_register_custom_resource(resource)
    }

    fn unregister_resource(&mut self, resource_id: ResourceId) {
        self.to.unregister_resource(resource_id);
    }

    fn renderer_specific_context(&self) -> Option<Box<dyn Any>> {
        self.to.renderer_specific_context()
    }
}

impl<S: PaintScene> PaintScene for BoundedPainter<'_, S> {
    fn reset(&mut self) {
        self.to.reset();
    }

    fn push_layer(
        &mut self,
        fill: Fill,
        blend: impl Into<BlendMode>,
        alpha: f32,
        transform: Affine,
        clip: &impl Shape,
        filter: Option<Arc<Filter>>,
        backdrop_filter: Option<Arc<Filter>>,
    ) {
        if self.flatten(fill_lines(clip, transform)) {
            self.to.push_layer(fill, blend, alpha, transform, clip, filter, backdrop_filter);
        } else {
            // Its end comes, too: nothing of it is seen.
            self.to.push_layer(fill, blend, alpha, transform, &Rect::ZERO, filter, backdrop_filter);
        }
    }

    fn push_clip_layer(&mut self, fill: Fill, transform: Affine, clip: &impl Shape) {
        if self.flatten(fill_lines(clip, transform)) {
            self.to.push_clip_layer(fill, transform, clip);
        } else {
            self.to.push_clip_layer(fill, transform, &Rect::ZERO);
        }
    }

    fn pop_layer(&mut self) {
        self.to.pop_layer();
    }

    fn stroke<'a>(
        &mut self,
        style: &Stroke,
        transform: Affine,
        brush: impl Into<PaintRef<'a>>,
        brush_transform: Option<Affine>,
        shape: &impl Shape,
    ) {
        let path = shape.to_path(TOLERANCE);
        let cost = cost::stroke_cost(&path, style, transform);
        if self.take() && self.flatten(cost.map(|cost| cost.lines)) {
            self.to.stroke(style, transform, brush, brush_transform, shape);
        }
    }

    fn fill<'a>(
        &mut self,
        style: Fill,
        transform: Affine,
        brush: impl Into<PaintRef<'a>>,
        brush_transform: Option<Affine>,
        shape: &impl Shape,
    ) {
        if self.take() && self.flatten(fill_lines(shape, transform)) {
            self.to.fill(style, transform, brush, brush_transform, shape);
        }
    }

    fn draw_glyphs<'a, 's: 'a>(
        &'s mut self,
        font: &'a FontData,
        font_size: f32,
        hint: bool,
        normalized_coords: &'a [NormalizedCoord],
        embolden: Vec2,
        style: impl Into<StyleRef<'a>>,
        brush: impl Into<PaintRef<'a>>,
        brush_alpha: f32,
        transform: Affine,
        glyph_transform: Option<Affine>,
        glyphs: impl Iterator<Item = Glyph> + Clone,
    ) {
        let style: StyleRef<'a> = style.into();
        if let StyleRef::Stroke(stroke) = style {
            let count = glyphs.clone().count();
            let lines = cost::outline_lines(stroke, count, font_size, transform, glyph_transform);
            if !self.flatten(lines) {
                return;
            }
        }
        self.to.draw_glyphs(
            font,
            font_size,
            hint,
            normalized_coords,
            embolden,
            style,
            brush,
            brush_alpha,
            transform,
            glyph_transform,
            glyphs,
        );
    }

    fn draw_box_shadow(
        &mut self,
        transform: Affine,
        rect: Rect,
        brush: Color,
        radius: f64,
        std_dev: f64,
    ) {
        self.to.draw_box_shadow(transform, rect, brush, radius, std_dev);
    }
}

#[cfg(test)]
mod tests {
    use anyrender::recording::Scene;
    use kurbo::Circle;

    use super::*;

    /// What one command may cost, any number of them may not.
    ///
    /// Guarantee: pages/svg-bounds
    #[test]
    fn curves_of_all_commands_are_bounded() {
        let mut scene = Scene::new();
        let mut bounded = BoundedPainter::new(&mut scene);
        let circle = Circle::new((0.0, 0.0), 4e8);
        for _ in 0..1_000 {
            bounded.fill(Fill::NonZero, Affine::IDENTITY, Color::WHITE, None, &circle);
        }
        let sharp = Rect::new(0.0, 0.0, 9.0, 9.0);
        bounded.fill(Fill::NonZero, Affine::IDENTITY, Color::BLACK, None, &sharp);
        // A circle is some 9e5 lines.
        assert!((100..400).contains(&scene.commands.len()), "{}", scene.commands.len());
        let last = scene.commands.last();
        let mut alone = Scene::new();
        alone.fill(Fill::NonZero, Affine::IDENTITY, Color::BLACK, None, &sharp);
        assert_eq!(last, alone.commands.last());
    }
}
