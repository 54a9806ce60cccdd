//! What a walk over the elements of a picture finds in each one by itself: how deep it is, its ids,
//! its line, its images and the text that it is in. Style sheets, and what refers to what, are not
//! looked at here.

use std::collections::HashMap;

use svgtypes::PointsParser;

use super::{COST_CURVES, COST_MAX, DEPTH_MAX, TOO_DEEP, TOO_OFTEN};
use crate::svg::path::{LineSize, POINTS_MAX, TOO_MANY_POINTS, size_of_path};
use crate::svg::sheets::{SHEET_WALKS_MAX, TOO_MANY_RULES, walks_of};
use crate::svg::xml::{ATTRIBUTES_MAX, TOO_MANY_ATTRIBUTES};
use crate::svg::{Element, ID_BYTES_MAX, SvgSummary, image_pixels, leads_out};

/// What was found. Lists have an entry for each element, in their order.
pub(super) struct Survey<'p> {
    /// What is found in the picture, with the pixels of each image once.
    pub(super) summary: SvgSummary,
    pub(super) depths: Vec<u32>,
    /// The elements of an id. Of several the engine takes the first or the last, by who refers to
    /// them.
    pub(super) by_id: HashMap<&'p str, Vec<usize>>,
    pub(super) lines: Vec<LineSize>,
    /// Pixels of the image that an element is.
    pub(super) pixels: Vec<u64>,
    /// The text that an element is in.
    pub(super) in_text: Vec<Option<usize>>,
    /// How far the parser of style sheets walks, so far: see [`walks_of`].
    walks: usize,
    /// What the curves of arcs come to so far, where they are.
    arc_costs: u64,
}

impl<'p> Survey<'p> {
    /// Walks over the elements; `walks` is what the parser of style sheets came to before.
    pub(super) fn new(
        elements: &'p [Element<'_>],
        walks: usize,
    ) -> Result<Survey<'p>, &'static str> {
        let mut survey = Survey {
            summary: SvgSummary::default(),
            depths: Vec::with_capacity(elements.len()),
            by_id: HashMap::new(),
            lines: Vec::with_capacity(elements.len()),
            pixels: Vec::with_capacity(elements.len()),
            in_text: Vec::with_capacity(elements.len()),
            walks,
            arc_costs: 0,
        };
        for (number, element) in elements.iter().enumerate() {
            survey.add_place(number, element)?;
            survey.add_styles(element)?;
            survey.add_line(element)?;
            survey.add_ids(number, element)?;
            survey.add_images(element);
            survey.summary.lacks.extend(lack_of(element.name));
            survey.summary.has_text |= element.name == "text";
        }
        Ok(survey)
    }

    fn add_place(&mut self, number: usize, element: &Element<'_>) -> Result<(), &'static str> {
        let depth = element.parent.map_or(0, |parent| self.depths[parent] + 1);
        if depth > DEPTH_MAX {
            return Err(TOO_DEEP);
        }
        self.depths.push(depth);
        if element.attributes.len() > ATTRIBUTES_MAX {
            return Err(TOO_MANY_ATTRIBUTES);
        }
        let text = match element.name {
            "text" => Some(number),
            _ => element.parent.and_then(|parent| self.in_text[parent]),
        };
        self.in_text.push(text);
        Ok(())
    }

    /// Counts what the parser of style sheets does with an element's own style.
    fn add_styles(&mut self, element: &Element<'_>) -> Result<(), &'static str> {
        for style in element.values("style") {
            self.walks = self.walks.saturating_add(walks_of(style));
        }
        if self.walks > SHEET_WALKS_MAX { Err(TOO_MANY_RULES) } else { Ok(()) }
    }

    fn add_line(&mut self, element: &Element<'_>) -> Result<(), &'static str> {
        let line = line_of(element)?;
        if line.segments > POINTS_MAX {
            return Err(TOO_MANY_POINTS);
        }
        // Each one costs that where it is, however often it is used.
        self.arc_costs += line.of_arcs / COST_CURVES;
        if self.arc_costs > COST_MAX {
            return Err(TOO_OFTEN);
        }
        self.lines.push(line);
        Ok(())
    }

    fn add_ids(&mut self, number: usize, element: &'p Element<'_>) -> Result<(), &'static str> {
        for id in element.values("id") {
            if id.len() > ID_BYTES_MAX {
                return Err("a name in it is longer than is taken");
            }
            self.by_id.entry(id).or_default().push(number);
            if element.name == "pattern" {
                self.summary.patterns.insert(id.to_owned());
            }
        }
        Ok(())
    }

    fn add_images(&mut self, element: &Element<'_>) {
        let mut painted: u64 = 0;
        if matches!(element.name, "image" | "feImage") {
            for address in element.values("href") {
                let pixels = image_pixels(address).unwrap_or(0);
                self.summary.pixels = self.summary.pixels.saturating_add(pixels);
                if element.name == "image" {
                    painted = painted.saturating_add(pixels);
                }
                if leads_out(element.name, "href", address) {
                    self.summary.lacks.insert("images that are not in it");
                }
            }
        }
        self.pixels.push(painted);
    }
}

/// The line that an element is: the longest, if it says several.
fn line_of(element: &Element<'_>) -> Result<LineSize, &'static str> {
    let mut line = LineSize::default();
    if element.name == "path" {
        for data in element.values("d") {
            let size = size_of_path(data)?;
            line.segments = line.segments.max(size.segments);
            line.of_arcs = line.of_arcs.max(size.of_arcs);
        }
    } else if matches!(element.name, "polyline" | "polygon") {
        for points in element.values("points") {
            line.segments = line.segments.max(PointsParser::from(points).count() as u64 + 1);
        }
    }
    Ok(line)
}

/// What the engine does not know, and what it is called.
fn lack_of(name: &str) -> Option<&'static str> {
    Some(match name {
        "pattern" => "patterns",
        "filter" => "filters",
        "mask" => "masks",
        "foreignObject" => "HTML within it",
        "animate" | "animateTransform" | "animateMotion" | "set" => "movement",
        "script" => "scripts",
        _ => return None,
    })
}
