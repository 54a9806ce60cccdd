//! A test alone: whatever numbers a command has, painting it ends, and takes no more memory than is
//! there.
//!
//! Each kind of command is written as the engine's would be, and then each place in its bytes gets
//! each of the unexpected numbers. Most of that is damage; what is not is painted.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyrender::recording::Scene;
use anyrender::{Glyph, Paint, PaintScene};
use kurbo::{Affine, BezPath, Cap, Circle, Join, Rect, Shape, Stroke, Vec2};
use peniko::color::palette::css::RED;
use peniko::{
    BlendMode, Blob, Compose, Extend, Fill, FontData, Gradient, ImageAlphaType, ImageBrush,
    ImageData, ImageFormat, ImageQuality, ImageSampler, Mix,
};

use super::read::{PaintSource, PaintState, paint};
use super::wire::ByteWriter;
use super::write::{SharedObjects, write};
use crate::error::EntryDamage;
use crate::pixels::rasterize;
use crate::view::View;

/// No machine is so busy.
const PATIENCE: Duration = Duration::from_secs(120);

struct Supplies {
    font: FontData,
    image: ImageData,
}

impl PaintSource for Supplies {
    type Error = EntryDamage;

    fn font(&self, _number: u32, face: u32) -> Result<FontData, EntryDamage> {
        Ok(FontData::new(self.font.data.clone(), face))
    }

    fn image(&self, _number: u32) -> Result<ImageData, EntryDamage> {
        Ok(self.image.clone())
    }
}

/// A font of this machine: without one no page has text.
fn font() -> FontData {
    let files = walkdir::WalkDir::new("/usr/share/fonts").sort_by_file_name().into_iter().flatten();
    let mut fonts = files.filter(|file| file.path().extension().is_some_and(|name| name == "ttf"));
    let file = fonts.next().expect("fonts are installed (`fonts-dejavu-core`)");
    FontData::new(Blob::new(Arc::new(std::fs::read(file.path()).unwrap())), 0)
}

fn supplies() -> Supplies {
    let image = ImageData {
        data: Blob::new(Arc::new([9, 99, 9, 255].repeat(12))),
        format: ImageFormat::Rgba8,
        alpha_type: ImageAlphaType::Alpha,
        width: 4,
        height: 3,
    };
    Supplies { font: font(), image }
}

/// One of each kind, with numbers that tell nothing from others.
fn commands(supplies: &Supplies) -> Vec<Vec<u8>> {
    let turned = Affine::new([1.0, 0.25, -0.25, 1.0, 3.0, 2.0]);
    let (rect, round) =
        (Rect::new(2.0, 2.0, 20.0, 12.0), Circle::new((9.0, 9.0), 7.0).to_path(0.1));
    let mut curve = BezPath::new();
    curve.move_to((1.0, 1.0));
    curve.quad_to((8.0, 2.0), (9.0, 9.0));
    curve.line_to((2.0, 11.0));
    curve.close_path();
    let dashed = Stroke { join: Join::Round, miter_limit: 4.0, ..Stroke::new(2.0) }
        .with_caps(Cap::Round)
        .with_dashes(1.0, [3.0, 2.0]);
    let stops = [(0.0, RED), (1.0, RED.with_alpha(0.5))];
    let image = |extend: Extend, quality| {
        let sampler = ImageSampler { x_extend: extend, y_extend: extend, quality, alpha: 1.0 };
        Paint::Image(ImageBrush { image: supplies.image.clone(), sampler })
    };
    let gradients = [
        Gradient::new_linear((1.0, 1.0), (9.0, 9.0)),
        Gradient::new_two_point_radial((3.0, 3.0), 1.0, (9.0, 9.0), 8.0),
        Gradient::new_sweep((9.0, 9.0), 0.5, 3.0).with_extend(Extend::Reflect),
    ];
    let glyphs = [Glyph { id: 36, x: 1.0, y: 9.0 }, Glyph { id: 37, x: 9.0, y: 9.0 }];
    let mut scene = Scene::new();
    scene.push_layer(
        Fill::NonZero,
        BlendMode::new(Mix::Normal, Compose::SrcOver),
        0.5,
        turned,
        &rect,
        None,
        None,
    );
    scene.push_layer(
        Fill::NonZero,
        BlendMode::new(Mix::Multiply, Compose::SrcIn),
        0.5,
        turned,
        &round,
        None,
        None,
    );
    scene.push_clip_layer(Fill::EvenOdd, turned, &curve);
    scene.fill(Fill::NonZero, Affine::translate((1.0, 1.0)), RED, None, &rect);
    scene.fill(Fill::EvenOdd, turned, RED, None, &curve);
    for gradient in gradients {
        scene.fill(Fill::NonZero, turned, &gradient.with_stops(stops), Some(turned), &rect);
    }
    for (extend, quality) in
        [(Extend::Pad, ImageQuality::Low), (Extend::Repeat, ImageQuality::High)]
    {
        scene.fill(Fill::NonZero, turned, image(extend, quality).as_ref(), Some(turned), &rect);
    }
    scene.stroke(&dashed, turned, RED, None, &curve);
    scene.stroke(&Stroke::new(2.0), turned, RED, None, &rect);
    let upright = Affine::translate((2.0, 2.0));
    for (hint, embolden, place, slant) in [
        (true, 0.0, upright, None),
        (false, 0.5, turned, Some(turned)),
        (true, 0.5, upright, Some(upright)),
    ] {
        let (embolden, glyphs) = (Vec2::new(embolden, embolden), glyphs.iter().copied());
        scene.draw_glyphs(
            &supplies.font,
            12.0,
            hint,
            &[],
            embolden,
            Fill::NonZero,
            RED,
            1.0,
            place,
            slant,
            glyphs,
        );
    }
    let glyphs = glyphs.iter().copied();
    scene.draw_glyphs(
        &supplies.font,
        12.0,
        false,
        &[99],
        Vec2::ZERO,
        &Stroke::new(1.0),
        RED,
        1.0,
        upright,
        None,
        glyphs,
    );
    scene.draw_box_shadow(turned, rect, RED, 3.0, 2.0);
    let mut shared = SharedObjects::default();
    let written = |one| {
        let mut to = ByteWriter::default();
        write(one, &mut to, &mut shared).unwrap();
        to.bytes
    };
    scene.commands.iter().map(written).collect()
}

