//! Commands from bytes, straight to a painter: the other direction of [`write`](super::write).
//!
//! Invariants: each number is looked at before it is used; layers that are opened are closed, and
//! no others.

use anyrender::{Glyph, Paint, PaintScene};
use kurbo::{Affine, BezPath, Cap, Join, Point, Rect, Stroke, Vec2};
use peniko::color::{ColorSpaceTag, DynamicColor, Flags, HueDirection, Missing};
use peniko::{
    BlendMode, Color, ColorStop, ColorStops, Compose, Extend, Fill, FontData, Gradient,
    GradientKind, ImageBrush, ImageData, ImageQuality, ImageSampler, InterpolationAlphaSpace,
    LinearGradientPosition, Mix, RadialGradientPosition, Style, SweepGradientPosition,
};

use super::cost;
use super::wire::ByteReader;
use super::write::{brush, command, segment};
use crate::error::EntryDamage;

const UNBEARABLE: EntryDamage = EntryDamage::Endless { what: "command" };

/// Where fonts and images come from.
pub(crate) trait PaintSource {
    /// Why one is not there.
    type Error: From<EntryDamage>;

    fn font(&self, number: u32, face: u32) -> Result<FontData, Self::Error>;
    fn image(&self, number: u32) -> Result<ImageData, Self::Error>;
}

/// How far painting has come.
#[derive(Default)]
pub(crate) struct PaintState {
    /// Layers that are open.
    pub(crate) layers: u32,
    /// Where commands were found.
    pub(crate) commands: cost::AscendingRanges,
    /// Dashes that were painted.
    dashes: f64,
    /// Lines that what was painted is flattened into.
    lines: f64,
}

impl PaintState {
    /// Takes up the lines of a command, if it can be painted.
    fn flatten(&mut self, lines: Option<f64>) -> Result<(), EntryDamage> {
        self.lines += lines.ok_or(UNBEARABLE)?;
        if self.lines > cost::PICTURE_LINES_MAX { Err(UNBEARABLE) } else { Ok(()) }
    }
}

/// Reads one command and paints it, `shift` moved.
pub(crate) fn paint<S: PaintSource>(
    bytes: &[u8],
    shift: Affine,
    open: &mut PaintState,
    supply: &S,
    to: &mut impl PaintScene,
) -> Result<(), S::Error> {
    let from = &mut ByteReader::new(bytes, "command");
    match from.u8()? {
        command::LAYER => {
            let fill = fill_rule(from)?;
            let blend = BlendMode::new(one_of(from, &MIXES)?, one_of(from, &COMPOSES)?);
            let [alpha] = from.f32s()?;
            let transform = shift * affine(from)?;
            let clip = fillable(from, transform, open)?;
            to.push_layer(fill, blend, alpha, transform, &clip, None, None);
            open.layers += 1;
        }
        command::CLIP => {
            let fill = fill_rule(from)?;
            let transform = shift * affine(from)?;
            to.push_clip_layer(fill, transform, &fillable(from, transform, open)?);
            open.layers += 1;
        }
        command::POP => {
            open.layers = open.layers.checked_sub(1).ok_or(EntryDamage::Value { what: "layer" })?;
            to.pop_layer();
        }
        command::STROKE => {
            let style = stroke(from)?;
            let transform = shift * affine(from)?;
            let brush = read_brush(from, supply)?;
            let brush_transform = maybe_affine(from)?;
            let path = path(from)?;
            let cost = cost::stroke_cost(&path, &style, transform);
            open.flatten(cost.map(|cost| cost.lines))?;
            open.dashes += cost.map_or(0.0, |cost| cost.dashes);
            if open.dashes > cost::DASHES_MAX {
                return Err(UNBEARABLE.into());
            }
            to.stroke(&style, transform, brush.as_ref(), brush_transform, &path);
        }
        command::FILL => {
            let fill = fill_rule(from)?;
            let transform = shift * affine(from)?;
            let brush = read_brush(from, supply)?;
            let brush_transform = maybe_affine(from)?;
            let path = fillable(from, transform, open)?;
            to.fill(fill, transform, brush.as_ref(), brush_transform, &path);
        }
        command::GLYPHS => glyphs(from, shift, open, supply, to)?,
        command::SHADOW => {
            let transform = shift * affine(from)?;
            let [x0, y0, x1, y1] = from.f64s()?;
            let color = Color::new(from.f32s()?);
            let [radius, std_dev] = from.f64s()?;
            to.draw_box_shadow(transform, Rect::new(x0, y0, x1, y1), color, radius, std_dev);
        }
        _ => return Err(from.wrong().into()),
    }
    Ok(from.end()?)
}

