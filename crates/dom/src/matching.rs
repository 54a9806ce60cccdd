//! Elements as the `selectors` crate matches them: views of the mapped records, compared by numbers and hashes.
//!
//! Invariants:
//! - Whatever a document says, a way from an element to others ends: each step counts (`hops`), and more steps than a walk over the
//!   whole document takes are a circle.
//! - What an element answers depends on the document alone, not on what was met before: the crate looks twice, and compares.

use selectors::attr::{AttrSelectorOperation, CaseSensitivity, NamespaceConstraint};
use selectors::bloom::BloomFilter;
use selectors::matching::{ElementSelectorFlags, MatchingContext};
use selectors::{Element, OpaqueElement};

use crate::document::Document;
use crate::error::Damage;
use crate::layout::{Kind, NAME_CLASS, NAME_ID, NameRecord, NodeRecord};
use crate::namespace::Namespace;
use crate::node::Node;
use crate::selector::{Grammar, Name, NamespaceUrl, PseudoClass, PseudoElement, Value};

/// An element, and how many steps led to it.
#[derive(Clone, Copy)]
pub(crate) struct Matched<'d> {
    pub(crate) document: &'d Document<'d>,
    pub(crate) id: u32,
    pub(crate) record: &'d NodeRecord,
    hops: u32,
}

impl std::fmt::Debug for Matched<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.node().fmt(f)
    }
}

impl<'d> Matched<'d> {
    pub(crate) fn new(document: &'d Document<'d>, id: u32, record: &'d NodeRecord) -> Matched<'d> {
        Matched { document, id, record, hops: 0 }
    }

    fn node(&self) -> Node<'d> {
        Node { document: self.document, id: self.id }
    }

    fn at(self, to: u32) -> Option<Matched<'d>> {
        let (id, record) = self.document.follow(self.id, to)?;
        if self.hops as usize > self.document.walk_steps() {
            self.document.note(Damage::Circle { node: id });
            return None;
        }
        Some(Matched { id, record, hops: self.hops + 1, ..self })
    }

    /// The sibling on one side, which must say the same of the other side: places are counted both ways, and compared.
    fn sibling(self, to: u32, is_behind: bool) -> Option<Matched<'d>> {
        let other = self.at(to)?;
        let back = if is_behind { other.record.previous } else { other.record.next };
        if back == self.id && other.record.parent == self.record.parent {
            return Some(other);
        }
        self.document.note(Damage::Node { node: self.id });
        None
    }

    fn is_element(&self) -> bool {
        self.record.is(Kind::Element)
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

    /// As the specification of HTML has it: by itself, by its group, or by a set of fields around it but for the first legend.
    fn is_disabled(&self) -> bool {
        if !self.can_be_disabled() {
            return false;
        }
        if self.has_attribute("disabled") {
            return true;
        }
        if self.is_html("option") {
            let group = self.parent_element();
            return group.is_some_and(|group| group.is_html("optgroup") && group.has_attribute("disabled"));
        }
        if self.is_html("optgroup") {
            return false;
        }
        let mut below = *self;
        while let Some(parent) = below.parent_element() {
            if parent.is_html("fieldset") && parent.has_attribute("disabled") {
                let mut child = parent.first_element_child();
                while let Some(other) = child.filter(|child| !child.is_html("legend")) {
                    child = other.next_sibling_element();
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

impl<'d> Element for Matched<'d> {
    type Impl = Grammar;

    fn opaque(&self) -> OpaqueElement {
        OpaqueElement::new(self.record)
    }

    fn parent_element(&self) -> Option<Self> {
        self.at(self.record.parent).filter(Matched::is_element)
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
            at = at.sibling(at.record.previous, false)?;
            if at.is_element() {
                return Some(at);
            }
        }
        None
    }

    fn next_sibling_element(&self) -> Option<Self> {
        let mut at = self.sibling(self.record.next, true)?;
        while !at.is_element() {
            at = at.sibling(at.record.next, true)?;
        }
        Some(at)
    }

    fn first_element_child(&self) -> Option<Self> {
        let child = self.at(self.record.first_child())?;
        if child.is_element() { Some(child) } else { child.next_sibling_element() }
    }

    fn is_html_element_in_html_document(&self) -> bool {
        self.name_record().is_some_and(|name| name.namespace == Namespace::Html as u8)
    }

    fn has_local_name(&self, name: &Name) -> bool {
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
        local_name: &Name,
        operation: &AttrSelectorOperation<&Value>,
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

    fn match_non_ts_pseudo_class(&self, class: &PseudoClass, _: &mut MatchingContext<'_, Grammar>) -> bool {
        match class {
            PseudoClass::Link | PseudoClass::AnyLink => self.is_link(),
            PseudoClass::Checked => self.is_checked(),
            PseudoClass::Disabled => self.is_disabled(),
            PseudoClass::Enabled => self.can_be_disabled() && !self.is_disabled(),
        }
    }

    fn match_pseudo_element(&self, element: &PseudoElement, _: &mut MatchingContext<'_, Grammar>) -> bool {
        match *element {}
    }

    fn apply_selector_flags(&self, _: ElementSelectorFlags) {}

    fn is_link(&self) -> bool {
        (self.is_html("a") || self.is_html("area")) && self.has_attribute("href")
    }

    fn is_html_slot_element(&self) -> bool {
        self.is_html("slot")
    }

    fn has_id(&self, id: &Name, case: CaseSensitivity) -> bool {
        self.known_attribute(NAME_ID).is_some_and(|value| case.eq(id.text.as_bytes(), value))
    }

    fn has_class(&self, name: &Name, case: CaseSensitivity) -> bool {
        self.known_attribute(NAME_CLASS).is_some_and(|value| {
            let mut classes = value.split(u8::is_ascii_whitespace);
            classes.any(|class| !class.is_empty() && case.eq(name.text.as_bytes(), class))
        })
    }

    fn has_custom_state(&self, _: &Name) -> bool {
        false
    }

    fn imported_part(&self, _: &Name) -> Option<Name> {
        None
    }

    fn is_part(&self, _: &Name) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        let mut child = self.at(self.record.first_child());
        while let Some(at) = child {
            if at.is_element() || at.record.is(Kind::Text) && at.record.first > 0 {
                return false;
            }
            child = at.at(at.record.next);
        }
        true
    }

    fn is_root(&self) -> bool {
        let parent = self.document.follow(self.id, self.record.parent);
        parent.is_some_and(|(_, parent)| parent.is(Kind::Document))
    }

    fn ignores_nth_child_selectors(&self) -> bool {
        // After damage nothing is counted: a place that is remembered may be another when it is counted again.
        self.document.damage().is_some()
    }

    fn add_element_unique_hashes(&self, _: &mut BloomFilter) -> bool {
        false
    }
}

impl<'heap> Document<'heap> {
    /// Whether a name is this one.
    #[inline]
    pub(crate) fn is_named(&self, record: &NameRecord, name: &Name) -> bool {
        record.hash == name.hash && self.bytes_at(record.local, record.local_length) == name.text.as_bytes()
    }
}
