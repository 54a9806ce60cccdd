//! Commands as bytes: [`read`](super::read) is the other direction, in the same order.

use std::collections::HashMap;

use anyrender::Paint;
use anyrender::recording::RenderCommand;
use kurbo::{Affine, BezPath, Cap, Join, PathEl, Stroke};
use peniko::color::DynamicColor;
use peniko::{
    BlendMode, Blob, Fill, FontData, Gradient, GradientKind, ImageBrush, ImageData, Style,
};

use super::Uncapturable;
use super::cost;
use super::wire::ByteWriter;

/// First byte of a command.
pub(crate) mod command {
    pub(crate) const LAYER: u8 = 1;
    pub(crate) const CLIP: u8 = 2;
    pub(crate) const POP: u8 = 3;
    pub(crate) const STROKE: u8 = 4;
    pub(crate) const FILL: u8 = 5;
    pub(crate) const GLYPHS: u8 = 6;
    pub(crate) const SHADOW: u8 = 7;
}

/// First byte of a brush.
pub(crate) mod brush {
    pub(crate) const SOLID: u8 = 1;
    pub(crate) const LINEAR: u8 = 2;
    pub(crate) const RADIAL: u8 = 3;
    pub(crate) const SWEEP: u8 = 4;
    pub(crate) const IMAGE: u8 = 5;
}

/// First byte of a part of a path.
pub(crate) mod segment {
    pub(crate) const MOVE: u8 = 1;
    pub(crate) const LINE: u8 = 2;
    pub(crate) const QUAD: u8 = 3;
    pub(crate) const CURVE: u8 = 4;
    pub(crate) const CLOSE: u8 = 5;
}

/// What commands refer to, once each.
#[derive(Default)]
pub(crate) struct SharedObjects {
    pub(crate) fonts: Vec<Blob<u8>>,
    font_numbers: HashMap<u64, u32>,
    pub(crate) images: Vec<ImageData>,
    image_numbers: HashMap<u64, u32>,
}

impl SharedObjects {
    fn font(&mut self, font: &FontData) -> u32 {
        *self.font_numbers.entry(font.data.id()).or_insert_with(|| {
            self.fonts.push(font.data.clone());
            self.fonts.len() as u32 - 1
        })
    }

    fn image(&mut self, image: &ImageData) -> u32 {
        if let Some(number) = self.image_numbers.get(&image.data.id()) {
            return *number;
        }
        // Images within SVG are decoded anew each time that they are painted.
        let is_same = |there: &ImageData| {
            (there.width, there.height, there.format) == (image.width, image.height, image.format)
                && there.alpha_type == image.alpha_type
                && there.data.data() == image.data.data()
        };
        let number = self.images.iter().position(is_same).unwrap_or_else(|| {
            self.images.push(image.clone());
            self.images.len() - 1
        });
        self.image_numbers.insert(image.data.id(), number as u32);
        number as u32
    }
}

fn bearable(is: bool) -> Result<(), Uncapturable> {
    if is { Ok(()) } else { Err(Uncapturable) }
}