fn glyphs<S: PaintSource>(
    from: &mut ByteReader<'_>,
    shift: Affine,
    open: &mut PaintState,
    supply: &S,
    to: &mut impl PaintScene,
) -> Result<(), S::Error> {
    let font = supply.font(from.u32()?, from.u32()?)?;
    let [size] = from.f32s()?;
    let hint = flag(from)?;
    let count = from.count(2)?;
    let coordinates: Vec<i16> = from
        .take(count * 2)?
        .chunks_exact(2)
        .map(|pair| i16::from_le_bytes([pair[0], pair[1]]))
        .collect();
    let [x, y] = from.f64s()?;
    let style = match from.u8()? {
        0 => Style::Fill(fill_rule(from)?),
        1 => Style::Stroke(stroke(from)?),
        _ => return Err(from.wrong().into()),
    };
    let brush = read_brush(from, supply)?;
    let [alpha] = from.f32s()?;
    let transform = shift * affine(from)?;
    let glyph_transform = maybe_affine(from)?;
    let count = from.count(12)?;
    let mut glyphs = Vec::with_capacity(count);
    for _ in 0..count {
        let id = from.u32()?;
        let [x, y] = from.f32s()?;
        glyphs.push(Glyph { id, x, y });
    }
    if let Style::Stroke(stroke) = &style {
        open.flatten(cost::outline_lines(stroke, count, size, transform, glyph_transform))?;
    }
    to.draw_glyphs(
        &font,
        size,
        hint,
        &coordinates,
        Vec2::new(x, y),
        &style,
        brush.as_ref(),
        alpha,
        transform,
        glyph_transform,
        glyphs.into_iter(),
    );
    Ok(())
}

/// The value of this number among those that there are.
fn one_of<T: Copy>(from: &mut ByteReader<'_>, values: &[(u8, T)]) -> Result<T, EntryDamage> {
    let number = from.u8()?;
    let found = values.iter().find(|(of, _)| *of == number);
    found.map(|(_, value)| *value).ok_or_else(|| from.wrong())
}

/// Values with the numbers that the library gives them.
macro_rules! numbered {
    ($name:ident: $type:ident = $($value:ident),+) => {
        const $name: [($crate::list::read::FieldNumber, $type); [$($type::$value),+].len()] =
            [$(($type::$value as u8, $type::$value)),+];
    };
}

type FieldNumber = u8;

numbered!(FILLS: Fill = NonZero, EvenOdd);
numbered!(MIXES: Mix = Normal, Multiply, Screen, Overlay, Darken, Lighten, ColorDodge, ColorBurn, HardLight, SoftLight,
    Difference, Exclusion, Hue, Saturation, Color, Luminosity);
numbered!(COMPOSES: Compose = Clear, Copy, Dest, SrcOver, DestOver, SrcIn, DestIn, SrcOut, DestOut, SrcAtop, DestAtop,
    Xor, Plus, PlusLighter);
numbered!(EXTENDS: Extend = Pad, Repeat, Reflect);
numbered!(QUALITIES: ImageQuality = Low, Medium, High);
numbered!(SPACES: ColorSpaceTag = Srgb, LinearSrgb, Lab, Lch, Hsl, Hwb, Oklab, Oklch, DisplayP3, A98Rgb, ProphotoRgb,
    Rec2020, Aces2065_1, AcesCg, XyzD50, XyzD65);
numbered!(HUES: HueDirection = Shorter, Longer, Increasing, Decreasing);
numbered!(ALPHAS: InterpolationAlphaSpace = Premultiplied, Unpremultiplied);
const JOINS: [(u8, Join); 3] = [(0, Join::Bevel), (1, Join::Miter), (2, Join::Round)];
const CAPS: [(u8, Cap); 3] = [(0, Cap::Butt), (1, Cap::Square), (2, Cap::Round)];

fn fill_rule(from: &mut ByteReader<'_>) -> Result<Fill, EntryDamage> {
    one_of(from, &FILLS)
}

/// A path that is filled or clips.
fn fillable(
    from: &mut ByteReader<'_>,
    transform: Affine,
    open: &mut PaintState,
) -> Result<BezPath, EntryDamage> {
    let path = path(from)?;
    open.flatten(cost::fill_lines(&path, transform))?;
    Ok(path)
}

fn flag(from: &mut ByteReader<'_>) -> Result<bool, EntryDamage> {
    one_of(from, &[(0, false), (1, true)])
}

fn affine(from: &mut ByteReader<'_>) -> Result<Affine, EntryDamage> {
    if flag(from)? {
        return Ok(Affine::new(from.f64s()?));
    }
    let [x, y] = from.f64s()?;
    Ok(Affine::new([1.0, 0.0, 0.0, 1.0, x, y]))
}

fn maybe_affine(from: &mut ByteReader<'_>) -> Result<Option<Affine>, EntryDamage> {
    if flag(from)? { affine(from).map(Some) } else { Ok(None) }
}

