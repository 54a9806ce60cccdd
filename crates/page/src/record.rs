//! A record of what the engine paints of a whole page, where each viewport finds what the engine would paint of it.
//!
//! The engine paints no more than a number of layers at once, and leaves the clipping of the rest away. In one viewport there are hardly
//! as many; in a whole page there can be. Such a page is recorded in strips, each clipped to its lines.

use anyrender::PaintScene;
use anyrender::recording::{RenderCommand, Scene};
use blitz_dom::BaseDocument;
use blitz_dom::util::Point;
use kurbo::{Affine, Rect};
use peniko::{Color, Fill};

use crate::limits::PICTURE_HEIGHT_MAX;
use crate::list;
use crate::view::View;

/// What the engine paints with all its clipping; it has 1,024.
const LAYERS_MAX: usize = 1_000;
/// Lines of a strip: at most, and at least.
const STRIP_MAX: u32 = 4_096;
const STRIP_MIN: u32 = 128;

/// See the module.
pub(crate) struct Taken {
    /// None of a page that is too long, or has too many layers.
    pub(crate) scene: Option<Scene>,
    /// Lines of the scene.
    pub(crate) height: u32,
    /// Whether parts of the page stay where they are when it is scrolled: the scene is that of the unscrolled viewport then.
    pub(crate) scroll_bound: bool,
}

/// Records the page. The engine is not scrolled afterwards.
pub(crate) fn whole_page(engine: &mut BaseDocument, view: View, content_height: u32) -> Taken {
    let taken = |scene, height, scroll_bound| Taken { scene, height, scroll_bound };
    if content_height > PICTURE_HEIGHT_MAX {
        return taken(None, view.height, false);
    }
    // One pixel further down everything has to be one pixel further up; the height leaves nothing out at either end.
    let whole = lines(engine, view, 0, content_height + 1);
    let shifted = lines(engine, view, 1, content_height + 1);
    let scroll_bound = !list::is_shifted(&whole, &shifted);
    drop(shifted);
    let (scene, height) = if scroll_bound {
        (Some(lines(engine, view, 0, view.height)), view.height)
    } else if layers(&whole) > LAYERS_MAX {
        drop(whole);
        (strips(engine, view, content_height), content_height)
    } else {
        (Some(whole), content_height)
    };
    engine.set_viewport_scroll(Point { x: 0.0, y: 0.0 });
    taken(scene, height, scroll_bound)
}

/// What the engine paints of some lines of the page, the first of which is at the top.
fn lines(engine: &mut BaseDocument, view: View, first: u32, count: u32) -> Scene {
    let scale = view.scale_factor_f64();
    engine.set_viewport_scroll(Point { x: 0.0, y: f64::from(first) / scale });
    let mut scene = Scene::new();
    blitz_paint::paint_scene(&mut scene, engine, scale, view.width, count, 0, 0);
    scene
}

fn layers(scene: &Scene) -> usize {
    let is_layer =
        |one: &&RenderCommand| matches!(one, RenderCommand::PushLayer(_) | RenderCommand::PushClipLayer(_));
    scene.commands.iter().filter(is_layer).count()
}

/// The page strip by strip; none, if a strip of few lines has too many layers still.
fn strips(engine: &mut BaseDocument, view: View, content_height: u32) -> Option<Scene> {
    let mut all = Scene::new();
    let (mut first, mut count) = (0, STRIP_MAX);
    while first < content_height {
        let strip = lines(engine, view, first, count);
        eprintln!("STRIP {first} {count} {}", layers(&strip));
        if layers(&strip) > LAYERS_MAX {
            count /= 2;
            if count < STRIP_MIN {
                return None;
            }
            continue;
        }
        let top = f64::from(first);
        let place = Rect::new(0.0, top, f64::from(view.width), top + f64::from(count));
        all.push_clip_layer(Fill::NonZero, Affine::IDENTITY, &place);
        // On paper, as the viewport is: what is put together on nothing is rounded otherwise.
        all.fill(Fill::NonZero, Affine::IDENTITY, Color::WHITE, None, &place);
        all.append_scene(strip, Affine::translate((0.0, top)));
        all.pop_layer();
        first += count;
        count = (count * 2).min(STRIP_MAX);
    }
    Some(all)
}
