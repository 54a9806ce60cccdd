//! What a picture comes to, before the engine gets it: each element with all that it refers to, as
//! often as it does.

use std::collections::{HashMap, HashSet};

use svgtypes::PointsParser;

use super::graph::{PASSES_MAX, costs, heights};
use super::lengths::{round_curves, widest};
use super::path::{LineSize, POINTS_MAX, TOO_MANY_POINTS, size_of_path};
use super::sheets::{
    Comparison, Rule, RuleLooks, SHEET_WALKS_MAX, TOO_MANY_RULES, is_group_property, is_line_end,
    rules_of, walks_of,
};
use super::xml::{ATTRIBUTES_MAX, TOO_MANY_ATTRIBUTES};
use super::{
    ELEMENTS_MAX, Element, ID_BYTES_MAX, SvgSummary, TOO_MANY, image_pixels, leads_out, references,
};

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

/// Whether an element says itself that it has a mask, clip path or filter of its parent.
fn says_inherit(element: &Element<'_>) -> bool {
    element.attributes.iter().any(|(name, value)| {
        if *name == "style" {
            let properties = ["mask", "clip-path", "filter"];
            value.contains("inherit") && properties.iter().any(|property| value.contains(property))
        } else {
            is_group_property(name) && value.trim() == "inherit"
        }
    })
}

