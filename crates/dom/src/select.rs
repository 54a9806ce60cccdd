//! Queries: the elements below a node that match a selector, in document order.
//!
//! What the rightmost part of a selector asks for (a name, a class, an identifier) is compared first and by number: most
//! elements of a page are passed over without a look at the selector.

use selectors::context::{
    MatchingContext, MatchingForInvalidation, MatchingMode, NeedsSelectorFlags, QuirksMode, SelectorCaches,
};
use selectors::matching::matches_selector;
use selectors::parser::{self, Component};
use selectors::{Element, OpaqueElement};

use crate::document::{Document, Quirks};
use crate::error::DomError;
use crate::layout::{Kind, NAME_CLASS, NAME_ID, NodeRecord};
use crate::matching::Matched;
use crate::node::Node;
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
        let document = self.document;
        let Some(record) = document.record(self.id).filter(|_| self.is_element()) else { return Ok(false) };
        let element = Matched::new(document, self.id, record);
        let mut caches = SelectorCaches::default();
        let mut context = context(document, None, &mut caches);
        let mut selectors = selector.list.slice().iter();
        let answer = selectors.any(|selector| matches_selector(selector, 0, None, element, &mut context));
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
        self.document.unless_damaged(None)
    }

    fn query(self, selector: &Selector, max: usize) -> Result<Vec<Node<'d>>, DomError> {
        let document = self.document;
        let list = selector.list.slice();
        let by_number = document.names.len().saturating_mul(list.len()) <= WANTED_NAMES_MAX;
        let selectors: Vec<_> =
            list.iter().map(|selector| (selector, Wanted::of(document, selector, by_number))).collect();
        let scope = document.record(self.id).filter(|_| self.is_element());
        let scope = scope.map(|record| Matched::new(document, self.id, record).opaque());
        let mut caches = SelectorCaches::default();
        let mut context = context(document, scope, &mut caches);
        let mut found = Vec::new();
        let (mut last, mut steps_left) = (self.id, document.walk_steps());
        while let Some(id) = document.after(self.id, last, &mut steps_left) {
            last = id;
            let Some(record) = document.record(id) else { break };
            if document.damage().is_some() || document.limit().is_some() {
                break;
            }
            if record.kind != Kind::Element as u8 {
                continue;
            }
            let element = Matched::new(document, id, record);
            let matches = selectors.iter().any(|(selector, wanted)| {
                wanted.may_be(document, record) && matches_selector(selector, 0, None, element, &mut context)
            });
            if matches {
                found.push(Node { document, id });
                if found.len() >= max {
                    break;
                }
            }
        }
        document.unless_damaged(found)
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

/// Entries of the tables of wanted names of a list of selectors: documents may claim any number of names. Beyond that elements are
/// compared by the text of their names alone.
const WANTED_NAMES_MAX: usize = 1 << 20;

/// What an element must have to match the rightmost part of a selector.
struct Wanted {
    /// By number of a name, whether it is one that the selector asks for; `None` if it asks for none.
    names: Option<Vec<bool>>,
    class: bool,
    id: bool,
}

impl Wanted {
    fn of(document: &Document<'_>, selector: &parser::Selector<Grammar>, by_number: bool) -> Wanted {
        let mut wanted = Wanted { names: None, class: false, id: false };
        for part in selector.iter() {
            match part {
                Component::LocalName(local) if by_number => {
                    let is_one = |record| {
                        document.is_named(record, &local.name) || document.is_named(record, &local.lower_name)
                    };
                    wanted.names = Some(document.names.iter().map(is_one).collect());
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
            && !names.get(record.name as usize).copied().unwrap_or(true)
        {
            return false;
        }
        let has = |name| document.attributes_of(record).iter().any(|attribute| attribute.name == name);
        (!self.class || has(NAME_CLASS)) && (!self.id || has(NAME_ID))
    }
}
