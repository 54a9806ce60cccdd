//! Elements as the `selectors` crate matches them: views of the mapped records, compared by numbers
//! and hashes.
//!
//! Invariants:
//! - Whatever a document says, a walk forward (to first children and next siblings) comes to each
//!   node once at most: a step is made only to a node that says that it lies there, so that one
//!   step leads to each node; and none leads to where the walk began.
//! - A walk back (to parents and previous siblings) ends: who comes by a node again that it
//!   remembers (after 1, 2, 4, 8 ... steps) is in a circle. Siblings are the same in both
//!   directions.
//! - The crate goes down for `:has` by recursion. `down` says how deep it is; deeper than
//!   [`HAS_DEPTH_MAX`] is an error, not damage.
//! - What an element answers depends on the document alone, not on what was met before: the crate
//!   looks twice, and compares.

use selectors::attr::{AttrSelectorOperation, CaseSensitivity, NamespaceConstraint};
use selectors::bloom::BloomFilter;
use selectors::matching::{ElementSelectorFlags, MatchingContext};
use selectors::{Element, OpaqueElement};

use crate::document::Document;
use crate::error::{Damage, ParseLimit};
use crate::layout::{NAME_CLASS, NAME_ID, NameRecord, NodeKind, NodeRecord};
use crate::limits::HAS_DEPTH_MAX;
use crate::namespace::Namespace;
use crate::node::Node;
use crate::selector::{
    Grammar, NamespaceUrl, PseudoClass, PseudoElement, SelectorName, SelectorValue,
};

/// An element, and what way led to it.
#[derive(Clone, Copy)]
pub(crate) struct ElementRef<'d> {
    pub(crate) document: &'d Document<'d>,
    pub(crate) id: u32,
    pub(crate) record: &'d NodeRecord,
    /// Levels that a walk forward went down.
    down: u16,
    /// Whether the last step was one forward.
    forward: bool,
    /// Steps in that direction in a row.
    hops: u32,
    /// A node that those must not lead to again.
    mark: u32,
}

/// Where a step goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WalkDirection {
    Back,
    Forward,
}

impl std::fmt::Debug for ElementRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.node().fmt(f)
    }
}

