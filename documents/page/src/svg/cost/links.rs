//! What the elements of a picture refer to: by their place, by addresses, by names in their
//! attributes, and by the rules of style sheets that may be theirs. Nothing is added up here; how
//! much is looked at is bounded.
//!
//! Marks and colours are apart from the other links: how often they are painted depends on the
//! shapes that have them, which is known once all links are.

use std::collections::{HashMap, HashSet};

use super::survey::Survey;
use super::{COST_WALKS, Looks, MATCHES_MAX};
use crate::svg::sheets::{
    Comparison, Rule, Sheets, TOO_MANY_RULES, is_group_property, is_line_end, walks_of,
};
use crate::svg::{Element, references};

/// Which elements follow from each one, and how often.
pub(super) type Graph = Vec<Vec<(usize, u64)>>;

/// What was found. Lists have an entry for each element, in their order.
pub(super) struct Links {
    /// What is in an element, and what it refers to, without marks and colours.
    pub(super) graph: Graph,
    /// What is painted as a part of an element, and so has its marks and colours.
    pub(super) drawn: Graph,
    /// What is read with an element: what is in it, and what it uses.
    pub(super) reads: Graph,
    /// Marks and colours that an element names, for itself and all that is painted as a part of it.
    pub(super) passed: Vec<Vec<PassedOn>>,
    /// Elements that are painted elsewhere, with the marks and colours of where they are; each one
    /// once.
    pub(super) apart: Vec<usize>,
    /// Looks at selectors.
    pub(super) matches: Vec<u64>,
    /// Letters that are in a text, with those of elsewhere.
    pub(super) letters: Vec<u64>,
    /// Looks at rules and at what is referred to, so far.
    pub(super) looks: Looks,
}

/// A mark or a colour that an element names.
#[derive(Clone, Copy)]
pub(super) struct PassedOn {
    pub(super) target: usize,
    /// Whether it is painted at each point of a shape, or once.
    pub(super) at_points: bool,
}

impl Links {
    pub(super) fn new(
        elements: &[Element<'_>],
        survey: &Survey<'_>,
        sheets: &Sheets<'_>,
    ) -> Result<Links, &'static str> {
        let mut walk = LinkWalk::new(elements, survey, sheets);
        for (number, element) in elements.iter().enumerate() {
            walk.add(number, element)?;
        }
        walk.end()
    }
}

/// The walk over the elements that finds their links.
struct LinkWalk<'p> {
    elements: &'p [Element<'p>],
    survey: &'p Survey<'p>,
    rules: RuleIndex<'p>,
    /// Letters in an element, and in all that is below it.
    under: Vec<u64>,
    /// Looks at selectors so far, of each element once.
    all_matches: u64,
    /// Masks, clip paths and filters of an element.
    groups: Vec<Vec<usize>>,
    /// Whether an element has those of its parent.
    inherits: Vec<bool>,
    /// Which element uses which.
    uses: Vec<(usize, usize)>,
    links: Links,
}

