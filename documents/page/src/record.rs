//! A record of what the engine paints of a whole page, where each viewport finds what the engine
//! would paint of it.
//!
//! The engine paints no more than a number of layers at once, and leaves the clipping of the rest
//! away. In one viewport there are hardly as many; in a whole page there can be. Such a page is
//! recorded in strips, as far as that goes: what is above a strip counts as well, since the engine
//! leaves out only the upper half of that. Strips reach into each other by a viewport, so that each
//! viewport is in one of them: two would have to be clipped where they meet, and clips in clips are
//! rounded otherwise.

use anyrender::PaintScene;
use anyrender::recording::{RenderCommand, Scene};
use blitz_dom::BaseDocument;
use blitz_dom::util::Point;
use kurbo::Affine;

use crate::limits::PICTURE_HEIGHT_MAX;
use crate::list::Strip;
use crate::list::stays::{self, ScrollBehavior};
use crate::pixels::paint_scene;
use crate::view::View;

/// What the engine paints with all its clipping; it has 1,024.
const LAYERS_MAX: usize = 1_000;
/// Lines of a strip: at most, and at least.
const STRIP_MAX: u32 = 4_096;
const STRIP_MIN: u32 = 128;

/// The drawing commands of a whole page, with the extent of each.
pub(crate) struct PaintRecord {
    /// From the top of the page on; none of a page that is too long, or has too many layers at its
    /// top already.
    pub(crate) strips: Vec<Strip>,
    /// Whether parts of the page stay where they are when it is scrolled: there is but the
    /// unscrolled viewport then.
    pub(crate) scroll_bound: bool,
}

/// Records the page. The engine is not scrolled afterwards.
pub(crate) fn whole_page(
    engine: &mut BaseDocument,
    view: View,
    content: (u32, u32),
) -> PaintRecord {
    let (width, content_height) = content;
    if content_height > PICTURE_HEIGHT_MAX {
        return PaintRecord { strips: Vec::new(), scroll_bound: false };
    }
    // One pixel further down everything has to be one pixel further up, or where it was; the height
    // leaves nothing out at either end.
    let whole = lines(engine, view, 0, (width, content_height + 1));
    let shifted = lines(engine, view, 1, (width, content_height + 1));
    let found = stays::classify(&whole, &shifted);
    drop(shifted);
    let has_room = layers(&whole) <= LAYERS_MAX;
    let scrolls = found.and_then(|scrolls| rule(engine, view, content, &whole, scrolls, has_room));
    let taken = match scrolls {
        None => {
            let scene = lines(engine, view, 0, (width, view.height()));
            let strip = Strip { first: 0, end: view.height(), scene, scrolls: Vec::new() };
            PaintRecord { strips: vec![strip], scroll_bound: true }
        }
        Some(scrolls) if has_room => {
            let strip = Strip { first: 0, end: content_height, scene: whole, scrolls };
            PaintRecord { strips: vec![strip], scroll_bound: false }
        }
        Some(_) => {
            drop(whole);
            PaintRecord { strips: strips(engine, view, content), scroll_bound: false }
        }
    };
    engine.set_viewport_scroll(Point { x: 0.0, y: 0.0 });
    taken
}

/// What of the page stays when it is scrolled, if anything does; nothing, if there is no telling.
/// What stays is not only looked for in the page as a whole: it may be painted otherwise in a
/// viewport.
fn rule(
    engine: &mut BaseDocument,
    view: View,
    (width, content_height): (u32, u32),
    whole: &Scene,
    scrolls: Vec<ScrollBehavior>,
    has_room: bool,
) -> Option<Vec<ScrollBehavior>> {
    if scrolls.iter().all(|one| *one == ScrollBehavior::Moves) {
        return Some(Vec::new());
    }
    let last = content_height.saturating_sub(view.height());
    let mut explains = |scroll| {
        let seen = lines(engine, view, scroll, (width, view.height()));
        stays::explains(whole, &scrolls, &seen, view, scroll)
    };
    let holds = has_room && [0, last / 2, last].into_iter().all(&mut explains);
    holds.then_some(scrolls)
}

/// What the engine paints of some lines of the page, the first of which is at the top.
fn lines(engine: &mut BaseDocument, view: View, first: u32, (width, count): (u32, u32)) -> Scene {
    engine.set_viewport_scroll(Point { x: 0.0, y: f64::from(first) / view.scale_factor_f64() });
    let mut scene = Scene::new();
    paint_scene(&mut scene, engine, view, (width, count));
    scene
}

fn layers(scene: &Scene) -> usize {
    let is_layer = |one: &&RenderCommand| {
        matches!(one, RenderCommand::PushLayer(_) | RenderCommand::PushClipLayer(_))
    };
    scene.commands.iter().filter(is_layer).count()
}

/// The page strip by strip, up to the first of few lines that has too many layers still.
fn strips(engine: &mut BaseDocument, view: View, content: (u32, u32)) -> Vec<Strip> {
    let (width, content_height) = content;
    let mut all = Vec::new();
    let (mut first, mut count) = (0, STRIP_MAX);
    // The viewport at the end begins above it.
    while first == 0 || first + view.height() <= content_height {
        let end = (first + count + view.height()).min(content_height);
        let strip = lines(engine, view, first, (width, end - first));
        if layers(&strip) > LAYERS_MAX {
            count /= 2;
            if count < STRIP_MIN {
                break;
            }
            continue;
        }
        let mut scene = Scene::new();
        scene.append_scene(strip, Affine::translate((0.0, f64::from(first))));
        all.push(Strip { first, end, scene, scrolls: Vec::new() });
        first += count;
        count = (count * 2).min(STRIP_MAX);
    }
    all
}
