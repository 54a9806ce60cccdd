//! Finds the commands that stay where they are when the page is scrolled.
//!
//! The engine says neither; it is seen from what it paints of the page at several places. Only when
//! each command of each of these pictures is one of the whole page's, moved by just as much or not
//! at all, is that taken for the rule.

use anyrender::recording::{RenderCommand, Scene};
use kurbo::{Affine, Shape};

use super::extent::LayerExtents;
use super::wire::ByteWriter;
use super::write;
use super::write::SharedObjects;
use crate::view::View;

/// What a command does when the page is scrolled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ScrollBehavior {
    /// It goes with the page.
    Moves,
    /// It stays.
    Stays,
}

/// Of a pixel: what double precision loses.
const NOTHING: f64 = 1e-6;

/// Told of a page that is scrolled down by no line and by one; nothing, if something does neither.
pub(crate) fn classify(whole: &Scene, shifted: &Scene) -> Option<Vec<ScrollBehavior>> {
    if whole.commands.len() != shifted.commands.len() {
        return None;
    }
    let mut found = Vec::with_capacity(whole.commands.len());
    // Layers that stay: what goes with the page within one would have to be looked for everywhere.
    let mut around: Vec<bool> = Vec::new();
    for (number, (one, other)) in whole.commands.iter().zip(&shifted.commands).enumerate() {
        let scrolls = match (transform(one), transform(other)) {
            (None, None) => {
                around.pop();
                ScrollBehavior::Moves
            }
            (Some(here), Some(_))
                if number == 0 && here == Affine::IDENTITY && is_same(one, other) =>
            {
                // The ground is everywhere.
                ScrollBehavior::Moves
            }
            (Some(_), Some(_)) if is_moved(one, other, 1.0) => ScrollBehavior::Moves,
            (Some(_), Some(_)) if is_moved(one, other, 0.0) => ScrollBehavior::Stays,
            _ => return None,
        };
        if is_layer(one) {
            around.push(scrolls == ScrollBehavior::Stays);
        } else if transform(one).is_some()
            && scrolls == ScrollBehavior::Moves
            && around.contains(&true)
        {
            return None;
        }
        found.push(scrolls);
    }
    Some(found)
}

/// Whether a viewport as the engine paints it, so far down, is what the whole page says.
pub(crate) fn explains(
    whole: &Scene,
    scrolls: &[ScrollBehavior],
    seen: &Scene,
    view: View,
    scroll: u32,
) -> bool {
    let mut next = seen.commands.iter().enumerate().peekable();
    // For each layer that is open, whether the viewport has it.
    let mut open: Vec<bool> = Vec::new();
    let mut extents = LayerExtents::default();
    for (number, (one, scrolls)) in whole.commands.iter().zip(scrolls).enumerate() {
        let (top, bottom) = extents.alone(one);
        if transform(one).is_none() {
            if open.pop() == Some(true)
                && next.next().is_none_or(|(_, pop)| transform(pop).is_some())
            {
                return false;
            }
            continue;
        }
        let there = next.peek().map(|(_, there)| *there);
        let is_there = there.is_some_and(|there| match *scrolls {
            ScrollBehavior::Moves if number == 0 && is_ground(one, there, view) => true,
            ScrollBehavior::Moves => is_moved(one, there, f64::from(scroll)),
            ScrollBehavior::Stays => is_moved(one, there, 0.0),
        });
        if is_there {
            next.next();
        } else if *scrolls != ScrollBehavior::Moves
            && bottom >= 0.0
            && top < f64::from(view.height())
        {
            // It could be seen, and is not.
            return false;
        }
        if is_layer(one) {
            open.push(is_there);
        }
    }
    next.next().is_none()
}

/// Whether a fill is the ground of a viewport: as large as that, and otherwise the same.
fn is_ground(one: &RenderCommand, there: &RenderCommand, view: View) -> bool {
    let (RenderCommand::Fill(one), RenderCommand::Fill(there)) = (one, there) else { return false };
    let mut same = there.clone();
    same.shape.clone_from(&one.shape);
    let covers =
        there.shape.as_rect().or_else(|| Some(there.shape.bounding_box())).is_some_and(|rect| {
            rect.x0 == 0.0
                && rect.y0 == 0.0
                && rect.x1 >= view.width().into()
                && rect.y1 >= view.height().into()
        });
    one.transform == Affine::IDENTITY
        && covers
        && is_same(&RenderCommand::Fill(one.clone()), &RenderCommand::Fill(same))
}

fn is_layer(one: &RenderCommand) -> bool {
    matches!(one, RenderCommand::PushLayer(_) | RenderCommand::PushClipLayer(_))
}

/// Whether the other one is the same, so much further up.
fn is_moved(one: &RenderCommand, other: &RenderCommand, up: f64) -> bool {
    let (Some(here), Some(there)) = (transform(one), transform(other)) else { return false };
    let (from, to) = (here.as_coeffs(), there.as_coeffs());
    (from[5] - to[5] - up).abs() < NOTHING
        && from[..5] == to[..5]
        && is_same(one, &moved_to(other, here))
}

/// Whether the bytes are the same: there are numbers in paths that are none, and not even the same
/// as themselves.
fn is_same(one: &RenderCommand, other: &RenderCommand) -> bool {
    let mut shared = SharedObjects::default();
    let mut bytes = [ByteWriter::default(), ByteWriter::default()];
    let written = [one, other]
        .into_iter()
        .zip(&mut bytes)
        .all(|(command, to)| write::write(command, to, &mut shared).is_ok());
    written && bytes[0].bytes == bytes[1].bytes
}

fn transform(one: &RenderCommand) -> Option<Affine> {
    Some(match one {
        RenderCommand::PushLayer(one) => one.transform,
        RenderCommand::PushClipLayer(one) => one.transform,
        RenderCommand::PopLayer => return None,
        RenderCommand::Stroke(one) => one.transform,
        RenderCommand::Fill(one) => one.transform,
        RenderCommand::GlyphRun(one) => one.transform,
        RenderCommand::BoxShadow(one) => one.transform,
    })
}

fn moved_to(one: &RenderCommand, to: Affine) -> RenderCommand {
    let mut one = one.clone();
    match &mut one {
        RenderCommand::PushLayer(one) => one.transform = to,
        RenderCommand::PushClipLayer(one) => one.transform = to,
        RenderCommand::PopLayer => {}
        RenderCommand::Stroke(one) => one.transform = to,
        RenderCommand::Fill(one) => one.transform = to,
        RenderCommand::GlyphRun(one) => one.transform = to,
        RenderCommand::BoxShadow(one) => one.transform = to,
    }
    one
}

/// Which commands every viewport needs: what stays, and the layers around it.
pub(crate) fn everywhere(commands: &[RenderCommand], scrolls: &[ScrollBehavior]) -> Vec<bool> {
    let mut needed = vec![false; commands.len()];
    let mut open: Vec<usize> = Vec::new();
    for (number, one) in commands.iter().enumerate() {
        if matches!(one, RenderCommand::PopLayer) {
            // A layer's end goes with its beginning.
            needed[number] = open.pop().is_some_and(|begin| needed[begin]);
            continue;
        }
        if scrolls.get(number).is_some_and(|scrolls| *scrolls != ScrollBehavior::Moves) {
            needed[number] = true;
            open.iter().for_each(|around| needed[*around] = true);
        }
        if is_layer(one) {
            open.push(number);
        }
    }
    needed
}