impl<'p> LinkWalk<'p> {
    fn new(
        elements: &'p [Element<'p>],
        survey: &'p Survey<'p>,
        sheets: &'p Sheets<'p>,
    ) -> LinkWalk<'p> {
        let count = elements.len();
        LinkWalk {
            elements,
            survey,
            rules: RuleIndex::new(sheets, elements),
            under: letters_under(elements),
            all_matches: 0,
            groups: vec![Vec::new(); count],
            inherits: Vec::with_capacity(count),
            uses: Vec::new(),
            links: Links {
                graph: vec![Vec::new(); count],
                drawn: vec![Vec::new(); count],
                reads: vec![Vec::new(); count],
                passed: vec![Vec::new(); count],
                apart: Vec::new(),
                matches: Vec::with_capacity(count),
                letters: vec![0; count],
                looks: Looks::default(),
            },
        }
    }

    fn add(&mut self, number: usize, element: &'p Element<'p>) -> Result<(), &'static str> {
        self.add_place(number, element);
        let mut names = Names::of(element);
        let words = words_of(element);
        self.add_matches(number, element, &words)?;
        let mut inherits = says_inherit(element);
        for rule in self.rules.find(words, &mut self.links.looks)? {
            let rule = &self.rules.all[rule];
            self.links.looks.add(1 + rule.ids.len())?;
            inherits |= rule.inherits;
            names.properties.extend(rule.ids.iter().copied());
        }
        self.inherits.push(inherits);
        if let Some(text) = self.survey.in_text[number] {
            self.add_letters(text, element.letters as u64);
        }
        self.add_addressed(number, element, names.addresses)?;
        self.add_named(number, names.properties)?;
        match element.parent {
            Some(parent) if inherits => self.add_groups_of(parent, number),
            _ => Ok(()),
        }
    }

    /// Links an element to its parent.
    fn add_place(&mut self, number: usize, element: &Element<'_>) {
        if let Some(parent) = element.parent {
            self.links.graph[parent].push((number, 1));
            self.links.reads[parent].push((number, 1));
            if !is_apart(element.name) {
                self.links.drawn[parent].push((number, 1));
            }
        }
        if matches!(element.name, "marker" | "mask" | "pattern") {
            self.links.apart.push(number);
        }
    }

    /// Counts the looks at selectors that an element comes to.
    fn add_matches(
        &mut self,
        number: usize,
        element: &Element<'_>,
        words: &HashSet<&str>,
    ) -> Result<(), &'static str> {
        let styles = element.values("style").map(|style| (walks_of(style) / COST_WALKS) as u64);
        let looked = self.rules.comparison.looks(element, words, self.survey.depths[number]);
        let looked = styles.fold(looked, u64::saturating_add);
        // Each one is compared once where it is.
        self.all_matches = self.all_matches.saturating_add(looked);
        if self.all_matches > MATCHES_MAX {
            return Err(TOO_MANY_RULES);
        }
        self.links.matches.push(looked);
        Ok(())
    }

    fn add_letters(&mut self, text: usize, letters: u64) {
        let all = &mut self.links.letters[text];
        *all = all.saturating_add(letters);
    }

    /// Links an element to what its addresses lead to.
    fn add_addressed(
        &mut self,
        number: usize,
        element: &Element<'_>,
        ids: Vec<&str>,
    ) -> Result<(), &'static str> {
        let survey = self.survey;
        for target in ids.into_iter().filter_map(|id| survey.by_id.get(id)).flatten().copied() {
            self.links.looks.add(1)?;
            self.links.graph[number].push((target, 1));
            if element.name == "use" {
                self.links.drawn[number].push((target, 1));
                self.links.reads[number].push((target, 1));
                self.uses.push((number, target));
            } else if element.name == "feImage" {
                self.links.apart.push(target);
            } else if let ("tref", Some(text)) = (element.name, survey.in_text[number]) {
                self.add_letters(text, self.under[target]);
            }
        }
        Ok(())
    }

    /// Links an element to what its properties name. With each id, whether it would be a mark at
    /// an end of a line.
    fn add_named(&mut self, number: usize, ids: Vec<(&str, bool)>) -> Result<(), &'static str> {
        let survey = self.survey;
        for (id, at_end) in ids {
            for target in survey.by_id.get(id).into_iter().flatten().copied() {
                self.links.looks.add(1)?;
                let passed = &mut self.links.passed[number];
                match self.elements[target].name {
                    "marker" => passed.push(PassedOn { target, at_points: !at_end }),
                    "linearGradient" | "radialGradient" | "pattern" => {
                        passed.push(PassedOn { target, at_points: false });
                    }
                    name => {
                        self.links.graph[number].push((target, 1));
                        if matches!(name, "mask" | "clipPath" | "filter") {
                            self.groups[number].push(target);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Links an element to the masks, clip paths and filters of its parent.
    fn add_groups_of(&mut self, parent: usize, number: usize) -> Result<(), &'static str> {
        let of_parent = self.groups[parent].clone();
        self.links.looks.add(of_parent.len())?;
        // None is a part of itself to the engine.
        for target in of_parent.into_iter().filter(|target| *target != number) {
            self.links.graph[number].push((target, 1));
            self.groups[number].push(target);
        }
        Ok(())
    }

    fn end(mut self) -> Result<Links, &'static str> {
        // The parent of what is used is what uses it.
        let has_groups = |by: usize| !self.groups[by].is_empty();
        if self.uses.iter().any(|(by, target)| self.inherits[*target] && has_groups(*by)) {
            return Err("a part of it inherits a mask, clip path or filter from what uses it");
        }
        self.links.apart.sort_unstable();
        self.links.apart.dedup();
        Ok(self.links)
    }
}

/// The rules of style sheets, by the elements that they may be of.
struct RuleIndex<'s> {
    /// Those that refer to something.
    all: &'s [Rule<'s>],
    by_word: HashMap<&'s str, Vec<usize>>,
    /// Rules that may be of any element.
    of_any: Vec<usize>,
    comparison: Comparison<'s>,
}

