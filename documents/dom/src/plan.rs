//! A selector made ready for one document: what its names are there by number, and which part of it
//! follows which, so that one pass over the elements answers it (`pass`).
//!
//! Invariants: a part that an element is compared with is a bit, from left to right; a selector of
//! which something is not known here has no plan, and the `selectors` crate compares it. Both find
//! the same.

use selectors::attr::{AttrSelectorOperator, CaseSensitivity, ParsedCaseSensitivity};
use selectors::parser::{
    AnPlusB, Combinator, Component, NthSelectorData, NthType, Selector as One, SelectorIter,
};

use crate::document::{Document, Quirks};
use crate::layout::{AttributeRecord, NAME_CLASS, NAME_ID, NameRecord, NodeRecord};
use crate::limits::SHARED_BYTES_MAX;
use crate::namespace::Namespace;
use crate::selector::{Grammar, Selector, SelectorName};

/// Parts that fit.
const PARTS_MAX: usize = 64;
/// See [`NameBudget`].
const TABLES_MAX: usize = 1 << 20;
/// Values of which a test remembers what it found: a page has the same ones again and again.
const REMEMBERED: usize = 64;

/// A selector with its names resolved in one document.
pub(crate) struct Plan {
    /// By number of a name, the parts that an element of that name may be.
    pub(crate) names: Vec<u64>,
    /// Of each part, what else is asked of an element.
    pub(crate) tests: Vec<Vec<CompoundTest>>,
    /// Parts of which something else is asked.
    pub(crate) tested: u64,
    /// Marks of attributes ([`NodeRecord::mark`]) one of which each element must have that matches.
    pub(crate) marks: u32,
    /// Parts of which all siblings are counted.
    pub(crate) placed: u64,
    /// Parts of which elements of one type are counted.
    pub(crate) typed: u64,
    /// Parts that are leftmost.
    pub(crate) first: u64,
    /// Parts whose left neighbour is the parent, any ancestor, the element before, any element
    /// before.
    pub(crate) below: Neighbours,
    /// Parts that are rightmost.
    pub(crate) last: u64,
    /// Whether an element's ancestors and siblings matter.
    pub(crate) needs_path: bool,
}

/// Parts by what is to the left of them.
#[derive(Clone, Copy, Default)]
pub(crate) struct Neighbours {
    pub(crate) child: u64,
    pub(crate) descendant: u64,
    pub(crate) next: u64,
    pub(crate) later: u64,
}

/// What is asked of an element beyond its name.
pub(crate) enum CompoundTest {
    /// It has an attribute of this number, whose value is so.
    Attribute(u16, ValueCheck),
    /// It never passes: an attribute that the document does not have.
    Never,
    /// It is the child of the document.
    Root,
    /// Its place among its siblings, or among those of its type.
    Place { of_type: bool, places: AnPlusB },
    /// One of these, or none of them.
    Any { parts: Vec<Compound>, wanted: bool },
}

/// Entries of the tables of names that a plan may still have, and looks at names: a list of
/// selectors may be long, and a document claim many names.
struct NameBudget {
    left: usize,
}

impl NameBudget {
    fn take(&mut self, document: &Document<'_>) -> Option<()> {
        self.left = self.left.checked_sub(document.names().len())?;
        Some(())
    }
}

/// What must be counted for a part.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    places: bool,
    types: bool,
}

/// A part within brackets.
pub(crate) struct Compound {
    /// By number of a name, whether it may have it; `None` if that does not matter.
    pub(crate) names: Option<Vec<bool>>,
    pub(crate) tests: Vec<CompoundTest>,
}

/// What is asked of a value, and what was found of some.
pub(crate) struct ValueCheck {
    what: ValueTest,
    /// Start and bytes of values, and whether they pass.
    remembered: Vec<(u32, u16, bool)>,
}

enum ValueTest {
    Anything,
    Class(String, CaseSensitivity),
    Value(AttrSelectorOperator, String, CaseSensitivity),
}

impl ValueCheck {
    fn new(what: ValueTest) -> ValueCheck {
        ValueCheck { what, remembered: Vec::new() }
    }

    /// Whether it is enough that the attribute is there.
    #[inline]
    pub(crate) fn is_of_anything(&self) -> bool {
        matches!(self.what, ValueTest::Anything)
    }

    /// What was found of a value in this place, if that is known.
    #[inline]
    pub(crate) fn known(&self, value: &AttributeRecord) -> Option<bool> {
        let (start, length, passes) = *self.remembered.get(value.value as usize % REMEMBERED)?;
        (start == value.value && length == value.length && length > 0).then_some(passes)
    }

