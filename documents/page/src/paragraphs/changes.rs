//! Changes to the engine's tree, and their reversal.

use std::mem;

use blitz_dom::node::NodeFlags;
use blitz_dom::{
    BaseDocument, ElementData, LocalName, Namespace, Node, NodeData, NodeId, QualName,
};
use style::data::ElementStyles;
use style::properties::ComputedValues;
use style::selector_parser::{PseudoElement, RestyleDamage};
use style::servo_arc::Arc;

pub(super) const HTML: &str = "http://www.w3.org/1999/xhtml";

/// What is to be put back, the last first.
#[derive(Default)]
pub(super) struct Changes {
    changes: Vec<Change>,
    /// What the engine takes as a reason to make the boxes of a node anew.
    pub(super) all_damage: Option<RestyleDamage>,
}

enum Change {
    Children { node: NodeId, children: Vec<NodeId> },
    Parent { node: NodeId, parent: Option<NodeId> },
    Text { node: NodeId, content: String },
    Styles { node: NodeId, styles: ElementStyles },
}

impl Changes {
    /// Puts everything back. What was made is left to itself.
    pub(super) fn undo(&mut self, engine: &mut BaseDocument) {
        while let Some(change) = self.changes.pop() {
            match change {
                Change::Children { node, children } => {
                    set_children(engine, node, children);
                    self.damage(engine, node);
                }
                Change::Parent { node, parent } => with(engine, node, |node| node.parent = parent),
                Change::Text { node, content } => with(engine, node, |node| {
                    if let Some(text) = node.text_data_mut() {
                        text.content = content;
                    }
                }),
                Change::Styles { node, styles } => set_styles(engine, node, styles),
            }
        }
    }

    pub(super) fn damage(&self, engine: &mut BaseDocument, node: NodeId) {
        if let Some(damage) = self.all_damage {
            with(engine, node, |node| node.insert_damage(damage));
        }
    }

    pub(super) fn set_children(
        &mut self,
        engine: &mut BaseDocument,
        node: NodeId,
        children: Vec<NodeId>,
    ) {
        let Some(before) = engine.get_node(node).map(|node| node.children.to_vec()) else { return };
        self.changes.push(Change::Children { node, children: before });
        set_children(engine, node, children);
    }

    /// Puts nodes below another one.
    pub(super) fn adopt(
        &mut self,
        engine: &mut BaseDocument,
        parent: NodeId,
        children: Vec<NodeId>,
    ) {
        for child in &children {
            let Some(node) = engine.get_node_mut(*child) else { continue };
            if node.parent != Some(parent) {
                self.changes.push(Change::Parent { node: *child, parent: node.parent });
                node.parent = Some(parent);
            }
        }
        self.set_children(engine, parent, children);
    }

    pub(super) fn set_text(&mut self, engine: &mut BaseDocument, node: NodeId, content: &str) {
        with(engine, node, |text| {
            if let Some(text) = text.text_data_mut() {
                let content = mem::replace(&mut text.content, content.to_owned());
                self.changes.push(Change::Text { node, content });
            }
        });
    }

    /// What stands before or behind an element stands before or behind another one.
    pub(super) fn move_pseudo(
        &mut self,
        engine: &mut BaseDocument,
        from: NodeId,
        to: NodeId,
        pseudo: &PseudoElement,
    ) {
        let (Some(mut source), Some(mut target)) = (styles_of(engine, from), styles_of(engine, to))
        else {
            return;
        };
        let Some(style) = source.pseudos.get(pseudo).cloned() else { return };
        self.changes.push(Change::Styles { node: from, styles: source.clone() });
        target.pseudos.set(pseudo, style);
        let mut left = ElementStyles { primary: source.primary.take(), ..ElementStyles::default() };
        for other in [PseudoElement::Before, PseudoElement::After] {
            if let Some(style) = source.pseudos.get(&other).filter(|_| other != *pseudo) {
                left.pseudos.set(&other, style.clone());
            }
        }
        set_styles(engine, from, left);
        set_styles(engine, to, target);
    }
}

pub(super) fn name_of(local: &str, namespace: &str) -> QualName {
    QualName::new(None, Namespace::from(namespace), LocalName::from(local))
}

/// A box that is no element of the page.
pub(super) fn anonymous(
    engine: &mut BaseDocument,
    parent: NodeId,
    name: &str,
    styles: ElementStyles,
) -> NodeId {
    let data = ElementData::new(name_of(name, HTML), Vec::new());
    let made = engine.create_node(NodeData::AnonymousBlock(Box::new(data)));
    with(engine, made, |node| {
        node.parent = Some(parent);
        node.flags.insert(NodeFlags::IS_IN_DOCUMENT);
        node.stylo_element_data_mut().ensure_init_mut().set_restyled();
    });
    set_styles(engine, made, styles);
    made
}

pub(super) fn with(engine: &mut BaseDocument, node: NodeId, work: impl FnOnce(&mut Node)) {
    if let Some(node) = engine.get_node_mut(node) {
        work(node);
    }
}

pub(super) fn set_children(engine: &mut BaseDocument, node: NodeId, children: Vec<NodeId>) {
    with(engine, node, |node| node.children = children.into_iter().collect());
}

pub(super) fn styles_of(engine: &BaseDocument, node: NodeId) -> Option<ElementStyles> {
    Some(engine.get_node(node)?.try_stylo_element_data()?.get()?.styles.clone())
}

pub(super) fn set_styles(engine: &mut BaseDocument, node: NodeId, styles: ElementStyles) {
    with(engine, node, |node| node.stylo_element_data_mut().ensure_init_mut().styles = styles);
}

pub(super) fn pseudo_of(
    engine: &BaseDocument,
    node: NodeId,
    pseudo: &PseudoElement,
) -> Option<Arc<ComputedValues>> {
    styles_of(engine, node)?.pseudos.get(pseudo).cloned()
}