impl<'s> RuleIndex<'s> {
    fn new(sheets: &'s Sheets<'s>, elements: &[Element<'_>]) -> RuleIndex<'s> {
        let mut by_word: HashMap<&'s str, Vec<usize>> = HashMap::new();
        let mut of_any: Vec<usize> = Vec::new();
        for (number, rule) in sheets.rules.iter().enumerate() {
            match rule.word.as_deref() {
                Some(word) => by_word.entry(word).or_default().push(number),
                None => of_any.push(number),
            }
        }
        let comparison = Comparison::new(&sheets.looks, elements);
        RuleIndex { all: &sheets.rules, by_word, of_any, comparison }
    }

    /// The rules that may be of an element with these words, by their numbers.
    fn find(&self, words: HashSet<&str>, looks: &mut Looks) -> Result<Vec<usize>, &'static str> {
        let mut found = self.of_any.clone();
        for rules in words.into_iter().filter_map(|word| self.by_word.get(word)) {
            looks.add(rules.len())?;
            found.extend(rules);
        }
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }
}

/// The ids that an element names itself.
struct Names<'p> {
    addresses: Vec<&'p str>,
    /// With each, whether it would be a mark at an end of a line.
    properties: Vec<(&'p str, bool)>,
}

impl<'p> Names<'p> {
    fn of(element: &'p Element<'_>) -> Names<'p> {
        let mut names = Names { addresses: Vec::new(), properties: Vec::new() };
        for (name, value) in &element.attributes {
            if *name == "href" && is_followed(element.name) {
                let id = value.trim_start().strip_prefix('#');
                names.addresses.extend(id.and_then(|id| id.split(' ').next()));
            }
            for (range, id) in references(value) {
                let at_end =
                    is_line_end(name) || *name == "style" && names_line_end(&value[..range.start]);
                names.properties.push((id, at_end));
            }
        }
        names
    }
}

/// By what rules find an element.
fn words_of<'p>(element: &'p Element<'_>) -> HashSet<&'p str> {
    std::iter::once(element.name)
        .chain(element.values("id"))
        .chain(element.values("class").flat_map(str::split_ascii_whitespace))
        .chain(element.values("class").flat_map(|value| value.split(' ')))
        .collect()
}

/// The letters in each element, and in all that is below it.
fn letters_under(elements: &[Element<'_>]) -> Vec<u64> {
    let mut under: Vec<u64> = elements.iter().map(|element| element.letters as u64).collect();
    for (number, element) in elements.iter().enumerate().rev() {
        if let Some(parent) = element.parent {
            under[parent] += under[number];
        }
    }
    under
}

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
