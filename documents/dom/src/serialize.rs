//! A document as HTML again, by the rules of html5ever's serialiser.
//!
//! Invariant: no recursion on depth, and no more output than a sound document of this size can
//! give.

use std::collections::HashMap;
use std::io::{self, Write};

use foldhash::fast::RandomState;
use html5ever::serialize::{
    AttrRef, Serialize, SerializeOpts, Serializer, TraversalScope, serialize,
};
use html5ever::{LocalName, QualName};

use crate::document::Document;
use crate::error::{Damage, DomError, ParseLimit};
use crate::layout::NodeKind;
use crate::limits::SHARED_BYTES_MAX;
use crate::namespace::Namespace;
use crate::node::Node;

impl<'d> Node<'d> {
    /// The node and what is in it as HTML: the specification's `outerHTML`.
    ///
    /// # Errors
    /// [`DomError::Damaged`].
    pub fn html(self) -> Result<String, DomError> {
        let scope = match self.kind() {
            NodeKind::Document | NodeKind::Fragment => TraversalScope::ChildrenOnly(None),
            _ => TraversalScope::IncludeNode,
        };
        self.serialized(scope)
    }

    /// What is in the node as HTML: the specification's `innerHTML`.
    ///
    /// # Errors
    /// [`DomError::Damaged`].
    pub fn inner_html(self) -> Result<String, DomError> {
        let name = self
            .is_element()
            .then(|| ParserNames::new(self.document()).qualified(self.record().name()));
        self.serialized(TraversalScope::ChildrenOnly(name))
    }

    fn serialized(self, scope: TraversalScope) -> Result<String, DomError> {
        let mut out = Vec::new();
        serialize(&mut out, &SerializedNode(self), self.options(scope))?;
        let text = String::from_utf8(out).unwrap_or_default();
        self.document().unless_damaged(text)
    }

    /// Writes the node and what is in it as HTML.
    ///
    /// # Errors
    /// [`DomError::Damaged`]; [`DomError::Io`] with what the writer says.
    pub fn write_html(self, writer: impl Write) -> Result<(), DomError> {
        serialize(writer, &SerializedNode(self), self.options(TraversalScope::IncludeNode))?;
        self.document().unless_damaged(())
    }

    /// Text in `noscript` is written as it is only where it was parsed so: elsewhere it would come
    /// back as elements.
    fn options(self, traversal_scope: TraversalScope) -> SerializeOpts {
        let scripting_enabled = self.document().scripting();
        SerializeOpts { scripting_enabled, traversal_scope, ..SerializeOpts::default() }
    }
}

/// The parser's form of those of the document's names that occur, each made once.
struct ParserNames<'d> {
    document: &'d Document<'d>,
    made: HashMap<u32, QualName, RandomState>,
}

impl<'d> ParserNames<'d> {
    fn new(document: &'d Document<'d>) -> ParserNames<'d> {
        ParserNames { document, made: HashMap::default() }
    }

    fn qualified(&mut self, number: u32) -> QualName {
        if let Some(name) = self.made.get(&number) {
            return name.clone();
        }
        let record = self.document.name(number).copied().unwrap_or_default();
        let namespace = Namespace::parse(record.namespace).unwrap_or_default();
        let local = LocalName::from(self.document.str_at(record.local, record.local_length));
        let name = QualName::new(None, namespace.to_url(), local);
        self.made.insert(number, name.clone());
        name
    }
}

/// A node as the serialiser wants it.
struct SerializedNode<'d>(Node<'d>);

impl Serialize for SerializedNode<'_> {
    fn serialize<S: Serializer>(
        &self,
        serializer: &mut S,
        scope: TraversalScope,
    ) -> io::Result<()> {
        let mut walk = Walk {
            names: ParserNames::new(self.0.document()),
            serializer,
            attributes_left: self.0.document().attributes().len(),
            text_left: self.0.document().text_bytes_max()
                + self.0.document().attributes().len() * SHARED_BYTES_MAX,
            names_left: NAMES_BYTES_MAX,
        };
        let mut steps_left = self.0.document().walk_steps();
        let mut open = Vec::new();
        match scope {
            TraversalScope::IncludeNode => open.push(Step::Enter(self.0.id())),
            TraversalScope::ChildrenOnly(_) => walk.push_children(self.0, &mut open),
        }
        while let Some(step) = open.pop() {
            if steps_left == 0 {
                self.0.document().note(Damage::Circle { node: self.0.id() });
                break;
            }
            match step {
                Step::Leave(name) => walk.serializer.end_elem(name)?,
                Step::Enter(id) => {
                    steps_left -= 1;
                    let node = Node::new(self.0.document(), id);
                    // Siblings of the node that was asked for are not part of it.
                    if id != self.0.id()
                        && let Some(next) = node.next_sibling()
                    {
                        open.push(Step::Enter(next.id()));
                    }
                    walk.enter(node, &mut open)?;
                }
            }
            if self.0.document().damage().is_some() || self.0.document().limit().is_some() {
                break;
            }
        }
        Ok(())
    }
}

