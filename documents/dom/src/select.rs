//! Queries: the elements below a node that match a selector, in document order.
//!
//! Most selectors become a plan. A search from the elements that may be its rightmost part upwards
//! answers it, or one pass over all elements. The others are compared element by element by the
//! `selectors` crate, what their rightmost part asks for (a name, a class, an identifier) first and
//! by number.

use selectors::context::{
    MatchingContext, MatchingForInvalidation, MatchingMode, NeedsSelectorFlags, QuirksMode,
    SelectorCaches,
};
use selectors::matching::matches_selector;
use selectors::parser::{self, Component};
use selectors::{Element, OpaqueElement};

use crate::climb::Climb;
use crate::document::{Document, Quirks};
use crate::error::{Damage, DomError};
use crate::layout::{DOCUMENT, NAME_CLASS, NAME_ID, NONE, NodeKind, NodeRecord, ORDERED};
use crate::matching::ElementRef;
use crate::node::Node;
use crate::pass::Pass;
use crate::plan::Plan;
use crate::selector::{Grammar, Selector};

impl<'heap> Document<'heap> {
    /// All elements that match, in document order: `querySelectorAll`.
    ///
    /// # Errors
    /// [`DomError::Damaged`]; [`DomError::Limit`] for `:has` of what is deeper than 2,048 levels.
    pub fn select(&self, selector: &Selector) -> Result<Vec<Node<'_>>, DomError> {
        self.root().select(selector)
    }

    /// The first element that matches: `querySelector`.
    ///
    /// # Errors
    /// [`DomError::Damaged`]; [`DomError::Limit`] for `:has` of what is deeper than 2,048 levels.
    pub fn select_first(&self, selector: &Selector) -> Result<Option<Node<'_>>, DomError> {
        self.root().select_first(selector)
    }
}

