//! Style sheets of a picture, read by the engine's own parser: what their rules refer to, and what
//! it comes to that they are read, and compared with elements.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};

use simplecss::{AttributeOperator, PseudoClass, StyleSheet};

use super::lengths::is_font_size;
use super::{Element, references};

/// What the engine's parser of style sheets may come to: it walks from the start to where it is for
/// each declaration and each number, copies the declarations of a rule for each of its selectors,
/// and recurses on comments.
pub(super) const SHEET_WALKS_MAX: usize = 8_000_000_000;
const SHEET_COPIES_MAX: usize = 32 << 20;
const SHEET_COMMENTS_MAX: usize = 1_000;
/// Steps of a selector from an element to others. A selector with as many is refused: up, they cost
/// more than is taken as soon as elements are as deep, and beside it, as soon as there are as many.
const STEPS_MAX: u32 = 64;
/// What it costs to write a declaration to an element, in looks at selectors.
const DECLARATION_LOOKS: u64 = 16;
/// Attributes, and bytes of a value that is split, that cost as much to go through as a look.
const LOOK_ATTRIBUTES: usize = 8;
const LOOK_BYTES: usize = 64;
pub(super) const TOO_MANY_RULES: &str = "its style sheets have more rules than are taken";

/// A rule of the picture's style sheets that refers to something: which elements it may be of, and
/// to what.
pub(super) struct Rule<'a> {
    /// Their name, class or id; none, if it may be of any.
    pub(super) word: Option<String>,
    /// With each, whether it would be a mark at an end of a line.
    pub(super) ids: Vec<(&'a str, bool)>,
    /// Whether they have a mask, clip path or filter of their parent.
    pub(super) inherits: bool,
}

/// What it comes to that a rule is compared with elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleLooks {
    /// As of [`Rule`].
    pub(super) word: Option<String>,
    /// Steps to other elements.
    pub(super) steps: u32,
    /// What the selector asks of an element that has the word, and of all elements that its steps
    /// lead to.
    pub(super) all: Asks,
    /// What the selector asks of an element without the word.
    pub(super) first: Asks,
    /// Whether values are split that are no classes.
    pub(super) splits: bool,
    pub(super) declarations: u64,
}

/// What a selector asks of elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Asks {
    /// Names, attributes and states.
    pub(super) count: u64,
    /// For what is before an element: all nodes up to the element there are gone through.
    pub(super) back: u64,
}

/// The style sheets of a picture.
#[derive(Default)]
pub(super) struct Sheets<'s> {
    /// Those that refer to something.
    pub(super) rules: Vec<Rule<'s>>,
    /// All rules.
    pub(super) looks: Vec<RuleLooks>,
    /// Values of sizes of fonts.
    pub(super) fonts: Vec<&'s str>,
}

pub(super) fn is_group_property(name: &str) -> bool {
    matches!(name, "mask" | "clip-path" | "filter")
}

/// Whether a property is a mark at one end of a line alone.
pub(super) fn is_line_end(name: &str) -> bool {
    matches!(name, "marker-start" | "marker-end")
}

/// How far the parser of style sheets walks: from the start to where it is, wherever it finds no
/// word. So it is at the end of a declaration, and behind each number and colour without letters.
/// Within the letters that bytes are written in there are next to none.
pub(super) fn walks_of(style: &str) -> usize {
    let bytes = style.as_bytes();
    let stops = bytes.iter().enumerate().filter(|(place, byte)| {
        let behind = |count| place.checked_sub(count).map_or(b' ', |at| bytes[at]);
        let before = behind(1);
        let after = bytes.get(place + 1).copied().unwrap_or(b' ');
        match byte {
            b',' | b':' | b'{' | b'@' => true,
            b'-' => !before.is_ascii_alphabetic(),
            b'+' | b'.' | b'#' => !after.is_ascii_alphabetic(),
            b'0'..=b'9' => match before {
                b'.' | b'-' | b'+' | b'_' | b'#' => false,
                // A value ends at a stroke, if it is not the end of a comment.
                b'/' => behind(2) == b'*',
                _ => !before.is_ascii_alphanumeric(),
            },
            _ => false,
        }
    });
    stops.count().saturating_mul(style.len())
}

