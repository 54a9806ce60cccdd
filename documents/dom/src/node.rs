//! Nodes of an open document, and what can be asked of them.
//!
//! Invariant: an iterator ends, also over nodes that lead to each other in a circle: it makes no
//! more steps than the document has nodes.

use std::borrow::Cow;

use crate::document::Document;
use crate::error::{Damage, DomError};
use crate::layout::{
    AttributeRecord, NAME_CLASS, NAME_ID, NameRecord, NodeKind, NodeRecord, name_hash,
};
use crate::limits::SHARED_BYTES_MAX;
use crate::namespace::Namespace;

/// A node: a number in a document.
#[derive(Clone, Copy)]
pub struct Node<'d> {
    document: &'d Document<'d>,
    id: u32,
}

impl PartialEq for Node<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id && std::ptr::eq(self.document, other.document)
    }
}

impl Eq for Node<'_> {}

impl std::fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} {:?} {}", self.id, self.kind(), self.name().unwrap_or_default())
    }
}

/// An attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeRef<'d> {
    /// Its namespace; none for most.
    pub namespace: Namespace,
    /// Its prefix: `xlink` of `xlink:href` in SVG; never empty.
    pub prefix: Option<&'d str>,
    /// Its name without prefix.
    pub name: &'d str,
    /// Its value.
    pub value: &'d str,
}

impl<'d> AttributeRef<'d> {
    /// Its name as a page writes it, with the prefix: `xlink:href`.
    #[must_use]
    pub fn qualified_name(&self) -> Cow<'d, str> {
        match self.prefix {
            Some(prefix) => Cow::Owned(format!("{prefix}:{}", self.name)),
            None => Cow::Borrowed(self.name),
        }
    }
}

/// The name of an attribute as a page writes it, to be compared with names of a document.
pub(crate) struct QualifiedName<'n> {
    whole: &'n str,
    hash: u32,
    /// What stands before and behind the first colon, and the hash of the latter.
    parts: Option<(&'n str, &'n str, u32)>,
}

impl<'n> QualifiedName<'n> {
    pub(crate) fn new(whole: &'n str) -> QualifiedName<'n> {
        let parts = whole.split_once(':').map(|(prefix, local)| (prefix, local, name_hash(local)));
        QualifiedName { whole, hash: name_hash(whole), parts }
    }

    pub(crate) fn is(&self, document: &Document<'_>, record: &NameRecord) -> bool {
        let local_is = |hash, local: &str| {
            record.hash == hash
                && document.bytes_at(record.local, record.local_length) == local.as_bytes()
        };
        if record.has_prefix == 0 || record.prefix_length == 0 {
            return local_is(self.hash, self.whole);
        }
        self.parts.is_some_and(|(prefix, local, hash)| {
            local_is(hash, local)
                && document.bytes_at(record.prefix, record.prefix_length.into())
                    == prefix.as_bytes()
        })
    }
}

/// A document type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doctype<'d> {
    /// `html`, as a rule.
    pub name: &'d str,
    /// Empty, as a rule.
    pub public_id: &'d str,
    /// Empty, as a rule.
    pub system_id: &'d str,
}

