//! What a picture comes to, before the engine gets it: each element with all that it refers to, as
//! often as it does.
//!
//! This file has the bounds, and adds up. What it adds up is found before: `survey` finds what each
//! element is by itself, `links` what it refers to, and `marks` how often its marks and colours are
//! painted. Each step refuses a picture as soon as a bound is passed.

mod links;
mod marks;
mod survey;

use std::collections::HashSet;

use super::graph::{PASSES_MAX, costs, heights};
use super::lengths::{round_curves, widest};
use super::path::LineSize;
use super::sheets::{TOO_MANY_RULES, sheets_of};
use super::{ELEMENTS_MAX, Element, SvgSummary, TOO_MANY};
use links::Links;
use marks::{Inherited, MarkedLinks, Outlines};
use survey::Survey;

/// Elements of a picture below each other; the engine takes 1,024.
const DEPTH_MAX: u32 = 1_000;
/// What a picture comes to: elements, each as often as it is used, with [`COST_BYTES`] more
/// counting as one more.
const COST_MAX: u64 = 500_000;
const COST_BYTES: usize = 256;
/// Rules of style sheets that are looked at, once for each element that they may be of, and what
/// they refer to. What is there of that costs more than [`COST_MAX`] before.
const RULE_LOOKS_MAX: usize = 16 * COST_MAX as usize;
/// Selectors that are compared with elements, for all elements as often as they are used, with
/// [`COST_WALKS`] of the parser in their own styles counting as one.
const MATCHES_MAX: u64 = 1_000_000_000;
const COST_WALKS: usize = 16;
/// Curves of arcs that cost as much as an element, and segments of lines, as often as they are
/// used.
const COST_CURVES: u64 = 8;
const COST_SEGMENTS: u64 = 16;
/// Elements and attributes that cost as much as one where all of them are looked through.
const COST_LOOKED_THROUGH: u64 = 64;
/// Letters of texts that cost as much as an element: each one is a line of its own.
const COST_LETTERS: u64 = 4;
/// Letters of one text for each of which one costs as much as an element: the engine counts them
/// from the first one for each.
const TEXT_LETTERS: u64 = 20_000;
pub(super) const TOO_OFTEN: &str =
    "it comes to more elements than are taken, since they are used again and again";
const CIRCLE: &str = "a part of it refers to itself";
pub(super) const TOO_DEEP: &str = "its elements are deeper in each other than is taken";

/// Looks at rules and at what is referred to.
#[derive(Default)]
struct Looks(usize);

impl Looks {
    /// Counts more of them, before they are made.
    fn add(&mut self, count: usize) -> Result<(), &'static str> {
        self.0 += count;
        if self.0 > RULE_LOOKS_MAX { Err(TOO_OFTEN) } else { Ok(()) }
    }
}