fn extremes() -> Vec<Vec<u8>> {
    let singles = [
        f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        1e30,
        -1e30,
        1e10,
        -1e10,
        1e7,
        1e5,
        1e-30,
        -1.0,
    ];
    let doubles = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e300,
        -1e300,
        1e30,
        1e10,
        -1e10,
        1e7,
        1e5,
        1e-300,
        -1.0,
    ];
    let singles = singles.iter().map(|number| number.to_le_bytes().to_vec());
    singles.chain(doubles.iter().map(|number| number.to_le_bytes().to_vec())).collect()
}

/// What one command may cost, all that are painted at once may not.
///
/// Guarantee: pages/planted
#[test]
fn lines_of_all_commands_are_bounded() {
    let mut scene = Scene::new();
    let circle = Circle::new((0.0, 0.0), 4e8);
    scene.fill(Fill::NonZero, Affine::IDENTITY, RED, None, &circle);
    let mut bytes = ByteWriter::default();
    write(&scene.commands[0], &mut bytes, &mut SharedObjects::default()).unwrap();
    let (supplies, mut open) = (supplies(), PaintState::default());
    let mut painted = Scene::new();
    let count = (0..1_000).take_while(|_| {
        paint(&bytes.bytes, Affine::IDENTITY, &mut open, &supplies, &mut painted).is_ok()
    });
    // A circle is some 9e5 lines.
    assert!((100..400).contains(&count.count()));
    let endless = EntryDamage::Endless { what: "command" };
    let last = paint(&bytes.bytes, Affine::IDENTITY, &mut open, &supplies, &mut painted);
    assert_eq!(last, Err(endless));
}

/// What is being painted: the command's number, the byte, and which extreme.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Case {
    command: usize,
    at: usize,
    extreme: usize,
}

/// Guarantee: pages/planted
#[test]
fn whatever_numbers_a_command_has_painting_it_ends() {
    let current = Arc::new(Mutex::new(Case::default()));
    let (sender, ended) = channel();
    let shown = Arc::clone(&current);
    std::thread::spawn(move || {
        let supplies = supplies();
        let view = View::new(40, 30, 1000).unwrap();
        let mut count = 0u32;
        for (command, bytes) in commands(&supplies).into_iter().enumerate() {
            for at in 1..bytes.len() {
                for (extreme, number) in extremes().into_iter().enumerate() {
                    let mut planted = bytes.clone();
                    let Some(place) = planted.get_mut(at..at + number.len()) else { continue };
                    place.copy_from_slice(&number);
                    *shown.lock().unwrap() = Case { command, at, extreme };
                    // The rasterizer's panics are caught, as when an entry is painted.
                    let _ = catch_unwind(AssertUnwindSafe(|| {
                        rasterize(view, Vec::new(), |painter| {
                            let mut open = PaintState::default();
                            let _ =
                                paint(&planted, Affine::IDENTITY, &mut open, &supplies, painter);
                            (0..open.layers).for_each(|_| painter.pop_layer());
                        })
                    }));
                    count += 1;
                }
            }
        }
        let _ = sender.send(count);
    });
    let mut last = Case { command: usize::MAX, ..Case::default() };
    let count = loop {
        match ended.recv_timeout(PATIENCE) {
            Ok(count) => break count,
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the painter is gone: {:?}", current.lock().unwrap())
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = *current.lock().unwrap();
        assert!(now != last, "it is still being painted: {now:?}");
        last = now;
    };
    assert!(count > 10_000, "{count}");
}