/// Reads all style sheets of a picture. `walks` is what the parser came to.
pub(super) fn sheets_of<'s>(
    texts: impl Iterator<Item = &'s String>,
    walks: &mut usize,
) -> Result<Sheets<'s>, &'static str> {
    let mut all = Sheets::default();
    for text in texts {
        let sheets = rules_of(text, walks)?;
        all.rules.extend(sheets.rules);
        all.looks.extend(sheets.looks);
        all.fonts.extend(sheets.fonts);
    }
    Ok(all)
}

/// Reads a style sheet as the engine does, by the same parser. `walks` is what that came to.
pub(super) fn rules_of<'s>(sheet: &'s str, walks: &mut usize) -> Result<Sheets<'s>, &'static str> {
    let count = |sign: u8| sheet.bytes().filter(|byte| *byte == sign).count();
    let (commas, declarations) = (count(b','), count(b':'));
    *walks = walks.saturating_add(walks_of(sheet));
    if *walks > SHEET_WALKS_MAX
        || commas.saturating_mul(declarations) > SHEET_COPIES_MAX
        || sheet.matches("/*").count() > SHEET_COMMENTS_MAX
    {
        return Err(TOO_MANY_RULES);
    }
    let mut sheets = Sheets::default();
    for rule in StyleSheet::parse(sheet).rules {
        let mut ids = Vec::new();
        let mut inherits = false;
        for declaration in &rule.declarations {
            inherits |=
                is_group_property(declaration.name) && declaration.value.trim() == "inherit";
            let at_end = is_line_end(declaration.name);
            ids.extend(references(declaration.value).into_iter().map(|(_, id)| (id, at_end)));
            if is_font_size(declaration.name) {
                sheets.fonts.push(declaration.value);
            }
        }
        let probe = SelectorProbe::default();
        // What it says is known; what it asks is not.
        let _ = rule.selector.matches(&&probe);
        let looks = probe.looks(rule.declarations.len() as u64);
        if looks.steps >= STEPS_MAX {
            return Err(TOO_MANY_RULES);
        }
        if inherits || !ids.is_empty() {
            sheets.rules.push(Rule { word: looks.word.clone(), ids, inherits });
        }
        sheets.looks.push(looks);
    }
    Ok(sheets)
}

/// An element that every selector is of, and all around it. It counts what they are asked, and
/// notes the class or id that a selector needs first of the element itself, or else its name.
#[derive(Default)]
struct SelectorProbe {
    steps: Cell<u32>,
    all: Cell<Asks>,
    /// Once it is known.
    first: Cell<Option<Asks>>,
    word: RefCell<Option<String>>,
    splits: Cell<bool>,
}

impl SelectorProbe {
    fn ask(&self, back: u64) {
        let all = self.all.get();
        self.all.set(Asks { count: all.count + 1, back: all.back + back });
    }

    /// No more is asked of an element that has not the word.
    fn end_first(&self) {
        self.first.set(self.first.get().or(Some(self.all.get())));
    }

    fn note(&self, word: &str) {
        if self.first.get().is_none() {
            *self.word.borrow_mut() = Some(word.to_owned());
        }
    }

    fn step(&self) -> Option<&SelectorProbe> {
        self.end_first();
        let steps = self.steps.get();
        if steps >= STEPS_MAX {
            return None;
        }
        self.steps.set(steps + 1);
        Some(self)
    }

    fn looks(&self, declarations: u64) -> RuleLooks {
        self.end_first();
        RuleLooks {
            word: self.word.take().filter(|word| !word.is_empty()),
            steps: self.steps.get(),
            all: self.all.get(),
            first: self.first.get().unwrap_or_default(),
            splits: self.splits.get(),
            declarations,
        }
    }
}

impl simplecss::Element for &SelectorProbe {
    fn parent_element(&self) -> Option<Self> {
        self.step()
    }

    fn prev_sibling_element(&self) -> Option<Self> {
        let next = self.step();
        self.ask(1);
        next
    }

    fn has_local_name(&self, name: &str) -> bool {
        self.ask(0);
        self.note(name);
        true
    }