/// Appends a command.
pub(crate) fn write(
    one: &RenderCommand,
    to: &mut ByteWriter,
    shared: &mut SharedObjects,
) -> Result<(), Uncapturable> {
    match one {
        // Filters are left out, as by the rasterizer that this is built with.
        RenderCommand::PushLayer(layer) => {
            bearable(cost::fill_lines(&layer.clip, layer.transform).is_some())?;
            to.u8(command::LAYER);
            fill_rule(to, layer.fill);
            blend(to, layer.blend);
            to.f32s(&[layer.alpha]);
            affine(to, layer.transform);
            path(to, &layer.clip);
        }
        RenderCommand::PushClipLayer(clip) => {
            bearable(cost::fill_lines(&clip.clip, clip.transform).is_some())?;
            to.u8(command::CLIP);
            fill_rule(to, clip.fill);
            affine(to, clip.transform);
            path(to, &clip.clip);
        }
        RenderCommand::PopLayer => to.u8(command::POP),
        RenderCommand::Stroke(one) => {
            bearable(cost::stroke_cost(&one.shape, &one.style, one.transform).is_some())?;
            to.u8(command::STROKE);
            stroke(to, &one.style);
            affine(to, one.transform);
            paint(to, &one.brush, shared)?;
            maybe_affine(to, one.brush_transform);
            path(to, &one.shape);
        }
        RenderCommand::Fill(one) => {
            bearable(cost::fill_lines(&one.shape, one.transform).is_some())?;
            to.u8(command::FILL);
            fill_rule(to, one.fill);
            affine(to, one.transform);
            paint(to, &one.brush, shared)?;
            maybe_affine(to, one.brush_transform);
            path(to, &one.shape);
        }
        RenderCommand::GlyphRun(run) => {
            to.u8(command::GLYPHS);
            to.u32(shared.font(&run.font_data));
            to.u32(run.font_data.index);
            to.f32s(&[run.font_size]);
            to.u8(u8::from(run.hint));
            to.u32(run.normalized_coords.len() as u32);
            for coordinate in &run.normalized_coords {
                to.bytes.extend_from_slice(&coordinate.to_le_bytes());
            }
            to.f64s(&[run.embolden.x, run.embolden.y]);
            match &run.style {
                Style::Fill(fill) => {
                    to.u8(0);
                    fill_rule(to, *fill);
                }
                Style::Stroke(one) => {
                    let lines = cost::outline_lines(
                        one,
                        run.glyphs.len(),
                        run.font_size,
                        run.transform,
                        run.glyph_transform,
                    );
                    bearable(lines.is_some())?;
                    to.u8(1);
                    stroke(to, one);
                }
            }
            paint(to, &run.brush, shared)?;
            to.f32s(&[run.brush_alpha]);
            affine(to, run.transform);
            maybe_affine(to, run.glyph_transform);
            to.u32(run.glyphs.len() as u32);
            for glyph in &run.glyphs {
                to.u32(glyph.id);
                to.f32s(&[glyph.x, glyph.y]);
            }
        }
        RenderCommand::BoxShadow(shadow) => {
            to.u8(command::SHADOW);
            affine(to, shadow.transform);
            let rect = shadow.rect;
            to.f64s(&[rect.x0, rect.y0, rect.x1, rect.y1]);
            to.f32s(&shadow.brush.components);
            to.f64s(&[shadow.radius, shadow.std_dev]);
        }
    }
    Ok(())
}

fn fill_rule(to: &mut ByteWriter, fill: Fill) {
    to.u8(fill as u8);
}

fn blend(to: &mut ByteWriter, blend: BlendMode) {
    to.u8(blend.mix as u8);
    to.u8(blend.compose as u8);
}

/// Nearly all of them move and do nothing else.
fn affine(to: &mut ByteWriter, transform: Affine) {
    let all = transform.as_coeffs();
    let moves = all[..4]
        .iter()
        .zip([1.0f64, 0.0, 0.0, 1.0])
        .all(|(one, other)| one.to_bits() == other.to_bits());
    to.u8(u8::from(!moves));
    to.f64s(if moves { &all[4..] } else { &all });
}

fn maybe_affine(to: &mut ByteWriter, transform: Option<Affine>) {
    to.u8(u8::from(transform.is_some()));
    if let Some(transform) = transform {
        affine(to, transform);
    }
}

fn stroke(to: &mut ByteWriter, stroke: &Stroke) {
    to.f64s(&[stroke.width, stroke.miter_limit, stroke.dash_offset]);
    let cap = |cap| match cap {
        Cap::Butt => 0,
        Cap::Square => 1,
        Cap::Round => 2,
    };
    to.u8(match stroke.join {
        Join::Bevel => 0,
        Join::Miter => 1,
        Join::Round => 2,
    });
    to.u8(cap(stroke.start_cap));
    to.u8(cap(stroke.end_cap));
    to.u32(stroke.dash_pattern.len() as u32);
    to.f64s(&stroke.dash_pattern);
}