impl<'d> ElementRef<'d> {
    pub(crate) fn new(
        document: &'d Document<'d>,
        id: u32,
        record: &'d NodeRecord,
    ) -> ElementRef<'d> {
        ElementRef { document, id, record, down: 0, forward: false, hops: 0, mark: id }
    }

    fn node(&self) -> Node<'d> {
        Node::new(self.document, self.id)
    }

    fn at(self, to: u32, direction: WalkDirection) -> Option<ElementRef<'d>> {
        let (id, record) = self.document.follow(self.id, to)?;
        let forward = direction == WalkDirection::Forward;
        let (hops, mark) = if forward == self.forward && self.hops > 0 {
            (self.hops.saturating_add(1), self.mark)
        } else {
            (1, self.id)
        };
        if id == mark {
            self.document.note(Damage::Circle { node: id });
            return None;
        }
        // Forward a circle leads through its begin; back it may be entered from anywhere.
        let mark = if !forward && hops.is_power_of_two() { id } else { mark };
        Some(ElementRef { id, record, forward, hops, mark, ..self })
    }

    /// Whether `later` follows `sooner`, as both say. If one of them does not, that is damage.
    fn are_siblings(sooner: &ElementRef<'d>, later: &ElementRef<'d>) -> bool {
        let document = sooner.document;
        let parent = sooner.record.parent;
        let sound = sooner.record.next == later.id
            && later.record.previous == sooner.id
            && later.record.parent == parent
            && document.record(parent).is_some_and(|parent| parent.first_child() != later.id);
        if !sound {
            document.note(Damage::Node { node: sooner.id });
        }
        sound
    }

    fn next_sibling(&self) -> Option<ElementRef<'d>> {
        self.at(self.record.next, WalkDirection::Forward)
            .filter(|next| ElementRef::are_siblings(self, next))
    }

    fn first_child(&self) -> Option<ElementRef<'d>> {
        let child = self.at(self.record.first_child(), WalkDirection::Forward)?;
        if child.record.parent != self.id {
            self.document.note(Damage::Node { node: self.id });
            return None;
        }
        Some(child)
    }

    fn element_from(mut at: ElementRef<'d>) -> Option<ElementRef<'d>> {
        while !at.is_element() {
            at = at.next_sibling()?;
        }
        Some(at)
    }

    fn is_element(&self) -> bool {
        self.record.is(NodeKind::Element)
    }

    fn name_record(&self) -> Option<&'d NameRecord> {
        self.document.name(self.record.name())
    }

    fn is_html(&self, name: &str) -> bool {
        self.name_record().is_some_and(|record| {
            record.namespace == Namespace::Html as u8
                && self.document.bytes_at(record.local, record.local_length) == name.as_bytes()
        })
    }

    fn has_attribute(&self, name: &str) -> bool {
        self.node().attribute(name).is_some()
    }

    fn known_attribute(&self, name: u32) -> Option<&'d [u8]> {
        let attributes = self.document.attributes_of(self.record);
        let found = attributes.iter().find(|attribute| u32::from(attribute.name) == name)?;
        Some(self.document.value_bytes_of(found))
    }

    fn can_be_disabled(&self) -> bool {
        ["button", "input", "select", "textarea", "optgroup", "option", "fieldset"]
            .iter()
            .any(|name| self.is_html(name))
    }

    /// As the specification of HTML has it: by itself, by its group, or by a set of fields around
    /// it but for the first legend.
    fn is_disabled(&self) -> bool {
        if !self.can_be_disabled() {
            return false;
        }
        if self.has_attribute("disabled") {
            return true;
        }
        if self.is_html("option") {
            let group = self.parent_element();
            return group
                .is_some_and(|group| group.is_html("optgroup") && group.has_attribute("disabled"));
        }
        if self.is_html("optgroup") {
            return false;
        }
        let mut below = *self;
        while let Some(parent) = below.parent_element() {
            if parent.is_html("fieldset") && parent.has_attribute("disabled") {
                // Most fields are in no legend: they need no look at all of their siblings.
                if !below.is_html("legend") {
                    return true;
                }
                let mut child = parent.first_child();
                while let Some(other) =
                    child.filter(|child| !child.is_element() || !child.is_html("legend"))
                {
                    child = other.next_sibling();
                }
                if child.is_none_or(|legend| legend.id != below.id) {
                    return true;
                }
            }
            below = parent;
        }
        false
    }

    fn is_checked(&self) -> bool {
        if self.is_html("option") {
            return self.has_attribute("selected");
        }
        let kind = self.node().attribute("type").unwrap_or_default();
        self.is_html("input")
            && ["checkbox", "radio"].iter().any(|checked| kind.eq_ignore_ascii_case(checked))
            && self.has_attribute("checked")
    }
}

impl<'d> Element for ElementRef<'d> {
    type Impl = Grammar;

    fn opaque(&self) -> OpaqueElement {
        OpaqueElement::new(self.record)
    }

    fn parent_element(&self) -> Option<Self> {
        self.at(self.record.parent, WalkDirection::Back).filter(ElementRef::is_element)
    }

    fn parent_node_is_shadow_root(&self) -> bool {
        false
    }

    fn containing_shadow_host(&self) -> Option<Self> {
        None
    }

    fn is_pseudo_element(&self) -> bool {
        false
    }

    fn prev_sibling_element(&self) -> Option<Self> {
        let (_, parent) = self.document.follow(self.id, self.record.parent)?;
        let mut at = *self;
        // The first child's previous one is the last.
        while parent.first_child() != at.id {
            let previous = at.at(at.record.previous, WalkDirection::Back)?;
            if !ElementRef::are_siblings(&previous, &at) {
                return None;
            }
            at = previous;
            if at.is_element() {
                return Some(at);
            }
        }
        None
    }

    fn next_sibling_element(&self) -> Option<Self> {
        ElementRef::element_from(self.next_sibling()?)
    }

    fn first_element_child(&self) -> Option<Self> {
        let document = self.document;
        // What goes down is `:has` alone; with damage or too deep there is no answer, and each
        // further look is for nothing.
        if document.damage().is_some() || document.limit().is_some() {
            return None;
        }
        let child = ElementRef::element_from(self.first_child()?)?;
        if child.down >= HAS_DEPTH_MAX {
            document.note_limit(ParseLimit::HasDepth, HAS_DEPTH_MAX.into());
            return None;
        }
        Some(ElementRef { down: child.down + 1, ..child })
    }