    /// Looks at a value, and remembers those that may come again; says how many bytes it has, too.
    pub(crate) fn look(
        &mut self,
        document: &Document<'_>,
        value: &AttributeRecord,
    ) -> (bool, usize) {
        let bytes = document.value_bytes_of(value);
        let passes = match &self.what {
            ValueTest::Anything => true,
            ValueTest::Class(name, case) => {
                let mut classes = bytes.split(u8::is_ascii_whitespace);
                classes.any(|class| !class.is_empty() && (*case).eq(name.as_bytes(), class))
            }
            ValueTest::Value(AttrSelectorOperator::Equal, wanted, case) => {
                (*case).eq(bytes, wanted.as_bytes())
            }
            ValueTest::Value(AttrSelectorOperator::Prefix, wanted, case) => {
                let start = bytes.get(..wanted.len()).filter(|start| !start.is_empty());
                start.is_some_and(|start| (*case).eq(start, wanted.as_bytes()))
            }
            ValueTest::Value(operator, wanted, case) => {
                operator.eval_str(document.value_of(value), wanted, *case)
            }
        };
        if usize::from(value.length) <= SHARED_BYTES_MAX {
            self.remembered.resize(REMEMBERED, (0, 0, false));
            self.remembered[value.value as usize % REMEMBERED] =
                (value.value, value.length, passes);
        }
        (passes, bytes.len())
    }
}

impl Plan {
    pub(crate) fn of(document: &Document<'_>, selector: &Selector) -> Option<Plan> {
        let mut plan = Plan {
            names: vec![0; document.names().len()],
            tests: Vec::new(),
            tested: 0,
            marks: 0,
            placed: 0,
            typed: 0,
            first: 0,
            below: Neighbours::default(),
            last: 0,
            needs_path: false,
        };
        let mut tables = NameBudget { left: TABLES_MAX };
        selector.list().slice().iter().try_for_each(|one| plan.add(document, one, &mut tables))?;
        // Where an element stands alone, one look at its record passes over most.
        let mut marks = plan.tests.iter().map(|tests| tests.iter().find_map(CompoundTest::mark));
        plan.marks = marks.try_fold(0, |all, mark| Some(all | mark?)).unwrap_or_default();
        Some(plan)
    }

    /// Whether [`Climb`](crate::climb::Climb) can answer it, and has few elements to look at: each
    /// rightmost part asks for a name or an attribute.
    pub(crate) fn suits_climb(&self) -> bool {
        let unknown = self.below.next | self.below.later | self.placed | self.typed & !self.last;
        let of_any_name = self.names.iter().fold(self.last, |parts, named| parts & named);
        let asks = |(part, tests): (usize, &Vec<CompoundTest>)| {
            of_any_name >> part & 1 == 0
                || tests.iter().any(|test| matches!(test, CompoundTest::Attribute(..)))
        };
        self.needs_path && unknown == 0 && self.tests.iter().enumerate().all(asks)
    }

    /// Marks of attributes one of which each element must have that is to be looked at for the
    /// rightmost parts; none, if that is not known, or if others are counted.
    pub(crate) fn rightmost_marks(&self) -> u32 {
        if self.typed != 0 {
            return 0;
        }
        let rightmost =
            self.tests.iter().enumerate().filter(|(part, _)| self.last >> part & 1 == 1);
        let mut marks = rightmost.map(|(_, tests)| tests.iter().find_map(CompoundTest::mark));
        marks.try_fold(0, |all, mark| Some(all | mark?)).unwrap_or_default()
    }

    fn add(
        &mut self,
        document: &Document<'_>,
        selector: &One<Grammar>,
        tables: &mut NameBudget,
    ) -> Option<()> {
        let mut from_right = selector.iter();
        let mut row = Vec::new();
        loop {
            let mut counts = Counts::default();
            let part = Compound::of(document, &mut from_right, &mut counts, tables)?;
            let left = from_right.next_sequence();
            row.push((part, counts, left));
            if left.is_none() {
                break;
            }
        }
        for (place, (part, counts, left)) in row.into_iter().enumerate().rev() {
            if self.tests.len() == PARTS_MAX {
                return None;
            }
            let bit = 1 << self.tests.len();
            *match left {
                None => &mut self.first,
                Some(Combinator::Child) => &mut self.below.child,
                Some(Combinator::Descendant) => &mut self.below.descendant,
                Some(Combinator::NextSibling) => &mut self.below.next,
                Some(Combinator::LaterSibling) => &mut self.below.later,
                Some(_) => return None,
            } |= bit;
            self.needs_path |= left.is_some() || counts != Counts::default();
            self.placed |= if counts.places { bit } else { 0 };
            self.typed |= if counts.types { bit } else { 0 };
            self.tested |= if part.tests.is_empty() { 0 } else { bit };
            if place == 0 {
                self.last |= bit;
            }
            for (number, parts) in self.names.iter_mut().enumerate() {
                if part.names.as_ref().is_none_or(|names| names[number]) {
                    *parts |= bit;
                }
            }
            self.tests.push(part.tests);
        }
        Some(())
    }
}