impl<'d> Node<'d> {
    /// A number that the document has.
    pub(crate) fn new(document: &'d Document<'d>, id: u32) -> Node<'d> {
        Node { document, id }
    }

    /// Its number, which it keeps as long as the document is not parsed again or compacted.
    #[must_use]
    pub fn id(self) -> u32 {
        self.id
    }

    /// The document.
    #[must_use]
    pub fn document(self) -> &'d Document<'d> {
        self.document
    }

    pub(crate) fn record(self) -> NodeRecord {
        self.document.record(self.id).copied().unwrap_or_default()
    }

    fn at(self, to: u32) -> Option<Node<'d>> {
        self.document.follow(self.id, to).map(|(id, _)| Node { id, ..self })
    }

    /// What it is. A node of a kind that there is not reads as a comment, and is damage.
    #[must_use]
    pub fn kind(self) -> NodeKind {
        NodeKind::parse(self.record().kind()).unwrap_or_else(|| {
            self.document.note(Damage::Node { node: self.id });
            NodeKind::Comment
        })
    }

    /// Whether it is an element.
    #[must_use]
    pub fn is_element(self) -> bool {
        self.record().is(NodeKind::Element)
    }

    /// Its parent.
    #[must_use]
    pub fn parent(self) -> Option<Node<'d>> {
        self.at(self.record().parent)
    }

    /// Its first child.
    #[must_use]
    pub fn first_child(self) -> Option<Node<'d>> {
        self.at(self.record().first_child())
    }

    /// Its last child.
    #[must_use]
    pub fn last_child(self) -> Option<Node<'d>> {
        let first = self.first_child()?;
        first.at(first.record().previous)
    }

    /// The sibling behind it.
    #[must_use]
    pub fn next_sibling(self) -> Option<Node<'d>> {
        self.at(self.record().next)
    }

    /// The sibling before it.
    #[must_use]
    pub fn previous_sibling(self) -> Option<Node<'d>> {
        let record = self.record();
        let parent = self.at(record.parent)?;
        if parent.record().first_child() == self.id { None } else { self.at(record.previous) }
    }

    /// What a template holds: its nodes are not its children, and in no walk over the document.
    #[must_use]
    pub fn template_contents(self) -> Option<Node<'d>> {
        let record = self.record();
        if !record.is(NodeKind::Element) || !record.has_contents() {
            return None;
        }
        let contents = self.at(self.id.saturating_add(1))?;
        let inner = contents.record();
        if inner.is(NodeKind::Fragment) && inner.data == self.id {
            return Some(contents);
        }
        self.document.note(Damage::Node { node: self.id });
        None
    }

    /// Its children.
    #[must_use]
    pub fn children(self) -> Siblings<'d> {
        Siblings { next: self.first_child(), steps_left: self.document.nodes().len() }
    }

    /// Its parent, its parent's parent, and so on.
    #[must_use]
    pub fn ancestors(self) -> Ancestors<'d> {
        Ancestors { next: self.parent(), steps_left: self.document.nodes().len() }
    }

    /// All nodes below it, in document order; those in templates' contents are not.
    #[must_use]
    pub fn descendants(self) -> Descendants<'d> {
        Descendants { root: self, last: self, steps_left: self.document.walk_steps() }
    }

    /// An element's local name, in lower case if it is of HTML.
    #[must_use]
    pub fn name(self) -> Option<&'d str> {
        let record = self.document.name(self.element()?.name())?;
        Some(self.document.str_at(record.local, record.local_length))
    }

    /// An element's namespace.
    #[must_use]
    pub fn namespace(self) -> Option<Namespace> {
        let name = self.element()?.name();
        let namespace = Namespace::parse(self.document.name(name)?.namespace);
        if namespace.is_none() {
            self.document.note(Damage::Name { name });
        }
        namespace
    }

    fn element(self) -> Option<NodeRecord> {
        let record = self.record();
        record.is(NodeKind::Element).then_some(record)
    }

    /// An element's attributes, in the order of the source.
    pub fn attributes(self) -> impl ExactSizeIterator<Item = AttributeRef<'d>> {
        let document = self.document;
        let attributes = match document.record(self.id) {
            Some(record) => document.attributes_of(record),
            None => &[],
        };
        attributes.iter().map(|attribute| document.attribute(attribute))
    }

    /// The value of the first attribute of this name, as the page writes it: `xlink:href` of SVG
    /// with its prefix.
    #[must_use]
    pub fn attribute(self, name: &str) -> Option<&'d str> {
        let (document, wanted) = (self.document, QualifiedName::new(name));
        let attributes = document.attributes_of(document.record(self.id)?);
        let found = attributes.iter().find(|attribute| {
            document.name(attribute.name.into()).is_some_and(|record| wanted.is(document, record))
        })?;
        Some(document.value_of(found))
    }

    /// The value of an attribute of a namespace, whose name is `name` without a prefix.
    #[must_use]
    pub fn attribute_in(self, namespace: Namespace, name: &str) -> Option<&'d str> {
        let (document, hash) = (self.document, name_hash(name));
        let attributes = document.attributes_of(document.record(self.id)?);
        let found = attributes.iter().find(|attribute| {
            document.name(attribute.name.into()).is_some_and(|record| {
                record.hash == hash
                    && record.namespace == namespace as u8
                    && document.bytes_at(record.local, record.local_length) == name.as_bytes()
            })
        })?;
        Some(document.value_of(found))
    }

    /// The attribute `id`.
    #[must_use]
    pub fn html_id(self) -> Option<&'d str> {
        self.known_attribute(NAME_ID)
    }

    /// The classes that the attribute `class` names.
    pub fn classes(self) -> impl Iterator<Item = &'d str> {
        self.known_attribute(NAME_CLASS).unwrap_or_default().split_ascii_whitespace()
    }

    pub(crate) fn known_attribute(self, name: u32) -> Option<&'d str> {
        let document = self.document;
        let attributes = document.attributes_of(document.record(self.id)?);
        let found = attributes.iter().find(|attribute| u32::from(attribute.name) == name)?;
        Some(document.value_of(found))
    }

    /// The text of a text or comment, and the data of a processing instruction.
    #[must_use]
    pub fn data(self) -> Option<&'d str> {
        let record = self.record();
        match NodeKind::parse(record.kind())? {
            NodeKind::Text | NodeKind::Comment => {
                Some(self.document.str_at(record.data, record.first))
            }
            NodeKind::ProcessingInstruction => self.instruction().map(|(_, data)| data),
            _ => None,
        }
    }

    /// The target of a processing instruction.
    #[must_use]
    pub fn target(self) -> Option<&'d str> {
        self.instruction().map(|(target, _)| target)
    }

    fn instruction(self) -> Option<(&'d str, &'d str)> {
        let record = self.record();
        if !record.is(NodeKind::ProcessingInstruction) {
            return None;
        }
        let [target] = self.lengths(&record)?;
        let start = record.data + 4;
        let rest = record.first.checked_sub(4)?.checked_sub(target);
        let Some(rest) = rest else {
            self.document.note(Damage::Text { start: record.data });
            return None;
        };
        Some((self.document.str_at(start, target), self.document.str_at(start + target, rest)))
    }

    /// What a document type says.
    #[must_use]
    pub fn doctype(self) -> Option<Doctype<'d>> {
        let record = self.record();
        if !record.is(NodeKind::Doctype) {
            return None;
        }
        let [name, public] = self.lengths(&record)?;
        let document = self.document;
        let system = record
            .first
            .checked_sub(8)
            .and_then(|rest| rest.checked_sub(name)?.checked_sub(public));
        let Some(system) = system else {
            document.note(Damage::Text { start: record.data });
            return None;
        };
        let start = record.data + 8;
        Some(Doctype {
            name: document.str_at(start, name),
            public_id: document.str_at(start + name, public),
            system_id: document.str_at(start + name + public, system),
        })
    }

    /// The words before a text of several parts.
    fn lengths<const COUNT: usize>(self, record: &NodeRecord) -> Option<[u32; COUNT]> {
        let text = self.document.bytes_at(record.data, record.first);
        let mut words =
            text.chunks_exact(4).map(|word| word.try_into().map_or(0, u32::from_le_bytes));
        let mut lengths = [0; COUNT];
        for length in &mut lengths {
            *length = words.next().or_else(|| {
                self.document.note(Damage::Text { start: record.data });
                None
            })?;
        }
        Some(lengths)
    }

    /// All text in it, without what templates hold.
    ///
    /// # Errors
    /// [`DomError::Damaged`].
    pub fn text(self) -> Result<String, DomError> {
        let mut text = String::new();
        if self.record().is(NodeKind::Text) {
            text.push_str(self.data().unwrap_or_default());
        }
        for node in self.descendants() {
            let record = node.record();
            if record.is(NodeKind::Text) {
                text.push_str(self.document.str_at(record.data, record.first));
                if text.len() > self.document.text_bytes_max() {
                    self.document.note(Damage::Text { start: record.data });
                    break;
                }
            }
        }
        self.document.unless_damaged(text)
    }
}