impl<'d> Node<'d> {
    /// The elements below this node that match, in document order; `:scope` is this element.
    ///
    /// # Errors
    /// [`DomError::Damaged`]; [`DomError::Limit`] for `:has` of what is deeper than 2,048 levels.
    pub fn select(self, selector: &Selector) -> Result<Vec<Node<'d>>, DomError> {
        self.query(selector, usize::MAX)
    }

    /// The first element below this node that matches.
    ///
    /// # Errors
    /// [`DomError::Damaged`]; [`DomError::Limit`] for `:has` of what is deeper than 2,048 levels.
    pub fn select_first(self, selector: &Selector) -> Result<Option<Node<'d>>, DomError> {
        Ok(self.query(selector, 1)?.pop())
    }

    /// Whether this element matches; `:scope` is the root element here.
    ///
    /// # Errors
    /// [`DomError::Damaged`]; [`DomError::Limit`] for `:has` of what is deeper than 2,048 levels.
    pub fn matches(self, selector: &Selector) -> Result<bool, DomError> {
        let document = self.document();
        let Some(record) = document.record(self.id()).filter(|_| self.is_element()) else {
            return Ok(false);
        };
        let element = ElementRef::new(document, self.id(), record);
        let mut caches = SelectorCaches::default();
        let mut context = context(document, None, &mut caches);
        let mut selectors = selector.list().slice().iter();
        let answer =
            selectors.any(|selector| matches_selector(selector, 0, None, element, &mut context));
        document.unless_damaged(answer)
    }

    /// This element, or the nearest above it, that matches; `:scope` is the root element here.
    ///
    /// # Errors
    /// [`DomError::Damaged`]; [`DomError::Limit`] for `:has` of what is deeper than 2,048 levels.
    pub fn closest(self, selector: &Selector) -> Result<Option<Node<'d>>, DomError> {
        for node in std::iter::once(self).chain(self.ancestors()) {
            if node.matches(selector)? {
                return Ok(Some(node));
            }
        }
        self.document().unless_damaged(None)
    }

    fn query(self, selector: &Selector, max: usize) -> Result<Vec<Node<'d>>, DomError> {
        let document = self.document();
        // With damage there is no answer.
        if document.damage().is_some() {
            return document.unless_damaged(Vec::new());
        }
        let is_in_row = self.id() == DOCUMENT && document.header().flags & ORDERED != 0;
        let mut plan = Plan::of(document, selector);
        if let Some(plan) = plan.as_mut().filter(|plan| plan.suits_climb()) {
            let climb = Climb::new(document, plan);
            let found = if is_in_row {
                climb.run(document.in_row(), max)
            } else {
                climb.run(document.walk(self.id()), max)
            };
            if let Some(found) = found {
                return document.unless_damaged(found);
            }
        }
        let found = match plan {
            // Where a path matters, it starts at the document.
            Some(mut plan) if self.id() == DOCUMENT || !plan.needs_path => {
                let pass = Pass::new(document, &mut plan);
                if is_in_row {
                    pass.run(document.in_row(), max)
                } else {
                    pass.run(document.walk(self.id()), max)
                }
            }
            _ => self.compare_each(selector, max),
        };
        document.unless_damaged(found)
    }

    /// The elements below this node that the `selectors` crate says match.
    fn compare_each(self, selector: &Selector, max: usize) -> Vec<Node<'d>> {
        let document = self.document();
        let list = selector.list().slice();
        let by_number = document.names().len().saturating_mul(list.len()) <= WANTED_NAMES_MAX;
        let selectors: Vec<_> = list
            .iter()
            .map(|selector| (selector, RightmostFilter::of(document, selector, by_number)))
            .collect();
        let scope = document.record(self.id()).filter(|_| self.is_element());
        let scope = scope.map(|record| ElementRef::new(document, self.id(), record).opaque());
        let mut caches = SelectorCaches::default();
        let mut context = context(document, scope, &mut caches);
        let mut found = Vec::new();
        for (id, record) in document.walk(self.id()) {
            if document.damage().is_some() || document.limit().is_some() {
                break;
            }
            if !record.is(NodeKind::Element) {
                continue;
            }
            let element = ElementRef::new(document, id, record);
            let matches = selectors.iter().any(|(selector, wanted)| {
                wanted.may_be(document, record)
                    && matches_selector(selector, 0, None, element, &mut context)
            });
            if matches {
                found.push(Node::new(document, id));
                if found.len() >= max {
                    break;
                }
            }
        }
        found
    }
}

impl<'heap> Document<'heap> {
    /// The nodes below one, by the links.
    pub(crate) fn walk(&self, root: u32) -> impl Iterator<Item = (u32, &NodeRecord)> {
        let (mut last, mut steps_left) = (root, self.walk_steps());
        std::iter::from_fn(move || {
            last = self.after(root, last, &mut steps_left)?;
            Some((last, self.record(last)?))
        })
    }

    /// The nodes of a document whose nodes lie in order. A parent that does not come first is
    /// damage.
    fn in_row(&self) -> impl Iterator<Item = (u32, &NodeRecord)> {
        let behind = DOCUMENT + 1;
        (behind..).zip(self.nodes().get(behind as usize..).unwrap_or_default()).map_while(
            |(id, record)| {
                // Each has a kind, and a parent before it, which has one, too.
                let is_sound = record.parent < id && record.parent != NONE && record.kind() != 0;
                if !is_sound {
                    self.note(Damage::Node { node: id });
                }
                is_sound.then_some((id, record))
            },
        )
    }
}

fn context<'a>(
    document: &Document<'_>,
    scope: Option<OpaqueElement>,
    caches: &'a mut SelectorCaches,
) -> MatchingContext<'a, Grammar> {
    let quirks = match document.quirks() {
        Quirks::None => QuirksMode::NoQuirks,
        Quirks::Limited => QuirksMode::LimitedQuirks,
        Quirks::Full => QuirksMode::Quirks,
    };
    let mut context = MatchingContext::new(
        MatchingMode::Normal,
        None,
        caches,
        quirks,
        NeedsSelectorFlags::No,
        MatchingForInvalidation::No,
    );
    context.scope_element = scope;
    context
}