/// Whether the engine does not paint an element where it is, but where something refers to it.
fn is_apart(name: &str) -> bool {
    matches!(name, "defs" | "symbol" | "marker" | "mask" | "clipPath" | "pattern" | "filter")
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

/// Whether what is behind a text is the value of a mark at one end of a line alone.
fn names_line_end(text: &str) -> bool {
    let name = text.trim_end().strip_suffix(':').map_or("", str::trim_end);
    name.ends_with("marker-start") || name.ends_with("marker-end")
}

/// Whether the engine goes where an element refers to; scripts and movement it does not know.
fn is_followed(element: &str) -> bool {
    !matches!(
        element,
        "a" | "script"
            | "set"
            | "animate"
            | "animateColor"
            | "animateMotion"
            | "animateTransform"
            | "mpath"
    )
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

pub(super) fn vet(elements: &[Element<'_>]) -> Result<SvgSummary, &'static str> {
    if elements.len() > ELEMENTS_MAX {
        return Err(TOO_MANY);
    }
    let mut vetted = SvgSummary::default();
    let mut depths: Vec<u32> = Vec::with_capacity(elements.len());
    let mut by_id: HashMap<&str, Vec<usize>> = HashMap::new();
    // The engine reads the first text of a style sheet, which may be all of them joined by then.
    let joined: Vec<String> =
        elements.iter().filter(|one| one.texts.len() > 1).map(|one| one.texts.concat()).collect();
    let mut rules: Vec<Rule<'_>> = Vec::new();
    let mut rule_looks: Vec<RuleLooks> = Vec::new();
    let mut fonts: Vec<&str> = Vec::new();
    let mut walks = 0;
    for text in elements.iter().flat_map(|one| &one.texts).chain(&joined) {
        let sheets = rules_of(text, &mut walks)?;
        rules.extend(sheets.rules);
        rule_looks.extend(sheets.looks);
        fonts.extend(sheets.fonts);
    }
    let mut lines: Vec<LineSize> = Vec::with_capacity(elements.len());
    let mut of_arcs: u64 = 0;
    let mut pixels: Vec<u64> = vec![0; elements.len()];
    // The text that an element is in.
    let mut in_text: Vec<Option<usize>> = Vec::with_capacity(elements.len());
    for (number, element) in elements.iter().enumerate() {
        let depth = element.parent.map_or(0, |parent| depths[parent] + 1);
        if depth > DEPTH_MAX {
            return Err(TOO_DEEP);
        }
        depths.push(depth);
        if element.attributes.len() > ATTRIBUTES_MAX {
            return Err(TOO_MANY_ATTRIBUTES);
        }
        in_text.push(match element.name {
            "text" => Some(number),
            _ => element.parent.and_then(|parent| in_text[parent]),
        });
        for style in element.values("style") {
            walks = walks.saturating_add(walks_of(style));
        }
        if walks > SHEET_WALKS_MAX {
            return Err(TOO_MANY_RULES);
        }
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
        if line.segments > POINTS_MAX {
            return Err(TOO_MANY_POINTS);
        }
        // Each one costs that where it is, however often it is used.
        of_arcs += line.of_arcs / COST_CURVES;
        if of_arcs > COST_MAX {
            return Err(TOO_OFTEN);
        }
        lines.push(line);
        vetted.lacks.extend(lack_of(element.name));
        vetted.has_text |= element.name == "text";
        for id in element.values("id") {
            if id.len() > ID_BYTES_MAX {
                return Err("a name in it is longer than is taken");
            }
            // Of several the engine takes the first or the last, by who refers to them.
            by_id.entry(id).or_default().push(number);
            if element.name == "pattern" {
                vetted.patterns.insert(id.to_owned());
            }
        }
        for (name, value) in &element.attributes {
            if *name == "href" && matches!(element.name, "image" | "feImage") {
                let of_image = image_pixels(value).unwrap_or(0);
                vetted.pixels = vetted.pixels.saturating_add(of_image);
                if element.name == "image" {
                    pixels[number] = pixels[number].saturating_add(of_image);
                }
                if leads_out(element.name, name, value) {
                    vetted.lacks.insert("images that are not in it");
                }
            }
        }
    }
    // By the words of their selectors, but for those that may be of any element.
    let mut by_word: HashMap<&str, Vec<usize>> = HashMap::new();
    let mut of_all: Vec<usize> = Vec::new();
    for (number, rule) in rules.iter().enumerate() {
        match &rule.word {
            Some(word) => by_word.entry(word).or_default().push(number),
            None => of_all.push(number),
        }
    }
    let comparison = Comparison::new(&rule_looks, elements);
    // Looks at selectors for each element.
    let mut matches: Vec<u64> = Vec::with_capacity(elements.len());
    let mut all_matches: u64 = 0;
    // Letters that are in each text, with those of elsewhere.
    let mut letters: Vec<u64> = vec![0; elements.len()];
    let mut under: Vec<u64> = elements.iter().map(|element| element.letters as u64).collect();
    for (number, element) in elements.iter().enumerate().rev() {
        if let Some(parent) = element.parent {
            under[parent] += under[number];
        }
    }
    let mut looks = 0;
    let mut graph: Vec<Vec<(usize, u64)>> = vec![Vec::new(); elements.len()];
    // What is painted as a part of an element, and so has its marks and colours.
    let mut drawn: Vec<Vec<(usize, u64)>> = vec![Vec::new(); elements.len()];
    // Marks and colours that an element names, for itself and all that is painted as a part of it;
    // whether at each point, or once for each shape.
    let mut passed: Vec<Vec<(usize, bool)>> = vec![Vec::new(); elements.len()];
    // Masks, clip paths and filters of an element, and whether it has those of its parent.
    let mut groups: Vec<Vec<usize>> = vec![Vec::new(); elements.len()];
    let mut inherits: Vec<bool> = Vec::with_capacity(elements.len());
    let mut uses: Vec<(usize, usize)> = Vec::new();
    // What is read with an element: what is in it, and what it uses.
    let mut reads: Vec<Vec<(usize, u64)>> = vec![Vec::new(); elements.len()];
    // What is painted elsewhere, with the marks and colours of where it is.
    let mut apart: Vec<usize> = Vec::new();
    for (number, element) in elements.iter().enumerate() {
        if let Some(parent) = element.parent {
            graph[parent].push((number, 1));
            reads[parent].push((number, 1));
            if !is_apart(element.name) {
                drawn[parent].push((number, 1));
            }
        }
        if matches!(element.name, "marker" | "mask" | "pattern") {
            apart.push(number);
        }
        let mut hrefs: Vec<&str> = Vec::new();
        // With each, whether it would be a mark at an end of a line.
        let mut targets: Vec<(&str, bool)> = Vec::new();
        for (name, value) in &element.attributes {
            if *name == "href" && is_followed(element.name) {
                let name = value.trim_start().strip_prefix('#');
                hrefs.extend(name.and_then(|name| name.split(' ').next()));
            }
            for (range, id) in references(value) {
                let at_end =
                    is_line_end(name) || *name == "style" && names_line_end(&value[..range.start]);
                targets.push((id, at_end));
            }
        }
        let words: HashSet<&str> = std::iter::once(element.name)
            .chain(element.values("id"))
            .chain(element.values("class").flat_map(str::split_ascii_whitespace))
            .chain(element.values("class").flat_map(|value| value.split(' ')))
            .collect();
        let styles = element.values("style").map(|style| (walks_of(style) / COST_WALKS) as u64);
        let looked = comparison.looks(element, &words, depths[number]);
        let looked = styles.fold(looked, u64::saturating_add);
        // Each one is compared once where it is.
        all_matches = all_matches.saturating_add(looked);
        if all_matches > MATCHES_MAX {
            return Err(TOO_MANY_RULES);
        }
        matches.push(looked);
        let mut its = of_all.clone();
        for found in words.into_iter().filter_map(|word| by_word.get(word)) {
            looks += found.len();
            if looks > RULE_LOOKS_MAX {
                return Err(TOO_OFTEN);
            }
            its.extend(found);
        }
        its.sort_unstable();
        its.dedup();
        let mut inherits_here = says_inherit(element);
        for rule in its {
            looks += 1 + rules[rule].ids.len();
            if looks > RULE_LOOKS_MAX {
                return Err(TOO_OFTEN);
            }
            inherits_here |= rules[rule].inherits;
            targets.extend(rules[rule].ids.iter().copied());
        }
        inherits.push(inherits_here);
        if let Some(text) = in_text[number] {
            letters[text] = letters[text].saturating_add(element.letters as u64);
        }
        for target in hrefs.into_iter().filter_map(|id| by_id.get(id)).flatten().copied() {
            looks += 1;
            if looks > RULE_LOOKS_MAX {
                return Err(TOO_OFTEN);
            }
            graph[number].push((target, 1));
            if element.name == "use" {
                drawn[number].push((target, 1));
                reads[number].push((target, 1));
                uses.push((number, target));
            } else if element.name == "feImage" {
                apart.push(target);
            } else if let ("tref", Some(text)) = (element.name, in_text[number]) {
                letters[text] = letters[text].saturating_add(under[target]);
            }
        }
        for (id, at_end) in targets {
            for target in by_id.get(id).into_iter().flatten().copied() {
                looks += 1;
                if looks > RULE_LOOKS_MAX {
                    return Err(TOO_OFTEN);
                }
                match elements[target].name {
                    "marker" => passed[number].push((target, !at_end)),
                    "linearGradient" | "radialGradient" | "pattern" => {
                        passed[number].push((target, false));
                    }
                    name => {
                        graph[number].push((target, 1));
                        if matches!(name, "mask" | "clipPath" | "filter") {
                            groups[number].push(target);
                        }
                    }
                }
            }
        }
        if let (true, Some(parent)) = (inherits_here, element.parent) {
            let of_parent = groups[parent].clone();
            looks += of_parent.len();
            if looks > RULE_LOOKS_MAX {
                return Err(TOO_OFTEN);
            }
            // None is a part of itself to the engine.
            for target in of_parent.into_iter().filter(|target| *target != number) {
                graph[number].push((target, 1));
                groups[number].push(target);
            }
        }
    }
    // The parent of what is used is what uses it.
    if uses.iter().any(|(by, target)| inherits[*target] && !groups[*by].is_empty()) {
        return Err("a part of it inherits a mask, clip path or filter from what uses it");
    }
    // An element is read as often as it is used, and compared with all rules each time.
    let matches = costs(&reads, |number| matches[number]).ok_or(CIRCLE)?;
    let widest = widest(elements, &fonts, &graph).ok_or(CIRCLE)?;
    let rounds: Vec<u64> = elements.iter().map(|element| round_curves(element, widest)).collect();
    let shapes =
        costs(&drawn, |number| shapes_of(&elements[number], lines[number])).ok_or(CIRCLE)?;
    let points =
        costs(&drawn, |number| points_of(&elements[number], lines[number], rounds[number]))
            .ok_or(CIRCLE)?;
    let often =
        |number: usize, at_points: bool| if at_points { points[number] } else { shapes[number] };
    // No part of the graph: that a mark is within an element that names it leads in no circle,
    // since the engine paints no mark within itself.
    let mut inherited: Vec<(usize, usize, u64)> = Vec::new();
    // What is painted where it is, with its marks.
    let mut painted = drawn;
    let mut in_mark: Vec<bool> = Vec::with_capacity(elements.len());
    for (number, its) in passed.iter().enumerate() {
        let element = &elements[number];
        let is_within =
            element.name == "marker" || element.parent.is_some_and(|parent| in_mark[parent]);
        in_mark.push(is_within);
        for (target, at_points) in its {
            let times = often(number, *at_points).max(1);
            let is_mark = elements[*target].name == "marker";
            // A rule for all lines is one for those of the mark that it names, too.
            if is_mark && is_within {
                if inherited.len() as u64 > COST_MAX {
                    return Err(TOO_OFTEN);
                }
                inherited.push((number, *target, times));
                continue;
            }
            graph[number].push((*target, times));
            if is_mark {
                painted[number].push((*target, times));
            }
        }
    }
    // The next ancestor of each that names marks or colours.
    let mut above: Vec<Option<usize>> = Vec::with_capacity(elements.len());
    for element in elements {
        let next = element.parent.and_then(|parent| {
            if passed[parent].is_empty() { above[parent] } else { Some(parent) }
        });
        above.push(next);
    }
    apart.sort_unstable();
    apart.dedup();
    for number in apart {
        let mut next = above[number];
        while let Some(ancestor) = next {
            for (target, at_points) in &passed[ancestor] {
                looks += 1;
                // Each one costs at least one.
                if looks > RULE_LOOKS_MAX || inherited.len() as u64 > COST_MAX {
                    return Err(TOO_OFTEN);
                }
                let times = often(number, *at_points);
                if *target != number && times > 0 {
                    inherited.push((number, *target, times));
                }
            }
            next = above[ancestor];
        }
    }
    let attributes: usize = elements.iter().map(|element| element.attributes.len()).sum();
    let looked_through = (elements.len() + attributes) as u64 / COST_LOOKED_THROUGH;
    let own = |number: usize| {
        let element = &elements[number];
        let values: usize = element.attributes.iter().map(|(_, value)| value.len()).sum();
        let bytes = values.saturating_add(element.letters);
        let text = letters[number];
        // For its text the engine looks through the whole picture.
        let through = if element.name == "tref" { looked_through } else { 0 };
        1 + (bytes / COST_BYTES) as u64
            + (rounds[number] + lines[number].of_arcs) / COST_CURVES
            + lines[number].segments / COST_SEGMENTS
            + through
            + text / COST_LETTERS
            + text.saturating_mul(text) / TEXT_LETTERS
    };
    // Each pass is of marks one deeper in each other; deeper than there are marks they are not.
    let marks: HashSet<usize> = inherited.iter().map(|(_, target, _)| *target).collect();
    let mut extra: Vec<u64> = vec![0; elements.len()];
    let mut extra_height: Vec<u64> = vec![0; elements.len()];
    let mut extra_pixels: Vec<u64> = vec![0; elements.len()];
    for pass in 0..PASSES_MAX {
        let all =
            costs(&graph, |number| own(number).saturating_add(extra[number])).ok_or(CIRCLE)?;
        if all.first().is_some_and(|cost| *cost > COST_MAX) {
            return Err(TOO_OFTEN);
        }
        if matches.first().is_some_and(|all| *all > MATCHES_MAX) {
            return Err(TOO_MANY_RULES);
        }
        // The engine goes as deep as all that is referred to does.
        let height = heights(&graph, |number| extra_height[number]).ok_or(CIRCLE)?;
        if height.first().is_some_and(|height| *height > u64::from(DEPTH_MAX) + 1) {
            return Err(TOO_DEEP);
        }
        let of_images =
            costs(&painted, |number| pixels[number].saturating_add(extra_pixels[number]))
                .ok_or(CIRCLE)?;
        let mut more: Vec<u64> = vec![0; elements.len()];
        extra_height.fill(0);
        extra_pixels.fill(0);
        for (number, target, times) in &inherited {
            more[*number] = more[*number].saturating_add(all[*target].saturating_mul(*times));
            extra_height[*number] = extra_height[*number].max(height[*target]);
            extra_pixels[*number] =
                extra_pixels[*number].saturating_add(of_images[*target].saturating_mul(*times));
        }
        if pass >= marks.len() || more == extra {
            // Each time that one is painted it is unpacked.
            vetted.pixels = vetted.pixels.max(of_images.first().copied().unwrap_or(0));
            return Ok(vetted);
        }
        extra = more;
    }
    Err(TOO_OFTEN)
}