impl Compound {
    fn of(
        document: &Document<'_>,
        components: &mut SelectorIter<'_, Grammar>,
        counts: &mut Counts,
        tables: &mut NameBudget,
    ) -> Option<Compound> {
        let case = match document.quirks() {
            Quirks::Full => CaseSensitivity::AsciiCaseInsensitive,
            Quirks::None | Quirks::Limited => CaseSensitivity::CaseSensitive,
        };
        let mut part = Compound { names: None, tests: Vec::new() };
        for component in components {
            let test = match component {
                Component::ExplicitUniversalType | Component::ExplicitAnyNamespace => continue,
                Component::LocalName(local) => {
                    tables.take(document)?;
                    part.only(document, |name| {
                        let is_html = name.namespace == Namespace::Html as u8;
                        document
                            .is_named(name, if is_html { &local.lower_name } else { &local.name })
                    });
                    continue;
                }
                Component::Namespace(_, namespace) | Component::DefaultNamespace(namespace) => {
                    tables.take(document)?;
                    part.only(document, |name| name.namespace == namespace.0 as u8);
                    continue;
                }
                Component::ExplicitNoNamespace => {
                    tables.take(document)?;
                    part.only(document, |name| name.namespace == Namespace::None as u8);
                    continue;
                }
                Component::Class(name) => CompoundTest::Attribute(
                    NAME_CLASS as u16,
                    ValueCheck::new(ValueTest::Class(name.text.clone(), case)),
                ),
                Component::ID(name) => {
                    let is = ValueTest::Value(AttrSelectorOperator::Equal, name.text.clone(), case);
                    CompoundTest::Attribute(NAME_ID as u16, ValueCheck::new(is))
                }
                Component::AttributeInNoNamespaceExists { local_name, local_name_lower }
                    if local_name == local_name_lower =>
                {
                    tables.take(document)?;
                    CompoundTest::of(document, local_name, ValueTest::Anything)?
                }
                Component::AttributeInNoNamespace {
                    local_name,
                    operator,
                    value,
                    case_sensitivity,
                } => {
                    let case = match case_sensitivity {
                        ParsedCaseSensitivity::CaseSensitive
                        | ParsedCaseSensitivity::ExplicitCaseSensitive => CaseSensitivity::CaseSensitive,
                        ParsedCaseSensitivity::AsciiCaseInsensitive => CaseSensitivity::AsciiCaseInsensitive,
                        // Of elements of HTML, and not of others.
                        ParsedCaseSensitivity::AsciiCaseInsensitiveIfInHtmlElementInHtmlDocument => {
                            return None;
                        }
                    };
                    tables.take(document)?;
                    CompoundTest::of(
                        document,
                        local_name,
                        ValueTest::Value(*operator, value.as_ref().to_owned(), case),
                    )?
                }
                Component::Root => CompoundTest::Root,
                Component::Nth(NthSelectorData { ty, an_plus_b, .. }) => {
                    let of_type = match ty {
                        NthType::Child => false,
                        NthType::OfType => true,
                        _ => return None,
                    };
                    counts.places |= !of_type;
                    counts.types |= of_type;
                    CompoundTest::Place { of_type, places: *an_plus_b }
                }
                Component::Negation(list) | Component::Is(list) | Component::Where(list) => {
                    let mut parts = Vec::new();
                    for one in list.slice() {
                        let mut components = one.iter();
                        parts.push(Compound::of(document, &mut components, counts, tables)?);
                        if components.next_sequence().is_some() {
                            return None;
                        }
                    }
                    CompoundTest::Any {
                        parts,
                        wanted: !matches!(component, Component::Negation(_)),
                    }
                }
                _ => return None,
            };
            part.tests.push(test);
        }
        Some(part)
    }

    /// Leaves those names that are so.
    fn only(&mut self, document: &Document<'_>, is_so: impl Fn(&NameRecord) -> bool) {
        let names = self.names.get_or_insert_with(|| vec![true; document.names().len()]);
        for (may_be, name) in names.iter_mut().zip(document.names()) {
            *may_be &= is_so(name);
        }
    }
}

impl CompoundTest {
    /// The mark that each element has that passes.
    fn mark(&self) -> Option<u32> {
        match self {
            CompoundTest::Attribute(name, _) => {
                Some(NodeRecord::mark((*name).into())).filter(|mark| *mark != 0)
            }
            _ => None,
        }
    }

    /// Of an attribute without a namespace; `None` if the document has several such names, which a
    /// page never has.
    fn of(document: &Document<'_>, name: &SelectorName, what: ValueTest) -> Option<CompoundTest> {
        let mut numbers = (0..=u16::MAX).zip(document.names()).filter(|(_, record)| {
            record.namespace == Namespace::None as u8 && document.is_named(record, name)
        });
        let Some((number, _)) = numbers.next() else { return Some(CompoundTest::Never) };
        numbers.next().is_none().then(|| CompoundTest::Attribute(number, ValueCheck::new(what)))
    }
}