enum Step {
    Enter(u32),
    Leave(QualName),
}

struct Walk<'d, 's, S: Serializer> {
    names: ParserNames<'d>,
    serializer: &'s mut S,
    attributes_left: usize,
    text_left: usize,
    /// Bytes of long names that may still be written.
    names_left: usize,
}

/// Bytes of names of more than [`SHARED_BYTES_MAX`] bytes in one answer. A document has a name
/// once, and any number of elements may have it.
const NAMES_BYTES_MAX: usize = 128 << 20;

impl<'d, S: Serializer> Walk<'d, '_, S> {
    fn push_children(&self, node: Node<'d>, open: &mut Vec<Step>) {
        let parent = node.template_contents().unwrap_or(node);
        if let Some(child) = parent.first_child() {
            open.push(Step::Enter(child.id()));
        }
    }

    /// Whether as much text may still be written.
    fn take_text(&mut self, document: &Document<'_>, start: u32, length: u32) -> bool {
        match self.text_left.checked_sub(length as usize) {
            Some(rest) => {
                self.text_left = rest;
                true
            }
            None => {
                document.note(Damage::Text { start });
                false
            }
        }
    }

    /// Whether this name may still be written.
    fn take_name(&mut self, document: &Document<'_>, name: u32) -> bool {
        // As many as there are: one that does not lie in the document is damage, whatever length it
        // claims.
        let length = document
            .name(name)
            .map_or(0, |name| document.bytes_at(name.local, name.local_length).len());
        if length <= SHARED_BYTES_MAX {
            return true;
        }
        match self.names_left.checked_sub(length) {
            Some(rest) => {
                self.names_left = rest;
                true
            }
            None => {
                document.note_limit(ParseLimit::NamesBytes, NAMES_BYTES_MAX as u64);
                false
            }
        }
    }

    fn enter(&mut self, node: Node<'d>, open: &mut Vec<Step>) -> io::Result<()> {
        let document = node.document();
        let record = node.record();
        match node.kind() {
            NodeKind::Document | NodeKind::Fragment => self.push_children(node, open),
            NodeKind::Element => {
                // At its start and at its end.
                if !self.take_name(document, record.name())
                    || !self.take_name(document, record.name())
                {
                    return Ok(());
                }
                let name = self.names.qualified(record.name());
                let attributes = document.attributes_of(&record);
                if attributes.len() > self.attributes_left {
                    document.note(Damage::Attribute { attribute: record.data });
                    return Ok(());
                }
                self.attributes_left -= attributes.len();
                for attribute in attributes {
                    let (start, length) = document.place_of(attribute);
                    if !self.take_name(document, attribute.name.into())
                        || !self.take_text(document, start, length)
                    {
                        return Ok(());
                    }
                }
                let attributes: Vec<(QualName, &str)> = attributes
                    .iter()
                    .map(|at| (self.names.qualified(at.name.into()), document.value_of(at)))
                    .collect();
                let attributes =
                    attributes.iter().map(|(name, value)| -> AttrRef<'_> { (name, value) });
                self.serializer.start_elem(name.clone(), attributes)?;
                open.push(Step::Leave(name));
                self.push_children(node, open);
            }
            kind => {
                if !self.take_text(document, record.data, record.first) {
                    return Ok(());
                }
                match kind {
                    NodeKind::Text => {
                        self.serializer.write_text(node.data().unwrap_or_default())?
                    }
                    NodeKind::Comment => {
                        self.serializer.write_comment(node.data().unwrap_or_default())?
                    }
                    NodeKind::Doctype => {
                        self.serializer
                            .write_doctype(node.doctype().map_or("", |doctype| doctype.name))?;
                    }
                    _ => self.serializer.write_processing_instruction(
                        node.target().unwrap_or_default(),
                        node.data().unwrap_or_default(),
                    )?,
                }
            }
        }
        Ok(())
    }
}