    fn attribute_matches(&self, local_name: &str, operator: AttributeOperator<'_>) -> bool {
        self.ask(0);
        match (local_name, operator) {
            ("class", AttributeOperator::Contains(word))
            | ("id", AttributeOperator::Matches(word)) => {
                self.note(word);
                self.end_first();
            }
            (_, AttributeOperator::Contains(_)) => self.splits.set(true),
            _ => {}
        }
        true
    }

    fn pseudo_class_matches(&self, _: PseudoClass<'_>) -> bool {
        self.ask(1);
        true
    }
}

/// What it comes to that all rules are compared with an element.
pub(super) struct Comparison<'r> {
    /// How many rules there are, and what they ask of an element that has none of their words.
    rules: u64,
    first: Asks,
    by_word: HashMap<Option<&'r str>, OfWord>,
    /// Whether values are split that are no classes.
    splits: bool,
    /// The most that an ask costs of any element.
    dearest: u64,
    /// The most nodes from an element to the one before it.
    gap: u64,
}

/// Rules for elements that have a word.
#[derive(Default)]
struct OfWord {
    /// How many take as many steps and ask as much.
    rules: BTreeMap<(u32, Asks), u64>,
    declarations: u64,
}

impl<'r> Comparison<'r> {
    pub(super) fn new(rules: &'r [RuleLooks], elements: &[Element<'_>]) -> Comparison<'r> {
        let mut by_word: HashMap<Option<&'r str>, OfWord> = HashMap::new();
        let mut first = Asks::default();
        for rule in rules {
            first.count += rule.first.count;
            first.back += rule.first.back;
            let of_word = by_word.entry(rule.word.as_deref()).or_default();
            *of_word.rules.entry((rule.steps, rule.all)).or_default() += 1;
            of_word.declarations += rule.declarations;
        }
        let splits = rules.iter().any(|rule| rule.splits);
        Comparison {
            rules: rules.len() as u64,
            first,
            by_word,
            splits,
            dearest: elements.iter().map(|one| ask_cost(one, splits)).max().unwrap_or(1),
            gap: elements.iter().map(|one| one.gap as u64).max().unwrap_or(0),
        }
    }

    /// With an element that has these words, and this depth.
    pub(super) fn looks(&self, element: &Element<'_>, words: &HashSet<&str>, depth: u32) -> u64 {
        let own = ask_cost(element, self.splits);
        let cost = |asks: &Asks, each: u64| {
            asks.count.saturating_mul(each).saturating_add(asks.back.saturating_mul(self.gap))
        };
        let mut all = self.rules.saturating_add(cost(&self.first, own));
        let asked = words.iter().copied().map(Some).chain([None]);
        for of_word in asked.filter_map(|word| self.by_word.get(&word)) {
            all = all.saturating_add(of_word.declarations.saturating_mul(DECLARATION_LOOKS));
            for ((steps, asks), count) in &of_word.rules {
                let each = if *steps == 0 { own } else { self.dearest };
                let one = cost(asks, each).saturating_add(u64::from(*steps) + 1);
                let looks = ways_of(*steps, depth).saturating_mul(one);
                all = all.saturating_add(looks.saturating_mul(*count));
            }
        }
        all
    }
}

/// What it costs to ask an element for an attribute: those before it are gone through, and its
/// value may be split.
fn ask_cost(element: &Element<'_>, splits: bool) -> u64 {
    let values = element.attributes.iter().filter(|(name, _)| splits || *name == "class");
    let bytes: usize = values.map(|(_, value)| value.len()).sum();
    (1 + element.attributes.len() / LOOK_ATTRIBUTES + bytes / LOOK_BYTES) as u64
}

/// How many elements a selector of so many steps comes to from one, at most: each step up is from
/// all those that a step before came to.
fn ways_of(steps: u32, depth: u32) -> u64 {
    let mut ways = 1.0_f64;
    let mut all = 1.0_f64;
    for step in 0..steps.min(depth) {
        ways *= f64::from(depth - step) / f64::from(step + 1);
        all += ways;
    }
    all as u64
}