/// What is found in a picture, or why the engine does not get it.
pub(super) fn vet(elements: &[Element<'_>]) -> Result<SvgSummary, &'static str> {
    if elements.len() > ELEMENTS_MAX {
        return Err(TOO_MANY);
    }
    // The engine reads the first text of a style sheet, which may be all of them joined by then.
    let joined: Vec<String> =
        elements.iter().filter(|one| one.texts.len() > 1).map(|one| one.texts.concat()).collect();
    let texts = elements.iter().flat_map(|one| &one.texts).chain(&joined);
    let mut walks = 0;
    let sheets = sheets_of(texts, &mut walks)?;
    let survey = Survey::new(elements, walks)?;
    let links = Links::new(elements, &survey, &sheets)?;
    // An element is read as often as it is used, and compared with all rules each time.
    let matches = costs(&links.reads, |number| links.matches[number]).ok_or(CIRCLE)?;
    let widest = widest(elements, &sheets.fonts, &links.graph).ok_or(CIRCLE)?;
    let curves: Vec<u64> = elements.iter().map(|element| round_curves(element, widest)).collect();
    let own = own_costs(elements, &survey.lines, &curves, &links.letters);
    let outlines = Outlines::new(elements, &survey.lines, &curves, &links.drawn).ok_or(CIRCLE)?;
    let cost = PictureCost {
        own,
        pixels: &survey.pixels,
        matches: of_picture(&matches),
        links: MarkedLinks::new(elements, links, &outlines)?,
    };
    let painted = cost.add_up()?;
    let mut summary = survey.summary;
    // Each time that one is painted it is unpacked.
    summary.pixels = summary.pixels.max(painted);
    Ok(summary)
}

/// What each element costs without what it refers to.
fn own_costs(
    elements: &[Element<'_>],
    lines: &[LineSize],
    curves: &[u64],
    letters: &[u64],
) -> Vec<u64> {
    let attributes: usize = elements.iter().map(|element| element.attributes.len()).sum();
    let looked_through = (elements.len() + attributes) as u64 / COST_LOOKED_THROUGH;
    let own = |(number, element): (usize, &Element<'_>)| {
        let values: usize = element.attributes.iter().map(|(_, value)| value.len()).sum();
        let bytes = values.saturating_add(element.letters);
        let text = letters[number];
        // For its text the engine looks through the whole picture.
        let through = if element.name == "tref" { looked_through } else { 0 };
        1 + (bytes / COST_BYTES) as u64
            + (curves[number] + lines[number].of_arcs) / COST_CURVES
            + lines[number].segments / COST_SEGMENTS
            + through
            + text / COST_LETTERS
            + text.saturating_mul(text) / TEXT_LETTERS
    };
    elements.iter().enumerate().map(own).collect()
}

/// What a picture comes to, before it is added up.
struct PictureCost<'s> {
    /// What each element costs without what it refers to.
    own: Vec<u64>,
    /// Pixels of the image that an element is.
    pixels: &'s [u64],
    /// Looks at selectors, of the whole picture.
    matches: u64,
    links: MarkedLinks,
}

/// What each element comes to, with all that follows from it.
struct Sums {
    costs: Vec<u64>,
    /// How many elements are below each other.
    heights: Vec<u64>,
    /// Pixels of images, each time that they are painted.
    pixels: Vec<u64>,
}

impl PictureCost<'_> {
    /// How many pixels of images are painted, unless the picture comes to too much.
    fn add_up(&self) -> Result<u64, &'static str> {
        let inherited = &self.links.inherited;
        // Each pass is of marks one deeper in each other; deeper than there are marks they are not.
        let marks: HashSet<usize> = inherited.iter().map(|one| one.target).collect();
        let mut extra = Sums::none(self.own.len());
        for pass in 0..PASSES_MAX {
            let all = self.sums(&extra)?;
            let more = all.of_inherited(inherited);
            if pass >= marks.len() || more.costs == extra.costs {
                return Ok(of_picture(&all.pixels));
            }
            extra = more;
        }
        Err(TOO_OFTEN)
    }

    /// What each element comes to, unless the picture is beyond a bound; `extra` is what follows
    /// from it that is no part of the graph.
    fn sums(&self, extra: &Sums) -> Result<Sums, &'static str> {
        let MarkedLinks { graph, painted, .. } = &self.links;
        let costs_of = |number: usize| self.own[number].saturating_add(extra.costs[number]);
        let all = costs(graph, costs_of).ok_or(CIRCLE)?;
        if of_picture(&all) > COST_MAX {
            return Err(TOO_OFTEN);
        }
        if self.matches > MATCHES_MAX {
            return Err(TOO_MANY_RULES);
        }
        let heights = heights(graph, |number| extra.heights[number]).ok_or(CIRCLE)?;
        // The engine goes as deep as all that is referred to does.
        if of_picture(&heights) > u64::from(DEPTH_MAX) + 1 {
            return Err(TOO_DEEP);
        }
        let pixels_of = |number: usize| self.pixels[number].saturating_add(extra.pixels[number]);
        let pixels = costs(painted, pixels_of).ok_or(CIRCLE)?;
        Ok(Sums { costs: all, heights, pixels })
    }
}

impl Sums {
    fn none(count: usize) -> Sums {
        Sums { costs: vec![0; count], heights: vec![0; count], pixels: vec![0; count] }
    }

    /// What each element comes to by what it inherits.
    fn of_inherited(&self, inherited: &[Inherited]) -> Sums {
        let mut extra = Sums::none(self.costs.len());
        for Inherited { number, target, times } in inherited {
            let cost = self.costs[*target].saturating_mul(*times);
            let pixels = self.pixels[*target].saturating_mul(*times);
            extra.costs[*number] = extra.costs[*number].saturating_add(cost);
            extra.pixels[*number] = extra.pixels[*number].saturating_add(pixels);
            extra.heights[*number] = extra.heights[*number].max(self.heights[*target]);
        }
        extra
    }
}

/// What the outermost element comes to.
fn of_picture(sums: &[u64]) -> u64 {
    sums.first().copied().unwrap_or(0)
}