impl<'heap> Document<'heap> {
    pub(crate) fn attribute(&self, record: &AttributeRecord) -> AttributeRef<'_> {
        let name = self.name(record.name.into()).copied().unwrap_or_default();
        let namespace = Namespace::parse(name.namespace).unwrap_or_else(|| {
            self.note(Damage::Name { name: record.name.into() });
            Namespace::None
        });
        AttributeRef {
            namespace,
            // The parser gives `xmlns` a prefix of no letters.
            prefix: (name.has_prefix != 0 && name.prefix_length != 0)
                .then(|| self.str_at(name.prefix, name.prefix_length.into())),
            name: self.str_at(name.local, name.local_length),
            value: self.value_of(record),
        }
    }

    /// Bytes of all texts together at most: short ones may share their bytes. Of a damaged document
    /// each text could be the longest.
    pub(crate) fn text_bytes_max(&self) -> usize {
        self.text().len() + self.nodes().len() * SHARED_BYTES_MAX
    }

    /// The node after `last` in a walk over what is below `root`.
    #[inline]
    pub(crate) fn after(&self, root: u32, last: u32, steps_left: &mut usize) -> Option<u32> {
        let mut id = last;
        let record = self.record(id)?;
        if let Some((child, _)) = self.follow(id, record.first_child()) {
            return self.step(child, steps_left);
        }
        while id != root {
            let record = self.record(id)?;
            if let Some((next, _)) = self.follow(id, record.next) {
                return self.step(next, steps_left);
            }
            (id, _) = self.follow(id, record.parent)?;
            // On the way up, too: a circle of parents has no end.
            self.step(id, steps_left)?;
        }
        None
    }

    /// Steps that a walk over a whole document takes at most: each node is entered once, and left
    /// once.
    pub(crate) fn walk_steps(&self) -> usize {
        self.nodes().len() * 2
    }

    fn step(&self, to: u32, steps_left: &mut usize) -> Option<u32> {
        if *steps_left == 0 {
            self.note(Damage::Circle { node: to });
            return None;
        }
        *steps_left -= 1;
        Some(to)
    }
}