fn path(to: &mut ByteWriter, path: &BezPath) {
    if let Some(corners) = rectangle(path) {
        to.u8(1);
        to.f64s(&corners);
        return;
    }
    to.u8(0);
    to.u32(path.elements().len() as u32);
    for element in path.elements() {
        match *element {
            PathEl::MoveTo(p) => {
                to.u8(segment::MOVE);
                to.f64s(&[p.x, p.y]);
            }
            PathEl::LineTo(p) => {
                to.u8(segment::LINE);
                to.f64s(&[p.x, p.y]);
            }
            PathEl::QuadTo(p, q) => {
                to.u8(segment::QUAD);
                to.f64s(&[p.x, p.y, q.x, q.y]);
            }
            PathEl::CurveTo(p, q, r) => {
                to.u8(segment::CURVE);
                to.f64s(&[p.x, p.y, q.x, q.y, r.x, r.y]);
            }
            PathEl::ClosePath => to.u8(segment::CLOSE),
        }
    }
}

/// Two corners, if it is the path of a rectangle with just these numbers.
fn rectangle(path: &BezPath) -> Option<[f64; 4]> {
    let [
        PathEl::MoveTo(a),
        PathEl::LineTo(b),
        PathEl::LineTo(c),
        PathEl::LineTo(d),
        PathEl::ClosePath,
    ] = path.elements()
    else {
        return None;
    };
    let same = |one: f64, other: f64| one.to_bits() == other.to_bits();
    let is_one = same(a.y, b.y) && same(b.x, c.x) && same(c.y, d.y) && same(d.x, a.x);
    is_one.then_some([a.x, a.y, c.x, c.y])
}

fn paint(
    to: &mut ByteWriter,
    paint: &Paint,
    shared: &mut SharedObjects,
) -> Result<(), Uncapturable> {
    match paint {
        Paint::Solid(color) => {
            to.u8(brush::SOLID);
            to.f32s(&color.components);
        }
        Paint::Gradient(one) => gradient(to, one),
        Paint::Image(image) => image_brush(to, image, shared),
        Paint::Resource(_) | Paint::Custom(_) => return Err(Uncapturable),
    }
    Ok(())
}

fn image_brush(to: &mut ByteWriter, brush: &ImageBrush, shared: &mut SharedObjects) {
    to.u8(brush::IMAGE);
    to.u32(shared.image(&brush.image));
    let sampler = brush.sampler;
    to.u8(sampler.x_extend as u8);
    to.u8(sampler.y_extend as u8);
    to.u8(sampler.quality as u8);
    to.f32s(&[sampler.alpha]);
}

fn gradient(to: &mut ByteWriter, gradient: &Gradient) {
    match gradient.kind {
        GradientKind::Linear(line) => {
            to.u8(brush::LINEAR);
            to.f64s(&[line.start.x, line.start.y, line.end.x, line.end.y]);
        }
        GradientKind::Radial(circles) => {
            to.u8(brush::RADIAL);
            let (start, end) = (circles.start_center, circles.end_center);
            to.f64s(&[start.x, start.y, end.x, end.y]);
            to.f32s(&[circles.start_radius, circles.end_radius]);
        }
        GradientKind::Sweep(sweep) => {
            to.u8(brush::SWEEP);
            to.f64s(&[sweep.center.x, sweep.center.y]);
            to.f32s(&[sweep.start_angle, sweep.end_angle]);
        }
    }
    to.u8(gradient.extend as u8);
    to.u8(gradient.interpolation_cs as u8);
    to.u8(gradient.hue_direction as u8);
    to.u8(gradient.interpolation_alpha_space as u8);
    to.u32(gradient.stops.len() as u32);
    for stop in gradient.stops.iter() {
        to.f32s(&[stop.offset]);
        color(to, &stop.color);
    }
}

fn color(to: &mut ByteWriter, color: &DynamicColor) {
    to.u8(color.cs as u8);
    let missing = color.flags.missing();
    to.u8((0..4)
        .filter(|component| missing.contains(*component))
        .map(|component| 1 << component)
        .sum());
    to.f32s(&color.components);
}
