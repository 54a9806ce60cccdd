//! Marks and colours: how often each one is painted, by the shapes that have it, for itself or from
//! what is around it.

use super::links::{Graph, Links, PassedOn};
use super::{COST_MAX, Looks, TOO_OFTEN};
use crate::svg::Element;
use crate::svg::graph::costs;
use crate::svg::path::LineSize;

/// The shapes of each element, with those of all that is painted as a part of it.
pub(super) struct Outlines {
    /// How often shapes are filled.
    shapes: Vec<u64>,
    /// Points of shapes that may have marks, or more.
    points: Vec<u64>,
}

impl Outlines {
    /// `curves` is how many each element has if it is round; nothing, if `drawn` leads in a circle.
    pub(super) fn new(
        elements: &[Element<'_>],
        lines: &[LineSize],
        curves: &[u64],
        drawn: &[Vec<(usize, u64)>],
    ) -> Option<Outlines> {
        let shapes = costs(drawn, |number| shapes_of(&elements[number], lines[number]))?;
        let points =
            costs(drawn, |number| points_of(&elements[number], lines[number], curves[number]))?;
        Some(Outlines { shapes, points })
    }

    /// How often an element paints what it passes on.
    fn times(&self, number: usize, at_points: bool) -> u64 {
        if at_points { self.points[number] } else { self.shapes[number] }
    }
}

/// How often an element by itself is filled.
fn shapes_of(element: &Element<'_>, line: LineSize) -> u64 {
    let is_text = matches!(element.name, "text" | "tspan" | "textPath" | "tref");
    u64::from(is_text || points_of(element, line, 0) > 0)
}

/// The points of a shape that may have marks, or more; `curves` is how many it has if it is round.
fn points_of(element: &Element<'_>, line: LineSize, curves: u64) -> u64 {
    match element.name {
        "path" | "polyline" | "polygon" if line.segments > 0 => line.segments + 2,
        "line" => 2,
        "rect" | "circle" | "ellipse" => (curves + 2).max(16),
        _ => 0,
    }
}

/// A mark or a colour that an element has from an element around it, or within a mark.
pub(super) struct Inherited {
    pub(super) number: usize,
    /// The mark or colour.
    pub(super) target: usize,
    /// How often it is painted.
    pub(super) times: u64,
}

/// The links of a picture with its marks and colours.
pub(super) struct MarkedLinks {
    /// What is in an element, and what it refers to.
    pub(super) graph: Graph,
    /// What is painted where it is, with its marks.
    pub(super) painted: Graph,
    /// No part of the graph: that a mark is within an element that names it leads in no circle,
    /// since the engine paints no mark within itself.
    pub(super) inherited: Vec<Inherited>,
}

impl MarkedLinks {
    pub(super) fn new(
        elements: &[Element<'_>],
        links: Links,
        outlines: &Outlines,
    ) -> Result<MarkedLinks, &'static str> {
        let Links { graph, drawn, passed, apart, looks, .. } = links;
        let mut marked = MarkedLinks { graph, painted: drawn, inherited: Vec::new() };
        marked.add_named(elements, &passed, outlines)?;
        marked.add_inherited(elements, &passed, &apart, outlines, looks)?;
        Ok(marked)
    }

    /// Adds the marks and colours that an element names, for all that is a part of it.
    fn add_named(
        &mut self,
        elements: &[Element<'_>],
        passed: &[Vec<PassedOn>],
        outlines: &Outlines,
    ) -> Result<(), &'static str> {
        let mut in_mark: Vec<bool> = Vec::with_capacity(elements.len());
        for (number, its) in passed.iter().enumerate() {
            let element = &elements[number];
            let is_within =
                element.name == "marker" || element.parent.is_some_and(|parent| in_mark[parent]);
            in_mark.push(is_within);
            for PassedOn { target, at_points } in its.iter().copied() {
                let times = outlines.times(number, at_points).max(1);
                let is_mark = elements[target].name == "marker";
                // A rule for all lines is one for those of the mark that it names, too.
                if is_mark && is_within {
                    self.check_inherited()?;
                    self.inherited.push(Inherited { number, target, times });
                    continue;
                }
                self.graph[number].push((target, times));
                if is_mark {
                    self.painted[number].push((target, times));
                }
            }
        }
        Ok(())
    }

    /// Adds the marks and colours of the elements around those that are painted elsewhere.
    fn add_inherited(
        &mut self,
        elements: &[Element<'_>],
        passed: &[Vec<PassedOn>],
        apart: &[usize],
        outlines: &Outlines,
        mut looks: Looks,
    ) -> Result<(), &'static str> {
        let above = naming_ancestors(elements, passed);
        for number in apart.iter().copied() {
            let mut next = above[number];
            while let Some(ancestor) = next {
                for PassedOn { target, at_points } in passed[ancestor].iter().copied() {
                    looks.add(1)?;
                    self.check_inherited()?;
                    let times = outlines.times(number, at_points);
                    if target != number && times > 0 {
                        self.inherited.push(Inherited { number, target, times });
                    }
                }
                next = above[ancestor];
            }
        }
        Ok(())
    }

    /// Each one costs at least one.
    fn check_inherited(&self) -> Result<(), &'static str> {
        if self.inherited.len() as u64 > COST_MAX { Err(TOO_OFTEN) } else { Ok(()) }
    }
}

/// The next ancestor of each element that names marks or colours.
fn naming_ancestors(elements: &[Element<'_>], passed: &[Vec<PassedOn>]) -> Vec<Option<usize>> {
    let mut above: Vec<Option<usize>> = Vec::with_capacity(elements.len());
    for element in elements {
        let next = element.parent.and_then(|parent| {
            if passed[parent].is_empty() { above[parent] } else { Some(parent) }
        });
        above.push(next);
    }
    above
}
