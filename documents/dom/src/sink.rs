//! The tree builder's sink: an [`Arena`], and the limits on it.
//!
//! Invariant: after a limit was passed the parser still gets nodes for what it asks; the code that
//! feeds it looks at `passed` after each token and stops.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};

use html5ever::interface::tree_builder::{
    ElemName, ElementFlags, NodeOrText, QuirksMode, TreeSink,
};
use html5ever::tendril::StrTendril;
use html5ever::{Attribute, LocalName, Namespace, QualName};

use crate::arena::Arena;
use crate::error::ParseLimit;
use crate::layout::{DOCUMENT, NodeKind};
use crate::limits::ParseLimits;

/// The tree builder of the HTML parser; counts what it builds against the limits.
pub(crate) struct Sink {
    arena: RefCell<Arena>,
    limits: ParseLimits,
    passed: Cell<Option<(ParseLimit, u64)>>,
    errors: Cell<u64>,
}

/// The name of an element.
#[derive(Debug)]
pub(crate) struct ElementName {
    namespace: Namespace,
    local: LocalName,
}

impl ElemName for ElementName {
    fn ns(&self) -> &Namespace {
        &self.namespace
    }

    fn local_name(&self) -> &LocalName {
        &self.local
    }
}

impl Sink {
    pub(crate) fn new(limits: ParseLimits) -> Sink {
        Sink {
            arena: RefCell::new(Arena::new()),
            limits,
            passed: Cell::new(None),
            errors: Cell::new(0),
        }
    }

    /// The limit that was passed.
    pub(crate) fn passed(&self) -> Option<(ParseLimit, u64)> {
        self.passed.get()
    }

    /// Notes that a limit was passed.
    pub(crate) fn pass(&self, limit: ParseLimit, max: u64) {
        if self.passed.get().is_none() {
            self.passed.set(Some((limit, max)));
        }
    }

    fn change<R>(&self, work: impl FnOnce(&mut Arena) -> R) -> R {
        let arena = &mut *self.arena.borrow_mut();
        let result = work(arena);
        let limits = &self.limits;
        let over = [
            (ParseLimit::Nodes, arena.nodes.len() as u64, u64::from(limits.nodes)),
            (ParseLimit::Depth, u64::from(arena.depth), u64::from(limits.depth)),
            (
                ParseLimit::Attributes,
                u64::from(arena.attributes_most),
                u64::from(limits.attributes),
            ),
            (
                ParseLimit::AllAttributes,
                arena.attributes.len() as u64,
                u64::from(limits.all_attributes),
            ),
            (ParseLimit::Names, arena.names.all.len() as u64, u64::from(limits.names)),
            (ParseLimit::TextBytes, arena.text_bytes, limits.text_bytes),
        ];
        if let Some((limit, _, max)) = over.into_iter().find(|(_, is, max)| is > max) {
            self.pass(limit, max);
        }
        result
    }
}

impl TreeSink for Sink {
    type Handle = u32;
    type Output = (Arena, u64);
    type ElemName<'a> = ElementName;

    fn finish(self) -> (Arena, u64) {
        (self.arena.into_inner(), self.errors.get())
    }

    fn parse_error(&self, _: Cow<'static, str>) {
        self.errors.set(self.errors.get() + 1);
    }

    fn get_document(&self) -> u32 {
        DOCUMENT
    }

    fn elem_name<'a>(&'a self, target: &'a u32) -> ElementName {
        let arena = self.arena.borrow();
        let name = &arena.names.all[arena.node(*target).name() as usize];
        ElementName { namespace: name.ns.clone(), local: name.local.clone() }
    }

    fn create_element(
        &self,
        name: QualName,
        attributes: Vec<Attribute>,
        flags: ElementFlags,
    ) -> u32 {
        self.change(|arena| arena.new_element(&name, &attributes, flags.template))
    }

    fn create_comment(&self, text: StrTendril) -> u32 {
        self.change(|arena| arena.new_text(NodeKind::Comment, &[text.as_bytes()]))
    }

    fn create_pi(&self, target: StrTendril, data: StrTendril) -> u32 {
        let length = (target.len() as u32).to_le_bytes();
        let parts = [&length[..], target.as_bytes(), data.as_bytes()];
        self.change(|arena| arena.new_text(NodeKind::ProcessingInstruction, &parts))
    }

    fn append(&self, parent: &u32, child: NodeOrText<u32>) {
        self.change(|arena| match child {
            NodeOrText::AppendNode(child) => {
                arena.detach(child);
                arena.append(*parent, child);
            }
            NodeOrText::AppendText(text) => arena.append_text(*parent, text.as_bytes()),
        });
    }

    fn append_based_on_parent_node(&self, element: &u32, previous: &u32, child: NodeOrText<u32>) {
        let has_parent = self.arena.borrow().node(*element).parent != 0;
        match has_parent {
            true => self.append_before_sibling(element, child),
            false => self.append(previous, child),
        }
    }

    fn append_doctype_to_document(&self, name: StrTendril, public: StrTendril, system: StrTendril) {
        let lengths = [(name.len() as u32).to_le_bytes(), (public.len() as u32).to_le_bytes()];
        let parts = [
            &lengths[0][..],
            &lengths[1][..],
            name.as_bytes(),
            public.as_bytes(),
            system.as_bytes(),
        ];
        self.change(|arena| {
            let node = arena.new_text(NodeKind::Doctype, &parts);
            arena.append(DOCUMENT, node);
        });
    }

    fn get_template_contents(&self, target: &u32) -> u32 {
        Arena::contents_of(*target)
    }

    fn same_node(&self, a: &u32, b: &u32) -> bool {
        a == b
    }

    fn set_quirks_mode(&self, mode: QuirksMode) {
        self.arena.borrow_mut().quirks = match mode {
            QuirksMode::NoQuirks => 0,
            QuirksMode::LimitedQuirks => 1,
            QuirksMode::Quirks => 2,
        };
    }

    fn append_before_sibling(&self, sibling: &u32, child: NodeOrText<u32>) {
        self.change(|arena| match child {
            NodeOrText::AppendNode(child) => {
                arena.detach(child);
                arena.insert_before(*sibling, child);
            }
            NodeOrText::AppendText(text) => arena.insert_text_before(*sibling, text.as_bytes()),
        });
    }

    fn add_attrs_if_missing(&self, target: &u32, attributes: Vec<Attribute>) {
        self.change(|arena| arena.add_attributes(*target, &attributes));
    }

    fn remove_from_parent(&self, target: &u32) {
        self.change(|arena| arena.detach(*target));
    }

    fn reparent_children(&self, from: &u32, to: &u32) {
        self.change(|arena| arena.move_children(*from, *to));
    }

    fn is_mathml_annotation_xml_integration_point(&self, target: &u32) -> bool {
        let arena = self.arena.borrow();
        let node = arena.node(*target);
        arena.attributes_of(node).iter().any(|attribute| {
            let name = &arena.names.all[attribute.name as usize];
            let value = arena.text_at(attribute.value, attribute.length);
            name.ns.is_empty()
                && &*name.local == "encoding"
                && (value.eq_ignore_ascii_case(b"text/html")
                    || value.eq_ignore_ascii_case(b"application/xhtml+xml"))
        })
    }
}
