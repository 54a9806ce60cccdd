//! A record of what the engine paints of a whole page, where each viewport finds what the engine would paint of it.
//!
//! The engine paints no more than a number of layers at once, and leaves the clipping of the rest away. In one viewport there are hardly
//! as many; in a whole page there can be. Such a page is recorded in strips, as far as that goes: what is above
//! a strip counts as well, since the engine leaves out only the upper half of that. Strips reach into each other by a viewport, so that
//! each viewport is in one of them: two would have to be clipped where they meet, and clips in clips are rounded otherwise.

use anyrender::PaintScene;
use anyrender::recording::{RenderCommand, Scene};
use blitz_dom::BaseDocument;
use blitz_dom::util::Point;
use kurbo::Affine;

use crate::limits::PICTURE_HEIGHT_MAX;
use crate::list::{self, Strip};
use crate::view::View;

/// What the engine paints with all its clipping; it has 1,024.
const LAYERS_MAX: usize = 1_000;
/// Lines of a strip: at most, and at least.
const STRIP_MAX: u32 = 4_096;
const STRIP_MIN: u32 = 128;

/// See the module.
pub(crate) struct Taken {
    /// From the top of the page on; none of a page that is too long, or has too many layers at its top already.
    pub(crate) strips: Vec<Strip>,
    /// Whether parts of the page stay where they are when it is scrolled: there is but the unscrolled viewport then.
    pub(crate) scroll_bound: bool,
}

/// Records the page. The engine is not scrolled afterwards.
pub(crate) fn whole_page(engine: &mut BaseDocument, view: View, content_height: u32) -> Taken {
    if content_height > PICTURE_HEIGHT_MAX {
        return Taken { strips: Vec::new(), scroll_bound: false };
    }
    // One pixel further down everything has to be one pixel further up; the height leaves nothing out at either end.
    let whole = lines(engine, view, 0, content_height + 1);
    let shifted = lines(engine, view, 1, content_height + 1);
    let scroll_bound = !list::is_shifted(&whole, &shifted);
    drop(shifted);
    let strips = if scroll_bound {
        vec![Strip { first: 0, end: view.height, scene: lines(engine, view, 0, view.height) }]
    } else if layers(&whole) > LAYERS_MAX {
        drop(whole);
        strips(engine, view, content_height)
    } else {
        vec![Strip { first: 0, end: content_height, scene: whole }]
    };
    engine.set_viewport_scroll(Point { x: 0.0, y: 0.0 });
    Taken { strips, scroll_bound }
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

/// The page strip by strip, up to the first of few lines that has too many layers still.
fn strips(engine: &mut BaseDocument, view: View, content_height: u32) -> Vec<Strip> {
    let mut all = Vec::new();
    let (mut first, mut count) = (0, STRIP_MAX);
    // The viewport at the end begins above it.
    while first == 0 || first + view.height <= content_height {
        let end = (first + count + view.height).min(content_height);
        let strip = lines(engine, view, first, end - first);
        if layers(&strip) > LAYERS_MAX {
            count /= 2;
            if count < STRIP_MIN {
                break;
            }
            continue;
        }
        let mut scene = Scene::new();
        scene.append_scene(strip, Affine::translate((0.0, f64::from(first))));
        all.push(Strip { first, end, scene });
        first += count;
        count = (count * 2).min(STRIP_MAX);
    }
    all
}