    fn is_html_element_in_html_document(&self) -> bool {
        self.name_record().is_some_and(|name| name.namespace == Namespace::Html as u8)
    }

    fn has_local_name(&self, name: &SelectorName) -> bool {
        self.name_record().is_some_and(|record| self.document.is_named(record, name))
    }

    fn has_namespace(&self, namespace: &NamespaceUrl) -> bool {
        self.name_record().is_some_and(|record| record.namespace == namespace.0 as u8)
    }

    fn is_same_type(&self, other: &Self) -> bool {
        if self.record.name() == other.record.name() {
            return true;
        }
        let (Some(a), Some(b)) = (self.name_record(), other.name_record()) else { return false };
        a.hash == b.hash
            && a.namespace == b.namespace
            && self.document.bytes_at(a.local, a.local_length)
                == self.document.bytes_at(b.local, b.local_length)
    }

    fn attr_matches(
        &self,
        namespace: &NamespaceConstraint<&NamespaceUrl>,
        local_name: &SelectorName,
        operation: &AttrSelectorOperation<&SelectorValue>,
    ) -> bool {
        self.document.attributes_of(self.record).iter().any(|attribute| {
            let Some(record) = self.document.name(attribute.name.into()) else { return false };
            let in_namespace = match namespace {
                NamespaceConstraint::Any => true,
                NamespaceConstraint::Specific(wanted) => wanted.0 as u8 == record.namespace,
            };
            in_namespace
                && self.document.is_named(record, local_name)
                && operation.eval_str(self.document.value_of(attribute))
        })
    }

    fn match_non_ts_pseudo_class(
        &self,
        class: &PseudoClass,
        _: &mut MatchingContext<'_, Grammar>,
    ) -> bool {
        match class {
            PseudoClass::Link | PseudoClass::AnyLink => self.is_link(),
            PseudoClass::Checked => self.is_checked(),
            PseudoClass::Disabled => self.is_disabled(),
            PseudoClass::Enabled => self.can_be_disabled() && !self.is_disabled(),
        }
    }

    fn match_pseudo_element(
        &self,
        element: &PseudoElement,
        _: &mut MatchingContext<'_, Grammar>,
    ) -> bool {
        match *element {}
    }

    fn apply_selector_flags(&self, _: ElementSelectorFlags) {}

    fn is_link(&self) -> bool {
        (self.is_html("a") || self.is_html("area")) && self.has_attribute("href")
    }

    fn is_html_slot_element(&self) -> bool {
        self.is_html("slot")
    }

    fn has_id(&self, id: &SelectorName, case: CaseSensitivity) -> bool {
        self.known_attribute(NAME_ID).is_some_and(|value| case.eq(id.text.as_bytes(), value))
    }

    fn has_class(&self, name: &SelectorName, case: CaseSensitivity) -> bool {
        self.known_attribute(NAME_CLASS).is_some_and(|value| {
            let mut classes = value.split(u8::is_ascii_whitespace);
            classes.any(|class| !class.is_empty() && case.eq(name.text.as_bytes(), class))
        })
    }

    fn has_custom_state(&self, _: &SelectorName) -> bool {
        false
    }

    fn imported_part(&self, _: &SelectorName) -> Option<SelectorName> {
        None
    }

    fn is_part(&self, _: &SelectorName) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        let mut child = self.first_child();
        while let Some(at) = child {
            if at.is_element() || at.record.is(NodeKind::Text) && at.record.first > 0 {
                return false;
            }
            child = at.next_sibling();
        }
        true
    }

    fn is_root(&self) -> bool {
        let parent = self.document.follow(self.id, self.record.parent);
        parent.is_some_and(|(_, parent)| parent.is(NodeKind::Document))
    }

    fn ignores_nth_child_selectors(&self) -> bool {
        // After damage nothing is counted: a place that is remembered may be another when it is
        // counted again.
        self.document.damage().is_some()
    }

    fn add_element_unique_hashes(&self, _: &mut BloomFilter) -> bool {
        false
    }
}

impl<'heap> Document<'heap> {
    /// Whether a name is this one.
    #[inline]
    pub(crate) fn is_named(&self, record: &NameRecord, name: &SelectorName) -> bool {
        record.hash == name.hash
            && self.bytes_at(record.local, record.local_length) == name.text.as_bytes()
    }
}