/// Entries of the tables of wanted names of a list of selectors: documents may claim any number of
/// names. Beyond that elements are compared by the text of their names alone.
const WANTED_NAMES_MAX: usize = 1 << 20;

/// What an element must have to match the rightmost part of a selector.
struct RightmostFilter {
    /// By number of a name, whether it is one that the selector asks for; `None` if it asks for
    /// none.
    names: Option<Vec<bool>>,
    class: bool,
    id: bool,
}

impl RightmostFilter {
    fn of(
        document: &Document<'_>,
        selector: &parser::Selector<Grammar>,
        by_number: bool,
    ) -> RightmostFilter {
        let mut wanted = RightmostFilter { names: None, class: false, id: false };
        for part in selector.iter() {
            match part {
                Component::LocalName(local) if by_number => {
                    let is_one = |record| {
                        document.is_named(record, &local.name)
                            || document.is_named(record, &local.lower_name)
                    };
                    wanted.names = Some(document.names().iter().map(is_one).collect());
                }
                Component::Class(_) => wanted.class = true,
                Component::ID(_) => wanted.id = true,
                _ => {}
            }
        }
        wanted
    }

    #[inline]
    fn may_be(&self, document: &Document<'_>, record: &NodeRecord) -> bool {
        if let Some(names) = &self.names
            && !names.get(record.name() as usize).copied().unwrap_or(true)
        {
            return false;
        }
        let has = |name| {
            document.attributes_of(record).iter().any(|attribute| u32::from(attribute.name) == name)
        };
        (!self.class || has(NAME_CLASS)) && (!self.id || has(NAME_ID))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documents::LoosePage;
    use crate::limits::ParseLimits;
    use crate::parse::ParseOptions;

    const PAGES: [&str; 3] = [
        "<!DOCTYPE html><body class='a b' id=x><div id=d><p class=a>1<b>2</b><p class='b c'><i>3</i><b title=t>4</b><i>5</i></div>\
         <ul><li class=a><li><li class=b><a href=http://x>y</a><li><a href='#'>z</a><a title>q</a></ul><svg><a/><g><a/></g></svg>",
        "<body class='A b' ID=X><div><div><div><p class=A><p id=x><span></span><em></em><span></span></div></div></div>",
        "<!DOCTYPE html><p>1<template><p class=a>2</template><p class=a>3<b>4</b>",
    ];
    const SELECTORS: [&str; 48] = [
        "*",
        "p",
        "P",
        ".a",
        ".b.a",
        "#x",
        "p.a",
        "div p",
        "div > p",
        "p + p",
        "p ~ p",
        "body div b",
        "body > div > p > b",
        "div div > p",
        "i + b + i",
        "i ~ i",
        "li:nth-child(2n+1)",
        "li:nth-child(3)",
        ":first-child",
        "i:nth-of-type(2)",
        "span:first-of-type ~ span",
        "b:not(.a)",
        ":not(p)",
        ":not(p, .a, :nth-child(2))",
        ":is(b, i)",
        ":is(b, i):nth-child(3)",
        "[title]",
        "[title='']",
        "[title=t]",
        "a[href^=http]",
        "a[href$=x]",
        "[class~=c]",
        "[class|=a]",
        "[class*=' ']",
        ":root",
        "svg a",
        "svg|a",
        "*|*",
        "p, b, .a > b",
        ":where(.a, .b) li",
        "body > div b",
        "div > p b, ul > li a",
        "p.a ~ p > b, svg a",
        "a:nth-of-type(1)",
        "a.b:nth-of-type(2), div > p:nth-of-type(1)",
        "li.b:nth-of-type(3)",
        "div:not(.a) > div p",
        "ul [href]",
    ];

    fn ids(found: &[Node<'_>]) -> Vec<u32> {
        found.iter().map(|node| node.id()).collect()
    }

    /// Guarantee: documents/queries
    #[test]
    fn a_plan_and_the_other_ways_to_compare_find_the_same() {
        let (mut planned, mut climbed) = (0, 0);
        for page in PAGES {
            let page = LoosePage::parse(page.as_bytes(), &ParseOptions::default()).unwrap();
            let document = page.open().unwrap();
            for text in SELECTORS {
                let selector = Selector::parse(text).unwrap();
                let mut plan = Plan::of(&document, &selector);
                planned += usize::from(plan.is_some());
                climbed += usize::from(plan.as_ref().is_some_and(Plan::suits_climb));
                if let Some(plan) = &mut plan {
                    let passed =
                        Pass::new(&document, plan).run(document.walk(DOCUMENT), usize::MAX);
                    let expected = document.root().compare_each(&selector, usize::MAX);
                    assert_eq!(ids(&passed), ids(&expected), "{text} by a pass");
                }
                let elements =
                    std::iter::once(document.root()).chain(document.root().descendants());
                for below in elements {
                    let expected = ids(&below.compare_each(&selector, usize::MAX));
                    assert_eq!(
                        ids(&below.select(&selector).unwrap()),
                        expected,
                        "{text} below {below:?}"
                    );
                    let first = below.select_first(&selector).unwrap();
                    assert_eq!(
                        first.map(|node| node.id()),
                        expected.first().copied(),
                        "{text} below {below:?}"
                    );
                }
            }
        }
        assert_eq!(planned, SELECTORS.len() * PAGES.len());
        assert!(climbed >= 12 * PAGES.len(), "{climbed}");
    }

    /// A selector and a page that would have each element climb to the top are answered by a pass.
    ///
    /// Guarantee: documents/queries
    #[test]
    fn who_climbs_too_far_gives_up() {
        let text = format!("<div><p>{}<b>", "<u>".repeat(1_000));
        let page = LoosePage::parse(text.as_bytes(), &ParseOptions::default()).unwrap();
        let document = page.open().unwrap();
        for (text, count, gives_up) in [
            ("div u", 1_000, true),
            ("i u", 0, true),
            ("i > u u u", 0, true),
            ("u > b", 1, false),
            ("div b", 1, false),
        ] {
            let selector = Selector::parse(text).unwrap();
            let mut plan = Plan::of(&document, &selector).unwrap();
            assert!(plan.suits_climb(), "{text}");
            let found = Climb::new(&document, &mut plan).run(document.walk(DOCUMENT), usize::MAX);
            assert_eq!(found.is_none(), gives_up, "{text}");
            assert_eq!(document.select(&selector).unwrap().len(), count, "{text}");
            let below = document.root_element().unwrap();
            assert_eq!(below.select(&selector).unwrap().len(), count, "{text}");
        }
    }

    /// A selector list in brackets with many names allocates no table for each name.
    ///
    /// Guarantee: documents/bounded-memory
    #[test]
    fn bracketed_list_takes_no_table_per_name() {
        let many: String = (0..12_000).map(|n| format!("<x-{n}>")).collect();
        let options = ParseOptions {
            limits: ParseLimits { depth: 20_000, ..ParseLimits::default() },
            ..Default::default()
        };
        let page = LoosePage::parse(format!("<svg>{many}<b>").as_bytes(), &options).unwrap();
        let document = page.open().unwrap();
        for (parts, has_plan) in [(30, true), (200, false), (2_000, false)] {
            for of in ["b", "[x]", "svg|b"] {
                let list = vec![of; parts].join(",");
                let selector = Selector::parse(&format!(":is({list}), b")).unwrap();
                assert_eq!(Plan::of(&document, &selector).is_some(), has_plan, "{parts} of {of}");
                assert_eq!(document.select(&selector).unwrap().len(), 1, "{parts} of {of}");
            }
        }
    }
}