/// The next node of those that lead to each other.
fn follow<'d>(
    next: &mut Option<Node<'d>>,
    steps_left: &mut usize,
    to: fn(Node<'d>) -> Option<Node<'d>>,
) -> Option<Node<'d>> {
    let node = (*next)?;
    node.document.step(node.id, steps_left)?;
    *next = to(node);
    Some(node)
}

/// Iterator over siblings; see [`Node::children`].
#[derive(Clone, Debug)]
pub struct Siblings<'d> {
    next: Option<Node<'d>>,
    steps_left: usize,
}

impl<'d> Iterator for Siblings<'d> {
    type Item = Node<'d>;

    fn next(&mut self) -> Option<Node<'d>> {
        follow(&mut self.next, &mut self.steps_left, Node::next_sibling)
    }
}

/// Iterator over ancestors; see [`Node::ancestors`].
#[derive(Clone, Debug)]
pub struct Ancestors<'d> {
    next: Option<Node<'d>>,
    steps_left: usize,
}

impl<'d> Iterator for Ancestors<'d> {
    type Item = Node<'d>;

    fn next(&mut self) -> Option<Node<'d>> {
        follow(&mut self.next, &mut self.steps_left, Node::parent)
    }
}

/// Iterator over what is below a node; see [`Node::descendants`].
#[derive(Clone, Debug)]
pub struct Descendants<'d> {
    root: Node<'d>,
    last: Node<'d>,
    steps_left: usize,
}

impl<'d> Iterator for Descendants<'d> {
    type Item = Node<'d>;

    fn next(&mut self) -> Option<Node<'d>> {
        let document = self.root.document;
        let id = document.after(self.root.id, self.last.id, &mut self.steps_left)?;
        self.last = Node { document, id };
        Some(self.last)
    }
}