fn stroke(from: &mut ByteReader<'_>) -> Result<Stroke, EntryDamage> {
    let [width, miter_limit, dash_offset] = from.f64s()?;
    let (join, start_cap, end_cap) =
        (one_of(from, &JOINS)?, one_of(from, &CAPS)?, one_of(from, &CAPS)?);
    let mut stroke =
        Stroke { width, join, miter_limit, start_cap, end_cap, dash_offset, ..Stroke::default() };
    for _ in 0..from.count(8)? {
        let [length] = from.f64s()?;
        stroke.dash_pattern.push(length);
    }
    Ok(stroke)
}

fn path(from: &mut ByteReader<'_>) -> Result<BezPath, EntryDamage> {
    if flag(from)? {
        let [x0, y0, x1, y1] = from.f64s()?;
        let mut path = BezPath::with_capacity(5);
        path.move_to((x0, y0));
        path.line_to((x1, y0));
        path.line_to((x1, y1));
        path.line_to((x0, y1));
        path.close_path();
        return Ok(path);
    }
    let count = from.count(1)?;
    let mut path = BezPath::with_capacity(count);
    for number in 0..count {
        let kind = from.u8()?;
        if number == 0 && kind != segment::MOVE {
            return Err(from.wrong());
        }
        match kind {
            segment::MOVE => {
                let [x, y] = from.f64s()?;
                path.move_to((x, y));
            }
            segment::LINE => {
                let [x, y] = from.f64s()?;
                path.line_to((x, y));
            }
            segment::QUAD => {
                let [px, py, qx, qy] = from.f64s()?;
                path.quad_to((px, py), (qx, qy));
            }
            segment::CURVE => {
                let [px, py, qx, qy, rx, ry] = from.f64s()?;
                path.curve_to((px, py), (qx, qy), (rx, ry));
            }
            segment::CLOSE => path.close_path(),
            _ => return Err(from.wrong()),
        }
    }
    Ok(path)
}

fn read_brush<S: PaintSource>(from: &mut ByteReader<'_>, supply: &S) -> Result<Paint, S::Error> {
    let point = |x, y| Point { x, y };
    let kind = match from.u8()? {
        brush::SOLID => return Ok(Paint::Solid(Color::new(from.f32s()?))),
        brush::IMAGE => {
            let image = supply.image(from.u32()?)?;
            let (x_extend, y_extend) = (one_of(from, &EXTENDS)?, one_of(from, &EXTENDS)?);
            let quality = one_of(from, &QUALITIES)?;
            let [alpha] = from.f32s()?;
            let sampler = ImageSampler { x_extend, y_extend, quality, alpha };
            return Ok(Paint::Image(ImageBrush { image, sampler }));
        }
        brush::LINEAR => {
            let [x0, y0, x1, y1] = from.f64s()?;
            GradientKind::Linear(LinearGradientPosition {
                start: point(x0, y0),
                end: point(x1, y1),
            })
        }
        brush::RADIAL => {
            let [x0, y0, x1, y1] = from.f64s()?;
            let [start_radius, end_radius] = from.f32s()?;
            let (start_center, end_center) = (point(x0, y0), point(x1, y1));
            GradientKind::Radial(RadialGradientPosition {
                start_center,
                start_radius,
                end_center,
                end_radius,
            })
        }
        brush::SWEEP => {
            let [x, y] = from.f64s()?;
            let [start_angle, end_angle] = from.f32s()?;
            GradientKind::Sweep(SweepGradientPosition {
                center: point(x, y),
                start_angle,
                end_angle,
            })
        }
        _ => return Err(from.wrong().into()),
    };
    Ok(Paint::Gradient(gradient(from, kind)?))
}

fn gradient(from: &mut ByteReader<'_>, kind: GradientKind) -> Result<Gradient, EntryDamage> {
    let extend = one_of(from, &EXTENDS)?;
    let interpolation_cs = one_of(from, &SPACES)?;
    let hue_direction = one_of(from, &HUES)?;
    let interpolation_alpha_space = one_of(from, &ALPHAS)?;
    let mut stops = ColorStops::new();
    for _ in 0..from.count(22)? {
        let [offset] = from.f32s()?;
        let cs = one_of(from, &SPACES)?;
        let bits = from.u8()?;
        let mut missing = Missing::EMPTY;
        for component in (0..4).filter(|component| bits & 1 << component != 0) {
            missing.insert(component);
        }
        let color =
            DynamicColor { cs, flags: Flags::from_missing(missing), components: from.f32s()? };
        stops.push(ColorStop { offset, color });
    }
    Ok(Gradient { kind, extend, interpolation_cs, hue_direction, interpolation_alpha_space, stops })
}
